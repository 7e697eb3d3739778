//! An open archive: lookups, roots and proofs. What is tabular it gives as [`Rows`].

use std::ops;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use icecore::{Proof, Reader, Scan, View};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::arguments::{Bytes, Count, GivenRoot, height, keys};
use crate::failure::Failure;
use crate::process::{OfProcess, interruptible};
use crate::rows::{Query, Rows};

/// From how many keys on `multi_get` runs on a thread of its own, so that Ctrl-C ends it: starting one costs as much as some
/// dozens of lookups from memory.
const KEYS_OF_LONG_CALL: usize = 4096;

/// An archive that was opened for reading by :func:`icecore.open`.
///
/// Any number of threads may use it at once; no call holds the interpreter while it reads. ``at`` is a height; without it the newest
/// block answers, as of the last :meth:`refresh`. Where a height has no block, that below it answers.
///
/// It is a context manager. After a fork a child opens archives of its own: one of its parent raises :class:`icecore.ClosedError`.
#[pyclass(frozen, module = "icecore", weakref)]
pub(crate) struct Archive {
    /// `None` once it was closed. Locked only to clone what is in it.
    reader: Mutex<Option<Arc<OfProcess<Reader>>>>,
    place: PathBuf,
}

impl Archive {
    pub(crate) fn new(reader: Reader, place: PathBuf) -> Self {
        Self { reader: Mutex::new(Some(Arc::new(OfProcess::new(reader)))), place }
    }

    fn opened(&self) -> Result<Arc<OfProcess<Reader>>, Failure> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).clone();
        reader.ok_or(Failure::Closed("the archive was closed"))
    }

    /// Does something with the reader while other threads run Python.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        read: impl FnOnce(&Reader) -> Result<T, icecore::Error> + Send,
    ) -> Result<T, Failure> {
        let reader = self.opened()?;
        let reader = reader.get()?;
        Ok(py.detach(|| read(reader))?)
    }

    fn view(&self, py: Python<'_>, at: Option<Count>) -> Result<View, Failure> {
        let at = height(at);
        self.with(py, |reader| view(reader, at))
    }
}

/// The state at a height, or at the head.
fn view(reader: &Reader, at: Option<u64>) -> Result<View, icecore::Error> {
    at.map_or_else(|| reader.latest(), |at| reader.at(at))
}

