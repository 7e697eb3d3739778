//! The folder of an export: which files it has, and how one becomes whole at once.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use icecore::{Commitment, Reader};
use serde::{Deserialize, Serialize};

use super::rows::Columns;
use super::{Args, What};
use crate::encoding::hex;
use crate::exit::Failure;
use crate::notes::note;

/// What a folder says of the export in it.
const DESCRIPTION: &str = "EXPORT.json";

/// What the name of a file ends with until it is whole.
const UNFINISHED: &str = ".unfinished";

/// How deep below the folder its files are.
const DEPTH: usize = 3;

/// The longest description that is read, in bytes.
const DESCRIPTION_MAX: u64 = 1 << 28;

/// Which blocks go to which files.
pub(super) struct Plan {
    pub(super) what: What,
    /// Those that are exported; for a state the one that it is at.
    pub(super) blocks: RangeInclusive<u64>,
    blocks_per_file: u64,
    description: Description,
}

/// What must be the same when an export is taken up again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Description {
    /// Which archive it is of, in hex.
    archive: String,
    what: String,
    format: String,
    encoding: String,
    first_block: u64,
    last_block: u64,
    blocks_per_file: u64,
    chain_id: Option<u64>,
    /// Each with its columns.
    domains: Vec<(String, Vec<String>)>,
    /// The last block of each file, and its root: what tells whether other blocks took the place of these. Nothing of an archive without
    /// roots.
    roots: Vec<(u64, String)>,
}

impl Plan {
    pub(super) fn new(args: &Args, reader: &Reader, columns: &[Columns]) -> Result<Self, Failure> {
        let blocks = match args.what {
            What::State => {
                let at = args.at.unwrap_or_default().resolve(reader)?;
                // It says so where there is no such height.
                let at = reader.at(at)?.height();
                at..=at
            }
            What::Changes => changes(args, reader)?,
        };
        let columns = columns.iter().map(|columns| {
            (columns.domain.clone(), columns.all().iter().map(|column| column.name.to_owned()).collect())
        });
        let description = Description {
            archive: hex(&reader.id()),
            what: format!("{:?}", args.what).to_lowercase(),
            format: args.format.extension().to_owned(),
            encoding: format!("{:?}", args.encoding).to_lowercase(),
            first_block: *blocks.start(),
            last_block: *blocks.end(),
            blocks_per_file: args.blocks_per_file,
            chain_id: args.chain_id,
            domains: columns.collect(),
            roots: Vec::new(),
        };
        Ok(Self { what: args.what, blocks, blocks_per_file: args.blocks_per_file, description })
    }

    /// The blocks of each file: aligned, so that exports that follow each other have files that do.
    pub(super) fn spans(&self) -> impl Iterator<Item = RangeInclusive<u64>> {
        let (mut next, last) = (Some(*self.blocks.start()), *self.blocks.end());
        let len = self.blocks_per_file;
        std::iter::from_fn(move || {
            let from = next.filter(|from| *from <= last)?;
            let to = (from / len).saturating_add(1).saturating_mul(len).saturating_sub(1).min(last);
            next = to.checked_add(1);
            Some(from..=to)
        })
    }

    /// The last block of each file with its root, as the archive has it now.
    fn roots(&self, reader: &Reader) -> Result<Vec<(u64, String)>, Failure> {
        if reader.commitment() == Commitment::None {
            return Ok(Vec::new());
        }
        self.spans().map(|span| Ok((*span.end(), reader.root(*span.end())?.to_string()))).collect()
    }

    /// How many heights there are, for progress.
    pub(super) fn heights(&self) -> u64 {
        (self.blocks.end() - self.blocks.start()).saturating_add(1)
    }

    /// The name of a file inside the folder.
    pub(super) fn part(&self, domain: &str, span: &RangeInclusive<u64>, extension: &str) -> PathBuf {
        let span = match self.what {
            What::Changes => format!("blocks={}-{}", span.start(), span.end()),
            What::State => format!("block={}", span.end()),
        };
        PathBuf::from(format!("domain={domain}")).join(span).join(format!("part.{extension}"))
    }
}

