//! The cache of a reader: does it keep to its size, whoever shares it, does every read come out of a small one, and what becomes of it
//! when processes are killed and disks are full?

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::num::NonZeroU64;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use icecore::remote::{Accessors, Bucket, BucketOptions, RemoteError, RemoteOptions};
use icecore::{Archive, Error, ErrorKind, Options, Reader, Scan};
use icecore_tools::stub::Stub;
use tempfile::TempDir;

use super::chain::{Chain, KEY, Random, SECRET, TOKEN, bucket, open_options, pushed};
use super::in_place::{compare, expected, key_of, pushed_large, small_numbers};

/// What the files of a cache take.
fn allocated(cache: &Path) -> u64 {
    // Files come and go meanwhile.
    let files = fs::read_dir(cache).into_iter().flatten().filter_map(|entry| entry.ok()?.metadata().ok());
    files.map(|metadata| metadata.blocks() * 512).sum()
}

const SMALL: u64 = 2 << 20;

#[test]
fn every_read_comes_out_of_a_small_cache() {
    let dir = TempDir::new().unwrap();
    let (archive, stub) = pushed_large(dir.path());
    let bytes: u64 = archive.reader().segments().iter().map(|segment| segment.kv_bytes).sum();
    assert!(bytes > 2 * SMALL, "{bytes}");
    let cache = dir.path().join("cache");
    let small = RemoteOptions::new(&cache).cache_size(SMALL);
    let keeps = |what: &str| {
        let found = allocated(&cache);
        assert!(found <= SMALL, "{what}: {found} bytes in a cache of {SMALL}");
    };
    let reader = Reader::open_remote(&bucket(&stub), &small).unwrap();
    let (view, local) = (reader.latest().unwrap(), archive.reader().latest().unwrap());
    for number in small_numbers(1, 300) {
        assert_eq!(view.get("kv", &key_of(number)).unwrap(), Some(expected(number)));
        keeps("a lookup");
    }
    for scan in [Scan::all(), Scan::all().backward()] {
        let mut there = view.scan("kv", &scan).unwrap();
        for here in local.scan("kv", &scan).unwrap() {
            assert_eq!(there.next().unwrap().unwrap(), here.unwrap());
        }
        assert!(there.next().is_none());
        keeps("a scan");
    }
    let keys: Vec<_> = small_numbers(2, 1_000).into_iter().map(key_of).collect();
    assert_eq!(view.multi_get("kv", &keys).unwrap(), local.multi_get("kv", &keys).unwrap());
    keeps("many keys");
    for number in (100..150).chain([0, 5_000]) {
        let history = |view: &icecore::View| {
            view.history("kv", &key_of(number)).unwrap().map(Result::unwrap).collect::<Vec<_>>()
        };
        assert_eq!(history(&view), history(&local));
        keeps("a history");
    }
    let mut there = reader.changes(..).unwrap();
    for here in archive.reader().changes(..=reader.head().unwrap()).unwrap() {
        assert_eq!(there.next().unwrap().unwrap(), here.unwrap());
    }
    assert!(there.next().is_none());
    drop(there);
    keeps("changes");
    // Threads that read what others had exchanged.
    thread::scope(|scope| {
        for seed in 0..4 {
            let view = view.clone();
            scope.spawn(move || {
                for number in small_numbers(seed, 150) {
                    assert_eq!(view.get("kv", &key_of(number)).unwrap(), Some(expected(number)));
                }
            });
        }
    });
    drop((view, reader));
    // What nobody has open makes room.
    let other = Chain::with_blocks(dir.path(), 41, 30);
    let second = Stub::start().unwrap();
    pushed(&other, &second);
    let remote = Reader::open_remote(&bucket(&second), &small).unwrap();
    compare(other.archive.reader(), &remote, "in a full cache");
    keeps("another archive");
}

