//! The child that puts wrong files into a finished archive: an older version of a file, two files of one kind exchanged, or the
//! file that another archive of the same options has under that name.
//!
//! Every answer must be right or an error that names a wrong file, for a reader and for a writer, and `verify` must report what
//! failed. No check is redundant: a filter of other versions of the same keys has the right content, and only its binding to the
//! segment tells. When the right file is back everything must be as before: whoever opened the archive meanwhile removed nothing.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use icecore::{Archive, Maintenance, OpenOptions, Reader, VerifyMode};
use icecore_tools::workload::SplitMix64;

use crate::case::ScriptId;
use crate::check::{Kind, Verdict};
use crate::disk::Disk;
use crate::drive::Driver;
use crate::examine::{Difference, examine_each, with_causes};
use crate::model::Model;
use crate::script::Script;
use crate::trace::{self, Change};

#[derive(Args)]
pub(crate) struct SwapsArgs {
    /// The script that was gone through.
    id: ScriptId,
    /// The archive.
    dir: PathBuf,
    /// How it came to be.
    trace: PathBuf,
    /// Which files.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many.
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// This one only.
    #[arg(long)]
    only: Option<Swap>,
}

/// What takes the place of a file. Files are named relative to the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Swap {
    /// Its n-th version that differs from the last one.
    Stale { file: String, version: usize },
    /// Another file of its kind, which gets this one.
    Exchanged { file: String, other: String },
    /// The file of the same name of the script's twin.
    Foreign { file: String },
}

impl fmt::Display for Swap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale { file, version } => write!(f, "stale@{file}:{version}"),
            Self::Exchanged { file, other } => write!(f, "exchanged@{file}:{other}"),
            Self::Foreign { file } => write!(f, "foreign@{file}"),
        }
    }
}

impl FromStr for Swap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (what, place) = text.split_once('@')?;
            let pair = || place.split_once(':').map(|(file, other)| (file.to_owned(), other));
            match what {
                "stale" => pair()
                    .and_then(|(file, version)| Some(Self::Stale { file, version: version.parse().ok()? })),
                "exchanged" => pair().map(|(file, other)| Self::Exchanged { file, other: other.to_owned() }),
                "foreign" => Some(Self::Foreign { file: place.to_owned() }),
                _ => None,
            }
        };
        parse().ok_or_else(|| {
            format!("{text:?} is no swap: stale@FILE:VERSION, exchanged@FILE:FILE or foreign@FILE")
        })
    }
}

/// The files of an archive by name.
type Files = BTreeMap<String, Vec<u8>>;

/// A former version of a file.
struct Older {
    bytes: Vec<u8>,
    /// The operations before this one were begun.
    begun: usize,
}

/// What there is to put into an archive.
struct Stock {
    right: Files,
    older: BTreeMap<String, Vec<Older>>,
    twin: Files,
}

/// Swaps files. Says of each swap, in one line, which it is before it is tried, and in another what was found.
pub(crate) fn run(args: &SwapsArgs) {
    let script = args.id.script();
    let beside = args.dir.parent().and_then(Path::parent).expect("an archive is in a watched directory");
    let place = tempfile::tempdir_in(beside).expect("a directory can be made beside it");
    let stock = Stock::gather(args, &script, place.path());
    let swaps = args.only.clone().map_or_else(|| draw(&stock.swaps(), args), |swap| vec![swap]);
    for (i, swap) in swaps.iter().enumerate() {
        println!("{swap}");
        let dir = place.path().join(i.to_string());
        let verdict = stock.try_swap(swap, &dir, &script).err().unwrap_or(Verdict::good(0));
        fs::remove_dir_all(&dir).expect("a copy can be removed");
        println!("{}\t\t{}", verdict.kind, verdict.why.replace('\n', " "));
    }
}

/// Of each sort as many, and the manifest and the few logs as often as the many segments.
fn draw(swaps: &[Swap], args: &SwapsArgs) -> Vec<Swap> {
    let mut random = SplitMix64::new(args.seed);
    let mut drawn = Vec::new();
    while drawn.len() < args.count as usize && !swaps.is_empty() {
        let (sort, is_rare) = (random.below(3), random.below(2) == 0);
        let fits = |swap: &&Swap| {
            let (of_sort, file) = match swap {
                Swap::Stale { file, .. } => (0, file),
                Swap::Exchanged { file, .. } => (1, file),
                Swap::Foreign { file } => (2, file),
            };
            of_sort == sort && is_rare == (kind_of(file) == "wal" || file == MANIFEST)
        };
        let fits: Vec<&Swap> = swaps.iter().filter(fits).collect();
        if !fits.is_empty() {
            drawn.push(fits[random.below(fits.len() as u64) as usize].clone());
        }
    }
    drawn
}

