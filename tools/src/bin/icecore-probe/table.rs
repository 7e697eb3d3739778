//! A table of a report: columns, some of them under a common heading, and lines.

use std::io::{self, Write};

/// Columns and lines; each line has a cell for each column.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) lines: Vec<Vec<String>>,
}

/// The headings of a column.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Column {
    /// What the column has in common with those beside it; empty where nothing.
    pub(crate) group: &'static str,
    pub(crate) head: String,
}

/// A cell under its column.
pub(crate) type Cell = (Column, String);

/// A cell of a column that has no group.
pub(crate) fn cell(head: &str, text: String) -> Cell {
    (Column { group: "", head: head.to_owned() }, text)
}

impl Table {
    /// The columns are those of the first line.
    pub(crate) fn new(lines: impl Iterator<Item = Vec<Cell>>) -> Self {
        let mut table = Self::default();
        for line in lines {
            let (columns, cells): (Vec<Column>, Vec<String>) = line.into_iter().unzip();
            if table.lines.is_empty() {
                table.columns = columns;
            }
            table.lines.push(cells);
        }
        table
    }

    /// The groups from the left, each with the number of its columns; empty where no column has one.
    pub(crate) fn groups(&self) -> Vec<(&'static str, usize)> {
        if self.columns.iter().all(|column| column.group.is_empty()) {
            return Vec::new();
        }
        let runs = self.columns.chunk_by(|a, b| a.group == b.group);
        runs.map(|run| (run[0].group, run.len())).collect()
    }

    /// Prints it, each column as wide as it needs.
    pub(crate) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let widths = self.widths();
        let (mut groups, mut at) = (String::new(), 0);
        for (group, columns) in self.groups() {
            let width = widths[at..at + columns].iter().sum::<usize>() + 2 * columns;
            let text = if at == 0 { group.to_owned() } else { format!("| {group}") };
            groups.push_str(&text);
            groups.extend(std::iter::repeat_n(' ', width.saturating_sub(text.len())));
            at += columns;
        }
        if !groups.is_empty() {
            writeln!(out, "{}", groups.trim_end())?;
        }
        let heads = self.columns.iter().map(|column| column.head.clone()).collect();
        for line in [&heads].into_iter().chain(&self.lines) {
            let padded = line.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            writeln!(out, "{}", padded.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }

    /// The width of each column; the columns of a group have room for its heading.
    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let cells = self.lines.iter().map(|line| line[column].len());
            cells.chain([self.columns[column].head.len()]).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut at = 0;
        for (group, columns) in self.groups() {
            let has = widths[at..at + columns].iter().sum::<usize>() + 2 * (columns - 1);
            widths[at + columns - 1] += (group.len() + 1).saturating_sub(has);
            at += columns;
        }
        widths
    }
}
