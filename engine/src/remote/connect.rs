//! From a URL and options to a store: S3 and its like, a folder, or memory.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use parking_lot::Mutex;
use rustls::crypto::{CryptoProvider, ring};

use crate::error::Error;
use crate::remote::location::{Location, Scheme};
use crate::remote::patience::{PATIENCE, RETRIES, STALL};
use crate::remote::profile::Profile;
use crate::remote::signature::PublicKey;
use crate::remote::store::Connection;
use crate::remote_error::RemoteError;

/// Connections that are kept for the next request.
const IDLE_CONNECTIONS: usize = 64;

/// How a bucket is reached, where the environment does not say it: see [`Bucket::open`](crate::remote::Bucket::open).
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BucketOptions {
    pub(crate) endpoint: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) archive: Option<String>,
    pub(crate) public_key: Option<PublicKey>,
    timeout: Option<Duration>,
    credentials: Option<(String, String, Option<String>)>,
}

impl BucketOptions {
    /// What the environment says.
    pub fn new() -> Self {
        Self::default()
    }

    /// Another server than that of AWS, such as `http://localhost:7070`.
    pub fn endpoint(self, url: impl Into<String>) -> Self {
        Self { endpoint: Some(url.into()), ..self }
    }

    /// The region of the bucket.
    pub fn region(self, region: impl Into<String>) -> Self {
        Self { region: Some(region.into()), ..self }
    }

    /// The name of the archive among those of the bucket; `main` unless it is set.
    pub fn archive(self, name: impl Into<String>) -> Self {
        Self { archive: Some(name.into()), ..self }
    }

    /// Believes only what the owner of this key signed: a generation without that signature is an error, whoever asks for one. What
    /// was signed names the hash of everything that it has, so whoever owns the bucket or carries it can keep a reader from reading, or
    /// show an older generation to one that has seen none newer, but cannot change a byte.
    ///
    /// A copy costs no request more. Reading in place costs one for each file of more than 64 KiB, beside the first one for its bytes: for the
    /// hashes of its blocks, which stay in the cache.
    pub fn public_key(self, key: PublicKey) -> Self {
        Self { public_key: Some(key), ..self }
    }

    /// How long a request may take until the first byte of its answer comes, and between two; 2 seconds unless it is set, and up to 8 once one
    /// took longer. A request that takes longer is repeated as long as less than 8 seconds have gone by, and is an error then.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Credentials instead of those of the environment: key, secret and, for temporary ones, token.
    pub fn credentials(
        self,
        key: impl Into<String>,
        secret: impl Into<String>,
        token: Option<String>,
    ) -> Self {
        Self { credentials: Some((key.into(), secret.into(), token)), ..self }
    }
}

