//! The two encodings of pages, and the choice between them.
//!
//! A `plain` page is a body of columns. A `zstd` page is a larger body whose compressed form fills the page: the
//! number of entries is found by predicting the ratio from the page before and a few trials. The choice between the
//! two, and whether a dictionary pays, is made once per segment by encoding its first entries both ways.

use zstd::zstd_safe::{CCtx, CParameter, DCtx, DDict, DParameter, FrameFormat};

use crate::error::{Error, Reason};
use crate::frame::PAGE_SIZE;
use crate::overflow::zstd_error;
use crate::page::damaged;
use crate::page_builder::{Batch, Layout, PageBuilder};
use crate::page_header::{COMPRESSED, PAGE_HEADER_LEN, PAGE_RAW_LEN_MAX, PageHeader, STORED_LEN_MAX};

/// How the pages of a segment are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Every page is searched in place.
    Plain,
    /// Pages are compressed where that puts more entries into them.
    Zstd,
}

/// How a builder chooses the encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodingRule {
    /// Plain, whatever it costs: the fastest to read and to write.
    Plain,
    /// Compressed, as small as possible.
    Zstd,
    /// Compressed where the first entries say that it saves at least [`AUTO_SAVING_PERCENT`].
    Auto,
}

/// What compression has to save, in percent of the pages, before [`EncodingRule::Auto`] chooses it.
///
/// A lookup in a compressed page costs 10 to 30 us of decoding where a plain one costs 0.1 us, so a few percent are not
/// worth it: the reference dataset, mostly random bytes, would save 1 %; real state saves 41 %.
pub const AUTO_SAVING_PERCENT: u64 = 8;

/// The bytes of keys and values that a builder holds back to train a dictionary and to choose.
pub const HEAD_LEN: usize = 1 << 20;

/// The longest dictionary, in bytes.
pub(crate) const DICTIONARY_LEN_MAX: usize = 16 << 10;

/// A head shorter than this trains no dictionary.
const TRAINING_LEN_MIN: usize = 64 << 10;

/// What a dictionary has to save, in percent of the pages, on entries that it was not trained on.
///
/// It pays where long strings recur from page to page and not within one; in neither of the two sets named
/// at [`LEVEL`] does it.
const DICTIONARY_SAVING_PERCENT: u64 = 2;

/// The compression level of pages, whatever the rule.
///
/// Pages of `git-pebble` (30,481 entries): plain 332, level 3 194, level 9 193, level 19 191, the last at a tenth of the
/// speed. Storage changes of `eth-mainnet-bal` (22,243 entries): plain 286, level 3 168.
const LEVEL: i32 = 3;

/// How many times a page is compressed at most before the best of them is taken.
const TRIALS_MAX: usize = 4;

/// A compressed page is full when at most this share of it is free: one part in this many.
const SLACK: usize = 64;

/// The most entries of a page: what its count can say, the last value kept for other use.
const COUNT_MAX: usize = u16::MAX as usize - 1;

/// How many entries a page boundary may slide back to where its separator is shorter.
const SLIDE_MAX: usize = 8;

/// A byte of a separator, kept in memory by an index, weighs as much as this many bytes of a data page.
///
/// On the reference dataset this wastes 0.02 B an entry and takes 4 B of 26 from the separator of a page.
const SEPARATOR_WEIGHT: usize = 4;

/// Fills pages: takes entries, gives encoded pages.
pub(crate) struct PageFiller {
    pub(crate) entries: PageBuilder,
    compressor: Option<Compressor>,
    /// The page last finished, all but its checksum.
    pub(crate) page: Vec<u8>,
    spare: Batch,
}

/// The state of compression from page to page.
struct Compressor {
    context: CCtx<'static>,
    /// The length of a body that should fill a page, by the page before.
    target: usize,
    /// How long the gathered body must be before the next try.
    wanted: usize,
    body: Vec<u8>,
    trial: Vec<u8>,
}

