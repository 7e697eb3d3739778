//! The verbs that change files: answers stay, damage is told.

use std::process::Command;

use serde_json::{Value, json};

use crate::driver::{Place, archive, command, files_of, forty_blocks, icecore, icecore_reading, line};

/// Answers about every block and key of [`forty_blocks`].
fn all_answers(dir: &str) -> Vec<Value> {
    let mut requests = String::new();
    for at in 1..=40 {
        for key in ["k", "even", "gone", "never"] {
            requests += &format!("{{\"get\":{{\"key\":\"{key}\",\"at\":{at}}}}}\n");
        }
        requests += &format!("{{\"scan\":{{\"at\":{at}}}}}\n{{\"root\":{{\"at\":{at}}}}}\n");
    }
    requests += "{\"history\":{\"key\":\"k\"}}\n{\"history\":{\"key\":\"gone\"}}\n";
    icecore_reading(&["query", dir], requests.as_bytes()).ok().json_lines()
}

#[test]
fn a_limit_of_the_system_is_named_and_not_the_disk() {
    let place = Place::new();
    let dir = archive(&place, 2, &forty_blocks());
    // Files 0 to 2 are open from the start, the lock is the fourth; nothing else can be opened then.
    let script = "ulimit -n 4; exec \"$@\"";
    let binary = command(&[]).get_program().to_owned();
    let output = Command::new("sh").args(["-c", script, "sh"]).arg(binary).args(["merge", &dir]).output();
    let output = output.expect("there is a shell");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{err}");
    assert!(err.contains("`ulimit -n`") && err.contains("help: raise the limit"), "{err}");
    assert!(!err.contains("permissions"), "{err}");
}

#[test]
fn a_manifest_from_before_condemns_no_newer_file() {
    let place = Place::new();
    let blocks = |range: std::ops::RangeInclusive<u64>| -> String {
        range.map(|block| line(block, "k", Some(&format!("v{block}")))).collect()
    };
    let dir = archive(&place, 4, &blocks(1..=20));
    let manifest = place.path("a.ice").join("MANIFEST");
    let before = std::fs::read(&manifest).unwrap();
    icecore(&["ingest", &dir, &place.file("more.jsonl", blocks(21..=80)), "--format", "jsonl"]).ok();
    let newest = std::fs::read(&manifest).unwrap();
    std::fs::write(&manifest, before).unwrap();
    let files = files_of(&dir);
    let verified = icecore(&["verify", &dir]).fails(4, "a.ice");
    assert!(
        verified.out.contains("unused: ") && verified.out.contains("put back from before"),
        "{}",
        verified.out
    );
    assert!(!verified.out.contains("removes it"), "{}", verified.out);
    icecore(&["ingest", &dir, &place.file("more.jsonl", blocks(21..=81)), "--format", "jsonl"])
        .fails(4, "missing");
    assert!(files_of(&dir) == files, "what is refused removes nothing");
    std::fs::write(&manifest, newest).unwrap();
    assert_eq!(icecore(&["get", &dir, "k"]).ok().out, "v80\n");
    icecore(&["verify", &dir]).ok();
}

#[test]
fn merge_and_reindex_change_no_answer() {
    let place = Place::new();
    let dir = archive(&place, 2, &forty_blocks());
    let before = all_answers(&dir);
    let other_place = Place::new();
    assert_eq!(all_answers(&archive(&other_place, 1000, &forty_blocks())), before, "all of it in memory");
    let listed = icecore(&["ls", &dir, "--json"]).ok().json_lines();
    let of_kv = |lines: &[Value]| lines.iter().filter(|line| line["domain"] == "kv").count();
    assert!((2..20).contains(&of_kv(&listed)), "small steps go together, in aligned ranges");
    assert!(icecore(&["ls", &dir]).ok().out.contains("kv"));

    let half = icecore(&["merge", &dir, "--domain", "kv", "--max-span", "4", "--json"]).ok().json();
    assert!(half["merges"].as_u64().unwrap() > 0);
    assert_eq!(all_answers(&dir), before);
    icecore(&["merge", &dir]).ok();
    assert_eq!(all_answers(&dir), before);
    assert_eq!(icecore(&["merge", &dir, "--json"]).ok().json()["merges"], 0);
    icecore(&["merge", &dir, "--domain", "none"]).fails(2, "unknown domain");

    for number in [16, 64, 256, 1] {
        let m = &number.to_string();
        let planned = icecore(&["reindex", &dir, "--m", m, "--dry-run", "--json"]).ok().json_lines();
        assert!(planned.iter().all(|plan| plan["m"][1] == number && plan["rebuilt"] == false));
        let kv = |dir: &str| {
            files_of(dir).into_iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "kv"))
        };
        let kv_before: Vec<_> = kv(&dir).collect();
        icecore(&["reindex", &dir, "--m", m]).ok();
        assert!(kv(&dir).eq(kv_before), "a reindex leaves every .kv as it is");
        let listed = icecore(&["ls", &dir, "--json"]).ok().json_lines();
        assert!(listed.iter().all(|segment| segment["m"] == number), "{listed:?}");
        assert_eq!(all_answers(&dir), before);
    }
    for rule in [&["--policy"][..], &["--index-budget", "100000"], &["--rebuild"], &[]] {
        icecore(&[&["reindex", &dir][..], rule].concat()).ok();
        assert_eq!(all_answers(&dir), before);
    }
    icecore(&["reindex", &dir, "--m", "0"]).fails(2, "--m 0");
    icecore(&["reindex", &dir, "--m", "4", "--policy"]).fails(2, "cannot be used with");
    icecore(&["verify", &dir]).ok();
}

