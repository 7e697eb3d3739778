//! What the footer of a `.kv` says of it: counts, ranges, and where the tables are.

use crate::bytes::{u16_at, u64_at};
use crate::codec::Encoding;
use crate::entry::KEY_LEN_MAX;
use crate::frame::{FileSummary, PAYLOAD_LEN_MAX};
use crate::overflow::{VALUE_INLINE_MAX, VALUE_LEN_MAX};
use crate::span::PAGE_ENTRIES_MAX;
use crate::step::{BlockNumber, StepRange};

pub(crate) const ENTRIES_AT: usize = 0;
pub(crate) const KEYS_AT: usize = 8;
pub(crate) const DELETIONS_AT: usize = 16;
pub(crate) const PAGES_AT: usize = 24;
pub(crate) const MIN_BLOCK_AT: usize = 32;
pub(crate) const MAX_BLOCK_AT: usize = 40;
pub(crate) const KEY_BYTES_AT: usize = 48;
pub(crate) const VALUE_BYTES_AT: usize = 56;
pub(crate) const OVERFLOW_VALUES_AT: usize = 64;
pub(crate) const OVERFLOW_BYTES_AT: usize = 72;
pub(crate) const RUN_TABLE_AT_AT: usize = 80;
pub(crate) const RUN_TABLE_LEN_AT: usize = 88;
pub(crate) const RUN_TABLE_SUM_AT: usize = 96;
pub(crate) const DICTIONARY_AT_AT: usize = 104;
pub(crate) const DICTIONARY_LEN_AT: usize = 112;
pub(crate) const DICTIONARY_SUM_AT: usize = 120;
pub(crate) const ENCODING_AT: usize = 128;
pub(crate) const FIRST_KEY_LEN_AT: usize = 130;
pub(crate) const LAST_KEY_LEN_AT: usize = 132;
pub(crate) const KEYS_FROM: usize = 134;

const _: () = assert!(KEYS_FROM + 2 * KEY_LEN_MAX <= PAYLOAD_LEN_MAX);

/// A finished segment, as its footer describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentSummary {
    /// Length and content checksum of the file.
    pub file: FileSummary,
    /// The domain whose versions it holds.
    pub domain: String,
    /// The steps it covers.
    pub steps: StepRange,
    /// The versions, deletions included.
    pub entries: u64,
    /// The distinct keys.
    pub keys: u64,
    /// The versions that are deletions.
    pub deletions: u64,
    /// The data pages.
    pub pages: u64,
    /// The lowest block of a version; 0 where there is none.
    pub min_block: BlockNumber,
    /// The highest block of a version; 0 where there is none.
    pub max_block: BlockNumber,
    /// The first key; empty where there is none.
    pub first_key: Vec<u8>,
    /// The last key; empty where there is none.
    pub last_key: Vec<u8>,
    /// How its pages are encoded.
    pub encoding: Encoding,
    /// The bytes of all keys, each counted once per version.
    pub key_bytes: u64,
    /// The bytes of all values, decoded.
    pub value_bytes: u64,
    /// The values that are outside their page.
    pub overflow_values: u64,
    /// The bytes that they take in the file, without padding.
    pub overflow_bytes: u64,
}

/// A structure of the file by its place, and the checksum of its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Located {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) checksum: u64,
}

/// The structures between the data pages and the footer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tables {
    pub(crate) runs: Located,
    pub(crate) dictionary: Located,
}

