//! Nodes of the tries of Ethereum, and of a tree by path, that are wrong in files whose checksums are right: a verification finds each of them and names it, a proof
//! is right or an error, and a build of the rows mends them.

use std::sync::Arc;

use icecore_hot::KeyHash;
use icecore_hot::ethereum::{Nibbles, TrieId, keccak256};
use icecore_segments::{Entry, EntrySource, Value};

use crate::archive::Archive;
use crate::commitment::Commitment;
use crate::domain::{Domain, DomainId};
use crate::error::{Error, ErrorKind};
use crate::ethereum::{Address, BlockState, word};
use crate::maintain::emission::emit_entries;
use crate::maintain::rows::RowsRule;
use crate::maintain::verify::{VerifyMode, verify_on};
use crate::memtable::node_key::NodeKey;
use crate::merkle::trie_rows::top_key;
use crate::open_options::{Maintenance, OpenOptions};
use crate::options::Options;
use crate::reader::Reader;
use crate::segment::live::KvFile;
use crate::storage::Storage;
use crate::testing::SimStorage;
use crate::write::version_edit::VersionEdit;

const PATH: &str = "/archive";
/// More than a trie has before it gets a row.
const MANY: u64 = 8_200;
const LARGE: Address = [0xAA; 20];
const SMALL: Address = [0xBB; 20];
/// In segments; one more is in the log.
const LAST: u64 = 7;

/// What becomes of a value.
type Change = dyn Fn(Option<Vec<u8>>) -> Option<Vec<u8>>;

fn address(number: u64) -> Address {
    let mut address = [0; 20];
    address[12..].copy_from_slice(&number.to_be_bytes());
    address
}

fn on(disk: &SimStorage) -> Arc<dyn Storage> {
    Arc::new(disk.clone())
}

fn open(disk: &SimStorage) -> Archive {
    Archive::open_on(on(disk), PATH, OpenOptions::new().maintenance(Maintenance::EmitOnly)).unwrap()
}

/// Accounts and one storage with a row, and a storage without.
fn archive() -> SimStorage {
    let disk = SimStorage::new();
    let options = Options::new().commitment(Commitment::Ethereum).blocks_per_step(2).reorg_window(1);
    let open = OpenOptions::new().maintenance(Maintenance::EmitOnly);
    let archive = Archive::create_on(on(&disk), PATH, options, open).unwrap();
    for height in 1..=LAST + 1 {
        let mut state = BlockState::new();
        let accounts = if height == 1 { 0..MANY } else { height..height + 3 };
        accounts.for_each(|number| state.account(address(number)).nonce = Some(Some(height)));
        for (account, slots) in [(LARGE, MANY), (SMALL, 3)] {
            let slots = if height == 2 { 0..slots } else { height % 3..height % 3 + 1 };
            state.account(account).nonce = Some(Some(height));
            if height > 1 {
                state.account(account).slots.extend(slots.map(|slot| (word(slot), word(height))));
            }
        }
        let before = archive.reader().latest().ok();
        let mut block = archive.begin(height).unwrap();
        state.write(before.as_ref(), &mut block).unwrap();
        block.commit().unwrap();
        archive.emit().unwrap();
    }
    archive.close().unwrap();
    disk.kill_clone()
}

/// Writes the nodes again with what `change` makes of a key at a block: nothing where it gives `None`.
fn forge(disk: &SimStorage, wanted: &[u8], block: u64, change: &Change) {
    let nodes = open(disk).writer.shared.directory.config.nodes().unwrap();
    forge_in(disk, nodes, wanted, block, change);
}

