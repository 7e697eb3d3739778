//! The columns of the tables, and batches of them.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BinaryBuilder, RecordBatch, RecordBatchOptions, StringBuilder, UInt64Builder,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Key,
    Value { is_nullable: bool },
    Block,
    Domain,
    Before,
    After,
}

impl Column {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Value { .. } => "value",
            Self::Block => "block",
            Self::Domain => "domain",
            Self::Before => "before",
            Self::After => "after",
        }
    }
}

/// A row of any table; what its table has no column for is empty.
pub(crate) struct Row {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) block: u64,
    /// Only changes have it, and what is below it.
    pub(crate) domain: Option<Arc<str>>,
    /// The value before the block.
    pub(crate) before: Option<Vec<u8>>,
}

impl Row {
    pub(crate) fn new(key: Vec<u8>, value: Option<Vec<u8>>, block: u64) -> Self {
        Self { key, value, block, domain: None, before: None }
    }
}

/// A batch ends, too, when its keys and values have so many bytes.
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

/// A batch that is being filled.
pub(crate) struct Batch {
    builders: Vec<Builder>,
    pub(crate) rows: usize,
    bytes: usize,
}

impl Batch {
    pub(crate) fn new(columns: &[Column]) -> Self {
        Self { builders: columns.iter().map(|column| Builder::new(*column)).collect(), rows: 0, bytes: 0 }
    }

    pub(crate) fn push(&mut self, row: &Row) {
        self.rows += 1;
        self.bytes +=
            row.key.len() + [&row.before, &row.value].into_iter().flatten().map(Vec::len).sum::<usize>();
        for builder in &mut self.builders {
            match builder {
                Builder::Key(keys) => keys.append_value(&row.key),
                Builder::Value(values) => values.append_option(row.value.as_deref()),
                Builder::Block(blocks) => blocks.append_value(row.block),
                Builder::Domain(names) => names.append_option(row.domain.as_deref()),
                Builder::Before(values) => values.append_option(row.before.as_deref()),
            }
        }
    }

    /// Whether it is large enough to be given.
    pub(crate) fn is_full(&self, rows: usize) -> bool {
        self.rows >= rows || self.bytes >= BATCH_BYTES
    }

    /// # Errors
    /// The schema has other columns, which is a defect.
    pub(crate) fn finish(self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        // A query that only counts has no column.
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let arrays = self.builders.into_iter().map(Builder::finish).collect();
        RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options)
    }
}

/// A column of a batch.
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

    fn finish(self) -> ArrayRef {
        match self {
            Self::Key(mut bytes) | Self::Value(mut bytes) | Self::Before(mut bytes) => {
                Arc::new(bytes.finish())
            }
            Self::Domain(mut names) => Arc::new(names.finish()),
            Self::Block(mut blocks) => Arc::new(blocks.finish()),
        }
    }
}