#[test]
fn prune_forgets_what_is_below() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let before = all_answers(&dir);
    let pruned = icecore(&["prune", &dir, "--before", "25", "--json"]).ok().json();
    assert_eq!((&pruned["first"], &pruned["head"]), (&json!(25), &json!(40)));
    icecore(&["get", &dir, "k", "--at", "24"]).fails(3, "blocks 25 to 40");
    let after = all_answers(&dir);
    for at in 25..=40 {
        let range = 6 * (at - 1)..6 * at;
        assert_eq!(after[range.clone()], before[range], "block {at}");
    }
    icecore(&["prune", &dir, "--before", "41"]).fails(3, "out of range");
    icecore(&["verify", &dir]).ok();
}

#[test]
fn unwind_forgets_what_is_above_and_ingest_goes_on() {
    for to in ["37", "5", "1"] {
        let place = Place::new();
        let dir = archive(&place, 4, &forty_blocks());
        let before = all_answers(&dir);
        let unwound = icecore(&["unwind", &dir, "--to", to, "--json"]).ok().json();
        assert_eq!(unwound["head"].to_string(), to);
        let root = icecore(&["root", &dir]).ok().out;
        assert_eq!(unwound["root"], root.trim());
        icecore(&["get", &dir, "k", "--at", "38"]).fails(3, &format!("blocks 1 to {to}"));
        icecore(&["ingest", &dir, &place.text("input.jsonl"), "--format", "jsonl"]).ok();
        assert_eq!(all_answers(&dir), before, "{to}");
        icecore(&["unwind", &dir, "--to", "41"]).fails(3, "out of range");
        icecore(&["verify", &dir]).ok();
    }
}

#[test]
fn damage_is_code_4_and_names_the_file() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    icecore(&["verify", &dir, "--json"]).ok();
    for (path, bytes) in files_of(&dir) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let mut damaged = bytes.clone();
        damaged[bytes.len() / 2] ^= 4;
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, &damaged).unwrap();
        let report = icecore(&["verify", &dir]);
        assert_eq!(report.code, 4, "{name}: {} {}", report.out, report.err);
        assert!(
            format!("{}{}", report.out, report.err).contains(name),
            "{name}: {} {}",
            report.out,
            report.err
        );
        std::fs::remove_file(&path).unwrap();
        let report = icecore(&["verify", &dir, "--fast"]);
        assert_eq!(report.code, 4, "{name} is missing: {} {}", report.out, report.err);
        std::fs::write(&path, &bytes).unwrap();
    }
    icecore(&["verify", &dir]).ok();
}

