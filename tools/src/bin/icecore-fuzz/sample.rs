//! Small sound archives of several makes, and what is in them.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::Write as _;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use icecore::storage::Storage;
use icecore::testing::SimStorage;
use icecore::{Archive, Domain, EncodingRule, Maintenance, MergeOptions, OpenOptions, Options, Root};

use crate::tape::Random;

/// Where an archive lives on its disk.
pub(crate) const PATH: &str = "/archive";

/// The declared domains.
pub(crate) const DOMAINS: [&str; 2] = ["kv", "text"];

type Key = (usize, Vec<u8>);

/// A sound archive.
pub(crate) struct Sample {
    pub(crate) files: BTreeMap<PathBuf, Vec<u8>>,
    /// The state at the head, by domain and key, and its root.
    pub(crate) state: BTreeMap<Key, Vec<u8>>,
    pub(crate) root: Root,
    /// Keys that exist at some block, and some that never do.
    pub(crate) keys: Vec<Key>,
}

/// What distinguishes the samples.
#[derive(Clone, Copy)]
struct Make {
    blocks: u64,
    step_len: u64,
    window: u64,
    snapshots: u64,
    changes: u64,
    extras: &'static [Extra],
}

/// What is done with a sample beside writing blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extra {
    Merge,
    Unwind,
    Prune,
    /// Enough text to train a dictionary.
    Texts,
}

const PLAIN: Make = Make { blocks: 14, step_len: 4, window: 2, snapshots: 0, changes: 12, extras: &[] };

/// All of them; built when first asked for.
pub(crate) static SAMPLES: LazyLock<Vec<Sample>> = LazyLock::new(|| {
    let makes = [
        PLAIN,
        Make { extras: &[Extra::Merge, Extra::Unwind], blocks: 22, ..PLAIN },
        Make { snapshots: 3, step_len: 1, blocks: 9, ..PLAIN },
        Make { snapshots: 1, extras: &[Extra::Unwind, Extra::Prune], blocks: 19, ..PLAIN },
        Make { extras: &[Extra::Texts, Extra::Merge], blocks: 9, changes: 60, ..PLAIN },
        Make { window: 100, extras: &[Extra::Unwind], ..PLAIN },
    ];
    let build = |(seed, make): (usize, &Make)| make.build(seed as u64 + 1);
    makes
        .iter()
        .enumerate()
        .map(build)
        .collect::<Result<_, _>>()
        .expect("a sound archive is built without an error")
});

impl Make {
    fn has(&self, extra: Extra) -> bool {
        self.extras.contains(&extra)
    }

    fn build(&self, seed: u64) -> Result<Sample, Box<dyn Error>> {
        let disk = SimStorage::new();
        let zstd = Domain::new(DOMAINS[1]).encoding(EncodingRule::Zstd);
        let options = Options::new().domain(DOMAINS[0]).declare(zstd).blocks_per_step(self.step_len);
        let options = options.reorg_window(self.window).snapshot_period(NonZeroU64::new(self.snapshots));
        let archive = Archive::create_on(Arc::new(disk.clone()), PATH, options, open_options())?;
        let mut history: Vec<(u64, Root, BTreeMap<Key, Vec<u8>>)> = Vec::new();
        let (mut random, mut keys, mut height) = (Random(seed), BTreeSet::new(), 3);
        for number in 0..self.blocks {
            height += if random.next().is_multiple_of(6) { 3 } else { 1 };
            let mut state = history.last().map(|(_, _, state)| state.clone()).unwrap_or_default();
            let mut block = archive.begin(height)?;
            for _ in 0..self.changes {
                let (domain, key, value) = self.change(&mut random);
                keys.insert((domain, key.clone()));
                if let Some(value) = value {
                    block.put(DOMAINS[domain], &key, &value)?;
                    state.insert((domain, key), value);
                } else {
                    block.delete(DOMAINS[domain], &key)?;
                    state.remove(&(domain, key));
                }
            }
            history.push((height, block.commit()?, state));
            if self.has(Extra::Unwind) && number % 7 == 5 {
                // Once within memory, once into segments.
                let back = if number < 7 { 2 } else { 5 };
                history.truncate(history.len() - back);
                height = history.last().ok_or("a block is left")?.0;
                archive.unwind(height, &())?;
            }
        }
        if self.has(Extra::Merge) {
            archive.merge(&MergeOptions::default(), &())?;
        }
        if self.has(Extra::Prune) {
            archive.prune(history[history.len() / 2].0, &())?;
        }
        archive.close()?;
        let mut keys: Vec<Key> = keys.into_iter().collect();
        keys.extend([(0, Vec::new()), (0, b"never".to_vec()), (1, vec![0xFF; 40])]);
        let (_, root, state) = history.pop().ok_or("a block is left")?;
        let files = disk
            .files()
            .into_iter()
            .filter(|(path, _)| !path.ends_with("LOCK") && !path.ends_with("RESERVE"));
        let files = files.map(|(path, _)| (path.clone(), disk.bytes(&path))).collect();
        Ok(Sample { files, state, root, keys })
    }

    /// Hot keys of few bytes, colder ones of 52; short values, and now and then one too large for a page.
    fn change(&self, random: &mut Random) -> (usize, Vec<u8>, Option<Vec<u8>>) {
        let domain = (random.next() % 2) as usize;
        let number = random.next() % 40;
        let key = if number < 10 {
            format!("k{number}").into_bytes()
        } else {
            let mut key = vec![0xA5; 52];
            key[20] = number as u8;
            key[51] = (number / 3) as u8;
            key
        };
        let len = match random.next() % 16 {
            0 => return (domain, key, None),
            1 if !self.has(Extra::Texts) => 1500 + random.next() % 2000,
            _ if self.has(Extra::Texts) && domain == 1 => 700,
            _ => random.next() % 40,
        };
        let words = ["state ", "block ", "ice ", "core ", "archive ", "key "];
        let mut value = Vec::new();
        while (value.len() as u64) < len {
            match random.next() % 8 {
                0 => value.extend(random.next().to_le_bytes()),
                word => value.extend(words[word as usize % words.len()].bytes()),
            }
        }
        (domain, key, Some(value))
    }
}

/// How archives are opened for writing here: without a thread of their own, so that one tape is one run.
pub(crate) fn open_options() -> OpenOptions {
    OpenOptions::new().maintenance(Maintenance::EmitOnly)
}

/// A disk with these files.
pub(crate) fn disk_of(files: &BTreeMap<PathBuf, Vec<u8>>) -> Result<SimStorage, icecore::Error> {
    let disk = SimStorage::new();
    disk.create_dir(&Path::new(PATH).join("wal"))?;
    for (path, bytes) in files {
        let mut file = disk.create(path)?;
        file.write_all(bytes).map_err(|source| icecore::Error::Io {
            operation: icecore::Operation::Write,
            path: path.clone(),
            source,
        })?;
        file.sync()?;
    }
    Ok(disk)
}

impl Sample {
    /// The files with this extension; without one, the manifest.
    pub(crate) fn of_kind(&self, kind: &str) -> Vec<&PathBuf> {
        let is_kind =
            |path: &&PathBuf| path.extension().map_or("", |found| found.to_str().unwrap_or_default()) == kind;
        self.files.keys().filter(is_kind).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }
}
