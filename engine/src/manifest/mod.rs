//! The manifest: the one small file that says what an archive consists of.
//!
//! Written to a new name, synced, renamed, the directory synced: the rename is the commit point of every change
//! to the set of files. What the manifest names must be there; what it does not name is garbage. The bytes are described
//! in `FORMAT.md`. Written by [`publish`](crate::write::writer), read by [`recovery`](crate::write::recovery).

mod config;
mod log_end;
mod record;
mod soundness;

use std::collections::HashSet;
use std::path::Path;

use icecore_index::{Density, FilterBits};
use icecore_segments::bytes::{array32_at, put_varint, u32_at, u64_at};
use icecore_segments::checksum::{Checksum, crc64};
use icecore_segments::frame::{FileSummary, Kind};
use icecore_segments::step::{BlockNumber, Step, StepRange};

use crate::domain::DomainId;
use crate::error::Error;
use crate::options::{Config, DensityRule};
use crate::storage::layout;
use crate::storage::{ReadFile, Storage};
use crate::wal::{FILE_HEADER_LEN, Heights};
use config::{Fields, decode_config, encode_config};
pub(crate) use record::{FileRecord, SegmentRecord};

pub(crate) const MAGIC: [u8; 8] = *b"\x8AICM\r\n\x1A\n";
/// The newest format version: has an order by path and key. Written where a domain has it alone, so that what reads versions before goes
/// on reading all other archives, and buckets.
pub(crate) const VERSION: u32 = 8;
/// Has the commitment, and how each domain orders its keys. Written where either is another than versions before it had, for the same
/// reason.
pub(crate) const VERSION_OF_COMMITMENT: u32 = 7;
/// Says of each segment whether it is held. Written of partial copies alone, for the same reason.
pub(crate) const VERSION_OF_PARTIAL: u32 = 6;
/// The format version of archives that hold every segment, which it does not say.
pub(crate) const VERSION_OF_WHOLE: u32 = 5;
/// Has no block indexes.
const VERSION_WITHOUT_BLOCK_INDEXES: u32 = 4;
/// Does not tell the archive from others of the same options.
const VERSION_WITHOUT_ID: u32 = 3;
/// Has no declared key lengths, and no digests beside the roots.
const VERSION_WITHOUT_KEY_LENS: u32 = 2;
/// Has no snapshot period: the archive has no snapshots.
const VERSION_WITHOUT_SNAPSHOTS: u32 = 1;
const HEAD_LEN: usize = 24;

/// The longest manifest that is read: some ten million files.
const LEN_MAX: u64 = 1 << 30;
pub(crate) const SUM_LEN: usize = 8;

/// What an archive consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Counts the manifests of this archive; a reader that finds another one starts again.
    pub(crate) generation: u64,
    pub(crate) config: Config,
    pub(crate) rule: DensityRule,
    /// Every step before this one is in segments, none at or after it.
    pub(crate) emitted_to: Step,
    /// The first block ever committed.
    pub(crate) first_block: Option<BlockNumber>,
    /// The highest block that is in segments.
    pub(crate) emitted_head: Option<BlockNumber>,
    /// Blocks below this one were pruned and are not answered.
    pub(crate) pruned_before: BlockNumber,
    /// The first and the last file of the log, both there.
    pub(crate) wal_first: u64,
    pub(crate) wal_last: u64,
    /// Where the last record ends that was synced in the last log file when this manifest was written: it must be there.
    pub(crate) wal_reached: u64,
    /// Ordered by domain, then by step.
    pub(crate) segments: Vec<SegmentRecord>,
}

impl Manifest {
    /// The manifest of an empty archive.
    pub(crate) fn new(config: Config) -> Self {
        Self {
            generation: 1,
            config,
            rule: DensityRule::default(),
            emitted_to: Step(0),
            first_block: None,
            emitted_head: None,
            pruned_before: 0,
            wal_first: 1,
            wal_last: 1,
            wal_reached: 0,
            segments: Vec::new(),
        }
    }

    /// Makes this the archive's manifest, durably, in one step.
    ///
    /// Durability: when this returns, a power loss leaves this manifest; when it fails, the former or this one.
    pub(crate) fn store(&self, storage: &dyn Storage, dir: &Path) -> Result<(), Error> {
        self.stage(storage, dir)?;
        install(storage, dir)
    }

