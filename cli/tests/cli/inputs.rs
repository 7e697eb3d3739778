//! `icecore ingest` with several files, and with blocks that are in already.

use std::fmt::Write;

use serde_json::json;

use crate::driver::{Place, Run, forty_blocks, icecore, icecore_reading, line};

const A: &str = "0x00000961ef480eb55e80d19ad83579a64c007002";

fn ingest(dir: &str, files: &[&str], format: &str, more: &[&str]) -> Run {
    icecore(&[&["ingest", dir][..], files, &["--format", format], more].concat())
}

/// What one field of an account does over fifty blocks, as exporters write it.
fn dataset(field: &str) -> String {
    let mut lines = String::new();
    for block in 1..=50 {
        let slot = if field == "storage" { format!(",\"slot\":\"{:#x}\"", block % 7) } else { String::new() };
        writeln!(
            lines,
            "{{\"block\":{block},\"address\":\"{A}\",\"field\":\"{field}\"{slot},\"value\":\"{block:#x}\"}}"
        )
        .unwrap();
    }
    lines
}

#[test]
fn parts_of_the_same_blocks_are_no_repetition() {
    let place = Place::new();
    let (balances, storage) =
        (place.file("balances.jsonl", dataset("balance")), place.file("storage.jsonl", dataset("storage")));
    let apart = place.text("apart.ice");
    ingest(&apart, &[&balances], "eth-changes", &["--create"]).ok();
    let refused = ingest(&apart, &[&storage], "eth-changes", &[])
        .fails(2, "block 1 is in the archive already and differs");
    assert!(refused.err.contains(&format!("key {A}{:064x} of storage", 1)), "{}", refused.err);
    assert!(refused.err.contains("storage.jsonl:1, no change of it in the archive"), "{}", refused.err);
    assert!(refused.err.contains("go into one `icecore ingest`"), "{}", refused.err);
    ingest(&apart, &[&balances], "eth-changes", &[]).ok();

    let together = place.text("together.ice");
    ingest(&together, &[&balances, &storage], "eth-changes", &["--create"]).ok();
    let key = format!("{A}{:064x}", 3);
    for (domain, key, value) in [("balance", A, "0x11"), ("storage", &key, &format!("0x{:064x}", 17))] {
        let got = icecore(&["get", &together, key, "--domain", domain, "--at", "17"]).ok();
        assert_eq!(got.out.trim(), value);
    }
    // In any order, from standard input too, and again.
    let again = icecore_reading(
        &["ingest", &together, &storage, "-", "--format", "eth-changes", "--json"],
        dataset("balance").as_bytes(),
    );
    let told = again.ok().json();
    assert_eq!((&told["blocks"], &told["blocks_skipped"]), (&json!(0), &json!(50)));
    let less = ingest(&together, &[&storage], "eth-changes", &[]).fails(2, "block 1 is in the archive");
    assert!(less.err.contains(&format!("key {A} of balance: no change of it in")), "{}", less.err);
    icecore(&["verify", &together]).ok();
}

#[test]
fn a_block_that_differs_is_named_wherever_it_lies() {
    let place = Place::new();
    let file = place.file("input.jsonl", forty_blocks());
    for step in ["4", "1000"] {
        let dir = place.text(&format!("{step}.ice"));
        ingest(&dir, &[&file], "jsonl", &["--create", "--blocks-per-step", step, "--reorg-window", "0"]).ok();
        for (block, from, to, told) in [
            (20, "\"v20\"", "\"other\"", "key k of kv: other in"),
            (20, "\"key\":\"gone\"", "\"key\":\"kept\"", "key kept of kv: a deletion in"),
            (39, "\"key\":\"k\"", "\"key\":\"l\"", "key l of kv: v39 in"),
        ] {
            let of_block = format!("{{\"block\":{block},");
            let changed = forty_blocks().lines().fold(String::new(), |all, line| {
                let line = if line.starts_with(&of_block) { line.replace(from, to) } else { line.to_owned() };
                all + &line + "\n"
            });
            let other = place.file("other.jsonl", changed);
            let refused = ingest(&dir, &[&other], "jsonl", &["--json"]).fails(2, told);
            let error: serde_json::Value = serde_json::from_str(&refused.err).unwrap();
            assert_eq!((&error["error"]["block"], &*refused.out), (&json!(block), ""));
        }
        let gap = place.file("gap.jsonl", line(1, "k", Some("v1")) + "{\"block\":41}\n{\"block\":43}\n");
        ingest(&dir, &[&gap], "jsonl", &[]).ok();
        let filled = place.file("filled.jsonl", "{\"block\":42}\n");
        ingest(&dir, &[&filled], "jsonl", &[])
            .fails(2, "block 42 lies below the head (43) and cannot be inserted");
        icecore(&["prune", &dir, "--before", "10"]).ok();
        let pruned = ingest(&dir, &[&file], "jsonl", &[]).ok();
        assert!(pruned.err.contains("9 blocks below the first"), "{}", pruned.err);
        assert_eq!(icecore(&["stats", &dir, "--json"]).ok().json()["head"], 43);
    }
}

