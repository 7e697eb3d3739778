//! What every command that asks an archive about keys has in common: which domain, which height, which face, and what there
//! is to say after the reads.

use std::fmt;
use std::path::Path;

use clap::Args;
use icecore::{AsDomain, Change, Commitment, ErrorKind, Lookup, ReadOptions, Reader, Scan, View, ethereum};

use crate::encoding::{Encoding, Face, may_be_hex, quoted};
use crate::exit::Failure;
use crate::input::ethereum_address;
use crate::keys::{KeyShape, is_ethereum};
use crate::notes::{is_quiet, tell, warning};
use crate::number::Height;
use crate::place::{ONE_READ, Place, tell_cost};
use crate::print::plural;

/// The arguments of a question about a domain at a height.
#[derive(Args, Debug)]
pub(crate) struct Question {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The domain; may be left out where the archive has one
    #[arg(long, short, value_name = "NAME")]
    pub(crate) domain: Option<String>,
    /// The height to read at: N, 0x hex, latest, or -N for N below the newest block [default: latest]
    #[arg(long, short, alias = "block", value_name = "N", allow_hyphen_values = true)]
    pub(crate) at: Option<Height>,
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
        let asked = Asked::open(&self.place, self.encoding, ONE_READ)?;
        asked.domain(self.domain.as_deref())?;
        Ok(asked)
    }
}

/// Opens an archive on disk for a command that reads a little and ends.
pub(crate) fn open_for_one_read(dir: &Path) -> Result<Reader, Failure> {
    Ok(Reader::open_with(dir, ReadOptions::new().resident_budget(0))?)
}

/// An archive that is asked.
pub(crate) struct Asked {
    /// Reads it.
    pub(crate) reader: Reader,
    encoding: Encoding,
    only_domain: Option<String>,
    is_ethereum: bool,
    shapes: Vec<KeyShape>,
    tells_cost: bool,
}

