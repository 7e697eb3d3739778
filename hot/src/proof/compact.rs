//! Proofs as few bytes: no step says which side it is on, because the key hash does, and empty siblings take a bit.
//!
//! ```text
//! proof   = 1 entry path                                   the key is there
//!         | 0 text bytes (0 | 1 entry path) (0 | 1 entry [shared] path)   it is not; left, right
//! entry   = text bytes bytes                               domain, key, value
//! path    = length, a bit per sibling that is not empty, those siblings
//! text, bytes = length, then this many bytes;  length, shared = LEB128
//! ```
//!
//! `shared` stands where both neighbours are there: this many siblings at the end of the path are those of the
//! left one and are left out. As in the ICS23 encoding, every proof has exactly one form.

use crate::hash::EMPTY;
use crate::proof::path::Path;
use crate::proof::{Entry, Kind, PATH_LEN_MAX, Proof, ProofError, Witness};

impl Proof {
    /// Encodes the proof in as few bytes as it takes; some fifth less than ICS23 for presence, and half for absence.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        match &self.0 {
            Kind::Present(witness) => {
                out.push(1);
                put_entry(&mut out, &witness.entry);
                put_path(&mut out, &witness.path.siblings);
            }
            Kind::Absent { domain, key, left, right } => {
                out.push(0);
                put_bytes(&mut out, domain.as_bytes());
                put_bytes(&mut out, key);
                put_neighbours(&mut out, left.as_ref(), right.as_ref());
            }
        }
        out
    }

    /// Decodes what [`to_bytes`](Self::to_bytes) wrote. The proof is not verified by that.
    ///
    /// # Errors
    /// [`ProofError::Malformed`], whatever the bytes are; nothing panics.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ProofError> {
        let mut input = Input(bytes);
        let proof = input.proof().ok_or(ProofError::Malformed)?;
        // Encoding again refuses the second ways to say the same: padded lengths, fewer shared siblings.
        if input.0.is_empty() && proof.to_bytes() == bytes { Ok(proof) } else { Err(ProofError::Malformed) }
    }
}

fn put_neighbours(out: &mut Vec<u8>, left: Option<&Witness>, right: Option<&Witness>) {
    out.push(u8::from(left.is_some()));
    if let Some(left) = left {
        put_entry(out, &left.entry);
        put_path(out, &left.path.siblings);
    }
    out.push(u8::from(right.is_some()));
    if let Some(right) = right {
        put_entry(out, &right.entry);
        let own = &right.path.siblings;
        let shared = left.map(|left| shared_tail(&left.path.siblings, own));
        if let Some(shared) = shared {
            put_len(out, shared);
        }
        put_path(out, &own[..own.len() - shared.unwrap_or(0)]);
    }
}

fn shared_tail(a: &[[u8; 32]], b: &[[u8; 32]]) -> usize {
    a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    put_bytes(out, entry.domain.as_bytes());
    put_bytes(out, &entry.key);
    put_bytes(out, &entry.value);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_path(out: &mut Vec<u8>, siblings: &[[u8; 32]]) {
    put_len(out, siblings.len());
    for eight in siblings.chunks(8) {
        let bit = |(i, sibling): (usize, &[u8; 32])| u8::from(*sibling != EMPTY) << i;
        out.push(eight.iter().enumerate().map(bit).sum());
    }
    for sibling in siblings.iter().filter(|sibling| **sibling != EMPTY) {
        out.extend_from_slice(sibling);
    }
}

fn put_len(out: &mut Vec<u8>, mut len: usize) {
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
}

/// What is left to decode. Every method gives nothing where the bytes do not hold what is asked for.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn proof(&mut self) -> Option<Proof> {
        Some(Proof(if self.flag()? {
            let (entry, siblings) = (self.entry()?, self.path()?);
            Kind::Present(Witness { entry, path: Path { siblings } })
        } else {
            let (domain, key) = (self.text()?, self.bytes()?);
            let left = if self.flag()? {
                let (entry, siblings) = (self.entry()?, self.path()?);
                Some(Witness { entry, path: Path { siblings } })
            } else {
                None
            };
            let right = if self.flag()? { Some(self.right(left.as_ref())?) } else { None };
            Kind::Absent { domain, key, left, right }
        }))
    }

    fn right(&mut self, left: Option<&Witness>) -> Option<Witness> {
        let entry = self.entry()?;
        let shared = match left {
            Some(left) => {
                let siblings = &left.path.siblings;
                &siblings[siblings.len().checked_sub(self.len()?)?..]
            }
            None => &[],
        };
        let mut siblings = self.path()?;
        siblings.extend_from_slice(shared);
        Some(Witness { entry, path: Path { siblings } })
    }

    fn take(&mut self, len: usize) -> Option<&[u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.take(1)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    fn len(&mut self) -> Option<usize> {
        let mut len = 0;
        for shift in (0..63).step_by(7) {
            let [byte] = self.take(1)? else { return None };
            len |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(len);
            }
        }
        None
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let len = self.len()?;
        self.take(len).map(<[u8]>::to_vec)
    }

    fn text(&mut self) -> Option<String> {
        // The limit of a domain name: a longer one has no tree key.
        self.bytes()
            .filter(|bytes| bytes.len() <= crate::DOMAIN_LEN_MAX)
            .and_then(|b| String::from_utf8(b).ok())
    }

    fn entry(&mut self) -> Option<Entry> {
        Some(Entry { domain: self.text()?, key: self.bytes()?, value: self.bytes()? })
    }

    fn path(&mut self) -> Option<Vec<[u8; 32]>> {
        let len = self.len().filter(|len| *len <= PATH_LEN_MAX)?;
        let bits = self.take(len.div_ceil(8))?.to_vec();
        let sibling = |i: usize| {
            if bits[i / 8] >> (i % 8) & 1 == 0 { Some(EMPTY) } else { self.take(32)?.try_into().ok() }
        };
        (0..len).map(sibling).collect()
    }
}
