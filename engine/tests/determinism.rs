//! Is everything a function of the content? The same history gives the same bytes of every segment file whoever emits
//! and merges, with however many threads, wherever it was reopened; the same state has the same root however it came
//! about.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod oracle;

use std::collections::BTreeMap;

use icecore::testing::SimStorage;
use icecore::{
    Archive, Durability, Maintenance, MergeOptions, OpenOptions, Options, Parallelism, ReindexRule, Root,
};
use oracle::script::{PATH, Script, Step, options, options_with, storage};
use oracle::{Change, DOMAINS, Random};
use rayon::ThreadPoolBuilder;

/// One way to go through a history.
#[derive(Clone, Copy, Debug)]
struct Way {
    maintenance: Maintenance,
    threads: usize,
    /// Closes and opens again after this many steps.
    reopen: usize,
    parallelism: Parallelism,
}

/// Goes through it, then brings everything in line, and returns the segment files by name without revision.
fn files(options: Options, steps: &[Step], way: Way) -> BTreeMap<String, Vec<u8>> {
    let open = OpenOptions::new().durability(Durability::Relaxed).maintenance(way.maintenance);
    let open = open.parallelism(way.parallelism);
    let disk = SimStorage::new();
    let pool = ThreadPoolBuilder::new().num_threads(way.threads).build().unwrap();
    pool.install(|| {
        let mut archive = Archive::create_on(storage(&disk), PATH, options, open).unwrap();
        for (i, step) in steps.iter().enumerate() {
            step.apply(&archive).unwrap();
            if i % way.reopen == way.reopen - 1 {
                archive.close().unwrap();
                archive = Archive::open_on(storage(&disk), PATH, open).unwrap();
            }
        }
        finish(archive);
    });
    segment_files(&disk)
}

/// Brings everything in line.
fn finish(archive: Archive) {
    archive.emit().unwrap();
    archive.merge(&MergeOptions::default(), &()).unwrap();
    archive.reindex(ReindexRule::Current, None, &()).unwrap();
    archive.close().unwrap();
}

/// The segment files by name without revision.
fn segment_files(disk: &SimStorage) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for (path, _) in disk.files() {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let parts: Vec<&str> = name.split('.').collect();
        if matches!(parts.last(), Some(&("kv" | "bt" | "kvei" | "kvbi"))) {
            let name = format!("{}.{}.{}", parts[0], parts[1], parts[parts.len() - 1]);
            assert!(
                files.insert(name, disk.bytes(&path)).is_none(),
                "one file of a name: {}",
                path.display()
            );
        }
    }
    files
}

fn threads() -> Parallelism {
    Parallelism::Threads(3.try_into().unwrap())
}

fn ways() -> Vec<Way> {
    let way = |maintenance, threads, reopen, parallelism| Way { maintenance, threads, reopen, parallelism };
    vec![
        way(Maintenance::Inline, 1, usize::MAX, Parallelism::Off),
        way(Maintenance::Inline, 4, 7, threads()),
        way(Maintenance::EmitOnly, 4, usize::MAX, Parallelism::Off),
        way(Maintenance::EmitOnly, 1, 13, threads()),
        way(Maintenance::Background, 1, usize::MAX, threads()),
        way(Maintenance::Background, 4, 29, Parallelism::Off),
    ]
}

fn check(options: &Options, steps: &[Step], ways: &[Way]) {
    let expected = files(options.clone(), steps, ways[0]);
    assert!(!expected.is_empty());
    for way in &ways[1..] {
        let found = files(options.clone(), steps, *way);
        assert!(found.keys().eq(expected.keys()), "{way:?}: {:?} {:?}", found.keys(), expected.keys());
        for (name, bytes) in &expected {
            assert!(found[name] == *bytes, "{way:?}: {name} has other bytes");
        }
    }
}

#[test]
fn the_same_history_gives_the_same_bytes() {
    let script = Script::new(3).commits(40).unwind(1).commits(30).unwind(2).commits(60);
    check(&options(), &script.steps, &ways());
}

