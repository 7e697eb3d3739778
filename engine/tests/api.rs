//! What the calls promise beyond their answers: handles, iterators that own what they read, opening what may not be there.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::thread;

use icecore::{
    Archive, Change, Density, DensityRule, Domain, Durability, Encoding, EncodingRule, Entry, Error,
    ErrorKind, Maintenance, OpenOptions, Options, ReadOptions, Scan,
};

fn options() -> Options {
    Options::new().domain("other").declare(Domain::new("kv").key_len(8)).blocks_per_step(512).reorg_window(8)
}

fn inline() -> OpenOptions {
    OpenOptions::new().maintenance(Maintenance::Inline).durability(Durability::Relaxed)
}

fn key(i: u64) -> [u8; 8] {
    i.to_be_bytes()
}

/// Block `height` writes one key of `keys` and, in the other domain, `counter`.
fn filled(dir: &tempfile::TempDir, keys: u64, blocks: u64) -> Archive {
    let archive = Archive::create_with(dir.path().join("a.ice"), options(), inline()).unwrap();
    for height in 1..=blocks {
        let mut block = archive.begin(height).unwrap();
        block.put("kv", &key(height % keys), &height.to_be_bytes()).unwrap();
        block.put("other", b"counter", &height.to_be_bytes()).unwrap();
        block.commit().unwrap();
    }
    archive
}

#[test]
fn a_handle_is_the_domain_it_was_resolved_from() {
    let (dir, other_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let archive = filled(&dir, 10, 20);
    let kv = archive.domain("kv").unwrap();
    assert_eq!((kv.domain().name.as_str(), kv.domain().key_len), ("kv", Some(8)));
    let view = archive.reader().latest().unwrap();
    assert_eq!(view.get(&kv, &key(3)).unwrap(), view.get("kv", &key(3)).unwrap());
    assert_eq!(view.get(&kv, b"short").unwrap_err().kind(), ErrorKind::Misuse);
    assert!(archive.domain("unknown").is_err());

    // In another archive the same name has another number.
    let options = Options::new().declare(Domain::new("kv").key_len(8)).domain("other");
    let other = Archive::create(other_dir.path().join("b.ice"), options).unwrap();
    let mut block = other.begin(1).unwrap();
    block.put(&kv, &key(3), b"elsewhere").unwrap();
    block.commit().unwrap();
    assert_eq!(other.at(1).unwrap().get("kv", &key(3)).unwrap().as_deref(), Some(&b"elsewhere"[..]));
    let without = Archive::create(other_dir.path().join("c.ice"), Options::new().domain("z")).unwrap();
    assert!(matches!(without.begin(1).unwrap().put(&kv, &key(3), b""), Err(Error::UnknownDomain { .. })));
}

#[test]
fn entries_own_what_they_read_and_come_in_chunks() {
    let dir = tempfile::tempdir().unwrap();
    let archive = filled(&dir, 3000, 9000);
    let view = archive.at(9000).unwrap();
    let expected: Vec<(u64, u64)> =
        (0..3000).map(|i| (i, (6001..=9000).find(|height| height % 3000 == i).unwrap())).collect();
    let read = |scan: Scan| -> Vec<(u64, u64)> {
        let entries = view.scan("kv", &scan).unwrap();
        let read = move || {
            let number = |bytes: Vec<u8>| u64::from_be_bytes(bytes.try_into().unwrap());
            let entries = entries.map(Result::unwrap);
            entries
                .map(|Entry { key, value, block, .. }| {
                    assert_eq!(number(value), block);
                    (number(key), block)
                })
                .collect()
        };
        thread::spawn(read).join().unwrap()
    };
    let reversed: Vec<_> = expected.iter().rev().copied().collect();
    assert_eq!(read(Scan::all()), expected);
    assert_eq!(read(Scan::all().backward()), reversed);
    for limit in [0, 1, 15, 16, 17, 2999, 3000, 3001] {
        let len = expected.len().min(limit);
        assert_eq!(read(Scan::all().limit(limit as u64)), expected[..len], "{limit}");
        assert_eq!(read(Scan::all().backward().limit(limit as u64)), reversed[..len], "{limit}");
    }
    assert_eq!(read(Scan::range(key(7)..key(2500))), expected[7..2500]);
    assert_eq!(read(Scan::range(key(7)..=key(2500)).backward()), reversed[499..2993]);

    // A page at a time, in either direction.
    for (scan, wanted) in [(Scan::all(), &expected[..]), (Scan::range(key(7)..key(2500)), &expected[7..2500])]
    {
        let backward: Vec<_> = wanted.iter().rev().copied().collect();
        for (scan, wanted) in [(scan.clone(), wanted.to_vec()), (scan.backward(), backward)] {
            let mut paged: Vec<(u64, u64)> = Vec::new();
            loop {
                let scan = scan.clone().limit(97);
                let page = read(paged.last().map_or(scan.clone(), |(last, _)| scan.after(&key(*last))));
                if page.is_empty() {
                    break;
                }
                paged.extend(page);
            }
            assert_eq!(paged, wanted);
        }
    }

    // A scan goes on over the state it began with, whatever becomes of the archive.
    let mut entries = view.scan("kv", &Scan::all()).unwrap();
    drop(view);
    let first = entries.next().unwrap().unwrap();
    archive.unwind(10, &()).unwrap();
    drop(archive);
    assert_eq!((first.key, first.block), (key(0).to_vec(), 9000));
    assert_eq!(entries.map(Result::unwrap).map(|entry| entry.block).max(), Some(8999));
}

#[test]
fn history_is_read_as_far_as_it_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let archive = filled(&dir, 1, 2000);
    let all: Vec<u64> = (1..=2000).rev().collect();
    let blocks = |history: icecore::History| -> Vec<u64> {
        let change = |Change { block, value }: Change| {
            assert_eq!(value, Some(block.to_be_bytes().to_vec()));
            block
        };
        history.map(Result::unwrap).map(change).collect()
    };
    assert_eq!(blocks(archive.history("kv", &key(0)).unwrap()), all);
    for height in [1, 255, 256, 257, 511, 512, 513, 1000, 1999, 2000] {
        let history = archive.at(height).unwrap().history("kv", &key(0)).unwrap();
        assert_eq!(blocks(history), all[2000 - height as usize..], "{height}");
    }
    let pages = |archive: &Archive| archive.reader().stats().reads.index_probes;
    let before = pages(&archive);
    assert_eq!(archive.history("kv", &key(0)).unwrap().next().unwrap().unwrap().block, 2000);
    assert_eq!(pages(&archive), before, "the newest is in memory");
    assert_eq!(archive.history("kv", &key(1)).unwrap().count(), 0);
}