/// The same of any domain.
fn forge_in(disk: &SimStorage, nodes: DomainId, wanted: &[u8], block: u64, change: &Change) {
    let archive = open(disk);
    let writer = &archive.writer;
    let (directory, version) = (&writer.shared.directory, writer.read_state());
    let segment = version.domain(nodes).iter().find(|s| s.blocks.0 <= block && block <= s.blocks.1).unwrap();
    let file = KvFile::open_for_pass(directory, &segment.record).unwrap();
    let mut cursor = file.view().cursor();
    cursor.seek_first().unwrap();
    let mut entries: Vec<(Vec<u8>, u64, Option<Vec<u8>>)> = Vec::new();
    while let Some(entry) = EntrySource::entry(&cursor) {
        let value = entry.value.load().unwrap().map(std::borrow::Cow::into_owned);
        entries.push((entry.key.to_vec(), entry.block, value));
        cursor.advance().unwrap();
    }
    let at = entries.iter().position(|(key, of, _)| key == wanted && *of == block);
    let before = at.and_then(|at| entries.remove(at).2);
    let after = change(before.clone());
    assert!(after != before, "something is forged");
    if let Some(after) = after {
        entries.push((wanted.to_vec(), block, Some(after)));
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    let keys = entries.chunk_by(|a, b| a.0 == b.0).count() as u64;
    let all = entries.iter().map(|(key, block, value)| Entry {
        key,
        block: *block,
        value: value.as_deref().map_or(Value::Deletion, Value::Inline),
    });
    let added = emit_entries(writer, segment.record.steps, nodes, keys, all, &()).unwrap().unwrap();
    let edit = VersionEdit { removed: vec![Arc::clone(segment)], added: vec![Arc::new(added)], log: None };
    writer.lock().publish(edit, |_, _| {}).unwrap();
}

fn problems(disk: &SimStorage) -> Vec<Error> {
    verify_on(on(disk), PATH, VerifyMode::Full, &()).unwrap().problems
}

/// A proof is right, or an error that says what is wrong.
fn prove(disk: &SimStorage, what: &str) {
    let reader = Reader::open_on(on(disk), PATH).unwrap();
    for height in 2..=LAST {
        let view = reader.at(height).unwrap();
        let slots = [word(0), word(1), word(2)];
        for address in [LARGE, SMALL, address(height)] {
            match view.prove_account(&address, &slots) {
                Ok(proof) => drop(proof.verify(&view.root().unwrap(), &address).unwrap()),
                Err(error) => {
                    assert!(matches!(error, Error::NodeDamaged { .. }), "{what}: {error}");
                    assert!(error.to_string().contains("/archive/_nodes."), "{what}: {error}");
                }
            }
        }
    }
}

/// Where something was forged: what to call it, the key, the block, and what is there then.
type Forgery = (&'static str, NodeKey, u64, Box<Change>);

fn forgeries() -> Vec<Forgery> {
    let storage = |address: &Address| TrieId::Storage(keccak256(address));
    let (large, small) = (top_key(&storage(&LARGE)), top_key(&storage(&SMALL)));
    let of_plain = top_key(&storage(&address(5)));
    let position = |path: &[u8; 32]| Nibbles::prefix(path, 1).paths().0;
    let in_accounts = NodeKey::trie_row(None, 1, &position(&keccak256(&address(LAST))));
    let slot = keccak256(&word(LAST % 3));
    let in_storage = NodeKey::trie_row(keccak256(&LARGE).first_chunk(), 1, &position(&slot));
    let deeper = NodeKey::trie_row(None, 2, &keccak256(&address(LAST)));
    let of_small = NodeKey::trie_row(keccak256(&SMALL).first_chunk(), 1, &[0; 32]);
    let flip = || {
        Box::new(|value: Option<Vec<u8>>| {
            value.map(|mut value| {
                value[0] ^= 1;
                value
            })
        }) as Box<Change>
    };
    let gone = || Box::new(|_| None) as Box<_>;
    let be = |bytes: Vec<u8>| Box::new(move |_| Some(bytes.clone())) as Box<_>;
    let hash_and = |depth: u8| {
        Box::new(move |value: Option<Vec<u8>>| Some([&value.unwrap_or_default()[..32], &[depth]].concat()))
            as Box<_>
    };
    vec![
        ("the depth of accounts, at the head", NodeKey::ROOT, LAST, be(vec![2])),
        ("no depth of accounts, at the head", NodeKey::ROOT, LAST, be(vec![0])),
        ("a depth that there is not", NodeKey::ROOT, LAST, be(vec![99])),
        ("no root row", NodeKey::ROOT, LAST, gone()),
        ("no root row, before", NodeKey::ROOT, 4, gone()),
        ("a node of accounts", in_accounts, LAST, flip()),
        ("an empty node of accounts", in_accounts, LAST, be(vec![])),
        (
            "a node of accounts, before",
            NodeKey::trie_row(None, 1, &position(&keccak256(&address(4)))),
            4,
            flip(),
        ),
        ("a node that is none", in_accounts, LAST, be(vec![7; 3])),
        ("a storage root", small, LAST, flip()),
        ("a storage root of an account without slots", of_plain, LAST, be(vec![7; 32])),
        ("the root of a storage with rows", large, LAST, flip()),
        ("rows of a storage without", small, LAST, hash_and(1)),
        ("other rows of a storage", large, LAST, hash_and(2)),
        ("a node of a storage", in_storage, LAST, flip()),
        ("a node of a storage that is older", in_storage, LAST, gone()),
        ("a key that is none", NodeKey::leaf(&icecore_hot::KeyHash([3; 32])), LAST, be(vec![1])),
        // Proofs are right with it: what a row does not have is read from the leaves.
        ("", NodeKey::ROOT, 3, be(vec![2])),
        // Nobody reads these: their tries have no such row.
        ("", deeper, LAST, be(vec![7; 32])),
        ("", of_small, LAST, be(vec![7; 32])),
    ]
}

#[test]
fn nodes_that_are_wrong_are_found_and_mended() {
    let sound = archive();
    assert!(problems(&sound).is_empty());
    for (what, key, block, change) in forgeries() {
        let disk = sound.kill_clone();
        forge(&disk, key.as_bytes(), block, &*change);
        let found = problems(&disk);
        assert_eq!(found.is_empty(), what.is_empty(), "{what}: {found:?}");
        for problem in &found {
            assert!(matches!(problem, Error::NodeDamaged { .. }), "{what}: {problem}");
            assert_eq!(problem.kind(), ErrorKind::Corrupt);
            println!("{what}: {problem}");
        }
        prove(&disk, what);
        let archive = open(&disk);
        assert!(archive.build_rows(RowsRule::Again, &()).unwrap().blocks >= LAST - 1);
        drop(archive);
        assert!(problems(&disk).is_empty(), "{what}: mended");
    }
}

/// A key of the archive by path that a block changes.
fn key_of(height: u64) -> Vec<u8> {
    format!("key {height}").into_bytes()
}

/// An archive by path with a row.
fn archive_by_path() -> SimStorage {
    let disk = SimStorage::new();
    let options = Options::new().declare(Domain::new("kv").by_path()).blocks_per_step(2).reorg_window(1);
    let open = OpenOptions::new().maintenance(Maintenance::EmitOnly);
    let archive = Archive::create_on(on(&disk), PATH, options, open).unwrap();
    for height in 1..=LAST + 1 {
        let mut block = archive.begin(height).unwrap();
        for number in if height == 1 { 0..MANY } else { height..height + 3 } {
            block.put("kv", &key_of(number), &height.to_le_bytes()).unwrap();
        }
        block.commit().unwrap();
        archive.emit().unwrap();
    }
    archive.close().unwrap();
    disk.kill_clone()
}

#[test]
fn nodes_of_a_tree_by_path_that_are_wrong_are_found() {
    let sound = archive_by_path();
    assert!(problems(&sound).is_empty());
    let node = |height: u64| {
        let path = KeyHash::of("kv", &key_of(height)).0;
        NodeKey::trie_row(None, 1, &Nibbles::prefix(&path, 1).paths().0)
    };
    let flip: &Change = &|value| value.map(|value| value.iter().map(|byte| byte ^ 1).collect());
    let forgeries: [(&str, NodeKey, u64, &Change); 9] = [
        ("another depth, at the head", NodeKey::ROOT, LAST, &|_| Some(vec![2])),
        ("no depth, at the head", NodeKey::ROOT, LAST, &|_| Some(vec![0])),
        ("a depth that there is not", NodeKey::ROOT, LAST, &|_| Some(vec![99])),
        ("no root row", NodeKey::ROOT, 4, &|_| None),
        ("a node", node(LAST), LAST, flip),
        ("a node, before", node(4), 4, flip),
        ("an empty node", node(LAST), LAST, &|_| Some(Vec::new())),
        ("a node that is none", node(LAST), LAST, &|_| Some(vec![7; 3])),
        // Proofs are right with it: what a row does not have is read from the leaves.
        ("", NodeKey::ROOT, 3, &|_| Some(vec![2])),
    ];
    for (what, key, block, change) in forgeries {
        let disk = sound.kill_clone();
        forge(&disk, key.as_bytes(), block, change);
        let found = problems(&disk);
        assert_eq!(found.is_empty(), what.is_empty(), "{what}: {found:?}");
        assert!(
            found.iter().all(|problem| matches!(problem, Error::NodeDamaged { .. })),
            "{what}: {found:?}"
        );
        let reader = Reader::open_on(on(&disk), PATH).unwrap();
        for height in 2..=LAST {
            let view = reader.at(height).unwrap();
            for key in [key_of(height), key_of(MANY + 1)] {
                let value = view.get("kv", &key).unwrap();
                match view.prove("kv", &key) {
                    Ok(proof) => proof.verify(&view.root().unwrap(), "kv", &key, value.as_deref()).unwrap(),
                    Err(error) => assert!(matches!(error, Error::NodeDamaged { .. }), "{what}: {error}"),
                }
            }
        }
    }
}

#[test]
fn a_state_by_path_that_is_wrong_is_not_blamed_on_its_nodes() {
    let disk = archive_by_path();
    let stored = Domain::new("kv").by_path().stored(&key_of(4)).into_owned();
    forge_in(&disk, DomainId(1), &stored, 4, &|_| Some(b"other".to_vec()));
    let reader = Reader::open_on(on(&disk), PATH).unwrap();
    let refused = reader.at(4).unwrap().prove("kv", &key_of(4)).unwrap_err();
    assert!(matches!(refused, Error::RootMismatch { block: 4, .. }), "{refused}");
    // A key that is stored under another path than its own.
    let mut elsewhere = stored.clone();
    elsewhere[7] ^= 1;
    let disk = archive_by_path();
    forge_in(&disk, DomainId(1), &elsewhere, 4, &|_| Some(b"other".to_vec()));
    let reader = Reader::open_on(on(&disk), PATH).unwrap();
    let refused = reader.at(4).unwrap().prove("kv", &key_of(4)).unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. } | Error::RootMismatch { .. }), "{refused}");
    assert!(!problems(&disk).is_empty());
}

