//! Reads the bytes of a leaf without a check each: a place is taken modulo the page, and some bytes of the next page are there too.
//!
//! What a builder writes is read where it is. In any other page a search finds nonsense, as it would with checks, and is as
//! bounded; that the answer is a span of the file is for its caller to see to.

#![allow(clippy::inline_always, reason = "a call for each costs a search 7 % more instructions: callgrind")]

use icecore_segments::frame::PAGE_SIZE;

use super::layout::CODES_LEN;

/// The bytes that are given.
pub(super) const LEN: usize = PAGE_SIZE + CODES_LEN;

/// A leaf and the first bytes of the page after it, of which there is one always: the footer's.
#[derive(Clone, Copy)]
pub(super) struct Page<'a>(&'a [u8; LEN]);

impl<'a> Page<'a> {
    pub(super) fn new(bytes: &'a [u8; LEN]) -> Self {
        Self(bytes)
    }

    /// The leaf alone.
    #[inline]
    pub(super) fn leaf(self) -> &'a [u8; PAGE_SIZE] {
        self.0.first_chunk().unwrap_or(&[0; PAGE_SIZE])
    }

    #[inline(always)]
    pub(super) fn byte(self, at: usize) -> u8 {
        self.0[at % PAGE_SIZE]
    }

    #[inline(always)]
    pub(super) fn u16(self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    #[inline(always)]
    pub(super) fn u32(self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    #[inline(always)]
    pub(super) fn u64(self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }

    /// As many codes as a group has, and one more.
    #[inline(always)]
    pub(super) fn codes(self, at: usize) -> &'a [u8; CODES_LEN] {
        // Never the other: the compiler sees it too.
        self.0[at % PAGE_SIZE..].first_chunk().unwrap_or(&[0; CODES_LEN])
    }

    /// Bytes of the leaf alone; empty where these are none.
    #[inline]
    pub(super) fn slice(self, from: usize, end: usize) -> Option<&'a [u8]> {
        self.0[..PAGE_SIZE].get(from..end)
    }

    #[inline(always)]
    fn array<const N: usize>(self, at: usize) -> [u8; N] {
        self.0[at % PAGE_SIZE..].first_chunk().copied().unwrap_or([0; N])
    }
}
