//! Archives whose domains are kept by path: they answer as those by key do, list plain keys, and prove every block from rows, with the
//! same bytes as from the whole state.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;

use icecore::{
    Archive, BatchProof, Commitment, Comparison, Domain, Error, ErrorKind, Maintenance, MergeOptions,
    OpenOptions, Options, Parallelism, ProofSource, Reader, Root, Scan, VerifyMode, Written, verify,
};

/// More leaves than a tree has before it gets a row.
const MANY: u64 = 9_000;
const LAST: u64 = 18;

/// What a block does to a key of a domain.
type Change = (&'static str, Vec<u8>, Option<Vec<u8>>);

fn options(is_by_path: bool) -> Options {
    let domains = [Domain::new("a"), Domain::new("b").key_len(8)];
    let declare = |options: Options, domain: Domain| {
        options.declare(if is_by_path { domain.by_path() } else { domain })
    };
    domains.into_iter().fold(Options::new(), declare).blocks_per_step(4).reorg_window(3)
}

fn of_a(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn changes(height: u64) -> Vec<Change> {
    let put = |numbers: std::ops::Range<u64>| -> Vec<Change> {
        numbers.map(|number| ("a", of_a(number), Some(height.to_le_bytes().to_vec()))).collect()
    };
    let delete = |numbers: std::ops::Range<u64>| -> Vec<Change> {
        numbers.map(|number| ("a", of_a(number), None)).collect()
    };
    let mut changes = match height {
        2 => put(0..1),
        4 | 13 => put(0..MANY),
        8 => delete(1_000..MANY),
        10 => [put(3_000..3_010), delete(0..MANY)].concat(),
        _ => Vec::new(),
    };
    if height > 1 {
        changes.extend(put(height * 40..height * 40 + 20));
        changes.extend(delete(height * 40 + 15..height * 40 + 30));
        for number in height..height + 5 {
            changes.push(("b", number.to_be_bytes().to_vec(), Some(vec![height as u8; 40])));
        }
        changes.push(("b", (height - 1).to_be_bytes().to_vec(), None));
    }
    changes
}

fn write(archive: &Archive, height: u64, changes: &[Change]) -> Root {
    let mut block = archive.begin(height).unwrap();
    for (domain, key, value) in changes {
        match value {
            Some(value) => block.put(*domain, key, value).unwrap(),
            None => block.delete(*domain, key).unwrap(),
        }
    }
    block.commit().unwrap()
}

fn build(path: &Path, options: Options, open: OpenOptions) -> Vec<Root> {
    let archive = Archive::open_or_create(path, options, open).unwrap();
    let roots = (1..=LAST).map(|height| write(&archive, height, &changes(height))).collect();
    archive.close().unwrap();
    roots
}

/// Keys that some blocks have and some have not, and keys that none has.
fn asked() -> Vec<(&'static str, Vec<u8>)> {
    let of_b = (0..30_u64).map(|number| ("b", number.to_be_bytes().to_vec()));
    let absent = (0..300).map(|number| ("a", format!("none {number}").into_bytes()));
    (0..MANY)
        .step_by(7)
        .map(|number| ("a", of_a(number)))
        .chain(of_b)
        .chain(absent)
        .chain([("a", Vec::new())])
        .collect()
}

fn prove(reader: &Reader, height: u64, keys: &[(&str, Vec<u8>)]) -> (BatchProof, ProofSource) {
    let (proofs, cost) = reader.at(height).unwrap().prove_counted(keys, Parallelism::Off).unwrap();
    (proofs, cost.source)
}

#[test]
fn proofs_from_rows_are_those_of_the_whole_state() {
    let dir = tempfile::tempdir().unwrap();
    let (by_path, by_key) = (dir.path().join("path.ice"), dir.path().join("key.ice"));
    let roots = build(&by_path, options(true), OpenOptions::new());
    assert_eq!(build(&by_key, options(false), OpenOptions::new()), roots, "the tree is the same");
    let (keys, oracle) = (asked(), Reader::open(&by_key).unwrap());
    let expected: Vec<BatchProof> = (1..=LAST).map(|height| prove(&oracle, height, &keys).0).collect();
    let check = |reader: &Reader, from_rows: std::ops::RangeInclusive<u64>| {
        for height in 1..=LAST {
            let expected = &expected[height as usize - 1];
            let (proofs, source) = prove(reader, height, &keys);
            assert!(proofs == *expected, "block {height}");
            let has_rows = from_rows.contains(&height);
            assert_eq!(
                source,
                if has_rows { ProofSource::Rows } else { ProofSource::State },
                "block {height}"
            );
            if has_rows {
                for at in (0..keys.len()).skip(height as usize * 17).step_by(331).chain([keys.len() - 1]) {
                    let proof = prove(reader, height, &keys[at..=at]).0;
                    let (alone, together) = (&proof.proofs[0], &expected.proofs[at]);
                    assert_eq!(alone.to_ics23_bytes(), together.to_ics23_bytes(), "{height}: {:?}", keys[at]);
                    let (domain, key) = &keys[at];
                    let value = reader.at(height).unwrap().get(domain, key).unwrap();
                    alone.verify(&roots[height as usize - 1], domain, key, value.as_deref()).unwrap();
                }
            }
        }
    };
    // Beside a writer in another process the newest blocks are in the log, and their tree is rebuilt.
    check(&Reader::open(&by_path).unwrap(), 1..=15);
    let archive = Archive::open(&by_path, OpenOptions::new()).unwrap();
    let extra = changes(LAST + 1);
    let other = Archive::open(&by_key, OpenOptions::new()).unwrap();
    assert_eq!(write(&archive, LAST + 1, &extra), write(&other, LAST + 1, &extra));
    check(archive.reader(), 1..=LAST);
    archive.emit().unwrap();
    archive.merge(&MergeOptions::new(), &()).unwrap();
    check(archive.reader(), 1..=LAST);
    // Back over all that changed the depth of the rows, and forth again.
    for to in [16, 9, 3] {
        archive.unwind(to, &()).unwrap();
        for height in to + 1..=LAST {
            assert_eq!(write(&archive, height, &changes(height)), roots[height as usize - 1], "{to}");
        }
        check(archive.reader(), 1..=LAST);
    }
    archive.close().unwrap();
    assert!(verify(&by_path, VerifyMode::Full, &()).unwrap().problems.is_empty());
    let archive = Archive::open(&by_path, OpenOptions::new()).unwrap();
    archive.prune(11, &()).unwrap();
    for height in 11..=15 {
        assert!(
            prove(archive.reader(), height, &keys)
                == (expected[height as usize - 1].clone(), ProofSource::Rows)
        );
    }
    archive.close().unwrap();
    assert!(verify(&by_path, VerifyMode::Full, &()).unwrap().problems.is_empty());
}

#[test]
fn a_large_tree_has_two_rows() {
    let dir = tempfile::tempdir().unwrap();
    let (by_path, by_key) = (dir.path().join("path.ice"), dir.path().join("key.ice"));
    let many: Vec<Change> = (0..140_000).map(|number| ("a", of_a(number), Some(vec![1; 9]))).collect();
    let some: Vec<Change> =
        (0..140_000).step_by(311).map(|number| ("a", of_a(number), Some(vec![2]))).collect();
    let archives = [(&by_path, true), (&by_key, false)].map(|(path, is_by_path)| {
        let archive = Archive::create(path, options(is_by_path)).unwrap();
        for (height, changes) in [(1, &many[..9_000]), (2, &many), (3, &some), (4, &many[..70_000])] {
            write(&archive, height, changes);
        }
        archive
    });
    let keys: Vec<_> = [3_u64, 311, 622, 130_001, 150_000, 150_001].map(|number| ("a", of_a(number))).into();
    for height in 1..=4 {
        let [of_rows, of_state] = archives.each_ref().map(|archive| {
            let view = archive.at(height).unwrap();
            view.prove_counted(&keys, Parallelism::Off).unwrap()
        });
        assert!(of_rows.0 == of_state.0, "block {height}");
        assert_eq!(of_rows.1.source, ProofSource::Rows);
        let (view, keys) = (archives[0].at(height).unwrap(), &keys[..1]);
        let (_, one) = view.prove_counted(keys, Parallelism::Off).unwrap();
        // 140,000 leaves below 256 places, 9,000 below 16.
        assert!(one.entries < if height == 1 { 700 } else { 900 }, "{one:?}");
    }
    archives[0].unwind(1, &()).unwrap();
    assert!(
        prove(archives[0].reader(), 1, &keys) == (prove(archives[1].reader(), 1, &keys).0, ProofSource::Rows)
    );
}

#[test]
fn keys_are_listed_as_they_were_given() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.ice");
    let archive = Archive::create(&path, options(true)).unwrap();
    for height in 1..=9 {
        let numbers = height * 10..height * 10 + 10;
        let changes: Vec<Change> =
            numbers.map(|number| ("a", of_a(number), Some(vec![height as u8]))).collect();
        write(&archive, height, &changes);
    }
    let check = |reader: &Reader| {
        let view = reader.at(9).unwrap();
        let list = |scan: &Scan| -> Vec<Vec<u8>> {
            view.scan("a", scan).unwrap().map(|entry| entry.unwrap().key).collect()
        };
        let all = list(&Scan::all());
        let sorted = |mut keys: Vec<Vec<u8>>| {
            keys.sort();
            keys
        };
        assert_eq!(sorted(all.clone()), sorted((10..100).map(of_a).collect()));
        let backward: Vec<_> = all.iter().rev().cloned().collect();
        assert_eq!(list(&Scan::all().backward()), backward);
        assert_eq!(list(&Scan::all().after(&all[40])), all[41..]);
        assert_eq!(list(&Scan::all().after(&all[40]).backward().limit(7)), backward[50..57]);
        let with_prefix: Vec<_> = all.iter().filter(|key| key.starts_with(b"key 3")).cloned().collect();
        assert_eq!(list(&Scan::prefix(b"key 3")), with_prefix);
        assert_eq!(list(&Scan::prefix(b"key 3").after(&with_prefix[2]).limit(4)), with_prefix[3..7]);
        for range in [Scan::all().from(b"key 3"), Scan::all().to(b"key 3"), Scan::range("key 3"..="key 4")] {
            let refused = view.scan("a", &range).map(drop).unwrap_err();
            assert!(matches!(&refused, Error::NoRange { domain } if domain == "a"), "{refused}");
            assert_eq!(refused.kind(), ErrorKind::Misuse);
        }
        let changes: Vec<_> = reader.changes(3..=3).unwrap().map(Result::unwrap).collect();
        assert_eq!(
            sorted(changes.iter().map(|change| change.key.clone()).collect()),
            sorted((30..40).map(of_a).collect())
        );
        assert_eq!(reader.history("a", &of_a(34)).unwrap().next().unwrap().unwrap().block, 3);
        assert_eq!(reader.domains()[1].scanned_key_len(), Some(8));
    };
    check(archive.reader());
    archive.emit().unwrap();
    check(archive.reader());
    let mut draft = archive.draft(9);
    draft.put("a", &of_a(90), &[7]).unwrap();
    let compared = draft.compare().unwrap();
    let Comparison::Different(difference) = compared else { panic!("{compared:?}") };
    assert_eq!((difference.key, difference.held), (of_a(90), Written::Value(vec![9])));
    let longest = vec![7; 1016];
    let mut block = archive.begin(10).unwrap();
    assert!(matches!(
        block.put("a", &[7; 1017], b""),
        Err(Error::TooLarge { what: "key", len: 1017, max: 1016 })
    ));
    block.put("a", &longest, b"long").unwrap();
    block.put("a", b"", b"short").unwrap();
    block.commit().unwrap();
    let latest = archive.reader().latest().unwrap();
    assert_eq!(latest.get("a", &longest).unwrap().as_deref(), Some(&b"long"[..]));
    for key in [&longest[..], b""] {
        let value = latest.get("a", key).unwrap();
        latest.prove("a", key).unwrap().verify(&latest.root().unwrap(), "a", key, value.as_deref()).unwrap();
    }
}

#[test]
fn the_order_is_of_all_domains_and_of_this_commitment() {
    let dir = tempfile::tempdir().unwrap();
    let create = |name: &str, options: Options| Archive::create(dir.path().join(name), options).map(drop);
    let refused = |name: &str, options: Options, field: &str| {
        let error = create(name, options).unwrap_err();
        assert!(matches!(&error, Error::Options { field: found, .. } if *found == field), "{name}: {error}");
    };
    let by_path = || Domain::new("a").by_path();
    refused("mixed", Options::new().declare(by_path()).domain("b"), "domain");
    refused("none", Options::new().declare(by_path()).commitment(Commitment::None), "domain");
    refused("ethereum", Options::new().declare(by_path()).commitment(Commitment::Ethereum), "domain");
    refused("long", Options::new().declare(by_path().key_len(1017)), "domain");
    let period = std::num::NonZeroU64::new(4);
    refused("snapshots", Options::new().declare(by_path()).snapshot_period(period), "snapshot_period");
    create("long", Options::new().declare(by_path().key_len(1016))).unwrap();
    // Without rows proofs are rebuilt, and the archive stays what it was made as.
    let path = dir.path().join("without");
    let without = || Options::new().declare(by_path()).keep_rows(false);
    let archive = Archive::create(&path, without()).unwrap();
    write(&archive, 1, &[("a", b"key".to_vec(), Some(b"value".to_vec()))]);
    for key in [&b"key"[..], b"none"] {
        let (proof, cost) = archive.at(1).unwrap().prove_counted(&[("a", key)], Parallelism::Off).unwrap();
        proof.verify(&archive.reader().root(1).unwrap()).unwrap();
        assert_eq!(cost.source, ProofSource::State);
    }
    archive.close().unwrap();
    assert!(!Reader::open(&path).unwrap().keeps_rows());
    let other = Archive::open_or_create(&path, Options::new().declare(by_path()), OpenOptions::new());
    assert!(matches!(other, Err(Error::Options { field: "keep_rows", .. })));
    let other = Archive::open_or_create(&path, Options::new().domain("a"), OpenOptions::new());
    assert!(matches!(other, Err(Error::Options { field: "domain", .. })));
    drop(Archive::open_or_create(&path, without(), OpenOptions::new()).unwrap());
}

#[test]
fn without_the_files_of_nodes_blocks_are_proven_from_the_state() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.ice");
    build(&path, options(true), OpenOptions::new().maintenance(Maintenance::Inline));
    let nodes = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
    let nodes: Vec<_> = nodes
        .filter(|file| {
            file.file_name().unwrap().to_str().unwrap().starts_with("_nodes")
                && file.extension().is_some_and(|e| e == "kv")
        })
        .collect();
    assert!(!nodes.is_empty());
    // Without the files of its nodes every block is still proven, from the state.
    for file in &nodes {
        std::fs::remove_file(file).unwrap();
    }
    let reader = Reader::open(&path).unwrap();
    let keys = [("a", of_a(170))];
    for height in [5, 12] {
        let (proof, source) = prove(&reader, height, &keys);
        proof.verify(&reader.root(height).unwrap()).unwrap();
        assert_eq!(source, ProofSource::State);
    }
}
