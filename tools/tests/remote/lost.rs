//! What was lost of a bucket: is it seen, is nothing removed on its account, does the next push bring it back? And what a collection
//! removes that a push sends again at the same moment.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use icecore::remote::{
    Bucket, GcOptions, GcReport, PushOptions, PushReport, RemoteError, SigningKey, gc, list, push, verify,
};
use icecore::{Error, MergeOptions};
use icecore_tools::stub::{Fault, Stub, When};
use tempfile::TempDir;

use crate::chain::{Chain, PATIENCE, bucket, pushed};
use crate::signed::ONE;

const PREFIX: &str = "bucket/some/prefix";

/// Longer than any grace period of these tests.
const LONG_AGO: Duration = Duration::from_secs(60 * 24 * 3600);

fn wait_until(mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "it never came to that");
        thread::sleep(Duration::from_millis(1));
    }
}

fn problems(bucket: &Bucket) -> Vec<String> {
    verify(bucket, 4, &()).unwrap().problems
}

/// An archive of which a bucket has two generations, the second without most objects of the first; and a copy of it as it was at the first.
fn superseded(dir: &TempDir, seed: u64, stub: &Stub) -> (Chain, std::path::PathBuf) {
    let mut chain = Chain::with_blocks(dir.path(), seed, 4);
    (0..12).for_each(|_| chain.grow(4));
    let old = dir.path().join("old.ice");
    chain.archive.checkpoint(&old, &()).unwrap();
    pushed(&chain, stub);
    chain.archive.merge(&MergeOptions::default(), &()).unwrap();
    pushed(&chain, stub);
    stub.age(LONG_AGO);
    (chain, old)
}

fn push_again(old: &std::path::Path, stub: &Stub) -> PushReport {
    push(old, &bucket(stub), &PushOptions::new().allow_rewind(true), &()).unwrap()
}

#[test]
fn what_is_sent_again_while_a_collection_runs_is_spared_or_told() {
    let dir = TempDir::new().unwrap();
    let stub = Stub::start().unwrap();
    let (_chain, old) = superseded(&dir, 201, &stub);
    let keep_one = GcOptions::new().keep(1);
    let garbage = gc(&bucket(&stub), &keep_one.clone().dry_run(true)).unwrap().removed;
    // What was looked at is removed only when the push has ended.
    stub.reset_requests();
    stub.fail(Fault::Held, When::always().method("POST"));
    let collected = thread::scope(|scope| {
        let collection = scope.spawn(|| gc(&bucket(&stub), &keep_one));
        wait_until(|| stub.requests().other > 0);
        let sent = push_again(&old, &stub);
        assert!(sent.is_new && sent.files_sent > 64 && garbage > sent.files_sent, "{sent:?} {garbage}");
        stub.heal();
        collection.join().unwrap()
    });
    let Err(Error::Remote(RemoteError::Collected { objects, .. })) = collected else {
        panic!("{collected:?}")
    };
    assert!((1..=64).contains(&objects), "{objects} objects: those after them were looked at again");
    assert_eq!(problems(&bucket(&stub)).len() as u64, objects);
    let again = push_again(&old, &stub);
    assert!(!again.is_new && again.files_sent == objects && again.generation == Some(3), "{again:?}");
    assert_eq!(problems(&bucket(&stub)), Vec::<String>::new());
    assert!(gc(&bucket(&stub), &keep_one).is_ok());
    assert_eq!(problems(&bucket(&stub)), Vec::<String>::new());
}

#[test]
fn a_push_makes_sure_of_what_it_published() {
    let dir = TempDir::new().unwrap();
    let chain = Chain::with_blocks(dir.path(), 202, 30);
    for options in [PushOptions::new(), PushOptions::new().sign(SigningKey::parse(ONE, None).unwrap())] {
        let stub = Stub::start().unwrap();
        stub.fail(Fault::Held, When::always().method("PUT").key("/m/"));
        let report = thread::scope(|scope| {
            let pusher = scope.spawn(|| push(&chain.path, &bucket(&stub), &options, &()));
            wait_until(|| stub.objects().keys().any(|name| name.contains("/b/")));
            let names: Vec<String> = stub.objects().into_keys().collect();
            names.iter().filter(|name| !name.ends_with("ICECORE")).for_each(|name| stub.remove(name));
            stub.heal();
            pusher.join().unwrap()
        });
        assert!(report.unwrap().is_new);
        assert_eq!(problems(&bucket(&stub)), Vec::<String>::new());
    }
}

/// The bucket without one object of each kind, or with a shorter one, by its name.
fn losses(objects: &BTreeMap<String, Vec<u8>>) -> Vec<(String, Option<Vec<u8>>)> {
    let kinds = ["/o/", "/h/", "/b/", "/m/", "/HEAD/"];
    let of_each = kinds.iter().filter_map(|kind| objects.iter().find(|(name, _)| name.contains(kind)));
    of_each
        .flat_map(|(name, bytes)| {
            [(name.clone(), None), (name.clone(), Some(bytes[..bytes.len() / 2].to_vec()))]
        })
        .collect()
}

