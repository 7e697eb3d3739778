//! Targets over one file of the segment family: its header, its footer, and what is between.

use icecore_index::{BlockIndex, BlockPage, ExistenceFilter, FilterHash, FilterProbe, PivotIndex};
use icecore_segments::checksum::Checksum;
use icecore_segments::frame::{Frame, Header, Kind, PAGE_SIZE};
use icecore_segments::span::PageSpan;
use icecore_segments::{EntrySource, PageBuf, Segment};

use crate::forge::{Framed, PAYLOAD_AT};
use crate::guard;
use crate::sample::{SAMPLES, Sample};
use crate::tape::Tape;

/// Takes a file of a kind from one of the samples.
fn file_of(tape: &mut Tape<'_>, kind: &str) -> (&'static Sample, Framed) {
    let samples = &*SAMPLES;
    let having: Vec<&Sample> = samples.iter().filter(|sample| !sample.of_kind(kind).is_empty()).collect();
    let sample = *tape.pick(&having);
    let paths = sample.of_kind(kind);
    let path = *tape.pick(&paths);
    (sample, Framed::new(sample.files[path].clone()))
}

fn any_file(tape: &mut Tape<'_>) -> (&'static Sample, Framed) {
    let kind = *tape.pick(&["kv", "bt", "kvei", "kvbi"]);
    file_of(tape, kind)
}

pub(crate) fn header(tape: &mut Tape<'_>) -> Result<(), String> {
    let (sample, mut file) = any_file(tape);
    tape.mutate(&mut file.bytes[..160]);
    if tape.below(4) == 0 {
        tape.mutate(&mut file.bytes[..PAGE_SIZE]);
    }
    file.seal();
    read(sample, &file)
}

pub(crate) fn footer(tape: &mut Tape<'_>) -> Result<(), String> {
    let (sample, mut file) = any_file(tape);
    let footer_at = file.footer_at();
    let from = if tape.below(2) == 0 { 8 } else { PAYLOAD_AT };
    tape.mutate(&mut file.bytes[footer_at + from..]);
    file.seal();
    read(sample, &file)
}

pub(crate) fn page(tape: &mut Tape<'_>) -> Result<(), String> {
    let (sample, mut file) = file_of(tape, "kv");
    between(tape, &mut file);
    read(sample, &file)
}

pub(crate) fn index(tape: &mut Tape<'_>) -> Result<(), String> {
    let (sample, mut file) = file_of(tape, "bt");
    between(tape, &mut file);
    read(sample, &file)
}

pub(crate) fn filter(tape: &mut Tape<'_>) -> Result<(), String> {
    let (sample, mut file) = file_of(tape, "kvei");
    between(tape, &mut file);
    read(sample, &file)
}

pub(crate) fn blocks(tape: &mut Tape<'_>) -> Result<(), String> {
    let (sample, mut file) = file_of(tape, "kvbi");
    between(tape, &mut file);
    if tape.below(3) == 0 {
        let payload = file.footer_at() + PAYLOAD_AT;
        tape.mutate(&mut file.bytes[payload..payload + 32]);
        file.seal();
    }
    read(sample, &file)
}

/// Changes pages and tables between header and footer, and exchanges pages.
pub(crate) fn between(tape: &mut Tape<'_>, file: &mut Framed) {
    let footer_at = file.footer_at();
    for _ in 0..=tape.below(3) {
        match tape.below(5) {
            0..=2 if !file.sealed.is_empty() => {
                let number = *tape.pick(&file.sealed);
                tape.mutate(&mut file.bytes[number * PAGE_SIZE + 8..][..PAGE_SIZE - 8]);
            }
            3 if !file.sealed.is_empty() => {
                let (a, b) = (*tape.pick(&file.sealed), *tape.pick(&file.sealed));
                let page = file.bytes[a * PAGE_SIZE..][..PAGE_SIZE].to_vec();
                file.bytes.copy_within(b * PAGE_SIZE..(b + 1) * PAGE_SIZE, a * PAGE_SIZE);
                file.bytes[b * PAGE_SIZE..][..PAGE_SIZE].copy_from_slice(&page);
            }
            _ => {
                let tables = file.tables();
                match tables.get(tape.below(tables.len() + 1)) {
                    Some(&(at, len, _)) => tape.mutate(&mut file.bytes[at..at + len]),
                    None => tape.mutate(&mut file.bytes[PAGE_SIZE..footer_at]),
                }
            }
        }
    }
    file.seal();
}

/// Reads a file in every way there is, as each kind.
fn read(sample: &Sample, file: &Framed) -> Result<(), String> {
    guard::within(file.bytes.len(), || {
        let _ = Header::parse(&file.bytes);
        read_segment(sample, &file.bytes)?;
        for kind in [Kind::PivotIndex, Kind::ExistenceFilter, Kind::BlockIndex] {
            if let Ok(frame) = Frame::parse(&file.bytes, kind) {
                read_accessors(sample, &file.bytes, frame.parent)?;
            }
        }
        Ok(())
    })
}

