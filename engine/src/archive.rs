//! The archive: one writer, any number of readers. Opens, delegates, closes; the algorithms live in the modules
//! that are named after them.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use icecore_hot::Root;
use icecore_segments::EncodingRule;
use icecore_segments::step::BlockNumber;

use crate::block::BlockWriter;
use crate::error::Error;
use crate::handle::{AsDomain, DomainHandle, id_of};
use crate::maintain::background::{self, Background};
use crate::maintain::checkpoint::CheckpointReport;
use crate::maintain::emission::emit_ready;
use crate::maintain::file_work::merge_all;
use crate::maintain::merge::MergeOptions;
use crate::maintain::prune::prune;
use crate::maintain::reindex::{ReindexPlan, ReindexRule, keep_encoding, keep_rule, reindex};
use crate::maintain::unwind::{take_back_incomplete_steps, unwind};
use crate::options::{DensityRule, Maintenance, OpenOptions, Options};
use crate::progress::ProgressListener;
use crate::read::history::History;
use crate::reader::Reader;
use crate::storage::Storage;
use crate::storage::os::OsStorage;
use crate::view::View;
use crate::write::log_drop::LogDrop;
use crate::write::recovery;
use crate::write::writer::Writer;

/// An archive open for writing. Holds its lock until it is dropped. All methods take `&self`: commits, reads and
/// changes of files may come from several threads.
pub struct Archive {
    // Dropped first: the thread is joined before the writer it works on goes.
    background: Option<Background>,
    writer: Arc<Writer>,
    reader: Reader,
}

impl Archive {
    /// Creates an archive in a directory that does not exist or is empty.
    ///
    /// # Errors
    /// [`Error::Exists`] when the directory has files, [`Error::Options`] for options that make no sense.
    pub fn create(path: impl AsRef<Path>, options: Options) -> Result<Self, Error> {
        Self::create_with(path, options, OpenOptions::default())
    }

    /// The same with options of opening.
    pub fn create_with(path: impl AsRef<Path>, options: Options, open: OpenOptions) -> Result<Self, Error> {
        Self::create_on(Arc::new(OsStorage), path, options, open)
    }

    /// The same on any storage.
    pub fn create_on(
        storage: Arc<dyn Storage>,
        path: impl AsRef<Path>,
        options: Options,
        open: OpenOptions,
    ) -> Result<Self, Error> {
        // Before there is an archive that cannot be opened so.
        open.check()?;
        let rule = options.density;
        recovery::create(&storage, path.as_ref(), options.into_config()?, rule)?;
        Self::open_on(storage, path, open)
    }

    /// Opens an archive for writing: takes the lock, recovers what a crash left, removes what no manifest names.
    ///
    /// # Errors
    /// [`Error::Locked`] when another writer has it; [`Error::Options`] for options that make no sense; damage with file and
    /// place. A way on from a damaged log is [`OpenOptions::log_damage`].
    pub fn open(path: impl AsRef<Path>, open: OpenOptions) -> Result<Self, Error> {
        Self::open_on(Arc::new(OsStorage), path, open)
    }

    /// The same on any storage.
    pub fn open_on(
        storage: Arc<dyn Storage>,
        path: impl AsRef<Path>,
        open: OpenOptions,
    ) -> Result<Self, Error> {
        let writer = Arc::new(recovery::open_for_writing(storage, path.as_ref(), open)?);
        take_back_incomplete_steps(&writer)?;
        let reader = Reader::of(Arc::clone(&writer.shared));
        let background = match open.maintenance {
            Maintenance::Background => Some(Background::start(&writer)),
            Maintenance::Inline | Maintenance::EmitOnly => None,
        };
        Ok(Self { background, writer, reader })
    }

    /// Opens the archive at `path`, or creates it where there is none.
    ///
    /// # Errors
    /// Those of [`Archive::open`] and [`Archive::create`]; [`Error::Options`] when there is an archive of other options.
    ///
    /// ```
    /// # use icecore::{Archive, OpenOptions, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("state.ice");
    /// for height in 1..=2 {
    ///     let options = Options::new().domain("accounts");
    ///     let archive = Archive::open_or_create(&path, options, OpenOptions::new())?;
    ///     archive.begin(height)?.commit()?;
    /// }
    /// # Ok::<(), icecore::Error>(())
    /// ```
    pub fn open_or_create(
        path: impl AsRef<Path>,
        options: Options,
        open: OpenOptions,
    ) -> Result<Self, Error> {
        let path = path.as_ref();
        let config = options.clone().into_config()?;
        match Self::open(path, open) {
            Ok(archive) => {
                archive.writer.shared.directory.config.check_same(&config)?;
                Ok(archive)
            }
            Err(Error::NotAnArchive { .. }) => Self::create_with(path, options, open),
            Err(error) => Err(error),
        }
    }

