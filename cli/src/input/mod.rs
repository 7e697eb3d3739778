//! Block changes out of text: three line formats, any number of files, one stream of blocks.
//!
//! [`Lines`] gives lines, a [`Format`] reads one line into [`Changes`], [`Blocks`] puts the lines of a block together, and
//! [`Inputs`] the blocks of one height from several files.

mod eth_changes;
mod geth_diff;
mod inputs;
mod jsonl;
mod open;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use clap::ValueEnum;
use icecore::Domain;
use serde::{Deserialize, Deserializer};

pub(crate) use self::eth_changes::{EthChanges, address as ethereum_address, word};
pub(crate) use self::geth_diff::{GethDiff, LIMITS};
pub(crate) use self::inputs::{Inputs, NewFormat};
pub(crate) use self::jsonl::Jsonl;
pub(crate) use self::open::{LINE_LEN_MAX, Lines, Meter};
use crate::exit::Failure;
use crate::json::Text;
use crate::keys::{ETHEREUM_DOMAINS, declare};

/// Keys of `balance`, `nonce` and `code`; the beginning of keys of `storage`.
pub(crate) type Address = [u8; 20];

pub(crate) const BALANCE: usize = 0;
pub(crate) const NONCE: usize = 1;
pub(crate) const CODE: usize = 2;
/// The position of `storage` in [`ETHEREUM_DOMAINS`].
pub(crate) const STORAGE: usize = 3;

/// The formats by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatName {
    /// Keys and values of any kind
    Jsonl,
    /// Accounts of Ethereum at the end of each block
    EthChanges,
    /// Traces of Ethereum blocks, as geth replies
    GethDiff,
}

impl FormatName {
    /// The domains that an archive for this format needs.
    pub(crate) fn domains(self) -> &'static [&'static str] {
        match self {
            Self::Jsonl => &["kv"],
            Self::EthChanges | Self::GethDiff => &ETHEREUM_DOMAINS,
        }
    }

    /// How one of them is declared.
    pub(crate) fn declare(self, name: &str) -> Domain {
        match self {
            Self::Jsonl => Domain::new(name),
            Self::EthChanges | Self::GethDiff => declare(name),
        }
    }
}

/// One change; the bytes are in the [`Changes`] it belongs to.
#[derive(Clone, Debug)]
struct Change {
    domain: usize,
    key: Range<usize>,
    value: Option<Range<usize>>,
    place: Place,
}

/// Where in the input something stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// A position in [`Block::files`].
    file: usize,
    /// Counted from 1.
    line: u64,
}

/// A change as it is read: domain, key and value, and where it stands.
type ChangeAt<'a> = (usize, &'a [u8], Option<&'a [u8]>, Place);

/// The changes of one block, in the order of the input. One buffer for all bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    bytes: Vec<u8>,
    list: Vec<Change>,
    wiped: Vec<Address>,
    place: Place,
}

impl Changes {
    /// Adds a version of a key; `domain` is a position in the list of domains of the format.
    pub(crate) fn push(&mut self, domain: usize, key: &[u8], value: Option<&[u8]>) {
        let key = self.store(key);
        let value = value.map(|value| self.store(value));
        self.list.push(Change { domain, key, value, place: self.place });
    }

    /// Says that every slot of `address` that the archive holds is gone before the changes apply.
    fn wipe(&mut self, address: Address) {
        self.wiped.push(address);
    }

    fn store(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// Domain, key and value of every change.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &[u8], Option<&[u8]>)> {
        self.placed().map(|(domain, key, value, _)| (domain, key, value))
    }

    fn placed(&self) -> impl Iterator<Item = ChangeAt<'_>> {
        self.list.iter().map(|change| {
            let value = change.value.clone().map(|value| &self.bytes[value]);
            (change.domain, &self.bytes[change.key.clone()], value, change.place)
        })
    }

    /// The accounts whose storage goes first.
    pub(crate) fn wiped(&self) -> &[Address] {
        &self.wiped
    }

    /// The number of changes.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// The number of changes after which the same key is changed again: of these the last alone counts.
    pub(crate) fn overwritten(&self) -> u64 {
        if self.list.len() < 2 {
            return 0;
        }
        let mut keys = HashSet::with_capacity(self.list.len());
        self.iter().filter(|(domain, key, _)| !keys.insert((*domain, *key))).count() as u64
    }

    /// Moves the changes of `other` after the own.
    fn append(&mut self, other: &mut Self) {
        if self.list.is_empty() && self.wiped.is_empty() {
            std::mem::swap(self, other);
        } else {
            let shift = self.bytes.len();
            let moved = |range: Range<usize>| range.start + shift..range.end + shift;
            self.bytes.extend_from_slice(&other.bytes);
            self.list.extend(other.list.drain(..).map(|change| Change {
                domain: change.domain,
                key: moved(change.key),
                value: change.value.map(moved),
                place: change.place,
            }));
            self.wiped.append(&mut other.wiped);
        }
        other.bytes.clear();
        other.list.clear();
        other.wiped.clear();
    }
}

