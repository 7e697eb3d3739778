//! Memory for the tree: 64-byte lines in runs cut from large maps, on 2 MiB pages where the system gives them.
//!
//! A sibling pair, and a leaf with its key hash, are one cache line each; nothing in the tree is smaller or
//! straddles two. A subtree owns its runs alone, so workers share no memory and take no lock per update: the
//! lock below is taken when a run is cut or given back, which is when a subtree grows.
//!
//! Huge pages matter because an update touches lines at random: with 4 KiB pages every touch misses the
//! translation cache too. They are asked for with `MADV_HUGEPAGE`, which is a wish; [`Memory::huge_pages`]
//! tells whether the system took it. Where it does not, everything works on ordinary pages.
//!
//! [`Memory::huge_pages`]: crate::Memory::huge_pages
#![expect(
    unsafe_code,
    reason = "runs are raw parts of a map that outlives them, and prefetch takes an address"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memmap2::MmapMut;

use crate::hash::Line;
use crate::options::HugePages;

/// The size of a huge page on the systems that have them; maps start on such a boundary.
const HUGE_BYTES: usize = 2 << 20;
/// A new map is this share of what is mapped already: few maps, and little that is mapped in vain.
const MAP_SHARE: usize = 32;
/// The largest map that is made ahead of need.
const MAP_BYTES_MAX: usize = 64 << 20;

/// Where runs come from; shared by the subtrees of one tree.
#[derive(Debug)]
pub(crate) struct Pool {
    huge: HugePages,
    space: Mutex<Space>,
}

#[derive(Debug, Default)]
struct Space {
    maps: BTreeMap<u32, Map>,
    next_map: u32,
    /// Free runs by place, to join neighbours, and by length, to find the best fit.
    by_place: BTreeMap<Place, usize>,
    by_len: BTreeSet<(usize, Place)>,
    bytes_mapped: usize,
    bytes_free: usize,
    huge_refused: bool,
}

#[derive(Debug)]
struct Map {
    bytes: MmapMut,
    /// Bytes skipped to start on a huge-page boundary; never touched, so never resident.
    skipped: usize,
    lines: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    map: u32,
    line: usize,
}

/// What the pool holds, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PoolBytes {
    #[cfg(test)]
    pub(crate) mapped: usize,
    pub(crate) free: usize,
    pub(crate) huge: bool,
}

impl Pool {
    pub(crate) fn new(huge: HugePages) -> Arc<Self> {
        Arc::new(Self { huge, space: Mutex::default() })
    }

    fn space(&self) -> MutexGuard<'_, Space> {
        // A panic elsewhere cannot leave the free lists half changed: nothing in here panics in between.
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn bytes(&self) -> PoolBytes {
        let space = self.space();
        PoolBytes {
            #[cfg(test)]
            mapped: space.bytes_mapped,
            free: space.bytes_free,
            huge: self.huge == HugePages::Ask && space.bytes_mapped > 0 && !space.huge_refused,
        }
    }

    /// Cuts a run of `len` lines with whatever bytes the last owner left.
    pub(crate) fn lines(self: &Arc<Self>, len: usize) -> Lines {
        if len == 0 {
            return Lines::default();
        }
        let mut space = self.space();
        let found = space.by_len.range((len, Place { map: 0, line: 0 })..).next().copied();
        let (run_len, place) = found.unwrap_or_else(|| space.grow(len, self.huge));
        space.forget(place, run_len);
        if len < run_len {
            space.remember(Place { line: place.line + len, ..place }, run_len - len);
        }
        let map = space.maps.get_mut(&place.map).expect("a free run is in a map");
        let start = map.bytes.as_mut_ptr().wrapping_add(map.skipped + place.line * size_of::<Line>());
        // The boundary of a map is a multiple of 2 MiB, so every line of it is aligned.
        #[expect(clippy::cast_ptr_alignment, reason = "checked in the next line")]
        let start = start.cast::<Line>();
        assert!(start.is_aligned(), "maps start on a 2 MiB boundary");
        let start = NonNull::new(start).expect("a map does not start at address zero");
        Lines { start, len, home: Some((Arc::clone(self), place)) }
    }