impl Asked {
    /// Opens an archive for reading.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn open(place: &Place, encoding: Encoding, resident: Option<u64>) -> Result<Self, Failure> {
        Ok(Self { tells_cost: place.cost, ..Self::of(place.open(resident)?, encoding) })
    }

    /// Asks an archive that is open.
    pub(crate) fn of(reader: Reader, encoding: Encoding) -> Self {
        let only_domain = match reader.domains() {
            [one] => Some(one.name.clone()),
            _ => None,
        };
        let is_ethereum = reader.commitment() == Commitment::Ethereum || is_ethereum(reader.domains());
        let shapes = KeyShape::of(&reader);
        Self { reader, encoding, only_domain, is_ethereum, shapes, tells_cost: false }
    }

    /// Sees what was committed since the archive was opened. A damaged log is left to the questions that need it.
    ///
    /// # Errors
    /// The archive cannot be read any more.
    pub(crate) fn refresh(&self) -> Result<(), Failure> {
        match self.reader.refresh() {
            Err(error) if error.kind() == ErrorKind::Corrupt && self.reader.latest().is_err() => Ok(()),
            refreshed => Ok(refreshed.map(drop)?),
        }
    }

    /// Says what there is to say about the reads of this command, once, after the last of them.
    pub(crate) fn tell_reads(&self) {
        warn_of_slow_reads(&self.reader);
        tell_cost(&self.reader, self.tells_cost);
    }

    /// The domain that is meant by a name that may have been left out. Whether it exists, the archive will say.
    ///
    /// # Errors
    /// There are several to choose from.
    pub(crate) fn domain<'a>(&'a self, named: Option<&'a str>) -> Result<&'a str, Failure> {
        named.or(self.only_domain.as_deref()).ok_or_else(|| {
            let names: Vec<_> = self.shapes.iter().map(|shape| shape.domain.as_str()).collect();
            Failure::usage(format!("the archive has several domains, name one: {}", names.join(", ")))
        })
    }

    /// The state at a height, or at the newest block.
    ///
    /// # Errors
    /// The archive does not hold the height.
    pub(crate) fn view(&self, at: Option<Height>) -> Result<View, Failure> {
        Ok(match at.unwrap_or_default() {
            Height::Latest => self.reader.latest()?,
            other => self.reader.at(other.resolve(&self.reader)?)?,
        })
    }

    /// Whether a key is that of an account of which a field is asked for.
    fn is_field(&self, name: &str, key: &[u8]) -> bool {
        self.reader.commitment() == Commitment::Ethereum
            && (matches!(name, "balance" | "nonce") || (name == ethereum::CODE && key.len() == 20))
    }

    /// The value of a key in a state; of fields as [`Asked::lookup`].
    ///
    /// # Errors
    /// Those of the archive.
    pub(crate) fn value(
        &self,
        view: &View,
        domain: &(impl AsDomain + ?Sized),
        name: &str,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, icecore::Error> {
        if !self.is_field(name, key) {
            return view.get(domain, key);
        }
        Ok(self.lookup(view, domain, name, key)?.and_then(|found| found.change.value))
    }

    /// The newest version of a key in a state. Archives for Ethereum answer for the fields of their accounts as well: `balance`, `nonce`, and
    /// `code` of an address.
    ///
    /// # Errors
    /// Those of the archive.
    pub(crate) fn lookup(
        &self,
        view: &View,
        domain: &(impl AsDomain + ?Sized),
        name: &str,
        key: &[u8],
    ) -> Result<Option<Lookup>, icecore::Error> {
        if !self.is_field(name, key) {
            return view.lookup(domain, key);
        }
        let Some(mut found) = view.lookup(ethereum::ACCOUNT, key)? else { return Ok(None) };
        found.change.value = match &found.change.value {
            Some(record) => field(view, name, record)?,
            None => None,
        };
        Ok(Some(found))
    }

    /// The versions of a key, all or those that the state at a height can see, newest first. Of the fields of accounts, which
    /// [`Asked::lookup`] names, those blocks that changed the field.
    ///
    /// # Errors
    /// Those of the archive.
    pub(crate) fn history(
        &self,
        at: Option<Height>,
        domain: &str,
        key: &[u8],
    ) -> Result<Vec<Change>, Failure> {
        let is_field = self.is_field(domain, key);
        let of = if is_field { ethereum::ACCOUNT } else { domain };
        let versions = match at {
            Some(at) => self.view(Some(at))?.history(of, key)?,
            None => self.reader.history(of, key)?,
        };
        let mut versions = versions.collect::<Result<Vec<_>, _>>()?;
        if !is_field || versions.is_empty() {
            return Ok(versions);
        }
        let view = self.view(at)?;
        for version in &mut versions {
            if let Some(record) = &version.value {
                version.value = field(&view, domain, record)?;
            }
        }
        // Before its oldest version the account had no field.
        let older: Vec<_> =
            versions.iter().skip(1).map(|version| version.value.clone()).chain([None]).collect();
        let mut older = older.into_iter();
        versions.retain(|version| older.next().is_none_or(|older| older != version.value));
        Ok(versions)
    }

    /// The bytes of a key of `domain` on the command line or in a request.
    ///
    /// # Errors
    /// It is not written as the encoding wants, or is not what keys of the domain look like.
    pub(crate) fn key(&self, domain: &str, text: &str) -> Result<Vec<u8>, Failure> {
        self.part("key", domain, text, KeyShape::check)
    }

    /// The bytes of the beginning of keys of `domain`, or of a bound between keys; `what` names it.
    ///
    /// # Errors
    /// As [`Asked::key`].
    pub(crate) fn bound(&self, what: &str, domain: &str, text: &str) -> Result<Vec<u8>, Failure> {
        self.part(what, domain, text, KeyShape::check_part)
    }

    /// The slots of an account, in an archive for Ethereum.
    ///
    /// # Errors
    /// It is another archive or domain, or the address is none.
    pub(crate) fn slots_of(&self, domain: &str, address: &str) -> Result<Scan, Failure> {
        if self.reader.commitment() != Commitment::Ethereum || domain != ethereum::STORAGE {
            let reason =
                "account: only the domain storage of an archive of the profile ethereum has slots of one";
            return Err(Failure::usage(reason));
        }
        let address =
            ethereum_address(address).map_err(|reason| Failure::usage(format!("account: {reason}")))?;
        Ok(Scan::prefix(&ethereum::keccak256(&address)[..address.len()]))
    }

    /// Says why a scan with a bound may have found nothing: what the keys of a domain are that a user would not think of.
    pub(crate) fn tell_paths(&self, domain: &str) {
        let is_of_paths = matches!(domain, ethereum::ACCOUNT | ethereum::STORAGE);
        if self.reader.commitment() != Commitment::Ethereum || !is_of_paths || is_quiet() {
            return;
        }
        tell(format_args!("icecore: no key of {domain} is there"));
        if domain == ethereum::STORAGE {
            tell(format_args!(
                "  help: keys are hashes of addresses and slots; --account ADDRESS gives the slots of an account"
            ));
        } else {
            tell(format_args!(
                "  help: keys are hashes of addresses; `icecore get` takes the address itself"
            ));
        }
    }

    fn part(
        &self,
        what: &str,
        domain: &str,
        text: &str,
        check: impl Fn(&KeyShape, &str, &[u8], Encoding) -> Result<(), String>,
    ) -> Result<Vec<u8>, Failure> {
        let bytes = self.encoding.bytes(text).and_then(|bytes| {
            match self.shapes.iter().find(|shape| shape.domain == domain) {
                Some(shape) => check(shape, text, &bytes, self.encoding).map(|()| bytes),
                // The archive will say that it has no such domain.
                None => Ok(bytes),
            }
        });
        bytes.map_err(|reason| Failure::usage(format!("{what}: {reason}")))
    }

    /// How values are printed.
    pub(crate) fn face(&self) -> Face {
        self.encoding.face(self.is_ethereum)
    }

    /// How the values of a domain are printed.
    pub(crate) fn face_of(&self, domain: &str) -> Face {
        let has_accounts = self.reader.commitment() == Commitment::Ethereum && domain == ethereum::ACCOUNT;
        if has_accounts && self.encoding == Encoding::Auto { Face::Account } else { self.face() }
    }

    /// How the keys of a scan are printed; `bound` is the string that says which.
    pub(crate) fn face_of_keys(&self, bound: Option<&str>) -> Face {
        self.encoding.face_of_keys(bound, self.is_ethereum)
    }

    /// Says on standard error that nothing was found for `key`, and what to try; under `--quiet` the exit code says it alone.
    pub(crate) fn tell_absent(&self, key: &str, what: fmt::Arguments<'_>) {
        if is_quiet() {
            return;
        }
        tell(format_args!("icecore: {} has {what}", quoted(key)));
        if let Some(suspicion) = self.suspicion(key) {
            tell(format_args!("  help: {suspicion}"));
        }
    }

    /// What to try where nothing was found for `key`.
    fn suspicion(&self, key: &str) -> Option<String> {
        let is_suspect = self.encoding == Encoding::Auto && may_be_hex(key);
        is_suspect.then(|| format!("without 0x a key is text; the bytes of these digits are 0x{key}"))
    }
}

