//! `icecore diff`: two states walked side by side, in the order of a scan.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

use icecore::{Domain, Entry, Scan, View};
use serde_json::json;

use crate::ask::{Asked, open_for_one_read};
use crate::encoding::{Encoding, RULE};
use crate::exit::{Exit, Failure, Outcome};
use crate::notes::{detail, is_quiet};
use crate::number::{HEIGHT_FORMS, Height};
#[cfg(feature = "s3")]
use crate::place::url_of;
use crate::print::{Out, plural};

/// Compare the states of two archives, or of one archive at two heights. Exit code 0: they are the same, 1: they differ.
#[derive(clap::Args)]
#[command(after_help = format!("\
For each key that differs a line: `-` and what the left has, then `+` and what
the right has, with domain, key and value, tabs between. A key that one side
lacks has one line. With --json one line for each key:
  {{\"domain\":..,\"key\":..,\"left\":value|null,\"right\":value|null}}
Keys come in the order of a scan, domain after domain. Both states are read as they are on
disk; what is held in memory does not grow with them. With --quiet nothing is
printed, and the first difference ends the work. A reader that has seen enough
may close the pipe: the exit code is 1 then as well.

{RULE}

{HEIGHT_FORMS}

Examples:
  icecore diff chain.ice copy.ice || echo \"not the same\"
  icecore diff chain.ice copy.ice --at 100 --domain kv --json
  icecore diff chain.ice --from -1        what the newest block changed
  icecore diff chain.ice --from 100 --to 150"))]
pub(crate) struct Args {
    #[cfg_attr(feature = "s3", doc = "The archive on the left: a directory, or the URL of a bucket")]
    #[cfg_attr(not(feature = "s3"), doc = "The archive on the left")]
    left: PathBuf,
    /// The archive on the right [default: that on the left]
    right: Option<PathBuf>,
    /// The height on both sides [default: latest]
    #[arg(long, short, alias = "block", value_name = "N", allow_hyphen_values = true, conflicts_with_all = ["from", "to"])]
    at: Option<Height>,
    /// The height on the left [default: latest]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    from: Option<Height>,
    /// The height on the right [default: latest]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    to: Option<Height>,
    /// Only this domain; all where it is left out
    #[arg(long, short, value_name = "NAME")]
    domain: Option<String>,
    /// How keys and values are written
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    encoding: Encoding,
    /// Print a line of JSON for each key
    #[arg(long)]
    json: bool,
    #[cfg(feature = "s3")]
    #[command(flatten)]
    bucket: crate::bucket::ReadArgs,
}

impl Args {
    /// Opens one of the two.
    fn open(&self, dir: &Path) -> Result<Asked, Failure> {
        #[cfg(feature = "s3")]
        if let Some(url) = url_of(dir) {
            return Ok(Asked::of(self.bucket.open(url)?, self.encoding));
        }
        Ok(Asked::of(open_for_one_read(dir)?, self.encoding))
    }
}

/// One of the two states.
struct Side {
    domains: Vec<Domain>,
    view: View,
}

impl Side {
    fn of(asked: &Asked, at: Option<Height>) -> Result<Self, Failure> {
        Ok(Self { domains: asked.reader.domains().to_vec(), view: asked.view(at)? })
    }

    /// A domain of this side.
    fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.iter().find(|domain| domain.name == name)
    }

    /// The entries of a domain in its order; none where the archive has no such domain.
    fn entries(&self, domain: &str) -> Result<impl Iterator<Item = Result<Entry, icecore::Error>>, Failure> {
        let entries =
            if self.domain(domain).is_some() { Some(self.view.scan(domain, &Scan::all())?) } else { None };
        Ok(entries.into_iter().flatten())
    }
}

/// A key with what each side has of it, at least one of them and not the same.
struct Difference<'a> {
    key: &'a [u8],
    left: Option<&'a [u8]>,
    right: Option<&'a [u8]>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    match compare(args) {
        // Nothing but differences is written: who closes the pipe may have seen one, and there is one.
        Err(failure) if failure.is_broken_pipe() => Ok(Exit::No),
        done => done,
    }
}

