//! Reading an archive where it is: are the answers those of the archive, what do they cost, and what becomes of failures, of a cache
//! that was torn, and of one that is full?

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Instant;

use icecore::remote::{Accessors, Bucket, PushOptions, RemoteError, RemoteOptions, push};
use icecore::{Archive, Error, MergeOptions, Options, Reader, Scan};
use icecore_tools::stub::{Fault, Stub, When};
use tempfile::TempDir;

use super::chain::{Chain, DOMAINS, PATIENCE, Random, assert_told, bucket, open_options, pushed};
use super::faults::FAULTS;

const PAGE: u64 = 4096;

fn opened(stub: &Stub, cache: &Path) -> Reader {
    Reader::open_remote(&bucket(stub), &RemoteOptions::new(cache)).unwrap()
}

/// All answers of an archive up to the head of `remote`, from both.
pub(super) fn compare(local: &Reader, remote: &Reader, what: &str) {
    let (first, head) = remote.range().unwrap();
    assert!(remote.at(head + 1).is_err(), "{what}: what is in no segment is not there");
    for height in first..=head {
        let (here, there) = (local.at(height).unwrap(), remote.at(height).unwrap());
        assert_eq!(here.root().unwrap(), there.root().unwrap(), "{what}: root of {height}");
        for domain in DOMAINS {
            let read = |scan: &Scan| {
                let entries = |reader: &icecore::View| {
                    let found = reader.scan(domain, scan).unwrap();
                    found
                        .map(|entry| entry.map(|entry| (entry.key, entry.value)).unwrap())
                        .collect::<Vec<_>>()
                };
                assert_eq!(entries(&here), entries(&there), "{what}: {domain} at {height}");
            };
            read(&Scan::all());
            read(&Scan::all().backward());
            let keys: Vec<Vec<u8>> = (0..24).map(|number| format!("key-{number}").into_bytes()).collect();
            assert_eq!(
                here.multi_get(domain, &keys).unwrap(),
                there.multi_get(domain, &keys).unwrap(),
                "{what}"
            );
            for key in &keys {
                assert_eq!(here.get(domain, key).unwrap(), there.get(domain, key).unwrap(), "{what}");
                let versions = |view: &icecore::View| {
                    view.history(domain, key).unwrap().map(|version| version.unwrap()).collect::<Vec<_>>()
                };
                assert_eq!(versions(&here), versions(&there), "{what}");
            }
        }
    }
    let view = remote.at(head).unwrap();
    let value = view.get("kv", b"key-3").unwrap();
    let proof = view.prove("kv", b"key-3").unwrap();
    proof.verify(&local.root(head).unwrap(), "kv", b"key-3", value.as_deref()).unwrap();
}

#[test]
fn a_bucket_answers_as_its_archive_does() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 31, 14);
    let stub = Stub::start().unwrap();
    let folder = Bucket::open(&format!("file://{}/bucket", dir.path().display())).unwrap();
    for (name, bucket) in [("s3", bucket(&stub)), ("folder", folder)] {
        for round in 0..3 {
            push(&chain.path, &bucket, &PushOptions::new(), &()).unwrap();
            for (fetch, warm) in
                [(PAGE, Accessors::None), (64 << 10, Accessors::Bt), (1 << 20, Accessors::All)]
            {
                let cache = dir.path().join(format!("{name}-{fetch}"));
                let options = RemoteOptions::new(&cache).fetch(fetch).warm(warm);
                let remote = Reader::open_remote(&bucket, &options).unwrap();
                let what = format!("{name} {round} {fetch}");
                compare(chain.archive.reader(), &remote, &what);
                let stats = remote.stats();
                assert!(stats.problems.is_empty() && stats.degraded_reads == 0, "{what}: {stats:?}");
                assert!(remote.segments().iter().all(|segment| segment.problem.is_none()));
            }
            chain.grow(7);
            if round == 1 {
                chain.archive.merge(&MergeOptions::default(), &()).unwrap();
            }
        }
        let older = RemoteOptions::new(dir.path().join(name)).generation(2);
        let older = Reader::open_remote(&bucket, &older).unwrap();
        assert_eq!(older.remote_generation(), Some(2));
        compare(chain.archive.reader(), &older, name);
    }
}

/// The number of keys in [`large`].
const KEYS: u64 = 60_000;

pub(super) fn key_of(number: u64) -> Vec<u8> {
    let mut random = Random(number);
    (0..5).flat_map(|_| (random.next() as u32).to_le_bytes()).collect()
}

