//! `icecore completions`.
//!
//! The scripts are static: names of domains are not completed. That needs the part of `clap_complete` that runs the command
//! at each key press, which is behind its feature `unstable-dynamic`: it may change in any release, and an installation
//! without the lock file might no longer build.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::exit::{Exit, Outcome};
use crate::print::Out;

/// Print completions for a shell.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  icecore completions bash > /etc/bash_completion.d/icecore
  icecore completions zsh > \"${fpath[1]}/_icecore\"
  icecore completions fish > ~/.config/fish/completions/icecore.fish")]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "icecore", &mut script);
    let mut out = Out::new();
    out.with(|out| out.write_all(&script))?;
    out.flush()?;
    Ok(Exit::Done)
}
