//! The verbs of object storage, against a folder with the layout of a bucket. Servers that fail are the business of the tests of
//! `icecore-tools`.

use crate::driver::{Place, Run, archive, command, forty_blocks, icecore, icecore_reading};
use crate::export::{FORMATS, files};
use serde_json::json;

#[test]
fn an_archive_goes_to_a_bucket_and_comes_back() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let (url, copy) = (format!("file://{}", place.text("bucket")), place.text("copy.ice"));
    let dry = icecore(&["push", &dir, &url, "--dry-run", "--json"]).ok().json();
    assert_eq!((&dry["generation"], &dry["is_new"]), (&json!(null), &json!(false)));
    assert!(!place.path("bucket").exists(), "a dry run writes nothing");
    icecore(&["pull", &url, &copy]).fails(2, "has no archive `main`");
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
    let again = icecore(&["pull", &url, &copy, "--json"]).ok().json();
    assert_eq!((&again["files_pulled"], &again["files_present"]), (&json!(0), &sent["files_sent"]));

    let listed = icecore(&["remote", "ls", &url, "--json"]).ok().json();
    assert_eq!((&listed["name"], &listed["head"]), (&json!("main"), &sent["head"]));
    let checked = icecore(&["remote", "verify", &url, "--json"]).ok().json();
    assert_eq!((&checked["files"], &checked["problems"]), (&sent["files_sent"], &json!([])));
    let (cache, blocks) = (place.text("blocks"), ["remote", "verify", &url, "--blocks"]);
    assert_eq!(icecore(&[&blocks[..], &["--cache", &cache, "--json"]].concat()).ok().json(), checked);
    let kept = std::fs::read_dir(&cache)
        .unwrap()
        .filter_map(|file| file.unwrap().path().extension().map(Into::into));
    let kept: Vec<std::ffi::OsString> = kept.collect();
    assert!(kept.iter().any(|kind| kind == "kvbi"), "the block indexes were read: {kept:?}");
    icecore(&["remote", "verify", &url, "--cache", &cache]).fails(2, "--blocks");
    assert_eq!(icecore(&["remote", "gc", &url, "--json"]).ok().json()["removed"], json!(0));
    icecore(&["remote", "gc", &url, "--grace", "1"]).fails(2, "grace");
    icecore(&["remote", "gc", &url, "--keep", "0"]).fails(2, "it is at least 1");
    icecore(&["push", &dir, "memory://name"]).fails(2, "ends with it");
    let dry = icecore(&["remote", "gc", &url, "--dry-run", "--json"]).ok().json();
    assert_eq!(dry["dry_run"], json!(true));
}

#[test]
fn remote_ls_and_gc_say_what_they_make_of_a_name_and_of_a_bucket_without_archives() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let (url, empty) =
        (format!("file://{}", place.text("bucket")), format!("file://{}", place.text("empty")));
    for name in ["main", "other"] {
        icecore(&["push", &dir, &url, "--archive", name]).ok();
    }
    let names = |args: &[&str]| -> Vec<serde_json::Value> {
        let listed = icecore(&[&["remote", "ls", &url, "--json"], args].concat()).ok().json_lines();
        listed.iter().map(|archive| archive["name"].clone()).collect()
    };
    assert_eq!(names(&[]), [json!("main"), json!("other")]);
    assert_eq!(names(&["--archive", "other"]), [json!("other")]);
    icecore(&["remote", "ls", &url, "--archive", "third"])
        .fails(2, "there is no archive by the name \"third\" in file://");
    icecore(&["remote", "gc", &url, "--archive", "other"]).fails(2, "leave --archive out");

    // A bucket that is empty, and one that holds what is no archive.
    for _ in 0..2 {
        for verb in [&["ls"][..], &["ls", "--json"], &["verify"], &["gc"]] {
            let run = icecore(&[&["remote"], verb, &[&empty]].concat()).fails(2, "no archive");
            assert_eq!(run.out, "", "{verb:?}");
        }
        std::fs::create_dir_all(place.path("empty/photos")).unwrap();
        std::fs::write(place.path("empty/photos/1.jpg"), b"no manifest").unwrap();
    }
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
    // One or two, by how far the archive was merged.
    assert!(told.err.contains("requests, ") && told.err.contains(" wait"), "{}", told.err);
    assert!(told.err.contains(", 0 repeated"), "{}", told.err);
    let request = format!("{{\"get\":{{\"key\":\"{key}\"}}}}\n");
    let asked = |archive: &str| icecore_reading(&["query", archive, "--json"], request.as_bytes()).ok().out;
    assert_eq!(
        asked(&copy),
        icecore_reading(&["query", &url, "--cache", &cache], request.as_bytes()).ok().out
    );
    icecore(&["diff", &url, &copy, "--cache", &cache]).ok();
    let newer = icecore(&["diff", &url, "--from", "-3", "--cache", &cache]);
    assert_eq!((newer.code, &newer.out), (1, &icecore(&["diff", &copy, "--from", "-3"]).out));
    icecore(&["diff", &copy, &copy, "--cache", &cache]).fails(2, "--cache is for an archive in a bucket");
    assert!(icecore(&["verify", &url]).ok().out.contains("generation 1: "));
    icecore(&["verify", &url, "--fast"]).fails(2, "--fast is for an archive in a directory");
    icecore(&["verify", &copy, "--pubkey", "none"]).fails(2, "--pubkey is for an archive in a bucket");
    icecore(&["get", &url, &key, "--cache", &cache, "--fetch", "5000"]).fails(2, "power of two");
    icecore(&["get", &url, &key, "--cache", &cache, "--generation", "9"]).fails(2, "has no generation 9");
}