#[test]
fn blocks_that_changed_a_key_are_listed_without_their_values() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().domain("kv").blocks_per_step(16 << 10).reorg_window(8);
    let archive = Archive::create_with(dir.path().join("a.ice"), options, inline()).unwrap();
    // Every seventh block changes the key, to values outside their pages for the first few of them.
    let large = vec![7; 200_000];
    for height in 1..=40_000_u64 {
        let mut block = archive.begin(height).unwrap();
        if height % 7 == 0 {
            block.put("kv", b"key", if height < 100 { &large } else { b"v" }).unwrap();
        }
        block.commit().unwrap();
    }
    let all: Vec<u64> = (1..=40_000).filter(|height| height % 7 == 0).rev().collect();
    for height in [1, 6, 7, 8, 97, 98, 99, 16_383, 16_384, 16_385, 20_000, 39_999, 40_000] {
        let view = archive.at(height).unwrap();
        let expected: Vec<u64> = all.iter().copied().filter(|block| *block <= height).collect();
        let mut blocks = Vec::new();
        let mut listed = view.change_blocks("kv", b"key").unwrap();
        let first = listed.next().transpose().unwrap();
        assert_eq!(first, expected.first().copied());
        let len = listed.read_to_end(&mut blocks).unwrap();
        assert_eq!((len, &blocks[..]), (blocks.len(), expected.get(1..).unwrap_or_default()));
        assert!(listed.next().is_none(), "they were all given");
        assert_eq!(view.last_change("kv", b"key").unwrap(), first);
        assert_eq!(view.last_change("kv", b"other").unwrap(), None);
    }
    // From the middle of a segment on, its pages before are skipped by the index.
    archive.merge(&icecore::MergeOptions::default(), &()).unwrap();
    let pages = || archive.reader().stats().reads.pages_searched;
    let before = pages();
    assert_eq!(archive.at(15_000).unwrap().last_change("kv", b"key").unwrap(), Some(14_994));
    assert_eq!(archive.at(15_000).unwrap().change_blocks("kv", b"key").unwrap().take(10).count(), 10);
    assert!(pages() - before <= 3, "{} pages", pages() - before);
    assert!(matches!(archive.at(9).unwrap().last_change("none", b"key"), Err(Error::UnknownDomain { .. })));
}

