//! Rows as text: CSV and JSON lines, written and read back.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Lines, Write};
use std::path::Path;

use clap::ValueEnum;
use serde_json::{Map, Value};

use super::folder::Part;
use super::rows::{Cell, Columns, Row};
use crate::encoding::{Encoding, Face};
use crate::exit::Failure;

/// What files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Comma-separated values, the first line the names of the columns
    Csv,
    /// A JSON object a line
    Jsonl,
}

impl Format {
    pub(super) fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
        }
    }
}

/// Bytes that are written and read at once.
const BUFFER_LEN: usize = 1 << 20;

/// A file that is being written.
pub(super) struct Writer<'c> {
    columns: &'c Columns,
    names: Vec<&'static str>,
    /// A line, reused.
    line: Vec<u8>,
    format: Format,
    out: BufWriter<Part>,
}

impl<'c> Writer<'c> {
    pub(super) fn new(format: Format, part: Part, columns: &'c Columns) -> Result<Self, Failure> {
        let (names, line) = (columns.names(), Vec::new());
        let mut this = Self { columns, names, line, format, out: BufWriter::with_capacity(BUFFER_LEN, part) };
        if format == Format::Csv {
            let head = this.names.join(",");
            let written = writeln!(this.out, "{head}");
            written.map_err(|source| this.out.get_ref().failure(source))?;
        }
        Ok(this)
    }

    pub(super) fn write(&mut self, row: &Row) -> Result<(), Failure> {
        self.line.clear();
        let line = match self.format {
            Format::Csv => csv_line(self.columns, row, &mut self.line),
            Format::Jsonl => json_line(self.columns, &self.names, row, &mut self.line),
        };
        let written = line.and_then(|()| self.out.write_all(&self.line));
        written.map_err(|source| self.out.get_ref().failure(source))
    }

    /// Writes what is left. The file has no name yet.
    pub(super) fn finish(self) -> Result<Part, Failure> {
        self.out.into_inner().map_err(|error| {
            let (source, out) = error.into_parts();
            out.get_ref().failure(source)
        })
    }
}

/// Appends a row as a line of CSV: a field in quotes where it has something else than a field may have without them.
fn csv_line(columns: &Columns, row: &Row, line: &mut Vec<u8>) -> io::Result<()> {
    let mut is_first = true;
    columns.for_each_cell(row, |cell| {
        if !std::mem::take(&mut is_first) {
            line.push(b',');
        }
        match cell {
            Cell::Null => Ok(()),
            Cell::Number(number) => write!(line, "{number}"),
            // An empty field is an absent value.
            Cell::Bytes([]) => line.write_all(b"0x"),
            Cell::Bytes(bytes) if columns.face == Face::Hex => push_hex(bytes, line),
            Cell::Bytes(bytes) => push_field(&columns.face.show(bytes), line),
        }
    })?;
    line.write_all(b"\n")
}

fn push_hex(bytes: &[u8], line: &mut Vec<u8>) -> io::Result<()> {
    line.extend_from_slice(b"0x");
    let from = line.len();
    line.resize(from + 2 * bytes.len(), 0);
    const_hex::encode_to_slice(bytes, &mut line[from..]).map_err(io::Error::other)
}

fn push_field(text: &str, line: &mut Vec<u8>) -> io::Result<()> {
    let is_plain = !text.contains([',', '"', '\n', '\r']) && !text.starts_with(' ') && !text.ends_with(' ');
    if is_plain { line.write_all(text.as_bytes()) } else { write!(line, "\"{}\"", text.replace('"', "\"\"")) }
}