#[test]
fn a_state_that_is_wrong_is_not_blamed_on_its_nodes() {
    let disk = archive();
    let archive = open(&disk);
    let writer = &archive.writer;
    let version = writer.read_state();
    let storage = DomainId::STORAGE;
    let segment = version.domain(storage).iter().find(|segment| segment.blocks.0 <= 2).unwrap();
    let file = KvFile::open_for_pass(&writer.shared.directory, &segment.record).unwrap();
    let mut cursor = file.view().cursor();
    cursor.seek_first().unwrap();
    let mut entries = Vec::new();
    while let Some(entry) = EntrySource::entry(&cursor) {
        entries.push((entry.key.to_vec(), entry.block));
        cursor.advance().unwrap();
    }
    let keys = entries.chunk_by(|a, b| a.0 == b.0).count() as u64;
    let all = entries.iter().map(|(key, block)| Entry { key, block: *block, value: Value::Inline(&[9]) });
    let added = emit_entries(writer, segment.record.steps, storage, keys, all, &()).unwrap().unwrap();
    let edit = VersionEdit { removed: vec![Arc::clone(segment)], added: vec![Arc::new(added)], log: None };
    writer.lock().publish(edit, |_, _| {}).unwrap();
    for address in [LARGE, SMALL] {
        let refused = archive.at(3).unwrap().prove_account(&address, &[word(1)]).unwrap_err();
        assert!(matches!(refused, Error::RootMismatch { block: 3, .. }), "{refused}");
    }
}