#[test]
fn a_damaged_log_is_given_up_only_by_recover_and_its_blocks_come_again() {
    let place = Place::new();
    let dir = archive(&place, 1000, &forty_blocks());
    let before = all_answers(&dir);
    assert!(icecore(&["recover", &dir]).ok().out.contains("the log is sound"));
    let log = std::fs::read_dir(place.path("a.ice/wal")).unwrap().map(|entry| entry.unwrap().path());
    let path = log.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 4;
    std::fs::write(&path, &damaged).unwrap();

    let again = place.file("again.jsonl", forty_blocks().as_bytes());
    icecore(&["ingest", &dir, &again, "--format", "jsonl"]).fails(4, "icecore recover DIR --dry-run");
    let planned = icecore(&["recover", &dir, "--dry-run", "--json"]).ok().json();
    assert_eq!(std::fs::read(&path).unwrap(), damaged, "a plan writes nothing");
    assert!(icecore(&["recover", &dir, "--dry-run"]).ok().out.contains("would be given up"));
    let done = icecore(&["recover", &dir, "--json"]).ok().json();
    assert_eq!(done, planned);
    let head = done["recovered"]["head"].as_u64().unwrap();
    assert!(head < 40, "{done}");
    assert_eq!(done["recovered"]["dropped"][1], 40, "{done}");
    for file in done["recovered"]["files"].as_array().unwrap() {
        assert!(std::fs::exists(file.as_str().unwrap()).unwrap(), "{file}");
    }
    icecore(&["verify", &dir]).ok();
    icecore(&["get", &dir, "k", "--at", &(head + 1).to_string()]).fails(3, "out of range");
    icecore(&["ingest", &dir, &again, "--format", "jsonl"]).ok();
    assert_eq!(all_answers(&dir), before);
}

#[test]
fn a_log_that_is_gone_is_given_up_too() {
    let place = Place::new();
    let dir = archive(&place, 1000, &forty_blocks());
    for file in std::fs::read_dir(place.path("a.ice/wal")).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    for arguments in [&["recover", &dir, "--dry-run"][..], &["recover", &dir]] {
        let told = icecore(arguments).ok().out;
        assert!(
            told.contains("no log file is there to be kept") && told.contains("no block is left"),
            "{told}"
        );
    }
    icecore(&["verify", &dir]).ok();
}

#[test]
fn a_merge_names_the_input_that_is_damaged() {
    let place = Place::new();
    // One step at a time, as steps that are ready together become one segment.
    let dir = archive(&place, 4, "");
    for step in 0..8 {
        let lines = (4 * step..4 * step + 4).map(|block| line(block, "k", Some(&format!("v{block}"))));
        let input = place.file("step.jsonl", lines.collect::<String>());
        icecore(&["ingest", &dir, &input, "--format", "jsonl", "--no-merge"]).ok();
    }
    let is_kv = |path: &std::path::Path| path.extension().is_some_and(|kind| kind == "kv");
    let segments = files_of(&dir).into_iter().filter(|(path, _)| is_kv(path));
    let segments: Vec<_> =
        segments.filter(|(path, _)| !path.file_name().unwrap().to_str().unwrap().starts_with('_')).collect();
    assert_eq!(segments.len(), 8);
    for (path, bytes) in segments {
        let mut damaged = bytes.clone();
        // In the first page of entries.
        damaged[4096 + 100] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        icecore(&["merge", &dir]).fails(4, &name);
        std::fs::write(&path, &bytes).unwrap();
    }
    icecore(&["merge", &dir]).ok();
}

/// A disk that takes nothing: what cannot be said is not said, and the exit code tells how the command ended.
#[cfg(target_os = "linux")]
#[test]
fn standard_error_that_takes_nothing_changes_no_exit_code() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    for (arguments, code) in [
        (&["get", &dir, "absent"][..], 1),
        (&["verify", "there is none"], 2),
        (&["get", &dir, "k", "--at", "4000"], 3),
        (&["ls", &dir, "--domain", "absent"], 2),
    ] {
        assert_eq!(icecore(arguments).code, code, "{arguments:?}");
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let status = crate::driver::command(arguments).stderr(full).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn verify_names_the_page_that_a_read_stumbles_over() {
    let place = Place::new();
    let dir = archive(&place, 64, &(forty_blocks() + &crate::driver::line(100, "z", Some("later"))));
    icecore(&["merge", &dir]).ok();
    let is_kv = |path: &std::path::Path| {
        let path = path.to_str().unwrap();
        path.contains("/kv.") && path.split('.').next_back() == Some("kv")
    };
    let (path, mut bytes) = files_of(&dir).into_iter().find(|(path, _)| is_kv(path)).unwrap();
    bytes[4096 + 2000] ^= 1;
    std::fs::write(path, bytes).unwrap();
    let place_of_damage = "damaged part=data-page offset=4096 reason=checksum";
    icecore(&["get", &dir, "k", "--at", "7"]).fails(4, place_of_damage);
    let report = icecore(&["verify", &dir]);
    assert!(report.code == 4 && report.out.contains(place_of_damage), "{}", report.out);
}

#[test]
fn stats_tell_rule_and_log() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let stats = || icecore(&["stats", &dir, "--json"]).ok().json();
    let log = std::fs::read_dir(place.path("a.ice/wal")).unwrap();
    let len: u64 = log.map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert_eq!((&stats()["log_bytes"], &stats()["density"]), (&json!(len), &json!({ "rule": "policy" })));
    for (rule, told, json) in [
        (&["--m", "32"][..], "--m 32", json!({ "rule": "m", "m": 32 })),
        (
            &["--index-budget", "100MB"],
            "--index-budget: 95.4 MiB",
            json!({ "rule": "index-budget", "bytes": 100_000_000 }),
        ),
        (&["--policy"], "--policy: 16", json!({ "rule": "policy" })),
    ] {
        icecore(&[&["reindex", &dir][..], rule].concat()).ok();
        assert_eq!(stats()["density"], json);
        assert!(icecore(&["stats", &dir]).ok().out.contains(told), "{told}");
    }
}

