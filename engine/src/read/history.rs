//! All versions of one key, newest first: memory, then every segment that has the key.

use icecore_index::KeyHash;
use icecore_segments::step::BlockNumber;

use crate::domain::DomainId;
use crate::error::Error;
use crate::memtable::Found;
use crate::read::read_state::Version;
use crate::segment::live::LiveSegment;
use crate::stats::Tally;

impl Version {
    /// The versions of `key` up to the head of this version, newest first: down to the one that the lowest block sees.
    pub(crate) fn history(&self, domain: DomainId, key: &[u8], tally: &Tally) -> Result<Vec<Found>, Error> {
        let Some(head) = self.head else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        match &self.log {
            Some(log) => found = log.history(domain, key, head)?,
            None => found.extend(self.tables.iter().rev().flat_map(|table| table.history(domain, key, head))),
        }
        let hash = KeyHash::of(key);
        for segment in self.domain(domain).iter().rev() {
            if segment.spans_key(key) && segment.may_hold(hash, tally)? {
                segment.versions(key, tally, &mut found)?;
            }
        }
        found.truncate(self.visible(&found));
        Ok(found)
    }

    /// How many of the versions of a key, newest first, a block can see. What a prune has not reached yet, in memory or in a
    /// segment, is not shown: history ends where reading ends.
    fn visible(&self, found: &[Found]) -> usize {
        let Some(first) = self.first else { return found.len() };
        match found.iter().position(|(block, _)| *block <= first) {
            Some(at) if found[at].0 == first || found[at].1.is_some() => at + 1,
            Some(at) => at,
            None => found.len(),
        }
    }
}

impl LiveSegment {
    /// Appends every version of `key` in this segment, newest first.
    fn versions(&self, key: &[u8], tally: &Tally, found: &mut Vec<Found>) -> Result<(), Error> {
        let span = self.locate_in(None, key, BlockNumber::MAX, tally)?;
        let kv = self.kv.get()?;
        let mut cursor = kv.view().cursor();
        cursor.seek_in(span, key, BlockNumber::MAX).map_err(|e| kv.error(e))?;
        while let Some(entry) = cursor.entry().filter(|entry| entry.key == key) {
            found.push((entry.block, Self::load(kv, &entry.value)?));
            cursor.next().map_err(|e| kv.error(e))?;
        }
        Ok(())
    }
}
