//! Archives in object storage against a server that fails on demand: is the bucket the same wherever a push ended, does every
//! wrong byte become an error, and does a copy answer as its archive does?

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod cached;
mod figures;
mod gateway;
mod in_place;
mod lost;
mod partial;
mod planned;
mod signed;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use icecore::remote::{
    Accessors, Bucket, BucketOptions, GcOptions, PullOptions, PushOptions, PushReport, RemoteError, gc, list,
    pull, push, verify,
};
use icecore::{
    Archive, Error, Maintenance, MergeOptions, OpenOptions, Options, Reader, Scan, VerifyMode,
    verify as verify_archive,
};
use icecore_tools::stub::{Fault, Stub, When};
use tempfile::TempDir;

const KEY: &str = "AKIDTEST";
const SECRET: &str = "SECRETTEST";
const TOKEN: &str = "TOKENTEST";

/// How long a failure may take to be told.
const PATIENCE: Duration = Duration::from_secs(15);

/// Everything a copy must answer: the state of each domain at each height.
type States = BTreeMap<(u64, &'static str), Vec<(Vec<u8>, Vec<u8>)>>;

const DOMAINS: [&str; 2] = ["kv", "code"];

/// A stream of numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

/// An archive that grows, and what it must answer.
struct Chain {
    archive: Archive,
    path: PathBuf,
    states: States,
    random: Random,
    head: u64,
}

fn open_options() -> OpenOptions {
    OpenOptions::new().maintenance(Maintenance::EmitOnly).resident_budget(0)
}

impl Chain {
    fn new(dir: &Path, seed: u64) -> Self {
        let path = dir.join(format!("chain-{seed}.ice"));
        let options = Options::new().domain("kv").domain("code").blocks_per_step(4).reorg_window(2);
        let archive = Archive::create_with(&path, options, open_options()).unwrap();
        Self { archive, path, states: States::new(), random: Random(seed), head: 0 }
    }

    fn with_blocks(dir: &Path, seed: u64, blocks: u64) -> Self {
        let mut chain = Self::new(dir, seed);
        chain.grow(blocks);
        chain
    }

    fn grow(&mut self, blocks: u64) {
        for height in self.head + 1..=self.head + blocks {
            let mut block = self.archive.begin(height).unwrap();
            for domain in DOMAINS {
                let before = self.states.get(&(height - 1, domain)).cloned().unwrap_or_default();
                let mut state: BTreeMap<Vec<u8>, Vec<u8>> = before.into_iter().collect();
                for _ in 0..3 {
                    let key = format!("key-{}", self.random.next() % 20).into_bytes();
                    if self.random.next().is_multiple_of(4) {
                        block.delete(domain, &key).unwrap();
                        state.remove(&key);
                    } else {
                        let value = self.random.next().to_le_bytes().to_vec();
                        block.put(domain, &key, &value).unwrap();
                        state.insert(key, value);
                    }
                }
                self.states.insert((height, domain), state.into_iter().collect());
            }
            block.commit().unwrap();
        }
        self.head += blocks;
        self.archive.emit().unwrap();
    }

    /// Leaves heights without a block.
    fn skip(&mut self, heights: u64) {
        for height in self.head + 1..=self.head + heights {
            for domain in DOMAINS {
                let before = self.states[&(height - 1, domain)].clone();
                self.states.insert((height, domain), before);
            }
        }
        self.head += heights;
    }

    /// What a copy of the emitted part must answer.
    fn check(&self, copy: &Path, range: Option<(u64, u64)>) {
        self.check_reader(&Reader::open(copy).unwrap(), range);
        let report = verify_archive(copy, VerifyMode::Full, &()).unwrap();
        assert!(report.problems.is_empty() && report.garbage.is_empty(), "{report:?}");
    }

    /// The same of a reader, wherever the files are.
    fn check_reader(&self, reader: &Reader, range: Option<(u64, u64)>) {
        assert_eq!(reader.range(), range);
        let (first, head) = range.unwrap();
        assert!(first == 1 && head > 4 && head <= self.head, "{first} to {head} of {}", self.head);
        for height in first..=head {
            let view = reader.at(height).unwrap();
            for domain in DOMAINS {
                let found = view.scan(domain, &Scan::all()).unwrap();
                let found: Vec<_> =
                    found.map(|entry| entry.map(|entry| (entry.key, entry.value)).unwrap()).collect();
                assert_eq!(found, self.states[&(height, domain)], "{domain} at {height}");
            }
            assert_eq!(
                reader.root(height).unwrap(),
                self.archive.reader().root(height).unwrap(),
                "root of {height}"
            );
        }
        assert!(reader.at(head + 1).is_err(), "what is in no segment is not in the copy");
    }
}

fn options(stub: &Stub) -> BucketOptions {
    BucketOptions::new().endpoint(stub.endpoint()).credentials(KEY, SECRET, Some(TOKEN.to_owned()))
}

fn bucket(stub: &Stub) -> Bucket {
    Bucket::open_with("s3://bucket/some/prefix", &options(stub)).unwrap()
}

fn one_job() -> PushOptions {
    PushOptions::new().jobs(1)
}

fn pushed(chain: &Chain, stub: &Stub) -> PushReport {
    push(&chain.path, &bucket(stub), &PushOptions::new(), &()).unwrap()
}

/// The error is told in time, names an object, says what to do and holds no secret.
#[track_caller]
fn assert_told<T: std::fmt::Debug>(result: Result<T, Error>, started: Instant, what: &str) {
    let elapsed = started.elapsed();
    assert!(elapsed < PATIENCE, "{what}: {elapsed:?}");
    let error = result.expect_err(what);
    let text = format!("{error} {error:?}");
    assert!(text.contains("s3://bucket/some/prefix"), "{what}: {text}");
    assert!([KEY, SECRET, TOKEN].iter().all(|secret| !text.contains(secret)), "{what}: {text}");
    let Error::Remote(error) = error else { panic!("{what}: {text}") };
    assert!(!error.remedy().is_empty());
}

#[test]
fn a_copy_answers_as_its_archive_does() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 1, 30);
    let stub = Stub::start().unwrap();
    let memory = Bucket::open("memory://copies/prefix").unwrap();
    let folder = Bucket::open(&format!("file://{}/bucket", dir.path().display())).unwrap();
    for (name, bucket) in [("s3", bucket(&stub)), ("memory", memory), ("folder", folder)] {
        for round in 0..3 {
            let sent = push(&chain.path, &bucket, &PushOptions::new(), &()).unwrap();
            assert!(
                sent.is_new && sent.files_sent > 0 && sent.generation == Some(round + 1),
                "{name}: {sent:?}"
            );
            let copy = dir.path().join(format!("{name}-{round}.ice"));
            let got = pull(&bucket, &copy, &PullOptions::new(), &()).unwrap();
            assert_eq!((got.generation, got.range), (round + 1, sent.range), "{name}");
            chain.check(&copy, got.range);
            chain.grow(9);
            if round == 1 {
                chain.archive.merge(&MergeOptions::default(), &()).unwrap();
            }
        }
        let older = dir.path().join(format!("{name}-old.ice"));
        let got = pull(&bucket, &older, &PullOptions::new().generation(2), &()).unwrap();
        assert_eq!(got.generation, 2);
        chain.check(&older, got.range);
        let report = verify(&bucket, 4, &()).unwrap();
        assert_eq!((report.problems, report.generations), (Vec::<String>::new(), 3), "{name}");
        let listed = list(&bucket).unwrap();
        assert_eq!((listed.len(), &*listed[0].name, listed[0].generation), (1, "main", 3), "{name}");
    }
}

