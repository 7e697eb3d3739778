//! Does a pulled copy answer as its archive does, and can it be continued?

use icecore::remote::{Accessors, Bucket, PullOptions, PushOptions, list, pull, push, verify};
use icecore::{Archive, Error, MergeOptions, Reader, Scan};
use icecore_tools::stub::Stub;
use tempfile::TempDir;

use super::chain::{Chain, DOMAINS, bucket, open_options, pushed};

#[test]
fn a_copy_answers_as_its_archive_does() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 1, 30);
    let stub = Stub::start().unwrap();
    let memory = Bucket::open("memory://copies/prefix").unwrap();
    let folder = Bucket::open(&format!("file://{}/bucket", dir.path().display())).unwrap();
    for (name, bucket) in [("s3", bucket(&stub)), ("memory", memory), ("folder", folder)] {
        for round in 0..3 {
            let sent = push(&chain.path, &bucket, &PushOptions::new(), &()).unwrap();
            assert!(
                sent.is_new && sent.files_sent > 0 && sent.generation == Some(round + 1),
                "{name}: {sent:?}"
            );
            let copy = dir.path().join(format!("{name}-{round}.ice"));
            let got = pull(&bucket, &copy, &PullOptions::new(), &()).unwrap();
            assert_eq!((got.generation, got.range), (round + 1, sent.range), "{name}");
            chain.check(&copy, got.range);
            chain.grow(9);
            if round == 1 {
                chain.archive.merge(&MergeOptions::default(), &()).unwrap();
            }
        }
        let older = dir.path().join(format!("{name}-old.ice"));
        let got = pull(&bucket, &older, &PullOptions::new().generation(2), &()).unwrap();
        assert_eq!(got.generation, 2);
        chain.check(&older, got.range);
        let report = verify(&bucket, 4, &()).unwrap();
        assert_eq!((report.problems, report.generations), (Vec::<String>::new(), 3), "{name}");
        let listed = list(&bucket).unwrap();
        assert_eq!((listed.len(), &*listed[0].name, listed[0].generation), (1, "main", 3), "{name}");
    }
}

#[test]
fn a_copy_can_be_continued() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 2, 13);
    // The last step that is pushed has no block at its last heights.
    chain.skip(2);
    chain.grow(4);
    let stub = Stub::start().unwrap();
    let sent = pushed(&chain, &stub);
    let copy = dir.path().join("copy.ice");
    pull(&bucket(&stub), &copy, &PullOptions::new(), &()).unwrap();
    let head = sent.range.unwrap().1;
    assert_eq!(head, 13);
    let archive = Archive::open(&copy, open_options()).unwrap();
    assert_eq!(archive.reader().head(), Some(head));
    // The very next height, which is of a step that was pushed.
    let mut block = archive.begin(head + 1).unwrap();
    block.put("kv", b"key-1", b"new").unwrap();
    block.commit().unwrap();
    assert_eq!(archive.at(head + 1).unwrap().get("kv", b"key-1").unwrap().as_deref(), Some(&b"new"[..]));
    for domain in DOMAINS {
        let found = archive.at(head).unwrap().scan(domain, &Scan::all()).unwrap();
        let found: Vec<_> = found.map(|entry| entry.map(|entry| (entry.key, entry.value)).unwrap()).collect();
        assert_eq!(found, chain.states[&(head, domain)]);
    }
    archive.close().unwrap();
    chain.check_prefix(&copy, head);
}

#[test]
fn a_copy_without_accessors_answers_the_same_and_gets_them_when_it_is_written() {
    let dir = TempDir::new().unwrap();
    let chain = Chain::with_blocks(dir.path(), 20, 18);
    let stub = Stub::start().unwrap();
    pushed(&chain, &stub);
    let mut files = Vec::new();
    for accessors in [Accessors::None, Accessors::Bt, Accessors::All] {
        let copy = dir.path().join(format!("copy-{}.ice", files.len()));
        let options = PullOptions::new().accessors(accessors);
        let got = pull(&bucket(&stub), &copy, &options, &()).unwrap();
        files.push(got.files_pulled);
        let (_, head) = got.range.unwrap();
        chain.check_prefix(&copy, head);
        assert_eq!(Reader::open(&copy).unwrap().stats().problems.is_empty(), accessors == Accessors::All);
        Archive::open(&copy, open_options()).unwrap().close().unwrap();
        chain.check(&copy, got.range);
    }
    // All but the segments of the archive's own domains have a block index besides.
    assert_eq!(files[1], 2 * files[0]);
    assert!((3 * files[0] + 1..4 * files[0]).contains(&files[2]), "{files:?}");
}

#[test]
fn a_whole_copy_moves_on_as_long_as_nobody_wrote_to_it() {
    let dir = TempDir::new().unwrap();
    let mut chain = Chain::with_blocks(dir.path(), 26, 18);
    let stub = Stub::start().unwrap();
    pushed(&chain, &stub);
    let copy = dir.path().join("copy.ice");
    let pulled = |options: &PullOptions| pull(&bucket(&stub), &copy, options, &());
    pulled(&PullOptions::new()).unwrap();
    let reader = Reader::open(&copy).unwrap();
    for _ in 0..3 {
        chain.grow(9);
        chain.archive.merge(&MergeOptions::default(), &()).unwrap();
        pushed(&chain, &stub);
        let moved = pulled(&PullOptions::new()).unwrap();
        assert!(moved.files_pulled > 0 && moved.segments_held == moved.segments, "{moved:?}");
        chain.check(&copy, moved.range);
        assert!(reader.refresh().unwrap());
        assert_eq!(reader.range(), moved.range);
    }
    // A file that is as long as it should be, and ends as it should.
    let damaged = std::fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().path());
    let damaged = damaged.filter(|path| path.extension().is_some_and(|kind| kind == "kv")).max().unwrap();
    let mut bytes = std::fs::read(&damaged).unwrap();
    let right = bytes.clone();
    bytes[4100] ^= 1;
    std::fs::write(&damaged, &bytes).unwrap();
    assert_eq!(pulled(&PullOptions::new()).unwrap().files_pulled, 0);
    let mended = pulled(&PullOptions::new().check(true)).unwrap();
    assert!(mended.files_pulled == 1 && std::fs::read(&damaged).unwrap() == right, "{mended:?}");
    // Somebody goes on with it.
    let archive = Archive::open(&copy, open_options()).unwrap();
    assert!(matches!(pulled(&PullOptions::new()), Err(Error::Locked { .. })));
    archive.begin(archive.reader().head().unwrap() + 1).unwrap().commit().unwrap();
    archive.close().unwrap();
    let refused = pulled(&PullOptions::new());
    assert!(matches!(refused, Err(Error::Exists { .. })), "{refused:?}");
}
