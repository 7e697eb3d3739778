//! A whole archive, pushed and pulled, beside as many bytes by GETs into synced files.

use std::error::Error;
use std::fs;
use std::time::{Duration, Instant};

use icecore::remote::{PullOptions, PushOptions, pull, push};
use icecore_tools::stub::Stub;

use super::{Bench, Place, bucket_of};

/// Times each is done, in turn; the shortest counts, since what makes one longer is another program.
const PASSES: usize = 3;

pub(super) fn measure(bench: &mut Bench<'_>, place: &Place) -> Result<(), Box<dyn Error>> {
    let files = place.files();
    let objects: Vec<(&str, u64)> = files.iter().map(|(name, len)| (&**name, *len)).collect();
    let bytes: u64 = objects.iter().map(|(_, len)| len).sum();
    let (mut raw, mut pulled, mut pushed) = (Duration::MAX, Duration::MAX, Duration::MAX);
    for _ in 0..PASSES {
        let dir = bench.dir.join("raw");
        fs::create_dir(&dir)?;
        raw = raw.min(place.raw.copy(&objects, &dir)?);
        fs::remove_dir_all(&dir)?;
        let (copy, begun) = (bench.dir.join("copy"), Instant::now());
        pull(&place.bucket, &copy, &PullOptions::new(), &())?;
        pulled = pulled.min(begun.elapsed());
        fs::remove_dir_all(&copy)?;
        let stub = Stub::start()?;
        let (bucket, begun) = (bucket_of(&stub)?, Instant::now());
        push(&place.path, &bucket, &PushOptions::new(), &())?;
        pushed = pushed.min(begun.elapsed());
    }
    let rate = |time: Duration| bytes as f64 / time.as_secs_f64() / 1e6;
    place.stub.reset_requests();
    push(&place.path, &place.bucket, &PushOptions::new(), &())?;
    let again = place.stub.requests().total();
    let mut add = |what: &str, measured: f64| bench.figures.add(&format!("bucket, {what}"), measured);
    add("raw GETs into synced files: rate", rate(raw));
    add("pull, checked and synced: rate", rate(pulled));
    add("pull, checked and synced: rate / raw GETs", raw.as_secs_f64() / pulled.as_secs_f64());
    add("push: rate", rate(pushed));
    add("push: rate / raw GETs", raw.as_secs_f64() / pushed.as_secs_f64());
    add("push of nothing new: requests", again as f64);
    Ok(())
}
