//! `icecore export`: what blocks changed, or the state at a block, as tables for other programs.
//!
//! One pass over the archive for each span of blocks writes a file for each domain; [`folder`] says which files there are, [`rows`] what a
//! row has, [`table`] how it is written and read back, as text or as Parquet, [`compare`] whether it is right.

mod compare;
mod folder;
#[cfg(feature = "parquet")]
mod parquet;
mod rows;
mod table;
mod text;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::thread;

use clap::ValueEnum;
use icecore::{ProgressListener, Reader, Scan};
use serde_json::json;

use crate::ask::Asked;
use crate::encoding::{Encoding, RULE};
use crate::exit::{Exit, Failure, Outcome};
use crate::keys::is_ethereum;
use crate::notes::note;
use crate::number::{Blocks, HEIGHT_FORMS, Height, whole};
use crate::place::{ONE_READ, Place};
use crate::print::{Out, plural};
use crate::progress::Bars;
use folder::{Folder, Part, Plan};
use rows::{Columns, Row};
use table::Format;

/// Write what blocks changed, or the state at a block, as files for other programs.
#[derive(clap::Args)]
#[command(after_help = format!("\
A row for each key that a block wrote or deleted, with its value before and
after, by block, then key; with --what state a row for each key. One file for
each domain and span of blocks, under names that DuckDB, Polars and Spark
understand:
  OUT/domain=storage/blocks=0-99999/part.csv
as in read_csv('OUT/*/*/*.csv', hive_partitioning = true) of DuckDB.
A file that is there is whole: a run that was stopped goes on with those that
are missing when the same command is given again, with the blocks that it began
with. Files whose blocks a reorganisation replaced since are written again; the
root of the last block of each file is what tells.

Columns: block_number, key, from_value, to_value; of a state block_number,
key, value. Where the archive has the domains of the Ethereum formats they are
those of cryo: block_number, transaction_index, transaction_hash, address,
slot (of storage), from_value, to_value, chain_id. An archive knows no
transactions, so theirs are null. In CSV an absent value is an empty field and
an empty one 0x; in JSON lines and Parquet it is null.

Parquet has keys and values as bytes, of fixed length where the archive declares
one, balances and slots as 32 bytes, big-endian, and block_number, nonces and
chain_id as 64-bit numbers without sign. Row groups are of 131,072 rows or
32 MiB, with the least and greatest block_number and key of each and of its
pages, compressed with zstd. It is in commands that were installed with
--features parquet.

{RULE}
With --encoding text there are no exports: absent and empty would look alike.
Parquet has bytes as they are, and takes no --encoding.

{HEIGHT_FORMS}

Examples:
  icecore export chain.ice --format csv --out tables
  icecore export eth.ice --format jsonl --out slots --domain storage \\
      --blocks 100..200 --chain-id 1 --check
  icecore export chain.ice --format csv --out state --what state --at 17"))]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// What the files are
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Format,
    /// The folder to write to: new, empty, or one that the same export began
    #[arg(long, short, value_name = "DIR")]
    out: PathBuf,
    /// Changes of blocks, or the state at one
    #[arg(long, value_enum, value_name = "WHAT", default_value = "changes")]
    what: What,
    /// The blocks whose changes are written: A..B without B, A..=B with it; either may be left out [default: all]
    #[arg(long, value_name = "A..B")]
    blocks: Option<Blocks>,
    /// The height of the state [default: latest]
    #[arg(long, short, value_name = "N", allow_hyphen_values = true)]
    at: Option<Height>,
    /// Only this domain; all where it is left out
    #[arg(long, short, value_name = "NAME")]
    domain: Option<String>,
    /// How many heights go into one file
    #[arg(long, value_name = "N", default_value = "100000", value_parser = blocks_per_file)]
    blocks_per_file: u64,
    /// What stands in the column `chain_id`
    #[arg(long, value_name = "N")]
    chain_id: Option<u64>,
    /// How keys and values are written
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    encoding: Encoding,
    /// Read the files back and compare each row with the archive; exit code 1 where one differs
    #[arg(long)]
    check: bool,
    /// Tell what was done as JSON
    #[arg(long)]
    json: bool,
}

