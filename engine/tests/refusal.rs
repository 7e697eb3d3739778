//! A system that does not let accessors be read: lookups do without them, and say so.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod watch;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use icecore::storage::Storage;
use icecore::testing::SimStorage;
use icecore::{Archive, Error, ErrorKind, Maintenance, OpenOptions, Operation, Options, Reader, Scan};
use watch::{Watch, Watched};

const PATH: &str = "/archive";

/// Files of these kinds are refused with an error of the system.
struct Refusal {
    kinds: &'static [&'static str],
    is_on: AtomicBool,
    code: AtomicI32,
}

impl Watch for Refusal {
    fn before(&self, operation: Operation, path: &Path) -> Result<(), Error> {
        let is_kind = path.extension().is_some_and(|found| self.kinds.iter().any(|kind| found == *kind));
        if self.is_on.load(Ordering::SeqCst) && is_kind && operation == Operation::Read {
            let source = io::Error::from_raw_os_error(self.code.load(Ordering::SeqCst));
            return Err(Error::Io { operation, path: path.to_owned(), source });
        }
        Ok(())
    }
}

fn value(key: u64, height: u64) -> Vec<u8> {
    format!("{key} {height}").into_bytes()
}

/// An archive of several segments, of which small files are read as a whole and large ones mapped.
fn filled(storage: &Arc<dyn Storage>) {
    let options = Options::new().domain("kv").blocks_per_step(4).reorg_window(0);
    let open = OpenOptions::new().maintenance(Maintenance::EmitOnly);
    let archive = Archive::create_on(Arc::clone(storage), PATH, options, open).unwrap();
    for height in 0..13 {
        let mut block = archive.begin(height).unwrap();
        for key in (0..2_000u64).filter(|key| (key + height).is_multiple_of(3)) {
            block.put("kv", &key.to_be_bytes(), &value(key, height)).unwrap();
        }
        block.commit().unwrap();
    }
    archive.emit().unwrap();
    archive.close().unwrap();
}

/// The newest height at or below 11 at which a key was written.
fn newest(key: u64) -> u64 {
    (0..12).rev().find(|height| (key + height).is_multiple_of(3)).unwrap()
}

#[test]
fn reads_do_without_accessors_that_the_system_refuses() {
    const EACCES: i32 = 13;
    const EIO: i32 = 5;
    const EMFILE: i32 = 24;
    for kinds in [&["bt"][..], &["kvei"], &["kvbi"], &["bt", "kvei", "kvbi"]] {
        let refusal = Refusal { kinds, is_on: AtomicBool::new(false), code: AtomicI32::new(EACCES) };
        let disk = Watched::new(SimStorage::new(), refusal);
        let storage: Arc<dyn Storage> = disk.clone();
        filled(&storage);
        disk.watch.is_on.store(true, Ordering::SeqCst);
        for code in [EACCES, EIO] {
            disk.watch.code.store(code, Ordering::SeqCst);
            let reader = Reader::open_on(Arc::clone(&storage), PATH).unwrap();
            let view = reader.at(11).unwrap();
            let keys: Vec<[u8; 8]> = (0..2_100u64).map(u64::to_be_bytes).collect();
            let expected = |key: u64| (key < 2_000).then(|| value(key, newest(key)));
            for key in (0..2_100u64).step_by(7) {
                assert_eq!(view.get("kv", &key.to_be_bytes()).unwrap(), expected(key), "{kinds:?}");
            }
            let together = view.multi_get("kv", &keys).unwrap();
            assert!(together.into_iter().eq((0..2_100).map(expected)), "{kinds:?}");
            assert_eq!(view.scan("kv", &Scan::all()).unwrap().map(Result::unwrap).count(), 2_000);
            assert_eq!(view.history("kv", &9u64.to_be_bytes()).unwrap().map(Result::unwrap).count(), 4);
            let changes = reader.changes(4..6).unwrap().map(Result::unwrap).count();
            assert_eq!(
                changes,
                (0..2_000u64)
                    .filter(|key| (key + 4).is_multiple_of(3) || (key + 5).is_multiple_of(3))
                    .count()
            );
            let stats = reader.stats();
            assert!(stats.degraded_reads > 0, "{kinds:?}: {stats:?}");
            assert!(stats.problems.iter().any(|problem| problem.contains(kinds[0])), "{:?}", stats.problems);
        }
        // Nothing is wrong with the file where the process is at its limit.
        disk.watch.code.store(EMFILE, Ordering::SeqCst);
        let reader = Reader::open_on(Arc::clone(&storage), PATH).unwrap();
        let read = if kinds == ["kvbi"] {
            reader.changes(4..6).and_then(|mut changes| changes.next().unwrap()).map(drop)
        } else {
            reader.at(11).unwrap().get("kv", &9u64.to_be_bytes()).map(drop)
        };
        assert_eq!(read.unwrap_err().kind(), ErrorKind::Limit, "{kinds:?}");
        // Once the system lets it, accessors serve again.
        disk.watch.is_on.store(false, Ordering::SeqCst);
        assert_eq!(reader.at(11).unwrap().get("kv", &9u64.to_be_bytes()).unwrap(), Some(value(9, newest(9))));
    }
}
