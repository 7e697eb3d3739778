//! What is collected, what verification lists, and how much opening reads.

use std::time::Duration;

use icecore::remote::{
    Bucket, GcOptions, PullOptions, PushOptions, RemoteError, gc, list, pull, push, verify,
};
use icecore::{Error, MergeOptions};
use icecore_tools::stub::{Fault, Stub, When};
use tempfile::TempDir;

use super::chain::{Chain, bucket, one_job, options, pushed};

#[test]
fn only_what_nothing_names_and_is_old_is_collected() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 15, 4);
    (0..8).for_each(|_| chain.grow(4));
    let stub = Stub::start().unwrap();
    pushed(&chain, &stub);
    chain.archive.merge(&MergeOptions::default(), &()).unwrap();
    let other = Chain::with_blocks(dir.path(), 16, 18);
    let second = Bucket::open_with("s3://bucket/some/prefix", &options(&stub).archive("second")).unwrap();
    push(&other.path, &second, &PushOptions::new(), &()).unwrap();
    pushed(&chain, &stub);
    stub.put("bucket/some/prefix/o/notes.txt", b"of somebody else".to_vec());
    let keep_one = GcOptions::new().keep(1);
    let young = gc(&bucket(&stub), &keep_one).unwrap();
    assert!(young.removed == 0 && young.young > 0, "{young:?}");
    stub.age(Duration::from_secs(10 * 24 * 3600));
    let before = stub.objects().len();
    let plan = gc(&bucket(&stub), &keep_one.clone().dry_run(true)).unwrap();
    assert_eq!(stub.objects().len(), before);
    assert_eq!(gc(&bucket(&stub), &GcOptions::new()).unwrap().removed, 0, "two generations are kept");
    let done = gc(&bucket(&stub), &keep_one).unwrap();
    assert!(done.removed > 0 && done == plan, "{done:?} {plan:?}");
    assert_eq!(stub.objects().len() as u64, before as u64 - done.removed);
    assert!(stub.objects().contains_key("bucket/some/prefix/o/notes.txt"));
    for bucket in [&bucket(&stub), &second] {
        assert!(verify(bucket, 4, &()).unwrap().problems.is_empty());
    }
    let gone = pull(&bucket(&stub), dir.path().join("gone.ice"), &PullOptions::new().generation(1), &());
    assert!(matches!(gone, Err(Error::Remote(RemoteError::Gone { .. }))), "{gone:?}");
    let hasty = gc(&bucket(&stub), &GcOptions::new().grace(Duration::from_secs(60)));
    assert!(matches!(hasty, Err(Error::Options { .. })), "{hasty:?}");
}

#[test]
fn objects_that_may_be_collected_any_moment_are_sent_again() {
    let dir = TempDir::new().unwrap();
    let chain = Chain::with_blocks(dir.path(), 17, 18);
    let stub = Stub::start().unwrap();
    // All objects went up, the generation did not.
    stub.fail(Fault::ExpiredToken, When::always().method("PUT").key("/m/"));
    push(&chain.path, &bucket(&stub), &one_job(), &()).unwrap_err();
    stub.heal();
    stub.age(Duration::from_secs(10 * 24 * 3600));
    let sent = pushed(&chain, &stub);
    assert!(sent.is_new && sent.files_present == 0, "{sent:?}");
    let left = gc(&bucket(&stub), &GcOptions::new().keep(1)).unwrap();
    assert_eq!((left.removed, left.young), (0, 0));
    // Those that are young are taken as they are.
    let other = Stub::start().unwrap();
    other.fail(Fault::ExpiredToken, When::always().method("PUT").key("/m/"));
    push(&chain.path, &bucket(&other), &one_job(), &()).unwrap_err();
    other.heal();
    let sent = pushed(&chain, &other);
    assert!(sent.is_new && sent.files_sent == 0 && sent.files_present > 0, "{sent:?}");
}

#[test]
fn verify_lists_all_damage() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 18, 18);
    let stub = Stub::start().unwrap();
    pushed(&chain, &stub);
    chain.grow(4);
    pushed(&chain, &stub);
    let objects = stub.objects();
    let of_kind = |kind: &str| objects.iter().find(|(name, _)| name.ends_with(kind)).unwrap();
    let flipped = |bytes: &[u8], at: usize| {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 1;
        bytes
    };
    let (kv, bytes) = of_kind(".kv");
    stub.put(kv, flipped(bytes, 5000));
    let (bt, _) = of_kind(".bt");
    stub.remove(bt);
    let (kvei, bytes) = of_kind(".kvei");
    stub.put(kvei, bytes[..bytes.len() - 1].to_vec());
    let first = "bucket/some/prefix/m/main/0000000000000001";
    stub.put(first, flipped(&objects[first], 100));
    let report = verify(&bucket(&stub), 4, &()).unwrap();
    assert_eq!(report.problems.len(), 4, "{report:?}");
    for name in [kv, bt, kvei, first] {
        assert_eq!(
            report.problems.iter().filter(|line| line.contains(name)).count(),
            1,
            "{name}: {report:?}"
        );
    }
}

#[test]
fn what_opening_reads_of_260_segments_is_small() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 19, 4);
    // Three domains, with that of the roots: a segment of each for a step.
    (0..88).for_each(|_| chain.grow(4));
    let bucket = Bucket::open("memory://opening").unwrap();
    push(&chain.path, &bucket, &PushOptions::new(), &()).unwrap();
    let listed = list(&bucket).unwrap().remove(0);
    assert!((260..280).contains(&listed.segments), "{listed:?}");
    println!("{} segments: {} bytes to open", listed.segments, listed.opening_bytes);
    assert!(listed.opening_bytes <= 200_000, "{listed:?}");
}
