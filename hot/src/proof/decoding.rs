//! From ICS23 messages to proofs: reads the one encoding that [`encoding`](super::encoding) gives a proof, and nothing else.
//!
//! A decoder of messages takes what the format allows: fields in any order, unknown ones, numbers padded with zeros; it
//! makes hundreds of bytes of memory out of two. This one knows what comes next and takes it from the input in place, so
//! no byte can be changed without being noticed, not even one that the message format would ignore.
//!
//! # Cost
//! A sibling of 32 bytes for each step of a path, which a batch names in one byte at least: memory is at most some
//! forty times the input, and about its size for batches of real trees.

use std::collections::HashSet;

use ics23::HashOp;
use prost::Message as _;

use crate::hash::{KeyHash, bit};
use crate::proof::ics23::leaf_op;
use crate::proof::path::Path;
use crate::proof::{BatchProof, Entry, Kind, PATH_LEN_MAX, Proof, ProofError, Witness};

impl Proof {
    /// Decodes what [`to_ics23_bytes`](Self::to_ics23_bytes) wrote. The proof is not verified by that.
    ///
    /// # Errors
    /// [`ProofError::Malformed`], whatever the bytes are; nothing panics.
    pub fn from_ics23_bytes(bytes: &[u8]) -> Result<Self, ProofError> {
        let leaf = leaf_op().encode_to_vec();
        entry(bytes, &mut |message| witness(message, &leaf, steps)).ok_or(ProofError::Malformed)
    }
}

impl BatchProof {
    /// Decodes what [`to_ics23_bytes`](Self::to_ics23_bytes) wrote. The proofs are not verified by that.
    ///
    /// # Errors
    /// [`ProofError::Malformed`], whatever the bytes are; nothing panics.
    pub fn from_ics23_bytes(bytes: &[u8]) -> Result<Self, ProofError> {
        batch(bytes).ok_or(ProofError::Malformed)
    }
}

/// The field of a `CommitmentProof` that holds a compressed batch.
const COMPRESSED: u8 = 4;

fn batch(bytes: &[u8]) -> Option<BatchProof> {
    let mut message = Message(bytes);
    let mut entries = Message(message.field(COMPRESSED)?);
    message.end()?;
    // The steps stand after the entries that name them.
    let (mut rest, mut count) = (entries, 0);
    while rest.field(1).is_some() {
        count += 1;
    }
    let mut table = Table::read(rest)?;
    let leaf = leaf_op().encode_to_vec();
    let mut proofs = Vec::with_capacity(count);
    for _ in 0..count {
        let steps = &mut |message: &mut Message<'_>| table.steps(message);
        proofs.push(entry(entries.field(1)?, &mut |message| witness(message, &leaf, &mut *steps))?);
    }
    table.is_used_up().then_some(BatchProof { proofs })
}

/// A `CommitmentProof` of one key, or an entry of a batch: the two look alike. `witness` reads an existence proof.
fn entry<'a>(bytes: &'a [u8], witness: &mut dyn FnMut(&'a [u8]) -> Option<Witness>) -> Option<Proof> {
    let mut message = Message(bytes);
    let kind = if let Some(existence) = message.field(1) {
        Kind::Present(witness(existence)?)
    } else {
        let mut absence = Message(message.field(2)?);
        let (domain, key) = split_key(absence.field(1)?)?;
        let mut side = |number| match absence.field(number) {
            Some(existence) => witness(existence).map(Some),
            None => Some(None),
        };
        let (left, right) = (side(2)?, side(3)?);
        absence.end()?;
        Kind::Absent { domain, key, left, right }
    };
    message.end()?;
    Some(Proof(kind))
}

/// An existence proof, compressed or not: `steps` reads its path.
fn witness<'a>(
    bytes: &'a [u8],
    leaf: &[u8],
    mut steps: impl FnMut(&mut Message<'a>) -> Option<Vec<Step<'a>>>,
) -> Option<Witness> {
    let mut message = Message(bytes);
    let (domain, key) = split_key(message.field(1)?)?;
    let value = message.field(2)?.strip_prefix(&[1])?.to_vec();
    if message.field(3)? != leaf {
        return None;
    }
    let steps = steps(&mut message)?;
    message.end()?;
    let hash = KeyHash::of(&domain, &key);
    let mut siblings = Vec::with_capacity(steps.len());
    for (step, depth) in steps.iter().zip((0..steps.len()).rev()) {
        // On which side a sibling stands follows from the key.
        if step.child != bit(&hash.0, depth) {
            return None;
        }
        siblings.push(*step.sibling);
    }
    Some(Witness { entry: Entry { domain, key, value }, path: Path { siblings } })
}

