//! `icecore export`: what the files say, how an export is taken up again, and that `--check` finds a wrong row.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::driver::{Place, archive, command, forty_blocks, icecore, run};
#[cfg(target_os = "linux")]
use crate::space::SmallDisk;

/// The formats of this build.
pub(crate) const FORMATS: &[&str] =
    if cfg!(feature = "parquet") { &["csv", "jsonl", "parquet"] } else { &["csv", "jsonl"] };

/// All files of a folder by name, with their bytes.
pub(crate) fn files(folder: &str) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(folder).to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                found.push((name, fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn changes_are_written_with_the_values_before_and_after() {
    let place = Place::new();
    let (dir, out) = (archive(&place, 4, &forty_blocks()), place.text("out"));
    let args = ["export", &dir, "--format", "csv", "--out", &out, "--blocks-per-file", "16", "--check"];
    let run = icecore(&args).ok();
    assert_eq!(
        run.out,
        "62 rows of blocks 1 to 40 in 3 files, 0 there already; all compared with the archive\n"
    );
    let written = files(&out);
    let names: Vec<_> = written.iter().map(|(name, _)| name.as_str()).collect();
    let spans = ["1-15", "16-31", "32-40"];
    let mut expected: Vec<_> = spans.map(|span| format!("domain=kv/blocks={span}/part.csv")).to_vec();
    expected.insert(0, "EXPORT.json".to_owned());
    expected.sort();
    assert_eq!(names, expected);
    let text = |span: &str| {
        let (_, bytes) = written.iter().find(|(name, _)| name.contains(span)).unwrap();
        String::from_utf8(bytes.clone()).unwrap()
    };
    let first = text("=1-15");
    assert!(
        first.starts_with("block_number,key,from_value,to_value\n1,k,,v1\n2,even,,0x0002\n2,k,v1,v2\n"),
        "{first}"
    );
    assert!(first.contains("\n10,gone,,here\n"), "{first}");
    let second = text("=16-31");
    assert!(second.contains("\n20,gone,here,\n"), "{second}");

    let lines = place.text("lines");
    let args =
        ["export", &dir, "--format", "jsonl", "--out", &lines, "--blocks", "20..=20", "--check", "--json"];
    let told = icecore(&args).ok().json();
    assert_eq!((&told["rows_written"], &told["difference"]), (&json!(3), &Value::Null));
    let text = fs::read_to_string(format!("{lines}/domain=kv/blocks=20-20/part.jsonl")).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let row = |key, from, to| json!({ "block_number": 20, "key": key, "from_value": from, "to_value": to });
    assert_eq!(
        rows,
        [
            row("even", json!("0x0012"), json!("0x0014")),
            row("gone", json!("here"), Value::Null),
            row("k", json!("v19"), json!("v20")),
        ]
    );
}

#[test]
fn a_state_is_written_as_a_scan_prints_it() {
    let place = Place::new();
    let (dir, out) = (archive(&place, 4, &forty_blocks()), place.text("out"));
    icecore(&["export", &dir, "--format", "csv", "--out", &out, "--what", "state", "--at", "19", "--check"])
        .ok();
    let text = fs::read_to_string(format!("{out}/domain=kv/block=19/part.csv")).unwrap();
    assert_eq!(text, "block_number,key,value\n19,even,0x0012\n19,gone,here\n19,k,v19\n");
}

#[test]
fn a_stopped_export_goes_on_with_the_files_that_are_missing() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    for format in FORMATS {
        let out = place.text(format);
        let args = ["export", &dir, "--format", format, "--out", &out, "--blocks-per-file", "8"];
        icecore(&args).ok();
        let whole = files(&out);
        // As a kill leaves it: one file not begun, one not whole.
        let part = |span: &str| format!("{out}/domain=kv/blocks={span}/part.{format}");
        fs::remove_file(part("8-15")).unwrap();
        let half = fs::read(part("24-31")).unwrap();
        fs::write(format!("{}.unfinished", part("24-31")), &half[..half.len() / 2]).unwrap();
        fs::remove_file(part("24-31")).unwrap();
        let run = icecore(&[&args[..], &["--check"]].concat()).ok();
        assert!(run.out.contains("in 2 files, 4 there already; all compared"), "{}", run.out);
        assert_eq!(files(&out), whole);
    }
    // A kill at the very beginning.
    let out = place.text("begun");
    fs::create_dir(&out).unwrap();
    fs::write(format!("{out}/EXPORT.json.unfinished"), "{").unwrap();
    icecore(&["export", &dir, "--format", "csv", "--out", &out, "--check"]).ok();
    assert!(!Path::new(&out).join("EXPORT.json.unfinished").exists());
    // More blocks came: the export is of those that it began with.
    let out = place.text("csv");
    let args = ["export", &dir, "--format", "csv", "--out", &out, "--blocks-per-file", "8"];
    icecore(&["ingest", &dir, &place.file("more", crate::driver::line(41, "k", None)), "--format", "jsonl"])
        .ok();
    assert!(icecore(&args).ok().out.contains("blocks 1 to 40 in 0 files, 6 there already"));
}

#[test]
fn an_export_goes_on_with_its_own_archive_and_its_own_blocks_only() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    for format in FORMATS {
        let out = place.text(format);
        // The folder as most name it: from where they are.
        let export = |dir: &str| {
            let args =
                ["export", dir, "--format", format, "--out", format, "--blocks-per-file", "8", "--check"];
            let mut export = command(&args);
            export.current_dir(place.path(""));
            run(export, b"")
        };
        export(&dir).ok();
        let written = files(&out);
        // The same blocks, and still another archive.
        let other = Place::new();
        let stranger = archive(&other, 4, &forty_blocks());
        export(&stranger).fails(2, "has an export of another archive: choose another folder");
        assert_eq!(files(&out), written);
        // One that parted from it after block 25: what is in files that end later is written again.
        let fork = place.text(&format!("{format}-fork.ice"));
        icecore(&["checkpoint", &dir, &fork]).ok();
        icecore(&["unwind", &fork, "--to", "25"]).ok();
        let line = |block| crate::driver::line(block, "k", Some(&format!("fork {block}")));
        let blocks: String = (26..=40).map(line).collect();
        icecore(&["ingest", &fork, &place.file("fork", blocks), "--format", "jsonl"]).ok();
        let run = export(&fork).ok();
        assert!(run.out.contains("in 3 files, 3 there already; all compared"), "{}", run.out);
        assert_eq!(run.err.matches("their files are written again").count(), 3, "{}", run.err);
        let fresh = place.text(&format!("{format}-fresh"));
        let args = ["export", &fork, "--format", format, "--out", &fresh, "--blocks-per-file", "8"];
        icecore(&args).ok();
        assert!(files(&out) == files(&fresh) && files(&out) != written);
    }
}

