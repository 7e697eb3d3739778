//! One generation of an archive in a bucket: what a reader elsewhere needs to know to open it or to make a copy.
//!
//! The bytes are described in `FORMAT.md` beside this file.

use std::path::Path;

use icecore_segments::bytes::{array32_at, put_varint, take_varint, u32_at, u64_at};
use icecore_segments::checksum::{PAGE_SIZE, crc64};
use icecore_segments::frame::Kind;

use crate::error::Error;
use crate::manifest::{Manifest, SegmentRecord};
use crate::remote::blocks;
use crate::remote::names::{Hash, object};
use crate::remote::signature::{PublicKey, Signature, SigningKey};
use crate::remote_error::RemoteError;

pub(crate) const MAGIC: [u8; 8] = *b"\x8AICR\r\n\x1A\n";
/// The format version of generations that are not signed.
pub(crate) const VERSION: u32 = 1;
/// The format version of generations that are signed.
pub(crate) const SIGNED_VERSION: u32 = 2;
pub(crate) const HEAD_LEN: usize = 24;
pub(crate) const SUM_LEN: usize = 8;

/// The longest manifest that is read: some ten million files.
pub(crate) const LEN_MAX: u64 = 1 << 30;

/// The parent of the first generation.
pub(crate) const NO_PARENT: Hash = [0; 32];

/// The bytes that open a generation: see [`bundle`](crate::remote::bundle).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BundleRef {
    pub(crate) hash: Hash,
    pub(crate) len: u64,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteManifest {
    /// The hash of the generation before; zero for the first.
    pub(crate) parent: Hash,
    pub(crate) bundle: BundleRef,
    /// What a copy has as its manifest. Its generation is that of the bucket, and it has no log.
    pub(crate) archive: Manifest,
    /// BLAKE3 of the footer page of each file, in the order of the segments, each `.kv`, `.bt`, `.kvei` and, where it has one, `.kvbi`.
    pub(crate) ids: Vec<Hash>,
    /// Of [`RemoteManifest::signed_part`].
    pub(crate) signature: Option<Signature>,
}

/// A file that a generation names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteFile<'a> {
    pub(crate) record: &'a SegmentRecord,
    /// The place of the segment in the manifest.
    pub(crate) segment: usize,
    pub(crate) kind: Kind,
    pub(crate) id: Hash,
}

impl RemoteFile<'_> {
    /// The name of the object.
    pub(crate) fn object(&self) -> String {
        object(&self.id, self.kind)
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.record.file(self.kind).summary.len
    }

    /// Bytes before its footer.
    pub(crate) fn content_len(&self) -> u64 {
        self.len().saturating_sub(PAGE_SIZE as u64)
    }

    /// What they hash to.
    pub(crate) fn content(&self) -> Hash {
        self.record.file(self.kind).summary.content.0
    }

    /// Whether the hashes of its blocks are an object of their own, where its generation is signed.
    pub(crate) fn has_hashes(&self) -> bool {
        blocks::count(self.content_len()) > 0
    }
}

impl RemoteManifest {
    /// Counts the generations of the bucket, from 1.
    pub(crate) fn generation(&self) -> u64 {
        self.archive.generation
    }

