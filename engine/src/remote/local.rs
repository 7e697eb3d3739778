//! An archive on disk as a bucket will hold it: its segments, and no log.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use icecore_segments::checksum::{Checksum, PAGE_SIZE};
use icecore_segments::error::{Corruption, Part, Reason};
use icecore_segments::frame::Kind;
use icecore_segments::step::{BlockNumber, Step};

use crate::domain::DomainId;
use crate::error::Error;
use crate::manifest::{Manifest, SegmentRecord};
use crate::options::Config;
use crate::remote::blocks::{BlockHasher, BlockHashes};
use crate::remote::bundle::Ends;
use crate::remote::names::Hash;
use crate::segment::live::LiveSegment;
use crate::storage::directory::Directory;
use crate::storage::{Mapping, Storage};

/// How often an archive is looked at again that changes while it is opened.
const LOOKS: usize = 10;

/// The manifest of the emitted part of an archive, with the segments that it names, held.
pub(crate) struct LocalArchive {
    pub(crate) manifest: Manifest,
    config: Arc<Config>,
    segments: Vec<LiveSegment>,
}

/// A file that may have to go up.
pub(crate) struct LocalFile {
    pub(crate) id: Hash,
    pub(crate) kind: Kind,
    pub(crate) bytes: Mapping,
    /// What the bytes before the footer hash to.
    content: Checksum,
    /// For errors.
    name: String,
}

/// The manifest that a copy of the emitted part has: no log, and of the blocks only those in segments. `None` before the first
/// emission, and where nothing of what was emitted can be read.
pub(crate) fn emitted_part(manifest: &Manifest) -> Option<Manifest> {
    let head = manifest.emitted_head?;
    // Pruned as a whole: the first height that is answered is still in the log.
    if head < manifest.pruned_before || manifest.emitted_to == Step(0) {
        return None;
    }
    Some(Manifest { generation: 0, wal_first: 1, wal_last: 1, wal_reached: 0, ..manifest.clone() })
}

/// The heights that can be read from segments alone.
pub(crate) fn range_of(manifest: &Manifest) -> Option<(BlockNumber, BlockNumber)> {
    Some((manifest.first_block?.max(manifest.pruned_before), manifest.emitted_head?))
}

/// The bytes of a file that a segment has, and what of them opening reads besides the header page, to their end.
///
/// # Errors
/// Those of opening the file.
pub(crate) fn bytes_and_tail(segment: &LiveSegment, kind: Kind) -> Result<(Mapping, Range<u64>), Error> {
    Ok(match kind {
        Kind::Segment => {
            let view = segment.kv.get()?.view();
            (view.data().clone(), view.tail())
        }
        Kind::PivotIndex => {
            let view = segment.bt.get()?.view();
            (view.data().clone(), view.tail())
        }
        Kind::ExistenceFilter => {
            let view = segment.kvei.get()?.view();
            (view.data().clone(), view.tail())
        }
        Kind::BlockIndex => {
            let kvbi = segment.kvbi.as_ref().expect("a file that the segment has");
            let view = kvbi.get()?.view();
            (view.data().clone(), view.tail())
        }
    })
}

impl LocalArchive {
    /// Reads what is emitted of an archive, beside its writer. `None` where nothing is.
    ///
    /// # Errors
    /// Those of opening it for reading; [`Error::KeepsChanging`].
    pub(crate) fn load(storage: &Arc<dyn Storage>, path: &Path) -> Result<Option<Self>, Error> {
        for _ in 0..LOOKS {
            let (found, file) = Manifest::open(&**storage, path)?;
            found.check_whole(path)?;
            let Some(manifest) = emitted_part(&found) else { return Ok(None) };
            let directory = Directory::new(storage, path, &manifest.config);
            let mut missing = None;
            let hold = |record: &_| {
                LiveSegment::hold(&directory, Clone::clone(record), &mut |error| missing = Some(error))
            };
            let segments: Vec<LiveSegment> = manifest.segments.iter().map(hold).collect();
            let opened = missing
                .map_or(Ok(()), Err)
                .and_then(|()| segments.iter().try_for_each(LiveSegment::open_all));
            match opened {
                Ok(()) => {
                    return Ok(Some(Self { manifest, config: Arc::clone(&directory.config), segments }));
                }
                Err(error) if file.is_at(&path.join(crate::storage::layout::MANIFEST))? => return Err(error),
                Err(_) => {}
            }
        }
        Err(Error::KeepsChanging { path: path.to_owned() })
    }

    /// The segments of a domain, by step.
    pub(crate) fn segments(&self, domain: DomainId) -> impl Iterator<Item = &LiveSegment> {
        self.segments.iter().filter(move |segment| segment.record.domain == domain)
    }

    /// Whether it has a segment with the same entries, built in the same way.
    pub(crate) fn has_content(&self, of: &SegmentRecord) -> bool {
        self.segments(of.domain)
            .any(|segment| (segment.record.steps, segment.record.kv.summary) == (of.steps, of.kv.summary))
    }

    /// Its files in the order of the segments, each `.kv`, `.bt`, `.kvei` and, where it has one, `.kvbi`, with what opening reads of them.
    ///
    /// # Errors
    /// Damage of a file.
    pub(crate) fn files(&self) -> Result<Vec<(LocalFile, Ends)>, Error> {
        let mut files = Vec::with_capacity(Kind::ALL.len() * self.segments.len());
        for segment in &self.segments {
            for kind in segment.record.kinds() {
                let (bytes, tail) = bytes_and_tail(segment, kind)?;
                let ends = Ends::of(bytes.as_ref(), tail);
                let id = *blake3::hash(ends.footer()).as_bytes();
                let content = segment.record.file(kind).summary.content;
                let name = segment.record.file_name(&self.config, kind);
                files.push((LocalFile { id, kind, bytes, content, name }, ends));
            }
        }
        Ok(files)
    }
}

impl LocalFile {
    /// The length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.as_ref().len()
    }

    /// Bytes before the footer.
    pub(crate) fn content_len(&self) -> usize {
        self.len() - PAGE_SIZE
    }

    /// Hands the bytes over in parts of `part` bytes, and returns the hashes of their blocks.
    ///
    /// # Errors
    /// [`Error::File`] after the last part where they are not those that the manifest names: then nothing of them may be kept.
    pub(crate) fn read_parts(
        &self,
        part: usize,
        mut take: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<BlockHashes, Error> {
        let bytes = self.bytes.as_ref();
        let mut hasher = BlockHasher::default();
        let content_end = self.content_len();
        for (number, some) in bytes.chunks(part).enumerate() {
            let at = number * part;
            // The next part is read by the system while this one goes.
            self.bytes.will_need((at + some.len()) as u64..(at + some.len() + part) as u64);
            let end = some.len().min(content_end.saturating_sub(at));
            hasher.update(&some[..end]);
            take(some)?;
        }
        let hashes = hasher.finish();
        if Checksum(hashes.root()) == self.content {
            return Ok(hashes);
        }
        let source = Corruption { part: Part::File, offset: 0, reason: Reason::Checksum }.into();
        Err(Error::File { path: self.name.clone().into(), source })
    }
}
