//! Why one request failed: whether it is worth repeating, and what may be said of it.

use std::io;

use object_store::Error as StoreError;

use crate::remote_error::RemoteError;

/// The longest cause that is passed on, in bytes.
const CAUSE_LEN_MAX: usize = 300;

/// The codes by which S3 and its like refuse credentials.
const DENIALS: &[&str] = &[
    "AccessDenied",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
];

/// See the module.
#[derive(Debug)]
pub(crate) enum Fault {
    Store(StoreError),
    /// Nothing came for this many seconds.
    Stalled(u64),
    /// Less came than a line that works brings.
    Slow,
    /// Another number of bytes came than was to come.
    Length {
        expected: u64,
        found: u64,
    },
    /// The object is larger than anything of its kind.
    TooLarge,
    /// It ends before the range that was asked for.
    TooShort,
    /// In a folder that is a bucket a pipe, a device or a folder has the name of an object.
    NoFile,
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        if is_of_range(&error) { Self::TooShort } else { Self::Store(error) }
    }
}

/// Whether a store says that a range begins where the object has ended: S3 by its code, the library of a folder or of memory in words.
fn is_of_range(error: &StoreError) -> bool {
    let StoreError::Generic { .. } = error else { return false };
    let text = error.to_string();
    text.contains("<Code>InvalidRange</Code>") || text.contains("Wanted range starting at")
}

impl Fault {
    /// Whether the same request may succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Store(error @ (StoreError::Generic { .. } | StoreError::JoinError { .. })) => {
                !is_denial(&error.to_string())
            }
            Self::Store(_) | Self::TooLarge | Self::TooShort | Self::NoFile => false,
            Self::Stalled(_) | Self::Slow | Self::Length { .. } => true,
        }
    }

    /// Whether there is no such object.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Store(StoreError::NotFound { .. }))
    }

    /// Whether an object that was to be created is there.
    pub(crate) fn is_present(&self) -> bool {
        use StoreError::{AlreadyExists, NotModified, Precondition};
        matches!(self, Self::Store(AlreadyExists { .. } | Precondition { .. } | NotModified { .. }))
    }

    /// What the caller hears. None of `secrets` is in it.
    pub(crate) fn tell(self, operation: &'static str, object: String, secrets: &[String]) -> RemoteError {
        let error = match self {
            Self::Store(StoreError::NotFound { .. }) => return RemoteError::Gone { object },
            Self::Store(error) => error,
            Self::TooLarge => {
                return RemoteError::Damaged { object, reason: "it is larger than it can be" };
            }
            Self::TooShort => {
                return RemoteError::Damaged { object, reason: "it is shorter than its generation says" };
            }
            Self::NoFile => return RemoteError::Damaged { object, reason: "it is no regular file" },
            Self::Stalled(seconds) => {
                return RemoteError::Request {
                    operation,
                    object,
                    cause: format!("no answer within {seconds} s"),
                };
            }
            Self::Slow => {
                return RemoteError::Request {
                    operation,
                    object,
                    cause: "the answer comes too slowly".to_owned(),
                };
            }
            Self::Length { expected, found } => {
                let cause = format!("{found} bytes came instead of {expected}");
                return RemoteError::Request { operation, object, cause };
            }
        };
        if is_disk_full(&error) {
            return RemoteError::Full { object };
        }
        let cause = cause_of(&error, secrets);
        match error {
            StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
                RemoteError::Denied { operation, object, cause }
            }
            error if is_denial(&error.to_string()) => RemoteError::Denied { operation, object, cause },
            _ => RemoteError::Request { operation, object, cause },
        }
    }
}

/// By the code of an answer in XML, or as the answer to a removal of several objects is told.
fn is_denial(text: &str) -> bool {
    let has = |code: &str| {
        text.contains(&format!("<Code>{code}</Code>")) || text.contains(&format!("(code: {code})"))
    };
    DENIALS.iter().any(|code| has(code))
}

/// Whether the system says that a disk has no room left.
fn is_disk_full(error: &StoreError) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        if let Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) = kind {
            return true;
        }
        source = cause.source();
    }
    false
}

/// The innermost cause in one line: of an answer in XML its code and message, since its other fields may repeat the request.
fn cause_of(error: &StoreError, secrets: &[String]) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = cause.to_string();
        source = cause.source();
    }
    let whole = error.to_string();
    let field = |name: &str| {
        let (_, rest) = whole.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(value, _)| value)
    };
    if let Some(code) = field("Code") {
        text = format!("{code}: {}", field("Message").unwrap_or_default());
    }
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        line = line.replace(secret, "***");
    }
    let end = (0..=CAUSE_LEN_MAX.min(line.len())).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
    line.truncate(end);
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> Fault {
        Fault::Store(StoreError::Generic { store: "S3", source: text.to_owned().into() })
    }

    #[test]
    fn answers_are_told_without_what_they_repeat() {
        let body = "status 400: <Error><Code>ExpiredToken</Code><Message>it expired</Message><AWSAccessKeyId>AKIA1</AWSAccessKeyId>\
                    <Token>T0K</Token></Error>";
        assert!(!generic(body).is_transient());
        let error = generic(body).tell("get", "s3://b/o".to_owned(), &[]);
        assert_eq!(error.to_string(), "not permitted to get s3://b/o: ExpiredToken: it expired");
        let error = generic("refused\nfor T0K").tell("put", "s3://b/o".to_owned(), &["T0K".to_owned()]);
        assert_eq!(error.to_string(), "cannot put s3://b/o: refused for ***");
    }

    #[test]
    fn what_may_pass_is_worth_repeating() {
        let absent = StoreError::NotFound { path: "o".to_owned(), source: "404".into() };
        assert!(generic("500").is_transient() && Fault::Stalled(2).is_transient());
        assert!(!generic("failed for key o/a: Access Denied (code: AccessDenied)").is_transient());
        let full = StoreError::Generic {
            store: "LocalFileSystem",
            source: Box::new(io::Error::from(io::ErrorKind::StorageFull)),
        };
        let told = Fault::from(full).tell("put", "file:///a/o".to_owned(), &[]);
        assert_eq!(told, RemoteError::Full { object: "file:///a/o".to_owned() });
        assert!(!Fault::from(absent).is_transient());
        let long = "\u{e9}".repeat(CAUSE_LEN_MAX);
        let RemoteError::Request { cause, .. } = generic(&long).tell("get", String::new(), &[]) else {
            panic!()
        };
        assert!(cause.len() <= CAUSE_LEN_MAX);
    }
}
