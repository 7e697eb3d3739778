//! What tests need to try the engine on a disk that fails: a simulated one, and the contract it keeps.
//!
//! Built with the feature `testing` and for the crate's own tests; no part of the engine.

pub mod contract;
pub mod control;
mod disk;
pub mod sim;

pub use disk::Fault;
pub use sim::SimStorage;
