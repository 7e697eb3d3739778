//! What every command that reaches object storage takes.

use clap::Args;
use icecore::remote::{Bucket, BucketOptions};

use crate::exit::Failure;
use crate::notes::detail;
use crate::print::plural;

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
}

impl BucketArgs {
    /// The bucket of a URL.
    pub(crate) fn open(&self, url: &str) -> Result<Bucket, Failure> {
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
        Ok(Bucket::open_with(url, &options)?)
    }
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
