//! A chart of panels side by side, as SVG that is read on a light and on a dark page.

use std::error::Error;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

/// What a line or a group of points shows.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
    /// A bound or a comparison, not a measurement of its own.
    pub(super) is_dashed: bool,
}

/// An axis, from its least to its greatest value.
pub(super) struct Axis {
    pub(super) name: &'static str,
    pub(super) is_log: bool,
    pub(super) range: Range<f64>,
    pub(super) label: fn(f64) -> String,
}

impl Axis {
    /// From zero to a little more than the greatest of some values.
    pub(super) fn linear(
        name: &'static str,
        label: fn(f64) -> String,
        values: impl Iterator<Item = f64>,
    ) -> Self {
        let top = values.fold(f64::MIN_POSITIVE, f64::max);
        Self { name, is_log: false, range: 0.0..1.15 * top, label }
    }

    /// A logarithmic one of the whole decades around some values, which are above zero.
    pub(super) fn log(
        name: &'static str,
        label: fn(f64) -> String,
        values: impl Iterator<Item = f64>,
    ) -> Self {
        let (least, greatest) = values
            .filter(|value| *value > 0.0)
            .fold((f64::MAX, f64::MIN_POSITIVE), |(least, greatest), value| {
                (least.min(value), greatest.max(value))
            });
        let (first, last) = (least.min(greatest).log10().floor(), greatest.log10().ceil());
        Self { name, is_log: true, range: 10f64.powf(first)..10f64.powf(last.max(first + 1.0)), label }
    }
}

/// One pair of axes, and what is drawn between them.
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
    /// Words beside points.
    pub(super) notes: Vec<(f64, f64, String)>,
    /// Where no line runs.
    /// Where the names of the series are; `None` where another panel has the same series and says so.
    pub(super) legend: Option<SeriesLabelPosition>,
}

/// Panels in rows.
pub(super) struct Chart {
    pub(super) panels: Vec<Panel>,
    pub(super) columns: usize,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;

const PANEL: (u32, u32) = (480, 340);
const PAPER: RGBColor = RGBColor(255, 255, 255);
const INK: RGBColor = RGBColor(36, 41, 47);
const GRID: RGBColor = RGBColor(208, 215, 222);

/// Neither light nor dark, so that they are seen on both papers.
const COLOURS: [RGBColor; 8] = [
    RGBColor(47, 129, 247),
    RGBColor(225, 111, 36),
    RGBColor(45, 164, 78),
    RGBColor(207, 66, 151),
    RGBColor(140, 110, 240),
    RGBColor(176, 136, 0),
    RGBColor(20, 160, 170),
    RGBColor(125, 133, 144),
];

/// Exchanges paper, ink and grid on a dark page.
const DARK: &str = "<style>@media (prefers-color-scheme: dark) { \
    [fill=\"#FFFFFF\"] { fill: #0D1117 } [fill=\"#24292F\"] { fill: #E6EDF3 } \
    [stroke=\"#24292F\"] { stroke: #9198A1 } [stroke=\"#D0D7DE\"] { stroke: #30363D } }</style>\n";

impl Chart {
    /// The chart as the text of an SVG file.
    pub(super) fn draw(&self) -> Result<String, Box<dyn Error>> {
        let rows = self.panels.len().div_ceil(self.columns);
        let size = (PANEL.0 * self.columns as u32, PANEL.1 * rows as u32);
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            root.fill(&PAPER)?;
            for (panel, area) in self.panels.iter().zip(root.split_evenly((rows, self.columns))) {
                panel.draw(&area)?;
            }
            root.present()?;
        }
        let head = svg.find('>').ok_or("a picture begins with its size")? + 1;
        svg.insert_str(head, &format!("\n{DARK}"));
        Ok(svg)
    }
}

impl Panel {
    fn draw(&self, area: &Area<'_>) -> Drawn {
        let (x, y) = (self.x.range.clone(), self.y.range.clone());
        match (self.x.is_log, self.y.is_log) {
            (true, true) => self.draw_between(area, x.log_scale(), y.log_scale()),
            (true, false) => self.draw_between(area, x.log_scale(), y),
            (false, true) => self.draw_between(area, x, y.log_scale()),
            (false, false) => self.draw_between(area, x, y),
        }
    }

    fn draw_between<X, Y>(&self, area: &Area<'_>, x: X, y: Y) -> Drawn
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let text = |size: u32| ("sans-serif", size).into_font().color(&INK);
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, text(16))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(62)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(text(12))
            .axis_desc_style(text(13))
            .x_labels(6)
            .y_labels(6)
            .x_desc(self.x.name)
            .y_desc(self.y.name)
            .x_label_formatter(&|value| (self.x.label)(*value))
            .y_label_formatter(&|value| (self.y.label)(*value))
            .draw()?;
        for (series, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            let style = colour.stroke_width(2);
            let points = series.points.iter().copied();
            // One point is no line: it is drawn as one, dashed or not.
            let drawn = if series.is_dashed && series.points.len() > 1 {
                chart.draw_series(DashedLineSeries::new(points, 6, 4, style))?
            } else {
                let size = if series.points.len() > 20 { 0 } else { 3 };
                chart.draw_series(LineSeries::new(points, style).point_size(size))?
            };
            drawn.label(&series.name).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
        }
        let note = |(x, y, words): &(f64, f64, String)| Text::new(words.clone(), (*x, *y), text(11));
        chart.draw_series(self.notes.iter().map(note))?;
        let Some(legend) = &self.legend else { return Ok(()) };
        let labels = &mut chart.configure_series_labels();
        labels.background_style(PAPER).border_style(GRID).label_font(text(12)).position(legend.clone());
        Ok(labels.draw()?)
    }
}