#[test]
fn values_that_contradict_each_other_are_told_with_both_places() {
    let place = Place::new();
    let (a, b) =
        (place.file("a.jsonl", line(1, "k", Some("v")) + &line(2, "k", Some("v"))), place.text("b.jsonl"));
    place.file("b.jsonl", line(1, "l", Some("v")) + &line(2, "k", Some("w")));
    let dir = place.text("a.ice");
    let refused = ingest(&dir, &[&a, &b], "jsonl", &["--create"])
        .fails(2, "b.jsonl:2: block 2 has two values for key k: w here, v in ");
    assert!(
        refused.err.contains("a.jsonl:2\n") && refused.err.contains("blocks up to 1 are in"),
        "{}",
        refused.err
    );
    ingest(&dir, &["-", "-"], "jsonl", &[]).fails(2, "can be read once only");
}

/// A reply of geth without a block.
fn reply(id: u64, value: u64) -> String {
    format!(
        r#"{{"id":{id},"result":[{{"result":{{"pre":{{}},"post":{{"{A}":{{"balance":"{value:#x}"}}}}}}}}]}}"#
    )
}

#[test]
fn a_bare_reply_has_no_height() {
    let place = Place::new();
    let files: Vec<_> = (1..=3).map(|n| place.file(&format!("{n}.json"), reply(1, n))).collect();
    let files: Vec<_> = files.iter().map(String::as_str).collect();
    let dir = place.text("eth.ice");
    let create = ["--create", "--first-block", "0x64"];
    for files in [&files[..1], &files[..]] {
        ingest(&dir, files, "geth-diff", &["--create"]).fails(2, "--first-block N");
        assert!(!place.path("eth.ice").exists(), "nothing is made of it");
    }
    let wrapped =
        place.file("w.jsonl", format!("{{\"block\":7,\"response\":{}}}\n{}\n", reply(1, 1), reply(2, 2)));
    ingest(&dir, &[&wrapped], "geth-diff", &["--create"]).fails(2, "w.jsonl:2: a bare reply does not say");
    let dir = place.text("numbered.ice");
    ingest(&dir, &files, "geth-diff", &create).ok();
    for at in [100, 101, 102] {
        let got = icecore(&["get", &dir, A, "--domain", "balance", "--at", &at.to_string()]).ok();
        assert_eq!(got.out.trim(), format!("0x{:02x}", at - 99));
    }
}

