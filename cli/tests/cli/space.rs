//! What a disk has left: plans made beside a writer, and the way out of a disk that is full.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::driver::{Place, archive, command, files_of, forty_blocks, icecore, line};

/// Waits until another process has the archive.
fn until_locked(dir: &str) {
    for _ in 0..500 {
        // Merges nothing where it is not locked.
        if icecore(&["merge", dir, "--max-span", "1"]).code == 5 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("no writer came");
}

#[test]
fn a_dry_run_works_beside_a_writer_and_changes_nothing() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let mut child = command(&["ingest", &dir, "-", "--format", "jsonl", "--no-merge"]);
    let mut writer = child.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until_locked(&dir);
    let before = files_of(&dir);
    for (args, told) in [
        (&["merge"][..], "would be written by merge"),
        (&["prune", "--before", "30"], "block 30 would be the lowest"),
        (&["unwind", "--to", "10"], "head 40 -> 10, 30 blocks"),
        (&["reindex", "--m", "300"], "-> 300"),
        (&["reindex", "--index-budget", "100MB"], "would be rebuilt"),
        (&["reindex"], "0 of "),
    ] {
        let args = [&[args[0], &dir][..], &args[1..], &["--dry-run"]].concat();
        let run = icecore(&args).ok();
        assert!(run.out.contains(told), "{args:?}: {}", run.out);
        let json = icecore(&[&args[..], &["--json"]].concat()).ok();
        if args[0] == "reindex" {
            let listed = json.json_lines().len();
            assert!(run.out.contains(&format!("{listed} of ")), "{args:?}: {}", run.out);
        } else {
            assert!(json.json()["free_bytes"].is_u64(), "{args:?}: one document");
        }
        assert!(files_of(&dir) == before, "{args:?} changed a file");
    }
    icecore(&["prune", &dir, "--before", "30"]).fails(5, "locked");
    drop(writer.stdin.take());
    assert!(writer.wait().unwrap().success());
}

#[test]
fn a_budget_that_cannot_be_met_says_what_is_the_least() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let before = files_of(&dir);
    for extra in [&["--dry-run"][..], &[]] {
        let args = [&["reindex", &dir, "--index-budget", "1KB"][..], extra].concat();
        icecore(&args).fails(2, "1000 bytes are too few: the indexes of");
        assert!(files_of(&dir) == before, "{extra:?}");
    }
    icecore(&["reindex", &dir, "--index-budget", "100MB"]).ok();
}

/// A small file system in memory, gone with the value.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` where this process may not mount.
    pub(crate) fn mount(at: &Path, size: &str) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(at)
            .stderr(Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then(|| Self(at.to_owned()))
    }

    /// Takes what is left, to the last byte, and removes nothing.
    pub(crate) fn fill(&self, name: &str) {
        let mut ballast = std::fs::File::create(self.0.join(name)).unwrap();
        for len in [1 << 16, 1 << 12, 1] {
            while ballast.write_all(&vec![1; len]).is_ok() {}
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // What stays mounted is seen in the folder of the test.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn pruning_gets_an_archive_out_of_a_full_disk() {
    let place = Place::new();
    let Some(disk) = SmallDisk::mount(&place.path("disk"), "8m") else {
        eprintln!("left out: a small file system cannot be mounted here");
        return;
    };
    let dir = disk.0.join("a.ice");
    let dir = dir.to_str().unwrap();
    let mut lines = String::new();
    for block in 0..2000 {
        for key in 0..20 {
            lines += &line(block, &format!("key {key}"), Some(&format!("{block:0300}")));
        }
    }
    let input = place.file("many.jsonl", lines);
    let ingest = ["ingest", dir, &input, "--format", "jsonl"];
    let create = ["--create", "--blocks-per-step", "8", "--reorg-window", "0"];
    let filled = icecore(&[&ingest[..], &create].concat()).fails(6, "lost");
    assert!(filled.err.contains("icecore prune"), "{}", filled.err);
    let head: u64 = icecore(&["stats", dir, "--json"]).ok().json()["head"].as_u64().unwrap();
    let at = head.to_string();
    let root = || icecore(&["root", dir, "--at", &at]).ok().out;
    let state = || (root(), icecore(&["get", dir, "key 7", "--at", "9"]).ok().out);
    let before = state();
    for args in [&["reindex", dir, "--rebuild"][..], &ingest, &["merge", dir]] {
        disk.fill(args[0]);
        let run = icecore(args);
        // Opening removes what failed work left, so that some of it may fit.
        assert!(run.code == 6 || run.code == 0, "{args:?}: {} {}", run.code, run.err);
        assert_eq!(state(), before, "{args:?}");
    }
    disk.fill("ballast");
    let floor = (head - 2).to_string();
    icecore(&["prune", dir, "--before", &floor]).ok();
    icecore(&["verify", dir]).ok();
    assert_eq!(root(), before.0);
    let resumed = icecore(&ingest);
    assert!(resumed.code == 0 || resumed.code == 6, "{}", resumed.err);
    let reached = icecore(&["stats", dir, "--json"]).ok().json()["head"].as_u64().unwrap();
    assert!(reached > head + 100, "{head} -> {reached}: there is room again");
    assert!(disk.0.join("ballast").exists());
}
