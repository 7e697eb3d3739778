//! What queries answer, compared with the archive, and what they push down, read off their plans.

use datafusion::arrow::array::{Array, BinaryArray, RecordBatch, UInt64Array};
use datafusion::common::cast::{as_binary_array, as_int64_array, as_string_array, as_uint64_array};
use datafusion::physical_plan::displayable;
use datafusion::prelude::{SessionConfig, SessionContext};
use icecore::remote::{Bucket, BucketOptions, PushOptions, RemoteOptions, SigningKey};
use icecore::{Archive, Options, Reader, Scan, StateChange};

type Row = (Vec<u8>, Option<Vec<u8>>, u64);

const BLOCKS: u64 = 120;
const KEYS: u64 = 300;

struct Place {
    _dir: tempfile::TempDir,
    archive: Archive,
    context: SessionContext,
}

/// An archive with its older blocks in segments and its newest in memory.
fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().domain("kv").domain("other").blocks_per_step(16).reorg_window(8);
    let archive = Archive::create(dir.path().join("a.ice"), options).unwrap();
    for height in 1..=BLOCKS {
        let mut block = archive.begin(height).unwrap();
        for change in 0..40 {
            let number = (height * 7919 + change * 104_729) % KEYS;
            let key = format!("{}/{number:03}", number % 5);
            if (height + change) % 6 == 0 {
                block.delete("kv", key.as_bytes()).unwrap();
            } else {
                block.put("kv", key.as_bytes(), format!("{height}.{change}").as_bytes()).unwrap();
            }
        }
        block.put("other", &height.to_le_bytes(), b"").unwrap();
        block.commit().unwrap();
    }
    // Small batches, so that tables have several.
    let context = SessionContext::new_with_config(SessionConfig::new().with_batch_size(32));
    icecore_datafusion::register(&context, archive.reader().clone());
    Place { _dir: dir, archive, context }
}

/// The rows of a query for key, value and block, as they come.
async fn ask(context: &SessionContext, sql: &str) -> Vec<Row> {
    let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
    batches.iter().flat_map(rows).collect()
}

fn rows(batch: &RecordBatch) -> Vec<Row> {
    let keys: &BinaryArray = as_binary_array(batch.column_by_name("key").unwrap()).unwrap();
    let values: &BinaryArray = as_binary_array(batch.column_by_name("value").unwrap()).unwrap();
    let blocks: &UInt64Array = as_uint64_array(batch.column_by_name("block").unwrap()).unwrap();
    let value = |at: usize| values.is_valid(at).then(|| values.value(at).to_vec());
    (0..batch.num_rows()).map(|at| (keys.value(at).to_vec(), value(at), blocks.value(at))).collect()
}

async fn plan(context: &SessionContext, sql: &str) -> String {
    let plan = context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    displayable(plan.as_ref()).indent(false).to_string()
}

