//! The one error of the floors `segments` and `index`.
//!
//! Positions are always there; the path is added once, by the engine, which is the only one to know it.

use std::fmt;
use std::io;

/// What went wrong with a file of the segment family, or with what was to go into one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are not what a builder writes.
    #[error("damaged {0}")]
    Corrupt(Corruption),
    /// The file is of a kind or version that this build does not read.
    #[error("unsupported {what} found={found} supported={supported}")]
    Unsupported {
        /// What is not supported.
        what: &'static str,
        /// What the file says.
        found: u64,
        /// The newest that this build reads.
        supported: u64,
    },
    /// An entry came that does not sort after the one before it. The builder is unchanged.
    #[error("entries out of order previous={previous} got={got}")]
    OutOfOrder {
        /// The entry before.
        previous: String,
        /// The entry refused.
        got: String,
    },
    /// Something is larger than its length field or page allows. The builder is unchanged.
    #[error("{what} too large len={len} max={max}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its length in bytes.
        len: u64,
        /// The most that is allowed.
        max: u64,
    },
    /// An accessor belongs to another segment, or a file is not the one asked for.
    #[error("{what} does not match expected={expected} found={found}")]
    Mismatch {
        /// What was compared.
        what: &'static str,
        /// What the reader expected.
        expected: String,
        /// What the file says.
        found: String,
    },
    /// The bytes are elsewhere and could not be brought here: see [`FileBytes`](crate::FileBytes).
    #[error("bytes could not be brought")]
    Absent(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The writer underneath failed.
    #[error("write failed")]
    Write(#[from] io::Error),
}

/// Where damage is and what is wrong there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corruption {
    /// The part of the file.
    pub part: Part,
    /// The offset in the file of the page or structure, in bytes.
    pub offset: u64,
    /// What does not hold.
    pub reason: Reason,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "part={} offset={} reason={}", self.part, self.offset, self.reason)
    }
}

impl From<Corruption> for Error {
    fn from(corruption: Corruption) -> Self {
        Self::Corrupt(corruption)
    }
}

macro_rules! spelled {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident => $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $text,)* })
            }
        }
    };
}

spelled! {
    /// The parts of a file that can be damaged.
    Part {
        /// The whole file.
        File => "file",
        /// The header page.
        Header => "header",
        /// The footer page.
        Footer => "footer",
        /// A data page of a `.kv`.
        DataPage => "data-page",
        /// A value stored outside its page.
        Overflow => "overflow",
        /// The trained dictionary.
        Dictionary => "dictionary",
        /// The table that says where overflow runs are.
        RunTable => "run-table",
        /// A leaf node of a `.bt`.
        Leaf => "leaf",
        /// The upper levels of a `.bt`.
        Top => "top",
        /// A shard of a `.kvei`.
        Shard => "shard",
        /// The table of shard boundaries of a `.kvei`.
        ShardTable => "shard-table",
        /// A leaf of a `.kvbi`.
        BlockLeaf => "block-leaf",
        /// The table of the first blocks of the leaves of a `.kvbi`.
        BlockTable => "block-table",
    }
}

spelled! {
    /// What does not hold.
    Reason {
        /// Shorter or longer than it says or than it can be.
        Length => "length",
        /// Does not begin with the magic.
        Magic => "magic",
        /// The checksum differs.
        Checksum => "checksum",
        /// A field has a value that no builder writes.
        Field => "field",
        /// A structure runs out of its page.
        Overrun => "overrun",
        /// Keys or blocks do not follow each other in order.
        Order => "order",
        /// Counts do not agree.
        Count => "count",
        /// Compressed bytes do not decode.
        Decode => "decode",
    }
}
