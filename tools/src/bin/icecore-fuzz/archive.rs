//! Targets over whole archives: any file is changed, everything is sealed again, and the archive is read, verified and written to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use icecore::storage::Storage;
use icecore::testing::SimStorage;
use icecore::{
    Archive, MergeOptions, OpenOptions, Parallelism, Reader, ReindexRule, Scan, VerifyMode, View, verify_on,
};

use crate::forge::{Framed, MANIFEST_BODY_AT, PAYLOAD_AT, replace, seal_manifest};
use crate::sample::{DOMAINS, PATH, SAMPLES, Sample, disk_of, open_options};
use crate::tape::Tape;
use crate::{frames, guard, log};

/// The files of a sample, some of them changed.
pub(crate) struct Forgery {
    pub(crate) sample: &'static Sample,
    pub(crate) files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Forgery {
    pub(crate) fn of(sample: &'static Sample) -> Self {
        Self { sample, files: sample.files.clone() }
    }

    fn manifest(&mut self) -> &mut Vec<u8> {
        self.files.entry(PathBuf::from(PATH).join("MANIFEST")).or_default()
    }

    /// Changes a file of a segment and lets accessors and manifest name it as it is now.
    fn change_segment_file(&mut self, tape: &mut Tape<'_>) {
        let kind = *tape.pick(&["kv", "bt", "kvei", "kvbi"]);
        let paths = self.sample.of_kind(kind);
        if paths.is_empty() {
            return;
        }
        let path = (*tape.pick(&paths)).clone();
        let mut file = Framed::new(self.sample.files[&path].clone());
        let old = file.content();
        match tape.below(4) {
            0 => tape.mutate(&mut file.bytes[..160]),
            1 => {
                let at = file.footer_at() + PAYLOAD_AT;
                tape.mutate(&mut file.bytes[at..]);
            }
            _ => frames::between(tape, &mut file),
        }
        file.seal();
        let new = file.content();
        self.files.insert(path.clone(), file.bytes);
        replace(self.manifest(), &old, &new);
        if kind == "kv" {
            self.adopt(&path, new);
        }
    }

    /// Makes the accessors of a `.kv` those of its new content.
    fn adopt(&mut self, kv: &std::path::Path, content: [u8; 32]) {
        for kind in ["bt", "kvei", "kvbi"] {
            let path = kv.with_extension(kind);
            let Some(bytes) = self.sample.files.get(&path) else { continue };
            let mut file = Framed::new(bytes.clone());
            let old = file.content();
            file.set_parent(content);
            file.seal();
            replace(self.manifest(), &old, &file.content());
            self.files.insert(path, file.bytes);
        }
    }

    /// Changes numbers and bytes in the body of the manifest.
    fn change_manifest(&mut self, tape: &mut Tape<'_>) {
        let bytes = self.manifest();
        let body = MANIFEST_BODY_AT..bytes.len().saturating_sub(8);
        if body.is_empty() {
            // It was cut before.
            return;
        }
        if tape.below(3) == 0 {
            tape.mutate(&mut bytes[body]);
            return;
        }
        let reach = if tape.below(2) == 0 { body.len().min(60) } else { body.len() };
        let at = body.start + tape.below(reach);
        let len = 1 + bytes[at..body.end].iter().take(9).take_while(|byte| **byte >= 0x80).count();
        let end = (at + len).min(body.end);
        let old = bytes[at..end].iter().rev().fold(0u64, |number, byte| number << 7 | u64::from(byte & 0x7F));
        let (mut number, mut new) = (tape.number(old), Vec::new());
        while number >= 0x80 {
            new.push(number as u8 | 0x80);
            number >>= 7;
        }
        new.push(number as u8);
        bytes.splice(at..end, new);
    }

    /// Cuts a file, removes it, or exchanges it with another.
    fn change_names(&mut self, tape: &mut Tape<'_>) {
        let paths: Vec<PathBuf> = self.files.keys().cloned().collect();
        let (a, b) = (tape.pick(&paths).clone(), tape.pick(&paths).clone());
        match tape.below(3) {
            0 => drop(self.files.remove(&a)),
            1 => {
                if let Some(bytes) = self.files.get_mut(&a) {
                    let len = tape.below(bytes.len() + 1);
                    bytes.truncate(len);
                }
            }
            _ => {
                if let (Some(x), Some(y)) = (self.files.remove(&a), self.files.remove(&b)) {
                    self.files.insert(a, y);
                    self.files.insert(b, x);
                }
            }
        }
    }
}

pub(crate) fn manifest(tape: &mut Tape<'_>) -> Result<(), String> {
    let mut forgery = Forgery::of(tape.pick(&SAMPLES));
    for _ in 0..=tape.below(3) {
        forgery.change_manifest(tape);
    }
    seal_manifest(forgery.manifest());
    check(&forgery, tape)
}

pub(crate) fn archive(tape: &mut Tape<'_>) -> Result<(), String> {
    let mut forgery = Forgery::of(tape.pick(&SAMPLES));
    for _ in 0..=tape.below(3) {
        match tape.below(8) {
            0..=3 => forgery.change_segment_file(tape),
            4 => forgery.change_manifest(tape),
            5..=6 => {
                let paths = forgery.sample.of_kind("wal");
                let path = *tape.pick(&paths);
                if let Some(bytes) = forgery.files.get_mut(path) {
                    log::mutate(tape, bytes);
                }
            }
            _ => forgery.change_names(tape),
        }
        if tape.is_over() {
            break;
        }
    }
    seal_manifest(forgery.manifest());
    check(&forgery, tape)
}

/// Reads and verifies an archive of these files, and writes to it now and then.
pub(crate) fn check(forgery: &Forgery, tape: &mut Tape<'_>) -> Result<(), String> {
    let disk = disk_of(&forgery.files).map_err(|error| format!("cannot place the files: {error}"))?;
    let storage = || -> Arc<dyn Storage> { Arc::new(disk.clone()) };
    guard::within(forgery.files.values().map(Vec::len).sum::<usize>().max(forgery.sample.len()), || {
        let report = verify_on(storage(), PATH, VerifyMode::Full, &());
        let is_sound = report.is_ok_and(|report| report.problems.is_empty());
        let _ = verify_on(storage(), PATH, VerifyMode::Fast, &());
        if let Ok(reader) = Reader::open_on(storage(), PATH) {
            let read = read(&reader, forgery.sample);
            if let (true, Err(reason)) = (is_sound, read) {
                return Err(format!("lied: verify approves, and {reason}"));
            }
        }
        // Writing takes several times as long as all the reading.
        if tape.below(3) == 0 {
            write(&disk.kill_clone(), open_options());
        }
        Ok(())
    })
}

/// Asks everything in every way. `Err`: two ways do not agree, or the head is not what was written.
fn read(reader: &Reader, sample: &Sample) -> Result<(), String> {
    let _ = (reader.segments(), reader.stats());
    let Some((first, head)) = reader.range() else { return Ok(()) };
    let between = first.saturating_add((head - first) / 2);
    for at in BTreeSet::from([first, between, head, head.saturating_sub(1)]) {
        let Ok(view) = reader.at(at) else { continue };
        for (id, domain) in DOMAINS.iter().enumerate() {
            let keys: Vec<&[u8]> =
                sample.keys.iter().filter(|key| key.0 == id).map(|key| &key.1[..]).collect();
            agree(&view, reader, domain, &keys)?;
            if at == head {
                changes_agree(reader, domain, &keys)?;
            }
            if at == head && reader.root(head).is_ok_and(|root| root == sample.root) {
                is_state(&view, domain, id, sample)?;
            }
        }
    }
    Ok(())
}

/// Whether all ways to ask for the keys of a domain agree, those that end in an error aside.
fn agree(view: &View, reader: &Reader, domain: &str, keys: &[&[u8]]) -> Result<(), String> {
    let scanned = |scan: Scan| -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        let entries = view.scan(domain, &scan).ok()?;
        entries.map(|entry| entry.map(|entry| (entry.key, entry.value))).collect::<Result<_, _>>().ok()
    };
    let forward = scanned(Scan::all());
    if let (Some(forward), Some(mut backward)) = (&forward, scanned(Scan::all().backward())) {
        backward.reverse();
        if *forward != backward {
            return Err(format!("scans of {domain} at {} differ by direction", view.height()));
        }
    }
    let together = view.multi_get(domain, keys).ok();
    for (place, key) in keys.iter().enumerate() {
        let Ok(value) = view.get(domain, key) else { continue };
        let at = || format!("{domain} {key:02x?} at {}", view.height());
        if together.as_ref().is_some_and(|together| together[place] != value) {
            return Err(format!("multi_get differs from get: {}", at()));
        }
        let in_scan = |scan: &Vec<(Vec<u8>, Vec<u8>)>| {
            scan.iter().find(|(found, _)| found == key).map(|(_, value)| value.clone())
        };
        if forward.as_ref().is_some_and(|scan| in_scan(scan) != value) {
            return Err(format!("a scan differs from get: {}", at()));
        }
        let history = reader.history(domain, key).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        if let Ok(history) = history {
            let newest = history
                .into_iter()
                .find(|change| change.block <= view.height())
                .and_then(|change| change.value);
            if newest != value {
                return Err(format!("history differs from get: {}", at()));
            }
        }
    }
    proves(view, domain, keys)
}

