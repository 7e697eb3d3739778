//! Every figure of the hot layer against its goal, beside what this machine can do, in one run.
//!
//! ```text
//! cargo run --release -p icecore-hot --example figures -- [--json] [--small]
//! ```
//!
//! Rates are per second on the CPU, of one thread, so that other work on the machine counts less; the figures of
//! two threads are wall time. The roof of a rate of updates is what the tree itself asks for, whatever its layout:
//! key, value and leaf hashed, one hash and one random line for each node above the changed leaves, at the rates
//! measured in the same run. `--small` is a trial run: small trees, of which no figure counts.

mod workload;

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use icecore_hot::{Batch, Entry, HotTree, KeyHash, Loader, Options, Parallelism, Proof};
use workload::{DOMAIN, Keys, Roofs, Times, key, rate, resident_bytes, value};

/// What a figure must reach.
#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
    Free,
}
use Bound::{AtLeast, AtMost, Free};

struct Figure {
    name: String,
    measured: f64,
    unit: &'static str,
    bound: Bound,
}

#[derive(Default)]
struct Figures(Vec<Figure>);

impl Figures {
    fn add(&mut self, name: impl Into<String>, measured: f64, unit: &'static str, bound: Bound) {
        let figure = Figure { name: name.into(), measured, unit, bound };
        eprintln!("{}", figure.line());
        self.0.push(figure);
    }

    fn json(&self, conditions: &[(&str, String)]) -> String {
        let conditions: Vec<_> =
            conditions.iter().map(|(name, value)| format!("    {name:?}: {value:?}")).collect();
        let figures: Vec<_> = self.0.iter().map(Figure::json).collect();
        format!(
            "{{\n  \"conditions\": {{\n{}\n  }},\n  \"figures\": [\n{}\n  ]\n}}",
            conditions.join(",\n"),
            figures.join(",\n")
        )
    }
}

impl Figure {
    fn is_met(&self) -> Option<bool> {
        match self.bound {
            AtMost(bound) => Some(self.measured <= bound),
            AtLeast(bound) => Some(self.measured >= bound),
            Free => None,
        }
    }

    fn goal(&self) -> Option<String> {
        match self.bound {
            AtMost(bound) => Some(format!("<= {bound}")),
            AtLeast(bound) => Some(format!(">= {bound}")),
            Free => None,
        }
    }

    fn line(&self) -> String {
        let met = self.is_met().map_or("", |met| if met { "met" } else { "MISSED" });
        let goal = self.goal().unwrap_or_default();
        format!("{:<62} {:>10.3} {:<8} {goal:<8} {met}", self.name, self.measured, self.unit)
    }

    fn json(&self) -> String {
        let goal = self.goal().map_or("null".to_owned(), |goal| format!("{goal:?}"));
        let met = self.is_met().map_or("null".to_owned(), |met| met.to_string());
        // JSON has no infinity, which a trial run of work too short to be timed gives.
        let measured =
            if self.measured.is_finite() { format!("{:.4}", self.measured) } else { "null".to_owned() };
        format!(
            "    {{\"name\": {:?}, \"measured\": {measured}, \"unit\": {:?}, \"goal\": {goal}, \"met\": {met}}}",
            self.name, self.unit
        )
    }
}

/// A tree size with its goal.
struct Size {
    bits: u32,
    batch_bits: u32,
    batches: usize,
    goal: Bound,
}

fn options(threads: usize) -> Options {
    let mut options = Options::default();
    options.parallelism =
        NonZeroUsize::new(threads).filter(|n| n.get() > 1).map_or(Parallelism::Off, Parallelism::Threads);
    options
}

fn load(options: Options, keys: usize) -> HotTree {
    let mut loader = Loader::new(options);
    (0..keys as u64).for_each(|id| loader.push(DOMAIN, &key(id), &value(id, 0)));
    loader.finish()
}

/// Millions of updates per second at most, in a tree whose nodes are read and hashed once for each batch.
fn roof(roofs: &Roofs, bits: u32, batch: f64) -> f64 {
    let distinct = |level: u32| {
        let nodes = f64::from(level).exp2();
        nodes * -(batch * (-1.0 / nodes).ln_1p()).exp_m1()
    };
    let above = (0..bits).map(|level| if level == 0 { 1.0 } else { distinct(level) }).sum::<f64>() / batch;
    1.0 / ((3.0 + above) / roofs.hashes + (1.0 + above) / roofs.lines)
}

