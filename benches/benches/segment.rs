//! The `.kv` file: building, lookups inside a page that is already known, walking, merging.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use icecore_benches::{BLOCK, DOMAIN, Dataset, Files, build_segment, fold, size, steps};
use icecore_index::Density;
use icecore_segments::{Cursor, EncodingRule, EntrySource, MergeCursor, PageBuf, Segment, SegmentBuilder};

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let dataset = Dataset::new(size(1_000_000, 3_000));
    build(&mut criterion, &dataset);
    get(&mut criterion, &dataset);
    walk_and_merge(&mut criterion, &dataset);
    criterion.final_summary();
}

const RULES: [(&str, EncodingRule); 2] = [("plain", EncodingRule::Plain), ("zstd", EncodingRule::Zstd)];

fn build(criterion: &mut Criterion, dataset: &Dataset) {
    let mut group = criterion.benchmark_group("segment_build");
    group.sample_size(10).throughput(Throughput::Elements(dataset.entries.len() as u64));
    for (name, rule) in RULES {
        let expected = build_segment(rule, &dataset.entries);
        assert_eq!(build_segment(rule, &dataset.entries), expected, "the same entries give the same bytes");
        group.bench_function(format!("keys={} encoding={name}", dataset.entries.len()), |bencher| {
            bencher.iter(|| black_box(build_segment(rule, &dataset.entries)));
        });
    }
    group.finish();
}

fn get(criterion: &mut Criterion, dataset: &Dataset) {
    let mut group = criterion.benchmark_group("segment_get");
    for (name, rule) in RULES {
        let files = Files::build(rule, Density::MEDIUM, &dataset.entries);
        let opened = files.open();
        let spans: Vec<_> = dataset
            .present
            .iter()
            .map(|entry| opened.index.locate(entry.key(), BLOCK).expect("the index is sound"))
            .collect();
        let mut buf = PageBuf::default();
        let mut sum = 0;
        for (entry, span) in dataset.present.iter().zip(&spans) {
            let version =
                opened.segment.get_in(*span, entry.key(), BLOCK, &mut buf).expect("the segment is sound");
            let value = version.expect("the key is present").value.load().expect("the value is sound");
            sum = fold(sum, value.as_deref());
        }
        assert_eq!(sum, dataset.present_sum());
        let mut next = (0..dataset.present.len()).cycle();
        group.bench_function(format!("keys={} hit=1.0 encoding={name}", dataset.entries.len()), |bencher| {
            bencher.iter(|| {
                let i = next.next().expect("a cycle goes on");
                let found = opened.segment.get_in(spans[i], dataset.present[i].key(), BLOCK, &mut buf);
                black_box(found.expect("the segment is sound").map(|version| version.block))
            });
        });
    }
    group.finish();
}

fn walk_and_merge(criterion: &mut Criterion, dataset: &Dataset) {
    const INPUTS: usize = 8;
    let inputs: Vec<Vec<u8>> = (0..INPUTS)
        .map(|i| build_segment(EncodingRule::Plain, dataset.entries.iter().skip(i).step_by(INPUTS)))
        .collect();
    let segments: Vec<_> = inputs
        .iter()
        .map(|bytes| Segment::open(bytes.as_slice()).expect("a segment just built opens"))
        .collect();
    let whole = build_segment(EncodingRule::Plain, &dataset.entries);
    assert_eq!(merge(&segments), whole, "a merge gives the bytes of a direct build");
    let whole = Segment::open(whole.as_slice()).expect("a segment just built opens");
    let expected = dataset.entries.iter().fold(0, |sum, entry| fold(sum, Some(entry.value())));
    assert_eq!(walk(&whole), expected);

    let mut group = criterion.benchmark_group("segment");
    group.sample_size(10).throughput(Throughput::Elements(dataset.entries.len() as u64));
    group.bench_function(format!("walk/keys={}", dataset.entries.len()), |bencher| {
        bencher.iter(|| black_box(walk(&whole)));
    });
    group.bench_function(format!("merge/keys={} inputs={INPUTS}", dataset.entries.len()), |bencher| {
        bencher.iter(|| black_box(merge(&segments)));
    });
    group.finish();
}

/// The sum of all values in order.
fn walk(segment: &Segment<&[u8]>) -> u64 {
    let mut cursor = segment.cursor();
    let mut sum = 0;
    while cursor.next().expect("the segment is sound") {
        let value = cursor.entry().expect("the cursor stands on an entry").value.load();
        sum = fold(sum, value.expect("the value is sound").as_deref());
    }
    sum
}

fn merge(segments: &[Segment<&[u8]>]) -> Vec<u8> {
    let mut sources: Vec<Cursor<'_, &[u8]>> = segments.iter().map(Segment::cursor).collect();
    for source in &mut sources {
        source.seek_first().expect("the segment is sound");
    }
    let mut merged = MergeCursor::new(sources).expect("no entry is in two segments");
    let mut builder =
        SegmentBuilder::new(Vec::new(), DOMAIN, steps(), EncodingRule::Plain, ()).expect("a short name");
    while let Some(entry) = merged.entry() {
        builder.push(entry).expect("a merge keeps the order");
        merged.advance().expect("the segments are sound");
    }
    builder.finish().expect("memory takes all writes").1
}
