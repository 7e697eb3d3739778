//! Several inputs as one stream of blocks: files that follow each other, and files that have parts of the same blocks.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::path::{Path, PathBuf};

use super::{Block, Blocks, Changes, Format, Lines, Meter, Place};
use crate::encoding::{Face, brief, hex};
use crate::exit::Failure;

/// Inputs that stay open while other ones are read. Beyond it a file is opened, its first line read, and closed until its
/// first block is due.
const OPEN_MAX: usize = 16;

/// Makes the format of an input.
pub(crate) type NewFormat = Box<dyn Fn() -> Box<dyn Format> + Send>;

/// Blocks of several inputs, merged by height. Memory: a block and a buffer for each input that is open.
pub(crate) struct Inputs {
    sources: Vec<Source>,
    /// The next height of each source that has one.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    /// Sources that gave a block and were not asked for their next height yet.
    taken: Vec<usize>,
    new_format: NewFormat,
    meter: Meter,
}

struct Source {
    files: Vec<PathBuf>,
    blocks: Option<Blocks>,
}

impl Inputs {
    /// Opens every input and reads its first line. Where `in_order` says so, the files are one input, one after another.
    ///
    /// # Errors
    /// A file cannot be opened, its first line is bad, or standard input is named twice.
    pub(crate) fn open(
        files: Vec<PathBuf>,
        in_order: bool,
        new_format: NewFormat,
        meter: Meter,
    ) -> Result<Self, Failure> {
        if 1 < files.iter().filter(|file| is_stdin(file)).count() {
            return Err(Failure::usage("standard input (-) can be read once only"));
        }
        let lists = if in_order { vec![files] } else { files.into_iter().map(|file| vec![file]).collect() };
        let sources: Vec<_> = lists.into_iter().map(|files| Source { files, blocks: None }).collect();
        let (count, due) = (sources.len(), BinaryHeap::new());
        let mut inputs = Self { sources, due, taken: Vec::new(), new_format, meter };
        for idx in 0..count {
            inputs.ask(idx)?;
            if OPEN_MAX < count && inputs.sources[idx].is_file() {
                inputs.sources[idx].blocks = None;
            }
        }
        Ok(inputs)
    }

    /// Notes the next height of a source.
    fn ask(&mut self, idx: usize) -> Result<(), Failure> {
        match self.blocks(idx).peek()? {
            Some(height) => self.due.push(Reverse((height, idx))),
            None => self.sources[idx].blocks = None,
        }
        Ok(())
    }

    /// The blocks of a source, opened where it is closed.
    fn blocks(&mut self, idx: usize) -> &mut Blocks {
        let source = &mut self.sources[idx];
        let open =
            || Blocks::new(Lines::counted(source.files.clone(), self.meter.clone()), (self.new_format)());
        source.blocks.get_or_insert_with(open)
    }

    fn advance(&mut self) -> Result<Option<Block>, Failure> {
        for idx in std::mem::take(&mut self.taken) {
            self.ask(idx)?;
        }
        let Some(&Reverse((height, _))) = self.due.peek() else { return Ok(None) };
        let mut parts = Vec::new();
        while let Some(&Reverse((next, idx))) = self.due.peek()
            && next == height
        {
            self.due.pop();
            self.taken.push(idx);
            let part = self.blocks(idx).next().transpose()?.filter(|part| part.height == height);
            let changed =
                || Failure::usage(format!("{} changed while it was read", self.sources[idx].name()));
            parts.push(part.ok_or_else(changed)?);
        }
        join(parts)
    }
}

impl Iterator for Inputs {
    type Item = Result<Block, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance();
        if next.is_err() {
            self.due.clear();
            self.taken.clear();
        }
        next.transpose()
    }
}

impl Source {
    /// Whether it can be opened again.
    fn is_file(&self) -> bool {
        self.files.iter().all(|file| !is_stdin(file) && file.is_file())
    }

    fn name(&self) -> String {
        self.files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
    }
}

