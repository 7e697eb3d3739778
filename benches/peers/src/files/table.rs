//! The report of `files` for people.

use super::measure::Row;
use super::{FilesConditions, PeerReport};
use crate::report::{digits, print_conditions, print_settings, print_table};

const MB: f64 = 1e6;

/// Prints conditions, settings and tables.
pub(super) fn print(conditions: &FilesConditions, reports: &[PeerReport]) {
    let data = format!(
        "{} keys, {} versions, {} blocks",
        conditions.entries, conditions.versions, conditions.blocks
    );
    let lines = [("data", data), ("clock", conditions.clock.to_owned())];
    print_conditions(&conditions.machine, conditions.load_average, &lines);
    print_settings(reports.iter().map(|report| (report.name, report.settings.as_str())));
    let header = [
        "peer",
        "load s",
        "compact s",
        "loaded MB",
        "MB",
        "B/version",
        "open ms",
        "open reads MB",
        "open MB",
        "warm MB",
    ];
    let rows = reports.iter().map(|report| size_row(report, conditions.versions)).collect();
    print_table("Size; MB of memory is memory that no file backs", 1, &header, rows);
    for (phase, title) in [
        ("cold", "Cold: all files evicted once, keys far apart"),
        ("each", "Each: all files evicted before each lookup"),
    ] {
        let header = [
            "question",
            "peer",
            "p50 us",
            "p99 us",
            "p50 / touch",
            "bytes read",
            "read calls",
            "major faults",
        ];
        print_table(title, 2, &header, rows_of(reports, phase, cold_row));
    }
    let header = ["question", "peer", "p50 us", "p99 us", "mean us"];
    print_table("Warm: everything was asked for before", 2, &header, rows_of(reports, "warm", warm_row));
}

fn size_row(report: &PeerReport, versions: u64) -> Vec<String> {
    let (loaded, opening) = (&report.loaded, &report.cold.opening);
    let numbers = [
        loaded.load_s,
        loaded.compact_s,
        loaded.bytes_before_compaction as f64 / MB,
        loaded.bytes as f64 / MB,
        loaded.bytes as f64 / versions as f64,
        opening.seconds * 1e3,
        opening.read_bytes as f64 / MB,
        opening.memory_bytes as f64 / MB,
        report.warm.warm_memory_bytes as f64 / MB,
    ];
    std::iter::once(report.name.to_owned()).chain(numbers.map(digits)).collect()
}

/// The rows of a phase, question by question.
fn rows_of(
    reports: &[PeerReport],
    phase: &str,
    numbers: impl Fn(&PeerReport, &Row) -> Vec<f64>,
) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for question in ["past", "early", "unknown"] {
        for report in reports {
            let found = report.rows.iter().filter(|row| row.phase == phase && row.question == question);
            rows.extend(found.map(|row| {
                let names = [question.to_owned(), report.name.to_owned()].into_iter();
                names.chain(numbers(report, row).into_iter().map(digits)).collect()
            }));
        }
    }
    rows
}

fn cold_row(report: &PeerReport, row: &Row) -> Vec<f64> {
    let (cold, is_each) = (&report.cold, row.phase == "each");
    let touch_ns = if is_each { cold.touch_each_p50_ns } else { cold.touch_p50_ns };
    vec![
        row.p50_ns as f64 / 1e3,
        row.p99_ns as f64 / 1e3,
        row.p50_ns as f64 / touch_ns.max(1) as f64,
        row.read_bytes,
        row.read_calls,
        row.major_faults,
    ]
}

fn warm_row(_: &PeerReport, row: &Row) -> Vec<f64> {
    vec![row.p50_ns as f64 / 1e3, row.p99_ns as f64 / 1e3, row.mean_ns / 1e3]
}