/// The blocks whose changes are asked for.
fn changes(args: &Args, reader: &Reader) -> Result<RangeInclusive<u64>, Failure> {
    let blocks = args.blocks;
    let from = blocks.and_then(|blocks| blocks.from);
    let range = match (from, blocks.and_then(|blocks| blocks.to)) {
        (None, None) => reader.changes(..)?.range(),
        (Some(from), None) => reader.changes(from..)?.range(),
        (None, Some(to)) => reader.changes(..to)?.range(),
        (Some(from), Some(to)) => reader.changes(from..to)?.range(),
    };
    let (from, to) =
        range.ok_or_else(|| Failure::OutOfRange("the archive has none of these blocks".to_owned()))?;
    Ok(from..=to)
}

/// The folder that an export goes to.
pub(super) struct Folder {
    path: PathBuf,
}

/// A file that is being written under another name than its own.
pub(super) struct Part {
    file: File,
    path: PathBuf,
    unfinished: PathBuf,
}

fn failed(operation: &'static str, path: &Path) -> impl Fn(io::Error) -> Failure {
    move |source| Failure::File { operation, path: path.to_owned(), source }
}

impl Folder {
    /// Makes the folder where there is none.
    ///
    /// # Errors
    /// It has something else than an export.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(path).map_err(failed("create", path))?;
        let folder = Self { path: path.to_owned() };
        let mut entries = fs::read_dir(path).map_err(failed("read", path))?;
        // An export that was stopped before its description was whole has nothing else.
        let begun = format!("{DESCRIPTION}{UNFINISHED}");
        let is_foreign =
            |entry: io::Result<fs::DirEntry>| entry.is_ok_and(|entry| entry.file_name() != *begun);
        if !folder.description_path().exists() && entries.any(is_foreign) {
            return Err(Failure::usage(format!(
                "{} has files that are no export: choose another folder",
                path.display()
            )));
        }
        Ok(folder)
    }

    fn description_path(&self) -> PathBuf {
        self.path.join(DESCRIPTION)
    }

    /// Goes on with the export that the folder has, or begins one. Where no blocks were asked for, they are those that it began with. Files
    /// whose blocks were replaced since are removed, and missing then.
    ///
    /// # Errors
    /// It has another one.
    pub(super) fn take_up(
        &self,
        plan: &mut Plan,
        reader: &Reader,
        takes_blocks: bool,
    ) -> Result<(), Failure> {
        let path = self.description_path();
        let Ok(file) = File::open(&path) else {
            plan.description.roots = plan.roots(reader)?;
            return self.describe(&plan.description);
        };
        let mut text = String::new();
        file.take(DESCRIPTION_MAX).read_to_string(&mut text).map_err(failed("read", &path))?;
        let mut found: Description = serde_json::from_str(&text).map_err(|error| {
            let what = "is no description of an export, or one by another version";
            Failure::usage(format!("{} {what}: {error}; choose another folder", path.display()))
        })?;
        if found.archive != plan.description.archive {
            return Err(Failure::usage(format!(
                "{} has an export of another archive: choose another folder",
                self.path.display()
            )));
        }
        let is_known = plan.what == What::State || *plan.blocks.start() <= found.first_block;
        if takes_blocks && is_known && found.last_block <= *plan.blocks.end() {
            plan.blocks = found.first_block..=found.last_block;
            (plan.description.first_block, plan.description.last_block) =
                (found.first_block, found.last_block);
        }
        let roots = std::mem::take(&mut found.roots);
        if found == plan.description {
            plan.description.roots = plan.roots(reader)?;
            return self.drop_replaced(plan, &roots);
        }
        Err(Failure::usage(format!(
            "{} has another export, of blocks {} to {}: {} says which; choose another folder",
            self.path.display(),
            found.first_block,
            found.last_block,
            path.display(),
        )))
    }

    /// Writes what the folder has.
    fn describe(&self, description: &Description) -> Result<(), Failure> {
        let mut part = self.create(Path::new(DESCRIPTION))?;
        let text = serde_json::to_string_pretty(description).map_err(io::Error::from);
        let written = text.and_then(|text| writeln!(part.file, "{text}"));
        written.map_err(failed("write", &self.description_path()))?;
        part.keep()
    }

    /// Removes the files of blocks that had other roots when they were written, and only then says that it has the new ones.
    fn drop_replaced(&self, plan: &Plan, before: &[(u64, String)]) -> Result<(), Failure> {
        let description = &plan.description;
        let now = &description.roots;
        if before == now {
            return Ok(());
        }
        for (number, span) in plan.spans().enumerate() {
            if before.get(number) == now.get(number) {
                continue;
            }
            note(format_args!(
                "the archive has other blocks now than when {} to {} were exported: their files are written again",
                span.start(),
                span.end(),
            ));
            for (domain, _) in &description.domains {
                let name = plan.part(domain, &span, &description.format);
                if self.has(&name)? {
                    let path = self.path(&name);
                    fs::remove_file(&path).map_err(failed("remove", &path))?;
                    sync_folder_of(&path)?;
                }
            }
        }
        self.describe(description)
    }

    /// Whether a file is whole.
    pub(super) fn has(&self, name: &Path) -> Result<bool, Failure> {
        let path = self.path.join(name);
        path.try_exists().map_err(failed("look at", &path))
    }

    /// A file that is none of the export, and that a glob which finds its files finds as well: `OUT/*/*/*.csv`.
    pub(super) fn foreign(&self, plan: &Plan) -> Result<Option<PathBuf>, Failure> {
        let Description { domains, format, .. } = &plan.description;
        let of_span = |span: RangeInclusive<u64>| {
            domains.iter().map(move |(domain, _)| self.path.join(plan.part(domain, &span, format)))
        };
        let ours: HashSet<PathBuf> = plan.spans().flat_map(of_span).collect();
        let mut found = vec![self.path.clone()];
        for _ in 0..DEPTH {
            let mut below = Vec::new();
            for folder in found.iter().filter(|path| path.is_dir()) {
                for entry in fs::read_dir(folder).map_err(failed("read", folder))? {
                    below.push(entry.map_err(failed("read", folder))?.path());
                }
            }
            found = below;
        }
        let is_found = |path: &PathBuf| path.extension().is_some_and(|found| found == format.as_str());
        found.sort();
        Ok(found.into_iter().find(|path| is_found(path) && !ours.contains(path)))
    }

    /// The path of a file.
    pub(super) fn path(&self, name: &Path) -> PathBuf {
        self.path.join(name)
    }

    /// Begins a file, under another name until it is whole.
    pub(super) fn create(&self, name: &Path) -> Result<Part, Failure> {
        let path = self.path.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed("create", folder))?;
        }
        let mut unfinished = path.clone().into_os_string();
        unfinished.push(UNFINISHED);
        let unfinished = PathBuf::from(unfinished);
        let file = File::create(&unfinished).map_err(failed("create", &unfinished))?;
        Ok(Part { file, path, unfinished })
    }
}

impl Part {
    /// What went wrong when this file was written.
    pub(super) fn failure(&self, source: io::Error) -> Failure {
        self.failed()(source)
    }

    /// The same for one who has given the part away.
    pub(super) fn failed(&self) -> impl FnOnce(io::Error) -> Failure + use<> {
        let path = self.unfinished.clone();
        move |source| Failure::File { operation: "write", path, source }
    }

    /// Gives the file its name, when its bytes are durable.
    pub(super) fn keep(self) -> Result<(), Failure> {
        self.file.sync_all().map_err(|source| self.failure(source))?;
        fs::rename(&self.unfinished, &self.path).map_err(failed("rename", &self.path))?;
        sync_folder_of(&self.path)
    }
}

/// Makes it durable that a file got its name, or lost it.
fn sync_folder_of(path: &Path) -> Result<(), Failure> {
    let Some(folder) = path.parent() else { return Ok(()) };
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(failed("sync", folder))
}

impl Write for Part {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.file.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
