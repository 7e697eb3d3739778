//! What a limit of the system does to an archive. Alone in its process: what is used up here would be missing elsewhere.

use std::fs;

use icecore::storage::os::OsStorage;
use icecore::storage::{Access, Storage};
use icecore::{Error, ErrorKind, Operation};

/// The most mappings that this test makes; where the system allows more, it has nothing to show.
const MAPPINGS_MAX: usize = 300_000;

/// What a fresh process maps besides, generously.
const OTHERS: usize = 2_000;

#[test]
fn a_process_without_mappings_left_is_told_of_the_limit() {
    let limit = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    let Ok(limit @ ..=MAPPINGS_MAX) = limit.trim().parse::<usize>() else {
        println!("skipped: vm.max_map_count is {limit:?}");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kv.0-1.kv");
    fs::write(&path, [1; 4096]).unwrap();
    // All of it at once, so that nothing but the mappings of the file is asked of the system.
    let mut mappings = Vec::with_capacity(limit);
    let refused = loop {
        match OsStorage.map(&path, Access::Random) {
            Ok(mapping) => mappings.push(mapping),
            Err(error) => break error,
        }
        assert!(mappings.len() < limit, "more mappings than vm.max_map_count");
    };
    let made = mappings.len();
    drop(mappings);
    assert!(made + OTHERS > limit, "refused after {made} of {limit}");
    assert!(matches!(refused, Error::Io { operation: Operation::Map, .. }), "{refused:?}");
    assert_eq!(refused.kind(), ErrorKind::Limit);
    let text = refused.to_string();
    assert!(
        text.contains("vm.max_map_count") && text.contains("merge") && text.contains("kv.0-1.kv"),
        "{text}"
    );
}
