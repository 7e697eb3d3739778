//! Keys to look up: random ones that a segment has, and ones beside them that it does not have.

use icecore::storage::Mapping;
use icecore_segments::span::PageSpan;
use icecore_segments::step::BlockNumber;
use icecore_segments::{Cursor, Entry, EntrySource, Error, Segment};
use icecore_tools::measure::lookup::Query;
use icecore_tools::workload::SplitMix64;

/// How often a key is changed before one that is absent is given up: short keys may all be there.
const TRIES: usize = 8;

/// Random versions of a segment: a random page, in it a random entry. Looked up at the block that wrote them.
pub(crate) fn present(segment: &Segment<Mapping>, count: usize, seed: u64) -> Result<Vec<Query>, Error> {
    let summary = segment.summary();
    let mut queries = Vec::with_capacity(count);
    if summary.entries == 0 {
        return Ok(queries);
    }
    let mut random = SplitMix64::new(seed);
    let per_page = summary.entries.div_ceil(summary.pages);
    let mut cursor = segment.cursor();
    while queries.len() < count {
        let page = random.below(summary.pages);
        cursor.seek_in(PageSpan::page(page), &[], u64::MAX)?;
        for _ in 0..random.below(per_page) {
            cursor.advance()?;
        }
        if cursor.entry().is_none() {
            // After the last entry.
            cursor.seek_last()?;
        }
        queries.extend(stand(&cursor));
    }
    Ok(queries)
}

fn stand(cursor: &Cursor<'_, Mapping>) -> Option<Query> {
    let Entry { key, block, .. } = cursor.entry()?;
    Some(Query { key: key.to_vec(), at: block })
}

/// Keys beside those of `queries` that `find` does not find at `at`: the second half of their bytes is random.
///
/// Fewer than `queries` where the keys are so short that most of them are there.
pub(crate) fn absent<E>(
    mut find: impl FnMut(&Query) -> Result<bool, E>,
    queries: &[Query],
    at: BlockNumber,
    seed: u64,
) -> Result<Vec<Query>, E> {
    let mut random = SplitMix64::new(seed.wrapping_add(1));
    let mut absent = Vec::with_capacity(queries.len());
    for query in queries {
        let mut query = Query { key: query.key.clone(), at };
        let half = query.key.len() / 2;
        for _ in 0..TRIES {
            random.fill(&mut query.key[half..]);
            if !find(&query)? {
                absent.push(query);
                break;
            }
        }
    }
    Ok(absent)
}
