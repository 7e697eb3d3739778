//! Partial copies beside whole ones: a read of a copy of some domains and blocks gives what the whole archive gives, or says what is
//! missing where it is; and a pull that extends a copy may end anywhere.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use icecore_hot::Parallelism;
use icecore_segments::step::BlockNumber;

use super::pull::pull_on;
use super::push::push_from;
use super::{Accessors, Bucket, PullOptions, PullReport, PushOptions};
use crate::ethereum::{BlockState, Word, word};
use crate::manifest::Manifest;
use crate::storage::{Storage, layout};
use crate::testing::{Fault, SimStorage};
use crate::{
    Archive, Commitment, Error, ErrorKind, Maintenance, MergeOptions, OpenOptions, Options, Reader, Scan,
    SegmentInfo, VerifyMode, verify_on,
};

const CHAIN: &str = "/chain";
const COPY: &str = "/copy";
const WHOLE: &str = "/whole";
const DOMAINS: [&str; 3] = ["kv", "code", "few"];
const STEP: u64 = 4;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn keys() -> Vec<Vec<u8>> {
    (0..9).map(|i| format!("key-{i}").into_bytes()).collect()
}

/// An archive on a disk of its own, and the bucket that it is pushed to.
struct Chain {
    storage: Arc<dyn Storage>,
    archive: Archive,
    bucket: Bucket,
    random: Random,
    head: u64,
}

impl Chain {
    fn new(name: &str, seed: u64) -> Self {
        let storage: Arc<dyn Storage> = Arc::new(SimStorage::new());
        let options = DOMAINS.iter().fold(Options::new(), |options, name| options.domain(name));
        let options = options.blocks_per_step(STEP).reorg_window(0);
        let options =
            if seed.is_multiple_of(2) { options.snapshot_period(NonZeroU64::new(3)) } else { options };
        let open = OpenOptions::new().maintenance(Maintenance::EmitOnly);
        let archive = Archive::create_on(Arc::clone(&storage), CHAIN, options, open).unwrap();
        let bucket = Bucket::open(&format!("memory://{name}-{seed}")).unwrap();
        Self { storage, archive, bucket, random: Random(seed), head: 0 }
    }

    /// Commits blocks, may merge, and pushes what was emitted.
    fn grow(&mut self, blocks: u64) {
        for height in self.head + 1..=self.head + blocks {
            let mut block = self.archive.begin(height).unwrap();
            // Of the last domain many steps have nothing.
            for domain in DOMAINS.iter().take(if self.random.below(12) == 0 { 3 } else { 2 }) {
                for _ in 0..2 {
                    let key = &keys()[self.random.below(8) as usize];
                    if self.random.below(4) == 0 {
                        block.delete(*domain, key).unwrap();
                    } else {
                        block.put(*domain, key, &self.random.below(1000).to_le_bytes()).unwrap();
                    }
                }
            }
            block.commit().unwrap();
        }
        self.head += blocks;
        self.archive.emit().unwrap();
        if self.random.below(2) == 0 {
            self.archive.merge(&MergeOptions::default(), &()).unwrap();
        }
        push_from(&self.storage, Path::new(CHAIN), &self.bucket, &PushOptions::new().allow_rewind(true), &())
            .unwrap();
    }

    fn pull(&self, disk: &SimStorage, path: &str, options: &PullOptions) -> Result<PullReport, Error> {
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        pull_on(&storage, &self.bucket, Path::new(path), &options.clone().jobs(1), &())
    }

    /// Some domains and some blocks.
    fn some(&mut self) -> PullOptions {
        let mut options = PullOptions::new();
        for domain in DOMAINS {
            if self.random.below(2) == 0 {
                options = options.domain(domain);
            }
        }
        let from = self.random.below(self.head - STEP);
        match self.random.below(4) {
            0 => options,
            1 => options.blocks(from + 1..),
            2 => options.blocks(..from + 2),
            _ => options.blocks(from + 1..=from + self.random.below(3 * STEP) + 1),
        }
    }
}

fn reader(disk: &SimStorage, path: &str) -> Reader {
    Reader::open_on(Arc::new(disk.clone()), path).unwrap()
}

