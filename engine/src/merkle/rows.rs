//! The part of a tree that a snapshot kept, opened around the keys of a proof.
//!
//! Row by row from the root: below every node on the way to a key the next row is read, all keys together, so that no read
//! waits for another key's. What is between the nodes that were read and not opened are single leaves: their keys are read
//! from the leaf entries, and their values from the state at the block. That is all a proof needs, and the root that
//! follows from it is compared with the recorded one before anything is believed.
//!
//! Reads are planned first and fetched together, as in [`multi_get`](crate::read::multi_get), and split between workers where
//! the caller asks for it.

use icecore_hot::{Entry, KeyHash, PartialTree, value_hash};
use icecore_segments::step::BlockNumber;

use crate::domain::DomainId;
use crate::error::Error;
use crate::memtable::node_key::{NodeKey, ROW_SPACING, decode_preimage, hash_of_leaf, place_of_row};
use crate::merkle::leaves::{Asked, Leaves, Paths, ProofCost, ProofSource};
use crate::merkle::parallel::in_runs;
use crate::merkle::prefetch;
use crate::merkle::span::Span;
use crate::options::Config;
use crate::read::read_state::ReadState;
use crate::read::scan::MergeScan;
use crate::read::scan_range::Scan;
use crate::stats::Counters;

/// Runs of work for each worker: more than one, so that an uneven split does not leave one waiting.
const RUNS_PER_WORKER: usize = 4;

/// The rows of one snapshot.
pub(crate) struct Rows<'v> {
    version: &'v ReadState,
    config: &'v Config,
    counters: &'v Counters,
    at: BlockNumber,
    workers: usize,
    nodes: DomainId,
    root: Option<[u8; 32]>,
}

/// A subtree of two leaves at least, known by its hash.
struct Inner {
    key: KeyHash,
    depth: usize,
    hash: [u8; 32],
}

/// The key that a leaf stands for.
struct LeafPreimage {
    hash: KeyHash,
    domain: DomainId,
    key: Vec<u8>,
}

impl<'v> Rows<'v> {
    /// The rows of the block whose state is that at `at`; `None` when it is no snapshot, or its nodes are not there yet.
    pub(crate) fn of(
        version: &'v ReadState,
        config: &'v Config,
        counters: &'v Counters,
        at: BlockNumber,
        workers: usize,
    ) -> Result<Option<Self>, Error> {
        let Some(nodes) = config.nodes() else { return Ok(None) };
        let (height, _) = version.newest_root(at)?;
        let found = version.find(nodes, NodeKey::ROOT.as_bytes(), at, counters.mine())?;
        let Some(((block, root), _)) = found else { return Ok(None) };
        if block != height {
            return Ok(None);
        }
        let root = root.map(TryInto::try_into).transpose().map_err(|_| Error::SnapshotDamaged { block })?;
        Ok(Some(Self { version, config, counters, at, workers, nodes, root }))
    }

