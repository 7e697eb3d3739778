//! A hostile bucket beside an honest one whose files it names, read through one cache: whatever it says, and whoever signed it, the honest
//! one is answered from what is its own, by readers that were there before and by those that come after.

use std::path::Path;
use std::sync::Arc;

use icecore_segments::checksum::{PAGE_SIZE, is_sealed, seal};
use icecore_segments::frame::{Header, Kind};

use super::bundle;
use super::manifest::BundleRef;
use super::names;
use super::push::push_from;
use super::signature::tests::SECRET;
use super::{Bucket, BucketOptions, PushOptions, RemoteError, RemoteOptions, SigningKey};
use crate::storage::Storage;
use crate::testing::SimStorage;
use crate::{Archive, Error, Maintenance, OpenOptions, Options, Reader};

const CHAIN: &str = "/chain";
const KEYS: u64 = 4_000;

fn key_of(number: u64) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

fn value_of(number: u64) -> Vec<u8> {
    blake3::hash(&number.to_le_bytes()).as_bytes().to_vec()
}

fn open(url: &str, key: Option<&SigningKey>) -> Bucket {
    let options = BucketOptions::new();
    let options = key.map_or(options.clone(), |key| options.public_key(key.public().clone()));
    Bucket::open_with(url, &options).unwrap()
}

/// A bucket with one segment of a few blocks of bytes.
fn pushed(url: &str, key: Option<&SigningKey>) -> Bucket {
    let storage: Arc<dyn Storage> = Arc::new(SimStorage::new());
    let options = Options::new().domain("kv").blocks_per_step(1).reorg_window(0);
    let open_options = OpenOptions::new().maintenance(Maintenance::EmitOnly);
    let archive = Archive::create_on(Arc::clone(&storage), CHAIN, options, open_options).unwrap();
    let mut block = archive.begin(1).unwrap();
    for number in 0..KEYS {
        block.put("kv", &key_of(number), &value_of(number)).unwrap();
    }
    block.commit().unwrap();
    archive.begin(2).unwrap().commit().unwrap();
    archive.emit().unwrap();
    let options = PushOptions::new();
    let options = key.map_or(options.clone(), |key| options.sign(key.clone()));
    push_from(&storage, Path::new(CHAIN), &Bucket::open(url).unwrap(), &options, &()).unwrap();
    open(url, key)
}

/// What a hostile bucket does besides having other bytes in its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forgery {
    /// Nothing.
    Pages,
    /// Its bundle has them as well.
    Tails,
    /// It says that the files are shorter.
    Lengths,
}

/// Other values in pages whose checksums hold.
fn forged(bytes: &[u8]) -> Vec<u8> {
    let salt = Header::parse(bytes).unwrap().salt();
    let (mut forged, pages) = (bytes.to_vec(), bytes.len() / PAGE_SIZE);
    for number in 1..pages - 1 {
        let page = &mut forged[number * PAGE_SIZE..][..PAGE_SIZE];
        if is_sealed(page, number as u64, salt) {
            page[2_500..3_500].iter_mut().for_each(|byte| *byte ^= 0x40);
            seal(page, number as u64, salt);
        }
    }
    forged
}

/// A bucket that names the files of an honest one.
fn forge(honest: &Bucket, url: &str, key: Option<&SigningKey>, forgery: Forgery) -> Bucket {
    let evil = open(url, key);
    let right = honest.require_latest().unwrap().published.manifest;
    let (mut manifest, mut ends) = (right.clone(), honest.bundle(&right).unwrap());
    for (file, ends) in right.files().zip(&mut ends) {
        let mut bytes = honest.store.get(&file.object(), u64::MAX).unwrap().unwrap();
        if file.kind == Kind::Segment && bytes.len() > 8 * PAGE_SIZE {
            bytes = forged(&bytes);
            if forgery == Forgery::Tails {
                ends.tail = bytes[PAGE_SIZE..].to_vec();
            }
            if forgery == Forgery::Lengths {
                ends.len = 4 * PAGE_SIZE as u64;
                manifest.archive.segments[file.segment].kv.summary.len = ends.len;
            }
        }
        evil.store.put(&file.object(), bytes).unwrap();
        if let Some(hashes) = honest.store.get(&names::hashes(&file.id), u64::MAX).unwrap() {
            evil.store.put(&names::hashes(&file.id), hashes).unwrap();
        }
    }
    let bytes = bundle::encode(&ends);
    manifest.bundle = BundleRef { hash: *blake3::hash(&bytes).as_bytes(), len: bytes.len() as u64 };
    evil.store.put(&names::bundle(&manifest.bundle.hash), bytes).unwrap();
    manifest.signature = None;
    if let Some(key) = key {
        manifest.sign(key, "main").unwrap();
    }
    evil.store.put(&names::manifest("main", 1), manifest.encode()).unwrap();
    evil.store.put(&names::head("main"), manifest.encode()).unwrap();
    evil
}

