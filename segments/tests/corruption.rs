//! Every damage is an error or leaves the answers as they were; `verify` always finds it.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod oracle;

use std::cmp::Reverse;

use icecore_segments::checksum::{crc64, seal};
use icecore_segments::error::{Corruption, Part, Reason};
use icecore_segments::frame::{Header, PAGE_SIZE};
use icecore_segments::span::PageSpan;
use icecore_segments::{EncodingRule, Error, KEY_LEN_MAX, PageBuf, Segment};
use oracle::{Model, Pivots, SplitMix64, build, get, storage, texts};

/// Small files of every make: plain, compressed with a dictionary, with overflow values.
fn samples() -> Vec<(&'static str, Model, EncodingRule)> {
    vec![
        ("plain", storage(250, 5), EncodingRule::Plain),
        ("zstd with dictionary", texts(1700), EncodingRule::Zstd),
        ("overflow", few_large_values(), EncodingRule::Plain),
    ]
}

/// Two runs' worth of structures in few pages: small entries and one value of each make.
fn few_large_values() -> Model {
    let mut random = SplitMix64(8);
    let mut model = storage(40, 5);
    model.insert((b"k1".to_vec(), Reverse(3)), Some(random.bytes(2000)));
    model.insert((b"k2".to_vec(), Reverse(3)), Some(random.text(9000)));
    model
}

/// Reads everything; what comes before an error must be right.
fn read_all(segment: &Segment<&[u8]>, model: &Model) -> Result<(), Error> {
    let mut cursor = segment.cursor();
    let mut expected = model.iter();
    while cursor.next()? {
        let entry = cursor.entry().unwrap();
        let ((key, block), value) = expected.next().expect("no entry that was not written");
        assert_eq!((entry.key, entry.block), (&key[..], block.0));
        assert_eq!(entry.value.load()?.as_deref(), value.as_deref());
    }
    assert!(expected.next().is_none(), "no entry lost in silence");
    Ok(())
}

/// Opens and reads a damaged file: answers are right or errors. Returns whether verify finds it.
fn survives(bytes: &[u8], model: &Model, pivots: &Pivots, probe: usize) -> bool {
    let Ok(segment) = Segment::open(bytes) else { return true };
    let _ = read_all(&segment, model);
    let mut buf = PageBuf::default();
    let ((key, block), value) = model.iter().nth(probe % model.len()).unwrap();
    match get(&segment, pivots.locate(1 + probe % 9, key, block.0), key, block.0, &mut buf) {
        Ok(found) => assert_eq!(found, Some((block.0, value.clone()))),
        Err(Error::Corrupt(_)) => {}
        Err(other) => panic!("{other}"),
    }
    segment.verify().is_err()
}

#[test]
fn every_flipped_byte_is_noticed() {
    for (name, model, rule) in samples() {
        let (summary, bytes, pivots) = build(&model, rule);
        assert_eq!(summary.overflow_values > 0, name == "overflow");
        assert_eq!(oracle::dictionary_len(&bytes) > 0, name == "zstd with dictionary");
        assert!(bytes.len() < 20 * PAGE_SIZE, "{name} is small: {}", bytes.len());
        let mut damaged = bytes.clone();
        for at in 0..bytes.len() {
            damaged[at] ^= 1 << (at % 8);
            assert!(survives(&damaged, &model, &pivots, at), "{name}: byte {at} of {}", bytes.len());
            damaged[at] = bytes[at];
        }
    }
}

#[test]
fn every_cut_is_noticed() {
    for (name, model, rule) in samples() {
        let (_, bytes, _) = build(&model, rule);
        for len in (0..bytes.len()).filter(|len| len % 509 == 0 || len % PAGE_SIZE == 0) {
            assert!(Segment::open(&bytes[..len]).is_err(), "{name} cut at {len}");
        }
        let mut longer = bytes.clone();
        longer.resize(bytes.len() + PAGE_SIZE, 0);
        assert!(Segment::open(&longer[..]).is_err());
    }
}

