//! What is said on standard error that is no error: notes, details under `--verbose`, nothing under `--quiet`.

use std::fmt;
use std::io::Write as _;
use std::sync::OnceLock;

use serde_json::json;

use crate::encoding::printable;

/// How much is said beside answers and errors.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct Verbosity {
    /// Report on standard error what is done and what reads cost
    #[arg(long, short, global = true, conflicts_with = "quiet")]
    verbose: bool,
    /// Print answers, warnings of damage and errors only: no summary, note or progress bar
    #[arg(long, short, global = true)]
    quiet: bool,
}

static CHOSEN: OnceLock<Verbosity> = OnceLock::new();

impl Verbosity {
    /// Makes this the verbosity of the process.
    pub(crate) fn choose(self) {
        // There is one command line.
        let _ = CHOSEN.set(self);
    }

    fn chosen() -> Self {
        CHOSEN.get().copied().unwrap_or_default()
    }
}

/// Whether only answers and errors are printed.
pub(crate) fn is_quiet() -> bool {
    Verbosity::chosen().quiet
}

/// Whether details are printed.
pub(crate) fn is_verbose() -> bool {
    Verbosity::chosen().verbose
}

/// Whether the command line asks for JSON, known before and without its being sound.
pub(crate) fn speaks_json() -> bool {
    std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json")
}

/// A line on standard error. One that cannot be written is lost: the exit code says how the command ended.
pub(crate) fn tell(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Says something on standard error that is no failure.
pub(crate) fn note(text: impl fmt::Display) {
    if is_quiet() {
        return;
    }
    if speaks_json() {
        tell(format_args!("{}", json!({ "note": text.to_string() })));
    } else {
        tell(format_args!("icecore: note: {}", printable(&text.to_string())));
    }
}

/// Says that something is wrong with the archive and the command worked all the same; under `--quiet` too.
pub(crate) fn warning(text: impl fmt::Display) {
    if speaks_json() {
        tell(format_args!("{}", json!({ "warning": text.to_string() })));
    } else {
        tell(format_args!("icecore: warning: {}", printable(&text.to_string())));
    }
}

/// The same as [`note`] under `--verbose` only.
pub(crate) fn detail(text: impl fmt::Display) {
    if is_verbose() {
        note(text);
    }
}