#[test]
fn a_read_waits_for_the_room_of_files_that_others_still_read() {
    let dir = TempDir::new().unwrap();
    let (_archive, stub) = pushed_large(dir.path());
    let cache = dir.path().join("cache");
    let reader = Reader::open_remote(&bucket(&stub), &RemoteOptions::new(&cache).cache_size(SMALL)).unwrap();
    let view = reader.latest().unwrap();
    let mut numbers = small_numbers(9, 1_000).into_iter();
    let mut get = || {
        let number = numbers.next().unwrap();
        assert_eq!(view.get("kv", &key_of(number)).unwrap(), Some(expected(number)));
    };
    // Whatever file it begins with, a scan holds it.
    let mut held = Vec::new();
    while allocated(&cache) + (160 << 10) < SMALL * 3 / 4 {
        get();
        let mut scan = view.scan("kv", &Scan::all().limit(2)).unwrap();
        scan.next().unwrap().unwrap();
        held.push(scan);
    }
    thread::scope(|scope| {
        scope.spawn(move || {
            // Longer than a read begins anew.
            thread::sleep(Duration::from_millis(500));
            drop(held);
        });
        (0..40).for_each(|_| get());
    });
    assert!(allocated(&cache) <= SMALL);
}

#[test]
fn a_read_that_needs_more_than_the_cache_is_told_what_to_do() {
    let dir = TempDir::new().unwrap();
    let (_archive, stub) = pushed_large(dir.path());
    let tiny = RemoteOptions::new(dir.path().join("cache")).cache_size(64 << 10);
    let refused = Reader::open_remote(&bucket(&stub), &tiny)
        .and_then(|reader| reader.latest()?.get("kv", &key_of(1)))
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    let Error::Remote(refused @ RemoteError::CacheTooSmall { needed, .. }) = refused else {
        panic!("{refused}")
    };
    assert!(refused.to_string().contains("cache") && refused.remedy().contains("--cache-size"));
    let enough = RemoteOptions::new(dir.path().join("cache")).cache_size(needed);
    let reader = Reader::open_remote(&bucket(&stub), &enough).unwrap();
    assert_eq!(reader.latest().unwrap().get("kv", &key_of(1)).unwrap(), Some(expected(1)));
}

/// What [`reads_in_a_process_of_its_own`] is to do.
const CHILD: &str = "ICECORE_TEST_CHILD";

/// Looks keys up in a shared cache, and says so after each.
#[test]
fn reads_in_a_process_of_its_own() {
    let Ok(told) = env::var(CHILD) else { return };
    let mut told = told.split('|');
    let mut next = || told.next().unwrap().to_owned();
    let (endpoint, cache, size, seed, count) = (next(), next(), next(), next(), next());
    let options = BucketOptions::new().endpoint(endpoint).credentials(KEY, SECRET, Some(TOKEN.to_owned()));
    let bucket = Bucket::open_with("s3://bucket/some/prefix", &options).unwrap();
    let options = RemoteOptions::new(cache).cache_size(size.parse().unwrap());
    let reader = Reader::open_remote(&bucket, &options).unwrap();
    let view = reader.latest().unwrap();
    for number in small_numbers(seed.parse().unwrap(), count.parse().unwrap()) {
        assert_eq!(view.get("kv", &key_of(number)).unwrap(), Some(expected(number)));
        println!("read {number}");
    }
    println!("all right");
}

fn start(stub: &Stub, cache: &Path, size: u64, seed: u64, count: usize) -> Child {
    let told = format!("{}|{}|{size}|{seed}|{count}", stub.endpoint(), cache.display());
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "cached::reads_in_a_process_of_its_own", "--nocapture"]).env(CHILD, told);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn processes_share_a_cache_and_keep_to_its_size() {
    let dir = TempDir::new().unwrap();
    let (_archive, stub) = pushed_large(dir.path());
    let cache = dir.path().join("cache");
    let readers: Vec<Child> = (0..2).map(|seed| start(&stub, &cache, SMALL, seed, 600)).collect();
    let mut lines: Vec<_> = readers
        .into_iter()
        .map(|mut child| (BufReader::new(child.stdout.take().unwrap()).lines(), child))
        .collect();
    let (mut right, mut most) = (0, 0);
    for (lines, child) in &mut lines {
        for line in lines.by_ref() {
            right += usize::from(line.unwrap() == "all right");
            most = most.max(allocated(&cache));
        }
        assert!(child.wait().unwrap().success());
    }
    println!("two processes together took at most {most} of {SMALL} bytes");
    // Each may exchange files that the other still has open, and has requests under way: a constant, whatever the size.
    assert!(most <= SMALL + (512 << 10), "{most} bytes in a cache of {SMALL}");
    assert_eq!(right, 2);
    // A large one is used together: what one process read the other does not ask for.
    let shared = dir.path().join("shared");
    for (requests_max, seed) in [(u64::MAX, 5), (3, 5)] {
        stub.reset_requests();
        let mut child = start(&stub, &shared, 1 << 30, seed, 100);
        let done = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .filter(|line| line.as_ref().unwrap() == "all right")
            .count()
            == 1;
        assert!(done && child.wait().unwrap().success());
        assert!(stub.requests().total() <= requests_max, "{:?}", stub.requests());
    }
}