#[test]
fn check_finds_what_other_readers_would_read() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    for format in FORMATS {
        let out = place.text(format);
        let check = || {
            icecore(&["export", &dir, "--format", format, "--out", &out, "--blocks-per-file", "8", "--check"])
        };
        check().ok();
        let folder = format!("{out}/domain=kv/blocks=8-15");
        let part = format!("{folder}/part.{format}");
        for more in [
            format!("{folder}/more.{format}"),
            format!("{out}/domain=kv/blocks=9-9/part.{format}"),
            format!("{out}/domain=other/blocks=8-15/part.{format}"),
        ] {
            fs::create_dir_all(Path::new(&more).parent().unwrap()).unwrap();
            fs::copy(&part, &more).unwrap();
            let run = check();
            assert_eq!(run.code, 1, "{more}");
            assert!(run.out.contains(&format!("{more}: no file of this export")), "{}", run.out);
            fs::remove_file(&more).unwrap();
        }
        fs::write(format!("{out}/domain=kv/notes.txt"), "beside the files").unwrap();
        check().ok();
    }
    let part = place.text("jsonl/domain=kv/blocks=8-15/part.jsonl");
    let text = fs::read_to_string(&part).unwrap();
    fs::write(&part, text.replacen("\"key\":", "\"key\":\"a lie\",\"key\":", 1)).unwrap();
    let out = place.text("jsonl");
    let run =
        icecore(&["export", &dir, "--format", "jsonl", "--out", &out, "--blocks-per-file", "8", "--check"]);
    assert!(run.code == 1 && run.out.contains("row 1: it has `key` twice"), "{}", run.out);
}

/// A line without an end, of a file that takes no room on the disk.
#[test]
fn a_line_that_never_ends_is_not_read_to_its_end() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    for format in ["csv", "jsonl"] {
        let out = place.text(format);
        let args = ["export", &dir, "--format", format, "--out", &out, "--check"];
        icecore(&args).ok();
        let part = fs::File::options().write(true).open(format!("{out}/domain=kv/blocks=1-40/part.{format}"));
        part.unwrap().set_len(1 << 40).unwrap();
        let run = icecore(&args);
        assert!(run.code == 1 && run.out.contains("the archive has no such row"), "{}", run.out);
        let text = fs::File::create(format!("{out}/domain=kv/blocks=1-40/part.{format}")).unwrap();
        text.set_len(1 << 40).unwrap();
        assert_eq!(icecore(&args).code, 1);
    }
}

