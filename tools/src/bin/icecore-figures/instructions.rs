//! How many instructions a warm lookup takes, by part: counts, which no other program on the machine changes.
//!
//! The archives are built and the keys chosen here. A process of its own looks them up under callgrind, each part in a function
//! of its own that is never inlined: callgrind counts inside these functions alone and writes one file for each.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use icecore::measure::{LoneSegment, SegmentReader};
use icecore::storage::Storage;
use icecore::storage::os::OsStorage;
use icecore::{
    Archive, Density, DensityRule, DomainHandle, Durability, Encoding, EncodingRule, Maintenance,
    OpenOptions, Options, Reader, View,
};
use icecore_index::FilterHash;
use icecore_segments::PageBuf;
use icecore_segments::step::{Step, StepRange};
use icecore_tools::machine::Conditions;
use icecore_tools::workload::storage::{KEY_LEN, StorageEntries};
use serde::Serialize;

use crate::child::{self, Work};
use crate::report::Figures;

const DOMAIN: &str = "storage";

/// The folders of the archive of one segment and of the one of many, and the files of keys, in the folder of the run.
const ONE: &str = "one";
const MANY: &str = "many";
const KNOWN: &str = "known.keys";
const UNKNOWN: &str = "unknown.keys";

/// How many unmerged segments the second archive has.
const SEGMENTS: usize = 8;

/// How often the lookups are timed in each archive: the first pass opens files and touches pages.
const PASSES: usize = 20;

/// What the names of the counted functions have in common, twice: of two options with one pattern valgrind heeds one.
const COUNTED: [&str; 2] = ["*counted_*", "*ounted_*"];

/// How to count instructions.
#[derive(Args)]
pub(crate) struct InstructionsArgs {
    /// How many entries the dataset has.
    #[arg(short = 'n', long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    entries: u64,
    /// How many entries a pivot stands for.
    #[arg(short, long, default_value_t = 16)]
    m: u32,
    /// How many keys are looked up.
    #[arg(long, default_value_t = 20_000)]
    lookups: usize,
    /// Where the archives are built and removed again. Default: the temporary folder.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Under which conditions it was counted.
#[derive(Serialize)]
struct InstructionsConditions {
    entries: u64,
    m: u32,
    lookups: usize,
    machine: Conditions,
    counter: &'static str,
}

type Key = [u8; KEY_LEN];

/// Counts and prints.
pub(crate) fn run(args: &InstructionsArgs) -> Result<(), Box<dyn Error>> {
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new().prefix("icecore-figures").tempdir_in(&parent)?;
    let dataset = StorageEntries::new(args.entries);
    build(&dataset, args.m, 1, &folder.path().join(ONE))?;
    build(&dataset, args.m, SEGMENTS, &folder.path().join(MANY))?;
    let places = dataset.warm_places(0, args.lookups);
    let entries: Vec<_> = dataset.iter().collect();
    let known: Vec<u8> = places.iter().flat_map(|place| *entries[*place as usize].key()).collect();
    fs::write(folder.path().join(KNOWN), known)?;
    fs::write(folder.path().join(UNKNOWN), dataset.absent_keys(0, args.lookups).concat())?;
    let counts = under_callgrind(folder.path())?;
    let mut figures = Figures::new();
    let per_lookup = |name: &str| -> Result<f64, Box<dyn Error>> {
        let count = counts.get(name).ok_or_else(|| format!("callgrind counted nothing in {name}"))?;
        Ok(*count as f64 / args.lookups as f64)
    };
    let (known, filter) = (per_lookup("counted_known")?, per_lookup("counted_filter")?);
    let (index, page) = (per_lookup("counted_index")?, per_lookup("counted_page")?);
    figures.add("warm get of a known key: instructions", known);
    figures.add("warm get of a known key: hash and filter", filter);
    figures.add("warm get of a known key: index", index);
    figures.add("warm get of a known key: page", page);
    figures.add("warm get of a known key: all around them", known - filter - index - page);
    figures.add("warm get of an unknown key: instructions", per_lookup("counted_unknown")?);
    let many = per_lookup("counted_known_of_many")?;
    figures.add("warm get of a known key over 8 unmerged segments: instructions", many);
    figures.add(
        "warm get of an unknown key over 8 unmerged segments: instructions",
        per_lookup("counted_unknown_of_many")?,
    );
    figures
        .add("warm get of a known key over 8 unmerged segments to one: time", time_of_many(folder.path())?);
    let conditions = InstructionsConditions {
        entries: args.entries,
        m: args.m,
        lookups: args.lookups,
        machine: Conditions::of(folder.path()),
        counter: "callgrind, instructions of the calling thread",
    };
    figures.print(&conditions, args.json)?;
    Ok(())
}

/// An archive of the dataset in `steps` segments, each of which spans all keys.
fn build(dataset: &StorageEntries, m: u32, steps: usize, dir: &Path) -> Result<(), Box<dyn Error>> {
    let density = Density::new(m).ok_or("M is between 1 and 65536")?;
    let options = Options::new()
        .declare(icecore::Domain::new(DOMAIN).encoding(EncodingRule::Plain))
        .blocks_per_step(1)
        .reorg_window(0)
        .density(DensityRule::Fixed(density));
    let open = OpenOptions::new().durability(Durability::Relaxed).maintenance(Maintenance::EmitOnly);
    let archive = Archive::create_with(dir, options, open)?;
    for step in 0..steps {
        let mut block = archive.begin(step as u64)?;
        for entry in dataset.iter().skip(step).step_by(steps) {
            block.put(DOMAIN, entry.key(), entry.value())?;
        }
        block.commit()?;
    }
    let segments = archive.reader().segments();
    let of_domain = segments.iter().filter(|segment| segment.domain == DOMAIN);
    let found = of_domain.filter(|segment| segment.encoding == Encoding::Plain).count();
    archive.close()?;
    if found == steps { Ok(()) } else { Err(format!("{found} plain segments instead of {steps}").into()) }
}

/// What each counted function took, by its name.
fn under_callgrind(folder: &Path) -> Result<BTreeMap<String, u64>, Box<dyn Error>> {
    let work = child::command(&Work::Lookups { dir: folder.to_owned() })?;
    let out = folder.join("callgrind");
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--quiet"])
        .arg("--collect-atstart=no")
        .arg(format!("--toggle-collect={}", COUNTED[0]))
        .arg(format!("--dump-after={}", COUNTED[1]))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(work.get_program())
        .args(work.get_args())
        .stdin(Stdio::null());
    let status = command.status().map_err(|error| {
        format!("valgrind cannot be run: {error}; it comes from the package `valgrind` of most systems")
    })?;
    if !status.success() {
        return Err(format!("{command:?}: {status}").into());
    }
    let mut counts = BTreeMap::new();
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        if path.is_file()
            && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("callgrind."))
        {
            counts.extend(count_of(&fs::read_to_string(path)?));
        }
    }
    Ok(counts)
}

