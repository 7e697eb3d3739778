//! The verbs that read: what they print, and the exit codes.

use serde_json::json;

use crate::driver::{Place, archive, command, forty_blocks, icecore, icecore_reading, line, verbs};

#[test]
fn create_makes_an_archive_once() {
    let place = Place::new();
    let dir = place.text("new.ice");
    let made =
        icecore(&["create", &dir, "--domain", "a", "--domain", "b", "--blocks-per-step", "16", "--json"])
            .ok();
    assert_eq!(made.json()["blocks_per_step"], 16);
    assert_eq!(made.json()["reorg_window"], 64);
    assert_eq!(made.json()["snapshot_every"], json!(null));
    let every =
        |blocks| icecore(&["create", &place.text(blocks), "--domain", "a", "--snapshot-every", blocks]);
    assert!(every("32").ok().out.contains("snapshots: 32"));
    assert!(every("off").ok().out.contains("snapshots: off"));
    every("0").fails(2, "must be a number of blocks, or off");
    assert_eq!(icecore(&["stats", &place.text("32"), "--json"]).ok().json()["snapshot_every"], 32);
    icecore(&["create", &dir, "--domain", "a"]).fails(2, "exists and is not empty");
    icecore(&["create", &place.text("x"), "--domain", "../a"]).fails(2, "option domain");
    icecore(&["create", &place.text("x")]).fails(2, "--domain");
    icecore(&["create", &place.text("x"), "--domain", "a", "--blocks-per-step", "0"])
        .fails(2, "0 is not in 1..");
    let stats = icecore(&["stats", &dir, "--json"]).ok().json();
    assert_eq!((&stats["head"], &stats["domains"]), (&json!(null), &json!(["a", "b"])));
    icecore(&["get", &dir, "k", "--domain", "a"]).fails(3, "the archive has no block");
    icecore(&["get", &dir, "k"]).fails(2, "name one: a, b");
    icecore(&["ls", &dir]).ok();
}

#[test]
fn get_reads_at_every_height() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    for (at, value) in [("1", "v1"), ("17", "v17"), ("40", "v40")] {
        assert_eq!(icecore(&["get", &dir, "k", "--at", at]).ok().out, format!("{value}\n"));
    }
    assert_eq!(icecore(&["get", &dir, "k"]).ok().out, "v40\n");
    let found = icecore(&["get", &dir, "even", "--at", "17", "--json"]).ok().json();
    assert_eq!(found["value"], "0x0010");
    assert_eq!((&found["block"], &found["at"], &found["source"]), (&json!(16), &json!(17), &json!("kv.4-5")));
    assert_eq!(icecore(&["get", &dir, "0x6b"]).ok().out, "v40\n", "the same key");
    assert_eq!(icecore(&["get", &dir, "k", "--raw"]).ok().out, "v40");
    icecore(&["get", &dir, "gone", "--at", "9"]).fails(1, "no value");
    assert_eq!(icecore(&["get", &dir, "gone", "--at", "19"]).ok().out, "here\n");
    let gone = icecore(&["get", &dir, "gone", "--json"]);
    assert_eq!(
        (gone.code, gone.json()["value"].is_null(), gone.json()["block"].clone()),
        (1, true, json!(20))
    );
    icecore(&["get", &dir, "k", "--at", "41"]).fails(3, "the archive has blocks 1 to 40");
    icecore(&["get", &dir, "k", "--at", "0"]).fails(3, "blocks 1 to 40");
    icecore(&["get", &dir, "k", "--domain", "other"]).fails(2, "unknown domain");
    icecore(&["get", &dir, "0xz", "--at", "3"]).fails(2, "key: ");
    icecore(&["get", &place.text("nowhere"), "k"]).fails(2, "no archive at");
}