fn value_of(number: u64, height: u64) -> Vec<u8> {
    let mut random = Random(number ^ height << 40);
    let words = if number.is_multiple_of(5_000) { 3_000 } else { 12 };
    (0..words).flat_map(|_| (random.next() as u32).to_le_bytes()).collect()
}

/// An archive of one segment of some megabytes, with some values outside their pages.
fn large(dir: &Path) -> Archive {
    let path = dir.join("large.ice");
    let options = Options::new().domain("kv").blocks_per_step(8).reorg_window(0);
    let archive = Archive::create_with(&path, options, open_options()).unwrap();
    for height in 1..=8 {
        let mut block = archive.begin(height).unwrap();
        let keys = match height {
            1 => 0..KEYS,
            2..=7 => height * 100..height * 100 + 50,
            // Of the next step: without it the first is not complete.
            _ => 0..0,
        };
        for number in keys {
            block.put("kv", &key_of(number), &value_of(number, height)).unwrap();
        }
        block.commit().unwrap();
    }
    archive.emit().unwrap();
    archive
}

pub(super) fn pushed_large(dir: &Path) -> (Archive, Stub) {
    let (archive, stub) = (large(dir), Stub::start().unwrap());
    push(dir.join("large.ice"), &bucket(&stub), &PushOptions::new(), &()).unwrap();
    (archive, stub)
}

pub(super) fn expected(number: u64) -> Vec<u8> {
    let last = (2..=7).rev().find(|height| (height * 100..height * 100 + 50).contains(&number));
    value_of(number, last.unwrap_or(1))
}

/// Keys without a value outside its page.
pub(super) fn small_numbers(seed: u64, count: usize) -> Vec<u64> {
    let mut random = Random(seed);
    let numbers = std::iter::repeat_with(|| random.next() % KEYS);
    numbers.filter(|number| !number.is_multiple_of(5_000)).take(count).collect()
}

#[test]
fn a_cold_hit_costs_what_it_should() {
    let dir = TempDir::new().unwrap();
    let (_archive, stub) = pushed_large(dir.path());
    for (fetch, warm, gets_max, waits_max) in [
        (64 << 10, Accessors::All, 1.02, 1.0),
        (64 << 10, Accessors::None, 3.0, 2.0),
        (PAGE, Accessors::All, 1.02, 1.0),
        (PAGE, Accessors::None, 3.0, 2.0),
    ] {
        let (mut gets, mut bytes, mut waits) = (0, 0, 0);
        let numbers = small_numbers(7, 60);
        for (round, number) in numbers.iter().enumerate() {
            let cache = dir.path().join(format!("{fetch}-{warm:?}-{round}"));
            let options = RemoteOptions::new(&cache).fetch(fetch).warm(warm);
            let reader = Reader::open_remote(&bucket(&stub), &options).unwrap();
            let (before, view) = (reader.remote_cost().unwrap(), reader.latest().unwrap());
            stub.reset_requests();
            assert_eq!(view.get("kv", &key_of(*number)).unwrap(), Some(expected(*number)));
            let after = reader.remote_cost().unwrap();
            assert_eq!(stub.requests().get, after.requests - before.requests);
            gets += after.requests - before.requests;
            bytes += after.bytes - before.bytes;
            waits += after.waits - before.waits;
            fs::remove_dir_all(&cache).unwrap();
        }
        let a_hit = |sum: u64| sum as f64 / numbers.len() as f64;
        let (gets, bytes, waits) = (a_hit(gets), a_hit(bytes), a_hit(waits));
        println!("fetch {fetch}, warm {warm:?}: {gets:.3} GETs, {bytes:.0} bytes, {waits:.3} waits a hit");
        assert!(
            gets <= gets_max && waits <= waits_max + 0.02,
            "{fetch} {warm:?}: {gets} GETs, {waits} waits"
        );
        let pieces = if warm == Accessors::All { 1.02 } else { 3.0 };
        assert!(bytes <= pieces * (fetch as f64) * 1.01, "{fetch} {warm:?}: {bytes} bytes");
    }
}

#[test]
fn an_unknown_key_costs_nothing_where_filters_are_here() {
    let dir = TempDir::new().unwrap();
    let (_archive, stub) = pushed_large(dir.path());
    let options = RemoteOptions::new(dir.path().join("cache")).warm(Accessors::All);
    let reader = Reader::open_remote(&bucket(&stub), &options).unwrap();
    let view = reader.latest().unwrap();
    stub.reset_requests();
    let unknown = 2_000;
    for number in KEYS..KEYS + unknown {
        assert_eq!(view.get("kv", &key_of(number)).unwrap(), None);
    }
    let gets = stub.requests().get as f64 / unknown as f64;
    println!("{gets} GETs an unknown key");
    assert!(gets <= 0.01, "{gets}");
}

