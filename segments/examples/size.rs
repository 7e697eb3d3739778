//! Measures the `.kv` of the reference dataset (`STORAGE.md`), built in memory: bytes per entry and rates.
//!
//! `cargo run --release -p icecore-segments --example size -- 5000000`

#![allow(clippy::unwrap_used, reason = "an example ends where a step fails")]

use std::hint::black_box;
use std::time::Duration;

use icecore_segments::span::{PageSpan, Pivot, PivotSink};
use icecore_segments::step::{Step, StepRange};
use icecore_segments::{
    Encoding, EncodingRule, Entry, EntrySource, Error, MergeCursor, PageBuf, Segment, SegmentBuilder, Value,
};

const KEY_LEN: usize = 52;

/// The processor time of this thread: what a busy machine does not disturb much.
struct Clock(Duration);

impl Clock {
    fn now() -> Self {
        let stat =
            std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux says the time of a thread");
        let spent = stat.split(' ').next().and_then(|field| field.parse().ok());
        Self(Duration::from_nanos(spent.expect("nanoseconds")))
    }

    fn seconds(&self) -> f64 {
        Self::now().0.saturating_sub(self.0).as_secs_f64()
    }
}

struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn fill(&mut self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// One generated entry: key, value, value length.
#[derive(Clone, Copy)]
struct Row {
    key: [u8; KEY_LEN],
    value: [u8; 32],
    len: usize,
}

fn reference(n: usize) -> Vec<Row> {
    let mut random = SplitMix64(0xE2_1609);
    // Small runs take fewer addresses than the reference, so that the counts add up.
    let (addresses, most) = if n < 5_000_000 { (n / 100, n / 12) } else { (50_000, n * 4330 / 50_000) };
    let mut counts: Vec<usize> = (0..addresses).map(|i| most / (i + 1) + 1).collect();
    counts[0] += n.checked_sub(counts.iter().sum()).expect("a count that the Zipf sum stays below");
    let mut rows = Vec::with_capacity(n);
    for count in counts {
        let mut key = [0; KEY_LEN];
        random.fill(&mut key[..20]);
        let mut small = 0u64;
        let mut previous: Option<[u8; 32]> = None;
        for _ in 0..count {
            let kind = random.below(100);
            let slot = match previous {
                _ if kind < 10 => {
                    let mut slot = [0; 32];
                    slot[24..].copy_from_slice(&small.to_be_bytes());
                    small += 1;
                    slot
                }
                Some(mut slot) if kind < 35 => {
                    let tail = u64::from_be_bytes(slot[24..].try_into().expect("eight bytes"));
                    slot[24..].copy_from_slice(&tail.wrapping_add(1).to_be_bytes());
                    previous = Some(slot);
                    slot
                }
                _ => {
                    let mut slot = [0; 32];
                    random.fill(&mut slot);
                    previous = Some(slot);
                    slot
                }
            };
            key[20..].copy_from_slice(&slot);
            let len = match random.below(100) {
                0..35 => 1,
                35..60 => 20,
                60..85 => 6 + random.below(7) as usize,
                _ => 32,
            };
            let mut value = [0; 32];
            random.fill(&mut value[..len]);
            value[0] = value[0].max(1);
            rows.push(Row { key, value, len });
        }
    }
    rows.sort_unstable_by_key(|row| row.key);
    assert!(rows.windows(2).all(|pair| pair[0].key < pair[1].key), "no duplicates");
    rows
}

/// Keeps every pivot of the segment, its key whole.
#[derive(Default, PartialEq)]
struct Pivots {
    count: u64,
    key_bytes: u64,
    page_key_bytes: u64,
}

impl PivotSink for Pivots {
    fn pivot(&mut self, pivot: &Pivot<'_>) -> Result<(), Error> {
        self.count += 1;
        self.key_bytes += pivot.separator.key.len() as u64;
        if pivot.restart == 0 {
            self.page_key_bytes += pivot.separator.key.len() as u64;
        }
        Ok(())
    }
}

fn build(rows: &[Row], rule: EncodingRule, block: impl Fn(usize) -> u64) -> (Vec<u8>, f64, Pivots) {
    let started = Clock::now();
    let sink = Vec::with_capacity(rows.len() * 48);
    let mut builder =
        SegmentBuilder::new(sink, "storage", StepRange::single(Step(0)), rule, Pivots::default()).unwrap();
    for (i, row) in rows.iter().enumerate() {
        let value = Value::Inline(&row.value[..row.len]);
        builder.push(Entry { key: &row.key, block: block(i), value }).unwrap();
    }
    let (_, bytes, pivots) = builder.finish().unwrap();
    (bytes, started.seconds(), pivots)
}

fn report(name: &str, rows: &[Row], rule: EncodingRule, block: impl Fn(usize) -> u64 + Copy) -> Vec<u8> {
    let (bytes, seconds, pivots) = build(rows, rule, block);
    let n = rows.len() as f64;
    let segment = Segment::open(&bytes[..]).unwrap();
    let (summary, mut offered) = (segment.summary(), Pivots::default());
    let started = Clock::now();
    segment.offer_pivots(&mut offered).unwrap();
    let offer_seconds = started.seconds();
    assert!(offered == pivots, "a reindex sees what the builder offered");
    let (started, mut sum, mut cursor) = (Clock::now(), 0u64, segment.cursor());
    while cursor.next().unwrap() {
        let entry = cursor.entry().unwrap();
        sum += entry.block + u64::from(entry.key[KEY_LEN - 1]);
    }
    let cursor_seconds = started.seconds();
    black_box(sum);
    println!(
        "{name:12} {:?} B/entry={:.3} pages={} build={:.2} M/s offer_pivots={:.1} M/s cursor={:.1} M/s pivots/page={:.2} \
         separator={:.1} B (of pages {:.1} B)",
        summary.encoding,
        bytes.len() as f64 / n,
        summary.pages,
        n / seconds / 1e6,
        n / offer_seconds / 1e6,
        n / cursor_seconds / 1e6,
        pivots.count as f64 / summary.pages as f64,
        pivots.key_bytes as f64 / pivots.count as f64,
        pivots.page_key_bytes as f64 / summary.pages as f64,
    );
    bytes
}

/// Where each key is: page and restart, by a pass over the pivots.
struct Places(Vec<(u64, u64, u16)>);

impl PivotSink for Places {
    fn pivot(&mut self, pivot: &Pivot<'_>) -> Result<(), Error> {
        self.0.push((pivot.ordinal, pivot.page, pivot.restart));
        Ok(())
    }
}

fn lookups(name: &str, rows: &[Row], bytes: &[u8], span_of: u64) {
    let segment = Segment::open(bytes).unwrap();
    let mut places = Places(Vec::new());
    segment.offer_pivots(&mut places).unwrap();
    let mut random = SplitMix64(42);
    let plain = segment.summary().encoding == Encoding::Plain;
    for (label, population) in [("all", rows.len() as u64), ("cached 1000 keys", 1000)] {
        for hinted in [false, true] {
            let probes: Vec<(Row, PageSpan)> = (0..if plain { 1_000_000 } else { 50_000 })
                .map(|_| {
                    let index = random.below(population);
                    let at = places.0.partition_point(|place| place.0 <= index) - 1;
                    let (_, page, restart) = places.0[at];
                    let first = if hinted { page } else { page - page % span_of };
                    let last =
                        if hinted { page } else { (first + span_of - 1).min(segment.summary().pages - 1) };
                    (
                        rows[index as usize],
                        PageSpan { first, last, restart: if hinted { restart } else { 0 } },
                    )
                })
                .collect();
            let mut buf = PageBuf::default();
            let started = Clock::now();
            for (row, span) in &probes {
                let found = segment.get_in(*span, &row.key, u64::MAX, &mut buf).unwrap();
                let found = found.expect("every key is found");
                assert!(found.value == Value::Inline(&row.value[..row.len]));
            }
            println!(
                "{name:12} get_in {label}, span of {} page(s){}: {:.0} ns",
                if hinted { 1 } else { span_of },
                if hinted { ", restart known" } else { "" },
                started.seconds() * 1e9 / probes.len() as f64,
            );
        }
    }
}

/// One dependent random read of 64 bytes of the same bytes: what a lookup is compared with.
fn floor(bytes: &[u8]) {
    let (mut state, reads) = (SplitMix64(1), 1_000_000);
    let started = Clock::now();
    for _ in 0..reads {
        let at = state.below(bytes.len() as u64 / 64) as usize * 64;
        state.0 ^= u64::from(bytes[at]) + u64::from(bytes[at + 63]);
    }
    println!("one dependent random read: {:.0} ns", started.seconds() * 1e9 / f64::from(reads));
}

fn merges(bytes: &[u8], rows: &[Row]) {
    for inputs in [2, 8] {
        let parts: Vec<Vec<u8>> = (0..inputs)
            .map(|part| {
                let own: Vec<Row> = rows.iter().skip(part).step_by(inputs).copied().collect();
                build(&own, EncodingRule::Plain, |_| 7).0
            })
            .collect();
        let segments: Vec<_> = parts.iter().map(|part| Segment::open(&part[..]).unwrap()).collect();
        let cursors = || -> Vec<_> {
            segments
                .iter()
                .map(|segment| {
                    let mut cursor = segment.cursor();
                    cursor.seek_first().unwrap();
                    cursor
                })
                .collect()
        };
        let started = Clock::now();
        let (mut merge, mut count) = (MergeCursor::new(cursors()).unwrap(), 0u64);
        while let Some(entry) = merge.entry() {
            count += 1;
            black_box(entry);
            merge.advance().unwrap();
        }
        let walk = started.seconds();
        let started = Clock::now();
        let sink = Vec::with_capacity(bytes.len());
        let steps = StepRange::single(Step(0));
        let mut builder = SegmentBuilder::new(sink, "storage", steps, EncodingRule::Plain, ()).unwrap();
        let mut merge = MergeCursor::new(cursors()).unwrap();
        while let Some(entry) = merge.entry() {
            builder.push(entry).unwrap();
            merge.advance().unwrap();
        }
        let (_, merged, ()) = builder.finish().unwrap();
        let full = started.seconds();
        assert!(merged == bytes, "a merge gives the bytes of a direct build");
        println!(
            "merge of {inputs}: cursor alone {:.1} M/s, with building {:.2} M/s",
            count as f64 / walk / 1e6,
            count as f64 / full / 1e6
        );
    }
}

fn main() {
    let n = std::env::args().nth(1).map_or(5_000_000, |n| n.parse().expect("a number of entries"));
    let rows = reference(n);
    let plain = report("one block", &rows, EncodingRule::Plain, |_| 7);
    report("i mod 1024", &rows, EncodingRule::Plain, |i| i as u64 % 1024);
    let zstd = report("one block", &rows, EncodingRule::Zstd, |_| 7);
    report("i mod 1024", &rows, EncodingRule::Zstd, |i| i as u64 % 1024);
    report("auto", &rows, EncodingRule::Auto, |_| 7);
    floor(&plain);
    lookups("plain", &rows, &plain, 1);
    lookups("plain", &rows, &plain, 3);
    lookups("zstd", &rows, &zstd, 1);
    merges(&plain, &rows);
    let started = Clock::now();
    Segment::open(&plain[..]).unwrap().verify().unwrap();
    println!("verify {:.1} M/s", rows.len() as f64 / started.seconds() / 1e6);
}
