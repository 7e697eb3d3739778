//! The log against every cut, every flipped byte, every failing operation and simulated power losses.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use icecore_segments::{KEY_LEN_MAX, VALUE_LEN_MAX};
use proptest::prelude::*;

use super::header::{
    ARCHIVE_AT, FILE_HEADER_LEN, FILE_SUM_AT, MAGIC, SEQUENCE_AT, VERSION, VERSION_AT,
    VERSION_WITHOUT_FINGERPRINTS, check_file_header, file_header,
};
use super::record::{
    BODY_SUM_AT, BlockRecord, Change, DURABLE_AT, HEADER_SUM_AT, KIND_AT, Kind, LEN_AT, RECORD_HEADER_LEN,
    RecordHeader, finish_record,
};
use super::*;
use crate::error::Error;
use crate::format::DOC;
use crate::options::{ArchiveId, Config, LogFileId, Options};
use crate::storage::Storage;
use crate::testing::{Fault, SimStorage};

/// File 7 of an archive that may have files of every version.
const FILE: LogFileId = LogFileId { archive: ArchiveId([0; 16]), sequence: 7 };
/// The file after it.
const NEXT: LogFileId = LogFileId { sequence: 8, ..FILE };

/// Two hundred domains: numbers of one and of two bytes.
static CONFIG: LazyLock<Arc<Config>> = LazyLock::new(|| {
    let options = (0..200).fold(Options::new(), |options, i| options.domain(&format!("d{i}")));
    Arc::new(options.into_config().unwrap())
});

fn path() -> &'static Path {
    Path::new("/wal/7")
}