/// Applies batches and returns the times of `apply`, in all and of the longest batch, and those of `undo`.
fn run(
    tree: &mut HotTree,
    keys: &mut Keys,
    batch: usize,
    salts: std::ops::Range<u64>,
) -> (Times, Duration, Times) {
    let mut changes = Batch::new();
    let (mut applied, mut longest, mut undone) = (Times::default(), Duration::ZERO, Times::default());
    for salt in salts {
        keys.fill(&mut changes, batch, salt);
        let before = tree.root();
        let (time, (root, undo)) = Times::of(|| tree.apply(&changes));
        let (back, root_back) = Times::of(|| tree.undo(undo));
        assert_eq!(root_back, before, "an undo gives the root before its batch");
        undone.add(back);
        let (again, (root_again, _)) = Times::of(|| tree.apply(&changes));
        assert_eq!(root_again, root, "a batch gives the same root again");
        longest = longest.max(time.wall).max(again.wall);
        applied.add(time);
        applied.add(again);
    }
    (applied, longest, undone)
}

fn updates(figures: &mut Figures, roofs: &Roofs, size: &Size) {
    let (count, batch) = (1usize << size.bits, 1usize << size.batch_bits);
    let name = |what: &str| format!("2^{} keys, batch 2^{}: {what}", size.bits, size.batch_bits);
    let before = resident_bytes();
    let (time, mut tree) = Times::of(|| load(options(1), count));
    figures.add(name("load"), rate(count, time.cpu), "M/s", Free);
    let mut keys = Keys::new(count);
    // Buffers are made by the first batch, and the arena takes its form.
    run(&mut tree, &mut keys, batch, 1..3);
    let (applied, longest, undone) = run(&mut tree, &mut keys, batch, 3..3 + size.batches as u64);
    let done = 2 * batch * size.batches;
    let updates = rate(done, applied.cpu);
    figures.add(name("updates"), updates, "M/s", size.goal);
    figures.add(name("updates, wall time"), rate(done, applied.wall), "M/s", Free);
    figures.add(name("updates, the roof"), roof(roofs, size.bits, batch as f64), "M/s", Free);
    let share = 100.0 * updates / roof(roofs, size.bits, batch as f64);
    figures.add(name("updates, share of the roof"), share, "%", Free);
    let mean = applied.wall.as_secs_f64() / (2 * size.batches) as f64;
    figures.add(name("longest batch / mean"), longest.as_secs_f64() / mean, "x", Free);
    figures.add(name("undo"), rate(done / 2, undone.cpu), "M/s", Free);
    let memory = tree.memory();
    figures.add(name("memory"), memory.bytes_per_key(), "B/key", AtMost(120.0));
    if let Some((before, after)) = before.zip(resident_bytes()) {
        let own = after.saturating_sub(before).saturating_sub(memory.buffers);
        figures.add(
            name("memory as the system sees it, with the list of keys"),
            own as f64 / tree.len() as f64,
            "B/key",
            Free,
        );
    }
    figures.add(name("huge pages taken"), f64::from(u8::from(memory.huge_pages)), "", Free);
}

/// The wall time of the same batches with one thread and with two.
fn scaling(figures: &mut Figures, bits: u32, batch_bits: u32, batches: u64) {
    let (count, batch) = (1usize << bits, 1usize << batch_bits);
    let mut trees = [load(options(1), count), load(options(2), count)];
    let mut keys = [Keys::new(count), Keys::new(count)];
    let mut best = [Duration::MAX; 2];
    for salt in 1..=batches {
        for (i, (tree, keys)) in trees.iter_mut().zip(&mut keys).enumerate() {
            let mut changes = Batch::new();
            keys.fill(&mut changes, batch, salt);
            best[i] = best[i].min(Times::of(|| tree.apply(&changes)).0.wall);
        }
    }
    assert_eq!(trees[0].root(), trees[1].root(), "the root does not depend on threads");
    let scale = best[0].as_secs_f64() / best[1].as_secs_f64();
    let name = format!("2^{bits} keys, batch 2^{batch_bits}: two threads / one, best batch");
    figures.add(name, scale, "x", AtLeast(1.8));
}

