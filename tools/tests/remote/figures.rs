//! The figures of a bucket on a small dataset: they are there, and those that no machine changes are what they must be.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

#[test]
fn the_figures_of_a_bucket_are_there_and_its_counts_hold() {
    // Beside this program, since a temporary folder may be in memory, where nothing can be evicted.
    let folder = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
    let arguments = ["remote", "--entries", "30000", "--lookups", "8", "--json", "--dir"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_icecore-figures"));
    let output = command.args(arguments).arg(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("stayed in memory") {
        println!("skipped: pages of a file may not leave memory here");
        return;
    }
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let figures = report["figures"].as_array().unwrap().iter();
    let figures: BTreeMap<&str, f64> =
        figures.map(|it| (it["name"].as_str().unwrap(), it["measured"].as_f64().unwrap())).collect();
    let figure = |name: &str| figures[&*format!("bucket, {name}")];
    assert!((figure("one segment, accessors resident, 64K: GETs a cold hit") - 1.0).abs() < 0.3);
    assert!((figure("one segment, accessors resident, 64K: waits a cold hit") - 1.0).abs() < 0.3);
    assert!(figure("one segment, nothing resident, 64K: GETs a cold hit") <= 3.0);
    assert!(figure("one segment, nothing resident, 64K: waits a cold hit") <= 2.0);
    assert!(figure("opening unmerged segments: segments") >= 260.0);
    assert!(figure("opening unmerged segments: requests") <= 3.0);
    assert!(figure("opening unmerged segments: bytes") <= 200.0);
    assert!(figure("a hit in the cache after a restart: GETs") == 0.0);
    assert!(figure("push of nothing new: requests") <= 3.0);
    assert!(figures.contains_key("block, refresh, nothing new: p50"));
}
