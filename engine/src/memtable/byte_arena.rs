//! Bytes that are written once and stay where they are: a few large allocations in place of one for each key and value.

/// The first chunk is this long, later ones as long as all before them.
const CHUNK_LEN_MIN: usize = 1 << 10;
const CHUNK_LEN_MAX: usize = 1 << 20;

/// What is longer has a chunk of its own, so that no more than a small part of a chunk stays free.
const SHARED_LEN_MAX: usize = CHUNK_LEN_MAX / 16;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ByteArena {
    chunks: Vec<Vec<u8>>,
    /// The chunk that is being filled.
    open: usize,
    /// The capacity of all chunks that are filled one after another.
    shared: usize,
}

/// Where bytes begin.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    chunk: u32,
    offset: u32,
}

impl ByteArena {
    /// Keeps bytes, at most 4 GiB.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Place {
        let is_open =
            self.chunks.get(self.open).is_some_and(|open| open.capacity() - open.len() >= bytes.len());
        let chunk = if is_open { self.open } else { self.add_chunk(bytes.len()) };
        let target = &mut self.chunks[chunk];
        let offset = target.len();
        target.extend_from_slice(bytes);
        Place { chunk: chunk as u32, offset: offset as u32 }
    }

    /// Adds a chunk with room for `len` bytes, and returns its number.
    fn add_chunk(&mut self, len: usize) -> usize {
        let chunk = self.chunks.len();
        if len > SHARED_LEN_MAX {
            self.chunks.push(Vec::with_capacity(len));
            return chunk;
        }
        let capacity = self.shared.clamp(CHUNK_LEN_MIN, CHUNK_LEN_MAX).max(len);
        self.chunks.push(Vec::with_capacity(capacity));
        self.shared += capacity;
        self.open = chunk;
        chunk
    }

    /// `len` bytes from `place` on, as they were pushed.
    #[inline]
    pub(super) fn get(&self, place: Place, len: usize) -> &[u8] {
        &self.chunks[place.chunk as usize][place.offset as usize..][..len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_as_they_were_and_chunks_are_full() {
        let mut arena = ByteArena::default();
        let lens = (0..3000).map(|i| [0, 1, 20, 52, 3000, SHARED_LEN_MAX + 1][i * 7 % 6]);
        let kept: Vec<_> = lens.enumerate().map(|(i, len)| vec![i as u8; len]).collect();
        let places: Vec<Place> = kept.iter().map(|bytes| arena.push(bytes)).collect();
        for (bytes, place) in kept.iter().zip(places) {
            assert_eq!(arena.get(place, bytes.len()), bytes);
        }
        let held: usize = kept.iter().map(Vec::len).sum();
        let capacity: usize = arena.chunks.iter().map(Vec::capacity).sum();
        assert!(capacity < held + 2 * CHUNK_LEN_MAX, "{capacity} for {held}");
    }
}
