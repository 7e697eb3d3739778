//! `icecore man`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use serde_json::json;

use crate::exit::{Exit, Failure, Outcome};
use crate::print::{Out, plural};

/// Write the manual pages, one for the command and one for each verb.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  icecore man man1 && man ./man1/icecore-get.1
  icecore man ~/.local/share/man/man1")]
pub(crate) struct Args {
    /// The directory, made where it is not there
    dir: PathBuf,
    /// Print the names of the files as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    std::fs::create_dir_all(&args.dir).map_err(|source| refused("create", &args.dir, source))?;
    let mut whole = crate::Cli::command();
    // Gives the verbs their full names and the arguments that all take.
    whole.build();
    let verbs = whole.get_subcommands().filter(|verb| verb.get_name() != "help");
    let mut names = Vec::new();
    for page in std::iter::once(&whole).chain(verbs) {
        let name = format!("{}.1", page.get_display_name().unwrap_or(page.get_name()));
        let path = args.dir.join(&name);
        let file = File::create(&path).map_err(|source| refused("create", &path, source))?;
        write_page(page, BufWriter::new(file)).map_err(|source| refused("write", &path, source))?;
        names.push(name);
    }
    let mut out = Out::new();
    if args.json {
        out.json(&json!({ "dir": args.dir, "files": names }))?;
    } else {
        out.summary(format_args!("{} in {}", plural(names.len() as u64, "page"), args.dir.display()))?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

fn refused(operation: &'static str, path: &Path, source: io::Error) -> Failure {
    Failure::File { operation, path: path.to_owned(), source }
}

/// A page whose notes and examples keep their lines, which the generator would fill into paragraphs.
fn write_page(command: &Command, mut out: impl Write) -> io::Result<()> {
    let page = Man::new(command.clone());
    page.render_title(&mut out)?;
    page.render_name_section(&mut out)?;
    page.render_synopsis_section(&mut out)?;
    page.render_description_section(&mut out)?;
    page.render_options_section(&mut out)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut out)?;
    }
    if let Some(notes) = command.get_after_help() {
        let mut roff = Roff::default();
        roff.control("SH", ["NOTES AND EXAMPLES"]).control("nf", []);
        for line in notes.to_string().lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
        roff.to_writer(&mut out)?;
    }
    if command.get_version().is_some() {
        page.render_version_section(&mut out)?;
    }
    out.flush()
}