#[test]
fn an_unwinding_compares_what_it_goes_back_to() {
    let sound = archive();
    let head = |archive: &Archive| archive.reader().head();
    let in_accounts = NodeKey::trie_row(None, 1, &Nibbles::prefix(&keccak256(&address(4)), 1).paths().0);
    let disk = sound.kill_clone();
    forge(&disk, in_accounts.as_bytes(), 4, &|value| {
        value.map(|value| value.iter().map(|byte| byte ^ 1).collect())
    });
    let archive = open(&disk);
    assert!(matches!(archive.unwind(4, &()), Err(Error::NodeDamaged { block: 4, .. })));
    assert_eq!(head(&archive), Some(LAST + 1), "nothing has changed");
    archive.unwind(3, &()).unwrap();
    // What a block wrote.
    let disk = sound.kill_clone();
    forge_in(&disk, DomainId::ACCOUNT, &keccak256(&address(5)), 4, &|value| {
        value.map(|value| [&value[..], &[0]].concat())
    });
    let archive = open(&disk);
    assert!(matches!(archive.unwind(5, &()), Err(Error::DigestMismatch { block: 4 })));
    assert_eq!(head(&archive), Some(LAST + 1), "nothing has changed");
    archive.unwind(3, &()).unwrap();
}

#[test]
fn proofs_do_without_a_file_of_nodes() {
    let sound = archive();
    let expected = open(&sound.kill_clone()).at(LAST).unwrap().prove_account(&LARGE, &[word(1)]).unwrap();
    let nodes: Vec<_> = sound
        .files()
        .into_iter()
        .map(|(path, _)| path)
        .filter(|path| path.extension().is_some_and(|kind| kind == "kv"))
        .filter(|path| path.to_str().is_some_and(|path| path.contains("/_nodes.")))
        .collect();
    assert!(nodes.len() > 2);
    for path in nodes {
        let disk = sound.kill_clone();
        disk.lose(&path);
        let reader = Reader::open_on(on(&disk), PATH).unwrap();
        let view = reader.at(LAST).unwrap();
        assert!(view.prove_account(&LARGE, &[word(1)]).unwrap() == expected, "{}", path.display());
        let told = reader.stats().problems;
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(told.iter().any(|problem| problem.contains(name)), "{told:?}");
        let archive = open(&disk);
        archive.build_rows(RowsRule::Again, &()).unwrap();
        drop(archive);
        assert!(problems(&disk).is_empty(), "mended");
    }
}
