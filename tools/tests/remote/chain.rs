//! An archive that grows, what it must answer, and the bucket that it is pushed to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use icecore::remote::{Bucket, BucketOptions, PushOptions, PushReport, push};
use icecore::{
    Archive, Error, Maintenance, OpenOptions, Options, Reader, Scan, VerifyMode, verify as verify_archive,
};
use icecore_tools::stub::Stub;

pub(super) const KEY: &str = "AKIDTEST";
pub(super) const SECRET: &str = "SECRETTEST";
pub(super) const TOKEN: &str = "TOKENTEST";

/// How long a failure may take to be told.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);

/// Everything a copy must answer: the state of each domain at each height.
pub(super) type States = BTreeMap<(u64, &'static str), Vec<(Vec<u8>, Vec<u8>)>>;

pub(super) const DOMAINS: [&str; 2] = ["kv", "code"];

/// A stream of numbers.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

/// An archive that grows, and what it must answer.
pub(super) struct Chain {
    pub(super) archive: Archive,
    pub(super) path: PathBuf,
    pub(super) states: States,
    pub(super) random: Random,
    pub(super) head: u64,
}

pub(super) fn open_options() -> OpenOptions {
    OpenOptions::new().maintenance(Maintenance::EmitOnly).resident_budget(0)
}

impl Chain {
    pub(super) fn new(dir: &Path, seed: u64) -> Self {
        let path = dir.join(format!("chain-{seed}.ice"));
        let options = Options::new().domain("kv").domain("code").blocks_per_step(4).reorg_window(2);
        let archive = Archive::create_with(&path, options, open_options()).unwrap();
        Self { archive, path, states: States::new(), random: Random(seed), head: 0 }
    }

    pub(super) fn with_blocks(dir: &Path, seed: u64, blocks: u64) -> Self {
        let mut chain = Self::new(dir, seed);
        chain.grow(blocks);
        chain
    }

    pub(super) fn grow(&mut self, blocks: u64) {
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
    pub(super) fn skip(&mut self, heights: u64) {
        for height in self.head + 1..=self.head + heights {
            for domain in DOMAINS {
                let before = self.states[&(height - 1, domain)].clone();
                self.states.insert((height, domain), before);
            }
        }
        self.head += heights;
    }

    /// What a copy of the emitted part must answer.
    pub(super) fn check(&self, copy: &Path, range: Option<(u64, u64)>) {
        self.check_reader(&Reader::open(copy).unwrap(), range);
        let report = verify_archive(copy, VerifyMode::Full, &()).unwrap();
        assert!(report.problems.is_empty() && report.garbage.is_empty(), "{report:?}");
    }

    /// The same of a reader, wherever the files are.
    pub(super) fn check_reader(&self, reader: &Reader, range: Option<(u64, u64)>) {
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

pub(super) fn options(stub: &Stub) -> BucketOptions {
    BucketOptions::new().endpoint(stub.endpoint()).credentials(KEY, SECRET, Some(TOKEN.to_owned()))
}

pub(super) fn bucket(stub: &Stub) -> Bucket {
    Bucket::open_with("s3://bucket/some/prefix", &options(stub)).unwrap()
}

pub(super) fn one_job() -> PushOptions {
    PushOptions::new().jobs(1)
}

pub(super) fn pushed(chain: &Chain, stub: &Stub) -> PushReport {
    push(&chain.path, &bucket(stub), &PushOptions::new(), &()).unwrap()
}

/// The error is told in time, names an object, says what to do and holds no secret.
#[track_caller]
pub(super) fn assert_told<T: std::fmt::Debug>(result: Result<T, Error>, started: Instant, what: &str) {
    let elapsed = started.elapsed();
    assert!(elapsed < PATIENCE, "{what}: {elapsed:?}");
    let error = result.expect_err(what);
    let text = format!("{error} {error:?}");
    assert!(text.contains("s3://bucket/some/prefix"), "{what}: {text}");
    assert!([KEY, SECRET, TOKEN].iter().all(|secret| !text.contains(secret)), "{what}: {text}");
    let Error::Remote(error) = error else { panic!("{what}: {text}") };
    assert!(!error.remedy().is_empty());
}

impl Chain {
    /// Up to a height.
    pub(super) fn check_prefix(&self, copy: &Path, head: u64) {
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
