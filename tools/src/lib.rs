//! What measures Icecore and what feeds it: workloads, page-cache eviction that is proven, baselines of the disk and of memory.
//!
//! | module | what it answers |
//! |---|---|
//! | [`workload`] | which bytes: the reference dataset and a stream of blocks, exact and seeded |
//! | [`measure`] | what a lookup, a build or any other work touches and takes, beside what the machine takes without our code |
//! | [`stub`] | how does Icecore do with object storage that is slow or fails |
//! | [`gateway`] | how does it do with a server that others wrote |
//! | [`machine`] | which machine was it |
//! | [`provenance`] | which run of which build was it |
//! | [`exit`] | what stopped a tool, and how does it say so |
//!
//! Everything here is for the binaries of this package, for `benches` and for tests; no library depends on it.
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

pub mod exit;
pub mod gateway;
pub mod machine;
pub mod measure;
pub mod provenance;
pub mod stub;
pub mod workload;
