//! What callers give: keys, heights, roots. Wrong types are `TypeError`, wrong values `icecore.MisuseError`.

use icecore::{BlockNumber, Root};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyMemoryView;

use crate::failure::Failure;

/// Between two looks for Ctrl-C while an iterable of keys is read.
const KEYS_A_LOOK: usize = 1024;

/// Bytes that a caller gave: `bytes` without a copy, `bytearray` and `memoryview` with one.
pub(crate) struct Bytes(PyBackedBytes);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl FromPyObject<'_, '_> for Bytes {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = given.extract::<PyBackedBytes>() {
            return Ok(Self(bytes));
        }
        if given.is_instance_of::<PyMemoryView>() {
            return Ok(Self(given.call_method0("tobytes")?.extract()?));
        }
        let found = given.get_type().name()?;
        Err(PyTypeError::new_err(format!(
            "keys and values are bytes, not {found}: write b\"alice\", text.encode() or bytes.fromhex(\"00ff\")"
        )))
    }
}

/// A height or a count: an integer from 0 to 2^64 - 1.
pub(crate) struct Count(pub(crate) u64);

impl FromPyObject<'_, '_> for Count {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        given.extract::<u64>().map(Self).map_err(|error| {
            if error.is_instance_of::<PyOverflowError>(given.py()) {
                return Failure::Misuse("heights and counts are integers from 0 to 2**64 - 1".to_owned())
                    .into();
            }
            error
        })
    }
}

/// The height that was given; `None` is the newest block.
pub(crate) fn height(at: Option<Count>) -> Option<BlockNumber> {
    at.map(|at| at.0)
}

/// A root: 32 bytes, or 64 hex digits with or without `0x`.
pub(crate) struct GivenRoot(pub(crate) Root);

impl FromPyObject<'_, '_> for GivenRoot {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let bad = || Failure::Misuse("a root is 32 bytes, or 64 hex digits after 0x".to_owned());
        if let Ok(text) = given.extract::<PyBackedStr>() {
            return Ok(Self(text.parse().map_err(|_| bad())?));
        }
        let bytes: Bytes = given.extract()?;
        let root = <[u8; 32]>::try_from(bytes.as_ref()).map_err(|_| bad())?;
        Ok(Self(Root(root)))
    }
}

/// The keys of any iterable.
pub(crate) fn keys(given: &Bound<'_, PyAny>) -> PyResult<Vec<Bytes>> {
    let mut keys = Vec::new();
    for key in given.try_iter()? {
        if keys.len() % KEYS_A_LOOK == 0 {
            given.py().check_signals()?;
        }
        keys.push(key?.extract()?);
    }
    Ok(keys)
}
