//! What a user sees of an archive of the profile ethereum: accounts by their fields, and slots by the address of their account.

use serde_json::{Value, json};

use crate::driver::{Place, icecore, icecore_reading};

const A: &str = "0x1111111111111111111111111111111111111111";
const B: &str = "0x2222222222222222222222222222222222222222";

/// Account A is born in block 1, gets a code in 3, is destroyed in 5 and born again in 6; B only has a balance and a slot.
fn archive(place: &Place) -> String {
    let change = |block: u64, address: &str, field: &str, value: Value| json!({"block": block, "address": address, "field": field, "value": value});
    let slot = |block: u64, address: &str, value: &str| json!({"block": block, "address": address, "field": "storage", "slot": "0x1", "value": value});
    let feed = [
        change(1, A, "nonce", json!("0x1")),
        change(1, A, "balance", json!("0x3e8")),
        change(1, B, "balance", json!("0x5")),
        slot(1, B, "0xb"),
        change(2, A, "balance", json!("0x7d0")),
        change(3, A, "code", json!("0x6001")),
        slot(3, A, "0xa"),
        change(4, A, "nonce", json!("0x2")),
        change(5, A, "balance", Value::Null),
        change(5, A, "nonce", Value::Null),
        change(5, A, "code", Value::Null),
        json!({"block": 5, "address": A, "field": "storage", "slot": "0x1", "value": null}),
        change(6, A, "balance", json!("0x1")),
    ];
    let (dir, file) = (place.text("eth.ice"), place.text("feed.jsonl"));
    std::fs::write(&file, feed.map(|line| format!("{line}\n")).concat()).unwrap();
    icecore(&["ingest", &dir, &file, "--format", "eth-changes", "--create", "--profile", "ethereum"]).ok();
    dir
}

#[test]
fn the_history_of_a_field_has_the_blocks_that_changed_it() {
    let place = Place::new();
    let dir = archive(&place);
    let history = |domain: &str| icecore(&["history", &dir, A, "--domain", domain]).ok().out;
    assert_eq!(history("balance"), "6\t0x01\n5\t-\n2\t0x07d0\n1\t0x03e8\n");
    assert_eq!(history("nonce"), "6\t0x00\n5\t-\n4\t0x02\n1\t0x01\n");
    assert_eq!(history("code"), "5\t-\n3\t0x6001\n");
    let lines = history("account");
    assert_eq!(lines.lines().next(), Some("6\tnonce=0x0 balance=0x1"));
    assert!(
        lines.contains("1\tnonce=0x1 balance=0x3e8\n")
            && lines.contains("3\tnonce=0x1 balance=0x7d0 codeHash=0x")
    );
    assert_eq!(lines.lines().count(), 6, "{lines}");
    let at = icecore(&["history", &dir, A, "--domain", "balance", "--at", "4", "--json"]).ok().json();
    assert_eq!(at, json!({"versions": [[2, "0x07d0"], [1, "0x03e8"]]}));
    icecore(&["history", &dir, B, "--domain", "code"]).fails(1, "no version in code");
    icecore(&["history", &dir, A]).fails(2, "name one: account, code, storage, balance, nonce");
    let request = json!({"history": {"domain": "nonce", "key": A}});
    let answer = icecore_reading(&["query", &dir], format!("{request}\n").as_bytes()).ok().json();
    assert_eq!(answer, json!({"versions": [[6, "0x00"], [5, null], [4, "0x02"], [1, "0x01"]]}));
}