    /// Makes this, of the next generation, the successor of the archive's manifest, durably, in one step. Returns it.
    ///
    /// Durability: as [`Manifest::store`].
    pub(crate) fn store_next(self, storage: &dyn Storage, dir: &Path) -> Result<Self, Error> {
        self.stage_next(storage, dir)?.install(storage, dir)
    }

    /// Writes and syncs this, of the next generation, beside the archive's manifest, which stays in force whether this fails
    /// or not.
    pub(crate) fn stage_next(mut self, storage: &dyn Storage, dir: &Path) -> Result<StagedManifest, Error> {
        assert!(
            self.names_what_was_emitted(),
            "E4, E5, E6: a manifest names what was emitted, each step once"
        );
        self.generation += 1;
        if !self.is_countable() {
            let (path, offset) = (dir.join(layout::MANIFEST), HEAD_LEN as u64);
            return Err(Error::Damaged { path, offset, reason: "its number is too high to go on from" });
        }
        self.stage(storage, dir)?;
        Ok(StagedManifest(self))
    }

    fn stage(&self, storage: &dyn Storage, dir: &Path) -> Result<(), Error> {
        let fresh = dir.join(layout::MANIFEST_NEW);
        storage.remove(&fresh)?;
        self.write_to(storage, &fresh).inspect_err(|_| {
            // What cannot be removed now is garbage that the next opening removes.
            let _ = storage.remove(&fresh);
        })
    }

    fn write_to(&self, storage: &dyn Storage, path: &Path) -> Result<(), Error> {
        let mut file = storage.create(path)?;
        file.write_all(&self.encode()).map_err(|source| Error::Io {
            operation: crate::error::Operation::Write,
            path: path.to_owned(),
            source,
        })?;
        file.sync()
    }

    /// Reads the manifest of the archive at `dir`.
    ///
    /// # Errors
    /// [`Error::NotAnArchive`] where there is none; [`Error::Damaged`] with the offset; [`Error::Unsupported`].
    pub(crate) fn load(storage: &dyn Storage, dir: &Path) -> Result<Self, Error> {
        Self::open(storage, dir).map(|(manifest, _)| manifest)
    }

    /// The same, and the file it was read from: as long as that has the name, this is the manifest.
    pub(crate) fn open(storage: &dyn Storage, dir: &Path) -> Result<(Self, Box<dyn ReadFile>), Error> {
        let path = dir.join(layout::MANIFEST);
        let file = match storage.open(&path)? {
            Some(file) => file,
            None => {
                for marker in [layout::CHECKPOINT, layout::PULL] {
                    if storage.len(&dir.join(marker))?.is_some() {
                        return Err(Error::Unfinished { path: dir.to_owned() });
                    }
                }
                if !had_content(storage, dir)? {
                    return Err(Error::NotAnArchive { path: dir.to_owned() });
                }
                // Content comes after the manifest: the archive may have been created between the two looks.
                storage.open(&path)?.ok_or(Error::Missing { path: path.clone() })?
            }
        };
        Ok((Self::decode(&read_framed(&*file, &path)?, &path)?, file))
    }

    /// The names of the files of live segments that are here.
    pub(crate) fn file_names(&self) -> HashSet<String> {
        let names = |segment: &SegmentRecord| {
            segment.kinds().map(|kind| segment.file_name(&self.config, kind)).collect::<Vec<_>>()
        };
        self.segments.iter().flat_map(names).collect()
    }