    /// The files, in the order of the segments.
    pub(crate) fn files(&self) -> impl Iterator<Item = RemoteFile<'_>> {
        let segments = self.archive.segments.iter().enumerate();
        let files =
            segments.flat_map(|(segment, record)| record.kinds().map(move |kind| (segment, record, kind)));
        files.zip(&self.ids).map(|((segment, record, kind), id)| RemoteFile {
            record,
            segment,
            kind,
            id: *id,
        })
    }

    /// Signs it as a generation of an archive of that name.
    ///
    /// # Errors
    /// [`RemoteError::Key`].
    pub(crate) fn sign(&mut self, key: &SigningKey, archive: &str) -> Result<(), RemoteError> {
        self.signature = Some(key.sign(&self.signed_part(), &self.signed_as(archive))?);
        Ok(())
    }

    /// Whether a key signed it as a generation of an archive of that name.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check_signature(&self, key: &PublicKey, archive: &str) -> Result<(), &'static str> {
        let signature = self.signature.as_ref().ok_or("it is not signed")?;
        signature.check(key, &self.signed_part(), &self.signed_as(archive))
    }

    /// The comment that is signed with it: else a signed archive could take the place of another one.
    fn signed_as(&self, archive: &str) -> String {
        format!("icecore generation {} of {archive}", self.generation())
    }

    /// The id of the key that it says it is signed by.
    pub(crate) fn signer(&self) -> Option<String> {
        self.signature.as_ref().map(Signature::key_id)
    }

    /// Its bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Some(signature) = &self.signature else { return self.encode_as(VERSION) };
        [&self.signed_part(), signature.as_bytes()].concat()
    }

    /// What is signed: all that is before the signature.
    pub(crate) fn signed_part(&self) -> Vec<u8> {
        let mut bytes = self.encode_as(SIGNED_VERSION);
        // The lines of the signature begin after it: `tail -n 4` gets them.
        bytes.push(b'\n');
        bytes
    }

    fn encode_as(&self, version: u32) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend_from_slice(&self.parent);
        body.extend_from_slice(&self.bundle.hash);
        put_varint(&mut body, self.bundle.len);
        let archive = self.archive.encode();
        put_varint(&mut body, archive.len() as u64);
        body.extend_from_slice(&archive);
        put_varint(&mut body, self.ids.len() as u64);
        body.extend(self.ids.iter().flatten());
        let mut bytes = Vec::with_capacity(HEAD_LEN + body.len() + SUM_LEN);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&version.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes.extend_from_slice(&crc64(&bytes).to_le_bytes());
        bytes
    }

    /// Reads the bytes of an object.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`]; [`RemoteError::Unsupported`] for a newer version, of this or of the manifest in it.
    pub(crate) fn decode(bytes: &[u8], object: &str) -> Result<Self, RemoteError> {
        let damaged = |reason| RemoteError::Damaged { object: object.to_owned(), reason };
        if bytes.len() < HEAD_LEN + SUM_LEN || bytes[..8] != MAGIC {
            return Err(damaged("it is no manifest"));
        }
        let body_len = u64_at(bytes, 16).and_then(|len| usize::try_from(len).ok());
        let sum_at = body_len.and_then(|len| len.checked_add(HEAD_LEN)).unwrap_or(usize::MAX);
        if sum_at > bytes.len() - SUM_LEN || u64_at(bytes, sum_at) != Some(crc64(&bytes[..sum_at])) {
            return Err(damaged("its checksum does not hold"));
        }
        let signature = match (u32_at(bytes, 8).unwrap_or(0), &bytes[sum_at + SUM_LEN..]) {
            (VERSION, []) => None,
            (SIGNED_VERSION, [b'\n', text @ ..]) => {
                Some(Signature::parse(text).ok_or_else(|| damaged("its signature cannot be read"))?)
            }
            (VERSION | SIGNED_VERSION, _) => return Err(damaged("it has another length")),
            (version, _) => {
                let (found, supported) = (u64::from(version), u64::from(SIGNED_VERSION));
                return Err(RemoteError::Unsupported { object: object.to_owned(), found, supported });
            }
        };
        let read = decode_body(&bytes[HEAD_LEN..sum_at]).ok_or_else(|| damaged("a field is wrong"))?;
        let Body { parent, bundle, archive, ids } = read;
        let archive = Manifest::decode(archive, Path::new(object)).map_err(|error| match error {
            Error::Unsupported { found, supported, .. } => {
                RemoteError::Unsupported { object: object.to_owned(), found, supported }
            }
            Error::Damaged { reason: "field", .. } => damaged("a field of the manifest in it is wrong"),
            _ => damaged("the manifest in it is damaged"),
        })?;
        if !archive.is_whole() {
            return Err(damaged("the manifest in it is of a partial copy"));
        }
        let manifest = Self { parent, bundle, archive, ids, signature };
        let files: usize = manifest.archive.segments.iter().map(|record| record.kinds().count()).sum();
        if manifest.ids.len() != files {
            return Err(damaged("it does not name each file once"));
        }
        // One manifest, one encoding: its hash is what the next generation names.
        if manifest.encode() != bytes {
            return Err(damaged("a field is wrong"));
        }
        Ok(manifest)
    }
}

