//! The headers of a chain, of which an ingest compares the state roots.

use std::path::PathBuf;

use icecore::Root;
use serde::Deserialize;

use crate::encoding::unhex_exact;
use crate::exit::Failure;
use crate::input::Lines;
use crate::json::{self, Text};
use crate::number::Whole;

/// Headers in order of their numbers, read as far as blocks come.
pub(super) struct Headers {
    lines: Lines,
    /// The header that was read last.
    last: Option<(u64, Root)>,
}

/// Headers have many more members.
#[derive(Deserialize)]
#[serde(expecting = "a header", rename_all = "camelCase")]
struct Header<'a> {
    number: Whole,
    #[serde(borrow)]
    state_root: Text<'a>,
}

impl Headers {
    /// Those in a file, plain or compressed.
    pub(super) fn open(file: PathBuf) -> Self {
        Self { lines: Lines::of(vec![file]), last: None }
    }

    /// The state root in the header of a block above those asked for before.
    ///
    /// # Errors
    /// There is no header of the block, or a line is none.
    pub(super) fn root_of(&mut self, height: u64) -> Result<Root, Failure> {
        while self.last.is_none_or(|(number, _)| number < height) {
            let Some((_, line)) = self.lines.next_numbered()? else { break };
            let header = parse(line);
            let (number, root) = header.map_err(|reason| self.lines.bad(reason))?;
            if self.last.is_some_and(|(last, _)| number <= last) {
                return Err(self.lines.bad(format!("header {number} does not rise above the one before it")));
            }
            self.last = Some((number, root));
        }
        let found = self.last.filter(|(number, _)| *number == height);
        found
            .map(|(_, root)| root)
            .ok_or_else(|| Failure::usage(format!("{} has no header of block {height}", self.lines.file())))
    }
}

fn parse(line: &[u8]) -> Result<(u64, Root), String> {
    let header: Header = serde_json::from_slice(line).map_err(|error| json::reason(&error))?;
    let digits = header.state_root.strip_prefix("0x").filter(|digits| digits.len() == 64);
    let digits = digits.ok_or("\"stateRoot\" is no hash of 32 bytes, 0x and 64 digits")?;
    let mut root = [0; 32];
    unhex_exact(digits, &mut root)?;
    Ok((header.number.0, Root(root)))
}