    /// Its bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        put_varint(&mut body, self.generation);
        body.extend_from_slice(&self.config.id.0);
        let version = self.version();
        encode_config(&mut body, &self.config, version);
        encode_rule(&mut body, self.rule);
        put_varint(&mut body, self.emitted_to.0);
        put_option(&mut body, self.first_block);
        put_option(&mut body, self.emitted_head);
        let log = [self.wal_first, self.wal_last, self.wal_reached];
        for number in [self.pruned_before].into_iter().chain(log).chain([self.segments.len() as u64]) {
            put_varint(&mut body, number);
        }
        for segment in &self.segments {
            encode_segment(&mut body, segment, version);
        }
        frame(version, &body)
    }

    /// The format version that it is written in: the oldest that can say what it says.
    fn version(&self) -> u32 {
        if self.config.is_of_first_commitment() {
            return if self.is_whole() { VERSION_OF_WHOLE } else { VERSION_OF_PARTIAL };
        }
        if self.config.is_by_path() { VERSION } else { VERSION_OF_COMMITMENT }
    }

    /// Reads the bytes of a manifest.
    pub(crate) fn decode(bytes: &[u8], path: &Path) -> Result<Self, Error> {
        let damaged =
            |offset: usize, reason| Error::Damaged { path: path.to_owned(), offset: offset as u64, reason };
        if bytes.len() < HEAD_LEN + SUM_LEN {
            return Err(damaged(bytes.len(), "length"));
        }
        if bytes[..8] != MAGIC {
            return Err(damaged(0, "magic"));
        }
        let sum_at = bytes.len() - SUM_LEN;
        if !left_out!(ManifestChecksum) && u64_at(bytes, sum_at) != Some(crc64(&bytes[..sum_at])) {
            return Err(damaged(sum_at, "checksum"));
        }
        let version = u32_at(bytes, 8).unwrap_or(0);
        if !(VERSION_WITHOUT_SNAPSHOTS..=VERSION).contains(&version) {
            let (found, supported) = (u64::from(version), u64::from(VERSION));
            return Err(Error::Unsupported { path: path.to_owned(), found, supported });
        }
        if u64_at(bytes, 16) != Some((sum_at - HEAD_LEN) as u64) {
            return Err(damaged(16, "length"));
        }
        let mut fields = Fields { bytes: &bytes[HEAD_LEN..sum_at], at: 0 };
        let manifest =
            decode_body(&mut fields, version).ok_or_else(|| damaged(HEAD_LEN + fields.at, "field"))?;
        if fields.at != fields.bytes.len() {
            return Err(damaged(HEAD_LEN + fields.at, "length"));
        }
        Ok(manifest)
    }
}

/// A manifest that is on disk beside the one it is to replace.
pub(crate) struct StagedManifest(Manifest);

impl StagedManifest {
    /// Makes it the archive's manifest, and returns it.
    ///
    /// Durability: as [`Manifest::store`].
    pub(crate) fn install(self, storage: &dyn Storage, dir: &Path) -> Result<Manifest, Error> {
        install(storage, dir)?;
        Ok(self.0)
    }
}

fn install(storage: &dyn Storage, dir: &Path) -> Result<(), Error> {
    storage.rename(&dir.join(layout::MANIFEST_NEW), &dir.join(layout::MANIFEST))?;
    storage.sync_dir(dir)
}