#[test]
fn blocks_clear_empty_accounts_from_the_one_named() {
    let place = Place::new();
    let (dir, other, file) = (place.text("eth.ice"), place.text("other.ice"), place.text("feed.jsonl"));
    let change = |block: u64, address: &str, balance: &str| {
        let line = json!({"block": block, "address": address, "field": "balance", "value": balance});
        format!("{line}\n")
    };
    let feed = [change(1, A, "0x0"), change(1, B, "0x1"), change(2, B, "0x0"), change(3, A, "0x0")];
    std::fs::write(&file, feed.concat()).unwrap();
    let made = ["--format", "eth-changes", "--create", "--profile", "ethereum"];
    icecore(&[&["ingest", &dir, &file][..], &made, &["--eip161-from", "2"]].concat()).ok();
    let accounts = |dir: &str, at: &str| {
        icecore(&["scan", dir, "--domain", "account", "--at", at]).ok().out.lines().count()
    };
    assert_eq!(["1", "2", "3"].map(|at| accounts(&dir, at)), [2, 1, 0]);
    icecore(&[&["ingest", &other, &file][..], &made].concat()).ok();
    assert_eq!(["1", "2", "3"].map(|at| accounts(&other, at)), [2, 2, 2]);
    // What was made by another rule is another chain.
    icecore(&["ingest", &other, &file, "--format", "eth-changes", "--eip161-from", "2"]).fails(2, "block 2");
    let plain = ["ingest", &place.text("a.ice"), &file, "--format", "eth-changes", "--create"];
    icecore(&[&plain[..], &["--eip161-from", "2"]].concat()).fails(2, "--eip161-from is for archives");
    icecore(&[&plain[..], &["--tree-memory", "1MiB"]].concat()).fails(2, "--tree-memory is for archives");
    assert!(icecore(&["stats", &dir]).ok().out.contains("commitment       ethereum"));
}

#[test]
fn an_account_is_shown_by_its_fields() {
    let place = Place::new();
    let dir = archive(&place);
    let get = ["get", &dir, B, "--domain", "account"];
    assert_eq!(icecore(&get).ok().out, "nonce=0x0 balance=0x5\n");
    let found = icecore(&[&get[..], &["--json"]].concat()).ok().json();
    assert_eq!((&found["value"]["balance"], &found["value"]["nonce"]), (&json!("0x5"), &json!("0x0")));
    assert!(icecore(&[&get[..], &["--encoding", "hex"]].concat()).ok().out.starts_with("0x"));
    let scan = icecore(&["scan", &dir, "--domain", "account", "--at", "4"]).ok().out;
    assert!(scan.contains("\tnonce=0x2 balance=0x7d0 codeHash=0x"), "{scan}");
    let diff = icecore(&["diff", &dir, "--from", "1", "--to", "2"]);
    assert!(diff.out.ends_with("\tnonce=0x1 balance=0x7d0\n"), "{}", diff.out);
    let requests =
        [json!({"get": {"domain": "account", "key": B}}), json!({"scan": {"domain": "account", "at": 5}})];
    let answers =
        icecore_reading(&["query", &dir], requests.map(|line| format!("{line}\n")).concat().as_bytes());
    let answers = answers.ok().json_lines();
    assert_eq!(answers[0]["value"]["balance"], "0x5");
    assert_eq!(answers[1]["items"][0][1], answers[0]["value"]);
}

#[test]
fn slots_are_found_by_the_address_of_their_account() {
    let place = Place::new();
    let dir = archive(&place);
    let scan =
        |bound: &[&str]| icecore(&[&["scan", &dir, "--domain", "storage", "--at", "4"], bound].concat());
    for (account, value) in [(A, "0a"), (B, "0b")] {
        let found = scan(&["--account", account]).ok().out;
        assert!(found.lines().count() == 1 && found.ends_with(&format!("{value}\n")), "{found}");
        let request = json!({"scan": {"domain": "storage", "account": account, "at": 4}});
        let answer = icecore_reading(&["query", &dir], format!("{request}\n").as_bytes()).ok().json();
        assert_eq!(answer["items"].as_array().unwrap().len(), 1);
    }
    // The keys are hashes: what looks like a prefix finds nothing, and says so.
    let found = scan(&["--prefix", A]).ok();
    assert!(found.out.is_empty() && found.err.contains("--account"), "{}", found.err);
    let whole = icecore(&["scan", &dir, "--domain", "account"]).ok().out;
    let path = whole.split('\t').next().unwrap();
    assert_eq!(icecore(&["scan", &dir, "--domain", "account", "--from", path]).ok().out, whole);
    icecore(&["scan", &dir, "--domain", "account", "--account", A]).fails(2, "only the domain storage");
    scan(&["--account", "0x12"]).fails(2, "no address of 20 bytes");
}

