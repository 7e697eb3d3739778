//! Rows of one size: allocated in chunks, so that growing copies nothing, and used again when they are free.

/// Rows of one slab are allocated this many at a time.
const CHUNK_ROWS: usize = 1 << 12;

/// Rows of one type.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Vec<T>>,
    free: Vec<u32>,
}

impl<T: Copy> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), free: Vec::new() }
    }

    #[inline]
    pub(crate) fn get(&self, row: u32) -> &T {
        &self.chunks[row as usize / CHUNK_ROWS][row as usize % CHUNK_ROWS]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, row: u32) -> &mut T {
        &mut self.chunks[row as usize / CHUNK_ROWS][row as usize % CHUNK_ROWS]
    }

    pub(crate) fn add(&mut self, value: T) -> u32 {
        if let Some(row) = self.free.pop() {
            *self.get_mut(row) = value;
            return row;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK_ROWS) {
            self.chunks.push(Vec::with_capacity(CHUNK_ROWS));
        }
        let row = self.rows();
        self.chunks.last_mut().expect("a chunk with room was just added").push(value);
        row
    }

    /// Leaves the row to the next value that is added.
    pub(crate) fn free(&mut self, row: u32) {
        self.free.push(row);
    }

    /// How many rows there are, free ones included.
    pub(crate) fn rows(&self) -> u32 {
        let full = self.chunks.len().saturating_sub(1) * CHUNK_ROWS;
        (full + self.chunks.last().map_or(0, Vec::len)) as u32
    }

    /// How many rows hold something.
    pub(crate) fn used(&self) -> u32 {
        self.rows() - self.free.len() as u32
    }

    /// Bytes of rows that hold something, and of all that is allocated.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        let used = self.used() as usize * size_of::<T>();
        let rows = self.rows() as usize * size_of::<T>() + self.free.capacity() * size_of::<u32>();
        (used, rows + self.chunks.capacity() * size_of::<Vec<T>>())
    }
}
