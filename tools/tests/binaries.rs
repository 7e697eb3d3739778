//! The measuring binaries on small data: they run, their JSON has the promised shape, and they leave an archive as it was.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use icecore::{Archive, Maintenance, OpenOptions, Options};
use icecore_tools::machine::Conditions;
use icecore_tools::workload::storage::StorageEntries;
use serde_json::Value;

/// A folder on a disk, which unlike a temporary folder is seldom in memory only.
fn disk_folder() -> tempfile::TempDir {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    tempfile::tempdir_in(folder).unwrap()
}

/// Whether pages of files in `dir` can leave memory at all; says so where they cannot.
fn can_leave(dir: &Path) -> bool {
    let system = Conditions::of(dir).file_system;
    let stays = ["tmpfs", "ramfs", "overlay", "unknown"].iter().any(|kind| system.starts_with(kind));
    if stays {
        println!("skipped: pages of a file on {system} may not leave memory");
    }
    !stays
}

fn run(binary: &str, arguments: &[&str]) -> Output {
    let output = Command::new(binary).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    output
}

/// The tables of a text: heads and lines of cells. A table begins with its heads and ends with an empty line.
fn tables(text: &str) -> Vec<Vec<Vec<String>>> {
    let blocks =
        text.split("\n\n").filter(|block| block.starts_with("file ") && block.contains("  /baseline"));
    let cells = |line: &str| {
        line.split("  ").map(|cell| cell.trim().to_owned()).filter(|cell| !cell.is_empty()).collect()
    };
    blocks.map(|block| block.lines().map(cells).collect()).collect()
}

/// The same of a page.
fn tables_of_page(page: &str) -> Vec<Vec<Vec<String>>> {
    let cells = |line: &str| -> Vec<String> {
        let cells = line.replace("<th>", "<td>").replace("</th>", "</td>");
        cells.split("<td>").skip(1).map(|cell| cell.split("</td>").next().unwrap().to_owned()).collect()
    };
    let tables = page.split("<table>").skip(1).map(|table| table.split("</table>").next().unwrap());
    let tables = tables.filter(|table| table.contains("/baseline"));
    tables.map(|table| table.split("<tr>").skip(1).map(cells).collect()).collect()
}

/// Every `/baseline` is the p50 of its line over the baseline beside it, as far as the digits tell. Returns how many were compared.
fn check_ratios(tables: &[Vec<Vec<String>>]) -> usize {
    let mut compared = 0;
    for table in tables {
        let place = |name: &str| table[0].iter().position(|head| head == name);
        let ratio = place("/baseline").unwrap();
        assert_eq!(table[0][ratio - 1], "baseline us", "the baseline stands beside the ratio");
        let p50 = place("cold us").or(place("p50")).unwrap();
        for line in table[1..].iter().filter(|line| line[ratio] != "-") {
            let number = |place: usize| line[place].parse::<f64>().unwrap();
            let expected = number(p50) / number(ratio - 1);
            // Each of the two has at least three digits, the ratio two after the point.
            assert!((number(ratio) - expected).abs() <= 0.006 + 0.01 * expected, "{:?}: {line:?}", table[0]);
            compared += 1;
        }
    }
    compared
}

/// An archive of two domains and two segments each.
fn archive(dir: &Path) {
    let options = Options::new().domain("storage").domain("names").blocks_per_step(1).reorg_window(0);
    let open = OpenOptions::new().maintenance(Maintenance::EmitOnly);
    drop(Archive::create(dir, options).unwrap());
    let archive = Archive::open(dir, open).unwrap();
    for height in 0..2 {
        let mut block = archive.begin(height).unwrap();
        for entry in StorageEntries::new(6000).iter().skip(height as usize).step_by(2) {
            block.put("storage", entry.key(), entry.value()).unwrap();
        }
        for name in 0..20u8 {
            block.put("names", &[name], b"v").unwrap();
        }
        block.commit().unwrap();
        archive.emit().unwrap();
    }
    archive.close().unwrap();
}

fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut contents = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.display().to_string();
        if path.is_dir() {
            contents.extend(self::contents(&path));
        } else {
            contents.insert(name, fs::read(&path).unwrap());
        }
    }
    contents
}

