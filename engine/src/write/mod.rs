//! The writer's side: what a commit changes, what opening recovers, and the one place where a manifest is stored.

pub(crate) mod changes;
pub(crate) mod commit;
pub(crate) mod compare;
pub(crate) mod log_drop;
pub(crate) mod recovery;
pub(crate) mod version_edit;
pub(crate) mod writer;
