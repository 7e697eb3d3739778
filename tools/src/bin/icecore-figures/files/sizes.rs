//! Builds the reference dataset into segment files: their sizes and the rate of building.

use std::error::Error;
use std::fs;

use icecore::measure::{LoneSegment, SegmentSpec};
use icecore_index::Density;
use icecore_segments::EncodingRule;
use icecore_segments::step::{Step, StepRange};
use icecore_tools::measure::build::{Built, build};
use icecore_tools::workload::storage::BlockRule;

use super::{Bench, name_of};

/// The densities that are measured.
pub(super) const DENSITIES: [u32; 3] = [16, 64, 256];

/// How often the reference segment is built; the fastest counts, since what slows one down is another program.
const BUILDS: usize = 3;

/// What later parts measure on.
pub(super) struct Files {
    /// All entries at one block, plain pages, M=64.
    pub(super) reference: LoneSegment,
    /// The same segment with the other densities.
    indexed: Vec<LoneSegment>,
}

impl Files {
    /// The reference segment with the index of density `m`.
    pub(super) fn at(&self, m: u32) -> &LoneSegment {
        self.indexed.iter().find(|segment| segment.m().get() == m).expect("an index for each density")
    }
}

/// Builds everything that is measured on files alone.
pub(super) fn measure(bench: &mut Bench) -> Result<Files, Box<dyn Error>> {
    let count = bench.entries.len() as f64;
    let rate = |seconds: f64| count / seconds / 1e6;
    let mut best: Option<Built> = None;
    for _ in 0..BUILDS {
        if let Some(built) = &best {
            remove(built)?;
        }
        let built = build_one(bench, EncodingRule::Plain, BlockRule::AllOne(0))?;
        best = match best {
            Some(best) if best.pass <= built.pass => Some(best),
            _ => Some(built),
        };
    }
    let built = best.expect("built at least once");
    bench.figures.add("build .kv + .bt + .kvei: rate", rate(built.pass.as_secs_f64()));
    bench.figures.add("build, synced to the disk: rate", rate((built.pass + built.sync).as_secs_f64()));
    let reader = built.segment.reader()?;
    let keys = reader.kv()?.summary().keys as f64;
    bench.figures.add(".kv plain: bytes per key", reader.kv()?.summary().file.len as f64 / keys);
    bench.figures.add("filter: bytes per key", reader.filter()?.summary().file.len as f64 / keys);
    let mut indexed = Vec::new();
    for m in DENSITIES {
        let density = Density::new(m).expect("a density between the bounds");
        let segment = built.segment.with_index(density)?;
        let per_key = segment.reader()?.index()?.summary().file.len as f64 / keys;
        bench.figures.add(&format!("pivot index M={m}: bytes per key"), per_key);
        indexed.push(segment);
    }
    for (encoding, rule) in [
        (EncodingRule::Zstd, BlockRule::AllOne(0)),
        (EncodingRule::Plain, BlockRule::Mod1024),
        (EncodingRule::Zstd, BlockRule::Mod1024),
    ] {
        let other = build_one(bench, encoding, rule)?;
        let kv_bytes = other.segment.reader()?.kv()?.summary().file.len;
        remove(&other)?;
        let blocks = if rule == BlockRule::Mod1024 { ", 1024 blocks" } else { "" };
        let name = format!(".kv {}{blocks}: bytes per key", name_of(encoding));
        bench.figures.add(&name, kv_bytes as f64 / keys);
        if (encoding, rule) == (EncodingRule::Zstd, BlockRule::AllOne(0)) {
            bench.figures.add("build zstd: rate", rate(other.pass.as_secs_f64()));
        }
    }
    Ok(Files { reference: built.segment, indexed })
}

fn build_one(bench: &Bench, encoding: EncodingRule, rule: BlockRule) -> Result<Built, Box<dyn Error>> {
    let blocks = if rule == BlockRule::Mod1024 { "blocks" } else { "reference" };
    let dir = bench.dir.join(format!("{blocks}.{}", name_of(encoding)));
    let steps = StepRange::single(Step(0));
    let options = SegmentSpec { domain: "storage", steps, m: Density::MEDIUM, encoding };
    let count = bench.entries.len();
    Ok(build(&dir, &options, count as u64, (0..count).map(|place| bench.entry(place, rule)))?)
}

fn remove(built: &Built) -> std::io::Result<()> {
    built.segment.files().iter().try_for_each(fs::remove_file)
}
