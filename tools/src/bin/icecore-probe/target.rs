//! Which segments are measured: those of an archive, or single `.kv` files with the accessors that are beside them.

use std::error::Error;
use std::path::{Path, PathBuf};

use icecore::Reader;

/// A `.kv` and where its accessors may be.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) kv: PathBuf,
    pub(crate) bt: PathBuf,
    pub(crate) kvei: PathBuf,
    /// Whether an archive says that the accessors belong to the `.kv`: then a bad one is an error, not one to build anew.
    pub(crate) is_archived: bool,
}

impl Target {
    /// The name of the `.kv` without its folder.
    pub(crate) fn name(&self) -> String {
        self.kv.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

/// Finds the segments at `paths`.
pub(crate) fn find(paths: &[PathBuf], domain: Option<&str>) -> Result<Vec<Target>, Box<dyn Error>> {
    let mut targets = Vec::new();
    for path in paths {
        if path.is_dir() {
            targets.extend(archived(path, domain)?);
        } else {
            targets.push(single(path));
        }
    }
    if targets.is_empty() {
        return Err("there is no segment to measure".into());
    }
    Ok(targets)
}

/// The live segments of an archive, without the archive's own domain of roots unless that is named.
fn archived(dir: &Path, domain: Option<&str>) -> Result<Vec<Target>, icecore::Error> {
    let segments = Reader::open(dir)?.segments();
    let wanted = segments.into_iter().filter(|segment| match domain {
        Some(domain) => segment.domain == domain,
        None => !segment.domain.starts_with('_'),
    });
    Ok(wanted
        .map(|segment| {
            let [kv, bt, kvei] = segment.files.map(|file| dir.join(file));
            Target { kv, bt, kvei, is_archived: true }
        })
        .collect())
}

fn single(kv: &Path) -> Target {
    let beside = |extension| kv.with_extension(extension);
    Target { kv: kv.to_owned(), bt: beside("bt"), kvei: beside("kvei"), is_archived: false }
}
