//! A stream of blocks: many versions per key, deletions, hot and cold keys, several domains, any number of blocks.
//!
//! Of 100 changes in a domain, 40 go to its 16 hottest keys, 40 to its hottest hundredth and 20 to any of its keys, so some
//! keys have a version in nearly every block and most have one or none. Only a key that exists is deleted, and a
//! deleted key comes back when it is drawn again. Within a block each key changes at most once, and changes
//! come ascending by (domain, key).
//!
//! Height, keys and values are functions of the options alone; the same options give the same blocks, and more blocks
//! give the same first ones.
//!
//! Memory: one block, and one bit for each key of each domain; the number of blocks does not matter.

use super::{SplitMix64, mix};

/// What a stream of blocks is made of.
#[derive(Clone, Debug)]
pub struct BlockOptions {
    /// Another seed gives other keys and other values.
    pub seed: u64,
    /// The height of the first block.
    pub first_height: u64,
    /// How many blocks there are.
    pub blocks: u64,
    /// How many changes are drawn for a block. It has fewer where a key is drawn twice.
    pub changes_per_block: u64,
    /// Of 100 changes to a key that exists, how many delete it.
    pub deletions_percent: u64,
    /// Whether one block in 16 is empty, and after one in 16 up to three heights are skipped.
    pub irregular: bool,
    /// The domains, ascending by name if the changes are to come in that order too.
    pub domains: Vec<DomainOptions>,
}

/// One domain of a stream.
#[derive(Clone, Debug)]
pub struct DomainOptions {
    /// The name of the domain.
    pub name: String,
    /// How many different keys it can have.
    pub keys: u64,
    /// Its part of the changes, in proportion to the sum over the domains.
    pub weight: u64,
    /// What its keys look like.
    pub key: KeyShape,
    /// What its values look like.
    pub value: ValueShape,
}

/// What the keys of a domain look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyShape {
    /// 20 random bytes.
    Address,
    /// 20 bytes of address, shared by up to 64 keys, and 32 bytes of slot, half of which differ in the last byte only.
    Slot,
    /// `account/` and six digits: readable, and with prefixes worth listing.
    Text,
}

/// What the values of a domain look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueShape {
    /// A number of up to nine bytes, big-endian, without leading zeros.
    Number,
    /// Random bytes; every length from `min` to `max` is as likely.
    Bytes {
        /// The shortest, in bytes.
        min: usize,
        /// The longest, in bytes.
        max: usize,
    },
    /// Readable: a balance that says at which height it was written.
    Text,
}

impl BlockOptions {
    /// Three domains as a chain has them: `accounts`, `code` (few changes, up to 24 kB each) and `storage`.
    pub fn chain(blocks: u64, changes_per_block: u64) -> Self {
        let domain = |name: &str, keys, weight, key, value| DomainOptions {
            name: name.into(),
            keys,
            weight,
            key,
            value,
        };
        Self {
            seed: 1,
            first_height: 1,
            blocks,
            changes_per_block,
            deletions_percent: 8,
            irregular: false,
            domains: vec![
                domain("accounts", 50_000, 300, KeyShape::Address, ValueShape::Number),
                domain("code", 2_000, 1, KeyShape::Address, ValueShape::Bytes { min: 0, max: 24_576 }),
                domain("storage", 400_000, 700, KeyShape::Slot, ValueShape::Bytes { min: 1, max: 32 }),
            ],
        }
    }

    /// One domain, `kv`, whose keys and values can be read: what a demonstration shows.
    pub fn text(blocks: u64, changes_per_block: u64) -> Self {
        let (name, key, value) = ("kv".into(), KeyShape::Text, ValueShape::Text);
        let domains = vec![DomainOptions { name, keys: 20_000, weight: 1, key, value }];
        Self { domains, ..Self::chain(blocks, changes_per_block) }
    }

    /// Begins the stream.
    ///
    /// # Panics
    /// If there is no domain, or one without keys or weight.
    pub fn stream(&self) -> Blocks {
        let sound = self.domains.iter().all(|domain| domain.keys > 0 && domain.weight > 0);
        assert!(
            sound && !self.domains.is_empty(),
            "a stream has domains, and a domain has keys and a weight"
        );
        let words = |keys: u64| vec![0u64; keys.div_ceil(64) as usize];
        Blocks {
            live: self.domains.iter().map(|domain| words(domain.keys)).collect(),
            random: SplitMix64::new(self.seed),
            height: self.first_height,
            left: self.blocks,
            options: self.clone(),
        }
    }
}

/// One block of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The height: rises strictly along the stream.
    pub height: u64,
    /// What the block changes, each key at most once.
    pub changes: Vec<Change>,
}

/// One change of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The place of the domain in [`BlockOptions::domains`].
    pub domain: usize,
    /// The key inside the domain.
    pub key: Vec<u8>,
    /// The new value; `None` deletes the key.
    pub value: Option<Vec<u8>>,
}

/// Walks a stream. Made by [`BlockOptions::stream`].
#[derive(Clone, Debug)]
pub struct Blocks {
    options: BlockOptions,
    random: SplitMix64,
    height: u64,
    left: u64,
    /// For each domain one bit per key: whether it exists.
    live: Vec<Vec<u64>>,
}

impl Iterator for Blocks {
    type Item = Block;