#[test]
fn keys_of_several_domains_are_answered_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let archive = filled(&dir, 700, 1500);
    let view = archive.at(1300).unwrap();
    let asked: Vec<(&str, Vec<u8>)> = (0..900)
        .map(|i| if i % 3 == 0 { ("other", b"counter".to_vec()) } else { ("kv", key(i).to_vec()) })
        .collect();
    let keys: Vec<_> = asked.iter().map(|(domain, key)| (*domain, &key[..])).collect();
    let found = view.multi_get_across(&keys).unwrap();
    for ((domain, key), value) in asked.iter().zip(&found) {
        assert_eq!(*value, view.get(domain, key).unwrap(), "{domain} {key:?}");
    }
    assert_eq!(found.iter().flatten().count(), 300 + 466);
    assert!(view.multi_get_across(&[("kv", &b"short"[..])]).is_err());
    // Keys as they are at hand: arrays, vectors, slices.
    let arrays: Vec<[u8; 8]> = (0..9).map(key).collect();
    let vectors: Vec<Vec<u8>> = arrays.iter().map(|key| key.to_vec()).collect();
    let slices: Vec<&[u8]> = vectors.iter().map(|key| &key[..]).collect();
    let values = view.multi_get("kv", &slices).unwrap();
    assert_eq!(view.multi_get("kv", &arrays).unwrap(), values);
    assert_eq!(view.multi_get("kv", &vectors).unwrap(), values);
    let named: Vec<_> = arrays.iter().map(|key| ("kv", key)).collect();
    assert_eq!(view.multi_get_across(&named).unwrap(), values);
}

#[test]
fn the_density_is_chosen_at_creation_and_changed_without_a_reindex() {
    let dir = tempfile::tempdir().unwrap();
    let fixed = |m| DensityRule::Fixed(Density::new(m).unwrap());
    let path = dir.path().join("a.ice");
    let options = options().density(fixed(32)).blocks_per_step(16).reorg_window(0);
    let emit_only = OpenOptions::new().maintenance(Maintenance::EmitOnly);
    let archive = Archive::create_with(&path, options, emit_only).unwrap();
    assert_eq!(archive.density_rule(), fixed(32));
    let blocks = |archive: &Archive, heights: std::ops::Range<u64>| {
        for height in heights {
            let mut block = archive.begin(height).unwrap();
            block.put("kv", &key(height), b"value").unwrap();
            block.commit().unwrap();
        }
        archive.emit().unwrap();
    };
    let densities = |archive: &Archive| {
        let segments = archive.reader().segments();
        segments.iter().filter(|segment| segment.domain == "kv").map(|segment| segment.m).collect::<Vec<_>>()
    };
    blocks(&archive, 0..17);
    assert_eq!(densities(&archive), [32]);
    let files = archive.reader().segments();
    for bytes in [0, 1] {
        let refused = archive.set_density_rule(DensityRule::Budget { bytes }).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Misuse, "{refused}");
    }
    archive.set_density_rule(fixed(64)).unwrap();
    assert_eq!(archive.reader().segments(), files, "no file was touched");
    archive.close().unwrap();
    let archive = Archive::open(&path, emit_only).unwrap();
    assert_eq!(archive.density_rule(), fixed(64));
    blocks(&archive, 17..33);
    assert_eq!(densities(&archive), [32, 64]);
}

#[test]
fn the_encoding_of_a_domain_is_changed_for_segments_to_come() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.ice");
    let declared = || options().blocks_per_step(16).reorg_window(0);
    let archive = Archive::create_with(&path, declared(), inline()).unwrap();
    let follower = icecore::Reader::open(&path).unwrap();
    let step = |archive: &Archive, first: u64| {
        for height in first..first + 16 {
            let mut block = archive.begin(height).unwrap();
            (0..200u64).for_each(|i| block.put("kv", &key(i), &[7; 100]).unwrap());
            block.commit().unwrap();
        }
        archive.emit().unwrap();
    };
    let encodings = |reader: &icecore::Reader| {
        let segments = reader.segments();
        let of_kv = segments.iter().filter(|segment| segment.domain == "kv");
        of_kv.map(|segment| segment.encoding).collect::<Vec<_>>()
    };
    archive.set_encoding("kv", EncodingRule::Plain).unwrap();
    step(&archive, 1);
    step(&archive, 17);
    archive.set_encoding("kv", EncodingRule::Zstd).unwrap();
    let before = encodings(archive.reader());
    assert!(before.iter().all(|&encoding| encoding == Encoding::Plain), "{before:?}");
    archive.close().unwrap();

    // A reader goes on, and whoever opens with the options of creation finds the archive and its encoding as they are.
    follower.refresh().unwrap();
    let archive = Archive::open_or_create(&path, declared(), inline()).unwrap();
    assert_eq!(archive.encoding("kv").unwrap(), EncodingRule::Zstd);
    step(&archive, 33);
    step(&archive, 49);
    assert!(encodings(archive.reader()).contains(&Encoding::Zstd), "{:?}", encodings(archive.reader()));
    assert_eq!(archive.at(20).unwrap().get("kv", &key(3)).unwrap(), Some(vec![7; 100]));
}

