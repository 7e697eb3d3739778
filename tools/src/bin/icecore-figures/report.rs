//! What was measured, as a table for people and as JSON for programs.

use std::io::{self, Write};

use icecore_tools::provenance::Provenance;
use serde::Serialize;

use crate::goals::{self, Bound};

/// One measured figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) measured: f64,
    pub(crate) unit: &'static str,
    /// As `<= 1.02`; `null` for a figure that explains another one.
    pub(crate) goal: Option<String>,
    pub(crate) met: Option<bool>,
}

/// The figures measured so far, and the run that measures them.
#[derive(Debug)]
pub(crate) struct Figures {
    run: Provenance,
    measured: Vec<Figure>,
}

impl Figures {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self { run: Provenance::of_this_run(), measured: Vec::new() }
    }

    /// Adds a figure and tells it on standard error, since the next may take a while.
    pub(crate) fn add(&mut self, name: &str, measured: f64) {
        let (name, unit, bound) = goals::goal(name);
        let goal = (bound != Bound::Free).then(|| bound.to_string());
        let figure = Figure { name, measured, unit, goal, met: bound.is_met(measured) };
        eprintln!("{}", line(&figure));
        self.measured.push(figure);
    }

    /// Prints all of them, in the order of the design, with what they were measured under.
    pub(crate) fn print(mut self, conditions: &impl Serialize, json: bool) -> io::Result<()> {
        self.measured.sort_by_key(|figure| goals::place(figure.name));
        let mut out = io::stdout().lock();
        if json {
            let report =
                serde_json::json!({ "run": self.run, "conditions": conditions, "figures": self.measured });
            return writeln!(out, "{report:#}");
        }
        writeln!(out, "{}\n", self.run)?;
        let conditions = serde_json::to_value(conditions).unwrap_or_default();
        write_conditions(&mut out, "", &conditions)?;
        writeln!(out)?;
        for figure in &self.measured {
            writeln!(out, "{}", line(figure))?;
        }
        let bound: Vec<bool> = self.measured.iter().filter_map(|figure| figure.met).collect();
        writeln!(out, "{} of {} goals met", bound.iter().filter(|met| **met).count(), bound.len())
    }
}

fn line(figure: &Figure) -> String {
    let measured = match figure.measured {
        value if value >= 1000.0 => format!("{value:.0}"),
        value if value >= 100.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    };
    let met = figure.met.map_or("", |met| if met { "met" } else { "MISSED" });
    let goal = figure.goal.as_deref().unwrap_or("");
    format!("{:<82} {measured:>10} {:<12} {goal:<8} {met}", figure.name, figure.unit).trim_end().to_owned()
}

/// One line for each value, nested names joined by a dot.
fn write_conditions(out: &mut impl Write, name: &str, value: &serde_json::Value) -> io::Result<()> {
    let serde_json::Value::Object(fields) = value else {
        return writeln!(out, "{name:<40} {value}");
    };
    let dot = if name.is_empty() { "" } else { "." };
    fields.iter().try_for_each(|(field, value)| write_conditions(out, &format!("{name}{dot}{field}"), value))
}