#[test]
fn what_is_here_is_not_asked_for_again() {
    let dir = TempDir::new().unwrap();
    let (archive, stub) = pushed_large(dir.path());
    let cache = dir.path().join("cache");
    let numbers: Vec<u64> = small_numbers(3, 300).into_iter().chain([0, 5_000, 55_000]).collect();
    let ask = |reader: &Reader| {
        let view = reader.latest().unwrap();
        for number in &numbers {
            assert_eq!(view.get("kv", &key_of(*number)).unwrap(), Some(expected(*number)));
        }
        let keys: Vec<_> = numbers.iter().map(|number| key_of(*number)).collect();
        assert_eq!(
            view.multi_get("kv", &keys).unwrap(),
            archive.reader().latest().unwrap().multi_get("kv", &keys).unwrap()
        );
    };
    ask(&opened(&stub, &cache));
    stub.reset_requests();
    let reader = opened(&stub, &cache);
    assert_eq!(stub.requests().total(), 3, "opening");
    ask(&reader);
    assert_eq!(stub.requests().total(), 3, "after a restart everything is in the cache");
    assert_eq!(reader.remote_cost().unwrap().bytes, 0);
}

#[test]
fn many_keys_are_asked_for_together() {
    let dir = TempDir::new().unwrap();
    let (_archive, stub) = pushed_large(dir.path());
    let options = RemoteOptions::new(dir.path().join("cache")).warm(Accessors::All);
    let reader = Reader::open_remote(&bucket(&stub), &options).unwrap();
    let numbers = small_numbers(5, 1_000);
    let keys: Vec<_> = numbers.iter().map(|number| key_of(*number)).collect();
    let before = reader.remote_cost().unwrap();
    let found = reader.latest().unwrap().multi_get("kv", &keys).unwrap();
    for (number, value) in numbers.iter().zip(found) {
        assert_eq!(value, Some(expected(*number)));
    }
    let after = reader.remote_cost().unwrap();
    let (gets, waits) = (after.requests - before.requests, after.waits - before.waits);
    println!("1000 keys: {gets} GETs, {waits} waits, {} bytes", after.bytes - before.bytes);
    assert!(gets <= 1_000 && waits < 20, "{gets} GETs, {waits} waits");
}

#[test]
fn threads_that_need_the_same_bytes_ask_once() {
    let dir = TempDir::new().unwrap();
    let (_archive, stub) = pushed_large(dir.path());
    let options = RemoteOptions::new(dir.path().join("cache")).warm(Accessors::All);
    let reader = Reader::open_remote(&bucket(&stub), &options).unwrap();
    stub.reset_requests();
    thread::scope(|scope| {
        for seed in 0..8 {
            let view = reader.latest().unwrap();
            scope.spawn(move || {
                for number in small_numbers(seed, 400) {
                    assert_eq!(view.get("kv", &key_of(number)).unwrap(), Some(expected(number)));
                }
            });
        }
    });
    let pieces: u64 = reader.segments().iter().map(|segment| segment.kv_bytes.div_ceil(64 << 10)).sum();
    let gets = stub.requests().get;
    assert!(gets <= pieces + pieces / 10, "{gets} GETs for {pieces} pieces");
}

#[test]
fn a_scan_asks_ahead() {
    let dir = TempDir::new().unwrap();
    let (archive, stub) = pushed_large(dir.path());
    let reader = opened(&stub, &dir.path().join("cache"));
    let before = reader.remote_cost().unwrap();
    let read = |reader: &Reader| {
        let entries = reader.latest().unwrap().scan("kv", &Scan::all()).unwrap();
        entries.map(|entry| entry.map(|entry| (entry.key, entry.value)).unwrap()).collect::<Vec<_>>()
    };
    assert!(read(&reader) == read(archive.reader()), "the scan differs");
    let after = reader.remote_cost().unwrap();
    let (gets, waits) = (after.requests - before.requests, after.waits - before.waits);
    let bytes: u64 = reader.segments().iter().map(|segment| segment.kv_bytes).sum();
    println!("a scan of {bytes} bytes: {gets} GETs, {waits} waits, {} bytes", after.bytes - before.bytes);
    assert!(gets <= bytes.div_ceil(64 << 10) / 2 + 40, "{gets} GETs of {bytes} bytes");
}