#[test]
fn an_export_of_a_bucket_is_that_of_the_archive() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let (url, copy) = (format!("file://{}", place.text("bucket")), place.text("copy.ice"));
    icecore(&["push", &dir, &url]).ok();
    icecore(&["pull", &url, &copy]).ok();
    let cache = place.text("cache");
    for format in FORMATS {
        for (what, more) in [("changes", &["--blocks-per-file", "8"][..]), ("state", &["--at", "19"])] {
            let export = |archive: &str, from: &str, more: &[&str]| {
                let out = place.text(&format!("{format}-{what}-{from}"));
                let args = ["export", archive, "--format", format, "--what", what, "--out", &out, "--check"];
                icecore(&[&args[..], more].concat()).ok();
                files(&out)
            };
            let cached = [more, &["--cache", &cache]].concat();
            let there = export(&url, "url", &cached);
            assert!(1 < there.len() && there == export(&copy, "copy", more), "{format} {what}");
        }
    }
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

#[test]
fn what_merges_reindexes_and_prunes_publish_goes_up() {
    let place = Place::new();
    let url = pushed_chain(&place);
    let dir = place.text("a.ice");
    let remote_head = || icecore(&["push", &dir, &url, "--json"]).ok().json();
    let generation = || remote_head()["generation"].as_u64().unwrap();
    let segments =
        || icecore(&["ls", &url, "--json", "--cache", &place.text("cache")]).ok().out.lines().count();
    let (before, many) = (generation(), segments());

    icecore(&["merge", &dir, "--push-to", &url, "--dry-run"]).fails(2, "--dry-run");
    icecore(&["merge", &dir, "--push-to", "bucket"]).fails(2, "not a bucket");
    assert_eq!(segments(), many, "what is refused does nothing");
    for (verb, more) in [("merge", &[][..]), ("reindex", &["--m", "32"]), ("prune", &["--before", "17"])] {
        let past = generation();
        let done = icecore(&[&[verb, &dir, "--push-to", &url], more].concat()).ok();
        assert!(done.err.contains(&format!("published as generation {}", past + 1)), "{verb}: {}", done.err);
        assert_eq!(remote_head()["is_new"], json!(false), "{verb}");
        assert_eq!(generation(), past + 1, "{verb}");
    }
    assert!(segments() < many && before < generation());
    let cache = place.text("cache");
    icecore(&["get", &url, "accounts-3", "--domain", "accounts", "--at", "16", "--cache", &cache])
        .fails(3, "16");

    // A bucket that fails undoes nothing.
    place.file("no folder", "");
    let broken = format!("file://{}/bucket", place.text("no folder"));
    let failed = icecore(&["reindex", &dir, "--m", "64", "--push-to", &broken]);
    assert!(failed.code != 0 && failed.err.contains("the archive is complete"), "{}", failed.err);
    assert!(failed.out.contains("rebuilt"), "{}", failed.out);
}

