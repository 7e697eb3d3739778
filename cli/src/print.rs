//! Standard output: tables for people, JSON for programs, and a broken pipe that is no error message.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use crate::exit::Failure;
use crate::notes::is_quiet;

/// Standard output, buffered.
pub(crate) struct Out(BufWriter<StdoutLock<'static>>);

impl Out {
    /// Locks standard output.
    pub(crate) fn new() -> Self {
        Self(BufWriter::with_capacity(64 * 1024, io::stdout().lock()))
    }

    /// One line of text.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(crate) fn line(&mut self, text: impl std::fmt::Display) -> Result<(), Failure> {
        writeln!(self.0, "{text}").map_err(Failure::Output)
    }

    /// One line of text that says what was done; under `--quiet` none.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(crate) fn summary(&mut self, text: impl std::fmt::Display) -> Result<(), Failure> {
        if is_quiet() { Ok(()) } else { self.line(text) }
    }

    /// One line of JSON.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.0, value).map_err(|error| Failure::Output(error.into()))?;
        self.line("")
    }

    /// Whatever `write` writes.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(crate) fn with(
        &mut self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        write(&mut self.0).map_err(Failure::Output)
    }

    /// Lets the reader see what was written.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.0.flush().map_err(Failure::Output)
    }
}

impl Write for Out {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A table without lines: columns that begin with `>` are numbers and stand on the right. An empty head takes no line.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_preset(NOTHING);
    if head.iter().any(|name| !name.is_empty()) {
        table.set_header(head.map(|name| name.trim_start_matches('>')));
    }
    table.add_rows(rows.into_iter().map(Vec::from));
    for (column, name) in table.column_iter_mut().zip(head) {
        column.set_padding((0, 2));
        if name.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// A number of things, in groups of three digits.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (idx, digit) in digits.chars().enumerate() {
        if 0 < idx && (digits.len() - idx).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes for people.
pub(crate) fn bytes(number: u64) -> String {
    let mut value = number as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{number} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// `number` things of a kind, the plural made with an `s`.
pub(crate) fn plural(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

/// `text` in bold where a terminal shows it.
pub(crate) fn bold(text: &str) -> String {
    if io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        format!("\x1b[1m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
        for (number, text) in [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")] {
            assert_eq!(bytes(number), text);
        }
        assert_eq!((plural(1, "block"), plural(2, "block")), ("1 block".into(), "2 blocks".into()));
    }

    #[test]
    fn tables_have_no_lines() {
        let table =
            table(["name", ">size"], [["a".to_owned(), "1".to_owned()], ["bb".to_owned(), "200".to_owned()]]);
        assert_eq!(table.lines().collect::<Vec<_>>(), ["name  size", "a        1", "bb     200"]);
    }
}
