//! Keys and values as people write them: UTF-8 text, or bytes as `0x` hex.
//!
//! Reading and printing follow one rule, so that what is printed reads back as the same bytes:
//! [`Encoding`] says how a string becomes bytes, [`Face`] how bytes become a string again.

use std::io::{self, Write};

use clap::ValueEnum;
use icecore::ethereum::{Account, EMPTY_CODE_HASH};
use serde_json::{Value, json};

/// The rule as `--help` tells it.
pub(crate) const RULE: &str = "\
How keys and values are written, in lines and in JSON alike:
  --encoding auto  Read: a string that begins with 0x is hex, any other is
                   UTF-8 text. Printed: printable text as it is, all other
                   bytes as 0x hex, so that what is printed reads back as the
                   same bytes. Text that begins with 0x, the text - alone
                   (a deletion) and text with line ends or tabs are printed
                   as hex too. Keys of a scan whose --prefix, --from or --to
                   is hex are printed as hex. An archive of the domains
                   balance, nonce, code and storage alone, as the Ethereum
                   formats make it, always prints hex. So does one of the
                   profile ethereum, but for its accounts: nonce, balance and
                   codeHash of each, in JSON an object; with --encoding hex
                   they are bytes as well.
  --encoding text  Every string is taken literally, 0x too. Printed as text
                   where the bytes are UTF-8, else as 0x hex. In lines, not
                   in JSON, \\\\ stands for a backslash, \\n, \\r and \\t for line
                   feed, carriage return and tab, \\u{7f} for the control
                   character 7f (hex).
  --encoding hex   Every string is hex, with or without 0x. Printed as 0x hex.
Binary numbers need --encoding hex: one byte 0x64 is also the letter d.
`get --raw` writes the bytes of the value and nothing else.";

/// How strings become bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Encoding {
    /// `0x` means hex, everything else is UTF-8 text
    #[default]
    Auto,
    /// Every string is literal UTF-8 text
    Text,
    /// Every string is hex, `0x` may be left out
    Hex,
}

impl Encoding {
    /// Appends the bytes that `text` stands for.
    ///
    /// # Errors
    /// The reason, when `text` should be hex and is not.
    pub(crate) fn read(self, text: &str, into: &mut Vec<u8>) -> Result<(), String> {
        match (self, hex_digits(text)) {
            (Self::Text, _) | (Self::Auto, None) => into.extend_from_slice(text.as_bytes()),
            (Self::Auto | Self::Hex, Some(digits)) => unhex(text, digits, into)?,
            (Self::Hex, None) => unhex(text, text, into)?,
        }
        Ok(())
    }

    /// The bytes that `text` stands for.
    ///
    /// # Errors
    /// As [`Encoding::read`].
    pub(crate) fn bytes(self, text: &str) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::with_capacity(text.len());
        self.read(text, &mut bytes)?;
        Ok(bytes)
    }

    /// How values are printed.
    pub(crate) fn face(self, ethereum: bool) -> Face {
        match self {
            Self::Text => Face::Literal,
            Self::Hex => Face::Hex,
            Self::Auto if ethereum => Face::Hex,
            Self::Auto => Face::Readable,
        }
    }

    /// How the keys are printed that were asked for by `bound`, a prefix or another bound between keys.
    pub(crate) fn face_of_keys(self, bound: Option<&str>, ethereum: bool) -> Face {
        let is_hex = self == Self::Auto && bound.is_some_and(|text| hex_digits(text).is_some());
        self.face(ethereum || is_hex)
    }
}

/// What follows `0x` or `0X`.
pub(crate) fn hex_digits(text: &str) -> Option<&str> {
    text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))
}

/// Whether a key that is taken as text may have been meant as hex: digits and nothing else, and as many as bytes have.
pub(crate) fn may_be_hex(text: &str) -> bool {
    text.len() >= 4 && text.len().is_multiple_of(2) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// How bytes become a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Face {
    /// `0x` and two digits a byte.
    Hex,
    /// Text where it is printable and reads back as the same bytes, else hex.
    Readable,
    /// Text where it is UTF-8, else hex.
    Literal,
    /// The fields of an account from its record, as they are in answers of JSON-RPC.
    Account,
}

impl Face {
    /// The text of `bytes`, where they are shown as text.
    pub(crate) fn text(self, bytes: &[u8]) -> Option<&str> {
        match self {
            Self::Hex | Self::Account => None,
            Self::Literal => std::str::from_utf8(bytes).ok(),
            Self::Readable => std::str::from_utf8(bytes).ok().filter(|text| is_readable(text)),
        }
    }