    /// Cuts a run of `len` lines of zeros.
    pub(crate) fn zeroed(self: &Arc<Self>, len: usize) -> Lines {
        let mut lines = self.lines(len);
        lines.fill(Line::ZERO);
        lines
    }
}

impl Space {
    /// Maps more memory and returns the one free run in it.
    fn grow(&mut self, len: usize, huge: HugePages) -> (usize, Place) {
        let wanted = (self.bytes_mapped / MAP_SHARE).min(MAP_BYTES_MAX).max(len * size_of::<Line>());
        let wanted = wanted.next_multiple_of(HUGE_BYTES);
        // One huge page more, so that the part that is used can start on a boundary.
        let bytes = MmapMut::map_anon(wanted + HUGE_BYTES).expect("the system has memory to map");
        let skipped = bytes.as_ptr().align_offset(HUGE_BYTES);
        if huge == HugePages::Ask && !advise_huge(&bytes, skipped, wanted) {
            self.huge_refused = true;
        }
        let lines = wanted / size_of::<Line>();
        let place = Place { map: self.next_map, line: 0 };
        self.next_map += 1;
        self.maps.insert(place.map, Map { bytes, skipped, lines });
        self.bytes_mapped += wanted;
        self.remember(place, lines);
        (lines, place)
    }

    fn remember(&mut self, place: Place, len: usize) {
        self.by_place.insert(place, len);
        self.by_len.insert((len, place));
        self.bytes_free += len * size_of::<Line>();
    }

    fn forget(&mut self, place: Place, len: usize) {
        self.by_place.remove(&place);
        self.by_len.remove(&(len, place));
        self.bytes_free -= len * size_of::<Line>();
    }

    /// Takes a run back, joins it with its free neighbours, and unmaps a map that nobody uses.
    fn give_back(&mut self, mut place: Place, mut len: usize) {
        let before = self.by_place.range(..place).next_back().map(|(&place, &len)| (place, len));
        if let Some((before, before_len)) = before
            && before.map == place.map
            && before.line + before_len == place.line
        {
            self.forget(before, before_len);
            (place, len) = (before, len + before_len);
        }
        let after = Place { line: place.line + len, ..place };
        if let Some(&after_len) = self.by_place.get(&after) {
            self.forget(after, after_len);
            len += after_len;
        }
        if self.maps.get(&place.map).is_some_and(|map| map.lines == len) {
            self.maps.remove(&place.map);
            self.bytes_mapped -= len * size_of::<Line>();
        } else {
            self.remember(place, len);
        }
    }
}

#[cfg(target_os = "linux")]
fn advise_huge(map: &MmapMut, from: usize, len: usize) -> bool {
    map.advise_range(memmap2::Advice::HugePage, from, len).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn advise_huge(_: &MmapMut, _: usize, _: usize) -> bool {
    false
}

/// A run of lines that one owner has to itself; a boxed slice whose memory comes from the pool.
#[derive(Debug)]
pub(crate) struct Lines {
    start: NonNull<Line>,
    len: usize,
    home: Option<(Arc<Pool>, Place)>,
}

// SAFETY: a run is the only access to its lines (`Pool::lines` takes them off the free list, `Drop` gives
// them back), lines are plain bytes, and the pool behind it is `Send` and `Sync`; so it moves between threads
// as a `Box<[Line]>` does.
unsafe impl Send for Lines {}
// SAFETY: a shared run gives out shared slices of plain bytes only, as a `&Box<[Line]>` does.
unsafe impl Sync for Lines {}

impl Default for Lines {
    fn default() -> Self {
        Self { start: NonNull::dangling(), len: 0, home: None }
    }
}

impl Deref for Lines {
    type Target = [Line];

    #[inline]
    fn deref(&self) -> &[Line] {
        // SAFETY: `start` is aligned to 64 (maps start on a 2 MiB boundary, places count lines) and is followed
        // by `len` lines of a map that lives as long as this run, because an unmapped map is one whose lines
        // are all free. Mapped bytes are initialised (zero at first) and any bytes are a `Line`. The run is
        // the only owner, so `&self` excludes writers. An empty run is dangling, aligned, of length zero.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Lines {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Line] {
        // SAFETY: as in `deref`; and `&mut self` on the only owner excludes every other access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        if let Some((pool, place)) = self.home.take() {
            pool.space().give_back(place, self.len);
        }
    }
}

