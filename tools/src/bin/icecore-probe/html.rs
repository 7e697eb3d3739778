//! The report as one page without anything outside it: the table, and the distributions of latency drawn.

use std::fmt::Write;

use icecore_tools::measure::lookup::Mode;

use crate::report::{FileReport, KeyKind, ModeReport, Report, archive_lines, columns, micros, mode_columns};

const STYLE: &str = include_str!("style.css");

/// The drawing in its own units.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 40.0;

/// The page.
pub(crate) fn page(report: &Report) -> String {
    let conditions = escape(&report.conditions.to_string());
    let mut body = String::new();
    body.push_str("<h1>Lookups in segment files</h1>\n");
    push(&mut body, format_args!("<pre>{conditions}\n</pre>\n"));
    body.push_str("<h2>Files</h2>\n");
    table(&mut body, report.files.iter().map(columns).collect());
    body.push_str(
        "<p class=\"note\">Cold: accessors in memory, the .kv evicted. Evicted: nothing in memory before each lookup. \
         Baseline: p50 of one touch of a random 4 KiB page of the same evicted file, in turn with the lookups. Faults: how often a lookup waited for the disk.</p>\n",
    );
    body.push_str("<h2>Latency</h2>\n<p class=\"note\">The share of lookups that took no longer. Time on a logarithmic scale.</p>\n");
    for file in &report.files {
        drawing(&mut body, file);
    }
    body.push_str(
        "<h2>Every mode</h2>\n<p class=\"note\">Baseline: p50 of what the lookups of that line are compared with, one touch of a \
         random page of the evicted file, warm one dependent read from memory.</p>\n",
    );
    let lines = report.files.iter().flat_map(|file| file.lookups.iter().map(|mode| mode_columns(file, mode)));
    table(&mut body, lines.collect());
    if !report.archives.is_empty() {
        body.push_str("<h2>Archives through the engine</h2>\n");
        table(&mut body, archive_lines(report));
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>icecore-probe</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a string takes any text");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn table(out: &mut String, lines: Vec<Vec<(&'static str, String)>>) {
    let Some(first) = lines.first() else { return };
    out.push_str("<div class=\"scroll\"><table>\n<tr>");
    for (head, _) in first {
        push(out, format_args!("<th>{}</th>", escape(head)));
    }
    out.push_str("</tr>\n");
    for line in lines {
        out.push_str("<tr>");
        for (_, cell) in line {
            push(out, format_args!("<td>{}</td>", escape(&cell)));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
}

/// A line of a drawing: what it is called, its class, its points.
struct Line<'r> {
    name: String,
    class: String,
    p50: u64,
    curve: &'r [(u64, f64)],
}

fn line(mode: &ModeReport) -> Line<'_> {
    let (kind, dash) = match mode.kind {
        KeyKind::Hits => ("", ""),
        KeyKind::Misses => (", unknown keys", " dashed"),
    };
    let (name, class) = match mode.mode {
        Mode::Resident => ("accessors in memory", "resident"),
        Mode::Opened => ("filter in memory", "opened"),
        Mode::Once => ("evicted once", "once"),
        Mode::Each => ("evicted each time", "each"),
        Mode::Warm => ("warm", "warm"),
    };
    let p50 = mode.lookups.time_ns.p50;
    Line { name: format!("{name}{kind}"), class: format!("{class}{dash}"), p50, curve: &mode.curve }
}

/// The baseline that is drawn, and what it is: that of the first cold mode, as the table has it.
fn baseline(file: &FileReport) -> (u64, &'static str) {
    let cold = file.lookups.iter().find(|lookups| lookups.mode != Mode::Warm);
    let name = if cold.is_some() { "one random touch" } else { "one dependent read from memory" };
    (cold.or(file.lookups.first()).map_or(1, |lookups| lookups.baseline_ns.max(1)), name)
}

/// The distributions of one file at one density, and a mark where the disk's baseline lies.
fn drawing(out: &mut String, file: &FileReport) {
    let lines: Vec<Line<'_>> = file.lookups.iter().map(line).collect();
    let (baseline, of_baseline) = baseline(file);
    let times = lines.iter().flat_map(|line| line.curve).map(|point| point.0.max(1)).chain([baseline]);
    let (low, high) = times.fold((u64::MAX, 1), |(low, high), time| (low.min(time), high.max(time)));
    let scale = Scale::new(low, high);
    push(
        out,
        format_args!(
            "<figure>\n<figcaption>{} <b>M = {}</b></figcaption>\n",
            escape(file.short_name()),
            file.m
        ),
    );
    push(
        out,
        format_args!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Distribution of latency\">\n"
        ),
    );
    axes(out, &scale);
    let x = scale.x(baseline);
    push(
        out,
        format_args!(
            "<line class=\"baseline\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"><title>baseline, {of_baseline}: p50 {} us</title></line>\n",
            HEIGHT - BOTTOM,
            micros(baseline)
        ),
    );
    for line in &lines {
        push(
            out,
            format_args!(
                "<path class=\"curve {}\" d=\"{}\"><title>{}: p50 {} us</title></path>\n",
                line.class,
                path(&scale, line.curve),
                line.name,
                micros(line.p50)
            ),
        );
    }
    out.push_str("</svg>\n<ul class=\"legend\">\n");
    for line in &lines {
        push(
            out,
            format_args!(
                "<li><i class=\"{}\"></i>{}: p50 {} us</li>\n",
                line.class,
                line.name,
                micros(line.p50)
            ),
        );
    }
    push(
        out,
        format_args!(
            "<li><i class=\"baseline\"></i>baseline, {of_baseline}: p50 {} us</li>\n</ul>\n</figure>\n",
            micros(baseline)
        ),
    );
}