/// What is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// What each block changed
    Changes,
    /// Every key with its value at a block
    State,
}

fn blocks_per_file(text: &str) -> Result<u64, String> {
    whole(text).and_then(|blocks| if blocks == 0 { Err("it is at least 1".to_owned()) } else { Ok(blocks) })
}

pub(crate) fn run(args: &Args) -> Outcome {
    args.format.check(args.encoding)?;
    if args.what == What::State && args.blocks.is_some() || args.what == What::Changes && args.at.is_some() {
        return Err(Failure::usage("--blocks goes with --what changes, --at with --what state"));
    }
    let asked = Asked::open(&args.place, args.encoding, ONE_READ)?;
    let export = Export::new(args, &asked)?;
    let bars = Bars::new();
    let (mut written, mut rows, mut present) = (0, 0, 0);
    bars.begin("export", Some(export.plan.heights()));
    for span in export.plan.spans() {
        let missing = export.missing(&span)?;
        present += (export.columns.len() - missing.len()) as u64;
        written += missing.len() as u64;
        rows += export.write(&span, &missing)?;
        bars.advance((span.end() - span.start()).saturating_add(1));
    }
    bars.end();
    let difference = if args.check { export.check(&bars)? } else { None };
    let mut out = Out::new();
    let (from, to) = (*export.plan.blocks.start(), *export.plan.blocks.end());
    if args.json {
        out.json(&json!({
            "first": from, "last": to, "files_written": written, "files_present": present, "rows_written": rows,
            "checked": args.check, "difference": difference,
        }))?;
    } else {
        out.summary(format_args!(
            "{} of blocks {from} to {to} in {}, {} there already{}",
            plural(rows, "row"),
            plural(written, "file"),
            present,
            if args.check && difference.is_none() { "; all compared with the archive" } else { "" },
        ))?;
        if let Some(difference) = &difference {
            out.line(difference)?;
        }
    }
    out.flush()?;
    if args.blocks.is_none() && args.at.is_none() && asked.reader.head().is_some_and(|head| to < head) {
        note(format_args!("newer blocks than {to} are not in it: the export has those that it began with"));
    }
    asked.tell_reads();
    Ok(if difference.is_some() { Exit::No } else { Exit::Done })
}

/// An export, settled.
struct Export<'a> {
    reader: &'a Reader,
    format: Format,
    encoding: Encoding,
    plan: Plan,
    folder: Folder,
    /// Of the domains that are exported.
    columns: Vec<Columns>,
}

/// Rows that go from the thread that reads to the one that writes at once.
const BATCH_ROWS: usize = 1024;

impl<'a> Export<'a> {
    fn new(args: &Args, asked: &'a Asked) -> Result<Self, Failure> {
        let reader = &asked.reader;
        let (face, is_state) = (asked.face(), args.what == What::State);
        let is_wanted = |name: &str| args.domain.as_deref().is_none_or(|only| only == name);
        let domains = reader.domains().iter().enumerate().filter(|(_, domain)| is_wanted(&domain.name));
        let columns: Vec<Columns> = domains
            .map(|(number, domain)| {
                Columns::new(number, domain, is_ethereum(reader.domains()), is_state, face, args.chain_id)
            })
            .collect();
        if columns.is_empty() {
            // It says which there are.
            reader.domain(args.domain.as_deref().unwrap_or_default())?;
        }
        let folder = Folder::open(&args.out)?;
        let mut plan = Plan::new(args, reader, &columns)?;
        folder.take_up(&mut plan, reader, args.blocks.is_none() && args.at.is_none())?;
        Ok(Self { reader, format: args.format, encoding: args.encoding, plan, folder, columns })
    }