    /// The paths of keys that are there and of keys that are not.
    ///
    /// # Errors
    /// [`Error::RootMismatch`] when the rows do not have the recorded root.
    pub(crate) fn paths(&self, asked: &[Asked<'_>]) -> Result<Paths, Error> {
        let mut leaves = Leaves::default();
        let mut cost = ProofCost { source: ProofSource::Snapshot, reads: 1, entries: 1 };
        let keys: Vec<_> = asked.iter().map(|asked| (asked.id, asked.stored)).collect();
        let mut targets = Vec::with_capacity(asked.len());
        for (asked, value) in asked.iter().zip(self.values(&keys, &mut cost)?) {
            if let Some(value) = value {
                targets.push(asked.hash);
                leaves.push(asked.hash, asked.entry(value));
            } else {
                targets.extend(self.neighbours(&asked.hash, &mut cost)?);
            }
        }
        leaves.order();
        targets.sort_unstable();
        targets.dedup();
        let tree = self.open(&targets, &mut leaves, &mut cost)?;
        let hashes: Vec<KeyHash> = asked.iter().map(|asked| asked.hash).collect();
        let (root, paths) = tree.prove(&hashes);
        self.version.check_root(self.at, root)?;
        let paths: Option<Vec<_>> = paths.into_iter().collect();
        let paths = paths.ok_or(Error::SnapshotDamaged { block: self.at })?;
        Ok(Paths { of_keys: paths, leaves, cost })
    }

    /// The leaves next to a key that is absent.
    fn neighbours(&self, key: &KeyHash, cost: &mut ProofCost) -> Result<Vec<KeyHash>, Error> {
        let below = Span { last: *key, ..Span::ALL }.leaves().backward();
        let above = Span { first: *key, ..Span::ALL }.leaves();
        let mut found = Vec::new();
        for scan in [below, above] {
            let entry = MergeScan::new(self.version, self.nodes, &scan, self.at)?.next().transpose()?;
            found.extend(entry.and_then(|(key, _)| hash_of_leaf(&key)));
            cost.reads += 1;
        }
        cost.entries += found.len() as u64;
        Ok(found)
    }

    /// Opens the tree down to the leaves of `targets`, which ascend. `known` has the leaves whose values are known, and gets
    /// the others.
    fn open(
        &self,
        targets: &[KeyHash],
        known: &mut Leaves,
        cost: &mut ProofCost,
    ) -> Result<PartialTree, Error> {
        let root = self.root.map(|hash| Inner { key: KeyHash([0; 32]), depth: 0, hash });
        let mut frontier: Vec<Inner> = root.into_iter().collect();
        for depth in (0..256).step_by(ROW_SPACING) {
            if !self.open_row(depth, &mut frontier, targets, cost)? {
                break;
            }
        }
        let preimages = self.preimages(&self.cut(gaps(&frontier), targets), cost)?;
        self.add_values(preimages, known, cost)?;
        Ok(assemble(&frontier, known))
    }

    /// Replaces the nodes at `depth` that have a target below them by the row below; `false` when there are none.
    fn open_row(
        &self,
        depth: usize,
        frontier: &mut Vec<Inner>,
        targets: &[KeyHash],
        cost: &mut ProofCost,
    ) -> Result<bool, Error> {
        let is_open =
            |inner: &Inner| inner.depth == depth && has_target(&Span::below(depth, &inner.key), targets);
        let (opened, closed): (Vec<Inner>, Vec<Inner>) = frontier.drain(..).partition(is_open);
        if opened.is_empty() {
            *frontier = closed;
            return Ok(false);
        }
        let next = depth + ROW_SPACING;
        let run_max = opened.len().div_ceil(self.workers * RUNS_PER_WORKER);
        let spans = runs(&opened, &closed, if self.workers == 1 { usize::MAX } else { run_max });
        let scans: Vec<Scan> = spans.iter().map(|span| span.row(next)).collect();
        let found = self.read(&scans, cost, |key, value| {
            let hash = value.try_into().ok()?;
            Some(Inner { key: place_of_row(next, key)?, depth: next, hash })
        })?;
        *frontier = closed;
        frontier.extend(found);
        frontier.sort_unstable_by_key(|inner| inner.key);
        Ok(true)
    }

    /// The keys of the leaves in these spans, ascending.
    fn preimages(&self, spans: &[Span], cost: &mut ProofCost) -> Result<Vec<LeafPreimage>, Error> {
        let scans: Vec<Scan> = spans.iter().map(Span::leaves).collect();
        self.read(&scans, cost, |key, value| {
            let (domain, preimage) = decode_preimage(value)?;
            Some(LeafPreimage { hash: hash_of_leaf(key)?, domain, key: preimage.to_vec() })
        })
    }

    /// Looks up the values of the leaves that are not known, and adds them.
    fn add_values(
        &self,
        preimages: Vec<LeafPreimage>,
        known: &mut Leaves,
        cost: &mut ProofCost,
    ) -> Result<(), Error> {
        let new: Vec<LeafPreimage> =
            preimages.into_iter().filter(|preimage| known.get(&preimage.hash).is_none()).collect();
        let asked: Vec<(DomainId, &[u8])> =
            new.iter().map(|preimage| (preimage.domain, &preimage.key[..])).collect();
        let values = self.values(&asked, cost)?;
        for (preimage, value) in new.iter().zip(values) {
            // A leaf without a value is none: the root will tell.
            let domain = self.config.domains.get(preimage.domain.index());
            if let (Some(value), Some(domain)) = (value, domain) {
                let entry = Entry { domain: domain.name.clone(), key: preimage.key.clone(), value };
                known.push(preimage.hash, entry);
            }
        }
        known.order();
        Ok(())
    }

    /// The values of keys at the block, in the order asked.
    fn values(
        &self,
        asked: &[(DomainId, &[u8])],
        cost: &mut ProofCost,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let mut values = vec![None; asked.len()];
        // Bytes from disk may name a domain that there is not.
        let is_declared = |at: &usize| self.config.declared_domain(asked[*at].0).is_some();
        let mut places: Vec<usize> = (0..asked.len()).filter(is_declared).collect();
        // So that a worker has keys of one domain, or of few.
        places.sort_by_key(|&at| asked[at].0);
        let keys: Vec<(DomainId, &[u8])> = places.iter().map(|&at| asked[at]).collect();
        let found = in_runs(self.workers, &keys, |keys| {
            self.version.multi_get_across(keys, self.at, self.counters.mine())
        })?;
        for (place, value) in places.into_iter().zip(found) {
            values[place] = value;
        }
        cost.reads += asked.len() as u64;
        cost.entries += values.iter().flatten().count() as u64;
        Ok(values)
    }

    /// Cuts long gaps where the work of one worker ends and that of the next begins.
    fn cut(&self, gaps: Vec<Span>, targets: &[KeyHash]) -> Vec<Span> {
        if self.workers == 1 {
            return gaps;
        }
        let run = targets.len().div_ceil(self.workers * RUNS_PER_WORKER).max(1);
        let mut boundaries = targets.iter().step_by(run).peekable();
        let mut out = Vec::with_capacity(gaps.len());
        for mut gap in gaps {
            while let Some(boundary) = boundaries.next_if(|boundary| **boundary <= gap.last) {
                if *boundary > gap.first {
                    out.push(Span { last: before(boundary), ..gap });
                    gap.first = *boundary;
                }
            }
            out.push(gap);
        }
        out
    }

    /// Reads ranges of the domain in order; what `decode` does not know is left out, and the root will tell.
    fn read<T: Send>(
        &self,
        scans: &[Scan],
        cost: &mut ProofCost,
        decode: impl Fn(&[u8], &[u8]) -> Option<T> + Sync,
    ) -> Result<Vec<T>, Error> {
        let found = in_runs(self.workers, scans, |scans| {
            prefetch::request(self.version, self.nodes, scans, self.at)?;
            let mut found = Vec::new();
            for scan in scans {
                for entry in MergeScan::new(self.version, self.nodes, scan, self.at)? {
                    let (key, value) = entry?;
                    found.extend(decode(&key, &value));
                }
            }
            Ok(found)
        })?;
        cost.reads += scans.len() as u64;
        cost.entries += found.len() as u64;
        Ok(found)
    }
}

fn has_target(span: &Span, targets: &[KeyHash]) -> bool {
    let at = targets.partition_point(|target| *target < span.first);
    targets.get(at).is_some_and(|target| span.contains(target))
}

/// Joins opened nodes that no closed one is between, up to `len_max` of them: their rows are read in one go.
fn runs(opened: &[Inner], closed: &[Inner], len_max: usize) -> Vec<Span> {
    let mut out: Vec<(Span, usize)> = Vec::new();
    let mut closed = closed.iter().peekable();
    for inner in opened {
        let span = Span::below(inner.depth, &inner.key);
        let mut is_alone = false;
        while closed.next_if(|closed| closed.key < span.first).is_some() {
            is_alone = true;
        }
        match out.last_mut() {
            Some((last, len)) if !is_alone && *len < len_max => (last.last, *len) = (span.last, *len + 1),
            _ => out.push((span, 1)),
        }
    }
    out.into_iter().map(|(span, _)| span).collect()
}

/// What is before, between and after subtrees: there is no inner node, so at most a leaf in each place.
fn gaps(frontier: &[Inner]) -> Vec<Span> {
    let mut out = Vec::new();
    let mut first = Some(Span::ALL.first);
    for inner in frontier {
        let span = Span::below(inner.depth, &inner.key);
        if let Some(first) = first.filter(|first| *first < span.first) {
            out.push(Span { first, last: before(&span.first) });
        }
        first = after(&span.last);
    }
    out.extend(first.map(|first| Span { first, last: Span::ALL.last }));
    out
}

/// The greatest key hash below one that is not the least.
fn before(key: &KeyHash) -> KeyHash {
    let mut out = key.0;
    for byte in out.iter_mut().rev() {
        let borrows = *byte == 0;
        *byte = byte.wrapping_sub(1);
        if !borrows {
            break;
        }
    }
    KeyHash(out)
}

/// The least key hash above one, if there is any.
fn after(key: &KeyHash) -> Option<KeyHash> {
    let mut out = key.0;
    for byte in out.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return Some(KeyHash(out));
        }
    }
    None
}

