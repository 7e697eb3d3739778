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
    check("storage", &storage(5000, 300), EncodingRule::Plain, "fac4b188124b95ad42c00f548a1d44e3");
    check("storage at one block", &storage(5000, 1), EncodingRule::Plain, "84858f6bfaa7d9db0e6a30663152f954");
    check("texts", &texts(3000), EncodingRule::Zstd, "8284b160831e1f078d962f8566eaa53b");
    check("large values", &large_values(), EncodingRule::Auto, "48a575a6e16150f6884644460a47fe85");
    check("empty", &Model::new(), EncodingRule::Auto, "bd0207408e85de2495b7bc560c86a417");
}

#[test]
fn the_same_entries_give_the_same_bytes() {
    for model in [storage(3000, 100), texts(2500), large_values()] {
        for rule in RULES {
            assert!(build(&model, rule).1 == build(&model, rule).1);
        }
    }
}