/// Whether what blocks changed is what the histories of the keys say, where neither ends in an error. The first block stands for all before it
/// where a manifest says that it is a floor.
fn changes_agree(reader: &Reader, domain: &str, keys: &[&[u8]]) -> Result<(), String> {
    let Ok(changes) = reader.changes(..).and_then(|changes| changes.of_domain(domain)) else { return Ok(()) };
    let Some((first, last)) = changes.range() else { return Ok(()) };
    let Ok(changes) = changes.collect::<Result<Vec<_>, _>>() else { return Ok(()) };
    for key in keys {
        let history = reader.history(domain, key).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let Ok(history) = history else { continue };
        let versions = history.into_iter().rev().map(|version| (version.block, version.value));
        let versions: Vec<_> = versions.filter(|(block, _)| first < *block && *block <= last).collect();
        let of_key = changes.iter().filter(|change| change.key == *key && first < change.block);
        let listed: Vec<_> = of_key.map(|change| (change.block, change.after.clone())).collect();
        if versions != listed {
            return Err(format!("changes differ from history: {domain} {key:02x?} of {first} to {last}"));
        }
    }
    Ok(())
}

/// Whether proofs of some keys hold: in one batch, because the tree of the state is built for each call.
fn proves(view: &View, domain: &str, keys: &[&[u8]]) -> Result<(), String> {
    let asked: Vec<(&str, &[u8])> = keys.iter().step_by(5).map(|key| (domain, *key)).collect();
    let Ok(batch) = view.prove_batch(&asked, Parallelism::Off) else { return Ok(()) };
    for ((_, key), proof) in asked.iter().zip(&batch.proofs) {
        let (Ok(root), Ok(value)) = (view.root(), view.get(domain, key)) else { continue };
        if proof.verify(&root, domain, key, value.as_deref()).is_err() {
            return Err(format!("a proof that does not hold: {domain} {key:02x?} at {}", view.height()));
        }
    }
    Ok(())
}