#[test]
fn a_cache_survives_kills() {
    let dir = TempDir::new().unwrap();
    let (_archive, stub) = pushed_large(dir.path());
    for (cache, size) in [("large", 1 << 30), ("small", SMALL)] {
        let cache = dir.path().join(cache);
        for round in 0..8 {
            let mut child = start(&stub, &cache, size, round, 10_000);
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            assert!(lines.map(Result::unwrap).filter(|line| line.starts_with("read")).nth(40).is_some());
            child.kill().unwrap();
            assert!(!child.wait().unwrap().success());
            let options = RemoteOptions::new(&cache).cache_size(size);
            let reader = Reader::open_remote(&bucket(&stub), &options).unwrap();
            let view = reader.latest().unwrap();
            for number in small_numbers(round, 60) {
                assert_eq!(view.get("kv", &key_of(number)).unwrap(), Some(expected(number)));
            }
            assert!(allocated(&cache) <= size);
        }
    }
}

#[test]
fn a_cache_may_be_in_memory_and_no_hole_of_it_is_touched() {
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        println!("skipped: no file system in memory");
        return;
    }
    let (dir, cache) = (TempDir::new().unwrap(), TempDir::new_in(memory).unwrap());
    let (_archive, stub) = pushed_large(dir.path());
    for (fetch, warm) in [(4096, Accessors::None), (64 << 10, Accessors::Bt)] {
        let cache = cache.path().join(fetch.to_string());
        let options = RemoteOptions::new(&cache).fetch(fetch).warm(warm);
        let reader = Reader::open_remote(&bucket(&stub), &options).unwrap();
        let opened = allocated(&cache);
        let before = reader.remote_cost().unwrap().bytes;
        let view = reader.latest().unwrap();
        for number in small_numbers(fetch, 100) {
            assert_eq!(view.get("kv", &key_of(number)).unwrap(), Some(expected(number)));
        }
        view.scan("kv", &Scan::all().limit(500)).unwrap().try_for_each(|entry| entry.map(drop)).unwrap();
        // A page that is touched before it was written takes memory as well: here none did.
        let (taken, came) = (allocated(&cache) - opened, reader.remote_cost().unwrap().bytes - before);
        assert!(taken <= came, "{taken} bytes are taken by {came} that came");
    }
}

/// A file system of so many bytes, where the system lets a test have one.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    fn mount(path: &'a Path, bytes: u64) -> Option<Self> {
        fs::create_dir(path).unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]).arg(path);
        let is_mounted = command.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        is_mounted.then_some(Self(path))
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_cache_keeps_to_what_its_disk_has() {
    let dir = TempDir::new().unwrap();
    let (archive, stub) = pushed_large(dir.path());
    let bytes: u64 = archive.reader().segments().iter().map(|segment| segment.kv_bytes).sum();
    assert!(bytes > 2 * SMALL, "{bytes}");
    let mounted = dir.path().join("disk");
    let Some(disk) = Disk::mount(&mounted, 2 * SMALL) else {
        println!("skipped: this process may not mount");
        return;
    };
    let reader = Reader::open_remote(&bucket(&stub), &RemoteOptions::new(disk.0.join("cache"))).unwrap();
    let (view, local) = (reader.latest().unwrap(), archive.reader().latest().unwrap());
    for number in small_numbers(5, 300) {
        assert_eq!(view.get("kv", &key_of(number)).unwrap(), Some(expected(number)));
    }
    let mut there = view.scan("kv", &Scan::all()).unwrap();
    for here in local.scan("kv", &Scan::all()).unwrap() {
        assert_eq!(there.next().unwrap().unwrap(), here.unwrap());
    }
    drop((there, view, reader));
}

