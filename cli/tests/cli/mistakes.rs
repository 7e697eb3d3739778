//! What people get wrong at first, and what they are told: the cause in plain words, and a way on that works.

use crate::driver::{Place, Run, archive, forty_blocks, icecore, icecore_reading, line};

fn ingest(dir: &str, file: &str, more: &[&str]) -> Run {
    icecore(&[&["ingest", dir, file, "--format", "jsonl"][..], more].concat())
}

#[test]
fn a_forgotten_domain_is_told_how_to_be_declared() {
    let place = Place::new();
    let dir = place.text("a.ice");
    let file =
        place.file("mine.jsonl", "{\"block\":1,\"domain\":\"balance\",\"key\":\"a\",\"value\":\"1\"}\n");
    let refused = ingest(&dir, &file, &["--create"]).fails(2, "mine.jsonl:1: unknown domain \"balance\"");
    assert!(refused.err.contains("add `--domain balance` beside --create"), "{}", refused.err);
    assert!(!refused.err.contains("mend the line"), "{}", refused.err);
    ingest(&dir, &file, &["--create", "--domain", "balance"]).ok();
    let other = place.file("other.jsonl", "{\"block\":2,\"domain\":\"kv\",\"key\":\"a\",\"value\":\"1\"}\n");
    let refused = ingest(&dir, &other, &[]).fails(2, "unknown domain \"kv\", the archive has: balance");
    assert!(refused.err.contains("cannot be added later"), "{}", refused.err);
}

#[test]
fn refused_input_leaves_no_archive() {
    let place = Place::new();
    let falling = line(2, "k", Some("v")) + &line(1, "k", Some("v"));
    let long = line(1, &"k".repeat(1100), Some("v"));
    for (number, lines, told) in [
        (1, falling, "falling.jsonl:2: block 1 does not rise above block 2"),
        (2, long, "long.jsonl:1: key: it has 1,100 bytes, at most 1,024 are allowed"),
    ] {
        let name = told.split(':').next().unwrap();
        let dir = place.text(&format!("{number}.ice"));
        ingest(&dir, &place.file(name, lines), &["--create"]).fails(2, told);
        assert!(!std::fs::exists(&dir).unwrap(), "{name}");
    }
    // An archive that was there before stays, and so does what it holds.
    let dir = archive(&place, 4, &forty_blocks());
    let root = icecore(&["root", &dir]).ok().out;
    ingest(&dir, &place.file("bad.jsonl", "nonsense\n"), &["--create"]).fails(2, "bad.jsonl:1");
    assert_eq!(icecore(&["root", &dir]).ok().out, root);
}

#[test]
fn a_foreign_directory_stays_as_it_is() {
    let place = Place::new();
    let dir = place.text("photos");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(place.path("photos/1.jpg"), "x").unwrap();
    let file = place.file("input.jsonl", line(1, "k", Some("v")));
    ingest(&dir, &file, &["--create"]).fails(2, "exists and is not empty");
    ingest(&dir, &file, &[]).fails(2, "no archive at");
    icecore(&["merge", &dir]).fails(2, "no archive at");
    let names: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["1.jpg"]);
}

#[test]
fn a_key_that_is_written_twice_in_a_block_is_counted() {
    let place = Place::new();
    let dir = place.text("a.ice");
    let twice = line(1, "k", Some("1")) + &line(1, "l", Some("1")) + &line(1, "k", Some("2"));
    let file = place.file("input.jsonl", twice + &line(2, "k", Some("3")));
    let told = ingest(&dir, &file, &["--create"]).ok();
    assert!(
        told.out.starts_with("2 blocks, 4 changes (1 overwritten in the same block) in "),
        "{}",
        told.out
    );
    assert_eq!(icecore(&["get", &dir, "k", "--at", "1"]).ok().out, "2\n", "the last one counts");
    let json = ingest(&place.text("b.ice"), &file, &["--create", "--json"]).ok().json();
    assert_eq!((&json["changes"], &json["changes_overwritten"]), (&4.into(), &1.into()));
}

#[test]
fn an_input_without_a_line_is_told() {
    let place = Place::new();
    let (dir, empty) = (place.text("a.ice"), place.file("empty.jsonl", "\n"));
    let done = ingest(&dir, &empty, &["--create"]).ok();
    assert!(done.err.contains("empty.jsonl has no lines"), "{}", done.err);
    let fed = icecore_reading(&["ingest", &dir, "-", "--format", "jsonl"], b"").ok();
    assert!(fed.err.contains("standard input has no lines"), "{}", fed.err);
    let asked = icecore(&["get", &dir, "k"]).fails(3, "the archive has no block");
    assert!(asked.err.contains("icecore ingest") && !asked.err.contains("ask for a height"), "{}", asked.err);
}