/// What a copy does not hold.
struct Missing(Vec<SegmentInfo>);

impl Missing {
    fn of(reader: &Reader) -> Self {
        Self(reader.segments().into_iter().filter(|segment| !segment.is_held).collect())
    }

    /// The blocks of the newest missing segment of a domain that has blocks at or below `at`.
    fn newest(&self, domain: &str, at: BlockNumber) -> Option<(BlockNumber, BlockNumber)> {
        let of_domain = self.0.iter().filter(|segment| segment.domain == domain && segment.blocks.0 <= at);
        of_domain.map(|segment| segment.blocks).max()
    }

    /// The error is that of a segment that is missing, which a read up to `at` may need.
    fn assert_missing(&self, error: &Error, at: BlockNumber) {
        let Error::NotHeld { domain, blocks, path } = error else { panic!("{error:?}") };
        let names = |segment: &SegmentInfo| segment.domain == *domain && segment.blocks == *blocks;
        assert!(self.0.iter().any(names) && blocks.0 <= at && path == Path::new(COPY), "{error:?} at {at}");
        assert_eq!(error.kind(), ErrorKind::NotHeld);
    }

    /// The same answer, or none exactly where a missing segment may have another one.
    fn compare<T: PartialEq + std::fmt::Debug>(
        &self,
        (whole, part): (Result<T, Error>, Result<T, Error>),
        at: BlockNumber,
        is_missing: bool,
        what: &str,
    ) {
        let whole = whole.unwrap();
        match part {
            Ok(found) => assert!(!is_missing && found == whole, "{what}: {found:?}, not {whole:?}"),
            Err(error) => {
                self.assert_missing(&error, at);
                assert!(is_missing, "{what}: {error}");
            }
        }
    }

    /// The same list, or the beginning of it and an error. Returns whether it is whole.
    fn compare_lists<T: PartialEq + std::fmt::Debug>(
        &self,
        whole: &[T],
        part: impl Iterator<Item = Result<T, Error>>,
        at: BlockNumber,
        what: &str,
    ) -> usize {
        let (mut given, mut is_ended) = (0, false);
        for item in part {
            assert!(!is_ended, "{what}: an error is the last item");
            match item {
                Ok(item) => {
                    assert_eq!(whole.get(given), Some(&item), "{what}: item {given}");
                    given += 1;
                }
                Err(error) => {
                    self.assert_missing(&error, at);
                    is_ended = true;
                }
            }
        }
        assert!(is_ended || given == whole.len(), "{what}: ends after {given} of {}", whole.len());
        if is_ended { given } else { usize::MAX }
    }
}

