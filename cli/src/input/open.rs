//! Opening what a person names on the command line: a file or `-`, plain, zstd or gzip, read line by line.
//!
//! Memory: one buffer and the longest line. The encoding is seen from the first bytes, never from the name.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::BadLine;
use crate::exit::Failure;
use crate::print::bytes;

/// The longest line that is read: a mainnet block's traces take a few megabytes.
pub(crate) const LINE_LEN_MAX: u64 = 1 << 30;

/// One read of the system; also the step in which a pipe is drained.
const BUFFER_LEN: usize = 256 * 1024;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// How far the input has been read, for a progress bar. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter(Arc<AtomicU64>);

impl Meter {
    /// Bytes read so far, as they are in the files.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

struct Counted<R> {
    inner: R,
    meter: Meter,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(buf)?;
        self.meter.0.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }
}

/// The lines of one file after the other. Blank lines are passed over.
pub(crate) struct Lines {
    waiting: std::vec::IntoIter<PathBuf>,
    reader: Option<BufReader<Box<dyn Read + Send>>>,
    file: String,
    line: u64,
    buf: Vec<u8>,
    meter: Meter,
    compressed: bool,
    len_max: u64,
}

impl Lines {
    /// The lines of `files` in this order; `-` is standard input.
    pub(crate) fn of(files: Vec<PathBuf>) -> Self {
        Self::counted(files, Meter::default())
    }

    /// The same; `meter` counts what is read.
    pub(crate) fn counted(files: Vec<PathBuf>, meter: Meter) -> Self {
        Self {
            waiting: files.into_iter(),
            reader: None,
            file: String::new(),
            line: 0,
            buf: Vec::new(),
            meter,
            compressed: false,
            len_max: LINE_LEN_MAX,
        }
    }

    /// The same of lines that have fewer bytes.
    pub(crate) fn shorter_than(self, len_max: u64) -> Self {
        Self { len_max, ..self }
    }

    /// The file that was read last, as it was named.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// An error about the line that was read last.
    pub(crate) fn bad(&self, bad: impl Into<BadLine>) -> Failure {
        let BadLine { reason, help } = bad.into();
        Failure::Input { file: self.file.clone(), line: self.line, reason, help }
    }

    /// Whether the next line can be had without waiting for whoever writes it.
    pub(crate) fn has_line(&self) -> bool {
        let Some(reader) = &self.reader else { return false };
        let mut lines = reader.buffer().split_inclusive(|byte| *byte == b'\n');
        lines.any(|line| line.ends_with(b"\n") && !line.trim_ascii().is_empty())
    }

    /// The next line without its end, or `None` after the last one.
    ///
    /// # Errors
    /// The file cannot be opened, read or decoded, or a line is too long.
    pub(crate) fn next_line(&mut self) -> Result<Option<&[u8]>, Failure> {
        Ok(self.next_numbered()?.map(|(_, line)| line))
    }

    /// The same with the number of the line in its file, counted from 1.
    ///
    /// # Errors
    /// As [`Lines::next_line`].
    pub(crate) fn next_numbered(&mut self) -> Result<Option<(u64, &[u8])>, Failure> {
        loop {
            let Some(reader) = &mut self.reader else {
                let Some(path) = self.waiting.next() else { return Ok(None) };
                self.open(&path)?;
                continue;
            };
            self.buf.clear();
            self.line += 1;
            let read = reader.by_ref().take(self.len_max).read_until(b'\n', &mut self.buf);
            match read {
                Ok(0) => self.reader = None,
                Ok(_) if self.buf.len() as u64 == self.len_max => {
                    self.buf = Vec::new();
                    let limit = bytes(self.len_max);
                    return Err(self.bad(format!("the line is not shorter than {limit}, as each must be")));
                }
                Ok(_) if self.buf.trim_ascii().is_empty() => {}
                Ok(_) => break,
                Err(source) => return Err(self.unreadable(source)),
            }
        }
        Ok(Some((self.line, self.buf.trim_ascii_end())))
    }

    fn open(&mut self, path: &Path) -> Result<(), Failure> {
        self.file = path.display().to_string();
        self.line = 0;
        let raw: Box<dyn Read + Send> = if path.as_os_str() == "-" {
            Box::new(Counted { inner: io::stdin(), meter: self.meter.clone() })
        } else {
            let file = File::open(path).map_err(|source| Failure::File {
                operation: "open",
                path: path.to_owned(),
                source,
            })?;
            Box::new(Counted { inner: file, meter: self.meter.clone() })
        };
        let (reader, compressed) = decode(raw).map_err(|source| self.unreadable(source))?;
        self.compressed = compressed;
        self.reader = Some(BufReader::with_capacity(BUFFER_LEN, reader));
        Ok(())
    }

