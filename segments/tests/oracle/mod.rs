//! What the integration tests share: a plain model of versions, seeded content, a tiny index.

#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use icecore_segments::span::{PageSpan, Pivot, PivotSink, Separator};
use icecore_segments::step::{Step, StepRange};
use icecore_segments::{
    Cursor, EncodingRule, Entry, EntryBatch, EntrySource, Error, FileBytes, MergeCursor, PageBuf, Segment,
    SegmentBuilder, SegmentSummary, Value,
};

/// All versions in the order of a segment; `None` is a deletion.
pub(crate) type Model = BTreeMap<Position, Option<Vec<u8>>>;

/// A key and a block, in the order of a segment.
pub(crate) type Position = (Vec<u8>, Reverse<u64>);

/// What a lookup answers: the block and the value, or a deletion.
pub(crate) type Answer = (u64, Option<Vec<u8>>);

pub(crate) const RULES: [EncodingRule; 3] = [EncodingRule::Plain, EncodingRule::Zstd, EncodingRule::Auto];

pub(crate) fn steps() -> StepRange {
    StepRange::new(Step(0), Step(64)).unwrap()
}

pub(crate) struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// Bytes that compress to about a third.
    pub(crate) fn text(&mut self, len: usize) -> Vec<u8> {
        const WORDS: [&str; 8] = ["balance", "nonce", "code", "storage", "root", "slot", "0000", "ffff"];
        let mut text = Vec::new();
        while text.len() < len {
            text.extend_from_slice(WORDS[self.below(8) as usize].as_bytes());
            text.push(b'0' + self.below(10) as u8);
        }
        text.truncate(len);
        text
    }
}

/// A pivot, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnPivot {
    pub(crate) key: Vec<u8>,
    pub(crate) before: Option<u64>,
    pub(crate) page: u64,
    pub(crate) restart: u16,
    pub(crate) ordinal: u64,
}

/// Keeps every pivot: the tiny index.
#[derive(Default, Debug, PartialEq, Eq)]
pub(crate) struct Pivots(pub(crate) Vec<OwnPivot>);

impl PivotSink for Pivots {
    fn pivot(&mut self, pivot: &Pivot<'_>) -> Result<(), Error> {
        let Separator { key, before } = pivot.separator;
        let (page, restart, ordinal) = (pivot.page, pivot.restart, pivot.ordinal);
        self.0.push(OwnPivot { key: key.to_vec(), before, page, restart, ordinal });
        Ok(())
    }
}

impl Pivots {
    /// The span that an index of every `density`-th pivot gives.
    pub(crate) fn locate(&self, density: usize, key: &[u8], at: u64) -> PageSpan {
        let kept: Vec<&OwnPivot> = self.0.iter().step_by(density).collect();
        let after = kept.partition_point(|pivot| {
            Separator { key: &pivot.key, before: pivot.before }.side(key, at) == Ordering::Greater
        });
        let from = kept[after.checked_sub(1).expect("the first boundary is before everything")];
        let last = match kept.get(after) {
            Some(to) if to.restart == 0 => to.page - 1,
            Some(to) => to.page,
            None => self.0.last().unwrap().page,
        };
        PageSpan { first: from.page, last, restart: from.restart }
    }
}

pub(crate) fn value_of(value: Option<&Vec<u8>>) -> Value<'_> {
    value.map_or(Value::Deletion, |bytes| Value::Inline(bytes))
}

pub(crate) fn build(model: &Model, rule: EncodingRule) -> (SegmentSummary, Vec<u8>, Pivots) {
    let mut builder = SegmentBuilder::new(Vec::new(), "storage", steps(), rule, Pivots::default()).unwrap();
    let mut last: Option<&[u8]> = None;
    for ((key, Reverse(block)), value) in model {
        let is_new = builder.push(Entry { key, block: *block, value: value_of(value.as_ref()) }).unwrap();
        assert_eq!(is_new, last != Some(key), "push says whether the key is new");
        last = Some(key);
    }
    builder.finish().unwrap()
}

/// The length of the dictionary, as the footer has it.
pub(crate) fn dictionary_len(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[bytes.len() - 4096 + 88 + 112..][..8].try_into().unwrap())
}

/// The newest version at or below `at`.
pub(crate) fn expected<'a>(model: &'a Model, key: &[u8], at: u64) -> Option<(u64, Option<&'a Vec<u8>>)> {
    let from = (key.to_vec(), Reverse(at));
    let ((found, Reverse(block)), value) = model.range(from..).next()?;
    (found == key).then_some((*block, value.as_ref()))
}

pub(crate) fn get<D: FileBytes>(
    segment: &Segment<D>,
    span: PageSpan,
    key: &[u8],
    at: u64,
    buf: &mut PageBuf,
) -> Result<Option<Answer>, Error> {
    match segment.get_in(span, key, at, buf)? {
        None => Ok(None),
        Some(version) => Ok(Some((version.block, version.value.load()?.map(std::borrow::Cow::into_owned)))),
    }
}