/// Compares every kind of read of a copy with that of the whole archive. Returns how many there were that it answered, and that it could not.
fn compare(whole: &Reader, part: &Reader) -> (u64, u64) {
    let missing = Missing::of(part);
    assert_eq!(whole.range(), part.range());
    let (first, head) = whole.range().unwrap();
    let (mut answered, mut refused) = (0, 0);
    for at in first..=head {
        let (whole, part) = (whole.at(at).unwrap(), part.at(at).unwrap());
        assert_eq!(
            (whole.root().unwrap(), whole.block().unwrap()),
            (part.root().unwrap(), part.block().unwrap())
        );
        for domain in DOMAINS {
            let newest = missing.newest(domain, at);
            let mut any = false;
            for key in keys() {
                let what = format!("{domain} {} at {at}", String::from_utf8_lossy(&key));
                let written = whole.last_change(domain, &key).unwrap();
                // The newest missing segment has it, or what is newer has nothing of it.
                let is_missing = newest.is_some_and(|(_, last)| written.is_none_or(|block| block <= last));
                any |= is_missing;
                *(if is_missing { &mut refused } else { &mut answered }) += 1;
                let both = (whole.get(domain, &key), part.get(domain, &key));
                missing.compare(both, at, is_missing, &format!("get {what}"));
                let both = (whole.lookup(domain, &key), part.lookup(domain, &key));
                missing.compare(both, at, is_missing, &format!("lookup {what}"));
                let both = (Ok(written), part.last_change(domain, &key));
                missing.compare(both, at, is_missing, &format!("last change {what}"));

                let history: Vec<_> = whole.history(domain, &key).unwrap().map(Result::unwrap).collect();
                let above = |block: u64| newest.is_some_and(|(_, last)| block > last);
                let newer = newest.map_or(usize::MAX, |_| history.iter().filter(|c| above(c.block)).count());
                let given = part.history(domain, &key).unwrap();
                assert_eq!(missing.compare_lists(&history, given, at, &format!("history {what}")), newer);
                let blocks: Vec<_> = history.iter().map(|change| change.block).collect();
                let given = part.change_blocks(domain, &key).unwrap();
                assert_eq!(
                    missing.compare_lists(&blocks, given, at, &format!("change blocks {what}")),
                    newer
                );
            }
            let both = (whole.multi_get(domain, &keys()), part.multi_get(domain, &keys()));
            missing.compare(both, at, any, &format!("multi_get {domain} at {at}"));
            for scan in [Scan::all(), Scan::all().backward(), Scan::all().from(b"key-3").to(b"key-6")] {
                let entries: Vec<_> = whole.scan(domain, &scan).unwrap().map(Result::unwrap).collect();
                let given = part.scan(domain, &scan).unwrap();
                let count = missing.compare_lists(&entries, given, at, &format!("scan {domain} at {at}"));
                assert_eq!(count != usize::MAX, newest.is_some(), "scan {domain} at {at}");
            }
        }
        if at % 5 == 0 {
            compare_proofs(&missing, &whole, &part, at);
        }
    }
    for (from, to) in [(first, head), (first, first + 6), (head - 5, head), (head / 2, head / 2)] {
        compare_changes(&missing, whole, part, (from, to));
    }
    (answered, refused)
}

fn compare_proofs(missing: &Missing, whole: &crate::View, part: &crate::View, at: BlockNumber) {
    let asked: Vec<_> = DOMAINS.iter().map(|domain| (*domain, keys()[3].clone())).collect();
    let (proofs, root) = (whole.prove_batch(&asked, Parallelism::Off).unwrap(), whole.root().unwrap());
    match part.prove_batch(&asked, Parallelism::Off) {
        Ok(found) => assert_eq!(format!("{found:?}"), format!("{proofs:?}"), "{root} at {at}"),
        Err(error) => missing.assert_missing(&error, at),
    }
}

fn compare_changes(missing: &Missing, whole: &Reader, part: &Reader, (from, to): (u64, u64)) {
    let what = format!("changes of {from} to {to}");
    let changes: Vec<_> = whole.changes(from..=to).unwrap().map(Result::unwrap).collect();
    missing.compare_lists(&changes, part.changes(from..=to).unwrap(), to, &what);
    for (number, domain) in DOMAINS.into_iter().enumerate() {
        let of_domain: Vec<_> = changes.iter().filter(|change| change.domain == number).cloned().collect();
        let given = part.changes(from..=to).unwrap().of_domain(domain).unwrap();
        let count = missing.compare_lists(&of_domain, given, to, &format!("{what} in {domain}"));
        assert!(count == usize::MAX || missing.newest(domain, to).is_some(), "{what} in {domain}");
    }
}

fn held(reader: &Reader) -> BTreeSet<(String, u64)> {
    let held = reader.segments().into_iter().filter(|segment| segment.is_held);
    held.flat_map(|segment| {
        let steps = segment.steps.from().0..segment.steps.to().0;
        steps.map(move |step| (segment.domain.clone(), step))
    })
    .collect()
}

fn assert_sound(disk: &SimStorage, what: &str) {
    let report = verify_on(Arc::new(disk.clone()), COPY, VerifyMode::Full, &()).unwrap();
    assert!(report.problems.is_empty(), "{what}: {:?}", report.problems);
    let missing = Missing::of(&reader(disk, COPY)).0;
    assert_eq!(report.not_held.len(), missing.len(), "{what}");
}

