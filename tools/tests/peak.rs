//! Watching memory. Alone in its process: what other tests hold and give back would be counted too.

use std::thread;
use std::time::Duration;

use icecore_tools::measure::peak::watch;

#[test]
fn memory_that_was_given_back_is_remembered() {
    let ((), peak) = watch(|| {
        let memory = std::hint::black_box(vec![1u8; 64 << 20]);
        thread::sleep(Duration::from_millis(40));
        drop(memory);
    });
    assert!(peak.anonymous == 0 || peak.anonymous >= peak.anonymous_before + (60 << 20), "{peak:?}");
    assert!(peak.resident >= 64 << 20, "{peak:?}");
}
