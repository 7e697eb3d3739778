//! The knobs of the tree. None of them changes a root; each has a figure in `examples/updates.rs`, and the
//! radix shape in `examples/shapes.rs`.

use std::num::NonZeroUsize;

use crate::hash::simd::HashBackend;

/// How a tree works. The default is what was measured to be the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// How many threads take part in one batch.
    pub parallelism: Parallelism,
    /// Which instructions hash.
    pub hash_backend: HashBackend,
    /// How many subtrees the tree is cut into: the unit of work and of growth.
    pub subtree_roots: SubtreeRoots,
    /// How the nodes are in memory.
    pub radix_shape: RadixShape,
    /// How far ahead of the work memory is asked for.
    pub prefetch: Prefetch,
    /// Whether 2 MiB pages are asked for.
    pub huge_pages: HugePages,
}

impl Default for Options {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self {
            parallelism: if threads.get() == 1 { Parallelism::Off } else { Parallelism::Threads(threads) },
            hash_backend: HashBackend::Auto,
            subtree_roots: SubtreeRoots::default(),
            radix_shape: RadixShape::default(),
            prefetch: Prefetch::default(),
            huge_pages: HugePages::Ask,
        }
    }
}

/// How many threads take part in a batch. Lookups and proofs never use more than the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parallelism {
    /// The calling thread alone.
    Off,
    /// A pool of this many, started at the first batch that is large enough to gain from it.
    Threads(NonZeroUsize),
}

impl Parallelism {
    /// The number of threads, the caller's included.
    pub fn threads(self) -> usize {
        match self {
            Self::Off => 1,
            Self::Threads(threads) => threads.get(),
        }
    }
}

/// The number of subtrees: a power of two, so that the first bits of a key hash name its subtree.
///
/// More subtrees grow in smaller steps and split more evenly between threads; fewer leave less above them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubtreeRoots(u32);

impl SubtreeRoots {
    /// The most bits: beyond, the subtrees' own bookkeeping outweighs what it buys.
    pub const BITS_MAX: u32 = 12;

    /// `2^bits` subtrees; `bits` is cut to [`Self::BITS_MAX`].
    pub const fn from_bits(bits: u32) -> Self {
        Self(if bits < Self::BITS_MAX { bits } else { Self::BITS_MAX })
    }

    /// The number of leading key hash bits that name a subtree.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The number of subtrees.
    pub const fn count(self) -> usize {
        1 << self.0
    }
}

impl Default for SubtreeRoots {
    /// 256: at 2^24 keys a subtree is some 6 MiB, which is copied in a few milliseconds when it grows.
    fn default() -> Self {
        Self::from_bits(8)
    }
}

/// The branching of the arena of nodes: how many bits of a key hash each of its levels spends, from the root down.
///
/// The `2^bits - 1` sibling pairs of one radix node are together, breadth first inside, so the shape decides which
/// lines and pages the way up or down touches. A level is cut where the subtrees begin ([`SubtreeRoots`]) and where
/// the tree ends; below the last one all that is left is one level.
///
/// The default has no levels: the nodes of a subtree are breadth first. In `examples/shapes.rs` that was fastest at
/// random writes and sparse batches, the work of a tree: 493 ns per random write at 2^22 keys where the other shapes
/// took 548 to 585, 326 against 366 to 387 in sparse batches; at 2^20 keys 367 against 418 to 610 and 333 against 383
/// to 405. The other columns decide nothing: shapes that are the same way at that size differ there by as much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RadixShape {
    bits: [u8; Self::LEVELS_MAX],
    len: usize,
}

impl RadixShape {
    /// The most levels.
    pub const LEVELS_MAX: usize = 16;

    /// The shape with these bits per level; levels after the first [`Self::LEVELS_MAX`] are left out.
    pub const fn of_levels(bits: &[u8]) -> Self {
        let mut shape = Self { bits: [0; Self::LEVELS_MAX], len: 0 };
        while shape.len < bits.len() && shape.len < Self::LEVELS_MAX {
            shape.bits[shape.len] = bits[shape.len];
            shape.len += 1;
        }
        shape
    }

    /// The bits of each level, from the root down.
    pub fn levels(&self) -> &[u8] {
        &self.bits[..self.len]
    }
}

/// How many changes ahead of the one at work the memory of a change is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// Every change waits for its own memory.
    Off,
    /// Memory is asked for this many changes ahead.
    Distance(NonZeroUsize),
}

impl Prefetch {
    pub(crate) fn distance(self) -> usize {
        match self {
            Self::Off => 0,
            Self::Distance(distance) => distance.get(),
        }
    }
}

impl Default for Prefetch {
    /// 8: a change touches some five lines in a row, and about 40 lines on their way are what the memory serves
    /// at once; farther ahead was slower in `examples/updates.rs`.
    fn default() -> Self {
        Self::Distance(NonZeroUsize::new(8).unwrap_or(NonZeroUsize::MIN))
    }
}

/// Whether the arena asks for 2 MiB pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// Ordinary pages.
    Off,
    /// Ask with `MADV_HUGEPAGE`; ordinary pages where the system does not give them.
    Ask,
}
