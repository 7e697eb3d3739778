//! How long work tells how far it is.

/// What long work reports to. All methods may be called from other threads than the one that started it.
pub trait ProgressListener: Send + Sync {
    /// A task begins: its name and how many units (entries, or bytes where so named) it has, if that is known.
    fn begin(&self, task: &str, units: Option<u64>) {
        let _ = (task, units);
    }

    /// So many more units are done.
    fn advance(&self, units: u64) {
        let _ = units;
    }

    /// The task is done.
    fn end(&self) {}
}

/// Reports to nobody.
impl ProgressListener for () {}
