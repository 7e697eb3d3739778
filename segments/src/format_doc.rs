//! Compares `FORMAT.md` with the constants: a layout is written once, every other appearance is checked.

use std::collections::BTreeMap;

use crate::SegmentBuilder;
use crate::codec::{DICTIONARY_LEN_MAX, EncodingRule, HEAD_LEN};
use crate::entry::{Entry, KEY_LEN_MAX, Value};
use crate::frame::{
    CLOSING_MAGIC_AT, CONTENT_AT, DOMAIN_AT, DOMAIN_LEN_AT, DOMAIN_LEN_MAX, FILE_LEN_AT, FOOTER_KIND_AT,
    FOOTER_VERSION_AT, HEADER_SUM_AT, KIND_AT, MAGIC, PAGE_SIZE, PAGE_SIZE_AT, PARAMS_AT, PARAMS_LEN_MAX,
    PARENT_AT, PAYLOAD_AT, PAYLOAD_LEN_AT, PAYLOAD_LEN_MAX, STEP_FROM_AT, STEP_TO_AT, VERSION_AT,
};
use crate::overflow::{OVERFLOW_REF_LEN, RUN_ENTRY_LEN, RUN_LEN};
use crate::overflow::{VALUE_INLINE_MAX, VALUE_LEN_MAX};
use crate::page::{
    BASE_AT, BODY_HEADER_LEN, COUNT_AT, FLAGS_AT, KEY_LEN_AT, PAGE_HEADER_LEN, PAGE_RAW_LEN_MAX,
    PREFIX_LEN_AT, RAW_LEN_AT, RESTART_LEN, RESTARTS_AT, STORED_LEN_AT, STORED_LEN_MAX, ZERO_AT,
};
use crate::segment::Segment;
use crate::step::{Step, StepRange};
use crate::summary::{
    DELETIONS_AT, DICTIONARY_AT_AT, DICTIONARY_LEN_AT, DICTIONARY_SUM_AT, ENCODING_AT, ENTRIES_AT,
    FIRST_KEY_LEN_AT, KEY_BYTES_AT, KEYS_AT, KEYS_FROM, LAST_KEY_LEN_AT, MAX_BLOCK_AT, MIN_BLOCK_AT,
    OVERFLOW_BYTES_AT, OVERFLOW_VALUES_AT, PAGES_AT, RUN_TABLE_AT_AT, RUN_TABLE_LEN_AT, RUN_TABLE_SUM_AT,
    VALUE_BYTES_AT,
};

const DOC: &str = include_str!("../FORMAT.md");

/// The text between a heading, or any other line, and the next heading.
fn section(heading: &str) -> &'static str {
    let from = DOC.find(&format!("{heading}\n")).unwrap_or_else(|| panic!("no {heading}")) + heading.len();
    let rest = &DOC[from..];
    &rest[..rest.find("\n#").unwrap_or(rest.len())]
}

/// The rows of the first table of a section: offset, size, field.
fn rows(heading: &str) -> Vec<(usize, Option<usize>, String)> {
    let lines = section(heading).lines().skip_while(|line| !line.starts_with('|'));
    lines
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let size = cells[2].split(' ').next().and_then(|size| size.parse().ok());
            (cells[1].parse().expect("an offset"), size, cells[4].to_owned())
        })
        .collect()
}

#[track_caller]
fn check(heading: &str, expected: &[(usize, &str)], end: Option<usize>) {
    let rows = rows(heading);
    let found: BTreeMap<usize, &str> = rows.iter().map(|(at, _, field)| (*at, field.as_str())).collect();
    for (at, field) in expected {
        let named = found.get(at).unwrap_or_else(|| panic!("{heading}: nothing at {at}"));
        assert!(named.starts_with(field), "{heading}: {field} at {at}, not {named}");
    }
    assert_eq!(rows.len(), expected.len(), "{heading}: fields");
    for pair in rows.windows(2) {
        let end = pair[0].0 + pair[0].1.unwrap_or(0);
        assert!(end <= pair[1].0, "{heading}: {} overlaps", pair[1].2);
    }
    if let (Some(end), Some((at, size, _))) = (end, rows.last()) {
        assert_eq!(at + size.unwrap_or(0), end, "{heading}: length");
    }
}