/// A bucket with an archive of two domains, ten steps of four blocks each; and its URL. Each step is added by a run of its own, so that it
/// has its own segments.
fn pushed_chain(place: &Place) -> String {
    let (dir, url) = (place.text("a.ice"), format!("file://{}", place.text("bucket")));
    let create = ["create", &dir, "--domain", "accounts", "--domain", "code", "--blocks-per-step", "4"];
    icecore(&[&create[..], &["--reorg-window", "0"]].concat()).ok();
    for step in 0..10 {
        let mut lines = String::new();
        for block in (4 * step..4 * step + 4).filter(|block| *block > 0) {
            for domain in ["accounts", "code"] {
                let (key, value) = (format!("{domain}-{}", block % 7), format!("v{block}"));
                let line = json!({ "block": block, "domain": domain, "key": key, "value": value });
                lines += &format!("{line}\n");
            }
        }
        let input = place.file("input.jsonl", lines);
        icecore(&["ingest", &dir, &input, "--format", "jsonl", "--no-merge", "--sync", "relaxed"]).ok();
    }
    icecore(&["push", &dir, &url]).ok();
    url
}

#[test]
fn a_part_says_what_it_does_not_hold_and_how_to_get_it() {
    let place = Place::new();
    let (url, copy, whole) = (pushed_chain(&place), place.text("part.ice"), place.text("whole.ice"));
    icecore(&["pull", &url, &whole]).ok();
    icecore(&["pull", &url, &copy, "--domain", "balances"]).fails(2, "unknown domain 'balances'");
    icecore(&["pull", &url, &copy, "--blocks", "900.."]).fails(3, "block 900");
    icecore(&["pull", &url, &copy, "--blocks", "9..9"]).fails(2, "has no block");
    assert!(!place.path("part.ice").exists(), "what is refused leaves nothing");

    let part = ["pull", &url, &copy, "--domain", "accounts", "--blocks", "..12", "--json"];
    let got = icecore(&part).ok().json();
    assert!(got["segments_held"].as_u64() < got["segments"].as_u64(), "{got}");
    assert_eq!((&got["head"], &got["segments_kept"]), (&json!(39), &json!(0)), "{got}");
    let again = icecore(&part).ok().json();
    assert_eq!((&again["files_pulled"], &again["files_present"]), (&json!(0), &got["files_pulled"]));

    let get = |dir: &str, domain: &str, key: &str, at: &str| {
        icecore(&["get", dir, key, "--domain", domain, "--at", at])
    };
    assert_eq!(
        get(&copy, "accounts", "accounts-3", "11").ok().out,
        get(&whole, "accounts", "accounts-3", "11").ok().out
    );
    for (domain, key, at, missing) in [
        ("accounts", "accounts-3", "39", "accounts of blocks 36 to 39 is not held here"),
        ("code", "code-3", "11", "code of blocks 8 to 11 is not held here"),
        ("code", "no such key", "3", "code of blocks 0 to 3 is not held here"),
    ] {
        let told = get(&copy, domain, key, at).fails(3, missing).err;
        assert!(told.contains(&format!("`icecore pull BUCKET {copy} --domain {domain} --blocks ")), "{told}");
    }
    let refused =
        icecore(&["get", &copy, "code-3", "--domain", "code", "--at", "11", "--json"]).fails(3, "not held");
    assert!(refused.out.is_empty(), "{}", refused.out);
    icecore(&["scan", &copy, "--domain", "code", "--at", "11"]).fails(3, "is not held here");
    icecore(&["history", &copy, "accounts-3", "--domain", "accounts"]).fails(3, "is not held here");
    let out = place.text("out");
    icecore(&["export", &copy, "--format", "csv", "--out", &out]).fails(3, "is not held here");
    assert_eq!(
        icecore(&["root", &copy, "--at", "30"]).ok().out,
        icecore(&["root", &whole, "--at", "30"]).ok().out
    );
    for verb in
        [&["merge"][..], &["prune", "--before", "9"], &["unwind", "--to", "9"], &["reindex", "--rebuild"]]
    {
        icecore(&[&verb[..1], &[&copy], &verb[1..]].concat())
            .fails(2, "is a partial copy, which is for reading");
    }
    let input = place.text("input.jsonl");
    icecore(&["ingest", &copy, &input, "--format", "jsonl"]).fails(2, "is a partial copy");
    icecore(&["push", &copy, &format!("file://{}", place.text("other"))]).fails(2, "is a partial copy");
}