impl SegmentSummary {
    pub(crate) fn encode(&self, tables: &Tables) -> Vec<u8> {
        let mut payload = vec![0; KEYS_FROM];
        let mut put = |at: usize, value: u64| payload[at..at + 8].copy_from_slice(&value.to_le_bytes());
        put(ENTRIES_AT, self.entries);
        put(KEYS_AT, self.keys);
        put(DELETIONS_AT, self.deletions);
        put(PAGES_AT, self.pages);
        put(MIN_BLOCK_AT, self.min_block);
        put(MAX_BLOCK_AT, self.max_block);
        put(KEY_BYTES_AT, self.key_bytes);
        put(VALUE_BYTES_AT, self.value_bytes);
        put(OVERFLOW_VALUES_AT, self.overflow_values);
        put(OVERFLOW_BYTES_AT, self.overflow_bytes);
        put(RUN_TABLE_AT_AT, tables.runs.offset);
        put(RUN_TABLE_LEN_AT, tables.runs.len);
        put(RUN_TABLE_SUM_AT, tables.runs.checksum);
        put(DICTIONARY_AT_AT, tables.dictionary.offset);
        put(DICTIONARY_LEN_AT, tables.dictionary.len);
        put(DICTIONARY_SUM_AT, tables.dictionary.checksum);
        let mut put = |at: usize, value: u16| payload[at..at + 2].copy_from_slice(&value.to_le_bytes());
        put(ENCODING_AT, encoding_code(self.encoding));
        put(FIRST_KEY_LEN_AT, self.first_key.len() as u16);
        put(LAST_KEY_LEN_AT, self.last_key.len() as u16);
        payload.extend_from_slice(&self.first_key);
        payload.extend_from_slice(&self.last_key);
        payload
    }

    /// `None`: not what a builder writes.
    pub(crate) fn parse(
        payload: &[u8],
        file: FileSummary,
        domain: &str,
        steps: StepRange,
    ) -> Option<(Self, Tables)> {
        let field = |at| u64_at(payload, at);
        let located =
            |at: usize| Some(Located { offset: field(at)?, len: field(at + 8)?, checksum: field(at + 16)? });
        let tables = Tables { runs: located(RUN_TABLE_AT_AT)?, dictionary: located(DICTIONARY_AT_AT)? };
        let first_len = u16_at(payload, FIRST_KEY_LEN_AT)? as usize;
        let last_len = u16_at(payload, LAST_KEY_LEN_AT)? as usize;
        let (first, last) = payload.get(KEYS_FROM..)?.split_at_checked(first_len)?;
        let summary = Self {
            file,
            domain: domain.to_owned(),
            steps,
            entries: field(ENTRIES_AT)?,
            keys: field(KEYS_AT)?,
            deletions: field(DELETIONS_AT)?,
            pages: field(PAGES_AT)?,
            min_block: field(MIN_BLOCK_AT)?,
            max_block: field(MAX_BLOCK_AT)?,
            first_key: first.to_vec(),
            last_key: last.to_vec(),
            encoding: [Encoding::Plain, Encoding::Zstd]
                .into_iter()
                .find(|&encoding| u16_at(payload, ENCODING_AT) == Some(encoding_code(encoding)))?,
            key_bytes: field(KEY_BYTES_AT)?,
            value_bytes: field(VALUE_BYTES_AT)?,
            overflow_values: field(OVERFLOW_VALUES_AT)?,
            overflow_bytes: field(OVERFLOW_BYTES_AT)?,
        };
        let sound =
            last.len() == last_len && first_len.max(last_len) <= KEY_LEN_MAX && summary.counts_are_sound();
        sound.then_some((summary, tables))
    }

    /// Whether the counts can be those of a segment with this many pages.
    ///
    /// The pages are compared with the length of the file, so all that is computed from a count is bounded by it too.
    fn counts_are_sound(&self) -> bool {
        let Self { entries, pages, .. } = *self;
        let at_most = |count: u64, each: u64| count.saturating_mul(each);
        let inline_max = at_most(entries, VALUE_INLINE_MAX as u64);
        entries <= at_most(pages, PAGE_ENTRIES_MAX)
            && pages <= entries
            && self.keys <= entries
            && self.deletions <= entries
            && self.overflow_values <= entries
            && self.key_bytes <= at_most(entries, KEY_LEN_MAX as u64)
            && self.value_bytes <= inline_max.saturating_add(at_most(self.overflow_values, VALUE_LEN_MAX))
            && self.min_block <= self.max_block
    }
}

fn encoding_code(encoding: Encoding) -> u16 {
    match encoding {
        Encoding::Plain => 0,
        Encoding::Zstd => 1,
    }
}
