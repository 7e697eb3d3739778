//! How many files there are while blocks come as fast as they can and merging has to keep up by itself.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use icecore::storage::os::OsStorage;
use icecore::{Archive, Durability, OpenOptions};

use super::{Bench, commit, create};

const BLOCKS_PER_STEP: u64 = 8;

/// Files are counted every so many blocks.
const SAMPLE: u64 = 64;

/// Commits, counts, and waits for what is left to merge.
pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Box<dyn Error>> {
    let dir = bench.dir.join("backlog");
    let open = OpenOptions::new().durability(Durability::Relaxed);
    let archive = create(Arc::new(OsStorage), &dir, BLOCKS_PER_STEP, open)?;
    let (begun, mut most) = (Instant::now(), 0);
    for height in 0..bench.args.blocks {
        commit(&archive, height)?;
        if height % SAMPLE == 0 {
            most = most.max(live_files(&archive));
        }
    }
    let rate = bench.args.blocks as f64 / begun.elapsed().as_secs_f64();
    let end = live_files(&archive);
    let named = files_in(&dir)?;
    archive.maintain(&())?;
    let mut add = |what: &str, measured| {
        bench.figures.add(&format!("steps of 8 blocks at full speed: {what}"), measured);
    };
    add("blocks per second", rate);
    add("files, most", most.max(end) as f64);
    add("files after the last block", end as f64);
    add("files in the folder then", named as f64);
    add("files when all is merged", live_files(&archive) as f64);
    archive.close()?;
    Ok(())
}

/// The files that the archive reads.
fn live_files(archive: &Archive) -> u64 {
    archive.reader().stats().segments * 3
}

fn files_in(dir: &Path) -> Result<usize, std::io::Error> {
    Ok(std::fs::read_dir(dir)?.count())
}