/// What the archive itself says.
fn state(reader: &Reader, at: u64) -> Vec<Row> {
    let entries = reader.at(at).unwrap().scan("kv", &Scan::all()).unwrap();
    entries.map(|entry| entry.map(|e| (e.key, Some(e.value), e.block)).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn the_state_at_any_block_is_that_of_the_archive() {
    let place = place();
    for at in [1, 15, 16, 17, 60, 112, 119, BLOCKS] {
        let expected = state(place.archive.reader(), at);
        assert!(at < 10 || expected.len() > 100);
        assert_eq!(ask(&place.context, &format!("select * from state('kv', {at})")).await, expected);
    }
    let newest = ask(&place.context, "select block, value, key from state('kv')").await;
    assert_eq!(newest, state(place.archive.reader(), BLOCKS));
    let count = place.context.sql("select count(*) from state('other', 77)").await.unwrap();
    assert!(
        datafusion::arrow::util::pretty::pretty_format_batches(&count.collect().await.unwrap())
            .unwrap()
            .to_string()
            .contains(" 77 ")
    );
}

#[tokio::test]
async fn bounds_of_keys_are_pushed_down() {
    let place = place();
    let all = state(place.archive.reader(), 60);
    let (low, high) = (&b"1/"[..], &b"3/05"[..]);
    let (some, gone) = (all[17].0.clone(), b"no such key".to_vec());
    type Wanted<'a> = Box<dyn Fn(&[u8]) -> bool + 'a>;
    let cases: Vec<(String, Wanted)> = vec![
        (format!("key >= X'{}'", hex(low)), Box::new(|key| low <= key)),
        (format!("key > X'{}'", hex(&some)), Box::new(|key| some.as_slice() < key)),
        (format!("key < X'{}'", hex(high)), Box::new(|key| key < high)),
        (format!("key <= X'{}'", hex(&some)), Box::new(|key| key <= some.as_slice())),
        (
            format!("X'{}' <= key and key < X'{}'", hex(low), hex(high)),
            Box::new(|key| low <= key && key < high),
        ),
        (
            format!("key between X'{}' and X'{}'", hex(low), hex(&some)),
            Box::new(|key| low <= key && key <= some.as_slice()),
        ),
        (format!("key = X'{}'", hex(&some)), Box::new(|key| key == some)),
        (
            format!(
                "key in (X'{}', X'{}', X'{}', X'{}', X'{}')",
                hex(&some),
                hex(&gone),
                hex(&all[3].0),
                hex(low),
                hex(&some)
            ),
            Box::new(|key| key == some || key == all[3].0),
        ),
        (
            format!("key in (X'{}', X'{}')", hex(&some), hex(&all[3].0)),
            Box::new(|key| key == some || key == all[3].0),
        ),
        (format!("key = X'{}' and key = X'{}'", hex(&some), hex(&all[3].0)), Box::new(|_| false)),
        (format!("key = X'{}' and key < X'{}'", hex(&some), hex(b"0")), Box::new(|_| false)),
        (format!("has_prefix(key, X'{}')", hex(low)), Box::new(|key| key.starts_with(low))),
        (
            format!("has_prefix(key, X'{}') and has_prefix(key, X'{}')", hex(b"1"), hex(b"1/0")),
            Box::new(|key| key.starts_with(b"1/0")),
        ),
        (
            format!("has_prefix(key, X'{}') and has_prefix(key, X'{}')", hex(b"1"), hex(b"2/0")),
            Box::new(|_| false),
        ),
        (
            format!("has_prefix(key, X'{}') and key >= X'{}'", hex(low), hex(&some)),
            Box::new(|key| key.starts_with(low) && some.as_slice() <= key),
        ),
        (format!("key >= X'{}' and key < X'{}'", hex(high), hex(low)), Box::new(|_| false)),
    ];
    for (filter, wanted) in &cases {
        let sql = format!("select * from state('kv', 60) where {filter}");
        let expected: Vec<Row> = all.iter().filter(|(key, ..)| wanted(key)).cloned().collect();
        assert_eq!(ask(&place.context, &sql).await, expected, "{filter}");
        let plan = plan(&place.context, &sql).await;
        assert!(!plan.contains("FilterExec"), "{filter}: {plan}");
    }
}

#[tokio::test]
async fn what_cannot_be_pushed_down_is_filtered() {
    let place = place();
    let all = state(place.archive.reader(), 100);
    type Wanted = fn(&Row) -> bool;
    let cases: [(&str, Wanted); 4] = [
        ("block > 90", |(_, _, block)| *block > 90),
        ("key <> X'312f'", |_| true),
        ("key >= X'33' or block = 95", |(key, _, block)| key.as_slice() >= &b"3"[..] || *block == 95),
        ("octet_length(cast(value as varchar)) > 4 and key < X'33'", |(key, value, _)| {
            value.as_ref().is_some_and(|value| value.len() > 4) && key.as_slice() < &b"3"[..]
        }),
    ];
    for (filter, wanted) in cases {
        let expected: Vec<Row> = all.iter().filter(|row| wanted(row)).cloned().collect();
        assert!(!expected.is_empty(), "{filter}");
        let sql = format!("select * from state('kv', 100) where {filter} order by key");
        assert_eq!(ask(&place.context, &sql).await, expected, "{filter}");
        let limited = ask(&place.context, &format!("{sql} limit 3")).await;
        assert_eq!(limited, expected[..3.min(expected.len())], "a limit comes after the filter: {filter}");
    }
}

#[tokio::test]
async fn a_limit_ends_the_reading_and_the_order_needs_no_sort() {
    let place = place();
    let all = state(place.archive.reader(), BLOCKS);
    let sql = "select * from state('kv') where key >= X'32' order by key limit 5";
    let expected: Vec<Row> =
        all.iter().filter(|(key, ..)| key.as_slice() >= &b"2"[..]).take(5).cloned().collect();
    assert_eq!(ask(&place.context, sql).await, expected);
    let plan = plan(&place.context, sql).await;
    assert!(!plan.contains("Sort") && plan.contains("fetch=5"), "{plan}");
}

/// The archive of a place, opened again for reading.
fn reopened(place: &Place) -> (tempfile::TempDir, Reader) {
    let dir = tempfile::tempdir().unwrap();
    place.archive.checkpoint(dir.path().join("copy.ice"), &()).unwrap();
    let reader = Reader::open(dir.path().join("copy.ice")).unwrap();
    (dir, reader)
}

#[tokio::test]
async fn the_versions_of_keys_are_those_of_the_archive() {
    let place = place();
    let reader = place.archive.reader();
    let keys = [b"0/000".to_vec(), b"2/007".to_vec(), b"3/123".to_vec(), b"never".to_vec()];
    let named: Vec<String> = keys.iter().map(|key| format!("X'{}'", hex(key))).collect();
    for (filter, from, to) in [
        ("true", 0, u64::MAX),
        ("block >= 30 and block < 90", 30, 89),
        ("block between 31 and 33", 31, 33),
        ("block > 115", 116, u64::MAX),
        ("block <= 16", 0, 16),
        ("block = 64", 64, 64),
        ("block < 1", 0, 0),
        ("block > 120", 121, u64::MAX),
        ("block > 50 and block < 40", 51, 39),
    ] {
        let sql = format!("select * from history('kv') where key in ({}) and {filter}", named.join(", "));
        let mut expected: Vec<Row> = Vec::new();
        for key in &keys {
            let changes = reader.history("kv", key).unwrap().map(Result::unwrap);
            let changes = changes.filter(|change| from <= change.block && change.block <= to);
            expected.extend(changes.map(|change| (key.clone(), change.value, change.block)));
        }
        assert_eq!(ask(&place.context, &sql).await, expected, "{filter}");
        let plan = plan(&place.context, &sql).await;
        assert!(!plan.contains("FilterExec"), "{filter}: {plan}");
    }
    let two = format!("select * from history('kv') where key in ({}, {})", named[0], named[1]);
    let both = keys[..2].iter().map(|key| reader.history("kv", key).unwrap().count()).sum::<usize>();
    assert_eq!(ask(&place.context, &two).await.len(), both, "an `in` of few keys");
    let deletions = format!("select * from history('kv') where key = {} and value is null", named[0]);
    let expected =
        reader.history("kv", &keys[0]).unwrap().filter(|change| change.as_ref().unwrap().value.is_none());
    assert_eq!(ask(&place.context, &deletions).await.len(), expected.count());
}

/// A row of changes: block, domain, key, before, after.
type ChangeRow = (u64, String, Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>);

/// The rows of a query for all columns of changes, as they come.
async fn ask_changes(context: &SessionContext, sql: &str) -> Vec<ChangeRow> {
    let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
    batches.iter().flat_map(change_rows).collect()
}

fn change_rows(batch: &RecordBatch) -> Vec<ChangeRow> {
    let bytes = |name: &str| as_binary_array(batch.column_by_name(name).unwrap()).unwrap().clone();
    let (keys, before, after) = (bytes("key"), bytes("before"), bytes("after"));
    let blocks = as_uint64_array(batch.column_by_name("block").unwrap()).unwrap();
    let domains = as_string_array(batch.column_by_name("domain").unwrap()).unwrap();
    let value = |values: &BinaryArray, at: usize| values.is_valid(at).then(|| values.value(at).to_vec());
    let row = |at: usize| {
        let key = keys.value(at).to_vec();
        (blocks.value(at), domains.value(at).to_owned(), key, value(&before, at), value(&after, at))
    };
    (0..batch.num_rows()).map(row).collect()
}

/// What the archive itself says.
fn changes(reader: &Reader) -> Vec<ChangeRow> {
    let row = |change: StateChange| {
        let domain = reader.domains()[change.domain].name.clone();
        (change.block, domain, change.key, change.before, change.after)
    };
    reader.changes(..).unwrap().map(|change| row(change.unwrap())).collect()
}

#[tokio::test]
async fn the_changes_of_blocks_are_those_of_the_archive() {
    let place = place();
    let all = changes(place.archive.reader());
    assert!(all.len() > 4000 && all.iter().any(|(_, domain, ..)| domain == "other"));
    assert!(all.iter().any(|row| row.3.is_some()) && all.iter().any(|row| row.4.is_none()));
    assert_eq!(ask_changes(&place.context, "select * from changes()").await, all);
    let kv: Vec<_> = all.iter().filter(|(_, domain, ..)| domain == "kv").cloned().collect();
    assert_eq!(ask_changes(&place.context, "select * from changes('kv')").await, kv);

    let (low, some) = (b"2/".to_vec(), all[1000].2.clone());
    type Wanted<'a> = Box<dyn Fn(&ChangeRow) -> bool + 'a>;
    let cases: Vec<(String, Wanted)> = vec![
        ("block = 64".to_owned(), Box::new(|row| row.0 == 64)),
        ("block >= 30 and block < 90".to_owned(), Box::new(|row| (30..90).contains(&row.0))),
        ("block > 115".to_owned(), Box::new(|row| row.0 > 115)),
        ("block <= 1".to_owned(), Box::new(|row| row.0 <= 1)),
        ("block > 120".to_owned(), Box::new(|_| false)),
        ("block > 50 and block < 40".to_owned(), Box::new(|_| false)),
        (format!("has_prefix(key, X'{}')", hex(&low)), Box::new(|row| row.2.starts_with(&low))),
        (
            format!("has_prefix(key, X'{}') and block between 31 and 48", hex(&low)),
            Box::new(|row| row.2.starts_with(&low) && (31..=48).contains(&row.0)),
        ),
        (format!("key = X'{}'", hex(&some)), Box::new(|row| row.2 == some)),
        (format!("key in (X'{}', X'{}')", hex(&some), hex(b"no")), Box::new(|row| row.2 == some)),
        (format!("key = X'{}' and key < X'30'", hex(&some)), Box::new(|_| false)),
        (format!("key >= X'{}' and block = 17", hex(&low)), Box::new(|row| row.2 >= low && row.0 == 17)),
    ];
    for (filter, wanted) in &cases {
        let sql = format!("select * from changes('kv') where {filter}");
        let expected: Vec<_> = kv.iter().filter(|row| wanted(row)).cloned().collect();
        assert_eq!(ask_changes(&place.context, &sql).await, expected, "{filter}");
        let plan = plan(&place.context, &sql).await;
        assert!(!plan.contains("FilterExec"), "{filter}: {plan}");
    }
    // What is not pushed down is filtered, before a limit.
    let sql = "select * from changes() where before is null and domain = 'other' order by block limit 3";
    let expected: Vec<_> =
        all.iter().filter(|row| row.1 == "other" && row.3.is_none()).take(3).cloned().collect();
    assert_eq!(ask_changes(&place.context, sql).await, expected);
    let sql = "select * from changes('kv') where block >= 60 order by block limit 5";
    let expected: Vec<_> = kv.iter().filter(|row| row.0 >= 60).take(5).cloned().collect();
    assert_eq!(ask_changes(&place.context, sql).await, expected);
    let plan = plan(&place.context, sql).await;
    assert!(!plan.contains("Sort") && plan.contains("fetch=5"), "{plan}");
    let counted = ask_counts(&place.context, "select domain, count(*) from changes() group by domain").await;
    assert_eq!(counted, [("kv".to_owned(), kv.len() as i64), ("other".to_owned(), 120)]);
}

/// The rows of a query for a text and a count, in order.
async fn ask_counts(context: &SessionContext, sql: &str) -> Vec<(String, i64)> {
    let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
    let rows = batches.iter().flat_map(|batch| {
        let names = as_string_array(batch.column(0)).unwrap();
        let counts = as_int64_array(batch.column(1)).unwrap();
        (0..batch.num_rows()).map(|at| (names.value(at).to_owned(), counts.value(at)))
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort();
    rows
}

#[tokio::test]
async fn the_changes_of_a_pruned_archive_begin_above_its_floor() {
    let place = place();
    place.archive.prune(50, &()).unwrap();
    let known = changes(place.archive.reader());
    assert!(known[0].0 > 1);
    assert_eq!(ask_changes(&place.context, "select * from changes()").await, known);
    assert_eq!(ask_changes(&place.context, "select * from changes() where block >= 2").await, known);
}

/// A pair of keys of minisign, and a public key that is not theirs.
const SECRET: &str = "untrusted comment: minisign encrypted secret key\n\
        RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAALm8vScJ3Nz0Jx6++vAbTbVO8HWcJQav2dHdHZe\
        rmjFtNHqyOAPNVtVapiNZ485Pv7c3GeCRwBzrJ6F4W+6ihztl0dXEfvVAuAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
const PUBLIC: &str = "RWQuby9Jwnc3PVapiNZ485Pv7c3GeCRwBzrJ6F4W+6ihztl0dXEfvVAu";
const STRANGER: &str = "RWTVqAsg9qkmsAADKojSuO1jWvb/fDhBEGSM12OWm0VLZh9l5v/YKVFf";

#[tokio::test]
async fn a_bucket_answers_as_the_archive_and_only_under_its_key() {
    let place = place();
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file://{}", dir.path().join("bucket").display());
    let signed = PushOptions::new().sign(SigningKey::parse(SECRET, None).unwrap());
    place.archive.reader().push(&Bucket::open(&url).unwrap(), &signed, &()).unwrap();
    let open = |key: &str| {
        let bucket = Bucket::open_with(&url, &BucketOptions::new().public_key(key.parse().unwrap()))?;
        Reader::open_remote(&bucket, &RemoteOptions::new(dir.path().join("cache")))
    };
    let refused = open(STRANGER).expect_err("another key").to_string();
    assert!(refused.contains("another key"), "{refused}");

    let reader = open(PUBLIC).unwrap();
    let (_, head) = reader.range().unwrap();
    let context = SessionContext::new();
    icecore_datafusion::register(&context, reader);
    let expected: Vec<_> = changes(place.archive.reader()).into_iter().filter(|row| row.0 <= head).collect();
    assert_eq!(ask_changes(&context, "select * from changes()").await, expected);
    let at = format!("select * from state('kv', {head})");
    assert_eq!(ask(&context, &at).await, state(place.archive.reader(), head));
}

#[tokio::test]
async fn questions_that_make_no_sense_are_errors() {
    let place = place();
    for (sql, reason) in [
        ("select * from state('nope')", "unknown domain 'nope', declared: kv, other"),
        ("select * from state('kv', 999)", "block 999 is out of range: the archive has blocks 1 to 120"),
        ("select * from state('kv', -1)", "a block is an integer"),
        ("select * from state(7)", "a domain is text"),
        ("select * from state()", "state takes a domain"),
        ("select * from history('kv')", "name them"),
        ("select * from history('kv') where block > 7", "name them"),
        ("select * from history()", "history takes a domain"),
        ("select * from changes('nope')", "unknown domain 'nope', declared: kv, other"),
        ("select * from changes('kv', 7)", "changes takes a domain"),
        ("select * from changes(7)", "changes takes a domain"),
    ] {
        let error = match place.context.sql(sql).await {
            Ok(frame) => frame.collect().await.map(drop).expect_err(sql),
            Err(error) => error,
        };
        assert!(error.to_string().contains(reason), "{sql}: {error}");
    }
}

#[tokio::test]
async fn damage_is_an_error_of_the_query() {
    let place = place();
    let (dir, reader) = reopened(&place);
    drop(reader);
    let mut damaged = 0;
    for file in std::fs::read_dir(dir.path().join("copy.ice")).unwrap() {
        let path = file.unwrap().path();
        let is_kv = path.extension().is_some_and(|extension| extension == "kv");
        if is_kv && path.file_name().unwrap().to_string_lossy().starts_with("kv.") {
            let mut bytes = std::fs::read(&path).unwrap();
            // The first page of data stays as it is.
            for page in (8192..bytes.len() - 4096).step_by(4096) {
                bytes[page + 64] ^= 255;
            }
            std::fs::write(&path, bytes).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 0);
    let context = SessionContext::new();
    icecore_datafusion::register(&context, Reader::open(dir.path().join("copy.ice")).unwrap());
    let first = ask(&context, "select * from state('kv') limit 1").await;
    assert_eq!(first.len(), 1, "a limit reads no page after the first");
    let frame = context.sql("select * from state('kv')").await.unwrap();
    let error = frame.collect().await.expect_err("the pages are damaged");
    assert!(error.to_string().contains(".kv"), "{error}");
}
