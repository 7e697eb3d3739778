//! Builds the reference dataset into segment files: their sizes and the rate of building.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use icecore_index::Density;
use icecore_segments::EncodingRule;
use icecore_tools::measure::build::{BuildOptions, Built, SegmentFiles, build, build_index};
use icecore_tools::workload::storage::BlockRule;

use super::{Bench, name_of};

/// The densities that figures are told for.
pub(super) const DENSITIES: [u32; 3] = [16, 64, 256];

/// How often the reference segment is built; the fastest counts, since what slows one down is another program.
const BUILDS: usize = 3;

/// What later parts measure on.
pub(super) struct Files {
    /// All entries at one block, plain pages, M=64.
    pub(super) reference: SegmentFiles,
    /// The pivot indexes of the same segment, by M.
    pub(super) indexes: Vec<(u32, PathBuf)>,
}

impl Files {
    /// The reference segment with the index of density `m`.
    pub(super) fn at(&self, m: u32) -> SegmentFiles {
        let index = self.indexes.iter().find(|index| index.0 == m).expect("an index for each density");
        self.reference.with_index(index.1.clone())
    }
}

/// Builds everything that is measured on files alone.
pub(super) fn measure(bench: &mut Bench) -> Result<Files, Box<dyn Error>> {
    let count = bench.entries.len() as f64;
    let rate = |seconds: f64| count / seconds / 1e6;
    let mut best: Option<Built> = None;
    for _ in 0..BUILDS {
        if let Some(built) = &best {
            remove(&built.files)?;
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
    let keys = built.segment.keys as f64;
    bench.figures.add(".kv plain: bytes per key", built.segment.file.len as f64 / keys);
    bench.figures.add("filter: bytes per key", built.filter.file.len as f64 / keys);
    let mut indexes = Vec::new();
    for m in DENSITIES {
        let bt = bench.dir.join(format!("reference.{m}.bt"));
        let density = Density::new(m).expect("a density between the bounds");
        let index = build_index(&built.files.kv, &bt, density)?;
        let per_key = index.file.len as f64 / keys;
        bench.figures.add(&format!("pivot index M={m}: bytes per key"), per_key);
        indexes.push((m, bt));
    }
    for (encoding, rule) in [
        (EncodingRule::Zstd, BlockRule::AllOne(0)),
        (EncodingRule::Plain, BlockRule::Mod1024),
        (EncodingRule::Zstd, BlockRule::Mod1024),
    ] {
        let other = build_one(bench, encoding, rule)?;
        remove(&other.files)?;
        let blocks = if rule == BlockRule::Mod1024 { ", 1024 blocks" } else { "" };
        let name = format!(".kv {}{blocks}: bytes per key", name_of(encoding));
        bench.figures.add(&name, other.segment.file.len as f64 / keys);
        if (encoding, rule) == (EncodingRule::Zstd, BlockRule::AllOne(0)) {
            bench.figures.add("build zstd: rate", rate(other.pass.as_secs_f64()));
        }
    }
    Ok(Files { reference: built.files, indexes })
}

fn build_one(bench: &Bench, encoding: EncodingRule, rule: BlockRule) -> Result<Built, Box<dyn Error>> {
    let blocks = if rule == BlockRule::Mod1024 { "blocks" } else { "reference" };
    let files = SegmentFiles::named(&bench.dir, &format!("{blocks}.{}", name_of(encoding)));
    let options = BuildOptions { domain: "storage", m: Density::MEDIUM, encoding };
    let count = bench.entries.len();
    Ok(build(&files, &options, count as u64, (0..count).map(|place| bench.entry(place, rule)))?)
}

fn remove(files: &SegmentFiles) -> std::io::Result<()> {
    [&files.kv, &files.bt, &files.kvei].into_iter().try_for_each(fs::remove_file)
}
