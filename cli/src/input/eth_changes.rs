//! The format `eth-changes`: the state of Ethereum accounts at the end of a block, a line a change.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Address, BALANCE, BadLine, CODE, Changes, Format, Given, NONCE, STORAGE};
use crate::encoding::{quantity, quoted, unhex, unhex_exact};
use crate::json::{self, Text};
use crate::number::Whole;

/// Other fields may stand beside those of a change: data sets add counts and hashes.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Line<'a> {
    block: Whole,
    #[serde(borrow, default)]
    address: Option<Text<'a>>,
    #[serde(default)]
    field: Option<Field>,
    #[serde(borrow, default)]
    slot: Option<Text<'a>>,
    #[serde(borrow, default)]
    value: Given<'a>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Field {
    Balance,
    Nonce,
    Code,
    Storage,
}

/// Reads `eth-changes`. A line with a block and nothing else is an empty block.
#[derive(Default)]
pub(crate) struct EthChanges;

impl Format for EthChanges {
    fn read(&mut self, line: &[u8], changes: &mut Changes) -> Result<u64, BadLine> {
        let text = line;
        let line: Line = serde_json::from_slice(text).map_err(|error| json::reason(&error))?;
        if line.address.is_none() && line.field.is_none() && matches!(line.value, Given::Missing) {
            // Seldom, so that it may be read once more.
            let fields: Map<String, Value> =
                serde_json::from_slice(text).map_err(|error| json::reason(&error))?;
            let other = fields.keys().find(|name| *name != "block");
            let Some(other) = other else { return Ok(line.block.0) };
            return Err(
                format!("the line has {} and no change: it is not of this format", quoted(other)).into()
            );
        }
        let address = address(line.address.as_deref().ok_or("\"address\" is missing")?)?;
        let field = line.field.ok_or("\"field\" is missing")?;
        let value = line.value.value()?;
        match (&line.slot, field) {
            (None, Field::Storage) => return Err("\"slot\" is missing, the field storage has one".into()),
            (Some(_), Field::Balance | Field::Nonce | Field::Code) => {
                return Err("\"slot\" belongs to the field storage and to no other".into());
            }
            _ => {}
        }
        match field {
            Field::Balance => push_number(changes, BALANCE, &address, value)?,
            Field::Nonce => push_number(changes, NONCE, &address, value)?,
            Field::Code => changes.push(CODE, &address, value.map(code).transpose()?.as_deref()),
            Field::Storage => {
                let slot = word(line.slot.as_deref().unwrap_or_default())?;
                let value = value.map(word).transpose()?;
                changes.push(STORAGE, &storage_key(&address, &slot), value.as_ref().map(|word| &word[..]));
            }
        }
        Ok(line.block.0)
    }

    fn example(&self) -> &'static str {
        r#"{"block":1,"address":"0x..","field":"balance","value":"0x.."}"#
    }
}

fn push_number(
    changes: &mut Changes,
    domain: usize,
    address: &Address,
    value: Option<&str>,
) -> Result<(), String> {
    let number = value.map(quantity).transpose()?;
    changes.push(domain, address, number.as_ref().map(minimal));
    Ok(())
}

/// The 20 bytes of an address.
pub(crate) fn address(text: &str) -> Result<Address, String> {
    let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 40);
    let digits =
        digits.ok_or_else(|| format!("{} is no address of 20 bytes, 0x and 40 digits", quoted(text)))?;
    let mut bytes = [0; 20];
    unhex_exact(digits, &mut bytes)?;
    Ok(bytes)
}

/// A balance or nonce: minimal big-endian bytes, one zero byte for zero.
pub(super) fn number(text: &str) -> Result<Vec<u8>, String> {
    Ok(minimal(&quantity(text)?).to_vec())
}

fn minimal((bytes, zeros): &([u8; 32], usize)) -> &[u8] {
    &bytes[(*zeros).min(31)..]
}

/// A slot or its value: 32 bytes, filled up on the left.
pub(crate) fn word(text: &str) -> Result<[u8; 32], String> {
    Ok(quantity(text)?.0)
}

