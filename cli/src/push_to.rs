//! `--push-to`: what a long command publishes goes up to a bucket while it runs.
//!
//! A thread looks every second whether the archive has other segments and pushes them. It takes part in nothing else: a bucket that
//! fails holds up no block, is told of once, and is tried again, less and less often, until a last push ends the command.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use clap::Args;
use icecore::remote::{Bucket, PushOptions, PushReport};
use icecore::{Archive, Error, Reader};

use crate::bucket::BucketArgs;
use crate::exit::Failure;
use crate::notes::note;
use crate::sign::SignArgs;

/// How often the segments are looked at.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// How long a bucket that fails is left alone, at most.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Where to push to.
#[derive(Args, Debug)]
#[command(next_help_heading = "Pushing while it runs")]
pub(crate) struct PushToArgs {
    /// Push finished steps to this bucket, as `icecore push` does: while the command runs, and when it ends
    #[arg(long, value_name = "URL")]
    push_to: Option<String>,
    /// Publish also where published blocks go, as `icecore push --allow-rewind` does
    #[arg(long, requires = "push_to")]
    allow_rewind: bool,
    #[command(flatten)]
    bucket: BucketArgs,
    #[command(flatten)]
    sign: SignArgs,
}

/// Pushes that go on until they are ended.
pub(crate) struct PushTo {
    end: Sender<()>,
    thread: JoinHandle<Result<PushReport, Error>>,
}

impl PushToArgs {
    /// The bucket, if one was named, and how to push to it. A URL that is none, or a key, is refused before anything is done.
    pub(crate) fn target(&self) -> Result<Option<(Bucket, PushOptions)>, Failure> {
        if self.push_to.is_none() && self.sign.is_given() {
            return Err(Failure::usage("--sign and --allow-signer-change go with --push-to"));
        }
        let options = || PushOptions::new().allow_rewind(self.allow_rewind);
        let target = |url| Ok((self.bucket.open(url)?, self.sign.apply(options())?));
        self.push_to.as_deref().map(target).transpose()
    }
}

impl PushTo {
    /// Begins to push an archive.
    pub(crate) fn start(archive: &Archive, (bucket, options): (Bucket, PushOptions)) -> Self {
        let (reader, (end, ended)) = (archive.reader().clone(), channel());
        Self { end, thread: std::thread::spawn(move || push_until(&reader, &bucket, &options, &ended)) }
    }

    /// Pushes what there is, once the archive is closed, and ends. Returns the generation that has it, `None` where no step is
    /// finished yet.
    pub(crate) fn finish(self) -> Result<Option<u64>, Failure> {
        drop(self.end);
        let report = self.thread.join().expect("a push does not panic");
        let report = report
            .inspect_err(|_| note("the archive is complete; `icecore push` publishes the rest of it"))?;
        Ok(report.generation)
    }
}

/// Says which generation has what was published.
pub(crate) fn tell_pushed(generation: Option<u64>) {
    if let Some(generation) = generation {
        note(format_args!("published as generation {generation}"));
    }
}

/// Pushes after each change of the segments until told to end, and then once more.
fn push_until(
    reader: &Reader,
    bucket: &Bucket,
    options: &PushOptions,
    ended: &Receiver<()>,
) -> Result<PushReport, Error> {
    let (mut pushed, mut pause, mut told) = (Vec::new(), PAUSE_MIN, None);
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(pause) {
        let present = reader.segments();
        if present == pushed {
            continue;
        }
        match reader.push(bucket, options, &()) {
            Ok(_) => (pushed, pause, told) = (present, PAUSE_MIN, None),
            Err(error) => {
                pause = (pause * 2).min(PAUSE_MAX);
                let line = error.to_string();
                if told.as_ref() != Some(&line) {
                    note(format_args!("a push failed and is tried again: {line}"));
                    told = Some(line);
                }
            }
        }
    }
    reader.push(bucket, options, &())
}
