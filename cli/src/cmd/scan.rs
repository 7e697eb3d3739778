//! `icecore scan`.

use icecore::{Entry, Scan};

use crate::ask::{Asked, Question};
use crate::encoding::RULE;
use crate::exit::{Exit, Failure, Outcome};
use crate::number::{HEIGHT_FORMS, whole};
use crate::print::Out;

/// Print keys and values in order at a block: a key, a tab, its value.
#[derive(clap::Args)]
#[command(after_help = format!("A prefix is whole bytes: 0xd is half a byte and refused. The empty prefix 0x
is every key, printed as hex.

An archive of the profile ethereum keeps accounts and slots in the order of its
tries: their keys, in a scan, are the Keccak-256 of the address, and its first
20 bytes and the Keccak-256 of the slot. --account takes the address itself.

{RULE}

{HEIGHT_FORMS}

Examples:
  icecore scan chain.ice --prefix user/ --at 17
  icecore scan chain.ice --from m --to n --reverse --limit 10
  icecore scan eth.ice --domain storage --json \\
      --prefix 0x00000961ef480eb55e80d19ad83579a64c007002
  icecore scan state.ice --domain storage --at 17 \\
      --account 0x00000961ef480eb55e80d19ad83579a64c007002"))]
pub(crate) struct Args {
    #[command(flatten)]
    question: Question,
    #[command(flatten)]
    range: Range,
}

/// Which keys, as they stand on the command line.
#[derive(clap::Args)]
pub(crate) struct Range {
    /// Only keys that begin with this
    #[arg(long, short, value_name = "KEY")]
    prefix: Option<String>,
    /// Only slots of this account: its address, in an archive of the profile ethereum
    #[arg(long, value_name = "ADDRESS", conflicts_with = "prefix")]
    account: Option<String>,
    /// Only keys from this one on
    #[arg(long, value_name = "KEY")]
    from: Option<String>,
    /// Only keys before this one
    #[arg(long, value_name = "KEY")]
    to: Option<String>,
    /// Last key first
    #[arg(long, short)]
    reverse: bool,
    /// At most this many
    #[arg(long, short = 'n', value_name = "N", value_parser = whole, allow_hyphen_values = true)]
    limit: Option<u64>,
}

/// A range of keys as strings, from the command line or a request.
#[derive(Clone, Copy, Default)]
pub(crate) struct Bounds<'a> {
    pub(crate) account: Option<&'a str>,
    pub(crate) prefix: Option<&'a str>,
    pub(crate) from: Option<&'a str>,
    pub(crate) to: Option<&'a str>,
    pub(crate) reverse: bool,
}

impl<'a> Bounds<'a> {
    /// The scan that is meant.
    pub(crate) fn scan(&self, asked: &Asked, domain: &str) -> Result<Scan, Failure> {
        let mut scan = match (self.account, self.prefix) {
            (Some(_), Some(_)) => return Err(Failure::usage("account and prefix exclude each other")),
            (Some(account), None) => asked.slots_of(domain, account)?,
            (None, Some(prefix)) => Scan::prefix(&asked.bound("prefix", domain, prefix)?),
            (None, None) => Scan::all(),
        };
        if let Some(from) = self.from {
            scan = scan.from(&asked.bound("from", domain, from)?);
        }
        if let Some(to) = self.to {
            scan = scan.to(&asked.bound("to", domain, to)?);
        }
        Ok(if self.reverse { scan.backward() } else { scan })
    }

    /// The string that decides how keys are printed.
    pub(crate) fn first(&self) -> Option<&'a str> {
        self.prefix.or(self.from).or(self.to)
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    let asked = args.question.open()?;
    let domain = asked.domain(args.question.domain.as_deref())?;
    let view = asked.view(args.question.at)?;
    let range = &args.range;
    let bounds = Bounds {
        account: range.account.as_deref(),
        prefix: range.prefix.as_deref(),
        from: range.from.as_deref(),
        to: range.to.as_deref(),
        reverse: range.reverse,
    };
    let (face_of_keys, face) = (asked.face_of_keys(bounds.first()), asked.face_of(domain));
    let limit = range.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let (mut out, mut is_found) = (Out::new(), false);
    for entry in view.scan(domain, &bounds.scan(&asked, domain)?)?.take(limit) {
        let Entry { key, value, .. } = entry?;
        is_found = true;
        out.with(|mut out| {
            if args.question.json {
                out.write_all(b"[")?;
                face_of_keys.write_json(&key, &mut out)?;
                out.write_all(b",")?;
                face.write_json(&value, &mut out)?;
                out.write_all(b"]\n")
            } else {
                writeln!(out, "{}\t{}", face_of_keys.line(&key), face.line(&value))
            }
        })?;
    }
    out.flush()?;
    if !is_found && bounds.first().is_some() {
        asked.tell_paths(domain);
    }
    asked.tell_reads();
    Ok(Exit::Done)
}
