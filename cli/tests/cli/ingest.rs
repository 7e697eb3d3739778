//! `icecore ingest`: formats, bad lines, resuming, killing.

use std::io::Write;

use serde_json::json;

use crate::driver::{Place, command, forty_blocks, icecore, icecore_reading, line};

const A: &str = "0x00000961ef480eb55e80d19ad83579a64c007002";

fn ingest(dir: &str, file: &str, format: &str, more: &[&str]) -> Vec<String> {
    let args = ["ingest", dir, file, "--format", format, "--json"];
    args.iter().chain(more).map(|&arg| arg.to_owned()).collect()
}

fn run(args: &[String], input: &[u8]) -> crate::driver::Run {
    icecore_reading(&args.iter().map(String::as_str).collect::<Vec<_>>(), input)
}

#[test]
fn a_bad_line_stops_it_and_the_same_command_resumes() {
    let place = Place::new();
    let dir = place.text("a.ice");
    let good = forty_blocks();
    let bad_at = good.lines().position(|line| line.starts_with("{\"block\":20,")).unwrap();
    let mut lines: Vec<_> = good.lines().map(str::to_owned).collect();
    lines.insert(bad_at + 1, "{\"block\":20,\"key\":\"k\",\"value\":7}".into());
    let file = place.file("input.jsonl", lines.join("\n"));
    let args = ingest(&dir, &file, "jsonl", &["--create"]);
    let stopped = run(&args, b"").fails(2, &format!("input.jsonl:{}: this is the number", bad_at + 2));
    assert!(stopped.err.contains("blocks up to 19 are in"), "{}", stopped.err);
    assert_eq!(icecore(&["stats", &dir, "--json"]).ok().json()["head"], 19);
    place.file("input.jsonl", &good);
    let resumed = run(&args, b"").ok().json();
    assert_eq!(
        (&resumed["blocks"], &resumed["blocks_skipped"], &resumed["head"]),
        (&json!(21), &json!(19), &json!(40))
    );
    let again = run(&args, b"").ok().json();
    assert_eq!((&again["blocks"], &again["root"]), (&json!(0), &resumed["root"]));
    let whole = run(&ingest(&place.text("b.ice"), &file, "jsonl", &["--create"]), b"").ok().json();
    assert_eq!(whole["root"], resumed["root"]);
}

#[test]
fn the_first_line_may_be_bad() {
    let place = Place::new();
    let stopped = run(&ingest(&place.text("a.ice"), "-", "jsonl", &["--create"]), b"{}\n")
        .fails(2, "-:1: missing field");
    assert!(stopped.err.contains("no block is in"), "{}", stopped.err);
    run(&ingest(&place.text("a.ice"), &place.text("none"), "jsonl", &["--create"]), b"")
        .fails(7, "cannot open");
}

