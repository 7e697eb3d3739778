//! Builds a `.bt` from the places that a segment builder offers, in one pass.
//!
//! Cost: memory for the restarts of one page, one leaf, and the separators of the top (a few bytes for each 4096 of the file).

use std::fmt::Write as _;
use std::io::Write;

use icecore_segments::checksum::{Checksum, crc64};
use icecore_segments::error::Error;
use icecore_segments::frame::{FrameWriter, Header, Kind, PAGE_SIZE};
use icecore_segments::span::{PAGE_ENTRIES_MAX, Pivot, PivotSink, Separator};
use icecore_segments::step::{BlockNumber, StepRange};

use super::choice::{Chooser, Role};
use super::packer::{LeafBuilder, SEPARATOR_LEN_MAX};
use super::top::{TopBuilder, ascends};
use super::{M_AT, PAYLOAD_LEN, PivotSummary};
use crate::density::Density;

/// Takes places as a [`PivotSink`], keeps about one for M entries and writes the index.
pub struct PivotBuilder<W: Write> {
    m: Density,
    chooser: Chooser,
    leaves: Leaves<W>,
    newest: Newest,
}

/// The newest place offered: the next must be after it.
struct Newest {
    any: bool,
    key: Vec<u8>,
    before: Option<BlockNumber>,
    page: u64,
    restart: u16,
    ordinal: u64,
}

/// Packs pivots into leaves and writes them.
struct Leaves<W> {
    frame: FrameWriter<W>,
    leaf: LeafBuilder,
    top: TopBuilder,
    pivots: u64,
}

impl<W: Write> PivotBuilder<W> {
    /// Starts an index over a segment of `domain` and `steps`; writes the header to `sink`.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for a domain name that does not fit; a failed write.
    pub fn new(sink: W, domain: &str, steps: StepRange, m: Density) -> Result<Self, Error> {
        let mut header = Header::new(Kind::PivotIndex, domain, steps)?;
        header.params[M_AT..][..4].copy_from_slice(&m.get().to_le_bytes());
        let frame = FrameWriter::new(sink, &header)?;
        let leaves = Leaves { frame, leaf: LeafBuilder::default(), top: TopBuilder::default(), pivots: 0 };
        let newest = Newest { any: false, key: Vec::new(), before: None, page: 0, restart: 0, ordinal: 0 };
        Ok(Self { m, chooser: Chooser::new(m), leaves, newest })
    }

    /// Writes the last leaf, the top and the footer.
    ///
    /// `parent` is the content checksum of the `.kv`, `pages` the number of its data pages, `entries` of its versions.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] when `pages` or `entries` are before the last place offered; [`Error::TooLarge`] for more entries
    /// than the pages after it can have; a failed write.
    pub fn finish(self, parent: Checksum, pages: u64, entries: u64) -> Result<(PivotSummary, W), Error> {
        let newest = &self.newest;
        if newest.any && (pages <= newest.page || entries <= newest.ordinal) || !newest.any && pages > 0 {
            let previous = newest.to_string();
            return Err(Error::OutOfOrder { previous, got: format!("end page={pages} ordinal={entries}") });
        }
        let most = newest.ordinal.saturating_add((pages - newest.page).saturating_mul(PAGE_ENTRIES_MAX));
        if entries > most {
            return Err(Error::TooLarge { what: "number of entries", len: entries, max: most });
        }
        let Self { m, mut chooser, mut leaves, .. } = self;
        chooser.finish(entries, &mut |role, place| leaves.take(role, place))?;
        if !leaves.leaf.is_empty() {
            leaves.flush(pages - 1)?;
        }
        let Leaves { mut frame, top, pivots, .. } = leaves;
        let top_offset = frame.position();
        frame.write_raw(top.bytes())?;
        let (top_len, top_sum) = (top.bytes().len() as u64, crc64(top.bytes()));
        let mut payload = [0; PAYLOAD_LEN];
        let fields = [pivots, entries, pages, top.leaves(), top_offset, top_len, top_sum];
        for (field, value) in fields.into_iter().enumerate() {
            payload[8 * field..][..8].copy_from_slice(&value.to_le_bytes());
        }
        let (file, sink) = frame.finish(parent, &payload)?;
        let (leaves, top_bytes) = (top.leaves(), top.memory());
        Ok((PivotSummary { file, m, pivots, leaves, entries, pages, top_bytes }, sink))
    }
}

