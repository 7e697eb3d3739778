//! Little-endian and variable-length integers over byte slices, every read checked against the end; common prefixes.
//!
//! The one place where bytes become numbers. Used by every format of the project. A read past the
//! end is `None`: the caller knows which structure was cut and names it in its error.

const _: () = assert!(usize::BITS == 64, "lengths and offsets of files are held in usize");

/// The most bytes that a variable-length integer takes.
pub const VARINT_LEN_MAX: usize = 10;

/// Reads a `u16` at `offset`.
pub fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(offset..offset.checked_add(2)?)?.try_into().ok()?))
}

/// Reads a `u32` at `offset`.
pub fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(offset..offset.checked_add(4)?)?.try_into().ok()?))
}

/// Reads a `u64` at `offset`.
pub fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(offset..offset.checked_add(8)?)?.try_into().ok()?))
}

/// Reads a 32-byte array at `offset`.
pub fn array32_at(bytes: &[u8], offset: usize) -> Option<[u8; 32]> {
    bytes.get(offset..offset.checked_add(32)?)?.try_into().ok()
}

/// The first eight bytes as a number that orders as they do, zeros after a shorter key: different heads decide which key is
/// smaller, equal ones do not.
#[inline]
pub fn key_head(key: &[u8]) -> u64 {
    if let Some(bytes) = key.first_chunk() {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 8];
    bytes[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(bytes)
}

/// Reads up to eight bytes from `offset` on, lowest first; what is after the end counts as zero.
#[inline]
pub fn word_at(bytes: &[u8], offset: usize) -> u64 {
    match bytes.get(offset..).and_then(<[u8]>::first_chunk) {
        Some(word) => u64::from_le_bytes(*word),
        None => last_word(bytes, offset),
    }
}

#[cold]
fn last_word(bytes: &[u8], offset: usize) -> u64 {
    let rest = bytes.get(offset..).unwrap_or_default();
    rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// Appends `value` as LEB128: seven bits a byte, lowest first, the top bit set on all but the last.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The number of bytes that [`put_varint`] appends for `value`.
pub fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Reads a variable-length integer at `*offset` and moves `*offset` after it.
///
/// Refuses (`None`) a value that the bytes cut short, that does not fit 64 bits, or that is longer than
/// it needs to be: one number has one encoding, so that a file is a function of its content.
#[inline]
pub fn take_varint(bytes: &[u8], offset: &mut usize) -> Option<u64> {
    let first = *bytes.get(*offset)?;
    if first < 0x80 {
        *offset += 1;
        return Some(u64::from(first));
    }
    take_long_varint(bytes, offset)
}

fn take_long_varint(bytes: &[u8], offset: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for i in 0..VARINT_LEN_MAX {
        let byte = *bytes.get(*offset + i)?;
        let bits = u64::from(byte & 0x7F);
        if i == VARINT_LEN_MAX - 1 && byte > 1 {
            return None;
        }
        value |= bits << (7 * i);
        if byte < 0x80 {
            if byte == 0 && i > 0 {
                return None;
            }
            *offset += i + 1;
            return Some(value);
        }
    }
    None
}

/// Maps a signed difference to an unsigned number that is small when the difference is small.
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// The number of leading bytes that two strings share.
#[inline]
pub fn shared_len(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let mut at = 0;
    while let (Some(x), Some(y)) = (a[at..].first_chunk(), b[at..].first_chunk()) {
        let differing = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differing != 0 {
            return at + (differing.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while at < len && a[at] == b[at] {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_every_length() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut out = vec![0xAA];
                put_varint(&mut out, value);
                assert_eq!(out.len() - 1, varint_len(value));
                let mut offset = 1;
                assert_eq!(take_varint(&out, &mut offset), Some(value));
                assert_eq!(offset, out.len());
                offset = 1;
                assert_eq!(take_varint(&out[..out.len() - 1], &mut offset), None);
            }
        }
    }

    #[test]
    fn a_number_has_one_encoding() {
        for bytes in
            [&[0x80, 0x00][..], &[0xFF; 11], &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x02]]
        {
            assert_eq!(take_varint(bytes, &mut 0), None, "{bytes:?}");
        }
    }

    #[test]
    fn zigzag_keeps_small_numbers_small() {
        for value in [0, 1, -1, 63, -64, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        assert_eq!((zigzag(-1), zigzag(1)), (1, 2));
    }

    #[test]
    fn reads_past_the_end_are_none() {
        assert_eq!(u16_at(&[1], 0), None);
        assert_eq!(u32_at(&[1, 0, 0, 0], 0), Some(1));
        assert_eq!(u64_at(&[0; 8], usize::MAX), None);
        assert_eq!(array32_at(&[0; 33], 2), None);
    }
}
