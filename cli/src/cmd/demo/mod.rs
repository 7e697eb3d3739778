//! `icecore demo`: the main job, once through, on generated blocks. Everything that it shows is also checked.

mod chain;
mod speed;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use icecore::{
    Archive, Density, DensityRule, Durability, Maintenance, MergeOptions, OpenOptions, Options,
    ProgressListener, Reader, ReindexRule, Root,
};
use serde_json::{Value, json};

use self::chain::{BLOCKS, Chain, DOMAINS, HERO, Question};
use super::get::source_name;
use super::ls::listing;
use crate::encoding::hex;
use crate::exit::{Exit, Failure, Outcome};
use crate::print::{Out, bold, bytes, count, plural};
use crate::progress::Bars;

/// Sixty-three steps become segments, one stays in memory.
const BLOCKS_PER_STEP: u64 = 64;
/// Reads that are compared before and after files change.
const QUESTIONS: usize = 2000;
/// The segments that are shown: the newest of one domain.
const SHOWN_DOMAIN: &str = DOMAINS[1];
const SHOWN_MAX: usize = 6;
/// The heights at which the followed account is read: old, middle, newest.
const HEIGHTS: [u64; 3] = [17, 2048, BLOCKS];

/// Run a demonstration on generated blocks: ingest, segments, reads, a proof, a merge, a reindex, speed.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  icecore demo
  icecore demo --dir demo.ice && icecore ls demo.ice")]
pub(crate) struct Args {
    /// Make the archive here and keep it [default: a temporary directory]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Tell the figures as JSON, and nothing else
    #[arg(long)]
    json: bool,
}

/// Where the demo speaks.
struct Stage {
    out: Out,
    json: bool,
    figures: serde_json::Map<String, Value>,
    step: u32,
}

impl Stage {
    /// A new step with its headline.
    fn step(&mut self, name: &str, text: impl std::fmt::Display) -> Result<(), Failure> {
        self.step += 1;
        let head = bold(&format!("{} {name:<9}", self.step));
        self.say(format_args!("\n{head} {text}"))
    }

    /// A line below a headline.
    fn tell(&mut self, text: impl std::fmt::Display) -> Result<(), Failure> {
        self.say(format_args!("            {text}"))
    }

    fn say(&mut self, text: impl std::fmt::Display) -> Result<(), Failure> {
        if !self.json {
            self.out.line(text)?;
            self.out.flush()?;
        }
        Ok(())
    }

