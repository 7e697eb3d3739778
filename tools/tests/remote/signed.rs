//! Signed generations: a bucket in the hands of somebody who changes every object and makes all plain checksums right again must not
//! have a reader with the public key take anything but what the owner of the key signed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;

use icecore::remote::{
    Accessors, Bucket, GcOptions, PublicKey, PullOptions, PushOptions, RemoteError, RemoteOptions,
    SigningKey, gc, list, pull, push, verify,
};
use icecore::{Archive, Error, ErrorKind, Reader};
use icecore_segments::checksum::{PAGE_SIZE, is_sealed, seal};
use icecore_segments::frame::Header;
use icecore_tools::stub::{Fault, Stub, When};
use tempfile::TempDir;

use super::chain::{Chain, bucket, one_job, open_options, options, pushed};
use super::in_place::{compare, expected, key_of, pushed_large, small_numbers};

/// Made by `minisign -G -W`, which has no password.
pub(crate) const ONE: &str = "untrusted comment: minisign encrypted secret key\n\
    RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAALm8vScJ3Nz0Jx6++vAbTbVO8HWcJQav2dHdHZermjFtNHqyOAPNVtVap\
    iNZ485Pv7c3GeCRwBzrJ6F4W+6ihztl0dXEfvVAuAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
const OTHER: &str = "untrusted comment: minisign encrypted secret key\n\
    RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA1agLIPapJrABBI6K+jzTJwm91xFNKiqUMC//kYtpkjJEqQuOkMgKVQAD\
    KojSuO1jWvb/fDhBEGSM12OWm0VLZh9l5v/YKVFfAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";

fn key(text: &str) -> SigningKey {
    SigningKey::parse(text, None).unwrap()
}

fn signing(text: &str) -> PushOptions {
    one_job().sign(key(text))
}

/// The bucket as somebody opens it who has a public key.
pub(super) fn trusting(stub: &Stub, text: &str) -> Bucket {
    let public: PublicKey = key(text).public().clone();
    Bucket::open_with("s3://bucket/some/prefix", &options(stub).public_key(public)).unwrap()
}

const HEAD: &str = "bucket/some/prefix/HEAD/main";
const FIRST: &str = "bucket/some/prefix/m/main/0000000000000001";
const SECOND: &str = "bucket/some/prefix/m/main/0000000000000002";

#[track_caller]
fn assert_untrusted<T: std::fmt::Debug>(result: Result<T, Error>, what: &str) {
    let error = result.expect_err(what);
    assert!(matches!(error, Error::Remote(RemoteError::Untrusted { .. })), "{what}: {error}");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}");
}

#[test]
fn a_signed_generation_comes_to_who_has_the_key_and_to_who_has_none() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 81, 14);
    let stub = Stub::start().unwrap();
    pushed(&chain, &stub);
    assert_untrusted(
        pull(&trusting(&stub, ONE), dir.path().join("no.ice"), &PullOptions::new(), &()),
        "unsigned",
    );
    assert!(!dir.path().join("no.ice").exists());

    // The same archive, signed, is another generation; signed again it is none.
    let sent = push(&chain.path, &bucket(&stub), &signing(ONE), &()).unwrap();
    assert!(sent.is_new && sent.generation == Some(2) && sent.files_sent == 0, "{sent:?}");
    stub.reset_requests();
    let again = push(&chain.path, &bucket(&stub), &signing(ONE), &()).unwrap();
    assert!(!again.is_new && stub.requests().total() == 3, "{again:?}");
    chain.grow(5);
    push(&chain.path, &bucket(&stub), &signing(ONE), &()).unwrap();

    for (name, bucket) in [("key", trusting(&stub, ONE)), ("none", bucket(&stub))] {
        let copy = dir.path().join(format!("{name}.ice"));
        stub.reset_requests();
        let got = pull(&bucket, &copy, &PullOptions::new(), &()).unwrap();
        assert_eq!(stub.requests().total(), 2 + got.files_pulled, "{name}: a signature costs no request");
        chain.check(&copy, got.range);
        let report = verify(&bucket, 4, &()).unwrap();
        assert_eq!((&*report.problems, report.generations), (&[] as &[String], 3), "{name}");
        assert_eq!(report.signer.as_deref(), Some("3D3777C2492F6F2E"));
        assert_eq!(list(&bucket).unwrap()[0].signer, report.signer);
    }
    assert_untrusted(
        pull(&trusting(&stub, OTHER), dir.path().join("no.ice"), &PullOptions::new(), &()),
        "wrong key",
    );
    assert_untrusted(verify(&trusting(&stub, OTHER), 4, &()), "wrong key");
    let older = PullOptions::new().generation(2);
    pull(&trusting(&stub, ONE), dir.path().join("older.ice"), &older, &()).unwrap();
    let unsigned =
        pull(&trusting(&stub, ONE), dir.path().join("no.ice"), &PullOptions::new().generation(1), &());
    assert_untrusted(unsigned, "an older one that is not signed");
}

