//! Parts of the texts of [errors](crate::error): what a limit of the system means, and the command that brings what is missing.

use std::fmt;
use std::io;
use std::path::Path;

use icecore_segments::step::BlockNumber;

/// Which limit of the system an operation on a file ran into, for error texts: the system's own word names none.
#[derive(PartialEq, Eq)]
pub(crate) enum LimitHint {
    None,
    ProcessFiles,
    SystemFiles,
    Mappings,
}

impl LimitHint {
    pub(crate) fn of(source: &io::Error) -> Self {
        // No `io::ErrorKind` stands for these two; their numbers are the same on every Unix.
        const ENFILE: i32 = 23;
        const EMFILE: i32 = 24;
        match source.raw_os_error() {
            Some(EMFILE) => Self::ProcessFiles,
            Some(ENFILE) => Self::SystemFiles,
            // Of all operations on files only mapping fails for want of memory, and it needs none but the entry in the table
            // of mappings and the addresses.
            Some(_) if source.kind() == io::ErrorKind::OutOfMemory => Self::Mappings,
            _ => Self::None,
        }
    }
}

impl fmt::Display for LimitHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "",
            Self::ProcessFiles => ": the open files of a process are limited by `ulimit -n`, raise it or merge segments",
            Self::SystemFiles => ": the open files of all processes are limited by fs.file-max, raise it or merge segments",
            Self::Mappings => {
                ": the mappings of a process are limited by vm.max_map_count and its addresses by `ulimit -v`, raise them or \
                 merge segments"
            }
        })
    }
}

/// The command that brings a segment, for error texts. The archive's own domains cannot be chosen: they come with the blocks of all.
pub(crate) struct PullLine<'a> {
    pub(crate) path: &'a Path,
    pub(crate) domain: &'a str,
    pub(crate) blocks: (BlockNumber, BlockNumber),
}

impl fmt::Display for PullLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`icecore pull BUCKET {}", self.path.display())?;
        write!(f, " --domain {} --blocks {}..={}`", self.domain, self.blocks.0, self.blocks.1)
    }
}
