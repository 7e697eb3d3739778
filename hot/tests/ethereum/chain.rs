//! The test chain of go-ethereum, read from `shared/datasets` beside the repository, which is not part of it: the state
//! root of each header, and answers of `eth_getProof`. Where the folder is absent these tests say so and pass.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use icecore_hot::ethereum::{
    EMPTY_CODE_HASH, StateBatch, StateTrie, Undo, keccak256, verify_account, verify_slot,
};
use icecore_hot::{HashBackend, Root};
use serde_json::Value;

fn dataset() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/datasets/eth-ethtest-600");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("passed without a look: no data set at {}", folder.display());
    None
}

fn lines(path: &Path) -> impl Iterator<Item = Value> + use<> {
    let decoder = zstd::Decoder::new(std::fs::File::open(path).unwrap()).unwrap();
    BufReader::new(decoder).lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap())
}

fn bytes(text: &Value) -> Vec<u8> {
    let digits = text.as_str().unwrap().strip_prefix("0x").unwrap();
    let digits = if digits.len().is_multiple_of(2) { digits.to_owned() } else { format!("0{digits}") };
    let digit = |digit: u8| char::from(digit).to_digit(16).unwrap() as u8;
    digits.as_bytes().chunks_exact(2).map(|pair| 16 * digit(pair[0]) + digit(pair[1])).collect()
}

fn word(text: &Value) -> [u8; 32] {
    let (bytes, mut word) = (bytes(text), [0; 32]);
    word[32 - bytes.len()..].copy_from_slice(&bytes);
    word
}

#[derive(Clone, Debug)]
struct Fields {
    nonce: u64,
    balance: [u8; 32],
    code_hash: [u8; 32],
}

/// The chain, block after block.
struct Chain {
    trie: StateTrie,
    accounts: BTreeMap<Vec<u8>, Fields>,
    changes: std::iter::Peekable<Box<dyn Iterator<Item = Value>>>,
}

impl Chain {
    fn new(folder: &Path) -> Self {
        let changes: Box<dyn Iterator<Item = Value>> = Box::new(lines(&folder.join("changes.jsonl.zst")));
        Self {
            trie: StateTrie::new(HashBackend::Auto),
            accounts: BTreeMap::new(),
            changes: changes.peekable(),
        }
    }

    fn apply(&mut self, number: u64) -> (Root, Undo) {
        let mut batch = StateBatch::new();
        while let Some(change) = self.changes.next_if(|change| change["block"] == number) {
            let address = bytes(&change["address"]);
            let (path, value) = (keccak256(&address), &change["value"]);
            if change["field"] == "storage" {
                let value = if value.is_null() { Vec::new() } else { bytes(value) };
                batch.put_slot(&path, &keccak256(&word(&change["slot"])), &value).unwrap();
                continue;
            }
            let fields = self.accounts.entry(address).or_insert(Fields {
                nonce: 0,
                balance: [0; 32],
                code_hash: EMPTY_CODE_HASH,
            });
            match change["field"].as_str().unwrap() {
                "nonce" => fields.nonce = u64::from_be_bytes(word(value)[24..].try_into().unwrap()),
                "balance" => fields.balance = word(value),
                "code" => fields.code_hash = keccak256(&bytes(value)),
                field => panic!("{field}"),
            }
            batch.put_account(&path, fields.nonce, fields.balance, fields.code_hash);
        }
        let applied = self.trie.apply(&batch).unwrap();
        (applied.root, applied.undo)
    }
}

#[test]
fn every_header_has_the_root_of_the_trie_forth_and_back() {
    let Some(folder) = dataset() else { return };
    let headers: Vec<[u8; 32]> =
        lines(&folder.join("headers.jsonl.zst")).map(|header| word(&header["stateRoot"])).collect();
    assert_eq!(headers.len(), 601);
    let (mut chain, mut undos) = (Chain::new(&folder), Vec::new());
    for (number, expected) in headers.iter().enumerate() {
        let (root, undo) = chain.apply(number as u64);
        assert_eq!(root.0, *expected, "block {number}");
        undos.push(undo);
    }
    assert!(chain.changes.next().is_none());
    for (number, undo) in undos.into_iter().enumerate().skip(1).rev() {
        assert_eq!(chain.trie.undo(undo).0, headers[number - 1], "block {number}");
    }
}

#[test]
fn proofs_are_those_that_geth_gives() {
    let Some(folder) = dataset() else { return };
    let mut exams: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    for exam in lines(&folder.join("oracle_proofs.jsonl.zst")) {
        let number = u64::from_be_bytes(word(&exam["params"][2])[24..].try_into().unwrap());
        exams.entry(number).or_default().push(exam);
    }
    assert_eq!(exams.values().map(Vec::len).sum::<usize>(), 200);
    let mut chain = Chain::new(&folder);
    for number in 0..=600 {
        let (root, _) = chain.apply(number);
        for exam in exams.remove(&number).unwrap_or_default() {
            check(&chain.trie, root, &exam);
        }
    }
    assert!(exams.is_empty());
}

fn check(trie: &StateTrie, root: Root, exam: &Value) {
    let (path, answer) = (keccak256(&bytes(&exam["params"][0])), &exam["result"]);
    let nodes = |proof: &Value| proof.as_array().unwrap().iter().map(bytes).collect::<Vec<_>>();
    let proof = trie.prove_account(&path);
    assert_eq!(proof, nodes(&answer["accountProof"]), "{exam}");
    let account = verify_account(&root, &path, &proof).unwrap();
    assert_eq!(account, trie.account(&path));
    if let Some(account) = account {
        assert_eq!(account.nonce.to_be_bytes(), word(&answer["nonce"])[24..]);
        assert_eq!(account.balance, word(&answer["balance"]));
        assert_eq!(account.code_hash, word(&answer["codeHash"]));
        assert_eq!(account.storage_root, word(&answer["storageHash"]));
    }
    for slot in answer["storageProof"].as_array().unwrap() {
        let key = keccak256(&word(&slot["key"]));
        let proof = trie.prove_slot(&path, &key);
        assert_eq!(proof, nodes(&slot["proof"]), "{exam}");
        let storage_root = account.unwrap_or_default().storage_root;
        let value = verify_slot(&storage_root, &key, &proof).unwrap();
        assert_eq!(value.unwrap_or_default(), word(&slot["value"]), "{exam}");
    }
}