/// Puts subtrees and leaves together in order.
fn assemble(frontier: &[Inner], leaves: &Leaves) -> PartialTree {
    let mut tree = PartialTree::new();
    let mut inner = frontier.iter().peekable();
    for (hash, entry) in leaves.iter() {
        while let Some(inner) = inner.next_if(|inner| inner.key < *hash) {
            tree.push_inner(inner.key, inner.depth, inner.hash);
        }
        tree.push_leaf(*hash, &value_hash(&entry.value));
    }
    inner.for_each(|inner| tree.push_inner(inner.key, inner.depth, inner.hash));
    tree
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(bytes: [u8; 2]) -> KeyHash {
        let mut hash = [0; 32];
        hash[..2].copy_from_slice(&bytes);
        KeyHash(hash)
    }

    fn inner(first: u8, depth: usize) -> Inner {
        Inner { key: hash([first, 0]), depth, hash: [1; 32] }
    }

    #[test]
    fn gaps_are_what_no_subtree_covers() {
        assert_eq!(gaps(&[]), [Span::ALL]);
        assert_eq!(gaps(&[inner(0, 0)]), []);
        let found = gaps(&[inner(0x10, 4), inner(0x20, 4), inner(0x40, 8)]);
        let last = |first| Span::below(8, &hash([first, 0])).last;
        assert_eq!(
            found,
            [
                Span { first: hash([0, 0]), last: last(0x0F) },
                Span { first: hash([0x30, 0]), last: last(0x3F) },
                Span { first: hash([0x41, 0]), last: last(0xFF) },
            ]
        );
        assert_eq!(gaps(&[inner(0xF0, 4)]).len(), 1);
        assert_eq!((before(&hash([1, 0])), after(&last(0xFF))), (last(0), None));
    }

    #[test]
    fn neighbouring_rows_are_read_in_one_go() {
        let opened = [inner(0x10, 4), inner(0x20, 4), inner(0x40, 4), inner(0x60, 4)];
        let firsts = |closed: &[Inner], max| -> Vec<u8> {
            runs(&opened, closed, max).iter().map(|span| span.first.0[0]).collect()
        };
        assert_eq!(firsts(&[], usize::MAX), [0x10]);
        assert_eq!(firsts(&[inner(0x30, 4)], usize::MAX), [0x10, 0x40]);
        assert_eq!(firsts(&[], 2), [0x10, 0x40]);
    }
}
