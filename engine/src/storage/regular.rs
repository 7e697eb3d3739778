//! Opens what must be a regular file, and nothing else: a pipe would be waited for, a device read without end, and a link that somebody
//! else put there followed to a file of another purpose. Used by whatever opens files by their names.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// What becomes of a link in the place of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// It leads to the file: who has the folder may have put it there, to read.
    Follow,
    /// It is an error: of a file that is written.
    Refuse,
}

/// Opens a regular file.
///
/// # Errors
/// Those of opening; [`io::ErrorKind::InvalidInput`] for anything else of that name.
pub(crate) fn open_regular(options: &mut OpenOptions, path: &Path, links: Links) -> io::Result<File> {
    let mut flags = OFlags::NONBLOCK;
    if links == Links::Refuse {
        flags |= OFlags::NOFOLLOW;
    }
    let opened = options.custom_flags(flags.bits().cast_signed()).open(path);
    let file = opened.map_err(|error| match rustix::io::Errno::from_io_error(&error) {
        // A link, and a pipe that nobody reads.
        Some(rustix::io::Errno::LOOP | rustix::io::Errno::NXIO) => not_regular(),
        _ => error,
    })?;
    if !file.metadata()?.is_file() {
        return Err(not_regular());
    }
    Ok(file)
}

/// Whether something else has the name of a file; `false` where there is nothing.
#[cfg(feature = "object-store")]
pub(crate) fn is_other_than_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| !found.is_file())
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file: remove what is there")
}
