//! The child that flips bits: each in a file of a finished archive, put back before the next.
//!
//! Every answer must be right or an error that names the file, and `verify` must report the file.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use icecore::{Reader, VerifyMode};
use icecore_tools::workload::SplitMix64;

use crate::case::{Flip, ScriptId};
use crate::check::{Kind, Verdict};
use crate::examine::{Difference, examine_each, with_causes};
use crate::model::Model;

#[derive(Args)]
pub(crate) struct FlipsArgs {
    /// The script that was gone through.
    id: ScriptId,
    /// The archive.
    dir: PathBuf,
    /// Which bits.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many.
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// This one only, as `FILE:OFFSET:BIT`.
    #[arg(long)]
    only: Option<Flip>,
}

/// The bytes at either end of a file that are flipped more often than others: headers, footers, the last records.
const EDGE: u64 = 256;

/// Flips bits. Says of each, in one line, which it is before it is tried, and in another what was found.
pub(crate) fn run(args: &FlipsArgs) {
    let script = args.id.script();
    let model = script.last();
    let files = files(&args.dir);
    let mut random = SplitMix64::new(args.seed);
    let drawn = std::iter::repeat_with(|| draw(&files, &mut random)).take(args.count as usize);
    let flips: Vec<Flip> = args.only.clone().map_or_else(|| drawn.collect(), |flip| vec![flip]);
    for flip in flips {
        println!("{flip}");
        let path = args.dir.join(&flip.file);
        let bytes = fs::read(&path).expect("a file of the archive can be read");
        let mut flipped = bytes.clone();
        flipped[flip.offset as usize] ^= 1 << flip.bit;
        fs::write(&path, &flipped).expect("a file of the archive can be written");
        let verdict = try_flip(&args.dir, &flip.file, model).err().unwrap_or(Verdict::good(0));
        fs::write(&path, &bytes).expect("a file of the archive can be written");
        println!("{}\t\t{}", verdict.kind, verdict.why.replace('\n', " "));
    }
}

/// The files with bytes, relative to the archive, with their lengths.
fn files(dir: &Path) -> Vec<(String, u64)> {
    let mut files = Vec::new();
    for (folder, prefix) in [(dir.to_owned(), ""), (dir.join("wal"), "wal/")] {
        for entry in fs::read_dir(folder).expect("an archive can be listed") {
            let entry = entry.expect("an archive can be listed");
            let metadata = entry.metadata().expect("a file has a length");
            // The reserve holds nothing but its place.
            if metadata.is_file() && metadata.len() > 0 && entry.file_name() != "RESERVE" {
                files.push((format!("{prefix}{}", entry.file_name().to_string_lossy()), metadata.len()));
            }
        }
    }
    files.sort();
    files
}

fn draw(files: &[(String, u64)], random: &mut SplitMix64) -> Flip {
    // The few logs and the manifest as often as the many segments.
    let is_rare = |file: &&(String, u64)| file.0.starts_with("wal/") || file.0 == "MANIFEST";
    let rare: Vec<_> = files.iter().filter(is_rare).collect();
    let (file, len) = if random.below(3) == 0 {
        rare[random.below(rare.len() as u64) as usize]
    } else {
        &files[random.below(files.len() as u64) as usize]
    };
    let edge = EDGE.min(*len);
    let offset = match random.below(4) {
        0 => random.below(edge),
        1 => len - 1 - random.below(edge),
        _ => random.below(*len),
    };
    Flip { file: file.clone(), offset, bit: random.below(8) as u8 }
}

fn try_flip(dir: &Path, file: &str, model: &Model) -> Result<(), Verdict> {
    match read(dir, model) {
        Ok(()) => {}
        Err(Difference::Failed(why)) => expect_named(file, &why)?,
        Err(Difference::Wrong(why)) => return Err(Verdict::new(Kind::Wrong, why)),
    }
    let problems = match icecore::verify(dir, VerifyMode::Full, &()) {
        // Without its last mark a log has all its blocks; verify tells where the marks end.
        Ok(report) if report.log_tail.as_ref().is_some_and(|tail| dir.join(file) == tail.path) => {
            return Ok(());
        }
        Ok(report) => report.problems,
        Err(error) => vec![error],
    };
    if problems.is_empty() {
        return Err(Verdict::new(Kind::Wrong, "verify reports nothing"));
    }
    problems.iter().try_for_each(|problem| expect_named(file, &with_causes(problem)))
}

/// Reads everything. Where the log is damaged its blocks are refused, and what is in segments is answered.
fn read(dir: &Path, model: &Model) -> Result<(), Difference> {
    examine_each(&Reader::open(dir)?, model)
}

fn expect_named(file: &str, why: &str) -> Result<(), Verdict> {
    let name = file.rsplit('/').next().unwrap_or(file);
    if why.contains(name) {
        return Ok(());
    }
    Err(Verdict::new(Kind::Wrong, format!("the error does not name the file: {why}")))
}
