//! Placeholder.

#![forbid(unsafe_code)]

pub mod bytes;
pub mod checksum;
pub mod error;
pub mod frame;
pub mod span;
pub mod step;

pub use error::Error;