#[test]
fn a_part_answers_as_the_whole_or_says_what_is_missing() {
    let (mut answered, mut refused) = (0, 0);
    for seed in 0..8 {
        let mut chain = Chain::new("part", seed);
        chain.grow(9 + seed % 7);
        chain.grow(16);
        let disk = SimStorage::new();
        let followed = {
            let options = chain.some();
            let report = chain.pull(&disk, COPY, &options).unwrap();
            let followed = reader(&disk, COPY);
            assert_eq!(report.segments_held, followed.stats().segments, "seed {seed}");
            followed
        };
        for round in 0..4 {
            let what = format!("seed {seed}, round {round}");
            let part = reader(&disk, COPY);
            // Whoever has it open takes over what an extension brought.
            followed.refresh().unwrap();
            assert_eq!(held(&followed), held(&part), "{what}");
            let old = SimStorage::new();
            let generation = Manifest::load(&disk, Path::new(COPY)).unwrap().generation;
            chain.pull(&old, WHOLE, &PullOptions::new().generation(generation)).unwrap();
            let counted = compare(&reader(&old, WHOLE), &part);
            (answered, refused) = (answered + counted.0, refused + counted.1);
            let report = verify_on(Arc::new(disk.clone()), COPY, VerifyMode::Full, &()).unwrap();
            // A pull may have left accessors out.
            let is_accessor = |path: &Path| path.extension().is_some_and(|kind| kind != "kv");
            let is_left_out =
                |problem: &Error| matches!(problem, Error::Missing { path } if is_accessor(path));
            assert!(report.problems.iter().all(is_left_out), "{what}: {:?}", report.problems);
            let before = held(&part);
            if round == 1 {
                chain.grow(5);
            }
            let accessors = [Accessors::None, Accessors::Bt, Accessors::All][chain.random.below(3) as usize];
            let options = chain.some().accessors(accessors);
            let result = chain.pull(&disk, COPY, &options);
            if matches!(result, Err(Error::Exists { .. })) {
                break;
            }
            let now = held(&reader(&disk, COPY));
            assert!(before.is_subset(&now), "{what}: what was held stays");
        }
        match chain.pull(&disk, COPY, &PullOptions::new()) {
            Ok(report) => assert_eq!(report.segments_held, report.segments, "seed {seed}"),
            // It was whole by then.
            Err(error) => assert!(matches!(error, Error::Exists { .. }), "seed {seed}: {error}"),
        }
        let disk_whole = SimStorage::new();
        let part = reader(&disk, COPY);
        let generation = Manifest::load(&disk, Path::new(COPY)).unwrap().generation;
        chain.pull(&disk_whole, WHOLE, &PullOptions::new().generation(generation)).unwrap();
        assert_eq!(compare(&reader(&disk_whole, WHOLE), &part).1, 0, "seed {seed}: nothing is missing");
    }
    assert!(answered > 1000 && refused > 1000, "{answered} {refused}");
}

