//! The lookup by fingerprints, by itself.

use super::*;
use crate::builder::SegmentBuilder;
use crate::codec::EncodingRule;
use crate::entry::{Entry, Value};
use crate::step::{Step, StepRange};

#[test]
fn fingerprints_stay_what_they_are() {
    let long: Vec<u8> = (0..52).collect();
    for (len, print) in [(0, 0x00), (1, 0xDF), (7, 0x3A), (8, 0x6E), (9, 0x29), (32, 0x50), (52, 0x59)] {
        assert_eq!(fingerprint(&long[..len]), print, "{len} bytes: {:#04x}", fingerprint(&long[..len]));
    }
}

#[test]
fn keys_that_differ_in_the_last_byte_have_different_fingerprints() {
    for len in [1, 2, 7, 8, 9, 31, 32, 52] {
        let mut key: Vec<u8> = (0..len).map(|i: u8| i.wrapping_mul(37)).collect();
        let mut prints: Vec<u8> = Vec::new();
        for last in 0..=255 {
            key[usize::from(len) - 1] = last;
            prints.push(fingerprint(&key));
        }
        prints.sort_unstable();
        assert!(prints.iter().copied().eq(0..=255), "{len} bytes");
    }
}

#[test]
fn bytes_of_words_are_found_and_summed() {
    for word in [0, ONES, u64::MAX, 0x0100_FF00_8000_0001, 0x80_7F01_0000_FF01] {
        let bytes = word.to_le_bytes();
        let zeros = bytes.iter().rev().fold(0, |mask, &byte| mask << 8 | u64::from(byte == 0) << 7);
        assert_eq!(zero_bytes(word), zeros, "{word:#x}");
        assert_eq!(sum_bytes(word), bytes.iter().map(|&byte| usize::from(byte)).sum::<usize>(), "{word:#x}");
    }
}

/// Entries of narrow cells, plain: no lookup of a version that a page has may need the ordered search.
fn assert_found(entries: &[(Vec<u8>, u64, Vec<u8>)]) {
    let steps = StepRange::single(Step(0));
    let mut builder = SegmentBuilder::new(Vec::new(), "find", steps, EncodingRule::Plain, ()).unwrap();
    for (key, block, value) in entries {
        builder.push(Entry { key, block: *block, value: Value::Inline(value) }).unwrap();
    }
    let (summary, bytes, ()) = builder.finish().unwrap();
    assert!(summary.pages > 2);
    for (key, block, value) in entries {
        let pages = bytes[PAGE_SIZE..].chunks_exact(PAGE_SIZE).take(summary.pages as usize);
        let mut found = 0;
        for page in pages {
            match find(page.first_chunk().unwrap(), 0, key, *block) {
                Found::Entry(at, Some(bytes)) if at == *block => {
                    assert_eq!(bytes, value);
                    found += 1;
                }
                // A page that begins with older versions of the key.
                Found::Entry(at, _) => assert!(at < *block),
                Found::Absent => {}
                Found::Unsure => panic!("{key:?} at {block}"),
            }
        }
        assert_eq!(found, 1, "{key:?} at {block}");
    }
}

#[test]
fn what_is_there_is_found_without_an_ordered_search() {
    let value = |i: u32| vec![1; (i % 40) as usize];
    assert_found(
        &(0..900).map(|i| (format!("key/{:06}/{}", i / 3, i % 3).into(), 7, value(i))).collect::<Vec<_>>(),
    );
    assert_found(&(0..900u32).map(|i| (i.to_be_bytes().to_vec(), 7, value(i))).collect::<Vec<_>>());
    let versions = |i: u32| (vec![b'k'; 30], 5000 - u64::from(i), value(i));
    assert_found(&(0..900).map(versions).collect::<Vec<_>>());
    let several = |i: u32| (vec![b'a' + (i / 300) as u8; 30], 5000 - u64::from(i), value(i));
    assert_found(&(0..900).map(several).collect::<Vec<_>>());
}