fn disk() -> SimStorage {
    let disk = SimStorage::new();
    disk.create_dir(Path::new("/wal")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

fn block(height: u64) -> Record {
    let value = |len| (len > 0).then(|| vec![height as u8; len as usize - 1]);
    let changes =
        (0..height % 4).map(|i| Change { domain: i as u16 + 1, key: vec![i as u8; 3], value: value(i * 9) });
    Record::Block(BlockRecord { height, root: [height as u8; 32], changes: changes.collect() })
}

fn append(writer: &mut WalWriter, record: &Record) -> Result<(), Error> {
    match record {
        Record::Block(BlockRecord { height, root, changes }) => {
            let changes: Vec<_> = changes.iter().map(ChangeRef::from).collect();
            writer.append(&RecordRef::Block { height: *height, root, changes: &changes })
        }
        Record::Unwind { to } => writer.append(&RecordRef::Unwind { to: *to }),
    }
}

/// A log of `records`, synced after those for which `synced` says so.
fn log(records: &[Record], synced: impl Fn(usize) -> bool) -> (SimStorage, WalWriter) {
    log_of(FILE, records, synced)
}

fn log_of(file: LogFileId, records: &[Record], synced: impl Fn(usize) -> bool) -> (SimStorage, WalWriter) {
    let disk = disk();
    let mut writer = WalWriter::create(&disk, path(), file).unwrap();
    for (i, record) in records.iter().enumerate() {
        append(&mut writer, record).unwrap();
        if synced(i) {
            writer.sync().unwrap();
        }
    }
    (disk, writer)
}

fn read(bytes: &[u8], tail: Tail) -> Result<(Vec<Record>, Position), Error> {
    let reader = WalReader::open(path(), bytes, FILE, tail)?;
    let records = reader.records(&CONFIG).map(|record| record.map(|(_, record)| record));
    Ok((records.collect::<Result<_, _>>()?, reader.position()))
}

/// The offset where damage is reported.
fn damaged_at(bytes: &[u8], tail: Tail) -> u64 {
    match read(bytes, tail) {
        Err(Error::Damaged { path: named, offset, .. }) if named == path() => offset,
        other => panic!("no damage reported: {other:?}"),
    }
}

fn blocks(count: u64) -> Vec<Record> {
    (1..=count).map(block).chain([Record::Unwind { to: count / 2 }]).collect()
}

fn any_record() -> impl Strategy<Value = Record> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    let changes = prop::collection::btree_map((1..=200u16, bytes()), prop::option::of(bytes()), 0..6);
    let block = (any::<u64>(), any::<[u8; 32]>(), changes).prop_map(
        |(height, root, changes): (_, _, BTreeMap<_, _>)| {
            let change = |((domain, key), value)| Change { domain, key, value };
            let changes = changes.into_iter().map(change).collect();
            Record::Block(BlockRecord { height, root, changes })
        },
    );
    prop_oneof![4 => block, 1 => any::<u64>().prop_map(|to| Record::Unwind { to })]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_log_reads_back(records in prop::collection::vec(any_record(), 0..12), syncs in any::<u64>()) {
        let (disk, writer) = log(&records, |i| syncs >> i & 1 == 1);
        let (found, position) = read(&disk.bytes(path()), Tail::Open).unwrap();
        prop_assert_eq!(&found, &records);
        prop_assert_eq!(position.len, disk.bytes(path()).len() as u64);
        writer.seal().unwrap();
        let (found, _) = read(&disk.bytes(path()), Tail::Sealed).unwrap();
        prop_assert_eq!(&found, &records);
        let (found, again) = read(&disk.bytes(path()), Tail::Open).unwrap();
        prop_assert_eq!((&found, again), (&records, position));
    }

    #[test]
    fn arbitrary_bytes_are_an_error_or_an_empty_log(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(read(&bytes, Tail::Open).is_err());
        let behind_a_header = [&file_header(FILE, VERSION).0[..], &bytes].concat();
        prop_assert_eq!(read(&behind_a_header, Tail::Open).unwrap().0, vec![]);
    }
}

#[test]
fn a_cut_leaves_a_prefix_that_can_be_gone_on_from() {
    let records = blocks(6);
    let (disk, writer) = log(&records, |i| i % 2 == 0);
    let whole = disk.bytes(path());
    for len in 0..whole.len() {
        if len < FILE_HEADER_LEN {
            assert_eq!(damaged_at(&whole[..len], Tail::Open), len as u64);
            continue;
        }
        let (mut expected, position) = read(&whole[..len], Tail::Open).unwrap();
        assert_eq!(expected, records[..expected.len()], "cut at {len}");
        let cut = disk.kill_clone();
        cut.truncate(path(), len as u64);
        let mut writer = WalWriter::resume(&cut, path(), FILE, position).unwrap();
        append(&mut writer, &block(99)).unwrap();
        writer.sync().unwrap();
        expected.push(block(99));
        assert_eq!(read(&cut.bytes(path()), Tail::Open).unwrap().0, expected, "cut at {len}, then gone on");
    }
    writer.seal().unwrap();
    let sealed = disk.bytes(path());
    for len in 0..sealed.len() {
        assert!(read(&sealed[..len], Tail::Sealed).is_err(), "a sealed file cut at {len}");
    }
}

#[test]
fn every_flipped_byte_of_what_was_synced_is_damage() {
    let records = blocks(6);
    let (disk, writer) = log(&records, |_| true);
    let marked = disk.bytes(path());
    writer.seal().unwrap();
    let sealed = disk.bytes(path());
    let last_mark = marked.len() - RECORD_HEADER_LEN;
    for xor in [0x01, 0x80, 0xFF] {
        for at in 0..sealed.len() {
            let mut bytes = sealed.clone();
            bytes[at] ^= xor;
            assert!(read(&bytes, Tail::Sealed).is_err(), "byte {at} of a sealed file");
            bytes.truncate(marked.len());
            if at < last_mark {
                assert!(read(&bytes, Tail::Open).is_err(), "byte {at}");
            } else {
                let (found, position) = read(&bytes, Tail::Open).unwrap();
                assert_eq!(found, records, "without the last mark everything is there still");
                assert_eq!(position.marked, at >= marked.len());
            }
        }
    }
}

#[test]
fn a_flipped_byte_of_what_was_not_synced_cuts_there() {
    let records = blocks(6);
    let synced = 3;
    let (disk, _) = log(&records, |i| i == synced);
    let whole = disk.bytes(path());
    let first_unsynced = log(&records[..=synced], |i| i == synced).0.bytes(path()).len();
    for at in FILE_HEADER_LEN..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        let reader = read(&bytes, Tail::Open);
        if at < first_unsynced - RECORD_HEADER_LEN {
            assert!(reader.is_err(), "byte {at}");
        } else if at < first_unsynced {
            // The mark itself. What follows it says the same, but not of the mark.
            assert_eq!(reader.unwrap().0, records[..=synced], "byte {at}");
        } else {
            let (found, _) = reader.unwrap();
            assert!(found.len() < records.len() && found.len() > synced, "byte {at}");
            assert_eq!(found, records[..found.len()], "byte {at}");
        }
    }
}