#[test]
fn no_fault_becomes_an_answer_and_each_is_told_in_time() {
    let dir = TempDir::new().unwrap();
    let (_archive, first) = pushed_large(dir.path());
    let objects = first.objects();
    thread::scope(|scope| {
        for (case, fault) in FAULTS.into_iter().enumerate() {
            let (dir, objects) = (dir.path(), &objects);
            scope.spawn(move || {
                let stub = Stub::start().unwrap();
                objects.iter().for_each(|(name, bytes)| stub.put(name, bytes.clone()));
                let cache = dir.join(format!("fault-{case}"));
                let reader = opened(&stub, &cache);
                let view = reader.latest().unwrap();
                stub.fail(fault, When::always().key("/o/"));
                for number in [1, 0] {
                    let (what, started) = (format!("{fault:?} of key {number}"), Instant::now());
                    match view.get("kv", &key_of(number)) {
                        // The byte that is wrong may be of a page that nobody needs.
                        Ok(found) => assert_eq!(found, Some(expected(number)), "{what}"),
                        failed => assert_told(failed, started, &what),
                    }
                }
                let started = Instant::now();
                let keys: Vec<_> = small_numbers(9, 200).into_iter().map(key_of).collect();
                if let Err(error) = view.multi_get("kv", &keys) {
                    assert_told(Err::<(), _>(error), started, &format!("{fault:?} of many keys"));
                }
                stub.heal();
                for number in small_numbers(case as u64, 50).into_iter().chain([0, 1]) {
                    assert_eq!(view.get("kv", &key_of(number)).unwrap(), Some(expected(number)), "{fault:?}");
                }
                // Opening fails as it should, too.
                stub.fail(fault, When::always());
                let started = Instant::now();
                let failed = Reader::open_remote(&bucket(&stub), &RemoteOptions::new(&cache));
                if let Err(error) = failed {
                    assert_told(Err::<(), _>(error), started, &format!("{fault:?} of opening"));
                }
            });
        }
    });
}

#[test]
fn a_torn_cache_heals() {
    let dir = TempDir::new().unwrap();
    let (_archive, stub) = pushed_large(dir.path());
    let cache = dir.path().join("cache");
    let numbers: Vec<u64> = small_numbers(11, 200).into_iter().chain([0, 5_000]).collect();
    let ask = |what: &str| {
        let reader = opened(&stub, &cache);
        let view = reader.latest().unwrap();
        for number in &numbers {
            assert_eq!(view.get("kv", &key_of(*number)).unwrap(), Some(expected(*number)), "{what}");
        }
    };
    ask("fresh");
    let mut random = Random(1);
    for round in 0..4 {
        for entry in fs::read_dir(&cache).unwrap() {
            let path = entry.unwrap().path();
            let mut bytes = fs::read(&path).unwrap();
            // Header and tail as well: a kill may tear any write, and a disk may lose what was not synced.
            for _ in 0..bytes.len() / 20_000 + 2 {
                let at = random.next() as usize % bytes.len();
                let end = (at + random.next() as usize % 6_000).min(bytes.len());
                match random.next() % 3 {
                    0 => bytes[at..end].fill(0),
                    1 => bytes[at..end].fill(0x5A),
                    _ => bytes[at] ^= 0x10,
                }
            }
            match round {
                2 => bytes.truncate(bytes.len() / 2),
                3 => bytes.extend_from_slice(&[7; 5_000]),
                _ => {}
            }
            fs::write(&path, bytes).unwrap();
        }
        ask(&format!("damaged, round {round}"));
        stub.reset_requests();
        ask("healed");
        assert_eq!(stub.requests().total(), 3, "opening only, round {round}");
    }
}