impl PageFiller {
    pub(crate) fn plain() -> Self {
        let page = Vec::with_capacity(2 * PAGE_SIZE);
        let entries = PageBuilder::new(Layout::Columns);
        Self { entries, compressor: None, page, spare: Batch::default() }
    }

    pub(crate) fn zstd(dictionary: &[u8]) -> Result<Self, Error> {
        let compressor = Some(Compressor::new(dictionary)?);
        Ok(Self { compressor, entries: PageBuilder::new(Layout::Rows), ..Self::plain() })
    }

    /// Encodes a page if enough entries are gathered, or if `flush` and any are: `page` then holds it.
    /// Returns how many entries it has; the caller calls [`PageFiller::advance`] when done with them.
    pub(crate) fn take_page(&mut self, flush: bool) -> Result<Option<usize>, Error> {
        let len = self.entries.len();
        if len == 0 {
            return Ok(None);
        }
        let Some(mut compressor) = self.compressor.take() else {
            if !flush && self.entries.body_len(len) <= STORED_LEN_MAX {
                return Ok(None);
            }
            return Ok(Some(self.take_plain()));
        };
        let taken = self.take_compressed(&mut compressor, flush);
        self.compressor = Some(compressor);
        taken
    }

    pub(crate) fn advance(&mut self, count: usize) {
        self.entries.advance(count, &mut self.spare);
    }

    fn take_plain(&mut self) -> usize {
        let fitting = self.entries.count_within(STORED_LEN_MAX);
        let count = self.slide(fitting, 1);
        self.encode_plain(count);
        count
    }

    fn encode_plain(&mut self, count: usize) {
        self.page.clear();
        self.page.resize(PAGE_HEADER_LEN, 0);
        let form = self.entries.encode(count, &mut self.page);
        let raw_len = self.page.len() - PAGE_HEADER_LEN;
        self.page.resize(PAGE_SIZE, 0);
        PageHeader { form, stored_len: raw_len, raw_len, count }.encode(&mut self.page);
    }

    /// Moves the boundary of a page back where that makes the separator shorter than it wastes of the page.
    /// `ratio` is how many bytes of a body take one byte of a page.
    fn slide(&self, count: usize, ratio: usize) -> usize {
        let slots = self.entries.batch().slots();
        let Some(boundary) = slots.get(count) else { return count };
        let full_len = self.entries.body_len(count);
        let mut best = (SEPARATOR_WEIGHT * boundary.shared as usize, count);
        for at in (1..count).rev().take(SLIDE_MAX) {
            let wasted = (full_len - self.entries.body_len(at)) / ratio;
            let cost = wasted + SEPARATOR_WEIGHT * slots[at].shared as usize;
            if cost < best.0 {
                best = (cost, at);
            }
        }
        best.1
    }

    fn take_compressed(&mut self, compressor: &mut Compressor, flush: bool) -> Result<Option<usize>, Error> {
        let len = self.entries.len().min(COUNT_MAX);
        let most = self.entries.count_within(PAGE_RAW_LEN_MAX).min(len);
        let full = most < self.entries.len();
        if !flush && !full && self.entries.body_len(len) < compressor.wanted {
            return Ok(None);
        }
        let (mut fitting, mut too_many, mut fitting_len) = (0, most + 1, 0);
        let mut count = self.entries.count_within(compressor.target).clamp(1, most);
        for _ in 0..TRIALS_MAX {
            let raw_len = self.entries.body_len(count);
            let stored_len = compressor.compress(&self.entries, count)?;
            // What would fill the page at the same ratio; a little less where it did not fit.
            let mut filling = raw_len * STORED_LEN_MAX / stored_len.max(1);
            if stored_len <= STORED_LEN_MAX {
                (fitting, fitting_len) = (count, stored_len);
                compressor.keep_trial(&mut self.page);
            } else {
                too_many = count;
                filling -= filling / (2 * SLACK);
            }
            if fitting == most && !full && !flush && fitting_len + STORED_LEN_MAX / SLACK < STORED_LEN_MAX {
                compressor.wanted = (filling + filling / 16).min(PAGE_RAW_LEN_MAX);
                compressor.target = filling;
                return Ok(None);
            }
            let next = self.entries.count_within(filling).clamp(fitting + 1, (too_many - 1).max(fitting + 1));
            let full_enough = fitting_len + STORED_LEN_MAX / SLACK >= STORED_LEN_MAX;
            if next >= too_many || full_enough {
                break;
            }
            count = next;
        }
        let plain = self.entries.count_within(STORED_LEN_MAX).min(most);
        if fitting <= plain {
            compressor.expect(STORED_LEN_MAX);
            return Ok(Some(self.take_plain()));
        }
        let raw_len = self.entries.body_len(fitting);
        compressor.expect(raw_len * STORED_LEN_MAX / fitting_len.max(1));
        let slid = self.slide(fitting, raw_len / STORED_LEN_MAX + 1);
        if slid < fitting && compressor.compress(&self.entries, slid)? <= STORED_LEN_MAX {
            compressor.keep_trial(&mut self.page);
            return Ok(Some(slid));
        }
        Ok(Some(fitting))
    }
}

