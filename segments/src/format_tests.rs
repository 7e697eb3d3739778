//! `FORMAT.md` of this crate against its constants and its builder.

use crate::SegmentBuilder;
use crate::codec::{DICTIONARY_LEN_MAX, EncodingRule, HEAD_LEN};
use crate::entry::{Entry, KEY_LEN_MAX, Value};
use crate::format_doc::FormatDoc;
use crate::frame::{
    CLOSING_MAGIC_AT, CONTENT_AT, DOMAIN_AT, DOMAIN_LEN_AT, DOMAIN_LEN_MAX, FILE_LEN_AT, FOOTER_KIND_AT,
    FOOTER_VERSION_AT, HEADER_SUM_AT, KIND_AT, Kind, MAGIC, PAGE_SIZE, PAGE_SIZE_AT, PARAMS_AT,
    PARAMS_LEN_MAX, PARENT_AT, PAYLOAD_AT, PAYLOAD_LEN_AT, PAYLOAD_LEN_MAX, STEP_FROM_AT, STEP_TO_AT,
    VERSION_AT,
};
use crate::overflow::{OVERFLOW_REF_LEN, RUN_ENTRY_LEN, RUN_LEN, VALUE_INLINE_MAX, VALUE_LEN_MAX};
use crate::page_header::{
    BASE_AT, BLOCK_WIDTH_AT, BODY_HEADER_LEN, COUNT_AT, FLAGS_AT, KEY_LEN_AT, PAGE_HEADER_LEN,
    PAGE_RAW_LEN_MAX, PREFIX_LEN_AT, RAW_LEN_AT, RESTART_LEN, RESTARTS_AT, STORED_LEN_AT, STORED_LEN_MAX,
};
use crate::segment::Segment;
use crate::step::{Step, StepRange};
use crate::summary::{
    DELETIONS_AT, DICTIONARY_AT_AT, DICTIONARY_LEN_AT, DICTIONARY_SUM_AT, ENCODING_AT, ENTRIES_AT,
    FIRST_KEY_LEN_AT, KEY_BYTES_AT, KEYS_AT, KEYS_FROM, LAST_KEY_LEN_AT, MAX_BLOCK_AT, MIN_BLOCK_AT,
    OVERFLOW_BYTES_AT, OVERFLOW_VALUES_AT, PAGES_AT, RUN_TABLE_AT_AT, RUN_TABLE_LEN_AT, RUN_TABLE_SUM_AT,
    VALUE_BYTES_AT,
};

const DOC: FormatDoc = FormatDoc::new(include_str!("../FORMAT.md"));

#[test]
fn the_tables_are_the_constants() {
    let header = [
        (0, "magic"),
        (KIND_AT, "kind"),
        (VERSION_AT, "version"),
        (PAGE_SIZE_AT, "page size"),
        (STEP_FROM_AT, "first step"),
        (STEP_TO_AT, "step after"),
        (DOMAIN_LEN_AT, "domain length"),
        (DOMAIN_AT, "domain"),
        (PARAMS_AT, "parameters"),
        (HEADER_SUM_AT, "CRC-64"),
    ];
    DOC.check_layout("### Header page", &header, Some(PAGE_SIZE));
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
    DOC.check_layout("### Footer page", &footer, Some(PAGE_SIZE));
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
    DOC.check_layout("### Footer payload of a `.kv`", &payload, None);
    let page = [
        (0, "page checksum"),
        (FLAGS_AT, "flags"),
        (BLOCK_WIDTH_AT, "block width"),
        (STORED_LEN_AT, "stored length"),
        (RAW_LEN_AT, "raw length"),
        (COUNT_AT, "entry count"),
        (PAGE_HEADER_LEN, "stored body"),
    ];
    DOC.check_layout("### Data page", &page, None);
    let body = [
        (RESTARTS_AT, "restart count"),
        (PREFIX_LEN_AT, "prefix length"),
        (KEY_LEN_AT, "key length"),
        (BASE_AT, "base block"),
        (BODY_HEADER_LEN, "columns, restart table"),
    ];
    DOC.check_layout("### Body", &body, None);
    DOC.check_layout("One restart of rows:", &[(0, "offset of its entry"), (2, "head")], Some(RESTART_LEN));
    let reference = [(0, "offset"), (8, "stored length"), (12, "raw length"), (16, "CRC-64")];
    DOC.check_layout("Overflow reference:", &reference, Some(OVERFLOW_REF_LEN));
    DOC.check_layout("### Run table", &[(0, "data pages"), (8, "length of the run")], Some(RUN_ENTRY_LEN));
}

#[test]
fn the_limits_are_the_constants() {
    let limits = DOC.section("## Limits");
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
    assert!(DOC.section("### Data page").contains(&format!("at most {STORED_LEN_MAX}")));
    assert!(DOC.section("### Data page").contains(&format!("at most {PAGE_RAW_LEN_MAX}")));
    assert!(DOC.section("### Footer page").contains(&format!("at most {PAYLOAD_LEN_MAX}")));
    assert_eq!(DOC.table("### Header page", "offset")[8][1], PARAMS_LEN_MAX.to_string());
    let magic: Vec<String> = MAGIC.iter().map(|byte| format!("{byte:02X}")).collect();
    assert!(DOC.section("### Header page").contains(&format!("`{}`", magic.join(" "))));
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
    DOC.check_example("```hex page", &page[..48]);
    assert!(page[48..].iter().all(|&byte| byte == 0));
}

#[test]
fn the_history_ends_with_the_version_that_is_written() {
    let history = DOC.table("## History", "version");
    assert_eq!(history.last().unwrap()[0], Kind::Segment.version().to_string());
}

#[test]
fn differences_are_found() {
    const WRONG: FormatDoc = FormatDoc::new(
        "# A\n| offset | size | type | field |\n|---|---|---|---|\n| 0 | 8 | u64 | one |\n| 4 | 4 | u32 | two |\n\n```hex a\n   0  01  one\n   1  02  two\n```\n",
    );
    let panics = |check: &(dyn Fn() + std::panic::RefUnwindSafe)| std::panic::catch_unwind(check).is_err();
    let fields = [(0, "one"), (4, "two")];
    assert!(panics(&|| WRONG.check_layout("# A", &fields, None)), "an overlap");
    assert!(panics(&|| WRONG.check_layout("# A", &fields[..1], None)), "a field more");
    assert!(panics(&|| WRONG.check_layout("# B", &fields, None)), "no section");
    assert!(panics(&|| WRONG.check_example("```hex a", &[1, 3])), "another byte");
    assert!(panics(&|| WRONG.check_example("```hex a", &[1, 2, 3])), "a byte more");
}