/// Accounts and slots at blocks, in a copy without codes that is extended domain by domain.
#[test]
fn a_part_with_nodes_proves_what_it_holds() {
    let storage: Arc<dyn Storage> = Arc::new(SimStorage::new());
    let options = Options::new().commitment(Commitment::Ethereum).blocks_per_step(STEP).reorg_window(0);
    let archive = Archive::create_on(Arc::clone(&storage), CHAIN, options, OpenOptions::new()).unwrap();
    let slots = [word(1), word(2)];
    for height in 1..=19 {
        let mut state = BlockState::new();
        for address in [[height as u8 % 5; 20], [9; 20]] {
            let account = state.account(address);
            account.balance = Some(Some(word(height)));
            account.code = Some(Some(vec![height as u8 % 3]));
            account.slots.insert(word(height % 3), word(height));
        }
        let mut block = archive.begin(height).unwrap();
        state.write(archive.reader().latest().ok().as_ref(), &mut block).unwrap();
        block.commit().unwrap();
    }
    archive.emit().unwrap();
    let bucket = Bucket::open("memory://part-nodes").unwrap();
    push_from(&storage, Path::new(CHAIN), &bucket, &PushOptions::new(), &()).unwrap();
    let disk = SimStorage::new();
    let on: Arc<dyn Storage> = Arc::new(disk.clone());
    let pull = |domains: &[&str]| {
        let options = domains.iter().fold(PullOptions::new(), |options, domain| options.domain(*domain));
        pull_on(&on, &bucket, Path::new(COPY), &options.jobs(1), &()).unwrap();
        reader(&disk, COPY)
    };
    let prove = |reader: &Reader, slots: &[Word]| -> Result<Vec<_>, Error> {
        let blocks = 1..=reader.head().unwrap();
        blocks.map(|at| reader.at(at)?.prove_account(&[9; 20], slots)).collect()
    };
    let lacks = |reader: &Reader, slots: &[Word], lacking: &str| {
        let error = prove(reader, slots).unwrap_err();
        let Error::NotHeld { domain, .. } = &error else { panic!("{error:?}") };
        assert_eq!(domain, lacking);
        assert!(error.to_string().contains(&format!("--domain {lacking} --blocks ")), "{error}");
    };

    lacks(&pull(&["account"]), &[], "_nodes");
    let part = pull(&["_nodes"]);
    assert_eq!(prove(&part, &[]).unwrap(), prove(archive.reader(), &[]).unwrap());
    lacks(&part, &slots, "storage");
    let part = pull(&["storage"]);
    assert_eq!(prove(&part, &slots).unwrap(), prove(archive.reader(), &slots).unwrap());
    assert!(part.segments().iter().any(|segment| !segment.is_held), "codes are not held");
    assert_sound(&disk, "accounts, slots and nodes");
}

#[test]
fn a_part_is_for_reading() {
    let mut chain = Chain::new("reading", 2);
    chain.grow(22);
    let disk = SimStorage::new();
    chain.pull(&disk, COPY, &PullOptions::new().domain("kv")).unwrap();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let part = reader(&disk, COPY);
    let refused = [
        Archive::open_on(Arc::clone(&storage), COPY, OpenOptions::new()).map(drop),
        part.plan_merge(&MergeOptions::default()).map(drop),
        part.plan_prune(9).map(drop),
        part.plan_unwind(9).map(drop),
        part.plan_reindex(crate::ReindexRule::Rebuild, None).map(drop),
        part.plan_log_drop().map(drop),
        push_from(
            &storage,
            Path::new(COPY),
            &Bucket::open("memory://other").unwrap(),
            &PushOptions::new(),
            &(),
        )
        .map(drop),
    ];
    for result in refused {
        assert!(matches!(&result, Err(Error::Partial { path }) if path == Path::new(COPY)), "{result:?}");
    }
    // A copy of a copy holds what it holds.
    part.checkpoint("/again", &()).unwrap();
    assert_eq!(held(&reader(&disk, "/again")), held(&part));
    let other = SimStorage::new();
    chain.pull(&other, COPY, &PullOptions::new()).unwrap();
    Archive::open_on(Arc::new(other), COPY, OpenOptions::new()).unwrap();
}

#[test]
fn what_cannot_be_pulled_is_refused_and_leaves_nothing() {
    let mut chain = Chain::new("refused", 3);
    chain.grow(21);
    let disk = SimStorage::new();
    let refused = |options: &PullOptions| {
        let error = chain.pull(&disk, COPY, options).unwrap_err();
        assert!(disk.files().is_empty(), "{error}");
        error
    };
    let unknown = refused(&PullOptions::new().domain("accounts"));
    assert!(matches!(unknown, Error::UnknownDomain { .. }), "{unknown}");
    let own = refused(&PullOptions::new().domain("_roots"));
    assert!(matches!(own, Error::UnknownDomain { .. }), "{own}");
    let above = refused(&PullOptions::new().blocks(900..));
    assert!(matches!(above, Error::OutOfRange { asked: 900, .. }), "{above}");
    for none in [PullOptions::new().blocks(5..5), PullOptions::new().blocks(..0)] {
        assert!(matches!(refused(&none), Error::Options { field: "blocks", .. }));
    }
    chain.pull(&disk, COPY, &PullOptions::new().domain("kv")).unwrap();
    let mut other = Chain::new("refused-other", 3);
    other.grow(21);
    let error = other.pull(&disk, COPY, &PullOptions::new()).unwrap_err();
    assert!(matches!(error, Error::Remote(super::RemoteError::OtherArchive { .. })), "{error}");
    chain.grow(8);
    chain.pull(&disk, COPY, &PullOptions::new().domain("kv")).unwrap();
    let back = chain.pull(&disk, COPY, &PullOptions::new().generation(1)).unwrap_err();
    assert!(matches!(back, Error::Options { field: "generation", .. }), "{back}");
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let _lock = storage.lock(Path::new(COPY)).unwrap();
    let locked = chain.pull(&disk, COPY, &PullOptions::new()).unwrap_err();
    assert!(matches!(locked, Error::Locked { .. }), "{locked}");
}

