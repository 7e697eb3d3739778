//! The full check of a segment: every checksum, every order, every count.

use crate::bytes::u16_at;
use crate::checksum::is_sealed;
use crate::codec::PageBuf;
use crate::error::{Corruption, Error, Part, Reason};
use crate::file_bytes::FileBytes;
use crate::frame::{Frame, Kind, PAGE_SIZE};
use crate::key_buf::KeyBuf;
use crate::overflow::VALUE_INLINE_MAX;
use crate::page::{Page, Stored, damaged};
use crate::page_header::{PAGE_HEADER_LEN, STORED_LEN_AT};
use crate::segment::Segment;
use crate::step::BlockNumber;
use crate::summary::SegmentSummary;
use crate::walk::Walk;

/// What a pass over all entries counts, to be compared with the footer.
struct Pass {
    tally: SegmentSummary,
    /// The entry before, or `None` at the beginning.
    before: Option<(Vec<u8>, BlockNumber)>,
    key: KeyBuf,
    walk: Walk,
}

impl<D: FileBytes> Segment<D> {
    /// Reads the whole file and checks all that can be checked without its accessors.
    ///
    /// The content checksum, every page's checksum and form, the order of all entries, every value outside a page
    /// (checksum and decoding), every count and range of the footer, and that what is not used is zero. Believes
    /// nothing that was checked before.
    ///
    /// # Cost
    /// Reads everything twice, once for the content checksum; holds one page and one large value.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with the first damage found.
    pub fn verify(&self) -> Result<(), Error> {
        self.verify_with_progress(&mut |_| {})
    }

    /// The same. `on_progress` gets the number of bytes read since it was last called, at most twice the length of the file in all.
    ///
    /// # Errors
    /// As [`Segment::verify`].
    pub fn verify_with_progress(&self, on_progress: &mut dyn FnMut(u64)) -> Result<(), Error> {
        let data = self.data().as_ref();
        let frame = Frame::parse(data, Kind::Segment)?;
        let mut pass =
            Pass { tally: self.empty_tally(), before: None, key: KeyBuf::default(), walk: Walk::default() };
        let mut buf = PageBuf::default();
        for page in 0..self.summary().pages {
            let number = self.runs().file_page(page);
            let offset = number * PAGE_SIZE as u64;
            let bytes = &data[offset as usize..][..PAGE_SIZE];
            if !is_sealed(bytes, number, self.salt()) {
                return Err(damaged(offset, Reason::Checksum));
            }
            let stored_len = u16_at(bytes, STORED_LEN_AT).map_or(PAGE_SIZE, usize::from);
            let loaded = self.view(bytes, offset, &mut buf)?;
            if bytes[PAGE_HEADER_LEN + stored_len..].iter().any(|&byte| byte != 0) {
                return Err(damaged(offset, Reason::Field));
            }
            self.verify_page(&loaded.page(&buf), &mut pass)?;
            on_progress(PAGE_SIZE as u64);
        }
        for (from, to) in self.runs().paddings() {
            if data[from as usize..to as usize].iter().any(|&byte| byte != 0) {
                return Err(Corruption { part: Part::Overflow, offset: from, reason: Reason::Field }.into());
            }
        }
        if let Some((last_key, _)) = pass.before {
            pass.tally.last_key = last_key;
        } else {
            pass.tally.min_block = 0;
        }
        if pass.tally != *self.summary() {
            let offset = data.len() as u64 - PAGE_SIZE as u64;
            return Err(Corruption { part: Part::Footer, offset, reason: Reason::Count }.into());
        }
        // Last: it sees every damage and can name the place of none.
        frame.verify_content(data, on_progress)
    }

    fn empty_tally(&self) -> SegmentSummary {
        SegmentSummary {
            entries: 0,
            keys: 0,
            deletions: 0,
            min_block: BlockNumber::MAX,
            max_block: 0,
            first_key: Vec::new(),
            last_key: Vec::new(),
            key_bytes: 0,
            value_bytes: 0,
            overflow_values: 0,
            overflow_bytes: 0,
            ..self.summary().clone()
        }
    }

    fn verify_page(&self, page: &Page<'_>, pass: &mut Pass) -> Result<(), Error> {
        page.check_table()?;
        if page.shape.in_columns() {
            page.check_blobs()?;
        }
        pass.walk.start(page, 0, &mut pass.key)?;
        let mut count = 1;
        self.verify_entry(page, pass)?;
        while pass.walk.next(page, &mut pass.key)? {
            count += 1;
            self.verify_entry(page, pass)?;
        }
        if count == page.shape.count() { Ok(()) } else { Err(page.damaged(Reason::Count)) }
    }

    fn verify_entry(&self, page: &Page<'_>, pass: &mut Pass) -> Result<(), Error> {
        let (key, entry) = (&pass.key, pass.walk.entry());
        let block = entry.block;
        if page.shape.in_columns() {
            page.check_print(entry.next(), key)?;
        }
        let tally = &mut pass.tally;
        let is_new = match &mut pass.before {
            None => {
                tally.first_key = key.to_vec();
                pass.before = Some((key.to_vec(), block));
                true
            }
            Some((last_key, last_block)) => {
                let is_new = **last_key != **key;
                if **last_key > **key || (!is_new && *last_block <= block) {
                    return Err(page.damaged(Reason::Order));
                }
                last_key.clear();
                last_key.extend_from_slice(key);
                *last_block = block;
                is_new
            }
        };
        tally.entries += 1;
        tally.keys += u64::from(is_new);
        tally.key_bytes += key.len() as u64;
        tally.min_block = tally.min_block.min(block);
        tally.max_block = tally.max_block.max(block);
        match page.value(entry)? {
            Stored::Deletion => tally.deletions += 1,
            Stored::Inline(bytes) => {
                debug_assert!(bytes.len() <= VALUE_INLINE_MAX, "checked where the entry is decoded");
                tally.value_bytes += bytes.len() as u64;
            }
            Stored::Overflow(reference) => {
                // A builder stores values in the order of their entries, with nothing between.
                if reference.offset != tally.overflow_bytes {
                    return Err(page.damaged(Reason::Field));
                }
                self.blob(&reference, page)?.load()?;
                tally.overflow_values += 1;
                tally.overflow_bytes += u64::from(reference.stored_len);
                tally.value_bytes += u64::from(reference.raw_len);
            }
        }
        Ok(())
    }
}
