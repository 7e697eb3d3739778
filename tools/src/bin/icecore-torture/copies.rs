//! The checkpoints of a script: one that was finished is an archive of its own with the state of its moment, whatever the
//! archive met since; any other says that it is not finished.

use std::path::{Path, PathBuf};

use icecore::{Archive, Error, OpenOptions, Reader, VerifyMode, verify};

use crate::check::{Kind, Verdict};
use crate::examine::{examine, with_causes};
use crate::script::{Op, Script};

/// Where operation `i` makes its copy.
pub(crate) fn path(archive: &Path, i: usize) -> PathBuf {
    archive.with_file_name(format!("copy-{i}"))
}

/// Whether the copy of operation `i` is finished.
pub(crate) fn is_finished(archive: &Path, i: usize) -> bool {
    !matches!(Reader::open(path(archive, i)), Err(Error::NotAnArchive { .. } | Error::Unfinished { .. }))
}

/// The operations of a script that make a copy.
fn all(script: &Script) -> impl Iterator<Item = usize> {
    (0..script.ops.len()).filter(|i| matches!(script.ops[*i], Op::Checkpoint))
}

/// Reads what there is of copies. Those of the operations before `promised` must be finished.
pub(crate) fn examine_left(archive: &Path, script: &Script, promised: usize) -> Result<(), Verdict> {
    all(script)
        .try_for_each(|i| examine_copy(archive, script, i, i < promised).map_err(|bad| in_copy(i, bad)))
}

fn examine_copy(archive: &Path, script: &Script, i: usize, is_promised: bool) -> Result<(), Verdict> {
    let copy = path(archive, i);
    match Reader::open(&copy) {
        Err(error @ (Error::NotAnArchive { .. } | Error::Unfinished { .. })) if is_promised => {
            Err(Verdict::new(Kind::Lost, with_causes(&error)))
        }
        Err(Error::NotAnArchive { .. } | Error::Unfinished { .. }) => Ok(()),
        reader => {
            examine(&reader?, &script.states[i])?;
            is_sound(&copy)
        }
    }
}

/// Writes to the copies that are finished, which changes nothing in the archive that they share files with. `must_be`: those
/// that must be.
pub(crate) fn write_to(
    archive: &Path,
    script: &Script,
    open: OpenOptions,
    must_be: impl Fn(usize) -> bool,
) -> Result<(), Verdict> {
    let write = |i: usize| -> Result<(), Verdict> {
        examine_copy(archive, script, i, must_be(i))?;
        if !is_finished(archive, i) {
            return Ok(());
        }
        let (copy, mut model) = (path(archive, i), script.states[i].clone());
        let (height, (key, value)) = (model.head().unwrap_or(0) + 1, model.new_entry());
        let opened = Archive::open(&copy, open)?;
        let mut block = opened.begin(height)?;
        block.put(model.domains()[key.0], &key.1, &value)?;
        block.commit()?;
        model.commit(height, &[(key, Some(value))]);
        if let Some((first, _)) = script.states[i].range() {
            opened.unwind(first, &())?;
            model.unwind(first);
        }
        examine(opened.reader(), &model)?;
        opened.close()?;
        is_sound(&copy)
    };
    all(script).try_for_each(|i| write(i).map_err(|bad| in_copy(i, bad)))
}

fn is_sound(copy: &Path) -> Result<(), Verdict> {
    match verify(copy, VerifyMode::Full, &())?.problems.first() {
        None => Ok(()),
        Some(problem) => Err(Verdict::new(Kind::Wrong, format!("verify: {}", with_causes(problem)))),
    }
}

fn in_copy(i: usize, verdict: Verdict) -> Verdict {
    Verdict { why: format!("the copy of operation {i}: {}", verdict.why), ..verdict }
}