#[test]
fn a_hole_before_a_sound_record_is_torn_unless_it_was_synced() {
    let records = blocks(4);
    for synced in [false, true] {
        let (disk, _) = log(&records, |i| synced && i == 2);
        let before = log(&records[..2], |_| false).0.bytes(path()).len();
        let hole_end = log(&records[..3], |_| false).0.bytes(path()).len();
        let mut bytes = disk.bytes(path());
        bytes[before..hole_end].fill(0);
        if synced {
            assert_eq!(damaged_at(&bytes, Tail::Open), before as u64);
        } else {
            assert_eq!(read(&bytes, Tail::Open).unwrap().0, records[..2]);
            assert_eq!(damaged_at(&bytes, Tail::Sealed), before as u64);
        }
    }
}

#[test]
fn a_follower_yields_each_record_once_and_as_soon_as_it_is_written() {
    let records = blocks(9);
    for synced in [0, 0b101, usize::MAX] {
        let disk = disk();
        let mut writer = WalWriter::create(&disk, path(), FILE).unwrap();
        let mut follower = WalFollower::open(&disk, &CONFIG, path(), FILE).unwrap().unwrap();
        for (i, record) in records.iter().enumerate() {
            append(&mut writer, record).unwrap();
            if synced >> i & 1 == 1 {
                writer.sync().unwrap();
            }
            assert!(follower.has_news().unwrap());
            assert_eq!(taken(&mut follower, false), records[i..=i]);
            assert!(!follower.has_news().unwrap());
            assert_eq!(taken(&mut follower, false), []);
            assert_eq!(followed(&disk), records[..=i]);
        }
        assert!(follower.advance(true).is_err(), "a sealed file has an end record");
        writer.seal().unwrap();
        assert_eq!(taken(&mut follower, true), []);
    }
}

#[test]
fn a_follower_goes_on_where_a_writer_goes_on_in_the_place_of_an_end() {
    let records = blocks(6);
    let (disk, writer) = log(&records[..3], |_| true);
    let mut follower = WalFollower::open(&disk, &CONFIG, path(), FILE).unwrap().unwrap();
    writer.seal().unwrap();
    // Killed before the manifest named a next file.
    assert_eq!(taken(&mut follower, false), records[..3]);
    let (_, position) = read(&disk.bytes(path()), Tail::Open).unwrap();
    let mut writer = WalWriter::resume(&disk, path(), FILE, position).unwrap();
    for record in &records[3..] {
        append(&mut writer, record).unwrap();
        assert!(follower.has_news().unwrap());
        assert_eq!(taken(&mut follower, false), std::slice::from_ref(record));
    }
}

#[test]
fn a_follower_sees_a_record_that_takes_the_place_of_a_torn_one_of_its_length() {
    let (disk, mut writer) = log(&blocks(3)[..2], |_| true);
    append(&mut writer, &block(7)).unwrap();
    drop(writer);
    let at = disk.bytes(path()).len() as u64 - 1;
    disk.corrupt(path(), at, 1);
    let mut follower = WalFollower::open(&disk, &CONFIG, path(), FILE).unwrap().unwrap();
    assert_eq!(taken(&mut follower, false), blocks(3)[..2]);
    let (_, position) = read(&disk.bytes(path()), Tail::Open).unwrap();
    let mut writer = WalWriter::resume(&disk, path(), FILE, position).unwrap();
    append(&mut writer, &block(7)).unwrap();
    assert!(follower.has_news().unwrap());
    assert_eq!(taken(&mut follower, false), [block(7)]);
}

