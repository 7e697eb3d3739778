//! A bulk load: blocks as fast as they come, synced when a step ends, and the files brought in order once, at the end.
//!
//! `cargo run --release -p icecore --example bulk_load`

use std::error::Error;
use std::num::NonZeroUsize;
use std::time::Instant;

use icecore::{Archive, Domain, Durability, Maintenance, OpenOptions, Options, Parallelism};

const BLOCKS: u64 = 4000;
const CHANGES: u64 = 50;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("chain.ice");
    // Keys of one length: every call checks it.
    let options = Options::new().declare(Domain::new("storage").key_len(8)).blocks_per_step(128);

    // Until the end a power loss may take the blocks of a step, and a load can be begun again from the head; a killed process
    // loses nothing. Steps become segments as they are complete, and nothing is merged yet. Large blocks gain from a second thread.
    let loading = OpenOptions::new()
        .durability(Durability::Relaxed)
        .maintenance(Maintenance::EmitOnly)
        .parallelism(Parallelism::Threads(NonZeroUsize::MIN.saturating_add(1)));
    let archive = Archive::create_with(&path, options, loading)?;
    let storage = archive.domain("storage")?;
    let started = Instant::now();
    // A load that was interrupted goes on after the head.
    let next = archive.reader().head().map_or(1, |head| head + 1);
    for height in next..=BLOCKS {
        let mut block = archive.begin(height)?;
        for change in 0..CHANGES {
            let key = (height * 7919 + change * 104_729) % 10_000;
            block.put(&storage, &key.to_be_bytes(), &(height * CHANGES + change).to_be_bytes())?;
        }
        block.commit()?;
    }
    let loaded = started.elapsed();

    // Emits what is ready, merges, and gives each index the density of its age; an `ProgressListener` in place of `()` sees how far it is.
    let (before, started) = (archive.reader().stats(), Instant::now());
    archive.maintain(&())?;
    let maintained = started.elapsed();
    let after = archive.reader().stats();
    archive.close()?;
    println!("{} changes in {loaded:.1?}", BLOCKS * CHANGES);
    println!("{} segments became {} in {maintained:.1?}", before.segments, after.segments);
    assert!(after.segments < before.segments);
    assert_eq!(after.failures, []);

    // From here on as usual: a sync for each block, merges in the background.
    let archive = Archive::open(&path, OpenOptions::new())?;
    assert_eq!(archive.reader().range(), Some((1, BLOCKS)));
    let key = (17 * 7919_u64) % 10_000;
    assert_eq!(
        archive.at(17)?.get("storage", &key.to_be_bytes())?,
        Some((17 * CHANGES).to_be_bytes().to_vec())
    );
    archive.begin(BLOCKS + 1)?.commit()?;
    Ok(())
}
