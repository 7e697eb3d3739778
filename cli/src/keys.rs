//! What keys of a domain look like, so that a mistyped key is an error and not an absent one.

use icecore::{Commitment, Domain, KEY_LEN_MAX, Reader};

use crate::encoding::{Encoding, hex_digits};
use crate::print::count;

/// The domains of the Ethereum formats, in the order of their numbers here.
pub(crate) const ETHEREUM_DOMAINS: [&str; 4] = ["balance", "nonce", "code", "storage"];

/// The lengths of keys in [`ETHEREUM_DOMAINS`]: an address, for `storage` with its slot.
const ETHEREUM_KEY_LENS: [usize; 4] = [20, 20, 20, 52];

/// The declaration of a domain of the Ethereum formats; any other name gets keys of any length.
pub(crate) fn declare(name: &str) -> Domain {
    let domain = Domain::new(name);
    match ethereum_key_len(name) {
        Some(len) => domain.key_len(len),
        None => domain,
    }
}

fn ethereum_key_len(name: &str) -> Option<usize> {
    let position = ETHEREUM_DOMAINS.iter().position(|known| *known == name)?;
    Some(ETHEREUM_KEY_LENS[position])
}

/// Whether these are the domains of the Ethereum formats and no others: every key and value is binary then.
pub(crate) fn is_ethereum(domains: &[Domain]) -> bool {
    domains.len() == ETHEREUM_DOMAINS.len()
        && ETHEREUM_DOMAINS.iter().all(|name| domains.iter().any(|domain| domain.name == *name))
}

/// What is known of the keys of one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyShape {
    /// The domain.
    pub(crate) domain: String,
    len: Option<usize>,
    /// The length in which keys are stored, and scanned.
    stored_len: Option<usize>,
    is_binary: bool,
}

impl KeyShape {
    /// Keys of any kind.
    #[cfg(test)]
    pub(crate) fn any(domain: &str) -> Self {
        Self { domain: domain.to_owned(), len: None, stored_len: None, is_binary: false }
    }

    /// Those of an archive, with the fields of accounts where it is one of Ethereum: `code` takes the address of an account and the hash
    /// of a code.
    pub(crate) fn of(reader: &Reader) -> Vec<Self> {
        if reader.commitment() != Commitment::Ethereum {
            return Self::all(reader.domains());
        }
        let shape = |domain: &str, len, stored_len| Self {
            domain: domain.to_owned(),
            len,
            stored_len,
            is_binary: true,
        };
        let declared = reader.domains().iter().map(|domain| {
            let len = domain.key_len.filter(|_| domain.name != icecore::ethereum::CODE);
            shape(&domain.name, len, domain.scanned_key_len())
        });
        declared.chain(["balance", "nonce"].map(|field| shape(field, Some(20), Some(20)))).collect()
    }

    /// Those of all domains of an archive. One made for the Ethereum formats before lengths were declared has them too.
    pub(crate) fn all(domains: &[Domain]) -> Vec<Self> {
        let is_binary = is_ethereum(domains);
        let shape = |domain: &Domain| {
            let known = ethereum_key_len(&domain.name).filter(|_| is_binary);
            let len = domain.key_len.or(known);
            Self { domain: domain.name.clone(), len, stored_len: len, is_binary }
        };
        domains.iter().map(shape).collect()
    }

    /// Checks a key: `bytes` as `encoding` took them from `text`.
    ///
    /// # Errors
    /// The reason.
    pub(crate) fn check(&self, text: &str, bytes: &[u8], encoding: Encoding) -> Result<(), String> {
        match self.len {
            Some(len) if len != bytes.len() || self.lacks_prefix(text, encoding) => {
                Err(self.expected(&format!("keys of {len} bytes, 0x and {} digits", 2 * len), text, bytes))
            }
            None if KEY_LEN_MAX < bytes.len() => {
                let (len, max) = (count(bytes.len() as u64), count(KEY_LEN_MAX as u64));
                Err(format!("it has {len} bytes, at most {max} are allowed"))
            }
            _ => Ok(()),
        }
    }

    /// Checks the beginning of a key, or a bound between keys.
    ///
    /// # Errors
    /// The reason.
    pub(crate) fn check_part(&self, text: &str, bytes: &[u8], encoding: Encoding) -> Result<(), String> {
        match self.stored_len {
            Some(len) if len < bytes.len() || self.lacks_prefix(text, encoding) => Err(self.expected(
                &format!("keys of {len} bytes: 0x and at most {} digits", 2 * len),
                text,
                bytes,
            )),
            _ => Ok(()),
        }
    }

    /// Whether a string would be taken as text where no key is.
    fn lacks_prefix(&self, text: &str, encoding: Encoding) -> bool {
        self.is_binary && encoding == Encoding::Auto && !text.is_empty() && hex_digits(text).is_none()
    }

    fn expected(&self, what: &str, text: &str, bytes: &[u8]) -> String {
        let form = if hex_digits(text).is_some() { "" } else { " and does not begin with 0x" };
        format!("{} has {what}; this one has {} bytes{form}", self.domain, bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_keys_are_told() {
        let domains = ETHEREUM_DOMAINS.map(Domain::new);
        let (old, new) = (KeyShape::all(&domains), KeyShape::all(&ETHEREUM_DOMAINS.map(declare)));
        assert_eq!(old, new);
        let check = |domain: usize, text: &str, encoding: Encoding| {
            old[domain].check(text, &encoding.bytes(text).unwrap(), encoding)
        };
        let address = "00".repeat(20);
        for (domain, text, encoding, is_right) in [
            (0, format!("0x{address}"), Encoding::Auto, true),
            (0, address.clone(), Encoding::Hex, true),
            (0, address.clone(), Encoding::Auto, false),
            (0, "abcdefghijklmnopqrst".to_owned(), Encoding::Auto, false),
            (0, "abcdefghijklmnopqrst".to_owned(), Encoding::Text, true),
            (0, format!("0x{address}00"), Encoding::Auto, false),
            (3, format!("0x{address}"), Encoding::Auto, false),
            (3, format!("0x{address}{}", "00".repeat(32)), Encoding::Auto, true),
        ] {
            assert_eq!(check(domain, &text, encoding).is_ok(), is_right, "{domain} {text}");
        }
        assert!(old[3].check_part("0x00", &[0], Encoding::Auto).is_ok());
        assert!(old[3].check_part("00", b"00", Encoding::Auto).is_err());
        let mixed = KeyShape::all(&[Domain::new("balance"), Domain::new("kv").key_len(3)]);
        assert!(mixed[0].check("bob", b"bob", Encoding::Auto).is_ok());
        assert!(mixed[1].check("bob", b"bob", Encoding::Auto).is_ok());
        assert!(mixed[1].check("bo", b"bo", Encoding::Auto).is_err());
    }
}