struct Body<'a> {
    parent: Hash,
    bundle: BundleRef,
    archive: &'a [u8],
    ids: Vec<Hash>,
}

fn decode_body(body: &[u8]) -> Option<Body<'_>> {
    let (parent, hash) = (array32_at(body, 0)?, array32_at(body, 32)?);
    let mut at = 64;
    let bundle = BundleRef { hash, len: take_varint(body, &mut at)? };
    let len = usize::try_from(take_varint(body, &mut at)?).ok()?;
    let archive = body.get(at..at.checked_add(len)?)?;
    at += len;
    let count = usize::try_from(take_varint(body, &mut at)?).ok()?;
    let hashes = body.get(at..)?;
    if hashes.len() != count.checked_mul(32)? {
        return None;
    }
    let ids = hashes.chunks_exact(32).filter_map(|id| array32_at(id, 0)).collect();
    Some(Body { parent, bundle, archive, ids })
}

#[cfg(test)]
mod tests {
    use icecore_index::{Density, FilterBits};
    use icecore_segments::checksum::Checksum;
    use icecore_segments::frame::FileSummary;
    use icecore_segments::step::{Step, StepRange};

    use super::*;
    use crate::domain::DomainId;
    use crate::manifest::FileRecord;
    use crate::options::Options;
    use crate::remote::DOC;
    use crate::remote::signature::tests::SECRET;

    fn sample(segments: u64) -> RemoteManifest {
        let config = Options::new().domain("kv").into_config().unwrap();
        let step_len = config.step_len;
        let file = |byte| FileRecord {
            revision: 0,
            summary: FileSummary { len: 12288, content: Checksum([byte; 32]) },
        };
        let segment = |step| SegmentRecord {
            domain: DomainId(0),
            steps: StepRange::single(Step(step)),
            kv: file(1),
            bt: file(2),
            kvei: file(3),
            kvbi: None,
            m: Density::new(16).unwrap(),
            filter_bits: FilterBits::Eight,
            is_held: true,
        };
        let head = segments.checked_sub(1).map(|last| step_len.first_block(Step(last)) + 1);
        let archive = Manifest {
            generation: 9,
            emitted_to: Step(segments),
            first_block: head.map(|_| 1),
            emitted_head: head,
            segments: (0..segments).map(segment).collect(),
            ..Manifest::new(config)
        };
        let bundle = BundleRef { hash: [0xB0; 32], len: 300 };
        let ids = vec![[0x1D; 32]; 3 * segments as usize];
        RemoteManifest { parent: [0xAA; 32], bundle, archive, ids, signature: None }
    }

    #[test]
    fn the_bytes_are_those_of_the_document() {
        let manifest = sample(0);
        let bytes = manifest.encode();
        DOC.check_example("```hex manifest", &bytes);
        DOC.check_versions(
            "### Versions of a generation",
            &[(VERSION, "the first"), (SIGNED_VERSION, "a signature")],
        );
        let fields: [(&str, &[u8]); 5] = [
            ("magic", &MAGIC),
            ("format version", &VERSION.to_le_bytes()),
            ("reserved", &[0; 4]),
            ("body length", &((bytes.len() - HEAD_LEN - SUM_LEN) as u64).to_le_bytes()),
            ("checksum", &crc64(&bytes[..bytes.len() - SUM_LEN]).to_le_bytes()),
        ];
        DOC.check_fields("## A generation: `m/<archive>/<generation>`", &bytes, &fields);
        let body = DOC.table("### Body of a generation", "field");
        let fields: Vec<&str> = body.iter().map(|row| row[0]).collect();
        assert_eq!(
            fields,
            ["parent", "bundle", "bundle length", "manifest length", "manifest", "files", "ids"]
        );
    }

