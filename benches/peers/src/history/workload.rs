//! The blocks that change the key, and the queries about them.

use icecore_tools::workload::{SplitMix64, mix};

/// The key, as long as an address.
pub(super) const KEY: [u8; 20] = *b"an account, any one.";

/// The most blocks from one change to the next; the fewest is 1.
const GAP_MAX: u64 = 20;

/// How many queries there are.
const QUERIES: usize = 1024;

const SEED: u64 = 0x4849_5354;

/// What every store of one size holds and is asked.
pub(super) struct Workload {
    /// Ascending.
    pub(super) blocks: Vec<u64>,
    /// A block, and whether it changed the key.
    pub(super) queries: Vec<(u64, bool)>,
}

impl Workload {
    pub(super) fn new(changes: u64) -> Self {
        let mut next = 0;
        let blocks: Vec<u64> = (0..changes)
            .map(|_| {
                next += gap(next);
                next
            })
            .collect();
        let mut random = SplitMix64::new(SEED);
        let queries = (0..QUERIES)
            .map(|number| {
                let changed = blocks[random.below(changes) as usize];
                let block =
                    if number % 2 == 0 { changed } else { blocks[0] + random.below(next - blocks[0]) };
                (block, blocks.binary_search(&block).is_ok())
            })
            .collect();
        Self { blocks, queries }
    }

    /// How far the change after that of a block is.
    pub(super) fn gap_after(&self, block: u64) -> u64 {
        gap(block)
    }
}

fn gap(block: u64) -> u64 {
    1 + mix(block ^ SEED) % GAP_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_ten_on_average_and_half_of_the_queries_hit() {
        let workload = Workload::new(50_000);
        assert!(workload.blocks.windows(2).all(|pair| pair[0] < pair[1] && pair[1] - pair[0] <= GAP_MAX));
        let mean = workload.blocks[49_999] as f64 / 50_000.0;
        assert!((10.0..11.0).contains(&mean), "{mean}");
        let hits = workload.queries.iter().filter(|(_, is_change)| *is_change).count();
        assert!((QUERIES / 2..QUERIES * 5 / 8).contains(&hits), "{hits}");
    }
}
