//! The part of a manifest that is chosen when an archive is created.

use std::num::NonZeroU64;

use icecore_segments::EncodingRule;
use icecore_segments::bytes::{put_varint, take_varint};

use crate::commitment::{Commitment, DomainOrder};
use crate::domain::{DOMAINS_MAX, Domain};
use crate::manifest::{
    VERSION_OF_PARTIAL, VERSION_WITHOUT_ID, VERSION_WITHOUT_KEY_LENS, VERSION_WITHOUT_SNAPSHOTS,
};
use crate::options::{ArchiveId, Config, Snapshots};
use crate::steps::StepLen;

/// With the number of a commitment: no rows are kept of its tries.
const WITHOUT_ROWS: u8 = 0x80;

/// A position in the body; every read is `None` past the end.
pub(super) struct Fields<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Fields<'a> {
    pub(super) fn number(&mut self) -> Option<u64> {
        take_varint(self.bytes, &mut self.at)
    }

    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(taken)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    pub(super) fn option(&mut self) -> Option<Option<u64>> {
        match (self.byte()?, self.number()?) {
            (0, 0) => Some(None),
            (1, number) => Some(Some(number)),
            _ => None,
        }
    }
}

pub(super) fn encode_config(out: &mut Vec<u8>, config: &Config, version: u32) {
    put_varint(out, config.step_len.0.get());
    put_varint(out, config.reorg_window);
    put_varint(out, config.snapshots.map_or(0, |snapshots| snapshots.period.get()));
    put_varint(out, config.domains.len() as u64);
    for domain in &config.domains {
        put_varint(out, domain.name.len() as u64);
        out.extend_from_slice(domain.name.as_bytes());
        out.push(match domain.encoding {
            EncodingRule::Auto => 0,
            EncodingRule::Plain => 1,
            EncodingRule::Zstd => 2,
        });
        put_varint(out, domain.key_len.unwrap_or(0) as u64);
        if version > VERSION_OF_PARTIAL {
            out.push(domain.order.code());
        }
    }
    if version > VERSION_OF_PARTIAL {
        let has_no_rows = config.can_keep_rows() && !config.keeps_rows;
        out.push(config.commitment.code() | if has_no_rows { WITHOUT_ROWS } else { 0 });
    }
}

pub(super) fn decode_config(fields: &mut Fields<'_>, version: u32) -> Option<Config> {
    let id = match version {
        ..=VERSION_WITHOUT_ID => ArchiveId::default(),
        _ => ArchiveId(fields.take(16)?.try_into().ok()?),
    };
    let step_len = StepLen(NonZeroU64::new(fields.number()?)?);
    let reorg_window = fields.number()?;
    let period = if version == VERSION_WITHOUT_SNAPSHOTS { 0 } else { fields.number()? };
    let snapshots = NonZeroU64::new(period).map(|period| Snapshots { period });
    let count = fields.number()? as usize;
    if !(2..=DOMAINS_MAX).contains(&count) {
        return None;
    }
    let mut domains = Vec::with_capacity(count);
    for _ in 0..count {
        let len = fields.number()?;
        let name = str::from_utf8(fields.take(usize::try_from(len).ok()?)?).ok()?.to_owned();
        let encoding = match fields.byte()? {
            0 => EncodingRule::Auto,
            1 => EncodingRule::Plain,
            2 => EncodingRule::Zstd,
            _ => return None,
        };
        let key_len = match if version <= VERSION_WITHOUT_KEY_LENS { 0 } else { fields.number()? as usize } {
            0 => None,
            len => Some(len),
        };
        let order = match version {
            ..=VERSION_OF_PARTIAL => DomainOrder::Key,
            _ => DomainOrder::of_code(fields.byte()?)?,
        };
        let domain = Domain { name, encoding, key_len, order };
        if !domain.has_possible_key_len() {
            return None;
        }
        domains.push(domain);
    }
    let (commitment, has_no_rows) = match version {
        ..=VERSION_OF_PARTIAL => (Commitment::default(), false),
        _ => {
            let code = fields.byte()?;
            (Commitment::of_code(code & !WITHOUT_ROWS)?, code & WITHOUT_ROWS != 0)
        }
    };
    let config = Config { id, domains, step_len, reorg_window, snapshots, commitment, keeps_rows: false };
    let config = Config { keeps_rows: config.can_keep_rows() && !has_no_rows, ..config };
    let sound = (config.can_keep_rows() || !has_no_rows)
        && config.domains[0] == Domain::roots()
        && config.is_of_commitment()
        && config.names_are_distinct()
        && config.declared().iter().all(|domain| Domain::check_name(&domain.name).is_ok());
    sound.then_some(config)
}
