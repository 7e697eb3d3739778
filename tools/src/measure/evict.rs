//! Drops the pages of a file from the page cache and proves that they are gone.
//!
//! A cold measurement of a file that is still in memory is a warm one with a wrong label, so eviction here ends with the kernel's
//! own word (`mincore`), and a page that stayed is an error, not a number.
//!
//! **The trap**: a page that any process still maps stays, whatever is asked, and no call says so. Whoever holds a
//! mapping of the file (an open archive, a reader, another process) must unmap it or give its pages back with
//! `MADV_DONTNEED` before the eviction. The other ways in which pages stay: they are dirty (so the file is synced first), the
//! file system keeps files in memory (tmpfs), or the file is locked in memory.
//!
//! A second trap: since Linux 5.2 `mincore` tells the truth only to whoever owns the file or may write it; to anyone else
//! every page is resident. That too ends as an error here, never as a false cold figure.
//!
//! This is the one file of the package with unsafe code: a mapping, `mincore` over it, and `madvise`.

#![expect(
    unsafe_code,
    reason = "residency is asked of a mapping by mincore, and a mapping gives pages back by madvise: there is no safe interface"
)]

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use memmap2::{Advice, Mmap};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use serde::Serialize;

/// The page of every machine that the project runs on, in bytes.
pub const PAGE_SIZE: u64 = 4096;

/// How often eviction is tried: pages on their way into the cache of another processor, and pages that are being read ahead, miss a
/// call.
const ATTEMPTS: u32 = 8;

/// How long the second attempt waits for them; each later one waits as much longer.
const PAUSE: Duration = Duration::from_millis(1);

/// How many bytes one call of `mincore` covers; its answer takes a byte for each page of them.
const WINDOW: usize = 1 << 30;

/// Why a file could not be measured cold.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's word.
        source: io::Error,
    },
    /// Pages of the file are still in memory after eviction by every attempt.
    #[error(
        "{} of {} pages of {} stayed in memory after eviction by {method}: unmap the file in every process and evict again",
        residency.resident, residency.total, path.display()
    )]
    Stayed {
        /// The file.
        path: PathBuf,
        /// How many pages stayed, of how many.
        residency: Residency,
        /// How eviction was tried.
        method: EvictMethod,
    },
    /// The file is too small for what is to be measured on it.
    #[error("{} has {len} bytes, the measurement needs {needed}", path.display())]
    TooSmall {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        len: u64,
        /// The least that is needed, in bytes.
        needed: u64,
    },
}

impl Error {
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { operation, path, source }
    }
}

/// How many pages of a file are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Residency {
    /// The pages in memory.
    pub resident: u64,
    /// All pages of the file.
    pub total: u64,
}

/// How pages are asked to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EvictMethod {
    /// The command `vmtouch -e`.
    Vmtouch,
    /// `posix_fadvise` with `POSIX_FADV_DONTNEED`.
    Fadvise,
}

impl std::fmt::Display for EvictMethod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Vmtouch => "vmtouch",
            Self::Fadvise => "fadvise",
        })
    }
}

impl EvictMethod {
    /// `vmtouch` where it is installed, else `posix_fadvise`. Runs a process: ask once and keep the answer.
    pub fn detect() -> Self {
        let found = Command::new("vmtouch").arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if found.is_ok() { Self::Vmtouch } else { Self::Fadvise }
    }

