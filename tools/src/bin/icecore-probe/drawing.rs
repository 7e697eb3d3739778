//! The drawings of a page. Colours stand for densities; times have the same axis everywhere, so that drawings and pages can be
//! compared by eye.

use icecore_tools::measure::lookup::Mode;

use crate::html::{escape, push};
use crate::report::{FileReport, KeyKind, ModeReport, micros};

/// The modes in the order of their panels, and how the panels are called.
const MODES: [(Mode, &str); 5] = [
    (Mode::Resident, "accessors in memory"),
    (Mode::Opened, "filter in memory"),
    (Mode::Once, "evicted once"),
    (Mode::Each, "evicted each time"),
    (Mode::Warm, "warm"),
];

/// The place of a panel in a drawing, in the drawing's own units.
struct Panel {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

/// A logarithmic axis over whole decades; what is outside is drawn at its end.
struct Decades {
    first: i32,
    last: i32,
}

/// From 10 ns to 100 ms.
const TIME: Decades = Decades { first: 1, last: 8 };

/// From 0.01 to 10 bytes per key.
const BYTES_PER_KEY: Decades = Decades { first: -2, last: 1 };

impl Decades {
    /// The place of a value, from 0 to 1.
    fn part(&self, value: f64) -> f64 {
        let (first, last) = (f64::from(self.first), f64::from(self.last));
        ((value.max(f64::MIN_POSITIVE).log10() - first) / (last - first)).clamp(0.0, 1.0)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        (self.first..=self.last).map(|decade| 10f64.powi(decade))
    }
}

impl Panel {
    fn x(&self, part: f64) -> f64 {
        self.left + part * self.width
    }

    fn y(&self, part: f64) -> f64 {
        self.top + (1.0 - part) * self.height
    }

    fn bottom(&self) -> f64 {
        self.top + self.height
    }

    fn title(&self, out: &mut String, text: &str) {
        text_at(out, self.left, self.top - 6.0, "title", text);
    }

    /// A line across at a part of the height, with its label.
    fn row(&self, out: &mut String, part: f64, label: &str) {
        let (y, right) = (self.y(part), self.left + self.width);
        line(out, "grid", (self.left, y), (right, y));
        text_at(out, self.left - 6.0, y + 4.0, "end", label);
    }

    /// A line from top to bottom at a part of the width, with its label.
    fn column(&self, out: &mut String, part: f64, label: &str) {
        let x = self.x(part);
        line(out, "grid", (x, self.top), (x, self.bottom()));
        text_at(out, x, self.bottom() + 16.0, "middle", label);
    }
}

fn line(out: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    push(
        out,
        format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n"
        ),
    );
}

