//! The names of the objects of a bucket. No other module composes or takes apart an object name.
//!
//! ```text
//! ICECORE                         marks the prefix as ours, created once
//! o/ab/<id>.kv|bt|kvei|kvbi            a file of a segment; `ab` are the first two digits of the id
//! h/ab/<id>                       the hashes of the blocks of a file, of a signed generation
//! b/<hash>                        what opening reads of all files of a generation
//! m/<archive>/<generation>        a generation, created once; 16 hexadecimal digits
//! HEAD/<archive>                  a copy of the newest generation, as a hint
//! ```

use icecore_segments::frame::Kind;

/// Marks a prefix as ours.
pub(crate) const MARKER: &str = "ICECORE";

/// Where files of segments are.
pub(crate) const OBJECTS: &str = "o";

/// Where hashes of blocks are.
pub(crate) const HASHES: &str = "h";

/// Where bundles are.
pub(crate) const BUNDLES: &str = "b";

/// Where generations are.
pub(crate) const MANIFESTS: &str = "m";

/// Where hints are.
pub(crate) const HEADS: &str = "HEAD";

/// The longest name of an archive in a bucket, in bytes.
pub(crate) const ARCHIVE_LEN_MAX: usize = 64;

/// A BLAKE3 hash: what an object is named by.
pub(crate) type Hash = [u8; 32];

/// Sixty-four hexadecimal digits.
pub(crate) fn hex(hash: &Hash) -> String {
    blake3::Hash::from_bytes(*hash).to_hex().to_string()
}

/// A file of a segment.
pub(crate) fn object(id: &Hash, kind: Kind) -> String {
    let digits = hex(id);
    format!("{OBJECTS}/{}/{digits}.{kind}", &digits[..2])
}

/// The hashes of the blocks of a file.
pub(crate) fn hashes(id: &Hash) -> String {
    let digits = hex(id);
    format!("{HASHES}/{}/{digits}", &digits[..2])
}

/// A bundle.
pub(crate) fn bundle(hash: &Hash) -> String {
    format!("{BUNDLES}/{}", hex(hash))
}

/// The generations of an archive.
pub(crate) fn manifests(archive: &str) -> String {
    format!("{MANIFESTS}/{archive}")
}

/// One generation of an archive.
pub(crate) fn manifest(archive: &str, generation: u64) -> String {
    format!("{MANIFESTS}/{archive}/{generation:016x}")
}

/// The archive and the generation that a name of [`manifest`] has; `None` for other names.
pub(crate) fn parse_manifest(name: &str) -> Option<(&str, u64)> {
    let (archive, digits) = name.strip_prefix(MANIFESTS)?.strip_prefix('/')?.split_once('/')?;
    let generation = u64::from_str_radix(digits, 16).ok()?;
    (name == manifest(archive, generation) && is_archive_name(archive)).then_some((archive, generation))
}

/// The hint at the newest generation of an archive.
pub(crate) fn head(archive: &str) -> String {
    format!("{HEADS}/{archive}")
}

/// The archive that a name of [`head`] has; `None` for other names.
pub(crate) fn parse_head(name: &str) -> Option<&str> {
    name.strip_prefix(HEADS)?.strip_prefix('/').filter(|archive| is_archive_name(archive))
}

/// Whether a name is one that [`object`], [`hashes`] or [`bundle`] makes: what a collection of garbage may remove.
pub(crate) fn is_content(name: &str) -> bool {
    let is_hash = |digits: &str| blake3::Hash::from_hex(digits).is_ok_and(|hash| *hash.to_hex() == *digits);
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        [BUNDLES, digits] => is_hash(digits),
        [HASHES, first, digits] => is_hash(digits) && digits.starts_with(first) && first.len() == 2,
        [OBJECTS, first, file] => file.split_once('.').is_some_and(|(digits, extension)| {
            is_hash(digits)
                && digits.starts_with(first)
                && first.len() == 2
                && Kind::ALL.iter().any(|kind| kind.extension() == extension)
        }),
        _ => false,
    }
}

/// Whether an archive may have this name in a bucket.
pub(crate) fn is_archive_name(name: &str) -> bool {
    (1..=ARCHIVE_LEN_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::DOC;

    #[test]
    fn the_document_lists_the_names() {
        let id = [0xAB; 32];
        let short = |name: String| name.replace(&hex(&id), "<id>");
        let names = [
            MARKER.to_owned(),
            short(object(&id, Kind::Segment)),
            short(object(&id, Kind::PivotIndex)),
            short(object(&id, Kind::ExistenceFilter)),
            short(object(&id, Kind::BlockIndex)),
            short(hashes(&id)),
            bundle(&id).replace(&hex(&id), "<hash>"),
            manifest("main", 31),
            head("main"),
        ];
        let listed: Vec<&str> = DOC
            .section("## The objects")
            .lines()
            .skip_while(|line| *line != "```text")
            .skip(1)
            .take_while(|line| *line != "```")
            .filter(|line| !line.starts_with(' '))
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert_eq!(listed, names);
    }

    #[test]
    fn names_are_known_again_and_no_others() {
        let id = [0x1F; 32];
        for name in [object(&id, Kind::PivotIndex), hashes(&id), bundle(&id)] {
            assert!(is_content(&name), "{name}");
            assert!(!is_content(&name.to_uppercase()) && !is_content(&name[1..]), "{name}");
        }
        assert!(!is_content(&format!("o/ab/{}.kv", hex(&id))), "another folder than its id says");
        assert!(!is_content(&format!("o/1f/{}.txt", hex(&id))) && !is_content("o/1f/notes.kv"));
        assert_eq!(parse_manifest(&manifest("main", 31)), Some(("main", 31)));
        for name in
            ["m/main/1f", "m/main/000000000000001F", "m/a.b/000000000000001f", "x/main/000000000000001f"]
        {
            assert_eq!(parse_manifest(name), None, "{name}");
        }
        assert_eq!(
            (parse_head(&head("main")), parse_head("HEAD/a/b"), parse_head("HEADmain")),
            (Some("main"), None, None)
        );
        assert!(is_archive_name("main-2_b") && !is_archive_name("") && !is_archive_name("a/b"));
    }
}
