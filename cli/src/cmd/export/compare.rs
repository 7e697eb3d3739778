//! `--check`: each row of a file beside the archive's.

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
    let names = columns.names();
    let (mut file, has_head) = Reader::open(export.format, &path, &names)?;
    let wrong = |row: u64, reason: &str| Some(format!("{} row {row}: {reason}", path.display()));
    if !has_head {
        return Ok(wrong(0, "other columns"));
    }
    let (mut number, mut found) = (0, None);
    export.for_each_row(span, Some(&columns.domain), |row| {
        number += 1;
        found = match file.next(&names, export.encoding) {
            Err(reason) => wrong(number, &reason),
            Ok(None) => wrong(number, "the file ends before it"),
            Ok(Some(read)) => {
                let mut cells = read.iter();
                let mut is_same = true;
                columns.for_each_cell(row, |cell| {
                    is_same &= cells.next().is_some_and(|read| *read == cell);
                    Ok::<_, Failure>(())
                })?;
                if is_same && cells.next().is_none() {
                    None
                } else {
                    wrong(number, "not what the archive has")
                }
            }
        };
        Ok(found.is_none())
    })?;
    if found.is_none() && !matches!(file.next(&names, export.encoding), Ok(None)) {
        return Ok(wrong(number + 1, "the archive has no such row"));
    }
    Ok(found)
}