/// The changes of one block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Its height.
    pub(crate) height: u64,
    /// What it changes.
    pub(crate) changes: Changes,
    /// The files that it was read from.
    files: Vec<Arc<str>>,
}

impl Block {
    /// Where the last change of a key stands, `file:line`; the first file of the block where it has none.
    pub(crate) fn place_of(&self, domain: usize, key: &[u8]) -> String {
        let placed = self.changes.placed().filter(|change| (change.0, change.1) == (domain, key)).last();
        placed.map_or_else(|| self.files[0].to_string(), |(_, _, _, place)| self.show(place))
    }

    fn show(&self, place: Place) -> String {
        format!("{}:{}", self.files[place.file], place.line)
    }
}

/// Why a line cannot be taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadLine {
    /// What is wrong.
    pub(crate) reason: String,
    /// What to do where mending the line is not the answer.
    pub(crate) help: Option<String>,
}

impl From<String> for BadLine {
    fn from(reason: String) -> Self {
        Self { reason, help: None }
    }
}

impl From<&str> for BadLine {
    fn from(reason: &str) -> Self {
        reason.to_owned().into()
    }
}

/// Reads one line.
pub(crate) trait Format: Send {
    /// Appends the changes of `line` and gives the height of their block.
    ///
    /// # Errors
    /// The reason why the line cannot be taken.
    fn read(&mut self, line: &[u8], changes: &mut Changes) -> Result<u64, BadLine>;

    /// What a line looks like.
    fn example(&self) -> &'static str;

    /// Whether one line is one whole block.
    fn line_is_block(&self) -> bool {
        false
    }
}

/// The blocks of an input, in order.
pub(crate) struct Blocks {
    lines: Lines,
    format: Box<dyn Format>,
    line: Changes,
    open: Option<Block>,
    failure: Option<Failure>,
    done: bool,
}

impl Blocks {
    /// Reads `lines` with `format`.
    pub(crate) fn new(lines: Lines, format: Box<dyn Format>) -> Self {
        Self { lines, format, line: Changes::default(), open: None, failure: None, done: false }
    }

    /// The height of the next block, of which the first line alone is read.
    ///
    /// # Errors
    /// That line is bad, or cannot be read.
    fn peek(&mut self) -> Result<Option<u64>, Failure> {
        if let Some(failure) = self.failure.take() {
            self.done = true;
            return Err(failure);
        }
        if self.open.is_none() && !self.done {
            let Some(height) = self.read_line()? else {
                self.done = true;
                return Ok(None);
            };
            let height = height.map_err(|(bad, _)| self.lines.bad(bad))?;
            self.open = Some(self.begin(height));
        }
        Ok(self.open.as_ref().map(|open| open.height))
    }

    /// Reads a line into `self.line` and gives its height; for a bad one the reason, and the height that it claims.
    #[expect(clippy::type_complexity, reason = "used twice, here")]
    fn read_line(&mut self) -> Result<Option<Result<u64, (BadLine, Option<u64>)>>, Failure> {
        let Some((number, line)) = self.lines.next_numbered()? else { return Ok(None) };
        self.line.place = Place { file: 0, line: number };
        let height = match line.trim_ascii_start() {
            [b'{', ..] => self.format.read(line, &mut self.line),
            other => Err(no_object(other, &mut *self.format)),
        };
        Ok(Some(height.map_err(|bad| (bad, height_of(line)))))
    }

    /// The block that begins with the line that was just read.
    fn begin(&mut self, height: u64) -> Block {
        Block { height, changes: std::mem::take(&mut self.line), files: vec![self.lines.file().into()] }
    }

    /// The next whole block. A block of which a line is bad, or may be bad, is never given.
    fn advance(&mut self) -> Result<Option<Block>, Failure> {
        loop {
            let Some(read) = self.read_line()? else {
                self.done = true;
                return Ok(self.open.take());
            };
            let height = match read {
                Ok(height) => height,
                Err((bad, height)) => return self.stop(bad, height),
            };
            let line_is_block = self.format.line_is_block();
            match &mut self.open {
                Some(open) if open.height == height && !line_is_block => {
                    open.changes.append(&mut self.line);
                }
                Some(open) if height <= open.height => {
                    let reason =
                        format!("block {height} does not rise above block {} before it", open.height);
                    return self.stop(reason.into(), Some(height));
                }
                _ => {
                    let next = self.begin(height);
                    if let Some(whole) = self.open.replace(next) {
                        return Ok(Some(whole));
                    }
                }
            }
        }
    }

    /// Ends at a bad line. The block before it is whole if the line says that it belongs to a later one.
    fn stop(&mut self, bad: BadLine, height: Option<u64>) -> Result<Option<Block>, Failure> {
        let failure = self.lines.bad(bad);
        let is_whole =
            |open: &Block| self.format.line_is_block() || height.is_some_and(|height| open.height < height);
        let whole = self.open.take().filter(is_whole);
        if whole.is_some() {
            self.failure = Some(failure);
            return Ok(whole);
        }
        Err(failure)
    }
}

