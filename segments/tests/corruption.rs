//! Every damage is an error or leaves the answers as they were; `verify` always finds it.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod oracle;

use std::cmp::Reverse;

use icecore_segments::checksum::seal;
use icecore_segments::error::{Corruption, Part, Reason};
use icecore_segments::frame::{Header, PAGE_SIZE};
use icecore_segments::span::PageSpan;
use icecore_segments::{EncodingRule, Error, PageBuf, Segment};
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
            let mut cursor = segment.cursor();
            let mut steps = 0;
            while cursor.next().unwrap_or(false) {
                let _ = cursor.entry().unwrap().value.load();
                steps += 1;
                assert!(steps < 200_000, "{name}: a cursor that ends");
            }
            let _ = cursor.seek_last();
            while cursor.prev().unwrap_or(false) {}
            let _ = segment.offer_pivots(&mut ());
            let _ = segment.for_each_key(|_| Ok(()));
            let (key, block) = model.keys().nth(random.below(model.len() as u64) as usize).unwrap();
            let span = pivots.locate(1 + random.below(6) as usize, key, block.0);
            let _ = get(&segment, span, key, block.0, &mut PageBuf::default());
            let _ = cursor.seek(key, block.0);
            found += usize::from(segment.verify().is_err());
        }
        // Some rewritten bytes were what they were.
        assert!(found > tries * 3 / 4, "{name}: {found} of {tries}");
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