/// The function whose end had the file written, and what it took.
fn count_of(dump: &str) -> Option<(String, u64)> {
    let after = |start: &str| dump.lines().find_map(|line| line.strip_prefix(start));
    let function = after("desc: Trigger: --dump-after=")?;
    let name = function.split("::").find(|part| part.starts_with("counted_"))?;
    let count = after("totals: ").or_else(|| after("summary: "))?;
    Some((name.to_owned(), count.trim().parse().ok()?))
}

/// The lookups of [`run`], in the folder that it prepared: what callgrind watches.
pub(crate) fn look_up(folder: &Path) -> Result<(), Box<dyn Error>> {
    let (known, unknown) = (read_keys(folder, KNOWN)?, read_keys(folder, UNKNOWN)?);
    for (name, count_known, count_unknown) in [
        (ONE, counted_known as Counted, counted_unknown as Counted),
        (MANY, counted_known_of_many, counted_unknown_of_many),
    ] {
        let reader = Reader::open(folder.join(name))?;
        let (view, domain) = (reader.latest()?, reader.domain(DOMAIN)?);
        // Whatever the first touch of a page costs is left out.
        found(&view, &domain, &known)?;
        found(&view, &domain, &unknown)?;
        check(count_known(&view, &domain, &known)?, known.len())?;
        check(count_unknown(&view, &domain, &unknown)?, 0)?;
    }
    let storage: Arc<dyn Storage> = Arc::new(OsStorage);
    let steps = StepRange::new(Step(0), Step(1)).ok_or("no range")?;
    let segment = LoneSegment::open(&storage, &folder.join(ONE), DOMAIN, steps)?.reader()?;
    parts(&segment, &known)
}

