//! The format `geth-diff`: replies of `debug_traceBlockByNumber` with `prestateTracer {diffMode:true}`.
//!
//! The tracer tells, transaction by transaction, what accounts were before (`pre`) and what changed (`post`). [`fold`]
//! turns that into what the block changed, by these rules:
//!
//! - a field that `post` leaves out did not change; the last transaction that changes a key wins;
//! - an account that only `post` has was born: a balance or nonce that is left out is zero;
//! - an account that only `pre` has was destroyed: its balance, nonce, code and all of its storage go;
//! - a slot that only `pre` has, of an account that lives on, was set to zero: it goes;
//! - an account that lost its code shows an empty code or the hash of the empty code.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::eth_changes::{address, code, number, storage_key, word};
use super::{Address, BALANCE, BadLine, CODE, Changes, Format, NONCE, STORAGE};
use crate::json;
use crate::json::Text;
use crate::number::Whole;

/// What such a trace cannot contain; the manual of `ingest` ends with it.
pub(crate) const LIMITS: &str = "\
What a geth-diff trace does not contain, and so neither does the archive:
block and uncle rewards of proof of work, withdrawals (EIP-4895), writes of
system calls (EIP-4788, 2935, 7002, 7251), the state before the first block.
Of a destroyed account every slot goes that the archive knows. Older geth,
1.16.5 among them, shows a contract as destroyed that only ran SELFDESTRUCT
after Cancun and lives on (go-ethereum issue 33049).";

/// Keccak-256 of nothing.
const EMPTY_CODE_HASH: &str = "0xc5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470";

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Line<'a> {
    #[serde(default)]
    block: Option<Whole>,
    #[serde(borrow, default)]
    response: Option<Reply<'a>>,
    #[serde(borrow, default)]
    result: Option<Vec<Transaction<'a>>>,
    #[serde(default)]
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Reply<'a> {
    #[serde(borrow, default)]
    result: Option<Vec<Transaction<'a>>>,
    #[serde(default)]
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Transaction<'a> {
    #[serde(borrow, default)]
    result: Option<Diff<'a>>,
    #[serde(default)]
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with \"pre\" and \"post\"")]
struct Diff<'a> {
    #[serde(borrow)]
    pre: BTreeMap<Text<'a>, Account<'a>>,
    #[serde(borrow)]
    post: BTreeMap<Text<'a>, Account<'a>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an account")]
struct Account<'a> {
    #[serde(borrow, default)]
    balance: Option<Text<'a>>,
    #[serde(default)]
    nonce: Option<Whole>,
    #[serde(borrow, default)]
    code: Option<Text<'a>>,
    #[serde(borrow, default, rename = "codeHash")]
    code_hash: Option<Text<'a>>,
    #[serde(borrow, default)]
    storage: BTreeMap<Text<'a>, Text<'a>>,
}

/// Reads `geth-diff`.
pub(crate) struct GethDiff {
    next: Option<u64>,
}

impl GethDiff {
    /// Bare replies are numbered from `first_block` on, and refused where it is `None`: they do not say which block they are of.
    pub(crate) fn new(first_block: Option<u64>) -> Self {
        Self { next: first_block }
    }

    fn bare_height(&mut self) -> Result<u64, String> {
        let height = self.next.ok_or(
            "a bare reply does not say which block it is of: number the replies with --first-block N, or wrap each as \
             {\"block\":N,\"response\":...}",
        )?;
        self.next = height.checked_add(1);
        Ok(height)
    }
}

impl Format for GethDiff {
    fn read(&mut self, line: &[u8], changes: &mut Changes) -> Result<u64, BadLine> {
        let line: Line = serde_json::from_slice(line).map_err(|error| json::reason(&error))?;
        let (height, result, error) = match (&line.block, line.response) {
            (Some(block), Some(reply)) => (block.0, reply.result, reply.error),
            (None, Some(_)) => return Err("\"block\" is missing beside \"response\"".into()),
            (Some(_), None) => return Err("\"response\" is missing beside \"block\"".into()),
            (None, None) => (self.bare_height()?, line.result, line.error),
        };
        if let Some(error) = error {
            return Err(format!("the node answered with an error: {error}").into());
        }
        fold(&result.ok_or("\"result\" is missing")?, changes)?;
        Ok(height)
    }

    fn example(&self) -> &'static str {
        r#"{"block":1,"response":{"result":[..]}}"#
    }

    fn line_is_block(&self) -> bool {
        true
    }
}

/// A key of the archive; orders by account, then balance, nonce, code, slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    address: Address,
    domain: usize,
    slot: [u8; 32],
}

type Folded = BTreeMap<Target, Option<Vec<u8>>>;