impl Compressor {
    fn new(dictionary: &[u8]) -> Result<Self, Error> {
        let mut context = CCtx::create();
        for parameter in [
            CParameter::CompressionLevel(LEVEL),
            // The page header says what these would.
            CParameter::Format(FrameFormat::Magicless),
            CParameter::ContentSizeFlag(false),
            CParameter::ChecksumFlag(false),
            CParameter::DictIdFlag(false),
        ] {
            context.set_parameter(parameter).map_err(zstd_error)?;
        }
        if !dictionary.is_empty() {
            context.load_dictionary(dictionary).map_err(zstd_error)?;
        }
        let mut this = Self { context, target: 0, wanted: 0, body: Vec::new(), trial: Vec::new() };
        this.expect(STORED_LEN_MAX * 3 / 2);
        Ok(this)
    }

    /// Sets what the next page should take.
    fn expect(&mut self, raw_len: usize) {
        self.target = raw_len.min(PAGE_RAW_LEN_MAX);
        self.wanted = (raw_len + raw_len / 16).min(PAGE_RAW_LEN_MAX);
    }

    /// Compresses a body of `count` entries and returns its length, or more than fits where it does not fit.
    fn compress(&mut self, entries: &PageBuilder, count: usize) -> Result<usize, Error> {
        self.body.clear();
        let mut form = entries.encode(count, &mut self.body);
        form.flags |= COMPRESSED;
        self.trial.clear();
        self.trial.resize(PAGE_HEADER_LEN + zstd::zstd_safe::compress_bound(self.body.len()), 0);
        let compressed = self.context.compress2(&mut self.trial[PAGE_HEADER_LEN..], &self.body);
        let stored_len = compressed.map_err(zstd_error)?;
        let header = PageHeader { form, stored_len, raw_len: self.body.len(), count };
        self.trial.resize(PAGE_HEADER_LEN + stored_len, 0);
        header.encode(&mut self.trial);
        Ok(stored_len)
    }

    /// Makes the last trial the page.
    fn keep_trial(&mut self, page: &mut Vec<u8>) {
        std::mem::swap(page, &mut self.trial);
        page.resize(PAGE_SIZE, 0);
    }
}

/// What the first entries of a segment decide.
pub(crate) struct Choice {
    pub(crate) encoding: Encoding,
    /// Empty: none.
    pub(crate) dictionary: Vec<u8>,
}