    fn note(&mut self, name: &str, figure: Value) {
        self.figures.insert(name.to_owned(), figure);
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    let temporary = match &args.dir {
        Some(_) => None,
        None => Some(tempfile::Builder::new().prefix("icecore-demo-").tempdir().map_err(|source| {
            Failure::File { operation: "create a directory in", path: std::env::temp_dir(), source }
        })?),
    };
    let dir = match (&args.dir, &temporary) {
        (Some(dir), _) => dir.clone(),
        (None, Some(temporary)) => temporary.path().join("chain.ice"),
        (None, None) => unreachable!("one of the two was just made"),
    };
    let mut stage = Stage { out: Out::new(), json: args.json, figures: serde_json::Map::new(), step: 0 };
    let started = Instant::now();
    stage.say(format_args!("{} in {}", bold("icecore demo"), dir.display()))?;
    play(&mut stage, &dir)?;
    let seconds = started.elapsed().as_secs_f64();
    stage.note("seconds", json!(seconds));
    let end = match &args.dir {
        Some(dir) => format!("`icecore ls {0}` and `icecore stats {0}` look at what is left", dir.display()),
        None => "the archive is gone; --dir keeps one".to_owned(),
    };
    stage.say(format_args!("\nAll of it checked, in {seconds:.1} s; {end}."))?;
    if args.json {
        let figures = Value::Object(std::mem::take(&mut stage.figures));
        stage.out.json(&figures)?;
    }
    stage.out.flush()?;
    Ok(Exit::Done)
}

fn play(stage: &mut Stage, dir: &Path) -> Result<(), Failure> {
    let options = DOMAINS.iter().fold(Options::new(), |options, name| options.domain(name));
    Archive::create(dir, options.blocks_per_step(BLOCKS_PER_STEP).reorg_window(BLOCKS_PER_STEP))?.close()?;
    let open = OpenOptions::new().durability(Durability::Relaxed).maintenance(Maintenance::EmitOnly);
    let archive = Archive::open(dir, open)?;
    let mut chain = Chain::new();
    let roots = ingest(stage, &archive, &mut chain)?;
    show_segments(stage, "segments", "finished steps have left memory", archive.reader())?;

    stage.step("read", format_args!("{}/{HERO}, at three heights", DOMAINS[0]))?;
    show_reads(stage, archive.reader(), &chain)?;
    let questions = chain.questions(QUESTIONS);
    check_answers(archive.reader(), &chain, &questions)?;

    prove(stage, archive.reader(), &roots)?;
    merge(stage, &archive)?;
    reindex(stage, &archive)?;
    show_segments(stage, "segments", "what that left", archive.reader())?;

    stage.step("again", "the same reads of the new files")?;
    show_reads(stage, archive.reader(), &chain)?;
    check_answers(archive.reader(), &chain, &questions)?;
    for (height, root) in &roots {
        ensure(archive.root(*height)? == *root, "a root changed")?;
    }
    let text = "of random keys at random heights: as before, and as a plain map of all versions answers";
    stage.tell(format_args!("{} {text}", plural(QUESTIONS as u64, "read")))?;
    archive.close()?;
    speed::show(stage, dir, &questions)
}

fn ingest(stage: &mut Stage, archive: &Archive, chain: &mut Chain) -> Result<Vec<(u64, Root)>, Failure> {
    let bars = Bars::new();
    bars.begin("blocks", Some(BLOCKS));
    let started = Instant::now();
    let (mut roots, mut changes) = (Vec::new(), 0);
    for height in 1..=BLOCKS {
        let mut writer = archive.begin(height)?;
        for (domain, key, value) in chain.block(height) {
            changes += 1;
            match value {
                Some(value) => writer.put(domain, &key, &value)?,
                None => writer.delete(domain, &key)?,
            }
        }
        roots.push((height, writer.commit()?));
        bars.advance(1);
    }
    bars.end();
    let seconds = started.elapsed().as_secs_f64();
    let rate = count((changes as f64 / seconds) as u64);
    let what = format!("{}, {}", plural(BLOCKS, "block"), plural(changes, "change"));
    stage.step(
        "ingest",
        format_args!("{what} in {seconds:.1} s ({rate} changes/s); each block gives a root"),
    )?;
    for (height, root) in roots.iter().filter(|(height, _)| HEIGHTS.contains(height)) {
        stage.tell(format_args!("block {height:<5} root {}", hex(&root.0)))?;
    }
    stage.note("ingest", json!({ "blocks": BLOCKS, "changes": changes, "seconds": seconds }));
    Ok(roots)
}

fn show_segments(stage: &mut Stage, name: &str, text: &str, reader: &Reader) -> Result<(), Failure> {
    let all = reader.segments();
    let stats = reader.stats();
    let size = bytes(stats.kv_bytes + stats.bt_bytes + stats.kvei_bytes);
    let memory = plural(stats.steps_in_memory, "step");
    let what = plural(stats.segments, "segment");
    stage.step(name, format_args!("{text}: {what}, {size}; {memory} in memory"))?;
    let of_domain: Vec<_> = all.iter().filter(|segment| segment.domain == SHOWN_DOMAIN).cloned().collect();
    let hidden = of_domain.len().saturating_sub(SHOWN_MAX);
    for line in listing(&of_domain[hidden..]).lines() {
        stage.tell(line)?;
    }
    let others = all.len() - of_domain.len();
    let older =
        if 0 < hidden { format!("{hidden} older ones of {SHOWN_DOMAIN} and ") } else { String::new() };
    stage.tell(format_args!("and {older}{others} of the other domains"))?;
    stage.note(
        name,
        json!({ "segments": stats.segments, "kv_bytes": stats.kv_bytes, "bt_bytes": stats.bt_bytes }),
    );
    Ok(())
}

fn show_reads(stage: &mut Stage, reader: &Reader, chain: &Chain) -> Result<(), Failure> {
    for height in HEIGHTS {
        let found = reader.at(height)?.lookup(DOMAINS[0], HERO.as_bytes())?;
        let question = Question { domain: DOMAINS[0], key: HERO.into(), height };
        let value = found.as_ref().and_then(|found| found.change.value.as_deref());
        ensure(value == chain.at(&question), "a read is wrong")?;
        let text = value.map_or_else(|| "absent".into(), |value| String::from_utf8_lossy(value).into_owned());
        let from = found.as_ref().map_or_else(String::new, |found| {
            format!("written by block {:<5} found in {}", found.change.block, source_name(&found.source))
        });
        stage.tell(format_args!("at {height:<5} {text:<12} {from}"))?;
    }
    Ok(())
}

fn check_answers(reader: &Reader, chain: &Chain, questions: &[Question]) -> Result<(), Failure> {
    for question in questions {
        let value = reader.at(question.height)?.get(question.domain, &question.key)?;
        ensure(value.as_deref() == chain.at(question), "a read is wrong")?;
    }
    Ok(())
}

fn prove(stage: &mut Stage, reader: &Reader, roots: &[(u64, Root)]) -> Result<(), Failure> {
    let height = HEIGHTS[1];
    let root = roots[height as usize - 1].1;
    let (domain, key) = (DOMAINS[0], HERO.as_bytes());
    let view = reader.at(height)?;
    let value = view.get(domain, key)?;
    let started = Instant::now();
    let proof = view.prove(domain, key)?;
    let made = started.elapsed();
    let started = Instant::now();
    let holds = proof.verify(&root, domain, key, value.as_deref()).is_ok();
    let checked = started.elapsed();
    ensure(holds, "a proof does not hold")?;
    ensure(proof.verify(&root, domain, key, Some(b"1000000 coins")).is_err(), "a forged value is believed")?;
    let absent = view.prove(domain, b"mallory")?;
    ensure(absent.verify(&root, domain, b"mallory", None).is_ok(), "a proof of absence does not hold")?;
    let (len, absent_len) = (proof.to_ics23_bytes().len(), absent.to_ics23_bytes().len());
    stage.step(
        "prove",
        format_args!(
            "{HERO} at block {height}, under that block's root alone: {len} bytes (ICS23), made in {made:.1?}"
        ),
    )?;
    stage.tell(format_args!(
        "it verifies in {checked:.1?}, a forged value is refused; that mallory is absent: {absent_len} bytes"
    ))?;
    stage.note("proof", json!({ "bytes": len, "absence_bytes": absent_len }));
    Ok(())
}

fn merge(stage: &mut Stage, archive: &Archive) -> Result<(), Failure> {
    let before = archive.reader().stats().segments;
    let started = Instant::now();
    let merges = archive.merge(&MergeOptions::default(), &Bars::new())?;
    let seconds = started.elapsed().as_secs_f64();
    let after = archive.reader().stats().segments;
    let what = plural(merges, "merge");
    stage.step(
        "merge",
        format_args!("{before} segments -> {after}, {what} in {seconds:.2} s; no answer changes"),
    )?;
    stage.note("merge", json!({ "merges": merges, "segments": after, "seconds": seconds }));
    Ok(())
}

fn reindex(stage: &mut Stage, archive: &Archive) -> Result<(), Failure> {
    let m = |reader: &Reader| {
        let all: BTreeSet<_> = reader.segments().iter().map(|segment| segment.m).collect();
        all.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
    };
    let (m_before, before) = (m(archive.reader()), archive.reader().stats());
    let started = Instant::now();
    archive.reindex(ReindexRule::Rule(DensityRule::Fixed(Density::SPARSE)), None, &Bars::new())?;
    let seconds = started.elapsed().as_secs_f64();
    let (m_after, after) = (m(archive.reader()), archive.reader().stats());
    ensure(before.kv_bytes == after.kv_bytes, "reindexing touched a .kv")?;
    let sizes = format!("{} -> {}", bytes(before.bt_bytes), bytes(after.bt_bytes));
    stage.step(
        "reindex",
        format_args!("M {m_before} -> {m_after} in {seconds:.2} s: pivot indexes {sizes}; the .kv files stay as they are"),
    )?;
    stage.note("reindex", json!({ "bt_bytes": after.bt_bytes, "seconds": seconds }));
    Ok(())
}

/// The demo believes nothing that it shows.
fn ensure(holds: bool, otherwise: &str) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::Damage(format!("the demo found a fault: {otherwise}"))) }
}
