//! Segments: immutable files that hold every version of every key of one domain over one step range.
//!
//! ```text
//! entries in order --> SegmentBuilder --> bytes of a .kv --> Segment --> get_in(span, key, block)
//!                         `- pivots --> index                   |--> Cursor, both directions
//!                                                               `--> MergeCursor of several --> SegmentBuilder
//! ```
//!
//! A `.kv` is ordered by (key ascending, block descending) and cut into pages of 4096 bytes, each filled by its encoded
//! size; a large value is outside its page. The builder takes entries once, in order, and holds a bounded part of
//! them. The reader works on bytes wherever they are (`D: FileBytes`): this crate opens no file, starts no thread and asks no
//! clock. `segments/FORMAT.md`, included in [`frame`], has the bytes.
//!
//! ```
//! use icecore_segments::span::PageSpan;
//! use icecore_segments::step::{Step, StepRange};
//! use icecore_segments::{EncodingRule, Entry, PageBuf, Segment, SegmentBuilder, Value};
//!
//! # fn main() -> Result<(), icecore_segments::Error> {
//! let steps = StepRange::single(Step(0));
//! let mut builder = SegmentBuilder::new(Vec::new(), "accounts", steps, EncodingRule::Plain, ())?;
//! builder.push(Entry { key: b"alice", block: 9, value: Value::Inline(b"70") })?;
//! builder.push(Entry { key: b"alice", block: 4, value: Value::Inline(b"100") })?;
//! let (_, bytes, ()) = builder.finish()?;
//!
//! let (segment, mut buf) = (Segment::open(bytes)?, PageBuf::default());
//! let hit = segment.get_in(PageSpan::page(0), b"alice", 8, &mut buf)?.expect("a version at block 4");
//! assert_eq!((hit.block, hit.value), (4, Value::Inline(b"100")));
//! assert!(segment.get_in(PageSpan::page(0), b"alice", 3, &mut buf)?.is_none()); // a miss is not an error
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod builder;
pub mod bytes;
mod cells;
pub mod checksum;
mod codec;
mod columns;
mod cursor;
mod decoded;
mod entry;
mod entry_batch;
pub mod error;
mod file_bytes;
mod find;
mod fingerprint;
#[cfg(any(test, feature = "testing"))]
pub mod format_doc;
#[cfg(test)]
mod format_tests;
pub mod frame;
mod key_buf;
mod merge;
mod overflow;
mod page;
mod page_builder;
mod page_header;
mod rows;
mod segment;
pub mod span;
pub mod step;
mod summary;
mod verify;
mod versions;
mod walk;

pub use builder::SegmentBuilder;
pub use codec::{AUTO_SAVING_PERCENT, Encoding, EncodingRule, HEAD_LEN, PageBuf};
pub use cursor::Cursor;
pub use entry::{Entry, EntrySource, KEY_LEN_MAX, Value, Version};
pub use entry_batch::EntryBatch;
pub use error::Error;
pub use file_bytes::FileBytes;
pub use merge::MergeCursor;
pub use overflow::{Blob, RUN_LEN};
pub use overflow::{VALUE_INLINE_MAX, VALUE_LEN_MAX};
pub use page_header::PAGE_RAW_LEN_MAX;
pub use segment::{PlainVersion, Segment};
pub use summary::SegmentSummary;
