//! Retiring the files of a segment that a newer manifest does not name: removed when their last reader lets go.

use std::path::Path;
use std::sync::Arc;

use icecore_segments::frame::Kind;

use crate::segment::live::{LiveFile, LiveSegment};

impl LiveSegment {
    /// Marks for removal the files that none of `live` has.
    pub(crate) fn retire_unless_in(&self, live: &[Arc<Self>]) {
        let is_needed = |kind| live.iter().any(|segment| segment.path(kind) == self.path(kind));
        self.retire_unless([Kind::Segment, Kind::PivotIndex, Kind::ExistenceFilter].map(is_needed));
    }

    /// Marks for removal the files that no other segment has.
    pub(crate) fn retire_unless_shared(&self) {
        let holders =
            [Arc::strong_count(&self.kv), Arc::strong_count(&self.bt), Arc::strong_count(&self.kvei)];
        self.retire_unless(holders.map(|holders| holders > 1));
    }

    fn retire_unless(&self, [kv, bt, kvei]: [bool; 3]) {
        if !kv {
            self.kv.retire();
        }
        if !bt {
            self.bt.retire();
        }
        if !kvei {
            self.kvei.retire();
        }
    }

    /// The path of one of its files.
    fn path(&self, kind: Kind) -> &Path {
        match kind {
            Kind::Segment => LiveFile::path(&self.kv),
            Kind::PivotIndex => LiveFile::path(&self.bt),
            Kind::ExistenceFilter => LiveFile::path(&self.kvei),
        }
    }
}
