//! Rows as text: CSV and JSON lines, written and read back.

use std::convert::Infallible;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::folder::Part;
use super::rows::{Cell, Column, Columns, Kind, OTHER_COLUMNS, Row};
use crate::encoding::Encoding;
use crate::exit::Failure;

/// Bytes that are written and read at once.
const BUFFER_LEN: usize = 1 << 20;

/// Which of the two a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextFormat {
    /// The first line is the names of the columns.
    Csv,
    /// A JSON object a line.
    JsonLines,
}

/// A file that is being written.
pub(super) struct Writer<'c> {
    columns: &'c Columns,
    all: Vec<Column>,
    /// A line, reused.
    line: Vec<u8>,
    format: TextFormat,
    out: BufWriter<Part>,
}

impl<'c> Writer<'c> {
    pub(super) fn new(format: TextFormat, part: Part, columns: &'c Columns) -> Result<Self, Failure> {
        let (all, line) = (columns.all(), Vec::new());
        let mut this = Self { columns, all, line, format, out: BufWriter::with_capacity(BUFFER_LEN, part) };
        if format == TextFormat::Csv {
            let names: Vec<_> = this.all.iter().map(|column| column.name).collect();
            let head = names.join(",");
            let written = writeln!(this.out, "{head}");
            written.map_err(|source| this.out.get_ref().failure(source))?;
        }
        Ok(this)
    }