#[test]
fn a_full_disk_under_the_cache_is_told_and_no_answer_is_wrong() {
    let dir = TempDir::new().unwrap();
    let (_archive, stub) = pushed_large(dir.path());
    let mounted = dir.path().join("disk");
    let Some(disk) = Disk::mount(&mounted, 4 * SMALL) else {
        println!("skipped: this process may not mount");
        return;
    };
    let options = RemoteOptions::new(disk.0.join("cache"));
    let reader = Reader::open_remote(&bucket(&stub), &options).unwrap();
    let view = reader.latest().unwrap();
    for number in small_numbers(3, 10) {
        assert_eq!(view.get("kv", &key_of(number)).unwrap(), Some(expected(number)));
    }
    let letter = disk.0.join("letter.txt");
    assert!(fs::write(&letter, vec![7; 4 * SMALL as usize]).is_err(), "it is full now");
    let (mut refused, started) = (0, Instant::now());
    for number in small_numbers(4, 20) {
        match view.get("kv", &key_of(number)) {
            Ok(found) => assert_eq!(found, Some(expected(number))),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                assert!(error.to_string().contains("disk"), "{error}");
                refused += 1;
            }
        }
    }
    println!("{refused} of 20 refused in {:?}", started.elapsed());
    assert!(refused > 0);
    assert!(started.elapsed() < Duration::from_secs(15) && letter.exists());
    fs::remove_file(&letter).unwrap();
    for number in small_numbers(4, 20) {
        assert_eq!(view.get("kv", &key_of(number)).unwrap(), Some(expected(number)));
    }
    drop((view, reader));
}

#[test]
fn a_reader_waits_for_a_generation() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 71, 14);
    let stub = Stub::start().unwrap();
    pushed(&chain, &stub);
    let reader = Reader::open_remote(&bucket(&stub), &RemoteOptions::new(dir.path().join("cache"))).unwrap();
    let head = reader.head();
    stub.reset_requests();
    assert_eq!(reader.wait(head, Duration::from_millis(1_700)).unwrap(), None);
    let looks = stub.requests().total();
    assert!((2..=4).contains(&looks), "{looks} looks in 1.7 seconds");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| reader.wait(head, Duration::from_secs(10)).unwrap());
        chain.grow(8);
        pushed(&chain, &stub);
        assert!(waiting.join().unwrap() > head);
    });
    compare(chain.archive.reader(), &reader, "after it waited");
}

#[test]
fn proofs_of_snapshots_and_large_values_come_from_a_bucket() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("snapshots.ice");
    let options = Options::new().domain("kv").blocks_per_step(4).reorg_window(0);
    let options = options.snapshot_period(NonZeroU64::new(4));
    let archive = Archive::create_with(&path, options, open_options()).unwrap();
    let value = |number: u64, height: u64| {
        let mut random = Random(number ^ height << 32);
        let len = if number.is_multiple_of(40) { 300_000 } else { 20 };
        std::iter::repeat_with(|| random.next() as u8).take(len).collect::<Vec<u8>>()
    };
    for height in 1..=16 {
        let mut block = archive.begin(height).unwrap();
        for number in (0..200).filter(|number| (number + height) % 3 == 0) {
            block.put("kv", &key_of(number), &value(number, height)).unwrap();
        }
        block.commit().unwrap();
    }
    archive.emit().unwrap();
    let stub = Stub::start().unwrap();
    archive.reader().push(&bucket(&stub), &icecore::remote::PushOptions::new(), &()).unwrap();
    let cache = RemoteOptions::new(dir.path().join("cache"));
    let reader = Reader::open_remote(&bucket(&stub), &cache).unwrap();
    let mut sources = std::collections::BTreeSet::new();
    for height in 1..=reader.head().unwrap() {
        let (here, there) = (archive.at(height).unwrap(), reader.at(height).unwrap());
        for number in (0..240).step_by(8) {
            let key = key_of(number);
            let found = there.get("kv", &key).unwrap();
            assert_eq!(found, here.get("kv", &key).unwrap(), "{number} at {height}");
            let (batch, cost) = there.prove_counted(&[("kv", &key[..])], icecore::Parallelism::Off).unwrap();
            sources.insert(format!("{:?}", cost.source));
            batch.proofs[0].verify(&here.root().unwrap(), "kv", &key, found.as_deref()).unwrap();
        }
    }
    assert_eq!(sources.len(), 2, "proofs came of snapshots and of states: {sources:?}");
}