/// How long the known keys take in the archive of many segments, to the time in that of one: each the shortest of passes in turn.
fn time_of_many(folder: &Path) -> Result<f64, Box<dyn Error>> {
    let known = read_keys(folder, KNOWN)?;
    let mut views = Vec::new();
    for name in [ONE, MANY] {
        let reader = Reader::open(folder.join(name))?;
        views.push((reader.latest()?, reader.domain(DOMAIN)?, Duration::MAX));
    }
    for _ in 0..PASSES {
        for (view, domain, shortest) in &mut views {
            let start = Instant::now();
            check(found(view, domain, &known)?, known.len())?;
            *shortest = start.elapsed().min(*shortest);
        }
    }
    Ok(views[1].2.as_secs_f64() / views[0].2.as_secs_f64())
}

/// The keys that the run wrote for its child.
fn read_keys(folder: &Path, name: &str) -> Result<Vec<Key>, Box<dyn Error>> {
    Ok(fs::read(folder.join(name))?.as_chunks().0.to_vec())
}

/// One of the functions below. Each has a line that no other has, or the compiler would make them one.
type Counted = fn(&View, &DomainHandle, &[Key]) -> Result<usize, icecore::Error>;

#[inline]
fn found(view: &View, domain: &DomainHandle, keys: &[Key]) -> Result<usize, icecore::Error> {
    let mut found = 0;
    for key in keys {
        found += usize::from(black_box(view.get(domain, key)?).is_some());
    }
    Ok(found)
}

#[inline(never)]
fn counted_known(view: &View, domain: &DomainHandle, keys: &[Key]) -> Result<usize, icecore::Error> {
    black_box("known");
    found(view, domain, keys)
}

#[inline(never)]
fn counted_unknown(view: &View, domain: &DomainHandle, keys: &[Key]) -> Result<usize, icecore::Error> {
    black_box("unknown");
    found(view, domain, keys)
}

#[inline(never)]
fn counted_known_of_many(view: &View, domain: &DomainHandle, keys: &[Key]) -> Result<usize, icecore::Error> {
    black_box("known of many");
    found(view, domain, keys)
}

#[inline(never)]
fn counted_unknown_of_many(
    view: &View,
    domain: &DomainHandle,
    keys: &[Key],
) -> Result<usize, icecore::Error> {
    black_box("unknown of many");
    found(view, domain, keys)
}

/// The three parts of a lookup alone, each twice: the first time touches the pages.
fn parts(segment: &SegmentReader, keys: &[Key]) -> Result<(), Box<dyn Error>> {
    for key in keys {
        segment.find(key, u64::MAX, |_| {})?;
    }
    check(counted_filter(segment, keys)?, keys.len())?;
    counted_index(segment, keys)?;
    let index = segment.index()?;
    let spans: Vec<_> = keys.iter().map(|key| index.locate(key, u64::MAX)).collect::<Result<_, _>>()?;
    check(counted_page(segment, keys, &spans)?, keys.len())
}

#[inline(never)]
fn counted_filter(segment: &SegmentReader, keys: &[Key]) -> Result<usize, Box<dyn Error>> {
    let filter = segment.filter()?;
    let mut found = 0;
    for key in keys {
        found += usize::from(filter.may_contain(FilterHash::of(black_box(key)))?);
    }
    Ok(found)
}

#[inline(never)]
fn counted_index(segment: &SegmentReader, keys: &[Key]) -> Result<(), Box<dyn Error>> {
    let index = segment.index()?;
    for key in keys {
        black_box(index.locate(black_box(key), u64::MAX)?);
    }
    Ok(())
}

#[inline(never)]
fn counted_page(
    segment: &SegmentReader,
    keys: &[Key],
    spans: &[icecore_segments::span::PageSpan],
) -> Result<usize, Box<dyn Error>> {
    let (kv, mut buf, mut found) = (segment.kv()?, PageBuf::default(), 0);
    for (key, span) in keys.iter().zip(spans) {
        found += usize::from(black_box(kv.get_in(*span, black_box(key), u64::MAX, &mut buf)?).is_some());
    }
    Ok(found)
}

fn check(found: usize, expected: usize) -> Result<(), Box<dyn Error>> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{found} keys were found instead of {expected}").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_is_read() {
        let dump = "version: 1\ndesc: Trigger: --dump-after=icecore_figures::instructions::counted_page\n\nsummary: 42\ntotals: 42\n";
        assert_eq!(count_of(dump), Some(("counted_page".to_owned(), 42)));
        assert_eq!(count_of("desc: Trigger: Program termination\ntotals: 3\n"), None);
    }
}
