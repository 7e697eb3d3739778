//! Numbers as people write them: heights, counts and sizes, on the command line and in requests.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::str::FromStr;

use icecore::Reader;
use serde::de::{self, Deserialize, Deserializer, Visitor};

use crate::encoding::quoted;
use crate::exit::Failure;

/// A whole number: `1000`, `1_000` or `0x3e8`.
///
/// # Errors
/// The reason, when `text` is none or larger than 2^64 - 1.
pub(crate) fn whole(text: &str) -> Result<u64, String> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    let is_number = |c: char| c.is_digit(radix) || c == '_';
    if !digits.chars().all(is_number) || digits.starts_with('_') || !digits.contains(|c: char| c != '_') {
        return Err(format!("{} is not a whole number like 1000, 1_000 or 0x3e8", quoted(text)));
    }
    u64::from_str_radix(&digits.replace('_', ""), radix)
        .map_err(|_| format!("{} is larger than 2^64 - 1", quoted(text)))
}

/// Reads how many of something there are to be: none are too few.
///
/// # Errors
/// As [`whole`], and for zero.
#[cfg(feature = "s3")]
pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    match usize::try_from(whole(text)?) {
        Ok(0) => Err("it is at least 1".to_owned()),
        count => count.map_err(|_| format!("{} is too many", quoted(text))),
    }
}

/// How `--at` and its kind are written, for `--help`.
pub(crate) const HEIGHT_FORMS: &str = "\
How heights are written: 1000, 1_000, 0x3e8, latest (the newest block), or -10
(ten below the newest).";

/// A height that may depend on the newest block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Height {
    /// The newest block.
    #[default]
    Latest,
    /// So far below the newest block.
    Below(u64),
    /// This one.
    At(u64),
}

impl Height {
    /// The height that is meant in an archive.
    ///
    /// # Errors
    /// It is below zero, there is no block yet to count from, or the newest block is not known.
    pub(crate) fn resolve(self, reader: &Reader) -> Result<u64, Failure> {
        let below = match self {
            Self::At(height) => return Ok(height),
            Self::Latest => 0,
            Self::Below(blocks) => blocks,
        };
        // Where the log is damaged the newest block is not known, and this says so.
        let head = reader.latest()?.height();
        head.checked_sub(below).ok_or_else(|| {
            Failure::OutOfRange(format!("-{below} is below block 0: the newest block is {head}"))
        })
    }
}

impl FromStr for Height {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = match text.strip_prefix('-') {
            _ if text == "latest" => return Ok(Self::Latest),
            Some(blocks) => whole(blocks).map(Self::Below),
            None => whole(text).map(Self::At),
        };
        parsed.map_err(|_| format!("{} is not a height: a number, 0x hex, latest, or -N", quoted(text)))
    }
}

/// Blocks on the command line: the first, and the one after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    pub(crate) from: Option<u64>,
    pub(crate) to: Option<u64>,
}

impl RangeBounds<u64> for Blocks {
    fn start_bound(&self) -> Bound<&u64> {
        self.from.as_ref().map_or(Bound::Unbounded, Bound::Included)
    }

    fn end_bound(&self) -> Bound<&u64> {
        self.to.as_ref().map_or(Bound::Unbounded, Bound::Excluded)
    }
}

impl FromStr for Blocks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{} is not a range of blocks like 100..200 or 100..=199", quoted(text));
        let (from, to) = text.split_once("..").ok_or_else(wrong)?;
        let (is_inside, to) = to.strip_prefix('=').map_or((false, to), |to| (true, to));
        let number = |text: &str| (!text.is_empty()).then(|| whole(text)).transpose();
        let (from, to) = (number(from)?, number(to)?);
        let to = if is_inside { to.ok_or_else(wrong)?.checked_add(1) } else { to };
        if from.zip(to).is_some_and(|(from, to)| from >= to) || to == Some(0) {
            return Err(format!("{} has no block", quoted(text)));
        }
        Ok(Self { from, to })
    }
}