impl fmt::Debug for BucketOptions {
    /// Without the credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketOptions")
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("archive", &self.archive)
            .field("public_key", &self.public_key)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Connects to what a URL names. No request is made.
///
/// # Errors
/// [`Error::Remote`].
pub(crate) fn connect(location: &Location, options: &BucketOptions) -> Result<Connection, Error> {
    let url = location.url();
    let prefix = location.prefix.clone();
    // Names are put together with it later, where none can be refused any more.
    ObjectPath::parse(&prefix).map_err(|error| RemoteError::Url { reason: error.to_string() })?;
    let same = |objects: Arc<dyn ObjectStore>, prefix, url| Connection {
        patient: Arc::clone(&objects),
        objects,
        folder: None,
        prefix,
        url,
        endpoint: String::new(),
        secrets: Vec::new(),
        timeout: options.timeout,
    };
    match location.scheme {
        Scheme::S3 => s3(location, options),
        Scheme::File => {
            // The folder need not be there yet: names are those of the whole file system.
            let root = ObjectPath::from_absolute_path(Path::new("/").join(&prefix));
            let root = root.map_err(|error| RemoteError::Url { reason: error.to_string() })?;
            let folder = Arc::new(LocalFileSystem::new().with_fsync(true));
            let objects = Arc::<LocalFileSystem>::clone(&folder);
            Ok(Connection { folder: Some(folder), ..same(objects, root.as_ref().to_owned(), url) })
        }
        Scheme::Memory => {
            static STORES: Mutex<BTreeMap<String, Arc<InMemory>>> = Mutex::new(BTreeMap::new());
            let store = Arc::clone(STORES.lock().entry(location.bucket.clone()).or_default());
            Ok(same(store, prefix, url))
        }
    }
}

fn s3(location: &Location, options: &BucketOptions) -> Result<Connection, Error> {
    if CryptoProvider::get_default().is_none() {
        // Somebody else may have chosen meanwhile, which is as good.
        let _ = ring::default_provider().install_default();
    }
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(&location.bucket);
    let mut secrets: Vec<String> = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"]
        .into_iter()
        .filter_map(|name| env::var(name).ok())
        .collect();
    let profile = Profile::load()?;
    let from_profile = || Some((profile.key.clone()?, profile.secret.clone()?, profile.token.clone()));
    let is_in_environment = builder.get_config_value(&AmazonS3ConfigKey::AccessKeyId).is_some();
    let credentials =
        options.credentials.clone().or_else(|| if is_in_environment { None } else { from_profile() });
    if let Some((key, secret, token)) = credentials {
        secrets.extend([key.clone(), secret.clone()].into_iter().chain(token.clone()));
        builder = builder.with_access_key_id(key).with_secret_access_key(secret);
        if let Some(token) = token {
            builder = builder.with_token(token);
        }
    }
    let is_set = |builder: &AmazonS3Builder, key| builder.get_config_value(&key).is_some();
    let region = options
        .region
        .clone()
        .or_else(|| profile.region.clone().filter(|_| !is_set(&builder, AmazonS3ConfigKey::Region)));
    if let Some(region) = region {
        builder = builder.with_region(region);
    }
    let endpoint = options.endpoint.clone().or_else(|| {
        let key = AmazonS3ConfigKey::S3Endpoint;
        let of_environment = builder.get_config_value(&key);
        of_environment
            .or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Endpoint))
            .or(profile.endpoint.clone())
    });
    // An empty variable says nothing.
    let endpoint = endpoint.filter(|endpoint| options.endpoint.is_some() || !endpoint.is_empty());
    endpoint.as_deref().map_or(Ok(()), check_endpoint)?;
    if let Some(endpoint) = endpoint.clone() {
        let is_plain = endpoint.starts_with("http://");
        builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint).with_allow_http(is_plain);
        builder = builder.with_client_options(client(options).with_allow_http(is_plain));
    } else {
        builder = builder.with_client_options(client(options));
    }
    let has_key = is_set(&builder, AmazonS3ConfigKey::AccessKeyId);
    if has_key != is_set(&builder, AmazonS3ConfigKey::SecretAccessKey) {
        let reason = "of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY one is set and the other is not";
        return Err(RemoteError::Url { reason: reason.to_owned() }.into());
    }
    let build = |retries| {
        let retry = RetryConfig { max_retries: retries, retry_timeout: PATIENCE, ..RetryConfig::default() };
        let built = builder.clone().with_retry(retry).build();
        built.map_err(|error| RemoteError::Url { reason: hide(error.to_string(), &secrets) })
    };
    let objects: Arc<dyn ObjectStore> = Arc::new(build(0)?);
    let patient: Arc<dyn ObjectStore> = Arc::new(build(RETRIES as usize)?);
    let (prefix, url, endpoint) = (location.prefix.clone(), location.url(), endpoint.unwrap_or_default());
    let timeout = options.timeout;
    Ok(Connection { objects, patient, folder: None, prefix, url, endpoint, secrets, timeout })
}

/// Whole requests have no limit here, because a long one may take its time; each wait has one.
fn client(options: &BucketOptions) -> ClientOptions {
    ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(options.timeout.unwrap_or(STALL))
        .with_pool_max_idle_per_host(IDLE_CONNECTIONS)
        .with_pool_idle_timeout(Duration::from_secs(20))
}

fn hide(mut text: String, secrets: &[String]) -> String {
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        text = text.replace(secret, "***");
    }
    text
}

/// Refuses what is no URL of a server: the store would panic.
fn check_endpoint(endpoint: &str) -> Result<(), RemoteError> {
    let rest = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
    let is_url = rest.is_some_and(|rest| {
        let (authority, _) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port),
            _ => (authority, "443"),
        };
        let is_host = |c: char| c.is_ascii_alphanumeric() || "-._~[]:".contains(c);
        !host.is_empty() && host.chars().all(is_host) && port.parse::<u16>().is_ok()
    });
    if is_url {
        return Ok(());
    }
    let reason = "the endpoint is no URL of a server: https://HOST or http://HOST:PORT is expected, from --endpoint, \
                  AWS_ENDPOINT_URL or the profile";
    Err(RemoteError::Url { reason: reason.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::check_endpoint;

    #[test]
    fn an_endpoint_is_the_url_of_a_server() {
        for good in [
            "http://localhost:7070",
            "https://s3.example.com",
            "http://[::1]:9000",
            "https://h/path",
            "http://10.0.0.1:1/",
        ] {
            check_endpoint(good).unwrap_or_else(|error| panic!("{good}: {error}"));
        }
        for bad in [
            "",
            "minio:9000",
            "127.0.0.1:1",
            "::::",
            "http://",
            "http://:80",
            "https://h:port",
            "ftp://h",
            "http://a b",
        ] {
            assert!(check_endpoint(bad).is_err(), "{bad}");
        }
    }
}
