//! Keys and signatures of minisign: who made a generation.
//!
//! [`push`](crate::remote::push) signs; a [`Bucket`](crate::remote::Bucket) that was given a key believes no generation without its signature. A
//! signature here has one text: its comments are fixed, so that no byte of it can be another.

use std::fmt;
use std::io::Cursor;
use std::sync::Arc;

use ct_codecs::{Base64, Decoder};

use crate::error::Error;
use crate::remote_error::RemoteError;

/// What every signature begins with.
const UNTRUSTED_COMMENT: &str = "signature of an icecore generation";

/// What a secret key with a password names as the algorithm that its password goes through: scrypt.
const WITH_PASSWORD: &[u8] = b"Sc";

/// A signature is not longer.
pub(crate) const LEN_MAX: usize = 1024;

/// Whom to believe: the public key of whoever signs the generations of an archive.
///
/// ```
/// use icecore::remote::PublicKey;
///
/// let key: PublicKey = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3".parse()?;
/// assert_eq!(key.id(), "E7620F1842B4E81F");
/// # Ok::<(), icecore::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    key: minisign_verify::PublicKey,
    id: [u8; 8],
    /// All that is in its file.
    bytes: Vec<u8>,
}

impl std::str::FromStr for PublicKey {
    type Err = Error;

    /// Reads a file that `minisign -G` made, or its second line alone.
    fn from_str(text: &str) -> Result<Self, Error> {
        let line = text.lines().map(str::trim).filter(|line| !line.is_empty()).nth(1);
        let line = line.unwrap_or(text.trim());
        let bad = || RemoteError::Key { reason: "it is no public key of minisign".to_owned() };
        let key = minisign_verify::PublicKey::from_base64(line).map_err(|_| bad())?;
        let same = minisign::PublicKey::from_base64(line).map_err(|_| bad())?;
        let id = same.keynum().try_into().map_err(|_| bad())?;
        Ok(Self { key, id, bytes: same.to_bytes() })
    }
}

impl PublicKey {
    /// What minisign calls its id: 16 hexadecimal digits.
    pub fn id(&self) -> String {
        id_text(self.id)
    }

    /// What no other key has; its id is what its maker wrote there.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

fn id_text(id: [u8; 8]) -> String {
    format!("{:016X}", u64::from_le_bytes(id))
}

/// A secret key of minisign: see [`PushOptions::sign`](crate::remote::PushOptions::sign).
#[derive(Clone)]
pub struct SigningKey {
    secret: Arc<minisign::SecretKey>,
    public: PublicKey,
}

impl SigningKey {
    /// Reads the text of a key file that `minisign -G` made. A key without a password needs none. To decrypt one takes a second and up to a
    /// gigabyte of memory, as its maker chose.
    ///
    /// # Errors
    /// [`Error::Remote`]: it is no such file, or the password is wrong or missing.
    pub fn parse(text: &str, password: Option<&str>) -> Result<Self, Error> {
        let bad = |reason: &str| RemoteError::Key { reason: reason.to_owned() };
        let no_key = || bad("it is no secret key of minisign");
        let bytes = secret_bytes(text).ok_or_else(no_key)?;
        let secret = match (Self::needs_password(text), password) {
            // The minisign of C writes no checksum there, without which the crate takes it in no other way.
            (false, _) => minisign::SecretKey::from_bytes(&bytes).map_err(|_| no_key())?,
            (true, None) => return Err(bad("its password is missing").into()),
            (true, Some(password)) => {
                let boxed = minisign::SecretKeyBox::from_string(text).map_err(|_| no_key())?;
                let opened = boxed.into_secret_key(Some(password.to_owned()));
                opened.map_err(|_| bad("the password is wrong, or the file is damaged"))?
            }
        };
        let public = minisign::PublicKey::from_secret_key(&secret).map_err(|_| no_key())?;
        let key = Self { public: public.to_base64().parse()?, secret: Arc::new(secret) };
        // A damaged one makes signatures that do not hold.
        let works = key.sign(b"", "")?.check(&key.public, b"", "");
        works.map_err(|_| no_key())?;
        Ok(key)
    }

    /// Whether the text of a key file says that it has a password.
    pub fn needs_password(text: &str) -> bool {
        secret_bytes(text).is_some_and(|bytes| bytes.get(2..4) == Some(WITH_PASSWORD))
    }

    /// What readers check its signatures with.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs bytes, and a comment with them.
    ///
    /// # Errors
    /// [`RemoteError::Key`]: the system gives no random numbers.
    pub(crate) fn sign(&self, bytes: &[u8], comment: &str) -> Result<Signature, RemoteError> {
        let reader = Cursor::new(bytes);
        let signed = minisign::sign(None, &self.secret, reader, Some(comment), Some(UNTRUSTED_COMMENT));
        let signed = signed.map_err(|error| RemoteError::Key { reason: error.to_string() })?;
        Ok(Signature(signed.to_string()))
    }
}

/// The second line of a key file.
fn secret_bytes(text: &str) -> Option<Vec<u8>> {
    Base64::decode_to_vec(text.lines().nth(1)?.trim(), None).ok()
}

impl PartialEq for SigningKey {
    fn eq(&self, other: &Self) -> bool {
        self.public == other.public
    }
}

impl Eq for SigningKey {}

impl fmt::Debug for SigningKey {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.public.id()).finish_non_exhaustive()
    }
}

