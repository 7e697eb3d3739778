//! The two checksums of the project, and when each is looked at.
//!
//! * [`seal`] / [`is_sealed`]: CRC-64/NVME of one page, bound to the page's place (its number and the identity
//!   of its file), so a page of another file or another offset is noticed although it is sound in itself.
//!   66 ns for 4 KiB where CRC-32C takes 198 and XXH3 179.
//! * [`ContentHasher`]: BLAKE3 of a whole file up to its footer. An accessor names its segment by it.
//!
//! A reader checks a page the first time it touches it after opening and remembers that in one bit
//! ([`PageChecks`]), because a check at every lookup would cost as much as the lookup. Damage that
//! reaches a page after that is for `verify` to find.

use std::fmt;
#[cfg(feature = "testing")]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bytes::u64_at;

/// The unit of reading and of checksums, in bytes: one page of the operating system.
pub const PAGE_SIZE: usize = 4096;

/// BLAKE3 of everything in a file before its footer: what the file *is*.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Checksum(pub [u8; 32]);

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Computes a [`Checksum`] as bytes are written.
#[derive(Default)]
pub struct ContentHasher(blake3::Hasher);

impl ContentHasher {
    /// Takes the next bytes of the file.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes taken.
    pub fn finish(&self) -> Checksum {
        Checksum(self.0.finalize().into())
    }
}

/// The identity of a file as far as its pages are concerned: mixed into each page checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Salt(pub(crate) u64);

/// Writes the checksum of a page into its first eight bytes.
///
/// # Panics
/// If `page` is not [`PAGE_SIZE`] long: the caller's mistake, never the disk's.
pub fn seal(page: &mut [u8], number: u64, salt: Salt) {
    assert_eq!(page.len(), PAGE_SIZE, "a page has {PAGE_SIZE} bytes");
    let sum = page_checksum(&page[8..], number, salt);
    page[..8].copy_from_slice(&sum.to_le_bytes());
}

/// Whether a page has the checksum that [`seal`] wrote for this number and file.
pub fn is_sealed(page: &[u8], number: u64, salt: Salt) -> bool {
    page.len() == PAGE_SIZE
        && (!compares_pages() || u64_at(page, 0) == Some(page_checksum(&page[8..], number, salt)))
}

#[cfg(feature = "testing")]
static COMPARES_PAGES: AtomicBool = AtomicBool::new(true);

/// Whether [`is_sealed`] compares from now on: a test that leaves it out must fail.
#[cfg(feature = "testing")]
pub fn compare_pages(compare: bool) {
    COMPARES_PAGES.store(compare, Ordering::Relaxed);
}

#[cfg(feature = "testing")]
fn compares_pages() -> bool {
    COMPARES_PAGES.load(Ordering::Relaxed)
}

#[cfg(not(feature = "testing"))]
const fn compares_pages() -> bool {
    true
}

/// CRC-64/NVME of any bytes: what log records and small files carry.
pub fn crc64(bytes: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes)
}

/// The place is mixed in by an odd multiplier: a bijection, so two places never share a checksum by cancelling.
fn page_checksum(body: &[u8], number: u64, salt: Salt) -> u64 {
    crc64(body) ^ (number ^ salt.0).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// One bit per page: whether this reader has seen the page's checksum hold.
///
/// Shared by all threads that read a file; a race costs a second check, never a missed one.
pub struct PageChecks(Box<[AtomicU64]>);

impl PageChecks {
    /// No page of `pages` checked yet. Costs one bit of memory per page.
    pub fn new(pages: u64) -> Self {
        Self((0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Returns whether page `number` is sound: from memory, or by `check` when it is asked for the first time.
    #[inline]
    pub fn ensure(&self, number: u64, check: impl FnOnce() -> bool) -> bool {
        let Some(word) = self.0.get((number / 64) as usize) else { return check() };
        let bit = 1 << (number % 64);
        if word.load(Ordering::Relaxed) & bit != 0 {
            return true;
        }
        let sound = check();
        if sound {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        sound
    }

    /// Whether page `number` was read and found sound before, so that it may still be in memory.
    #[inline]
    pub fn is_checked(&self, number: u64) -> bool {
        let word = self.0.get((number / 64) as usize).map_or(0, |word| word.load(Ordering::Relaxed));
        word & (1 << (number % 64)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_holds_for_one_place_and_breaks_with_any_bit() {
        let mut page = vec![7u8; PAGE_SIZE];
        seal(&mut page, 3, Salt(9));
        assert!(is_sealed(&page, 3, Salt(9)));
        assert!(!is_sealed(&page, 4, Salt(9)) && !is_sealed(&page, 3, Salt(8)));
        assert!(!is_sealed(&page[..4095], 3, Salt(9)));
        for byte in (0..PAGE_SIZE).step_by(97) {
            for bit in 0..8 {
                page[byte] ^= 1 << bit;
                assert!(!is_sealed(&page, 3, Salt(9)), "byte {byte} bit {bit}");
                page[byte] ^= 1 << bit;
            }
        }
    }

    #[test]
    fn a_page_is_checked_until_it_holds_and_not_after() {
        let checks = PageChecks::new(65);
        assert!(!checks.ensure(64, || false));
        assert!(checks.ensure(64, || true));
        assert!(checks.ensure(64, || unreachable!("remembered")));
        assert!(!checks.ensure(1000, || false), "a page out of range is never remembered");
    }
}