#[test]
fn who_waits_for_an_archive_to_be_created_knows_it_from_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.ice");
    let kind = |opened: Result<icecore::Reader, Error>| opened.unwrap_err().kind();
    assert_eq!(kind(icecore::Reader::open(&path)), ErrorKind::NotFound);
    std::fs::create_dir(&path).unwrap();
    assert_eq!(kind(icecore::Reader::open(&path)), ErrorKind::NotFound);
    Archive::create(&path, options()).unwrap().close().unwrap();
    assert_eq!(Archive::create(&path, options()).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(kind(icecore::Reader::open(path.join("MANIFEST"))), ErrorKind::Environment);
    icecore::Reader::open(&path).unwrap();
}

#[test]
fn what_is_there_is_opened_and_must_be_what_was_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.ice");
    for height in 1..=2 {
        let archive = Archive::open_or_create(&path, options(), inline()).unwrap();
        assert_eq!(archive.reader().head(), (height > 1).then(|| height - 1));
        archive.begin(height).unwrap().commit().unwrap();
    }
    let refused = |options: Options| match Archive::open_or_create(&path, options, inline()) {
        Err(Error::Options { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(options().domain("more")), "domain");
    let reordered = Options::new().declare(Domain::new("kv").key_len(8)).domain("other");
    assert_eq!(refused(reordered.blocks_per_step(512).reorg_window(8)), "domain");
    assert_eq!(refused(options().blocks_per_step(513)), "blocks_per_step");
    assert_eq!(refused(options().reorg_window(9)), "reorg_window");
    assert_eq!(refused(options().snapshot_period(Some(7.try_into().unwrap()))), "domain");
    // What can be changed after creation is that of the archive.
    let denser = options().density(DensityRule::Fixed(Density::new(7).unwrap()));
    let archive = Archive::open_or_create(&path, denser, inline()).unwrap();
    assert_eq!(archive.density_rule(), DensityRule::Recency);
    archive.close().unwrap();
    std::fs::remove_file(path.join("MANIFEST")).unwrap();
    let damaged = Archive::open_or_create(&path, options(), inline()).unwrap_err();
    assert_eq!(damaged.kind(), ErrorKind::Corrupt, "{damaged}");
}

#[test]
fn accessors_are_read_at_opening_where_they_fit_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.ice");
    let archive =
        Archive::create_with(&path, options().blocks_per_step(1).reorg_window(0), inline()).unwrap();
    let mut block = archive.begin(1).unwrap();
    (0..200_000).for_each(|i| block.put("kv", &key(i), b"v").unwrap());
    block.commit().unwrap();
    archive.close().unwrap();

    let stats = icecore::Reader::open_with(&path, ReadOptions::new().resident_budget(0)).unwrap().stats();
    assert_eq!((stats.resident_budget, stats.loaded_bytes), (0, 0));
    let accessors = stats.bt_bytes + stats.kvei_bytes;
    let opened =
        |budget| icecore::Reader::open_with(&path, ReadOptions::new().resident_budget(budget)).unwrap();
    let too_small = opened(accessors - 1);
    let (fits, by_default) = (opened(accessors), icecore::Reader::open(&path).unwrap());
    assert!(by_default.stats().resident_budget > accessors, "an eighth of any memory is more");
    for reader in [&fits, &by_default] {
        wait_until("the accessors are read", || !reader.stats().is_loading);
        // The filter of 200,000 keys is mapped; the accessors of the roots are not.
        assert!((200_000..=accessors).contains(&reader.stats().loaded_bytes), "{:?}", reader.stats());
    }
    assert_eq!(too_small.stats().loaded_bytes, 0);
    wait_until("a touch of what was evicted since reads a page again", || huge_accessor_mappings(&path) == 0);
}

#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let started = std::time::Instant::now();
    while !is_so() {
        assert!(started.elapsed().as_secs() < 60, "{what}");
        thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// The mappings of accessors in which a touch reads two megabytes, as Linux tells; 0 elsewhere.
fn huge_accessor_mappings(archive: &std::path::Path) -> usize {
    let Ok(mappings) = std::fs::read_to_string("/proc/self/smaps") else { return 0 };
    let folder = archive.to_str().unwrap();
    let (mut is_accessor, mut huge) = (false, 0);
    for line in mappings.lines() {
        match line.strip_prefix("VmFlags:") {
            Some(flags) => huge += usize::from(is_accessor && flags.split(' ').any(|flag| flag == "hg")),
            None if line.contains(folder) => {
                is_accessor =
                    std::path::Path::new(line).extension().is_none_or(|extension| extension != "kv");
            }
            None if line.contains('/') || line.contains('[') => is_accessor = false,
            None => {}
        }
    }
    huge
}