#[test]
fn rows_are_told_and_built() {
    let place = Place::new();
    let feed: Vec<String> = (1..=12)
        .map(|block| {
            let line =
                json!({"block": block, "address": A, "field": "nonce", "value": format!("{block:#x}")});
            format!("{line}\n")
        })
        .collect();
    let file = place.file("feed.jsonl", feed.concat());
    let dir = place.text("late.ice");
    let made = ["--format", "eth-changes", "--create", "--profile", "ethereum", "--rows", "off"];
    let shape = ["--blocks-per-step", "2", "--reorg-window", "1"];
    icecore(&[&["ingest", &dir, &file][..], &made, &shape].concat()).ok();
    assert!(icecore(&["rows", &dir]).ok().out.starts_with("no rows"));
    assert_eq!(icecore(&["rows", &dir, "--json"]).ok().json(), json!({"rows": false}));
    icecore(&["rows", &dir, "--again"]).fails(2, "--build");
    let proof = icecore(&["prove", &dir, A, "--at", "5", "--json"]).ok().json();
    let built = icecore(&["rows", &dir, "--build", "--json"]).ok().json();
    assert_eq!(built, json!({"rows": true, "first": 1, "blocks": 11, "updates": 11}));
    assert_eq!(icecore(&["rows", &dir]).ok().out, "rows at every block\n");
    assert_eq!(icecore(&["prove", &dir, A, "--at", "5", "--json"]).ok().json(), proof);
    let again = icecore(&["rows", &dir, "--build"]).ok();
    assert!(
        again.err.contains("nothing was done") || again.out.contains("nothing was done"),
        "{}",
        again.err
    );
    let again = icecore(&["rows", &dir, "--build", "--again"]).ok();
    assert!(
        [again.out, again.err]
            .concat()
            .contains("rows of 11 blocks built, from block 1 on: 11 changes applied")
    );
    icecore(&["verify", &dir]).ok();
    let native = place.text("native.ice");
    icecore(&["create", &native, "--domain", "kv"]).ok();
    icecore(&["rows", &native]).fails(2, "rows are of the tries of Ethereum");
    icecore(&["rows", &native, "--build"]).fails(2, "commitment icecore");
}

#[test]
fn what_contradicts_itself_is_told_with_its_address_and_line() {
    let place = Place::new();
    let change = |block: u64, field: &str, value: Value| json!({"block": block, "address": A, "field": field, "value": value});
    let made = ["--format", "eth-changes", "--create", "--profile", "ethereum"];
    for (cleared, set) in [("balance", "nonce"), ("nonce", "balance")] {
        let lines = [
            change(1, "balance", json!("0x1")),
            change(2, set, json!("0x1")),
            change(2, cleared, Value::Null),
        ];
        let file = place.file("feed.jsonl", lines.map(|line| format!("{line}\n")).concat());
        let told = icecore(&[&["ingest", &place.text(cleared), &file][..], &made].concat());
        let told =
            told.fails(2, &format!("feed.jsonl:3: block 2 clears the {cleared} of {A} and sets its {set}"));
        assert!(told.err.contains("resumes after block 1"), "{}", told.err);
    }
    // A slot of an account that is not there.
    let slot = json!({"block": 1, "address": B, "field": "storage", "slot": "0x1", "value": "0x1"});
    let file = place.file("slot.jsonl", format!("{slot}\n"));
    let told = icecore(&[&["ingest", &place.text("slot.ice"), &file][..], &made].concat());
    let told = told.fails(2, "slot.jsonl:1: ");
    assert!(told.err.contains(B), "{}", told.err);
}

