//! Where the archive is that a command reads: in a directory, or in a bucket.

#[cfg(feature = "s3")]
use std::path::Path;
use std::path::PathBuf;

use clap::Args;
use icecore::{ReadOptions, Reader};

use crate::exit::Failure;
use crate::notes::{detail, is_verbose, note};
use crate::print::plural;

/// A command that reads a little and ends reads no index or filter beforehand.
pub(crate) const ONE_READ: Option<u64> = Some(0);

/// The archive to read, and how.
#[derive(Args, Debug)]
pub(crate) struct Place {
    #[cfg_attr(feature = "s3", doc = "The archive: a directory, or the URL of a bucket")]
    #[cfg_attr(not(feature = "s3"), doc = "The archive")]
    pub(crate) dir: PathBuf,
    /// Tell on standard error what reading cost
    #[arg(long)]
    pub(crate) cost: bool,
    #[cfg(feature = "s3")]
    #[command(flatten)]
    bucket: crate::bucket::ReadArgs,
}

impl Place {
    /// Opens the archive for reading; `resident` are the bytes of accessors that are read beforehand.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn open(&self, resident: Option<u64>) -> Result<Reader, Failure> {
        #[cfg(feature = "s3")]
        if let Some(url) = url_of(&self.dir) {
            return self.bucket.open(url);
        }
        #[cfg(feature = "s3")]
        self.bucket.check_unused()?;
        let options = ReadOptions::new();
        let options = resident.map_or(options, |bytes| options.resident_budget(bytes));
        Ok(Reader::open_with(&self.dir, options)?)
    }

    /// Says what the reads of a command cost, where that is wanted.
    pub(crate) fn tell_cost(&self, reader: &Reader) {
        tell_cost(reader, self.cost);
    }
}

/// The URL of a bucket, where an archive is named by one.
#[cfg(feature = "s3")]
pub(crate) fn url_of(place: &Path) -> Option<&str> {
    place.to_str().filter(|text| text.contains("://"))
}

/// The same, where the place is known no more.
pub(crate) fn tell_cost(reader: &Reader, is_wanted: bool) {
    if !is_wanted && !is_verbose() {
        return;
    }
    let tell = |text: String| if is_wanted { note(text) } else { detail(text) };
    let reads = reader.stats().reads;
    tell(format!(
        "{} ({} answered from memory): {}, {}; {}; {}",
        plural(reads.lookups, "lookup"),
        reads.memory_hits,
        plural(reads.filter_probes, "filter page"),
        plural(reads.filter_false_positives, "false positive"),
        plural(reads.index_probes, "index page"),
        plural(reads.pages_searched, "data page"),
    ));
    #[cfg(feature = "s3")]
    if let Some(cost) = reader.remote_cost() {
        tell(format!(
            "generation {}: {}, {} of files, {}, {} repeated",
            reader.remote_generation().unwrap_or_default(),
            plural(cost.requests, "request"),
            crate::print::bytes(cost.bytes),
            plural(cost.waits, "wait"),
            cost.retries,
        ));
    }
}