/// The records that a follower has not yielded yet.
fn taken(follower: &mut WalFollower, is_sealed: bool) -> Vec<Record> {
    let record = |event| match event {
        LogEvent::Unwind { to, .. } => Record::Unwind { to },
        LogEvent::Block(block) => {
            let (mut body, mut changes) = (Vec::new(), Vec::new());
            block.for_each_change(&CONFIG, &mut body, |change| changes.push(Change::from(change))).unwrap();
            Record::Block(BlockRecord { height: block.height, root: block.root, changes })
        }
    };
    follower.advance(is_sealed).unwrap().into_iter().map(record).collect()
}

/// What a reader finds that opens the file now.
fn followed(disk: &SimStorage) -> Vec<Record> {
    taken(&mut WalFollower::open(disk, &CONFIG, path(), FILE).unwrap().unwrap(), false)
}

#[test]
fn files_and_records_know_their_place() {
    // Three records of one length, so that exchanging two moves nothing else.
    let (disk, _) = log(&[block(4), block(8), block(12)], |_| true);
    let bytes = disk.bytes(path());
    let other = WalReader::open(path(), &bytes, NEXT, Tail::Open);
    assert!(matches!(other, Err(Error::Damaged { offset: 16, .. })), "another file of the same log");
    let stranger = LogFileId { archive: ArchiveId([1; 16]), ..FILE };
    let foreign = WalReader::open(path(), &bytes, stranger, Tail::Open);
    assert!(matches!(foreign, Err(Error::Damaged { offset: 24, .. })), "the file of another archive");
    let [record, _, second, ..] = offsets(&bytes)[..] else { panic!("three blocks, each with a mark") };
    let mut moved = bytes.clone();
    moved.copy_within(record.0..record.1, second.0);
    assert_eq!(damaged_at(&moved, Tail::Open), second.0 as u64, "a record at another offset");
    let (disk, _) = log(&[block(4), block(8), block(12)], |_| false);
    let mut unsynced = disk.bytes(path());
    unsynced.copy_within(record.0..record.1, record.1);
    assert_eq!(read(&unsynced, Tail::Open).unwrap().0, [block(4)], "nor is a copy taken for a record");
    let mut foreign = bytes[..FILE_HEADER_LEN].to_vec();
    let mut stranger = bytes[record.0..record.1].to_vec();
    finish_record(&mut stranger, Kind::Block, FILE_HEADER_LEN as u64, 64, file_header(NEXT, VERSION).1);
    foreign.extend(stranger);
    assert_eq!(read(&foreign, Tail::Open).unwrap().0, [], "a record of another file");
}

/// Where each record begins and ends, marks too.
fn offsets(bytes: &[u8]) -> Vec<(usize, usize)> {
    let salt = check_file_header(bytes, FILE).unwrap();
    let mut found = vec![];
    let mut offset = FILE_HEADER_LEN;
    while let Some(header) = RecordHeader::at(bytes, offset, salt) {
        let end = offset + RECORD_HEADER_LEN + header.len as usize;
        found.push((offset, end));
        offset = end;
    }
    found
}

/// A file with one record of this body, checksums and all.
fn forged(kind: Kind, body: &[u8]) -> Vec<u8> {
    forged_of(VERSION, kind, body)
}

fn forged_of(version: u16, kind: Kind, body: &[u8]) -> Vec<u8> {
    let (header, salt) = file_header(FILE, version);
    let mut record = vec![0; RECORD_HEADER_LEN];
    record.extend_from_slice(body);
    finish_record(&mut record, kind, FILE_HEADER_LEN as u64, FILE_HEADER_LEN as u64, salt);
    [&header[..], &record].concat()
}

