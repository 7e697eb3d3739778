//! Real data with answers that nobody here wrote: read from `shared/datasets` beside the repository, which is not part
//! of it. Where the folder is absent these tests say so and pass.
//!
//! Every set of answers is asked of the data all in memory, all in segments, half merged, merged, reindexed, and in a bucket; each
//! question is a process of its own, so every state is also met after a restart.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::driver::{Place, icecore, icecore_reading};
#[cfg(feature = "s3")]
use crate::driver::{command, run};

/// The folder of a data set, if it is there.
fn dataset(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/datasets").join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    println!("passed without a look: no data set at {}", folder.display());
    None
}

/// The lines of a file, plain or zstd.
fn lines(path: &Path) -> impl Iterator<Item = Value> + use<> {
    let file = std::fs::File::open(path).unwrap();
    let reader: Box<dyn Read> = match path.extension() {
        Some(extension) if extension == "zst" => Box::new(zstd::Decoder::new(file).unwrap()),
        _ => Box::new(file),
    };
    BufReader::new(reader).lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap())
}

/// Requests, and the answers that are right.
#[derive(Default)]
struct Exam {
    requests: String,
    answers: Vec<Expected>,
}

#[derive(Clone)]
enum Expected {
    Exactly(Value),
    /// A value of Ethereum: an absent one is zero or empty there.
    Number(String),
}

impl Exam {
    fn ask(&mut self, request: &Value, expected: Expected) {
        self.requests += &format!("{request}\n");
        self.answers.push(expected);
    }

    /// The questions up to a block, and those of later ones.
    #[cfg(feature = "s3")]
    fn split_after(&self, head: u64) -> (Self, Self) {
        let (mut until, mut after) = (Self::default(), Self::default());
        for (request, answer) in self.requests.lines().zip(&self.answers) {
            let request: Value = serde_json::from_str(request).unwrap();
            let asked = request.get("get").or(request.get("scan")).unwrap()["at"].as_u64().unwrap();
            (if asked <= head { &mut until } else { &mut after }).ask(&request, answer.clone());
        }
        (until, after)
    }

    fn check(&self, dir: &str, state: &str) {
        let got = icecore_reading(&["query", dir], self.requests.as_bytes()).ok().json_lines();
        self.check_answers(&got, state);
    }

    fn check_answers(&self, got: &[Value], state: &str) {
        assert_eq!(got.len(), self.answers.len(), "{state}");
        for ((got, expected), request) in got.iter().zip(&self.answers).zip(self.requests.lines()) {
            let is_right = match expected {
                Expected::Exactly(answer) => got == answer,
                Expected::Number(text) => {
                    let value = got.get("value").unwrap_or_else(|| panic!("{state}: {request}: {got}"));
                    number(value.as_str().unwrap_or("0x")) == number(text)
                }
            };
            assert!(is_right, "{state}: {request}: {got}");
        }
    }
}

/// Hex without leading zeros: 0x, 0x0 and 32 zero bytes are the same to Ethereum.
fn number(text: &str) -> &str {
    text.strip_prefix("0x").unwrap_or_else(|| panic!("{text:?} is not hex")).trim_start_matches('0')
}

/// Puts the data through every state and the exam through each of them.
fn examine(exam: &Exam, input: &Path, format: &str, step: u64) {
    examine_made_with(&[], exam, input, format, step);
}

