//! `icecore diff`: every key that differs and no other.

use std::collections::BTreeMap;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::driver::{Place, archive, command, forty_blocks, icecore, line};

/// All keys of an archive of one domain at a height.
fn state(dir: &str, at: u64) -> BTreeMap<String, Value> {
    let lines = icecore(&["scan", dir, "--json", "--at", &at.to_string()]).ok().json_lines();
    lines.iter().map(|entry| (entry[0].as_str().unwrap().to_owned(), entry[1].clone())).collect()
}

#[test]
fn two_heights_differ_in_what_their_scans_do() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    for (from, to) in [(1, 40), (9, 10), (10, 19), (19, 20), (40, 9), (17, 17), (2, 3)] {
        let (left, right) = (state(&dir, from), state(&dir, to));
        let keys: std::collections::BTreeSet<_> = left.keys().chain(right.keys()).collect();
        let differing = keys.into_iter().filter(|key| left.get(*key) != right.get(*key));
        let expected: Vec<_> = differing
            .map(|key| json!({ "domain": "kv", "key": key, "left": left.get(key), "right": right.get(key) }))
            .collect();
        let (from, to) = (from.to_string(), to.to_string());
        let run = icecore(&["diff", &dir, "--from", &from, "--to", &to, "--json"]);
        assert_eq!(run.json_lines(), expected, "{from} {to}");
        assert_eq!(run.code, i32::from(!expected.is_empty()), "{from} {to}");
    }
    let text = icecore(&["diff", &dir, "--from", "19", "--to", "20"]);
    let expected =
        "-\tkv\teven\t0x0012\n+\tkv\teven\t0x0014\n-\tkv\tgone\there\n-\tkv\tk\tv19\n+\tkv\tk\tv20\n";
    assert_eq!((text.code, text.out.as_str()), (1, expected));
    let newest = icecore(&["diff", &dir, "--from", "-1"]);
    assert!(newest.code == 1 && newest.out.starts_with("-\tkv\teven\t0x0026\n+\tkv\teven\t0x0028\n"));
    let quiet = icecore(&["diff", &dir, "--from", "-1", "-q"]);
    assert_eq!((quiet.code, quiet.out, quiet.err), (1, String::new(), String::new()));
}

/// As `diff` and `git diff` end, which a closed pipe kills: whatever they are taken for, it is not "the same".
#[test]
fn states_whose_differences_nobody_reads_differ_all_the_same() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    for _ in 0..8 {
        let mut command = command(&["diff", &dir, "--from", "-1"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(1), &b""[..]));
    }
}

#[test]
fn two_archives_are_compared_in_all_their_domains() {
    let (place, other) = (Place::new(), Place::new());
    let dir = archive(&place, 4, &forty_blocks());
    let lines = forty_blocks() + &line(41, "a", Some("new")) + &line(42, "z", Some("\u{1b}"));
    let longer = archive(&other, 16, &lines);
    let same = icecore(&["diff", &dir, &longer, "--at", "40", "-v"]).ok();
    assert_eq!(same.out, "");
    assert!(same.err.contains("0 keys differ of 2"), "{}", same.err);
    let run = icecore(&["diff", &dir, &longer]);
    assert_eq!((run.code, run.out.as_str()), (1, "+\tkv\ta\tnew\n+\tkv\tz\t0x1b\n"));
    assert_eq!(icecore(&["diff", &longer, &dir, "--from", "41", "-d", "kv"]).out, "-\tkv\ta\tnew\n");

    let two = place.text("two.ice");
    icecore(&["create", &two, "--domain", "kv,other", "--blocks-per-step", "4"]).ok();
    let lines = forty_blocks().replace("\"block\"", "\"domain\":\"kv\",\"block\"")
        + "{\"block\":40,\"domain\":\"other\",\"key\":\"k\",\"value\":\"v\"}\n";
    icecore(&["ingest", &two, &place.file("two.jsonl", lines), "--format", "jsonl"]).ok();
    assert_eq!(icecore(&["diff", &dir, &two]).out, "+\tother\tk\tv\n");
    assert_eq!(icecore(&["diff", &two, &dir]).out, "-\tother\tk\tv\n");
    icecore(&["diff", &two, &dir, "--domain", "kv"]).ok();
}

#[test]
fn what_cannot_be_compared_is_no_difference() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    icecore(&["diff", &dir]).fails(2, "one archive needs two heights");
    icecore(&["diff", &dir, &dir, "--at", "3", "--to", "4"]).fails(2, "cannot be used with");
    icecore(&["diff", &dir, &dir, "--at", "41"]).fails(3, "blocks 1 to 40");
    icecore(&["diff", &dir, &dir, "--domain", "x"]).fails(2, "unknown domain");
    icecore(&["diff", &dir, &place.text("none")]).fails(2, "no archive at");
    let segment = crate::driver::files_of(&dir).into_iter().find(|(path, _)| {
        path.extension().is_some_and(|e| e == "kv")
            && path.file_name().unwrap().to_str().unwrap().starts_with("kv.")
    });
    let (path, mut bytes) = segment.unwrap();
    bytes[4096 + 100] ^= 1;
    std::fs::write(path, bytes).unwrap();
    icecore(&["diff", &dir, "--from", "1"]).fails(4, "data-page");
}
