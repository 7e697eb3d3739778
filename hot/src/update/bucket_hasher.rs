//! The inner nodes of many buckets, hashed together: a level of all of them at a time.
//!
//! A bucket alone has too few nodes to fill the lanes. So each inner node of each bucket gets a line for its
//! two children, filed under its level; the deepest level is hashed first, and each hash is written to the half
//! of the parent's line where it belongs. Leaves are written there from the start.

use crate::hash::Line;
use crate::hash::simd::Lanes;
use crate::hash::{EMPTY, Hash, bit};

/// The longest bucket that is filed without branches.
const SHORT_MAX: usize = 16;
/// The levels it may have: fewer than the bits that a window is sure to hold.
const LEVELS_SHORT: u32 = 32;

/// The inner nodes of the buckets that wait to be hashed.
#[derive(Debug, Default)]
pub(crate) struct BucketHasher {
    levels: Vec<Level>,
    /// For each bucket whose root waits: where it goes.
    targets: Vec<Target>,
    hashes: Vec<Hash>,
    short: Short,
}

/// What filing a short bucket works with. Kept from bucket to bucket, because clearing it anew would cost more than
/// the few entries that a bucket uses.
#[derive(Debug, Default)]
struct Short {
    /// The key hash bits of each leaf from the depth of the bucket on.
    windows: [u64; SHORT_MAX],
    /// The bits that each leaf shares with the one before it; none at both ends.
    shared: [u32; SHORT_MAX + 1],
    /// For each level: between which leaves it is the last that is shared. All zero between buckets.
    joins: [u64; LEVELS_SHORT as usize],
    /// For each level: the first leaves of its nodes.
    firsts: [u64; LEVELS_SHORT as usize],
    /// For each level: how many first leaves there are up to each leaf.
    ranks: [u64; LEVELS_SHORT as usize],
    /// For each level: one line before that of the first node.
    bases: [u32; LEVELS_SHORT as usize],
}

/// A heap node of a subtree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) subtree: u32,
    pub(crate) node: u32,
}

#[derive(Debug, Default)]
struct Level {
    lines: Vec<Line>,
    /// For each line, twice the line of its parent one level up, plus one for a right child. At the top, where
    /// there is no parent, anything.
    parents: Vec<u32>,
}

impl BucketHasher {
    /// The number of buckets that wait.
    pub(crate) fn len(&self) -> usize {
        self.targets.len()
    }

    /// Adds a bucket of at least two leaves whose key hashes share `depth` bits.
    pub(crate) fn push(&mut self, target: Target, leaves: &[Line], depth: u32) {
        debug_assert!(leaves.len() >= 2, "a bucket of one leaf is that leaf");
        self.targets.push(target);
        if leaves.len() > SHORT_MAX || !self.file_short(leaves, depth) {
            self.file(leaves, 0, depth as usize, 0);
        }
    }