#[test]
fn storage_that_went_with_its_account_compares_as_the_same() {
    let place = Place::new();
    let trace = |block: u64, pre: &str, post: &str| {
        format!(r#"{{"block":{block},"response":{{"result":[{{"result":{{"pre":{pre},"post":{post}}}}}]}}}}"#)
            + "\n"
    };
    let born = format!(r#"{{"{A}":{{"nonce":1,"code":"0x60","storage":{{"0x1":"0x7","0x2":"0x8"}}}}}}"#);
    let gone = format!(r#"{{"{A}":{{"balance":"0x0","nonce":1,"code":"0x60"}}}}"#);
    let file = place.file(
        "t.jsonl",
        [trace(5, "{}", &born), trace(6, &gone, "{}"), trace(7, "{}", &born), trace(9, &gone, "{}")].concat(),
    );
    for step in ["1", "100"] {
        let dir = place.text(&format!("{step}.ice"));
        let create = ["--create", "--blocks-per-step", step, "--reorg-window", "0"];
        ingest(&dir, &[&file], "geth-diff", &create).ok();
        let told = ingest(&dir, &[&file], "geth-diff", &["--json"]).ok().json();
        assert_eq!((&told["blocks_skipped"], &told["blocks_not_compared"]), (&json!(4), &json!(0)));
        let lives = place.file("lives.jsonl", trace(6, &gone, &format!(r#"{{"{A}":{{"balance":"0x1"}}}}"#)));
        ingest(&dir, &[&lives], "geth-diff", &[]).fails(2, "block 6 is in the archive already and differs");
    }
}

#[test]
fn no_archive_is_made_of_input_that_cannot_be_read() {
    let place = Place::new();
    let dir = place.text("a.ice");
    let good = place.file("good.jsonl", line(1, "k", Some("v")));
    let bad = place.file("bad.jsonl", "nonsense\n");
    for (files, code) in
        [(&[&*place.text("none")][..], 7), (&[&good, &bad], 2), (&[&good, &place.text("none")], 7)]
    {
        ingest(&dir, files, "jsonl", &["--create"]).fails(code, "no block is in");
        assert!(!place.path("a.ice").exists());
    }
    ingest(&dir, &[&good], "jsonl", &["--create"]).ok();
}

#[test]
fn keys_of_another_shape_are_no_absent_keys() {
    let place = Place::new();
    let made = place.text("eth.ice");
    let file = place.file("e.jsonl", dataset("balance"));
    ingest(&made, &[&file], "eth-changes", &["--create"]).ok();
    // Domains without declared lengths, as earlier versions made them.
    let old = place.text("old.ice");
    let lines = format!("{{\"block\":1,\"domain\":\"balance\",\"key\":\"{A}\",\"value\":\"0x01\"}}\n");
    let old_file = place.file("o.jsonl", lines);
    let domains = ["--domain", "balance", "--domain", "nonce", "--domain", "code", "--domain", "storage"];
    ingest(&old, &[&old_file], "jsonl", &[&["--create"][..], &domains].concat()).ok();
    for dir in [&made, &old] {
        icecore(&["get", dir, A, "-d", "balance"]).ok();
        for (key, domain, told) in [
            (
                &A[2..],
                "balance",
                "keys of 20 bytes, 0x and 40 digits; this one has 40 bytes and does not begin with 0x",
            ),
            (A, "storage", "keys of 52 bytes, 0x and 104 digits; this one has 20 bytes"),
            (&format!("{A}00"), "balance", "keys of 20 bytes, 0x and 40 digits; this one has 21 bytes"),
        ] {
            icecore(&["get", dir, key, "--domain", domain]).fails(2, told);
            icecore(&["history", dir, key, "--domain", domain]).fails(2, told);
            icecore(&["prove", dir, key, "--domain", domain]).fails(2, told);
            let request = json!({ "get": { "domain": domain, "key": key } }).to_string();
            let answer = icecore_reading(&["query", dir], request.as_bytes()).ok().json();
            assert!(answer["error"].as_str().unwrap().contains(told), "{answer}");
        }
        icecore(&["scan", dir, "-d", "storage", "--prefix", &A[2..]])
            .fails(2, "prefix: storage has keys of 52 bytes");
        icecore(&["scan", dir, "-d", "storage", "--prefix", A]).ok();
        let short =
            format!("{{\"block\":60,\"domain\":\"nonce\",\"key\":\"{}\",\"value\":\"0x01\"}}\n", &A[..40]);
        let short = place.file("short.jsonl", short);
        ingest(dir, &[&short], "jsonl", &[]).fails(2, "short.jsonl:1: key: nonce has keys of 20 bytes");
    }
    let declared = place.text("declared.ice");
    icecore(&["create", &declared, "--domain", "a:3"]).ok();
    let file = place.file("d.jsonl", line(1, "abc", Some("v")) + &line(2, "abcd", Some("v")));
    ingest(&declared, &[&file], "jsonl", &[]).fails(2, "d.jsonl:2: key: a has keys of 3 bytes");
    icecore(&["create", &place.text("x"), "--domain", "a:b"]).fails(2, "length of the keys");
}