/// Time to place, logarithmic, whole decades.
struct Scale {
    first: i32,
    last: i32,
}

impl Scale {
    fn new(low: u64, high: u64) -> Self {
        let first = (low as f64).log10().floor() as i32;
        Self { first, last: ((high as f64).log10().ceil() as i32).max(first + 1) }
    }

    fn x(&self, nanos: u64) -> f64 {
        let part =
            ((nanos.max(1) as f64).log10() - f64::from(self.first)) / f64::from(self.last - self.first);
        LEFT + part * (WIDTH - LEFT - RIGHT)
    }
}

fn y(fraction: f64) -> f64 {
    TOP + (1.0 - fraction) * (HEIGHT - TOP - BOTTOM)
}

fn axes(out: &mut String, scale: &Scale) {
    for percent in [0, 25, 50, 75, 100] {
        let y = y(f64::from(percent) / 100.0);
        push(
            out,
            format_args!(
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" class=\"end\">{percent} %</text>\n",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0
            ),
        );
    }
    for decade in scale.first..=scale.last {
        let x = scale.x(10u64.pow(decade.unsigned_abs()));
        let label = match decade {
            0..=2 => format!("{} ns", 10u64.pow(decade.unsigned_abs())),
            3..=5 => format!("{} us", 10u64.pow(decade.unsigned_abs() - 3)),
            6..=8 => format!("{} ms", 10u64.pow(decade.unsigned_abs() - 6)),
            _ => format!("{} s", 10u64.pow(decade.unsigned_abs() - 9)),
        };
        push(
            out,
            format_args!(
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/><text x=\"{x:.1}\" y=\"{:.1}\" class=\"middle\">{label}</text>\n",
                HEIGHT - BOTTOM,
                HEIGHT - BOTTOM + 18.0
            ),
        );
    }
}

/// The steps of a distribution, thinned to what can be seen.
fn path(scale: &Scale, curve: &[(u64, f64)]) -> String {
    let mut path = String::new();
    let (mut last_x, mut last_y) = (f64::MIN, y(0.0));
    for &(nanos, fraction) in curve {
        let (x, y) = (scale.x(nanos), y(fraction));
        if path.is_empty() {
            push(&mut path, format_args!("M{x:.1} {last_y:.1}"));
        }
        if x - last_x >= 0.5 || last_y - y >= 0.5 || fraction >= 1.0 {
            push(&mut path, format_args!("L{x:.1} {y:.1}"));
            (last_x, last_y) = (x, y);
        }
    }
    path
}