/// The same of an archive that is made with more options.
fn examine_made_with(options: &[&str], exam: &Exam, input: &Path, format: &str, step: u64) {
    let place = Place::new();
    let input = input.to_str().unwrap();
    let fresh = |name: &str, step: u64| {
        let (dir, step) = (place.text(name), step.to_string());
        let args = [
            "ingest",
            &dir,
            input,
            "--format",
            format,
            "--create",
            "--no-merge",
            "--sync",
            "relaxed",
            "--json",
        ];
        let done =
            icecore(&[&args[..], &["--blocks-per-step", &step, "--reorg-window", "0"], options].concat())
                .ok()
                .json();
        (dir, done["root"].clone())
    };
    let (memory, root) = fresh("memory.ice", 1 << 40);
    assert_eq!(icecore(&["ls", &memory, "--json"]).ok().out, "", "all of it is in memory");
    exam.check(&memory, "in memory");

    let (dir, root_of_segments) = fresh("segments.ice", step);
    assert_eq!(root, root_of_segments);
    exam.check(&dir, "in segments");
    for (state, command) in [
        ("half merged", &["merge", "--max-span", "8"][..]),
        ("merged", &["merge"]),
        ("M 16", &["reindex", "--m", "16"]),
        ("M 64", &["reindex", "--m", "64"]),
        ("M 256", &["reindex", "--m", "256"]),
    ] {
        icecore(&[&[command[0], &dir][..], &command[1..]].concat()).ok();
        exam.check(&dir, state);
    }
    #[cfg(feature = "s3")]
    in_a_bucket(exam, &place, &dir);
    icecore(&["verify", &dir]).ok();
    assert_eq!(icecore(&["root", &dir]).ok().out.trim(), root.as_str().unwrap());
}

/// The exam out of buckets: a folder with their layout, and a server that speaks S3. What is in no segment is not there.
#[cfg(feature = "s3")]
fn in_a_bucket(exam: &Exam, place: &Place, dir: &str) {
    use icecore_tools::stub::Stub;

    let stub = Stub::start().unwrap();
    let folder = format!("file://{}", place.text("bucket"));
    for (url, cache) in [(&*folder, "of-folder"), ("s3://bucket/chain", "of-server")] {
        let ask = |args: &[&str], input: &str| {
            let mut command = command(args);
            let anybody = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")];
            command
                .envs(anybody)
                .envs([("AWS_ENDPOINT_URL", &*stub.endpoint()), ("AWS_REGION", "us-east-1")]);
            run(command, input.as_bytes())
        };
        let head = ask(&["push", dir, url, "--json"], "").ok().json()["head"].as_u64().unwrap();
        let (emitted, newer) = exam.split_after(head);
        let query = ["query", url, "--cache", &place.text(cache)];
        emitted.check_answers(&ask(&query, &emitted.requests).ok().json_lines(), url);
        assert!(emitted.answers.len() > newer.answers.len(), "{url}: {head}");
        for answer in ask(&query, &newer.requests).json_lines() {
            assert!(
                answer["error"].as_str().is_some_and(|error| error.contains("out of range")),
                "{url}: {answer}"
            );
        }
    }
}

#[test]
fn git_pebble() {
    let Some(folder) = dataset("git-pebble") else { return };
    let mut exam = Exam::default();
    for line in lines(&folder.join("oracle_reads.jsonl.zst")) {
        let request = json!({ "get": { "domain": "kv", "key": line["key"], "at": line["block"] } });
        exam.ask(&request, Expected::Exactly(json!({ "value": line["value"] })));
    }
    for line in lines(&folder.join("oracle_prefix.jsonl.zst")) {
        let request = json!({ "scan": { "prefix": line["prefix"], "at": line["block"] } });
        exam.ask(&request, Expected::Exactly(json!({ "items": line["items"] })));
    }
    assert_eq!(exam.answers.len(), 2100);
    examine(&exam, &folder.join("changes.jsonl.zst"), "jsonl", 64);
}

/// A question about a field of an account.
fn field(line: &Value, field: &str, slot: &Value, at: &Value) -> Value {
    let mut key = line.as_str().unwrap().to_owned();
    if let Some(slot) = slot.as_str() {
        key += &format!("{:0>64}", slot.strip_prefix("0x").unwrap());
    }
    json!({ "get": { "domain": field, "key": key, "at": at } })
}

