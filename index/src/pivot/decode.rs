//! Reads the whole of a leaf, for `verify`: every table of it against the pivots that it says.

use icecore_segments::bytes::shared_len;
use icecore_segments::span::{PageSpan, Pivot, Separator};

use super::layout::{END_EMPTY, END_HEAD_MAX, END_HEAD_SHIFT, GROUP_MAX, SHARED_MAX, head};
use super::node::{Group, Leaf, offset};
use super::search::Body;

/// Calls `each` with every pivot of a leaf, in order; ordinals are not in a leaf.
///
/// `None` when the leaf is not what a builder writes, or when `each` says so.
pub(super) fn for_each(leaf: &Leaf<'_>, mut each: impl FnMut(&Pivot<'_>) -> Option<()>) -> Option<()> {
    let (mut first_key, mut key) = (Vec::new(), Vec::new());
    let mut end = offset(leaf.end(leaf.groups().checked_sub(1)?));
    let mut spans = Spans::default();
    let (mut pivots, mut depth) = (0, usize::MAX);
    for number in 0..leaf.groups() {
        let group = leaf.group(number);
        if group.at() != end || group.count == 0 || group.count > GROUP_MAX {
            return None;
        }
        if group.extras() & (1 | !(u32::MAX >> (GROUP_MAX - group.count))) != 0 {
            return None;
        }
        for index in 0..group.count {
            let is_first = index == 0;
            if is_first {
                first_key.clone_into(&mut key);
            }
            let body = if is_first { leaf.body(number)? } else { group.body(index)? };
            let code = match (index, number) {
                (0, 0) => None,
                (0, _) => Some(leaf.code(number)),
                _ => Some(group.code(index)),
            };
            let shared = extend(&mut key, code, &body)?;
            if is_first {
                check_head(leaf, number, &key)?;
                depth = depth.min(if number == 0 { key.len() } else { shared }).min(SHARED_MAX);
                key.clone_into(&mut first_key);
            }
            let (page, restart) = group.place(index);
            spans.next(group, index, page, restart)?;
            let separator = Separator { key: &key, before: body.before };
            each(&Pivot { separator, page, restart, ordinal: 0 })?;
        }
        pivots += group.count;
        end = leaf.group_at(number + 1);
    }
    spans.end()?;
    (pivots == leaf.pivots() && depth == leaf.depth()).then_some(())
}

/// Checks what the directory says of the first separator of a group beside its code and its rest.
fn check_head(leaf: &Leaf<'_>, group: usize, key: &[u8]) -> Option<()> {
    let len = key.len().checked_sub(leaf.depth())?.min(END_HEAD_MAX);
    let said = usize::from(leaf.end(group) >> END_HEAD_SHIFT) & END_HEAD_MAX;
    let is_flagged = group > 0 || leaf.end(group) & END_EMPTY == 0;
    (leaf.head(group) == head(key, leaf.depth()) && said == len && is_flagged).then_some(())
}

/// Makes `key`, a separator, the one that is stored with `code` after it, and says what both share. The first of a leaf has no code.
fn extend(key: &mut Vec<u8>, code: Option<u16>, body: &Body<'_>) -> Option<usize> {
    let previous = key.clone();
    let shared = match code {
        Some(code) => 127usize.checked_sub(usize::from(code >> 8)).filter(|&shared| shared <= key.len())?,
        None => 0,
    };
    key.truncate(shared);
    if let Some(code) = code {
        if body.empty && code as u8 != 0 {
            return None;
        }
        if !body.empty {
            key.push(code as u8);
        }
    }
    key.extend_from_slice(body.head);
    key.resize(key.len() + body.zeros, 0);
    key.extend_from_slice(body.tail);
    // A search relies on the shared lengths, so they must be what the keys share.
    (shared == shared_len(key, &previous).min(SHARED_MAX)).then_some(shared)
}

/// Counts the fences of a group along with the spans of its pivots.
#[derive(Default)]
struct Spans<'a> {
    newest: Option<(Group<'a>, usize, u64)>,
    fences: usize,
}

impl<'a> Spans<'a> {
    /// The next pivot and its page: where the span of the one before it ends.
    fn next(&mut self, group: Group<'a>, index: usize, page: u64, restart: u16) -> Option<()> {
        if let Some((before, number, first)) = self.newest {
            let last = page.checked_sub(u64::from(restart == 0))?;
            if last != first && !group.is_coarse() {
                return None;
            }
            self.fences += before.fences_of(PageSpan { first, last, restart: 0 }, number)?.len();
        }
        if index == 0 {
            self.end()?;
        }
        self.newest = Some((group, index, page));
        Some(())
    }

