//! The format `jsonl`: `{"block":1,"domain":"kv","key":"...","value":"..."|null}`.

use serde::Deserialize;

use super::{BadLine, Changes, Format, Given};
use crate::encoding::{Encoding, printable, quoted};
use crate::json::{self, Text};
use crate::keys::KeyShape;
use crate::number::Whole;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Line<'a> {
    block: Whole,
    #[serde(borrow, default)]
    domain: Option<Text<'a>>,
    #[serde(borrow, default)]
    key: Option<Text<'a>>,
    #[serde(borrow, default)]
    value: Given<'a>,
}

/// Reads `jsonl`. A line with a block and nothing else is an empty block.
pub(crate) struct Jsonl {
    domains: Vec<KeyShape>,
    encoding: Encoding,
    is_new: bool,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Jsonl {
    /// For an archive with these domains.
    pub(crate) fn new(domains: Vec<KeyShape>, encoding: Encoding) -> Self {
        Self { domains, encoding, is_new: false, key: Vec::new(), value: Vec::new() }
    }

    /// Says that the archive is yet to be made: domains that it lacks can still be declared.
    pub(crate) fn is_new(self, is_new: bool) -> Self {
        Self { is_new, ..self }
    }

    fn domain(&self, name: Option<&str>) -> Result<usize, BadLine> {
        match name {
            Some(name) => {
                let known = self.domains.iter().position(|known| known.domain == name);
                known.ok_or_else(|| self.unknown(name))
            }
            None if self.domains.len() == 1 => Ok(0),
            None => Err(format!("\"domain\" is missing, the archive has several: {}", self.names()).into()),
        }
    }

    fn unknown(&self, name: &str) -> BadLine {
        let (has, help) = if self.is_new {
            let name = printable(name);
            ("is to be made with", format!("declare it: add `--domain {name}` beside --create"))
        } else {
            let help = "domains cannot be added later: `icecore ingest --create --domain NAME,NAME` makes an archive \
                        that has them all";
            ("has", help.to_owned())
        };
        let reason = format!("unknown domain {}, the archive {has}: {}", quoted(name), self.names());
        BadLine { reason, help: Some(help) }
    }

    fn names(&self) -> String {
        self.domains.iter().map(|known| known.domain.as_str()).collect::<Vec<_>>().join(", ")
    }
}

impl Format for Jsonl {
    fn read(&mut self, line: &[u8], changes: &mut Changes) -> Result<u64, BadLine> {
        let line: Line = serde_json::from_slice(line).map_err(|error| json::reason(&error))?;
        let key = match (&line.key, &line.value) {
            (Some(key), _) => key,
            (None, Given::Missing) => return Ok(line.block.0),
            (None, _) => return Err("\"key\" is missing".into()),
        };
        let value = line.value.value()?;
        let domain = self.domain(line.domain.as_deref())?;
        self.key.clear();
        self.encoding.read(key, &mut self.key).map_err(|reason| format!("key: {reason}"))?;
        self.domains[domain]
            .check(key, &self.key, self.encoding)
            .map_err(|reason| format!("key: {reason}"))?;
        self.value.clear();
        if let Some(value) = value {
            self.encoding.read(value, &mut self.value).map_err(|reason| format!("value: {reason}"))?;
        }
        changes.push(domain, &self.key, value.is_some().then_some(&self.value[..]));
        Ok(line.block.0)
    }

    fn example(&self) -> &'static str {
        r#"{"block":1,"key":"alice","value":"100"}"#
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Read = Result<(u64, usize, Vec<u8>, Option<Vec<u8>>), String>;

    fn read(domains: &[&str], encoding: Encoding, line: &str) -> Read {
        let mut changes = Changes::default();
        let mut format = Jsonl::new(domains.iter().map(|&name| KeyShape::any(name)).collect(), encoding);
        let block = format.read(line.as_bytes(), &mut changes).map_err(|bad| bad.reason)?;
        let (domain, key, value) = changes.iter().next().ok_or("no change")?;
        Ok((block, domain, key.to_vec(), value.map(<[u8]>::to_vec)))
    }

    #[test]
    fn lines_become_changes() {
        for (line, expected) in [
            (r#"{"block":1,"key":"a","value":"b"}"#, (1, 0, &b"a"[..], Some(&b"b"[..]))),
            (r#"{"value":"0x00ff","key":"0x01","block":2,"domain":"kv"}"#, (2, 0, &[1], Some(&[0, 255]))),
            (r#"{"block":3,"key":"a\n\u00e4","value":null}"#, (3, 0, "a\n\u{e4}".as_bytes(), None)),
            (r#"{"block":4,"key":"a","value":""}"#, (4, 0, b"a", Some(b""))),
            (r#"{"block":"0x10","key":"a","value":""}"#, (16, 0, b"a", Some(b""))),
        ] {
            let (block, domain, key, value) = read(&["kv"], Encoding::Auto, line).unwrap();
            assert_eq!((block, domain, &key[..], value.as_deref()), expected, "{line}");
        }
        let literal = read(&["kv"], Encoding::Text, r#"{"block":1,"key":"0xzz","value":"0x00"}"#).unwrap();
        assert_eq!((&literal.2[..], literal.3.as_deref()), (&b"0xzz"[..], Some(&b"0x00"[..])));
        assert_eq!(
            read(&["a", "b"], Encoding::Auto, r#"{"block":1,"domain":"b","key":"k","value":"v"}"#).unwrap().1,
            1
        );
    }

    #[test]
    fn bad_lines_say_why() {
        for (line, reason) in [
            ("{", "it ends inside an object"),
            (r#"{"block":"1","key":"a","value":"b"}"#, "this is the string"),
            (r#"{"block":-1,"key":"a","value":"b"}"#, "expected a whole number"),
            (r#"{"key":"a","value":"b"}"#, "missing field \"block\""),
            (r#"{"block":1,"key":"a"}"#, "\"value\" is missing"),
            (r#"{"block":1,"value":"a"}"#, "\"key\" is missing"),
            (r#"{"block":1,"key":"a","value":7}"#, "this is the number"),
            (r#"{"block":1,"key":"0x1","value":"b"}"#, "key: \"0x1\" has an odd number"),
            (r#"{"block":1,"key":"a","value":"0xzz"}"#, "value: \"0xzz\" is not hex"),
            (
                r#"{"block":1,"domain":"x","key":"a","value":"b"}"#,
                "unknown domain \"x\", the archive has: kv",
            ),
            (r#"{"block":1,"key":"a","value":"b","vlaue":"c"}"#, "unknown field"),
            (r#"{"block":1,"key":"a","value":"b"} x"#, "something follows"),
        ] {
            let told = read(&["kv"], Encoding::Auto, line).unwrap_err();
            assert!(told.contains(reason), "{line}: {told}");
        }
        let told = read(&["a", "b"], Encoding::Auto, r#"{"block":1,"key":"k","value":"v"}"#).unwrap_err();
        assert!(told.contains("\"domain\" is missing"), "{told}");
    }
}