#[test]
fn an_ingest_goes_on_in_an_archive_that_was_pruned() {
    let place = Place::new();
    let (dir, file) = (place.text("eth.ice"), place.text("feed.jsonl"));
    // The nonce is of block 1, so that a record of another block is put together with the state below it.
    let nonce = json!({"block": 1, "address": A, "field": "nonce", "value": "0x1"});
    let balance = |block: u64| json!({"block": block, "address": A, "field": "balance", "value": format!("{block:#x}")});
    let slot = |block: u64| json!({"block": block, "address": A, "field": "storage", "slot": "0x1", "value": format!("{block:#x}")});
    let feed = |blocks: std::ops::RangeInclusive<u64>| -> String {
        blocks.map(|block| format!("{}\n{}\n", balance(block), slot(block))).collect::<Vec<_>>().concat()
    };
    std::fs::write(&file, format!("{nonce}\n{}", feed(1..=40))).unwrap();
    let made = ["--create", "--profile", "ethereum", "--blocks-per-step", "4", "--reorg-window", "2"];
    icecore(&[&["ingest", &dir, &file, "--format", "eth-changes"][..], &made].concat()).ok();
    for floor in ["9", "21"] {
        icecore(&["prune", &dir, "--before", floor]).ok();
        let again = icecore(&["ingest", &dir, &file, "--format", "eth-changes"]).ok();
        assert!(again.err.contains("below the first"), "{}", again.err);
    }
    std::fs::write(&file, format!("{nonce}\n{}", feed(1..=41))).unwrap();
    assert!(icecore(&["ingest", &dir, &file, "--format", "eth-changes"]).ok().out.contains("head 41"));
    // At the floor as above it, what differs is told.
    for block in [21, 30] {
        let (value, other) = (format!("\"{block:#x}\""), format!("\"0x7{block:x}\""));
        let other = place.file("other.jsonl", format!("{nonce}\n{}", feed(1..=41)).replace(&value, &other));
        let told = format!("block {block} is in the archive already and differs");
        icecore(&["ingest", &dir, &other, "--format", "eth-changes"]).fails(2, &told);
    }
}

#[test]
fn options_that_an_archive_of_ethereum_has_no_use_for_are_refused() {
    let place = Place::new();
    let dir = archive(&place);
    icecore(&["prove", &dir, A, "--domain", "storage"]).fails(2, "--slot");
    icecore(&["prove", &dir, A, "--domain", "account"]).ok();
    let folder = place.text("export");
    for verb in [&["scan"][..], &["export", "--format", "csv", "--out", &folder]] {
        let told = icecore(&[verb, &[&dir, "--domain", "balance"]].concat());
        let told = told.fails(2, "unknown domain 'balance'");
        assert!(told.err.contains("fields of accounts"), "{}", told.err);
    }
    let made = ["--format", "eth-changes", "--create", "--profile", "ethereum", "--rows", "off"];
    let (file, other) = (place.text("feed.jsonl"), place.text("other.ice"));
    icecore(&[&["ingest", &other, &file][..], &made].concat()).ok();
    let again = [
        "ingest",
        &other,
        &file,
        "--format",
        "eth-changes",
        "--create",
        "--profile",
        "ethereum",
        "--rows",
        "on",
    ];
    icecore(&again).fails(2, "other.ice --build` gives it rows");
    assert!(
        icecore(&["stats", &other]).ok().out.contains("no rows, which `icecore rows DIR --build` builds")
    );
    // Blocks that are there, and the headers of another chain.
    let headers =
        (1..=6).map(|number| format!("{{\"number\":{number},\"stateRoot\":\"0x{}\"}}\n", "11".repeat(32)));
    let headers = place.file("headers.jsonl", headers.collect::<Vec<_>>().concat());
    let told = icecore(&["ingest", &other, &file, "--format", "eth-changes", "--headers", &headers]);
    let told = told.fails(2, "block 1 is in the archive already, and its header is another one");
    assert!(!told.err.contains("resumes after"), "{}", told.err);
}