/// A signature as minisign writes it: four lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signature(String);

impl Signature {
    /// Reads one. `None` for every text but the one that it can have.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= LEN_MAX)?;
        let read = minisign::SignatureBox::from_string(text).ok()?;
        let is_ours = read.untrusted_comment().is_ok_and(|comment| comment == UNTRUSTED_COMMENT);
        (is_ours && read.to_string() == text).then(|| Self(text.to_owned()))
    }

    /// Its text.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The id of the key that it says it was made with.
    pub(crate) fn key_id(&self) -> String {
        let id = minisign::SignatureBox::from_string(&self.0).ok();
        let id = id.and_then(|signature| signature.keynum().try_into().ok());
        id.map_or_else(String::new, id_text)
    }

    /// Whether a key made it for these bytes and this comment.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check(&self, key: &PublicKey, bytes: &[u8], comment: &str) -> Result<(), &'static str> {
        let signature =
            minisign_verify::Signature::decode(&self.0).map_err(|_| "its signature cannot be read")?;
        key.key.verify(bytes, &signature, false).map_err(|error| match error {
            minisign_verify::Error::UnexpectedKeyId => "it is signed by another key",
            _ => "its signature does not hold",
        })?;
        if signature.trusted_comment() == comment {
            return Ok(());
        }
        Err("it is signed as a generation of another archive")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Made by `minisign -G -W`, whose keys have no checksum.
    pub(crate) const SECRET: &str = "untrusted comment: minisign encrypted secret key\n\
        RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAALm8vScJ3Nz0Jx6++vAbTbVO8HWcJQav2dHdHZermjFtNHqyOAPNV\
        tVapiNZ485Pv7c3GeCRwBzrJ6F4W+6ihztl0dXEfvVAuAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
    const PUBLIC: &str = "RWQuby9Jwnc3PVapiNZ485Pv7c3GeCRwBzrJ6F4W+6ihztl0dXEfvVAu";

    #[test]
    fn a_key_signs_and_its_public_key_knows_it() {
        let (secret, public) =
            (SigningKey::parse(SECRET, Some("not asked for")).unwrap(), PUBLIC.parse().unwrap());
        assert!(*secret.public() == public && !SigningKey::needs_password(SECRET));
        let from_file: PublicKey = format!("untrusted comment: x\n{PUBLIC}\n").parse().unwrap();
        assert_eq!((from_file.id(), from_file), ("3D3777C2492F6F2E".to_owned(), public.clone()));
        let shown = format!("{secret:?}");
        assert!(shown.contains("3D3777C2492F6F2E") && shown.len() < 50, "{shown}");

        let signature = secret.sign(b"bytes", "comment").unwrap();
        assert_eq!(signature.check(&public, b"bytes", "comment"), Ok(()));
        assert!(signature.check(&public, b"byte", "comment").is_err());
        assert!(signature.check(&public, b"bytes", "other").is_err());
        let other: PublicKey = "RWTVqAsg9qkmsAADKojSuO1jWvb/fDhBEGSM12OWm0VLZh9l5v/YKVFf".parse().unwrap();
        assert_eq!(signature.check(&other, b"bytes", "comment"), Err("it is signed by another key"));
        assert_eq!(
            (signature.key_id(), Signature::parse(signature.as_bytes())),
            (public.id(), Some(signature))
        );
    }

    #[test]
    fn no_byte_of_a_signature_can_be_another() {
        let (secret, public) = (SigningKey::parse(SECRET, None).unwrap(), PUBLIC.parse().unwrap());
        let signature = secret.sign(b"bytes", "comment").unwrap();
        let text = signature.as_bytes();
        for at in 0..text.len() {
            assert_eq!(Signature::parse(&text[..at]), None, "cut at {at}");
            for bit in 0..8 {
                let mut damaged = text.to_vec();
                damaged[at] ^= 1 << bit;
                let read = Signature::parse(&damaged);
                assert!(
                    read.is_none_or(|read| read.check(&public, b"bytes", "comment").is_err()),
                    "bit {bit} of {at}"
                );
            }
        }
        for more in [" ", "\n", "\r\n", "x"] {
            assert_eq!(Signature::parse(&[text, more.as_bytes()].concat()), None, "{more:?}");
        }
    }

    #[test]
    fn what_is_no_key_is_told_and_not_repeated() {
        let (first, rest) = SECRET.split_at(200);
        let damaged = format!("{first}{}{}", if rest.starts_with('A') { 'B' } else { 'A' }, &rest[1..]);
        for text in ["", "SECRET", "SECRET\nSECRET", PUBLIC, &SECRET[..150], &damaged] {
            let error = SigningKey::parse(text, None).expect_err(text);
            assert!(!error.to_string().contains("SECRET"), "{error}");
            assert!(text == PUBLIC || text.parse::<PublicKey>().is_err(), "{text}");
        }
    }
}
