//! The `.bt` and `.kvei` files: building them, finding the page of a key, asking whether there is the key at all.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use icecore_benches::{BLOCK, DOMAIN, Dataset, Files, size, steps};
use icecore_index::filter::BuildParallelism as Parallelism;
use icecore_index::{Density, FilterBits, FilterBuilder, FilterHash, MemorySpool, PivotBuilder};
use icecore_segments::{EncodingRule, Segment};

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let dataset = Dataset::new(size(1_000_000, 3_000));
    for m in [Density::DENSE, Density::MEDIUM, Density::SPARSE] {
        pivots(&mut criterion, &dataset, m);
    }
    filter(&mut criterion, &dataset);
    criterion.final_summary();
}

fn pivots(criterion: &mut Criterion, dataset: &Dataset, m: Density) {
    let files = Files::build(EncodingRule::Plain, m, &dataset.entries);
    let opened = files.open();
    assert_eq!(reindex(&opened.segment, m), files.bt, "a reindex gives the bytes of the build");
    let id = format!("keys={} m={}", dataset.entries.len(), m.get());

    let mut group = criterion.benchmark_group("pivot_reindex");
    group.sample_size(10).throughput(Throughput::Elements(dataset.entries.len() as u64));
    group.bench_function(&id, |bencher| bencher.iter(|| black_box(reindex(&opened.segment, m))));
    group.finish();

    let mut next = dataset.present.iter().cycle();
    criterion.bench_function(&format!("pivot_locate/{id}"), |bencher| {
        bencher.iter(|| {
            let entry = next.next().expect("a cycle goes on");
            black_box(opened.index.locate(entry.key(), BLOCK).expect("the index is sound"))
        });
    });
}

fn reindex(segment: &Segment<&[u8]>, m: Density) -> Vec<u8> {
    let mut pivots = PivotBuilder::new(Vec::new(), DOMAIN, steps(), m).expect("the name is short");
    segment.offer_pivots(&mut pivots).expect("the segment is sound");
    let summary = segment.summary();
    pivots.finish(summary.file.content, summary.pages, summary.entries).expect("memory takes all writes").1
}

fn filter(criterion: &mut Criterion, dataset: &Dataset) {
    let files = Files::build(EncodingRule::Plain, Density::MEDIUM, &dataset.entries);
    let opened = files.open();
    let maybe = |key: &[u8]| opened.filter.may_contain(FilterHash::of(key)).expect("the filter is sound");
    assert!(dataset.present.iter().all(|entry| maybe(entry.key())), "no key that is there is denied");
    let wrong = dataset.absent.iter().filter(|key| maybe(&key[..])).count();
    assert!(wrong * 100 <= dataset.absent.len(), "{wrong} of {} absent keys pass", dataset.absent.len());

    let mut group = criterion.benchmark_group("filter_build");
    group.sample_size(10).throughput(Throughput::Elements(dataset.entries.len() as u64));
    for (name, parallelism) in [("off", Parallelism::Off), ("rayon", Parallelism::Rayon)] {
        assert_eq!(
            filter_bytes(dataset, parallelism, &opened.segment),
            files.kvei,
            "the same bytes with threads"
        );
        let id = format!("keys={} bits=8 parallelism={name}", dataset.entries.len());
        group.bench_function(id, |bencher| {
            bencher.iter(|| black_box(filter_bytes(dataset, parallelism, &opened.segment)));
        });
    }
    group.finish();

    let mut group = criterion.benchmark_group("filter_probe");
    let mut present = dataset.present.iter().cycle();
    group.bench_function(format!("keys={} hit=1.0", dataset.entries.len()), |bencher| {
        bencher.iter(|| black_box(maybe(present.next().expect("a cycle goes on").key())));
    });
    let mut absent = dataset.absent.iter().cycle();
    group.bench_function(format!("keys={} hit=0.0", dataset.entries.len()), |bencher| {
        bencher.iter(|| black_box(maybe(absent.next().expect("a cycle goes on"))));
    });
    group.finish();
}

fn filter_bytes(dataset: &Dataset, parallelism: Parallelism, segment: &Segment<&[u8]>) -> Vec<u8> {
    let keys = dataset.entries.len() as u64;
    let mut filter = FilterBuilder::new(FilterBits::Eight, keys, MemorySpool::default(), parallelism);
    for entry in &dataset.entries {
        filter.push(FilterHash::of(entry.key())).expect("no more keys than entries");
    }
    let parent = segment.summary().file.content;
    filter.finish(Vec::new(), DOMAIN, steps(), parent).expect("memory takes all writes").1
}
