//! Batches in a loaded tree: how fast they are applied and taken back, and what the tree takes of memory.

use std::time::Duration;

use icecore_hot::measure::Keys;
use icecore_hot::{Batch, HotTree};
use icecore_tools::measure::cpu::Times;
use icecore_tools::measure::peak::anonymous_resident_bytes;

use super::{Bench, load, options, rate};

/// A size of tree and batch, as its figures are called.
pub(super) struct Size {
    name: &'static str,
    bits: u32,
    batch_bits: u32,
    /// Batches of one pass.
    batches: u64,
}

/// Every size, the large ones last: a trial run leaves small batches as they are.
pub(super) const SIZES: [Size; 3] = [
    Size { name: "2^20 keys, batch 2^17", bits: 20, batch_bits: 17, batches: 8 },
    Size { name: "2^20 keys, batch 2^9", bits: 20, batch_bits: 9, batches: 128 },
    Size { name: "2^24 keys, batch 2^17", bits: 24, batch_bits: 17, batches: 8 },
];

const PASSES: u64 = 3;

/// What the batches of some passes took.
#[derive(Default)]
struct Measured {
    /// The best pass.
    applied: Option<Times>,
    undone: Option<Times>,
    total: Times,
    longest: Duration,
}

impl Measured {
    /// Notes a pass: of its batches the lower quartile counts, since what slows one down is another program.
    fn pass(&mut self, applied: &[Times], undone: &[Times]) {
        for time in applied {
            self.total.wall += time.wall;
            self.total.cpu += time.cpu;
            self.longest = self.longest.max(time.wall);
        }
        for (best, times) in [(&mut self.applied, applied), (&mut self.undone, undone)] {
            let quartile = lower_quartile(times);
            *best = Some(best.map_or(quartile, |best| Times {
                wall: best.wall.min(quartile.wall),
                cpu: best.cpu.min(quartile.cpu),
            }));
        }
    }
}

/// The lower quartile of each of the two times.
fn lower_quartile(times: &[Times]) -> Times {
    let of = |time: fn(&Times) -> Duration| {
        let mut sorted: Vec<Duration> = times.iter().map(time).collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 4).copied().unwrap_or_default()
    };
    Times { wall: of(|times| times.wall), cpu: of(|times| times.cpu) }
}

/// Measures a tree of one size.
pub(super) fn measure(bench: &mut Bench, size: &Size) {
    let bits = size.bits - bench.cut;
    let batch_bits = if size.batch_bits < bits { size.batch_bits } else { size.batch_bits - bench.cut };
    let (keys, batch) = (1usize << bits, 1usize << batch_bits);
    let before = anonymous_resident_bytes();
    let (loaded, mut tree) = Times::of(|| load(options(1), keys));
    let mut live = Keys::new(keys);
    // Buffers are made by the first batches, and the arena takes its form.
    pass(&mut tree, &mut live, batch, 1..3);
    let mut measured = Measured::default();
    for number in 0..PASSES {
        let first = 3 + number * size.batches;
        let (applied, undone) = pass(&mut tree, &mut live, batch, first..first + size.batches);
        measured.pass(&applied, &undone);
    }
    let count = (PASSES * size.batches) as usize;
    let (applied, undone) = (measured.applied.unwrap_or_default(), measured.undone.unwrap_or_default());
    let roof = bench.roofs.updates(bits, batch as f64);
    let memory = tree.memory();
    let mut add = |what: &str, figure: f64| bench.figures.add(&format!("{}: {what}", size.name), figure);
    add("load", rate(keys, loaded.cpu));
    add("updates", rate(batch, applied.cpu));
    add("updates, wall time", rate(batch, applied.wall));
    add("updates, mean of all batches", rate(batch * count, measured.total.cpu));
    add("updates, the roof", roof);
    add("updates, share of the roof", 100.0 * rate(batch, applied.cpu) / roof);
    add(
        "longest batch / mean",
        measured.longest.as_secs_f64() * count as f64 / measured.total.wall.as_secs_f64(),
    );
    add("undo", rate(batch, undone.cpu));
    add("memory", memory.bytes_per_key());
    if let Some((before, after)) = before.zip(anonymous_resident_bytes()) {
        let own = after.saturating_sub(before).saturating_sub(memory.buffers);
        add("memory as the system sees it, with the list of keys", own as f64 / tree.len() as f64);
    }
    add("huge pages taken", f64::from(u8::from(memory.huge_pages)));
}

/// Applies batches, takes each back and applies it again, and returns the times of the first `apply` and of `undo`: the
/// second time the lines of a small batch are still in the caches.
fn pass(
    tree: &mut HotTree,
    keys: &mut Keys,
    batch: usize,
    salts: std::ops::Range<u64>,
) -> (Vec<Times>, Vec<Times>) {
    let mut changes = Batch::new();
    let (mut applied, mut undone) = (Vec::new(), Vec::new());
    for salt in salts {
        keys.fill(&mut changes, batch, salt);
        let before = tree.root();
        let (time, (root, undo)) = Times::of(|| tree.apply(&changes));
        let (back, root_back) = Times::of(|| tree.undo(undo));
        assert_eq!(root_back, before, "an undo gives the root before its batch");
        assert_eq!(tree.apply(&changes).0, root, "a batch gives the same root again");
        applied.push(time);
        undone.push(back);
    }
    (applied, undone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_quartile_counts_and_the_longest_batch_is_kept() {
        let times = |of: &[u64]| -> Vec<Times> {
            of.iter()
                .map(|n| Times { wall: Duration::from_millis(2 * n), cpu: Duration::from_millis(*n) })
                .collect()
        };
        let mut measured = Measured::default();
        measured.pass(&times(&[9, 4, 1, 3]), &times(&[5]));
        measured.pass(&times(&[8, 2, 2, 2]), &times(&[6]));
        assert_eq!(measured.applied, times(&[2]).pop());
        assert_eq!(measured.undone, times(&[5]).pop());
        assert_eq!(Some(measured.total), times(&[31]).pop());
        assert_eq!(measured.longest, Duration::from_millis(18));
    }
}
