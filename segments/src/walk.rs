//! The walk over the entries of one page that rebuilds their keys: what cursors and verify are made of.
//!
//! It goes on strictly in the order of a segment, or ends in [`Reason::Order`]: whoever walks gets somewhere.

use crate::bytes::shared_len;
use crate::error::{Error, Reason};
use crate::key_buf::KeyBuf;
use crate::page::{EntryAt, Page};
use crate::step::BlockNumber;

/// Goes through the entries of a page from front to back and rebuilds their keys.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walk {
    /// The entry that the walk stands on.
    pub(crate) entry: EntryAt,
    /// The group that it is in.
    pub(crate) group: usize,
    /// How many bytes its key shares with that of the entry that the walk came from; 0 where it came from none.
    pub(crate) shared: usize,
    /// Its position.
    at: usize,
    /// The positions where its group begins and ends.
    group_at: usize,
    group_end: usize,
}

impl Walk {
    /// Goes to the first entry of a group and puts its key into `key`.
    #[inline]
    pub(crate) fn start(page: &Page<'_>, group: usize, key: &mut KeyBuf) -> Result<Self, Error> {
        key.set(page.prefix());
        Self::enter(page, group, key, None)
    }

    /// Enters a group after an entry at block `before` whose key is `key`; without one, `key` is the page's prefix.
    #[inline]
    fn enter(
        page: &Page<'_>,
        group: usize,
        key: &mut KeyBuf,
        before: Option<BlockNumber>,
    ) -> Result<Self, Error> {
        let at = page.group_at(group)?;
        let group_end = page.group_at(group + 1)?;
        let entry = page.restart_entry(group)?;
        if at >= group_end || entry.next() > group_end {
            return Err(page.damaged(Reason::Overrun));
        }
        let shared = extend(page, &entry, key, page.shape.prefix_len(), before)?;
        let shared = if before.is_some() { shared } else { 0 };
        Ok(Self { entry, group, shared, at, group_at: at, group_end })
    }

    /// Goes to the next entry. `false`: there is none, and nothing changed.
    #[inline]
    pub(crate) fn next(&mut self, page: &Page<'_>, key: &mut KeyBuf) -> Result<bool, Error> {
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
        self.shared = extend(page, &entry, key, keep, Some(self.entry.block))?;
        self.at = self.entry.next();
        self.entry = entry;
        Ok(true)
    }

    /// Goes to the entry before. `false`: there is none, and nothing changed.
    ///
    /// Walks the group again from its restart.
    pub(crate) fn prev(&mut self, page: &Page<'_>, key: &mut KeyBuf) -> Result<bool, Error> {
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
    pub(crate) fn last(page: &Page<'_>, key: &mut KeyBuf) -> Result<Self, Error> {
        let mut this = Self::start(page, page.shape.restarts() - 1, key)?;
        while this.next(page, key)? {}
        Ok(this)
    }

    /// Whether the entry is the first of its group.
    pub(crate) fn is_restart(&self) -> bool {
        self.at == self.group_at
    }
}

/// Makes `key` that of `entry`, which shares its first `keep` bytes at least, compares the two, and returns how many bytes they share:
/// `before` is the block of the one before.
#[inline]
fn extend(
    page: &Page<'_>,
    entry: &EntryAt,
    key: &mut KeyBuf,
    keep: usize,
    before: Option<BlockNumber>,
) -> Result<usize, Error> {
    let (suffix, old) = (page.suffix(entry), &key[keep..]);
    let more = shared_len(suffix, old);
    if let Some(before) = before {
        let ascends = match (suffix.get(more), old.get(more)) {
            (None, None) => entry.block < before,
            (new, old) => new > old,
        };
        if !ascends {
            return Err(page.damaged(Reason::Order));
        }
    }
    if !key.replace_from(keep, page.body, entry.suffix_at.into(), entry.suffix_len.into()) {
        return Err(page.damaged(Reason::Length));
    }
    Ok(keep + more)
}
