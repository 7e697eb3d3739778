//! What both subcommands print alike: the conditions, the settings, tables for people.

use std::io::{self, Write};

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use icecore_tools::machine::Conditions;
use icecore_tools::provenance::Provenance;
use serde::Serialize;

/// Prints the report as JSON.
pub(crate) fn print_json(conditions: &impl Serialize, peers: &impl Serialize) -> io::Result<()> {
    writeln!(io::stdout(), "{:#}", serde_json::json!({ "conditions": conditions, "peers": peers }))
}

/// A study as JSON: what was run, under which conditions, and one flat row for each figure.
pub(crate) fn study(run: &Provenance, conditions: &impl Serialize, rows: &impl Serialize) -> String {
    let Provenance { command, commit, date, .. } = run;
    let study = serde_json::json!({
        "command": command,
        "commit": commit,
        "date": date,
        "conditions": conditions,
        "rows": rows,
    });
    format!("{study:#}\n")
}

/// Prints the machine and what else the figures depend on.
pub(crate) fn print_conditions(
    machine: &Conditions,
    load_average: [Option<f64>; 2],
    lines: &[(&str, String)],
) {
    println!("{machine}");
    let [before, after] = load_average.map(|load| load.map_or_else(|| "unknown".into(), |l| l.to_string()));
    println!("load         {before} at the beginning, {after} at the end");
    for (name, value) in lines {
        println!("{name:<12} {value}");
    }
}

/// Prints the settings of each peer, one line each.
pub(crate) fn print_settings<'a>(peers: impl Iterator<Item = (&'a str, &'a str)>) {
    println!("\nSettings");
    for (name, settings) in peers {
        println!("  {name}: {settings}");
    }
}

/// A table whose first `names` columns are names and whose other columns are numbers.
pub(crate) fn print_table(title: &str, names: usize, header: &[&str], rows: Vec<Vec<String>>) {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.to_vec());
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(names) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("\n{title}\n{table}");
}

/// Three digits that matter.
pub(crate) fn digits(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}
