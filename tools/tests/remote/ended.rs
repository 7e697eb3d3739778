//! Pushes and pulls that end at any request, or whose answer is lost there: is the bucket the same in the end, and does the copy go on?

use std::collections::BTreeMap;
use std::path::Path;

use icecore::remote::{PullOptions, PushOptions, list, pull, push, verify};
use icecore::{Error, Reader, VerifyMode, verify as verify_archive};
use icecore_tools::stub::{Fault, Stub, When};
use tempfile::TempDir;

use super::chain::{Chain, Random, bucket, one_job, pushed};

/// The bucket that pushes without a failure make, and the requests of the second push.
pub(super) fn clean_bucket(chain: &Chain, first: &Path) -> (BTreeMap<String, Vec<u8>>, u64) {
    let stub = Stub::start().unwrap();
    push(first, &bucket(&stub), &one_job(), &()).unwrap();
    stub.reset_requests();
    push(&chain.path, &bucket(&stub), &one_job(), &()).unwrap();
    (stub.objects(), stub.requests().total())
}

#[test]
fn a_push_that_ends_at_any_request_leaves_the_same_bucket_in_the_end() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 5, 13);
    let first = dir.path().join("first.ice");
    chain.archive.checkpoint(&first, &()).unwrap();
    chain.grow(5);
    let (expected, requests) = clean_bucket(&chain, &first);
    assert!(requests > 8, "{requests}");
    // Without an archive in the bucket, and with an older generation of it.
    for is_first in [true, false] {
        let expected = if is_first {
            let stub = Stub::start().unwrap();
            push(&chain.path, &bucket(&stub), &one_job(), &()).unwrap();
            stub.objects()
        } else {
            expected.clone()
        };
        for (fault, jobs) in [(Fault::ExpiredToken, 1), (Fault::ExpiredToken, 4)] {
            let mut ended = 0;
            for request in 0.. {
                let stub = Stub::start().unwrap();
                if !is_first {
                    push(&first, &bucket(&stub), &one_job(), &()).unwrap();
                }
                stub.reset_requests();
                stub.fail(fault, When::from(request));
                let options = PushOptions::new().jobs(jobs);
                let result = push(&chain.path, &bucket(&stub), &options, &());
                stub.heal();
                let is_whole = result.is_ok();
                ended += usize::from(!is_whole);
                let seen = stub.objects().keys().filter(|name| name.contains("/m/")).count();
                if seen > usize::from(!is_first) {
                    assert!(
                        verify(&bucket(&stub), 2, &()).unwrap().problems.is_empty(),
                        "published means whole"
                    );
                }
                push(&chain.path, &bucket(&stub), &one_job(), &()).unwrap();
                assert!(stub.objects() == expected, "ended at request {request}: {result:?}");
                if is_whole {
                    break;
                }
            }
            assert!(ended > 8, "{ended}");
        }
    }
}

#[test]
fn an_answer_that_is_lost_at_any_request_changes_nothing() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 6, 13);
    let first = dir.path().join("first.ice");
    chain.archive.checkpoint(&first, &()).unwrap();
    chain.grow(5);
    let (expected, requests) = clean_bucket(&chain, &first);
    for fault in [Fault::Unanswered, Fault::Drop, Fault::Status(500), Fault::Status(503)] {
        for request in 0..requests {
            let stub = Stub::start().unwrap();
            push(&first, &bucket(&stub), &one_job(), &()).unwrap();
            stub.reset_requests();
            stub.fail(fault, When::once(request));
            let result = push(&chain.path, &bucket(&stub), &one_job(), &());
            assert!(result.is_ok_and(|report| report.is_new), "{fault:?} at {request}");
            assert!(stub.objects() == expected, "{fault:?} at {request}");
        }
    }
}

#[test]
fn a_pull_that_ends_at_any_request_goes_on() {
    let dir = TempDir::new().unwrap();
    let chain = Chain::with_blocks(dir.path(), 7, 18);
    let stub = Stub::start().unwrap();
    pushed(&chain, &stub);
    for request in 0.. {
        let copy = dir.path().join(format!("copy-{request}.ice"));
        stub.reset_requests();
        stub.fail(Fault::ExpiredToken, When::from(request));
        let first = pull(&bucket(&stub), &copy, &PullOptions::new().jobs(1), &());
        stub.heal();
        if first.is_ok() {
            assert!(request > 10, "{request}");
            break;
        }
        assert_eq!(copy.exists(), request > 1, "a pull that finds no archive leaves nothing");
        if copy.exists() {
            assert!(matches!(Reader::open(&copy), Err(Error::Unfinished { .. })), "it is no archive yet");
        }
        let second = pull(&bucket(&stub), &copy, &PullOptions::new(), &()).unwrap();
        assert_eq!(second.files_present, request.saturating_sub(2), "what came before is not pulled again");
        chain.check(&copy, second.range);
        let third = pull(&bucket(&stub), &copy, &PullOptions::new(), &()).unwrap();
        assert_eq!((third.files_pulled, third.range), (0, second.range));
    }
}

#[test]
fn long_files_go_in_parts_and_are_taken_up_in_their_midst() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::new(dir.path(), 8);
    let mut random = Random(8);
    let two_bytes = || (random.next() as u16).to_le_bytes();
    let value: Vec<u8> = std::iter::repeat_with(two_bytes).flatten().take(18 << 20).collect();
    let mut block = chain.archive.begin(1).unwrap();
    block.put("code", b"long", &value).unwrap();
    block.commit().unwrap();
    chain.head = 1;
    chain.grow(15);
    let stub = Stub::start().unwrap();
    let mut parts = 0;
    stub.fail(Fault::ExpiredToken, When::from(7));
    assert!(push(&chain.path, &bucket(&stub), &one_job(), &()).is_err(), "in the midst of the parts");
    stub.heal();
    assert!(stub.objects().keys().all(|name| !name.contains("/o/")), "a part is not visible");
    pushed(&chain, &stub);
    for (name, bytes) in stub.objects() {
        parts += usize::from(name.contains("/o/") && bytes.len() > 16 << 20);
    }
    assert_eq!(parts, 1, "a long file");
    let copy = dir.path().join("copy.ice");
    stub.reset_requests();
    // Two requests find the generation, and four parts are under way at a time.
    stub.fail(Fault::ExpiredToken, When::from(6));
    assert!(pull(&bucket(&stub), &copy, &PullOptions::new().jobs(1), &()).is_err());
    stub.heal();
    let second = pull(&bucket(&stub), &copy, &PullOptions::new(), &()).unwrap();
    let all: u64 = list(&bucket(&stub)).unwrap()[0].bytes;
    assert!(second.bytes_pulled + (4 << 20) <= all, "{} of {all}", second.bytes_pulled);
    let reader = Reader::open(&copy).unwrap();
    assert!(reader.at(1).unwrap().get("code", b"long").unwrap().as_deref() == Some(&value[..]));
    assert!(verify_archive(&copy, VerifyMode::Full, &()).unwrap().problems.is_empty());
}
