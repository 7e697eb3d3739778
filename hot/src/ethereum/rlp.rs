//! RLP as far as accounts and nodes of a trie need it: writing, and reading that takes one encoding per value.

/// The encoding of the empty string, which is also that of zero and of an absent child.
pub(crate) const EMPTY_STRING: u8 = 0x80;

/// Writes a string.
pub(crate) fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    if let [byte @ 0..0x80] = bytes {
        out.push(*byte);
        return;
    }
    put_header(out, 0x80, bytes.len());
    out.extend_from_slice(bytes);
}

/// How long `put_string` makes a string.
pub(crate) fn string_len(bytes: &[u8]) -> usize {
    match bytes {
        [0..0x80] => 1,
        _ => header_len(bytes.len()) + bytes.len(),
    }
}

/// Writes the header of a list whose items take `len` bytes.
pub(crate) fn put_list_header(out: &mut Vec<u8>, len: usize) {
    put_header(out, 0xC0, len);
}

fn put_header(out: &mut Vec<u8>, offset: u8, len: usize) {
    if len < 56 {
        out.push(offset + len as u8);
        return;
    }
    let bytes = len.to_be_bytes();
    let bytes = trimmed(&bytes);
    out.push(offset + 55 + bytes.len() as u8);
    out.extend_from_slice(bytes);
}

pub(crate) fn header_len(len: usize) -> usize {
    if len < 56 { 1 } else { 1 + trimmed(&len.to_be_bytes()).len() }
}

/// A big-endian number without leading zeros.
pub(crate) fn trimmed(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    &bytes[zeros..]
}

/// An item, as it is in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    String(&'a [u8]),
    /// The items of a list, and the whole list with its header.
    List {
        items: &'a [u8],
        whole: &'a [u8],
    },
}

/// Takes the first item off `bytes`; `None` where they are no canonical RLP.
pub(crate) fn take<'a>(bytes: &mut &'a [u8]) -> Option<Item<'a>> {
    let (first, rest) = bytes.split_first()?;
    let (is_list, short) = match first {
        0..0x80 => {
            let (own, after) = bytes.split_at(1);
            *bytes = after;
            return Some(Item::String(own));
        }
        0x80..0xC0 => (false, first - 0x80),
        _ => (true, first - 0xC0),
    };
    let (len, rest) = if short < 56 {
        (usize::from(short), rest)
    } else {
        let (len, rest) = rest.split_at_checked(usize::from(short - 55))?;
        if len.first() == Some(&0) || len.len() > size_of::<usize>() {
            return None;
        }
        let len = len.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
        (len >= 56).then_some((len, rest))?
    };
    let (content, after) = rest.split_at_checked(len)?;
    let whole = &bytes[..bytes.len() - after.len()];
    *bytes = after;
    match content {
        _ if is_list => Some(Item::List { items: content, whole }),
        [0..0x80] => None,
        _ => Some(Item::String(content)),
    }
}

/// Takes a string off `bytes`.
pub(crate) fn take_string<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    match take(bytes)? {
        Item::String(string) => Some(string),
        Item::List { .. } => None,
    }
}

/// The items of `bytes`, which must be one list and nothing after it.
pub(crate) fn list(mut bytes: &[u8]) -> Option<&[u8]> {
    match take(&mut bytes)? {
        Item::List { items, .. } if bytes.is_empty() => Some(items),
        _ => None,
    }
}

/// A number without leading zeros that fits `N` bytes, with them.
pub(crate) fn number<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    if bytes.first() == Some(&0) {
        return None;
    }
    let mut out = [0; N];
    out[N.checked_sub(bytes.len())?..].copy_from_slice(bytes);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        for len in [0, 1, 2, 55, 56, 255, 256, 70_000] {
            for first in [0x00, 0x7F, 0x80] {
                let bytes = vec![first; len];
                let mut out = Vec::new();
                put_string(&mut out, &bytes);
                assert_eq!(out.len(), string_len(&bytes));
                assert_eq!(take(&mut &out[..]), Some(Item::String(&bytes)));
                assert_eq!(list(&out), None);
                for cut in 0..out.len().min(70) {
                    assert_eq!(take(&mut &out[..cut]), None, "{cut} of {}", out.len());
                }
                let mut whole = Vec::new();
                put_list_header(&mut whole, out.len());
                assert_eq!(whole.len(), header_len(out.len()));
                whole.extend_from_slice(&out);
                assert_eq!(list(&whole), Some(&out[..]));
                whole.push(0);
                assert_eq!(list(&whole), None);
            }
        }
        let other: [&[u8]; 8] = [
            &[0x81, 0x00],
            &[0x81, 0x7F],
            &[0xB8, 0x01, 0xFF],
            &[0xB9, 0x00, 0x40],
            &[0xF8, 0x02, 1, 1],
            &[0xF9, 0x00],
            &[0xBF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
            &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0],
        ];
        for bytes in other {
            assert_eq!(take(&mut &*bytes), None, "{bytes:x?}");
        }
        assert_eq!(number::<8>(&[]), Some([0; 8]));
        assert_eq!(number::<2>(&[1]), Some([0, 1]));
        assert_eq!((number::<2>(&[0]), number::<2>(&[1, 2, 3])), (None, None));
    }
}
