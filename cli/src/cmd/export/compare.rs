//! `--check`: each row of a file beside the archive's.

use std::fs::File;
use std::ops::RangeInclusive;

use super::Export;
use super::rows::Columns;
use super::table::Reader;
use crate::exit::Failure;

/// What is wrong with a file: its name, the row, and why. `None` where every row is the archive's.
///
/// # Errors
/// The archive or the file cannot be read.
pub(super) fn compare(
    export: &Export<'_>,
    columns: &Columns,
    span: &RangeInclusive<u64>,
) -> Result<Option<String>, Failure> {
    let path = export.folder.path(&export.part(columns, span));
    let wrong = |row: u64, reason: &str| Some(format!("{} row {row}: {reason}", path.display()));
    let file = File::open(&path);
    let file = file.map_err(|source| Failure::File { operation: "read", path: path.clone(), source })?;
    let mut file = match Reader::new(export.format, file, columns, export.encoding) {
        Ok(file) => file,
        Err(reason) => return Ok(wrong(0, &reason)),
    };
    let (mut number, mut found) = (0, None);
    export.for_each_row(span, Some(&columns.domain), |row| {
        number += 1;
        found = match file.next_is(columns, row) {
            Err(reason) => wrong(number, &reason),
            Ok(None) => wrong(number, "the file ends before it"),
            Ok(Some(false)) => wrong(number, "not what the archive has"),
            Ok(Some(true)) => None,
        };
        Ok(found.is_none())
    })?;
    if found.is_none() && !file.is_at_end() {
        return Ok(wrong(number + 1, "the archive has no such row"));
    }
    Ok(found)
}
