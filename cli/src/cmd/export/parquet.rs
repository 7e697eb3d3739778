//! Rows as Parquet, written and read back.
//!
//! A row group has 131,072 rows, or fewer where their bytes reach 32 MiB: the size at which DuckDB and Polars read row groups in parallel
//! without one of them being the whole file, and what a file holds in memory while it is written. Rows are in the order of blocks, so the
//! statistics of `block_number`, of each row group and of each page of at most 20,000 rows, exclude all but the few that a range of blocks
//! is in. A state is in the order of keys, and there those of the key do the same. Values have no statistics: they are in no order.

use std::fs::File;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as PhysicalType, ZstdLevel};
use parquet::column::reader::ColumnReader;
use parquet::column::writer::{ColumnWriter, ColumnWriterImpl};
use parquet::data_type::{ByteArray, DataType, FixedLenByteArray};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::folder::Part;
use super::rows::{Cell, Column, Columns, Kind, OTHER_COLUMNS, Row};
use crate::encoding::hex;
use crate::exit::Failure;

/// A row group ends with so many rows.
const GROUP_ROWS: usize = 1 << 17;

/// A row group ends when its keys and values have so many bytes.
const GROUP_BYTES: usize = 32 << 20;

/// Rows that go to a column, or come from one, at once.
const BATCH_ROWS: usize = 1024;

/// The length of a number of 256 bits.
const WORD_LEN: usize = 32;

/// The columns as Parquet has them.
fn schema(all: &[Column]) -> Result<Type, ParquetError> {
    let field = |column: &Column| {
        let (physical, len) = match column.kind {
            Kind::Number | Kind::Bits64 => (PhysicalType::INT64, None),
            Kind::Bytes => (PhysicalType::BYTE_ARRAY, None),
            Kind::Fixed(len) => (PhysicalType::FIXED_LEN_BYTE_ARRAY, Some(len)),
            Kind::Bits256 => (PhysicalType::FIXED_LEN_BYTE_ARRAY, Some(WORD_LEN)),
        };
        let repetition = if column.is_nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let mut field = Type::primitive_type_builder(column.name, physical).with_repetition(repetition);
        if physical == PhysicalType::INT64 {
            field = field.with_logical_type(Some(LogicalType::integer(64, false)));
        }
        if let Some(len) = len {
            let len = i32::try_from(len).map_err(|error| ParquetError::External(Box::new(error)))?;
            field = field.with_length(len);
        }
        field.build().map(Arc::new)
    };
    let fields = all.iter().map(field).collect::<Result<_, _>>()?;
    Type::group_type_builder("changes").with_fields(fields).build()
}

fn properties(all: &[Column]) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(None)
        .set_statistics_enabled(EnabledStatistics::None);
    // The block and the key: what queries choose rows by.
    for column in all.iter().filter(|column| !column.is_nullable) {
        properties = properties.set_column_statistics_enabled(column.name.into(), EnabledStatistics::Page);
    }
    properties.build()
}

/// A cell as a column of some kind has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value<'r> {
    Number(u64),
    Bytes(&'r [u8]),
    Word([u8; WORD_LEN]),
    Null,
}

impl<'r> Value<'r> {
    /// # Errors
    /// Why a column of this kind cannot have the cell.
    fn new(kind: Kind, cell: Cell<'r>) -> Result<Self, String> {
        Ok(match (kind, cell) {
            (_, Cell::Null) => Self::Null,
            (_, Cell::Number(number)) => Self::Number(number),
            (Kind::Bits64 | Kind::Number, Cell::Bytes(bytes)) => {
                Self::Number(u64::from_be_bytes(padded(bytes)?))
            }
            (Kind::Bits256, Cell::Bytes(bytes)) => Self::Word(padded(bytes)?),
            (Kind::Fixed(len), Cell::Bytes(bytes)) if len != bytes.len() => {
                return Err(format!("it has {} bytes in place of {len}", bytes.len()));
            }
            (Kind::Fixed(_) | Kind::Bytes, Cell::Bytes(bytes)) => Self::Bytes(bytes),
        })
    }
}

