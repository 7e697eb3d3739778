//! What is said of a node that is kept at every block and is not what the state says: which node, at which block, in which file.

use icecore_hot::ethereum::Nibbles;
use icecore_segments::step::BlockNumber;

use crate::commitment::ACCOUNT_LEN;
use crate::domain::{DomainId, NODES_NAME};
use crate::error::Error;
use crate::memtable::node_key::STORAGE;
use crate::read::get::Origin;
use crate::read::read_state::ReadState;
use crate::stats::Tally;

/// The error of the node with a key in the state at `at`: its file is that which has the version, or where there is none would have it.
pub(crate) fn node_damaged(version: &ReadState, nodes: DomainId, key: &[u8], at: BlockNumber) -> Error {
    let of_segment = match version.find(nodes, key, at, &Tally::default()) {
        Ok(Some((_, Origin::Segment(segment)))) => Some(segment),
        Ok(_) => version.domain(nodes).iter().rfind(|segment| segment.blocks.0 <= at).map(AsRef::as_ref),
        Err(error) => return error,
    };
    let path = of_segment.map_or_else(|| NODES_NAME.into(), |segment| segment.kv.path().to_owned());
    Error::NodeDamaged { path, node: describe(key), block: at }
}

/// Whether an error is that of a file of nodes, which is missing or cannot be read: the state can be proven without it.
pub(crate) fn is_of_nodes(version: &ReadState, nodes: DomainId, error: &Error) -> bool {
    let (Error::Missing { path } | Error::File { path, .. }) = error else { return false };
    version.domain(nodes).iter().any(|segment| segment.kv.path() == path)
}

/// A key of the nodes in words.
fn describe(key: &[u8]) -> String {
    let nibbles = |bytes: &[u8], count: usize| {
        let mut path = [0; 32];
        let len = bytes.len().min(path.len());
        path[..len].copy_from_slice(&bytes[..len]);
        Nibbles::prefix(&path, count.min(2 * len))
    };
    match key.split_first() {
        Some((0, [])) => "the depth of the rows".to_owned(),
        Some((depth, rest)) if *depth < STORAGE => {
            format!("the node at {} of the state tree", nibbles(rest, usize::from(*depth)))
        }
        Some((tag, rest)) if rest.len() >= ACCOUNT_LEN => {
            let (account, rest) = rest.split_at(ACCOUNT_LEN);
            let account = nibbles(account, 2 * ACCOUNT_LEN);
            match tag ^ STORAGE {
                0 => format!("the storage root of the account with the path {account}.."),
                depth => {
                    let position = nibbles(rest, usize::from(depth));
                    format!("the node at {position} of the storage of the account with the path {account}..")
                }
            }
        }
        _ => "a node that no trie has".to_owned(),
    }
}
