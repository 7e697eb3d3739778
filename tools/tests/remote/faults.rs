//! Every fault of a store: told in time, and never an answer.

use std::thread;
use std::time::{Duration, Instant};

use icecore::Error;
use icecore::remote::{Bucket, PullOptions, PushOptions, RemoteError, list, pull, push, verify};
use icecore_tools::stub::{Fault, Stub, When};
use tempfile::TempDir;

use super::chain::{Chain, PATIENCE, assert_told, bucket, options, pushed};
use super::ended::clean_bucket;

#[test]
fn a_store_that_is_slow_is_not_taken_for_one_that_hangs() {
    let dir = TempDir::new().unwrap();
    let chain = Chain::with_blocks(dir.path(), 27, 9);
    let stub = Stub::start().unwrap();
    pushed(&chain, &stub);
    stub.set_latency(Duration::from_millis(2500));
    let slow = bucket(&stub);
    assert_eq!(list(&slow).unwrap().len(), 1);
    let (_, repeated) = slow.requests();
    assert!((1..4).contains(&repeated), "what stalled once is given longer: {repeated}");
    let patient =
        Bucket::open_with("s3://bucket/some/prefix", &options(&stub).timeout(Duration::from_secs(9)));
    let patient = patient.unwrap();
    assert_eq!((list(&patient).unwrap().len(), patient.requests().1), (1, 0));
}

#[test]
fn an_object_that_is_too_short_is_damaged_at_once() {
    let dir = TempDir::new().unwrap();
    let chain = Chain::with_blocks(dir.path(), 28, 18);
    let stub = Stub::start().unwrap();
    pushed(&chain, &stub);
    for (name, bytes) in stub.objects().into_iter().filter(|(name, _)| name.contains("/o/")) {
        stub.put(&name, bytes[..4100].to_vec());
    }
    let started = Instant::now();
    let copy = pull(&bucket(&stub), dir.path().join("copy.ice"), &PullOptions::new(), &());
    assert!(matches!(copy, Err(Error::Remote(RemoteError::Damaged { .. }))), "{copy:?}");
    assert!(started.elapsed() < Duration::from_millis(900), "{:?}", started.elapsed());
}

pub(super) const FAULTS: [Fault; 12] = [
    Fault::Status(500),
    Fault::Status(503),
    Fault::Hang,
    Fault::Drip,
    Fault::Truncated,
    Fault::Short,
    Fault::Wrong,
    Fault::Shifted,
    Fault::RangeIgnored,
    Fault::ExpiredToken,
    Fault::Collected,
    Fault::Drop,
];

#[test]
fn every_fault_of_a_read_is_told_and_none_becomes_an_answer() {
    let dir = TempDir::new().unwrap();
    let chain = Chain::with_blocks(dir.path(), 9, 18);
    // On all requests, and on those for files alone.
    let cases = FAULTS.iter().flat_map(|fault| ["", "/o/"].map(|key| (*fault, key)));
    thread::scope(|scope| {
        for (number, (fault, key)) in cases.enumerate() {
            let (dir, chain) = (dir.path(), &chain);
            let (first, stub) = (chain.path.clone(), Stub::start().unwrap());
            scope.spawn(move || {
                push(&first, &bucket(&stub), &PushOptions::new(), &()).unwrap();
                stub.fail(fault, When::always().key(key));
                let (copy, started) = (dir.join(format!("copy-{number}.ice")), Instant::now());
                let result = pull(&bucket(&stub), &copy, &PullOptions::new(), &());
                let what = format!("{fault:?} {key}");
                // A range of a whole small object may be ignored without harm, and then the copy is right.
                if result.is_err() {
                    assert_told(result, started, &what);
                } else {
                    assert_eq!(fault, Fault::RangeIgnored, "{what}");
                    chain.check_prefix(&copy, 12);
                }
                let started = Instant::now();
                let checked = verify(&bucket(&stub), 4, &());
                assert!(started.elapsed() < 2 * PATIENCE, "{what}");
                let is_clean = checked.is_ok_and(|report| report.problems.is_empty());
                assert!(!is_clean || fault == Fault::RangeIgnored, "{what}: verify is content");
                stub.heal();
                let range =
                    pull(&bucket(&stub), copy.with_extension("2"), &PullOptions::new(), &()).unwrap().range;
                chain.check(&copy.with_extension("2"), range);
            });
        }
    });
}

#[test]
fn every_fault_of_a_push_is_told_and_none_publishes_what_is_wrong() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 10, 13);
    let first = dir.path().join("first.ice");
    chain.archive.checkpoint(&first, &()).unwrap();
    chain.grow(5);
    let (expected, _) = clean_bucket(&chain, &first);
    thread::scope(|scope| {
        for fault in FAULTS {
            let (chain, first, expected, stub) = (&chain, &first, &expected, Stub::start().unwrap());
            scope.spawn(move || {
                push(first, &bucket(&stub), &PushOptions::new(), &()).unwrap();
                stub.fail(fault, When::always());
                let started = Instant::now();
                let result = push(&chain.path, &bucket(&stub), &PushOptions::new(), &());
                // Faults of a body that nobody reads do nothing; what seems to be collected is found to be there.
                if result.is_err() {
                    assert_told(result, started, &format!("{fault:?}"));
                }
                stub.heal();
                push(&chain.path, &bucket(&stub), &PushOptions::new(), &()).unwrap();
                assert!(stub.objects() == *expected, "{fault:?}");
            });
        }
    });
}

#[test]
fn a_store_that_ignores_conditions_is_refused() {
    let dir = TempDir::new().unwrap();
    let chain = Chain::with_blocks(dir.path(), 11, 18);
    let stub = Stub::start().unwrap();
    stub.fail(Fault::Unconditional, When::always());
    let refused = push(&chain.path, &bucket(&stub), &PushOptions::new(), &());
    assert!(matches!(refused, Err(Error::Remote(RemoteError::Unconditional { .. }))), "{refused:?}");
    assert_eq!(stub.objects().into_keys().collect::<Vec<_>>(), ["bucket/some/prefix/ICECORE"]);
    let again = push(&chain.path, &bucket(&stub), &PushOptions::new(), &());
    assert!(matches!(again, Err(Error::Remote(RemoteError::Unconditional { .. }))), "also the second time");
}
