//! A table that was asked for: rows for Python, batches for whoever takes Arrow. Each beginning reads it from the start, in the same
//! state of the archive.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_schema::ffi::FFI_ArrowSchema;
use icecore::{Error, Reader, Scan, View};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyCapsule, PyTuple};

use crate::batches::{Batches, schema};
use crate::failure::Failure;
use crate::process::OfProcess;

/// Rows that Python takes are read so many at a time: at first, so that one row is soon there, and later.
const CHUNK_LENS: (usize, usize) = (16, 1024);

/// Keys that one `multi_get` of a table takes.
const KEYS_A_READ: usize = 4096;

/// What a table holds.
#[derive(Clone)]
pub(crate) enum Query {
    /// The keys of a scan with their values.
    Scan { view: View, domain: String, scan: Scan },
    /// The versions of a key.
    History { view: View, domain: String, key: Vec<u8> },
    /// What the blocks from the first to the second, both included, changed; in one domain, or in all.
    Changes { reader: Arc<OfProcess<Reader>>, blocks: Option<(u64, u64)>, domain: Option<String> },
    /// Keys and their values.
    Keys { view: View, domain: String, keys: Arc<[Vec<u8>]> },
}

/// A column of a table.
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

/// A row of a table; what its table has no column for is empty.
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
    fn new(key: Vec<u8>, value: Option<Vec<u8>>, block: u64) -> Self {
        Self { key, value, block, domain: None, before: None }
    }
}

/// The rows of a table, from the first.
pub(crate) type RowSource = Box<dyn Iterator<Item = Result<Row, Error>> + Send>;

impl Query {
    pub(crate) fn columns(&self) -> &'static [Column] {
        match self {
            Self::Scan { .. } => &[Column::Key, Column::Value { is_nullable: false }, Column::Block],
            Self::History { .. } => &[Column::Block, Column::Value { is_nullable: true }],
            Self::Changes { .. } => {
                &[Column::Block, Column::Domain, Column::Key, Column::Before, Column::After]
            }
            Self::Keys { .. } => &[Column::Key, Column::Value { is_nullable: true }],
        }
    }

    /// Begins to read.
    ///
    /// # Errors
    /// The domain is unknown, or a key has a length that it does not take. Nothing is read.
    pub(crate) fn begin(&self) -> Result<RowSource, Failure> {
        Ok(match self {
            Self::Scan { view, domain, scan } => {
                let entries = view.scan(&**domain, scan)?;
                Box::new(
                    entries
                        .map(|entry| entry.map(|entry| Row::new(entry.key, Some(entry.value), entry.block))),
                )
            }
            Self::History { view, domain, key } => {
                let changes = view.history(&**domain, key)?;
                Box::new(
                    changes
                        .map(|change| change.map(|change| Row::new(Vec::new(), change.value, change.block))),
                )
            }
            Self::Changes { reader, blocks, domain } => {
                let reader = reader.get()?;
                begin_changes(reader, *blocks, domain.as_deref())?
            }
            Self::Keys { view, domain, keys } => {
                // Refuses here what the first read would refuse.
                view.multi_get::<_, &[u8]>(&**domain, &[])?;
                Box::new(read_keys(view.clone(), domain.clone(), Arc::clone(keys)))
            }
        })
    }

    fn name(&self) -> String {
        match self {
            Self::Scan { view, domain, .. } => format!("scan of {domain} at {}", view.height()),
            Self::History { view, domain, .. } => format!("history in {domain} at {}", view.height()),
            Self::Changes { blocks: Some((first, last)), .. } => {
                format!("changes of blocks {first} to {last}")
            }
            Self::Changes { blocks: None, .. } => "changes of no block".to_owned(),
            Self::Keys { view, domain, keys } => {
                format!("{} keys of {domain} at {}", keys.len(), view.height())
            }
        }
    }
}

/// The changes of blocks, in the order of blocks, domains and keys.
fn begin_changes(
    reader: &Reader,
    blocks: Option<(u64, u64)>,
    domain: Option<&str>,
) -> Result<RowSource, Failure> {
    let names: Vec<Arc<str>> = reader.domains().iter().map(|domain| Arc::from(&*domain.name)).collect();
    if let Some(domain) = domain {
        reader.domain(domain)?;
    }
    let Some((first, last)) = blocks else { return Ok(Box::new(std::iter::empty())) };
    let mut changes = reader.changes(first..=last)?;
    if let Some(domain) = domain {
        changes = changes.of_domain(domain)?;
    }
    Ok(Box::new(changes.map(move |change| {
        change.map(|change| Row {
            key: change.key,
            value: change.after,
            block: change.block,
            domain: names.get(change.domain).cloned(),
            before: change.before,
        })
    })))
}