/// A field of an account, from its record.
fn field(view: &View, name: &str, record: &[u8]) -> Result<Option<Vec<u8>>, icecore::Error> {
    let account = ethereum::Account::decode(record)
        .map_err(|_| icecore::Error::RecordDamaged { domain: ethereum::ACCOUNT, block: view.height() })?;
    let number = |bytes: &[u8]| {
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        Some(bytes[zeros.min(bytes.len() - 1)..].to_vec())
    };
    Ok(match name {
        "balance" => number(&account.balance),
        "nonce" => number(&account.nonce.to_be_bytes()),
        _ if account.code_hash == ethereum::EMPTY_CODE_HASH => None,
        _ => view.get(ethereum::CODE, &account.code_hash)?,
    })
}

/// Answers are right without a sound index or filter, but cost more: whoever keeps the archive must learn of it.
pub(crate) fn warn_of_slow_reads(reader: &Reader) {
    let stats = reader.stats();
    let Some(problem) = stats.problems.first().filter(|_| 0 < stats.degraded_reads) else { return };
    let others = match stats.problems.len() {
        1 => String::new(),
        more => format!(" and {}", plural(more as u64 - 1, "more problem")),
    };
    warning(format_args!(
        "{problem}{others}: the answers are right, but lookups are slower, and those that need a damaged .kv fail; `icecore ls DIR` \
         lists every damage, `icecore reindex DIR --rebuild` builds .bt, .kvei and .kvbi files again"
    ));
}