    /// `bytes` as text that is one line: what it does to text is told in [`RULE`].
    pub(crate) fn line(self, bytes: &[u8]) -> String {
        if let Some(account) = self.account(bytes) {
            return account_line(&account);
        }
        match (self, self.text(bytes)) {
            (_, None) => hex(bytes),
            // Nothing in it needs an escape, and a backslash that is no escape is left as it is.
            (Self::Readable, Some(text)) => text.to_owned(),
            (_, Some(text)) => escaped(text),
        }
    }

    /// `bytes` as a string.
    pub(crate) fn show(self, bytes: &[u8]) -> String {
        self.text(bytes).map_or_else(|| hex(bytes), str::to_owned)
    }

    /// `bytes` as JSON: a string, of an account an object.
    pub(crate) fn json(self, bytes: &[u8]) -> Value {
        match self.account(bytes) {
            Some(account) => account_json(&account),
            None => self.show(bytes).into(),
        }
    }

    /// The account of a record, where it is shown by its fields.
    fn account(self, bytes: &[u8]) -> Option<Account> {
        if self == Self::Account { Account::decode(bytes).ok() } else { None }
    }

    /// Writes `bytes` as [`Face::json`] has them.
    ///
    /// # Errors
    /// Those of the writer.
    pub(crate) fn write_json(self, bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
        if let Some(account) = self.account(bytes) {
            return serde_json::to_writer(out, &account_json(&account)).map_err(io::Error::from);
        }
        match self.text(bytes) {
            Some(text) => serde_json::to_writer(out, text).map_err(io::Error::from),
            None => write_hex_json(bytes, out),
        }
    }

    /// Writes a value or `null`.
    ///
    /// # Errors
    /// Those of the writer.
    pub(crate) fn write_json_value(self, value: Option<&[u8]>, out: &mut impl Write) -> io::Result<()> {
        match value {
            Some(bytes) => self.write_json(bytes, out),
            None => out.write_all(b"null"),
        }
    }
}

fn account_json(account: &Account) -> Value {
    json!({
        "nonce": quantity_of(&account.nonce.to_be_bytes()),
        "balance": quantity_of(&account.balance),
        "codeHash": hex(&account.code_hash),
    })
}

/// The same for people: without the hash of no code.
fn account_line(account: &Account) -> String {
    let (nonce, balance) = (quantity_of(&account.nonce.to_be_bytes()), quantity_of(&account.balance));
    let code = if account.code_hash == EMPTY_CODE_HASH {
        String::new()
    } else {
        format!(" codeHash={}", hex(&account.code_hash))
    };
    format!("nonce={nonce} balance={balance}{code}")
}

/// A big-endian number as JSON-RPC writes it: `0x` and digits without leading zeros.
pub(crate) fn quantity_of(number: &[u8]) -> String {
    let digits = hex(number);
    match digits[2..].trim_start_matches('0') {
        "" => "0x0".to_owned(),
        digits => format!("0x{digits}"),
    }
}

/// Whether `text`, printed as it is, is one line that a person can read and the tool reads back as the same bytes.
fn is_readable(text: &str) -> bool {
    let is_plain = if text.is_ascii() {
        text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
    } else {
        !text.chars().any(steers_terminal)
    };
    // A deletion is a `-`.
    is_plain && hex_digits(text).is_none() && text != "-"
}

/// `text` without control characters; every backslash of the result begins an escape, so it can be undone.
fn escaped(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => line.push_str("\\\\"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            c if steers_terminal(c) => line.extend(c.escape_unicode()),
            c => line.push(c),
        }
    }
    line
}

/// `text` for a terminal, where it may have parts that somebody else chose: a file name, a member of a document.
pub(crate) fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if steers_terminal(c) {
            line.extend(c.escape_unicode());
        } else {
            line.push(c);
        }
    }
    line
}

/// Whether a terminal does something else with a character than show it: control characters, and those that turn the
/// direction of what follows.
fn steers_terminal(c: char) -> bool {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns
}

/// A value for error texts: as text where a person can read it, else as hex, and not more than its beginning.
pub(crate) fn brief(bytes: &[u8]) -> String {
    shorten(&Face::Readable.line(bytes))
}

/// The beginning of a string in quotes, for error texts.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(&shorten(text)))
}

/// `0x` and two lower-case digits a byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const_hex::encode_prefixed(bytes)
}

fn write_hex_json(bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
    out.write_all(b"\"0x")?;
    let mut digits = [0; 128];
    for chunk in bytes.chunks(64) {
        let digits = &mut digits[..2 * chunk.len()];
        const_hex::encode_to_slice(chunk, digits).map_err(io::Error::other)?;
        out.write_all(digits)?;
    }
    out.write_all(b"\"")
}