/// The big-endian bytes of a number, filled up on the left.
fn padded<const LEN: usize>(bytes: &[u8]) -> Result<[u8; LEN], String> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let bytes = &bytes[zeros..];
    let mut padded = [0; LEN];
    let from = LEN.checked_sub(bytes.len());
    let from = from.ok_or_else(|| format!("{} is no number of {} bits", hex(bytes), 8 * LEN))?;
    padded[from..].copy_from_slice(bytes);
    Ok(padded)
}

/// A file that is being written.
pub(super) struct Writer<'c> {
    columns: &'c Columns,
    /// The row group that is being filled.
    group: Vec<Chunk>,
    rows: usize,
    bytes: usize,
    out: SerializedFileWriter<Part>,
}

impl<'c> Writer<'c> {
    pub(super) fn new(part: Part, columns: &'c Columns) -> Result<Self, Failure> {
        let all = columns.all();
        let schema = schema(&all).map_err(|error| part.failure(io_error(error)))?;
        let group = all.iter().map(|column| Chunk::new(*column)).collect();
        // The part is gone where this fails: nothing was written.
        let failed = part.failed();
        let out = SerializedFileWriter::new(part, Arc::new(schema), Arc::new(properties(&all)));
        let out = out.map_err(|error| failed(io_error(error)))?;
        Ok(Self { columns, group, rows: 0, bytes: 0, out })
    }

    pub(super) fn write(&mut self, row: &Row) -> Result<(), Failure> {
        let mut chunks = self.group.iter_mut();
        self.columns.for_each_cell(row, |cell| {
            let Some(chunk) = chunks.next() else { return Ok::<_, Failure>(()) };
            let value = Value::new(chunk.column.kind, cell).map_err(|reason| {
                Failure::usage(format!(
                    "{} of key {} at block {}: {reason}; --format csv and jsonl take it as it is",
                    chunk.column.name,
                    hex(&row.key),
                    row.block
                ))
            })?;
            self.bytes += chunk.push(value);
            Ok(())
        })?;
        self.rows += 1;
        if GROUP_ROWS <= self.rows || GROUP_BYTES <= self.bytes {
            self.write_group().map_err(|error| self.out.inner().failure(io_error(error)))?;
        }
        Ok(())
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut out = self.out.next_row_group()?;
        for chunk in &mut self.group {
            let Some(mut column) = out.next_column()? else { break };
            chunk.write(column.untyped())?;
            column.close()?;
        }
        out.close()?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }

    /// Writes what is left. The file has no name yet.
    pub(super) fn finish(mut self) -> Result<Part, Failure> {
        if 0 < self.rows {
            self.write_group().map_err(|error| self.out.inner().failure(io_error(error)))?;
        }
        let failed = self.out.inner().failed();
        self.out.into_inner().map_err(|error| failed(io_error(error)))
    }
}

/// The error of the system, where it is one.
fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}

/// A column of a row group that is being filled.
struct Chunk {
    column: Column,
    /// Of each row 1 where it has a value, else 0.
    levels: Vec<i16>,
    /// The values of a column of numbers.
    numbers: Vec<i64>,
    /// The values of a column of bytes, one after the other, and where they end.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Chunk {
    fn new(column: Column) -> Self {
        Self { column, levels: Vec::new(), numbers: Vec::new(), bytes: Vec::new(), ends: Vec::new() }
    }

    /// Returns how many bytes were added.
    fn push(&mut self, value: Value<'_>) -> usize {
        self.levels.push(i16::from(value != Value::Null));
        let bytes = match &value {
            Value::Null => return 0,
            Value::Number(number) => {
                self.numbers.push(number.cast_signed());
                return size_of::<u64>();
            }
            Value::Bytes(bytes) => bytes,
            Value::Word(word) => &word[..],
        };
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
        bytes.len()
    }

