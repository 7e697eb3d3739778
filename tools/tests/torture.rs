//! A slice of the fault campaign: some seconds of it find nothing, a sync that is taken out is noticed, and a case has a name by
//! which it is repeated.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::process::{Command, Output};

fn torture(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_icecore-torture")).args(arguments).output().unwrap()
}

/// What it printed; `None` where there is no C compiler, with a line that says so.
fn printed(output: &Output) -> Option<String> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let skipped = text.starts_with("skipped");
    if skipped {
        print!("{text}");
    }
    (!skipped).then_some(text)
}

#[test]
fn some_seconds_of_the_campaign_find_nothing() {
    let output = torture(&["run", "--minutes", "0.1", "--seed", "100"]);
    let Some(text) = printed(&output) else { return };
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{told}");
    let all = text.lines().find(|line| line.starts_with("all")).unwrap();
    let counts: Vec<u64> = all.split_whitespace().skip(1).map(|count| count.parse().unwrap()).collect();
    assert!(counts[0] > 20 && counts[1] >= counts[0], "{text}");
    assert!(counts[2..].iter().all(|failures| *failures == 0), "{text}");
}

#[test]
fn a_sync_that_is_taken_out_is_noticed() {
    let output = torture(&["controls", "--only", "manifest", "--seconds", "60"]);
    let Some(text) = printed(&output) else { return };
    assert!(output.status.success() && text.contains("1 of 1 controls caught"), "{text}");
}

#[test]
fn a_case_is_repeated_by_its_name() {
    let output = torture(&["replay", "block.emit.7.12+kill-before@60"]);
    let Some(text) = printed(&output) else { return };
    assert!(output.status.success() && text.starts_with("good"), "{text}");
    let output = torture(&["replay", "block.emit.7"]);
    assert_eq!(output.status.code(), Some(2), "a name that is none is misuse");
}
