//! The part of the Python package `icecore` that is written in Rust: `icecore._native`.
//!
//! ```text
//! archive    Archive: get, multi_get, scan, history, root, prove
//! place      open: a directory, or the URL of a bucket
//! rows       Rows: what scan, history and multi_get_rows give, row by row
//! batches    the same as an Arrow C stream, batch by batch
//! arguments  what callers give: keys, heights, roots
//! failure    errors of the library as exceptions of `icecore.errors`
//! process    calls that Ctrl-C ends, and handles that stay in the process that made them
//! ```
//!
//! Nothing of Python is held while an archive is read: every read runs with the interpreter detached. The code is free of unsafe
//! blocks: PyO3 owns the capsules, arrow-array the C structs in them.

#![forbid(unsafe_code)]

mod archive;
mod arguments;
mod batches;
mod failure;
mod place;
mod process;
mod rows;

/// What `import icecore` finds here; `icecore/__init__.py` says what is public.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::archive::{Archive, verify};
    #[pymodule_export]
    use crate::place::open;
    #[pymodule_export]
    use crate::process::entered_child;
    #[pymodule_export]
    use crate::rows::{RowIterator, Rows};
}