    /// Drops the pages of a file from the page cache and asks the kernel whether any stayed.
    ///
    /// # Cost
    /// One sync of the file, one `mincore` over all of it (a byte of memory for each page of a gigabyte), and for
    /// [`Vmtouch`](Self::Vmtouch) one process. [`Fadvise`](Self::Fadvise) is the cheaper one where a file is evicted before every lookup.
    ///
    /// # Errors
    /// [`Error::Stayed`] with the number of pages that did not leave; see the head of the module for why.
    pub fn evict(self, path: &Path) -> Result<Eviction, Error> {
        let before = resident_pages(path)?;
        let file = File::open(path).map_err(Error::io("open", path))?;
        file.sync_data().map_err(Error::io("sync", path))?;
        let mut residency = before;
        for attempt in 0..ATTEMPTS {
            std::thread::sleep(PAUSE * attempt);
            match self {
                Self::Vmtouch => run_vmtouch(path)?,
                Self::Fadvise => advise(&file, path, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?,
            }
            residency = resident_pages(path)?;
            if residency.resident == 0 {
                return Ok(Eviction { method: self, before });
            }
        }
        Err(Error::Stayed { path: path.to_owned(), residency, method: self })
    }
}

impl EvictMethod {
    /// The same of a file that this process has mapped: its pages leave the mappings first. Nothing is lost by that, whoever maps and unmaps
    /// meanwhile.
    ///
    /// # Errors
    /// As of [`evict`](Self::evict): where another process maps the file its pages stay.
    pub fn evict_mapped(self, path: &Path) -> Result<Eviction, Error> {
        let whole = path.canonicalize().map_err(Error::io("find", path))?;
        let maps =
            std::fs::read_to_string("/proc/self/maps").map_err(Error::io("find the mappings of", path))?;
        for (start, end) in maps.lines().filter_map(|line| mapped_range(line, &whole)) {
            // SAFETY: madvise(2), MADV_PAGEOUT: the pages of the range are written where they are from and leave memory; the next touch
            // brings them back. No byte of memory changes, so that it does not matter whose the range is by now.
            let failed = unsafe { libc::madvise(start as *mut _, end - start, libc::MADV_PAGEOUT) } != 0;
            if failed {
                return Err(Error::io("page out", path)(io::Error::last_os_error()));
            }
        }
        self.evict(path)
    }
}

/// The range of a line of `/proc/self/maps`, if it is one of this file.
fn mapped_range(line: &str, path: &Path) -> Option<(usize, usize)> {
    // start-end permissions offset device inode path
    let (range, rest) = line.split_once(' ')?;
    let name = rest.split_whitespace().nth(4)?;
    let (start, end) = range.split_once('-').filter(|_| Path::new(name) == path)?;
    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
}

/// What an eviction did. That there is one means that no page stayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Eviction {
    /// How the pages were asked to leave.
    pub method: EvictMethod,
    /// How many pages were in memory before.
    pub before: Residency,
}

/// Evicts by whatever [`EvictMethod::detect`] finds. For many evictions keep the [`EvictMethod`] and call [`EvictMethod::evict`].
pub fn evict(path: &Path) -> Result<Eviction, Error> {
    EvictMethod::detect().evict(path)
}

/// How many pages of a file are in memory. Brings none of them there.
pub fn resident_pages(path: &Path) -> Result<Residency, Error> {
    Mapping::open(path)?.residency()
}

/// Tells the kernel that a file will be read at random places: no page is read before it is asked for.
pub(crate) fn advise_random(file: &File, path: &Path) -> Result<(), Error> {
    advise(file, path, PosixFadviseAdvice::POSIX_FADV_RANDOM)
}

fn advise(file: &File, path: &Path, advice: PosixFadviseAdvice) -> Result<(), Error> {
    posix_fadvise(file, 0, 0, advice).map_err(|errno| Error::io("advise on", path)(errno.into()))
}

fn run_vmtouch(path: &Path) -> Result<(), Error> {
    let whole = path.canonicalize().map_err(Error::io("find", path))?;
    let status = Command::new("vmtouch").args(["-q", "-e"]).arg(whole).stdout(Stdio::null()).status();
    let status = status.map_err(Error::io("run vmtouch -e on", path))?;
    if status.success() {
        return Ok(());
    }
    Err(Error::io("run vmtouch -e on", path)(io::Error::other(status.to_string())))
}

