//! The format `jsonl`: `{"block":1,"domain":"kv","key":"...","value":"..."|null}`.

use serde::Deserialize;

use super::{Changes, Format, Given};
use crate::encoding::{Encoding, quoted};
use crate::json::{self, Text};
use crate::keys::KeyShape;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Line<'a> {
    block: u64,
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
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Jsonl {
    /// For an archive with these domains.
    pub(crate) fn new(domains: Vec<KeyShape>, encoding: Encoding) -> Self {
        Self { domains, encoding, key: Vec::new(), value: Vec::new() }
    }

    fn domain(&self, name: Option<&str>) -> Result<usize, String> {
        match name {
            Some(name) => {
                self.domains.iter().position(|known| known.domain == name).ok_or_else(|| {
                    format!("unknown domain {}, the archive has: {}", quoted(name), self.names())
                })
            }
            None if self.domains.len() == 1 => Ok(0),
            None => Err(format!("\"domain\" is missing, the archive has several: {}", self.names())),
        }
    }

    fn names(&self) -> String {
        self.domains.iter().map(|known| known.domain.as_str()).collect::<Vec<_>>().join(", ")
    }
}

impl Format for Jsonl {
    fn read(&mut self, line: &[u8], changes: &mut Changes) -> Result<u64, String> {
        let line: Line = serde_json::from_slice(line).map_err(|error| json::reason(&error))?;
        let key = match (&line.key, &line.value) {
            (Some(key), _) => key,
            (None, Given::Missing) => return Ok(line.block),
            (None, _) => return Err("\"key\" is missing".to_owned()),
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
        Ok(line.block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Read = Result<(u64, usize, Vec<u8>, Option<Vec<u8>>), String>;

    fn read(domains: &[&str], encoding: Encoding, line: &str) -> Read {
        let mut changes = Changes::default();
        let mut format = Jsonl::new(domains.iter().map(|&name| KeyShape::any(name)).collect(), encoding);
        let block = format.read(line.as_bytes(), &mut changes)?;
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
            (r#"{"block":1,"key":"0x1","value":"b"}"#, "key: \"1\" has an odd number"),
            (r#"{"block":1,"key":"a","value":"0xzz"}"#, "value: \"zz\" is not hex"),
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
