//! The walk over the entries of one page that rebuilds their keys: what cursors and verify are made of.
//!
//! It goes on strictly in the order of a segment, or ends in [`Reason::Order`]: whoever walks gets somewhere. Entries are decoded a
//! group at a time; a key is that of the entry before up to what both share, and compared there.

use crate::bytes::shared_len;
use crate::decoded::Decoded;
use crate::error::{Error, Reason};
use crate::key_buf::KeyBuf;
use crate::page::{EntryAt, Page};
use crate::page_header::CODE_OVERFLOW;
use crate::step::BlockNumber;

/// Goes through the entries of a page and rebuilds their keys.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// The entries of the group that the walk is in, or of the part of it.
    decoded: Decoded,
    /// Which of those it stands on.
    index: usize,
    group: usize,
    /// How many bytes its key shares with that of the entry that the walk came from; 0 where it came from none.
    pub(crate) shared: usize,
    /// The position of the first entry decoded.
    at: usize,
    /// The positions where the group begins and ends.
    group_at: usize,
    group_end: usize,
}

impl Walk {
    /// The entry that the walk stands on.
    #[inline]
    pub(crate) fn entry(&self) -> &EntryAt {
        self.decoded.get(self.index)
    }

    /// Goes to the first entry of a group and puts its key into `key`.
    #[inline]
    pub(crate) fn start(&mut self, page: &Page<'_>, group: usize, key: &mut KeyBuf) -> Result<(), Error> {
        key.set(page.prefix());
        self.enter(page, group)?;
        self.extend(page, key, None)
    }

    /// Decodes a group and stands on its first entry, the key of which is still to be made.
    #[inline]
    fn enter(&mut self, page: &Page<'_>, group: usize) -> Result<(), Error> {
        (self.group, self.group_at, self.group_end) =
            (group, page.group_at(group)?, page.group_at(group + 1)?);
        let bytes_at = page.bytes_at(group).ok_or_else(|| page.damaged(Reason::Overrun))?;
        self.decode(page, self.group_at, bytes_at, page.shape.base)?;
        if self.entry().shared() == 0 { Ok(()) } else { Err(page.damaged(Reason::Field)) }
    }

    /// Decodes entries of the group from the position `at` on and stands on the first of them.
    #[inline]
    fn decode(
        &mut self,
        page: &Page<'_>,
        at: usize,
        bytes_at: usize,
        before: BlockNumber,
    ) -> Result<(), Error> {
        self.decoded.fill(page, (at, self.group_end), bytes_at, before);
        (self.at, self.index) = (at, 0);
        if self.decoded.len() > 0 { Ok(()) } else { Err(page.damaged(Reason::Overrun)) }
    }

    /// Goes to the next entry where that was decoded, its value is in the page, and its key comes after in the usual way: by the first
    /// byte that it adds, or as an older version. `false`: nothing changed, and [`Walk::next`] is to be asked.
    #[inline]
    pub(crate) fn step(&mut self, prefix_len: usize, body: &[u8], key: &mut KeyBuf) -> bool {
        let next = self.index + 1;
        if next >= self.decoded.len() {
            return false;
        }
        let entry = self.decoded.get(next);
        let (keep, at) = (prefix_len + entry.shared(), usize::from(entry.suffix_at));
        let ascends = if entry.suffix_len == 0 {
            keep == key.len() && entry.block < self.entry().block
        } else {
            matches!((body.get(at), key.get(keep)), (Some(new), Some(old)) if new > old)
        };
        if !ascends
            || entry.code == CODE_OVERFLOW
            || !key.replace_from(keep, body, at, entry.suffix_len.into())
        {
            return false;
        }
        (self.index, self.shared) = (next, keep);
        true
    }

    /// Goes to the next entry. `false`: there is none, and nothing changed.
    pub(crate) fn next(&mut self, page: &Page<'_>, key: &mut KeyBuf) -> Result<bool, Error> {
        let before = self.entry().block;
        if self.index + 1 < self.decoded.len() {
            self.index += 1;
        } else if !self.decode_next(page)? {
            return Ok(false);
        }
        self.extend(page, key, Some(before))?;
        Ok(true)
    }

