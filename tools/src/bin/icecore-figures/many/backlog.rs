//! How many files there are while blocks come as fast as they can and merging has to keep up by itself, and what that costs.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use icecore::storage::os::OsStorage;
use icecore::{Archive, Durability, Maintenance, OpenOptions};

use super::{Bench, commit, create};

/// The lengths of steps, and how the figures call them.
const STEPS: [(u64, &str); 2] = [(1, "steps of one block"), (8, "steps of 8 blocks")];

/// Blocks between two counts of the files.
const SAMPLE: u64 = 64;

/// Commits, counts, and waits for what is left to merge.
pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Box<dyn Error>> {
    for (blocks_per_step, name) in STEPS {
        let emitted = Backlog::run(bench, blocks_per_step, Maintenance::EmitOnly)?;
        let merged = Backlog::run(bench, blocks_per_step, Maintenance::Background)?;
        let mut add =
            |what: &str, measured| bench.figures.add(&format!("{name} at full speed: {what}"), measured);
        add("blocks per second", merged.blocks_per_second);
        add(
            "blocks per second, to those without merging",
            merged.blocks_per_second / emitted.blocks_per_second,
        );
        add("files, most", merged.most as f64);
        add("files after the last block", merged.end as f64);
        add("files in the folder then", merged.named as f64);
        add("files when all is merged", merged.after as f64);
    }
    Ok(())
}

struct Backlog {
    blocks_per_second: f64,
    most: u64,
    end: u64,
    named: usize,
    after: u64,
}

impl Backlog {
    fn run(
        bench: &Bench<'_>,
        blocks_per_step: u64,
        maintenance: Maintenance,
    ) -> Result<Self, Box<dyn Error>> {
        let dir = bench.dir.join("backlog");
        let open = OpenOptions::new().durability(Durability::Relaxed).maintenance(maintenance);
        let archive = create(Arc::new(OsStorage), &dir, blocks_per_step, open)?;
        let (begun, mut most) = (Instant::now(), 0);
        for height in 0..bench.args.blocks {
            commit(&archive, height)?;
            if height % SAMPLE == 0 {
                most = most.max(live_files(&archive));
            }
        }
        let blocks_per_second = bench.args.blocks as f64 / begun.elapsed().as_secs_f64();
        let end = live_files(&archive);
        let named = files_in(&dir)?;
        if maintenance == Maintenance::Background {
            archive.maintain(&())?;
        }
        let after = live_files(&archive);
        archive.close()?;
        std::fs::remove_dir_all(&dir)?;
        Ok(Self { blocks_per_second, most: most.max(end), end, named, after })
    }
}

/// The files that the archive reads.
fn live_files(archive: &Archive) -> u64 {
    archive.reader().stats().segments * 3
}

fn files_in(dir: &Path) -> Result<usize, std::io::Error> {
    Ok(std::fs::read_dir(dir)?.count())
}