/// What a writer keeps of the nodes since the last snapshot must not depend on whether it was there all the time.
#[test]
fn the_same_history_gives_the_same_nodes() {
    for period in [1, 3, 10] {
        let script = Script::new(period).commits(30).unwind(1).commits(20).unwind(9).commits(40).unwind(3);
        check(&options_with(period), &script.commits(11).steps, &ways());
    }
}

/// Where a kill came does not show either: nodes are in no log, they are made again.
#[test]
fn kills_do_not_show_in_the_nodes() {
    let steps = Script::new(8).commits(25).unwind(2).commits(30).unwind(6).commits(12).steps;
    let way = ways()[2];
    let expected = files(options_with(5), &steps, way);
    for killed in (5..steps.len()).step_by(9) {
        let open = OpenOptions::new().maintenance(way.maintenance);
        let mut disk = SimStorage::new();
        let archive = Archive::create_on(storage(&disk), PATH, options_with(5), open).unwrap();
        for step in &steps[..killed] {
            step.apply(&archive).unwrap();
        }
        disk = disk.kill_clone();
        drop(archive);
        let archive = Archive::open_on(storage(&disk), PATH, open).unwrap();
        for step in &steps[killed..] {
            step.apply(&archive).unwrap();
        }
        finish(archive);
        assert!(segment_files(&disk) == expected, "killed after step {killed}");
    }
}

/// Merging at once and merging at the end look at the same range from different heads: the age of a segment must not
/// decide its bytes.
#[test]
fn when_a_range_was_merged_does_not_show() {
    let mut random = Random(9);
    let mut changes = || vec![(0, random.key(), Some(random.next().to_le_bytes().repeat(3)))];
    let steps: Vec<_> = (1..1093).map(|height| Step::Commit(height, changes())).collect();
    let options = Options::new().domain(DOMAINS[0]).blocks_per_step(1).reorg_window(70);
    let late = Way {
        maintenance: Maintenance::EmitOnly,
        threads: 2,
        reopen: usize::MAX,
        parallelism: Parallelism::Off,
    };
    check(&options, &steps, &[late, Way { maintenance: Maintenance::Inline, ..late }]);
}

/// The root after writing changes in blocks of this many.
fn root(changes: &[Change], blocks_of: usize, maintenance: Maintenance, parallelism: Parallelism) -> Root {
    let open =
        OpenOptions::new().durability(Durability::Relaxed).maintenance(maintenance).parallelism(parallelism);
    let archive = Archive::create_on(storage(&SimStorage::new()), PATH, options(), open).unwrap();
    let mut root = Root([0; 32]);
    for (height, changes) in changes.chunks(blocks_of).enumerate() {
        root = Step::Commit(height as u64, changes.to_vec()).apply(&archive).unwrap().unwrap();
    }
    root
}

#[test]
fn the_same_state_has_the_same_root() {
    let mut random = Random(5);
    let changes: Vec<Change> = (0..300).flat_map(|_| random.changes(3)).collect();
    let expected = root(&changes, changes.len(), Maintenance::EmitOnly, Parallelism::Off);
    for (blocks_of, maintenance, parallelism) in [
        (1, Maintenance::EmitOnly, Parallelism::Off),
        (7, Maintenance::Inline, threads()),
        (50, Maintenance::Background, threads()),
    ] {
        assert_eq!(root(&changes, blocks_of, maintenance, parallelism), expected, "blocks of {blocks_of}");
    }
    let last: BTreeMap<_, _> =
        changes.into_iter().map(|(domain, key, value)| ((domain, key), value)).collect();
    let sorted: Vec<Change> = last.into_iter().map(|((domain, key), value)| (domain, key, value)).collect();
    assert_eq!(
        root(&sorted, 11, Maintenance::EmitOnly, Parallelism::Off),
        expected,
        "the history does not show"
    );
}
