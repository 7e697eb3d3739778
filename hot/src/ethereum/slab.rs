//! Rows of one size: allocated in chunks, so that growing copies nothing, and used again when they are free. A chunk without rows gives its
//! memory back.

/// Rows of one slab are allocated this many at a time.
const CHUNK_ROWS: usize = 1 << 12;

/// Rows of one type.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Chunk<T>>,
    /// The chunks that have room, the next to be filled last.
    open: Vec<u32>,
    /// How many rows hold something, and how many chunks have memory.
    used: usize,
    allocated: usize,
}

#[derive(Debug)]
struct Chunk<T> {
    rows: Vec<T>,
    /// The rows that hold nothing.
    free: Vec<u16>,
}

impl<T> Chunk<T> {
    fn is_full(&self) -> bool {
        self.rows.len() == CHUNK_ROWS && self.free.is_empty()
    }

    fn has_memory(&self) -> bool {
        self.rows.capacity() > 0
    }
}

impl<T: Copy> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), open: Vec::new(), used: 0, allocated: 0 }
    }

    #[inline]
    pub(crate) fn get(&self, row: u32) -> &T {
        &self.chunks[row as usize / CHUNK_ROWS].rows[row as usize % CHUNK_ROWS]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, row: u32) -> &mut T {
        &mut self.chunks[row as usize / CHUNK_ROWS].rows[row as usize % CHUNK_ROWS]
    }

    pub(crate) fn add(&mut self, value: T) -> u32 {
        let at = self.next_open();
        let chunk = &mut self.chunks[at as usize];
        if !chunk.has_memory() {
            chunk.rows.reserve_exact(CHUNK_ROWS);
            self.allocated += 1;
        }
        let row = if let Some(row) = chunk.free.pop() {
            chunk.rows[usize::from(row)] = value;
            u32::from(row)
        } else {
            chunk.rows.push(value);
            chunk.rows.len() as u32 - 1
        };
        self.used += 1;
        if chunk.is_full() {
            self.open.pop();
        }
        at * CHUNK_ROWS as u32 + row
    }

    /// The chunk that takes the next row, the last of those with room; one without memory only where there is no other.
    fn next_open(&mut self) -> u32 {
        let Some(&last) = self.open.last() else {
            self.chunks.push(Chunk { rows: Vec::new(), free: Vec::new() });
            self.open.push(self.chunks.len() as u32 - 1);
            return self.open[0];
        };
        if !self.chunks[last as usize].has_memory() {
            let end = self.open.len() - 1;
            self.open.swap(0, end);
        }
        self.open[self.open.len() - 1]
    }

    /// Leaves the row to a value that is added.
    pub(crate) fn free(&mut self, row: u32) {
        let at = row / CHUNK_ROWS as u32;
        let chunk = &mut self.chunks[at as usize];
        if chunk.is_full() {
            self.open.push(at);
        }
        chunk.free.push((row as usize % CHUNK_ROWS) as u16);
        self.used -= 1;
        // One chunk keeps its memory: where there are few rows they come and go.
        if chunk.free.len() == chunk.rows.len() && self.open.len() > 1 {
            *chunk = Chunk { rows: Vec::new(), free: Vec::new() };
            self.allocated -= 1;
        }
    }

    /// How many rows there are names for so far, free ones included.
    pub(crate) fn rows(&self) -> u32 {
        (self.chunks.len() * CHUNK_ROWS) as u32
    }

    /// How many rows hold something.
    pub(crate) fn used(&self) -> u32 {
        self.used as u32
    }

    /// Bytes of rows that hold something, and of all that is allocated.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        let free = (self.allocated * CHUNK_ROWS - self.used) * size_of::<u16>();
        let rows = self.allocated * CHUNK_ROWS * size_of::<T>() + free;
        (self.used * size_of::<T>(), rows + self.chunks.capacity() * size_of::<Chunk<T>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_used_again_and_empty_chunks_have_no_memory() {
        let (mut slab, chunk) = (Slab::new(), CHUNK_ROWS as u32);
        let rows: Vec<u32> = (0..5 * chunk).map(|value| slab.add(value)).collect();
        assert_eq!(rows, (0..5 * chunk).collect::<Vec<u32>>());
        assert_eq!((slab.used(), slab.allocated, slab.open.len()), (5 * chunk, 5, 0));
        // Every other row of the first chunk, and all of the three in the middle.
        (0..chunk).step_by(2).chain(chunk..4 * chunk).for_each(|row| slab.free(row));
        assert_eq!((slab.used(), slab.allocated, slab.open.len()), (chunk + chunk / 2, 2, 4));
        assert!((1..chunk).step_by(2).chain(4 * chunk..5 * chunk).all(|row| *slab.get(row) == row));
        // The gaps are filled before a chunk gets memory again.
        let mut added: Vec<u32> = (0..chunk / 2).map(|value| slab.add(value)).collect();
        added.sort_unstable();
        assert_eq!(added, (0..chunk).step_by(2).collect::<Vec<u32>>());
        assert_eq!(slab.allocated, 2);
        let next = slab.add(7);
        assert!((chunk..4 * chunk).contains(&next) && *slab.get(next) == 7);
        assert_eq!((slab.allocated, slab.rows()), (3, 5 * chunk));
        // A row that comes and goes does not give the memory of its chunk back each time where there is no other.
        let mut few = Slab::new();
        for value in 0..10_u32 {
            let row = few.add(value);
            few.free(row);
            assert_eq!((row, few.allocated, few.used()), (0, 1, 0));
        }
    }
}