#[test]
fn scan_goes_both_ways() {
    let place = Place::new();
    let lines: String =
        ["a", "b/1", "b/2", "b/3", "c"].map(|key| line(7, key, Some(&format!("={key}")))).concat();
    let dir = archive(&place, 1, &(lines + &line(9, "b/2", None) + &line(9, "d", Some("0xff"))));
    let keys = |args: &[&str]| {
        let run = icecore(&[&["scan", &dir][..], args].concat()).ok();
        run.out.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(keys(&[]), ["a", "b/1", "b/3", "c", "d"]);
    assert_eq!(keys(&["--prefix", "b/", "--at", "8"]), ["b/1", "b/2", "b/3"]);
    assert_eq!(keys(&["--from", "b/2", "--to", "d", "--reverse"]), ["c", "b/3"]);
    assert_eq!(keys(&["--limit", "2"]), ["a", "b/1"]);
    assert_eq!(keys(&["--prefix", "0x622f"]), ["0x622f31", "0x622f33"]);
    let json = icecore(&["scan", &dir, "--from", "c", "--json"]).ok();
    assert_eq!(json.json_lines(), [json!(["c", "=c"]), json!(["d", "0xff"])]);
    assert_eq!(icecore(&["scan", &dir, "--prefix", "none"]).ok().out, "");
    icecore(&["scan", &dir, "--limit", "-1"]).fails(2, "\"-1\" is not a whole number");
}

#[test]
fn history_is_newest_first() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    assert_eq!(icecore(&["history", &dir, "gone"]).ok().out, "20\t-\n10\there\n");
    let json = icecore(&["history", &dir, "gone", "--json", "--at", "19"]).ok().json();
    assert_eq!(json, json!({ "versions": [[10, "here"]] }));
    assert_eq!(icecore(&["history", &dir, "k"]).ok().out.lines().count(), 40);
    icecore(&["history", &dir, "never"]).fails(1, "\"never\" has no version in kv");
    icecore(&["history", &dir, "abcd"]).fails(1, "the bytes of these digits are 0xabcd");
    let quiet = icecore(&["history", &dir, "never", "--quiet"]).fails(1, "");
    assert_eq!(quiet.err, "");
}

#[test]
fn a_proof_travels() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let root = icecore(&["root", &dir, "--at", "17"]).ok().out;
    let root = root.trim();
    assert_eq!(icecore(&["root", &dir, "--at", "17", "--json"]).ok().json()["root"], root);
    for (key, value) in [("k", json!("0x763137")), ("never", json!(null)), ("gone", json!("0x68657265"))] {
        let proof = icecore(&["prove", &dir, key, "--at", "17"]).ok();
        assert_eq!((&proof.json()["value"], &proof.json()["root"]), (&value, &json!(root)));
        let file = place.file("proof.json", &proof.out);
        icecore(&["verify-proof", &file, "--root", root]).ok();
        icecore_reading(&["verify-proof"], proof.out.as_bytes()).ok();
        let other = icecore(&["root", &dir, "--at", "18"]).ok().out;
        let refused = icecore(&["verify-proof", &file, "--root", other.trim(), "--json"]);
        assert_eq!((refused.code, refused.json()["verified"].clone()), (1, json!(false)));
        for (field, forged) in [("value", json!("0x00")), ("key", json!("0x01")), ("domain", json!("x"))] {
            let mut document = proof.json();
            document[field] = forged;
            assert_eq!(
                icecore_reading(&["verify-proof", "-"], document.to_string().as_bytes()).code,
                1,
                "{field}"
            );
        }
    }
    icecore_reading(&["verify-proof"], b"{}").fails(2, "this is not a proof");
    icecore_reading(&["verify-proof"], b"").fails(2, "this is not a proof");
    let mut document = icecore(&["prove", &dir, "k"]).ok().json();
    document["proof"] = json!("0x0000");
    assert_eq!(icecore_reading(&["verify-proof"], document.to_string().as_bytes()).code, 1);
}

