//! Tells the build from which commit it is made, for the reports of the tools. Outside a checkout, or without git, nothing is told and the
//! reports say that the commit is unknown.

use std::path::Path;
use std::process::Command;

/// Where the code of every crate that the tools measure stands, and the versions of all others.
const SOURCES: &[&str] = &["Cargo.lock", "engine", "hot", "index", "segments", "tools"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return };
    let pending = [&["status", "--porcelain", "--"], SOURCES].concat();
    let changed = git(&pending).is_none_or(|changes| !changes.is_empty());
    println!("cargo::rustc-env=ICECORE_COMMIT={commit}{}", if changed { " with changes" } else { "" });
    // The log of HEAD grows with every commit and checkout, the files change with every edit.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]);
    let sources = SOURCES.iter().map(|source| (*source).to_owned());
    for path in
        log.into_iter().chain(sources).map(|path| Path::new("..").join(path)).filter(|path| path.exists())
    {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// What git says in the root of the repository; `None` where it says nothing.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).current_dir("..").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
