//! Plots of the reports of runs, as SVG: what `benches/RESULTS.md` shows can be drawn again from the JSON that lies beside it.
//!
//! | plot | from the JSON of |
//! |---|---|
//! | `latency.svg` | `benches/peers`, `files` |
//! | `size.svg` | `icecore-probe` |
//! | `growth.svg` | `icecore-figures scale`, a report for each size |
//! | `updates.svg` | `icecore-figures hot` |
//! | `history.svg` | `benches/peers`, `history` |
//!
//! A report is known by what it holds, whatever its file is called. Of several of one kind the last by name counts, but for `scale`.

mod chart;
mod charts;
mod reports;

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use clap::Args;

use self::chart::Chart;
use self::reports::Reports;

/// What to draw.
#[derive(Args)]
pub(crate) struct PlotArgs {
    /// The directory of the reports: every `*.json` in it.
    dir: PathBuf,
    /// Where the plots go. Default: to the reports.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Makes a chart where there is a report for it.
type Plot = (&'static str, fn(&Reports) -> Option<Chart>);

const PLOTS: [Plot; 5] = [
    ("latency", charts::latency),
    ("size", charts::size),
    ("growth", charts::growth),
    ("updates", charts::updates),
    ("history", charts::history),
];

/// Draws every plot that there is a report for.
pub(crate) fn run(args: &PlotArgs) -> Result<(), Box<dyn Error>> {
    let reports = Reports::of(&args.dir)?;
    let out = args.out.as_ref().unwrap_or(&args.dir);
    fs::create_dir_all(out)?;
    let mut drawn = 0;
    for (name, plot) in PLOTS {
        match plot(&reports) {
            Some(chart) => {
                let path = out.join(format!("{name}.svg"));
                fs::write(&path, chart.draw()?)?;
                println!("{}", path.display());
                drawn += 1;
            }
            None => eprintln!("no report for {name}.svg in {}", args.dir.display()),
        }
    }
    if drawn == 0 {
        Err(format!("{} has no report that can be drawn", args.dir.display()).into())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plot_is_drawn_from_sample_reports_and_has_its_series() {
        let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin/icecore-figures/plot/samples");
        let out = tempfile::tempdir().unwrap();
        run(&PlotArgs { dir: samples.into(), out: Some(out.path().to_owned()) }).unwrap();
        for (name, series) in [
            ("latency", &["icecore", "mdbx", "cold, a known key", "warm, a known key"][..]),
            ("size", &["5 M entries", "accessors in memory", "M=16", "M=256"]),
            ("growth", &["bytes of all files", ".kv, bytes a key", "waits of a known key", "1000 M entries"]),
            ("updates", &["2^20 keys", "2^24 keys", "2^20 keys, the roof"]),
            ("history", &["Icecore", "MDBX, sharded", "append a block (1 M changes)"]),
        ] {
            let svg = fs::read_to_string(out.path().join(format!("{name}.svg"))).unwrap();
            for series in series {
                assert!(svg.contains(&format!(">\n{series}\n<")), "{name} has no {series:?}:\n{svg}");
            }
            assert!(svg.contains("<polyline") && svg.contains("prefers-color-scheme: dark"), "{name}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}");
        }
    }

    #[test]
    fn a_directory_without_reports_is_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("other.json"), "{}").unwrap();
        let args = PlotArgs { dir: dir.path().to_owned(), out: None };
        assert!(run(&args).unwrap_err().to_string().ends_with("has no report that can be drawn"));
        fs::write(dir.path().join("broken.json"), "{").unwrap();
        assert!(run(&args).unwrap_err().to_string().contains("broken.json"));
    }
}