#[test]
fn a_copy_can_be_continued() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 2, 13);
    // The last step that is pushed has no block at its last heights.
    chain.skip(2);
    chain.grow(4);
    let stub = Stub::start().unwrap();
    let sent = pushed(&chain, &stub);
    let copy = dir.path().join("copy.ice");
    pull(&bucket(&stub), &copy, &PullOptions::new(), &()).unwrap();
    let head = sent.range.unwrap().1;
    assert_eq!(head, 13);
    let archive = Archive::open(&copy, open_options()).unwrap();
    assert_eq!(archive.reader().head(), Some(head));
    // The very next height, which is of a step that was pushed.
    let mut block = archive.begin(head + 1).unwrap();
    block.put("kv", b"key-1", b"new").unwrap();
    block.commit().unwrap();
    assert_eq!(archive.at(head + 1).unwrap().get("kv", b"key-1").unwrap().as_deref(), Some(&b"new"[..]));
    for domain in DOMAINS {
        let found = archive.at(head).unwrap().scan(domain, &Scan::all()).unwrap();
        let found: Vec<_> = found.map(|entry| entry.map(|entry| (entry.key, entry.value)).unwrap()).collect();
        assert_eq!(found, chain.states[&(head, domain)]);
    }
    archive.close().unwrap();
    chain.check_prefix(&copy, head);
}

