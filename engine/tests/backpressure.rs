//! Commits at full speed: what one costs in files and syncs, and how far files may lag.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod watch;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use icecore::storage::Storage;
use icecore::testing::SimStorage;
use icecore::{Archive, Maintenance, OpenOptions, Operation, Options, VerifyMode};
use watch::Watched;

const PATH: &str = "/archive";

fn assert_sound(storage: &Arc<dyn Storage>) {
    let report = icecore::verify_on(Arc::clone(storage), PATH, VerifyMode::Full, &()).unwrap();
    assert!(report.problems.is_empty() && report.garbage.is_empty(), "{report:?}");
}

/// Files made and syncs for each of 1024 blocks, whose heights are `gap` apart.
fn cost_of_a_block(gap: u64, maintenance: Maintenance) -> (f64, f64) {
    const BLOCKS: u64 = 1024;
    let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let counted = Arc::clone(&counts);
    let count = move |operation: Operation, _: &Path| {
        let at = [Operation::Create, Operation::Sync].iter().position(|counted| *counted == operation);
        if let Some(at) = at {
            counted[at].fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    };
    let storage: Arc<dyn Storage> = Watched::new(SimStorage::new(), count);
    let options = Options::new().domain("kv").blocks_per_step(1024).reorg_window(8);
    let open = OpenOptions::new().maintenance(maintenance);
    let archive = Archive::create_on(Arc::clone(&storage), PATH, options, open).unwrap();
    for number in 1..=BLOCKS {
        let mut block = archive.begin(number * gap).unwrap();
        block.put("kv", &(number % 100).to_be_bytes(), &number.to_be_bytes()).unwrap();
        block.commit().unwrap();
    }
    let [files, syncs] = [0, 1].map(|at: usize| counts[at].load(Ordering::SeqCst) as f64 / BLOCKS as f64);
    for number in (1..=BLOCKS).step_by(37) {
        let found = archive.at(number * gap + gap - 1).or_else(|_| archive.at(number * gap)).unwrap();
        let found = found.get("kv", &(number % 100).to_be_bytes()).unwrap();
        assert_eq!(found, Some(number.to_be_bytes().to_vec()), "block {number}");
    }
    archive.close().unwrap();
    assert_sound(&storage);
    (files, syncs)
}

#[test]
fn gaps_in_heights_do_not_make_a_set_of_files_of_each_block() {
    for gap in [3000, 10_000, 1_000_003] {
        for maintenance in [Maintenance::EmitOnly, Maintenance::Inline, Maintenance::Background] {
            let (files, syncs) = cost_of_a_block(gap, maintenance);
            assert!(
                files < 1.0 && syncs < 2.0,
                "{gap} {maintenance:?}: {files} files, {syncs} syncs a block"
            );
        }
    }
}

#[test]
fn many_domains_hold_commits_up_and_never_for_good() {
    const DOMAINS: usize = 254;
    const STEPS: u64 = 20;
    /// So many segments may wait for a merge; the steps of the backlog become two of each domain, and the roots are one more.
    const SEGMENTS_MAX: u64 = 4096 + 2 * (DOMAINS as u64 + 1);
    /// What one emission adds that began before: of the 64 steps that may wait for it, in at most twelve aligned ranges.
    const EMISSION_MAX: u64 = 12 * (DOMAINS as u64 + 1);
    let storage: Arc<dyn Storage> = Arc::new(SimStorage::new());
    let names: Vec<String> = (0..DOMAINS).map(|number| format!("d{number}")).collect();
    let options = names.iter().fold(Options::new(), |options, name| options.domain(name));
    let options = options.blocks_per_step(1).reorg_window(0);
    let commit = |archive: &Archive, height: u64| {
        let mut block = archive.begin(height).unwrap();
        names.iter().for_each(|name| block.put(name, b"key", &height.to_be_bytes()).unwrap());
        block.commit().unwrap();
    };
    let emit_only = OpenOptions::new().maintenance(Maintenance::EmitOnly);
    let archive = Archive::create_on(Arc::clone(&storage), PATH, options, emit_only).unwrap();
    for height in 0..STEPS {
        commit(&archive, height);
        archive.emit().unwrap();
    }
    assert!(archive.reader().stats().segments > SEGMENTS_MAX, "there is a backlog");
    archive.close().unwrap();
    let archive = Archive::open_on(Arc::clone(&storage), PATH, OpenOptions::new()).unwrap();
    for height in STEPS..3 * STEPS {
        commit(&archive, height);
        let segments = archive.reader().stats().segments;
        // The first commit waits until merges have caught up; it alone is not worth an emission.
        let most = if height == STEPS { SEGMENTS_MAX } else { SEGMENTS_MAX + EMISSION_MAX };
        assert!(segments <= most, "{segments} segments at block {height}");
    }
    archive.close().unwrap();
    let reader = icecore::Reader::open_on(Arc::clone(&storage), PATH).unwrap();
    let found = reader.at(3 * STEPS - 1).unwrap().get("d253", b"key").unwrap();
    assert_eq!(found, Some((3 * STEPS - 1).to_be_bytes().to_vec()));
}
