//! Asks an archive everything and compares with the model: every root, every key at every height, lists, histories, proofs.

use std::collections::BTreeSet;
use std::fmt::Debug;

use icecore::ethereum::{Account, EMPTY_ROOT};
use icecore::{Error, Reader, Scan, View};

use crate::ethereum;
use crate::model::{Key, Model};

/// The most heights at which every key is asked; above, they are thinned out.
const HEIGHTS_MAX: usize = 48;

/// The most characters of a value that are shown.
const SHOWN_MAX: usize = 400;

/// Why an archive is not what the model is.
#[derive(Debug)]
pub(crate) enum Difference {
    /// An answer is another one.
    Wrong(String),
    /// There is no answer.
    Failed(String),
}

impl From<Error> for Difference {
    fn from(error: Error) -> Self {
        Self::Failed(with_causes(&error))
    }
}

/// An error and what caused it, in one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// An answer must be the expected one.
macro_rules! same {
    ($found:expr, $expected:expr, $($what:tt)+) => {{
        let (found, expected) = ($found, $expected);
        if found != expected {
            let what = format!($($what)+);
            return Err(Difference::Wrong(differs(&what, &found, &expected)));
        }
    }};
}

/// Says what was found and what was expected, of long values a part.
fn differs(what: &str, found: &dyn Debug, expected: &dyn Debug) -> String {
    let part = |value: &dyn Debug| format!("{value:?}").chars().take(SHOWN_MAX).collect::<String>();
    format!("{what}: found {}, expected {}", part(found), part(expected))
}

/// Whether head, range and root at the head are those of the model: enough to tell one state from another.
pub(crate) fn resembles(reader: &Reader, model: &Model) -> Result<bool, Error> {
    let view = match reader.latest() {
        Err(Error::Empty) => return Ok(model.exists && model.range().is_none()),
        other => other?,
    };
    let Some((_, head)) = model.range() else { return Ok(false) };
    Ok(reader.range() == model.range() && Some((view.block()?, view.root()?)) == model.block_at(head))
}

/// Asks everything.
pub(crate) fn examine(reader: &Reader, model: &Model) -> Result<(), Difference> {
    same!(reader.range(), model.range(), "range");
    let keys = model.keys();
    let Some((first, head)) = model.range() else {
        same!(
            matches!(reader.at(0), Err(Error::OutOfRange { .. })),
            true,
            "a height of an empty archive is refused"
        );
        return Ok(());
    };
    for outside in [Some(head + 1), first.checked_sub(1)].into_iter().flatten() {
        let is_refused = matches!(reader.at(outside), Err(Error::OutOfRange { .. }));
        same!(is_refused, true, "height {outside} is refused");
    }
    examine_heights(reader, model, first, head)?;
    let mut moves = model.moves();
    keys.iter().try_for_each(|key| examine_history(reader, model, key, &mut moves))?;
    for at in [first, first + (head - first) / 2, head] {
        examine_proofs(&reader.at(at)?, model, &keys, at)?;
    }
    Ok(())
}

/// Asks every key at the heights of a range.
fn examine_heights(reader: &Reader, model: &Model, first: u64, head: u64) -> Result<(), Difference> {
    let keys = model.keys();
    heights(first, head).into_iter().try_for_each(|at| examine_view(&reader.at(at)?, model, &keys, at))
}

/// All heights of a range, thinned out where there are many, its ends among them.
fn heights(first: u64, head: u64) -> Vec<u64> {
    let every = ((head - first) as usize / HEIGHTS_MAX + 1).max(1);
    let mut heights: Vec<u64> = (first..=head).step_by(every).collect();
    if heights.last() != Some(&head) {
        heights.push(head);
    }
    heights
}

/// Asks every key at the height of a view.
pub(crate) fn examine_view(
    view: &View,
    model: &Model,
    keys: &BTreeSet<Key>,
    at: u64,
) -> Result<(), Difference> {
    examine_root(view, model, at)?;
    keys.iter().try_for_each(|key| examine_key(view, model, key, at))?;
    (0..model.domains().len()).try_for_each(|domain| examine_domain(view, model, keys, domain, at))
}

fn examine_root(view: &View, model: &Model, at: u64) -> Result<(), Difference> {
    same!(Some((view.block()?, view.root()?)), model.block_at(at), "block and root at {at}");
    Ok(())
}

fn examine_key(view: &View, model: &Model, key: &Key, at: u64) -> Result<(), Difference> {
    same!(view.get(model.domains()[key.0], &key.1)?, model.get(key, at), "{key:?} at {at}");
    Ok(())
}

/// Asks for many keys of a domain at once.
fn examine_domain(
    view: &View,
    model: &Model,
    keys: &BTreeSet<Key>,
    domain: usize,
    at: u64,
) -> Result<(), Difference> {
    let name = model.domains()[domain];
    let asked: Vec<&Key> = keys.iter().filter(|key| key.0 == domain).collect();
    let bytes: Vec<&[u8]> = asked.iter().map(|key| &key.1[..]).collect();
    let expected: Vec<_> = asked.iter().map(|key| model.get(key, at)).collect();
    same!(view.multi_get(name, &bytes)?, expected, "many keys of {name} at {at}");
    let state = model.state(domain, at);
    same!(entries(view, name, &Scan::all())?, &state[..], "scan of {name} at {at}");
    let mut backward = entries(view, name, &Scan::all().backward())?;
    backward.reverse();
    same!(backward, &state[..], "backward scan of {name} at {at}");
    let within: Vec<_> = state.iter().filter(|(key, _)| key.starts_with(b"ab")).cloned().collect();
    same!(entries(view, name, &Scan::prefix(b"ab"))?, within, "prefix scan of {name} at {at}");
    if model.is_by_path {
        return Ok(());
    }
    let (from, to) = (&b"a"[..], &b"abz"[..]);
    let is_between = |key: &Vec<u8>| from <= &key[..] && &key[..] < to;
    let between: Vec<_> = state.iter().filter(|(key, _)| is_between(key)).cloned().collect();
    same!(entries(view, name, &Scan::all().from(from).to(to))?, between, "range scan of {name} at {at}");
    Ok(())
}