impl Chain {
    /// Up to a height.
    fn check_prefix(&self, copy: &Path, head: u64) {
        let reader = Reader::open(copy).unwrap();
        for height in 1..=head {
            assert_eq!(
                reader.root(height).unwrap(),
                self.archive.reader().root(height).unwrap(),
                "root of {height}"
            );
        }
    }
}

#[test]
fn a_copy_without_accessors_answers_the_same_and_gets_them_when_it_is_written() {
    let dir = TempDir::new().unwrap();
    let chain = Chain::with_blocks(dir.path(), 20, 18);
    let stub = Stub::start().unwrap();
    pushed(&chain, &stub);
    let mut files = Vec::new();
    for accessors in [Accessors::None, Accessors::Bt, Accessors::All] {
        let copy = dir.path().join(format!("copy-{}.ice", files.len()));
        let options = PullOptions::new().accessors(accessors);
        let got = pull(&bucket(&stub), &copy, &options, &()).unwrap();
        files.push(got.files_pulled);
        let (_, head) = got.range.unwrap();
        chain.check_prefix(&copy, head);
        assert_eq!(Reader::open(&copy).unwrap().stats().problems.is_empty(), accessors == Accessors::All);
        Archive::open(&copy, open_options()).unwrap().close().unwrap();
        chain.check(&copy, got.range);
    }
    // All but the segments of the archive's own domains have a block index besides.
    assert_eq!(files[1], 2 * files[0]);
    assert!((3 * files[0] + 1..4 * files[0]).contains(&files[2]), "{files:?}");
}

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

/// The bucket that pushes without a failure make, and the requests of the second push.
fn clean_bucket(chain: &Chain, first: &Path) -> (BTreeMap<String, Vec<u8>>, u64) {
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
fn a_whole_copy_moves_on_as_long_as_nobody_wrote_to_it() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 26, 18);
    let stub = Stub::start().unwrap();
    pushed(&chain, &stub);
    let copy = dir.path().join("copy.ice");
    let pulled = |options: &PullOptions| pull(&bucket(&stub), &copy, options, &());
    pulled(&PullOptions::new()).unwrap();
    let reader = Reader::open(&copy).unwrap();
    for _ in 0..3 {
        chain.grow(9);
        chain.archive.merge(&MergeOptions::default(), &()).unwrap();
        pushed(&chain, &stub);
        let moved = pulled(&PullOptions::new()).unwrap();
        assert!(moved.files_pulled > 0 && moved.segments_held == moved.segments, "{moved:?}");
        chain.check(&copy, moved.range);
        assert!(reader.refresh().unwrap());
        assert_eq!(reader.range(), moved.range);
    }
    // A file that is as long as it should be, and ends as it should.
    let damaged = std::fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().path());
    let damaged = damaged.filter(|path| path.extension().is_some_and(|kind| kind == "kv")).max().unwrap();
    let mut bytes = std::fs::read(&damaged).unwrap();
    let right = bytes.clone();
    bytes[4100] ^= 1;
    std::fs::write(&damaged, &bytes).unwrap();
    assert_eq!(pulled(&PullOptions::new()).unwrap().files_pulled, 0);
    let mended = pulled(&PullOptions::new().check(true)).unwrap();
    assert!(mended.files_pulled == 1 && std::fs::read(&damaged).unwrap() == right, "{mended:?}");
    // Somebody goes on with it.
    let archive = Archive::open(&copy, open_options()).unwrap();
    assert!(matches!(pulled(&PullOptions::new()), Err(Error::Locked { .. })));
    archive.begin(archive.reader().head().unwrap() + 1).unwrap().commit().unwrap();
    archive.close().unwrap();
    let refused = pulled(&PullOptions::new());
    assert!(matches!(refused, Err(Error::Exists { .. })), "{refused:?}");
}

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

const FAULTS: [Fault; 12] = [
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

/// Two archives of one identity, which go each its own way.
fn two_chains(dir: &Path, seed: u64) -> [Chain; 2] {
    let one = Chain::with_blocks(dir, seed, 13);
    let path = dir.join(format!("other-{seed}.ice"));
    one.archive.checkpoint(&path, &()).unwrap();
    let archive = Archive::open(&path, open_options()).unwrap();
    let states = one.states.clone();
    [Chain { archive, path, states, random: Random(seed + 1000), head: 13 }, one]
}

/// Lets two archives of one identity grow apart and push at once, again and again. Each is told that it published or that the other
/// did; the bucket is sound in the end, with a generation for each push that was told so. Returns how many lost.
fn race(chains: &mut [Chain; 2], bucket: &Bucket, rounds: usize) -> usize {
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
