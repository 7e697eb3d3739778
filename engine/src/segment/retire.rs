//! Retiring the files of a segment that a newer manifest does not name: removed when their last reader lets go.

use std::path::Path;
use std::sync::Arc;

use icecore_segments::frame::Kind;

use crate::segment::live::{LiveFile, LiveSegment};

impl LiveSegment {
    /// Marks for removal the files that none of `live` has.
    pub(crate) fn retire_unless_in(&self, live: &[Arc<Self>]) {
        self.retire_unless(|kind| live.iter().any(|segment| segment.path(kind) == self.path(kind)));
    }

    /// Marks for removal the files that no other segment has.
    pub(crate) fn retire_unless_shared(&self) {
        self.retire_unless(|kind| {
            let holders = match kind {
                Kind::Segment => Arc::strong_count(&self.kv),
                Kind::PivotIndex => Arc::strong_count(&self.bt),
                Kind::ExistenceFilter => Arc::strong_count(&self.kvei),
                Kind::BlockIndex => self.kvbi.as_ref().map_or(0, Arc::strong_count),
            };
            holders > 1
        });
    }

    fn retire_unless(&self, is_needed: impl Fn(Kind) -> bool) {
        for kind in self.record.kinds().filter(|kind| !is_needed(*kind)) {
            match kind {
                Kind::Segment => self.kv.retire(),
                Kind::PivotIndex => self.bt.retire(),
                Kind::ExistenceFilter => self.kvei.retire(),
                Kind::BlockIndex => self.kvbi.iter().for_each(|kvbi| kvbi.retire()),
            }
        }
    }

    /// The path of its file of a kind, if it has one.
    fn path(&self, kind: Kind) -> Option<&Path> {
        match kind {
            Kind::Segment => Some(LiveFile::path(&self.kv)),
            Kind::PivotIndex => Some(LiveFile::path(&self.bt)),
            Kind::ExistenceFilter => Some(LiveFile::path(&self.kvei)),
            Kind::BlockIndex => self.kvbi.as_ref().map(|kvbi| kvbi.path()),
        }
    }
}
