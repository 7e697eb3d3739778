//! Workloads as the lines that `icecore ingest --format jsonl` reads: one change a line, keys and values in hex.

use std::io::{self, Write};

use super::blocks::{Block, BlockOptions};
use super::storage::{BlockRule, Entry, StorageEntries};

/// How many entries are held at a time while the dataset is put in block order.
const HELD_MAX: u64 = 4_000_000;

/// The number of blocks of [`BlockRule::Mod1024`].
const MOD_BLOCKS: u64 = 1024;

/// Writes the reference dataset in the order of its blocks, which is what an archive takes.
///
/// # Cost
/// For [`BlockRule::AllOne`] the memory of the iterator. For [`BlockRule::Mod1024`] as many passes over the
/// generator as it takes to hold no more than 4 M entries (about 370 MB) at a time.
pub fn write_storage(
    out: &mut impl Write,
    dataset: &StorageEntries,
    domain: &str,
    rule: BlockRule,
) -> io::Result<()> {
    let mut line = Line::new(domain);
    match rule {
        BlockRule::AllOne(block) => {
            dataset.iter().try_for_each(|entry| line.write(out, block, entry.key(), Some(entry.value())))
        }
        BlockRule::Mod1024 => {
            let passes = dataset.len().div_ceil(HELD_MAX).min(MOD_BLOCKS);
            let width = MOD_BLOCKS.div_ceil(passes);
            for first in (0..MOD_BLOCKS).step_by(width as usize) {
                let end = (first + width).min(MOD_BLOCKS);
                write_blocks_of_storage(out, dataset, &mut line, first..end)?;
            }
            Ok(())
        }
    }
}

fn write_blocks_of_storage(
    out: &mut impl Write,
    dataset: &StorageEntries,
    line: &mut Line,
    blocks: std::ops::Range<u64>,
) -> io::Result<()> {
    let mut held: Vec<Vec<Entry>> = vec![Vec::new(); (blocks.end - blocks.start) as usize];
    for (place, entry) in (0u64..).zip(dataset.iter()) {
        let block = BlockRule::Mod1024.block(place);
        if blocks.contains(&block) {
            held[(block - blocks.start) as usize].push(entry);
        }
    }
    for (block, entries) in blocks.zip(&held) {
        entries.iter().try_for_each(|entry| line.write(out, block, entry.key(), Some(entry.value())))?;
    }
    Ok(())
}

/// Writes one block of a stream. A block without changes leaves no line: the format has none for it.
pub fn write_block(out: &mut impl Write, options: &BlockOptions, block: &Block) -> io::Result<()> {
    let mut lines: Vec<Line> = options.domains.iter().map(|domain| Line::new(&domain.name)).collect();
    block.changes.iter().try_for_each(|change| {
        lines[change.domain].write(out, block.height, &change.key, change.value.as_deref())
    })
}

/// Composes lines of one domain.
struct Line {
    /// The domain as a JSON string.
    domain: String,
    text: Vec<u8>,
}

impl Line {
    fn new(domain: &str) -> Self {
        Self { domain: serde_json::Value::from(domain).to_string(), text: Vec::new() }
    }

    fn write(
        &mut self,
        out: &mut impl Write,
        block: u64,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> io::Result<()> {
        self.text.clear();
        write!(self.text, r#"{{"block":{block},"domain":{},"key":"0x"#, self.domain)?;
        put_hex(&mut self.text, key);
        match value {
            None => self.text.extend_from_slice(b"\",\"value\":null}\n"),
            Some(value) => {
                self.text.extend_from_slice(b"\",\"value\":\"0x");
                put_hex(&mut self.text, value);
                self.text.extend_from_slice(b"\"}\n");
            }
        }
        out.write_all(&self.text)
    }
}

fn put_hex(text: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        text.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::blocks::Change;
    use serde_json::Value;

    #[test]
    fn a_block_is_one_line_per_change() {
        let mut options = BlockOptions::text(1, 1);
        options.domains[0].name = "k\"v".into();
        let change = |value: Option<&[u8]>| Change {
            domain: 0,
            key: b"a\xFF".to_vec(),
            value: value.map(<[u8]>::to_vec),
        };
        let block =
            Block { height: 9, changes: vec![change(Some(b"\x01")), change(None), change(Some(b""))] };
        let mut text = Vec::new();
        write_block(&mut text, &options, &block).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            concat!(
                r#"{"block":9,"domain":"k\"v","key":"0x61ff","value":"0x01"}"#,
                "\n",
                r#"{"block":9,"domain":"k\"v","key":"0x61ff","value":null}"#,
                "\n",
                r#"{"block":9,"domain":"k\"v","key":"0x61ff","value":"0x"}"#,
                "\n",
            )
        );
    }

    #[test]
    fn the_dataset_comes_in_block_order_and_whole() {
        let dataset = StorageEntries::new(5_000);
        for rule in [BlockRule::AllOne(3), BlockRule::Mod1024] {
            let mut text = Vec::new();
            write_storage(&mut text, &dataset, "storage", rule).unwrap();
            let lines: Vec<Value> = text
                .split(|byte| *byte == b'\n')
                .filter_map(|line| serde_json::from_slice(line).ok())
                .collect();
            let blocks: Vec<u64> = lines.iter().map(|line| line["block"].as_u64().unwrap()).collect();
            assert!(blocks.is_sorted());
            assert_eq!(blocks.len(), 5_000);
            let mut keys: Vec<&str> = lines.iter().map(|line| line["key"].as_str().unwrap()).collect();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), 5_000);
        }
    }
}