#[test]
fn the_probe_measures_an_archive_and_leaves_it_as_it_was() {
    let folder = disk_folder();
    if !can_leave(folder.path()) {
        return;
    }
    let (dir, page) = (folder.path().join("archive"), folder.path().join("probe.html"));
    archive(&dir);
    let before = contents(&dir);
    let probe = env!("CARGO_BIN_EXE_icecore-probe");
    let (dir_name, page_name, temp) =
        (dir.to_str().unwrap(), page.to_str().unwrap(), folder.path().to_str().unwrap());
    let everything = [
        dir_name,
        "--m",
        "16,256",
        "--keys",
        "40",
        "--mode",
        "resident,opened,once,each,warm",
        "--misses",
        "--json",
        "--html",
        page_name,
        "--temp",
        temp,
    ];
    let output = run(probe, &everything);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let files = report["files"].as_array().unwrap();
    assert_eq!(files.len(), 2 * 2 * 2, "domains, steps, densities");
    for file in files {
        assert!(file["index_bytes"].as_u64().unwrap() >= 3 * 4096, "{file}");
        for lookups in file["lookups"].as_array().unwrap() {
            let (mode, faults) = (lookups["mode"].as_str().unwrap(), &lookups["faults"]["mean"]);
            let most = match mode {
                "warm" => 0.0,
                "resident" => 1.0,
                "opened" => 2.0,
                _ => 3.0,
            };
            assert!(faults.as_f64().unwrap() <= most, "{mode}: {lookups}");
            assert!(lookups["time_ns"]["p50"].as_u64().is_some() && lookups["value"]["time_ns"].is_object());
            let (ratio, baseline) =
                (lookups["baseline_ratio"].as_f64().unwrap(), lookups["baseline_ns"].as_f64().unwrap());
            let p50 = lookups["time_ns"]["p50"].as_f64().unwrap();
            assert!((ratio - p50 / baseline).abs() < 1e-9, "{lookups}");
        }
    }
    let modes = |report: &Value| -> Vec<String> {
        let of_archive = report["archives"][0]["lookups"].as_array().unwrap().iter();
        of_archive
            .map(|lookups| format!("{} {}", lookups["in_memory"], lookups["threads"]).replace('"', ""))
            .collect()
    };
    let expected = ["resident 1", "opened 1", "once 1", "each 1", "warm 1", "warm 8"];
    assert_eq!(modes(&report), [expected, expected].concat(), "hits, then misses");
    check_provenance(&report["conditions"]["run"], "--m 16,256");
    assert_eq!(report["conditions"]["seed"], 4242);
    assert!(contents(&dir) == before, "the probe wrote into the archive");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("<svg") && page.matches("<figure>").count() == 1 + 2 * 2, "sizes, and each file");
    assert_eq!(check_ratios(&tables_of_page(&page)), files.len() * 2 * 5, "kinds and modes");
    check_densities_stand_side_by_side(&page, files);
    assert!(page.contains("--m 16,256") && page.contains("seed 4242") && page.contains("p99.9"));

    let alone = folder.path().join("alone.kv");
    fs::copy(dir.join("storage.0-1.kv"), &alone).unwrap();
    let output = run(probe, &[alone.to_str().unwrap(), "--keys", "30", "--temp", temp, "--m", "64"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("alone.kv") && text.contains("verified by mincore"), "{text}");
    assert_eq!(check_ratios(&tables(&text)), 3, "{text}");
    for told in ["command ", "--keys 30", "version ", "commit ", "date ", "seed 4242", "mean us", "p99.9"] {
        assert!(text.contains(told), "{told:?} is missing: {text}");
    }
}

/// The first table of a page has a line for each file, and what was measured of its densities in neighbouring columns.
fn check_densities_stand_side_by_side(page: &str, files: &[Value]) {
    let (_, table) = page.split_once("<table>").unwrap();
    let (table, _) = table.split_once("</table>").unwrap();
    let lines: Vec<&str> = table.split("<tr>").skip(1).collect();
    assert!(table.contains("<th colspan=\"2\">cold p50 us</th>"), "{table}");
    assert!(lines[0].contains("<th>M=16</th><th>M=256</th>"), "{table}");
    assert_eq!(lines.len() - 1, files.len() / 2, "a line for each file: {table}");
    for (line, densities) in lines[1..].iter().zip(files.chunks(2)) {
        let megabytes = |file: &Value| format!("{:.3}", file["index_bytes"].as_f64().unwrap() / 1e6);
        let [sparse, dense] = [megabytes(&densities[1]), megabytes(&densities[0])];
        assert!(line.contains(&format!("<td>{dense}</td><td>{sparse}</td>")), "{line}");
    }
}

fn check_provenance(run: &Value, arguments: &str) {
    assert!(run["command"].as_str().unwrap().contains(arguments), "{run}");
    assert_eq!(run["version"], env!("CARGO_PKG_VERSION"));
    assert!(run["date"].as_str().unwrap().ends_with('Z') && run.get("commit").is_some(), "{run}");
}