    /// The reading side; clone it for other threads.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// What opening repaired: accessors that were missing or unreadable and were built again, by file name.
    pub fn repairs(&self) -> &[String] {
        &self.writer.recovered.repairs
    }

    /// What opening gave up of a damaged log; only with [`LogDamage::DropAfter`](crate::LogDamage::DropAfter).
    pub fn log_drop(&self) -> Option<&LogDrop> {
        self.writer.recovered.log_drop.as_ref()
    }

    /// Has work that starts by itself, which is to build the Merkle tree before the first block, tell `listener` how far it is.
    pub fn set_progress_listener(&self, listener: Arc<dyn ProgressListener>) {
        self.writer.set_progress_listener(listener);
    }

    /// Whether writes are refused since a write or sync failed that leaves the disk in doubt. Reading goes on; opening the archive
    /// again, when the cause is gone, ends it. As long as this is `false`, what failed can be tried again.
    pub fn is_poisoned(&self) -> bool {
        self.writer.lock().is_poisoned()
    }

    /// Begins the block at `height`, which must be above the head.
    ///
    /// # Errors
    /// [`Error::NotRising`]; [`Error::Poisoned`] after a failed write.
    pub fn begin(&self, height: BlockNumber) -> Result<BlockWriter<'_>, Error> {
        self.writer.check_rising(height)?;
        Ok(BlockWriter::new(&self.writer, height))
    }

    /// Gathers a block that the archive may have already: [`BlockWriter::compare`] tells whether it is the same. To commit it,
    /// its height must be above the head as with [`Archive::begin`].
    ///
    /// ```
    /// # use icecore::{Archive, Comparison, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let archive = Archive::create(dir.path().join("a.ice"), Options::new().domain("accounts"))?;
    /// let mut block = archive.begin(1)?;
    /// block.put("accounts", b"alice", b"100")?;
    /// block.commit()?;
    ///
    /// let mut again = archive.gather(1);
    /// again.put("accounts", b"alice", b"100")?;
    /// assert_eq!(again.compare()?, Comparison::Same);
    /// let mut other = archive.gather(1);
    /// other.put("accounts", b"alice", b"101")?;
    /// assert!(matches!(other.compare()?, Comparison::Different(_)));
    /// # Ok::<(), icecore::Error>(())
    /// ```
    pub fn gather(&self, height: BlockNumber) -> BlockWriter<'_> {
        BlockWriter::new(&self.writer, height)
    }

    /// The state at the end of block `height`. See [`Reader::at`].
    pub fn at(&self, height: BlockNumber) -> Result<View, Error> {
        self.reader.at(height)
    }

    /// All versions of a key, newest first. See [`Reader::history`].
    pub fn history<D: AsDomain + ?Sized>(&self, domain: &D, key: &[u8]) -> Result<History, Error> {
        self.reader.history(domain, key)
    }

    /// A declared domain, resolved once for many calls. See [`Reader::domain`].
    pub fn domain(&self, name: &str) -> Result<DomainHandle, Error> {
        self.reader.domain(name)
    }

    /// The root of the state at the end of block `height`.
    pub fn root(&self, height: BlockNumber) -> Result<Root, Error> {
        self.reader.root(height)
    }

    /// Makes everything committed durable, whatever the durability chosen.
    pub fn flush(&self) -> Result<(), Error> {
        self.writer.flush()
    }

    /// Emits every step that is complete and has left the reorg window, and waits for it.
    pub fn emit(&self) -> Result<(), Error> {
        emit_ready(&self.writer, &self.writer.lock_maintenance(), &())
    }

    /// Brings the files to where background maintenance would bring them: emits what is ready, merges as the options of
    /// opening say, and reindexes by the archive's rule. For the end of a bulk load.
    pub fn maintain(&self, listener: &dyn ProgressListener) -> Result<(), Error> {
        background::maintain(&self.writer, listener)
    }

    /// Merges adjacent segments to aligned power-of-two step ranges until nothing is left to merge. Readers go on, and so do
    /// commits: steps that become ready are emitted in between. Returns the number of merges.
    pub fn merge(&self, options: &MergeOptions, listener: &dyn ProgressListener) -> Result<u64, Error> {
        merge_all(&self.writer, options, listener)
    }

    /// Rebuilds pivot indexes and filters by `rule`, for unchanged `.kv` files. Readers go on.
    pub fn reindex(
        &self,
        rule: ReindexRule,
        domain: Option<&str>,
        listener: &dyn ProgressListener,
    ) -> Result<Vec<ReindexPlan>, Error> {
        reindex(&self.writer, rule, domain, listener)
    }

    /// What [`Archive::reindex`] would do.
    pub fn plan_reindex(&self, rule: ReindexRule, domain: Option<&str>) -> Result<Vec<ReindexPlan>, Error> {
        self.reader.plan_reindex(rule, domain)
    }

    /// The rule that shapes new segments and those that age.
    pub fn density_rule(&self) -> DensityRule {
        self.writer.lock().manifest().rule
    }

    /// Makes `rule` the one that shapes new segments and those that age. Writes a manifest and touches no segment:
    /// maintenance brings old ones in line by and by, [`Archive::reindex`] at once.
    ///
    /// # Durability
    /// When this returns the rule survives a power loss.
    pub fn set_density_rule(&self, rule: DensityRule) -> Result<(), Error> {
        keep_rule(&self.writer, rule)
    }

    /// The rule that chooses the encoding of new segments of `domain`.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`].
    pub fn encoding<D: AsDomain + ?Sized>(&self, domain: &D) -> Result<EncodingRule, Error> {
        let id = id_of(&self.writer.shared.directory.config, domain)?;
        Ok(self.writer.lock().manifest().config.domains[id.index()].encoding)
    }

    /// Makes `rule` the one that chooses the encoding of new segments of `domain`. Writes a manifest and touches no segment: old
    /// ones keep theirs until a merge writes them again, and no answer changes.
    ///
    /// # Durability
    /// When this returns the rule survives a power loss.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`].
    pub fn set_encoding<D: AsDomain + ?Sized>(&self, domain: &D, rule: EncodingRule) -> Result<(), Error> {
        let id = id_of(&self.writer.shared.directory.config, domain)?;
        keep_encoding(&self.writer, id, rule)
    }

    /// Forgets the versions that no block at or above `before` can see. The state at `before` stays whole.
    pub fn prune(&self, before: BlockNumber, listener: &dyn ProgressListener) -> Result<(), Error> {
        prune(&self.writer, before, listener)
    }

    /// Forgets the blocks above `to`. Cheap for blocks that were not emitted; else the segments that have them are rewritten.
    pub fn unwind(&self, to: BlockNumber, listener: &dyn ProgressListener) -> Result<(), Error> {
        unwind(&self.writer, to, listener)
    }

    /// Makes a consistent copy of the archive at `copy`, while everything goes on. See [`Reader::checkpoint`].
    pub fn checkpoint(
        &self,
        copy: impl AsRef<Path>,
        listener: &dyn ProgressListener,
    ) -> Result<CheckpointReport, Error> {
        self.reader.checkpoint(copy, listener)
    }

    /// Stops background work, emits the steps that are ready, syncs, and says what failed. An emission that fails is no failure of
    /// this: its blocks stay in the log. Dropping an archive does the same in silence, and emits nothing.
    pub fn close(mut self) -> Result<(), Error> {
        self.background = None;
        self.writer.lock().check_poison()?;
        let _ = emit_ready(&self.writer, &self.writer.lock_maintenance(), &());
        self.writer.close()
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        self.background = None;
        // An error has no caller here; whoever needs to know calls `close`. A poisoned archive has nothing to sync.
        let _ = self.writer.close();
        self.writer.shared.close();
    }
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, head) = (&self.writer.shared.directory.path, self.reader.head());
        f.debug_struct("Archive").field("path", path).field("head", &head).finish_non_exhaustive()
    }
}
