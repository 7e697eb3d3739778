//! A made-up chain: the same blocks on every machine, and a plain map of all versions to compare answers with.

use std::collections::BTreeMap;

/// The domains of the chain.
pub(crate) const DOMAINS: [&str; 2] = ["accounts", "storage"];
/// Blocks that are made.
pub(crate) const BLOCKS: u64 = 4096;
/// Changes of a block.
const CHANGES: u64 = 48;
/// Distinct accounts and distinct contracts.
const ACCOUNTS: u64 = 20_000;
const CONTRACTS: u64 = 1_500;
/// Slots of a contract.
const SLOTS: u64 = 40;
/// The account that the demo follows, and how often it changes.
pub(crate) const HERO: &str = "alice";
const HERO_EVERY: u64 = 97;

/// One change: domain, key, value or deletion.
pub(crate) type Change = (&'static str, Vec<u8>, Option<Vec<u8>>);

/// The versions of a key, oldest first.
type Versions = Vec<(u64, Option<Vec<u8>>)>;

/// `SplitMix64` of Steele, Lea and Flood, 2014: one addition and three mixing steps a number.
pub(crate) struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A number below `end`, small ones far more often: few keys are hot, most are cold.
    fn skewed(&mut self, end: u64) -> u64 {
        let unit = self.below(1 << 20) as f64 / f64::from(1 << 20);
        (unit.powi(3) * end as f64) as u64
    }
}

/// Makes blocks and remembers every version.
pub(crate) struct Chain {
    random: Random,
    versions: BTreeMap<(&'static str, Vec<u8>), Versions>,
}

impl Chain {
    /// No block yet.
    pub(crate) fn new() -> Self {
        Self { random: Random::new(2015), versions: BTreeMap::new() }
    }

    /// The changes of the next block, which must be the one after the last.
    pub(crate) fn block(&mut self, height: u64) -> Vec<Change> {
        let mut changes: Vec<Change> = (0..CHANGES).map(|_| self.change()).collect();
        if height % HERO_EVERY == 5 {
            let value = format!("{} coins", 1000 + 7 * height);
            changes.push((DOMAINS[0], HERO.into(), Some(value.into_bytes())));
        }
        for (domain, key, value) in &changes {
            let versions = self.versions.entry((domain, key.clone())).or_default();
            // The last write of a block is the one that counts.
            versions.retain(|(block, _)| *block != height);
            versions.push((height, value.clone()));
        }
        changes
    }

    fn change(&mut self) -> Change {
        let random = &mut self.random;
        let is_gone = random.below(100) < 3;
        if random.below(3) == 0 {
            let key = format!("user/{:05}", random.skewed(ACCOUNTS)).into_bytes();
            let value = format!("{} coins", random.below(1_000_000)).into_bytes();
            return (DOMAINS[0], key, (!is_gone).then_some(value));
        }
        let contract = random.skewed(CONTRACTS);
        let mut key = Vec::with_capacity(52);
        let mut address = Random::new(contract);
        (0..3).for_each(|_| key.extend(address.next().to_le_bytes()));
        key.truncate(20);
        key.extend([0; 30]);
        let slot = random.skewed(SLOTS) as u16;
        key.extend([(slot >> 8) as u8, slot as u8]);
        let value = [[0; 24].as_slice(), &random.next().to_le_bytes()].concat();
        (DOMAINS[1], key, (!is_gone).then_some(value))
    }

    /// The value of a key at a height, from the plain map.
    pub(crate) fn at(&self, question: &Question) -> Option<&[u8]> {
        let versions = self.versions.get(&(question.domain, question.key.clone()))?;
        versions.iter().rev().find(|(block, _)| *block <= question.height)?.1.as_deref()
    }

    /// Random keys that have been written, each at a random height.
    pub(crate) fn questions(&self, count: usize) -> Vec<Question> {
        let mut random = Random::new(7);
        let keys: Vec<_> = self.versions.keys().collect();
        (0..count)
            .map(|_| {
                let (domain, key) = keys[random.below(keys.len() as u64) as usize];
                Question { domain, key: key.clone(), height: 1 + random.below(BLOCKS) }
            })
            .collect()
    }
}

/// What was `key` at `height`?
pub(crate) struct Question {
    pub(crate) domain: &'static str,
    pub(crate) key: Vec<u8>,
    pub(crate) height: u64,
}
