//! Segments: immutable files that hold every version of every key of one domain over one step range.

#![forbid(unsafe_code)]

mod builder;
pub mod bytes;
pub mod checksum;
mod codec;
mod cursor;
mod entry;
pub mod error;
pub mod frame;
mod merge;
mod overflow;
mod page;
mod page_builder;
mod segment;
pub mod span;
pub mod step;
mod summary;
mod verify;

pub use builder::SegmentBuilder;
pub use codec::{AUTO_SAVING_PERCENT, Encoding, EncodingRule, HEAD_LEN, PageBuf};
pub use cursor::Cursor;
pub use entry::{Entry, EntrySource, KEY_LEN_MAX, VALUE_INLINE_MAX, VALUE_LEN_MAX, Value, Version};
pub use error::Error;
pub use merge::MergeCursor;
pub use overflow::{Blob, RUN_LEN};
pub use page::PAGE_RAW_LEN_MAX;
pub use segment::Segment;
pub use summary::SegmentSummary;