/// Where the leaves of one bucket are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Bucket {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

/// Buckets in lines of the pool, eight in each.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    lines: Lines,
    len: usize,
}

impl Entries {
    const PER_LINE: usize = size_of::<Line>() / size_of::<Bucket>();

    /// So many empty buckets.
    pub(crate) fn new(pool: &Arc<Pool>, len: usize) -> Self {
        Self { lines: pool.zeroed(len.div_ceil(Self::PER_LINE)), len }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }
}

impl Deref for Entries {
    type Target = [Bucket];

    #[inline]
    fn deref(&self) -> &[Bucket] {
        // SAFETY: `len` buckets fit the lines (`new`), a line is aligned to more than a bucket, its bytes are
        // initialised, and any bytes are a `Bucket`. The lines are borrowed as long as the result.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for Entries {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Bucket] {
        // SAFETY: as in `deref`; and the lines are borrowed for this alone.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

/// Asks the CPU to fetch an element that will be needed soon; nothing where there is none at `at`.
#[inline]
pub(crate) fn prefetch<T>(slice: &[T], at: usize) {
    if let Some(element) = slice.get(at) {
        prefetch_element(element);
    }
}

/// Asks the CPU to fetch the line in which an element begins.
#[inline]
pub(crate) fn prefetch_element<T>(element: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching is a hint that cannot fault, and SSE is part of every x86_64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast()) };
    }
    #[cfg(target_arch = "aarch64")]
    {
        // SAFETY: the instruction is a hint that cannot fault; it changes neither memory, stack nor flags.
        unsafe {
            std::arch::asm!(
                "prfm pldl1keep, [{at}]",
                at = in(reg) std::ptr::from_ref(element),
                options(readonly, nostack, preserves_flags)
            );
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = element;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_do_not_overlap_and_come_back() {
        let pool = Pool::new(HugePages::Ask);
        let mut runs: Vec<Lines> = (1..200).map(|len| pool.zeroed(len)).collect();
        for (i, run) in runs.iter_mut().enumerate() {
            run.fill(Line { halves: [[i as u8; 32]; 2] });
        }
        for (i, run) in runs.iter().enumerate() {
            assert_eq!(run.len(), i + 1);
            assert!(run.iter().all(|line| line.halves == [[i as u8; 32]; 2]));
        }
        let mut kept = 0;
        while runs.len() > 1 {
            drop(runs.swap_remove(runs.len() * 7 % 11 % runs.len()));
            kept = runs[0].len();
        }
        let bytes = pool.bytes();
        assert_eq!(bytes.mapped - bytes.free, kept * size_of::<Line>());
        drop(runs);
        assert_eq!(pool.bytes().mapped, 0, "a map that nobody uses is unmapped");
    }

    #[test]
    fn a_run_larger_than_a_map_gets_its_own() {
        let pool = Pool::new(HugePages::Off);
        let run = pool.zeroed(3 * HUGE_BYTES / size_of::<Line>());
        assert!(run.iter().all(|line| *line == Line::ZERO));
        assert!(!pool.bytes().huge);
    }

    #[test]
    fn an_empty_run_is_an_empty_slice() {
        let pool = Pool::new(HugePages::Ask);
        assert!(pool.lines(0).is_empty());
        assert!(Lines::default().is_empty());
        prefetch(&pool.lines(0), 3);
    }

    #[test]
    fn entries_are_empty_at_first_and_keep_what_they_are_given() {
        let pool = Pool::new(HugePages::Ask);
        pool.lines(100).fill(Line { halves: [[7; 32]; 2] });
        let mut entries = Entries::new(&pool, 37);
        assert_eq!(*entries, [Bucket::default(); 37]);
        entries[36] = Bucket { start: 5, len: 9 };
        assert_eq!(entries[36], Bucket { start: 5, len: 9 });
        assert_eq!(entries[35], Bucket::default());
    }
}
