//! Gathers entries and encodes as many of them as fit as the body of a page.
//!
//! Nothing is encoded until a page is closed: the builder keeps, for every number of entries, the
//! length that a body of exactly those would have. So a page of another key length, a shorter common prefix or a
//! page boundary a few entries earlier costs no second try, and a compressed page can ask for any number.

use crate::bytes::{put_varint, varint_len, zigzag};
use crate::cells::{Cell, Cells};
use crate::fingerprint::fingerprint;
use crate::page::head;
use crate::page_header::{
    BASE_AT, BODY_HEADER_LEN, CODE_INLINE, CODE_OVERFLOW, COLUMNS, FIXED_LEN, Form, KEY_LEN_AT, KINDS,
    ONE_BLOCK, ONE_KEY, PREFIX_LEN_AT, RESTART_LEN, RESTARTS_AT, WIDE,
};
use crate::step::BlockNumber;

/// A group of entries after a restart has at least this many.
const GROUP_MIN: usize = 8;
/// And about this many, where nothing speaks for another place.
pub(crate) const GROUP_IDEAL: usize = 14;
/// And at most this many.
const GROUP_MAX: usize = 24;
/// A byte that a restart repeats weighs as much as this many entries of distance from the ideal place.
///
/// The reference dataset takes 36.9 B an entry this way, and 37.6 with a restart at every 14th entry.
const REPEATED_WEIGHT: usize = 2;

/// A value as it goes into a page: its code and the bytes after it.
#[derive(Clone, Copy)]
pub(crate) struct Payload<'a> {
    pub(crate) code: u16,
    pub(crate) bytes: &'a [u8],
}

/// One entry of a batch: key and value are one after the other in the arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    start: u32,
    pub(crate) key_len: u16,
    value_len: u16,
    code: u16,
    /// The bytes shared with the key of the entry before, be that in this batch or not.
    pub(crate) shared: u16,
    pub(crate) block: BlockNumber,
}

/// Entries in memory, in order.
#[derive(Default)]
pub(crate) struct Batch {
    arena: Vec<u8>,
    slots: Vec<Slot>,
}

impl Batch {
    pub(crate) fn push(&mut self, key: &[u8], shared: u16, block: BlockNumber, value: Payload<'_>) {
        let start = self.arena.len() as u32;
        self.arena.extend_from_slice(key);
        self.arena.extend_from_slice(value.bytes);
        let (key_len, value_len) = (key.len() as u16, value.bytes.len() as u16);
        self.slots.push(Slot { start, key_len, value_len, code: value.code, shared, block });
    }

    pub(crate) fn clear(&mut self) {
        self.arena.clear();
        self.slots.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The bytes of all keys and values.
    pub(crate) fn byte_len(&self) -> usize {
        self.arena.len()
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    #[inline]
    pub(crate) fn key(&self, slot: &Slot) -> &[u8] {
        &self.arena[slot.start as usize..][..slot.key_len as usize]
    }

    #[inline]
    pub(crate) fn payload(&self, slot: &Slot) -> Payload<'_> {
        let start = slot.start as usize + slot.key_len as usize;
        Payload { code: slot.code, bytes: &self.arena[start..][..slot.value_len as usize] }
    }
}

/// How the entries of a body lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One after the other, each in one piece: what a compressed page holds.
    #[default]
    Rows,
    /// What a lookup asks of every entry in columns: what is searched in place.
    Columns,
}

/// What a page of the entries up to one of them would be.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// The length of the body.
    body_len: u32,
    /// The key bytes common to all of them.
    prefix_len: u16,
    /// From how many entries in the page on this one is a restart; never, where it is the maximum.
    restart_from: u16,
}

const NEVER: u16 = u16::MAX;

/// The longest key and value, taken together, whose lengths are sure to fit cells of one byte.
const NARROW_MAX: usize = u8::MAX as usize;

