//! Takes the URL of a bucket apart.

use crate::remote_error::RemoteError;

/// What serves a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// `s3://bucket/prefix`.
    S3,
    /// `file:///folder`.
    File,
    /// `memory://name/prefix`.
    Memory,
}

/// Where a bucket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) scheme: Scheme,
    /// Its name; empty for a folder.
    pub(crate) bucket: String,
    /// The prefix of all names, or the folder, without slashes at its ends.
    pub(crate) prefix: String,
}

impl Location {
    /// Reads a URL. Errors do not repeat it.
    ///
    /// # Errors
    /// [`RemoteError::Url`].
    pub(crate) fn parse(url: &str) -> Result<Self, RemoteError> {
        let bad = |reason: &str| Err(RemoteError::Url { reason: reason.to_owned() });
        let Some((scheme, rest)) = url.split_once("://") else {
            return bad("a URL begins with s3://, file:// or memory://");
        };
        let scheme = match scheme {
            "s3" => Scheme::S3,
            "file" => Scheme::File,
            "memory" => Scheme::Memory,
            _ => return bad("a URL begins with s3://, file:// or memory://"),
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.contains('@') {
            return bad("credentials do not belong into a URL, where they are seen and logged");
        }
        if rest.contains(['?', '#', '%', '*', '\\']) || rest.chars().any(char::is_control) {
            return bad("names with ? # % * \\ or control characters are not taken");
        }
        match scheme {
            Scheme::File if !bucket.is_empty() || prefix.is_empty() => {
                return bad("a folder is named by its whole path, with three slashes: file:///folder");
            }
            Scheme::S3 | Scheme::Memory if bucket.is_empty() => {
                return bad("the name of the bucket is missing");
            }
            _ => {}
        }
        let prefix = prefix.trim_end_matches('/');
        if prefix.split('/').any(|part| part == "." || part == "..")
            || prefix.contains("//")
            || prefix.starts_with('/')
        {
            return bad("a prefix has no empty parts and none of dots");
        }
        Ok(Self { scheme, bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }

    /// The URL again.
    pub(crate) fn url(&self) -> String {
        let scheme = match self.scheme {
            Scheme::S3 => "s3",
            Scheme::File => "file",
            Scheme::Memory => "memory",
        };
        let url = format!("{scheme}://{}/{}", self.bucket, self.prefix);
        url.trim_end_matches('/').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart_and_put_together() {
        for (url, scheme, bucket, prefix) in [
            ("s3://b", Scheme::S3, "b", ""),
            ("s3://b/p/q", Scheme::S3, "b", "p/q"),
            ("file:///a/b", Scheme::File, "", "a/b"),
            ("memory://m/p", Scheme::Memory, "m", "p"),
        ] {
            let location = Location::parse(url).unwrap();
            assert_eq!(
                (location.scheme, &*location.bucket, &*location.prefix),
                (scheme, bucket, prefix),
                "{url}"
            );
            assert_eq!(location.url(), url);
            assert_eq!(Location::parse(&format!("{url}/")).unwrap(), location, "{url}/");
        }
    }

    #[test]
    fn what_is_no_bucket_is_refused_and_not_repeated() {
        for url in [
            "b/p",
            "ftp://b/p",
            "s3://",
            "s3:///p",
            "file://a/b",
            "file:///",
            "s3://KEY:SECRET@b/p",
            "s3://b/p?X=SECRET",
            "s3://b//p",
            "s3://b/../p",
            "memory://",
        ] {
            let error = Location::parse(url).expect_err(url);
            assert!(!error.to_string().contains("SECRET"), "{error}");
        }
    }
}