/// A file mapped for measuring: single bytes and lines can be read, no slice of it is ever lent out.
///
/// That is what makes it safe to make: another process may write the file while it is mapped, which would break the
/// promise of a `&[u8]` and does not break a volatile read. A file that is truncated while it is mapped
/// ends the process by a signal (SIGBUS) at the next read after its end; a measurement can take that.
///
/// Dropping it unmaps the file, which has to happen before the file can be evicted.
#[derive(Debug)]
pub struct Mapping {
    path: PathBuf,
    /// `None` for an empty file, which cannot be mapped.
    map: Option<Mmap>,
}

impl Mapping {
    /// Maps a file for reading.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let len = file.metadata().map_err(Error::io("open", path))?.len();
        if len == 0 {
            return Ok(Self { path: path.to_owned(), map: None });
        }
        // SAFETY: memmap2 asks that the file is not modified "in or out of process" while it is mapped, because the
        // map derefs to `&[u8]`. This type never derefs it: it passes the address to `mincore` and reads by
        // `read_volatile`, neither of which assumes that the bytes keep their value.
        let map = unsafe { Mmap::map(&file) }.map_err(Error::io("map", path))?;
        Ok(Self { path: path.to_owned(), map: Some(map) })
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.map.as_ref().map_or(0, |map| map.len())
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.map.is_none()
    }

    /// Asks for single pages: a fault brings in the page touched and no neighbour (`MADV_RANDOM`).
    pub fn advise_random(&self) -> Result<(), Error> {
        let Some(map) = &self.map else { return Ok(()) };
        map.advise(Advice::Random).map_err(Error::io("advise on the mapping of", &self.path))
    }

    /// Reads one byte from memory, never from what the compiler remembers.
    ///
    /// # Panics
    /// If `offset` is not below [`len`](Self::len).
    #[inline]
    pub fn byte(&self, offset: usize) -> u8 {
        let map = self.map.as_ref().expect("an empty file has no byte to read");
        assert!(offset < map.len(), "offset {offset} of {} bytes", map.len());
        let address = map.as_ptr().wrapping_add(offset);
        // SAFETY: `address` is inside the mapping, by the assertion, and the mapping lives as long as `self`.
        unsafe { address.read_volatile() }
    }

    /// Reads line `line` of 64 bytes, whole, and folds it into one word.
    ///
    /// # Panics
    /// If the line is not in the file as a whole.
    #[inline]
    pub fn line(&self, line: usize) -> u64 {
        let map = self.map.as_ref().expect("an empty file has no line to read");
        assert!(line < map.len() / 64, "line {line} of {} bytes", map.len());
        #[expect(
            clippy::cast_ptr_alignment,
            reason = "a mapping begins at a page, so each of its lines is aligned"
        )]
        let address = map.as_ptr().wrapping_add(line * 64).cast::<[u64; 8]>();
        // SAFETY: the 64 bytes at `address` are inside the mapping, by the assertion. A mapping begins at a page, so a line
        // is aligned to 64. Every value of the bytes is a value of the array.
        let words = unsafe { address.read_volatile() };
        words.into_iter().fold(0, |folded, word| folded ^ word)
    }

    /// How many pages of the file are in memory, in this process or in any other. Brings none of them there.
    pub fn residency(&self) -> Result<Residency, Error> {
        let Some(map) = &self.map else { return Ok(Residency { resident: 0, total: 0 }) };
        let mut flags = vec![0u8; map.len().min(WINDOW).div_ceil(PAGE_SIZE as usize)];
        let (mut resident, mut total) = (0, 0);
        for offset in (0..map.len()).step_by(WINDOW) {
            let len = (map.len() - offset).min(WINDOW);
            let pages = len.div_ceil(PAGE_SIZE as usize);
            let address = map.as_ptr().wrapping_add(offset);
            // SAFETY: mincore(2): `addr` must be "a multiple of the system page size", which a mapping's start plus a
            // multiple of WINDOW is; `vec` "must point to an array containing at least (length+PAGE_SIZE-1) /
            // PAGE_SIZE bytes", which `flags` has. The kernel writes nothing else and does not touch the pages.
            let failed = unsafe { libc::mincore(address.cast_mut().cast(), len, flags.as_mut_ptr()) } != 0;
            if failed {
                return Err(Error::io("ask for the residency of", &self.path)(io::Error::last_os_error()));
            }
            resident += flags[..pages].iter().filter(|flag| **flag & 1 != 0).count() as u64;
            total += pages as u64;
        }
        Ok(Residency { resident, total })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A file in the build folder, which unlike a temporary folder is seldom in memory only.
    fn file_of(len: usize) -> tempfile::NamedTempFile {
        let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let mut file = tempfile::NamedTempFile::new_in(folder).unwrap();
        file.write_all(&vec![7; len]).unwrap();
        file
    }

    /// Whether pages of `path` can leave memory at all; says so where they cannot.
    fn can_leave(path: &Path) -> bool {
        let system = crate::machine::Conditions::of(path).file_system;
        let stays = ["tmpfs", "ramfs", "overlay", "unknown"].iter().any(|kind| system.starts_with(kind));
        if stays {
            println!("skipped: pages of a file on {system} may not leave memory");
        }
        !stays
    }

    #[test]
    fn a_file_just_written_is_resident_and_leaves_by_either_method() {
        let file = file_of(100 * 4096 + 1);
        if !can_leave(file.path()) {
            return;
        }
        for method in [EvictMethod::Fadvise, EvictMethod::detect()] {
            std::fs::read(file.path()).unwrap();
            let all = Residency { resident: 101, total: 101 };
            assert_eq!(resident_pages(file.path()).unwrap(), all);
            assert_eq!(method.evict(file.path()).unwrap(), Eviction { method, before: all });
            assert_eq!(resident_pages(file.path()).unwrap().resident, 0);
        }
    }

    #[test]
    fn what_this_process_maps_leaves_when_it_is_paged_out_first() {
        let file = file_of(64 * 4096);
        if !can_leave(file.path()) {
            return;
        }
        let mapping = Mapping::open(file.path()).unwrap();
        let read = |page: usize| mapping.byte(page * 4096);
        assert!((0..64).all(|page| read(page) == 7));
        assert!(EvictMethod::Fadvise.evict(file.path()).is_err(), "mapped");
        EvictMethod::Fadvise.evict_mapped(file.path()).unwrap();
        assert_eq!(resident_pages(file.path()).unwrap().resident, 0);
        assert!((0..64).all(|page| read(page) == 7));
    }

    #[test]
    fn a_page_that_is_still_mapped_is_an_error_that_counts_it() {
        let file = file_of(64 * 4096);
        if !can_leave(file.path()) {
            return;
        }
        evict(file.path()).unwrap();
        let mapping = Mapping::open(file.path()).unwrap();
        mapping.advise_random().unwrap();
        assert_eq!(mapping.byte(9 * 4096) ^ mapping.byte(20 * 4096), 0);
        match evict(file.path()) {
            Err(Error::Stayed { residency, .. }) => {
                assert_eq!(residency, Residency { resident: 2, total: 64 });
            }
            other => panic!("{other:?}"),
        }
        drop(mapping);
        evict(file.path()).unwrap();
    }

    #[test]
    fn lines_and_bytes_are_those_of_the_file() {
        let mut file = file_of(0);
        assert!(Mapping::open(file.path()).unwrap().is_empty());
        assert_eq!(resident_pages(file.path()).unwrap(), Residency { resident: 0, total: 0 });
        file.write_all(&[0; 64]).unwrap();
        file.write_all(&(1..=64).collect::<Vec<u8>>()).unwrap();
        let mapping = Mapping::open(file.path()).unwrap();
        assert_eq!((mapping.len(), mapping.byte(64), mapping.line(0)), (128, 1, 0));
        let folded = (1..=64u8).collect::<Vec<u8>>();
        let folded = folded.chunks(8).fold(0, |sum, word| sum ^ u64::from_ne_bytes(word.try_into().unwrap()));
        assert_eq!(mapping.line(1), folded);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = evict(Path::new("no-such-file")).unwrap_err();
        assert_eq!(error.to_string(), "cannot open no-such-file");
    }
}
