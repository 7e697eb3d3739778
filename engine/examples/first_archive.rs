//! A first archive: blocks go in and give roots; values, histories and proofs come out, at any block.
//!
//! `cargo run -p icecore --example first_archive`

use std::error::Error;

use icecore::{Archive, OpenOptions, Options, Scan};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("bank.ice");

    // The domains, the keyspaces of the archive, are declared when it is created.
    let archive = Archive::create(&path, Options::new().domain("balances"))?;

    // A block has a height and changes. Committed, it is on disk, and gives the root of the state after it.
    let mut block = archive.begin(1)?;
    block.put("balances", b"alice", b"100")?;
    block.put("balances", b"bob", b"7")?;
    let root = block.commit()?;

    // Heights rise, and may leave some out.
    let mut block = archive.begin(5)?;
    block.put("balances", b"alice", b"80")?;
    block.delete("balances", b"bob")?;
    block.commit()?;

    // The state at a block. Between two blocks it is that of the lower one.
    let view = archive.at(3)?;
    assert_eq!((view.height(), view.block()?), (3, 1));
    assert_eq!(view.get("balances", b"alice")?.as_deref(), Some(&b"100"[..]));
    assert_eq!(archive.at(5)?.get("balances", b"bob")?, None);

    // All keys in order, and all versions of one key, newest first.
    for entry in view.scan("balances", &Scan::all())? {
        let entry = entry?;
        println!("{} = {}", entry.key.escape_ascii(), entry.value.escape_ascii());
    }
    let history = archive.history("balances", b"alice")?;
    let blocks: Vec<u64> = history.map(|change| Ok(change?.block)).collect::<Result<_, icecore::Error>>()?;
    assert_eq!(blocks, [5, 1]);

    // A proof holds under the root alone.
    view.prove("balances", b"alice")?.verify(&root, "balances", b"alice", Some(b"100"))?;

    // Closed and opened again, it goes on where it was.
    drop(view);
    archive.close()?;
    let archive = Archive::open(&path, OpenOptions::new())?;
    assert_eq!(archive.reader().range(), Some((1, 5)));
    assert_eq!(archive.root(1)?, root);
    Ok(())
}
