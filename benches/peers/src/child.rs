//! One phase of one peer in a process of its own: what it allocates, reads and leaves running dies with it.
//!
//! The parent passes the work as JSON in one argument and gets the result as JSON on standard output; what a peer itself
//! prints must not go there.

use std::process::{Command, Stdio};

use clap::Args;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Outcome, files, hot};

#[derive(Args)]
pub(crate) struct ChildArgs {
    /// [`Work`] as JSON.
    work: String,
}

/// What a child does.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Fills a store and compacts it.
    Load(files::Task),
    /// Asks a store that was filled, with its files out of memory.
    AskCold(files::Task),
    /// Asks a store that was filled, with everything in memory.
    AskWarm(files::Task),
    /// Updates a tree.
    Update(hot::Task),
}

/// Starts this program again and waits for what it says.
pub(crate) fn spawn<T: DeserializeOwned>(work: &Work) -> Outcome<T> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("child").arg(serde_json::to_string(work)?).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("{work:?}: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// What the child does with its argument.
pub(crate) fn run(args: &ChildArgs) -> Outcome {
    let result = match serde_json::from_str(&args.work)? {
        Work::Load(task) => serde_json::to_string(&files::load(&task)?)?,
        Work::AskCold(task) => serde_json::to_string(&files::ask_cold(&task)?)?,
        Work::AskWarm(task) => serde_json::to_string(&files::ask_warm(&task)?)?,
        Work::Update(task) => serde_json::to_string(&hot::update(&task)?)?,
    };
    println!("{result}");
    Ok(())
}