/// Whether a domain holds what was written, under the root that was recorded for it.
fn is_state(view: &View, domain: &str, id: usize, sample: &Sample) -> Result<(), String> {
    for (_, key) in sample.keys.iter().filter(|key| key.0 == id) {
        let expected = sample.state.get(&(id, key.clone()));
        if view.get(domain, key).is_ok_and(|found| found.as_ref() != expected) {
            return Err(format!("the head has another value: {domain} {key:02x?}"));
        }
    }
    Ok(())
}

/// Goes on with the archive as its owner would. What fails may fail; nothing may panic.
fn write(disk: &SimStorage, open: OpenOptions) {
    for round in 0..2u64 {
        let Ok(archive) = Archive::open_on(Arc::new(disk.clone()), PATH, open) else { return };
        for number in 0..6u64 {
            let head = archive.reader().head().unwrap_or(0);
            let Some(height) = head.checked_add(1 + number % 2) else { break };
            let Ok(mut block) = archive.begin(height) else { break };
            let _ = block.put(DOMAINS[0], &number.to_le_bytes(), &[round as u8; 30]);
            let _ = block.delete(DOMAINS[1], b"k3");
            let _ = block.commit();
        }
        let head = archive.reader().head().unwrap_or(0);
        let _ = archive.merge(&MergeOptions::default(), &());
        let _ = archive.reindex(ReindexRule::Rebuild, None, &());
        let _ = archive.unwind(head.saturating_sub(2 + 9 * round), &());
        let _ = archive.prune(head.saturating_sub(12), &());
        let _ = archive.close();
    }
}