/// Asks everything of an archive that has a wrong file, each by itself: one answer that fails says nothing of the next.
/// [`Difference::Failed`] is the first failure where nothing is wrong.
pub(crate) fn examine_each(reader: &Reader, model: &Model) -> Result<(), Difference> {
    let mut failures = Vec::new();
    let mut take = |result: Result<(), Difference>| match result {
        Err(Difference::Failed(why)) => {
            failures.push(why);
            Ok(())
        }
        result => result,
    };
    let latest = reader.latest().map(drop);
    if latest.is_ok() {
        same!(reader.range(), model.range(), "range");
    }
    take(latest.map_err(Difference::from))?;
    let (keys, range) = (model.keys(), reader.range());
    for at in range.into_iter().flat_map(|(first, head)| heights(first, head)) {
        let view = reader.at(at)?;
        take(examine_root(&view, model, at))?;
        keys.iter().try_for_each(|key| take(examine_key(&view, model, key, at)))?;
        (0..model.domains().len())
            .try_for_each(|domain| take(examine_domain(&view, model, &keys, domain, at)))?;
    }
    let mut moves = model.moves();
    keys.iter().try_for_each(|key| take(examine_history(reader, model, key, &mut moves)))?;
    for at in range.into_iter().flat_map(|(first, head)| [first, head]) {
        take(examine_proofs(&reader.at(at)?, model, &keys, at))?;
    }
    failures.into_iter().next().map_or(Ok(()), |why| Err(Difference::Failed(why)))
}

/// Keys and values in order.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn entries(view: &View, domain: &str, scan: &Scan) -> Result<Entries, Error> {
    view.scan(domain, scan)?.map(|entry| entry.map(|entry| (entry.key, entry.value))).collect()
}

/// Asks for the versions of a key. Of `moves` those stay by which they can be so.
fn examine_history(
    reader: &Reader,
    model: &Model,
    key: &Key,
    moves: &mut Vec<BTreeSet<u64>>,
) -> Result<(), Difference> {
    let found = reader.history(model.domains()[key.0], &key.1)?;
    let found = found.map(|change| change.map(|change| (change.block, change.value)));
    let found = found.collect::<Result<Vec<_>, _>>()?;
    let expected = model.history(key, moves.last().expect("there is a way to tell the other keys"));
    let fits: Vec<_> = moves.iter().filter(|moved| model.history(key, moved) == found).cloned().collect();
    if fits.is_empty() {
        return Err(Difference::Wrong(differs(&format!("history of {key:?}"), &found, &expected)));
    }
    *moves = fits;
    Ok(())
}

/// Proves some keys, present and absent, and verifies the proofs against the model's root.
fn examine_proofs(view: &View, model: &Model, keys: &BTreeSet<Key>, at: u64) -> Result<(), Difference> {
    let Some((_, root)) = model.block_at(at) else { return Ok(()) };
    let every = keys.len() / 5 + 1;
    if model.is_ethereum() {
        let addresses: BTreeSet<_> = keys.iter().step_by(every).filter_map(ethereum::address).collect();
        return addresses.iter().try_for_each(|address| examine_account(view, model, address, at));
    }
    for key in keys.iter().step_by(every) {
        let (domain, value) = (model.domains()[key.0], model.get(key, at));
        let verified = view.prove(domain, &key.1)?.verify(&root, domain, &key.1, value.as_deref());
        same!(verified.map_err(|error| error.to_string()), Ok(()), "proof of {key:?} at {at}");
    }
    Ok(())
}

/// Proves an account with all its slots, and verifies that against the model's root.
fn examine_account(view: &View, model: &Model, address: &[u8; 20], at: u64) -> Result<(), Difference> {
    let Some((_, root)) = model.block_at(at) else { return Ok(()) };
    let keys: Vec<&Key> = ethereum::slots(model, address).collect();
    let slots: Vec<_> = keys.iter().filter_map(|key| key.1.last_chunk::<32>().copied()).collect();
    let expected: Vec<_> = keys.iter().map(|key| model.get(key, at).unwrap_or_else(|| vec![0; 32])).collect();
    let proof = view.prove_account(address, &slots)?;
    let verified = proof.verify(&root, address).map_err(|error| error.to_string());
    let verified = verified.map(|values| values.iter().map(|value| value.to_vec()).collect());
    same!(verified, Ok(expected), "proof of account {address:?} at {at}");
    let record = |account: Option<Account>| {
        account.map(|account| Account { storage_root: EMPTY_ROOT, ..account }.encode())
    };
    for told in [proof.account, view.account(address)?] {
        same!(record(told), model.get(&(0, address.to_vec()), at), "account {address:?} at {at}");
    }
    Ok(())
}