/// Appends the bytes of an even number of hex digits; `text` is what they stood in, for the error.
///
/// # Errors
/// The reason, when `digits` are not hex.
pub(crate) fn unhex(text: &str, digits: &str, into: &mut Vec<u8>) -> Result<(), String> {
    let from = into.len();
    into.resize(from + digits.len() / 2, 0);
    // The decoder takes a prefix of its own, of which one was taken off already.
    let is_even = digits.len().is_multiple_of(2) && hex_digits(digits).is_none();
    if is_even && const_hex::decode_to_slice(digits, &mut into[from..]).is_ok() {
        return Ok(());
    }
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let what = if is_hex { "has an odd number of hex digits" } else { "is not hex" };
    Err(format!("{} {what}", quoted(text)))
}

/// Writes the bytes of the hex digits after a `0x`, two a byte of `into`.
///
/// # Errors
/// The reason, when `digits` are not that many hex digits.
pub(crate) fn unhex_exact(digits: &str, into: &mut [u8]) -> Result<(), String> {
    // The decoder takes a prefix of its own, of which one was taken off already.
    let decoded = hex_digits(digits).is_none() && const_hex::decode_to_slice(digits, into).is_ok();
    if decoded { Ok(()) } else { Err(format!("{} is not hex", quoted(&format!("0x{digits}")))) }
}

/// The big-endian bytes of `0x` hex of any length, filled up on the left to 32, and how many of them are leading zeros.
///
/// # Errors
/// The reason, when `text` is not `0x` hex or longer than 32 bytes.
pub(crate) fn quantity(text: &str) -> Result<([u8; 32], usize), String> {
    let digits = text.strip_prefix("0x").ok_or_else(|| format!("{} does not begin with 0x", quoted(text)))?;
    if digits.is_empty() {
        return Err("a number has no digit after 0x".to_owned());
    }
    let digits = match digits.len().checked_sub(64) {
        Some(above) if digits.bytes().take(above).all(|digit| digit == b'0') => digits.get(above..),
        Some(_) => None,
        None => Some(digits),
    };
    let digits = digits.ok_or_else(|| format!("{} is longer than 32 bytes", quoted(text)))?;
    let mut padded = [b'0'; 64];
    padded[64 - digits.len()..].copy_from_slice(digits.as_bytes());
    let mut bytes = [0; 32];
    let decoded = hex_digits(digits).is_none() && const_hex::decode_to_slice(padded, &mut bytes).is_ok();
    if !decoded {
        return Err(format!("{} is not hex", quoted(text)));
    }
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    Ok((bytes, zeros))
}