#[test]
fn a_checked_proof_says_what_it_showed() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let root = icecore(&["root", &dir, "--at", "17"]).ok().out.trim().to_owned();
    for (key, claim) in [("k", "key k of kv has the value v17"), ("never", "key never of kv is absent")] {
        let proof = icecore(&["prove", &dir, key, "--at", "17"]).ok();
        let told = icecore_reading(&["verify-proof", "--root", &root], proof.out.as_bytes()).ok().out;
        assert!(told.starts_with("verified\n"), "{told}");
        for part in [claim, "17 (claimed by the file, not checked)", &root, "(given)"] {
            assert!(told.contains(part), "{part}: {told}");
        }
        let json = icecore_reading(&["verify-proof", "--json"], proof.out.as_bytes()).ok().json();
        let document = proof.json();
        for field in ["domain", "key", "value", "root"] {
            assert_eq!(json[field], document[field], "{field}");
        }
        assert_eq!((&json["claimed_block"], &json["block"]), (&document["block"], &json!(null)));
        assert_eq!((&json["verified"], &json["root_given"]), (&json!(true), &json!(false)));
        let told = icecore_reading(&["verify-proof"], proof.out.as_bytes()).ok().out;
        assert!(
            told.starts_with("consistent with its own root; not checked against a root you trust: --root\n"),
            "{told}"
        );
        let mut renamed = document.clone();
        renamed["root"] = json!(format!("0x{}", "11".repeat(32)));
        let told =
            icecore_reading(&["verify-proof", "--root", &root], renamed.to_string().as_bytes()).ok().out;
        assert!(
            told.starts_with("verified\n") && told.contains("the file names another root, 0x1111"),
            "{told}"
        );
        let args = ["verify-proof", "--root", &root, "--json"];
        let json = icecore_reading(&args, renamed.to_string().as_bytes()).ok().json();
        assert_eq!((&json["claimed_root"], &json["root"]), (&renamed["root"], &json!(root)));
        let forged = proof.out.replace("\"kv\"", "\"kw\"");
        let told = icecore_reading(&["verify-proof", "--root", &root], forged.as_bytes());
        assert!(
            told.code == 1 && told.out.starts_with("not verified: ") && told.out.contains(&root),
            "{}",
            told.out
        );
    }
    for (text, told) in [
        (
            "{\"domain\":7}",
            "-:1: this is not a proof: this is the number \"7\", expected a string (column 11)",
        ),
        ("\n\n{\"domain\":\"a\",\n\"key\":[]}", "-:4: this is not a proof: this is an array"),
        (
            "{\"domain\":\"a\",\"key\":\"0xzz\",\"value\":null,\"block\":1,\"root\":\"0x\",\"proof\":\"0x\"}",
            "-:1: this is not a proof: key: \"0xzz\" is not hex",
        ),
    ] {
        icecore_reading(&["verify-proof"], text.as_bytes()).fails(2, told);
    }
}

#[test]
fn nothing_that_somebody_else_wrote_steers_the_terminal() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let mut document = icecore(&["prove", &dir, "k"]).ok().json();
    document["domain"] = json!("k\u{1b}[31mv");
    let told = icecore_reading(&["verify-proof"], document.to_string().as_bytes());
    assert!(told.code == 1 && told.out.contains(r"k\u{1b}[31mv"), "{}", told.out);
    document["\u{1b}[2J"] = json!(1);
    icecore_reading(&["verify-proof"], document.to_string().as_bytes()).fails(2, r"\u{1b}[2J");
    icecore(&["get", "no\u{7}where", "k"]).fails(2, r"no\u{7}where");
}

