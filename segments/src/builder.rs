//! Builds a segment in one pass from entries in order.
//!
//! ```text
//! push --> [head: held back until the encoding is chosen] --> page being filled --> page --> file
//!   `- large value --> run being filled ---------------------------------------------> run --> file
//! ```
//!
//! A page is written when it is full, a run when it is; nothing is kept for later but the tables, which are tiny.

use std::io::Write;

use crate::bytes::shared_len;
use crate::checksum::{Checksum, crc64};
use crate::codec::{Choice, Encoding, EncodingRule, HEAD_LEN, PageFiller, choose};
use crate::entry::{Entry, KEY_LEN_MAX, Value, describe};
use crate::error::Error;
use crate::frame::{FileSummary, FrameWriter, Header, Kind};
use crate::overflow::{OverflowBuilder, encode_runs};
use crate::overflow::{VALUE_INLINE_MAX, VALUE_LEN_MAX};
use crate::page_builder::{Batch, Payload};
use crate::page_header::{CODE_DELETION, CODE_INLINE, CODE_OVERFLOW};
use crate::span::{Pivot, PivotSink, Separator};
use crate::step::{BlockNumber, StepRange};
use crate::summary::{Located, SegmentSummary, Tables};

/// Takes entries in order and writes a segment, in one pass and in memory that does not grow with it.
///
/// Holds the head ([`HEAD_LEN`], unless the rule is plain), the entries of a page, and an overflow run
/// ([`RUN_LEN`](crate::RUN_LEN)) with the largest value. The bytes are a function of the entries and the rule.
///
/// Dropped unfinished, it leaves bytes without a footer, which no reader opens.
pub struct SegmentBuilder<W: Write, P: PivotSink> {
    output: Output<W, P>,
    /// Entries that wait for the choice of an encoding.
    head: Option<Batch>,
    rule: EncodingRule,
    last_key: Vec<u8>,
    last_block: BlockNumber,
    overflow: OverflowBuilder,
    /// What compressed pages refer to; empty: nothing.
    dictionary: Vec<u8>,
    tally: SegmentSummary,
}

/// The part of a builder that is after the choice of the encoding.
struct Output<W: Write, P: PivotSink> {
    writer: FrameWriter<W>,
    pivots: P,
    filler: PageFiller,
    pages: u64,
    /// The entries in finished pages.
    entries: u64,
    /// The block of the last entry of the last finished page.
    before: Option<BlockNumber>,
}

impl<W: Write, P: PivotSink> SegmentBuilder<W, P> {
    /// Begins a segment of `domain` over `steps`: writes its header.
    ///
    /// `sink` gets pages one by one and is to be buffered by the caller; `pivots` gets every place where a
    /// lookup may start.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for the name of the domain, a failed write.
    pub fn new(
        sink: W,
        domain: &str,
        steps: StepRange,
        rule: EncodingRule,
        pivots: P,
    ) -> Result<Self, Error> {
        let header = Header::new(Kind::Segment, domain, steps)?;
        let writer = FrameWriter::new(sink, &header)?;
        let filler = PageFiller::plain();
        Ok(Self {
            output: Output { writer, pivots, filler, pages: 0, entries: 0, before: None },
            head: (rule != EncodingRule::Plain).then(Batch::default),
            rule,
            last_key: Vec::with_capacity(KEY_LEN_MAX),
            last_block: 0,
            overflow: OverflowBuilder::new()?,
            dictionary: Vec::new(),
            tally: SegmentSummary {
                file: FileSummary { len: 0, content: Checksum::default() },
                domain: domain.to_owned(),
                steps,
                entries: 0,
                keys: 0,
                deletions: 0,
                pages: 0,
                min_block: BlockNumber::MAX,
                max_block: 0,
                first_key: Vec::new(),
                last_key: Vec::new(),
                encoding: Encoding::Plain,
                key_bytes: 0,
                value_bytes: 0,
                overflow_values: 0,
                overflow_bytes: 0,
            },
        })
    }

