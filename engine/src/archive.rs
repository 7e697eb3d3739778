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
use crate::maintain::file_work::{merge_all, unless_held_up};
use crate::maintain::merge::MergeOptions;
use crate::maintain::prune::prune;
use crate::maintain::reindex::{ReindexPlan, ReindexRule, keep_encoding, keep_rule, reindex};
use crate::maintain::unwind::{take_back_incomplete_steps, unwind};
use crate::open_options::{Maintenance, OpenOptions};
use crate::options::{DensityRule, Options};
use crate::progress::ProgressListener;
use crate::read::history::History;
use crate::reader::Reader;
use crate::storage::Storage;
use crate::storage::os::OsStorage;
use crate::view::View;
use crate::write::log_drop::LogDrop;
use crate::write::recovery;
use crate::write::writer::Writer;

/// An archive open for writing: commits blocks, takes them back, and maintains the files.
///
/// It holds the lock of the archive until it is closed or dropped, so there is one at a time, in this process or another. All
/// methods take `&self`: commits, reads and maintenance may come from several threads. Reading is that of
/// [`Archive::reader`]; the methods here that read are shortcuts to it.
pub struct Archive {
    // Dropped first: the thread is joined before the writer it works on goes.
    background: Option<Background>,
    pub(crate) writer: Arc<Writer>,
    reader: Reader,
}

/// Creating, opening, closing.
impl Archive {
    /// Creates an archive in a directory that does not exist or is empty, and opens it with the default [`OpenOptions`].
    ///
    /// # Errors
    /// [`Error::Exists`] when the directory has files; [`Error::Options`] for an invalid option.
    ///
    /// # Durability
    /// When this returns the archive, and the directories made above it, survive a power loss.
    pub fn create(path: impl AsRef<Path>, options: Options) -> Result<Self, Error> {
        Self::create_with(path, options, OpenOptions::default())
    }

    /// Creates an archive in a directory that does not exist or is empty, and opens it as `open` says.
    ///
    /// # Errors
    /// [`Error::Exists`] when the directory has files; [`Error::Options`] for an invalid option, before anything is created.
    ///
    /// # Durability
    /// When this returns the archive, and the directories made above it, survive a power loss.
    pub fn create_with(path: impl AsRef<Path>, options: Options, open: OpenOptions) -> Result<Self, Error> {
        Self::create_on(Arc::new(OsStorage), path, options, open)
    }

    /// Creates an archive like [`Archive::create_with`], on a custom [`Storage`] instead of the file system.
    ///
    /// # Errors
    /// [`Error::Exists`] when the directory has files; [`Error::Options`] for an invalid option, before anything is created.
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

    /// Opens an archive for writing: takes the lock, replays the log, rebuilds accessors that are missing or damaged, and removes
    /// files that no manifest names.
    ///
    /// # Cost
    /// A mapping of each `.kv`, the first and the last page of each accessor, and the whole log. The Merkle tree is built later,
    /// by the first commit, from the latest state or,
    /// where it is larger than its memory, from what is kept of it ([`OpenOptions::tree_memory`]).
    ///
    /// # Errors
    /// [`Error::NotAnArchive`]; [`Error::Locked`] while another writer has the archive; [`Error::Options`] for an invalid option;
    /// [`Error::Partial`]; damage, with file and place. [`OpenOptions::log_damage`] is the way past a damaged log.
    pub fn open(path: impl AsRef<Path>, open: OpenOptions) -> Result<Self, Error> {
        Self::open_on(Arc::new(OsStorage), path, open)
    }

    /// Opens an archive for writing like [`Archive::open`], on a custom [`Storage`] instead of the file system.
    ///
    /// # Errors
    /// [`Error::NotAnArchive`]; [`Error::Locked`] while another writer has the archive; [`Error::Options`] for an invalid option;
    /// [`Error::Partial`]; damage, with file and place.
    pub fn open_on(
        storage: Arc<dyn Storage>,
        path: impl AsRef<Path>,
        open: OpenOptions,
    ) -> Result<Self, Error> {
        let writer = Arc::new(recovery::open_for_writing(storage, path.as_ref(), open)?);
        take_back_incomplete_steps(&writer)?;
        writer.shared.load_accessors(open.read_options());
        let reader = Reader::of(Arc::clone(&writer.shared));
        let background = match open.maintenance {
            Maintenance::Background => Some(Background::start(&writer)),
            Maintenance::Inline | Maintenance::EmitOnly => None,
        };
        Ok(Self { background, writer, reader })
    }

