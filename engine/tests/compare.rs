//! A block that is given again: the same is known as the same, and anything else is named.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::num::NonZeroU64;

use icecore::{Archive, Comparison, Difference, Domain, Error, ErrorKind, MergeOptions, Options, Written};

type Changes<'a> = &'a [(&'a str, &'a [u8], Option<&'a [u8]>)];

fn write<'a>(mut block: icecore::BlockWriter<'a>, changes: Changes<'_>) -> icecore::BlockWriter<'a> {
    for &(domain, key, value) in changes {
        match value {
            Some(value) => block.put(domain, key, value).unwrap(),
            None => block.delete(domain, key).unwrap(),
        }
    }
    block
}

/// Heights and what is written there; block 6 has nothing.
const BLOCKS: &[(u64, Changes<'static>)] = &[
    (3, &[("a", b"k1", Some(b"v3")), ("b", b"k1", Some(b"w3"))]),
    (5, &[("a", b"k1", None), ("a", b"k2", Some(b""))]),
    (6, &[]),
    (9, &[("a", b"k1", Some(b"v3")), ("b", b"k9", None)]),
];

fn compare(archive: &Archive, height: u64, changes: Changes<'_>) -> Comparison {
    write(archive.draft(height), changes).compare().unwrap()
}

fn check_all(archive: &Archive) {
    for &(height, changes) in BLOCKS {
        let reversed: Vec<_> = changes.iter().rev().copied().collect();
        assert_eq!(compare(archive, height, &reversed), Comparison::Same, "{height}");
    }
    let different = |domain: &str, key: &[u8], given: Written, held: Written| {
        Comparison::Different(Difference { domain: domain.to_owned(), key: key.to_vec(), given, held })
    };
    let value = |bytes: &[u8]| Written::Value(bytes.to_vec());
    let (nothing, deletion) = (Written::Nothing, Written::Deletion);
    for (height, changes, expected) in [
        // A change more, a change less, a deletion less, another value, a deletion for an empty value.
        (
            3,
            &[BLOCKS[0].1[0], BLOCKS[0].1[1], ("b", b"k2", Some(b"x"))][..],
            different("b", b"k2", value(b"x"), nothing.clone()),
        ),
        (3, &[BLOCKS[0].1[0]], different("b", b"k1", nothing.clone(), value(b"w3"))),
        (9, &[BLOCKS[3].1[0]], different("b", b"k9", nothing.clone(), deletion.clone())),
        (3, &[("a", b"k1", Some(b"v4")), BLOCKS[0].1[1]], different("a", b"k1", value(b"v4"), value(b"v3"))),
        (
            5,
            &[("a", b"k1", Some(b"")), ("a", b"k2", Some(b""))],
            different("a", b"k1", value(b""), deletion.clone()),
        ),
        // The value that an older block wrote is no version of this one.
        (6, &[("a", b"k2", Some(b""))], different("a", b"k2", value(b""), nothing)),
        (4, &[], Comparison::NoBlock),
        (7, &[("a", b"k1", Some(b"v"))], Comparison::NoBlock),
        (2, &[], Comparison::NoBlock),
        (10, &[], Comparison::NotCommitted),
    ] {
        assert_eq!(compare(archive, height, changes), expected, "{height} {changes:?}");
    }
}

#[test]
fn a_block_given_again_is_compared_wherever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.ice");
    let options = Options::new().domain("a").domain("b").blocks_per_step(2).reorg_window(1);
    let archive = Archive::create(&path, options.snapshot_period(NonZeroU64::new(2))).unwrap();
    for &(height, changes) in BLOCKS {
        write(archive.begin(height).unwrap(), changes).commit().unwrap();
    }
    check_all(&archive);
    archive.emit().unwrap();
    check_all(&archive);
    archive.merge(&MergeOptions::default(), &()).unwrap();
    check_all(&archive);
    drop(archive);
    let archive = Archive::open(&path, icecore::OpenOptions::new()).unwrap();
    check_all(&archive);
    // Deep: what is left of the step goes back to memory.
    archive.unwind(6, &()).unwrap();
    for &(height, changes) in &BLOCKS[..3] {
        assert_eq!(compare(&archive, height, changes), Comparison::Same, "{height}");
    }
    // Nothing is used up by a comparison.
    let mut again = write(archive.draft(9), &[BLOCKS[3].1[0]]);
    assert_eq!(again.compare().unwrap(), Comparison::NotCommitted);
    again.delete("b", b"k9").unwrap();
    again.commit().unwrap();
    assert_eq!(compare(&archive, 9, BLOCKS[3].1), Comparison::Same);
    archive.unwind(6, &()).unwrap();
    let refused = write(archive.draft(6), BLOCKS[2].1).commit().unwrap_err();
    assert!(matches!(refused, Error::NotRising { head: 6, got: 6 }), "{refused}");
}

#[test]
fn what_pruning_dropped_is_no_difference() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().domain("a").domain("b").blocks_per_step(1).reorg_window(0);
    let archive = Archive::create(dir.path().join("a.ice"), options).unwrap();
    for &(height, changes) in BLOCKS {
        write(archive.begin(height).unwrap(), changes).commit().unwrap();
    }
    archive.emit().unwrap();
    archive.prune(5, &()).unwrap();
    assert_eq!(compare(&archive, 3, BLOCKS[0].1), Comparison::Pruned);
    for &(height, changes) in &BLOCKS[1..] {
        assert_eq!(compare(&archive, height, changes), Comparison::Same, "{height}");
    }
    assert_eq!(
        compare(&archive, 5, &[("a", b"k1", None)]),
        Comparison::Contained,
        "the floor may have lost some"
    );
    assert!(matches!(compare(&archive, 5, &[("a", b"k2", Some(b"x"))]), Comparison::Different(_)));
}

#[test]
fn keys_of_another_length_than_declared_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.ice");
    let options = Options::new().declare(Domain::new("a").key_len(2)).domain("b");
    drop(Archive::create(&path, options).unwrap());
    let archive = Archive::open(&path, icecore::OpenOptions::new()).unwrap();
    assert_eq!(archive.reader().domains()[0].key_len, Some(2));
    let mut block = archive.begin(1).unwrap();
    block.put("a", b"k1", b"v").unwrap();
    block.put("b", b"any", b"v").unwrap();
    let mut refused = vec![block.put("a", b"k", b"v").unwrap_err(), block.delete("a", b"k12").unwrap_err()];
    block.commit().unwrap();
    let view = archive.at(1).unwrap();
    refused.extend([
        view.get("a", b"k").unwrap_err(),
        view.lookup("a", b"").unwrap_err(),
        view.multi_get("a", &[&b"k1"[..], b"k12"]).unwrap_err(),
        view.prove("a", b"k").unwrap_err(),
        archive.history("a", b"k12").unwrap_err(),
    ]);
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Misuse);
        assert!(matches!(error, Error::KeyLength { expected: 2, .. }), "{error}");
    }
    assert_eq!(view.get("a", b"k1").unwrap().as_deref(), Some(&b"v"[..]));
    assert!(view.prove("a", b"k1").is_ok());
    for len in [0, 1025] {
        let options = Options::new().declare(Domain::new("a").key_len(len));
        let refused = Archive::create(dir.path().join("b.ice"), options).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Misuse, "{refused}");
    }
}