fn proofs(figures: &mut Figures, bits: u32, count: u64) {
    let keys = 1u64 << bits;
    let tree = load(options(1), 1 << bits);
    let root = tree.root();
    let ids: HashMap<KeyHash, u64> = (0..keys).map(|id| (KeyHash::of(DOMAIN, &key(id)), id)).collect();
    let find = |hash: &KeyHash| {
        let id = *ids.get(hash)?;
        Some(Entry::from((DOMAIN.to_owned(), key(id).to_vec(), value(id, 0).to_vec())))
    };
    for (kind, first, bytes) in [("existence", 0, 1000.0), ("absence", keys, 2000.0)] {
        let hashes: Vec<_> = (first..first + count).map(|id| KeyHash::of(DOMAIN, &key(id))).collect();
        let (made, paths) = Times::of(|| hashes.iter().map(|hash| tree.prove(hash)).collect::<Vec<_>>());
        let proofs: Vec<Proof> = (first..first + count)
            .zip(paths)
            .map(|(id, path)| path.complete(DOMAIN, &key(id), find).expect("the state has all entries"))
            .collect();
        let (verified, ()) = Times::of(|| {
            for (id, proof) in (first..).zip(&proofs) {
                let value = (first == 0).then(|| value(id, 0));
                proof.verify(&root, DOMAIN, &key(id), value.as_ref().map(|v| &v[..])).expect("a true proof");
            }
        });
        let each = |time: Times| time.cpu.as_secs_f64() * 1e6 / count as f64;
        let name = |what: &str| format!("2^{bits} keys, proof of {kind}: {what}");
        let mut sizes: Vec<usize> = proofs.iter().map(|proof| proof.to_ics23_bytes().len()).collect();
        sizes.sort_unstable();
        let compact: usize = proofs.iter().map(|proof| proof.to_bytes().len()).sum();
        let mean = sizes.iter().sum::<usize>() as f64 / count as f64;
        figures.add(name("ICS23, mean"), mean, "B", AtMost(bytes));
        figures.add(name("ICS23, p99"), sizes[sizes.len() * 99 / 100] as f64, "B", Free);
        figures.add(name("compact, mean"), compact as f64 / count as f64, "B", Free);
        figures.add(name("path made"), each(made), "us", Free);
        figures.add(name("verified"), each(verified), "us", AtMost(10.0));
    }
}

fn conditions(options: &Options, is_small: bool) -> Vec<(&'static str, String)> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let cpu = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    vec![
        ("cpu", cpu.map_or_else(String::new, |(_, name)| name.to_owned())),
        ("cpus", std::thread::available_parallelism().map_or_else(|_| String::new(), |n| n.to_string())),
        ("load", read("/proc/loadavg").trim().to_owned()),
        ("backend", format!("{:?}", options.hash_backend.resolve())),
        ("options", format!("{options:?}")),
        ("trial", is_small.to_string()),
        (
            "batch",
            "85 % new values of random keys, 10 % new keys, 5 % deletions; key 52 B, value 32 B".into(),
        ),
    ]
}

fn main() {
    let has = |flag: &str| std::env::args().any(|arg| arg == flag);
    let (is_json, is_small) = (has("--json"), has("--small"));
    // A trial run cuts eight bits off every size.
    let bits = |bits: u32| if is_small { bits - 8 } else { bits };
    let conditions = conditions(&options(1), is_small);
    let mut figures = Figures::default();
    let roofs = Roofs::measure(&options(1), if is_small { 1 << 24 } else { 1 << 30 });
    figures.add("roof: 64-byte hashes", roofs.hashes, "M/s", Free);
    figures.add("roof: random lines, addresses known ahead", roofs.lines, "M/s", Free);
    figures.add("roof: random lines, in a chain", roofs.chained, "M/s", Free);
    let size = |keys, batch, batches, goal| Size { bits: bits(keys), batch_bits: batch, batches, goal };
    updates(&mut figures, &roofs, &size(20, bits(17), 16, AtLeast(4.0)));
    updates(&mut figures, &roofs, &size(20, 9, 256, Free));
    scaling(&mut figures, bits(20), bits(17), 12);
    proofs(&mut figures, bits(20), 1000);
    updates(&mut figures, &roofs, &size(24, bits(17), 16, AtLeast(2.5)));
    if is_json {
        println!("{}", figures.json(&conditions));
    } else {
        for (name, value) in &conditions {
            println!("{name:<10} {value}");
        }
        for figure in &figures.0 {
            println!("{}", figure.line());
        }
        let met: Vec<bool> = figures.0.iter().filter_map(Figure::is_met).collect();
        println!("{} of {} goals met", met.iter().filter(|met| **met).count(), met.len());
    }
}