/// The entries of the page that is being filled, and a few of the next.
#[derive(Default)]
pub(crate) struct PageBuilder {
    layout: Layout,
    batch: Batch,
    marks: Vec<Mark>,
    prefix_len: usize,
    restarts: usize,
    last_restart: usize,
    /// The best place for the next restart so far: its cost and the entry.
    candidate: Option<(usize, usize)>,
    /// How many entries from the first on have the same key length, and the same block.
    fixed_count: usize,
    one_block_count: usize,
    /// From which entry on the cells of lengths are wide, and a column of kinds is needed.
    wide_from: usize,
    kinds_from: usize,
    min_block: BlockNumber,
    max_block: BlockNumber,
    /// Lengths summed: suffixes and values, what restarts repeat of the former; in rows the numbers of every entry, the
    /// suffix lengths, the block deltas.
    blobs_len: usize,
    repeated_len: usize,
    numbers_len: usize,
    suffix_lens_len: usize,
    blocks_len: usize,
}

impl PageBuilder {
    pub(crate) fn new(layout: Layout) -> Self {
        Self { layout, ..Self::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.batch.len()
    }

    pub(crate) fn batch(&self) -> &Batch {
        &self.batch
    }

    /// The length of the body of the first `count` entries. An upper bound that is exact for keys below 128 bytes.
    pub(crate) fn body_len(&self, count: usize) -> usize {
        count.checked_sub(1).map_or(0, |last| self.marks[last].body_len as usize)
    }

    /// The most entries whose body has at most `len` bytes.
    pub(crate) fn count_within(&self, len: usize) -> usize {
        self.marks.partition_point(|mark| mark.body_len as usize <= len)
    }

    /// Takes the next entry.
    pub(crate) fn push(&mut self, key: &[u8], shared: u16, block: BlockNumber, value: Payload<'_>) {
        let index = self.batch.len();
        let (key_len, value_len) = (key.len(), value.bytes.len());
        let before = self.batch.slots().last().copied();
        self.batch.push(key, shared, block, value);
        let shared = if let Some(before) = before {
            self.prefix_len = self.prefix_len.min(shared as usize);
            if self.fixed_count == index && before.key_len as usize == key_len {
                self.fixed_count += 1;
            }
            if self.one_block_count == index && before.block == block {
                self.one_block_count += 1;
            }
            self.blocks_len += delta_len(before.block, block);
            shared as usize
        } else {
            (self.prefix_len, self.restarts, self.last_restart) = (key_len, 1, 0);
            (self.fixed_count, self.one_block_count) = (1, 1);
            (self.wide_from, self.kinds_from) = (usize::MAX, usize::MAX);
            (self.min_block, self.max_block) = (block, block);
            self.blocks_len = delta_len(block, block);
            0
        };
        let suffix_len = key_len - shared;
        let code_len = if value.code < 0x80 { 1 } else { 2 };
        self.blobs_len += suffix_len + value_len;
        self.numbers_len += varint_len(shared as u64) + code_len;
        if key_len + value_len > NARROW_MAX {
            self.wide_from = self.wide_from.min(index);
        }
        // Without kinds an empty value is a deletion.
        if value.code == CODE_OVERFLOW || value.code == CODE_INLINE {
            self.kinds_from = self.kinds_from.min(index);
        }
        (self.min_block, self.max_block) = (self.min_block.min(block), self.max_block.max(block));
        self.suffix_lens_len += varint_len(suffix_len as u64);
        let restart_from = if index == 0 { 0 } else { NEVER };
        self.marks.push(Mark { body_len: 0, prefix_len: 0, restart_from });
        self.consider_restart(index, shared);
        let mark = &mut self.marks[index];
        mark.prefix_len = self.prefix_len as u16;
        mark.body_len = 0;
        let len = self.current_body_len();
        self.marks[index].body_len = len as u32;
    }

    /// Forgets the first `count` entries; the others become the beginning of the next page.
    pub(crate) fn advance(&mut self, count: usize, spare: &mut Batch) {
        spare.clear();
        std::mem::swap(&mut self.batch, spare);
        self.marks.clear();
        (self.blobs_len, self.repeated_len) = (0, 0);
        (self.numbers_len, self.suffix_lens_len) = (0, 0);
        self.candidate = None;
        for slot in &spare.slots()[count..] {
            self.push(spare.key(slot), slot.shared, slot.block, spare.payload(slot));
        }
    }

    fn current_body_len(&self) -> usize {
        let count = self.batch.len();
        // What restarts share with the entry before was counted as repeated; the prefix of each is not.
        let blobs_len = self.blobs_len + self.repeated_len - self.restarts * self.prefix_len;
        let len = BODY_HEADER_LEN + self.prefix_len + blobs_len;
        if self.layout == Layout::Columns {
            let form = self.form_of(count, self.prefix_len, self.max_block - self.min_block);
            return len + form.restart_len() * self.restarts + form.cells_len() * count;
        }
        let mut len = len + RESTART_LEN * self.restarts + self.numbers_len;
        if self.fixed_count < count {
            len += self.suffix_lens_len;
        }
        if self.one_block_count < count {
            len += self.blocks_len;
        }
        len
    }

    /// The form of a page of the first `count` entries.
    fn form(&self, count: usize) -> Form {
        let prefix_len = self.marks[count - 1].prefix_len as usize;
        let blocks = || self.batch.slots()[..count].iter().map(|slot| slot.block);
        let blocks = blocks().max().unwrap_or_default() - blocks().min().unwrap_or_default();
        self.form_of(count, prefix_len, blocks)
    }

    /// The same, where the keys of the entries are known to have a prefix of this length in common, and their blocks to be in a
    /// range of this one.
    fn form_of(&self, count: usize, prefix_len: usize, blocks: u64) -> Form {
        let mut flags = u8::from(self.fixed_count >= count) * FIXED_LEN;
        if self.layout == Layout::Rows {
            flags |= u8::from(self.one_block_count >= count) * ONE_BLOCK;
            return Form { flags, block_width: 0 };
        }
        flags |= COLUMNS;
        flags |= u8::from(self.wide_from < count) * WIDE;
        flags |= u8::from(self.kinds_from < count) * KINDS;
        let is_one_key = self.fixed_count >= count && prefix_len == self.batch.slots()[0].key_len as usize;
        flags |= u8::from(is_one_key) * ONE_KEY;
        Form { flags, block_width: (u64::BITS - blocks.leading_zeros()).div_ceil(8) as u8 }
    }

    /// Slides restarts to where they repeat little, between the bounds of a group.
    fn consider_restart(&mut self, index: usize, shared: usize) {
        let distance = index - self.last_restart;
        if distance < GROUP_MIN {
            return;
        }
        let cost = REPEATED_WEIGHT * shared + distance.abs_diff(GROUP_IDEAL);
        let (best_cost, best) = match self.candidate {
            Some(best) if best.0 <= cost => best,
            _ => (cost, index),
        };
        self.candidate = Some((best_cost, best));
        let bound = REPEATED_WEIGHT * self.prefix_len + (distance + 1).saturating_sub(GROUP_IDEAL);
        if distance >= GROUP_MAX || (distance >= GROUP_IDEAL && best_cost <= bound) {
            self.commit_restart(best, index + 1);
        }
    }

    fn commit_restart(&mut self, at: usize, count: usize) {
        let slots = self.batch.slots();
        let (slot, before, base) = (slots[at], slots[at - 1], slots[0].block);
        self.repeated_len += slot.shared as usize;
        let suffix_len = u64::from(slot.key_len - slot.shared);
        self.suffix_lens_len += varint_len(u64::from(slot.key_len)) - varint_len(suffix_len);
        self.blocks_len += delta_len(base, slot.block);
        self.blocks_len -= delta_len(before.block, slot.block);
        self.marks[at].restart_from = count as u16;
        self.restarts += 1;
        self.last_restart = at;
        self.candidate = None;
        // Entries since the new restart may already be candidates for the one after it.
        for index in at + GROUP_MIN..count {
            let distance = index - at;
            let cost = REPEATED_WEIGHT * self.batch.slots()[index].shared as usize;
            let cost = cost + distance.abs_diff(GROUP_IDEAL);
            if self.candidate.is_none_or(|best| cost < best.0) {
                self.candidate = Some((cost, index));
            }
        }
    }

    /// Whether the entry begins a group in a page of the first `count` entries.
    pub(crate) fn is_restart(&self, index: usize, count: usize) -> bool {
        self.marks[index].restart_from as usize <= count
    }

    /// Appends the body of the first `count` entries to `out` and returns the page's form.
    pub(crate) fn encode(&self, count: usize, out: &mut Vec<u8>) -> Form {
        let slots = &self.batch.slots()[..count];
        let prefix_len = self.marks[count - 1].prefix_len as usize;
        let form = self.form(count);
        let restarts = (0..count).filter(|&index| self.is_restart(index, count)).count();
        let first = &slots[0];
        let base = match self.layout {
            Layout::Rows => first.block,
            Layout::Columns => slots.iter().map(|slot| slot.block).min().unwrap_or_default(),
        };
        let key_len = if form.has(FIXED_LEN) { first.key_len } else { 0 };
        let start = out.len();
        let table_at = start + BODY_HEADER_LEN + form.cells_len() * count;
        out.resize(table_at + form.restart_len() * restarts, 0);
        let front = &mut out[start..];
        front[RESTARTS_AT..][..2].copy_from_slice(&(restarts as u16).to_le_bytes());
        front[PREFIX_LEN_AT..][..2].copy_from_slice(&(prefix_len as u16).to_le_bytes());
        front[KEY_LEN_AT..][..2].copy_from_slice(&key_len.to_le_bytes());
        front[BASE_AT..][..8].copy_from_slice(&base.to_le_bytes());
        out.extend_from_slice(&self.batch.key(first)[..prefix_len]);
        let body = Body { form, prefix_len, base, restarts, table_at };
        match self.layout {
            Layout::Rows => self.encode_rows(count, &body, out),
            Layout::Columns => self.encode_columns(count, &body, out),
        }
        debug_assert!(out.len() - start <= self.body_len(count), "the length kept is an upper bound");
        form
    }

    fn encode_rows(&self, count: usize, body: &Body, out: &mut Vec<u8>) {
        let (entries_at, mut table_at, mut before) = (out.len(), body.table_at, body.base);
        for (index, slot) in self.batch.slots()[..count].iter().enumerate() {
            let (key, value) = (self.batch.key(slot), self.batch.payload(slot));
            let mut shared = slot.shared as usize;
            if self.is_restart(index, count) {
                (shared, before) = (body.prefix_len, body.base);
                let offset = (out.len() - entries_at) as u16;
                out[table_at..][..2].copy_from_slice(&offset.to_le_bytes());
                out[table_at + 2..][..2].copy_from_slice(&head(&key[shared..]).to_be_bytes());
                table_at += RESTART_LEN;
            }
            put_varint(out, (shared - body.prefix_len) as u64);
            if !body.form.has(FIXED_LEN) {
                put_varint(out, (key.len() - shared) as u64);
            }
            out.extend_from_slice(&key[shared..]);
            if !body.form.has(ONE_BLOCK) {
                put_varint(out, zigzag(slot.block.wrapping_sub(before) as i64));
            }
            put_varint(out, u64::from(value.code));
            out.extend_from_slice(value.bytes);
            before = slot.block;
        }
    }

    fn encode_columns(&self, count: usize, body: &Body, out: &mut Vec<u8>) {
        let mut cells = Cells::new(body.form, count, body.table_at - body.form.cells_len() * count);
        let (entries_at, mut table_at) = (out.len(), body.table_at);
        for (index, slot) in self.batch.slots()[..count].iter().enumerate() {
            let (key, value) = (self.batch.key(slot), self.batch.payload(slot));
            let mut shared = slot.shared as usize;
            if self.is_restart(index, count) {
                shared = body.prefix_len;
                let offset = out.len() - entries_at;
                for (number, value) in [head(&key[shared..]), index as u16, offset as u16].iter().enumerate()
                {
                    out[table_at + 2 * body.restarts * number..][..2].copy_from_slice(&value.to_le_bytes());
                }
                table_at += 2;
            }
            let suffix = &key[shared..];
            cells.put(
                out,
                &Cell {
                    print: fingerprint(&key[body.prefix_len..]),
                    shared: shared - body.prefix_len,
                    suffix_len: suffix.len(),
                    blob_len: suffix.len() + value.bytes.len(),
                    code: value.code,
                    block: slot.block - body.base,
                },
            );
            out.extend_from_slice(suffix);
            out.extend_from_slice(value.bytes);
        }
    }
}

/// What the encoding of all entries of a body needs to know.
struct Body {
    form: Form,
    prefix_len: usize,
    base: BlockNumber,
    restarts: usize,
    /// Where the restart table begins.
    table_at: usize,
}

fn delta_len(from: BlockNumber, to: BlockNumber) -> usize {
    varint_len(zigzag(to.wrapping_sub(from) as i64))
}