    /// Writes what was added, and begins anew.
    fn write(&mut self, writer: &mut ColumnWriter<'_>) -> Result<(), ParquetError> {
        match writer {
            ColumnWriter::Int64ColumnWriter(writer) => {
                let levels = self.column.is_nullable.then_some(&self.levels[..]);
                writer.write_batch(&self.numbers, levels, None)?;
            }
            ColumnWriter::ByteArrayColumnWriter(writer) => self.write_bytes(writer)?,
            ColumnWriter::FixedLenByteArrayColumnWriter(writer) => self.write_bytes(writer)?,
            _ => return Err(ParquetError::General("a column of no kind of an export".to_owned())),
        }
        self.levels.clear();
        self.numbers.clear();
        self.ends.clear();
        Ok(())
    }

    fn write_bytes<T>(&mut self, writer: &mut ColumnWriterImpl<'_, T>) -> Result<(), ParquetError>
    where
        T: DataType,
        T::T: From<ByteArray>,
    {
        // Values are views of what the column shares.
        let bytes = ByteArray::from(std::mem::take(&mut self.bytes));
        let (mut batch, mut from, mut ends) = (Vec::with_capacity(BATCH_ROWS), 0, self.ends.iter());
        for levels in self.levels.chunks(BATCH_ROWS) {
            let values = levels.iter().filter(|level| **level == 1).count();
            batch.clear();
            batch.extend(ends.by_ref().take(values).map(|to| {
                let value = bytes.slice(from, to - from);
                from = *to;
                T::T::from(value)
            }));
            writer.write_batch(&batch, self.column.is_nullable.then_some(levels), None)?;
        }
        Ok(())
    }
}

/// A file that is read back, by the library that wrote it.
pub(super) struct Reader {
    file: SerializedFileReader<File>,
    all: Vec<Column>,
    /// How many row groups were begun.
    groups: usize,
    columns: Vec<ColumnBatch>,
    /// Rows of the batch that were not given yet.
    left: usize,
}

/// Some rows of a column.
struct ColumnBatch {
    reader: ColumnReader,
    levels: Vec<i16>,
    values: Values,
    /// How many levels and values were given.
    rows_given: usize,
    values_given: usize,
}

enum Values {
    Numbers(Vec<i64>),
    Bytes(Vec<ByteArray>),
    Fixed(Vec<FixedLenByteArray>),
}

/// Reads what may be damaged: there is damage at which the library panics.
fn decoded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    // It is an answer of `--check`, and not what a hook would tell of.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let read = panic::catch_unwind(AssertUnwindSafe(read));
    panic::set_hook(hook);
    read.unwrap_or_else(|_| Err(ParquetError::General("its pages are damaged".to_owned())))
}

impl Reader {
    /// # Errors
    /// The file is no Parquet, or has other columns.
    pub(super) fn new(file: File, columns: &Columns) -> Result<Self, String> {
        let all = columns.all();
        let file = decoded(|| SerializedFileReader::new(file)).map_err(|error| error.to_string())?;
        let expected = schema(&all).map_err(|error| error.to_string())?;
        if expected != *file.metadata().file_metadata().schema() {
            return Err(OTHER_COLUMNS.to_owned());
        }
        Ok(Self { file, all, groups: 0, columns: Vec::new(), left: 0 })
    }

    /// Whether the next row is this one; `None` after the last.
    ///
    /// # Errors
    /// What is wrong with the row.
    pub(super) fn next_is(&mut self, columns: &Columns, row: &Row) -> Result<Option<bool>, String> {
        if !decoded(|| self.fill()).map_err(|error| error.to_string())? {
            return Ok(None);
        }
        self.left -= 1;
        let (mut read, mut is_same) = (self.columns.iter_mut().zip(&self.all), true);
        columns.for_each_cell(row, |cell| {
            let Some((batch, column)) = read.next() else { return Err("it has too few columns".to_owned()) };
            let value = Value::new(column.kind, cell)?;
            is_same &= batch.next_is(value);
            Ok(())
        })?;
        Ok(Some(is_same))
    }

    /// Whether there is no further row.
    pub(super) fn is_at_end(&mut self) -> bool {
        matches!(decoded(|| self.fill()), Ok(false))
    }