fn text_at(out: &mut String, x: f64, y: f64, class: &str, text: &str) {
    push(out, format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>\n", escape(text)));
}

fn open(out: &mut String, caption: &str, (width, height): (f64, f64), label: &str) {
    push(
        out,
        format_args!(
            "<figure>\n<figcaption>{}</figcaption>\n<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">\n",
            escape(caption)
        ),
    );
}

/// The measured modes of a kind of keys in files, in the order of the panels.
fn modes_of(files: &[FileReport]) -> Vec<(Mode, &'static str)> {
    let is_measured =
        |mode| files.iter().flat_map(|file| &file.lookups).any(|lookups: &ModeReport| lookups.mode == mode);
    MODES.into_iter().filter(|(mode, _)| is_measured(*mode)).collect()
}

/// The colour of the density at a place among those measured.
fn colour(place: usize) -> String {
    format!("m{}", place % 5)
}

/// The distributions of one file: a panel for each mode, in it a curve for each density.
pub(crate) fn distributions(out: &mut String, densities: &[FileReport]) {
    const HEIGHT: f64 = 130.0;
    const STEP: f64 = HEIGHT + 46.0;
    let modes = modes_of(densities);
    let file = &densities[0];
    let caption = format!("{} ({} entries)", file.short_name(), file.entries);
    open(out, &caption, (760.0, STEP * modes.len() as f64 + 4.0), "Distributions of latency");
    for (place, (mode, name)) in modes.iter().enumerate() {
        let panel = Panel { left: 48.0, top: 20.0 + STEP * place as f64, width: 684.0, height: HEIGHT };
        panel.title(out, name);
        for percent in [0, 50, 100] {
            panel.row(out, f64::from(percent) / 100.0, &format!("{percent} %"));
        }
        for nanos in TIME.ticks() {
            panel.column(out, TIME.part(nanos), &duration(nanos));
        }
        for (place, file) in densities.iter().enumerate() {
            for lookups in file.lookups.iter().filter(|lookups| lookups.mode == *mode) {
                curve(out, &panel, file.m, lookups, &colour(place));
            }
        }
    }
    out.push_str("</svg>\n<ul class=\"legend\">\n");
    for (place, file) in densities.iter().enumerate() {
        let times = file.lookups.iter().filter(|lookups| lookups.kind == KeyKind::Hits);
        let times = times.map(|lookups| {
            let name = MODES.iter().find(|(mode, _)| *mode == lookups.mode).map_or("", |(_, name)| name);
            format!("{name} {} us", micros(lookups.lookups.time_ns.p50))
        });
        let (colour, times) = (colour(place), times.collect::<Vec<_>>().join(", "));
        push(out, format_args!("<li><i class=\"{colour}\"></i>M={}: p50 {times}</li>\n", file.m));
    }
    out.push_str("</ul>\n</figure>\n");
}

/// One distribution, thinned to what can be seen, and its baseline.
fn curve(out: &mut String, panel: &Panel, m: u32, lookups: &ModeReport, colour: &str) {
    let mut path = String::new();
    let (mut last_x, mut last_y) = (f64::MIN, panel.bottom());
    for &(nanos, fraction) in &lookups.curve {
        let (x, y) = (panel.x(TIME.part(nanos as f64)), panel.y(fraction));
        if path.is_empty() {
            push(&mut path, format_args!("M{x:.1} {last_y:.1}"));
        }
        if x - last_x >= 0.5 || last_y - y >= 0.5 || fraction >= 1.0 {
            push(&mut path, format_args!("L{x:.1} {y:.1}"));
            (last_x, last_y) = (x, y);
        }
    }
    let dash = if lookups.kind == KeyKind::Misses { " dashed" } else { "" };
    let (p50, baseline) =
        (micros(lookups.lookups.time_ns.p50), panel.x(TIME.part(lookups.baseline_ns as f64)));
    line(out, &format!("baseline {colour}"), (baseline, panel.top), (baseline, panel.bottom()));
    push(
        out,
        format_args!(
            "<path class=\"curve {colour}{dash}\" d=\"{path}\"><title>M={m}, {:?}: p50 {p50} us, baseline {} us</title></path>\n",
            lookups.kind,
            micros(lookups.baseline_ns)
        ),
    );
}

/// A panel for each mode: p50 over the bytes of the index per key, the points of a file joined.
pub(crate) fn size_against_latency(out: &mut String, files: &[FileReport]) {
    const WIDTH: f64 = 300.0;
    const STEP: f64 = WIDTH + 80.0;
    let modes = modes_of(files);
    open(out, "Known keys", (STEP * modes.len() as f64, 250.0), "Size of the index against latency");
    for (place, (mode, name)) in modes.iter().enumerate() {
        let panel = Panel { left: 56.0 + STEP * place as f64, top: 20.0, width: WIDTH, height: 180.0 };
        panel.title(out, &format!("{name}: p50"));
        let hits = |file: &FileReport| {
            let of_mode = |lookups: &&ModeReport| lookups.mode == *mode && lookups.kind == KeyKind::Hits;
            file.lookups.iter().find(of_mode).map(|lookups| lookups.lookups.time_ns.p50 as f64)
        };
        let top = ceiling(files.iter().filter_map(hits).fold(1.0, f64::max));
        for quarter in 0..=4 {
            let part = f64::from(quarter) / 4.0;
            panel.row(out, part, &duration(top * part));
        }
        for bytes in BYTES_PER_KEY.ticks() {
            panel.column(out, BYTES_PER_KEY.part(bytes), &format!("{bytes}"));
        }
        text_at(out, panel.x(0.5), panel.bottom() + 34.0, "middle", "bytes of index per key");
        for densities in files.chunk_by(|a, b| a.file == b.file) {
            points(out, &panel, densities, |file| Some(hits(file)? / top));
        }
    }
    out.push_str("</svg>\n<ul class=\"legend\">\n");
    let densities = files.chunk_by(|a, b| a.file == b.file).next().unwrap_or(&[]);
    for (place, file) in densities.iter().enumerate() {
        push(out, format_args!("<li><i class=\"{}\"></i>M={}</li>\n", colour(place), file.m));
    }
    out.push_str("</ul>\n</figure>\n");
}

/// The points of a file, joined; `height` is a part of the panel's height.
fn points(
    out: &mut String,
    panel: &Panel,
    densities: &[FileReport],
    height: impl Fn(&FileReport) -> Option<f64>,
) {
    let placed = densities.iter().enumerate().filter_map(|(place, file)| {
        let x = panel.x(BYTES_PER_KEY.part(file.index_bytes_per_key));
        Some((place, file, x, panel.y(height(file)?)))
    });
    let placed: Vec<_> = placed.collect();
    for pair in placed.windows(2) {
        line(out, "join", (pair[0].2, pair[0].3), (pair[1].2, pair[1].3));
    }
    for (place, file, x, y) in placed {
        let name = escape(file.short_name());
        push(
            out,
            format_args!(
                "<circle class=\"{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{name}, M={}</title></circle>\n",
                colour(place),
                file.m
            ),
        );
    }
}

/// The least of 1, 2 and 5 times a power of ten that is no less.
fn ceiling(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * decade).find(|top| *top >= value).unwrap_or(value)
}

/// Nanoseconds in the unit that suits them.
fn duration(nanos: f64) -> String {
    match nanos {
        _ if nanos < 1e3 => format!("{nanos:.0} ns"),
        _ if nanos < 1e6 => format!("{} us", nanos / 1e3),
        _ if nanos < 1e9 => format!("{} ms", nanos / 1e6),
        _ => format!("{} s", nanos / 1e9),
    }
}