#[test]
fn quiet_says_nothing_beside_answers_and_verbose_says_more() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let again = ["ingest", &dir, &place.text("input.jsonl"), "--format", "jsonl"];
    assert!(icecore(&again).ok().out.contains("passed over"));
    let runs = [
        (&again[..], ""),
        (&["get", &dir, "k"], "v40\n"),
        (&["merge", &dir], ""),
        (&["verify", &dir], ""),
        (&["prune", &dir, "--before", "9"], ""),
        (&["unwind", &dir, "--to", "39"], ""),
    ];
    for (args, expected) in runs {
        let run = icecore(&[args, &["--quiet"]].concat()).ok();
        assert_eq!((run.out.as_str(), run.err.as_str()), (expected, ""), "{args:?}");
    }
    icecore(&["-q", "get", &dir, "k", "--at", "90"]).fails(3, "out of range");
    let told = icecore(&["get", &dir, "even", "-v", "--at", "12"]).ok();
    assert_eq!(told.out, "0x000c\n");
    assert!(told.err.contains("note: 1 lookup") && told.err.contains("data page"), "{}", told.err);
    let told = icecore(&["-v", "reindex", &dir, "--rebuild"]).ok().err;
    assert!(told.contains("kv.") && told.contains(" s\n"), "{told}");
    icecore(&["get", &dir, "k", "-q", "-v"]).fails(2, "cannot be used with");
}

#[test]
fn heights_are_written_as_people_write_them() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    for (at, value) in [("latest", "v40"), ("-10", "v30"), ("0x11", "v17"), ("1_7", "v17"), ("-0", "v40")] {
        assert_eq!(icecore(&["get", &dir, "k", "--at", at]).ok().out.trim(), value, "{at}");
        assert_eq!(
            icecore(&["scan", &dir, "--at", at, "--prefix", "k"]).ok().out.trim(),
            format!("k\t{value}")
        );
        assert_eq!(
            icecore(&["history", &dir, "k", "--at", at]).ok().out.lines().next().unwrap()[3..],
            *value
        );
        let root = icecore(&["root", &dir, "--at", at, "--json"]).ok().json();
        assert_eq!(root["at"].to_string(), value[1..]);
        assert_eq!(icecore(&["prove", &dir, "k", "--at", at]).ok().json()["block"], root["at"]);
    }
    icecore(&["get", &dir, "k", "--at", "-41"]).fails(3, "the newest block is 40");
    icecore(&["get", &dir, "k", "--at", "-40"]).fails(3, "blocks 1 to 40");
    icecore(&["get", &dir, "k", "--at", "newest"]).fails(2, "\"newest\" is not a height");
    icecore(&["reindex", &dir, "--index-budget", "10 apples"]).fails(2, "is not a size");
    icecore(&["reindex", &dir, "--index-budget", "100MB"]).ok();
}

#[test]
fn under_json_errors_are_json_too() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let nowhere = place.text("nowhere");
    for (args, code, kind, told) in [
        (&["get", &dir, "k", "--at", "41", "--json"][..], 3, "out_of_range", "blocks 1 to 40"),
        (&["get", &dir, "k", "--at", "x", "--json"], 2, "usage", "is not a height"),
        (&["get", "--json"], 2, "usage", "required arguments"),
        (&["stats", &nowhere, "--json"], 2, "usage", "no archive at"),
        (&["create", &dir, "--domain", "a", "--json"], 2, "usage", "exists"),
    ] {
        let run = icecore(args).fails(code, told);
        assert_eq!(run.out, "", "{args:?}");
        assert_eq!(run.err.lines().count(), 1, "{}", run.err);
        let error: serde_json::Value = serde_json::from_str(&run.err).unwrap();
        assert_eq!((&error["error"]["kind"], &error["error"]["code"]), (&json!(kind), &json!(code)));
        assert!(error["error"]["message"].as_str().unwrap().contains(told), "{error}");
    }
    for verb in verbs() {
        let run = icecore(&[&verb, "--json", "--no-such-option"]).fails(2, "unexpected argument");
        let error: serde_json::Value = serde_json::from_str(&run.err).unwrap();
        assert_eq!((run.out, &error["error"]["kind"]), (String::new(), &json!("usage")), "{verb}");
    }
    assert!(icecore(&["get", "--", "--json"]).err.starts_with("error: "), "a key is no option");
}