    /// Opens the archive at `path`, or creates it where there is none.
    ///
    /// An archive that is there must have been created with the same domains in the same order (names and key lengths), the same
    /// blocks per step, reorg window and snapshot period. Its density rule and its encodings can be changed after creation, so
    /// those in `options` count only for an archive that is created now; [`Archive::set_density_rule`] and
    /// [`Archive::set_encoding`] change them.
    ///
    /// # Errors
    /// [`Error::Options`] with the option that differs; those of [`Archive::open`] and [`Archive::create`].
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

    /// The files that opening repaired, by name: accessors that were missing or unreadable and were built again.
    pub fn repairs(&self) -> &[String] {
        &self.writer.recovered.repairs
    }

    /// What opening gave up of a damaged log. `None` unless it was opened with
    /// [`LogDamage::DropAfter`](crate::LogDamage::DropAfter) and the log was damaged.
    pub fn log_drop(&self) -> Option<&LogDrop> {
        self.writer.recovered.log_drop.as_ref()
    }

    /// Whether writes are refused because an earlier write or sync failed and left the disk in doubt. Reads go on. To write again,
    /// mend the cause, drop this archive and open it anew. As long as this is `false`, an operation that failed can be retried.
    pub fn is_poisoned(&self) -> bool {
        self.writer.lock().is_poisoned()
    }

    /// Closes the archive: stops background work, emits the steps that are ready, syncs everything committed, and releases the
    /// lock. Readers of this archive keep what they see; their [`Reader::refresh`] and [`Reader::wait`] fail with
    /// [`Error::Closed`] from now on, and those that wait wake up. Views keep answering.
    ///
    /// A merge under way is abandoned, not waited for. An emission that fails is not an error here: its blocks stay in the log.
    /// Dropping an archive does the same, but emits nothing and hides errors.
    ///
    /// # Errors
    /// [`Error::Poisoned`] when writes were refused; a sync that fails. The lock is released all the same.
    ///
    /// # Durability
    /// When this returns `Ok`, every block survives a power loss, and a log that is cut off later is recognised as damaged.
    pub fn close(mut self) -> Result<(), Error> {
        self.background = None;
        self.writer.lock().check_poison()?;
        let _ = emit_ready(&self.writer, &self.writer.lock_maintenance(), &());
        self.writer.close()
    }
}

/// Writing blocks.
impl Archive {
    /// Begins the block at `height`. Heights rise from block to block and may leave gaps.
    ///
    /// # Errors
    /// [`Error::NotRising`] at or below the head; [`Error::TooHigh`] for `u64::MAX`; [`Error::Poisoned`] after a failed write.
    pub fn begin(&self, height: BlockNumber) -> Result<BlockWriter<'_>, Error> {
        self.writer.check_next(height)?;
        Ok(BlockWriter::new(&self.writer, height))
    }

    /// Begins a block without comparing its height to the head: one that the archive may hold already, for
    /// [`BlockWriter::compare`]. Its commit checks what [`Archive::begin`] checks.
    ///
    /// ```
    /// # use icecore::{Archive, Comparison, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let archive = Archive::create(dir.path().join("a.ice"), Options::new().domain("accounts"))?;
    /// let mut block = archive.begin(1)?;
    /// block.put("accounts", b"alice", b"100")?;
    /// block.commit()?;
    ///
    /// let mut again = archive.draft(1);
    /// again.put("accounts", b"alice", b"100")?;
    /// assert_eq!(again.compare()?, Comparison::Same);
    /// again.put("accounts", b"alice", b"101")?;
    /// assert!(matches!(again.compare()?, Comparison::Different(_)));
    /// # Ok::<(), icecore::Error>(())
    /// ```
    pub fn draft(&self, height: BlockNumber) -> BlockWriter<'_> {
        BlockWriter::new(&self.writer, height)
    }

    /// Makes every committed block durable, whatever [`Durability`](crate::Durability) was chosen.
    ///
    /// # Cost
    /// One or two syncs of the log.
    ///
    /// # Errors
    /// [`Error::Poisoned`]; a sync that fails, after which the archive is poisoned.
    pub fn flush(&self) -> Result<(), Error> {
        self.writer.flush()
    }

    /// Takes back the blocks above `to`, as a chain reorganisation needs. The newest block at or below `to` becomes the head: in
    /// a gap of heights that is the block below the gap. At the head nothing changes.
    ///
    /// Views made before keep answering what was taken back. A block begun before is refused by its commit with
    /// [`Error::StaleBlock`]. Blocks that other threads commit while this runs are taken back too.
    ///
    /// # Atomicity
    /// Readers, and whoever opens the archive after a crash, find either all of the blocks above `to` or none. The unwinding and
    /// the commits that replace the blocks are separate steps, though: in between, readers see the shorter chain, and a crash
    /// leaves it. [`Reader::wait`] reports no unwinding; see there how to notice one.
    ///
    /// # Cost
    /// One log record and two syncs for blocks that are in memory, which the reorg window guarantees for the newest heights.
    /// Deeper, every segment that reaches above `to` is read once and rewritten or dropped, the step of `to` goes back into
    /// memory, and the next commit builds the Merkle tree again. [`Reader::plan_unwind`] tells beforehand.
    ///
    /// # Errors
    /// Nothing has changed after:
    /// - [`Error::OutOfRange`] above the head, below the first block that can be read, and in an empty archive. The first block
    ///   itself can therefore never be taken back; to replace it, create a new archive;
    /// - [`Error::NoRoom`] or [`Error::Io`] of [`ErrorKind::NoSpace`](crate::ErrorKind::NoSpace) where the disk has too little
    ///   space, the reserve included;
    /// - [`Error::Poisoned`].
    ///
    /// A failed write of the log or the manifest poisons the archive, and reopening tells by its head whether it was unwound.
    ///
    /// # Durability
    /// When this returns `Ok`, the unwinding and all blocks that remain survive a power loss, in every mode of durability.
    pub fn unwind(&self, to: BlockNumber, listener: &dyn ProgressListener) -> Result<(), Error> {
        unwind(&self.writer, to, listener)
    }
}

