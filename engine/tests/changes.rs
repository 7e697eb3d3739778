//! The changes of a range of blocks: from archives of many windows, of one huge block, without block indexes, of another process; and
//! how many pages they read. Random archives are compared by `model.rs`, damaged ones by `damage.rs`, killed ones by `crash.rs`.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod oracle;

use std::fs::File;
use std::path::Path;

use icecore::testing::SimStorage;
use icecore::{
    Archive, Error, Maintenance, MergeOptions, OpenOptions, Options, Reader, ReindexRule, VerifyMode, verify,
};
use oracle::script::{PATH, storage};
use oracle::{Change, DOMAINS, Oracle, Random, commit};

fn open() -> OpenOptions {
    OpenOptions::new().maintenance(Maintenance::EmitOnly)
}

fn create(disk: &SimStorage, blocks_per_step: u64) -> Archive {
    let options = DOMAINS.iter().fold(Options::new(), |options, name| options.domain(name));
    let options = options.blocks_per_step(blocks_per_step).reorg_window(3);
    Archive::create_on(storage(disk), PATH, options, open()).unwrap()
}

/// Changes of one of `keys` keys each, now and then a large value or a deletion.
fn changes(random: &mut Random, count: u64, keys: u64) -> Vec<Change> {
    let value = |random: &mut Random| match random.below(40) {
        0 => None,
        1 => Some(vec![7; 1025 + random.below(3000) as usize]),
        _ => Some(random.next().to_le_bytes().repeat(1 + random.below(4) as usize)),
    };
    let key = |random: &mut Random| format!("account-{:06}", random.below(keys)).into_bytes();
    (0..count).map(|_| (random.below(2) as usize, key(random), value(random))).collect()
}

#[test]
fn many_windows_give_every_change_once() {
    let disk = SimStorage::new();
    let archive = create(&disk, 16);
    let (mut oracle, mut random) = (Oracle::default(), Random(3));
    for height in 1..=150 {
        commit(&archive, &mut oracle, height, &changes(&mut random, 200, 4000));
    }
    assert!(archive.reader().segments().len() > 20, "unmerged");
    oracle.check(archive.reader());
    archive.merge(&MergeOptions::default(), &()).unwrap();
    oracle.check(archive.reader());
    oracle.check(&Reader::open_on(storage(&disk), PATH).unwrap());
    archive.prune(70, &()).unwrap();
    oracle.prune(70);
    oracle.check(archive.reader());
    archive.unwind(90, &()).unwrap();
    oracle.unwind(90);
    oracle.check(archive.reader());
}

#[test]
fn a_block_larger_than_a_window_is_given_whole() {
    let disk = SimStorage::new();
    let archive = create(&disk, 1);
    let (mut oracle, mut random) = (Oracle::default(), Random(4));
    for (height, count) in [(1, 9000), (2, 3), (3, 4000), (4, 1), (5, 1), (6, 1), (7, 1)] {
        commit(&archive, &mut oracle, height, &changes(&mut random, count, 20_000));
    }
    oracle.check(archive.reader());
    archive.merge(&MergeOptions::default(), &()).unwrap();
    oracle.check(archive.reader());
}

#[test]
fn a_few_blocks_read_a_few_pages() {
    let disk = SimStorage::new();
    let archive = create(&disk, 64);
    let (mut oracle, mut random) = (Oracle::default(), Random(5));
    for height in 1..=132 {
        commit(&archive, &mut oracle, height, &changes(&mut random, 300, 1_000_000));
    }
    archive.merge(&MergeOptions::default(), &()).unwrap();
    let pages: u64 = archive.reader().segments().iter().map(|segment| segment.pages).sum();
    let read = |range| {
        let reader = Reader::open_on(storage(&disk), PATH).unwrap();
        let count = reader.changes(range).unwrap().map(Result::unwrap).count() as u64;
        (count, reader.stats().reads.pages_searched)
    };
    let (count, one) = read(50..=50);
    assert!((200..=300).contains(&count) && one <= count, "{one} pages for {count} changes of {pages} pages");
    let (_, all) = read(1..=127);
    // A pass for each of the windows, of 1,024 entries at first and twice as many each time.
    assert!(all < 8 * pages, "{all} pages searched for all changes of {pages} pages");
    let info = archive.reader().segments();
    let (bytes, entries) = info
        .iter()
        .filter(|segment| segment.block_index.is_some())
        .fold((0, 0), |sum, segment| (sum.0 + segment.kvbi_bytes, sum.1 + segment.entries));
    assert!(bytes < 3 * entries, "{bytes} bytes for {entries} entries");
}