#[test]
fn swapped_pages_and_pages_of_another_file_are_noticed() {
    let model = storage(600, 5);
    let (summary, bytes, pivots) = build(&model, EncodingRule::Plain);
    assert!(summary.pages >= 3);
    let mut swapped = bytes.clone();
    swapped.copy_within(PAGE_SIZE..2 * PAGE_SIZE, 2 * PAGE_SIZE);
    swapped[PAGE_SIZE..2 * PAGE_SIZE].copy_from_slice(&bytes[2 * PAGE_SIZE..3 * PAGE_SIZE]);
    assert!(survives(&swapped, &model, &pivots, 1));
    let segment = Segment::open(&swapped[..]).unwrap();
    let (key, block) = model.keys().next().unwrap();
    let found = get(&segment, PageSpan::page(0), key, block.0, &mut PageBuf::default());
    let expected = Corruption { part: Part::DataPage, offset: PAGE_SIZE as u64, reason: Reason::Checksum };
    assert!(matches!(found, Err(Error::Corrupt(corruption)) if corruption == expected));

    let mut other = icecore_segments::SegmentBuilder::new(
        Vec::new(),
        "another",
        oracle::steps(),
        EncodingRule::Plain,
        (),
    )
    .unwrap();
    for ((key, block), value) in &model {
        let value = oracle::value_of(value.as_ref());
        other.push(icecore_segments::Entry { key, block: block.0, value }).unwrap();
    }
    let (_, other, ()) = other.finish().unwrap();
    let mut mixed = bytes.clone();
    mixed[PAGE_SIZE..2 * PAGE_SIZE].copy_from_slice(&other[PAGE_SIZE..2 * PAGE_SIZE]);
    assert!(survives(&mixed, &model, &pivots, 1), "the same page of another domain's file");
}

/// Walks there and back: what comes is in order, whatever the bytes are, until an error ends it.
fn walk_in_order(segment: &Segment<&[u8]>) {
    let mut cursor = segment.cursor();
    let mut before: Option<(Vec<u8>, Reverse<u64>)> = None;
    while cursor.next().unwrap_or(false) {
        let entry = cursor.entry().unwrap();
        let place = (entry.key.to_vec(), Reverse(entry.block));
        assert!(before.is_none_or(|before| before < place), "forward");
        assert!(entry.key.len() <= KEY_LEN_MAX);
        let _ = entry.value.load();
        before = Some(place);
    }
    let mut cursor = segment.cursor();
    let mut before: Option<(Vec<u8>, Reverse<u64>)> = None;
    let mut found = cursor.seek_last();
    while found.unwrap_or(false) {
        let entry = cursor.entry().unwrap();
        let place = (entry.key.to_vec(), Reverse(entry.block));
        assert!(before.is_none_or(|before| place < before), "backward");
        before = Some(place);
        found = cursor.prev();
    }
}

#[test]
fn pages_in_the_wrong_order_end_a_walk_in_an_error() {
    let model = storage(600, 5);
    let (summary, bytes, _) = build(&model, EncodingRule::Plain);
    assert!(summary.pages >= 3);
    let salt = Header::parse(&bytes).unwrap().salt();
    let mut swapped = bytes.clone();
    swapped.copy_within(PAGE_SIZE..2 * PAGE_SIZE, 2 * PAGE_SIZE);
    swapped[PAGE_SIZE..2 * PAGE_SIZE].copy_from_slice(&bytes[2 * PAGE_SIZE..3 * PAGE_SIZE]);
    for number in [1, 2] {
        seal(&mut swapped[number * PAGE_SIZE..][..PAGE_SIZE], number as u64, salt);
    }
    let segment = Segment::open(&swapped[..]).unwrap();
    walk_in_order(&segment);
    let at = |offset| Corruption { part: Part::DataPage, offset, reason: Reason::Order };
    let mut cursor = segment.cursor();
    while matches!(cursor.next(), Ok(true)) {}
    assert!(cursor.entry().is_none());
    let mut cursor = segment.cursor();
    let end = std::iter::repeat_with(|| cursor.next()).find(|step| !matches!(step, Ok(true)));
    assert!(matches!(end, Some(Err(Error::Corrupt(found))) if found == at(2 * PAGE_SIZE as u64)));
    let mut cursor = segment.cursor();
    cursor.seek_last().unwrap();
    let end = std::iter::repeat_with(|| cursor.prev()).find(|step| !matches!(step, Ok(true)));
    assert!(matches!(end, Some(Err(Error::Corrupt(found))) if found.reason == Reason::Order));
}

