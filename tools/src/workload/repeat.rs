//! A stretch of blocks again and again, each round at higher heights: real changes in any number.

use std::io::{self, BufRead, Write};

use serde_json::Value;

/// Writes the JSON lines of `input` `times` times. Each round's `block` fields are above those of the round before, by the
/// distance from the first block to the one after the last; nothing else changes.
///
/// # Cost
/// Holds the input in memory.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] with the line number for a line without a number under `block`.
pub fn write_repeated(input: impl BufRead, times: u64, out: &mut impl Write) -> io::Result<()> {
    let mut lines = Vec::new();
    for (number, line) in input.lines().enumerate() {
        let line = line?;
        if !line.trim().is_empty() {
            let block = block_of(&line).ok_or_else(|| bad_line(number + 1))?;
            lines.push((block, line));
        }
    }
    let (Some((first, _)), Some((last, _))) = (lines.first(), lines.last()) else { return Ok(()) };
    let period = last - first + 1;
    for round in 0..times {
        for (block, line) in &lines {
            let shifted = format!("\"block\":{}", block + round * period);
            out.write_all(line.replacen(&format!("\"block\":{block}"), &shifted, 1).as_bytes())?;
            out.write_all(b"\n")?;
        }
    }
    Ok(())
}

/// The height of a line, if the line spells it in the one way that can be replaced.
fn block_of(line: &str) -> Option<u64> {
    let fields: Value = serde_json::from_str(line).ok()?;
    let block = fields.get("block")?.as_u64()?;
    line.contains(&format!("\"block\":{block}")).then_some(block)
}

fn bad_line(number: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("line {number}: no \"block\":NUMBER without spaces"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_follow_each_other_without_overlap() {
        let input = "{\"block\":7,\"key\":\"a\"}\n\n{\"block\":9,\"key\":\"b\"}\n";
        let mut out = Vec::new();
        write_repeated(input.as_bytes(), 2, &mut out).unwrap();
        let expected = "{\"block\":7,\"key\":\"a\"}\n{\"block\":9,\"key\":\"b\"}\n\
                        {\"block\":10,\"key\":\"a\"}\n{\"block\":12,\"key\":\"b\"}\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_line_without_a_block_is_named() {
        let error = write_repeated(&b"{\"block\":1}\n{}\n"[..], 1, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
    }
}