#[test]
fn an_archive_from_before_block_indexes_answers_and_reindex_builds_them() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("archive");
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testdata/manifest-4-log-3.tar.zst");
    tar::Archive::new(zstd::Decoder::new(File::open(kept).unwrap()).unwrap()).unpack(&path).unwrap();
    let all = |reader: &Reader| reader.changes(..).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    let before = all(&Reader::open(&path).unwrap());
    assert!(before.len() > 90, "{}", before.len());
    assert!(before.is_sorted_by_key(|change| (change.block, change.domain, change.key.clone())));
    let archive = Archive::open(&path, open()).unwrap();
    let is_indexed = |archive: &Archive| {
        let segments = archive.reader().segments();
        let declared: Vec<_> = segments.iter().filter(|segment| !segment.domain.starts_with('_')).collect();
        assert!(!declared.is_empty());
        declared.iter().map(|segment| segment.block_index.is_some()).collect::<Vec<_>>()
    };
    assert!(is_indexed(&archive).iter().all(|is_indexed| !is_indexed));
    assert!(all(archive.reader()) == before);
    let plans = archive.reindex(ReindexRule::Current, None, &()).unwrap();
    assert_eq!(plans.len(), is_indexed(&archive).len(), "those of declared domains only");
    assert!(is_indexed(&archive).iter().all(|is_indexed| *is_indexed));
    assert!(all(archive.reader()) == before);
    archive.close().unwrap();
    assert!(verify(&path, VerifyMode::Full, &()).unwrap().problems.is_empty());
}

#[test]
fn a_reader_of_another_process_follows_the_changes() {
    let disk = SimStorage::new();
    let archive = create(&disk, 4);
    let (mut oracle, mut random) = (Oracle::default(), Random(6));
    let reader = Reader::open_on(storage(&disk), PATH).unwrap();
    assert!(reader.changes(1..).unwrap().next().is_none(), "before the first block");
    let mut next = 1;
    for height in 1..=40 {
        commit(&archive, &mut oracle, height, &changes(&mut random, 5, 20));
        if height % 3 == 0 {
            assert!(reader.refresh().unwrap());
            let changes = reader.changes(next..).unwrap();
            assert_eq!(changes.range(), Some((next, height)));
            let found: Vec<_> = changes.map(Result::unwrap).collect();
            assert!(found == oracle.changes(next, height), "{next} to {height}");
            next = height + 1;
        }
    }
    archive.unwind(35, &()).unwrap();
    reader.refresh().unwrap();
    let gone = reader.changes(next..).unwrap_err();
    assert!(matches!(gone, Error::OutOfRange { asked: 40, .. }), "{gone}");
}

#[test]
fn ranges_are_checked() {
    let disk = SimStorage::new();
    let archive = create(&disk, 4);
    let reader = archive.reader().clone();
    assert_eq!(reader.changes(..).unwrap().range(), None);
    assert!(matches!(reader.changes(..=3), Err(Error::OutOfRange { asked: 3, .. })));
    let (mut oracle, mut random) = (Oracle::default(), Random(7));
    (5..=20).for_each(|height| commit(&archive, &mut oracle, height, &changes(&mut random, 3, 9)));
    assert_eq!(reader.changes(..).unwrap().range(), Some((5, 20)));
    assert_eq!(reader.changes(21..).unwrap().range(), None);
    assert_eq!(reader.changes(9..9).unwrap().range(), None);
    assert_eq!(reader.changes(..0).unwrap().range(), None);
    for asked in [4, 22] {
        let error = reader.changes(asked..).unwrap_err();
        assert!(matches!(error, Error::OutOfRange { asked: found, .. } if found == asked), "{error}");
    }
    assert!(matches!(reader.changes(5..=21), Err(Error::OutOfRange { asked: 21, .. })));
    assert!(matches!(reader.changes(..).unwrap().of_domain("_roots"), Err(Error::UnknownDomain { .. })));
}
