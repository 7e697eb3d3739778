//! Archives in object storage against a server that fails on demand: is the bucket the same wherever a push ended, does every
//! wrong byte become an error, and does a copy answer as its archive does?

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod cached;
mod chain;
mod copies;
mod ended;
mod faults;
mod figures;
mod garbage;
mod gateway;
mod in_place;
mod lost;
mod partial;
mod planned;
mod pushers;
mod signed;
