//! Every example that a `--help` shows is run as it stands there.

use std::process::Command;

use crate::driver::{Place, icecore, line, verbs};

const ETHEREUM: &str = "0x00000961ef480eb55e80d19ad83579a64c007002";

/// The command lines below "Example" in the help of a verb, continued lines put together.
fn examples(help: &str) -> Vec<String> {
    let Some((_, text)) = help.split_once("Example") else { return Vec::new() };
    let mut found: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.lines().skip(1).take_while(|line| line.starts_with(' ') || line.is_empty()) {
        let part = line.trim();
        match found.last_mut().filter(|_| goes_on) {
            Some(last) => *last += part.trim_end_matches('\\'),
            // What the example does stands after two blanks or more.
            None if line.starts_with("  ") && !line.starts_with("    ") => {
                let command = part.split("   ").next().unwrap_or_default();
                found.push(command.trim_end_matches('\\').to_owned());
            }
            None => {}
        }
        goes_on = part.ends_with('\\');
    }
    found
}

/// The files and archives that the examples name.
fn furnish(place: &Place) {
    let blocks: String = (1..=200)
        .flat_map(|block| {
            ["alice", "bob", "user/1", "user/2", "night"]
                .map(|key| line(block, key, Some(&format!("{key} {block}"))))
        })
        .collect();
    place.file("changes.jsonl", &blocks);
    let change = |block: u64, field: &str, slot: &str, value: &str| {
        format!(
            "{{\"block\":{block},\"address\":\"{ETHEREUM}\",\"field\":\"{field}\"{slot},\"value\":\"{value}\"}}\n"
        )
    };
    let ethereum = (1..=200).map(|block| {
        [
            change(block, "nonce", "", &format!("{block:#x}")),
            change(block, "code", "", "0x6001"),
            change(block, "storage", ",\"slot\":\"0x1\"", &format!("{block:#x}")),
        ]
        .concat()
    });
    let ethereum: String = ethereum.collect();
    place.file("changes.jsonl.zst", zstd::encode_all(ethereum.as_bytes(), 1).unwrap());
    let trace = format!(
        r#"{{"block":300,"response":{{"result":[{{"result":{{"pre":{{}},"post":{{"{ETHEREUM}":{{"nonce":9}}}}}}}}]}}}}"#
    );
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, trace.as_bytes()).unwrap();
    place.file("traces.gz", gzip.finish().unwrap());
    let request = "{\"get\":{\"key\":\"alice\",\"at\":17}}\n";
    place.file("requests.jsonl.zst", zstd::encode_all(request.as_bytes(), 1).unwrap());
    let shape = ["--blocks-per-step", "16", "--reorg-window", "4", "--create", "--no-merge"];
    for (dir, file, format) in
        [("chain.ice", "changes.jsonl", "jsonl"), ("eth.ice", "changes.jsonl.zst", "eth-changes")]
    {
        let args = ["ingest", &place.text(dir), &place.text(file), "--format", format];
        icecore(&[&args[..], &shape].concat()).ok();
    }
    let state = ["--format", "eth-changes", "--create", "--profile", "ethereum"];
    let (dir, changes) = (place.text("state.ice"), place.text("changes.jsonl.zst"));
    icecore(&[&["ingest", &dir, &changes][..], &state].concat()).ok();
    let header = |number: u64| {
        let root = icecore(&["root", &dir, "--at", &number.to_string()]).ok().out;
        format!("{{\"number\":{number},\"stateRoot\":\"{}\"}}\n", root.trim())
    };
    let headers: String = (1..=200).map(header).collect();
    place.file("headers.jsonl.zst", zstd::encode_all(headers.as_bytes(), 1).unwrap());
    let proof = icecore(&["prove", &place.text("chain.ice"), "alice", "--at", "17"]).ok();
    place.file("alice.json", proof.out);
    icecore(&["checkpoint", &place.text("chain.ice"), &place.text("copy.ice")]).ok();
}

#[test]
fn every_example_of_every_help_works() {
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_icecore")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let furnished = Place::new();
    furnish(&furnished);
    let mut run = 0;
    for verb in std::iter::once(None).chain(verbs().into_iter().map(Some)) {
        let args: Vec<&str> = verb.iter().map(String::as_str).chain(["--help"]).collect();
        let verb = verb.as_deref().unwrap_or("icecore");
        let listed = examples(&icecore(&args).ok().out);
        assert!(!listed.is_empty(), "{verb} has no example");
        for example in listed {
            // What belongs to the machine, what takes long, and programs that may not be there.
            if ["/etc/", "fpath", "~/", "icecore demo", "| jq", "&& man ", "s3://", "file:///mnt/"]
                .iter()
                .any(|part| example.contains(part))
            {
                continue;
            }
            let place = Place::new();
            // Those that make an archive find none.
            let without = if verb == "create" || example.contains("--create") { "*.ice" } else { "none" };
            let copy = format!("cp -r {}/* . && rm -rf {without}", furnished.path("").display());
            let example = example
                .replace("1000000", "150")
                .replace("0x5ac6..", "$(icecore root chain.ice --at 17)")
                .replace("--domain storage --max-span", "--domain kv --max-span");
            let output = Command::new("bash")
                .args(["-c", &format!("{copy} && set -o pipefail && {example}")])
                .current_dir(place.path(""))
                .env("PATH", &path)
                .output()
                .unwrap();
            let told = String::from_utf8_lossy(&output.stderr);
            // What a comparison finds is no failure.
            let is_difference = verb == "diff" && output.status.code() == Some(1) && told.is_empty();
            assert!(output.status.success() || is_difference, "{verb}: {example}: {told}");
            run += 1;
        }
    }
    assert!(32 < run, "{run}");
}