#[test]
fn a_part_is_listed_checked_and_extended() {
    let place = Place::new();
    let (url, copy) = (pushed_chain(&place), place.text("part.ice"));
    icecore(&["pull", &url, &copy, "--domain", "accounts", "--blocks", "..12"]).ok();
    let listed = icecore(&["ls", &copy, "--json"]).ok().json_lines();
    let held = |listed: &[serde_json::Value]| {
        listed.iter().filter(|segment| segment["is_held"] == json!(true)).count()
    };
    assert!(listed.iter().all(|segment| segment["is_held"] == json!(true) || segment["entries"].is_null()));
    // Ten segments of roots and three of accounts.
    assert_eq!((listed.len(), held(&listed)), (30, 13));
    assert!(icecore(&["ls", &copy]).ok().out.contains("not held"));
    let stats = icecore(&["stats", &copy, "--json"]).ok().json();
    assert_eq!(
        (&stats["segments"], &stats["segments_not_held"], &stats["entries"]),
        (&json!(13), &json!(17), &json!(11))
    );
    assert!(icecore(&["stats", &copy]).ok().out.contains("13, 17 not held"));
    let checked = icecore(&["verify", &copy, "--json"]).ok().json();
    assert_eq!((&checked["ok"], checked["not_held"].as_array().map(Vec::len)), (&json!(true), Some(17)));
    assert!(icecore(&["verify", &copy]).ok().out.contains("not held: code.0-1"));
    let manifest = icecore(&["info", &format!("{copy}/MANIFEST"), "--json"]).ok().json();
    assert_eq!(
        (&manifest["format_version"], manifest["segments_not_held"].as_array().map(Vec::len)),
        (&json!(6), Some(17))
    );

    // Other blocks of the other domain: what was held stays.
    let more = icecore(&["pull", &url, &copy, "--domain", "code", "--blocks", "20..=23"]).ok();
    assert!(
        more.err.contains("3 segments held before") || more.out.contains("3 segments held before"),
        "{} {}",
        more.out,
        more.err
    );
    assert_eq!(held(&icecore(&["ls", &copy, "--json"]).ok().json_lines()), 14);
    icecore(&["get", &copy, "code-0", "--domain", "code", "--at", "23"]).ok();
    icecore(&["get", &copy, "accounts-3", "--domain", "accounts", "--at", "11"]).ok();
    let file = std::fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().path());
    let kv = file
        .filter(|path| path.extension().is_some_and(|kind| kind == "kv"))
        .find(|path| path.to_string_lossy().contains("code"));
    std::fs::remove_file(kv.unwrap()).unwrap();
    icecore(&["verify", &copy]).fails(4, "problem");

    let whole = icecore(&["pull", &url, &copy, "--json"]).ok().json();
    assert_eq!(whole["segments_held"], whole["segments"]);
    icecore(&["verify", &copy]).ok();
    icecore(&["merge", &copy]).ok();
    icecore(&["pull", &url, &copy]).fails(2, "exists and is not empty");
}
/// A pair of keys of minisign, the secret one also with the password `correct horse`, and a public key that is not theirs.
const SECRET: &str = "untrusted comment: minisign encrypted secret key\n\
        RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAALm8vScJ3Nz0Jx6++vAbTbVO8HWcJQav2dHdHZe\
        rmjFtNHqyOAPNVtVapiNZ485Pv7c3GeCRwBzrJ6F4W+6ihztl0dXEfvVAuAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
const LOCKED: &str = "untrusted comment: minisign encrypted secret key\n\
        RWRTY0IyAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8AgAAAAAAAAAAAAAEAAAAAMc4bwZb2vaNHV5hu/U4E9quy+qvB1M/v7SDlwm\
        m1o9vwJTvj2dbQcTneFZwiBXeoe5fyRrpnOVAG/GvRNbmXAEVpO0OzZxMFKAuTjhH/uS8cJc71HNwQZ3bhbI1GQ8NFIAecBAXhsJg=\n";
