//! The walk over the entries of one page that rebuilds their keys: what cursors and verify are made of.

use crate::error::{Error, Reason};
use crate::page::{EntryAt, Page};

/// Goes through the entries of a page from front to back and rebuilds their keys.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walk {
    /// The entry that the walk stands on.
    pub(crate) entry: EntryAt,
    /// The group that it is in.
    pub(crate) group: usize,
    /// Where it begins in the body.
    at: usize,
    /// Where its group begins and ends.
    group_at: usize,
    group_end: usize,
}

impl Walk {
    /// Goes to the first entry of a group and puts its key into `key`.
    #[inline]
    pub(crate) fn start(page: &Page<'_>, group: usize, key: &mut Vec<u8>) -> Result<Self, Error> {
        key.clear();
        key.extend_from_slice(page.prefix());
        Self::enter(page, group, key)
    }

    /// Enters a group; `key` begins with the page's prefix.
    #[inline]
    fn enter(page: &Page<'_>, group: usize, key: &mut Vec<u8>) -> Result<Self, Error> {
        let at = page.group_at(group)?;
        let group_end = page.group_at(group + 1)?;
        let entry = page.restart_entry(group)?;
        if at >= group_end || entry.end() > group_end {
            return Err(page.damaged(Reason::Overrun));
        }
        key.truncate(page.shape.prefix_len());
        key.extend_from_slice(page.suffix(&entry));
        Ok(Self { entry, group, at, group_at: at, group_end })
    }

    /// Goes to the next entry. `false`: there is none, and nothing changed.
    #[inline]
    pub(crate) fn next(&mut self, page: &Page<'_>, key: &mut Vec<u8>) -> Result<bool, Error> {
        if self.entry.end() >= self.group_end {
            if self.group + 1 >= page.shape.restarts() {
                return Ok(false);
            }
            *self = Self::enter(page, self.group + 1, key)?;
            return Ok(true);
        }
        let entry = page.entry_at(self.entry.end(), self.entry.block)?;
        let keep = page.shape.prefix_len() + entry.shared();
        if keep > key.len() || entry.end() > self.group_end {
            return Err(page.damaged(Reason::Overrun));
        }
        key.truncate(keep);
        key.extend_from_slice(page.suffix(&entry));
        self.at = self.entry.end();
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
        while self.entry.end() < until {
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