fn is_stdin(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// One block of what several inputs have for its height.
fn join(parts: Vec<Block>) -> Result<Option<Block>, Failure> {
    let mut parts = parts.into_iter();
    let Some(mut whole) = parts.next() else { return Ok(None) };
    for mut part in parts {
        check_wiped(&whole, &part)?;
        check_values(&whole, &part)?;
        // Destroyed by both alike.
        part.changes.wiped.clear();
        let shift = whole.files.len();
        part.changes.list.iter_mut().for_each(|change| change.place.file += shift);
        whole.files.append(&mut part.files);
        whole.changes.append(&mut part.changes);
    }
    Ok(Some(whole))
}

/// Destroying an account clears slots that no file names, so two files must agree on it.
fn check_wiped(whole: &Block, part: &Block) -> Result<(), Failure> {
    let (a, b) = (&whole.changes.wiped, &part.changes.wiped);
    let only =
        |a: &[super::Address], b: &[super::Address]| a.iter().find(|wiped| !b.contains(wiped)).copied();
    let (address, with, without) = match (only(a, b), only(b, a)) {
        (Some(address), _) => (address, whole, part),
        (None, Some(address)) => (address, part, whole),
        (None, None) => return Ok(()),
    };
    Err(Failure::usage(format!(
        "block {} destroys account {} in {} and not in {}",
        whole.height,
        hex(&address),
        with.files[0],
        without.files[0]
    )))
}

/// A key that two files have must have one value.
fn check_values(whole: &Block, part: &Block) -> Result<(), Failure> {
    let known = last_changes(&whole.changes);
    for (key, (value, place)) in last_changes(&part.changes) {
        if let Some((other, other_place)) = known.get(&key).filter(|(other, _)| *other != value) {
            let show = |value: Option<&[u8]>| value.map_or_else(|| "a deletion".to_owned(), brief);
            return Err(Failure::Input {
                file: part.files[place.file].to_string(),
                line: place.line,
                reason: format!(
                    "block {} has two values for key {}: {} here, {} in {}",
                    whole.height,
                    Face::Readable.line(key.1),
                    show(value),
                    show(*other),
                    whole.show(*other_place),
                ),
                help: None,
            });
        }
    }
    Ok(())
}

type LastChanges<'a> = BTreeMap<(usize, &'a [u8]), (Option<&'a [u8]>, Place)>;

fn last_changes(changes: &Changes) -> LastChanges<'_> {
    changes.placed().map(|(domain, key, value, place)| ((domain, key), (value, place))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::Encoding;
    use crate::input::Jsonl;
    use crate::keys::KeyShape;

    /// Heights and their keys, then the error.
    type Read = (Vec<(u64, Vec<String>)>, Option<String>);

    fn read(contents: &[String]) -> Read {
        let dir = tempfile::tempdir().unwrap();
        let files: Vec<_> = (0..contents.len()).map(|n| dir.path().join(format!("{n}.jsonl"))).collect();
        for (file, content) in files.iter().zip(contents) {
            std::fs::write(file, content).unwrap();
        }
        let new_format: NewFormat =
            Box::new(|| Box::new(Jsonl::new(vec![KeyShape::any("kv")], Encoding::Auto)));
        let mut blocks = Vec::new();
        let inputs = match Inputs::open(files, false, new_format, Meter::default()) {
            Ok(inputs) => inputs,
            Err(failure) => return (blocks, Some(failure.to_string())),
        };
        for block in inputs {
            match block {
                Ok(block) => {
                    let keys =
                        block.changes.iter().map(|(_, key, _)| String::from_utf8_lossy(key).into_owned());
                    blocks.push((block.height, keys.collect()));
                }
                Err(failure) => return (blocks, Some(failure.to_string())),
            }
        }
        (blocks, None)
    }

    fn line(block: u64, key: &str, value: &str) -> String {
        format!("{{\"block\":{block},\"key\":\"{key}\",\"value\":\"{value}\"}}\n")
    }

    #[test]
    fn parts_of_a_block_come_together() {
        let a = [line(1, "a", "1"), line(1, "b", "1"), line(4, "a", "2")].concat();
        let b = [line(1, "c", "1"), line(2, "c", "2"), line(5, "c", "3")].concat();
        let keys = |keys: &[&str]| keys.iter().map(|&key| key.to_owned()).collect::<Vec<_>>();
        let expected =
            vec![(1, keys(&["a", "b", "c"])), (2, keys(&["c"])), (4, keys(&["a"])), (5, keys(&["c"]))];
        assert_eq!(read(&[a, String::new(), b]), (expected, None));
    }

    #[test]
    fn one_key_has_one_value() {
        let a = [line(1, "a", "1"), line(2, "k", "1"), line(2, "k", "2")].concat();
        assert_eq!(read(&[a.clone(), line(2, "k", "2")]).1, None, "the last of a file counts");
        let (blocks, failure) = read(&[a, [line(1, "b", "1"), line(2, "k", "1")].concat()]);
        let failure = failure.unwrap();
        assert_eq!(blocks.len(), 1, "the blocks before it are given");
        assert!(failure.contains("1.jsonl:2: block 2 has two values for key k"), "{failure}");
        assert!(failure.contains("0.jsonl:3"), "{failure}");
    }

    #[test]
    fn many_files_are_not_open_at_once_and_one_may_be_bad() {
        let parts: Vec<_> =
            (0..40).map(|n| line(n, "a", "1") + &line(n + 1, &format!("b{n}"), "1")).collect();
        let (blocks, failure) = read(&parts);
        assert_eq!((blocks.len(), failure), (41, None));
        assert!(blocks[1..40].iter().all(|(_, keys)| keys.len() == 2));
        let bad = [line(1, "a", "1"), line(3, "c", "1") + "nonsense\n"];
        let (blocks, failure) = read(&bad);
        assert_eq!(blocks.len(), 1, "block 3 may have gone on in the bad line");
        assert!(failure.unwrap().contains("1.jsonl:2: not JSON"));
    }
}
