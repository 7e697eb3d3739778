//! Copies of a part of an archive, from a server whose requests fail.

use std::time::Instant;

use icecore::remote::{PullOptions, pull};
use icecore::{Error, Reader, VerifyMode, verify};
use icecore_tools::stub::{Fault, Stub, When};
use tempfile::TempDir;

use super::chain::{Chain, assert_told, bucket, pushed};
use super::faults::FAULTS;

fn held(copy: &std::path::Path) -> Vec<(String, String)> {
    let segments = Reader::open(copy).unwrap().segments();
    let held = segments.into_iter().filter(|segment| segment.is_held);
    held.map(|segment| (segment.domain, segment.steps.to_string())).collect()
}

/// A chain whose steps have segments of their own.
fn chain_of_steps(dir: &std::path::Path, seed: u64) -> Chain {
    let mut chain = Chain::new(dir, seed);
    (0..5).for_each(|_| chain.grow(4));
    chain
}

#[test]
fn a_part_is_extended_whatever_request_fails() {
    let dir = TempDir::new().unwrap();
    let mut chain = chain_of_steps(dir.path(), 31);
    let stub = Stub::start().unwrap();
    pushed(&chain, &stub);
    let first = PullOptions::new().domain("kv").blocks(..9).jobs(1);
    let more = PullOptions::new().domain("code").jobs(1);
    for grows in [false, true] {
        let mut done = false;
        for request in 0.. {
            let copy = dir.path().join(format!("copy-{grows}-{request}.ice"));
            // Of the generation before, where there is one.
            pull(&bucket(&stub), &copy, &first.clone().generation(1), &()).unwrap();
            let before = held(&copy);
            stub.reset_requests();
            stub.fail(Fault::ExpiredToken, When::from(request));
            let result = pull(&bucket(&stub), &copy, &more, &());
            stub.heal();
            done = result.is_ok();
            let report = verify(&copy, VerifyMode::Full, &()).unwrap();
            assert!(report.problems.is_empty(), "{request}: {:?}", report.problems);
            if done {
                assert!(request > 10, "{request}");
                break;
            }
            assert_eq!(held(&copy), before, "{request}: what is not whole is not there");
            pull(&bucket(&stub), &copy, &more, &()).unwrap();
            let now = held(&copy);
            assert!(before.iter().all(|one| now.contains(one)) && before != now, "{request}");
            let whole = pull(&bucket(&stub), &copy, &PullOptions::new(), &()).unwrap();
            assert_eq!(whole.segments_held, whole.segments);
            chain.check(&copy, whole.range);
        }
        assert!(done);
        chain.grow(6);
        pushed(&chain, &stub);
    }
}

#[test]
fn no_fault_of_a_server_makes_a_part_worse() {
    let dir = TempDir::new().unwrap();
    let chain = chain_of_steps(dir.path(), 32);
    let stub = Stub::start().unwrap();
    pushed(&chain, &stub);
    let copy = dir.path().join("copy.ice");
    pull(&bucket(&stub), &copy, &PullOptions::new().domain("kv").blocks(..9), &()).unwrap();
    for fault in FAULTS {
        let before = held(&copy);
        stub.fail(fault, When::always().key("/o/"));
        let started = Instant::now();
        let result = pull(&bucket(&stub), &copy, &PullOptions::new().domain("code"), &());
        stub.heal();
        if fault == Fault::RangeIgnored {
            continue;
        }
        assert_told(result, started, &format!("{fault:?}"));
        assert_eq!(held(&copy), before, "{fault:?}");
        let found = Reader::open(&copy).unwrap().at(9).unwrap().get("code", b"key-1");
        assert!(matches!(found, Err(Error::NotHeld { .. })), "{fault:?}: {found:?}");
    }
}
