//! What a batch replaced, so that it can be taken back.

use std::sync::{Arc, Mutex, PoisonError};

use crate::arena::Line;

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
    /// Ascending by key hash: key hash, former leaf hash (empty: the key was new).
    pub(crate) replaced: Vec<Line>,
    pub(crate) spares: Arc<Spares>,
}

impl Undo {
    /// The number of keys that the batch changed.
    pub fn len(&self) -> usize {
        self.replaced.len()
    }

    /// Whether the batch changed nothing.
    pub fn is_empty(&self) -> bool {
        self.replaced.is_empty()
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        self.spares.give_back(std::mem::take(&mut self.replaced));
    }
}

/// How many buffers are kept: one that is filled while the engine drops another.
const SPARES: usize = 2;

/// Buffers of dropped undos. A new buffer is memory from the system, of which every page is cleared when it is
/// first touched; that took a twentieth of the time of a batch.
#[derive(Debug, Default)]
pub(crate) struct Spares(Mutex<Vec<Vec<Line>>>);

impl Spares {
    /// An empty buffer with room for `len` lines.
    pub(crate) fn take(&self, len: usize) -> Vec<Line> {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut lines = spare.unwrap_or_default();
        lines.reserve_exact(len);
        lines
    }

    fn give_back(&self, mut lines: Vec<Line>) {
        lines.clear();
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spares.len() < SPARES && lines.capacity() > 0 {
            spares.push(lines);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spares.iter().map(|lines| lines.capacity() * size_of::<Line>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_of_a_dropped_undo_is_used_again() {
        let spares = Arc::new(Spares::default());
        let mut undo = Undo { replaced: spares.take(100), spares: Arc::clone(&spares) };
        undo.replaced.push(Line::ZERO);
        let start = undo.replaced.as_ptr();
        let copies = [undo.clone(), undo.clone(), undo.clone()];
        drop(undo);
        assert_eq!(spares.bytes(), 6400);
        let again = spares.take(50);
        assert_eq!((again.as_ptr(), again.len()), (start, 0));
        drop(copies);
        assert_eq!(spares.bytes(), 2 * 64, "no more than two are kept");
    }
}
