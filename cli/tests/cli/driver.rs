//! Runs the binary that was just built.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// What a run left behind.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    /// The one line of JSON on standard output.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {:?} {}", self.out, self.err))
    }

    /// Every line of JSON on standard output.
    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Standard output, when the run ended well.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "out={} err={}", self.out, self.err);
        self
    }

    /// The exit code must be this and the error must tell that.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, told: &str) -> Self {
        assert_eq!(self.code, code, "out={} err={}", self.out, self.err);
        assert!(self.err.contains(told), "{told:?} is not told: {}", self.err);
        self
    }
}

/// The command with these arguments.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_icecore"));
    command.args(args);
    command
}

/// Runs it without input.
#[track_caller]
pub(crate) fn icecore(args: &[&str]) -> Run {
    icecore_reading(args, b"")
}

/// Runs it with this on standard input.
#[track_caller]
pub(crate) fn icecore_reading(args: &[&str], input: &[u8]) -> Run {
    run(command(args), input)
}

/// Runs a command with this on standard input.
#[track_caller]
pub(crate) fn run(mut command: Command, input: &[u8]) -> Run {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    let mut stdin = child.stdin.take().expect("it is piped");
    let input = input.to_vec();
    // Beside the reading of the answers, which may fill their pipe first. It may end before it has read everything.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("the writer does not panic");
    Run {
        code: output.status.code().expect("no signal ends it"),
        out: String::from_utf8(output.stdout).expect("answers are text"),
        err: String::from_utf8(output.stderr).expect("errors are text"),
    }
}

/// All verbs, as `--help` lists them.
pub(crate) fn verbs() -> Vec<String> {
    let help = icecore(&["--help"]).ok().out;
    let (_, listed) = help.split_once("Commands:\n").expect("there are verbs");
    let names = listed
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.trim_start_matches("  ").split(' ').next());
    // What does not fit in a line goes on in the next, further in.
    names.filter(|name| !name.is_empty() && *name != "help").map(str::to_owned).collect()
}

/// A directory for one test.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory for the test"))
    }

    /// A path inside.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The same as text.
    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("paths of tests are text").to_owned()
    }

    /// Writes a file and gives its path.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), content).expect("the file is written");
        self.text(name)
    }
}

/// A line of the format jsonl.
pub(crate) fn line(block: u64, key: &str, value: Option<&str>) -> String {
    format!("{}\n", serde_json::json!({ "block": block, "key": key, "value": value }))
}

/// An archive of one domain with these lines, a step of `step` blocks, nothing merged; gives its path.
#[track_caller]
pub(crate) fn archive(place: &Place, step: u64, lines: &str) -> String {
    let (dir, input) = (place.text("a.ice"), place.file("input.jsonl", lines));
    let step = step.to_string();
    let args = ["ingest", &dir, &input, "--format", "jsonl", "--create", "--no-merge", "--sync", "relaxed"];
    icecore(&[&args[..], &["--blocks-per-step", &step, "--reorg-window", "0"]].concat()).ok();
    dir
}

/// Forty blocks from 1 on: key `k` is written by every block, `even` by every second, `gone` is deleted by block 20.
pub(crate) fn forty_blocks() -> String {
    let mut lines = String::new();
    for block in 1..=40 {
        lines += &line(block, "k", Some(&format!("v{block}")));
        if block % 2 == 0 {
            lines += &line(block, "even", Some(&format!("0x{block:04x}")));
        }
        if block == 10 || block == 20 {
            lines += &line(block, "gone", (block == 10).then_some("here"));
        }
    }
    lines
}

/// Every file of an archive with its bytes, lock and reserve left out.
pub(crate) fn files_of(dir: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(Path::new(dir))
        .expect("the archive is there")
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| path.is_file() && !path.ends_with("LOCK") && !path.ends_with("RESERVE"))
        .map(|path| (path.clone(), std::fs::read(&path).expect("it can be read")))
        .collect();
    files.sort();
    files
}