    /// Takes the next entry: a greater key, or a lower block of the same key. Returns whether the key is a new one.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] and [`Error::TooLarge`] leave the builder as it was. After any other error (a damaged
    /// value that is copied from another segment, a failed write, the sink's own) it is to be dropped.
    pub fn push(&mut self, entry: Entry<'_>) -> Result<bool, Error> {
        let shared = self.check(&entry)?;
        let is_new = self.tally.entries == 0 || shared != entry.key.len();
        let value_len = entry.value.raw_len();
        let reference;
        let payload = match entry.value {
            Value::Deletion => Payload { code: CODE_DELETION, bytes: &[] },
            Value::Inline(bytes) if bytes.len() <= VALUE_INLINE_MAX => {
                Payload { code: bytes.len() as u16 + CODE_INLINE, bytes }
            }
            Value::Inline(bytes) => {
                reference = self.overflow.push(bytes)?.encode();
                Payload { code: CODE_OVERFLOW, bytes: &reference }
            }
            Value::Overflow(blob) => {
                reference = self.overflow.push_blob(&blob)?.encode();
                Payload { code: CODE_OVERFLOW, bytes: &reference }
            }
        };
        let tally = &mut self.tally;
        tally.entries += 1;
        tally.keys += u64::from(is_new);
        tally.deletions += u64::from(payload.code == CODE_DELETION);
        tally.overflow_values += u64::from(payload.code == CODE_OVERFLOW);
        tally.key_bytes += entry.key.len() as u64;
        tally.value_bytes += value_len;
        tally.min_block = tally.min_block.min(entry.block);
        tally.max_block = tally.max_block.max(entry.block);
        if tally.entries == 1 {
            tally.first_key = entry.key.to_vec();
        }
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&entry.key[shared..]);
        self.last_block = entry.block;
        let shared = shared as u16;
        if let Some(head) = &mut self.head {
            head.push(entry.key, shared, entry.block, payload);
            if head.byte_len() >= HEAD_LEN {
                self.release_head(false)?;
            }
        } else {
            self.output.push(entry.key, shared, entry.block, payload)?;
        }
        if self.overflow.is_run_full() {
            self.overflow.write_run(&mut self.output.writer, self.output.pages)?;
        }
        Ok(is_new)
    }

    /// The sink of the pivots.
    pub fn pivots(&mut self) -> &mut P {
        &mut self.output.pivots
    }

    /// Writes what is left, the tables and the footer; hands the writer and the sink back.
    ///
    /// # Errors
    /// A failed write, or the sink's own.
    pub fn finish(mut self) -> Result<(SegmentSummary, W, P), Error> {
        self.release_head(true)?;
        self.output.take_pages(true)?;
        let Output { mut writer, pivots, pages, .. } = self.output;
        self.overflow.write_run(&mut writer, pages)?;
        let mut summary = self.tally;
        summary.pages = pages;
        summary.last_key = self.last_key;
        summary.overflow_bytes = self.overflow.len();
        if summary.entries == 0 {
            summary.min_block = 0;
        }
        let mut write_table = |bytes: &[u8]| {
            let offset = writer.position();
            writer.write_raw(bytes)?;
            writer.pad()?;
            Ok::<_, Error>(Located { offset, len: bytes.len() as u64, checksum: crc64(bytes) })
        };
        let runs = write_table(&encode_runs(self.overflow.runs()))?;
        let dictionary = write_table(&self.dictionary)?;
        let payload = summary.encode(&Tables { runs, dictionary });
        let (file, sink) = writer.finish(Checksum::default(), &payload)?;
        summary.file = file;
        Ok((summary, sink, pivots))
    }

    /// Returns how many bytes the key shares with the one before.
    #[inline]
    fn check(&self, entry: &Entry<'_>) -> Result<usize, Error> {
        let too_large = |what, len, max| Err(Error::TooLarge { what, len, max });
        if entry.key.len() > KEY_LEN_MAX {
            return too_large("key", entry.key.len() as u64, KEY_LEN_MAX as u64);
        }
        if entry.value.raw_len() > VALUE_LEN_MAX {
            return too_large("value", entry.value.raw_len(), VALUE_LEN_MAX);
        }
        if self.tally.entries == 0 {
            return Ok(0);
        }
        let shared = shared_len(&self.last_key, entry.key);
        let in_order = match (self.last_key.get(shared), entry.key.get(shared)) {
            (None, None) => entry.block < self.last_block,
            (last, next) => last < next,
        };
        if !in_order {
            return Err(Error::OutOfOrder {
                previous: describe(&self.last_key, self.last_block),
                got: describe(entry.key, entry.block),
            });
        }
        Ok(shared)
    }

    /// Chooses the encoding and lets go of the entries that waited for it.
    fn release_head(&mut self, whole: bool) -> Result<(), Error> {
        let Some(head) = self.head.take() else { return Ok(()) };
        let Choice { encoding, dictionary } = choose(self.rule, &head, whole)?;
        self.tally.encoding = encoding;
        if encoding == Encoding::Zstd {
            self.output.filler = PageFiller::zstd(&dictionary)?;
        }
        self.dictionary = dictionary;
        for slot in head.slots() {
            self.output.push(head.key(slot), slot.shared, slot.block, head.payload(slot))?;
        }
        Ok(())
    }
}

impl<W: Write, P: PivotSink> Output<W, P> {
    #[inline]
    fn push(&mut self, key: &[u8], shared: u16, block: BlockNumber, value: Payload<'_>) -> Result<(), Error> {
        self.filler.entries.push(key, shared, block, value);
        self.take_pages(false)
    }

    #[inline]
    fn take_pages(&mut self, flush: bool) -> Result<(), Error> {
        while let Some(count) = self.filler.take_page(flush)? {
            self.finish_page(count)?;
        }
        Ok(())
    }

    /// Writes the page that the filler made of its first `count` entries and offers its pivots.
    fn finish_page(&mut self, count: usize) -> Result<(), Error> {
        self.writer.write_page(&mut self.filler.page)?;
        let entries = &self.filler.entries;
        let batch = entries.batch();
        let mut restart = 0;
        for (index, slot) in batch.slots()[..count].iter().enumerate() {
            if !entries.is_restart(index, count) {
                continue;
            }
            let before = match index.checked_sub(1) {
                Some(last) => Some(batch.slots()[last].block),
                None => self.before,
            };
            let separator = match before {
                Some(before) => separator(batch.key(slot), slot.shared as usize, before),
                None => Separator { key: &[], before: None },
            };
            let (page, ordinal) = (self.pages, self.entries + index as u64);
            self.pivots.pivot(&Pivot { separator, page, restart, ordinal })?;
            restart += 1;
        }
        self.before = batch.slots()[..count].last().map(|slot| slot.block);
        self.pages += 1;
        self.entries += count as u64;
        self.filler.advance(count);
        Ok(())
    }
}

/// The boundary in front of an entry whose key shares `shared` bytes with the key before, at block `before`.
#[inline]
pub(crate) fn separator(key: &[u8], shared: usize, before: BlockNumber) -> Separator<'_> {
    if shared == key.len() {
        Separator { key, before: Some(before) }
    } else {
        Separator { key: &key[..=shared], before: None }
    }
}
