//! The bytes of seeded encodings, by their BLAKE3: a format cannot change by accident.
//!
//! A change here is a change of the format: FORMAT.md, the version and this file go together.

mod oracle;

use icecore_segments::EncodingRule;
use oracle::{Model, RULES, build, large_values, storage, texts};

fn check(name: &str, model: &Model, rule: EncodingRule, expected: &str) {
    let (summary, bytes, _) = build(model, rule);
    assert_eq!(blake3::hash(&bytes).to_hex().as_str()[..32], *expected, "{name}");
    assert_eq!(summary.file.len, bytes.len() as u64);
    assert_eq!(summary.file.content.0, *blake3::hash(&bytes[..bytes.len() - 4096]).as_bytes());
}

#[test]
fn bytes_stay_as_they_are() {
    check("storage", &storage(5000, 300), EncodingRule::Plain, "442c979870d5173876443119c62718db");
    check("storage at one block", &storage(5000, 1), EncodingRule::Plain, "53f6a18a8a17ae919d2b378049e581ed");
    check("texts", &texts(3000), EncodingRule::Zstd, "09a373746ed17e9df27d54ee81d2cef9");
    check("large values", &large_values(), EncodingRule::Auto, "dc47a7f4997107b66cf75e769b4f691c");
    check("empty", &Model::new(), EncodingRule::Auto, "898cec71ed7f78c638ca5713ce68411d");
}

#[test]
fn the_same_entries_give_the_same_bytes() {
    for model in [storage(3000, 100), texts(2500), large_values()] {
        for rule in RULES {
            assert!(build(&model, rule).1 == build(&model, rule).1);
        }
    }
}