fn fold(transactions: &[Transaction], changes: &mut Changes) -> Result<(), String> {
    let mut folded = Folded::new();
    let mut wiped = Vec::new();
    for (idx, transaction) in transactions.iter().enumerate() {
        let diff = match (&transaction.result, &transaction.error) {
            (Some(diff), None) => diff,
            (_, Some(error)) => return Err(format!("the trace of transaction {idx} is an error: {error}")),
            (None, None) => return Err(format!("transaction {idx} has no \"result\"")),
        };
        for (name, pre) in &diff.pre {
            if !diff.post.contains_key(name) {
                let address = address(&name.0)?;
                destroy(address, pre, &mut folded)?;
                wiped.push(address);
            }
        }
        for (name, post) in &diff.post {
            change(address(&name.0)?, diff.pre.get(name), post, &mut folded)?;
        }
    }
    wiped.sort_unstable();
    wiped.dedup();
    for address in wiped {
        changes.wipe(address);
    }
    for (target, value) in &folded {
        let value = value.as_deref();
        if target.domain == STORAGE {
            changes.push(STORAGE, &storage_key(&target.address, &target.slot), value);
        } else {
            changes.push(target.domain, &target.address, value);
        }
    }
    Ok(())
}

/// The account and all of its storage go.
fn destroy(address: Address, pre: &Account, folded: &mut Folded) -> Result<(), String> {
    let target = |domain| Target { address, domain, slot: [0; 32] };
    for (_, value) in folded.range_mut(target(BALANCE)..=Target { slot: [0xff; 32], ..target(STORAGE) }) {
        *value = None;
    }
    folded.insert(target(BALANCE), None);
    folded.insert(target(NONCE), None);
    if pre.code.is_some() {
        folded.insert(target(CODE), None);
    }
    for slot in pre.storage.keys() {
        folded.insert(Target { slot: word(&slot.0)?, ..target(STORAGE) }, None);
    }
    Ok(())
}

/// The account lives on, or is born.
fn change(
    address: Address,
    pre: Option<&Account>,
    post: &Account,
    folded: &mut Folded,
) -> Result<(), String> {
    let target = |domain| Target { address, domain, slot: [0; 32] };
    if let Some(balance) = &post.balance {
        folded.insert(target(BALANCE), Some(number(&balance.0)?));
    } else if pre.is_none() {
        folded.insert(target(BALANCE), Some(vec![0]));
    }
    if let Some(nonce) = &post.nonce {
        folded.insert(target(NONCE), Some(number(&format!("{:#x}", nonce.0))?));
    } else if pre.is_none() {
        folded.insert(target(NONCE), Some(vec![0]));
    }
    let had_code = pre.and_then(|pre| pre.code.as_ref()).is_some_and(|code| code.0 != "0x");
    match (&post.code, &post.code_hash) {
        (Some(code), _) if code.0 == "0x" => lose_code(had_code, target(CODE), folded),
        (Some(bytes), _) => drop(folded.insert(target(CODE), Some(code(&bytes.0)?))),
        (None, Some(hash)) if hash.0 == EMPTY_CODE_HASH => lose_code(had_code, target(CODE), folded),
        (None, Some(hash)) if pre.and_then(|pre| pre.code_hash.as_ref()) != Some(hash) => {
            return Err(format!(
                "\"codeHash\" changes and \"code\" is missing, address={}",
                crate::encoding::hex(&address)
            ));
        }
        (None, _) => {}
    }
    for (slot, value) in &post.storage {
        let value = word(&value.0)?;
        let value = value.iter().any(|&byte| byte != 0).then(|| value.to_vec());
        folded.insert(Target { slot: word(&slot.0)?, ..target(STORAGE) }, value);
    }
    for slot in pre.into_iter().flat_map(|pre| pre.storage.keys()) {
        if !post.storage.contains_key(slot) {
            folded.insert(Target { slot: word(&slot.0)?, ..target(STORAGE) }, None);
        }
    }
    Ok(())
}