#[test]
fn an_entry_of_text_is_one_line() {
    let place = Place::new();
    let lines: String =
        [("a\nb", "x\ty\\"), ("esc\u{1b}[2J", "v")].map(|(key, value)| line(1, key, Some(value))).concat();
    let dir = archive(&place, 4, &lines);
    assert_eq!(icecore(&["scan", &dir]).ok().out, "0x610a62\t0x7809795c\n0x6573631b5b324a\tv\n");
    let text = |args: &[&str]| icecore(&[args, &["--encoding", "text"]].concat()).ok();
    assert_eq!(text(&["scan", &dir]).out, "a\\nb\tx\\ty\\\\\nesc\\u{1b}[2J\tv\n");
    assert_eq!(text(&["get", &dir, "a\nb"]).out, "x\\ty\\\\\n");
    assert_eq!(text(&["get", &dir, "a\nb", "--raw"]).out, "x\ty\\");
    assert_eq!(text(&["history", &dir, "a\nb"]).out, "1\tx\\ty\\\\\n");
    assert_eq!(text(&["scan", &dir, "--json", "-n", "1"]).json(), json!(["a\nb", "x\ty\\"]));
}

#[test]
fn a_proof_at_a_snapshot_is_the_same_and_tells_its_cost() {
    let place = Place::new();
    let (plain, kept) = (archive(&place, 4, &forty_blocks()), place.text("kept.ice"));
    let file = place.file("blocks.jsonl", forty_blocks());
    let create = ["ingest", &kept, &file, "--format", "jsonl", "--create", "--snapshot-every"];
    let shape = ["--blocks-per-step", "4", "--reorg-window", "0"];
    icecore(&[&create[..], &["10"], &shape].concat()).ok();
    icecore(&[&create[..], &["11"], &shape].concat()).fails(2, "created with 10");
    for (at, source) in [("20", "from the snapshot"), ("17", "rebuilt from the whole state")] {
        for key in ["k", "never"] {
            let expected = icecore(&["prove", &plain, key, "--at", at]).ok();
            let proof = icecore(&["prove", &kept, key, "--at", at, "--cost"]).ok();
            assert_eq!((proof.out, expected.err), (expected.out, String::new()));
            assert!(proof.err.contains(source), "{}", proof.err);
        }
    }
}

