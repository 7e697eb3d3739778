//! How a tool ends: its errors, with what caused them, and its exit code.

use std::error::Error;
use std::process::ExitCode;

/// Tells standard error what stopped `tool`, if anything did.
pub fn code(tool: &str, result: Result<(), Box<dyn Error>>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    eprintln!("{tool}: {text}");
    ExitCode::FAILURE
}