    #[test]
    fn the_signature_of_the_document_holds() {
        let text = DOC.section("```text signature").split("```").next().unwrap().trim_start();
        let section = DOC.section("### A signature");
        let key = section.split('`').find_map(|text| text.parse().ok()).unwrap();
        let signature = Some(Signature::parse(text.as_bytes()).unwrap());
        let manifest = RemoteManifest { signature, ..sample(0) };
        assert_eq!(manifest.check_signature(&key, "main"), Ok(()));
        assert!(manifest.check_signature(&key, "other").is_err(), "it is that of another archive");
        let bytes = manifest.encode();
        assert_eq!(RemoteManifest::decode(&bytes, "m").unwrap(), manifest);
        let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        assert_eq!(
            lines[lines.len() - 4..].concat(),
            text.as_bytes(),
            "as the command in the document cuts it"
        );
        assert_eq!(lines[..lines.len() - 4].concat(), manifest.signed_part());
    }

    #[test]
    fn no_byte_of_a_signed_generation_can_be_another() {
        let signer = SigningKey::parse(SECRET, None).unwrap();
        let mut manifest = sample(1);
        manifest.sign(&signer, "main").unwrap();
        let bytes = manifest.encode();
        let is_taken = |bytes: &[u8]| {
            let read = RemoteManifest::decode(bytes, "m");
            read.is_ok_and(|read| read.check_signature(signer.public(), "main").is_ok())
        };
        assert!(is_taken(&bytes));
        let sum_at = manifest.signed_part().len() - 1 - SUM_LEN;
        for at in 0..bytes.len() {
            assert!(!is_taken(&bytes[..at]), "cut at {at}");
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert!(!is_taken(&damaged), "bit {bit} of {at}");
                let sum = crc64(&damaged[..sum_at]);
                damaged[sum_at..sum_at + SUM_LEN].copy_from_slice(&sum.to_le_bytes());
                assert!(damaged == bytes || !is_taken(&damaged), "bit {bit} of {at}, with its checksum");
            }
        }
        // Without its signature it is another generation; and a signature of one is none of another.
        let unsigned = RemoteManifest { signature: None, ..manifest.clone() };
        assert!(!is_taken(&unsigned.encode()) && RemoteManifest::decode(&unsigned.encode(), "m").is_ok());
        let archive = Manifest { generation: 10, ..manifest.archive.clone() };
        assert!(!is_taken(&RemoteManifest { archive, ..manifest }.encode()));
    }

    #[test]
    fn a_manifest_reads_back() {
        for segments in [0, 1, 3] {
            let manifest = sample(segments);
            assert_eq!(RemoteManifest::decode(&manifest.encode(), "m").unwrap(), manifest);
            assert_eq!(manifest.files().count() as u64, 3 * segments);
        }
    }

    #[test]
    fn damage_is_an_error_whatever_the_checksum() {
        let bytes = sample(1).encode();
        let decode = |bytes: &[u8]| RemoteManifest::decode(bytes, "m");
        for at in 0..bytes.len() {
            assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x21;
            assert!(decode(&damaged).is_err(), "byte {at}");
            let sum_at = bytes.len() - SUM_LEN;
            let sum = crc64(&damaged[..sum_at]);
            damaged[sum_at..].copy_from_slice(&sum.to_le_bytes());
            if let Ok(read) = decode(&damaged) {
                assert_eq!(read.encode(), damaged, "one manifest, one encoding: byte {at}");
            }
        }
        let mut newer = bytes;
        newer[8] = 3;
        let sum_at = newer.len() - SUM_LEN;
        let sum = crc64(&newer[..sum_at]);
        newer[sum_at..].copy_from_slice(&sum.to_le_bytes());
        assert!(matches!(decode(&newer), Err(RemoteError::Unsupported { found: 3, supported: 2, .. })));
    }
}
