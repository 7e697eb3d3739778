//! What every command that reaches object storage takes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use icecore::Reader;
use icecore::remote::{Accessors, Bucket, BucketOptions, RemoteOptions, default_cache};

use crate::exit::Failure;
use crate::notes::detail;
use crate::number::{ByteSize, whole};
use crate::print::plural;
use crate::sign::public_key;

/// Where credentials come from, for the help of each verb.
pub(crate) const ENVIRONMENT: &str = "\
URL is s3://BUCKET/PREFIX, or file:///FOLDER for a disk that others see too.
Keys and region come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_SESSION_TOKEN and AWS_REGION, from the profile that AWS_PROFILE names, or
from the role of the machine; another server than that of AWS from --endpoint
or AWS_ENDPOINT_URL.";

/// How a bucket is reached.
#[derive(Args, Debug)]
pub(crate) struct BucketArgs {
    /// Another server than that of AWS, such as `http://localhost:7070`
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// The region of the bucket
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
    /// The name of the archive among those of the bucket [default: main]
    #[arg(long, value_name = "NAME")]
    archive: Option<String>,
    /// How long the server may take to begin an answer [default: 2, and up to 8 where it is slow]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match whole(text)? {
        seconds @ 1..=3600 => Ok(Duration::from_secs(seconds)),
        _ => Err("it is 1 to 3600".to_owned()),
    }
}

impl BucketArgs {
    /// The bucket of a URL.
    pub(crate) fn open(&self, url: &str) -> Result<Bucket, Failure> {
        check_lasting(url)?;
        Ok(Bucket::open_with(url, &self.options())?)
    }

    /// The one archive that was named.
    pub(crate) fn archive(&self) -> Option<&str> {
        self.archive.as_deref()
    }

    fn options(&self) -> BucketOptions {
        let mut options = BucketOptions::new();
        if let Some(endpoint) = &self.endpoint {
            options = options.endpoint(endpoint);
        }
        if let Some(region) = &self.region {
            options = options.region(region);
        }
        if let Some(archive) = &self.archive {
            options = options.archive(archive);
        }
        if let Some(timeout) = self.timeout {
            options = options.timeout(timeout);
        }
        options
    }
}

/// How a bucket is reached, and whom to believe of what is in it.
#[derive(Args, Debug)]
pub(crate) struct TrustArgs {
    #[command(flatten)]
    bucket: BucketArgs,
    /// Believe only what this key signed: a public key of minisign, or the file that has it
    #[arg(long, value_name = "KEY")]
    pubkey: Option<String>,
}

impl TrustArgs {
    /// The bucket of a URL.
    pub(crate) fn open(&self, url: &str) -> Result<Bucket, Failure> {
        check_lasting(url)?;
        let options = self.bucket.options();
        let key = self.pubkey.as_deref().map(public_key).transpose()?;
        Ok(Bucket::open_with(url, &key.map_or(options.clone(), |key| options.public_key(key)))?)
    }
}

impl TrustArgs {
    /// Refuses what says how a bucket is reached where the archive is in a directory.
    ///
    /// # Errors
    /// Usage, with the option.
    pub(crate) fn check_unused(&self) -> Result<(), Failure> {
        let bucket = &self.bucket;
        refuse_given(&[
            ("--pubkey", self.pubkey.is_some()),
            ("--endpoint", bucket.endpoint.is_some()),
            ("--region", bucket.region.is_some()),
            ("--archive", bucket.archive.is_some()),
            ("--timeout", bucket.timeout.is_some()),
        ])
    }
}

/// Refuses what would be gone when the command ends.
fn check_lasting(url: &str) -> Result<(), Failure> {
    if url.starts_with("memory://") {
        return Err(Failure::usage(
            "memory:// is in the memory of this command and ends with it: name s3://BUCKET/PREFIX or file:///FOLDER",
        ));
    }
    Ok(())
}

/// A script that lost its `s3://` would lose the check of a signature as well.
fn refuse_given(options: &[(&str, bool)]) -> Result<(), Failure> {
    match options.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(Failure::usage(format!(
            "{option} is for an archive in a bucket, s3://BUCKET/PREFIX or file:///FOLDER; this one is a directory"
        ))),
        None => Ok(()),
    }
}

/// Who signed a generation, in words.
pub(crate) fn signed_by(signer: Option<&str>) -> String {
    signer.map_or("not signed".to_owned(), |id| format!("signed by key {id}"))
}

/// Under `--verbose`, how many requests a command made.
pub(crate) fn tell_requests(bucket: &Bucket) {
    let (made, repeated) = bucket.requests();
    detail(format_args!("{}, {repeated} of them repeated", plural(made, "request")));
}

/// Blocks in words.
pub(crate) fn blocks(range: Option<(u64, u64)>) -> String {
    range.map_or("no block yet".to_owned(), |(first, head)| format!("blocks {first} to {head}"))
}

/// How an archive in a bucket is read where it is.
#[derive(Args, Debug)]
#[command(next_help_heading = "Reading a bucket")]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    bucket: TrustArgs,
    /// Where what was read is kept [default: icecore in the cache folder of the user]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// How much of its disk the cache may take
    #[arg(long, value_name = "BYTES", default_value = "20GiB")]
    cache_size: ByteSize,
    /// What is asked for where one page is needed: a power of two, 4KiB to 4MiB
    #[arg(long, value_name = "BYTES", default_value = "64KiB")]
    fetch: ByteSize,
    /// Which accessors are read beforehand
    #[arg(long, value_enum, value_name = "WHICH", default_value = "none")]
    warm: Which,
    /// An older generation than the newest
    #[arg(long, value_name = "N")]
    generation: Option<u64>,
}

/// Accessors by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Which {
    /// None
    None,
    /// The pivot indexes
    Bt,
    /// Pivot indexes and filters
    All,
}

impl From<Which> for Accessors {
    fn from(which: Which) -> Self {
        match which {
            Which::None => Self::None,
            Which::Bt => Self::Bt,
            Which::All => Self::All,
        }
    }
}

impl ReadArgs {
    /// Refuses what says how a bucket is read where the archive is in a directory.
    ///
    /// # Errors
    /// Usage, with the option.
    pub(crate) fn check_unused(&self) -> Result<(), Failure> {
        refuse_given(&[("--generation", self.generation.is_some()), ("--cache", self.cache.is_some())])?;
        self.bucket.check_unused()
    }

    /// Opens the archive of a URL.
    pub(crate) fn open(&self, url: &str) -> Result<Reader, Failure> {
        let cache = self.cache.clone().unwrap_or_else(default_cache);
        let mut options = RemoteOptions::new(cache)
            .cache_size(self.cache_size.0)
            .fetch(self.fetch.0)
            .warm(self.warm.into());
        if let Some(generation) = self.generation {
            options = options.generation(generation);
        }
        Ok(Reader::open_remote(&self.bucket.open(url)?, &options)?)
    }
}
