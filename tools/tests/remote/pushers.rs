//! Who may publish what: nothing new, two pushers at once, another archive, other blocks in the place of published ones.

use std::path::Path;
use std::sync::Barrier;
use std::thread;

use icecore::remote::{Bucket, PullOptions, PushOptions, PushReport, RemoteError, list, pull, push, verify};
use icecore::{Archive, Error, MergeOptions};
use icecore_tools::stub::Stub;
use tempfile::TempDir;

use super::chain::{Chain, Random, bucket, open_options, options, pushed};

#[test]
fn nothing_new_is_three_requests() {
    let dir = TempDir::new().unwrap();
    let chain = Chain::with_blocks(dir.path(), 3, 30);
    let stub = Stub::start().unwrap();
    pushed(&chain, &stub);
    stub.reset_requests();
    let again = pushed(&chain, &stub);
    assert!(!again.is_new && again.generation == Some(1) && again.files_sent == 0, "{again:?}");
    let made = stub.requests();
    assert_eq!((made.get, made.head, made.list, made.total()), (2, 0, 1, 3));
    let dry = PushOptions::new().dry_run(true);
    let before = stub.objects();
    let other = Stub::start().unwrap();
    let report = push(&chain.path, &bucket(&other), &dry, &()).unwrap();
    assert!(report.generation.is_none() && report.files_sent > 0, "{report:?}");
    assert!(other.objects().is_empty() && stub.objects() == before, "a dry run writes nothing");
}

#[test]
fn an_archive_without_a_segment_is_not_pushed() {
    let dir = TempDir::new().unwrap();
    let chain = Chain::with_blocks(dir.path(), 4, 3);
    let stub = Stub::start().unwrap();
    assert_eq!(pushed(&chain, &stub), PushReport::default());
    assert_eq!(stub.requests().total(), 0);
    let nothing = pull(&bucket(&stub), dir.path().join("copy.ice"), &PullOptions::new(), &());
    assert!(matches!(nothing, Err(Error::Remote(RemoteError::NoArchive { .. }))), "{nothing:?}");
}

/// Two archives of one identity, which go each its own way.
pub(super) fn two_chains(dir: &Path, seed: u64) -> [Chain; 2] {
    let one = Chain::with_blocks(dir, seed, 13);
    let path = dir.join(format!("other-{seed}.ice"));
    one.archive.checkpoint(&path, &()).unwrap();
    let archive = Archive::open(&path, open_options()).unwrap();
    let states = one.states.clone();
    [Chain { archive, path, states, random: Random(seed + 1000), head: 13 }, one]
}

/// Lets two archives of one identity grow apart and push at once, again and again. Each is told that it published or that the other
/// did; the bucket is sound in the end, with a generation for each push that was told so. Returns how many lost.
pub(super) fn race(chains: &mut [Chain; 2], bucket: &Bucket, rounds: usize) -> usize {
    let (mut wins, mut told) = (0, 0);
    for round in 0..rounds {
        chains.iter_mut().for_each(|chain| chain.grow(4));
        let barrier = Barrier::new(2);
        let results = thread::scope(|scope| {
            let push_one = |chain: &Chain| {
                let (path, bucket, barrier) = (chain.path.clone(), bucket.clone(), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    push(&path, &bucket, &PushOptions::new().allow_rewind(true), &())
                })
            };
            let threads: Vec<_> = chains.iter().map(push_one).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let winners =
            results.iter().filter(|result| result.as_ref().is_ok_and(|report| report.is_new)).count();
        assert!(winners > 0, "round {round}: {results:?}");
        for result in results {
            match result {
                Ok(_) => wins += 1,
                Err(Error::Remote(RemoteError::Lost { .. })) => told += 1,
                Err(error) => panic!("round {round}: {error}"),
            }
        }
    }
    let report = verify(bucket, 4, &()).unwrap();
    assert_eq!((report.problems, report.generations), (Vec::<String>::new(), wins));
    told
}

#[test]
fn of_two_pushers_one_wins_and_the_other_is_told() {
    let dir = TempDir::new().unwrap();
    let stub = Stub::start().unwrap();
    let told = race(&mut two_chains(dir.path(), 12), &bucket(&stub), 20);
    assert!(told > 0, "no race was one");
}

#[test]
fn another_archive_and_an_older_state_are_refused() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 13, 18);
    let old = dir.path().join("old.ice");
    chain.archive.checkpoint(&old, &()).unwrap();
    chain.grow(8);
    let stub = Stub::start().unwrap();
    pushed(&chain, &stub);
    let stranger = Chain::with_blocks(dir.path(), 14, 18);
    let refused = push(&stranger.path, &bucket(&stub), &PushOptions::new(), &());
    assert!(matches!(refused, Err(Error::Remote(RemoteError::OtherArchive { .. }))), "{refused:?}");
    let named = Bucket::open_with("s3://bucket/some/prefix", &options(&stub).archive("second")).unwrap();
    push(&stranger.path, &named, &PushOptions::new(), &()).unwrap();
    let refused = push(&old, &bucket(&stub), &PushOptions::new(), &());
    assert!(matches!(refused, Err(Error::Remote(RemoteError::Behind { .. }))), "{refused:?}");
    let rewound = push(&old, &bucket(&stub), &PushOptions::new().allow_rewind(true), &()).unwrap();
    assert_eq!((rewound.generation, rewound.files_sent), (Some(2), 0), "all of it is there");
    let names: Vec<String> = list(&bucket(&stub)).unwrap().into_iter().map(|archive| archive.name).collect();
    assert_eq!(names, ["main", "second"]);
}

