//! The verbs of object storage, against a folder with the layout of a bucket. Servers that fail are the business of the tests of
//! `icecore-tools`.

use crate::driver::{Place, archive, forty_blocks, icecore, icecore_reading};
use serde_json::json;

#[test]
fn an_archive_goes_to_a_bucket_and_comes_back() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let (url, copy) = (format!("file://{}", place.text("bucket")), place.text("copy.ice"));
    let dry = icecore(&["push", &dir, &url, "--dry-run", "--json"]).ok().json();
    assert_eq!((&dry["generation"], &dry["is_new"]), (&json!(null), &json!(false)));
    assert!(!place.path("bucket").exists(), "a dry run writes nothing");
    icecore(&["pull", &url, &copy]).fails(7, "has no archive `main`");
    assert!(!place.path("copy.ice").exists());

    let sent = icecore(&["push", &dir, &url, "--json"]).ok().json();
    assert_eq!((&sent["generation"], &sent["files_sent"]), (&json!(1), &dry["files_sent"]));
    let again = icecore(&["push", &dir, &url]).ok();
    assert!(again.out.contains("nothing new: generation 1 has blocks 1 to"), "{}", again.out);
    let got = icecore(&["pull", &url, &copy, "--json"]).ok().json();
    assert_eq!((&got["head"], &got["files_pulled"]), (&sent["head"], &sent["files_sent"]));
    let at = sent["head"].to_string();
    let scan = |dir: &str| icecore(&["scan", dir, "--at", &at]).ok().out;
    assert!(scan(&copy).lines().count() == 2 && scan(&copy) == scan(&dir));
    assert_eq!(icecore(&["root", &copy]).ok().out, icecore(&["root", &dir, "--at", &at]).ok().out);
    icecore(&["verify", &copy]).ok();
    icecore(&["pull", &url, &copy]).fails(2, "exists and is not empty");

    let listed = icecore(&["remote", "ls", &url, "--json"]).ok().json();
    assert_eq!((&listed["name"], &listed["head"]), (&json!("main"), &sent["head"]));
    let checked = icecore(&["remote", "verify", &url, "--json"]).ok().json();
    assert_eq!((&checked["files"], &checked["problems"]), (&sent["files_sent"], &json!([])));
    assert_eq!(icecore(&["remote", "gc", &url, "--json"]).ok().json()["removed"], json!(0));
    icecore(&["remote", "gc", &url, "--grace", "1"]).fails(2, "grace");
}

#[test]
fn a_url_that_holds_a_secret_is_refused_and_not_repeated() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    for url in ["s3://KEY:SECRET@bucket/chain", "s3://bucket/chain?X-Amz-Signature=SECRET", "bucket"] {
        let run = icecore(&["push", &dir, url]).fails(2, "not a bucket");
        assert!(!run.err.contains("SECRET") && run.err.contains("help: "), "{}", run.err);
    }
}

#[test]
fn verbs_that_read_take_a_bucket() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let (url, copy, cache) =
        (format!("file://{}", place.text("bucket")), place.text("copy.ice"), place.text("cache"));
    icecore(&["push", &dir, &url]).ok();
    icecore(&["pull", &url, &copy]).ok();
    let both = |verb: &[&str]| {
        let at = |archive: &str, more: &[&str]| {
            let asked: Vec<&str> = [&verb[..1], &[archive], &verb[1..], more].concat();
            let run = icecore(&asked);
            (run.code, run.out, run.err)
        };
        let (here, there) = (at(&copy, &[]), at(&url, &["--cache", &cache]));
        assert_eq!((here.0, &here.1), (there.0, &there.1), "{verb:?}: {}", there.2);
        there
    };
    let keys = icecore(&["scan", &copy, "--json"]).ok().out;
    let key = icecore(&["scan", &copy]).ok().out.split('\t').next().map(str::to_owned).unwrap();
    assert_eq!(keys.lines().count(), 2);
    for verb in [
        &["get", &key][..],
        &["get", &key, "--at", "7", "--json"],
        &["get", "no such key"],
        &["scan"],
        &["scan", "--reverse", "--limit", "3", "--json"],
        &["history", &key],
        &["ls"],
        &["ls", "--json"],
        &["root", "--at", "9"],
        &["prove", &key, "--at", "9"],
    ] {
        both(verb);
    }
    let stats = |archive: &[&str]| icecore(&[&["stats", "--json"], archive].concat()).ok().json();
    let (mut here, there) = (stats(&[&copy]), stats(&[&url, "--cache", &cache]));
    // A bucket has no log.
    here["log_bytes"] = json!(0);
    assert_eq!(here, there);
    let told = icecore(&["get", &url, &key, "--cache", &cache, "--cost"]).ok();
    assert!(told.err.contains("generation 1: 3 requests, 0 B of files, 0 waits"), "{}", told.err);
    let told =
        icecore(&["get", &url, &key, "--cache", &place.text("other"), "--cost", "--fetch", "4KiB"]).ok();
    assert!(told.err.contains("requests, ") && told.err.contains(" waits, 0 repeated"), "{}", told.err);
    let request = format!("{{\"get\":{{\"key\":\"{key}\"}}}}\n");
    let asked = |archive: &str| icecore_reading(&["query", archive, "--json"], request.as_bytes()).ok().out;
    assert_eq!(
        asked(&copy),
        icecore_reading(&["query", &url, "--cache", &cache], request.as_bytes()).ok().out
    );
    icecore(&["get", &url, &key, "--cache", &cache, "--fetch", "5000"]).fails(2, "power of two");
    icecore(&["get", &url, &key, "--cache", &cache, "--generation", "9"]).fails(7, "has no generation 9");
}

#[test]
fn an_ingest_pushes_what_it_finishes() {
    let place = Place::new();
    let (dir, url) = (place.text("a.ice"), format!("file://{}", place.text("bucket")));
    let input = place.file("blocks.jsonl", forty_blocks());
    let ingest = ["ingest", &dir, &input, "--format", "jsonl"];
    let create = ["--create", "--blocks-per-step", "4", "--reorg-window", "0", "--push-to"];

    // A URL that is none is refused before an archive is made.
    icecore(&[&ingest[..], &create, &["bucket"]].concat()).fails(2, "not a bucket");
    assert!(!place.path("a.ice").exists());

    // A bucket that fails costs no block.
    place.file("no folder", "");
    let broken = format!("file://{}/bucket", place.text("no folder"));
    let failed = icecore(&[&ingest[..], &create, &[&broken]].concat());
    assert!(failed.code != 0 && failed.err.contains("the archive is complete"), "{}", failed.err);
    let head = icecore(&["stats", &dir, "--json"]).ok().json()["head"].clone();
    assert!(failed.out.contains(&format!("head {head}")), "{}", failed.out);

    let again = icecore(&[&ingest[..], &["--push-to", &url]].concat()).ok();
    assert!(again.err.contains("published as generation 1"), "{}", again.err);
    let pushed = icecore(&["push", &dir, &url, "--json"]).ok().json();
    // The last step is not finished.
    assert_eq!((&pushed["is_new"], &pushed["head"]), (&json!(false), &json!(39)));
}