/// Lets `change` rewrite the payload of the footer, and makes the page's checksum hold.
fn with_payload(bytes: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let (salt, footer_at) = (Header::parse(&bytes).unwrap().salt(), bytes.len() - PAGE_SIZE);
    change(&mut bytes[footer_at + 88..]);
    seal(&mut bytes[footer_at..], (footer_at / PAGE_SIZE) as u64, salt);
    bytes
}

#[test]
fn a_broken_dictionary_is_damage() {
    let model = texts(1700);
    let (_, bytes, _) = build(&model, EncodingRule::Zstd);
    let dictionary_at =
        bytes.len() - PAGE_SIZE - oracle::dictionary_len(&bytes).next_multiple_of(4096) as usize;
    let mut broken = bytes.clone();
    // After the magic and the id come the entropy tables.
    broken[dictionary_at + 8..dictionary_at + 40].fill(0xFF);
    let len = oracle::dictionary_len(&bytes) as usize;
    let sum = crc64(&broken[dictionary_at..][..len]);
    let broken = with_payload(&broken, |payload| payload[120..128].copy_from_slice(&sum.to_le_bytes()));
    let offset = dictionary_at as u64;
    let expected = Corruption { part: Part::Dictionary, offset, reason: Reason::Decode };
    let found = Segment::open(&broken[..]).map(drop);
    assert!(matches!(found, Err(Error::Corrupt(found)) if found == expected), "{found:?}");
}

#[test]
fn counts_that_no_such_file_can_have_are_refused() {
    let (_, bytes, _) = build(&storage(600, 5), EncodingRule::Plain);
    for (at, what) in [(0, "entries"), (8, "keys"), (16, "deletions"), (24, "pages"), (48, "key bytes")]
        .into_iter()
        .chain([(56, "value bytes"), (64, "overflow values"), (72, "overflow bytes")])
    {
        for count in [u64::MAX, 1 << 60, 1 << 40] {
            let forged =
                with_payload(&bytes, |payload| payload[at..at + 8].copy_from_slice(&count.to_le_bytes()));
            assert!(Segment::open(&forged[..]).is_err(), "{what} {count}");
        }
    }
}

#[test]
fn a_dictionary_longer_than_any_is_refused() {
    let (_, bytes, _) = build(&storage(40, 5), EncodingRule::Plain);
    let (content, footer) = bytes.split_at(bytes.len() - PAGE_SIZE);
    for (pages, is_sound) in [(4, true), (5, false)] {
        let dictionary = vec![b'd'; pages * PAGE_SIZE];
        let mut long = [content, &dictionary, footer].concat();
        let (len, sum) = (long.len() as u64, crc64(&dictionary));
        let footer_at = long.len() - PAGE_SIZE;
        long[footer_at + 8..][..8].copy_from_slice(&len.to_le_bytes());
        let long = with_payload(&long, |payload| {
            payload[112..120].copy_from_slice(&(dictionary.len() as u64).to_le_bytes());
            payload[120..128].copy_from_slice(&sum.to_le_bytes());
        });
        assert_eq!(Segment::open(&long[..]).is_ok(), is_sound, "{pages} pages");
    }
}

