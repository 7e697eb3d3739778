//! All versions of one key, newest first: memory, then every segment that has the key.

use icecore_index::KeyHash;
use icecore_segments::step::BlockNumber;

use crate::domain::DomainId;
use crate::error::Error;
use crate::live::LiveSegment;
use crate::stats::Tally;
use crate::table::Found;
use crate::version::Version;

impl Version {
    /// The versions of `key` up to the head of this version, newest first.
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
        Ok(found)
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
