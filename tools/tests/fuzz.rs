//! A moment of every fuzz target, and the faults that the rig must catch.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::process::Command;

fn fuzz(arguments: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let output =
        Command::new(env!("CARGO_BIN_EXE_icecore-fuzz")).args(arguments).current_dir(&dir).output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {said}");
    said
}

#[test]
fn a_moment_of_every_target_finds_nothing() {
    let targets = fuzz(&["list"]);
    let names: Vec<&str> = targets.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() >= 11, "{names:?}");
    let said = fuzz(&["all", "--seconds", "1", "--seed", "3"]);
    for name in names {
        assert!(
            said.lines().any(|line| line.starts_with(name) && line.contains("nothing found")),
            "{name}: {said}"
        );
    }
}

#[test]
fn planted_faults_are_caught() {
    assert_eq!(
        fuzz(&["selftest"]).lines().filter(|line| line.contains("caught, kept, and caught again")).count(),
        4
    );
}

#[test]
fn a_target_that_there_is_not_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_icecore-fuzz")).arg("nothing").output().unwrap();
    assert!(
        !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("no target \"nothing\"")
    );
}
