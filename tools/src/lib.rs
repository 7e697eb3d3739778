//! What measures Icecore and what feeds it: workloads, page-cache eviction that is proven, the disk's own floor.
//!
//! | module | what it answers |
//! |---|---|
//! | [`workload`] | which bytes: the reference dataset and a stream of blocks, exact and seeded |
//! | [`evict`] | is this file really out of memory |
//! | [`usage`] | how many page faults did that cost, how much memory, on which machine |
//! | [`spread`] | how were the measured values spread |
//! | [`floor`] | what does this disk, or this memory, take for one random read without any of our code |
//! | [`build`] | how long does it take to build a segment and its accessors, and how large are they |
//! | [`lookup`] | what does a lookup in one segment touch and take, rung by rung, cold and warm |
//! | [`provenance`] | which run of which build was it |
//! | [`exit`] | what stopped a tool, and how does it say so |
//! | [`watch`] | how much memory did a piece of work hold at its peak |
//!
//! Everything here is for the binaries of this package and for `benches`; no library depends on it.
//!
//! ```
//! use icecore_tools::workload::storage::StorageEntries;
//!
//! let dataset = StorageEntries::new(200_000);
//! let first = dataset.iter().next().expect("200,000 entries");
//! assert_eq!(dataset.pick(&[0]), [first]);
//! assert_eq!(dataset.iter().len(), 200_000);
//! ```

#![deny(unsafe_code)]

pub mod build;
pub mod evict;
pub mod exit;
pub mod floor;
pub mod lookup;
pub mod provenance;
pub mod spread;
pub mod usage;
pub mod watch;
pub mod workload;
