//! A child process that must end by itself, with an exit code of its own.

use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a command may take over a few kilobytes.
const TIME_MAX: Duration = Duration::from_secs(20);

/// How often it is asked whether it is done.
const POLL: Duration = Duration::from_millis(1);

/// The `icecore` command that is beside this program.
pub(crate) fn icecore() -> Option<PathBuf> {
    let here = std::env::current_exe().ok()?;
    let beside = here.parent()?.join("icecore");
    beside.is_file().then_some(beside)
}

/// Runs a command to its end and says how it ended.
///
/// # Errors
/// That it does not end. It is killed then.
pub(crate) fn run(command: &mut Command) -> Result<ExitStatus, String> {
    let tell = |error: std::io::Error| format!("cannot run the command: {error}");
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(tell)?;
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(tell)? {
            return Ok(status);
        }
        if started.elapsed() > TIME_MAX {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("spun: the command is not done after {} s", TIME_MAX.as_secs()));
        }
        thread::sleep(POLL);
    }
}