    /// Reads the next rows where all before were given; `false` where there are none.
    fn fill(&mut self) -> Result<bool, ParquetError> {
        while self.left == 0 {
            let mut rows = self.columns.iter_mut().map(ColumnBatch::read);
            let first = rows.next().transpose()?.unwrap_or_default();
            for other in rows {
                if other? != first {
                    return Err(ParquetError::General(
                        "its columns have different numbers of rows".to_owned(),
                    ));
                }
            }
            self.left = first;
            if self.left == 0 {
                if self.groups == self.file.num_row_groups() {
                    return Ok(false);
                }
                let group = self.file.get_row_group(self.groups)?;
                let columns = (0..self.all.len()).map(|column| group.get_column_reader(column));
                self.columns = columns.map(|reader| ColumnBatch::new(reader?)).collect::<Result<_, _>>()?;
                self.groups += 1;
            }
        }
        Ok(true)
    }
}

impl ColumnBatch {
    fn new(reader: ColumnReader) -> Result<Self, ParquetError> {
        let values = match &reader {
            ColumnReader::Int64ColumnReader(_) => Values::Numbers(Vec::new()),
            ColumnReader::ByteArrayColumnReader(_) => Values::Bytes(Vec::new()),
            ColumnReader::FixedLenByteArrayColumnReader(_) => Values::Fixed(Vec::new()),
            _ => return Err(ParquetError::General("a column of no kind of an export".to_owned())),
        };
        Ok(Self { reader, levels: Vec::new(), values, rows_given: 0, values_given: 0 })
    }

    /// Reads the next rows; returns how many.
    fn read(&mut self) -> Result<usize, ParquetError> {
        self.levels.clear();
        (self.rows_given, self.values_given) = (0, 0);
        let levels = Some(&mut self.levels);
        let (rows, ..) = match (&mut self.reader, &mut self.values) {
            (ColumnReader::Int64ColumnReader(reader), Values::Numbers(values)) => {
                values.clear();
                reader.read_records(BATCH_ROWS, levels, None, values)?
            }
            (ColumnReader::ByteArrayColumnReader(reader), Values::Bytes(values)) => {
                values.clear();
                reader.read_records(BATCH_ROWS, levels, None, values)?
            }
            (ColumnReader::FixedLenByteArrayColumnReader(reader), Values::Fixed(values)) => {
                values.clear();
                reader.read_records(BATCH_ROWS, levels, None, values)?
            }
            _ => (0, 0, 0),
        };
        Ok(rows)
    }