#[test]
fn eth_ethtest() {
    let Some(folder) = dataset("eth-ethtest-600") else { return };
    let mut exam = Exam::default();
    for line in lines(&folder.join("oracle_reads.jsonl.zst")) {
        let params = line["params"].as_array().unwrap();
        let (domain, slot) = match line["method"].as_str().unwrap() {
            "eth_getBalance" => ("balance", &Value::Null),
            "eth_getTransactionCount" => ("nonce", &Value::Null),
            "eth_getCode" => ("code", &Value::Null),
            "eth_getStorageAt" => ("storage", &params[1]),
            other => panic!("unknown method {other}"),
        };
        let at = u64::from_str_radix(&params[params.len() - 1].as_str().unwrap()[2..], 16).unwrap();
        let expected = line["result"].as_str().unwrap().to_owned();
        exam.ask(&field(&params[0], domain, slot, &json!(at)), Expected::Number(expected));
    }
    assert_eq!(exam.answers.len(), 5000);
    let changes = folder.join("changes.jsonl.zst");
    examine(&exam, &changes, "eth-changes", 16);
    let headers = folder.join("headers.jsonl.zst");
    let options = ["--profile", "ethereum", "--headers", headers.to_str().unwrap()];
    examine_made_with(&options, &exam, &changes, "eth-changes", 16);
}

/// An archive of the chain, each block compared with its header.
fn ethtest_with_headers(place: &Place, folder: &Path, changes: &str) -> (String, Vec<String>) {
    let (dir, headers) = (place.text("eth.ice"), folder.join("headers.jsonl.zst"));
    let made = ["--create", "--profile", "ethereum", "--headers", headers.to_str().unwrap()];
    let args = ["ingest", &dir, changes, "--format", "eth-changes", "--sync", "relaxed"];
    // The tree has nothing in memory but references: each block reads the leaves that it meets.
    let step = ["--blocks-per-step", "16", "--reorg-window", "8", "--tree-memory", "0"];
    (dir.clone(), [&args[..], &made, &step].concat().into_iter().map(str::to_owned).collect())
}

#[test]
fn eth_ethtest_proofs_are_those_of_geth() {
    let Some(folder) = dataset("eth-ethtest-600") else { return };
    let place = Place::new();
    let changes = folder.join("changes.jsonl.zst");
    let (dir, ingest) = ethtest_with_headers(&place, &folder, changes.to_str().unwrap());
    let ingest: Vec<&str> = ingest.iter().map(String::as_str).collect();
    icecore(&ingest).ok();
    let roots: Vec<Value> = lines(&folder.join("headers.jsonl.zst")).collect();
    let (mut requests, mut expected) = (String::new(), Vec::new());
    for line in lines(&folder.join("oracle_proofs.jsonl.zst")) {
        let params = line["params"].as_array().unwrap();
        let at = u64::from_str_radix(&params[2].as_str().unwrap()[2..], 16).unwrap();
        let asked = json!({ "prove": { "key": params[0], "slots": params[1], "at": at } });
        requests += &format!("{asked}\n{}\n", json!({ "root": { "at": at } }));
        expected.push((at, line["result"].clone()));
    }
    assert_eq!(expected.len(), 200);
    let answers = icecore_reading(&["query", &dir], requests.as_bytes()).ok().json_lines();
    for (answers, (at, expected)) in answers.chunks(2).zip(&expected) {
        assert_eq!(answers[0]["proof"], *expected, "block {at}");
        assert_eq!(answers[1]["root"], roots[*at as usize]["stateRoot"], "block {at}");
    }
}

#[test]
fn a_feed_that_lacks_a_change_is_refused_at_that_block() {
    let Some(folder) = dataset("eth-ethtest-600") else { return };
    let place = Place::new();
    let mut left_out = 0;
    let kept = lines(&folder.join("changes.jsonl.zst")).filter(|line| {
        let is_lacking = line["block"] == 300 && line["field"] == "balance" && left_out == 0;
        left_out += u32::from(is_lacking);
        !is_lacking
    });
    let text = kept.map(|line| line.to_string()).collect::<Vec<_>>().join("\n");
    let (dir, ingest) = ethtest_with_headers(&place, &folder, &place.file("changes.jsonl", &text));
    let ingest: Vec<&str> = ingest.iter().map(String::as_str).collect();
    icecore(&ingest).fails(2, "the root of block 300 is 0x");
    assert_eq!(icecore(&["root", &dir, "--json"]).ok().json()["block"], 299);
    let whole = folder.join("changes.jsonl.zst");
    let again: Vec<&str> = ingest
        .iter()
        .map(|arg| if arg.ends_with("changes.jsonl") { whole.to_str().unwrap() } else { arg })
        .collect();
    let done = icecore(&again).ok();
    assert!(done.out.contains("head 600"), "{}", done.out);
}

