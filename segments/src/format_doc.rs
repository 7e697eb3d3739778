//! Compares a `FORMAT.md` with the code: a layout is written once, every other appearance is checked.
//!
//! For the tests of the crates that own bytes; each of them has one that reads its own document through [`FormatDoc`]. A
//! check panics where document and code differ, and says where.

use std::fmt::Write;

/// The text of a `FORMAT.md`.
#[derive(Clone, Copy, Debug)]
pub struct FormatDoc(&'static str);

impl FormatDoc {
    /// The document with this text.
    pub const fn new(text: &'static str) -> Self {
        Self(text)
    }

    /// The text between a heading, or any other line, and the next heading.
    #[track_caller]
    pub fn section(&self, heading: &str) -> &'static str {
        let after = |(at, found): (usize, &str)| &self.0[at + found.len()..];
        let mut places = self.0.match_indices(heading);
        let rest = places.find(|(at, _)| self.is_line(*at, heading)).map(after);
        let rest = rest.unwrap_or_else(|| panic!("no line `{heading}`"));
        &rest[..rest.find("\n#").unwrap_or(rest.len())]
    }

    fn is_line(&self, at: usize, line: &str) -> bool {
        (at == 0 || self.0[..at].ends_with('\n')) && self.0[at + line.len()..].starts_with('\n')
    }

    /// The rows of the first table of a section that begins with this column, each as its cells.
    #[track_caller]
    pub fn table(&self, heading: &str, column: &str) -> Vec<Vec<&'static str>> {
        let is_head = |line: &&str| line.strip_prefix("| ").is_some_and(|rest| rest.starts_with(column));
        let lines = self.section(heading).lines().skip_while(|line| !is_head(line));
        let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
        let rows: Vec<Vec<_>> =
            rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect();
        assert!(!rows.is_empty(), "{heading}: no table of `{column}`");
        rows
    }

    /// Compares the table of a structure, `offset | size | type | field | ...`, with the offsets of the code: each field
    /// begins with the word given for it, none overlaps the next, and the last one ends at `end`, if that is given.
    #[track_caller]
    pub fn check_layout(&self, heading: &str, expected: &[(usize, &str)], end: Option<usize>) {
        let rows = self.table(heading, "offset");
        assert_eq!(rows.len(), expected.len(), "{heading}: fields");
        let place = |row: &[&str]| {
            let at: usize = row[0].parse().unwrap_or_else(|_| panic!("{heading}: offset {}", row[0]));
            (at, row[1].parse::<usize>().map_or(at, |size| at + size))
        };
        for (row, (at, field)) in rows.iter().zip(expected) {
            assert_eq!(place(row).0, *at, "{heading}: {field}");
            assert!(row[3].starts_with(field), "{heading}: {field} at {at}, not {}", row[3]);
        }
        for pair in rows.windows(2) {
            assert!(place(&pair[0]).1 <= place(&pair[1]).0, "{heading}: {} overlaps", pair[1][3]);
        }
        if let (Some(end), Some(last)) = (end, rows.last()) {
            assert_eq!(place(last).1, end, "{heading}: length");
        }
    }

    /// Compares the bytes of a structure with its table, `offset | size | type | field | ...`: each field has this value where the table
    /// has its offset, or ends the bytes where that is no number.
    #[track_caller]
    pub fn check_fields(&self, heading: &str, bytes: &[u8], fields: &[(&str, &[u8])]) {
        let rows = self.table(heading, "offset");
        for (field, value) in fields {
            let row = rows.iter().find(|row| row[3] == *field);
            let row = row.unwrap_or_else(|| panic!("{heading}: no field `{field}`"));
            let at = row[0].parse().unwrap_or_else(|_| bytes.len() - value.len());
            assert_eq!(row[1], value.len().to_string(), "{heading}: size of {field}");
            assert_eq!(bytes[at..][..value.len()], **value, "{heading}: {field}");
        }
    }

    /// Compares the table of a format's versions with those of the code: the number, and what it brought.
    #[track_caller]
    pub fn check_versions(&self, heading: &str, expected: &[(u32, &str)]) {
        let rows = self.table(heading, "version");
        let found: Vec<_> = rows.iter().map(|row| (row[0].parse().unwrap_or(0), row[1])).collect();
        assert_eq!(found, expected, "{heading}: versions");
    }

    /// Compares the block of hexadecimal that opens with `fence` with the bytes of the code. The offsets and the remarks are
    /// the document's; the bytes from one offset to the next are written as the failing test shows them.
    #[track_caller]
    pub fn check_example(&self, fence: &str, bytes: &[u8]) {
        let section = self.section(fence);
        let block = section.split("```").next().unwrap_or_default().trim_matches('\n');
        let lines: Vec<(usize, &str)> = block.lines().map(example_line).collect();
        let mut wanted = String::new();
        for (i, (from, remark)) in lines.iter().enumerate() {
            let to = lines.get(i + 1).map_or(bytes.len(), |next| next.0);
            let _ = writeln!(wanted, "{from:4}  {:<36}  {remark}", hex(&bytes[*from..to]));
        }
        assert!(lines.first().is_some_and(|line| line.0 == 0), "{fence}: begins at offset 0");
        assert!(block == wanted.trim_end(), "{fence}: the bytes are\n{wanted}");
    }
}

/// The offset and the remark of a line of an example.
fn example_line(line: &str) -> (usize, &str) {
    let (offset, rest) = line.trim_start().split_once("  ").unwrap_or((line, ""));
    let offset = offset.parse().unwrap_or_else(|_| panic!("no offset: {line}"));
    (offset, rest.trim_start().split_once("  ").map_or("", |(_, remark)| remark.trim_start()))
}

/// Bytes in hexadecimal; of a long run of one byte the first four.
fn hex(bytes: &[u8]) -> String {
    let is_run = bytes.len() > 8 && bytes.iter().all(|byte| *byte == bytes[0]);
    let shown = if is_run { &bytes[..4] } else { bytes };
    let mut pairs: Vec<String> = shown.iter().map(|byte| format!("{byte:02x}")).collect();
    pairs.extend(is_run.then(|| "...".to_owned()));
    pairs.join(" ")
}