/// Bytes that no builder writes, under checksums that hold: whatever they say, reading ends.
#[test]
fn malformed_pages_that_pass_their_checksum_end_in_errors() {
    let mut random = SplitMix64(77);
    for (name, model, rule) in samples() {
        let (summary, bytes, pivots) = build(&model, rule);
        let salt = Header::parse(&bytes).unwrap().salt();
        let data_pages: Vec<usize> = (1..bytes.len() / PAGE_SIZE - 1).collect();
        let (mut found, tries) = (0, 3000);
        for _ in 0..tries {
            let mut damaged = bytes.clone();
            let number =
                data_pages[random.below(data_pages.len().min(summary.pages as usize) as u64) as usize];
            let page = &mut damaged[number * PAGE_SIZE..][..PAGE_SIZE];
            for _ in 0..=random.below(4) {
                let within = if random.below(2) == 0 { 120 } else { PAGE_SIZE as u64 - 8 };
                let at = 8 + random.below(within) as usize;
                page[at] = [0, 1, 0x7F, 0x80, 0xFF, random.next() as u8][random.below(6) as usize];
            }
            seal(page, number as u64, salt);
            let segment = Segment::open(&damaged[..]).unwrap();
            walk_in_order(&segment);
            let mut cursor = segment.cursor();
            let _ = segment.offer_pivots(&mut ());
            let _ = segment.for_each_key(|_| Ok(()));
            let (key, block) = model.keys().nth(random.below(model.len() as u64) as usize).unwrap();
            let span = pivots.locate(1 + random.below(6) as usize, key, block.0);
            let _ = get(&segment, span, key, block.0, &mut PageBuf::default());
            if cursor.seek(key, block.0).unwrap_or(false) {
                let entry = cursor.entry().unwrap();
                assert!(
                    (entry.key, Reverse(entry.block)) >= (&key[..], *block),
                    "{name}: a seek that goes back"
                );
            }
            found += usize::from(segment.verify().is_err());
        }
        // Some rewritten bytes were what they were.
        assert!(found > tries * 3 / 4, "{name}: {found} of {tries}");
    }
}

#[test]
fn a_wrong_fingerprint_is_found_by_verify_and_only_hides_its_entry() {
    let model = storage(600, 1);
    let (_, bytes, pivots) = build(&model, EncodingRule::Plain);
    let salt = Header::parse(&bytes).unwrap().salt();
    let page_of =
        |bytes: &[u8]| usize::from(u16::from_le_bytes([bytes[PAGE_SIZE + 14], bytes[PAGE_SIZE + 15]]));
    let first: Vec<_> = model.iter().take(page_of(&bytes)).collect();
    let mut buf = PageBuf::default();
    for (ordinal, ((key, block), value)) in first.iter().enumerate() {
        let mut damaged = bytes.clone();
        // The column of fingerprints follows the fronts of page and body.
        damaged[PAGE_SIZE + 30 + ordinal] ^= 1;
        seal(&mut damaged[PAGE_SIZE..2 * PAGE_SIZE], 1, salt);
        let segment = Segment::open(&damaged[..]).unwrap();
        let expected = Corruption { part: Part::DataPage, offset: PAGE_SIZE as u64, reason: Reason::Field };
        let found = segment.verify();
        assert!(matches!(found, Err(Error::Corrupt(found)) if found == expected), "{ordinal}: {found:?}");
        let found = get(&segment, pivots.locate(1, key, block.0), key, block.0, &mut buf).unwrap();
        assert!(found.is_none_or(|found| found == (block.0, (*value).clone())), "{ordinal}");
        read_all(&segment, &model).unwrap();
    }
}

#[test]
fn a_span_of_another_segment_is_a_mismatch() {
    let model = storage(600, 5);
    let (summary, bytes, _) = build(&model, EncodingRule::Plain);
    let segment = Segment::open(&bytes[..]).unwrap();
    let mut buf = PageBuf::default();
    for span in [
        PageSpan::page(summary.pages),
        PageSpan { first: 1, last: 0, restart: 0 },
        PageSpan { first: 0, last: u64::MAX, restart: 0 },
        PageSpan { first: 0, last: 0, restart: 1000 },
    ] {
        assert!(matches!(segment.get_in(span, b"k", 1, &mut buf), Err(Error::Mismatch { .. })), "{span:?}");
        assert!(matches!(segment.cursor().seek_in(span, b"k", 1), Err(Error::Mismatch { .. })), "{span:?}");
    }
}
