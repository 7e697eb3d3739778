//! `icecore info`: what each file of an archive says of itself.

use serde_json::{Value, json};

use crate::driver::{Place, archive, files_of, forty_blocks, icecore};

/// The facts of a file, which are the same in text.
fn info(path: &str) -> Value {
    let facts = icecore(&["info", path, "--json"]).ok().json();
    let text = icecore(&["info", path]).ok().out;
    for (name, value) in facts.as_object().unwrap() {
        let shown = name == "files" || text.contains(&name.replace('_', " "));
        assert!(shown, "{name} is missing: {text}");
        let Value::String(value) = value else { continue };
        assert!(text.contains(value.as_str()), "{name} {value}: {text}");
    }
    facts
}

#[test]
fn every_file_says_what_it_is() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let manifest = info(&format!("{dir}/MANIFEST"));
    assert_eq!(manifest["format_version"], 5);
    assert_eq!((&manifest["blocks_per_step"], &manifest["reorg_window"]), (&json!(4), &json!(0)));
    assert_eq!(manifest["density"], json!({ "rule": "policy" }));
    let listed = icecore(&["ls", &dir, "--json"]).ok().json_lines();
    let named = manifest["files"].as_array().unwrap();
    // The segments of `_roots` have no block index.
    let indexed = listed.iter().filter(|segment| segment["block_index"].is_string());
    assert_eq!(named.len(), 3 * listed.len() + indexed.count());
    for segment in &listed {
        let is_indexed = segment["domain"] == "kv";
        assert_eq!(segment["block_index"].is_string(), is_indexed);
        let names = segment["files"].as_array().unwrap().iter();
        let names = names.chain(is_indexed.then_some(&segment["block_index"]));
        let facts = names.map(|name| {
            let facts = info(&format!("{dir}/{}", name.as_str().unwrap()));
            let named = named.iter().find(|file| file["name"] == *name).unwrap();
            assert_eq!(
                (&facts["bytes"], &facts["content_checksum"]),
                (&named["bytes"], &named["content_checksum"])
            );
            assert_eq!((&facts["domain"], &facts["steps"]), (&segment["domain"], &segment["steps"]));
            facts
        });
        let mut facts = facts.collect::<Vec<_>>();
        if is_indexed {
            let kvbi = facts.pop().unwrap();
            assert_eq!((&kvbi["entries"], &kvbi["data_pages"]), (&segment["entries"], &segment["pages"]));
            assert_eq!(kvbi["segment_checksum"], facts[0]["content_checksum"]);
        }
        let [kv, bt, kvei] = facts.try_into().unwrap();
        for field in ["blocks", "entries", "keys", "deletions", "encoding"] {
            assert_eq!(kv[field], segment[field], "{field}");
        }
        assert_eq!((&bt["m"], &bt["entries"]), (&segment["m"], &segment["entries"]));
        assert_eq!((&kvei["filter_bits"], &kvei["keys"]), (&segment["filter_bits"], &segment["keys"]));
        assert_eq!(
            (&bt["segment_checksum"], &kvei["segment_checksum"]),
            (&kv["content_checksum"], &kv["content_checksum"])
        );
    }
    let first = listed.iter().find(|segment| segment["domain"] == "kv").unwrap();
    let kv = info(&format!("{dir}/{}", first["files"][0].as_str().unwrap()));
    assert_eq!((&kv["kind"], &kv["last_key"]), (&json!("segment (.kv)"), &json!("k")));
}

#[test]
fn a_log_is_counted_and_its_torn_end_told() {
    let place = Place::new();
    let dir = archive(&place, 64, &forty_blocks());
    icecore(&["unwind", &dir, "--to", "38"]).ok();
    let wal = std::fs::read_dir(place.path("a.ice/wal")).unwrap().next().unwrap().unwrap().path();
    let path = wal.to_str().unwrap();
    let log = info(path);
    assert_eq!(
        (&log["block_records"], &log["blocks"], &log["changes"]),
        (&json!(40), &json!([1, 40]), &json!(62))
    );
    assert_eq!((&log["unwinds"], &log["sealed"]), (&json!([38]), &json!(false)));
    assert_eq!(log["bytes"], log["sound_bytes"]);
    let mut bytes = std::fs::read(&wal).unwrap();
    bytes.extend([7; 100]);
    let torn = place.file("torn", &bytes);
    assert_eq!(info(&torn)["sound_bytes"], log["bytes"]);
    assert!(icecore(&["info", &torn]).ok().out.contains("100 bytes at its end are not a whole record"));
    bytes[200] ^= 1;
    icecore(&["info", &place.file("damaged", &bytes)]).fails(4, "reason=record checksum");
    icecore(&["info", &place.file("000000000000000f.wal", &bytes)])
        .fails(4, "another file's sequence number");
}

#[test]
fn what_is_no_file_of_an_archive_is_refused() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    icecore(&["info", &dir]).fails(2, "`icecore stats` and `icecore ls`");
    icecore(&["info", &place.text("input.jsonl")]).fails(2, "does not begin like a file of an archive");
    icecore(&["info", &place.file("empty", "")]).fails(2, "does not begin like");
    icecore(&["info", &place.text("none")]).fails(7, "cannot open");
    for (path, bytes) in files_of(&dir) {
        let name = path.file_name().unwrap().to_str().unwrap();
        for cut in [8, bytes.len() / 2, bytes.len() - 1] {
            let run = icecore(&["info", &place.file("cut", &bytes[..cut])]);
            assert_eq!(run.code, 4, "{name} cut to {cut}: {} {}", run.out, run.err);
        }
    }
}
