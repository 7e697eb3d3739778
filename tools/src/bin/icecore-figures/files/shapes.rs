//! Keys and values of other shapes than the reference dataset's: what a lookup of each costs, cold and warm, and their bytes.

use std::error::Error;

use icecore::measure::SegmentSpec;
use icecore_index::Density;
use icecore_segments::step::{Step, StepRange};
use icecore_segments::{EncodingRule, Entry, Value};
use icecore_tools::measure::build::{Built, build};
use icecore_tools::measure::lookup::{
    Mode, Query, measure as lookups, measure_beside_baseline, on_distinct_pages,
};
use icecore_tools::workload::SplitMix64;

use super::Bench;
use super::cold::check;

/// In how many rounds lookups and touches of the baseline take turns.
const ROUNDS: usize = 5;

/// One shape: what it is called, how many entries of it are measured, and the entry that a number and random bits give.
struct Shape {
    name: &'static str,
    entries: u64,
    value_len: usize,
    key: fn(u64, &mut SplitMix64) -> (Vec<u8>, u64),
}

/// A key of random bytes, at block 0.
fn random_key(len: usize, random: &mut SplitMix64) -> (Vec<u8>, u64) {
    let mut key = vec![0; len];
    random.fill(&mut key);
    (key, 0)
}

const SHAPES: &[Shape] = &[
    Shape { name: "20-byte keys", entries: 500_000, value_len: 32, key: |_, random| random_key(20, random) },
    Shape {
        name: "1 to 40-byte keys",
        entries: 500_000,
        value_len: 32,
        key: |_, random| random_key(1 + random.below(40) as usize, random),
    },
    Shape {
        name: "keys that differ in the last byte",
        entries: 500_000,
        value_len: 32,
        key: |number, _| {
            let (mut key, block) = random_key(51, &mut SplitMix64::new(number / 256));
            key.push(number as u8);
            (key, block)
        },
    },
    Shape {
        name: "one key of a million versions",
        entries: 1_000_000,
        value_len: 32,
        key: |number, random| (vec![7; 52], 5 * number + random.below(5)),
    },
    Shape { name: "empty values", entries: 500_000, value_len: 0, key: |_, random| random_key(52, random) },
    Shape {
        name: "values of 24 KB",
        entries: 4000,
        value_len: 24 << 10,
        key: |_, random| random_key(52, random),
    },
    Shape {
        name: "values of 1 MB",
        entries: 200,
        value_len: 1 << 20,
        key: |_, random| random_key(52, random),
    },
];

/// Builds and measures all shapes, one after the other.
pub(super) fn measure(bench: &mut Bench) -> Result<(), Box<dyn Error>> {
    SHAPES.iter().try_for_each(|shape| shape.measure(bench))
}

impl Shape {
    fn measure(&self, bench: &mut Bench) -> Result<(), Box<dyn Error>> {
        let mut random = SplitMix64::new(self.entries);
        let mut keys: Vec<_> = (0..self.entries).map(|number| (self.key)(number, &mut random)).collect();
        keys.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        keys.dedup();
        let built = self.build(bench, &keys)?;
        random.shuffle(&mut keys);
        let query = |(key, at): &(Vec<u8>, u64)| Query { key: key.clone(), at: *at };
        let queries: Vec<Query> = keys.iter().take(10 * bench.cold_keys).map(query).collect();
        let cold = queries[..queries.len().min(bench.cold_keys)].to_vec();
        let cold = on_distinct_pages(&built.segment, cold)?;
        let (series, baseline) = measure_beside_baseline(&built.segment, &cold, bench.method, ROUNDS)?;
        let (cold_summary, baseline_ns) = (series.summary(), baseline.time.quantile(0.5));
        check(cold.len(), cold_summary.found)?;
        let warm = lookups(&built.segment, Mode::Warm, &queries, bench.method)?.summary();
        check(queries.len(), warm.found)?;
        let bytes = built.segment.files().map(|file| std::fs::metadata(file).map(|file| file.len()));
        let [kv, bt, kvei] = bytes;
        let mut add =
            |what: &str, measured| bench.figures.add(&format!("shape, {}: {what}", self.name), measured);
        let per_entry = |bytes: u64| bytes as f64 / keys.len() as f64;
        add("cold faults mean", cold_summary.faults.mean);
        add("cold p50 / one random touch", cold_summary.time_ns.p50 as f64 / baseline_ns as f64);
        add("warm p50", warm.time_ns.p50 as f64 / 1e3);
        add(".kv", per_entry(kv?));
        add("accessors", per_entry(bt? + kvei?));
        Ok(built.segment.files().iter().try_for_each(std::fs::remove_file)?)
    }

    fn build(&self, bench: &Bench, keys: &[(Vec<u8>, u64)]) -> Result<Built, Box<dyn Error>> {
        let mut value = vec![0; self.value_len];
        SplitMix64::new(1).fill(&mut value);
        let steps = StepRange::single(Step(0));
        let (m, encoding) = (Density::MEDIUM, EncodingRule::Plain);
        let options = SegmentSpec { domain: "shape", steps, m, encoding };
        let entries =
            keys.iter().map(|(key, block)| Entry { key, block: *block, value: Value::Inline(&value) });
        Ok(build(&bench.dir.join("shape"), &options, keys.len() as u64, entries)?)
    }
}
