//! Many readers beside one writer: threads of this process, and a reader that follows as another process would. Each reads whole
//! blocks, never half of one.
//!
//! `cargo run -p icecore --example many_readers`

use std::error::Error;
use std::path::Path;
use std::thread;
use std::time::Duration;

use icecore::{Archive, Options, Reader, View};

const ACCOUNTS: u64 = 16;
const BLOCKS: u64 = 300;
/// What all accounts have together, after every block.
const TOTAL: u64 = 1000 * ACCOUNTS;

fn account(index: u64) -> String {
    format!("account {index:02}")
}

fn balance(view: &View, index: u64) -> Result<u64, icecore::Error> {
    let value = view.get("balances", account(index).as_bytes())?;
    Ok(value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_le_bytes))
}

/// Each block moves something from one account to another.
fn write(archive: &Archive) -> Result<(), icecore::Error> {
    let mut block = archive.begin(0)?;
    for index in 0..ACCOUNTS {
        block.put("balances", account(index).as_bytes(), &1000_u64.to_le_bytes())?;
    }
    block.commit()?;
    for height in 1..=BLOCKS {
        let state = archive.at(height - 1)?;
        let (from, to) = (height % ACCOUNTS, (height + 1) % ACCOUNTS);
        let moved = balance(&state, from)? / 2;
        let mut block = archive.begin(height)?;
        block.put("balances", account(from).as_bytes(), &(balance(&state, from)? - moved).to_le_bytes())?;
        block.put("balances", account(to).as_bytes(), &(balance(&state, to)? + moved).to_le_bytes())?;
        block.commit()?;
    }
    Ok(())
}

/// Reads every head that comes by until the last, and an older block each time. Returns how many heads there were.
fn audit(reader: &Reader) -> Result<u64, icecore::Error> {
    let (mut heads, mut seen) = (0, None);
    while seen != Some(BLOCKS) {
        // Wakes up for the next block; in another process, looks for it.
        seen = reader.wait(seen, Duration::from_secs(10))?;
        let head = seen.expect("the writer is at work");
        for height in [head, head / 2] {
            let view = reader.at(height)?;
            let total: u64 = (0..ACCOUNTS).map(|index| balance(&view, index)).sum::<Result<u64, _>>()?;
            assert_eq!(total, TOTAL, "at {height}");
        }
        heads += 1;
    }
    Ok(heads)
}

/// What a reader of another process does: it opens the directory and needs nothing of the writer.
fn audit_from_outside(path: &Path) -> Result<u64, icecore::Error> {
    audit(&Reader::open(path)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("bank.ice");
    let options = Options::new().domain("balances").blocks_per_step(16).reorg_window(16);
    let archive = Archive::create(&path, options)?;
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        // A reader is cheap to clone, one for each thread.
        let inside: Vec<_> = (0..3).map(|_| archive.reader().clone()).collect();
        let inside: Vec<_> = inside.into_iter().map(|reader| scope.spawn(move || audit(&reader))).collect();
        let outside = scope.spawn(|| audit_from_outside(&path));
        write(&archive)?;
        for thread in inside.into_iter().chain([outside]) {
            let heads = thread.join().expect("a reader does not panic")?;
            println!("a reader saw {heads} heads of {}", BLOCKS + 1);
            assert!((1..=BLOCKS + 1).contains(&heads));
        }
        Ok(())
    })
}
