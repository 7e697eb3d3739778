//! What each plot shows of which report.

use plotters::prelude::SeriesLabelPosition::{LowerRight, UpperLeft, UpperRight};
use serde_json::Value;

use super::chart::{Axis, Chart, Panel, Series};
use super::reports::{Reports, figure, items};

/// A number in few digits.
fn number(value: f64) -> String {
    match value {
        _ if value >= 1e9 => format!("{} G", value / 1e9),
        _ if value >= 1e6 => format!("{} M", value / 1e6),
        _ if value >= 1e3 => format!("{} K", value / 1e3),
        _ => format!("{}", (value * 1e6).round() / 1e6),
    }
}

/// Nanoseconds in the unit that suits them.
fn nanos(value: f64) -> String {
    match value {
        _ if value < 1e3 => format!("{} ns", number(value)),
        _ if value < 1e6 => format!("{} us", number(value / 1e3)),
        _ => format!("{} ms", number(value / 1e6)),
    }
}

fn percent(value: f64) -> String {
    format!("{} %", number(value))
}

/// All values of one coordinate.
fn coordinates(series: &[Series], of: fn(&(f64, f64)) -> f64) -> impl Iterator<Item = f64> {
    series.iter().flat_map(move |series| series.points.iter().map(of))
}

fn xs(series: &[Series]) -> impl Iterator<Item = f64> {
    coordinates(series, |point| point.0)
}

fn ys(series: &[Series]) -> impl Iterator<Item = f64> {
    coordinates(series, |point| point.1)
}

/// Measured points in the order of their places.
fn measured(name: impl Into<String>, mut points: Vec<(f64, f64)>) -> Series {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    Series { name: name.into(), points, is_dashed: false }
}

/// The share of lookups that took no longer, for every store.
pub(super) fn latency(reports: &Reports) -> Option<Chart> {
    let report = reports.last_with("rows", "phase")?;
    let panels = [
        ("cold", "past", "cold, a known key"),
        ("cold", "unknown", "cold, an unknown key"),
        ("each", "past", "all evicted before each lookup, a known key"),
        ("warm", "past", "warm, a known key"),
    ];
    let panels = panels.into_iter().filter_map(|(phase, question, title)| {
        let series: Vec<Series> = items(&report["rows"])
            .filter(|row| row["phase"] == phase && row["question"] == question)
            .filter_map(|row| Some(measured(row["peer"].as_str()?, distribution(row))))
            .collect();
        let x = Axis::log("time of a lookup", nanos, xs(&series));
        let y = Axis { name: "of all lookups", is_log: false, range: 0.0..100.0, label: percent };
        (!series.is_empty()).then(|| Panel {
            title: title.to_owned(),
            x,
            y,
            series,
            notes: Vec::new(),
            legend: (phase == "cold" && question == "past").then_some(UpperLeft),
        })
    });
    Some(Chart { panels: panels.collect(), columns: 2 })
}

/// The distribution of a row, or of an older report without one the two points that it tells.
fn distribution(row: &Value) -> Vec<(f64, f64)> {
    let quantiles: Vec<f64> = items(&row["quantiles_ns"]).filter_map(Value::as_f64).collect();
    if let Some(last) = quantiles.len().checked_sub(1).filter(|last| *last > 0) {
        // One outlier, the greatest, would press all others together.
        let shown = quantiles.iter().enumerate().take(last);
        return shown.map(|(i, ns)| (*ns, 100.0 * i as f64 / last as f64)).collect();
    }
    let known = [("p50_ns", 50.0), ("p99_ns", 99.0)];
    known.into_iter().filter_map(|(name, part)| Some((row[name].as_f64()?, part))).collect()
}

/// p50 over the bytes of the index, along M.
pub(super) fn size(reports: &Reports) -> Option<Chart> {
    let report = reports.last_with("files", "index_bytes_per_key")?;
    let mut sizes: Vec<u64> = items(&report["files"]).filter_map(|file| file["entries"].as_u64()).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let modes = [("resident", "accessors in memory"), ("each", "all evicted"), ("warm", "warm")];
    let panels = modes.into_iter().filter_map(|(mode, title)| {
        let mut notes = Vec::new();
        let mut of_size = |entries: &u64| {
            let files = items(&report["files"]).filter(|file| file["entries"].as_u64() == Some(*entries));
            let points = files.filter_map(|file| {
                let hits = |row: &&Value| row["mode"] == mode && row["kind"] == "hits";
                let p50 = items(&file["lookups"]).find(hits)?["time_ns"]["p50"].as_f64()?;
                let bytes = file["index_bytes_per_key"].as_f64()?;
                notes.push((bytes, p50, format!("M={}", file["m"])));
                Some((bytes, p50))
            });
            measured(format!("{} entries", number(*entries as f64)), points.collect())
        };
        let series: Vec<Series> =
            sizes.iter().map(&mut of_size).filter(|series| !series.points.is_empty()).collect();
        let x = Axis::log("bytes of index a key", number, xs(&series));
        let y = Axis::linear("p50 of a known key", nanos, ys(&series));
        (!series.is_empty()).then(|| Panel {
            title: title.to_owned(),
            x,
            y,
            series,
            notes,
            legend: Some(LowerRight),
        })
    });
    Some(Chart { panels: panels.collect(), columns: 3 })
}

