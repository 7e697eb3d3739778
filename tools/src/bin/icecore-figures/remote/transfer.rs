//! A whole archive, pushed and pulled, beside as many bytes by GETs into synced files and, with a server that others wrote, by `aws s3 cp`.

use std::error::Error;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use icecore::remote::{Bucket, PullOptions, PushOptions, pull, push};
use icecore_tools::gateway::{ACCESS_KEY, Gateway, SECRET_KEY};
use icecore_tools::measure::bucket::RawClient;
use icecore_tools::stub::Stub;

use super::{BUCKET, Bench, Place, REGION, bucket_at, bucket_of};

/// Times each is done, in turn; the shortest counts, since what makes one longer is another program.
const PASSES: usize = 3;

/// The shortest times.
struct Times {
    raw: Duration,
    pulled: Duration,
    pushed: Duration,
}

impl Times {
    const NONE: Self = Self { raw: Duration::MAX, pulled: Duration::MAX, pushed: Duration::MAX };

    fn raw(&mut self, raw: &RawClient, objects: &[(&str, u64)], dir: &Path) -> Result<(), Box<dyn Error>> {
        fs::create_dir(dir)?;
        self.raw = self.raw.min(raw.copy(objects, dir)?);
        Ok(fs::remove_dir_all(dir)?)
    }

    fn pull(&mut self, bucket: &Bucket, copy: &Path) -> Result<(), Box<dyn Error>> {
        let begun = Instant::now();
        pull(bucket, copy, &PullOptions::new(), &())?;
        self.pulled = self.pulled.min(begun.elapsed());
        Ok(fs::remove_dir_all(copy)?)
    }

    fn push(&mut self, path: &Path, bucket: &Bucket) -> Result<(), Box<dyn Error>> {
        let begun = Instant::now();
        push(path, bucket, &PushOptions::new(), &())?;
        self.pushed = self.pushed.min(begun.elapsed());
        Ok(())
    }

    fn add_to(&self, bench: &mut Bench<'_>, server: &str, bytes: u64) {
        let rate = |time: Duration| bytes as f64 / time.as_secs_f64() / 1e6;
        let to_raw = |time: Duration| self.raw.as_secs_f64() / time.as_secs_f64();
        let mut add = |what: &str, measured: f64| bench.figures.add(&format!("{server}, {what}"), measured);
        add("raw GETs into synced files: rate", rate(self.raw));
        add("pull, checked and synced: rate", rate(self.pulled));
        add("pull, checked and synced: rate / raw GETs", to_raw(self.pulled));
        add("push: rate", rate(self.pushed));
        add("push: rate / raw GETs", to_raw(self.pushed));
    }
}

pub(super) fn measure(bench: &mut Bench<'_>, place: &Place) -> Result<(), Box<dyn Error>> {
    let files = place.files();
    let objects: Vec<(&str, u64)> = files.iter().map(|(name, len)| (&**name, *len)).collect();
    let bytes: u64 = objects.iter().map(|(_, len)| len).sum();
    let mut times = Times::NONE;
    for _ in 0..PASSES {
        times.raw(&place.raw, &objects, &bench.dir.join("raw"))?;
        times.pull(&place.bucket, &bench.dir.join("copy"))?;
        let stub = Stub::start()?;
        times.push(&place.path, &bucket_of(&stub)?)?;
    }
    times.add_to(bench, "bucket", bytes);
    place.stub.reset_requests();
    push(&place.path, &place.bucket, &PushOptions::new(), &())?;
    bench.figures.add("bucket, push of nothing new: requests", place.stub.requests().total() as f64);
    match Gateway::start(BUCKET)? {
        Some(gateway) => with_gateway(bench, place, &gateway, &objects, bytes),
        None => Ok(()),
    }
}

/// The same with a server that runs on the same processors, beside the client that everybody has.
fn with_gateway(
    bench: &mut Bench<'_>,
    place: &Place,
    gateway: &Gateway,
    objects: &[(&str, u64)],
    bytes: u64,
) -> Result<(), Box<dyn Error>> {
    let (endpoint, credentials) = (gateway.endpoint(), (ACCESS_KEY, SECRET_KEY));
    let bucket = bucket_at(&endpoint, "archive", credentials)?;
    push(&place.path, &bucket, &PushOptions::new(), &())?;
    let raw = RawClient::connect(&endpoint, BUCKET, credentials)?;
    let (mut times, mut down, mut up) = (Times::NONE, Some(Duration::MAX), Some(Duration::MAX));
    for pass in 0..PASSES {
        times.raw(&raw, objects, &bench.dir.join("raw"))?;
        times.pull(&bucket, &bench.dir.join("copy"))?;
        times.push(&place.path, &bucket_at(&endpoint, &format!("again-{pass}"), credentials)?)?;
        let copy = bench.dir.join("aws");
        let local = copy.to_str().ok_or("the folder has a name that is no text")?;
        let cp = |from: &str, to: &str, best: &mut Option<Duration>| {
            aws_cp(&endpoint, from, to).map(|time| *best = best.zip(time).map(|(best, time)| best.min(time)))
        };
        cp(&format!("s3://{BUCKET}/archive/o"), local, &mut down)?;
        if copy.exists() {
            cp(local, &format!("s3://{BUCKET}/aws-{pass}"), &mut up)?;
            fs::remove_dir_all(&copy)?;
        }
    }
    times.add_to(bench, "versitygw", bytes);
    let Some((down, up)) = down.zip(up) else { return Ok(()) };
    let mut add = |what: &str, one: Duration, other: Duration| {
        bench.figures.add(what, one.as_secs_f64() / other.as_secs_f64());
    };
    add("versitygw, pull, checked and synced: rate / aws s3 cp", down, times.pulled);
    add("versitygw, push: rate / aws s3 cp", up, times.pushed);
    Ok(())
}

/// The time of `aws s3 cp --recursive`; `None` where it is not installed.
fn aws_cp(endpoint: &str, from: &str, to: &str) -> Result<Option<Duration>, Box<dyn Error>> {
    let begun = Instant::now();
    let status = Command::new("aws")
        .args(["s3", "cp", "--recursive", "--only-show-errors", "--endpoint-url", endpoint, from, to])
        .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        .env("AWS_REGION", REGION)
        .status();
    match status {
        Ok(status) if status.success() => Ok(Some(begun.elapsed())),
        Ok(status) => Err(format!("aws s3 cp ended with {status}").into()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("skipped: aws is not installed");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
