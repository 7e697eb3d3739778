//! Reads that need several pages of a bucket: are those that are known to be needed requested together, and no more than are needed?

use std::path::Path;

use icecore::remote::{Accessors, PushOptions, RemoteCost, RemoteOptions, push};
use icecore::{Archive, Options, Reader, Scan, View};
use icecore_tools::stub::Stub;
use tempfile::TempDir;

use super::chain::{Random, bucket, open_options};

/// Segments, each with every key.
const SEGMENTS: u64 = 5;

const KEYS: u64 = 12_000;

fn key_of(number: u64) -> Vec<u8> {
    let mut random = Random(number);
    (0..5).flat_map(|_| (random.next() as u32).to_le_bytes()).collect()
}

fn value_of(number: u64, height: u64) -> Vec<u8> {
    [number.to_le_bytes(), height.to_le_bytes(), (number ^ height << 32).to_le_bytes()].concat()
}

/// An archive whose segments have all keys each, or with `shared` unset each its own part of them.
fn several(dir: &Path, shared: bool) -> (Archive, Stub) {
    let path = dir.join("several.ice");
    let options = Options::new().domain("kv").blocks_per_step(1).reorg_window(0);
    let archive = Archive::create_with(&path, options, open_options()).unwrap();
    for height in 0..SEGMENTS {
        let mut block = archive.begin(height).unwrap();
        for number in (0..KEYS).filter(|number| shared || number % SEGMENTS == height) {
            block.put("kv", &key_of(number), &value_of(number, height)).unwrap();
        }
        block.commit().unwrap();
        archive.emit().unwrap();
    }
    let stub = Stub::start().unwrap();
    push(&path, &bucket(&stub), &PushOptions::new(), &()).unwrap();
    (archive, stub)
}

/// What a read costs with an empty cache: its answer, requests, waits and bytes.
fn cold<T>(stub: &Stub, dir: &Path, warm: Accessors, read: impl FnOnce(&View) -> T) -> (T, RemoteCost) {
    let cache = TempDir::new_in(dir).unwrap();
    let options = RemoteOptions::new(cache.path()).warm(warm);
    let reader = Reader::open_remote(&bucket(stub), &options).unwrap();
    let (view, before) = (reader.latest().unwrap(), reader.remote_cost().unwrap());
    let answer = read(&view);
    let mut cost = reader.remote_cost().unwrap();
    cost.requests -= before.requests;
    cost.waits -= before.waits;
    cost.bytes -= before.bytes;
    (answer, cost)
}

#[test]
fn filters_and_leaves_of_all_segments_are_one_wait() {
    let dir = TempDir::new().unwrap();
    let (archive, stub) = several(dir.path(), false);
    assert_eq!(archive.reader().segments().iter().filter(|segment| segment.domain == "kv").count(), 5);
    let (mut waits, mut requests) = (0, 0);
    let numbers: Vec<u64> = (0..40).map(|round| round * 293 % KEYS).collect();
    for number in &numbers {
        let get = |view: &View| view.get("kv", &key_of(*number)).unwrap();
        let (found, cost) = cold(&stub, dir.path(), Accessors::None, get);
        assert_eq!(found, Some(value_of(*number, number % SEGMENTS)));
        waits += cost.waits;
        requests += cost.requests;
    }
    let a_hit = |sum: u64| sum as f64 / numbers.len() as f64;
    println!("{:.2} waits and {:.2} GETs a hit in one of {SEGMENTS}", a_hit(waits), a_hit(requests));
    assert!(a_hit(waits) <= 2.1, "{}", a_hit(waits));
    assert!(requests <= numbers.len() as u64 * (2 * SEGMENTS + 2));
}

#[test]
fn the_pages_of_a_history_are_one_wait() {
    let dir = TempDir::new().unwrap();
    let (_archive, stub) = several(dir.path(), true);
    for (warm, waits_max) in [(Accessors::None, 2), (Accessors::All, 1)] {
        let history = |view: &View| view.history("kv", &key_of(77)).unwrap().map(Result::unwrap).collect();
        let (found, cost): (Vec<_>, _) = cold(&stub, dir.path(), warm, history);
        let expected = (0..SEGMENTS).rev().map(|height| (height, Some(value_of(77, height))));
        assert!(found.into_iter().map(|change| (change.block, change.value)).eq(expected));
        println!("{warm:?}: {} GETs, {} waits", cost.requests, cost.waits);
        assert!(cost.waits <= waits_max, "{warm:?}: {cost:?}");
    }
}

#[test]
fn a_scan_requests_its_pages_before_it_gets_to_them() {
    let dir = TempDir::new().unwrap();
    let (archive, stub) = several(dir.path(), false);
    let local = archive.reader().latest().unwrap();
    let read = |view: &View, scan: &Scan| {
        let entries = view.scan("kv", scan).unwrap();
        entries.map(|entry| entry.map(|entry| (entry.key, entry.value)).unwrap()).collect::<Vec<_>>()
    };
    let (first, last) = (&[0x10][..], &[0x18][..]);
    for scan in [Scan::all(), Scan::all().from(first).to(last), Scan::all().from(first).limit(3)] {
        for scan in [scan.clone(), scan.backward()] {
            let (found, cost) = cold(&stub, dir.path(), Accessors::Bt, |view| read(view, &scan));
            assert!(found == read(&local, &scan), "{scan:?}");
            println!(
                "{} entries: {} GETs, {} waits, {} bytes",
                found.len(),
                cost.requests,
                cost.waits,
                cost.bytes
            );
            // The pages at hand, those behind them, and a boundary where a walk begins.
            assert!(cost.waits <= 4, "{scan:?}: {cost:?}");
            if found.len() < 10 {
                assert!(cost.requests <= 2 * SEGMENTS, "{scan:?}: {cost:?}");
            }
        }
    }
}
