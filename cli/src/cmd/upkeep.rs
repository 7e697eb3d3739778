//! What verbs take and do that change files and add no block: `merge`, `reindex`, `prune`.

use std::path::Path;

use icecore::Archive;

use super::open_for_upkeep;
use crate::exit::{Failure, Outcome};
#[cfg(feature = "s3")]
use crate::push_to::{PushTo, PushToArgs, tell_pushed};

/// What each of them takes.
#[derive(clap::Args, Debug)]
pub(crate) struct UpkeepArgs {
    /// Only say what would be done; takes no lock and writes nothing
    #[cfg_attr(feature = "s3", arg(long, conflicts_with = "push_to"))]
    #[cfg_attr(not(feature = "s3"), arg(long))]
    pub(crate) dry_run: bool,
    #[cfg(feature = "s3")]
    #[command(flatten)]
    push_to: PushToArgs,
}

impl UpkeepArgs {
    /// Has `work` done on an archive, and `tell` say what came of it once the archive is closed. What is published goes up to the bucket
    /// meanwhile, if one was named, and in any case what is there at the end.
    #[cfg_attr(
        not(feature = "s3"),
        expect(clippy::unused_self, reason = "the bucket is in it, where there are buckets")
    )]
    pub(crate) fn run<T>(
        &self,
        dir: &Path,
        work: impl FnOnce(&Archive) -> Result<T, Failure>,
        tell: impl FnOnce(T) -> Outcome,
    ) -> Outcome {
        #[cfg(feature = "s3")]
        let target = self.push_to.target()?;
        // Who prunes and pushes in one command wants these blocks gone from both.
        #[cfg(feature = "s3")]
        let target = target.map(|(bucket, options)| (bucket, options.allow_pruned(true)));
        let archive = open_for_upkeep(dir)?;
        #[cfg(feature = "s3")]
        let push = target.map(|target| PushTo::start(&archive, target));
        let done = work(&archive);
        let closed = archive.close();
        #[cfg(feature = "s3")]
        let pushed = push.map(PushTo::finish).transpose();
        let done = done?;
        closed?;
        let told = tell(done)?;
        #[cfg(feature = "s3")]
        tell_pushed(pushed?.flatten());
        Ok(told)
    }
}
