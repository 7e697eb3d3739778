//! The walk over the entries of one page that rebuilds their keys: what cursors and verify are made of.
//!
//! It goes on strictly in the order of a segment, or ends in [`Reason::Order`]: whoever walks gets somewhere.

use std::cmp::Ordering;

use crate::entry::KEY_LEN_MAX;
use crate::error::{Error, Reason};
use crate::page::{EntryAt, Page};
use crate::step::BlockNumber;

/// Goes through the entries of a page from front to back and rebuilds their keys.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walk {
    /// The entry that the walk stands on.
    pub(crate) entry: EntryAt,
    /// The group that it is in.
    pub(crate) group: usize,
    /// Its position.
    at: usize,
    /// The positions where its group begins and ends.
    group_at: usize,
    group_end: usize,
}

impl Walk {
    /// Goes to the first entry of a group and puts its key into `key`.
    #[inline]
    pub(crate) fn start(page: &Page<'_>, group: usize, key: &mut Vec<u8>) -> Result<Self, Error> {
        key.clear();
        key.extend_from_slice(page.prefix());
        Self::enter(page, group, key, None)
    }

    /// Enters a group after an entry at block `before` whose key is `key`; without one, `key` is the page's prefix.
    #[inline]
    fn enter(
        page: &Page<'_>,
        group: usize,
        key: &mut Vec<u8>,
        before: Option<BlockNumber>,
    ) -> Result<Self, Error> {
        let at = page.group_at(group)?;
        let group_end = page.group_at(group + 1)?;
        let entry = page.restart_entry(group)?;
        if at >= group_end || entry.next() > group_end {
            return Err(page.damaged(Reason::Overrun));
        }
        extend(page, &entry, key, page.shape.prefix_len(), before)?;
        Ok(Self { entry, group, at, group_at: at, group_end })
    }

    /// Goes to the next entry. `false`: there is none, and nothing changed.
    #[inline]
    pub(crate) fn next(&mut self, page: &Page<'_>, key: &mut Vec<u8>) -> Result<bool, Error> {
        if self.entry.next() >= self.group_end {
            if self.group + 1 >= page.shape.restarts() {
                return Ok(false);
            }
            *self = Self::enter(page, self.group + 1, key, Some(self.entry.block))?;
            return Ok(true);
        }
        let entry = page.entry_after(&self.entry)?;
        let keep = page.shape.prefix_len() + entry.shared();
        if keep > key.len() || entry.next() > self.group_end {
            return Err(page.damaged(Reason::Overrun));
        }
        extend(page, &entry, key, keep, Some(self.entry.block))?;
        self.at = self.entry.next();
        self.entry = entry;
        Ok(true)
    }

    /// Goes to the entry before. `false`: there is none, and nothing changed.
    ///
    /// Walks the group again from its restart.
    pub(crate) fn prev(&mut self, page: &Page<'_>, key: &mut Vec<u8>) -> Result<bool, Error> {
        let (group, until) = match (self.is_restart(), self.group.checked_sub(1)) {
            (false, _) => (self.group, self.at),
            (true, Some(group)) => (group, self.group_at),
            (true, None) => return Ok(false),
        };
        *self = Self::start(page, group, key)?;
        while self.entry.next() < until {
            if !self.next(page, key)? {
                return Err(page.damaged(Reason::Overrun));
            }
        }
        Ok(true)
    }

    /// Goes to the last entry of the page.
    pub(crate) fn last(page: &Page<'_>, key: &mut Vec<u8>) -> Result<Self, Error> {
        let mut this = Self::start(page, page.shape.restarts() - 1, key)?;
        while this.next(page, key)? {}
        Ok(this)
    }

    /// Whether the entry is the first of its group.
    pub(crate) fn is_restart(&self) -> bool {
        self.at == self.group_at
    }
}

/// Makes `key` that of `entry`, which shares its first `keep` bytes, and compares the two: `before` is the block of the one before.
#[inline]
fn extend(
    page: &Page<'_>,
    entry: &EntryAt,
    key: &mut Vec<u8>,
    keep: usize,
    before: Option<BlockNumber>,
) -> Result<(), Error> {
    let suffix = page.suffix(entry);
    if let Some(before) = before {
        match suffix.cmp(&key[keep..]) {
            Ordering::Greater => {}
            Ordering::Equal if entry.block < before => {}
            Ordering::Equal | Ordering::Less => return Err(page.damaged(Reason::Order)),
        }
    }
    if keep + suffix.len() > KEY_LEN_MAX {
        return Err(page.damaged(Reason::Length));
    }
    key.truncate(keep);
    key.extend_from_slice(suffix);
    Ok(())
}
