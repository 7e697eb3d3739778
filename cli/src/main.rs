//! The command `icecore`: builds, reads, proves and keeps an archive of chain state.
//!
//! One file per verb in [`cmd`]; [`input`] turns text into blocks, [`encoding`] text into keys and values and back,
//! [`mod@print`], [`notes`] and [`progress`] are read by people, [`exit`] by scripts.

#![forbid(unsafe_code)]

mod ask;
#[cfg(feature = "s3")]
mod bucket;
mod cmd;
mod encoding;
mod exit;
mod input;
mod json;
mod keys;
mod notes;
mod number;
mod place;
mod print;
mod progress;
#[cfg(feature = "s3")]
mod push_to;
#[cfg(feature = "s3")]
mod sign;

use std::process::ExitCode;
use std::sync::LazyLock;

use clap::Parser;

use crate::exit::{CODES, report, report_usage};
use crate::notes::Verbosity;

/// An archive of chain state: every version of every key, in files that never change, and a root for every block
#[derive(Parser)]
#[command(name = "icecore", version = VERSION.as_str(), max_term_width = 100, after_help = format!("{EXAMPLES}\n\n{CODES}"))]
struct Cli {
    #[command(flatten)]
    verbosity: Verbosity,
    #[command(subcommand)]
    command: cmd::Command,
}

/// What `-V` says: the version, the commit where it is known, and the formats that are written.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let commit = option_env!("ICECORE_COMMIT").unwrap_or("unknown");
    let formats = icecore::format::versions().map(|(name, version)| format!("{name} {version}"));
    format!("{}, commit {commit}, formats {}", env!("CARGO_PKG_VERSION"), formats.join(", "))
});

const EXAMPLES: &str = "\
Examples:
  icecore demo                           see it work, in well under a minute
  icecore ingest chain.ice changes.jsonl --format jsonl --create
  icecore get chain.ice alice --at 17    the value of a key at block 17
  icecore prove chain.ice alice --at 17 | icecore verify-proof -";

fn main() -> ExitCode {
    let run = |cli: Cli| {
        cli.verbosity.choose();
        cli.command.run()
    };
    match Cli::try_parse().map(run) {
        Ok(Ok(exit)) => exit.into(),
        Ok(Err(failure)) => report(&failure).into(),
        Err(error) => report_usage(&error).into(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