impl Iterator for Blocks {
    type Item = Result<Block, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        if let Some(failure) = self.failure.take() {
            self.done = true;
            return Some(Err(failure));
        }
        let next = self.advance();
        self.done |= next.is_err();
        next.transpose()
    }
}

/// What is wrong with a line that does not begin like an object, as those of all formats do.
fn no_object(line: &[u8], format: &mut dyn Format) -> BadLine {
    let (reason, help) = match line {
        [b'[', ..] => (
            "an array begins here, expected an object on each line".to_owned(),
            "`jq -c '.[]' FILE` writes the objects of an array as lines".to_owned(),
        ),
        [0xef, 0xbb, 0xbf, ..] => (
            "the line begins with a byte order mark, expected a JSON object".to_owned(),
            r"`sed -i '1s/^\xEF\xBB\xBF//' FILE` removes the mark".to_owned(),
        ),
        _ => {
            let reason = match format.read(line, &mut Changes::default()) {
                Err(bad) => bad.reason,
                Ok(_) => "expected an object".to_owned(),
            };
            (reason, format!("a line of this format looks like {}", format.example()))
        }
    };
    BadLine { reason, help: Some(help) }
}

/// The height that a line claims at its very beginning, even where the rest of the line is broken.
fn height_of(line: &[u8]) -> Option<u64> {
    let rest = line.trim_ascii_start().strip_prefix(b"{")?.trim_ascii_start();
    let rest = rest.strip_prefix(b"\"block\"")?.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    let end = rest[digits..].trim_ascii_start().first();
    if !matches!(end, Some(b',' | b'}')) {
        return None;
    }
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

/// The value of a change as it stands in a line. A forgotten one must not delete.
#[derive(Default)]
enum Given<'a> {
    #[default]
    Missing,
    Null,
    Text(Text<'a>),
}

impl<'de: 'a, 'a> Deserialize<'de> for Given<'a> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        Ok(Option::<Text>::deserialize(source)?.map_or(Self::Null, Self::Text))
    }
}

impl Given<'_> {
    /// `None` deletes.
    fn value(&self) -> Result<Option<&str>, String> {
        match self {
            Self::Missing => Err("\"value\" is missing, null deletes".to_owned()),
            Self::Null => Ok(None),
            Self::Text(text) => Ok(Some(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &str) -> (Vec<(u64, usize)>, Option<String>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("input.jsonl");
        std::fs::write(&path, content).unwrap();
        let format = Jsonl::new(vec![crate::keys::KeyShape::any("kv")], crate::encoding::Encoding::Auto);
        let mut blocks = Vec::new();
        for block in Blocks::new(Lines::of(vec![path]), Box::new(format)) {
            match block {
                Ok(block) => blocks.push((block.height, block.changes.len())),
                Err(failure) => return (blocks, Some(failure.to_string())),
            }
        }
        (blocks, None)
    }

    fn line(block: u64) -> String {
        format!("{{\"block\":{block},\"key\":\"k\",\"value\":\"v\"}}\n")
    }

    #[test]
    fn lines_of_a_block_belong_together() {
        let content = [line(1), line(1), line(4), line(9), line(9), line(9)].concat();
        assert_eq!(read(&content), (vec![(1, 2), (4, 1), (9, 3)], None));
        assert_eq!(read(""), (vec![], None));
        assert_eq!(read("{\"block\":7}\n{\"block\":8}\n"), (vec![(7, 0), (8, 0)], None));
    }

    #[test]
    fn a_block_with_a_bad_line_is_not_given() {
        let (blocks, failure) = read(&[line(1), line(2), "garbage\n".into(), line(3)].concat());
        assert_eq!(blocks, [(1, 1)], "the bad line may belong to block 2");
        assert!(failure.unwrap().contains("input.jsonl:3: "));

        let (blocks, failure) = read(&[line(1), line(2), "{\"block\":3,\"key\":5}\n".into()].concat());
        assert_eq!(blocks, [(1, 1), (2, 1)], "the bad line belongs to block 3");
        assert!(failure.unwrap().contains("input.jsonl:3: "));

        let (blocks, failure) = read(&[line(1), line(2), "{\"block\":2,\"key\":5}\n".into()].concat());
        assert_eq!(blocks, [(1, 1)]);
        assert!(failure.is_some());

        let (blocks, failure) = read(&[line(5), line(4)].concat());
        assert_eq!((blocks.len(), failure.unwrap().contains("does not rise")), (0, true));
    }

    #[test]
    fn a_broken_line_still_claims_its_height() {
        for (line, height) in [
            ("{\"block\":6,\"key\":\"x\",\"va", Some(6)),
            (" { \"block\" : 6 , ", Some(6)),
            ("{\"block\":6", None),
            ("{\"block\":-6,", None),
            ("{\"block\":6.5,", None),
            ("garbage", None),
            ("", None),
        ] {
            assert_eq!(height_of(line.as_bytes()), height, "{line}");
        }
    }
}
