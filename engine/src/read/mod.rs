//! Reading: the immutable state that a view pins, and the ladder by which a key is looked up in it.
//!
//! [`get`] is the ladder; `multi_get`, `scan` and `history` are its variations over many keys, a range, all versions; `change_blocks`
//! leaves the values out. [`changes`] asks by block instead of key.
//! [`resident`] has accessors read at opening. [`follow`] brings the state of another process's archive up to date.

pub(crate) mod ahead;
pub(crate) mod change_blocks;
pub(crate) mod changes;
pub(crate) mod entries;
pub(crate) mod follow;
pub(crate) mod get;
pub(crate) mod history;
pub(crate) mod multi_get;
pub(crate) mod pinned;
pub(crate) mod read_state;
#[cfg(feature = "object-store")]
pub(crate) mod renewal;
pub(crate) mod resident;
pub(crate) mod roots;
pub(crate) mod scan;
pub(crate) mod scan_range;
pub(crate) mod shared;
