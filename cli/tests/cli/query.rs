//! `icecore query`: requests in, answers out, line by line.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::driver::{Place, archive, command, forty_blocks, icecore, icecore_reading};

fn answers(dir: &str, args: &[&str], requests: &[&str]) -> Vec<Value> {
    icecore_reading(&[&["query", dir][..], args].concat(), requests.join("\n").as_bytes()).ok().json_lines()
}

#[test]
fn every_request_has_its_answer() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let root = icecore(&["root", &dir, "--at", "9"]).ok().out;
    for (request, answer) in [
        (r#"{"get":{"domain":"kv","key":"k","at":17}}"#, json!({"value": "v17"})),
        (r#"{"get":{"key":"k"}}"#, json!({"value": "v40"})),
        (r#"{"get":{"key":"gone","at":null}}"#, json!({"value": null})),
        (r#"{"get":{"key":"0x6b","at":3}}"#, json!({"value": "v3"})),
        (r#"{"scan":{"prefix":"","at":3}}"#, json!({"items": [["even", "0x0002"], ["k", "v3"]]})),
        (r#"{"scan":{"prefix":"0x","at":1}}"#, json!({"items": [["0x6b", "v1"]]})),
        (
            r#"{"scan":{"domain":"kv","at":12,"limit":2}}"#,
            json!({"items": [["even", "0x000c"], ["gone", "here"]]}),
        ),
        (r#"{"scan":{"at":12,"limit":1,"reverse":true}}"#, json!({"items": [["k", "v12"]]})),
        (r#"{"scan":{"from":"f","to":"k","at":12}}"#, json!({"items": [["gone", "here"]]})),
        (r#"{"scan":{"limit":0}}"#, json!({"items": []})),
        (r#"{"history":{"key":"gone"}}"#, json!({"versions": [[20, null], [10, "here"]]})),
        (r#"{"history":{"domain":"kv","key":"no"}}"#, json!({"versions": []})),
        (r#"{"root":{"at":9}}"#, json!({"root": root.trim()})),
    ] {
        assert_eq!(answers(&dir, &[], &[request]), [answer], "{request}");
    }
}

#[test]
fn an_id_comes_back_and_heights_have_many_forms() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    for id in ["7", "\"a\\u0041\"", "null", "[1, {\"b\":2}]", "123456789012345678901234567890"] {
        let request = format!("{{\"id\":{id},\"get\":{{\"key\":\"k\",\"at\":3}}}}\n");
        let got = icecore_reading(&["query", &dir], request.as_bytes()).ok().out;
        assert_eq!(got, format!("{{\"id\":{id},\"value\":\"v3\"}}\n"));
        let bad = format!("{{\"id\":{id},\"get\":{{\"key\":\"k\",\"at\":99}}}}\n");
        let got = icecore_reading(&["query", &dir], bad.as_bytes()).ok().json();
        assert!(got["error"].as_str().unwrap().contains("out of range") && got.get("id").is_some());
        let unknown = icecore_reading(&["query", &dir], format!("{{\"id\":{id},\"put\":1}}").as_bytes()).ok();
        assert!(unknown.json().get("error").is_some() && unknown.json().get("id").is_some());
    }
    for (at, value) in
        [("-10", "v30"), ("\"-10\"", "v30"), ("\"latest\"", "v40"), ("\"0x1f\"", "v31"), ("\"1_7\"", "v17")]
    {
        let request = format!("{{\"get\":{{\"key\":\"k\",\"at\":{at}}}}}");
        assert_eq!(answers(&dir, &[], &[&request]), [json!({ "value": value })], "{at}");
    }
}

#[test]
fn a_proof_by_request_is_that_of_prove() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    for (key, at) in [("k", 17), ("never", 40)] {
        let proof = icecore(&["prove", &dir, key, "--at", &at.to_string()]).ok();
        let request = format!("{{\"prove\":{{\"key\":\"{key}\",\"at\":{at}}}}}\n");
        assert_eq!(icecore_reading(&["query", &dir], request.as_bytes()).ok().out, proof.out);
        let named = request.replacen('{', "{\"id\":[1],", 1);
        let answer = icecore_reading(&["query", &dir], named.as_bytes()).ok();
        assert_eq!(answer.json()["id"], json!([1]));
        icecore_reading(&["verify-proof"], answer.out.as_bytes()).ok();
    }
}

#[test]
fn later_requests_see_new_blocks() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let mut child =
        command(&["query", &dir, "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut lines = BufReader::new(stdout).lines();
    for block in [41, 42] {
        let input = crate::driver::line(block, "k", Some(&format!("v{block}")));
        icecore_reading(&["ingest", &dir, "-", "--format", "jsonl"], input.as_bytes()).ok();
        writeln!(stdin, "{{\"get\":{{\"key\":\"k\"}}}}").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), format!("{{\"value\":\"v{block}\"}}"));
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_bad_request_is_told_and_the_rest_go_on() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let good = r#"{"get":{"key":"k","at":5}}"#;
    for (bad, told) in [
        ("nonsense", "bad request"),
        ("[]", "bad request"),
        (r#"{"set":{}}"#, "unknown field \"set\""),
        (r#"{"get":{}}"#, "missing field \"key\""),
        (r#"{"get":{"key":"k","att":1}}"#, "unknown field \"att\""),
        (r#"{"get":{"key":"k","at":-41}}"#, "-41 is below block 0"),
        (r#"{"get":{"key":"k","at":1.5}}"#, "expected a height"),
        (r#"{"get":{"key":"k"},"root":{}}"#, "it must have one of"),
        (r#"{"id":7}"#, "it must have one of"),
        (r#"{"get":{"key":"k","at":99}}"#, "the archive has blocks 1 to 40"),
        (r#"{"get":{"key":"0x1","at":9}}"#, "odd number"),
        (r#"{"get":{"domain":"x","key":"k"}}"#, "unknown domain"),
        (r#"{"root":{"at":0}}"#, "out of range"),
        ("\u{0}\u{1}", "bad request"),
    ] {
        let got = answers(&dir, &[], &[good, bad, good]);
        assert_eq!((&got[0], &got[2], got.len()), (&json!({"value": "v5"}), &got[0], 3));
        let error = got[1]["error"].as_str().unwrap_or_default();
        assert!(error.contains(told), "{bad}: {error}");
    }
    let raw = icecore_reading(&["query", &dir], b"\xff\xfe\n{\"get\":{\"key\":\"k\"}}");
    assert_eq!(raw.ok().json_lines()[1], json!({"value": "v40"}));
}

#[test]
fn a_request_without_end_stops_the_reading_and_not_the_answers_before_it() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let requests = [&b"{\"get\":{\"key\":\"k\"}}\n"[..], &vec![b'7'; 17 << 20]].concat();
    let run =
        icecore_reading(&["query", &dir], &requests).fails(2, "-:2: the line is not shorter than 16.0 MiB");
    assert_eq!(run.json(), json!({"value": "v40"}));
}

#[test]
fn a_manifest_that_is_gone_for_a_moment_fails_one_request() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let mut child =
        command(&["query", &dir, "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut lines = BufReader::new(stdout).lines();
    let mut answer = || {
        writeln!(stdin, "{{\"id\":1,\"get\":{{\"key\":\"k\",\"at\":3}}}}").unwrap();
        serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap()
    };
    assert_eq!(answer(), json!({"id": 1, "value": "v3"}));
    let (manifest, aside) = (place.path("a.ice/MANIFEST"), place.path("aside"));
    std::fs::rename(&manifest, &aside).unwrap();
    let refused = answer();
    assert!(refused["id"] == 1 && refused["error"].as_str().unwrap().contains("MANIFEST"), "{refused}");
    std::fs::rename(&aside, &manifest).unwrap();
    assert_eq!(answer(), json!({"id": 1, "value": "v3"}));
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(4), "the fault shows in the exit code");
}

#[test]
fn an_answer_does_not_wait_for_the_next_request() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let mut child =
        command(&["query", &dir, "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut lines = BufReader::new(stdout).lines();
    for at in [3, 40, 1] {
        writeln!(stdin, "{{\"get\":{{\"key\":\"k\",\"at\":{at}}}}}\n").unwrap();
        stdin.flush().unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), format!("{{\"value\":\"v{at}\"}}"));
    }
    drop(stdin);
    assert!(lines.next().is_none());
    assert!(child.wait().unwrap().success());
}

#[test]
fn many_requests_of_all_kinds_are_answered_in_order() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let (mut requests, mut expected) = (String::new(), Vec::new());
    for n in 0..1000 {
        let at = 1 + n % 40;
        let (request, answer) = match n % 97 {
            5 => (json!({"id": n, "history": {"key": "none"}}), json!({"id": n, "versions": []})),
            8 => (
                json!({"id": n, "scan": {"prefix": "k", "limit": 1, "at": at}}),
                json!({"id": n, "items": [["k", format!("v{at}")]]}),
            ),
            13 => (json!({"id": n, "get": {"key": "none", "at": at}}), json!({"id": n, "value": null})),
            _ => {
                (json!({"id": n, "get": {"key": "k", "at": at}}), json!({"id": n, "value": format!("v{at}")}))
            }
        };
        requests += &format!("{request}\n");
        expected.push(answer);
    }
    let file = place.file("requests", requests.as_bytes());
    assert_eq!(icecore(&["query", &dir, &file]).ok().json_lines(), expected);
}

#[test]
fn requests_come_from_files_too_and_encodings_hold() {
    let place = Place::new();
    let dir = archive(&place, 4, "{\"block\":1,\"key\":\"0x3078\",\"value\":\"0x3130\"}\n");
    let plain = format!("{}\n", r#"{"get":{"key":"0x"}}"#).repeat(3);
    let packed = place.file("requests", zstd::encode_all(plain.as_bytes(), 1).unwrap());
    let literal = icecore(&["query", &dir, &packed, "--encoding", "text"]).ok();
    assert_eq!(literal.json_lines(), vec![json!({"value": "10"}); 3]);
    assert_eq!(
        answers(&dir, &["--encoding", "hex"], &[r#"{"get":{"key":"3078"}}"#]),
        [json!({"value": "0x3130"})]
    );
    icecore(&["query", &dir, &place.text("none")]).fails(7, "cannot open");
}
