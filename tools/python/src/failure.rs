//! Errors of the library as exceptions of `icecore.errors`: one class a kind, the whole chain of causes in one line, and what to do.

use std::error::Error as _;

use icecore::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::PyType;

/// Why a call of a binding failed, before it is an exception: made without the interpreter.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The archive refused.
    Archive(Error),
    /// The call makes no sense.
    Misuse(String),
    /// The handle was closed, or belongs to another process.
    Closed(&'static str),
    /// A proof that does not hold, and why.
    Proof(String),
    /// The system gave no thread.
    System(String),
    /// A read panicked.
    Panicked,
    /// The exception of a signal, or of an argument's own code.
    Python(PyErr),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Archive(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl Failure {
    /// The class in `icecore.errors`, and the text.
    fn class_and_text(self) -> Result<(&'static str, String), PyErr> {
        match self {
            Self::Archive(error) => Ok((class(&error), text(&error))),
            Self::Misuse(reason) => Ok(("MisuseError", reason)),
            Self::Closed(reason) => Ok(("ClosedError", reason.to_owned())),
            Self::Proof(reason) => Ok(("ProofError", reason)),
            Self::System(reason) => Ok(("StorageError", reason)),
            Self::Panicked => Ok(("Error", "a read panicked, which is a defect of icecore".to_owned())),
            Self::Python(error) => Err(error),
        }
    }

    /// The text, for where there is no exception.
    pub(crate) fn into_text(self) -> String {
        self.class_and_text().map_or_else(|error| error.to_string(), |(_, text)| text)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        let (class, text) = match failure.class_and_text() {
            Ok(found) => found,
            Err(error) => return error,
        };
        Python::attach(|py| {
            let raise = || py.import("icecore.errors")?.getattr(class)?.cast_into::<PyType>()?.call1((text,));
            raise().map_or_else(|error| error, |exception| PyErr::from_value(exception))
        })
    }
}

fn class(error: &Error) -> &'static str {
    if matches!(error, Error::UnknownDomain { .. }) {
        return "UnknownDomainError";
    }
    match error.kind() {
        ErrorKind::Corrupt => "CorruptError",
        ErrorKind::Unsupported => "UnsupportedError",
        ErrorKind::Environment => "StorageError",
        ErrorKind::NoSpace => "NoSpaceError",
        ErrorKind::Limit => "LimitError",
        ErrorKind::Misuse => "MisuseError",
        ErrorKind::OutOfRange => "OutOfRangeError",
        ErrorKind::NotHeld => "NotHeldError",
        ErrorKind::NotFound => "NotFoundError",
        ErrorKind::Busy => "BusyError",
        ErrorKind::Closed => "ClosedError",
        _ => "Error",
    }
}

/// An error, all that caused it, and what to do about it, in one line.
fn text(error: &Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !line.ends_with(&cause_text) {
            line = format!("{line}: {cause_text}");
        }
        source = cause.source();
    }
    match remedy(error) {
        Some(remedy) => format!("{line}; {remedy}"),
        None => line,
    }
}

/// What the caller can do, where the text of the error does not say it already.
fn remedy(error: &Error) -> Option<&'static str> {
    match error {
        Error::Remote(error) => Some(error.remedy()),
        Error::Unfinished { .. } => {
            Some("give the `icecore checkpoint` or `icecore pull` that makes it once more")
        }
        Error::NotAnArchive { .. } => Some("check the path; an archive is a directory"),
        _ => match error.kind() {
            ErrorKind::Corrupt => Some(
                "restore the file from a checkpoint or another copy; `icecore verify DIR` lists every damage",
            ),
            ErrorKind::Unsupported => Some("the archive was made by a newer icecore, use that one"),
            ErrorKind::Closed => Some("open the archive again"),
            _ => None,
        },
    }
}