#[test]
fn eth_mainnet_bal() {
    let Some(folder) = dataset("eth-mainnet-bal") else { return };
    let mut exam = Exam::default();
    for line in lines(&folder.join("oracle_20615532_20615581.jsonl.zst")) {
        let domain = line["field"].as_str().unwrap();
        let request = field(&line["address"], domain, &line["slot"], &line["block"]);
        match line["value"].as_str() {
            None => exam.ask(&request, Expected::Exactly(json!({ "value": null }))),
            Some(value) => exam.ask(&request, Expected::Number(value.to_owned())),
        }
    }
    assert_eq!(exam.answers.len(), 2500);
    examine(&exam, &folder.join("changes_20615532_20615581.jsonl.zst"), "eth-changes", 2);
}

#[test]
fn eth_mainnet_traces() {
    let Some(folder) = dataset("eth-mainnet-traces") else { return };
    let mut exam = Exam::default();
    for line in lines(&folder.join("adjacent_oracle.jsonl")) {
        let domain = line["field"].as_str().unwrap();
        let request = field(&line["address"], domain, &line["slot"], &line["change_block"]);
        exam.ask(&request, Expected::Number(line["value_at_end_of_block"].as_str().unwrap().to_owned()));
    }
    assert_eq!(exam.answers.len(), 106);
    examine(&exam, &folder.join("traces.jsonl.zst"), "geth-diff", 1000);
}

/// Where a trace has a key, it must say what geth's state says. Writes of system calls come after the transactions and
/// are in no trace, so their contracts are left out.
#[test]
fn traces_fold_to_the_state_of_geth() {
    const SYSTEM: [&str; 4] = [
        "0x00000961ef480eb55e80d19ad83579a64c007002",
        "0x0000bbddc7ce488642fb579f8b00f3a590007251",
        "0x000f3df6d732807ef1319fb7b8bb8522d0beac02",
        "0x0000f90827f1c53a10cb7a02335b175320002935",
    ];
    let Some(folder) = dataset("eth-ethtest-600") else { return };
    let place = Place::new();
    let ingest = |name: &str, file: &str, format: &str| {
        let dir = place.text(name);
        let input = folder.join(file);
        icecore(&[
            "ingest",
            &dir,
            input.to_str().unwrap(),
            "--format",
            format,
            "--create",
            "--sync",
            "relaxed",
        ])
        .ok();
        dir
    };
    let state = ingest("state.ice", "changes.jsonl.zst", "eth-changes");
    let folded = ingest("traces.ice", "traces.jsonl.zst", "geth-diff");
    let mut versions = 0;
    for domain in ["balance", "nonce", "code", "storage"] {
        let (mut histories, mut exam) = (String::new(), Exam::default());
        let keys: Vec<_> = icecore(&["scan", &folded, "--domain", domain, "--json"])
            .ok()
            .json_lines()
            .into_iter()
            .map(|entry| entry[0].as_str().unwrap().to_owned())
            .filter(|key| !SYSTEM.contains(&&key[..42]))
            .collect();
        for key in &keys {
            histories += &format!("{}\n", json!({ "history": { "domain": domain, "key": key } }));
        }
        let answers = icecore_reading(&["query", &folded], histories.as_bytes()).ok().json_lines();
        for (key, history) in keys.iter().zip(&answers) {
            for version in history["versions"].as_array().unwrap() {
                let request = json!({ "get": { "domain": domain, "key": key, "at": version[0] } });
                exam.ask(&request, Expected::Exactly(json!({ "value": version[1] })));
                versions += 1;
            }
        }
        exam.check(&state, domain);
    }
    assert!(2900 < versions, "{versions}");
}
