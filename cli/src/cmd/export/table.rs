//! A file of an export, written and read back in any format.

use std::fs::File;

use clap::ValueEnum;

use super::folder::Part;
#[cfg(feature = "parquet")]
use super::parquet;
use super::rows::{Columns, Row};
use super::text::{self, TextFormat};
use crate::encoding::Encoding;
use crate::exit::Failure;

/// What files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Comma-separated values, the first line the names of the columns
    Csv,
    /// A JSON object a line
    Jsonl,
    /// Columns of bytes and numbers, compressed; for commands built with it
    Parquet,
}

impl Format {
    pub(super) fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
            Self::Parquet => "parquet",
        }
    }

    /// # Errors
    /// The command is built without it, or it has no such encoding.
    pub(super) fn check(self, encoding: Encoding) -> Result<(), Failure> {
        match self {
            Self::Csv | Self::Jsonl if encoding == Encoding::Text => Err(Failure::usage(
                "an export with --encoding text would not tell absent values from empty ones",
            )),
            Self::Parquet if cfg!(not(feature = "parquet")) => Err(Failure::usage(NOT_BUILT)),
            Self::Parquet if encoding != Encoding::Auto => Err(Failure::usage(
                "--encoding goes with --format csv and jsonl: Parquet has the bytes themselves",
            )),
            Self::Csv | Self::Jsonl | Self::Parquet => Ok(()),
        }
    }
}

/// How to get what a command built without it lacks.
const NOT_BUILT: &str = "this command is built without Parquet: install it from a checkout with \
    `cargo install --locked --path cli --features parquet`, or take --format csv or jsonl";

/// A file that is being written.
pub(super) enum Writer<'c> {
    Text(text::Writer<'c>),
    #[cfg(feature = "parquet")]
    Parquet(Box<parquet::Writer<'c>>),
}

impl<'c> Writer<'c> {
    pub(super) fn new(format: Format, part: Part, columns: &'c Columns) -> Result<Self, Failure> {
        match format {
            Format::Csv => text::Writer::new(TextFormat::Csv, part, columns).map(Self::Text),
            Format::Jsonl => text::Writer::new(TextFormat::JsonLines, part, columns).map(Self::Text),
            #[cfg(feature = "parquet")]
            Format::Parquet => Ok(Self::Parquet(Box::new(parquet::Writer::new(part, columns)?))),
            #[cfg(not(feature = "parquet"))]
            Format::Parquet => Err(Failure::usage(NOT_BUILT)),
        }
    }

    pub(super) fn write(&mut self, row: &Row) -> Result<(), Failure> {
        match self {
            Self::Text(writer) => writer.write(row),
            #[cfg(feature = "parquet")]
            Self::Parquet(writer) => writer.write(row),
        }
    }

    /// Writes what is left. The file has no name yet.
    pub(super) fn finish(self) -> Result<Part, Failure> {
        match self {
            Self::Text(writer) => writer.finish(),
            #[cfg(feature = "parquet")]
            Self::Parquet(writer) => writer.finish(),
        }
    }
}

/// A file that is read back.
pub(super) enum Reader {
    Text(text::Reader),
    #[cfg(feature = "parquet")]
    Parquet(Box<parquet::Reader>),
}

impl Reader {
    /// # Errors
    /// Why the file is none of these columns.
    pub(super) fn new(
        format: Format,
        file: File,
        columns: &Columns,
        encoding: Encoding,
    ) -> Result<Self, String> {
        match format {
            Format::Csv => text::Reader::new(TextFormat::Csv, file, columns, encoding).map(Self::Text),
            Format::Jsonl => {
                text::Reader::new(TextFormat::JsonLines, file, columns, encoding).map(Self::Text)
            }
            #[cfg(feature = "parquet")]
            Format::Parquet => {
                parquet::Reader::new(file, columns).map(|reader| Self::Parquet(Box::new(reader)))
            }
            #[cfg(not(feature = "parquet"))]
            Format::Parquet => Err(NOT_BUILT.to_owned()),
        }
    }

    /// Whether the next row is this one; `None` after the last.
    ///
    /// # Errors
    /// What is wrong with the row.
    pub(super) fn next_is(&mut self, columns: &Columns, row: &Row) -> Result<Option<bool>, String> {
        match self {
            Self::Text(reader) => reader.next_is(columns, row),
            #[cfg(feature = "parquet")]
            Self::Parquet(reader) => reader.next_is(columns, row),
        }
    }

    /// Whether there is no further row.
    pub(super) fn is_at_end(&mut self) -> bool {
        match self {
            Self::Text(reader) => reader.is_at_end(),
            #[cfg(feature = "parquet")]
            Self::Parquet(reader) => reader.is_at_end(),
        }
    }
}