/// Compares a segment with the model in every way there is to read it.
pub(crate) fn check(model: &Model, rule: EncodingRule, extra_keys: &[Vec<u8>]) {
    let (summary, bytes, pivots) = build(model, rule);
    let segment = Segment::open(&bytes[..]).unwrap();
    assert_eq!(segment.summary(), &summary);
    segment.verify().unwrap();
    check_summary(model, &summary);
    let mut offered = Pivots::default();
    segment.offer_pivots(&mut offered).unwrap();
    assert_eq!(offered, pivots);
    check_keys(model, &segment);
    check_cursor(model, &segment);
    if !model.is_empty() {
        check_lookups(model, &segment, &pivots, extra_keys);
    }
}

fn check_summary(model: &Model, summary: &SegmentSummary) {
    let blocks = || model.keys().map(|(_, Reverse(block))| *block);
    assert_eq!(summary.entries, model.len() as u64);
    assert_eq!(summary.deletions, model.values().filter(|value| value.is_none()).count() as u64);
    assert_eq!(summary.min_block, blocks().min().unwrap_or(0));
    assert_eq!(summary.max_block, blocks().max().unwrap_or(0));
    assert_eq!(summary.key_bytes, model.keys().map(|(key, _)| key.len() as u64).sum::<u64>());
    assert_eq!(summary.value_bytes, model.values().flatten().map(|value| value.len() as u64).sum::<u64>());
    assert_eq!(summary.first_key, model.keys().next().map(|(key, _)| key.clone()).unwrap_or_default());
    assert_eq!(summary.last_key, model.keys().next_back().map(|(key, _)| key.clone()).unwrap_or_default());
}

fn check_keys(model: &Model, segment: &Segment<&[u8]>) {
    let mut keys = Vec::new();
    segment
        .for_each_key(|key| {
            keys.push(key.to_vec());
            Ok(())
        })
        .unwrap();
    let mut expected: Vec<_> = model.keys().map(|(key, _)| key.clone()).collect();
    expected.dedup();
    assert_eq!(keys, expected);
    assert_eq!(segment.summary().keys, keys.len() as u64);
}

fn check_cursor(model: &Model, segment: &Segment<&[u8]>) {
    let same = |entry: Option<Entry<'_>>, (key, value): (&Position, &Option<Vec<u8>>)| {
        let entry = entry.expect("the cursor stands on an entry");
        assert_eq!((entry.key, entry.block), (&key.0[..], key.1.0));
        assert_eq!(entry.value.load().unwrap().as_deref(), value.as_deref());
    };
    let mut cursor = segment.cursor();
    assert!(cursor.entry().is_none());
    for pair in model {
        assert!(cursor.next().unwrap());
        same(cursor.entry(), pair);
    }
    assert!(!cursor.next().unwrap() && !cursor.next().unwrap() && cursor.entry().is_none());
    for pair in model.iter().rev() {
        assert!(cursor.prev().unwrap());
        same(cursor.entry(), pair);
    }
    assert!(!cursor.prev().unwrap() && !cursor.prev().unwrap() && cursor.entry().is_none());
    assert_eq!(cursor.next().unwrap(), !model.is_empty());
    assert_eq!(cursor.seek_last().unwrap(), !model.is_empty());
    if let Some(pair) = model.last_key_value() {
        same(cursor.entry(), pair);
        // Back and forth.
        for _ in 0..3 {
            let moved = cursor.prev().unwrap();
            assert_eq!(moved, model.len() > 1);
            assert!(cursor.next().unwrap());
        }
    }
}

fn check_lookups(model: &Model, segment: &Segment<&[u8]>, pivots: &Pivots, extra_keys: &[Vec<u8>]) {
    let mut probes: Vec<(Vec<u8>, u64)> = Vec::new();
    let every = model.len().div_ceil(400);
    for (key, Reverse(block)) in model.keys().step_by(every) {
        probes.extend([block.saturating_sub(1), *block, block.saturating_add(1)].map(|at| (key.clone(), at)));
        let mut longer = key.clone();
        longer.push(0);
        probes.push((longer, *block));
        if let Some((last, rest)) = key.split_last() {
            probes.push((rest.to_vec(), *block));
            probes.push(([rest, &[last.wrapping_add(1)]].concat(), *block));
        }
    }
    probes.extend(extra_keys.iter().map(|key| (key.clone(), u64::MAX)));
    probes.extend([(Vec::new(), 0), (vec![0xFF; 60], u64::MAX), (vec![0xFF; 2000], 7)]);
    let (mut buf, mut cursor) = (PageBuf::default(), segment.cursor());
    let whole = PageSpan { first: 0, last: segment.summary().pages - 1, restart: 0 };
    for (key, at) in probes {
        let wanted = expected(model, &key, at).map(|(block, value)| (block, value.cloned()));
        for span in
            [1, 2, 3, 7, 20].map(|density| pivots.locate(density, &key, at)).into_iter().chain([whole])
        {
            let got = get(segment, span, &key, at, &mut buf).unwrap();
            assert_eq!(got, wanted, "{key:?} at {at} in {span:?}");
            let next = model.range((key.clone(), Reverse(at))..).next();
            assert_eq!(cursor.seek_in(span, &key, at).unwrap(), next.is_some());
            let stands = cursor.entry().map(|entry| (entry.key.to_vec(), Reverse(entry.block)));
            assert_eq!(stands.as_ref(), next.map(|(position, _)| position), "{key:?} at {at} in {span:?}");
        }
        let before = model.range(..(key.clone(), Reverse(at))).next_back();
        cursor.seek(&key, at).unwrap();
        assert_eq!(cursor.prev().unwrap(), before.is_some());
        let stands = cursor.entry().map(|entry| (entry.key.to_vec(), Reverse(entry.block)));
        assert_eq!(stands.as_ref(), before.map(|(position, _)| position));
    }
}