const PUBLIC: &str = "RWQuby9Jwnc3PVapiNZ485Pv7c3GeCRwBzrJ6F4W+6ihztl0dXEfvVAu";
const STRANGER: &str = "RWTVqAsg9qkmsAADKojSuO1jWvb/fDhBEGSM12OWm0VLZh9l5v/YKVFf";

#[test]
fn what_is_signed_is_believed_and_nothing_else() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let url = format!("file://{}", place.text("bucket"));
    let (secret, locked) = (place.file("one.key", SECRET), place.file("locked.key", LOCKED));
    let public = place.file("one.pub", format!("untrusted comment: minisign public key\n{PUBLIC}\n"));
    let copy = |name: &str, key: &str| icecore(&["pull", &url, &place.text(name), "--pubkey", key]);

    icecore(&["push", &dir, &url]).ok();
    copy("unsigned.ice", PUBLIC).fails(4, "is not to be trusted: it is not signed");
    icecore(&["push", &dir, &url, "--sign", &secret]).ok();
    copy("copy.ice", PUBLIC).ok();
    assert_eq!(icecore(&["root", &place.text("copy.ice")]).ok().out.lines().count(), 1);
    copy("same.ice", &public).ok();
    copy("other.ice", STRANGER).fails(4, "it is signed by another key");
    copy("none.ice", "no such file").fails(2, "is neither a public key of minisign nor a file with one");
    copy("none.ice", &secret).fails(2, "no public key of minisign");
    for name in ["unsigned.ice", "other.ice", "none.ice"] {
        assert!(!place.path(name).exists(), "{name}");
    }
    icecore(&["push", &dir, &url]).fails(2, "signed by key 3D3777C2492F6F2E, this push is not");
    let checked = icecore(&["remote", "verify", &url, "--pubkey", PUBLIC, "--json"]).ok().json();
    assert_eq!((&checked["signer"], &checked["generations"]), (&json!("3D3777C2492F6F2E"), &json!(2)));
    icecore(&["remote", "verify", &url, "--pubkey", STRANGER]).fails(4, "another key");
    assert!(icecore(&["remote", "verify", &url]).ok().out.contains("signed by key 3D3777C2492F6F2E"));
    assert!(icecore(&["remote", "ls", &url]).ok().out.contains("3D3777C2492F6F2E"));

    // Read where it is, in the folder that a reader without a key filled.
    let get = |key: &str| icecore(&["get", &url, "k", "--cache", &place.text("cache"), "--pubkey", key]);
    let plain = icecore(&["get", &url, "k", "--cache", &place.text("cache")]).ok();
    assert_eq!((get(PUBLIC).ok().out, get(&public).ok().out), (plain.out.clone(), plain.out));
    get(STRANGER).fails(4, "it is signed by another key");

    // A password comes from the environment, where there is no terminal; and is told nowhere.
    let push = |password: Option<&str>| {
        let mut command = command(&["push", &dir, &url, "--sign", &locked, "--verbose"]);
        command.env_remove("ICECORE_SIGN_PASSWORD").envs(password.map(|it| ("ICECORE_SIGN_PASSWORD", it)));
        let output = command.stdin(std::process::Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Run { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    };
    assert!(push(Some("correct horse")).ok().out.contains("nothing new"));
    let wrong = push(Some("wrong horse")).fails(2, "the password is wrong");
    assert!(!wrong.err.contains("horse"), "{}", wrong.err);
    icecore(&["push", &dir, &url, "--sign", &public]).fails(2, "no secret key of minisign");
}

#[test]
fn what_says_how_a_bucket_is_read_is_refused_for_a_directory() {
    let place = Place::new();
    let dir = place.text("a.ice");
    icecore(&["create", &dir, "--domain", "kv"]).ok();
    for (option, value) in
        [("--pubkey", "/nonexistent"), ("--generation", "7"), ("--cache", "c"), ("--endpoint", "http://h")]
    {
        icecore(&["stats", &dir, option, value]).fails(2, &format!("{option} is for an archive in a bucket"));
    }
    for endpoint in ["minio:9000", "", "http://"] {
        let args = ["stats", "s3://bucket/a", "--endpoint", endpoint, "--region", "r"];
        icecore(&args).fails(2, "the endpoint is no URL of a server");
    }
}