    pub(super) fn write(&mut self, row: &Row) -> Result<(), Failure> {
        self.line.clear();
        let line = match self.format {
            TextFormat::Csv => csv_line(self.columns, row, &mut self.line),
            TextFormat::JsonLines => json_line(self.columns, &self.all, row, &mut self.line),
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
            Cell::Bytes(bytes) => match columns.face.text(bytes) {
                Some(text) => push_field(text, line),
                None => push_hex(bytes, line),
            },
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
fn json_line(columns: &Columns, all: &[Column], row: &Row, line: &mut Vec<u8>) -> io::Result<()> {
    let mut names = all.iter().map(|column| column.name);
    columns.for_each_cell(row, |cell| {
        let begin = if line.is_empty() { '{' } else { ',' };
        write!(line, "{begin}\"{}\":", names.next().unwrap_or_default())?;
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
enum Found {
    Number(u64),
    Bytes(Vec<u8>),
    Null,
}

impl PartialEq<Cell<'_>> for Found {
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
pub(super) struct Reader {
    rows: Rows,
    all: Vec<Column>,
    encoding: Encoding,
}

enum Rows {
    Csv(csv::Reader<Bounded>),
    JsonLines(BufReader<Bounded>),
}

/// A line may be so many times as long as the bytes in it: each may be written as `\u0000`, and somebody may have put spaces between fields.
const LINE_FACTOR: u64 = 8;

/// What a line may have besides.
const LINE_EXTRA: u64 = 1 << 16;

/// A file that is read no further than the row of the archive that comes next can be long: one without a line end must not fill the memory.
struct Bounded {
    file: File,
    left: u64,
}

impl Bounded {
    fn new(file: File) -> Self {
        let mut bounded = Self { file, left: 0 };
        bounded.allow(0);
        bounded
    }

    /// Lets a row be read with so many bytes in its cells. A buffer may be read before it.
    fn allow(&mut self, bytes: u64) {
        self.left = bytes.saturating_mul(LINE_FACTOR).saturating_add(LINE_EXTRA + BUFFER_LEN as u64);
    }
}

impl Read for Bounded {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::Error::other("it is longer than any that the archive has"));
        }
        let len = buf.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.file.read(&mut buf[..len])?;
        self.left -= read as u64;
        Ok(read)
    }
}

/// The members of an object, each named once: readers differ in which of two they take.
struct Members(Map<String, Value>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EachOnce;
        impl<'de> Visitor<'de> for EachOnce {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Map::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if members.contains_key(&name) {
                        return Err(de::Error::custom(format_args!("it has `{name}` twice")));
                    }
                    members.insert(name, value);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(EachOnce)
    }
}

impl Reader {
    /// # Errors
    /// The head of the file is not that of the columns.
    pub(super) fn new(
        format: TextFormat,
        file: File,
        columns: &Columns,
        encoding: Encoding,
    ) -> Result<Self, String> {
        let all = columns.all();
        let rows = match format {
            TextFormat::Csv => {
                let mut reader =
                    csv::ReaderBuilder::new().buffer_capacity(BUFFER_LEN).from_reader(Bounded::new(file));
                let names = all.iter().map(|column| column.name);
                if !reader.headers().is_ok_and(|head| head.iter().eq(names)) {
                    return Err(OTHER_COLUMNS.to_owned());
                }
                Rows::Csv(reader)
            }
            TextFormat::JsonLines => {
                Rows::JsonLines(BufReader::with_capacity(BUFFER_LEN, Bounded::new(file)))
            }
        };
        Ok(Self { rows, all, encoding })
    }

    /// Whether the next row is this one; `None` after the last.
    ///
    /// # Errors
    /// What is wrong with the row.
    pub(super) fn next_is(&mut self, columns: &Columns, row: &Row) -> Result<Option<bool>, String> {
        let mut bytes = 0;
        let Ok(()) = columns.for_each_cell(row, |cell| {
            bytes += if let Cell::Bytes(cell) = cell { cell.len() as u64 } else { 0 };
            Ok::<_, Infallible>(())
        });
        let Some(read) = self.next(bytes)? else { return Ok(None) };
        let (mut cells, mut is_same) = (read.iter(), true);
        let Ok(()) = columns.for_each_cell(row, |cell| {
            is_same &= cells.next().is_some_and(|read| *read == cell);
            Ok::<_, Infallible>(())
        });
        Ok(Some(is_same && cells.next().is_none()))
    }

    /// The cells of the next row, which has no more than so many bytes in them; `None` after the last.
    ///
    /// # Errors
    /// What is wrong with the row.
    fn next(&mut self, bytes: u64) -> Result<Option<Vec<Found>>, String> {
        let (all, encoding) = (&self.all, self.encoding);
        let cells: Result<Vec<Found>, String> = match &mut self.rows {
            Rows::Csv(reader) => {
                reader.get_mut().allow(bytes);
                let mut record = csv::StringRecord::new();
                if !reader.read_record(&mut record).map_err(|error| error.to_string())? {
                    return Ok(None);
                }
                all.iter().zip(&record).map(|(column, field)| csv_cell(*column, field, encoding)).collect()
            }
            Rows::JsonLines(reader) => {
                reader.get_mut().allow(bytes);
                let mut line = String::new();
                if reader.read_line(&mut line).map_err(|error| error.to_string())? == 0 {
                    return Ok(None);
                }
                let Members(row) = serde_json::from_str(&line).map_err(|error| error.to_string())?;
                if row.len() != all.len() {
                    return Err(format!("it has {} members", row.len()));
                }
                all.iter().map(|column| json_cell(row.get(column.name), encoding)).collect()
            }
        };
        cells.map(Some)
    }

    /// Whether there is no further row.
    pub(super) fn is_at_end(&mut self) -> bool {
        matches!(self.next(0), Ok(None))
    }
}

fn csv_cell(column: Column, field: &str, encoding: Encoding) -> Result<Found, String> {
    match field {
        "" => Ok(Found::Null),
        number if column.kind == Kind::Number => {
            number.parse().map(Found::Number).map_err(|error| error.to_string())
        }
        text => encoding.bytes(text).map(Found::Bytes),
    }
}

fn json_cell(value: Option<&Value>, encoding: Encoding) -> Result<Found, String> {
    match value {
        Some(Value::Null) => Ok(Found::Null),
        Some(Value::Number(number)) => number.as_u64().map(Found::Number).ok_or_else(|| number.to_string()),
        Some(Value::String(text)) => encoding.bytes(text).map(Found::Bytes),
        Some(other) => Err(format!("{other} is no cell")),
        None => Err("a column is missing".to_owned()),
    }
}