#[test]
fn who_signs_changes_on_purpose_only() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 82, 14);
    let stub = Stub::start().unwrap();
    push(&chain.path, &bucket(&stub), &signing(ONE), &()).unwrap();
    chain.grow(5);
    let before = stub.objects();
    for (options, told) in [(one_job(), "this push is not"), (signing(OTHER), "by key B026A9F6200BA8D5")] {
        let error = push(&chain.path, &bucket(&stub), &options, &()).expect_err(told);
        assert!(matches!(error, Error::Remote(RemoteError::OtherSigner { .. })), "{error}");
        let text = error.to_string();
        assert!(text.contains("signed by key 3D3777C2492F6F2E") && text.contains(told), "{text}");
        assert!(stub.objects() == before, "{told}: it sent something");
    }
    let on_purpose = |options: PushOptions| options.allow_signer_change(true);
    push(&chain.path, &bucket(&stub), &on_purpose(signing(OTHER)), &()).unwrap();
    assert_untrusted(trusting_newest(&stub, ONE, dir.path()), "the key of before");
    trusting_newest(&stub, OTHER, &dir.path().join("b")).unwrap();
    let unsigned = push(&chain.path, &bucket(&stub), &on_purpose(one_job()), &()).unwrap();
    assert!(unsigned.is_new, "{unsigned:?}");
    assert_untrusted(trusting_newest(&stub, OTHER, dir.path()), "a generation that is not signed");
    assert!(push(&chain.path, &bucket(&stub), &signing(ONE), &()).unwrap().is_new, "signed again");
}

fn trusting_newest(stub: &Stub, key: &str, dir: &Path) -> Result<u64, Error> {
    std::fs::create_dir_all(dir).unwrap();
    pull(&trusting(stub, key), dir.join("copy.ice"), &PullOptions::new(), &()).map(|report| report.generation)
}

#[test]
fn a_signed_push_that_ends_at_any_request_leaves_nothing_unsigned() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 83, 13);
    let first = dir.path().join("first.ice");
    chain.archive.checkpoint(&first, &()).unwrap();
    chain.grow(5);
    let names = |stub: &Stub| stub.objects().into_keys().collect::<Vec<_>>();
    let clean = Stub::start().unwrap();
    push(&first, &bucket(&clean), &signing(ONE), &()).unwrap();
    push(&chain.path, &bucket(&clean), &signing(ONE), &()).unwrap();
    for fault in [Fault::ExpiredToken, Fault::Unanswered] {
        for request in 0.. {
            let stub = Stub::start().unwrap();
            push(&first, &bucket(&stub), &signing(ONE), &()).unwrap();
            stub.reset_requests();
            let when = if fault == Fault::Unanswered { When::once(request) } else { When::from(request) };
            stub.fail(fault, when);
            let ended = push(&chain.path, &bucket(&stub), &signing(ONE), &());
            stub.heal();
            let report = verify(&trusting(&stub, ONE), 2, &()).unwrap();
            assert!(report.problems.is_empty(), "{fault:?} at {request}: {report:?}");
            let sent = push(&chain.path, &bucket(&stub), &signing(ONE), &()).unwrap();
            assert_eq!(sent.generation, Some(2), "{fault:?} at {request}");
            assert_eq!(names(&stub), names(&clean), "{fault:?} at {request}");
            let is_over =
                if fault == Fault::Unanswered { stub.requests().total() < request } else { ended.is_ok() };
            if is_over {
                assert!(request > 8, "{request}");
                break;
            }
        }
    }
}