/// The files of a copy with their bytes, the lock left out.
fn content(disk: &SimStorage) -> Vec<(PathBuf, Vec<u8>)> {
    let files = disk.files().into_iter().map(|(path, _)| path).filter(|path| !path.ends_with(layout::LOCK));
    files.map(|path| (path.clone(), disk.bytes(&path))).collect()
}

#[test]
fn a_pull_that_extends_may_end_at_any_operation() {
    for seed in [4, 5] {
        let mut chain = Chain::new("extends", seed);
        chain.grow(18);
        let base = SimStorage::new();
        chain.pull(&base, COPY, &PullOptions::new().domain("kv").blocks(..9)).unwrap();
        let before = held(&reader(&base, COPY));
        chain.grow(9);
        let more = PullOptions::new().domain("code").blocks(5..);
        let filmed = base.kill_clone();
        filmed.film(1, 1);
        chain.pull(&filmed, COPY, &more).unwrap();
        let (frames, after) = (filmed.frames(), held(&reader(&filmed, COPY)));
        assert!(frames.len() > 20 && before.is_subset(&after) && before != after, "{}", frames.len());
        let expected = content(&filmed);
        let goes_on = |disk: &SimStorage, what: &str| {
            assert_sound(disk, what);
            let now = held(&reader(disk, COPY));
            assert!(now == before || now == after, "{what}: the old copy or the new one");
            chain.pull(disk, COPY, &more).unwrap();
            assert!(content(disk) == expected, "{what}: goes on to the same copy");
        };
        for (at, frame) in frames {
            goes_on(&frame.kill_clone(), &format!("killed before operation {at}"));
            for loss in 0..3 {
                goes_on(&frame.crash_clone(loss), &format!("power lost before operation {at}, {loss}"));
            }
            let disk = base.kill_clone();
            disk.inject(Fault::at(at));
            let result = chain.pull(&disk, COPY, &more);
            disk.heal();
            let what = format!("operation {at} failed: {:?}", result.err());
            goes_on(&disk, &what);
        }
    }
}

#[test]
fn files_of_one_name_do_not_take_each_others_place() {
    let mut chain = Chain::new("renamed", 7);
    chain.grow(20);
    let disk = SimStorage::new();
    chain.pull(&disk, COPY, &PullOptions::new().domain("kv")).unwrap();
    // Other blocks in the last steps, under the same names.
    chain.archive.unwind(13, &()).unwrap();
    chain.head = 13;
    chain.random = Random(99);
    chain.grow(9);
    let filmed = disk.kill_clone();
    filmed.film(1, 1);
    chain.pull(&filmed, COPY, &PullOptions::new().domain("kv")).unwrap();
    for (at, frame) in filmed.frames() {
        assert_sound(&frame, &format!("killed before operation {at}"));
    }
    assert_sound(&filmed, "at the end");
    let whole = SimStorage::new();
    chain.pull(&whole, WHOLE, &PullOptions::new()).unwrap();
    compare(&reader(&whole, WHOLE), &reader(&filmed, COPY));
    let manifest = Manifest::load(&filmed, Path::new(COPY)).unwrap();
    assert!(manifest.segments.iter().any(|record| record.kv.revision > 0), "a name was taken");
}
