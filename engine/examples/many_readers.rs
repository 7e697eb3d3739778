//! Many readers beside one writer: threads of this process, and a reader that follows as another process would. Each reads whole
//! blocks, never half of one.
//!
//! `cargo run -p icecore --example many_readers`

use std::error::Error;
use std::path::Path;
use std::thread;
use std::time::Duration;

use icecore::{Archive, Options, Reader, Root, View};

const ACCOUNTS: u64 = 16;
const BLOCKS: u64 = 300;
/// What all accounts have together, after every block.
const TOTAL: u64 = 1000 * ACCOUNTS;
/// How long an auditor waits for a block before it takes the chain for ended.
const PATIENCE: Duration = Duration::from_secs(2);

fn account(index: u64) -> String {
    format!("account {index:02}")
}

fn balance(view: &View, index: u64) -> Result<u64, icecore::Error> {
    let value = view.get("balances", account(index).as_bytes())?;
    Ok(value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_le_bytes))
}

/// Each block moves something from one account to another; which, its branch says.
fn write_block(archive: &Archive, height: u64, branch: u64) -> Result<(), icecore::Error> {
    let state = archive.at(height - 1)?;
    let (from, to) = (height % ACCOUNTS, (height + branch) % ACCOUNTS);
    let moved = balance(&state, from)? / 2;
    let mut block = archive.begin(height)?;
    block.put("balances", account(from).as_bytes(), &(balance(&state, from)? - moved).to_le_bytes())?;
    block.put("balances", account(to).as_bytes(), &(balance(&state, to)? + moved).to_le_bytes())?;
    block.commit()?;
    Ok(())
}

/// A chain that replaces its last 3 blocks after every 50.
fn write(archive: &Archive) -> Result<(), icecore::Error> {
    let mut block = archive.begin(0)?;
    for index in 0..ACCOUNTS {
        block.put("balances", account(index).as_bytes(), &1000_u64.to_le_bytes())?;
    }
    block.commit()?;
    for height in 1..=BLOCKS {
        write_block(archive, height, 1)?;
        if height % 50 == 0 {
            archive.unwind(height - 3, &())?;
            for height in height - 2..=height {
                write_block(archive, height, 2)?;
            }
        }
    }
    Ok(())
}

/// What an auditor saw.
#[derive(Default)]
struct Seen {
    heads: u64,
    replaced: u64,
    /// The last block audited: the height says where to wait on, the root whether it is still the same block.
    last: Option<(u64, Root)>,
}

/// Whether a block is no longer what it was: another took its place, or none yet.
fn is_replaced(reader: &Reader, (height, root): (u64, Root)) -> Result<bool, icecore::Error> {
    match reader.root(height) {
        Ok(now) => Ok(now != root),
        Err(icecore::Error::OutOfRange { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Audits every head that comes by, and an older block each time, until the archive is closed or no block comes any more.
fn audit(reader: &Reader) -> Result<Seen, icecore::Error> {
    let mut seen = Seen::default();
    loop {
        // Wakes up for a block above the last one; in another process, looks for it.
        let head = match reader.wait(seen.last.map(|(height, _)| height), PATIENCE) {
            Err(icecore::Error::Closed { .. }) => None,
            woken => woken?,
        };
        // It says nothing of blocks that were unwound, whether it wakes or times out.
        if let Some(last) = seen.last
            && is_replaced(reader, last)?
        {
            (seen.replaced, seen.last) = (seen.replaced + 1, None);
            continue;
        }
        if head.is_none() {
            return Ok(seen);
        }
        // One view for all questions: the head may be unwound meanwhile.
        let view = reader.latest()?;
        for view in [&view, &reader.at(view.height() / 2)?] {
            let total: u64 = (0..ACCOUNTS).map(|index| balance(view, index)).sum::<Result<u64, _>>()?;
            assert_eq!(total, TOTAL, "at {}", view.height());
        }
        (seen.heads, seen.last) = (seen.heads + 1, Some((view.height(), view.root()?)));
    }
}

/// What a reader of another process does: it opens the directory and needs nothing of the writer.
fn audit_from_outside(path: &Path) -> Result<Seen, icecore::Error> {
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
        let last = archive.root(BLOCKS)?;
        // Wakes the readers of this process; that of another learns nothing of it.
        archive.close()?;
        for thread in inside.into_iter().chain([outside]) {
            let seen = thread.join().expect("a reader does not panic")?;
            println!("a reader saw {} heads, and {} times one that was replaced", seen.heads, seen.replaced);
            assert_eq!(seen.last, Some((BLOCKS, last)));
        }
        Ok(())
    })
}