/// Reading.
impl Archive {
    /// The reader of this archive; clone it for other threads. It sees each block as soon as its commit returns.
    ///
    /// A clone outlives the archive: it keeps what it sees, and [`Reader::refresh`] and [`Reader::wait`] fail with
    /// [`Error::Closed`] once the archive is closed or dropped. Take a new one from the archive that is opened next.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The state at the end of block `height`, as a view. See [`Reader::at`].
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn at(&self, height: BlockNumber) -> Result<View, Error> {
        self.reader.at(height)
    }

    /// All versions of a key, newest first. See [`Reader::history`].
    ///
    /// # Errors
    /// [`Error::UnknownDomain`]; [`Error::KeyLength`].
    pub fn history<D: AsDomain + ?Sized>(&self, domain: &D, key: &[u8]) -> Result<History, Error> {
        self.reader.history(domain, key)
    }

    /// A declared domain, resolved once for many calls.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`] with the declared names.
    pub fn domain(&self, name: &str) -> Result<DomainHandle, Error> {
        self.reader.domain(name)
    }

    /// The root of the state at the end of block `height`.
    ///
    /// # Cost
    /// One lookup.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn root(&self, height: BlockNumber) -> Result<Root, Error> {
        self.reader.root(height)
    }

    /// Copies the archive to the directory `copy`, consistently, while commits and maintenance go on. See
    /// [`Reader::checkpoint`] for its cost.
    ///
    /// # Errors
    /// [`Error::InsideArchive`]; [`Error::Exists`]; [`Error::Missing`] for a file that the archive should have.
    ///
    /// # Durability
    /// When this returns the copy survives a power loss.
    pub fn checkpoint(
        &self,
        copy: impl AsRef<Path>,
        listener: &dyn ProgressListener,
    ) -> Result<CheckpointReport, Error> {
        self.reader.checkpoint(copy, listener)
    }
}

/// Maintenance. One call at a time changes files; another one waits for it. Commits and reads go on meanwhile.
impl Archive {
    /// Sets the listener for work that starts on its own: building the Merkle tree before the first block.
    pub fn set_progress_listener(&self, listener: Arc<dyn ProgressListener>) {
        self.writer.set_progress_listener(listener);
    }

    /// Emits every step that is complete and has left the reorg window, and waits for it. Unlike
    /// [`Maintenance`], which lets small steps add up, it leaves none.
    ///
    /// # Cost
    /// One segment per domain and run of steps, a manifest, and three to five syncs.
    ///
    /// # Errors
    /// A write that fails. Nothing committed is lost: the steps stay in memory and in the log.
    pub fn emit(&self) -> Result<(), Error> {
        emit_ready(&self.writer, &self.writer.lock_maintenance(), &())
    }

    /// Runs all maintenance that the background thread would run, and waits for it: emits what is ready, merges up to
    /// [`OpenOptions::merge_span_max`], and reindexes by the archive's density rule. For the end of a bulk load.
    ///
    /// # Errors
    /// The first failure; the rest is attempted all the same. [`Stats::failures`](crate::Stats::failures) has every one.
    pub fn maintain(&self, listener: &dyn ProgressListener) -> Result<(), Error> {
        background::maintain(&self.writer, listener)
    }

    /// Merges adjacent segments to aligned power-of-two step ranges until nothing is left to merge, and returns the number of
    /// merges. No answer changes. Steps that become ready meanwhile are emitted in between.
    ///
    /// # Cost
    /// Reads and writes every version of the segments that merge. [`Reader::plan_merge`] tells beforehand.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`]; [`Error::NoRoom`] where a merge was left out for want of space, the others being done.
    ///
    /// # Durability
    /// Each merge is published by a manifest of its own and survives a power loss from then on.
    pub fn merge(&self, options: &MergeOptions, listener: &dyn ProgressListener) -> Result<u64, Error> {
        unless_held_up(&self.writer, || merge_all(&self.writer, options, listener))
    }

