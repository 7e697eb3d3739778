//! Following a chain that reorganises: find the last block in common with the node, unwind to it, commit what the node has now.
//!
//! `cargo run -p icecore --example follow_reorgs`

use std::error::Error;

use icecore::{Archive, OpenOptions, Options, Root};

/// A block as a node gives it: its hash stands for everything in it and before it.
struct Block {
    hash: u64,
    changes: Vec<(String, u64)>,
}

/// The node: the chain that it holds for the right one now, by height.
#[derive(Default)]
struct Node {
    chain: Vec<Block>,
}

impl Node {
    /// Adds a block of a branch.
    fn extend(&mut self, branch: u64) {
        let height = self.chain.len() as u64;
        let changes = vec![(format!("account {}", height % 3), 100 * branch + height)];
        self.chain.push(Block { hash: 1000 * branch + height, changes });
    }

    fn hash_at(&self, height: u64) -> Option<u64> {
        self.chain.get(height as usize).map(|block| block.hash)
    }
}

/// The hash of the block at `height` in the archive, which keeps it as a key of its own.
fn hash_at(archive: &Archive, height: u64) -> Result<Option<u64>, icecore::Error> {
    let hash = archive.at(height)?.get("chain", b"hash")?;
    Ok(hash.and_then(|hash| Some(u64::from_le_bytes(hash.try_into().ok()?))))
}

/// Brings the archive to where the node is. Returns how many blocks were given up.
fn follow(archive: &Archive, node: &Node) -> Result<u64, icecore::Error> {
    // How many blocks the archive has, and how many of them the node has too.
    let had = archive.reader().head().map_or(0, |head| head + 1);
    let mut common = had;
    while 0 < common && hash_at(archive, common - 1)? != node.hash_at(common - 1) {
        common -= 1;
    }
    assert!(0 < common || had == 0, "the node follows another chain");
    if common < had {
        // Cheap as long as these blocks are in the reorg window; deeper, the segments that have them are rewritten.
        archive.unwind(common - 1, &())?;
    }
    for (height, block) in (common..).zip(&node.chain[common as usize..]) {
        let mut writer = archive.begin(height)?;
        writer.put("chain", b"hash", &block.hash.to_le_bytes())?;
        for (account, balance) in &block.changes {
            writer.put("balances", account.as_bytes(), &balance.to_le_bytes())?;
        }
        writer.commit()?;
    }
    Ok(had - common)
}

/// The root that an archive has that never saw anything but this chain.
fn root_of(node: &Node) -> Result<Root, Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let archive = Archive::create(dir.path().join("fresh.ice"), options())?;
    follow(&archive, node)?;
    Ok(archive.reader().latest()?.root()?)
}

fn options() -> Options {
    Options::new().domain("chain").domain("balances").blocks_per_step(8).reorg_window(16)
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let archive = Archive::open_or_create(dir.path().join("chain.ice"), options(), OpenOptions::new())?;

    let mut node = Node::default();
    (0..100).for_each(|_| node.extend(1));
    assert_eq!(follow(&archive, &node)?, 0);
    let stale = archive.at(99)?;

    // The last 10 blocks are replaced by 12 of another branch, and later the last 60: more than the window has.
    for (branch, kept) in [(2, 90), (3, 42)] {
        node.chain.truncate(kept);
        (0..12).for_each(|_| node.extend(branch));
        let given_up = follow(&archive, &node)?;
        println!("gave up {given_up} blocks, the head is {:?}", archive.reader().head());
        assert_eq!(
            hash_at(&archive, node.chain.len() as u64 - 1)?,
            node.chain.last().map(|block| block.hash)
        );
        // Of what was given up nothing is left: roots are a function of the state.
        assert_eq!(archive.reader().latest()?.root()?, root_of(&node)?);
    }

    // Whoever was reading the old branch still reads it.
    assert_eq!(stale.get("balances", b"account 0")?, Some(199_u64.to_le_bytes().to_vec()));
    assert_eq!(follow(&archive, &node)?, 0, "nothing is new");
    Ok(())
}
