//! `icecore info`: one file of an archive, by itself.

use std::path::PathBuf;

use icecore::StepRange;
use icecore::format;
use icecore::inspect::{
    BlockIndexSummary, Described, FileInfo, FilterSummary, LogInfo, ManifestInfo, PivotSummary,
    SegmentSummary, inspect,
};
use serde_json::{Map, Value, json};

use super::create::{Every, names};
use super::ls::encoding_name;
use super::reindex::{rule_as_json, rule_name};
use crate::encoding::{Face, hex};
use crate::exit::{Exit, Failure, Outcome};
use crate::print::{Out, bytes, count, plural, table};

/// Print what stands in one file of an archive: header, footer, counts, checksums, ranges.
#[derive(clap::Args)]
#[command(after_help = "\
Any .kv, .bt, .kvei, .kvbi, .wal or MANIFEST; what it is shows in its first bytes,
whatever its name. Header and footer are compared with their checksums, and so
are all records of a .wal. Data pages are not read: `icecore verify` does that
for an archive.

Examples:
  icecore info chain.ice/MANIFEST
  icecore info $(ls chain.ice/kv.*.kv | head -n 1)
  icecore info $(ls chain.ice/wal/*.wal | head -n 1) --json")]
pub(crate) struct Args {
    /// The file
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Something that a file says: its name, and how it is written for programs and for people.
struct Fact(&'static str, Value, String);

impl Fact {
    fn number(name: &'static str, number: u64) -> Self {
        Self(name, json!(number), count(number))
    }

    fn size(name: &'static str, number: u64) -> Self {
        let text =
            if number < 1024 { bytes(number) } else { format!("{} ({} B)", bytes(number), count(number)) };
        Self(name, json!(number), text)
    }

    fn text(name: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        Self(name, json!(text), text)
    }

    fn block(name: &'static str, block: Option<u64>) -> Self {
        Self(name, json!(block), block.map_or_else(|| "none".to_owned(), |block| block.to_string()))
    }

    fn blocks(range: Option<(u64, u64)>) -> Self {
        let text = range.map_or_else(|| "none".to_owned(), |(first, last)| format!("{first} to {last}"));
        Self("blocks", json!(range.map(|(first, last)| [first, last])), text)
    }

    fn steps(steps: StepRange) -> Self {
        let (from, to) = (steps.from().0, steps.to().0);
        Self("steps", json!([from, to]), format!("{from} to {}", to - 1))
    }

    fn key(name: &'static str, key: &[u8]) -> Self {
        Self(name, json!(Face::Readable.show(key)), Face::Readable.line(key))
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    let shown = args.file.display();
    let refused = |source| Failure::File { operation: "open", path: args.file.clone(), source };
    if std::fs::metadata(&args.file).map_err(refused)?.is_dir() {
        return Err(Failure::usage(format!(
            "{shown} is a directory: `icecore stats` and `icecore ls` describe an archive"
        )));
    }
    let info = inspect(&args.file)?.ok_or_else(|| {
        Failure::usage(format!(
            "{shown} does not begin like a file of an archive: it is another file, or damaged"
        ))
    })?;
    let facts = facts(&info);
    let mut out = Out::new();
    if args.json {
        let document: Map<_, _> =
            facts.into_iter().map(|Fact(name, value, _)| (name.to_owned(), value)).collect();
        out.json(&document)?;
    } else {
        let rows = facts.into_iter().filter(|fact| !fact.2.is_empty());
        out.line(table(["", ""], rows.map(|Fact(name, _, text)| [name.replace('_', " "), text])))?;
        if let FileInfo::Manifest(ManifestInfo { files, .. }) = &info
            && !files.is_empty()
        {
            let rows =
                files.iter().map(|file| [file.name.clone(), count(file.len), file.content.to_string()]);
            out.line(format_args!("\n{}", table(["FILE", ">BYTES", "CONTENT"], rows)))?;
        }
    }
    out.flush()?;
    Ok(Exit::Done)
}

fn facts(info: &FileInfo) -> Vec<Fact> {
    match info {
        FileInfo::Segment(summary) => of_segment(summary),
        FileInfo::PivotIndex { of, summary } => of_index(of, summary),
        FileInfo::ExistenceFilter { of, summary } => of_filter(of, summary),
        FileInfo::BlockIndex { of, summary } => of_block_index(of, summary),
        FileInfo::Manifest(manifest) => of_manifest(manifest),
        FileInfo::Log(log) => of_log(log),
        _ => vec![Fact::text("kind", "a kind of file that this command does not know")],
    }
}

/// What the file is, with the version of its format: only one is read of each of these.
fn kind(name: &'static str, extension: &str) -> [Fact; 2] {
    let version = format::versions().into_iter().find(|(known, _)| *known == extension);
    [
        Fact::text("kind", name),
        Fact::number("format_version", version.map_or(0, |(_, version)| version.into())),
    ]
}

fn of_segment(summary: &SegmentSummary) -> Vec<Fact> {
    let blocks = (summary.entries > 0).then_some((summary.min_block, summary.max_block));
    let mut facts = Vec::from(kind("segment (.kv)", "kv"));
    facts.extend([
        Fact::size("bytes", summary.file.len),
        Fact::text("content_checksum", summary.file.content.to_string()),
        Fact::text("domain", &summary.domain),
        Fact::steps(summary.steps),
        Fact::blocks(blocks),
        Fact::number("entries", summary.entries),
        Fact::number("keys", summary.keys),
        Fact::number("deletions", summary.deletions),
        Fact::key("first_key", &summary.first_key),
        Fact::key("last_key", &summary.last_key),
        Fact::text("encoding", encoding_name(summary.encoding)),
        Fact::number("data_pages", summary.pages),
        Fact::size("key_bytes", summary.key_bytes),
        Fact::size("value_bytes", summary.value_bytes),
        Fact::number("overflow_values", summary.overflow_values),
        Fact::size("overflow_bytes", summary.overflow_bytes),
    ]);
    facts
}

/// What every accessor says of itself and of its segment.
fn of_accessor(of: &Described, name: &'static str, extension: &str, len: u64, content: String) -> Vec<Fact> {
    let mut facts = Vec::from(kind(name, extension));
    facts.extend([
        Fact::size("bytes", len),
        Fact::text("content_checksum", content),
        Fact::text("segment_checksum", of.content.to_string()),
        Fact::text("domain", &of.domain),
        Fact::steps(of.steps),
    ]);
    facts
}

fn of_index(of: &Described, summary: &PivotSummary) -> Vec<Fact> {
    let mut facts =
        of_accessor(of, "pivot index (.bt)", "bt", summary.file.len, summary.file.content.to_string());
    facts.extend([
        Fact::number("m", u64::from(summary.m.get())),
        Fact::number("entries", summary.entries),
        Fact::number("data_pages", summary.pages),
        Fact::number("pivots", summary.pivots),
        Fact::number("leaves", summary.leaves),
        Fact::size("resident_bytes", summary.top_bytes),
    ]);
    facts
}

fn of_filter(of: &Described, summary: &FilterSummary) -> Vec<Fact> {
    let mut facts = of_accessor(
        of,
        "existence filter (.kvei)",
        "kvei",
        summary.file.len,
        summary.file.content.to_string(),
    );
    facts.extend([
        Fact::number("filter_bits", u64::from(summary.bits.get())),
        Fact::number("keys", summary.keys),
        Fact::number("shards", summary.shards),
        Fact::size("resident_bytes", summary.top_bytes),
    ]);
    facts
}

fn of_block_index(of: &Described, summary: &BlockIndexSummary) -> Vec<Fact> {
    let mut facts =
        of_accessor(of, "block index (.kvbi)", "kvbi", summary.file.len, summary.file.content.to_string());
    facts.extend([
        Fact::number("entries", summary.entries),
        Fact::number("blocks", summary.blocks),
        Fact::number("data_pages", summary.pages),
        Fact::number("leaves", summary.leaves),
        Fact::size("resident_bytes", summary.top_bytes),
    ]);
    facts
}

fn of_manifest(manifest: &ManifestInfo) -> Vec<Fact> {
    let domains: Vec<_> = manifest
        .domains
        .iter()
        .map(|domain| json!({ "name": domain.name, "key_bytes": domain.key_len }))
        .collect();
    let files: Vec<_> = manifest
        .files
        .iter()
        .map(|file| json!({ "name": file.name, "bytes": file.len, "content_checksum": file.content.to_string() }))
        .collect();
    let every = manifest.snapshot_period;
    let not_held = match manifest.not_held.len() {
        0 => "none".to_owned(),
        some => format!("{}: {}", count(some as u64), manifest.not_held.join(", ")),
    };
    vec![
        Fact::text("kind", "manifest"),
        Fact::number("format_version", u64::from(manifest.version)),
        Fact::size("bytes", manifest.len),
        Fact::text("checksum", hex(&manifest.checksum.to_be_bytes())),
        Fact::number("generation", manifest.generation),
        Fact("domains", json!(domains), names(&manifest.domains)),
        Fact::number("blocks_per_step", manifest.blocks_per_step),
        Fact::number("reorg_window", manifest.reorg_window),
        Fact("snapshot_every", json!(every), Every(every).to_string()),
        Fact("density", rule_as_json(manifest.rule), rule_name(manifest.rule)),
        Fact::number("steps_in_segments", manifest.emitted_to.0),
        Fact::block("first_block", manifest.first_block),
        Fact::block("newest_block_in_segments", manifest.emitted_head),
        Fact::number("pruned_before", manifest.pruned_before),
        Fact(
            "log",
            json!([manifest.log.0, manifest.log.1]),
            format!("files {} to {}", manifest.log.0, manifest.log.1),
        ),
        Fact("segments_not_held", json!(manifest.not_held), not_held),
        // In text a table of its own.
        Fact("files", json!(files), String::new()),
    ]
}

fn of_log(log: &LogInfo) -> Vec<Fact> {
    let torn = log.len - log.sound;
    let sealed = match (log.is_sealed, torn) {
        (true, _) => "yes".to_owned(),
        (false, 0) => "no".to_owned(),
        (false, torn) => format!("no; {} at its end are not a whole record", plural(torn, "byte")),
    };
    vec![
        Fact::text("kind", "write-ahead log (.wal)"),
        Fact::number("format_version", u64::from(log.version)),
        Fact::number("sequence", log.sequence),
        Fact::size("bytes", log.len),
        Fact::size("sound_bytes", log.sound),
        Fact::size("synced_bytes", log.durable),
        Fact("sealed", json!(log.is_sealed), sealed),
        Fact::number("block_records", log.blocks),
        Fact::blocks(log.range),
        Fact::number("changes", log.changes),
        Fact("unwinds", json!(log.unwinds), count(log.unwinds.len() as u64)),
    ]
}