    /// No span of the newest group is to come that has fences.
    fn end(&mut self) -> Option<()> {
        let all = self.newest.map_or(Some(0), |(group, ..)| Some(group.fences()?.len()))?;
        let counted = std::mem::take(&mut self.fences);
        (counted == all).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use icecore_segments::step::BlockNumber;

    use super::*;
    use crate::pivot::layout::{END_AT, LAST_PAGE_AT};
    use crate::pivot::packer::LeafBuilder;
    use crate::pivot::page::{self, Page};

    type Place = (Vec<u8>, Option<BlockNumber>, u64, u16);

    /// Places with what a leaf can have: long and short separators, zeros, versions, restarts beyond a byte, spans with fences.
    fn places() -> Vec<Place> {
        let mut places: Vec<Place> = vec![(Vec::new(), None, 0, 0)];
        let mut page = 0;
        for number in 0..90u8 {
            let key = match number {
                0..20 => vec![2, number],
                20..40 => [&[3; 40][..], &[number]].concat(),
                40..60 => [&[4][..], &[0; 12], &[number]].concat(),
                60..80 => vec![5; 30],
                _ => [&[6; 20][..], &[number, 1, 2, 3, 4, 5, 6, 7, 8, 9]].concat(),
            };
            let before = (61..80).contains(&number).then(|| 9000 - 7 * u64::from(number));
            let restart = if number % 3 == 0 { 0 } else { 100 * u16::from(number % 3) };
            page += if number % 8 == 0 { 4 } else { u64::from(restart == 0) };
            places.push((key, before, page, restart));
        }
        places
    }

    fn leaf(places: &[Place]) -> [u8; page::LEN] {
        let mut builder = LeafBuilder::default();
        for (index, (key, before, page, restart)) in places.iter().enumerate() {
            let pages = index.checked_sub(1).map_or(0, |newest| page - places[newest].2);
            for _ in 1..pages + u64::from(*restart > 0 && pages > 0) {
                builder.fence(&Separator { key, before: None });
            }
            let separator = Separator { key, before: *before };
            assert!(builder.push(&Pivot { separator, page: *page, restart: *restart, ordinal: 0 }));
        }
        let mut bytes = [0; page::LEN];
        builder.finish(bytes.first_chunk_mut().unwrap(), places.last().unwrap().2 + 1);
        bytes
    }

    fn read(bytes: &[u8; page::LEN]) -> Option<Vec<Place>> {
        let mut read = Vec::new();
        for_each(&Leaf::new(Page::new(bytes)), |pivot| {
            let Separator { key, before } = pivot.separator;
            read.push((key.to_vec(), before, pivot.page, pivot.restart));
            Some(())
        })?;
        Some(read)
    }

    /// Of every byte of a leaf that is not a fence or the last page: another value is noticed, or makes other pivots of it, which the order, the top or the segment contradict,
    /// or makes no difference to any search.
    #[test]
    fn what_the_tables_say_is_checked_against_the_pivots() {
        let places = places();
        let bytes = leaf(&places);
        assert_eq!(read(&bytes).unwrap(), places);
        let locate = |bytes: &[u8; page::LEN]| -> Vec<Option<PageSpan>> {
            let leaf = Leaf::new(Page::new(bytes));
            let keys = places.iter().flat_map(|place| [place.0.clone(), [&place.0[..], &[0xFF]].concat()]);
            keys.flat_map(|key| [0, 8700, u64::MAX].map(|at| leaf.locate(&key, at, 0))).collect()
        };
        let right = locate(&bytes);
        assert!(right.iter().any(|span| span.is_some_and(|span| span.len() > 1)), "spans with fences");
        let view = Leaf::new(Page::new(&bytes));
        // Where the leaf ends says how many fences its last group has: with fewer, spans are longer and hold the same answers.
        let mut said_once = vec![LAST_PAGE_AT..LAST_PAGE_AT + 8, END_AT..END_AT + 2];
        for number in 0..view.groups() {
            let (fences, end) = (view.group(number).fences().unwrap(), view.group_at(number + 1));
            said_once.push(end - 2 * fences.len()..end);
        }
        assert!(said_once[2..].iter().any(|fences| !fences.is_empty()));
        let (end, mut noticed) = (view.group_at(view.groups()), 0);
        for at in (8..end).filter(|at| !said_once.iter().any(|range| range.contains(at))) {
            for bit in 0..8 {
                let mut copy = bytes;
                copy[at] ^= 1 << bit;
                match read(&copy) {
                    Some(read) if read == places => assert!(locate(&copy) == right, "bit {bit} at {at}"),
                    Some(_) => {}
                    None => noticed += 1,
                }
            }
        }
        assert!(noticed > 2 * (end - 40), "{noticed} of {}", 8 * (end - 8));
    }
}
