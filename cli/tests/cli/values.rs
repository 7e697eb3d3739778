//! How keys and values are shown: by what they are, not by how the question was written, and so that they read back.

use serde_json::json;

use crate::driver::{Place, archive, icecore, icecore_reading, line};

/// A key of three bytes that are no text, with a number as a node operator writes it.
const KEY: &str = "0xa11ce0";

#[test]
fn a_value_looks_the_same_however_the_key_was_written() {
    let place = Place::new();
    let lines = line(1, KEY, Some("776430943825966534654")) + &line(2, KEY, Some("80"));
    let dir = archive(&place, 4, &lines);
    assert_eq!(icecore(&["get", &dir, KEY, "--at", "1"]).ok().out, "776430943825966534654\n");
    assert_eq!(icecore(&["get", &dir, KEY, "--json"]).ok().json()["value"], "80");
    assert_eq!(icecore(&["history", &dir, KEY]).ok().out, "2\t80\n1\t776430943825966534654\n");
    let versions = icecore(&["history", &dir, KEY, "--json", "--at", "1"]).ok().json();
    assert_eq!(versions, json!({ "versions": [[1, "776430943825966534654"]] }));
    for scan in [&["--prefix", "0xa1"][..], &["--from", "0xa1"], &[]] {
        let shown = icecore(&[&["scan", &dir][..], scan].concat()).ok().out;
        assert_eq!(shown, format!("{KEY}\t80\n"), "{scan:?}");
    }
    let requests = format!(
        "{{\"get\":{{\"key\":\"{KEY}\"}}}}\n{{\"scan\":{{\"prefix\":\"0xa1\"}}}}\n{{\"history\":{{\"key\":\"{KEY}\"}}}}\n"
    );
    assert_eq!(
        icecore_reading(&["query", &dir], requests.as_bytes()).ok().json_lines(),
        [
            json!({ "value": "80" }),
            json!({ "items": [[KEY, "80"]] }),
            json!({ "versions": [[2, "80"], [1, "776430943825966534654"]] }),
        ]
    );
    let proof = icecore(&["prove", &dir, KEY]).ok().out;
    let told = icecore_reading(&["verify-proof"], proof.as_bytes()).ok().out;
    assert!(told.contains(&format!("key {KEY} of kv has the value 80")), "{told}");
    assert_eq!(icecore(&["get", &dir, KEY, "--encoding", "hex"]).ok().out, "0x3830\n");
}

#[test]
fn what_a_scan_prints_is_what_ingest_takes() {
    let place = Place::new();
    let values =
        ["plain", "0x00ff", "0x30783331", "0x2d", "C:\\new", "0x610a62", "", " a", "\u{e4}", "0x5831"];
    let lines: String =
        (1..).zip(values).map(|(n, value)| line(1, &format!("key {n}"), Some(value))).collect();
    let dir = archive(&place, 4, &lines);
    let shown = icecore(&["scan", &dir]).ok().out;
    let entries: Vec<_> = shown.lines().map(|line| line.split_once('\t').unwrap()).collect();
    assert_eq!(entries.len(), values.len(), "{shown}");
    let again: String = entries.iter().map(|(key, value)| line(1, key, Some(value))).collect();
    let other = Place::new();
    assert_eq!(icecore(&["root", &archive(&other, 4, &again)]).ok().out, icecore(&["root", &dir]).ok().out);
    // And what programs get.
    let json = icecore(&["scan", &dir, "--json"]).ok().json_lines();
    let of_json: Vec<_> =
        json.iter().map(|entry| (entry[0].as_str().unwrap(), entry[1].as_str().unwrap())).collect();
    assert_eq!(of_json, entries);
}

#[test]
fn a_deletion_is_no_value() {
    let place = Place::new();
    let dir = archive(&place, 4, &(line(1, "k", Some("-")) + &line(2, "k", None)));
    assert_eq!(icecore(&["history", &dir, "k"]).ok().out, "2\t-\n1\t0x2d\n");
    assert_eq!(icecore(&["get", &dir, "k", "--at", "1", "--raw"]).ok().out, "-");
}

#[test]
fn hex_may_begin_with_a_capital_x_and_a_key_without_it_is_suspected() {
    let place = Place::new();
    let dir = archive(&place, 4, &line(1, "0XA11CE0", Some("80")));
    for key in [KEY, "0Xa11ce0"] {
        assert_eq!(icecore(&["get", &dir, key]).ok().out, "80\n");
    }
    let missed = icecore(&["get", &dir, "a11ce0"]).fails(1, "no value");
    assert!(missed.err.contains("0xa11ce0"), "{}", missed.err);
    assert!(!icecore(&["get", &dir, "alice"]).fails(1, "no value").err.contains("help"));
    assert!(!icecore(&["get", &dir, "0xa11c"]).fails(1, "no value").err.contains("help"));
}
