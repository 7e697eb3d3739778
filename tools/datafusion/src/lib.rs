//! Archives of Icecore as tables of DataFusion.
//!
//! | table | rows | what is pushed down |
//! |---|---|---|
//! | [`StateTable`] | the keys of a domain at a block: `key`, `value`, `block` that wrote it | bounds and prefixes of keys, the limit, the order |
//! | [`ChangesTable`] | what blocks changed: `block`, `domain`, `key`, the value `before` and `after`, null where there is none | the range of blocks, bounds and prefixes of keys, the limit, the order of blocks |
//! | [`HistoryTable`] | the versions of the keys that a query names: `key`, `block`, `value`, null for a deletion | keys, the range of blocks, the limit |
//!
//! [`register`] makes table functions of them, so that a query chooses domain and block:
//!
//! ```
//! # use datafusion::prelude::SessionContext;
//! # use icecore::{Archive, Options};
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let archive = Archive::create(dir.path().join("a.ice"), Options::new().domain("balance"))?;
//! # let mut block = archive.begin(1)?;
//! # block.put("balance", b"alice", b"100")?;
//! # block.commit()?;
//! # let mut block = archive.begin(2)?;
//! # block.put("balance", b"alice", b"80")?;
//! # block.put("balance", b"bob", b"20")?;
//! # block.commit()?;
//! let context = SessionContext::new();
//! icecore_datafusion::register(&context, archive.reader().clone());
//! let gone = context.sql("select s.key from state('balance', 2) s left join state('balance', 1) b on s.key = b.key where b.key is null");
//! assert_eq!(gone.await?.count().await?, 1);
//! let key = context.sql("select * from history('balance') where key = X'616c696365' and block > 1").await?;
//! assert_eq!(key.count().await?, 1);
//! let new = context.sql("select key from changes('balance') where block = 2 and before is null").await?;
//! assert_eq!(new.count().await?, 1);
//! # Ok(())
//! # }
//! ```
//!
//! Reads run on the threads that tokio has for what blocks, a batch at a time and at most two ahead, so a query that ends early reads
//! no more than it needs.

#![forbid(unsafe_code)]

mod changes;
mod columns;
mod functions;
mod history;
mod keys;
mod prefix;
mod rows;
mod state;

pub use changes::ChangesTable;
pub use functions::register;
pub use history::HistoryTable;
pub use prefix::has_prefix;
pub use state::StateTable;

/// An error of the archive as one of DataFusion.
fn external(error: icecore::Error) -> datafusion::error::DataFusionError {
    datafusion::error::DataFusionError::External(Box::new(error))
}