#[test]
fn an_archive_by_path_answers_as_one_by_key() {
    let place = Place::new();
    let (plain, by_path) = (archive(&place, 4, &forty_blocks()), place.text("path.ice"));
    let file = place.file("blocks.jsonl", forty_blocks());
    let ingest =
        ["ingest", &by_path, &file, "--format", "jsonl", "--create", "--by-path", "--blocks-per-step", "4"];
    icecore(&ingest).ok();
    icecore(&ingest).ok();
    icecore(&["ingest", &plain, &file, "--format", "jsonl", "--create", "--by-path"])
        .fails(2, "--by-path: the archive was created with domains by key");
    assert_eq!(icecore(&["rows", &by_path]).ok().out, "rows at every block\n");
    let sorted = |dir: &str, more: &[&str]| {
        let out = icecore(&[&["scan", dir], more].concat()).ok().out;
        let mut lines: Vec<String> = out.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    for more in [&[][..], &["--prefix", "k"], &["--at", "9"]] {
        assert_eq!(sorted(&by_path, more), sorted(&plain, more), "{more:?}");
    }
    icecore(&["scan", &by_path, "--from", "k"]).fails(2, "kept by path and not by key");
    for key in ["k", "never"] {
        let expected = icecore(&["prove", &plain, key, "--at", "17"]).ok();
        assert_eq!(icecore(&["prove", &by_path, key, "--at", "17"]).ok().out, expected.out);
        assert_eq!(icecore(&["history", &by_path, key]).out, icecore(&["history", &plain, key]).out);
    }
    let differing = |dir: &str| {
        let out = icecore(&["diff", dir, "--from", "3", "--to", "30"]).out;
        let mut lines: Vec<String> = out.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(differing(&by_path), differing(&plain));
    icecore(&["diff", &by_path, &plain]).fails(2, "different orders");
    let made =
        icecore(&["create", &place.text("c.ice"), "-d", "a", "--by-path", "--rows", "off", "--json"]).ok();
    assert_eq!((&made.json()["by_path"], &made.json()["rows"]), (&json!(true), &json!(false)));
    icecore(&["create", &place.text("d.ice"), "-d", "a", "--by-path", "--snapshot-every", "4"])
        .fails(2, "rows at every block instead of snapshots");
}

#[test]
fn help_has_examples_and_usage_is_code_2() {
    for verb in verbs() {
        let help = icecore(&[&verb, "--help"]).ok().out;
        assert!(help.contains("Example") && help.contains(&format!("icecore {verb}")), "{verb}: {help}");
    }
    assert!(icecore(&["ingest", "--help"]).out.contains("withdrawals"));
    icecore(&[]).fails(2, "Usage");
    icecore(&["melt"]).fails(2, "melt");
    icecore(&["--version"]).ok();
}

#[test]
fn every_verb_has_a_manual_page() {
    let place = Place::new();
    let dir = place.text("man/man1");
    icecore(&["man", &dir]).ok();
    let page = |name: &str| std::fs::read_to_string(std::path::Path::new(&dir).join(name)).unwrap();
    for verb in verbs() {
        let page = page(&format!("icecore-{verb}.1")).replace("\\-", "-");
        assert!(page.contains(".SH OPTIONS") && page.contains("\n.nf\n"), "{verb}");
        let (_, examples) = page.split_once("Examples:\n  ").unwrap();
        assert!(examples.contains(&format!("icecore {verb}")), "{verb}: {examples}");
    }
    assert!(page("icecore.1").contains("verify\\-proof"));
    icecore(&["man", &place.file("file", "")]).fails(7, "cannot create");
}

#[test]
fn completions_are_scripts() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(icecore(&["completions", shell]).ok().out.contains("verify-proof"), "{shell}");
    }
    icecore(&["completions", "csh"]).fails(2, "csh");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::new();
    let lines: String =
        (0..20_000).map(|key| line(1, &format!("key {key:06}"), Some(&"x".repeat(50)))).collect();
    let dir = archive(&place, 1, &lines);
    let mut child = command(&["scan", &dir])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_code_6() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command(&["scan", &dir]).stdout(full).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(6), "{told}");
    assert!(told.contains("cannot write standard output") && told.contains("free some space"), "{told}");
}

#[test]
fn demo_does_the_main_job() {
    let place = Place::new();
    let dir = place.text("demo.ice");
    let told = icecore(&["demo", "--dir", &dir]).ok().out;
    for word in
        ["ingest", "segments", "read", "prove", "merge", "reindex", "again", "speed", "All of it checked"]
    {
        assert!(told.contains(word), "{word}: {told}");
    }
    icecore(&["verify", &dir]).ok();
    icecore(&["demo", "--dir", &dir]).fails(2, "exists");
    let figures = icecore(&["demo", "--json"]).ok().json();
    assert_eq!(figures["ingest"]["blocks"], 4096);
}

#[test]
fn rows_are_chosen_at_creation() {
    let place = Place::new();
    let (with, without) = (place.text("with.ice"), place.text("without.ice"));
    let made = icecore(&["create", &with, "--profile", "ethereum", "--json"]).ok().json();
    assert_eq!((&made["rows"], &made["commitment"]), (&json!(true), &json!("ethereum")));
    let made = icecore(&["create", &without, "--profile", "ethereum", "--rows", "off", "--json"]).ok().json();
    assert_eq!(made["rows"], json!(false));
    icecore(&["create", &place.text("c.ice"), "-d", "a", "--rows", "off"]).fails(2, "--profile");
    let feed = place.text("none.jsonl");
    std::fs::write(&feed, "").unwrap();
    let again = ["--format", "eth-changes", "--create", "--profile", "ethereum", "--rows", "on"];
    icecore(&[&["ingest", &without, &feed][..], &again].concat())
        .fails(2, "--rows on: the archive was created with off");
    icecore(&[&["ingest", &with, &feed][..], &again].concat()).ok();
}