    /// Rebuilds pivot indexes and filters as `rule` says; no `.kv` changes. Returns what was rebuilt, a segment each; segments
    /// that match the rule already are left out.
    ///
    /// # Cost
    /// One pass over the keys of each segment that is rebuilt. [`Reader::plan_reindex`] tells beforehand.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`]; [`Error::Options`] for a budget that the sparsest indexes exceed. Nothing has changed then.
    /// [`Error::HeldUp`] when complete steps cannot be written because the file system is full: segments may be left as they were.
    ///
    /// # Durability
    /// Each segment is published by a manifest of its own; a crash loses the one under way at most.
    pub fn reindex(
        &self,
        rule: ReindexRule,
        domain: Option<&str>,
        listener: &dyn ProgressListener,
    ) -> Result<Vec<ReindexPlan>, Error> {
        unless_held_up(&self.writer, || reindex(&self.writer, rule, domain, listener))
    }

    /// What [`Archive::reindex`] would rebuild now, a segment each. Changes nothing.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`]; [`Error::Options`] for a budget that the sparsest indexes exceed.
    pub fn plan_reindex(&self, rule: ReindexRule, domain: Option<&str>) -> Result<Vec<ReindexPlan>, Error> {
        self.reader.plan_reindex(rule, domain)
    }

    /// The density rule for new segments and for existing ones as they age.
    pub fn density_rule(&self) -> DensityRule {
        self.writer.lock().manifest().rule
    }

    /// Sets the density rule for new segments and for existing ones as they age. Maintenance brings existing segments in line over
    /// time, [`Archive::reindex`] at once.
    ///
    /// # Cost
    /// One manifest; no segment changes. For a budget the footer of each segment is read.
    ///
    /// # Errors
    /// [`Error::Options`] for a budget that the sparsest indexes of the present segments exceed; [`Error::Poisoned`].
    ///
    /// # Durability
    /// When this returns the rule survives a power loss.
    pub fn set_density_rule(&self, rule: DensityRule) -> Result<(), Error> {
        keep_rule(&self.writer, rule)
    }

    /// The rule that chooses the page encoding of new segments of `domain`.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`].
    pub fn encoding<D: AsDomain + ?Sized>(&self, domain: &D) -> Result<EncodingRule, Error> {
        let id = id_of(&self.writer.shared.directory.config, domain)?;
        Ok(self.writer.lock().manifest().config.domains[id.index()].encoding)
    }

    /// Sets the rule that chooses the page encoding of new segments of `domain`. Existing segments keep theirs until a merge
    /// rewrites them. No answer changes.
    ///
    /// # Cost
    /// One manifest; no segment is touched.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`]; [`Error::Poisoned`].
    ///
    /// # Durability
    /// When this returns the rule survives a power loss.
    pub fn set_encoding<D: AsDomain + ?Sized>(&self, domain: &D, rule: EncodingRule) -> Result<(), Error> {
        let id = id_of(&self.writer.shared.directory.config, domain)?;
        keep_encoding(&self.writer, id, rule)
    }

    /// Forgets the versions that no block at or above `before` can see. The newest block at or below `before` becomes the floor:
    /// the lowest height that can be read, its state whole. Views made before keep answering below it.
    ///
    /// Works on a full disk: it begins with the space that the archive holds in reserve. It frees segments only. Where every
    /// block is still in the log, as with an archive that never emitted, this returns `Ok` and frees nothing;
    /// [`Archive::emit`] empties the log first, and needs space for it.
    ///
    /// # Atomicity
    /// The floor rises at once, by the first manifest. Then segments are rewritten one after another, each published by itself:
    /// after an error or a crash the floor stays, what was freed stays freed, and the same call continues.
    ///
    /// # Cost
    /// Each segment that reaches below the floor is read together with the newer ones that do; those with something to drop are
    /// rewritten. The space it needs is that of the largest segment. [`Reader::plan_prune`] tells beforehand.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] above the head, below the floor of an earlier prune or the first block, and in an empty archive, with
    /// nothing changed; [`Error::Io`] where a rewritten segment finds no space; [`Error::Poisoned`].
    ///
    /// # Durability
    /// When this returns `Ok`, the floor and every committed block survive a power loss, in every mode of durability.
    pub fn prune(&self, before: BlockNumber, listener: &dyn ProgressListener) -> Result<(), Error> {
        prune(&self.writer, before, listener)
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