#[test]
fn two_who_sign_the_same_with_one_key_agree() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 84, 14);
    let stub = Stub::start().unwrap();
    for round in 1..=10 {
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            let push_one = || {
                barrier.wait();
                push(&chain.path, &bucket(&stub), &signing(ONE), &()).unwrap()
            };
            let both = [scope.spawn(push_one), scope.spawn(push_one)];
            for pusher in both {
                assert_eq!(pusher.join().unwrap().generation, Some(round));
            }
        });
        assert_eq!(list(&trusting(&stub, ONE)).unwrap()[0].generation, round);
        chain.grow(4);
    }
}

/// Makes the checksum of a generation right.
fn with_checksum(bytes: &[u8]) -> Vec<u8> {
    let body = u64::from_le_bytes(bytes[16..24].try_into().unwrap()) as usize;
    let Some(sum_at) = body.checked_add(24).filter(|at| at + 8 <= bytes.len()) else { return bytes.to_vec() };
    let mut right = bytes.to_vec();
    let sum = icecore_segments::checksum::crc64(&right[..sum_at]);
    right[sum_at..sum_at + 8].copy_from_slice(&sum.to_le_bytes());
    right
}

#[test]
fn no_byte_of_a_signed_bucket_can_be_another_for_who_pulls() {
    let dir = TempDir::new().unwrap();
    let chain = Chain::with_blocks(dir.path(), 85, 10);
    let stub = Stub::start().unwrap();
    push(&chain.path, &bucket(&stub), &signing(ONE), &()).unwrap();
    let objects = stub.objects();
    let trusting = trusting(&stub, ONE);
    // Every byte of the generation, with and without its checksum made right, in both places.
    for at in 0..objects[FIRST].len() {
        let mut forged = objects[FIRST].clone();
        forged[at] ^= 1 << (at % 8);
        for forged in [with_checksum(&forged), forged] {
            if forged == objects[FIRST] {
                continue;
            }
            stub.put(FIRST, forged.clone());
            stub.put(HEAD, forged);
            let listed = list(&trusting);
            assert!(listed.is_err(), "byte {at}: {listed:?}");
        }
    }
    let original = objects[FIRST].clone();
    for len in [0, 100, original.len() - 300, original.len() - 1] {
        stub.put(FIRST, original[..len].to_vec());
        stub.put(HEAD, original[..len].to_vec());
        assert!(list(&trusting).is_err(), "cut at {len}");
    }
    stub.put(FIRST, original.clone());
    stub.put(HEAD, original);
    // Some bytes of each file; a whole other file; the bundle.
    let files: BTreeMap<_, _> = objects.iter().filter(|(name, _)| name.contains("/o/")).collect();
    for (number, (name, bytes)) in files.iter().enumerate() {
        let mut forgeries = vec![(*files.values().find(|other| *other != bytes).unwrap()).clone()];
        for at in (number % 7..bytes.len()).step_by(bytes.len() / 3) {
            let mut forged = (*bytes).clone();
            forged[at] ^= 0x10;
            forgeries.push(forged);
        }
        for (which, forged) in forgeries.into_iter().enumerate() {
            stub.put(name, forged);
            let copy = dir.path().join(format!("copy-{number}-{which}.ice"));
            let got = pull(&trusting, &copy, &PullOptions::new(), &());
            assert!(matches!(got, Err(Error::Remote(_))), "{name}: {got:?}");
        }
        stub.put(name, (*bytes).clone());
    }
    let got = pull(&trusting, dir.path().join("copy.ice"), &PullOptions::new(), &()).unwrap();
    chain.check(&dir.path().join("copy.ice"), got.range);
}

#[test]
fn a_signed_archive_cannot_take_the_place_of_another() {
    let dir = TempDir::new().unwrap();
    let (mut chain, other) = (Chain::with_blocks(dir.path(), 86, 14), Chain::with_blocks(dir.path(), 87, 14));
    let stub = Stub::start().unwrap();
    push(&chain.path, &bucket(&stub), &signing(ONE), &()).unwrap();
    let second = Bucket::open_with("s3://bucket/some/prefix", &options(&stub).archive("second")).unwrap();
    push(&other.path, &second, &signing(ONE), &()).unwrap();
    let right = stub.objects();
    // The other archive of the same key, under the name of this one.
    let swapped = &right["bucket/some/prefix/m/second/0000000000000001"];
    stub.put(FIRST, swapped.clone());
    stub.put(HEAD, swapped.clone());
    assert_untrusted(trusting_newest(&stub, ONE, dir.path()), "another archive");
    stub.put(FIRST, right[FIRST].clone());
    // A generation under another number.
    stub.remove(HEAD);
    chain.grow(5);
    push(&chain.path, &bucket(&stub), &signing(ONE), &()).unwrap();
    let newest = stub.objects()[SECOND].clone();
    stub.put(FIRST, newest);
    assert!(
        pull(&trusting(&stub, ONE), dir.path().join("no.ice"), &PullOptions::new().generation(1), &())
            .is_err()
    );
}

