//! The command as a whole, driven as a person or a script drives it: arguments in; output, error and exit code out.

mod datasets;
mod driver;
mod ingest;
mod query;
mod upkeep;
mod verbs;