#[test]
fn whatever_a_bucket_lost_the_next_push_brings_back() {
    let dir = TempDir::new().unwrap();
    let mut large = Chain::with_blocks(dir.path(), 203, 4);
    // Files of more than one block have hashes.
    for height in large.head + 1..=large.head + 8 {
        let mut block = large.archive.begin(height).unwrap();
        let value: Vec<u8> = (0..40_000).map(|_| large.random.next() as u8).collect();
        block.put("code", &height.to_be_bytes(), &value).unwrap();
        block.commit().unwrap();
    }
    large.archive.emit().unwrap();
    for options in [PushOptions::new(), PushOptions::new().sign(SigningKey::parse(ONE, None).unwrap())] {
        let stub = Stub::start().unwrap();
        let push = || push(&large.path, &bucket(&stub), &options, &()).unwrap();
        push();
        stub.age(LONG_AGO);
        let whole = stub.objects();
        let losses = losses(&whole);
        assert!(losses.len() >= 8, "{losses:?}");
        for (name, left) in losses {
            let is_hint = name.contains("/HEAD/");
            let is_gone = left.is_none();
            left.map_or_else(|| stub.remove(&name), |bytes| stub.put(&name, bytes));
            let found = problems(&bucket(&stub));
            // A push that is killed before its first hint leaves none.
            assert_eq!(found.is_empty(), is_hint && is_gone, "{name}: {found:?}");
            let report = push();
            assert!(!report.is_new && report.generation == Some(1), "{name}: {report:?}");
            assert!(stub.objects() == whole, "{name}, removed: {is_gone}");
            assert_eq!(problems(&bucket(&stub)), Vec::<String>::new(), "{name}");
        }
    }
}

#[test]
fn where_generations_are_missing_nothing_is_collected_and_it_is_seen() {
    type Damage = fn(&Stub, &str);
    let generation = |number| format!("{PREFIX}/m/main/{number:016x}");
    let head = format!("{PREFIX}/HEAD/main");
    let cut: Damage = |stub, name| {
        let bytes = stub.objects()[name].clone();
        stub.put(name, bytes[..bytes.len() / 2].to_vec());
    };
    let lose: Damage = |stub, name| stub.remove(name);
    for (what, damage, name) in [
        ("the newest is lost", lose, generation(2)),
        ("the newest is damaged", cut, generation(2)),
        ("one in the midst is lost", lose, generation(1)),
        ("the hint is lost", lose, head.clone()),
        ("the hint is damaged", cut, head.clone()),
    ] {
        let dir = TempDir::new().unwrap();
        let stub = Stub::start().unwrap();
        let (chain, _) = superseded(&dir, 204, &stub);
        damage(&stub, &name);
        stub.age(LONG_AGO);
        let before = stub.objects();
        let keep = GcOptions::new().keep(1);
        for options in [keep.clone(), keep.clone().dry_run(true)] {
            let error = gc(&bucket(&stub), &options).expect_err(what).to_string();
            assert!(error.contains(&name["bucket/".len()..]), "{what}: {error}");
        }
        assert!(stub.objects() == before, "{what}");
        let found = problems(&bucket(&stub));
        assert!(found.iter().any(|line| line.contains(&name["bucket/".len()..])), "{what}: {found:?}");
        // A damaged generation is read by who lists where its hint is damaged too.
        if what != "the newest is damaged" {
            assert!(list(&bucket(&stub)).is_err(), "{what}");
        }
        if !name.ends_with('1') {
            pushed(&chain, &stub);
            assert_eq!(problems(&bucket(&stub)), Vec::<String>::new(), "{what}");
            assert!(gc(&bucket(&stub), &keep).unwrap().removed > 0, "{what}");
            assert_eq!(problems(&bucket(&stub)), Vec::<String>::new(), "{what}");
        }
    }
}

#[test]
fn a_prefix_without_a_generation_is_not_collected() {
    let dir = TempDir::new().unwrap();
    let stub = Stub::start().unwrap();
    let _ = superseded(&dir, 205, &stub);
    let names: Vec<String> = stub.objects().into_keys().collect();
    names
        .iter()
        .filter(|name| name.contains("/m/") || name.contains("/HEAD/"))
        .for_each(|name| stub.remove(name));
    let before = stub.objects();
    let refused: Result<GcReport, Error> = gc(&bucket(&stub), &GcOptions::new());
    assert!(matches!(refused, Err(Error::Remote(RemoteError::NoArchive { .. }))), "{refused:?}");
    assert!(stub.objects() == before);
}