    fn next(&mut self) -> Option<Block> {
        self.left = self.left.checked_sub(1)?;
        let height = self.height;
        let (empty, skipped) = match self.random.below(16) {
            0 if self.options.irregular => (true, 0),
            1 if self.options.irregular => (false, 1 + self.random.below(3)),
            _ => (false, 0),
        };
        self.height += 1 + skipped;
        let mut drawn: Vec<(usize, Vec<u8>, u64)> = Vec::new();
        for _ in 0..if empty { 0 } else { self.options.changes_per_block } {
            let (domain, number) = self.draw_key();
            drawn.push((domain, self.options.key(domain, number), number));
        }
        drawn.sort_unstable();
        drawn.dedup();
        let mut changes = Vec::with_capacity(drawn.len());
        for (domain, key, number) in drawn {
            let value = self.draw_value(height, domain, number);
            changes.push(Change { domain, key, value });
        }
        Some(Block { height, changes })
    }
}

impl Blocks {
    fn draw_key(&mut self) -> (usize, u64) {
        let total: u64 = self.options.domains.iter().map(|domain| domain.weight).sum();
        let mut point = self.random.below(total);
        let domain = self.options.domains.iter().position(|domain| {
            let found = point < domain.weight;
            point = point.saturating_sub(domain.weight);
            found
        });
        let domain = domain.expect("the point is below the sum of the weights");
        let keys = self.options.domains[domain].keys;
        let among = match self.random.below(100) {
            0..40 => keys.min(16),
            40..80 => (keys / 100).max(1),
            _ => keys,
        };
        (domain, self.random.below(among))
    }

    fn draw_value(&mut self, height: u64, domain: usize, number: u64) -> Option<Vec<u8>> {
        let word = &mut self.live[domain][(number / 64) as usize];
        let bit = 1 << (number % 64);
        if *word & bit != 0 && self.random.below(100) < self.options.deletions_percent {
            *word &= !bit;
            return None;
        }
        *word |= bit;
        Some(self.options.domains[domain].value.draw(&mut self.random, height))
    }
}

impl BlockOptions {
    /// The key with a given number in a domain: the same in every stream of the seed.
    pub fn key(&self, domain: usize, number: u64) -> Vec<u8> {
        let seeded = |what: u64| SplitMix64::new(mix(self.seed ^ mix(domain as u64 + 1)) ^ mix(what));
        match self.domains[domain].key {
            KeyShape::Address => {
                let mut key = vec![0; 20];
                seeded(number).fill(&mut key);
                key
            }
            KeyShape::Slot => {
                let mut key = vec![0; 52];
                seeded(number / 64).fill(&mut key[..20]);
                if number.is_multiple_of(2) {
                    key[51] = (number % 64) as u8;
                } else {
                    seeded(!number).fill(&mut key[20..]);
                }
                key
            }
            KeyShape::Text => format!("account/{number:06}").into_bytes(),
        }
    }
}

impl ValueShape {
    fn draw(self, random: &mut SplitMix64, height: u64) -> Vec<u8> {
        match self {
            Self::Number => {
                let mut value = vec![0; 1 + random.below(9) as usize];
                random.fill(&mut value);
                value[0] = value[0].max(1);
                value
            }
            Self::Bytes { min, max } => {
                let mut value = vec![0; min + random.below((max - min + 1) as u64) as usize];
                random.fill(&mut value);
                value
            }
            Self::Text => format!("{} coins since block {height}", random.below(1_000_000)).into_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn the_same_options_give_the_same_blocks_and_a_longer_stream_begins_alike() {
        let mut options = BlockOptions { irregular: true, ..BlockOptions::chain(40, 200) };
        let short: Vec<Block> = options.stream().collect();
        options.blocks = 60;
        let long: Vec<Block> = options.stream().collect();
        assert_eq!((short.len(), long.len()), (40, 60));
        assert_eq!(short[..], long[..40]);
        options.seed = 2;
        assert_ne!(options.stream().next(), Some(short[0].clone()));
    }

    #[test]
    fn heights_rise_and_changes_ascend_without_repeats() {
        let options = BlockOptions { irregular: true, first_height: 7, ..BlockOptions::chain(300, 50) };
        let blocks: Vec<Block> = options.stream().collect();
        assert_eq!(blocks[0].height, 7);
        assert!(blocks.windows(2).all(|pair| pair[0].height < pair[1].height));
        assert!(blocks.last().unwrap().height > 7 + 299, "some heights are skipped");
        assert!(blocks.iter().any(|block| block.changes.is_empty()));
        for block in &blocks {
            let keys: Vec<_> = block.changes.iter().map(|change| (change.domain, &change.key)).collect();
            assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }

    #[test]
    fn only_what_exists_is_deleted_and_hot_keys_have_many_versions() {
        let mut live = BTreeSet::new();
        let mut versions: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        let mut deletions = 0;
        for change in BlockOptions::text(200, 100).stream().flat_map(|block| block.changes) {
            *versions.entry(change.key.clone()).or_default() += 1;
            if change.value.is_some() {
                live.insert(change.key);
            } else {
                deletions += 1;
                assert!(live.remove(&change.key));
            }
        }
        assert!(deletions > 500, "{deletions}");
        assert!(*versions.values().max().unwrap() > 180);
        assert!(versions.values().filter(|count| **count == 1).count() > 1000);
    }

    #[test]
    fn keys_of_one_domain_differ() {
        let options = BlockOptions::chain(1, 1);
        for domain in 0..3 {
            let keys: BTreeSet<_> = (0..2000).map(|number| options.key(domain, number)).collect();
            assert_eq!(keys.len(), 2000);
        }
    }
}