#[test]
fn what_a_pull_without_a_key_left_is_compared_again_with_one() {
    let dir = TempDir::new().unwrap();
    let chain = Chain::with_blocks(dir.path(), 88, 14);
    let stub = Stub::start().unwrap();
    push(&chain.path, &bucket(&stub), &signing(ONE), &()).unwrap();
    let copy = dir.path().join("copy.ice");
    // The pull ends after its first files.
    stub.reset_requests();
    stub.fail(Fault::ExpiredToken, When::from(16));
    pull(&bucket(&stub), &copy, &PullOptions::new().jobs(1), &()).unwrap_err();
    stub.heal();
    // A file as somebody would have it whose manifest, not signed, names any hash: only its footer is the right one.
    let left = std::fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().path());
    let is_whole = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "kv" || kind == "kvbi");
    let file = left.filter(is_whole).min().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[5_000] ^= 1;
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, bytes).unwrap();
    let got = pull(&trusting(&stub, ONE), &copy, &PullOptions::new(), &()).unwrap();
    chain.check(&copy, got.range);
    // The same for a copy that had all but its end.
    std::fs::write(copy.join("PULL"), b"").unwrap();
    let again = pull(&trusting(&stub, ONE), &copy, &PullOptions::new(), &()).unwrap();
    assert_eq!((again.files_pulled, again.range), (0, got.range), "each file was compared and is right");
    chain.check(&copy, got.range);
}

#[test]
fn a_partial_copy_that_came_without_a_key_is_compared_when_it_is_extended_with_one() {
    let dir = TempDir::new().unwrap();
    let chain = Chain::with_blocks(dir.path(), 92, 18);
    let stub = Stub::start().unwrap();
    push(&chain.path, &bucket(&stub), &signing(ONE), &()).unwrap();
    let copy = dir.path().join("copy.ice");
    pull(&bucket(&stub), &copy, &PullOptions::new().domain("kv"), &()).unwrap();
    // All that has content before its footer is forged, the filters too.
    for entry in std::fs::read_dir(&copy).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| ["kv", "bt", "kvei", "kvbi"].iter().any(|of| kind == *of)) {
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[5_000] ^= 1;
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, bytes).unwrap();
        }
    }
    let without = PullOptions::new().accessors(Accessors::None);
    let got = pull(&trusting(&stub, ONE), &copy, &without, &()).unwrap();
    assert_eq!(got.files_present, 0, "nothing forged was taken: {got:?}");
    let left = std::fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().path());
    let filters = left.filter(|path| path.extension().is_some_and(|kind| kind == "kvei")).count();
    assert_eq!(filters, 0, "an accessor that was not asked for and is not right is not left to be read");
    Archive::open(&copy, open_options()).unwrap().close().unwrap();
    chain.check(&copy, got.range);
}

#[test]
fn what_a_signed_generation_names_stays() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 89, 14);
    let stub = Stub::start().unwrap();
    for _ in 0..3 {
        push(&chain.path, &bucket(&stub), &signing(ONE), &()).unwrap();
        chain.grow(5);
        chain.archive.merge(&icecore::MergeOptions::default(), &()).unwrap();
    }
    stub.age(std::time::Duration::from_secs(10 * 24 * 3600));
    let report = gc(&bucket(&stub), &GcOptions::new().keep(1)).unwrap();
    assert!(report.removed > 0, "{report:?}");
    let checked = verify(&trusting(&stub, ONE), 4, &()).unwrap();
    assert!(checked.problems.is_empty(), "{checked:?}");
    pull(&trusting(&stub, ONE), dir.path().join("copy.ice"), &PullOptions::new(), &()).unwrap();
}

/// The large archive, pushed with a signature.
fn signed_large(dir: &Path) -> (Archive, Stub) {
    let (archive, stub) = pushed_large(dir);
    push(dir.join("large.ice"), &bucket(&stub), &signing(ONE), &()).unwrap();
    (archive, stub)
}

