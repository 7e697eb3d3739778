//! A segment answers like a plain map of versions, whatever is in it and however it is encoded.

mod oracle;

use std::cmp::Reverse;

use icecore_segments::{
    Cursor, Encoding, EncodingRule, Entry, Error, PageBuf, Segment, SegmentBuilder, Value,
};
use oracle::{
    Model, RULES, SplitMix64, build, build_by_merge, check, dictionary_len, large_values, storage, texts,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn any_key() -> impl Strategy<Value = Vec<u8>> {
    let prefix = proptest::sample::select(vec![&b""[..], b"a", b"account/", b"account/0x12", &[0xFF]]);
    let suffix = prop_oneof![vec(0..3u8, 0..5), vec(any::<u8>(), 0..28), vec(Just(0u8), 0..28)];
    (prefix, suffix).prop_map(|(prefix, suffix)| [prefix, &suffix].concat())
}

fn any_value() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![
        2 => Just(None),
        8 => vec(any::<u8>(), 0..40).prop_map(Some),
        2 => (100..1100usize, any::<u64>()).prop_map(|(len, seed)| Some(SplitMix64(seed).bytes(len))),
        1 => (1000..9000usize, any::<u64>()).prop_map(|(len, seed)| Some(SplitMix64(seed).text(len))),
        1 => (1000..9000usize, any::<u64>()).prop_map(|(len, seed)| Some(SplitMix64(seed).bytes(len))),
    ]
}

