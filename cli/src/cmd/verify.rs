//! `icecore verify`.

use std::path::PathBuf;

use icecore::{LogTailReport, VerifyMode, VerifyReport, verify};
use serde_json::json;

use super::ls::damage_in;
use crate::encoding::printable;
use crate::exit::{Failure, Outcome};
use crate::print::{Out, bytes, plural};
use crate::progress::Bars;

/// Check every file. Exit code 4: something is wrong, and every damage is listed with its file.
#[derive(clap::Args)]
#[command(after_help = "\
In full: every page and file checksum, the order of entries, every key found
through its filter and its index, the log, what each block changed against the
digest recorded with its root, and the state at the head against its root.
Takes no lock. Of a partial copy what it holds is checked, and what it does not
hold is named; the state needs all declared domains. Of an archive of Ethereum
the root of each block in the log is computed too, and its rows are compared:
all rows and storage roots at the newest block in segments, and at every block
the 16 nodes below the root, where its trie has rows: from 8,192 accounts on.
Checked as bytes alone are deeper rows and storage roots of past blocks,
snapshots, and the roots of past blocks of smaller states and other archives: a
proof is compared with the root, and the root with one from elsewhere.

Of a bucket, in commands that are built for them, every object of the newest
generation is compared with its hashes, as `icecore remote verify` does, whose
--blocks compares what each block changed, too.

Examples:
  icecore verify chain.ice
  icecore verify chain.ice --fast --json")]
pub(crate) struct Args {
    #[cfg_attr(feature = "s3", doc = "The archive: a directory, or the URL of a bucket")]
    #[cfg_attr(not(feature = "s3"), doc = "The archive")]
    dir: PathBuf,
    /// Only what can be seen without reading data pages: presence, lengths, headers, the log
    #[arg(long)]
    fast: bool,
    /// Tell the result as JSON
    #[arg(long)]
    json: bool,
    #[cfg(feature = "s3")]
    #[command(flatten)]
    bucket: crate::bucket::TrustArgs,
}

/// How many objects of a bucket are read at once.
#[cfg(feature = "s3")]
const JOBS: usize = 8;

/// What is peculiar about the end of the log, in a sentence.
fn about_tail(tail: &LogTailReport) -> String {
    let path = tail.path.display();
    if tail.sound < tail.len {
        let torn = tail.len - tail.sound;
        return format!(
            "{path} ends in {} of a record that is not whole, from offset {} on; the log does not say that they were \
             synced: a block committed just before a power loss may have been in them. The next writer cuts them off",
            plural(torn, "byte"),
            tail.sound
        );
    }
    format!(
        "the log does not say yet whether its last {} ({path}) were synced: with --sync block they were; with group or \
         relaxed a power loss can take them. A killed process loses nothing",
        plural(tail.unmarked, "byte")
    )
}

pub(crate) fn run(args: &Args) -> Outcome {
    #[cfg(feature = "s3")]
    if let Some(url) = crate::place::url_of(&args.dir) {
        if args.fast {
            return Err(Failure::usage(
                "--fast is for an archive in a directory: of a bucket every object is read",
            ));
        }
        return super::remote::check(&args.bucket.open(url)?, url, JOBS, args.json);
    }
    #[cfg(feature = "s3")]
    args.bucket.check_unused()?;
    let mode = if args.fast { VerifyMode::Fast } else { VerifyMode::Full };
    let report: VerifyReport = verify(&args.dir, mode, &Bars::new())?;
    let problems: Vec<_> =
        report.problems.into_iter().map(|problem| Failure::Archive(problem).to_string()).collect();
    let mut out = Out::new();
    if args.json {
        out.json(&json!({
            "ok": problems.is_empty(),
            "files": report.files,
            "bytes": report.bytes,
            "problems": problems,
            "not_held": report.not_held,
            "garbage": report.garbage,
            "writer_is_running": report.writer_is_running,
            "log_tail": report.log_tail.as_ref().map(|tail| json!({
                "file": tail.path,
                "sound_bytes": tail.sound,
                "unmarked_bytes": tail.unmarked,
                "bytes": tail.len,
            })),
        }))?;
    } else {
        for problem in &problems {
            out.line(format_args!("damage: {}", printable(problem)))?;
        }
        let why = if report.writer_is_running {
            "the running writer has not published it yet, or its readers still hold it"
        } else if !problems.is_empty() {
            "MANIFEST does not name it: a writer that was killed or failed left it, or MANIFEST was put back from before it was written; \
             keep it until the damage is mended"
        } else {
            "a writer that was killed or failed left it; the next one removes it"
        };
        for file in &report.garbage {
            out.line(format_args!("unused: {} ({why})", printable(&file.display().to_string())))?;
        }
        if let Some(tail) = &report.log_tail {
            out.summary(format_args!("note: {}", printable(&about_tail(tail))))?;
        }
        for segment in &report.not_held {
            out.line(format_args!("not held: {segment}"))?;
        }
        if !report.not_held.is_empty() {
            let missing = plural(report.not_held.len() as u64, "segment");
            out.summary(format_args!(
                "note: a partial copy: {missing} of the archive are not held and not checked"
            ))?;
        }
        let verdict = if problems.is_empty() { "all is well" } else { "damaged" };
        out.summary(format_args!("{}, {}: {verdict}", plural(report.files, "file"), bytes(report.bytes)))?;
    }
    out.flush()?;
    damage_in(&args.dir, problems.len())
}
