//! The whole ladder on one segment in memory, without the engine: filter, pivot index, page.
//!
//! A hit is one filter page, one leaf of the index and one data page; a miss is one filter page, but for one in 256.

use std::hint::black_box;

use criterion::Criterion;
use icecore_benches::{BLOCK, Dataset, Files, Opened, fold, size};
use icecore_index::{Density, FilterHash};
use icecore_segments::{EncodingRule, PageBuf, Version};

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let dataset = Dataset::new(size(1_000_000, 3_000));
    for (name, rule) in [("plain", EncodingRule::Plain), ("zstd", EncodingRule::Zstd)] {
        for m in [Density::DENSE, Density::MEDIUM, Density::SPARSE] {
            lookups(&mut criterion, &dataset, (name, rule), m);
        }
    }
    criterion.final_summary();
}

fn lookups(criterion: &mut Criterion, dataset: &Dataset, (name, rule): (&str, EncodingRule), m: Density) {
    let files = Files::build(rule, m, &dataset.entries);
    let opened = files.open();
    let mut buf = PageBuf::default();
    let mut sum = 0;
    for entry in &dataset.present {
        let version = get(&opened, entry.key(), &mut buf).expect("the key is present");
        sum = fold(sum, version.value.load().expect("the value is sound").as_deref());
    }
    assert_eq!(sum, dataset.present_sum());
    assert!(dataset.absent.iter().all(|key| get(&opened, key, &mut buf).is_none()));

    let mut group = criterion.benchmark_group("lookup");
    let shape = format!("keys={} m={} encoding={name}", dataset.entries.len(), m.get());
    let mut present = dataset.present.iter().cycle();
    group.bench_function(format!("{shape} hit=1.0"), |bencher| {
        bencher.iter(|| {
            let key = present.next().expect("a cycle goes on").key();
            black_box(get(&opened, key, &mut buf).map(|version| version.block))
        });
    });
    let mut absent = dataset.absent.iter().cycle();
    group.bench_function(format!("{shape} hit=0.0"), |bencher| {
        bencher.iter(|| {
            let key = absent.next().expect("a cycle goes on");
            black_box(get(&opened, key, &mut buf).map(|version| version.block))
        });
    });
    group.finish();
}

#[inline]
fn get<'a>(opened: &'a Opened<'_>, key: &[u8], buf: &'a mut PageBuf) -> Option<Version<'a>> {
    if !opened.filter.may_contain(FilterHash::of(key)).expect("the filter is sound") {
        return None;
    }
    let span = opened.index.locate(key, BLOCK).expect("the index is sound");
    opened.segment.get_in(span, key, BLOCK, buf).expect("the segment is sound")
}