/// Sixty blocks of three hundred keys each.
fn many_changes(place: &Place) -> String {
    let line = |block: u64, key: u64| {
        let value = format!("{block:04}/{:0100}", key * block);
        crate::driver::line(block, &format!("key {:03}", (key * 7 + block) % 400), Some(&value))
    };
    let lines: String = (1..=60).flat_map(|block| (0..300).map(move |key| line(block, key))).collect();
    archive(place, 8, &lines)
}

#[cfg(unix)]
#[test]
fn killed_at_any_moment_it_goes_on_to_the_same_files() {
    use std::process::{Command, Stdio};
    use std::time::Instant;

    let place = Place::new();
    let dir = many_changes(&place);
    for format in FORMATS {
        let (whole, out) = (place.text(&format!("{format}-whole")), place.text(format));
        let options = ["export", &dir, "--format", format, "--blocks-per-file", "3", "--out"];
        let begun = Instant::now();
        icecore(&[&options[..], &[&whole]].concat()).ok();
        let takes = begun.elapsed();
        let args = [&options[..], &[&out]].concat();
        // Where exactly a kill finds it is chance, and so is whether it comes before the end: then it begins again from nothing.
        let (mut kills, mut attempts) = (0, 0..80);
        while kills < 8 {
            let attempt = attempts.next().expect("one of ten kills comes before the end");
            let mut child =
                crate::driver::command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(takes * (attempt % 8) / 16);
            if attempt % 2 == 0 {
                child.kill().unwrap();
            } else {
                let pid = child.id().to_string();
                Command::new("kill").args(["-INT", &pid]).stderr(Stdio::null()).status().unwrap();
            }
            if child.wait().unwrap().success() {
                assert!(files(&out) == files(&whole), "{format}");
                fs::remove_dir_all(&out).unwrap();
            } else {
                kills += 1;
            }
        }
        icecore(&args).ok();
        assert!(files(&out) == files(&whole), "{format}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_fills_up_stops_an_export_that_then_goes_on() {
    let place = Place::new();
    let dir = many_changes(&place);
    let Some(disk) = SmallDisk::mount(&place.path("disk"), "16m") else {
        eprintln!("left out: a small file system cannot be mounted here");
        return;
    };
    for format in FORMATS {
        let (whole, out) = (place.text(&format!("{format}-whole")), place.text(&format!("disk/{format}")));
        let export = |out: &str, more: &[&str]| {
            let args = ["export", &dir, "--format", format, "--out", out, "--blocks-per-file", "9"];
            icecore(&[&args[..], more].concat())
        };
        export(&whole, &[]).ok();
        let bytes: usize = files(&whole).iter().map(|(_, bytes)| bytes.len()).sum();
        // Some of the files fit, and a part of another one.
        let room = place.path("disk/room");
        fs::write(&room, vec![1; bytes / 2]).unwrap();
        disk.fill("ballast");
        fs::remove_file(&room).unwrap();
        export(&out, &[]).fails(6, "part.");
        let there = files(&out);
        let kept = there.iter().filter(|(name, _)| name.ends_with(format)).count();
        assert!(0 < kept && kept < files(&whole).len() - 1, "{format}: {kept}");
        fs::remove_file(place.path("disk/ballast")).unwrap();
        export(&out, &["--check"]).ok();
        assert!(files(&out) == files(&whole), "{format}");
        fs::remove_dir_all(&out).unwrap();
    }
}

/// What `--check` says of Parquet that is not the archive's: files of archives that differ in a row or in how many they have, files of other
/// columns, and files that are no Parquet.
#[cfg(feature = "parquet")]
#[test]
fn wrong_parquet_is_named() {
    let place = Place::new();
    let export = |lines: &str, more: &[&str]| {
        let place = Place::new();
        let (dir, out) = (archive(&place, 4, lines), place.text("out"));
        icecore(&[&["export", &dir, "--format", "parquet", "--out", &out], more].concat()).ok();
        files(&out).into_iter().find(|(name, _)| name.ends_with(".parquet")).unwrap().1
    };
    let lines = forty_blocks();
    let (dir, out) = (archive(&place, 4, &lines), place.text("out"));
    let args = ["export", &dir, "--format", "parquet", "--out", &out, "--check"];
    icecore(&args).ok();
    let path = format!("{out}/domain=kv/blocks=1-40/part.parquet");
    let sound = fs::read(&path).unwrap();
    assert!(sound == export(&lines, &[]), "the same changes are the same bytes");
    let mut longer = crate::driver::line(40, "z", Some("more"));
    longer.insert_str(0, &lines);
    let cut = &sound[..sound.len() - 9];
    for (bytes, told) in [
        (export(&lines.replace("v7", "v8"), &[]), "row 10: not what the archive has"),
        (export(&lines.replace("here", "there"), &[]), "row 15: not what the archive has"),
        (export(&lines, &["--blocks", "..40"]), "row 61: the file ends before it"),
        (export(&longer, &[]), "row 63: the archive has no such row"),
        (export(&lines, &["--what", "state"]), "row 0: other columns"),
        (cut.to_vec(), "row 0: "),
        (b"no parquet at all".to_vec(), "row 0: "),
    ] {
        fs::write(&path, bytes).unwrap();
        let run = icecore(&args);
        assert_eq!(run.code, 1, "{told}: {} {}", run.out, run.err);
        assert!(run.out.contains(told) && run.out.contains(&path), "{told}: {}", run.out);
    }
}

#[cfg(not(feature = "parquet"))]
#[test]
fn a_command_without_parquet_says_how_to_get_it() {
    let place = Place::new();
    let (dir, out) = (archive(&place, 4, &forty_blocks()), place.text("out"));
    icecore(&["export", &dir, "--format", "parquet", "--out", &out]).fails(2, "--features parquet");
    assert!(!Path::new(&out).exists());
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_takes_numbers_of_its_columns_only() {
    let place = Place::new();
    let (dir, out) = (place.text("eth.ice"), place.text("out"));
    let address = format!("0x{}", "ab".repeat(20));
    let change = |field: &str, value: &str| {
        format!("{}\n", json!({ "block": 1, "address": address, "field": field, "value": value }))
    };
    let lines =
        change("balance", &format!("0x{}", "ff".repeat(32))) + &change("nonce", "0x10000000000000000");
    icecore(&["ingest", &dir, &place.file("in", lines), "--format", "eth-changes", "--create"]).ok();
    let args = ["export", &dir, "--format", "parquet", "--out", &out, "--check"];
    icecore(&[&args[..], &["--domain", "balance"]].concat()).ok();
    let out = place.text("nonces");
    let args = ["export", &dir, "--format", "parquet", "--out", &out];
    icecore(&args).fails(2, "to_value of key 0xababab");
    icecore(&[&args[..], &["--encoding", "hex"]].concat()).fails(2, "--encoding goes with");
}

#[test]
fn a_wrong_row_is_named() {
    let place = Place::new();
    let (dir, out) = (archive(&place, 4, &forty_blocks()), place.text("out"));
    for format in ["csv", "jsonl"] {
        let out = format!("{out}-{format}");
        let args = ["export", &dir, "--format", format, "--out", &out, "--check"];
        icecore(&args).ok();
        let path = format!("{out}/domain=kv/blocks=1-40/part.{format}");
        let sound = fs::read_to_string(&path).unwrap();
        let cut = &sound[..=sound.trim_end().rfind('\n').unwrap()];
        let last = sound.lines().last().unwrap();
        for (text, told) in [
            (sound.replacen("v7", "v8", 1), "row 10: not what the archive has"),
            (sound.replacen("0x0014", "0x00zz", 1), "is not hex"),
            (cut.to_owned(), "row 62: the file ends before it"),
            (format!("{sound}{last}\n"), "row 63: the archive has no such row"),
        ] {
            fs::write(&path, text).unwrap();
            let run = icecore(&args);
            assert_eq!(run.code, 1, "{told}: {}", run.err);
            assert!(run.out.contains(told) && run.out.contains(&path), "{told}: {}", run.out);
        }
        fs::write(&path, sound).unwrap();
        icecore(&args).ok();
    }
}

#[test]
fn ethereum_has_the_columns_of_cryo() {
    let place = Place::new();
    let (dir, out) = (place.text("eth.ice"), place.text("out"));
    let address = format!("0x{}", "ab".repeat(20));
    let change = |block: u64, field: &str, slot: Option<&str>, value: Option<&str>| {
        let mut change = json!({ "block": block, "address": address, "field": field, "value": value });
        if let Some(slot) = slot {
            change["slot"] = json!(slot);
        }
        format!("{change}\n")
    };
    let slot = format!("0x{:064x}", 7);
    let lines = change(1, "balance", None, Some("0x0"))
        + &change(2, "balance", None, Some("0x10"))
        + &change(2, "storage", Some(&slot), Some("0x5"))
        + &change(3, "storage", Some(&slot), None)
        + &change(3, "code", None, Some("0x"));
    let input = place.file("changes.jsonl", lines);
    icecore(&["ingest", &dir, &input, "--format", "eth-changes", "--create"]).ok();
    icecore(&["export", &dir, "--format", "csv", "--out", &out, "--chain-id", "1", "--check"]).ok();
    let of = |domain: &str| fs::read_to_string(format!("{out}/domain={domain}/blocks=1-3/part.csv")).unwrap();
    let head = "block_number,transaction_index,transaction_hash,address,";
    assert_eq!(
        of("balance"),
        format!("{head}from_value,to_value,chain_id\n1,,,{address},,0x00,1\n2,,,{address},0x00,0x10,1\n")
    );
    let five = format!("0x{:064x}", 5);
    let slots = format!("2,,,{address},{slot},,{five},1\n3,,,{address},{slot},{five},,1\n");
    assert_eq!(of("storage"), format!("{head}slot,from_value,to_value,chain_id\n{slots}"));
    assert_eq!(of("code"), format!("{head}from_value,to_value,chain_id\n3,,,{address},,0x,1\n"));
    assert_eq!(of("nonce"), format!("{head}from_value,to_value,chain_id\n"));
}

#[test]
fn what_is_refused_is_told() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let taken = place.path("taken");
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("notes.txt"), "mine").unwrap();
    let taken = taken.to_str().unwrap();
    icecore(&["export", &dir, "--format", "csv", "--out", taken]).fails(2, "has files that are no export");
    let out = place.text("out");
    icecore(&["export", &dir, "--format", "csv", "--out", &out, "--blocks", "3..9"]).ok();
    icecore(&["export", &dir, "--format", "csv", "--out", &out, "--blocks", "3..10"])
        .fails(2, "has another export");
    icecore(&["export", &dir, "--format", "jsonl", "--out", &out, "--blocks", "3..9"])
        .fails(2, "has another export");
    for (option, value, code, told) in [
        ("--domain", "none", 2, "kv"),
        ("--blocks", "9..3", 2, "has no block"),
        ("--blocks", "3", 2, "is not a range of blocks"),
        ("--blocks", "0..9", 3, "0"),
        ("--blocks", "3..99", 3, "98"),
        ("--blocks-per-file", "0", 2, "at least 1"),
        ("--encoding", "text", 2, "absent values from empty ones"),
        ("--at", "3", 2, "--at with --what state"),
    ] {
        let fresh = place.text("fresh");
        icecore(&["export", &dir, "--format", "csv", "--out", &fresh, option, value]).fails(code, told);
    }
    let file = place.file("file", "");
    icecore(&["export", &dir, "--format", "csv", "--out", &file]).fails(7, "file");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_and_leaves_nothing_that_is_taken_for_whole() {
    let place = Place::new();
    let (dir, out) = (archive(&place, 4, &forty_blocks()), place.text("out"));
    let args = ["export", &dir, "--format", "csv", "--out", &out];
    icecore(&args).ok();
    let part = format!("{out}/domain=kv/blocks=1-40/part.csv");
    fs::remove_file(&part).unwrap();
    // A device that is always full takes the place of the file.
    std::os::unix::fs::symlink("/dev/full", format!("{part}.unfinished")).unwrap();
    icecore(&args).fails(6, "part.csv");
    assert!(!Path::new(&part).exists());
    fs::remove_file(format!("{part}.unfinished")).unwrap();
    icecore(&[&args[..], &["--check"]].concat()).ok();
}

#[test]
fn duckdb_and_polars_read_what_the_archive_has() {
    let place = Place::new();
    let dir = archive(&place, 4, &forty_blocks());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tools/export_agrees.py");
    let run = std::process::Command::new("python3")
        .args([script, env!("CARGO_BIN_EXE_icecore"), &dir, "kv"])
        .output();
    let Ok(run) = run else { return eprintln!("skipped: there is no python3") };
    let said = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    match run.status.code() {
        Some(77) => eprintln!("skipped: {said}"),
        code => assert_eq!(code, Some(0), "{said}"),
    }
}