#[test]
fn hostile_lengths_and_fields_are_damage() {
    let block = |changes: &[u8]| [&[0; 40][..], changes].concat();
    let huge = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01];
    for (kind, body) in [
        (Kind::Block, vec![0; 39]),
        (Kind::Block, block(&[1])),
        (Kind::Block, block(&[1, 1, b'k', 3, b'v'])),
        (Kind::Block, block(&[&[1][..], &huge].concat())),
        (Kind::Block, block(&[&[1, 1, b'k'][..], &huge].concat())),
        (Kind::Block, block(&[0x80, 0x80, 0x04, 0, 0])),
        (Kind::Block, block(&[0x80, 0x00, 0, 0])),
        (Kind::Unwind, vec![0; 7]),
        (Kind::Unwind, vec![0; 9]),
    ] {
        assert_eq!(
            damaged_at(&forged_of(VERSION_WITHOUT_FINGERPRINTS, kind, &body), Tail::Open),
            FILE_HEADER_LEN as u64,
            "{kind:?} {body:?}"
        );
    }
    assert_eq!(read(&forged(Kind::Mark, &[1]), Tail::Open).unwrap().0, [], "no writer gives a mark a body");
    assert_eq!(
        read(&forged_of(VERSION_WITHOUT_FINGERPRINTS, Kind::Block, &block(&[1, 0, 1])), Tail::Open)
            .unwrap()
            .0
            .len(),
        1,
        "an empty value"
    );
    let mut long = forged(Kind::Unwind, &[0; 8]);
    long.truncate(long.len() - 1);
    assert_eq!(read(&long, Tail::Open).unwrap().0, [], "a body that runs past the end of the file");
    assert_eq!(damaged_at(&long, Tail::Sealed), FILE_HEADER_LEN as u64);
    let behind_end = [forged(Kind::End, &[]), vec![0; 5]].concat();
    assert_eq!(damaged_at(&behind_end, Tail::Open), (FILE_HEADER_LEN + RECORD_HEADER_LEN) as u64);
}