    /// Whether the next row has this value.
    fn next_is(&mut self, value: Value<'_>) -> bool {
        // A column in which every row has a value has no levels.
        let is_null = self.levels.get(self.rows_given).is_some_and(|level| *level == 0);
        self.rows_given += 1;
        if is_null {
            return value == Value::Null;
        }
        let at = self.values_given;
        self.values_given += 1;
        let is_bytes = |read: &[u8]| match &value {
            Value::Bytes(bytes) => read == *bytes,
            Value::Word(word) => read == word,
            _ => false,
        };
        match &self.values {
            Values::Numbers(values) => {
                values.get(at).is_some_and(|read| Value::Number(read.cast_unsigned()) == value)
            }
            Values::Bytes(values) => values.get(at).is_some_and(|read| is_bytes(read.data())),
            Values::Fixed(values) => values.get(at).is_some_and(|read| is_bytes(read.data())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use icecore::Domain;
    use parquet::file::metadata::RowGroupMetaData;
    use parquet::file::statistics::Statistics;

    use super::super::folder::Folder;
    use super::*;
    use crate::encoding::Face;

    fn row(number: u64) -> Row {
        let (block, after) = (number / 300, number.to_be_bytes().to_vec());
        let before = (!number.is_multiple_of(3)).then(|| vec![7; (number % 50) as usize]);
        Row { block, domain: 0, key: (number % 300).to_be_bytes().to_vec(), before, after: Some(after) }
    }

    fn written(dir: &Path, columns: &Columns, rows: impl Iterator<Item = Row>) -> File {
        let folder = Folder::open(dir).unwrap();
        let name = Path::new("part.parquet");
        let mut writer = Writer::new(folder.create(name).unwrap(), columns).unwrap();
        rows.for_each(|row| writer.write(&row).unwrap());
        writer.finish().unwrap().keep().unwrap();
        File::open(dir.join(name)).unwrap()
    }

    #[test]
    fn row_groups_have_disjoint_ranges_of_blocks_and_read_back() {
        const ROWS: u64 = 300_000;
        let dir = tempfile::tempdir().unwrap();
        let columns = Columns::new(0, &Domain::new("kv").key_len(8), false, false, Face::Hex, None);
        let file = written(&dir.path().join("out"), &columns, (0..ROWS).map(row));
        let mut reader = Reader::new(file.try_clone().unwrap(), &columns).unwrap();
        for number in 0..ROWS {
            assert_eq!(reader.next_is(&columns, &row(number)), Ok(Some(true)), "{number}");
        }
        assert_eq!((reader.next_is(&columns, &row(0)), reader.is_at_end()), (Ok(None), true));

        let metadata = SerializedFileReader::new(file).unwrap().metadata().clone();
        let rows: Vec<i64> = metadata.row_groups().iter().map(RowGroupMetaData::num_rows).collect();
        assert_eq!(rows, [1 << 17, 1 << 17, 300_000 - (1 << 18)]);
        let mut first = 0;
        for group in metadata.row_groups() {
            let Some(Statistics::Int64(blocks)) = group.column(0).statistics() else {
                panic!("of the block")
            };
            assert_eq!(blocks.min_opt().copied(), Some(first / 300));
            first += group.num_rows();
            assert_eq!(blocks.max_opt().copied(), Some((first - 1) / 300));
            assert!(group.column(1).statistics().is_some() && group.column(2).statistics().is_none());
            assert!(group.column(0).column_index_offset().is_some(), "pages have statistics");
        }
    }

    #[test]
    fn any_damaged_byte_is_harmless_or_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let columns = Columns::new(0, &Domain::new("kv").key_len(8), false, false, Face::Hex, None);
        written(&dir.path().join("out"), &columns, (0..60).map(row));
        let (sound, path) =
            (std::fs::read(dir.path().join("out/part.parquet")).unwrap(), dir.path().join("b"));
        let is_right = || {
            let mut reader = Reader::new(File::open(&path).unwrap(), &columns)?;
            for number in 0..60 {
                if reader.next_is(&columns, &row(number))? != Some(true) {
                    return Err(format!("row {number}"));
                }
            }
            if reader.is_at_end() { Ok(()) } else { Err("more rows".to_owned()) }
        };
        let mut errors = 0;
        for at in 0..sound.len() {
            for bit in [0, 3, 7] {
                let mut damaged = sound.clone();
                damaged[at] ^= 1 << bit;
                std::fs::write(&path, damaged).unwrap();
                errors += usize::from(is_right().is_err());
            }
        }
        assert!(sound.len() < errors, "{errors} errors, {} bytes", sound.len());
    }

    #[test]
    fn large_values_make_small_row_groups() {
        let dir = tempfile::tempdir().unwrap();
        let columns = Columns::new(0, &Domain::new("kv"), false, true, Face::Hex, None);
        let large = |key: u8| Row { key: vec![key], after: Some(vec![key; 5 << 20]), ..row(0) };
        let file = written(&dir.path().join("out"), &columns, (0..20).map(large));
        let reader = SerializedFileReader::new(file).unwrap();
        let rows: Vec<i64> = reader.metadata().row_groups().iter().map(RowGroupMetaData::num_rows).collect();
        assert_eq!(rows, [7, 7, 6]);
    }

    #[test]
    fn numbers_are_filled_up() {
        for (bytes, number) in
            [(&[][..], Some(0)), (&[0; 12], Some(0)), (&[1, 0], Some(256)), (&[1; 9], None)]
        {
            let value = Value::new(Kind::Bits64, Cell::Bytes(bytes)).ok();
            assert_eq!(value, number.map(Value::Number), "{bytes:?}");
        }
        let mut word = [0; WORD_LEN];
        word[31] = 5;
        assert_eq!(Value::new(Kind::Bits256, Cell::Bytes(&[0, 5])), Ok(Value::Word(word)));
        assert!(Value::new(Kind::Bits256, Cell::Bytes(&[1; 33])).is_err());
        assert!(Value::new(Kind::Fixed(3), Cell::Bytes(&[1; 4])).is_err());
    }
}
