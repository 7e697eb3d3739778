//! Which run of which build gave a figure: what a report needs so that it can be repeated and compared.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::time::SystemTime;

use serde::Serialize;

/// A run of a tool.
#[derive(Clone, Debug, Serialize)]
pub struct Provenance {
    /// The command line, as a shell takes it. The program by its name: in which folder it lay says nothing to others.
    pub command: String,
    /// The version of the package.
    pub version: &'static str,
    /// The commit that was built; `None` where it was not built in a checkout.
    pub commit: Option<&'static str>,
    /// When the run began, UTC.
    pub date: String,
}

impl Provenance {
    /// Of this process. Call it when the run begins.
    pub fn of_this_run() -> Self {
        Self {
            command: command_line(std::env::args()),
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("ICECORE_COMMIT"),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        }
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "command      {}", self.command)?;
        writeln!(f, "version      {}, commit {}", self.version, self.commit.unwrap_or("unknown"))?;
        write!(f, "date         {}", self.date)
    }
}

fn command_line(mut arguments: impl Iterator<Item = String>) -> String {
    let program = arguments.next().unwrap_or_default();
    let name = Path::new(&program).file_name().map_or(Cow::Borrowed(""), OsStr::to_string_lossy);
    std::iter::once(quoted(&name))
        .chain(arguments.map(|argument| quoted(&argument)))
        .collect::<Vec<_>>()
        .join(" ")
}

/// An argument as a shell takes it.
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,=:@%+".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_names_no_folder_of_the_machine() {
        let line = command_line(
            ["target/release/icecore-figures", "files", "--dir", "a b"].map(String::from).into_iter(),
        );
        assert_eq!(line, "icecore-figures files --dir 'a b'");
    }

    #[test]
    fn a_command_line_can_be_given_to_a_shell_again() {
        for (argument, shown) in
            [("--m=16,64", "--m=16,64"), ("a b.ice", "'a b.ice'"), ("", "''"), ("it's", r"'it'\''s'")]
        {
            assert_eq!(quoted(argument), shown);
        }
    }

    #[test]
    fn a_run_has_three_lines_and_a_date() {
        let run = Provenance::of_this_run();
        assert_eq!(run.to_string().lines().count(), 3);
        assert!(run.date.ends_with('Z') && run.date.len() == "2026-11-21T00:00:00Z".len(), "{}", run.date);
    }
}