/// Pushes an archive that may replace nothing; where it is refused, nothing may have changed.
#[track_caller]
fn refused(chain: &Chain, stub: &Stub) -> RemoteError {
    let before = stub.objects();
    let refused = push(&chain.path, &bucket(stub), &PushOptions::new(), &());
    let Err(Error::Remote(error)) = refused else { panic!("{refused:?}") };
    assert!(stub.objects() == before && error.remedy().contains("--allow-rewind"), "{error}");
    error
}

#[test]
fn blocks_that_were_published_are_replaced_by_leave_only() {
    let dir = TempDir::new().unwrap();
    let mut chains = two_chains(dir.path(), 22);
    chains.iter_mut().for_each(|chain| chain.grow(20));
    for is_merged in [false, true] {
        let stub = Stub::start().unwrap();
        let [one, other] = &mut chains;
        pushed(one, &stub);
        if is_merged {
            // No segment of roots is that of the other any more.
            other.archive.merge(&MergeOptions::default(), &()).unwrap();
        }
        let error = refused(other, &stub);
        // Up to block 13 they are the same, and the steps of that are in segments of both.
        assert!(matches!(error, RemoteError::Diverged { block: 14, .. }), "{error:?}");
        let allowed = push(&other.path, &bucket(&stub), &PushOptions::new().allow_rewind(true), &()).unwrap();
        assert_eq!(allowed.generation, Some(2));
        assert!(matches!(refused(one, &stub), RemoteError::Diverged { block: 14, .. }));
    }
}

/// An empty block in a step of which the other side has none: it changes neither a root nor a segment of the domains.
#[test]
fn a_block_more_among_those_that_were_published_is_another_history() {
    let dir = TempDir::new().unwrap();
    let chains = two_chains(dir.path(), 25);
    for (chain, heights) in chains.iter().zip([&[17][..], &[]]) {
        for height in heights.iter().copied().chain(20..30) {
            let mut block = chain.archive.begin(height).unwrap();
            if height >= 20 {
                block.put("kv", b"key", &height.to_le_bytes()).unwrap();
            }
            block.commit().unwrap();
        }
        chain.archive.emit().unwrap();
    }
    let [with, without] = &chains;
    for (published, pusher) in [(with, without), (without, with)] {
        let stub = Stub::start().unwrap();
        pushed(published, &stub);
        let error = refused(pusher, &stub);
        assert!(matches!(error, RemoteError::Diverged { block: 17, .. }), "{error:?}");
    }
}

#[test]
fn what_merged_and_grew_since_is_no_other_archive() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 23, 22);
    let stub = Stub::start().unwrap();
    for generation in 1..6 {
        stub.reset_requests();
        let sent = pushed(&chain, &stub);
        assert_eq!(sent.generation, Some(generation));
        assert!(stub.requests().get <= 4, "{:?}: roots were read", stub.requests());
        if generation % 2 == 0 {
            chain.archive.merge(&MergeOptions::default(), &()).unwrap();
        } else {
            chain.skip(1);
            chain.grow(9);
        }
    }
}

#[test]
fn a_pruned_archive_replaces_a_whole_one_by_leave_only() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 24, 30);
    let stub = Stub::start().unwrap();
    pushed(&chain, &stub);
    chain.archive.prune(10, &()).unwrap();
    let error = refused(&chain, &stub);
    assert!(matches!(error, RemoteError::Pruned { theirs: 1, ours: 10, .. }), "{error:?}");
    let allowed = PushOptions::new().allow_pruned(true);
    let sent = push(&chain.path, &bucket(&stub), &allowed, &()).unwrap();
    assert_eq!(sent.range.map(|range| range.0), Some(10));
    // And from then on it goes on as any other.
    chain.grow(9);
    assert_eq!(pushed(&chain, &stub).generation, Some(3));
    assert!(verify(&bucket(&stub), 4, &()).unwrap().problems.is_empty());
}
