//! The command as a whole, driven as a person or a script drives it: arguments in; output, error and exit code out.

#![expect(
    clippy::unwrap_used,
    clippy::format_push_string,
    reason = "what is not as expected fails the test, wherever in it"
)]

mod datasets;
mod diff;
mod driver;
mod ethereum;
mod examples;
mod export;
mod info;
mod ingest;
mod inputs;
mod mistakes;
mod query;
mod readme;
#[cfg(feature = "s3")]
mod remote;
mod space;
mod upkeep;
mod values;
mod verbs;