#[pymethods]
impl Archive {
    /// The value of a key; ``None`` where it is absent or deleted.
    ///
    /// Cost: one read of the disk at most once index and filter are in memory; of a bucket, one request.
    ///
    /// Raises:
    ///     UnknownDomainError: the archive has no such domain.
    ///     MisuseError: the key has not the length that the domain fixes.
    ///     OutOfRangeError: the height is above the head, below the first block, or was pruned.
    ///     CorruptError: a file that is needed is damaged.
    ///
    /// >>> archive.get("kv", b"alice", at=1)
    /// b'100'
    /// >>> archive.get("kv", b"nobody") is None
    /// True
    #[pyo3(signature = (domain, key, at=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        domain: &str,
        key: Bytes,
        at: Option<Count>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let at = height(at);
        let value = self.with(py, |reader| view(reader, at)?.get(domain, key.as_ref()))?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    /// The values of many keys of one domain, in the order given; ``None`` for a key that is absent or deleted.
    ///
    /// Pages are planned first and fetched together, which of a disk is several times as fast as one ``get`` after the other, and
    /// of a bucket many times. All keys and values are in memory at once; :meth:`multi_get_rows` takes longer lists.
    ///
    /// Raises what :meth:`get` raises, for any of the keys.
    ///
    /// >>> archive.multi_get("kv", [b"alice", b"nobody"], at=1)
    /// [b'100', None]
    #[pyo3(name = "multi_get", signature = (domain, keys, at=None))]
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        domain: &str,
        #[pyo3(from_py_with = keys)] keys: Vec<Bytes>,
        at: Option<Count>,
    ) -> PyResult<Bound<'py, PyList>> {
        let view = self.view(py, at)?;
        let values = if keys.len() < KEYS_OF_LONG_CALL {
            py.detach(|| view.multi_get(domain, &keys)).map_err(Failure::from)?
        } else {
            let domain = domain.to_owned();
            interruptible(py, move || Ok(view.multi_get(&*domain, &keys)?))?
        };
        PyList::new(py, values.iter().map(|value| value.as_ref().map(|value| PyBytes::new(py, value))))
    }

    /// The values of many keys as a table with the columns ``key`` and ``value``; ``value`` is null where the key is absent or deleted.
    ///
    /// As :meth:`multi_get`, some thousand keys at a time, and lazily.
    ///
    /// >>> list(archive.multi_get_rows("kv", [b"alice", b"nobody"], at=1))
    /// [(b'alice', b'100'), (b'nobody', None)]
    #[pyo3(signature = (domain, keys, at=None))]
    fn multi_get_rows(
        &self,
        py: Python<'_>,
        domain: &str,
        #[pyo3(from_py_with = keys)] keys: Vec<Bytes>,
        at: Option<Count>,
    ) -> PyResult<Rows> {
        let view = self.view(py, at)?;
        let keys = keys.iter().map(|key| key.as_ref().to_vec()).collect();
        Ok(Rows::new(Query::Keys { view, domain: domain.to_owned(), keys })?)
    }

    /// The keys of a domain with their values, in the order of the keys, as a table with the columns ``key``, ``value`` and ``block``:
    /// the block that wrote the value.
    ///
    /// Nothing is read before the first row is asked for, and then batch by batch. Absent and deleted keys are left out. All
    /// bounds given must hold.
    ///
    /// Args:
    ///     prefix: only keys that begin with it.
    ///     start: only keys at or above it.
    ///     end: only keys below it.
    ///     after: only keys that come after it in the direction of the scan, to continue an earlier one.
    ///     reverse: descending instead of ascending.
    ///     limit: the most rows.
    ///     at: the height.
    ///
    /// >>> for key, value, block in archive.scan("kv", prefix=b"a", at=1):
    /// ...     print(key, value, block)
    /// b'alice' b'100' 1
    #[pyo3(signature = (domain, *, prefix=None, start=None, end=None, after=None, reverse=false, limit=None, at=None))]
    #[expect(clippy::too_many_arguments, reason = "each is an argument by name in Python")]
    fn scan(
        &self,
        py: Python<'_>,
        domain: &str,
        prefix: Option<Bytes>,
        start: Option<Bytes>,
        end: Option<Bytes>,
        after: Option<Bytes>,
        reverse: bool,
        limit: Option<Count>,
        at: Option<Count>,
    ) -> PyResult<Rows> {
        let mut scan = prefix.map_or_else(Scan::all, |prefix| Scan::prefix(prefix.as_ref()));
        if let Some(key) = start {
            scan = scan.from(key.as_ref());
        }
        if let Some(key) = end {
            scan = scan.to(key.as_ref());
        }
        if let Some(key) = after {
            scan = scan.after(key.as_ref());
        }
        if reverse {
            scan = scan.backward();
        }
        if let Some(rows) = limit {
            scan = scan.limit(rows.0);
        }
        let view = self.view(py, at)?;
        Ok(Rows::new(Query::Scan { view, domain: domain.to_owned(), scan })?)
    }

    /// The versions of a key at or below a height, newest first, as a table with the columns ``block`` and ``value``; ``value`` is null
    /// where the block deleted the key.
    ///
    /// >>> list(archive.history("kv", b"bob"))
    /// [(3, None), (1, b'7')]
    #[pyo3(signature = (domain, key, at=None))]
    fn history(&self, py: Python<'_>, domain: &str, key: Bytes, at: Option<Count>) -> PyResult<Rows> {
        let view = self.view(py, at)?;
        Ok(Rows::new(Query::History { view, domain: domain.to_owned(), key: key.as_ref().to_vec() })?)
    }

    /// What the blocks of a range changed, in the order of the blocks, as a table with the columns ``block``, ``domain``, ``key``,
    /// ``before`` and ``after``: the value before the block, null where there was none, and after it, null where the block deleted
    /// the key.
    ///
    /// Args:
    ///     start: the first block; the lowest whose changes are known unless it is given.
    ///     end: the block to end before; after the newest unless it is given.
    ///     domain: only changes of this domain.
    ///
    /// Raises:
    ///     OutOfRangeError: the range begins below the lowest block whose changes are known, or ends above the head.
    ///
    /// >>> for block, domain, key, before, after in archive.changes(start=2):
    /// ...     print(block, domain, key, before, after)
    /// 2 kv b'alice' b'100' b'80'
    /// 2 kv b'carol' None b'20'
    /// 3 kv b'bob' b'7' None
    #[pyo3(signature = (start=None, end=None, *, domain=None))]
    fn changes(
        &self,
        py: Python<'_>,
        start: Option<Count>,
        end: Option<Count>,
        domain: Option<String>,
    ) -> PyResult<Rows> {
        let start = start.map_or(ops::Bound::Unbounded, |block| ops::Bound::Included(block.0));
        let end = end.map_or(ops::Bound::Unbounded, |block| ops::Bound::Excluded(block.0));
        let blocks = self.with(py, |reader| Ok(reader.changes((start, end))?.range()))?;
        Ok(Rows::new(Query::Changes { reader: self.opened()?, blocks, domain })?)
    }

    /// The root of the state after a block: 32 bytes, all zero for an empty state.
    ///
    /// >>> archive.root(at=1).hex()[:16]
    /// '796388d568028820'
    #[pyo3(signature = (at=None))]
    fn root<'py>(&self, py: Python<'py>, at: Option<Count>) -> PyResult<Bound<'py, PyBytes>> {
        let at = height(at);
        let root = self.with(py, |reader| view(reader, at)?.root())?;
        Ok(PyBytes::new(py, &root.0))
    }

    /// Proves to whoever knows the root of a block which value a key has there, or that it has none: an :class:`icecore.Proof`.
    ///
    /// At a block that is no snapshot the Merkle tree is rebuilt from the whole state, which takes time and about 120 bytes of memory
    /// per key. Ctrl-C ends the wait for it.
    ///
    /// >>> proof = archive.prove("kv", b"alice", at=1)
    /// >>> proof.value
    /// b'100'
    /// >>> proof.verify(archive.root(at=1))
    #[pyo3(signature = (domain, key, at=None))]
    fn prove<'py>(
        &self,
        py: Python<'py>,
        domain: &str,
        key: Bytes,
        at: Option<Count>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let view = self.view(py, at)?;
        let name = domain.to_owned();
        let (proof, root, block) =
            interruptible(py, move || Ok((view.prove(&*name, key.as_ref())?, view.root()?, view.height())))?;
        let (domain, key, value) = proof.claim();
        let fields = PyDict::new(py);
        fields.set_item("domain", domain)?;
        fields.set_item("key", PyBytes::new(py, key))?;
        fields.set_item("value", value.map(|value| PyBytes::new(py, value)))?;
        fields.set_item("block", block)?;
        fields.set_item("root", PyBytes::new(py, &root.0))?;
        fields.set_item("ics23", PyBytes::new(py, &proof.to_ics23_bytes()))?;
        py.import("icecore.proof")?.getattr("Proof")?.call((), Some(&fields))
    }

    /// Catches up with what was committed since, or published in the bucket. ``True`` where anything is new.
    ///
    /// A table that was begun before stays in its state.
    ///
    /// >>> archive.refresh()
    /// False
    fn refresh(&self, py: Python<'_>) -> PyResult<bool> {
        let reader = self.opened()?;
        Ok(interruptible(py, move || Ok(reader.get()?.refresh()?))?)
    }

    /// The lowest and the highest height that can be read, both included; ``None`` before the first block.
    ///
    /// >>> archive.range
    /// (1, 3)
    #[getter]
    fn range(&self, py: Python<'_>) -> PyResult<Option<(u64, u64)>> {
        Ok(self.with(py, |reader| Ok(reader.range()))?)
    }

    /// The domains in the order of their declaration, each with the length that its keys have; ``None`` where they may have any.
    ///
    /// >>> archive.domains
    /// {'kv': None}
    #[getter]
    fn domains<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let domains = PyDict::new(py);
        for domain in self.opened()?.get()?.domains() {
            domains.set_item(&domain.name, domain.key_len)?;
        }
        Ok(domains)
    }

    /// What reading from a bucket cost so far: ``requests``, ``retries``, ``bytes`` and ``waits``; ``None`` for a directory.
    ///
    /// >>> archive.remote_cost() is None
    /// True
    fn remote_cost<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(cost) = self.opened()?.get()?.remote_cost() else { return Ok(None) };
        let dict = PyDict::new(py);
        dict.set_item("requests", cost.requests)?;
        dict.set_item("retries", cost.retries)?;
        dict.set_item("bytes", cost.bytes)?;
        dict.set_item("waits", cost.waits)?;
        Ok(Some(dict))
    }

    /// Lets go of the archive. Calls after that raise :class:`icecore.ClosedError`; tables that were begun go on. Closing twice is no
    /// error.
    fn close(&self, py: Python<'_>) {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Unmapping takes time.
        py.detach(|| drop(reader));
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        let state = if self.closed() { " (closed)" } else { "" };
        format!("<icecore.Archive {}{state}>", self.place.display())
    }
}