/// Deals the versions to `parts` segments, merges those, and returns the bytes.
pub(crate) fn build_by_merge(model: &Model, rule: EncodingRule, parts: usize, seed: u64) -> Vec<u8> {
    let mut random = SplitMix64(seed);
    let mut models = vec![Model::new(); parts];
    for (position, value) in model {
        models[random.below(parts as u64) as usize].insert(position.clone(), value.clone());
    }
    let files: Vec<Vec<u8>> =
        models.iter().enumerate().map(|(i, model)| build(model, RULES[i % 3]).1).collect();
    let segments: Vec<_> = files.iter().map(|file| Segment::open(file).unwrap()).collect();
    let merge = || {
        let cursors = segments.iter().map(|segment| {
            let mut cursor = segment.cursor();
            cursor.seek_first().unwrap();
            cursor
        });
        MergeCursor::new(cursors.collect()).unwrap()
    };
    let bytes = build_entry_by_entry(merge(), rule);
    assert!(build_in_batches(merge(), rule) == bytes);
    bytes
}

/// Also compares what the merge says of its keys: how much each shares with the one before.
fn build_entry_by_entry(mut merge: MergeCursor<Cursor<'_, &Vec<u8>>>, rule: EncodingRule) -> Vec<u8> {
    let mut builder = SegmentBuilder::new(Vec::new(), "storage", steps(), rule, ()).unwrap();
    let mut before = Vec::new();
    while let Some(entry) = merge.entry() {
        let shared = before.iter().zip(entry.key).take_while(|(a, b)| a == b).count();
        assert_eq!(merge.shared(), shared);
        before = entry.key.to_vec();
        builder.push(entry).unwrap();
        merge.advance().unwrap();
    }
    builder.finish().unwrap().1
}

fn build_in_batches(mut merge: MergeCursor<Cursor<'_, &Vec<u8>>>, rule: EncodingRule) -> Vec<u8> {
    let mut builder = SegmentBuilder::new(Vec::new(), "storage", steps(), rule, ()).unwrap();
    let mut batch = EntryBatch::default();
    loop {
        batch.fill(&mut merge).unwrap();
        if batch.is_empty() {
            return builder.finish().unwrap().1;
        }
        for entry in batch.iter() {
            builder.push(entry).unwrap();
        }
    }
}

/// The first entries of something like the reference dataset: addresses of 20 bytes, slots of 32.
pub(crate) fn storage(entries: usize, blocks: u64) -> Model {
    let mut random = SplitMix64(0xE2_1609);
    let mut model = Model::new();
    while model.len() < entries {
        let address = random.bytes(20);
        for slot in 0..=random.below(60) {
            let mut key = address.clone();
            if random.below(3) == 0 {
                key.resize(51, 0);
                key.push(slot as u8);
            } else {
                key.extend(random.bytes(32));
            }
            for _ in 0..=random.below(3) {
                let len = [0, 1, 20, 32][random.below(4) as usize];
                let value = (random.below(10) > 0).then(|| random.bytes(len));
                model.insert((key.clone(), Reverse(random.below(blocks))), value);
            }
        }
    }
    model
}

/// Content that recurs over many pages, so that a dictionary pays: values from a pool, counters as keys.
pub(crate) fn texts(entries: u64) -> Model {
    let mut random = SplitMix64(3);
    let pool: Vec<Vec<u8>> = (0..100).map(|_| random.bytes(60)).collect();
    (0..entries)
        .map(|i| {
            let mut value = pool[random.below(100) as usize].clone();
            value.extend(random.text(3));
            let value = (random.below(12) > 0).then_some(value);
            ((format!("account/{:08}", i * 3).into_bytes(), Reverse(i % 7)), value)
        })
        .collect()
}

/// Values of every size around the bounds, some of them compressible.
pub(crate) fn large_values() -> Model {
    let mut random = SplitMix64(5);
    let lens = [0, 1, 1023, 1024, 1025, 1026, 4096, 5000, 24_000, 70_000];
    let mut model = Model::new();
    for i in 0..60u8 {
        let len = lens[i as usize % lens.len()];
        let value = if i % 2 == 0 { random.bytes(len) } else { random.text(len) };
        model.insert((vec![b'k', i / 4, 0, i], Reverse(u64::from(i))), Some(value));
    }
    model
}