    /// Files the inner nodes of a bucket without a branch per node: what a branch would ask is a random bit, and
    /// half of the guesses would be wrong. Returns false, with nothing done, when two leaves share more bits
    /// than a window has.
    ///
    /// Of ascending leaves, those below one node are neighbours. With number `i` of `joined` saying whether the
    /// leaves `i` and `i + 1` share at least `level` bits, the nodes of that level are the runs of ones; a node
    /// is known by its first leaf, and its rank is the count of first leaves up to there. The numbers are four
    /// bits wide, so that one multiplication adds up all those counts.
    fn file_short(&mut self, leaves: &[Line], depth: u32) -> bool {
        let (byte, shift) = ((depth / 8) as usize, depth % 8);
        if byte + 8 > 32 {
            return false;
        }
        let Short { windows, shared, joins, firsts, ranks, bases } = &mut self.short;
        for (window, leaf) in windows.iter_mut().zip(leaves) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&leaf.halves[0][byte..byte + 8]);
            *window = u64::from_be_bytes(bytes) << shift;
        }
        let mut deepest = 0;
        for i in 1..leaves.len() {
            shared[i] = (windows[i - 1] ^ windows[i]).leading_zeros();
            deepest = deepest.max(shared[i]);
        }
        shared[leaves.len()] = 0;
        if deepest >= LEVELS_SHORT {
            return false;
        }
        while self.levels.len() <= deepest as usize {
            self.levels.push(Level::default());
        }
        for (i, &level) in shared[1..leaves.len()].iter().enumerate() {
            joins[level as usize % LEVELS_SHORT as usize] |= 1 << (4 * i);
        }
        let mut joined = 0;
        for level in (0..=deepest as usize).rev() {
            joined |= std::mem::take(&mut joins[level]);
            firsts[level] = joined & !(joined << 4);
            ranks[level] = firsts[level].wrapping_mul(0x1111_1111_1111_1111);
            bases[level] = (self.levels[level].lines.len() as u32).wrapping_sub(1);
        }
        let line =
            |level: usize, leaf: usize| bases[level].wrapping_add((ranks[level] >> (4 * leaf)) as u32 & 15);
        for (level, row) in self.levels.iter_mut().enumerate().take(deepest as usize + 1) {
            let mut rest = firsts[level];
            while rest != 0 {
                let leaf = rest.trailing_zeros() as usize / 4;
                rest &= rest - 1;
                row.lines.push(Line::ZERO);
                let above = level.saturating_sub(1);
                let side = windows[leaf % SHORT_MAX] >> (63 - above) & 1;
                row.parents.push(2 * line(above, leaf) + side as u32);
            }
        }
        for (i, leaf) in leaves.iter().enumerate() {
            let level = shared[i].max(shared[i + 1]) as usize % LEVELS_SHORT as usize;
            let side = (windows[i] >> (63 - level) & 1) as usize;
            self.levels[level].lines[line(level, i) as usize].halves[side] = leaf.halves[1];
        }
        true
    }

    /// Files the inner nodes of ascending leaves that share the bits above `depth`.
    fn file(&mut self, leaves: &[Line], mut level: usize, mut depth: usize, mut parent: u32) {
        let mut leaves = leaves;
        loop {
            if self.levels.len() == level {
                self.levels.push(Level::default());
            }
            let split =
                leaves.iter().position(|leaf| bit(&leaf.halves[0], depth) == 1).unwrap_or(leaves.len());
            let (left, right) = leaves.split_at(split);
            let row = &mut self.levels[level];
            let line = 2 * row.parents.len() as u32;
            row.parents.push(parent);
            let half = |side: &[Line]| if let [leaf] = side { leaf.halves[1] } else { EMPTY };
            row.lines.push(Line { halves: [half(left), half(right)] });
            (level, depth) = (level + 1, depth + 1);
            (leaves, parent) = match (left.len() > 1, right.len() > 1) {
                (true, true) => {
                    self.file(right, level, depth, line + 1);
                    (left, line)
                }
                (true, false) => (left, line),
                (false, true) => (right, line + 1),
                (false, false) => return,
            };
        }
    }

    /// Hashes what waits and hands each bucket's root to `store`.
    pub(crate) fn flush(&mut self, lanes: Lanes, mut store: impl FnMut(Target, &Hash)) {
        for level in (0..self.levels.len()).rev() {
            let (above, rest) = self.levels.split_at_mut(level);
            let row = &mut rest[0];
            if row.lines.is_empty() {
                continue;
            }
            self.hashes.resize(row.lines.len(), [0; 32]);
            lanes.pairs(&row.lines, &mut self.hashes);
            if let Some(above) = above.last_mut() {
                for (&parent, hash) in row.parents.iter().zip(&self.hashes) {
                    above.lines[parent as usize / 2].halves[parent as usize % 2] = *hash;
                }
            } else {
                for (&target, hash) in self.targets.iter().zip(&self.hashes) {
                    store(target, hash);
                }
            }
            row.lines.clear();
            row.parents.clear();
        }
        self.targets.clear();
    }
}