fn compare(args: &Args) -> Outcome {
    if args.right.is_none() && args.from.is_none() && args.to.is_none() {
        return Err(Failure::usage(
            "one archive needs two heights, --from or --to or both; or name another archive",
        ));
    }
    #[cfg(feature = "s3")]
    if url_of(&args.left).or(args.right.as_deref().and_then(url_of)).is_none() {
        args.bucket.check_unused()?;
    }
    let asked = args.open(&args.left)?;
    let other = args.right.as_deref().map(|right| args.open(right)).transpose()?;
    let left = Side::of(&asked, args.at.or(args.from))?;
    let right = Side::of(other.as_ref().unwrap_or(&asked), args.at.or(args.to))?;
    let mut out = Out::new();
    let (mut keys, mut differing) = (0, 0);
    for domain in domains(&left, &right, args.domain.as_deref())? {
        let found = &mut |difference: &Difference<'_>| {
            differing += 1;
            if is_quiet() {
                Ok(false)
            } else {
                print(&mut out, args.json, domain, &asked, difference).map(|()| true)
            }
        };
        let order = order_of(&left, &right, domain)?;
        keys += walk(order, left.entries(domain)?, right.entries(domain)?, found)?;
        if is_quiet() && differing > 0 {
            break;
        }
    }
    out.flush()?;
    asked.tell_reads();
    if let Some(other) = &other {
        other.tell_reads();
    }
    let (from, to) = (left.view.height(), right.view.height());
    detail(format_args!(
        "block {from} and block {to}: {} differ of {}",
        plural(differing, "key"),
        plural(keys, "key")
    ));
    Ok(if differing == 0 { Exit::Done } else { Exit::No })
}

/// The domain whose order both sides keep the keys of a domain in.
fn order_of<'a>(left: &'a Side, right: &'a Side, domain: &str) -> Result<&'a Domain, Failure> {
    let both = left.domain(domain).into_iter().chain(right.domain(domain)).collect::<Vec<_>>();
    if both.windows(2).any(|pair| pair[0].order != pair[1].order) {
        return Err(Failure::usage(format!(
            "the two archives keep {} in different orders, and are read side by side: export both and compare what is sorted",
            crate::encoding::quoted(domain)
        )));
    }
    Ok(both[0])
}

/// The domains of both sides, those of the left first.
fn domains<'a>(left: &'a Side, right: &'a Side, only: Option<&'a str>) -> Result<Vec<&'a str>, Failure> {
    let more = right.domains.iter().filter(|domain| left.domain(&domain.name).is_none());
    let all: Vec<&str> = left.domains.iter().chain(more).map(|domain| &*domain.name).collect();
    match only {
        None => Ok(all),
        Some(name) if all.contains(&name) => Ok(vec![name]),
        Some(name) => {
            let known = all.join(", ");
            Err(Failure::usage(format!(
                "unknown domain {}, there are: {known}",
                crate::encoding::quoted(name)
            )))
        }
    }
}

/// Goes through both sides at once and calls `found` with each key that differs, until that returns `false`. Returns how many
/// different keys it passed.
fn walk(
    domain: &Domain,
    mut left: impl Iterator<Item = Result<Entry, icecore::Error>>,
    mut right: impl Iterator<Item = Result<Entry, icecore::Error>>,
    found: &mut impl FnMut(&Difference<'_>) -> Result<bool, Failure>,
) -> Result<u64, Failure> {
    let (mut l, mut r) = (left.next().transpose()?, right.next().transpose()?);
    let mut keys = 0;
    loop {
        let order = match (&l, &r) {
            (None, None) => return Ok(keys),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(left), Some(right)) => domain.compare(&left.key, &right.key),
        };
        let on_left = l.as_ref().filter(|_| order.is_le());
        let on_right = r.as_ref().filter(|_| order.is_ge());
        let left_value = on_left.map(|entry| entry.value.as_slice());
        let right_value = on_right.map(|entry| entry.value.as_slice());
        keys += 1;
        if let Some(entry) = on_left.or(on_right)
            && left_value != right_value
            && !found(&Difference { key: &entry.key, left: left_value, right: right_value })?
        {
            return Ok(keys);
        }
        if order.is_le() {
            l = left.next().transpose()?;
        }
        if order.is_ge() {
            r = right.next().transpose()?;
        }
    }
}

fn print(
    out: &mut Out,
    as_json: bool,
    domain: &str,
    asked: &Asked,
    difference: &Difference<'_>,
) -> Result<(), Failure> {
    let (face_of_keys, face) = (asked.face(), asked.face_of(domain));
    let Difference { key, left, right } = *difference;
    if as_json {
        let show = |value: Option<&[u8]>| value.map(|value| face.json(value));
        return out.json(&json!({
            "domain": domain, "key": face_of_keys.show(key), "left": show(left), "right": show(right),
        }));
    }
    for (sign, value) in [('-', left), ('+', right)] {
        if let Some(value) = value {
            out.line(format_args!("{sign}\t{domain}\t{}\t{}", face_of_keys.line(key), face.line(value)))?;
        }
    }
    Ok(())
}
