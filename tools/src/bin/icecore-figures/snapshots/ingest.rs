//! What snapshots cost the writer and the disk. Every block goes to the archives of all periods in turn, so that all of them
//! see the machine as it was; the times are told as ratios to the archive without snapshots.
//!
//! The blocks fill one step, so that none is emitted before the last: what is timed is what the writer waits for. The last
//! block emits, and is timed for itself.

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use icecore::Archive;
use icecore_tools::workload::SplitMix64;
use serde::Serialize;

use super::{DOMAIN, SnapshotsArgs, create, key, value};

/// One period.
#[derive(Serialize)]
pub(super) struct Figure {
    /// In blocks; 0 is off.
    period: u64,
    updates_per_second: f64,
    /// To the rate without snapshots, where that was measured.
    share_of_off: Option<f64>,
    emission_seconds: f64,
    node_bytes_per_update: f64,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = if self.period == 0 { "off".to_owned() } else { self.period.to_string() };
        let share = self.share_of_off.map_or(String::new(), |share| format!("{share:.2} x off, "));
        write!(
            f,
            "snapshot every {period:>5}: {:>9.0} updates/s, {share}{:.1} B of nodes an update, emitted in {:.2} s",
            self.updates_per_second, self.node_bytes_per_update, self.emission_seconds
        )
    }
}

/// An archive on its way.
struct Run {
    period: u64,
    archive: Archive,
    spent: Duration,
    emission: Duration,
}

pub(super) fn measure(args: &SnapshotsArgs, dir: &Path) -> Result<Vec<Figure>, Box<dyn Error>> {
    let mut runs = Vec::new();
    for &period in &args.periods {
        let archive = create(&dir.join(format!("every-{period}")), period, args.blocks)?;
        let mut block = archive.begin(0)?;
        for number in 0..args.keys {
            block.put(DOMAIN, &key(number), &value(number))?;
        }
        block.commit()?;
        runs.push(Run { period, archive, spent: Duration::ZERO, emission: Duration::ZERO });
    }
    let mut random = SplitMix64::new(1);
    let mut keys = args.keys;
    // Step 0 has the first block alone; it is emitted with the first of these, before the clock runs.
    for height in args.blocks..2 * args.blocks {
        let mut changes = Vec::with_capacity(args.changes as usize);
        for change in 0..args.changes {
            let number = if change % 10 == 9 { keys } else { random.below(keys) };
            keys = keys.max(number + 1);
            changes.push((number, random.next_u64()));
        }
        for run in &mut runs {
            let spent = commit(&run.archive, height, &changes)?;
            match height + 1 - args.blocks {
                1 => {}
                last if last == args.blocks => run.emission = spent,
                _ => run.spent += spent,
            }
        }
    }
    let updates = (args.blocks - 2) * args.changes;
    let rate = |run: &Run| updates as f64 / run.spent.as_secs_f64();
    let off = runs.iter().find(|run| run.period == 0).map(rate);
    let figures = runs.iter().map(|run| Figure {
        period: run.period,
        updates_per_second: rate(run),
        share_of_off: off.map(|off| rate(run) / off),
        emission_seconds: run.emission.as_secs_f64(),
        node_bytes_per_update: node_bytes(&run.archive) as f64 / (args.blocks * args.changes) as f64,
    });
    let figures: Vec<Figure> = figures.collect();
    figures.iter().for_each(|figure| args.tell(figure));
    Ok(figures)
}

fn commit(archive: &Archive, height: u64, changes: &[(u64, u64)]) -> Result<Duration, icecore::Error> {
    let begun = Instant::now();
    let mut block = archive.begin(height)?;
    for (number, new) in changes {
        block.put(DOMAIN, &key(*number), &value(*new))?;
    }
    block.commit()?;
    Ok(begun.elapsed())
}

/// The bytes of all files of nodes of the step that was measured.
fn node_bytes(archive: &Archive) -> u64 {
    let segments = archive.reader().segments().into_iter();
    let nodes = segments.filter(|segment| segment.domain == "_nodes" && segment.steps.from().0 == 1);
    nodes.map(|segment| segment.kv_bytes + segment.bt_bytes + segment.kvei_bytes).sum()
}
