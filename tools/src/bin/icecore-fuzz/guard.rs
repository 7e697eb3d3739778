//! How much memory reading an input may take.

use crate::MEMORY;

/// What any reading may take: builders, buffers of decoders, the tree of a small state.
const FIXED: usize = 96 << 20;

/// Bytes for each byte of input, at the most: a batch of proofs names a sibling of 32 bytes in one.
const EACH: usize = 64;

/// Runs `read` and compares the memory at its peak with the length of the input.
///
/// # Errors
/// What `read` says, or how much memory it took. Memory that is not Rust's, as that of zstd, is not counted.
pub(crate) fn within(input_len: usize, read: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    read()?;
    let taken = MEMORY.peak_usage().saturating_sub(before);
    let most = FIXED.saturating_add(EACH.saturating_mul(input_len));
    if taken > most {
        return Err(format!(
            "swelled: {taken} bytes of memory for {input_len} bytes of input, at most {most}"
        ));
    }
    Ok(())
}
