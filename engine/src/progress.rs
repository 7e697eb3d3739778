//! How long work tells how far it is.

/// Hears of the progress of long work: merges, prunes, verification, building the Merkle tree. `&()` listens to nothing.
///
/// All methods do nothing by default. They may be called from other threads than the one that started the work, and hold it up
/// while they run.
pub trait ProgressListener: Send + Sync {
    /// A task begins: its name, for people, and how many units it has, if that is known. Units are entries, or bytes where the name
    /// says so.
    fn begin(&self, task: &str, units: Option<u64>) {
        let _ = (task, units);
    }

    /// This many more units are done.
    fn advance(&self, units: u64) {
        let _ = units;
    }

    /// The task is done.
    fn end(&self) {}
}

/// Ignores all progress.
impl ProgressListener for () {}