#[test]
fn input_may_be_compressed_and_in_parts() {
    let place = Place::new();
    let good = forty_blocks();
    let mut roots = Vec::new();
    let zstd = zstd::encode_all(good.as_bytes(), 3).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(good.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    for (name, content) in [("plain", good.as_bytes()), ("zstd", &zstd), ("gzip", &gzip)] {
        let file = place.file("input", content);
        for (source, input) in [(&*file, &b""[..]), ("-", content)] {
            let dir = place.text(&format!("{name}{}.ice", source.len()));
            let done = run(&ingest(&dir, source, "jsonl", &["--create"]), input).ok().json();
            assert_eq!((&done["blocks"], &done["changes"]), (&json!(40), &json!(62)), "{name}");
            roots.push(done["root"].clone());
        }
    }
    let half = good.len() / 2;
    let cut = good[..half].rfind('\n').unwrap() + 1;
    let (first, second) = (place.file("1", &good[..cut]), place.file("2", &good[cut..]));
    let parts = run(&ingest(&place.text("p.ice"), &first, "jsonl", &["--create", &second]), b"").ok().json();
    roots.push(parts["root"].clone());
    assert!(roots.iter().all(|root| *root == roots[0]), "{roots:?}");
    let cut = place.file("cut", &zstd[..zstd.len() / 2]);
    run(&ingest(&place.text("c.ice"), &cut, "jsonl", &["--create"]), b"")
        .fails(2, "the compressed data ends or breaks");
}

#[test]
fn create_fixes_what_cannot_change() {
    let place = Place::new();
    let (dir, file) = (place.text("a.ice"), place.file("input", forty_blocks()));
    run(&ingest(&dir, &file, "jsonl", &[]), b"").fails(2, "no archive at");
    run(&ingest(&dir, &file, "jsonl", &["--blocks-per-step", "8"]), b"").fails(2, "need --create");
    let create = ["--create", "--blocks-per-step", "8", "--reorg-window", "4", "--domain", "kv"];
    run(&ingest(&dir, &file, "jsonl", &create), b"").ok();
    run(&ingest(&dir, &file, "jsonl", &create), b"").ok();
    run(&ingest(&dir, &file, "jsonl", &["--create", "--blocks-per-step", "9"]), b"")
        .fails(2, "cannot be changed");
    run(&ingest(&dir, &file, "eth-changes", &[]), b"")
        .fails(2, "needs the domains balance, nonce, code, storage");
    run(&ingest(&dir, &file, "jsonl", &["--first-block", "9"]), b"").fails(2, "--first-block is for");
    run(&ingest(&dir, &file, "geth-diff", &["--encoding", "text"]), b"").fails(2, "--encoding is for");
    run(&ingest(&dir, &file, "jsonl", &["--sync", "never"]), b"")
        .fails(2, "block, group, group:N or relaxed");
    for sync in ["block", "group", "group:3", "relaxed"] {
        let dir = place.text(&format!("{}.ice", sync.replace(':', "")));
        run(&ingest(&dir, &file, "jsonl", &["--create", "--sync", sync]), b"").ok();
    }
}

#[test]
fn encodings_are_as_asked() {
    let place = Place::new();
    let file = place.file("input", line(1, "0x6b", Some("0x76")));
    for (encoding, key, value) in [("auto", "k", "v"), ("hex", "k", "v"), ("text", "0x6b", "0x76")] {
        let dir = place.text(encoding);
        run(&ingest(&dir, &file, "jsonl", &["--create", "--encoding", encoding]), b"").ok();
        let got = icecore(&["get", &dir, key, "--encoding", "text"]).ok();
        assert_eq!(got.out.trim_end(), value, "{encoding}");
    }
}

#[test]
fn ethereum_changes_become_four_domains() {
    let place = Place::new();
    let dir = place.text("eth.ice");
    let slot = format!("0x{:064x}", 5);
    let lines = [
        format!(r#"{{"block":0,"address":"{A}","field":"balance","value":"0x31"}}"#),
        format!(r#"{{"block":0,"address":"{A}","field":"nonce","value":"0x0"}}"#),
        format!(r#"{{"block":0,"address":"{A}","field":"code","value":"0x6001"}}"#),
        format!(
            r#"{{"block":0,"address":"{A}","field":"storage","slot":"{slot}","value":"0x7","writes":2}}"#
        ),
        format!(r#"{{"block":3,"address":"{A}","field":"storage","slot":"{slot}","value":null}}"#),
    ];
    run(&ingest(&dir, "-", "eth-changes", &["--create"]), lines.join("\n").as_bytes()).ok();
    for (domain, value) in [("balance", "0x31\n"), ("nonce", "0x00\n"), ("code", "0x6001\n")] {
        assert_eq!(icecore(&["get", &dir, A, "--domain", domain]).ok().out, value);
    }
    let key = format!("{A}{}", &slot[2..]);
    let scan = icecore(&["scan", &dir, "--domain", "storage", "--at", "2"]).ok().out;
    assert_eq!(scan, format!("{key}\t0x{:064x}\n", 7));
    icecore(&["get", &dir, &key, "--domain", "storage"]).fails(1, "no value");
}

#[test]
fn a_destroyed_account_loses_the_storage_that_the_trace_does_not_name() {
    let place = Place::new();
    let dir = place.text("eth.ice");
    let trace = |pre: &str, post: &str| format!(r#"{{"pre":{pre},"post":{post}}}"#);
    let born = trace(
        "{}",
        &format!(r#"{{"{A}":{{"nonce":1,"code":"0x60","storage":{{"0x1":"0x7","0x2":"0x8"}}}}}}"#),
    );
    let gone = trace(&format!(r#"{{"{A}":{{"balance":"0x0","nonce":1,"code":"0x60"}}}}"#), "{}");
    let lines = format!(
        "{{\"id\":5,\"result\":[{{\"result\":{born}}}]}}\n{{\"id\":6,\"result\":[{{\"result\":{gone}}}]}}\n"
    );
    run(&ingest(&dir, "-", "geth-diff", &["--create", "--first-block", "5"]), lines.as_bytes()).ok();
    let slots =
        |at: &str| icecore(&["scan", &dir, "--domain", "storage", "--at", at]).ok().out.lines().count();
    assert_eq!((slots("5"), slots("6")), (2, 0));
    for domain in ["balance", "nonce", "code"] {
        icecore(&["get", &dir, A, "--domain", domain, "--at", "5"]).ok();
        icecore(&["get", &dir, A, "--domain", domain, "--at", "6"]).fails(1, "no value");
    }
    let numbered = run(
        &ingest(&place.text("n.ice"), "-", "geth-diff", &["--create", "--first-block", "70"]),
        lines.as_bytes(),
    );
    assert_eq!(numbered.ok().json()["head"], 71);
}

#[test]
fn a_second_writer_is_told() {
    let place = Place::new();
    let dir = place.text("a.ice");
    icecore(&["create", &dir, "--domain", "kv"]).ok();
    let mut first = command(&["ingest", &dir, "-", "--format", "jsonl"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = first.stdin.take().unwrap();
    stdin.write_all((line(1, "k", Some("v")) + &line(2, "k", Some("w"))).as_bytes()).unwrap();
    stdin.flush().unwrap();
    // Once block 1 can be read, the first writer has the lock; readers need none.
    while icecore(&["get", &dir, "k"]).code != 0 {
        assert!(first.try_wait().unwrap().is_none(), "the first writer ended");
    }
    icecore(&["merge", &dir]).fails(5, "locked");
    icecore(&["get", &dir, "k"]).ok();
    drop(stdin);
    assert!(first.wait().unwrap().success());
    icecore(&["merge", &dir]).ok();
}

#[test]
fn killed_at_any_moment_it_resumes_to_the_same_root() {
    let place = Place::new();
    let lines: String = (1..=1500)
        .flat_map(|block| {
            (0..10)
                .map(move |n| line(block, &format!("key {}", block * 7 % 300 + n), Some(&format!("{block}"))))
        })
        .collect();
    let file = place.file("input", &lines);
    let options = ["--create", "--blocks-per-step", "32", "--reorg-window", "8", "--sync", "relaxed"];
    let whole = run(&ingest(&place.text("whole.ice"), &file, "jsonl", &options), b"").ok().json();
    let dir = place.text("killed.ice");
    let args = ingest(&dir, &file, "jsonl", &options);
    let fed = ingest(&dir, "-", "jsonl", &options);
    for parts in 1..=12 {
        let mut child = command(&fed.iter().map(String::as_str).collect::<Vec<_>>())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // A pipe holds little: what it has taken is being worked on. Where exactly the kill finds it is chance.
        child.stdin.take().unwrap().write_all(&lines.as_bytes()[..lines.len() * parts / 12]).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let resumed = run(&args, b"").ok().json();
    assert_eq!((&resumed["head"], &resumed["root"]), (&whole["head"], &whole["root"]));
    icecore(&["verify", &dir]).ok();
}