#[test]
fn a_block_that_no_writer_writes_is_damage() {
    type Said<'a> = (u16, &'a [u8], Option<&'a [u8]>);
    let reason = |changes: &[Said<'_>]| {
        let changes: Vec<_> =
            changes.iter().map(|&(domain, key, value)| ChangeRef { domain, key, value }).collect();
        let mut body = Vec::new();
        RecordRef::Block { height: 5, root: &[0; 32], changes: &changes }.encode_body(&mut body, VERSION);
        match read(&forged(Kind::Block, &body), Tail::Open) {
            Ok(_) => None,
            Err(Error::Damaged { offset: 64, reason, .. }) => Some(reason),
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(reason(&[(1, b"", None), (1, b"a", None), (200, b"a", Some(b""))]), None);
    for foreign in [0, 201, u16::MAX] {
        assert_eq!(reason(&[(foreign, b"k", None)]), Some("a block changes a domain that was not declared"));
    }
    assert_eq!(reason(&[(1, &[7; 1024], None)]), None);
    assert_eq!(reason(&[(1, &[7; 1025], None)]), Some("a block has a key that is too long"));
    for (before, after) in [((1, b"k"), (1, b"k")), ((1, b"l"), (1, b"k")), ((2, b"a"), (1, b"k"))] {
        let changes = [before, after].map(|(domain, key)| (domain, &key[..], None));
        assert_eq!(reason(&changes), Some("the changes of a block are out of order"));
    }
}

#[test]
fn a_key_of_another_length_than_its_domain_declares_is_damage() {
    let options = Options::new().declare(crate::Domain::new("accounts").key_len(20)).domain("any");
    let config = options.into_config().unwrap();
    let reason = |changes: &[ChangeRef<'_>]| {
        let mut body = Vec::new();
        RecordRef::Block { height: 5, root: &[0; 32], changes }.encode_body(&mut body, VERSION);
        let bytes = forged(Kind::Block, &body);
        let reader = WalReader::open(path(), &bytes, FILE, Tail::Open).unwrap();
        match reader.records(&config).collect::<Result<Vec<_>, _>>() {
            Ok(_) => None,
            Err(Error::Damaged { offset: 64, reason, .. }) => Some(reason),
            Err(other) => panic!("{other}"),
        }
    };
    let change = |domain, len| ChangeRef { domain, key: &[7; 30][..len], value: None };
    assert_eq!(reason(&[change(1, 20), change(2, 0), change(2, 30)]), None);
    for len in [0, 19, 21] {
        let found = reason(&[change(1, len), change(2, 3)]);
        assert_eq!(found, Some("a block has a key of another length than its domain declares"), "{len}");
    }
}

#[test]
fn fingerprints_are_those_of_the_changes() {
    let change = ChangeRef { domain: 3, key: b"k", value: Some(b"v") };
    let mut sound = Vec::new();
    RecordRef::Block { height: 5, root: &[7; 32], changes: &[change, ChangeRef { key: b"l", ..change }] }
        .encode_body(&mut sound, VERSION);
    assert_eq!(read(&forged(Kind::Block, &sound), Tail::Open).unwrap().0.len(), 1);
    let forge = |edit: &dyn Fn(&mut Vec<u8>)| {
        let mut body = sound.clone();
        edit(&mut body);
        // The head's own checksum, where its end is still known.
        let count = u32::from_le_bytes(body[40..44].try_into().unwrap()) as usize;
        if let Some(sum_at) = Some(44 + 4 * count).filter(|at| at + 8 <= body.len()) {
            let sum = icecore_segments::checksum::crc64(&body[..sum_at]);
            body[sum_at..sum_at + 8].copy_from_slice(&sum.to_le_bytes());
        }
        body
    };
    type Edit<'a> = &'a dyn Fn(&mut Vec<u8>);
    let edits: [Edit<'_>; 6] = [
        &|body| body[44] ^= 1,
        &|body| body[40] = 1,
        &|body| body[40] = 3,
        &|body| body[40..44].fill(0xFF),
        &|body| drop(body.splice(44..48, [])),
        &|body| body.truncate(50),
    ];
    for (number, edit) in edits.into_iter().enumerate() {
        assert_eq!(damaged_at(&forged(Kind::Block, &forge(edit)), Tail::Open), 64, "edit {number}");
    }
    let mut unsealed = sound;
    unsealed[9] ^= 1;
    assert_eq!(damaged_at(&forged(Kind::Block, &unsealed), Tail::Open), 64, "a root that was changed");
}

#[test]
fn a_file_of_the_first_version_is_read_and_ended_as_it_was_begun() {
    let change = ChangeRef { domain: 3, key: b"k", value: Some(b"v") };
    let record = RecordRef::Block { height: 5, root: &[7; 32], changes: &[change] };
    let mut body = Vec::new();
    record.encode_body(&mut body, VERSION_WITHOUT_FINGERPRINTS);
    let bytes = forged_of(VERSION_WITHOUT_FINGERPRINTS, Kind::Block, &body);
    let disk = disk();
    let mut file = disk.create(path()).unwrap();
    std::io::Write::write_all(&mut file, &bytes).unwrap();
    file.sync().unwrap();
    drop(file);
    let expected =
        Record::Block(BlockRecord { height: 5, root: [7; 32], changes: vec![Change::from(change)] });
    assert_eq!(followed(&disk), std::slice::from_ref(&expected));
    let (found, position) = read(&bytes, Tail::Open).unwrap();
    assert_eq!(found, std::slice::from_ref(&expected));
    let mut writer = WalWriter::resume(&disk, path(), FILE, position).unwrap();
    append(&mut writer, &block(6)).unwrap();
    writer.seal().unwrap();
    assert_eq!(followed(&disk), [expected.clone(), block(6)]);
    assert_eq!(read(&disk.bytes(path()), Tail::Sealed).unwrap().0, [expected, block(6)]);
}

#[test]
fn the_domains_of_the_archive_itself_are_in_no_log() {
    let config =
        Options::new().domain("kv").snapshot_period(std::num::NonZeroU64::new(1)).into_config().unwrap();
    for (domain, sound) in [(0, false), (1, true), (2, false)] {
        let mut body = Vec::new();
        let change = ChangeRef { domain, key: b"k", value: None };
        RecordRef::Block { height: 5, root: &[0; 32], changes: &[change] }.encode_body(&mut body, VERSION);
        assert_eq!(Kind::Block.decode_body(&body, VERSION, &config).is_ok(), sound, "{domain}");
    }
}

#[test]
fn the_bytes_are_those_of_the_document() {
    let record = Record::Block(BlockRecord {
        height: 5,
        root: [0xAB; 32],
        changes: vec![
            Change { domain: 1, key: b"alice".to_vec(), value: Some(b"100".to_vec()) },
            Change { domain: 2, key: b"bob".to_vec(), value: None },
        ],
    });
    let file = LogFileId { archive: ArchiveId([0xCD; 16]), sequence: 7 };
    let (disk, writer) = log_of(file, &[record, Record::Unwind { to: 4 }], |i| i == 0);
    writer.seal().unwrap();
    DOC.check_example("```hex log", &disk.bytes(path()));
}

#[test]
fn the_tables_of_the_document_are_the_constants() {
    let header = [
        (0, "magic"),
        (VERSION_AT, "format version"),
        (VERSION_AT + 2, "reserved"),
        (SEQUENCE_AT, "sequence"),
        (ARCHIVE_AT, "identity"),
        (ARCHIVE_AT + 16, "reserved"),
        (FILE_SUM_AT, "checksum"),
    ];
    DOC.check_layout("### File header: 64 bytes", &header, Some(FILE_HEADER_LEN));
    let record = [
        (HEADER_SUM_AT, "header checksum"),
        (BODY_SUM_AT, "body checksum"),
        (LEN_AT, "body length"),
        (KIND_AT, "kind"),
        (DURABLE_AT, "durable"),
        (RECORD_HEADER_LEN, "body"),
    ];
    let section = "### Record: a header of 32 bytes, then the body";
    DOC.check_layout(section, &record, None);
    let kinds = [("block", Kind::Block), ("unwind", Kind::Unwind), ("mark", Kind::Mark), ("end", Kind::End)];
    let named: Vec<String> = kinds.iter().map(|(name, kind)| format!("{} {name}", kind.code())).collect();
    assert_eq!(DOC.table(section, "offset")[3][4], named.join(", "));
    let bodies = DOC.table(section, "kind");
    assert_eq!(bodies.iter().map(|row| row[0]).collect::<Vec<_>>(), kinds.map(|(name, _)| name));
    let fields = DOC.table("### File header: 64 bytes", "offset");
    let magic = MAGIC.map(|byte| format!("{byte:02X}")).join(" ");
    assert!(fields[0][4].starts_with(&format!("`{magic}`")));
    assert!(fields[1][4].starts_with(&format!("{VERSION};")), "the version that is written");
    let limits = DOC.section("### Limits");
    assert!(limits.contains("2^32 - 1 bytes") && BODY_LEN_MAX == (1 << 32) - 1);
    let keys = format!("A key has at most {KEY_LEN_MAX} bytes, a value at\nmost 2^{}", VALUE_LEN_MAX.ilog2());
    assert!(DOC.section(section).contains(&keys), "{keys}");
}

#[test]
fn a_newer_version_is_named() {
    let mut bytes = file_header(FILE, VERSION).0;
    bytes[8] = 4;
    let sum = icecore_segments::checksum::crc64(&bytes[..56]);
    bytes[56..].copy_from_slice(&sum.to_le_bytes());
    assert!(matches!(read(&bytes, Tail::Open), Err(Error::Unsupported { found: 4, supported: 3, .. })));
}

#[test]
fn creating_replaces_a_leftover_without_records_only() {
    let disk = disk();
    for leftover in [0, 13, FILE_HEADER_LEN] {
        let _ = WalWriter::create(&disk, path(), FILE).unwrap();
        disk.truncate(path(), leftover as u64);
        let _ = WalWriter::create(&disk, path(), FILE).unwrap();
        assert_eq!(disk.bytes(path()), file_header(FILE, VERSION).0, "leftover of {leftover} bytes");
    }
    let (disk, _) = log(&blocks(1), |_| false);
    let refused = WalWriter::create(&disk, path(), FILE);
    assert!(matches!(refused, Err(Error::Exists { .. })), "a file with records");
}

#[test]
fn resuming_twice_is_resuming_once() {
    let records = blocks(3);
    for synced in [false, true] {
        let (disk, _) = log(&records, |_| synced);
        let mut files = Vec::new();
        for _ in 0..3 {
            let (found, position) = read(&disk.bytes(path()), Tail::Open).unwrap();
            assert_eq!(found, records);
            let _ = WalWriter::resume(&disk, path(), FILE, position).unwrap();
            files.push(disk.bytes(path()));
        }
        assert!(files[0] == files[1] && files[1] == files[2], "synced: {synced}");
    }
}

#[test]
fn what_a_writer_resumed_with_is_durable_and_marked() {
    let records = blocks(3);
    let killed = log(&records, |_| false).0.kill_clone();
    let (_, position) = read(&killed.bytes(path()), Tail::Open).unwrap();
    let _writer = WalWriter::resume(&killed, path(), FILE, position).unwrap();
    for seed in 0..50 {
        recovered(
            &killed.crash_clone(seed),
            &records,
            (records.len(), records.len()),
            &format!("seed {seed}"),
        );
    }
    let marked = killed.bytes(path());
    for at in 0..marked.len() - RECORD_HEADER_LEN {
        let mut bytes = marked.clone();
        bytes[at] ^= 1;
        assert!(read(&bytes, Tail::Open).is_err(), "byte {at}");
    }
}

#[test]
fn after_a_failure_the_writer_refuses() {
    // The write of the record, the sync, the write of the mark.
    for ahead in 1..=3 {
        let (disk, mut writer) = log(&blocks(1), |_| true);
        disk.inject(Fault::at(disk.operations() + ahead).no_space().torn(ahead));
        let result = append(&mut writer, &block(5)).and_then(|()| writer.sync());
        assert!(matches!(result, Err(Error::Io { .. })), "operation {ahead} from now");
        let written = disk.bytes(path());
        assert!(matches!(append(&mut writer, &block(6)), Err(Error::Poisoned { .. })));
        assert!(matches!(writer.sync(), Err(Error::Poisoned { .. })));
        assert_eq!(disk.bytes(path()), written, "nothing is written after a failure");
    }
}

/// Appends and syncs until something fails; returns how many records were appended and how many were
/// reported durable.
fn run(writer: &mut WalWriter, from: usize, records: &[Record], every: usize) -> (usize, usize) {
    let (mut appended, mut durable) = (from, from);
    for (i, record) in records.iter().enumerate().skip(from) {
        if append(writer, record).is_err() {
            return (i + 1, durable);
        }
        appended = i + 1;
        if i % every == 0 {
            if writer.sync().is_err() {
                return (appended, durable);
            }
            durable = appended;
        }
    }
    (appended, durable)
}

/// Reads the log and says how many of `records` it holds, which must be at least `durable` and at most `appended`.
fn recovered(
    disk: &SimStorage,
    records: &[Record],
    bounds: (usize, usize),
    context: &str,
) -> (usize, Position) {
    let bytes = disk.bytes(path());
    let (found, position) = read(&bytes, Tail::Open).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(bounds.1 <= found.len() && found.len() <= bounds.0, "{context}: {} of {bounds:?}", found.len());
    assert_eq!(found, records[..found.len()], "{context}");
    assert_eq!(followed(&disk.kill_clone()), found, "{context}: a reader finds what recovery finds");
    (found.len(), position)
}

#[test]
fn whatever_fails_and_whenever_power_is_lost_the_log_has_what_was_synced_and_no_gap() {
    let records = blocks(12);
    for every in [1, 3, 100] {
        for failing in 1..60 {
            let disk = disk();
            let mut writer = WalWriter::create(&disk, path(), FILE).unwrap();
            let fault = Fault::at(disk.operations() + failing).torn(failing);
            disk.inject(if failing % 2 == 0 { fault.from_then_on() } else { fault });
            let bounds = run(&mut writer, 0, &records, every);
            recovered(&disk.kill_clone(), &records, bounds, &format!("killed at {failing} of {every}"));
            for seed in 0..12 {
                let context = format!("power lost at {failing} of {every}, seed {seed}");
                let after = disk.crash_clone(seed);
                let (held, position) = recovered(&after, &records, bounds, &context);
                // And again while recovering and going on.
                after.inject(Fault::at(1 + seed % 7).torn(seed).from_then_on());
                let bounds = match WalWriter::resume(&after, path(), FILE, position) {
                    Ok(mut writer) => run(&mut writer, held, &records, every),
                    Err(_) => (held, bounds.1),
                };
                for again in 0..3 {
                    let twice = after.crash_clone(again);
                    recovered(&twice, &records, bounds, &format!("{context}, then {again}"));
                }
            }
        }
    }
}