#[test]
fn with_a_key_answers_in_place_are_those_of_the_archive() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 90, 14);
    let stub = Stub::start().unwrap();
    for round in 0..2 {
        push(&chain.path, &bucket(&stub), &signing(ONE), &()).unwrap();
        for fetch in [4 << 10, 1 << 20] {
            let options = RemoteOptions::new(dir.path().join(format!("{fetch}"))).fetch(fetch);
            let remote = Reader::open_remote(&trusting(&stub, ONE), &options).unwrap();
            compare(chain.archive.reader(), &remote, &format!("{round} {fetch}"));
        }
        chain.grow(9);
        chain.archive.merge(&icecore::MergeOptions::default(), &()).unwrap();
    }
    let stranger = Reader::open_remote(&trusting(&stub, OTHER), &RemoteOptions::new(dir.path().join("no")));
    assert_untrusted(stranger, "another key");
}

#[test]
fn with_a_key_a_file_costs_one_request_more_and_once() {
    let dir = TempDir::new().unwrap();
    let (_archive, stub) = signed_large(dir.path());
    // Filter and data have more than one block, and a lookup reads no other file that has.
    for (warm, files) in [(Accessors::None, 2), (Accessors::All, 1)] {
        let cost = |bucket: &Bucket, cache: &str, numbers: &[u64]| {
            let options = RemoteOptions::new(dir.path().join(format!("{cache}-{files}"))).warm(warm);
            let reader = Reader::open_remote(bucket, &options).unwrap();
            let before = reader.remote_cost().unwrap();
            assert_eq!(answers(&reader, numbers), (0, 0));
            let after = reader.remote_cost().unwrap();
            (after.requests - before.requests, after.waits - before.waits)
        };
        for (numbers, hashes) in [(&[3, 4_999, 5_000][..], files), (&[31_000, 59_999, 20_000], 0)] {
            let (plain, _) = cost(&bucket(&stub), "plain", numbers);
            let (keyed, waits) = cost(&trusting(&stub, ONE), "keyed", numbers);
            assert!(plain > 0, "{warm:?}");
            assert_eq!(keyed, plain + hashes, "{warm:?} {numbers:?}");
            // Two for a lookup, and one for a value outside its page: the hashes come beside the first bytes.
            assert!(waits <= 2 * numbers.len() as u64 + 1, "{warm:?} {numbers:?}: {waits} waits");
            assert_eq!(cost(&trusting(&stub, ONE), "keyed", numbers), (0, 0), "{warm:?} {numbers:?}");
        }
    }
}

/// The pages of a file with bytes changed in each, and with checksums that hold.
fn forged(bytes: &[u8]) -> Vec<u8> {
    let salt = Header::parse(&bytes[..PAGE_SIZE]).unwrap().salt();
    let (mut forged, pages) = (bytes.to_vec(), bytes.len() / PAGE_SIZE);
    // Header and footer are in the bundle.
    for number in 1..pages - 1 {
        let page = &mut forged[number * PAGE_SIZE..][..PAGE_SIZE];
        if is_sealed(page, number as u64, salt) {
            page[2_500..3_500].iter_mut().for_each(|byte| *byte ^= 0x40);
            seal(page, number as u64, salt);
        }
    }
    forged
}

/// How many answers are wrong, and how many are errors.
fn answers(reader: &Reader, numbers: &[u64]) -> (usize, usize) {
    let (mut wrong, mut failed) = (0, 0);
    let view = reader.latest().unwrap();
    for number in numbers {
        match view.get("kv", &key_of(*number)) {
            Ok(found) => wrong += usize::from(found != Some(expected(*number))),
            Err(_) => failed += 1,
        }
    }
    (wrong, failed)
}

