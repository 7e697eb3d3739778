//! What every command that asks an archive about keys has in common: which domain, which height, which face.

use std::path::{Path, PathBuf};

use clap::Args;
use icecore::{Reader, View};

use crate::encoding::{Encoding, Face};
use crate::exit::Failure;
use crate::input::ETHEREUM_DOMAINS;

/// The arguments of a question about a domain at a height.
#[derive(Args, Debug)]
pub(crate) struct Question {
    /// The archive
    pub(crate) dir: PathBuf,
    /// The domain; may be left out where the archive has one
    #[arg(long, short, value_name = "NAME")]
    pub(crate) domain: Option<String>,
    /// The height to read at; the newest block where it is left out
    #[arg(long, short, value_name = "N")]
    pub(crate) at: Option<u64>,
    /// How keys and values are written
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    pub(crate) encoding: Encoding,
    /// Answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl Question {
    /// Opens the archive and settles the domain.
    ///
    /// # Errors
    /// The archive cannot be opened, or the domain is not clear.
    pub(crate) fn open(&self) -> Result<Asked, Failure> {
        let asked = Asked::open(&self.dir, self.encoding)?;
        asked.domain(self.domain.as_deref())?;
        Ok(asked)
    }
}

/// An archive that is asked.
pub(crate) struct Asked {
    /// Reads it.
    pub(crate) reader: Reader,
    encoding: Encoding,
    only_domain: Option<String>,
    is_ethereum: bool,
}

impl Asked {
    /// Opens the archive in `dir` for reading.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn open(dir: &Path, encoding: Encoding) -> Result<Self, Failure> {
        let reader = Reader::open(dir)?;
        let only_domain = match reader.domains() {
            [one] => Some(one.name.clone()),
            _ => None,
        };
        let is_ethereum = is_ethereum(&reader);
        Ok(Self { reader, encoding, only_domain, is_ethereum })
    }

    /// The domain that is meant by a name that may have been left out. Whether it exists, the archive will say.
    ///
    /// # Errors
    /// There are several to choose from.
    pub(crate) fn domain<'a>(&'a self, named: Option<&'a str>) -> Result<&'a str, Failure> {
        named.or(self.only_domain.as_deref()).ok_or_else(|| {
            let names: Vec<_> = self.reader.domains().iter().map(|domain| domain.name.as_str()).collect();
            Failure::usage(format!("the archive has several domains, name one: {}", names.join(", ")))
        })
    }

    /// The state at a height, or at the newest block.
    ///
    /// # Errors
    /// The archive does not hold the height.
    pub(crate) fn view(&self, at: Option<u64>) -> Result<View, Failure> {
        Ok(match at {
            Some(height) => self.reader.at(height)?,
            None => self.reader.latest()?,
        })
    }

    /// The bytes of a key on the command line or in a request.
    ///
    /// # Errors
    /// It is not written as the encoding wants.
    pub(crate) fn bytes(&self, what: &str, text: &str) -> Result<Vec<u8>, Failure> {
        self.encoding.bytes(text).map_err(|reason| Failure::usage(format!("{what}: {reason}")))
    }

    /// How the answer to a question about `asked` is printed.
    pub(crate) fn face(&self, asked: Option<&str>) -> Face {
        self.encoding.face(asked, self.is_ethereum)
    }
}

/// Whether the archive was made for the Ethereum formats, where every key and value is binary.
fn is_ethereum(reader: &Reader) -> bool {
    let domains = reader.domains();
    domains.len() == ETHEREUM_DOMAINS.len()
        && ETHEREUM_DOMAINS.iter().all(|name| domains.iter().any(|domain| domain.name == *name))
}
