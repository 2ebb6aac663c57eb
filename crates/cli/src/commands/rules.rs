//! `rules`: the catalogue of findings, from the one table that the judge uses.

use serde::Serialize;
use strandline_audit::{RULES, Rule, rule};

use crate::args::{RulesArgs, RulesCommand};
use crate::exit::{Exit, Failure};
use crate::output::{About, Form, Grid, Output};
use crate::text::nearest;

const SCHEMA: &str = "strandline.rules/v1";

#[derive(Serialize)]
struct Row {
    code: &'static str,
    group: &'static str,
    severity: &'static str,
    title: &'static str,
    definition: &'static str,
    effect: &'static str,
    causes: &'static str,
    next: &'static str,
    needs: Vec<&'static str>,
}

impl Row {
    fn of(rule: &Rule) -> Self {
        Self {
            code: rule.code,
            group: rule.group.title(),
            severity: rule.severity.as_str(),
            title: rule.title,
            definition: rule.definition,
            effect: rule.effect,
            causes: rule.causes,
            next: rule.next,
            needs: rule.needs.iter().map(|need| need.words()).collect(),
        }
    }
}

/// Prints the whole catalogue, or one code of it.
pub(crate) fn run(args: &RulesArgs, output: &mut Output) -> Result<Exit, Failure> {
    let about = About { schema: SCHEMA, as_of_ms: output.clock.now_ms, ..About::default() };
    match &args.command {
        RulesCommand::List if output.kind == Form::Table => list(output)?,
        RulesCommand::List => output.machine(&about, RULES.iter().map(Row::of))?,
        RulesCommand::Show { code } => {
            let Some(rule) = rule(code) else {
                let failure = Failure::usage(format!("there is no rule {code:?}"));
                return Err(match nearest(code, RULES.iter().map(|rule| rule.code)) {
                    Some(near) => failure.hint(format!("did you mean {near}?")),
                    None => failure.hint("`strandline rules list` shows all codes"),
                });
            };
            match output.kind {
                Form::Table => show(rule, output)?,
                _ => output.machine(&about, [Row::of(rule)])?,
            }
        }
    }
    Ok(Exit::Done)
}

fn list(output: &mut Output) -> Result<(), Failure> {
    let mut group = None;
    let mut grid: Option<Grid> = None;
    for rule in RULES {
        if group != Some(rule.group) {
            if let Some(grid) = grid.take() {
                output.table(&grid)?;
                output.line("")?;
            }
            group = Some(rule.group);
            output.line(rule.group.title())?;
        }
        let grid = grid.get_or_insert_with(|| Grid::new(&["SEVERITY", "CODE", "TITLE"]));
        grid.row(vec![rule.severity.to_string(), rule.code.to_owned(), rule.title.to_owned()]);
    }
    if let Some(grid) = grid {
        output.table(&grid)?;
    }
    Ok(())
}

fn show(rule: &Rule, output: &mut Output) -> Result<(), Failure> {
    let severity = output.severity(rule.severity);
    output.wrapped(&format!("{} ({severity}): {}", rule.code, rule.title), "")?;
    let needs: Vec<&str> = rule.needs.iter().map(|need| need.words()).collect();
    let needs = if needs.is_empty() { "the events alone".to_owned() } else { needs.join("; ") };
    for (label, text) in [
        ("Meaning", rule.definition),
        ("Effect", rule.effect),
        ("Causes", rule.causes),
        ("What to do", rule.next),
        ("Needs", needs.as_str()),
    ] {
        output.line(&format!("\n{label}"))?;
        output.paragraph(text, "  ")?;
    }
    Ok(())
}