    /// The domains that have no file for these blocks yet.
    fn missing(&self, span: &RangeInclusive<u64>) -> Result<Vec<&Columns>, Failure> {
        let mut missing = Vec::new();
        for columns in &self.columns {
            if !self.folder.has(&self.part(columns, span))? {
                missing.push(columns);
            }
        }
        Ok(missing)
    }

    fn part(&self, columns: &Columns, span: &RangeInclusive<u64>) -> PathBuf {
        self.plan.part(&columns.domain, span, self.format.extension())
    }

    /// Writes the files of some domains for a span of blocks; returns how many rows they have.
    fn write(&self, span: &RangeInclusive<u64>, columns: &[&Columns]) -> Result<u64, Failure> {
        let mut parts = Vec::with_capacity(columns.len());
        for of_domain in columns {
            let part = self.folder.create(&self.part(of_domain, span))?;
            parts.push((*of_domain, table::Writer::new(self.format, part, of_domain)?));
        }
        let only = match columns {
            [] => return Ok(0),
            [one] => Some(one.domain.as_str()),
            _ => None,
        };
        let mut rows = 0;
        self.for_each_row(span, only, |row| {
            if let Some((_, writer)) = parts.iter_mut().find(|(columns, _)| columns.number == row.domain) {
                rows += 1;
                writer.write(row)?;
            }
            Ok(true)
        })?;
        parts.into_iter().try_for_each(|(_, writer)| writer.finish().and_then(Part::keep))?;
        Ok(rows)
    }

    /// Shows the rows of a span of blocks, of one domain or of all, until `show` says to stop. They are read on a thread of their own.
    fn for_each_row(
        &self,
        span: &RangeInclusive<u64>,
        domain: Option<&str>,
        mut show: impl FnMut(&Row) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let rows = self.rows(span, domain)?;
        thread::scope(|scope| {
            let (full, batches) = sync_channel(4);
            scope.spawn(move || {
                let mut rows = rows;
                loop {
                    let batch: Result<Vec<Row>, Failure> = rows.by_ref().take(BATCH_ROWS).collect();
                    let is_last = !matches!(&batch, Ok(rows) if !rows.is_empty());
                    // Without a receiver nobody wants more.
                    if full.send(batch).is_err() || is_last {
                        return;
                    }
                }
            });
            for batch in batches {
                for row in &batch? {
                    if !show(row)? {
                        return Ok(());
                    }
                }
            }
            Ok(())
        })
    }

    fn rows(&self, span: &RangeInclusive<u64>, domain: Option<&str>) -> Result<Rows, Failure> {
        if self.plan.what == What::Changes {
            let mut changes = self.reader.changes(span.clone())?;
            if let Some(domain) = domain {
                changes = changes.of_domain(domain)?;
            }
            return Ok(Box::new(changes.map(|change| Ok(Row::from(change?)))));
        }
        let (at, mut scans) = (*span.end(), Vec::new());
        let view = self.reader.at(at)?;
        for columns in self.columns.iter().filter(|columns| domain.is_none_or(|only| only == columns.domain))
        {
            let number = columns.number;
            let entries = view.scan(columns.domain.as_str(), &Scan::all())?;
            scans.push(entries.map(move |entry| Ok(Row::of_state(at, number, entry?))));
        }
        Ok(Box::new(scans.into_iter().flatten()))
    }

    /// The first row of a file that is not the archive's, or a file that is none of the export; `None` where all is right.
    fn check(&self, bars: &Bars) -> Result<Option<String>, Failure> {
        if let Some(path) = self.folder.foreign(&self.plan)? {
            return Ok(Some(format!("{}: no file of this export", path.display())));
        }
        bars.begin("check", Some(self.plan.heights()));
        for span in self.plan.spans() {
            for columns in &self.columns {
                let found = compare::compare(self, columns, &span)?;
                if found.is_some() {
                    bars.end();
                    return Ok(found);
                }
            }
            bars.advance((span.end() - span.start()).saturating_add(1));
        }
        bars.end();
        Ok(None)
    }
}

type Rows = Box<dyn Iterator<Item = Result<Row, Failure>> + Send>;
