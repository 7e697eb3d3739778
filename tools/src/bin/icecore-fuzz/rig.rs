//! Runs targets: one input after the other on a thread that is watched, until the time is up or one fails.

use std::error::Error;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use icecore_tools::workload::SplitMix64;
use nix::sys::resource::{Resource, setrlimit};

use crate::tape::{Tape, random_tape};

/// The address space of a run: what takes more ends it, as on a machine without that much memory.
const ADDRESS_SPACE_MAX: u64 = 8 << 30;

/// What is fed.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Takes its input from the tape.
    ///
    /// # Errors
    /// What should not have happened.
    pub(crate) run: fn(&mut Tape<'_>) -> Result<(), String>,
}

/// How long a run and one input may take.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) total: Duration,
    pub(crate) each: Duration,
}

/// Where the last panic happened and what it said.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// A thread that runs inputs.
struct Worker {
    inputs: Sender<Vec<u8>>,
    verdicts: Receiver<Result<(), String>>,
}

impl Worker {
    fn start(target: &Target) -> Result<Self, Box<dyn Error>> {
        set_hook(Box::new(|panic| {
            if let Ok(mut last) = PANIC.lock() {
                *last = panic.to_string();
            }
        }));
        setrlimit(Resource::RLIMIT_AS, ADDRESS_SPACE_MAX, ADDRESS_SPACE_MAX)?;
        let (inputs, tapes) = mpsc::channel::<Vec<u8>>();
        let (tell, verdicts) = mpsc::channel();
        let run = target.run;
        thread::Builder::new().name(target.name.to_owned()).spawn(move || {
            for tape in tapes {
                let result = catch_unwind(AssertUnwindSafe(|| run(&mut Tape::new(&tape))));
                let panicked =
                    |_| Err(format!("panicked: {}", PANIC.lock().map_or(String::new(), |last| last.clone())));
                if tell.send(result.unwrap_or_else(panicked)).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { inputs, verdicts })
    }

    fn run(&self, tape: &[u8], each: Duration) -> Result<(), String> {
        self.inputs.send(tape.to_vec()).map_err(|_| "the thread is gone".to_owned())?;
        match self.verdicts.recv_timeout(each) {
            Ok(verdict) => verdict,
            Err(RecvTimeoutError::Timeout) => Err(format!("spun: not done after {} s", each.as_secs())),
            Err(RecvTimeoutError::Disconnected) => Err("the thread is gone".to_owned()),
        }
    }
}

/// Runs inputs of a seed until the time is up.
pub(crate) fn fuzz(target: &Target, seed: u64, limits: Limits) -> Result<(), Box<dyn Error>> {
    let worker = Worker::start(target)?;
    let (mut random, started) = (SplitMix64::new(seed), Instant::now());
    let mut rounds = 0u64;
    while rounds == 0 || started.elapsed() < limits.total {
        let tape = random_tape(&mut random);
        // The first input waits for the samples to be built.
        let each = if rounds == 0 { limits.each + Duration::from_secs(30) } else { limits.each };
        if let Err(reason) = worker.run(&tape, each) {
            let path = keep(target, seed, rounds, &tape)?;
            let (name, path) = (target.name, path.display());
            return Err(format!(
                "{name}: seed {seed} round {rounds} {reason}\nrun it again: icecore-fuzz {name} --input {path}"
            )
            .into());
        }
        rounds += 1;
    }
    println!(
        "{:12} {rounds:8} inputs in {:.1} s, nothing found",
        target.name,
        started.elapsed().as_secs_f64()
    );
    std::io::stdout().flush()?;
    Ok(())
}

/// Runs one tape again.
pub(crate) fn replay(target: &Target, tape: &[u8], limits: Limits) -> Result<(), Box<dyn Error>> {
    Worker::start(target)?.run(tape, limits.each).map_err(|reason| format!("{}: {reason}", target.name))?;
    println!("{:12} nothing found", target.name);
    Ok(())
}

fn keep(target: &Target, seed: u64, round: u64, tape: &[u8]) -> Result<PathBuf, Box<dyn Error>> {
    let path = PathBuf::from(format!("icecore-fuzz-{}-{seed}-{round}.tape", target.name));
    std::fs::write(&path, tape)?;
    Ok(path)
}