impl Stock {
    fn gather(args: &SwapsArgs, script: &Script, place: &Path) -> Self {
        // Closed: from then on the manifest says how far the log reaches.
        let closed = place.join("closed");
        write_files(&closed, &read_files(&args.dir));
        drop(Archive::open(&closed, args.id.open_options()).expect("a sound archive opens"));
        let right = read_files(&closed);
        let older = older_versions(&args.trace, &right);
        let twin = script.twin();
        let twin_dir = place.join("twin").join("archive");
        let mut driver = Driver::new(&twin, &twin_dir, args.id.open_options(), None);
        (0..twin.ops.len()).for_each(|i| driver.step(i).expect("a sound archive takes a script"));
        drop(driver);
        Self { right, older, twin: read_files(&twin_dir) }
    }

    /// All that can be done with the files.
    fn swaps(&self) -> Vec<Swap> {
        let mut swaps = Vec::new();
        for (file, older) in &self.older {
            swaps.extend((0..older.len()).map(|version| Swap::Stale { file: file.clone(), version }));
        }
        for (file, bytes) in &self.right {
            let others = self.right.keys().filter(|other| *other > file && kind_of(other) == kind_of(file));
            swaps.extend(others.map(|other| Swap::Exchanged { file: file.clone(), other: other.clone() }));
            if self.twin.get(file).is_some_and(|foreign| foreign != bytes) {
                swaps.push(Swap::Foreign { file: file.clone() });
            }
        }
        swaps
    }

    /// The archive's files with the wrong ones among them, and the names of those.
    fn swapped(&self, swap: &Swap) -> Option<(Files, Vec<String>)> {
        let mut files = self.right.clone();
        match swap {
            Swap::Stale { file, version } => {
                files.insert(file.clone(), self.older.get(file)?.get(*version)?.bytes.clone());
                Some((files, vec![file.clone()]))
            }
            Swap::Exchanged { file, other } => {
                let (first, second) = (self.right.get(file)?.clone(), self.right.get(other)?.clone());
                files.extend([(file.clone(), second), (other.clone(), first)]);
                Some((files, vec![file.clone(), other.clone()]))
            }
            Swap::Foreign { file } => {
                files.insert(file.clone(), self.twin.get(file)?.clone());
                Some((files, vec![file.clone()]))
            }
        }
    }

    /// What may be answered: an older manifest knows nothing of a later prune, and the lower floor of its time is right too.
    fn models(&self, swap: &Swap, script: &Script) -> Vec<Model> {
        let mut models = vec![script.last().clone()];
        if let Swap::Stale { file, version } = swap
            && file == MANIFEST
        {
            let begun = self.older[file][*version].begun;
            let first = script.states.iter().find(|state| state.range().is_some());
            let then = script.states[begun.saturating_sub(1)..=begun].iter().chain(first);
            let floors: BTreeSet<u64> = then.filter_map(|state| Some(state.range()?.0)).collect();
            models.extend(floors.into_iter().map(|floor| script.last().with_floor(floor)));
        }
        models
    }

    fn try_swap(&self, swap: &Swap, dir: &Path, script: &Script) -> Result<(), Verdict> {
        let Some((files, wrong)) = self.swapped(swap) else {
            return Err(Verdict::new(Kind::Panicked, "the archive has no such files"));
        };
        let models = self.models(swap, script);
        write_files(dir, &files);
        let is_read = answers(&Reader::open(dir), &models).or_else(|why| named(dir, &wrong, why))?;
        let problems = match icecore::verify(dir, VerifyMode::Full, &()) {
            Ok(report) => report.problems,
            Err(error) => vec![error],
        };
        problems.iter().try_for_each(|problem| named(dir, &wrong, failed(problem)).map(drop))?;
        let is_log = wrong.iter().any(|file| kind_of(file) == "wal" || file == MANIFEST);
        if problems.is_empty() && !(is_read && is_log) {
            return Err(Verdict::new(Kind::Wrong, "verify reports nothing"));
        }
        let is_written = Self::write_to(dir, &wrong, &models)?;
        // What no answer needed is what it was: tries as small as these are proven without their nodes.
        let is_needless = |file: &String| {
            (script.last().is_ethereum() || script.last().is_by_path)
                && file.starts_with("_nodes.")
                && kind_of(file) == "kv"
        };
        let is_settled = is_read && is_written && !wrong.iter().any(is_needless);
        if !is_settled {
            for file in &wrong {
                fs::write(dir.join(file), &self.right[file]).expect("a file can be put back");
            }
        }
        is_whole(dir, &models).map_err(|verdict| {
            let when = if is_settled { "after a writer" } else { "with the right files back" };
            Verdict { why: format!("{when}: {}", verdict.why), ..verdict }
        })
    }