    /// Tells damage of a compressed stream, which is bad input, from a refusal of the system.
    fn unreadable(&self, source: io::Error) -> Failure {
        if self.compressed && source.raw_os_error().is_none() {
            return self.bad(BadLine {
                reason: format!("the compressed data ends or breaks here: {source}"),
                help: Some("get the file again, whole, and give the same command again".to_owned()),
            });
        }
        Failure::File { operation: "read", path: PathBuf::from(&self.file), source }
    }
}

/// Undoes the compression that the first bytes show. `true`: there is one.
fn decode(raw: Box<dyn Read + Send>) -> io::Result<(Box<dyn Read + Send>, bool)> {
    let mut raw = raw;
    let mut head = Vec::with_capacity(ZSTD_MAGIC.len());
    // A byte at a time, and only while it can still be a magic: a pipe may hold back its second line until the first
    // is answered.
    while ZSTD_MAGIC.starts_with(&head) || GZIP_MAGIC.starts_with(&head) {
        let mut byte = [0];
        match raw.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => head.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if head == ZSTD_MAGIC || head == GZIP_MAGIC {
            break;
        }
    }
    let (zstd, gzip) = (head == ZSTD_MAGIC, head == GZIP_MAGIC);
    let whole = BufReader::with_capacity(BUFFER_LEN, io::Cursor::new(head).chain(raw));
    Ok(if zstd {
        (Box::new(zstd::Decoder::with_buffer(whole)?), true)
    } else if gzip {
        (Box::new(flate2::bufread::MultiGzDecoder::new(whole)), true)
    } else {
        (Box::new(whole), false)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn lines_of(content: &[u8]) -> Result<Vec<String>, Failure> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("input");
        std::fs::write(&path, content).unwrap();
        let meter = Meter::default();
        let mut lines = Lines::counted(vec![path.clone(), path], meter.clone());
        let mut all = Vec::new();
        while let Some(line) = lines.next_line()? {
            all.push(String::from_utf8(line.to_vec()).unwrap());
        }
        assert_eq!(meter.bytes(), 2 * content.len() as u64);
        Ok(all)
    }

    #[test]
    fn every_compression_gives_the_same_lines() {
        let plain = b"one\r\n\n  \ntwo\nthree".to_vec();
        let expected = ["one", "two", "three", "one", "two", "three"];
        let zstd = zstd::encode_all(&plain[..], 3).unwrap();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&plain).unwrap();
        let gzip = gzip.finish().unwrap();
        for content in [&plain, &zstd, &gzip] {
            assert_eq!(lines_of(content).unwrap(), expected);
        }
        let two_frames =
            [zstd::encode_all(&b"a\nb"[..], 3).unwrap(), zstd::encode_all(&b"c\n"[..], 3).unwrap()].concat();
        assert_eq!(lines_of(&two_frames).unwrap(), ["a", "bc", "a", "bc"]);
        assert!(lines_of(b"").unwrap().is_empty());
        assert!(lines_of(&[0x28]).unwrap()[0].starts_with('('));
    }

    #[test]
    fn a_cut_stream_is_bad_input_with_its_place() {
        let text = (0..10_000).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
        let whole = zstd::encode_all(text.as_bytes(), 3).unwrap();
        let failure = lines_of(&whole[..whole.len() - 9]).unwrap_err();
        assert!(matches!(failure, Failure::Input { line, .. } if 0 < line), "{failure}");
    }

    #[test]
    fn a_line_without_end_is_refused_at_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("input");
        std::fs::write(
            &path,
            zstd::encode_all(&[&b"short\n"[..], &vec![b' '; 1 << 20]].concat()[..], 3).unwrap(),
        )
        .unwrap();
        let mut lines = Lines::of(vec![path]).shorter_than(4096);
        assert_eq!(lines.next_line().unwrap(), Some(&b"short"[..]));
        let failure = lines.next_line().unwrap_err();
        assert!(
            failure.to_string().ends_with(":2: the line is not shorter than 4.0 KiB, as each must be"),
            "{failure}"
        );
        assert_eq!(lines.buf.capacity(), 0, "what came of it is not kept");
    }

    #[test]
    fn a_missing_file_is_named() {
        let failure = Lines::of(vec!["no/such/file".into()]).next_line().unwrap_err();
        assert!(failure.to_string().starts_with("cannot open no/such/file"), "{failure}");
    }
}