#[test]
fn opening_260_segments_is_three_requests() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 19, 4);
    (0..88).for_each(|_| chain.grow(4));
    let stub = Stub::start().unwrap();
    pushed(&chain, &stub);
    stub.reset_requests();
    let started = Instant::now();
    let reader = opened(&stub, &dir.path().join("cache"));
    let requests = stub.requests();
    let segments = reader.segments().len();
    println!(
        "{segments} segments: {} requests, {} bytes, {:?}",
        requests.total(),
        requests.bytes_out,
        started.elapsed()
    );
    assert!((260..280).contains(&segments), "{segments}");
    assert!(requests.total() <= 3 && requests.bytes_out <= 200_000, "{requests:?}");
    assert!(started.elapsed() < PATIENCE);
    let height = reader.head().unwrap();
    for domain in DOMAINS {
        let state = &chain.states[&(height, domain)];
        let keys: Vec<_> = state.iter().map(|(key, _)| key).collect();
        let values = reader.at(height).unwrap().multi_get(domain, &keys).unwrap();
        assert!(values.into_iter().eq(state.iter().map(|(_, value)| Some(value.clone()))));
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let dir = TempDir::new().unwrap();
    let stub = Stub::start().unwrap();
    for fetch in [0, 1, 4095, 12_288, 8 << 20] {
        let options = RemoteOptions::new(dir.path().join("cache")).fetch(fetch);
        let refused = Reader::open_remote(&bucket(&stub), &options).map(drop);
        assert!(matches!(refused, Err(Error::Options { field: "fetch", .. })), "{refused:?}");
    }
    let nothing =
        Reader::open_remote(&bucket(&stub), &RemoteOptions::new(dir.path().join("cache"))).map(drop);
    assert!(matches!(nothing, Err(Error::Remote(RemoteError::NoArchive { .. }))), "{nothing:?}");
    let chain = Chain::with_blocks(dir.path(), 51, 18);
    pushed(&chain, &stub);
    let unpublished = RemoteOptions::new(dir.path().join("cache")).generation(9);
    let refused = Reader::open_remote(&bucket(&stub), &unpublished).map(drop);
    assert!(matches!(refused, Err(Error::Remote(RemoteError::NoGeneration { .. }))), "{refused:?}");
    let reader = opened(&stub, &dir.path().join("cache"));
    assert!(reader.checkpoint(dir.path().join("copy"), &()).is_err(), "a bucket is pulled, not linked");
}

#[test]
fn a_reader_follows_new_generations_and_never_goes_back() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 61, 14);
    let stub = Stub::start().unwrap();
    pushed(&chain, &stub);
    let reader = opened(&stub, &dir.path().join("cache"));
    let pinned = RemoteOptions::new(dir.path().join("cache")).generation(1);
    let pinned = Reader::open_remote(&bucket(&stub), &pinned).unwrap();
    stub.reset_requests();
    assert!(!reader.refresh().unwrap(), "nothing is new");
    assert_eq!(stub.requests().total(), 1, "a look costs one request");
    let (old, head) = (reader.latest().unwrap(), reader.head());
    let mut generation = 1;
    for round in 0..4 {
        for _ in 0..=round % 2 {
            chain.grow(4);
            if round == 2 {
                chain.archive.merge(&MergeOptions::default(), &()).unwrap();
            }
            generation = pushed(&chain, &stub).generation.unwrap();
        }
        assert!(reader.refresh().unwrap() && !reader.refresh().unwrap());
        assert_eq!(reader.remote_generation(), Some(generation));
        compare(chain.archive.reader(), &reader, &format!("generation {generation}"));
    }
    assert_eq!((Some(old.height()), pinned.head()), (head, head), "a view stays what it was");
    let state = &chain.states[&(old.height(), "kv")];
    assert!(
        old.scan("kv", &Scan::all())
            .unwrap()
            .map(|entry| entry.unwrap().value)
            .eq(state.iter().map(|(_, value)| value.clone()))
    );
    pinned.refresh().unwrap();
    assert_eq!(pinned.remote_generation(), Some(1));
    // A hint of before, or a store that lost a generation, does not take it back.
    let newest = format!("bucket/some/prefix/m/main/{generation:016x}");
    let bytes = stub.objects()[&newest].clone();
    stub.put(
        "bucket/some/prefix/HEAD/main",
        stub.objects()["bucket/some/prefix/m/main/0000000000000001"].clone(),
    );
    stub.remove(&newest);
    assert!(!reader.refresh().unwrap());
    assert_eq!(reader.remote_generation(), Some(generation));
    stub.put(&newest, bytes);
    stub.fail(Fault::Hang, When::always());
    let (started, head) = (Instant::now(), reader.head());
    assert_told(reader.refresh(), started, "a server that hangs");
    stub.heal();
    assert_eq!(reader.head(), head);
    compare(chain.archive.reader(), &reader, "after a failure");
}

#[test]
fn changes_come_from_a_bucket_as_from_a_disk() {
    let dir = TempDir::new().unwrap();
    let chain = Chain::with_blocks(dir.path(), 23, 60);
    let stub = Stub::start().unwrap();
    pushed(&chain, &stub);
    let remote = opened(&stub, &dir.path().join("cache"));
    let (first, head) = remote.range().unwrap();
    for range in [first..=head, head / 2..=head / 2 + 3] {
        let local = chain.archive.reader().changes(range.clone()).unwrap();
        let local: Vec<_> = local.map(Result::unwrap).collect();
        assert!(!local.is_empty());
        let found: Vec<_> = remote.changes(range.clone()).unwrap().map(Result::unwrap).collect();
        assert!(found == local, "{range:?}");
    }
}