    /// Opens for writing. Returns whether all was answered.
    fn write_to(dir: &Path, wrong: &[String], models: &[Model]) -> Result<bool, Verdict> {
        let opened = Archive::open(dir, OpenOptions::new().maintenance(Maintenance::EmitOnly));
        if let Ok(archive) = &opened
            && let Some(repair) = archive.repairs().iter().find(|file| !is_wrong(wrong, file))
        {
            return Err(Verdict::new(Kind::Wrong, format!("{repair} was sound and built again")));
        }
        let reader = opened.as_ref().map(Archive::reader);
        answers(&reader, models).or_else(|why| named(dir, wrong, why))
    }
}

const MANIFEST: &str = "MANIFEST";

/// Of a file's name what tells its kind.
fn kind_of(file: &str) -> &str {
    file.rsplit('.').next().unwrap_or(file)
}

/// Whether an error may be about this file: an older manifest names files that are not there any more.
fn is_wrong(wrong: &[String], file: &str) -> bool {
    wrong.iter().any(|wrong| wrong == file || wrong == MANIFEST)
}

fn failed(error: &icecore::Error) -> Difference {
    Difference::Failed(with_causes(error))
}

/// Asks everything. `Ok(true)`: all of it is right.
fn answers<R: Borrow<Reader>>(
    reader: &Result<R, impl Borrow<icecore::Error>>,
    models: &[Model],
) -> Result<bool, Difference> {
    let reader = reader.as_ref().map_err(|error| failed(error.borrow()))?.borrow();
    let model = models.iter().find(|model| model.range() == reader.range());
    examine_each(reader, model.unwrap_or(&models[0])).map(|()| true)
}

/// An answer may be missing where the error names a wrong file. `Ok(false)`: it does.
fn named(dir: &Path, wrong: &[String], why: Difference) -> Result<bool, Verdict> {
    match why {
        Difference::Wrong(why) => Err(Verdict::new(Kind::Wrong, why)),
        Difference::Failed(why) => {
            let is_named = wrong.iter().any(|file| {
                let path = if file == MANIFEST { dir.to_owned() } else { dir.join(file) };
                why.contains(&path.display().to_string())
            });
            let what = || Verdict::new(Kind::Wrong, format!("the error names no wrong file: {why}"));
            if is_named { Ok(false) } else { Err(what()) }
        }
    }
}

/// A reader, then a writer, find everything, and `verify` finds nothing.
fn is_whole(dir: &Path, models: &[Model]) -> Result<(), Verdict> {
    answers(&Reader::open(dir), models)?;
    let archive = Archive::open(dir, OpenOptions::new().maintenance(Maintenance::EmitOnly));
    answers(&archive.as_ref().map(Archive::reader), models)?;
    drop(archive);
    match icecore::verify(dir, VerifyMode::Full, &())?.problems.first() {
        None => Ok(()),
        Some(problem) => Err(Verdict::new(Kind::Wrong, format!("verify: {}", with_causes(problem)))),
    }
}

/// The files of an archive but for its lock and its reserve.
fn read_files(dir: &Path) -> Files {
    let mut files = Files::new();
    for (folder, prefix) in [(dir.to_owned(), ""), (dir.join("wal"), "wal/")] {
        for entry in fs::read_dir(folder).expect("an archive can be listed") {
            let path = entry.expect("an archive can be listed").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_file() && name != "LOCK" && name != "RESERVE" {
                let bytes = fs::read(&path).expect("a file of the archive can be read");
                files.insert(format!("{prefix}{name}"), bytes);
            }
        }
    }
    files
}

fn write_files(dir: &Path, files: &Files) {
    fs::create_dir_all(dir.join("wal")).expect("a directory can be made");
    for (file, bytes) in files {
        fs::write(dir.join(file), bytes).expect("a file of the archive can be written");
    }
}

/// The versions that each of the files had between two operations, and each manifest there was, but for the last ones.
fn older_versions(trace: &Path, right: &Files) -> BTreeMap<String, Vec<Older>> {
    let (mut disk, mut begun) = (Disk::default(), 0);
    let mut newest: HashMap<String, Vec<u8>> = HashMap::new();
    let mut older: BTreeMap<String, Vec<Older>> = BTreeMap::new();
    for event in trace::read(trace).expect("the trace of the run can be read") {
        disk.apply(&event.change);
        match &event.change {
            Change::Ack { line } => {
                let number = line.strip_prefix("b ").and_then(|number| number.parse::<usize>().ok());
                begun = number.map_or(begun, |number| number + 1);
            }
            Change::Rename { .. } => {}
            _ => continue,
        }
        for (file, bytes) in disk.files("/archive/") {
            if right.contains_key(file) && newest.get(file).is_none_or(|newest| newest != bytes) {
                newest.insert(file.to_owned(), bytes.to_owned());
                let version = Older { bytes: bytes.to_owned(), begun };
                older.entry(file.to_owned()).or_default().push(version);
            }
        }
    }
    for (file, versions) in &mut older {
        versions.retain(|version| version.bytes != right[file]);
    }
    older
}