#[test]
fn the_tables_are_the_constants() {
    let header = [
        (0, "magic"),
        (KIND_AT, "kind"),
        (VERSION_AT, "version"),
        (PAGE_SIZE_AT, "page size"),
        (STEP_FROM_AT, "first step"),
        (STEP_TO_AT, "step behind"),
        (DOMAIN_LEN_AT, "domain length"),
        (DOMAIN_AT, "domain"),
        (PARAMS_AT, "parameters"),
        (HEADER_SUM_AT, "CRC-64"),
    ];
    check("### Header page", &header, Some(PAGE_SIZE));
    let footer = [
        (0, "page checksum"),
        (FILE_LEN_AT, "length of the file"),
        (FOOTER_KIND_AT, "kind"),
        (FOOTER_VERSION_AT, "version"),
        (PAYLOAD_LEN_AT, "payload length"),
        (CONTENT_AT, "content checksum"),
        (PARENT_AT, "content checksum of the segment"),
        (PAYLOAD_AT, "payload"),
        (CLOSING_MAGIC_AT, "magic"),
    ];
    check("### Footer page", &footer, Some(PAGE_SIZE));
    let payload = [
        (ENTRIES_AT, "entries"),
        (KEYS_AT, "keys"),
        (DELETIONS_AT, "deletions"),
        (PAGES_AT, "pages"),
        (MIN_BLOCK_AT, "min block"),
        (MAX_BLOCK_AT, "max block"),
        (KEY_BYTES_AT, "key bytes"),
        (VALUE_BYTES_AT, "value bytes"),
        (OVERFLOW_VALUES_AT, "overflow values"),
        (OVERFLOW_BYTES_AT, "overflow bytes"),
        (RUN_TABLE_AT_AT, "run table offset"),
        (RUN_TABLE_LEN_AT, "run table length"),
        (RUN_TABLE_SUM_AT, "run table checksum"),
        (DICTIONARY_AT_AT, "dictionary offset"),
        (DICTIONARY_LEN_AT, "dictionary length"),
        (DICTIONARY_SUM_AT, "dictionary checksum"),
        (ENCODING_AT, "encoding"),
        (FIRST_KEY_LEN_AT, "first key length"),
        (LAST_KEY_LEN_AT, "last key length"),
        (KEYS_FROM, "first key, last key"),
    ];
    check("### Footer payload of a `.kv`", &payload, None);
    let page = [
        (0, "page checksum"),
        (FLAGS_AT, "flags"),
        (ZERO_AT, "zero"),
        (STORED_LEN_AT, "stored length"),
        (RAW_LEN_AT, "raw length"),
        (COUNT_AT, "entry count"),
        (PAGE_HEADER_LEN, "stored body"),
    ];
    check("### Data page", &page, None);
    let body = [
        (RESTARTS_AT, "restart count"),
        (PREFIX_LEN_AT, "prefix length"),
        (KEY_LEN_AT, "key length"),
        (BASE_AT, "base block"),
        (BODY_HEADER_LEN, "restart table"),
    ];
    check("### Body", &body, None);
    check("One restart:\n", &[(0, "offset of its entry"), (2, "head")], Some(RESTART_LEN));
    let reference = [(0, "offset"), (8, "stored length"), (12, "raw length"), (16, "CRC-64")];
    check("Overflow reference:\n", &reference, Some(OVERFLOW_REF_LEN));
    check("### Run table", &[(0, "data pages"), (8, "length of the run")], Some(RUN_ENTRY_LEN));
}

#[test]
fn the_limits_are_the_constants() {
    let limits = section("## Limits");
    for (what, limit) in [
        ("key", KEY_LEN_MAX.to_string()),
        ("value inside its page", VALUE_INLINE_MAX.to_string()),
        ("value", format!("2^{}", VALUE_LEN_MAX.ilog2())),
        ("body, decoded", PAGE_RAW_LEN_MAX.to_string()),
        ("dictionary", DICTIONARY_LEN_MAX.to_string()),
        ("head held back to choose the encoding", HEAD_LEN.to_string()),
        ("overflow run", RUN_LEN.to_string()),
        ("domain", DOMAIN_LEN_MAX.to_string()),
    ] {
        assert!(limits.contains(&format!("| {what} | {limit} bytes")), "{what}: {limit}");
    }
    assert!(section("### Data page").contains(&format!("at most {STORED_LEN_MAX}")));
    assert!(section("### Data page").contains(&format!("at most {PAGE_RAW_LEN_MAX}")));
    assert!(section("### Footer page").contains(&format!("at most {PAYLOAD_LEN_MAX}")));
    assert_eq!(rows("### Header page")[8].1, Some(PARAMS_LEN_MAX));
    let magic: Vec<String> = MAGIC.iter().map(|byte| format!("{byte:02X}")).collect();
    assert!(section("### Header page").contains(&format!("`{}`", magic.join(" "))));
}

#[test]
fn the_worked_example_is_what_a_builder_writes() {
    let steps = StepRange::single(Step(0));
    let mut builder = SegmentBuilder::new(Vec::new(), "example", steps, EncodingRule::Plain, ()).unwrap();
    builder.push(Entry { key: b"ab", block: 7, value: Value::Inline(b"1") }).unwrap();
    builder.push(Entry { key: b"ac", block: 9, value: Value::Deletion }).unwrap();
    let (_, bytes, ()) = builder.finish().unwrap();
    Segment::open(&bytes[..]).unwrap().verify().unwrap();
    let page = &bytes[PAGE_SIZE..2 * PAGE_SIZE];
    let mut next = 0;
    for line in section("## Worked example").lines() {
        let Some((offset, rest)) = line.split_at_checked(6).filter(|(offset, _)| offset.ends_with("  "))
        else {
            continue;
        };
        let offset = usize::from_str_radix(offset.trim(), 16).expect("an offset");
        assert_eq!(offset, next, "no gap");
        for byte in rest.split("   ").next().unwrap().split_whitespace() {
            if byte != ".." {
                assert_eq!(byte, format!("{:02X}", page[next]), "at {next:#x}");
            }
            next += 1;
        }
    }
    assert_eq!(next, 0x2C);
    assert!(page[next..].iter().all(|&byte| byte == 0));
}
