//! The exit codes, once, and the error that carries one.

use std::fmt;

macro_rules! exit_codes {
    ($($(#[$doc:meta])* $code:literal $name:ident $meaning:literal;)*) => {
        /// Why the process ends, as a number that scripts can rely on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Exit { $($(#[$doc])* $name,)* }

        impl Exit {
            /// Every code, in the order of the numbers.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The number that the shell sees.
            pub(crate) fn code(self) -> u8 {
                match self { $(Self::$name => $code,)* }
            }

            /// What the number means, as `--help` prints it.
            pub(crate) fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)* }
            }
        }
    };
}

exit_codes! { // code, name, meaning
    0 Done "done, nothing at or above --fail-on";
    1 Findings "findings at or above --fail-on (wins over 6)";
    2 Usage "usage: a flag, an address that names nothing, an input file that cannot be read or parsed";
    3 Configuration "configuration";
    4 Rights "authentication or rights";
    5 Unreachable "Kafka or store unreachable";
    6 Incomplete "incomplete: something could not be read, and nothing at or above --fail-on so far";
    7 Unsupported "not supported (no tiered storage here, unknown layout)";
    101 Bug "a defect of strandline (it panicked): please report it, with what RUST_BACKTRACE=1 shows";
    129 HungUp "ended by SIGHUP: the terminal was closed";
    130 Interrupted "ended by Ctrl-C";
    143 Terminated "ended by SIGTERM";
}

/// The table for the end of `--help`.
pub(crate) fn help_table() -> String {
    let mut text = String::from("Exit codes:\n");
    for exit in Exit::ALL {
        text.push_str(&format!("  {:>3}  {}\n", exit.code(), exit.meaning()));
    }
    text
}

/// An error that ends the command: the exit code, the chain of causes, and what to do about it.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The code that the process ends with.
    pub(crate) exit: Exit,
    /// What went wrong, with its causes.
    pub(crate) error: anyhow::Error,
    /// What to try next, one sentence each.
    pub(crate) hints: Vec<String>,
    /// True when nobody is left to hear of it: the reader of stdout has gone.
    pub(crate) quiet: bool,
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident $exit:ident;)*) => {
        impl Failure {
            $($(#[$doc])* pub(crate) fn $name(error: impl Into<Message>) -> Self {
                Self { exit: Exit::$exit, error: error.into().0, hints: Vec::new(), quiet: false }
            })*
        }
    };
}

constructors! {
    /// A flag, an address or an input file is wrong.
    usage Usage;
    /// A setting is wrong.
    configuration Configuration;
    /// The peer refuses us.
    rights Rights;
    /// The peer does not answer.
    unreachable Unreachable;
    /// It cannot be done here.
    unsupported Unsupported;
}

/// What a [`Failure`] says: text, or an error with its causes.
pub(crate) struct Message(anyhow::Error);

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self(anyhow::Error::msg(text))
    }
}

impl From<&'static str> for Message {
    fn from(text: &'static str) -> Self {
        Self(anyhow::Error::msg(text))
    }
}

impl From<anyhow::Error> for Message {
    fn from(error: anyhow::Error) -> Self {
        Self(error)
    }
}

impl Failure {
    /// Adds a sentence about what to do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}

impl From<std::io::Error> for Failure {
    /// Stdout cannot be written. A reader that has gone (`| head`) is no error; a full disk is.
    fn from(error: std::io::Error) -> Self {
        let quiet = error.kind() == std::io::ErrorKind::BrokenPipe;
        let exit = if quiet { Exit::Done } else { Exit::Incomplete };
        Self {
            exit,
            error: anyhow::Error::new(error).context("stdout cannot be written"),
            hints: Vec::new(),
            quiet,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_code_has_its_line_in_the_help() {
        let table = help_table();
        for code in [0, 1, 2, 3, 4, 5, 6, 7, 101, 129, 130, 143] {
            assert!(table.lines().any(|line| line.trim_start().starts_with(&format!("{code} "))), "{code}");
        }
        assert_eq!(Exit::ALL.len(), 12);
    }
}