/// The bytes of a manifest that is as long as its head says: the length of a file alone is no reason to take memory.
fn read_framed(file: &dyn ReadFile, path: &Path) -> Result<Vec<u8>, Error> {
    let len = file.len()?;
    let mut head = [0; HEAD_LEN];
    let read = file.read_at(0, &mut head)?;
    let body_len = u64_at(&head[..read], 16);
    if read == HEAD_LEN && head[..8] == MAGIC {
        let stated = body_len.and_then(|body| body.checked_add((HEAD_LEN + SUM_LEN) as u64));
        if stated != Some(len) || len > LEN_MAX {
            return Err(Error::Damaged { path: path.to_owned(), offset: 16, reason: "length" });
        }
    }
    // Without its magic it is none, whatever follows.
    let len = if head[..8] == MAGIC { len } else { read as u64 };
    let mut bytes = vec![0; len as usize];
    let read = file.read_at(0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Puts head and checksum around a body.
fn frame(version: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_LEN + body.len() + SUM_LEN);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&0u32.to_le_bytes());
    out.extend_from_slice(&(body.len() as u64).to_le_bytes());
    out.extend_from_slice(body);
    let sum = crc64(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// Whether a directory without a manifest holds what only an archive with one can have: a segment, or a log with a
/// record. A crash in the midst of creation leaves neither.
pub(crate) fn had_content(storage: &dyn Storage, dir: &Path) -> Result<bool, Error> {
    let names = storage.list(dir)?.unwrap_or_default();
    let unfinished = [layout::MANIFEST_NEW, layout::CHECKPOINT, layout::PULL];
    if names.iter().any(|name| layout::is_ours(name) && !unfinished.contains(&&**name)) {
        return Ok(true);
    }
    let wal = layout::wal_dir(dir);
    for name in storage.list(&wal)?.unwrap_or_default() {
        if storage.len(&wal.join(name))?.is_some_and(|len| len > FILE_HEADER_LEN as u64) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn put_option(out: &mut Vec<u8>, value: Option<u64>) {
    out.push(u8::from(value.is_some()));
    put_varint(out, value.unwrap_or(0));
}

fn encode_rule(out: &mut Vec<u8>, rule: DensityRule) {
    let (code, number) = match rule {
        DensityRule::Recency => (0, 0),
        DensityRule::Budget { bytes } => (1, bytes),
        DensityRule::Fixed(m) => (2, u64::from(m.get())),
    };
    out.push(code);
    put_varint(out, number);
}

fn encode_segment(out: &mut Vec<u8>, segment: &SegmentRecord, version: u32) {
    put_varint(out, u64::from(segment.domain.0));
    put_varint(out, segment.steps.from().0);
    put_varint(out, segment.steps.to().0);
    for kind in Kind::LOOKUP {
        encode_file(out, segment.file(kind));
    }
    put_varint(out, u64::from(segment.m.get()));
    out.push(segment.filter_bits.get());
    out.push(u8::from(segment.kvbi.is_some()));
    segment.kvbi.into_iter().for_each(|file| encode_file(out, file));
    if version > VERSION_OF_WHOLE {
        out.push(u8::from(segment.is_held));
    }
}

fn encode_file(out: &mut Vec<u8>, file: FileRecord) {
    put_varint(out, u64::from(file.revision));
    put_varint(out, file.summary.len);
    out.extend_from_slice(&file.summary.content.0);
}

fn decode_body(fields: &mut Fields<'_>, version: u32) -> Option<Manifest> {
    let generation = fields.number()?;
    let config = decode_config(fields, version)?;
    let rule = match (fields.byte()?, fields.number()?) {
        (0, 0) => DensityRule::Recency,
        (1, bytes) => DensityRule::Budget { bytes },
        (2, m) => DensityRule::Fixed(Density::new(u32::try_from(m).ok()?)?),
        _ => return None,
    };
    let emitted_to = Step(fields.number()?);
    let first_block = fields.option()?;
    let emitted_head = fields.option()?;
    let (pruned_before, wal_first, wal_last) = (fields.number()?, fields.number()?, fields.number()?);
    let wal_reached = if version <= VERSION_WITHOUT_KEY_LENS { 0 } else { fields.number()? };
    let mut segments = Vec::new();
    for _ in 0..fields.number()? {
        let segment = decode_segment(fields, version)?;
        if segment.domain.index() >= config.domains.len() {
            return None;
        }
        segments.push(segment);
    }
    let manifest = Manifest {
        generation,
        config,
        rule,
        emitted_to,
        first_block,
        emitted_head,
        pruned_before,
        wal_first,
        wal_last,
        wal_reached,
        segments,
    };
    // One manifest, one encoding.
    let is_of_version = version < VERSION_OF_WHOLE || version == manifest.version();
    (is_of_version && manifest.is_sound()).then_some(manifest)
}

impl Manifest {
    /// What follows the log of this archive.
    pub(crate) fn heights(&self) -> Heights {
        Heights::new(self.config.step_len, self.emitted_to)
    }
}

fn decode_segment(fields: &mut Fields<'_>, version: u32) -> Option<SegmentRecord> {
    let domain = DomainId(u16::try_from(fields.number()?).ok()?);
    let steps = StepRange::new(Step(fields.number()?), Step(fields.number()?))?;
    let (kv, bt, kvei) = (decode_file(fields)?, decode_file(fields)?, decode_file(fields)?);
    let m = Density::new(u32::try_from(fields.number()?).ok()?)?;
    let code = fields.byte()?;
    let filter_bits = [FilterBits::Eight, FilterBits::Sixteen].into_iter().find(|bits| bits.get() == code)?;
    let has_block_index = if version <= VERSION_WITHOUT_BLOCK_INDEXES { 0 } else { fields.byte()? };
    let kvbi = match has_block_index {
        0 => None,
        1 => Some(decode_file(fields)?),
        _ => return None,
    };
    let is_held = match if version <= VERSION_OF_WHOLE { 1 } else { fields.byte()? } {
        0 => false,
        1 => true,
        _ => return None,
    };
    Some(SegmentRecord { domain, steps, kv, bt, kvei, kvbi, m, filter_bits, is_held })
}

fn decode_file(fields: &mut Fields<'_>) -> Option<FileRecord> {
    let revision = u32::try_from(fields.number()?).ok()?;
    let len = fields.number()?;
    let content = Checksum(array32_at(fields.take(32)?, 0)?);
    Some(FileRecord { revision, summary: FileSummary { len, content } })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::soundness::NUMBER_MAX;
    use super::*;
    use crate::domain::{DOMAINS_MAX, Domain};
    use crate::format::DOC;
    use crate::options::Options;

    /// Of a step of the sample.
    fn first_block(step: u64) -> BlockNumber {
        Options::new().domain("kv").into_config().unwrap().step_len.first_block(Step(step))
    }

    fn sample() -> Manifest {
        let period = NonZeroU64::new(300);
        let code = Domain::new("code").key_len(20);
        let options = Options::new().domain("kv").declare(code).snapshot_period(period);
        let config = options.into_config().unwrap();
        let file = |revision, byte| FileRecord {
            revision,
            summary: FileSummary { len: 12288, content: Checksum([byte; 32]) },
        };
        let segment = |domain, from, to| SegmentRecord {
            domain: DomainId(domain),
            steps: StepRange::new(Step(from), Step(to)).unwrap(),
            kv: file(0, 1),
            bt: file(3, 2),
            kvei: file(0, 3),
            kvbi: (domain > 0).then(|| file(1, 4)),
            m: Density::new(16).unwrap(),
            filter_bits: FilterBits::Eight,
            is_held: true,
        };
        Manifest {
            generation: 9,
            rule: DensityRule::Budget { bytes: 1 << 28 },
            emitted_to: Step(6),
            first_block: Some(17),
            emitted_head: Some(first_block(6) - 7),
            pruned_before: 20,
            wal_first: 4,
            wal_last: 5,
            segments: vec![segment(0, 0, 4), segment(0, 4, 6), segment(1, 0, 4)],
            ..Manifest::new(config)
        }
    }

    #[test]
    fn a_manifest_reads_back() {
        let manifest = sample();
        assert_eq!(Manifest::decode(&manifest.encode(), Path::new("M")).unwrap(), manifest);
    }

    /// The same of a partial copy, which does not hold the segment of the declared domain.
    fn partial() -> Manifest {
        let mut manifest = sample();
        manifest.segments[2].is_held = false;
        manifest
    }

    #[test]
    fn a_partial_manifest_reads_back_and_is_of_a_version_of_its_own() {
        let (whole, partial) = (sample(), partial());
        assert_eq!(decode(&partial).unwrap(), partial);
        assert_eq!([&whole, &partial].map(|m| u32_at(&m.encode(), 8).unwrap()), [5, 6]);
        assert_eq!(partial.not_held(), ["kv.0-4"]);
        assert_eq!((whole.file_names().len(), partial.file_names().len()), (10, 6));
        assert!(partial.file_names().is_subset(&whole.file_names()));
        whole.check_whole(Path::new("M")).unwrap();
        assert!(matches!(partial.check_whole(Path::new("M")), Err(Error::Partial { .. })));
        // The last byte says it of the last segment: one that holds all has no such bytes.
        let bytes = partial.encode();
        let mut body = bytes[HEAD_LEN..bytes.len() - SUM_LEN].to_vec();
        assert_eq!(body.last(), Some(&0));
        for other in [1, 2] {
            *body.last_mut().unwrap() = other;
            assert!(Manifest::decode(&frame(6, &body), Path::new("M")).is_err(), "{other}");
        }
        let mut rootless = partial;
        rootless.segments[0].is_held = false;
        assert!(decode(&rootless).is_err(), "roots are always held");
    }

    #[test]
    fn a_manifest_by_path_reads_back_and_is_of_a_version_of_its_own() {
        for keeps_rows in [true, false] {
            let options = Options::new().declare(Domain::new("kv").key_len(1016).by_path());
            let config = options.keep_rows(keeps_rows).into_config().unwrap();
            let manifest = Manifest { generation: 9, ..Manifest::new(config) };
            let bytes = manifest.encode();
            assert_eq!((decode(&manifest).unwrap(), u32_at(&bytes, 8)), (manifest.clone(), Some(VERSION)));
            let body = &bytes[HEAD_LEN..bytes.len() - SUM_LEN];
            let earlier = Manifest::decode(&frame(VERSION_OF_COMMITMENT, body), Path::new("M"));
            assert!(matches!(earlier, Err(Error::Damaged { .. })), "versions before have no such order");
            let refused = |change: &dyn Fn(&mut Manifest)| {
                let mut manifest = manifest.clone();
                change(&mut manifest);
                decode(&manifest).is_err()
            };
            assert!(refused(&|manifest| manifest.config.domains[1].key_len = Some(1017)));
            assert!(refused(&|manifest| drop(manifest.config.domains.pop())), "without nodes");
            let domain = Domain::new("mixed");
            assert!(refused(&|manifest| manifest.config.domains.insert(2, domain.clone())));
        }
    }

    #[test]
    fn a_segment_that_is_not_held_is_that_of_the_document() {
        let (bytes, whole) = (partial().encode(), sample());
        let last = {
            let mut out = Vec::new();
            encode_segment(&mut out, &whole.segments[2], VERSION_OF_PARTIAL);
            out.len()
        };
        DOC.check_example("```hex partial", &bytes[bytes.len() - SUM_LEN - last..bytes.len() - SUM_LEN]);
    }

    fn decode(manifest: &Manifest) -> Result<Manifest, Error> {
        Manifest::decode(&manifest.encode(), Path::new("M"))
    }

    #[test]
    fn the_bytes_are_those_of_the_document() {
        let section = "## The manifest: `MANIFEST`";
        let config = Options::new().domain("kv").into_config().unwrap();
        let bytes = Manifest { generation: 9, pruned_before: 20, ..Manifest::new(config) }.encode();
        DOC.check_example("```hex manifest", &bytes);
        let rows = DOC.table(section, "offset");
        let fields: [(&str, &[u8]); 5] = [
            ("magic", &MAGIC),
            ("format version", &VERSION_OF_WHOLE.to_le_bytes()),
            ("reserved", &[0; 4]),
            ("body length", &((bytes.len() - HEAD_LEN - SUM_LEN) as u64).to_le_bytes()),
            ("checksum", &crc64(&bytes[..bytes.len() - SUM_LEN]).to_le_bytes()),
        ];
        DOC.check_fields(section, &bytes, &fields);
        assert_eq!(rows[4][0], HEAD_LEN.to_string(), "{}", rows[4][3]);
        let versions = format!(
            "{VERSION_OF_WHOLE}; {VERSION_OF_PARTIAL} of a partial copy; {VERSION_OF_COMMITMENT} of an archive with another commitment; {VERSION} of one by path;"
        );
        assert!(rows[1][4].starts_with(&versions), "the versions that are written");
        let magic = MAGIC.map(|byte| format!("{byte:02X}")).join(" ");
        assert!(rows[0][4].starts_with(&format!("`{magic}`")));
        assert!(DOC.section(section).contains(&format!("number of domains (2..{DOMAINS_MAX})")));
    }

    #[test]
    fn two_domains_of_one_name_are_refused() {
        let mut manifest = sample();
        manifest.config.domains[2].name = "kv".to_owned();
        assert!(matches!(decode(&manifest), Err(Error::Damaged { reason: "field", .. })));
    }

    #[test]
    fn numbers_that_cannot_be_counted_on_from_are_refused() {
        let refused = |change: &dyn Fn(&mut Manifest)| {
            let mut manifest = sample();
            change(&mut manifest);
            decode(&manifest).is_err()
        };
        assert!(refused(&|manifest| manifest.generation = u64::MAX));
        assert!(refused(&|manifest| manifest.generation = NUMBER_MAX + 1));
        assert!(refused(&|manifest| manifest.wal_last = u64::MAX));
        assert!(refused(&|manifest| manifest.wal_last = 3));
        assert!(refused(&|manifest| {
            manifest.segments.iter_mut().for_each(|segment| segment.kv.summary.len = u64::MAX / 2);
        }));
        assert!(refused(&|manifest| manifest.segments[0].kv.summary.len = (1 << 60) + 1));
        assert!(!refused(&|manifest| manifest.segments[0].kv.summary.len = 1 << 59));
        assert!(!refused(&|manifest| manifest.wal_last = NUMBER_MAX), "the files themselves must be there");
    }

    #[test]
    fn a_manifest_that_could_not_be_read_is_not_written() {
        let (storage, dir) = (crate::testing::SimStorage::new(), Path::new("/a"));
        storage.create_dir(dir).unwrap();
        let last = Manifest { generation: NUMBER_MAX, ..sample() };
        last.store(&storage, dir).unwrap();
        let refused = last.clone().store_next(&storage, dir);
        assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
        assert_eq!(Manifest::load(&storage, dir).unwrap(), last);
    }

    #[test]
    fn a_long_file_is_an_error_and_takes_no_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(layout::MANIFEST);
        for begin in [sample().encode(), Vec::new(), b"text".to_vec()] {
            std::fs::write(&path, &begin).unwrap();
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 42).unwrap();
            let refused = Manifest::load(&crate::storage::os::OsStorage, dir.path());
            assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
        }
    }

    #[test]
    fn what_was_emitted_is_accounted_for() {
        let accepts = |change: &dyn Fn(&mut Manifest)| {
            let mut manifest = sample();
            change(&mut manifest);
            decode(&manifest).is_ok()
        };
        assert!(accepts(&|manifest| manifest.emitted_head = Some(first_block(4))));
        assert!(accepts(&|manifest| manifest.emitted_to = Step(9)), "steps without a block, after an unwind");
        assert!(!accepts(&|manifest| manifest.emitted_to = Step(5)), "before the end of a segment");
        assert!(!accepts(&|manifest| manifest.emitted_to = Step(u64::MAX)), "steps without a height");
        assert!(!accepts(&|manifest| manifest.emitted_head = Some(first_block(6))), "after the last roots");
        assert!(
            !accepts(&|manifest| manifest.emitted_head = Some(first_block(4) - 1)),
            "before the last roots"
        );
        assert!(!accepts(&|manifest| manifest.emitted_head = None), "roots without a block");
        assert!(!accepts(&|manifest| manifest.first_block = None));
        let without_roots = |manifest: &mut Manifest| drop(manifest.segments.drain(..2));
        assert!(!accepts(&without_roots), "a block without a root");
        assert!(accepts(&|manifest| {
            without_roots(manifest);
            manifest.pruned_before = first_block(6);
        }));
    }

    #[test]
    fn manifests_of_earlier_versions_are_read() {
        let manifest = Manifest::new(Options::new().domain("kv").into_config().unwrap());
        let bytes = manifest.encode();
        let mut body = bytes[HEAD_LEN..bytes.len() - SUM_LEN].to_vec();
        assert_eq!(Manifest::decode(&frame(4, &body), Path::new("M")).unwrap(), manifest);
        // The identity stands after the generation, a byte.
        assert_eq!(body.drain(1..17).max(), Some(0));
        assert_eq!(Manifest::decode(&frame(3, &body), Path::new("M")).unwrap(), manifest);
        // How far the log was synced stands before the number of segments, the last byte.
        assert_eq!(body.remove(body.len() - 2), 0);
        // The length of keys stands last of what a domain has: at 14 for `_roots`, at 19 for `kv`.
        assert_eq!((body.remove(19), body.remove(14)), (0, 0));
        assert_eq!(Manifest::decode(&frame(2, &body), Path::new("M")).unwrap(), manifest);
        // Generation, two bytes of blocks per step, reorg window; the period after them is off.
        assert_eq!(body.remove(4), 0);
        assert_eq!(Manifest::decode(&frame(1, &body), Path::new("M")).unwrap(), manifest);
        let unknown = Manifest::decode(&frame(VERSION + 1, &body), Path::new("M"));
        assert!(matches!(unknown, Err(Error::Unsupported { found: 9, supported: 8, .. })));
    }

    #[test]
    fn every_flipped_byte_and_every_cut_is_an_error() {
        for bytes in [sample().encode(), partial().encode()] {
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x41;
                assert!(Manifest::decode(&damaged, Path::new("M")).is_err(), "byte {at}");
                assert!(Manifest::decode(&bytes[..at], Path::new("M")).is_err(), "cut at {at}");
            }
        }
    }

    #[test]
    fn hostile_fields_behind_a_sound_checksum_are_errors() {
        for sound in [sample().encode(), partial().encode()] {
            for (at, xor) in
                (HEAD_LEN..sound.len() - SUM_LEN).flat_map(|at| [0x01, 0x80, 0xFF].map(|xor| (at, xor)))
            {
                let mut bytes = sound.clone();
                bytes[at] ^= xor;
                let sum_at = bytes.len() - SUM_LEN;
                let sum = crc64(&bytes[..sum_at]);
                bytes[sum_at..].copy_from_slice(&sum.to_le_bytes());
                if let Ok(manifest) = Manifest::decode(&bytes, Path::new("M")) {
                    assert_eq!(manifest.encode(), bytes, "one manifest, one encoding: byte {at}");
                }
            }
        }
    }
}