impl<W: Write> PivotSink for PivotBuilder<W> {
    /// Takes the next place.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] when it is not after the one before it, or when the first is not the beginning of page
    /// 0 (the builder is unchanged); a failed write.
    fn pivot(&mut self, pivot: &Pivot<'_>) -> Result<(), Error> {
        if !self.newest.precedes(pivot) {
            return Err(Error::OutOfOrder {
                previous: self.newest.to_string(),
                got: describe(&pivot.separator, pivot.page, pivot.restart, pivot.ordinal),
            });
        }
        let leaves = &mut self.leaves;
        self.newest.set(pivot);
        if pivot.ordinal == 0 {
            // Nothing is before the first entry, so its boundary is before every key.
            let separator = Separator { key: &[], before: None };
            return self
                .chooser
                .offer(&Pivot { separator, ..*pivot }, &mut |role, place| leaves.take(role, place));
        }
        if pivot.separator.key.len() > SEPARATOR_LEN_MAX {
            // Lookups from here to the next pivot have a longer span; that is all a missing pivot means.
            return Ok(());
        }
        self.chooser.offer(pivot, &mut |role, place| leaves.take(role, place))
    }
}

impl Newest {
    fn precedes(&self, pivot: &Pivot<'_>) -> bool {
        if !self.any {
            return (pivot.page, pivot.restart, pivot.ordinal) == (0, 0, 0);
        }
        let separator = Separator { key: &self.key, before: self.before };
        (self.page, self.restart) < (pivot.page, pivot.restart)
            && self.ordinal < pivot.ordinal
            && (self.ordinal == 0 || ascends(&separator, &pivot.separator))
    }

    fn set(&mut self, pivot: &Pivot<'_>) {
        pivot.separator.key.clone_into(&mut self.key);
        (self.any, self.before) = (true, pivot.separator.before);
        (self.page, self.restart, self.ordinal) = (pivot.page, pivot.restart, pivot.ordinal);
    }
}

impl std::fmt::Display for Newest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let separator = Separator { key: &self.key, before: self.before };
        f.write_str(&describe(&separator, self.page, self.restart, self.ordinal))
    }
}

fn describe(separator: &Separator<'_>, page: u64, restart: u16, ordinal: u64) -> String {
    let mut key = String::with_capacity(2 * separator.key.len());
    for byte in separator.key {
        // Writing to a string does not fail.
        let _ = write!(key, "{byte:02x}");
    }
    let before = separator.before.map(|before| format!("before={before} ")).unwrap_or_default();
    format!("key=0x{key} {before}page={page} restart={restart} ordinal={ordinal}")
}

impl<W: Write> Leaves<W> {
    fn take(&mut self, role: Role, place: &Pivot<'_>) -> Result<(), Error> {
        match role {
            Role::Pivot => self.push(place),
            Role::Fence => {
                self.leaf.fence(&place.separator);
                Ok(())
            }
        }
    }

    fn push(&mut self, pivot: &Pivot<'_>) -> Result<(), Error> {
        if !self.leaf.push(pivot) {
            // Up to this pivot, whose page counts where it is inside.
            self.flush(pivot.page - u64::from(pivot.restart == 0))?;
            let fits = self.leaf.push(pivot);
            assert!(fits, "P4: a separator fits an empty leaf");
        }
        if self.leaf.is_single() {
            self.top.push(&pivot.separator);
        }
        self.pivots += 1;
        Ok(())
    }

    fn flush(&mut self, last_page: u64) -> Result<(), Error> {
        let mut page = [0; PAGE_SIZE];
        self.leaf.finish(&mut page, last_page);
        self.frame.write_page(&mut page)?;
        Ok(())
    }
}