#[test]
fn forged_pages_are_answers_without_a_key_and_errors_with_one() {
    let dir = TempDir::new().unwrap();
    let (_archive, stub) = signed_large(dir.path());
    let right = stub.objects();
    let numbers = small_numbers(9, 100);
    let open = |bucket: &Bucket, cache: &str| {
        Reader::open_remote(bucket, &RemoteOptions::new(dir.path().join(cache))).unwrap()
    };
    for kind in ["kv", "kvei"] {
        for (name, bytes) in right.iter().filter(|(name, _)| name.ends_with(&format!(".{kind}"))) {
            stub.put(name, forged(bytes));
        }
        let (wrong, _) = answers(&open(&bucket(&stub), kind), &numbers);
        assert!(wrong > 10, "{kind}: a forgery that does nothing proves nothing: {wrong}");
        let trusting = trusting(&stub, ONE);
        // Also in the folder that the other filled.
        let (wrong, failed) = answers(&open(&trusting, kind), &numbers);
        // Without a sound accessor answers are right and slow.
        assert!(wrong == 0 && (failed > 50 || kind != "kv"), "{kind}: {wrong} wrong, {failed} errors");
        right.iter().for_each(|(name, bytes)| stub.put(name, bytes.clone()));
        assert_eq!(answers(&open(&trusting, kind), &numbers), (0, 0), "{kind}: nothing forged was kept");
    }
}

#[test]
fn hashes_that_are_not_those_of_the_file_are_an_error() {
    let dir = TempDir::new().unwrap();
    let (_archive, stub) = signed_large(dir.path());
    let hashes: Vec<_> = stub.objects().into_iter().filter(|(name, _)| name.contains("/h/")).collect();
    assert!(hashes.len() >= 2, "{}", hashes.len());
    let mut number = 0;
    let mut check = |what: &str| {
        number += 1;
        let options = RemoteOptions::new(dir.path().join(format!("cache-{number}")));
        let reader = Reader::open_remote(&trusting(&stub, ONE), &options).unwrap();
        let (wrong, failed) = answers(&reader, &[7, 70, 40_000]);
        assert!(wrong == 0 && failed > 0, "{what}: {wrong} wrong, {failed} errors");
        let report = verify(&trusting(&stub, ONE), 4, &()).unwrap();
        assert!(!report.problems.is_empty(), "{what}: verify is content");
    };
    for (name, _) in &hashes {
        stub.remove(name);
    }
    check("gone");
    for (at, (name, _)) in hashes.iter().enumerate() {
        stub.put(name, hashes[(at + 1) % hashes.len()].1.clone());
    }
    check("of another file");
    for damage in 0..3 {
        for (name, bytes) in &hashes {
            let mut bytes = bytes.clone();
            match damage {
                0 => bytes[0] ^= 1,
                1 => *bytes.last_mut().unwrap() ^= 0x80,
                _ => bytes.truncate(32),
            }
            stub.put(name, bytes);
        }
        check(&format!("damage {damage}"));
    }
    hashes.iter().for_each(|(name, bytes)| stub.put(name, bytes.clone()));
    assert!(verify(&trusting(&stub, ONE), 4, &()).unwrap().problems.is_empty());
}

#[test]
fn a_reader_does_not_go_back_nor_to_what_is_not_signed() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 91, 14);
    let stub = Stub::start().unwrap();
    push(&chain.path, &bucket(&stub), &signing(ONE), &()).unwrap();
    let older = stub.objects();
    chain.grow(5);
    push(&chain.path, &bucket(&stub), &signing(ONE), &()).unwrap();
    let options = RemoteOptions::new(dir.path().join("cache"));
    let reader = Reader::open_remote(&trusting(&stub, ONE), &options).unwrap();
    assert_eq!(reader.remote_generation(), Some(2));
    // The bucket as it was, all of it signed.
    let newer = stub.objects();
    stub.put(HEAD, older[HEAD].clone());
    stub.remove(SECOND);
    assert!(!reader.refresh().unwrap() && reader.remote_generation() == Some(2));
    compare(chain.archive.reader(), &reader, "a bucket that went back");
    stub.put(SECOND, newer[SECOND].clone());
    // Generations that follow and are not signed, or by somebody else.
    for push_options in [one_job(), signing(OTHER)] {
        chain.grow(5);
        push(&chain.path, &bucket(&stub), &push_options.allow_signer_change(true), &()).unwrap();
        assert_untrusted(reader.refresh(), "who did not sign");
        assert_eq!(reader.remote_generation(), Some(2));
        compare(chain.archive.reader(), &reader, "a generation that is not to be trusted");
    }
    assert_untrusted(Reader::open_remote(&trusting(&stub, ONE), &options), "the newest");
    let pinned = Reader::open_remote(&trusting(&stub, ONE), &options.generation(2)).unwrap();
    compare(chain.archive.reader(), &pinned, "an older one by its number");
}