#[test]
fn input_of_another_kind_is_recognised() {
    let place = Place::new();
    let dir = place.text("a.ice");
    let form = "{\"block\":1,\"key\":\"alice\",\"value\":\"100\"}";
    for (content, told, help) in [
        ("[\n{\"block\":1}\n]\n", "an array begins here", "jq -c '.[]'"),
        ("[5,\"kv\",\"a\",\"1\"]\n", "an array begins here", "jq -c '.[]'"),
        ("\u{feff}{\"block\":1}\n", "byte order mark", "sed -i '1s/^\\xEF\\xBB\\xBF//'"),
        ("block,key,value\n1,alice,100\n", "not JSON", form),
        (
            "{\"block\":\"5\",\"key\":\"a\",\"value\":\"1\"}\n",
            "expected a number without quotes, or \"0x..\"",
            "mend the line",
        ),
    ] {
        let refused = ingest(&dir, &place.file("input", content), &["--create"]).fails(2, "input:1: ");
        assert!(refused.err.contains(told) && refused.err.contains(help), "{}", refused.err);
        assert!(help == "mend the line" || !refused.err.contains("mend the line"), "{}", refused.err);
    }
    let fed = icecore_reading(
        &["ingest", &dir, "-", "--format", "jsonl", "--create"],
        b"{\"block\":1,\"key\":5}\n",
    );
    assert!(fed.fails(2, "-:1: ").err.contains("mend what writes the line"));
    ingest(&dir, &place.file("hex", "{\"block\":\"0x5\",\"key\":\"a\",\"value\":\"1\"}\n"), &["--create"])
        .ok();
    assert_eq!(icecore(&["stats", &dir, "--json"]).ok().json()["head"], 5);
}

#[test]
fn a_proof_is_not_to_be_mended() {
    let refused = icecore_reading(&["verify-proof"], b"{}").fails(2, "this is not a proof");
    assert!(!refused.err.contains("mend") && refused.err.contains("icecore prove"), "{}", refused.err);
}

#[test]
fn hex_that_is_none_is_told_as_it_was_written() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let proof = place.file("proof.json", icecore(&["prove", &dir, "k"]).ok().out);
    icecore(&["verify-proof", &proof, "--root", "hello"]).fails(2, "a root is 64 hex digits");
    icecore(&["get", &dir, "0xzz"]).fails(2, "\"0xzz\" is not hex");
    icecore(&["get", &dir, "0xabc"]).fails(2, "\"0xabc\" has an odd number of hex digits");
}

#[test]
fn arguments_are_taken_as_they_were_meant() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    assert_eq!(icecore(&["get", &dir, "k", "--block", "17"]).ok().out, "v17\n");
    assert_eq!(
        icecore(&["root", &dir, "--block", "17"]).ok().out,
        icecore(&["root", &dir, "--at", "17"]).ok().out
    );
    let lines = "{\"block\":1,\"domain\":\"b\",\"key\":\"a\",\"value\":\"1\"}\n";
    let file = place.file("two.jsonl", lines);
    let new = place.text("two.ice");
    icecore(&["ingest", "--create", "--domain", "a,b", &new, &file, "--format", "jsonl"]).ok();
    icecore(&["create", &place.text("three.ice"), "--domain", "a,b:20", "--domain", "c"]).ok();
    let listed = icecore(&["stats", &place.text("three.ice"), "--json"]).ok().json();
    assert_eq!(listed["domains"], serde_json::json!(["a", "b", "c"]));

    icecore(&["get", &file, "alice"]).fails(2, "two.jsonl is a file, not an archive");
    ingest(&file, &new, &[]).fails(2, "two.jsonl is a file, not an archive");
    ingest(&file, &new, &["--create"]).fails(2, "two.jsonl is a file, not an archive");
    let below = place.file("below.jsonl", line(3, "x", Some("1")));
    let heights = line(2, "k", Some("1")) + &line(9, "k", Some("1"));
    let gaps = place.text("gaps.ice");
    ingest(&gaps, &place.file("gaps.jsonl", heights), &["--create"]).ok();
    ingest(&gaps, &below, &[]).fails(2, "block 3 lies below the head (9) and cannot be inserted");
}

#[test]
fn a_key_that_is_too_long_is_told_in_words() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let told = "key: it has 1,100 bytes, at most 1,024 are allowed";
    icecore(&["get", &dir, &"k".repeat(1100)]).fails(2, told);
}

#[test]
fn the_form_of_a_proof_that_does_not_fit_is_told() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let proof = icecore(&["prove", &dir, "k"]).ok();
    let mut document = proof.json();
    document["value"] = serde_json::Value::Null;
    let told = icecore_reading(&["verify-proof"], document.to_string().as_bytes());
    assert!(told.code == 1 && told.out.contains("proves presence, not absence"), "{}", told.out);
}
