//! Does the rig catch anything? Three targets with a planted fault each, run as a user runs them.

use std::error::Error;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::guard;
use crate::rig::Target;
use crate::tape::Tape;

/// The targets that must fail, and with which word.
pub(crate) const PLANTED: &[Target] = &[
    Target { name: "planted-panic", about: "panicked", run: planted_panic },
    Target { name: "planted-spin", about: "spun", run: planted_spin },
    Target { name: "planted-swell", about: "swelled", run: planted_swell },
    Target { name: "planted-lie", about: "lied", run: planted_lie },
];

/// One input in some fifty is the bad one.
fn is_bad(tape: &mut Tape<'_>) -> bool {
    tape.below(50) == 7
}

#[expect(clippy::unnecessary_wraps, reason = "a target has a result")]
fn planted_panic(tape: &mut Tape<'_>) -> Result<(), String> {
    assert!(!is_bad(tape), "planted");
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "a target has a result")]
fn planted_spin(tape: &mut Tape<'_>) -> Result<(), String> {
    while is_bad(tape) {
        thread::sleep(Duration::from_secs(3600));
    }
    Ok(())
}

fn planted_swell(tape: &mut Tape<'_>) -> Result<(), String> {
    let is_bad = is_bad(tape);
    guard::within(100, || {
        let swollen = if is_bad { vec![1u8; 200 << 20] } else { Vec::new() };
        if swollen.len() == 1 { Err("no".to_owned()) } else { Ok(()) }
    })
}

fn planted_lie(tape: &mut Tape<'_>) -> Result<(), String> {
    if is_bad(tape) { Err("lied: an answer that is not the right one".to_owned()) } else { Ok(()) }
}

/// Runs every planted fault: it must be caught, called by its name, kept, and caught again from what was kept.
pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let program = std::env::current_exe()?;
    for planted in PLANTED {
        let dir = tempfile::tempdir()?;
        let caught = |arguments: &[&str]| -> Result<(), Box<dyn Error>> {
            let mut command = Command::new(&program);
            let output =
                command.args([planted.name, "--limit", "2"]).args(arguments).current_dir(&dir).output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            if output.status.success() || !said.contains(planted.about) {
                return Err(format!("{} was not caught: {said}", planted.name).into());
            }
            Ok(())
        };
        caught(&["--seconds", "60"])?;
        let kept = std::fs::read_dir(&dir)?.next().ok_or("no input was kept")??.path();
        caught(&["--input", &kept.to_string_lossy()])?;
        println!("{:14} caught, kept, and caught again", planted.name);
    }
    Ok(())
}