/// In a folder whose pages may not leave memory too: what is warm evicts nothing.
#[test]
fn the_probe_measures_nothing_but_the_modes_it_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("archive");
    archive(&dir);
    let probe = env!("CARGO_BIN_EXE_icecore-probe");
    let arguments = [dir.to_str().unwrap(), "--mode", "warm", "--threads", "2", "--keys", "20", "--m", "64"];
    let output = run(probe, &[&arguments[..], &["--json"]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for file in report["files"].as_array().unwrap() {
        assert!(
            file["baseline"]["cold_touch_ns"].is_null() && file["baseline"]["warm_read_ns"].is_object(),
            "{file}"
        );
        assert!(
            file["lookups"].as_array().unwrap().iter().all(|lookups| lookups["mode"] == "warm"),
            "{file}"
        );
    }
    for archive in report["archives"].as_array().unwrap() {
        let lookups = archive["lookups"].as_array().unwrap();
        assert!(
            lookups.len() == 2 && lookups.iter().all(|lookups| lookups["in_memory"] == "warm"),
            "{archive}"
        );
    }
    let text = String::from_utf8(run(probe, &arguments).stdout).unwrap();
    assert_eq!(check_ratios(&tables(&text)), 4, "{text}");
}

#[test]
fn every_example_of_a_tool_is_understood() {
    let binaries = [
        ("icecore-probe", env!("CARGO_BIN_EXE_icecore-probe")),
        ("icecore-figures", env!("CARGO_BIN_EXE_icecore-figures")),
        ("icecore-gen", env!("CARGO_BIN_EXE_icecore-gen")),
    ];
    for (name, binary) in binaries {
        let help = String::from_utf8(run(binary, &["--help"]).stdout).unwrap();
        let (_, examples) = help.split_once("Examples:").unwrap();
        // Of a pipe the part that runs this tool; the rest is for the shell.
        let own = examples.split(['|', '\n', '<', '>']).map(str::trim).filter(|part| part.starts_with(name));
        let own: Vec<&str> = own.collect();
        assert!(!own.is_empty(), "{name}");
        for example in own {
            // What is wrong with the arguments is told before anything is done, so asking for help shows whether they are known.
            let arguments: Vec<&str> = example.split_whitespace().skip(1).chain(["--help"]).collect();
            run(binary, &arguments);
        }
    }
}

#[test]
fn the_figures_of_a_small_dataset_have_names_units_and_goals() {
    let folder = disk_folder();
    if !can_leave(folder.path()) {
        return;
    }
    let dir = folder.path().to_str().unwrap();
    let figures = env!("CARGO_BIN_EXE_icecore-figures");
    let output = run(
        figures,
        &[
            "files",
            "--entries",
            "20000",
            "--cold-keys",
            "50",
            "--unknown-keys",
            "20000",
            "--dir",
            dir,
            "--json",
        ],
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["conditions"]["entries"], 20_000);
    check_provenance(&report["run"], "files --entries 20000");
    assert!(report["conditions"]["disk_baseline"]["cold_touch_ns"]["p50"].as_u64().unwrap() > 0);
    let figures = report["figures"].as_array().unwrap();
    assert!(figures.len() > 40, "{} figures", figures.len());
    for figure in figures {
        assert!(figure["name"].is_string() && figure["measured"].is_number() && figure["unit"].is_string());
        assert_eq!(figure["goal"].is_null(), figure["met"].is_null(), "{figure}");
    }
    let faults = figures.iter().find(|figure| figure["name"] == "cold lookup M=64: faults mean").unwrap();
    assert_eq!(faults["met"], true, "{faults}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the files are removed again");
}

#[test]
fn what_grows_is_measured_on_a_stream_and_drawn() {
    let folder = disk_folder();
    if !can_leave(folder.path()) {
        return;
    }
    let dir = folder.path().to_str().unwrap();
    let figures = env!("CARGO_BIN_EXE_icecore-figures");
    let arguments = ["scale", "--entries", "200000", "--cold-keys", "400", "--dir", dir, "--json"];
    let output = run(figures, &arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("builds a segment of 200000 entries, merges two halves of 200000"), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["conditions"]["merged_entries"], 200_000);
    let measured = |name: &str| {
        let figure = report["figures"].as_array().unwrap().iter().find(|figure| figure["name"] == name);
        figure.unwrap_or_else(|| panic!("no {name}"))["measured"].as_f64().unwrap()
    };
    assert_eq!(measured("scale, known key, accessors in memory: waits p99") as u64, 1);
    let unknown =
        |share: u32| measured(&format!("scale, unknown key, {share} % of the filter in memory: waits mean"));
    // A filter of 200,000 keys has 69 pages, too many to be read at opening, and a false positive is one in 256.
    assert!(unknown(100) <= 0.3 && unknown(0) >= 0.8, "{} and {}", unknown(100), unknown(0));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the files are removed again");
    fs::write(folder.path().join("scale.json"), &output.stdout).unwrap();
    run(figures, &["plot", dir]);
    let svg = fs::read_to_string(folder.path().join("growth.svg")).unwrap();
    assert!(svg.contains("what grows, and what does not"), "{svg}");
}

#[test]
fn trial_runs_of_the_commitment_of_proofs_and_of_trees_have_their_figures() {
    for (command, count) in [("commitment", 19), ("proofs", 15), ("tree", 6)] {
        let output = run(env!("CARGO_BIN_EXE_icecore-figures"), &[command, "--small", "--json"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let lanes = if report["conditions"]["hash_backend"] == "Portable" { 1 } else { 2 };
        let (figures, trial) = (report["figures"].as_array().unwrap(), &report["conditions"]["trial"]);
        let expected = if command == "commitment" { count * lanes } else { count };
        assert_eq!((figures.len(), trial), (expected, &true.into()), "{command}");
        for figure in figures {
            assert!(figure["measured"].is_number() && figure["goal"].is_null() == figure["met"].is_null());
        }
    }
}

#[test]
fn a_trial_run_of_the_hot_layer_has_every_figure_of_its_goals() {
    let output = run(env!("CARGO_BIN_EXE_icecore-figures"), &["hot", "--small", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let conditions = &report["conditions"];
    assert!(conditions["trial"] == true && conditions["repetitions"].is_string(), "{conditions}");
    let figures = report["figures"].as_array().unwrap();
    let cores = conditions["machine"]["cores"].as_u64().unwrap();
    let scaling = 6 * [4, 8, 16].into_iter().filter(|threads| *threads <= cores).count() + 6;
    assert_eq!(figures.len(), 3 + 3 * 11 + scaling + 2 * 5, "roofs, sizes, threads, proofs");
    let goals = figures.iter().filter(|figure| {
        assert!(figure["measured"].is_number() && figure["unit"].is_string(), "{figure}");
        assert_eq!(figure["goal"].is_null(), figure["met"].is_null(), "{figure}");
        !figure["goal"].is_null()
    });
    let goals: Vec<&str> = goals.map(|figure| figure["name"].as_str().unwrap()).collect();
    let expected = [
        "2^20 keys, batch 2^17: updates, share of the roof",
        "2^20 keys, batch 2^17: memory",
        "2^20 keys, batch 2^9: updates, share of the roof",
        "2^20 keys, batch 2^9: memory",
        "2^24 keys, batch 2^17: updates, share of the roof",
        "2^24 keys, batch 2^17: memory",
        "2^20 keys, batch 2^17: two threads / one",
        "2^20 keys, proof of existence: ICS23, mean",
        "2^20 keys, proof of existence: verified",
        "2^20 keys, proof of absence: ICS23, mean",
        "2^20 keys, proof of absence: verified",
    ];
    assert_eq!(goals, expected);
}

/// The command, which belongs to another package: built where it is not there yet.
fn icecore() -> std::path::PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_icecore-gen")).with_file_name("icecore");
    if !beside.exists() {
        let folder = beside.parent().and_then(Path::parent).unwrap();
        run(env!("CARGO"), &["build", "-p", "icecore-cli", "--target-dir", folder.to_str().unwrap()]);
        return folder.join("debug/icecore");
    }
    beside
}

#[test]
fn the_examples_of_the_generator_work() {
    let folder = tempfile::tempdir().unwrap();
    let line =
        r#"{"block":1,"address":"0x00000961ef480eb55e80d19ad83579a64c007002","field":"nonce","value":"0x1"}"#;
    fs::write(folder.path().join("eth.jsonl"), line).unwrap();
    let folders = [Path::new(env!("CARGO_BIN_EXE_icecore-gen")), &icecore()]
        .map(|file| file.parent().unwrap().to_owned());
    let path = std::env::join_paths(
        folders.into_iter().chain(std::env::split_paths(&std::env::var("PATH").unwrap())),
    );
    let help = String::from_utf8(run(env!("CARGO_BIN_EXE_icecore-gen"), &["--help"]).stdout).unwrap();
    let (_, examples) = help.split_once("Examples:\n").unwrap();
    assert_eq!(examples.lines().count(), 4, "{examples}");
    for example in examples.lines() {
        // As large as it need be here.
        let small = example.replace("5000000", "1000").replace("--times 50", "--times 3");
        let small = small.replace("icecore-gen blocks", "icecore-gen blocks --blocks 20");
        let ran = Command::new("bash")
            .args(["-c", &format!("set -o pipefail; {small}")])
            .current_dir(&folder)
            .env("PATH", path.as_ref().unwrap())
            .output()
            .unwrap();
        assert!(ran.status.success(), "{example}: {}", String::from_utf8_lossy(&ran.stderr));
    }
    for (name, blocks) in [("text.ice", 20), ("a.ice", 20), ("eth.ice", 3)] {
        let archive = icecore::Reader::open(folder.path().join(name)).unwrap();
        assert_eq!(archive.range(), Some((1, blocks)), "{name}");
    }
}

/// The figures of a report by name, each with what it must have.
fn figures_of(report: &Value) -> BTreeMap<String, f64> {
    let figures = report["figures"].as_array().unwrap();
    let named = figures.iter().map(|figure| {
        assert!(figure["measured"].is_number() && figure["unit"].is_string(), "{figure}");
        assert_eq!(figure["goal"].is_null(), figure["met"].is_null(), "{figure}");
        (figure["name"].as_str().unwrap().to_owned(), figure["measured"].as_f64().unwrap())
    });
    named.collect()
}

#[test]
fn the_figures_of_many_files_are_those_of_the_files_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let arguments = ["many", "--files", "90", "--blocks", "128", "--dir", dir, "--json"];
    let output = run(env!("CARGO_BIN_EXE_icecore-figures"), &arguments);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    check_provenance(&report["run"], "many --files 90");
    let figures = figures_of(&report);
    assert!((figures["many files: files"] - 90.0).abs() < 0.5, "ten steps of three segments of three files");
    for what in
        ["open for reading", "open for writing", "ls", "stats", "get of a present key", "verify, fast"]
    {
        assert!(figures[&format!("many files, {what}: processor")] > 0.0);
        assert!(figures[&format!("many files, {what}: memory")] > 1.0);
    }
    assert!(figures["a step of one block, two domains: syncs"] >= 2.0, "the log and the manifest at least");
    assert!(figures["a step of one block, two domains: manifests"] > 0.0);
    assert!(figures["steps of 8 blocks at full speed: files when all is merged"] >= 9.0);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the archives are removed again");
}

/// With a stand-in for the command that reads the whole log.
#[test]
fn the_figures_of_a_lookup_are_those_of_the_command_and_of_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let stand_in = folder.path().join("icecore");
    // Written by a shell: a file that this process had open for writing may still be so in a child of another test.
    let script = "printf '#!/bin/sh\\ncat \"$2\"/wal/*\\n' > \"$1\" && chmod +x \"$1\"";
    let made = Command::new("sh").args(["-c", script, "sh"]).arg(&stand_in).status().unwrap();
    assert!(made.success());
    let (dir, stand_in) = (folder.path().to_str().unwrap(), stand_in.to_str().unwrap());
    let arguments =
        ["get", "--fewer", "3000", "--more", "60000", "--icecore", stand_in, "--dir", dir, "--json"];
    let output = run(env!("CARGO_BIN_EXE_icecore-figures"), &arguments);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    check_provenance(&report["run"], "get --fewer 3000");
    let figures = figures_of(&report);
    for name in ["fewer", "more"] {
        let figure = |what: &str| figures[&format!("icecore get, {name} changes in memory: {what}")];
        let (read, log) = (figure("bytes read"), figure("bytes of the log"));
        assert!(read >= log && read < log + 1.0, "{name}: {read} MB of {log} MB");
        assert!(figure("processor") > 0.0 && figure("memory") > 0.1);
    }
    let log = |name: &str| figures[&format!("icecore get, {name} changes in memory: bytes of the log")];
    assert!(log("more") > 10.0 * log("fewer"));
}

#[test]
fn the_figures_of_a_follower_are_there_for_every_way_to_sync() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let arguments = ["follow", "--blocks", "32", "--changes", "50", "--dir", dir, "--json"];
    let output = run(env!("CARGO_BIN_EXE_icecore-figures"), &arguments);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    check_provenance(&report["run"], "follow --blocks 32");
    let figures = figures_of(&report);
    assert_eq!(figures.len(), 3 * 13);
    for sync in ["block", "group", "relaxed"] {
        let figure = |what: &str| figures[&format!("{sync}, {what}")];
        for what in [
            "refresh, nothing new",
            "refresh after a block",
            "refresh after an emission",
            "first lookup after a refresh",
        ] {
            assert!(figure(&format!("{what}: p50")) > 0.0, "{sync}, {what}");
        }
    }
}
