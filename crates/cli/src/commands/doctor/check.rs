//! One thing that was looked at, and what came of it.

use serde::Serialize;
use strandline_audit::{Need, RULES};

use crate::exit::Exit;

/// What came of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// As it should be.
    Ok,
    /// Every command works, and something is less than it could be.
    Warning,
    /// A command fails of it, or cannot show all.
    Failed,
    /// Not looked at; the detail says why.
    Skipped,
}

impl Verdict {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }

    /// How a terminal shows the word.
    pub(super) fn colour(self) -> &'static str {
        match self {
            Self::Ok => "32",
            Self::Warning => "33",
            Self::Failed => "31",
            Self::Skipped => "2",
        }
    }
}

/// What a check is about; each begins a part of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Section {
    Settings,
    Connection,
    Cluster,
    Rights,
    MetadataTopic,
    Store,
}

impl Section {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Settings => "Settings",
            Self::Connection => "Connection",
            Self::Cluster => "Cluster",
            Self::Rights => "Rights",
            Self::MetadataTopic => "Metadata topic",
            Self::Store => "Store",
        }
    }
}

/// A row of the report.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Check {
    pub(super) section: Section,
    /// What was looked at: an address, a principal, a topic; absent where there is only one.
    pub(super) subject: Option<String>,
    /// Which of its sides.
    pub(super) check: String,
    pub(super) verdict: Verdict,
    /// What was seen.
    pub(super) detail: String,
    /// Where a setting stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) origin: Option<String>,
    /// What to do about it.
    pub(super) help: Option<String>,
    /// The rules of `audit` that cannot be checked because of it.
    pub(super) silences: Vec<&'static str>,
    #[serde(skip)]
    pub(super) exit: Exit,
}

impl Check {
    fn new(section: Section, check: impl Into<String>, verdict: Verdict, detail: impl Into<String>) -> Self {
        Self {
            section,
            subject: None,
            check: check.into(),
            verdict,
            detail: detail.into(),
            origin: None,
            help: None,
            silences: Vec::new(),
            exit: Exit::Done,
        }
    }

    pub(super) fn ok(section: Section, check: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(section, check, Verdict::Ok, detail)
    }

    pub(super) fn warning(section: Section, check: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(section, check, Verdict::Warning, detail)
    }

    pub(super) fn skipped(section: Section, check: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(section, check, Verdict::Skipped, why)
    }

    /// `exit` is what a command that meets this ends with.
    pub(super) fn failed(
        section: Section,
        check: impl Into<String>,
        exit: Exit,
        detail: impl Into<String>,
    ) -> Self {
        Self { exit, ..Self::new(section, check, Verdict::Failed, detail) }
    }

    pub(super) fn subject(self, subject: impl Into<String>) -> Self {
        Self { subject: Some(subject.into()), ..self }
    }

    pub(super) fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    pub(super) fn maybe_help(self, help: Option<impl Into<String>>) -> Self {
        match help {
            Some(help) => self.help(help),
            None => self,
        }
    }

    /// Notes the rules that need one of these facts.
    pub(super) fn silences(self, needs: &[Need]) -> Self {
        let rules = RULES.iter().filter(|rule| rule.needs.iter().any(|need| needs.contains(need)));
        Self { silences: rules.map(|rule| rule.code).collect(), ..self }
    }

    /// The same, where something else makes up for it.
    pub(super) fn milder(self) -> Self {
        let verdict = if self.verdict == Verdict::Failed { Verdict::Warning } else { self.verdict };
        Self { verdict, exit: Exit::Done, ..self }
    }
}