/// The bytes of a contract.
pub(super) fn code(text: &str) -> Result<Vec<u8>, String> {
    let digits = text.strip_prefix("0x").ok_or_else(|| format!("{} does not begin with 0x", quoted(text)))?;
    let mut bytes = Vec::new();
    unhex(text, digits, &mut bytes)?;
    Ok(bytes)
}

/// The key of a slot in the domain `storage`.
pub(super) fn storage_key(address: &Address, slot: &[u8; 32]) -> [u8; 52] {
    let mut key = [0; 52];
    key[..20].copy_from_slice(address);
    key[20..].copy_from_slice(slot);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "0x00000961ef480eb55e80d19ad83579a64c007002";

    type Read = Result<(usize, Vec<u8>, Option<Vec<u8>>), String>;

    fn read(rest: &str) -> Read {
        let mut changes = Changes::default();
        let line = format!("{{\"block\":1,{rest}}}");
        EthChanges.read(line.as_bytes(), &mut changes).map_err(|bad| bad.reason)?;
        let (domain, key, value) = changes.iter().next().ok_or("no change")?;
        Ok((domain, key.to_vec(), value.map(<[u8]>::to_vec)))
    }

    #[test]
    fn a_line_of_another_format_is_no_empty_block() {
        let read = |line: &str| EthChanges.read(line.as_bytes(), &mut Changes::default());
        assert_eq!((read(r#"{"block":5}"#), read(r#"{"block":"0x5"}"#)), (Ok(5), Ok(5)));
        for line in [r#"{"block":5,"foo":1}"#, r#"{"block":5,"response":{"result":[]}}"#] {
            assert!(read(line).unwrap_err().reason.contains("not of this format"), "{line}");
        }
    }

    #[test]
    fn fields_become_domains() {
        let a = address(A).unwrap().to_vec();
        let slot = [a.clone(), vec![0; 31], vec![2]].concat();
        let word = |last| [vec![0; 31], vec![last]].concat();
        for (rest, domain, key, value) in [
            (r#""field":"balance","value":"0x0""#, BALANCE, &a, Some(vec![0])),
            (r#""field":"balance","value":"0x100""#, BALANCE, &a, Some(vec![1, 0])),
            (r#""field":"nonce","value":"0x7","writes":3"#, NONCE, &a, Some(vec![7])),
            (r#""field":"nonce","value":null"#, NONCE, &a, None),
            (r#""field":"code","value":"0x6001""#, CODE, &a, Some(vec![0x60, 1])),
            (r#""field":"storage","slot":"0x2","value":"0x5""#, STORAGE, &slot, Some(word(5))),
            (r#""field":"storage","slot":"0x02","value":null"#, STORAGE, &slot, None),
        ] {
            assert_eq!(
                read(&format!("\"address\":\"{A}\",{rest}")).unwrap(),
                (domain, key.clone(), value),
                "{rest}"
            );
        }
    }

    #[test]
    fn bad_lines_say_why() {
        for (rest, reason) in [
            (r#""address":"0x12","field":"nonce","value":"0x1""#.to_owned(), "no address"),
            (format!(r#""address":"{A}","field":"nonce""#), "\"value\" is missing"),
            (format!(r#""address":"{A}","value":null"#), "\"field\" is missing"),
            (r#""field":"nonce","value":"0x1""#.to_owned(), "\"address\" is missing"),
            (format!(r#""address":"{A}","field":"magic","value":"0x1""#), "unknown name"),
            (format!(r#""address":"{A}","field":"nonce","value":"1""#), "does not begin with 0x"),
            (format!(r#""address":"{A}","field":"nonce","value":1"#), "expected a string"),
            (format!(r#""address":"{A}","field":"code","value":"0x1""#), "odd number"),
            (format!(r#""address":"{A}","field":"storage","value":"0x1""#), "\"slot\" is missing"),
            (format!(r#""address":"{A}","field":"nonce","slot":"0x1","value":"0x1""#), "\"slot\" belongs"),
        ] {
            let told = read(&rest).unwrap_err();
            assert!(told.contains(reason), "{rest}: {told}");
        }
    }
}