/// The path of an existence proof, each step written out.
fn steps<'a>(message: &mut Message<'a>) -> Option<Vec<Step<'a>>> {
    let mut steps = Vec::new();
    while let Some(inner) = message.field(4) {
        if steps.len() == PATH_LEN_MAX {
            return None;
        }
        steps.push(Step::read(inner)?);
    }
    Some(steps)
}

fn split_key(tree_key: &[u8]) -> Option<(String, Vec<u8>)> {
    let (&len, rest) = tree_key.split_first()?;
    let (domain, key) = rest.split_at_checked(usize::from(len))?;
    Some((str::from_utf8(domain).ok()?.to_owned(), key.to_vec()))
}

/// A node on the way to the root: a sibling, and which child the way comes from.
#[derive(Clone, Copy)]
struct Step<'a> {
    child: usize,
    sibling: &'a [u8; 32],
}

impl<'a> Step<'a> {
    /// Reads an `InnerOp`: the hash, and 32 bytes before or after the child.
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (head, sibling) = bytes.split_first_chunk()?;
        let sibling = sibling.try_into().ok()?;
        let [hash, prefix, suffix] = [1 << 3, 2 << 3 | LENGTH_DELIMITED, 3 << 3 | LENGTH_DELIMITED];
        let child =
            [suffix, prefix].iter().position(|side| *head == [hash, HashOp::Blake3 as u8, *side, 32])?;
        Some(Self { child, sibling })
    }
}

/// The steps that the paths of a batch have in common, in the order in which the paths come to them.
struct Table<'a> {
    steps: Vec<Step<'a>>,
    /// How many of them a path has named.
    used: usize,
}

impl<'a> Table<'a> {
    fn read(mut message: Message<'a>) -> Option<Self> {
        let (mut steps, mut seen) = (Vec::new(), HashSet::new());
        while let Some(inner) = message.field(2) {
            if !seen.insert(inner) {
                return None;
            }
            steps.push(Step::read(inner)?);
        }
        message.end()?;
        Some(Self { steps, used: 0 })
    }

    /// The path of a compressed existence proof: numbers of steps. A number that was not named before is the next.
    fn steps(&mut self, message: &mut Message<'_>) -> Option<Vec<Step<'a>>> {
        let mut path = Vec::new();
        // An empty path has no field.
        let Some(numbers) = message.field(4) else { return Some(path) };
        let mut numbers = Message(numbers);
        while numbers.end().is_none() || path.is_empty() {
            let number = numbers.number()?;
            if number > self.used || path.len() == PATH_LEN_MAX {
                return None;
            }
            self.used = self.used.max(number + 1);
            path.push(*self.steps.get(number)?);
        }
        Some(path)
    }

    fn is_used_up(&self) -> bool {
        self.used == self.steps.len()
    }
}

/// The wire type of everything but numbers.
const LENGTH_DELIMITED: u8 = 2;

/// What is left of a message.
#[derive(Clone, Copy)]
struct Message<'a>(&'a [u8]);

impl<'a> Message<'a> {
    /// The content of the next field if it has this number; else nothing is taken.
    fn field(&mut self, number: u8) -> Option<&'a [u8]> {
        let (tag, rest) = self.0.split_first()?;
        let mut rest = Message(rest);
        if *tag != number << 3 | LENGTH_DELIMITED {
            return None;
        }
        let len = rest.number()?;
        let (content, rest) = rest.0.split_at_checked(len)?;
        self.0 = rest;
        Some(content)
    }

    /// The next number, in its shortest form.
    fn number(&mut self) -> Option<usize> {
        let mut number = 0;
        for (at, byte) in self.0.iter().enumerate().take(9) {
            number |= usize::from(byte & 0x7F) << (7 * at);
            if byte & 0x80 == 0 {
                let is_padded = at > 0 && *byte == 0;
                self.0 = &self.0[at + 1..];
                return (!is_padded).then_some(number);
            }
        }
        None
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
