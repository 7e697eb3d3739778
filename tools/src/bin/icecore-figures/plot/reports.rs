//! The reports of a directory, each known by what it holds.

use std::error::Error;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// The reports in the order of their names.
pub(super) struct Reports(Vec<Value>);

impl Reports {
    /// Reads every `*.json` of a directory.
    pub(super) fn of(dir: &Path) -> Result<Self, Box<dyn Error>> {
        let entries = fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, std::io::Error>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        paths.sort();
        let read =
            |path: &Path| -> Result<Value, Box<dyn Error>> { Ok(serde_json::from_slice(&fs::read(path)?)?) };
        let named = |path: &Path| read(path).map_err(|error| format!("{}: {error}", path.display()));
        Ok(Self(paths.iter().map(|path| named(path)).collect::<Result<_, _>>()?))
    }

    /// The reports of `icecore-figures` that have a figure of this name.
    pub(super) fn with_figure<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |report| figure(report, name).is_some())
    }

    /// The last report one of whose members is a list with an element that has this member.
    pub(super) fn last_with(&self, list: &str, member: &str) -> Option<&Value> {
        let has = |report: &&Value| items(&report[list]).any(|item| item.get(member).is_some());
        self.0.iter().rev().find(has)
    }
}

/// The elements of a list; none of anything else.
pub(super) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// A figure of a report of `icecore-figures`.
pub(super) fn figure(report: &Value, name: &str) -> Option<f64> {
    items(&report["figures"]).find(|figure| figure["name"] == name)?["measured"].as_f64()
}