#[test]
fn a_lost_accessor_costs_readers_time_and_is_mended_by_writers() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let before = all_answers(&dir);
    let accessors: Vec<_> = files_of(&dir)
        .into_iter()
        .filter(|(path, _)| path.extension().is_some_and(|e| e == "bt" || e == "kvei"))
        .collect();
    for (path, _) in &accessors {
        std::fs::remove_file(path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(all_answers(&dir), before, "without {name}");
        let listed = icecore(&["ls", &dir]).fails(4, "`icecore reindex DIR --rebuild`");
        assert!(listed.out.contains(&format!("damage: missing file {}", path.display())), "{}", listed.out);
        assert!(icecore(&["stats", &dir]).fails(4, "1 problem").out.contains(name));
        icecore(&["verify", &dir]).fails(4, "1 problem");
        let mended = icecore(&["reindex", &dir]).ok();
        assert!(mended.err.contains("built again"), "{}", mended.err);
        assert_eq!(all_answers(&dir), before);
    }
}

#[test]
fn a_read_that_met_a_bad_accessor_says_so_once() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    icecore(&["merge", &dir]).ok();
    let found = icecore(&["get", &dir, "k", "--at", "17", "--json"]).ok().json();
    for kind in ["bt", "kvei"] {
        let name = &format!("{}.{kind}", found["source"].as_str().unwrap());
        let path = std::path::Path::new(&dir).join(name);
        let bytes = std::fs::read(&path).unwrap();
        let mut flipped = bytes.clone();
        flipped.iter_mut().for_each(|byte| *byte ^= 0x55);
        std::fs::remove_file(&path).unwrap();
        for damage in [None, Some(&flipped[..]), Some(&bytes[..bytes.len() / 2])] {
            if let Some(damaged) = damage {
                std::fs::write(&path, damaged).unwrap();
            }
            for (args, answer) in [
                (&["get", &dir, "k", "--at", "17"][..], "v17\n"),
                (&["get", &dir, "k", "--at", "17", "--quiet"], "v17\n"),
            ] {
                let run = icecore(args).ok();
                assert_eq!(run.out, answer);
                assert_eq!(run.err.matches("warning").count(), 1, "{kind} {}: {}", damage.is_some(), run.err);
                assert!(
                    run.err.contains(name) && run.err.contains("`icecore reindex DIR --rebuild`"),
                    "{}",
                    run.err
                );
            }
            let requests = "{\"get\":{\"key\":\"k\",\"at\":17}}\n".repeat(5);
            let many = icecore_reading(&["query", &dir], requests.as_bytes()).ok();
            assert_eq!(many.err.matches("warning").count(), 1, "{}", many.err);
            let json = icecore(&["get", &dir, "k", "--at", "17", "--json"]).ok().err;
            let said: Value = serde_json::from_str(&json).unwrap();
            assert!(said["warning"].as_str().unwrap().contains(name), "{json}");
        }
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(icecore(&["get", &dir, "k", "--at", "17"]).ok().err, "");
    }
}

#[test]
fn a_damaged_segment_is_to_be_restored_first() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    icecore(&["merge", &dir]).ok();
    let (path, _) =
        files_of(&dir).into_iter().rfind(|(path, _)| path.extension().is_some_and(|e| e == "kv")).unwrap();
    std::fs::remove_file(path).unwrap();
    for args in [&["verify", &dir][..], &["ls", &dir]] {
        let told = icecore(args).fails(4, "  help: ").err;
        let help = told.split("  help: ").nth(1).unwrap();
        assert!(help.starts_with("restore a damaged .kv, log or MANIFEST from a checkpoint"), "{told}");
    }
}