/// The beginning of a string.
fn shorten(text: &str) -> String {
    const CHARS_MAX: usize = 70;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_become_bytes() {
        for (encoding, text, bytes) in [
            (Encoding::Auto, "hello", Some(b"hello".to_vec())),
            (Encoding::Auto, "0x00fF", Some(vec![0, 255])),
            (Encoding::Auto, "0x", Some(vec![])),
            (Encoding::Auto, "0xf", None),
            (Encoding::Auto, "0xzz", None),
            (Encoding::Auto, "0x\u{e4}", None),
            (Encoding::Auto, "0X00", Some(vec![0])),
            (Encoding::Auto, "0x0x00", None),
            (Encoding::Text, "0X00", Some(b"0X00".to_vec())),
            (Encoding::Text, "0x00", Some(b"0x00".to_vec())),
            (Encoding::Hex, "00ff", Some(vec![0, 255])),
            (Encoding::Hex, "0x00ff", Some(vec![0, 255])),
            (Encoding::Hex, "hello!", None),
        ] {
            assert_eq!(encoding.bytes(text).ok(), bytes, "{encoding:?} {text}");
        }
    }

    #[test]
    fn what_is_printed_reads_back() {
        let samples: [&[u8]; 17] = [
            b"",
            b"-",
            b"0X31",
            b"C:\\new",
            b"a\tb",
            "a\u{202e}b".as_bytes(),
            b"hello",
            b"0x31",
            b"1",
            b"\n",
            b"a\nb",
            &[0],
            &[0xff, 0xfe],
            "\u{e4}\u{4e2d}".as_bytes(),
            b"0x",
            b" ",
            &[0x7f],
        ];
        for bytes in samples {
            for bound in [None, Some("k"), Some("0x01")] {
                let face = Encoding::Auto.face_of_keys(bound, false);
                for shown in [face.show(bytes), face.line(bytes)] {
                    assert_eq!(Encoding::Auto.bytes(&shown).unwrap(), bytes, "{shown}");
                    assert!(!shown.contains('\n') && shown != "-", "{shown}");
                }
            }
            let shown = Encoding::Hex.face(false).show(bytes);
            assert_eq!(Encoding::Hex.bytes(&shown).unwrap(), bytes, "{shown}");
        }
    }

    #[test]
    fn an_entry_is_one_line() {
        for (text, line) in [
            ("a\nb\r\t", r"a\nb\r\t"),
            (r"a\nb", r"a\\nb"),
            ("\u{1b}[2J\u{7f}\u{85}", r"\u{1b}[2J\u{7f}\u{85}"),
            ("\u{e4} \u{4e2d}", "\u{e4} \u{4e2d}"),
            ("a\u{202e}b", r"a\u{202e}b"),
        ] {
            assert_eq!(Face::Literal.line(text.as_bytes()), line);
        }
        assert_eq!(Face::Readable.line(b"\x1b[2J"), "0x1b5b324a");
        assert_eq!(Face::Readable.line(b"a\nb"), "0x610a62");
        assert_eq!(Face::Readable.line(br"a\nb"), r"a\nb");
    }

    #[test]
    fn an_account_is_its_fields() {
        let account = Account { nonce: 16, ..Account::default() };
        let (record, empty) = (account.encode(), hex(&EMPTY_CODE_HASH));
        assert_eq!(Face::Account.line(&record), "nonce=0x10 balance=0x0");
        assert_eq!(
            Face::Account.json(&record),
            json!({"nonce": "0x10", "balance": "0x0", "codeHash": empty})
        );
        let coded = Account { code_hash: [7; 32], ..account }.encode();
        let expected = format!("nonce=0x10 balance=0x0 codeHash=0x{}", "07".repeat(32));
        assert_eq!(Face::Account.line(&coded), expected);
        let mut written = Vec::new();
        Face::Account.write_json(&coded, &mut written).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&written).unwrap(), Face::Account.json(&coded));
        assert_eq!(Face::Account.json(b"no record"), json!("0x6e6f207265636f7264"));
    }

    #[test]
    fn a_value_looks_like_itself() {
        for (encoding, ethereum, bytes, shown) in [
            (Encoding::Auto, false, &b"1"[..], "1"),
            (Encoding::Auto, false, b"\xff", "0xff"),
            (Encoding::Auto, true, b"1", "0x31"),
            (Encoding::Auto, false, b"\n", "0x0a"),
            (Encoding::Auto, false, b"0x31", "0x30783331"),
            (Encoding::Auto, false, b"0X31", "0x30583331"),
            (Encoding::Auto, false, b"-", "0x2d"),
            (Encoding::Text, false, b"0x31", "0x31"),
            (Encoding::Hex, false, b"1", "0x31"),
        ] {
            let face = encoding.face(ethereum);
            assert_eq!(face.show(bytes), shown);
            let mut json = Vec::new();
            face.write_json(bytes, &mut json).unwrap();
            assert_eq!(serde_json::from_slice::<String>(&json).unwrap(), shown);
        }
    }

    #[test]
    fn keys_look_like_the_prefix() {
        for (encoding, bound, ethereum, shown) in [
            (Encoding::Auto, None, false, "k"),
            (Encoding::Auto, Some("k"), false, "k"),
            (Encoding::Auto, Some("0x"), false, "0x6b"),
            (Encoding::Auto, Some("0X6b"), false, "0x6b"),
            (Encoding::Auto, None, true, "0x6b"),
            (Encoding::Text, Some("0x"), false, "k"),
            (Encoding::Hex, None, false, "0x6b"),
        ] {
            assert_eq!(encoding.face_of_keys(bound, ethereum).show(b"k"), shown, "{encoding:?} {bound:?}");
        }
    }

    #[test]
    fn numbers_are_minimal() {
        for (text, bytes) in [
            ("0x0", Some(vec![])),
            ("0x1", Some(vec![1])),
            ("0x0100", Some(vec![1, 0])),
            ("0xabc", Some(vec![0x0a, 0xbc])),
            ("0x", None),
            ("12", None),
            ("0xg", None),
            ("0x0x12", None),
            ("0x 12", None),
        ] {
            let read = quantity(text).ok().map(|(bytes, zeros)| bytes[zeros..].to_vec());
            assert_eq!(read, bytes, "{text}");
        }
        assert!(quantity(&format!("0x1{}", "0".repeat(64))).is_err());
    }
}