/// How many answers are wrong, and how many are errors.
fn answers(reader: &Reader) -> (usize, usize) {
    let (mut wrong, mut failed) = (0, 0);
    let view = reader.latest().unwrap();
    for number in 0..KEYS {
        match view.get("kv", &key_of(number)) {
            Ok(found) => wrong += usize::from(found != Some(value_of(number))),
            Err(_) => failed += 1,
        }
    }
    (wrong, failed)
}

fn other_key() -> SigningKey {
    let made = minisign::KeyPair::generate_unencrypted_keypair().unwrap();
    SigningKey::parse(&made.sk.to_box(None).unwrap().to_string(), None).unwrap()
}

#[test]
fn nothing_of_a_hostile_bucket_gets_into_the_answers_of_an_honest_one() {
    let (ours, theirs) = (SigningKey::parse(SECRET, None).unwrap(), other_key());
    for (signed, keys) in [("signed", [Some(&ours), Some(&theirs)]), ("unsigned", [None, None])] {
        let honest = pushed(&format!("memory://cache-{signed}"), keys[0]);
        for forgery in [Forgery::Pages, Forgery::Tails, Forgery::Lengths] {
            let what = format!("{signed} {forgery:?}");
            let evil = forge(&honest, &format!("memory://cache-{signed}-{forgery:?}"), keys[1], forgery);
            let dir = tempfile::tempdir().unwrap();
            let options = RemoteOptions::new(dir.path());
            let before = Reader::open_remote(&honest, &options).unwrap();
            let some = before.latest().unwrap();
            assert_eq!(some.get("kv", &key_of(1)).unwrap(), Some(value_of(1)), "{what}");

            let read = Reader::open_remote(&evil, &options).map(|reader| answers(&reader));
            match (forgery, &read) {
                // Without a key it is believed, and its answers are wrong; with its own one the pages are not those of the content.
                (Forgery::Pages, Ok((wrong, failed))) => {
                    assert!(if signed == "signed" { *failed > 100 } else { *wrong > 10 }, "{what}: {read:?}");
                }
                (Forgery::Tails, Err(Error::Remote(RemoteError::Damaged { .. })))
                | (Forgery::Lengths, Err(_)) => {}
                _ => panic!("{what}: {read:?}"),
            }

            assert_eq!(answers(&before), (0, 0), "{what}: a reader that was there");
            let after = Reader::open_remote(&honest, &options).unwrap();
            assert_eq!(answers(&after), (0, 0), "{what}: one that came after");
            let again = Reader::open_remote(&honest, &options).unwrap();
            assert_eq!(answers(&again), (0, 0), "{what}");
            assert_eq!(again.remote_cost().unwrap().bytes, 0, "{what}: what is its own is still there");
        }
    }
}

#[test]
fn readers_with_the_same_claims_share_files_and_others_do_not() {
    let (ours, theirs) = (SigningKey::parse(SECRET, None).unwrap(), other_key());
    let dir = tempfile::tempdir().unwrap();
    let files = || {
        let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect::<std::collections::BTreeSet<_>>()
    };
    let mut known = files();
    for (url, key, is_new, is_shared) in [
        ("memory://share-one", Some(&ours), true, false),
        // A signer says the same wherever it is.
        ("memory://share-two", Some(&ours), true, true),
        ("memory://share-three", Some(&theirs), true, false),
        ("memory://share-one", None, false, false),
        ("memory://share-four", None, true, false),
        ("memory://share-four", None, false, true),
    ] {
        let bucket = if is_new { pushed(url, key) } else { open(url, key) };
        let reader = Reader::open_remote(&bucket, &RemoteOptions::new(dir.path())).unwrap();
        assert_eq!(answers(&reader), (0, 0), "{url}");
        let now = files();
        assert_eq!(now == known, is_shared, "{url} {}", key.is_some());
        let ids = |names: &std::collections::BTreeSet<String>| {
            names.iter().map(|name| name[..64].to_owned()).collect::<std::collections::BTreeSet<_>>()
        };
        assert!(known.is_empty() || ids(&now) == ids(&known), "{url}: they are of the same objects");
        known = now;
    }
}
