//! `FORMAT.md` against the bytes: the worked examples are what the builders write. `UPDATE=1` rewrites them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pages;

use std::fmt::Write;

use icecore_index::{Density, FilterBits, FilterBuilder, KeyHash, MemorySpool, Parallelism, PivotBuilder};
use icecore_segments::bytes::u32_at;
use icecore_segments::span::{Pivot, PivotSink, Separator};
use pages::{PARENT, steps};

const PAGE: usize = 4096;

/// Rows of bytes with what they are; the rest of the page is zero.
fn dump(page: &[u8], rows: &[(usize, &str)], end: usize) -> String {
    assert!(page[end..].iter().all(|&byte| byte == 0), "zeros behind the last row");
    let mut out = String::new();
    for (row, &(from, what)) in rows.iter().enumerate() {
        let to = rows.get(row + 1).map_or(end, |next| next.0);
        let bytes: Vec<String> = page[from..to].iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(out, "{from:4}  {:<36}  {what}", bytes.join(" ")).unwrap();
    }
    out
}

fn leaf() -> String {
    let mut builder = PivotBuilder::new(Vec::new(), "storage", steps(), Density::new(1).unwrap()).unwrap();
    let places =
        [(&b"a"[..], None, 0, 0, 0), (b"cold", Some(9), 0, 1, 3), (b"d\0\0\0\0\0\0\x01", None, 1, 0, 6)];
    for (key, before, page, restart, ordinal) in places {
        let separator = Separator { key, before };
        builder.pivot(&Pivot { separator, page, restart, ordinal }).unwrap();
    }
    let (_, bytes) = builder.finish(PARENT, 2, 8).unwrap();
    let rows = [
        (0, "page checksum"),
        (8, "flags: none"),
        (10, "pivots"),
        (12, "end of the bodies"),
        (14, "unused"),
        (16, "first data page"),
        (24, "last data page"),
        (32, "base of the blocks: that of the first border between versions"),
        (40, "codes: shared 0, then nothing, `c`, `d`"),
        (46, "lengths: begins a page and extras; extras; begins a page and extras"),
        (49, "body of the first: extras: empty"),
        (50, "body of the second: extras, restart 1, block 9 - 9, `old`"),
        (56, "body of the third: extras, at 0 were 6 zeros, 1"),
    ];
    dump(&bytes[PAGE..2 * PAGE], &rows, 60)
}

fn shard() -> String {
    let mut builder = FilterBuilder::new(FilterBits::Eight, 3, MemorySpool::default(), Parallelism::Off);
    [1, 2, 3].into_iter().try_for_each(|hash| builder.push(KeyHash::from_u64(hash))).unwrap();
    let (_, bytes) = builder.finish(Vec::new(), "storage", steps(), PARENT).unwrap();
    let rows = [
        (0, "page checksum"),
        (8, "seed"),
        (16, "length of a segment"),
        (20, "positions of the first cell"),
        (24, "keys"),
        (26, "twist"),
        (28, "unused"),
        (32, "cells"),
    ];
    let page = &bytes[PAGE..2 * PAGE];
    let [s, p] = [16, 20].map(|at| u32_at(page, at).unwrap() as usize);
    dump(page, &rows, 32 + p + 2 * s)
}

#[test]
fn the_worked_examples_are_what_the_builders_write() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/FORMAT.md");
    let mut text = include_str!("../FORMAT.md").to_owned();
    for (name, wanted) in [("leaf", leaf()), ("shard", shard())] {
        let start = format!("```hex {name}\n");
        let from = text.find(&start).unwrap() + start.len();
        let to = from + text[from..].find("```").unwrap();
        if std::env::var_os("UPDATE").is_some() {
            text.replace_range(from..to, &wanted);
        } else {
            assert_eq!(&text[from..to], wanted, "{name}");
        }
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, text).unwrap();
    }
}