/// The values of keys, some thousand at a time. It ends with the first error.
fn read_keys(
    view: View,
    domain: String,
    keys: Arc<[Vec<u8>]>,
) -> impl Iterator<Item = Result<Row, Error>> + Send {
    let mut next = 0;
    let chunks = std::iter::from_fn(move || {
        let chunk = &keys[next..keys.len().min(next + KEYS_A_READ)];
        next += chunk.len();
        if chunk.is_empty() {
            return None;
        }
        let rows = match view.multi_get(&*domain, chunk) {
            Ok(values) => {
                let row = |(key, value): (&Vec<u8>, _)| Ok(Row::new(key.clone(), value, 0));
                chunk.iter().zip(values).map(row).collect()
            }
            Err(error) => {
                next = keys.len();
                vec![Err(error)]
            }
        };
        Some(rows)
    });
    chunks.flatten()
}

/// A table: what :meth:`Archive.scan`, :meth:`Archive.history`, :meth:`Archive.changes` and :meth:`Archive.multi_get_rows` give.
///
/// Iterate over it for one tuple a row, or hand it to whatever takes the Arrow PyCapsule interface, such as ``polars.DataFrame``,
/// ``pandas.DataFrame.from_arrow``, ``pyarrow.RecordBatchReader.from_stream`` or a query of DuckDB. Keys and values are ``binary``,
/// blocks ``uint64``, names of domains ``string``.
///
/// Nothing is read before it is asked for, and a batch at a time: 65,536 rows, or fewer where they have 8 MiB. Each beginning reads the
/// table again from its first row and finds the same: it stays in the state of the archive in which it was asked for, and keeps the
/// files of that.
///
/// >>> list(archive.scan("kv", at=1))
/// [(b'alice', b'100', 1), (b'bob', b'7', 1)]
#[pyclass(frozen, module = "icecore")]
pub(crate) struct Rows(OfProcess<Query>);

impl Rows {
    /// # Errors
    /// Those of [`Query::begin`].
    pub(crate) fn new(query: Query) -> Result<Self, Failure> {
        drop(query.begin()?);
        Ok(Self(OfProcess::new(query)))
    }
}

#[pymethods]
impl Rows {
    /// The names of the columns.
    ///
    /// >>> archive.history("kv", b"bob").columns
    /// ['block', 'value']
    #[getter]
    fn columns(&self) -> PyResult<Vec<&'static str>> {
        Ok(self.0.get()?.columns().iter().map(|column| column.name()).collect())
    }

    /// The schema in a capsule, for consumers of Arrow.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(schema(self.0.get()?.columns()).as_ref());
        let schema = schema.map_err(|error| Failure::Misuse(error.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// A stream of batches in a capsule, for consumers of Arrow. The columns are what they are, whatever schema is requested.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let query = self.0.get()?;
        let batches = Batches::new(query.begin()?, query.columns());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), c"arrow_array_stream")
    }

    fn __iter__(&self) -> PyResult<RowIterator> {
        let query = self.0.get()?;
        let rows = query.begin()?;
        let pending = Pending { rows, chunk: VecDeque::new(), chunk_len: CHUNK_LENS.0, error: None };
        Ok(RowIterator { columns: query.columns(), pending: Mutex::new(OfProcess::new(pending)) })
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("<icecore.Rows {}>", self.0.get()?.name()))
    }
}

/// The rows of a table as tuples.
#[pyclass(frozen, module = "icecore")]
pub(crate) struct RowIterator {
    columns: &'static [Column],
    pending: Mutex<OfProcess<Pending>>,
}

/// Rows that were read and not given yet, and where more come from.
struct Pending {
    rows: RowSource,
    chunk: VecDeque<Row>,
    chunk_len: usize,
    /// Comes after the chunk.
    error: Option<Error>,
}

impl Pending {
    fn fill(&mut self) {
        while self.chunk.len() < self.chunk_len && self.error.is_none() {
            match self.rows.next() {
                Some(Ok(row)) => self.chunk.push_back(row),
                Some(Err(error)) => self.error = Some(error),
                None => break,
            }
        }
        self.chunk_len = (2 * self.chunk_len).min(CHUNK_LENS.1);
    }
}

#[pymethods]
impl RowIterator {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let row = {
            let mut pending = self.pending.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
            let pending = pending.get_mut()?;
            if pending.chunk.is_empty() && pending.error.is_none() {
                py.detach(|| pending.fill());
            }
            match (pending.chunk.pop_front(), pending.error.take()) {
                (Some(row), error) => {
                    pending.error = error;
                    row
                }
                (None, Some(error)) => return Err(Failure::from(error).into()),
                (None, None) => return Ok(None),
            }
        };
        let cell = |column: &Column| -> PyResult<Bound<'py, PyAny>> {
            Ok(match column {
                Column::Key => PyBytes::new(py, &row.key).into_any(),
                Column::Block => row.block.into_pyobject(py)?.into_any(),
                Column::Domain => row.domain.as_deref().into_pyobject(py)?.into_any(),
                Column::Before => {
                    row.before.as_ref().map(|value| PyBytes::new(py, value)).into_pyobject(py)?
                }
                Column::Value { .. } | Column::After => {
                    row.value.as_ref().map(|value| PyBytes::new(py, value)).into_pyobject(py)?
                }
            })
        };
        let cells: Vec<_> = self.columns.iter().map(cell).collect::<PyResult<_>>()?;
        PyTuple::new(py, cells).map(Some)
    }
}
