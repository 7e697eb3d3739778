//! How a segment that maintenance writes is to be built: the archive's rule of the moment, for all of emission, merge, prune and
//! unwind.

use icecore_segments::step::StepRange;

use crate::domain::DomainId;
use crate::error::Error;
use crate::segment::policy::NewSegment;
use crate::segment::writer::SegmentOptions;
use crate::write::writer::Writer;

/// How the archive's rule would have a new segment built.
pub(crate) fn options_of_new(
    writer: &Writer,
    domain: DomainId,
    steps: StepRange,
    entries: u64,
) -> Result<SegmentOptions, Error> {
    let (rule, declared) = {
        let guard = writer.lock();
        let manifest = guard.manifest();
        (manifest.rule, manifest.config.domains[domain.index()].encoding)
    };
    let version = writer.read_state();
    let new = NewSegment { domain, steps, entries, declared };
    let config = &writer.shared.directory.config;
    let parallelism = writer.options.file_parallelism();
    new.options(config, rule, version.head, version.all_segments(), parallelism)
}