impl<'de> Deserialize<'de> for Height {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Forms;

        impl Visitor<'_> for Forms {
            type Value = Height;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a height: a number, \"0x..\", \"latest\" or -N")
            }

            fn visit_u64<E: de::Error>(self, height: u64) -> Result<Height, E> {
                Ok(Height::At(height))
            }

            fn visit_i64<E: de::Error>(self, blocks: i64) -> Result<Height, E> {
                Ok(Height::Below(blocks.unsigned_abs()))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Height, E> {
                text.parse().map_err(E::custom)
            }
        }

        source.deserialize_any(Forms)
    }
}

/// A JSON number, or a string of hex as nodes write numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whole(pub(crate) u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Forms;

        impl Visitor<'_> for Forms {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number or \"0x..\"")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Whole, E> {
                Ok(Whole(number))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Whole, E> {
                let number = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
                number.map(Whole).ok_or_else(|| {
                    E::custom(format!(
                        "this is the string {}, expected a number without quotes, or \"0x..\"",
                        quoted(text)
                    ))
                })
            }
        }

        source.deserialize_any(Forms)
    }
}

/// A number of bytes: `1_000_000`, `100MB`, `1GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteSize(pub(crate) u64);

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{} is not a size: bytes like 1_000_000, or 100MB, 512KiB, 1GiB", quoted(text));
        let unit_at =
            if text.starts_with("0x") { None } else { text.find(|c: char| c.is_ascii_alphabetic()) };
        let (number, unit) = text.split_at(unit_at.unwrap_or(text.len()));
        let factor: u64 = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" => 1000,
            "m" | "mb" => 1000 * 1000,
            "g" | "gb" => 1000 * 1000 * 1000,
            "t" | "tb" => 1000 * 1000 * 1000 * 1000,
            "kib" => 1 << 10,
            "mib" => 1 << 20,
            "gib" => 1 << 30,
            "tib" => 1 << 40,
            _ => return Err(bad()),
        };
        let number = whole(number.trim_end()).map_err(|_| bad())?;
        number.checked_mul(factor).map(Self).ok_or_else(bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_have_four_forms() {
        for (text, expected) in [
            ("0", Some(Height::At(0))),
            ("1_000", Some(Height::At(1000))),
            ("0x64", Some(Height::At(100))),
            ("18446744073709551615", Some(Height::At(u64::MAX))),
            ("18446744073709551616", None),
            ("latest", Some(Height::Latest)),
            ("-10", Some(Height::Below(10))),
            ("-0x10", Some(Height::Below(16))),
            ("-", None),
            ("--1", None),
            ("", None),
            ("_1", None),
            ("0x", None),
            ("+1", None),
            ("1e3", None),
            ("newest", None),
        ] {
            assert_eq!(text.parse().ok(), expected, "{text}");
        }
        for (json, expected) in [
            ("7", Some(Height::At(7))),
            ("-7", Some(Height::Below(7))),
            ("\"latest\"", Some(Height::Latest)),
            ("\"0x10\"", Some(Height::At(16))),
            ("1.5", None),
            ("true", None),
            ("[]", None),
        ] {
            assert_eq!(serde_json::from_str(json).ok(), expected, "{json}");
        }
    }

    #[test]
    fn sizes_have_units() {
        for (text, expected) in [
            ("100000", Some(100_000)),
            ("1_000_000", Some(1_000_000)),
            ("100MB", Some(100_000_000)),
            ("100 mb", Some(100_000_000)),
            ("512KiB", Some(512 << 10)),
            ("1GiB", Some(1 << 30)),
            ("1g", Some(1_000_000_000)),
            ("0x10", Some(16)),
            ("1.5GB", None),
            ("GB", None),
            ("", None),
            ("9999999999999TB", None),
            ("10 apples", None),
        ] {
            assert_eq!(text.parse().ok(), expected.map(ByteSize), "{text}");
        }
    }
}