/// Appends a row as a JSON object and a line end.
fn json_line(columns: &Columns, names: &[&str], row: &Row, line: &mut Vec<u8>) -> io::Result<()> {
    let mut names = names.iter();
    columns.for_each_cell(row, |cell| {
        let begin = if line.is_empty() { '{' } else { ',' };
        write!(line, "{begin}\"{}\":", names.next().copied().unwrap_or_default())?;
        match cell {
            Cell::Null => line.write_all(b"null"),
            Cell::Number(number) => write!(line, "{number}"),
            Cell::Bytes(bytes) => columns.face.write_json(bytes, line),
        }
    })?;
    line.write_all(b"}\n")
}

/// A cell as a file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Read {
    Number(u64),
    Bytes(Vec<u8>),
    Null,
}

impl PartialEq<Cell<'_>> for Read {
    fn eq(&self, cell: &Cell<'_>) -> bool {
        match (self, cell) {
            (Self::Number(read), Cell::Number(number)) => read == number,
            (Self::Bytes(read), Cell::Bytes(bytes)) => read == bytes,
            (Self::Null, Cell::Null) => true,
            _ => false,
        }
    }
}

/// A file that is read back: by the libraries that others read it with.
pub(super) enum Reader {
    Csv(csv::Reader<File>),
    Jsonl(Lines<BufReader<File>>),
}

impl Reader {
    /// Opens a file, and says whether its head is that of the columns.
    pub(super) fn open(format: Format, path: &Path, names: &[&str]) -> Result<(Self, bool), Failure> {
        let read = |source| Failure::File { operation: "read", path: path.to_owned(), source };
        let file = File::open(path).map_err(read)?;
        match format {
            Format::Csv => {
                let mut reader = csv::ReaderBuilder::new().buffer_capacity(BUFFER_LEN).from_reader(file);
                let has_head = reader.headers().is_ok_and(|head| head.iter().eq(names.iter().copied()));
                Ok((Self::Csv(reader), has_head))
            }
            Format::Jsonl => Ok((Self::Jsonl(BufReader::with_capacity(BUFFER_LEN, file).lines()), true)),
        }
    }

    /// The cells of the next row; `None` after the last.
    ///
    /// # Errors
    /// What is wrong with the row.
    pub(super) fn next(&mut self, names: &[&str], encoding: Encoding) -> Result<Option<Vec<Read>>, String> {
        let cells: Result<Vec<Read>, String> = match self {
            Self::Csv(reader) => {
                let mut record = csv::StringRecord::new();
                if !reader.read_record(&mut record).map_err(|error| error.to_string())? {
                    return Ok(None);
                }
                names.iter().zip(&record).map(|(name, field)| csv_cell(name, field, encoding)).collect()
            }
            Self::Jsonl(lines) => {
                let Some(line) = lines.next() else { return Ok(None) };
                let line = line.map_err(|error| error.to_string())?;
                let row: Map<String, Value> =
                    serde_json::from_str(&line).map_err(|error| error.to_string())?;
                if row.len() != names.len() {
                    return Err(format!("it has {} members", row.len()));
                }
                names.iter().map(|name| json_cell(row.get(*name), encoding)).collect()
            }
        };
        cells.map(Some)
    }
}

/// Whether a column has numbers.
fn is_number(name: &str) -> bool {
    matches!(name, "block_number" | "transaction_index" | "chain_id")
}

fn csv_cell(name: &str, field: &str, encoding: Encoding) -> Result<Read, String> {
    match field {
        "" => Ok(Read::Null),
        number if is_number(name) => number.parse().map(Read::Number).map_err(|error| error.to_string()),
        text => encoding.bytes(text).map(Read::Bytes),
    }
}

fn json_cell(value: Option<&Value>, encoding: Encoding) -> Result<Read, String> {
    match value {
        Some(Value::Null) => Ok(Read::Null),
        Some(Value::Number(number)) => number.as_u64().map(Read::Number).ok_or_else(|| number.to_string()),
        Some(Value::String(text)) => encoding.bytes(text).map(Read::Bytes),
        Some(other) => Err(format!("{other} is no cell")),
        None => Err("a column is missing".to_owned()),
    }
}
