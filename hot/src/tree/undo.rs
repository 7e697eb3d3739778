//! What a batch replaced, so that it can be taken back.

use std::sync::{Arc, Mutex, PoisonError};

use crate::hash::Line;

/// What one batch replaced: the former leaf of every key that it changed.
///
/// Undoing the batches in reverse order gives back their roots byte for byte. An undo fits only the state that
/// its own batch left; see [`HotTree::undo`](crate::HotTree::undo).
///
/// # Cost
/// 64 bytes per changed key; keys that were written with the value they had are not kept. The memory of an undo
/// that is dropped is used for the next one.
#[derive(Clone, Debug, Default)]
pub struct Undo {
    /// A run of each worker, some of them empty; ascending by key hash, within and from run to run. A line is a
    /// key hash and the former leaf hash (empty: the key was new).
    pub(crate) replaced: Vec<Vec<Line>>,
    pub(crate) spares: Arc<Spares>,
}

impl Undo {
    /// The number of keys that the batch changed.
    pub fn len(&self) -> usize {
        self.replaced.iter().map(Vec::len).sum()
    }

    /// Whether the batch changed nothing.
    pub fn is_empty(&self) -> bool {
        self.replaced.iter().all(Vec::is_empty)
    }

    /// Adds what an older batch replaced: of a key that both changed, that counts.
    pub(crate) fn append(&mut self, mut older: Undo) {
        self.replaced.append(&mut older.replaced);
    }

    /// Copies the lines `from..from + out.len()`, counted through all runs.
    pub(crate) fn copy(&self, mut from: usize, mut out: &mut [Line]) {
        for run in &self.replaced {
            let skipped = from.min(run.len());
            from -= skipped;
            let (head, rest) = out.split_at_mut((run.len() - skipped).min(out.len()));
            head.copy_from_slice(&run[skipped..skipped + head.len()]);
            out = rest;
        }
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        self.spares.give_back(std::mem::take(&mut self.replaced));
    }
}

/// How many sets of buffers are kept: one that is filled while the engine drops another.
const SPARES: usize = 2;

/// Buffers of dropped undos. A new buffer is memory from the system, of which every page is cleared when it is
/// first touched; that took a twentieth of the time of a batch.
#[derive(Debug, Default)]
pub(crate) struct Spares(Mutex<Vec<Vec<Vec<Line>>>>);

impl Spares {
    /// Empty buffers, `count` of them at least.
    pub(crate) fn take(&self, count: usize) -> Vec<Vec<Line>> {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut runs = spare.unwrap_or_default();
        runs.resize_with(runs.len().max(count), Vec::new);
        runs
    }

    fn give_back(&self, mut runs: Vec<Vec<Line>>) {
        runs.iter_mut().for_each(Vec::clear);
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spares.len() < SPARES && runs.iter().any(|run| run.capacity() > 0) {
            spares.push(runs);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spares.iter().flatten().map(|run| run.capacity() * size_of::<Line>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffers_of_a_dropped_undo_are_used_again() {
        let spares = Arc::new(Spares::default());
        let mut undo = Undo { replaced: spares.take(3), spares: Arc::clone(&spares) };
        undo.replaced[1].reserve_exact(100);
        undo.replaced[1].push(Line::ZERO);
        let start = undo.replaced[1].as_ptr();
        let copies = [undo.clone(), undo.clone(), undo.clone()];
        drop(undo);
        assert_eq!(spares.bytes(), 6400);
        let again = spares.take(1);
        assert_eq!((again.len(), again[1].as_ptr(), again[1].len()), (3, start, 0));
        drop(copies);
        assert_eq!(spares.bytes(), 2 * 64, "no more than two sets are kept");
    }

    #[test]
    fn lines_are_counted_through_all_runs() {
        let line = |i: u8| Line { halves: [[i; 32]; 2] };
        let runs = [vec![], vec![line(0), line(1)], vec![], vec![line(2)], vec![line(3), line(4)]];
        let undo = Undo { replaced: runs.into(), spares: Arc::default() };
        for from in 0..5 {
            for end in from..=5 {
                let mut out = vec![line(9); end - from];
                undo.copy(from, &mut out);
                let wanted: Vec<Line> = (from..end).map(|i| line(i as u8)).collect();
                assert_eq!(out, wanted, "{from}..{end}");
            }
        }
    }
}