fn lose_code(had_code: bool, target: Target, folded: &mut Folded) {
    if had_code {
        folded.insert(target, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::hex;

    const A: &str = "0x00000000000000000000000000000000000000aa";

    fn read(first_block: Option<u64>, line: &str) -> Result<(u64, Changes), String> {
        let mut changes = Changes::default();
        let read = GethDiff::new(first_block).read(line.as_bytes(), &mut changes);
        let height = read.map_err(|bad| bad.reason)?;
        Ok((height, changes))
    }

    /// The changes of a block with these pairs of `pre` and `post` of account [`A`]; "" where it is not listed.
    fn folded(transactions: &[(&str, &str)]) -> Vec<(usize, String)> {
        let side = |account: &str| {
            if account.is_empty() { "{}".to_owned() } else { format!("{{\"{A}\":{account}}}") }
        };
        let list: Vec<_> = transactions
            .iter()
            .map(|(pre, post)| {
                format!("{{\"txHash\":\"0x1\",\"result\":{{\"pre\":{},\"post\":{}}}}}", side(pre), side(post))
            })
            .collect();
        let (_, changes) = read(Some(1), &format!("{{\"id\":1,\"result\":[{}]}}", list.join(","))).unwrap();
        let show = |value: Option<&[u8]>| {
            value.map_or("-".to_owned(), |value| hex(value).replace(&"00".repeat(31), ".."))
        };
        changes.iter().map(|(domain, _, value)| (domain, show(value))).collect()
    }

    fn check(transactions: &[(&str, &str)], expected: &[(usize, &str)]) {
        let expected: Vec<_> = expected.iter().map(|&(domain, value)| (domain, value.to_owned())).collect();
        assert_eq!(folded(transactions), expected, "{transactions:?}");
    }

    #[test]
    fn transactions_fold_into_one_change() {
        // Left out is unchanged, the last one wins.
        check(
            &[
                (r#"{"balance":"0x5","nonce":1}"#, r#"{"balance":"0x4"}"#),
                (r#"{"balance":"0x4","nonce":1}"#, r#"{"balance":"0x0","nonce":2}"#),
            ],
            &[(BALANCE, "0x00"), (NONCE, "0x02")],
        );
        // Born: zeros that are left out.
        check(&[("", r#"{"balance":"0x100"}"#)], &[(BALANCE, "0x0100"), (NONCE, "0x00")]);
        check(
            &[("", r#"{"nonce":1,"code":"0x60","codeHash":"0x12","storage":{"0x1":"0x2"}}"#)],
            &[(BALANCE, "0x00"), (NONCE, "0x01"), (CODE, "0x60"), (STORAGE, "0x..02")],
        );
        // A slot that only `pre` has was cleared, and one that `post` calls zero too.
        check(
            &[(r#"{"storage":{"0x1":"0x7","0x2":"0x8"}}"#, r#"{"storage":{"0x2":"0x9","0x3":"0x0"}}"#)],
            &[(STORAGE, "-"), (STORAGE, "0x..09"), (STORAGE, "-")],
        );
    }

    #[test]
    fn a_destroyed_account_loses_everything() {
        let pre = r#"{"balance":"0x5","nonce":1,"code":"0x60","storage":{"0x1":"0x7"}}"#;
        check(
            &[(r#"{"balance":"0x5"}"#, r#"{"storage":{"0x9":"0x9"}}"#), (pre, "")],
            &[(BALANCE, "-"), (NONCE, "-"), (CODE, "-"), (STORAGE, "-"), (STORAGE, "-")],
        );
        check(
            &[(pre, ""), ("", r#"{"balance":"0x1"}"#)],
            &[(BALANCE, "0x01"), (NONCE, "0x00"), (CODE, "-"), (STORAGE, "-")],
        );
        let line = format!(r#"{{"id":1,"result":[{{"result":{{"pre":{{"{A}":{pre}}},"post":{{}}}}}}]}}"#);
        assert_eq!(read(Some(1), &line).unwrap().1.wiped(), [address(A).unwrap()]);
    }

    #[test]
    fn code_can_be_taken_away() {
        let emptied = format!(r#"{{"nonce":2,"codeHash":"{EMPTY_CODE_HASH}"}}"#);
        check(&[(r#"{"nonce":1,"code":"0xef01"}"#, &emptied)], &[(NONCE, "0x02"), (CODE, "-")]);
        check(
            &[(r#"{"nonce":1,"code":"0xef01"}"#, r#"{"nonce":2,"code":"0x"}"#)],
            &[(NONCE, "0x02"), (CODE, "-")],
        );
        check(&[(r#"{"nonce":1}"#, r#"{"nonce":2,"code":"0x"}"#)], &[(NONCE, "0x02")]);
    }

    #[test]
    fn a_reply_finds_its_height() {
        for (first, line, height) in [
            (None, r#"{"block":17,"response":{"id":3,"result":[]}}"#, Ok(17)),
            (Some(5), r#"{"block":"0x11","response":{"id":3,"result":[]}}"#, Ok(17)),
            (None, r#"{"jsonrpc":"2.0","id":3,"result":[]}"#, Err("--first-block")),
            (Some(9), r#"{"jsonrpc":"2.0","id":3,"result":[]}"#, Ok(9)),
            (None, r#"{"jsonrpc":"2.0","result":[]}"#, Err("--first-block")),
            (None, r#"{"response":{"result":[]}}"#, Err("\"block\" is missing")),
            (None, r#"{"block":1}"#, Err("\"response\" is missing")),
            (None, r#"{"block":1,"response":{}}"#, Err("\"result\" is missing")),
            (Some(1), r#"{"id":1,"error":{"code":-32000,"message":"no state"}}"#, Err("no state")),
            (Some(1), r#"{"id":1,"result":[{"error":"timeout"}]}"#, Err("transaction 0 is an error")),
            (Some(1), r#"{"id":1,"result":[{"result":{"pre":{"0x1":{}},"post":{}}}]}"#, Err("no address")),
            (Some(1), r#"{"id":1,"result":[{"result":{"pre":{}}}]}"#, Err("missing field \"post\"")),
        ] {
            match (read(first, line), height) {
                (Ok((got, _)), Ok(height)) => assert_eq!(got, height, "{line}"),
                (Err(told), Err(reason)) => assert!(told.contains(reason), "{line}: {told}"),
                (got, _) => panic!("{line}: {:?}", got.map(|(height, _)| height)),
            }
        }
    }
}