fn any_model() -> impl Strategy<Value = Model> {
    let block = prop_oneof![0..4u64, 0..5000u64, any::<u64>()];
    let versions = vec((any_key(), block, any_value()), 0..300);
    // One key with many versions, now and then.
    let history = prop_oneof![3 => Just(0u64), 1 => 1..1500u64];
    (versions, any_key(), history).prop_map(|(versions, key, history)| {
        let mut model: Model =
            versions.into_iter().map(|(key, block, value)| ((key, Reverse(block)), value)).collect();
        for block in 0..history {
            let value = (block % 5 > 0).then(|| block.to_be_bytes()[8 - (block % 9) as usize..].to_vec());
            model.insert((key.clone(), Reverse(block * 3)), value);
        }
        model
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn every_way_to_read_agrees_with_the_model(model in any_model(), extra in vec(any_key(), 0..20)) {
        for rule in RULES {
            check(&model, rule, &extra);
        }
    }

    #[test]
    fn a_merge_gives_the_bytes_of_a_direct_build(model in any_model(), parts in 1..6usize, seed: u64) {
        for rule in [EncodingRule::Plain, EncodingRule::Zstd] {
            prop_assert!(build_by_merge(&model, rule, parts, seed) == build(&model, rule).1);
        }
    }
}

#[test]
fn a_segment_is_shared_by_threads() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<Segment<Vec<u8>>>();
    sent::<PageBuf>();
    sent::<Cursor<'_, Vec<u8>>>();
}

#[test]
fn an_empty_segment() {
    for rule in RULES {
        check(&Model::new(), rule, &[]);
    }
}

#[test]
fn storage_like_entries() {
    for (model, one) in [(storage(6000, 1000), false), (storage(6000, 1), true)] {
        for rule in RULES {
            check(&model, rule, &[]);
        }
        let per_entry = build(&model, EncodingRule::Plain).1.len() / model.len();
        assert!(per_entry < if one { 60 } else { 40 }, "{per_entry}");
    }
}

#[test]
fn one_key_with_many_versions_among_others() {
    let mut model = storage(300, 10);
    let key = model.keys().nth(150).unwrap().0.clone();
    for block in 0..20_000u64 {
        model.insert((key.clone(), Reverse(block * block)), (block % 3 > 0).then(|| vec![block as u8; 3]));
    }
    for rule in RULES {
        check(&model, rule, &[]);
    }
}

#[test]
fn texts_are_compressed_with_a_dictionary() {
    let model = texts(4000);
    let (plain, zstd) = (build(&model, EncodingRule::Plain), build(&model, EncodingRule::Zstd));
    assert!(zstd.1.len() * 10 < plain.1.len() * 6, "{} {}", zstd.1.len(), plain.1.len());
    assert!(dictionary_len(&plain.1) == 0 && dictionary_len(&zstd.1) > 0);
    let auto = build(&model, EncodingRule::Auto);
    assert_eq!(auto.0.encoding, Encoding::Zstd);
    assert!(auto.1 == zstd.1);
    check(&model, EncodingRule::Zstd, &[]);
}

#[test]
fn random_content_stays_plain_unless_forced() {
    let mut random = SplitMix64(1);
    let model: Model = (0..3000).map(|_| ((random.bytes(32), Reverse(1)), Some(random.bytes(32)))).collect();
    let auto = build(&model, EncodingRule::Auto);
    assert_eq!(auto.0.encoding, Encoding::Plain);
    assert!(auto.1 == build(&model, EncodingRule::Plain).1);
    check(&model, EncodingRule::Zstd, &[]);
}

#[test]
fn extremely_regular_content_fills_bodies_to_their_bound() {
    let model: Model =
        (0..60_000u32).map(|i| ((i.to_be_bytes().to_vec(), Reverse(1)), Some(Vec::new()))).collect();
    check(&model, EncodingRule::Zstd, &[]);
}

#[test]
fn values_around_every_bound() {
    for rule in RULES {
        check(&large_values(), rule, &[]);
    }
}

#[test]
fn a_value_larger_than_a_run_and_more_than_one_run() {
    let mut random = SplitMix64(9);
    let mut model = storage(500, 3);
    for (i, len) in [9 << 20, 1 << 20, 5 << 20, 4 << 20, 24_000].into_iter().enumerate() {
        let position = model.keys().nth(100 * i).unwrap().clone();
        model.insert(position, Some(if i == 1 { random.text(len) } else { random.bytes(len) }));
    }
    check(&model, EncodingRule::Plain, &[]);
    assert!(build_by_merge(&model, EncodingRule::Plain, 3, 1) == build(&model, EncodingRule::Plain).1);
}

#[test]
fn the_longest_keys_and_values() {
    let mut model = Model::new();
    for i in 0..40u8 {
        let mut key = vec![b'k'; 1024];
        key[if i % 2 == 0 { 1023 } else { 500 + i as usize }] = i;
        model.insert((key, Reverse(u64::MAX - u64::from(i))), Some(vec![i; 1024]));
        model.insert((vec![i; i as usize], Reverse(0)), Some(Vec::new()));
    }
    for rule in RULES {
        check(&model, rule, &[]);
    }
}

#[test]
fn keys_that_differ_in_the_last_byte_only() {
    let model: Model = (0..=255u8)
        .flat_map(|a| (0..20u8).map(move |b| ([&[7; 30][..], &[b, a]].concat(), Reverse(5))))
        .map(|position| (position, Some(vec![1])))
        .collect();
    for rule in RULES {
        check(&model, rule, &[]);
    }
}

#[test]
fn disorder_is_refused_and_leaves_the_builder_as_it_was() {
    let entry = |key, block| Entry { key, block, value: Value::Inline(b"v") };
    let steps = oracle::steps();
    let mut builder = SegmentBuilder::new(Vec::new(), "storage", steps, EncodingRule::Plain, ()).unwrap();
    builder.push(entry(b"b", 5)).unwrap();
    for (key, block) in [(&b"a"[..], 1), (b"b", 5), (b"b", 6), (b"", 0)] {
        assert!(matches!(builder.push(entry(key, block)), Err(Error::OutOfOrder { .. })));
    }
    let long = [b'c'; 1025];
    assert!(matches!(builder.push(entry(&long, 1)), Err(Error::TooLarge { what: "key", len: 1025, .. })));
    assert!(!builder.push(entry(b"b", 4)).unwrap());
    assert!(builder.push(entry(b"ba", 9)).unwrap());
    let (summary, bytes, ()) = builder.finish().unwrap();
    assert_eq!((summary.entries, summary.keys), (3, 2));
    Segment::open(bytes).unwrap().verify().unwrap();
}
