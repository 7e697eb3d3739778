//! The batches of a table, for the Arrow C stream.
//!
//! A consumer calls from any thread, with the interpreter or without, so nothing here is Python's. A batch is read when it is asked for;
//! nothing is kept of one that was given.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringBuilder, UInt64Builder};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use crate::failure::Failure;
use crate::process::OfProcess;
use crate::rows::{Column, Row, RowSource};

/// A batch ends with so many rows, or as soon as their keys and values have so many bytes. A value has a gigabyte at most, so offsets of
/// 32 bits do.
const BATCH_ROWS: usize = 65_536;
const BATCH_BYTES: usize = 8 << 20;

/// The columns as Arrow names them.
pub(crate) fn schema(columns: &[Column]) -> SchemaRef {
    let field = |column: &Column| match column {
        Column::Key => Field::new(column.name(), DataType::Binary, false),
        Column::Value { is_nullable } => Field::new(column.name(), DataType::Binary, *is_nullable),
        Column::Before | Column::After => Field::new(column.name(), DataType::Binary, true),
        Column::Domain => Field::new(column.name(), DataType::Utf8, false),
        Column::Block => Field::new(column.name(), DataType::UInt64, false),
    };
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// See the module.
pub(crate) struct Batches {
    /// `None` at the end, and after an error.
    rows: Option<OfProcess<RowSource>>,
    columns: &'static [Column],
    schema: SchemaRef,
}

impl Batches {
    pub(crate) fn new(rows: RowSource, columns: &'static [Column]) -> Self {
        Self { rows: Some(OfProcess::new(rows)), columns, schema: schema(columns) }
    }

    /// The next batch; an empty one at the end.
    fn read(&mut self) -> Result<RecordBatch, Failure> {
        let mut builders: Vec<_> = self.columns.iter().map(|column| Builder::new(*column)).collect();
        let (mut rows, mut bytes) = (0, 0);
        if let Some(source) = &mut self.rows {
            let source = source.get_mut()?;
            while rows < BATCH_ROWS && bytes < BATCH_BYTES {
                let Some(row) = source.next() else { break };
                let row = row?;
                bytes += row.key.len()
                    + [&row.before, &row.value].into_iter().flatten().map(Vec::len).sum::<usize>();
                rows += 1;
                builders.iter_mut().for_each(|builder| builder.push(&row));
            }
        }
        let arrays = builders.into_iter().map(Builder::finish).collect();
        RecordBatch::try_new(Arc::clone(&self.schema), arrays)
            .map_err(|error| Failure::System(error.to_string()))
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.rows.as_ref()?;
        // Unwinding into a consumer written in C would end the process.
        let read = catch_unwind(AssertUnwindSafe(|| self.read()));
        let failed = match read {
            Ok(Ok(batch)) if batch.num_rows() > 0 => return Some(Ok(batch)),
            Ok(Ok(_)) => None,
            Ok(Err(failure)) => Some(failure),
            Err(_) => Some(Failure::Panicked),
        };
        self.rows = None;
        // The text crosses as a C string.
        failed.map(|failure| Err(ArrowError::ExternalError(failure.into_text().replace('\0', "?").into())))
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// A column of a batch that is being read.
enum Builder {
    Key(BinaryBuilder),
    Value(BinaryBuilder),
    Block(UInt64Builder),
    Domain(StringBuilder),
    Before(BinaryBuilder),
}

impl Builder {
    fn new(column: Column) -> Self {
        match column {
            Column::Key => Self::Key(BinaryBuilder::new()),
            Column::Value { .. } | Column::After => Self::Value(BinaryBuilder::new()),
            Column::Before => Self::Before(BinaryBuilder::new()),
            Column::Domain => Self::Domain(StringBuilder::new()),
            Column::Block => Self::Block(UInt64Builder::new()),
        }
    }

    fn push(&mut self, row: &Row) {
        match self {
            Self::Key(keys) => keys.append_value(&row.key),
            Self::Value(values) => values.append_option(row.value.as_deref()),
            Self::Block(blocks) => blocks.append_value(row.block),
            Self::Domain(names) => names.append_option(row.domain.as_deref()),
            Self::Before(values) => values.append_option(row.before.as_deref()),
        }
    }

    fn finish(self) -> ArrayRef {
        match self {
            Self::Key(mut values) | Self::Value(mut values) | Self::Before(mut values) => {
                Arc::new(values.finish())
            }
            Self::Domain(mut names) => Arc::new(names.finish()),
            Self::Block(mut blocks) => Arc::new(blocks.finish()),
        }
    }
}