/// Chooses by encoding the head both ways. `whole`: the head is all there is.
pub(crate) fn choose(rule: EncodingRule, head: &Batch, whole: bool) -> Result<Choice, Error> {
    let plain = Choice { encoding: Encoding::Plain, dictionary: Vec::new() };
    if rule == EncodingRule::Plain || head.len() == 0 {
        return Ok(plain);
    }
    // The last quarter is what a dictionary trained on the others is judged by.
    let training = if whole { head.len() } else { head.len() - head.len() / 4 };
    let mut dictionary = train(head, training);
    let judged = if whole { 0..head.len() } else { training..head.len() };
    let without = count_pages(&mut PageFiller::zstd(&[])?, head, judged.clone())?;
    let mut pages = without;
    if !dictionary.is_empty() {
        let with = count_pages(&mut PageFiller::zstd(&dictionary)?, head, judged.clone())?;
        let cost = if whole { dictionary.len().div_ceil(PAGE_SIZE) as u64 } else { 0 };
        if (with + cost) * 100 <= without * (100 - DICTIONARY_SAVING_PERCENT) {
            pages = with + cost;
        } else {
            dictionary.clear();
        }
    }
    let plain_pages = count_pages(&mut PageFiller::plain(), head, judged)?;
    if rule == EncodingRule::Auto && pages * 100 > plain_pages * (100 - AUTO_SAVING_PERCENT) {
        return Ok(plain);
    }
    Ok(Choice { encoding: Encoding::Zstd, dictionary })
}

/// Trains a dictionary on page bodies of the first `count` entries. Empty where there is too little or nothing to learn.
fn train(head: &Batch, count: usize) -> Vec<u8> {
    let (mut samples, mut lens) = (Vec::new(), Vec::new());
    let mut entries = PageBuilder::new(Layout::Rows);
    let mut spare = Batch::default();
    for slot in &head.slots()[..count] {
        entries.push(head.key(slot), slot.shared, slot.block, head.payload(slot));
        if entries.body_len(entries.len()) > STORED_LEN_MAX {
            let start = samples.len();
            let fitting = entries.count_within(STORED_LEN_MAX);
            entries.encode(fitting, &mut samples);
            lens.push(samples.len() - start);
            entries.advance(fitting, &mut spare);
        }
    }
    if samples.len() < TRAINING_LEN_MIN {
        return Vec::new();
    }
    let len = DICTIONARY_LEN_MAX.min(samples.len() / 16);
    zstd::dict::from_continuous(&samples, &lens, len).unwrap_or_default()
}

fn count_pages(filler: &mut PageFiller, head: &Batch, range: std::ops::Range<usize>) -> Result<u64, Error> {
    let mut pages = 0;
    let slots = &head.slots()[range];
    for (index, slot) in slots.iter().enumerate() {
        filler.entries.push(head.key(slot), slot.shared, slot.block, head.payload(slot));
        while let Some(count) = filler.take_page(index + 1 == slots.len())? {
            pages += 1;
            filler.advance(count);
        }
    }
    Ok(pages)
}

/// Memory to decode pages into, to be used again: at most [`PAGE_RAW_LEN_MAX`] bytes and a decoder.
#[derive(Default)]
pub struct PageBuf {
    raw: Vec<u8>,
    raw_len: usize,
    context: Option<DCtx<'static>>,
}

impl PageBuf {
    /// The body decoded last.
    #[inline]
    pub(crate) fn body(&self) -> &[u8] {
        &self.raw[..self.raw_len]
    }

    /// Decodes a compressed body; `offset` is its page's, for errors.
    pub(crate) fn decode(
        &mut self,
        stored: &[u8],
        raw_len: usize,
        dictionary: Option<&DDict<'static>>,
        offset: u64,
    ) -> Result<(), Error> {
        let context = match &mut self.context {
            Some(context) => context,
            empty => {
                let mut context = DCtx::create();
                let format = DParameter::Format(FrameFormat::Magicless);
                context.set_parameter(format).map_err(zstd_error)?;
                empty.insert(context)
            }
        };
        self.raw.resize(PAGE_RAW_LEN_MAX, 0);
        self.raw_len = 0;
        let raw = &mut self.raw[..raw_len];
        let decoded = match dictionary {
            Some(dictionary) => context.decompress_using_ddict(raw, stored, dictionary),
            None => context.decompress(raw, stored),
        };
        if decoded != Ok(raw_len) {
            return Err(damaged(offset, Reason::Decode));
        }
        self.raw_len = raw_len;
        Ok(())
    }
}
