//! How long reads take: right after the files were dropped from the page cache, and again.

use std::path::Path;
use std::time::{Duration, Instant};

use icecore::Reader;
use serde_json::json;

use super::chain::Question;
use super::{DOMAINS, Stage, ensure};
use crate::exit::Failure;
use crate::print::plural;

/// Warm rounds over the questions; the last one counts.
const ROUNDS: usize = 3;

/// Times every question once cold and several times warm.
pub(crate) fn show(stage: &mut Stage, dir: &Path, questions: &[Question]) -> Result<(), Failure> {
    let dropped = drop_from_cache(dir);
    let opened = Instant::now();
    let reader = Reader::open(dir)?;
    let opened = opened.elapsed();
    let faults_before = major_faults();
    let cold = time(&reader, questions)?;
    let faults = faults_before.zip(major_faults()).map(|(before, after)| after - before);
    let mut warm = Vec::new();
    for _ in 0..ROUNDS {
        warm = time(&reader, questions)?;
    }
    stage.step("speed", format_args!("{}, one thread", plural(questions.len() as u64, "lookup")))?;
    stage.tell(format_args!("open for reading   {opened:.1?}"))?;
    match faults {
        Some(faults) if dropped && 0 < faults => {
            let text = "waited for the disk, the others found their pages in memory by then";
            stage.tell(format_args!(
                "first, files cold  {} {faults} of {} {text}",
                shares(&cold),
                cold.len()
            ))?;
        }
        _ => stage
            .tell(format_args!("first              {} (the page cache did not let go)", shares(&cold)))?,
    }
    stage.tell(format_args!("again, files warm  {}", shares(&warm)))?;
    stage.note(
        "lookup_ns",
        json!({ "first_p50": half(&cold).as_nanos() as u64, "warm_p50": half(&warm).as_nanos() as u64, "faults": faults }),
    );
    ensure(reader.domains().len() == DOMAINS.len(), "a domain is lost")
}

/// The times of all questions, ascending.
fn time(reader: &Reader, questions: &[Question]) -> Result<Vec<Duration>, Failure> {
    let mut times = Vec::with_capacity(questions.len());
    for question in questions {
        let view = reader.at(question.height)?;
        let started = Instant::now();
        std::hint::black_box(view.get(question.domain, &question.key)?);
        times.push(started.elapsed());
    }
    times.sort_unstable();
    Ok(times)
}

fn half(times: &[Duration]) -> Duration {
    times[times.len() / 2]
}

fn shares(times: &[Duration]) -> String {
    let high = times[times.len() * 99 / 100];
    format!("p50 {:<8} p99 {high:.1?}", format!("{:.1?}", half(times)))
}

/// Reads of this process that had to wait for a disk, as the system counts them.
fn major_faults() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may hold spaces; after it the tenth field is meant.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(9)?.parse().ok()
}

/// Asks the system to forget what it keeps of the files. They are closed and synced, so that it can.
#[cfg(target_os = "linux")]
fn drop_from_cache(dir: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else { return false };
    entries.flatten().filter(|entry| entry.path().is_file()).all(|entry| {
        let Ok(file) = std::fs::File::open(entry.path()) else { return false };
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).is_ok()
    })
}

#[cfg(not(target_os = "linux"))]
fn drop_from_cache(_: &Path) -> bool {
    false
}
