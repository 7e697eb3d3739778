//! The report as one page without anything outside it: the tables, the distributions of latency, and size against latency.

use std::fmt::Write;

use crate::drawing;
use crate::report::Report;
use crate::table::Table;

const STYLE: &str = include_str!("style.css");

/// The page.
pub(crate) fn page(report: &Report) -> String {
    let conditions = escape(&report.conditions.to_string());
    let mut body = String::new();
    body.push_str("<h1>Lookups in segment files</h1>\n");
    push(&mut body, format_args!("<pre>{conditions}\n</pre>\n"));
    body.push_str("<h2>Files</h2>\n");
    table(&mut body, &report.file_table());
    body.push_str(
        "<p class=\"note\">Cold: accessors in memory, the .kv evicted. Evicted: nothing in memory before each lookup. \
         Baseline: p50 of one touch of a random 4 KiB page of the same evicted file, in turn with the lookups.</p>\n\
         <h2>Size against latency</h2>\n<p class=\"note\">p50 of lookups of known keys over the size of the pivot index. \
         One line a file; its points are the densities.</p>\n",
    );
    drawing::size_against_latency(&mut body, &report.files);
    body.push_str(
        "<h2>Latency</h2>\n<p class=\"note\">The share of lookups that took no longer. All drawings have the same logarithmic scale of \
         time. Dashed: unknown keys. Dotted: the baseline, one touch of a random page of the evicted file, warm one dependent read from \
         memory.</p>\n",
    );
    for densities in report.by_file() {
        drawing::distributions(&mut body, densities);
    }
    body.push_str(
        "<h2>Every mode</h2>\n<p class=\"note\">Baseline: p50 of what the lookups of that line are compared with, one touch of a \
         random page of the evicted file, warm one dependent read from memory. Faults: how often a lookup waited for the disk.</p>\n",
    );
    table(&mut body, &report.mode_table());
    if !report.archives.is_empty() {
        body.push_str("<h2>Archives through the engine</h2>\n");
        table(&mut body, &report.archive_table());
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>icecore-probe</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
}

/// Appends to a page.
pub(crate) fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a string takes any text");
}

/// Text as it stands in a page.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn table(out: &mut String, table: &Table) {
    out.push_str("<div class=\"scroll\"><table>\n");
    let groups = table.groups();
    if !groups.is_empty() {
        out.push_str("<tr class=\"groups\">");
        for (group, columns) in groups {
            push(out, format_args!("<th colspan=\"{columns}\">{}</th>", escape(group)));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("<tr>");
    for column in &table.columns {
        push(out, format_args!("<th>{}</th>", escape(&column.head)));
    }
    out.push_str("</tr>\n");
    for line in &table.lines {
        out.push_str("<tr>");
        for cell in line {
            push(out, format_args!("<td>{}</td>", escape(cell)));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
}
