//! The measuring binaries on small data: they run, their JSON has the promised shape, and they leave an archive as it was.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use icecore::{Archive, Maintenance, OpenOptions, Options};
use icecore_tools::usage::Conditions;
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
        }
    }
    assert!(contents(&dir) == before, "the probe wrote into the archive");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("<svg") && page.matches("<figure>").count() == files.len());

    let alone = folder.path().join("alone.kv");
    fs::copy(dir.join("storage.0-1.kv"), &alone).unwrap();
    let output = run(probe, &[alone.to_str().unwrap(), "--keys", "30", "--temp", temp, "--m", "64"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("alone.kv") && text.contains("verified by mincore"), "{text}");
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
    assert!(report["conditions"]["disk_floor"]["cold_touch_ns"]["p50"].as_u64().unwrap() > 0);
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
fn a_trial_run_of_the_hot_layer_has_every_figure_of_its_goals() {
    let output = run(env!("CARGO_BIN_EXE_icecore-figures"), &["hot", "--small", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let conditions = &report["conditions"];
    assert_eq!(conditions["trial"], true);
    assert!(conditions["repetitions"].is_string() && conditions["hash_backend"].is_string(), "{conditions}");
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
        "2^20 keys, batch 2^17: updates",
        "2^20 keys, batch 2^17: memory",
        "2^20 keys, batch 2^9: memory",
        "2^24 keys, batch 2^17: updates",
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
    fs::write(folder.path().join("changes.jsonl.zst"), line).unwrap();
    let folders = [Path::new(env!("CARGO_BIN_EXE_icecore-gen")), &icecore()]
        .map(|file| file.parent().unwrap().to_owned());
    let path = std::env::join_paths(
        folders.into_iter().chain(std::env::split_paths(&std::env::var("PATH").unwrap())),
    );
    let help = String::from_utf8(run(env!("CARGO_BIN_EXE_icecore-gen"), &["--help"]).stdout).unwrap();
    let (_, examples) = help.split_once("Examples:\n").unwrap();
    let examples = examples.replace("\\\n", " ");
    assert_eq!(examples.lines().count(), 4, "{examples}");
    for example in examples.lines() {
        // As large as it need be here; the file above is not compressed.
        let small = example.replace("5000000", "1000").replace("--blocks 1000", "--blocks 20");
        let small = small
            .replace("--times 50", "--times 3")
            .replace("zstd -dc", "cat")
            .replace("--shape text", "--shape text --blocks 20");
        let ran = Command::new("bash")
            .args(["-c", &format!("set -o pipefail; {small}")])
            .current_dir(&folder)
            .env("PATH", path.as_ref().unwrap())
            .output()
            .unwrap();
        assert!(ran.status.success(), "{example}: {}", String::from_utf8_lossy(&ran.stderr));
    }
    for (name, blocks) in [("text.ice", 20), ("chain.ice", 20), ("eth.ice", 3)] {
        let archive = icecore::Reader::open(folder.path().join(name)).unwrap();
        assert_eq!(archive.range(), Some((1, blocks)), "{name}");
    }
}