/// Checks that under a root a key of a domain has a value, or, for ``None``, that it has none. Needs no archive.
///
/// ``proof`` is an :class:`icecore.Proof`, or the bytes of an ICS23 commitment proof. ``root`` must come from a source that you
/// trust. Returns nothing: what does not hold is raised.
///
/// Raises:
///     ProofError: the proof does not hold, or is no proof.
///
/// >>> proof = archive.prove("kv", b"alice", at=1)
/// >>> icecore.verify(proof, archive.root(at=1), "kv", b"alice", b"100")
#[pyfunction]
#[pyo3(signature = (proof, root, domain, key, value))]
pub(crate) fn verify(
    py: Python<'_>,
    proof: &Bound<'_, PyAny>,
    root: GivenRoot,
    domain: &str,
    key: Bytes,
    value: Option<Bytes>,
) -> PyResult<()> {
    let proof: Bytes = match proof.getattr_opt("ics23")? {
        Some(bytes) => bytes.extract()?,
        None => proof.extract()?,
    };
    let checked = py.detach(|| {
        let value = value.as_ref().map(AsRef::as_ref);
        Proof::from_ics23_bytes(proof.as_ref())?.verify(&root.0, domain, key.as_ref(), value)
    });
    checked.map_err(|error| Failure::Proof(error.to_string()).into())
}