fn read_segment(sample: &Sample, bytes: &[u8]) -> Result<(), String> {
    let Ok(segment) = Segment::open(bytes) else { return Ok(()) };
    let is_sound = segment.verify().is_ok();
    let (mut cursor, mut entries) = (segment.cursor(), 0);
    let mut before: Option<(Vec<u8>, u64)> = None;
    while cursor.next().unwrap_or(false) {
        let Some(entry) = cursor.entry() else { break };
        let ascends = before.is_none_or(|(key, block)| (&key[..], entry.block) < (entry.key, block));
        if !ascends {
            return Err("lied: a walk out of order".to_owned());
        }
        let _ = entry.value.load();
        before = Some((entry.key.to_vec(), entry.block));
        entries += 1;
    }
    let mut cursor = segment.cursor();
    let mut backward = u64::from(cursor.seek_last().unwrap_or(false));
    while backward > 0 && cursor.prev().unwrap_or(false) {
        backward += 1;
    }
    if is_sound && (entries != segment.summary().entries || backward != entries) {
        return Err(format!(
            "lied: verify approves, and of {} entries there are {entries} and {backward}",
            segment.summary().entries
        ));
    }
    let _ = segment.offer_pivots(&mut ());
    let _ = segment.for_each_key(|_| Ok(()));
    let mut buf = PageBuf::default();
    for (_, key) in &sample.keys {
        let mut cursor = segment.cursor();
        let _ = cursor.seek(key, 9).and_then(|_| cursor.advance());
        for (first, last) in [(0, segment.summary().pages.saturating_sub(1)), (0, 0), (1, 2)] {
            let found = segment.get_in(PageSpan { first, last, restart: 0 }, key, 9, &mut buf);
            let _ = found.map(|version| version.map(|version| version.value.load().map(drop)));
        }
    }
    Ok(())
}

fn read_accessors(sample: &Sample, bytes: &[u8], parent: Checksum) -> Result<(), String> {
    if let Ok(index) = PivotIndex::open(bytes, parent) {
        let _ = index.verify();
        for (_, key) in &sample.keys {
            for at in [0, 9, u64::MAX] {
                let Ok(span) = index.locate(key, at) else { continue };
                if span.first > span.last || (index.summary().pages > 0 && span.last >= index.summary().pages)
                {
                    return Err(format!("lied: a span that there is not: {span:?}"));
                }
            }
            let _ = index.leaf_range(index.leaf(key, 9));
        }
    }
    if let Ok(index) = BlockIndex::open(bytes, parent) {
        read_blocks(&index)?;
    }
    if let Ok(filter) = ExistenceFilter::open(bytes, parent) {
        let _ = filter.verify();
        for (_, key) in &sample.keys {
            let hash = FilterHash::of(key);
            let _ = (filter.may_contain(hash), filter.page_range(hash), filter.prefetch_hint(hash));
            let probe = FilterProbe::new(hash);
            let _ =
                filter.usual_shard(&probe).map(|shard| (shard.touched(&probe), shard.may_contain(&probe)));
        }
    }
    Ok(())
}

/// Walks through the blocks of an index from several on.
fn read_blocks(index: &BlockIndex<&[u8]>) -> Result<(), String> {
    let is_sound = index.verify().is_ok();
    let all = walk_blocks(index, 0)?;
    let entries = all.iter().fold(0u64, |sum, page| sum.saturating_add(page.entries));
    if is_sound && entries != index.summary().entries {
        return Err(format!(
            "lied: verify approves, and {entries} of {} entries are listed",
            index.summary().entries
        ));
    }
    let listed = all.iter().map(|page| page.block);
    let beyond = listed.clone().max().unwrap_or(0).saturating_add(1);
    for from in listed.step_by(all.len() / 8 + 1).chain([1, beyond, u64::MAX]) {
        let found = walk_blocks(index, from)?;
        let _ = index.range_of(from, from.saturating_add(2));
        if is_sound && !all.iter().filter(|page| page.block >= from).eq(&found) {
            return Err(format!(
                "lied: verify approves, and a walk from block {from} differs from the whole one"
            ));
        }
    }
    Ok(())
}

/// All that the index lists from a block on; what comes after damage is in it too.
fn walk_blocks(index: &BlockIndex<&[u8]>, from: u64) -> Result<Vec<BlockPage>, String> {
    let (mut cursor, mut found) = (index.cursor(from), Vec::new());
    loop {
        match cursor.next() {
            Ok(Some(page)) if page.page >= index.summary().pages || page.block < from => {
                return Err(format!("lied: a page that there is not: {page:?}"));
            }
            Ok(Some(page)) => found.push(page),
            Ok(None) => break,
            // It goes on after the leaf.
            Err(_) => {}
        }
    }
    if !found.is_sorted_by_key(|page| (page.block, page.page)) {
        return Err("lied: blocks out of order".to_owned());
    }
    Ok(found)
}