/// What the runs of `scale` measure at each size, to that of the smallest; and what an unknown key waits for.
pub(super) fn growth(reports: &Reports) -> Option<Chart> {
    const KV: &str = "scale, .kv: bytes per key";
    let mut runs: Vec<(f64, &Value)> = reports
        .with_figure(KV)
        .filter_map(|run| Some((run["conditions"]["entries"].as_f64()?, run)))
        .collect();
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let first = runs.first()?.1;
    let grown = |name: &str, figure_of: &dyn Fn(&Value) -> Option<f64>| {
        let points =
            runs.iter().filter_map(|(entries, run)| Some((*entries, figure_of(run)? / figure_of(first)?)));
        measured(name, points.collect())
    };
    let of = |name: &'static str| move |run: &Value| figure(run, name);
    let bytes = |run: &Value| Some(figure(run, KV)? * run["conditions"]["entries"].as_f64()?);
    let series = vec![
        grown("bytes of all files", &bytes),
        grown("tops of index and filter", &of("scale, opening: tops of index and filter")),
        grown("pages read by opening", &of("scale, opening: pages read")),
        grown("memory of building", &of("scale, build: memory")),
        grown("memory of merging", &of("scale, merge of two halves: memory")),
        grown(".kv, bytes a key", &of(KV)),
        grown("processor, an entry built", &of("scale, build: processor an entry")),
        grown("waits of a known key", &of("scale, known key, accessors in memory: waits mean")),
    ];
    let x = Axis::log("entries", number, xs(&series));
    // Room for the legend above the lines.
    let y = Axis::log("to that of the smallest", number, ys(&series).chain([2000.0]));
    let title = "what grows, and what does not".to_owned();
    let grows = Panel { title, x, y, series, notes: Vec::new(), legend: Some(UpperLeft) };
    Some(Chart { panels: vec![grows, unknown_keys(&runs)], columns: 2 })
}

fn unknown_keys(runs: &[(f64, &Value)]) -> Panel {
    let of_run = |(entries, run): &(f64, &Value)| {
        let points = [0, 25, 50, 75, 100].into_iter().filter_map(|share| {
            let name = format!("scale, unknown key, {share} % of the filter in memory: waits mean");
            Some((f64::from(share), figure(run, &name)?))
        });
        measured(format!("{} M entries", entries / 1e6), points.collect())
    };
    let series: Vec<Series> = runs.iter().map(of_run).collect();
    let x = Axis { name: "of the filter in memory", is_log: false, range: 0.0..105.0, label: percent };
    let y = Axis::linear("waits for the disk", number, ys(&series));
    let title = "what an unknown key costs, filters beyond the memory".to_owned();
    Panel { title, x, y, series, notes: Vec::new(), legend: Some(UpperRight) }
}

/// Updates a second over the size of a batch, beside the roof of the machine.
pub(super) fn updates(reports: &Reports) -> Option<Chart> {
    let report = reports.with_figure("2^20 keys, batch 2^17: updates").last()?;
    let mut series: Vec<Series> = Vec::new();
    for keys in [20, 24] {
        for (what, is_dashed) in [("updates", false), ("updates, the roof", true)] {
            let points = (0..32).filter_map(|batch| {
                let rate = figure(report, &format!("2^{keys} keys, batch 2^{batch}: {what}"))?;
                Some((2f64.powi(batch), rate))
            });
            let name = format!("2^{keys} keys{}", if is_dashed { ", the roof" } else { "" });
            series.push(Series { name, points: points.collect(), is_dashed });
        }
    }
    let x = Axis::log("changes in a batch", number, xs(&series));
    let y = Axis::linear("M updates a second, one thread", number, ys(&series));
    let title = "updates of the Merkle tree".to_owned();
    Some(Chart {
        panels: vec![Panel { title, x, y, series, notes: Vec::new(), legend: Some(UpperLeft) }],
        columns: 1,
    })
}

/// The history of the key with the most changes: the archive, and MDBX over the size of its shards.
pub(super) fn history(reports: &Reports) -> Option<Chart> {
    let report = reports.last_with("rows", "changes")?;
    let changes = items(&report["rows"]).filter_map(|row| row["changes"].as_u64()).max()?;
    let groups = [
        ("append", "append a block"),
        ("point_query", "was it changed at block N?"),
        ("full_scan", "list all blocks"),
        ("unwind", "unwind the last 100"),
    ];
    let panels = groups.into_iter().filter_map(|(group, title)| {
        let rows = || {
            items(&report["rows"])
                .filter(|row| row["group"] == group && row["changes"].as_u64() == Some(changes))
        };
        let time = |row: &Value| row["median_ns"].as_f64();
        let of_shards = |row: &Value| {
            let peer = row["peer"].as_str()?;
            let shard =
                if peer == "noshard" { changes as f64 } else { peer.strip_prefix("s=")?.parse().ok()? };
            Some((shard, time(row)?))
        };
        let sharded = measured("MDBX, sharded", rows().filter_map(of_shards).collect());
        let (from, to) = (sharded.points.first()?.0, sharded.points.last()?.0);
        let own = time(rows().find(|row| row["peer"] == "icecore")?)?;
        let series = vec![measured("Icecore", vec![(from, own), (to, own)]), sharded];
        let x = Axis::log("changes in a shard; the last: no shards", number, xs(&series));
        // A decade of room for the legend.
        let room = 10.0 * ys(&series).fold(0.0, f64::max);
        let y = Axis::log("median", nanos, ys(&series).chain([room]));
        let title = format!("{title} ({} changes)", number(changes as f64));
        Some(Panel { title, x, y, series, notes: Vec::new(), legend: Some(UpperRight) })
    });
    Some(Chart { panels: panels.collect(), columns: 2 })
}