    /// Decodes what is after the entries decoded. `false`: nothing is.
    fn decode_next(&mut self, page: &Page<'_>) -> Result<bool, Error> {
        let &EntryAt { block, .. } = self.entry();
        let (next, end) = (self.entry().next(), self.entry().end());
        if next < self.group_end {
            self.decode(page, next, end, block)?;
        } else if self.group + 1 < page.shape.restarts() {
            self.enter(page, self.group + 1)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Makes `key`, that of the entry before, which is at block `before`, the key of the entry that the walk stands on. Without a block
    /// `key` is the prefix of the page.
    fn extend(
        &mut self,
        page: &Page<'_>,
        key: &mut KeyBuf,
        before: Option<BlockNumber>,
    ) -> Result<(), Error> {
        let entry = self.decoded.get(self.index);
        let keep = page.shape.prefix_len() + entry.shared();
        self.shared = match before {
            Some(before) => shared_in_order(page, entry, key, before)?,
            None => 0,
        };
        if key.replace_from(keep, page.body, entry.suffix_at.into(), entry.suffix_len.into()) {
            Ok(())
        } else {
            Err(page.damaged(Reason::Length))
        }
    }

    /// Goes to the entry before. `false`: there is none, and nothing changed.
    pub(crate) fn prev(&mut self, page: &Page<'_>, key: &mut KeyBuf) -> Result<bool, Error> {
        let left = *self.entry();
        if self.at != self.group_at {
            // A group longer than any that a builder writes.
            let until = self.position();
            self.start(page, self.group, key)?;
            while self.entry().next() < until {
                self.next(page, key)?;
            }
        } else if let Some(before) = self.index.checked_sub(1) {
            self.index = before;
            self.rebuild(page, key)?;
        } else if let Some(group) = self.group.checked_sub(1) {
            self.end_of(page, group, key)?;
        } else {
            return Ok(false);
        }
        shared_in_order(page, &left, key, self.entry().block)?;
        Ok(true)
    }

    /// Goes to the last entry of the page.
    pub(crate) fn last(&mut self, page: &Page<'_>, key: &mut KeyBuf) -> Result<(), Error> {
        self.end_of(page, page.shape.restarts() - 1, key)
    }

    /// Goes to the last entry of a group.
    fn end_of(&mut self, page: &Page<'_>, group: usize, key: &mut KeyBuf) -> Result<(), Error> {
        self.enter(page, group)?;
        let last = self.decoded.len() - 1;
        if self.decoded.get(last).next() >= self.group_end {
            self.index = last;
            return self.rebuild(page, key);
        }
        self.start(page, group, key)?;
        while self.entry().next() < self.group_end {
            self.next(page, key)?;
        }
        Ok(())
    }

    /// Makes `key` that of the entry that the walk stands on; the entries decoded begin with their group.
    fn rebuild(&self, page: &Page<'_>, key: &mut KeyBuf) -> Result<(), Error> {
        let is_whole = self.decoded.key_of(self.index, page, key);
        if is_whole { Ok(()) } else { Err(page.damaged(Reason::Overrun)) }
    }

    /// The position of the entry that the walk stands on.
    fn position(&self) -> usize {
        self.index.checked_sub(1).map_or(self.at, |before| self.decoded.get(before).next())
    }
}

/// How many bytes the key of `entry` shares with `key`, that of the entry before at block `before`: checks that it comes after it.
fn shared_in_order(
    page: &Page<'_>,
    entry: &EntryAt,
    key: &[u8],
    before: BlockNumber,
) -> Result<usize, Error> {
    let keep = page.shape.prefix_len() + entry.shared();
    let suffix = page.suffix(entry);
    let Some(old) = key.get(keep..) else { return Err(page.damaged(Reason::Overrun)) };
    let more = shared_len(suffix, old);
    let ascends = match (suffix.get(more), old.get(more)) {
        (None, None) => entry.block < before,
        (new, old) => new > old,
    };
    if ascends { Ok(keep + more) } else { Err(page.damaged(Reason::Order)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_header::{
        BODY_HEADER_LEN, CODE_INLINE, COLUMN_RESTART_LEN, COLUMNS, FIXED_LEN, Form, KEY_LEN_AT, ONE_BLOCK,
        PageHeader, RESTART_LEN, RESTARTS_AT,
    };

    const ENTRIES: usize = 100;

    /// A page whose only group is longer than those that a builder writes: keys of two bytes, `i / 10` and `i`, values of one.
    fn long_group(flags: u8) -> (PageHeader, Vec<u8>) {
        let in_columns = flags & COLUMNS != 0;
        let mut body = vec![0; BODY_HEADER_LEN];
        (body[RESTARTS_AT], body[KEY_LEN_AT]) = (1, 2);
        let (mut lens, mut blobs) = (Vec::new(), Vec::new());
        let mut shared = Vec::new();
        for i in 0..ENTRIES as u8 {
            let shares = u8::from(!i.is_multiple_of(10));
            let suffix = &[i / 10, i][shares.into()..];
            if !in_columns {
                blobs.push(shares);
            }
            blobs.extend_from_slice(suffix);
            if !in_columns {
                blobs.push(CODE_INLINE as u8 + 1);
            }
            blobs.push(!i);
            shared.push(shares);
            lens.push(suffix.len() as u8 + 1);
        }
        if in_columns {
            body.extend([vec![0; ENTRIES], shared, lens].concat());
        }
        body.resize(body.len() + if in_columns { COLUMN_RESTART_LEN } else { RESTART_LEN }, 0);
        body.extend(blobs);
        let form = Form { flags, block_width: 0 };
        (PageHeader { form, stored_len: body.len(), raw_len: body.len(), count: ENTRIES }, body)
    }

    #[test]
    fn a_group_of_any_length_is_walked_both_ways() {
        for flags in [COLUMNS | FIXED_LEN, FIXED_LEN | ONE_BLOCK] {
            let (header, body) = long_group(flags);
            let page = Page::parse(&header, &body, 0).unwrap();
            let (mut walk, mut key) = (Walk::default(), KeyBuf::default());
            let check = |walk: &Walk, key: &KeyBuf, i: usize| {
                assert_eq!(**key, [i as u8 / 10, i as u8], "entry {i}");
                assert_eq!(page.body[usize::from(walk.entry().value_at)], !(i as u8));
            };
            walk.start(&page, 0, &mut key).unwrap();
            check(&walk, &key, 0);
            for i in 1..ENTRIES {
                let stepped = walk.step(0, page.body, &mut key);
                assert!(stepped || walk.next(&page, &mut key).unwrap());
                check(&walk, &key, i);
                assert_eq!(walk.shared, usize::from(i % 10 != 0));
            }
            assert!(!walk.step(0, page.body, &mut key) && !walk.next(&page, &mut key).unwrap());
            for from_end in [false, true] {
                if from_end {
                    walk.last(&page, &mut key).unwrap();
                }
                check(&walk, &key, ENTRIES - 1);
                for i in (0..ENTRIES - 1).rev() {
                    assert!(walk.prev(&page, &mut key).unwrap());
                    check(&walk, &key, i);
                }
                assert!(!walk.prev(&page, &mut key).unwrap());
                while walk.next(&page, &mut key).unwrap() {}
            }
        }
    }
}
