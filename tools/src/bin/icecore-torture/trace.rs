//! What a watched process did to files and names, in order, as `shim.c` wrote it down.

use std::fs;
use std::io;
use std::path::Path;

/// What was asked of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    None,
    Open,
    Create,
    Read,
    Write,
    Sync,
    Cut,
    Rename,
    Remove,
    Link,
    MakeDir,
    Map,
    Lock,
}

/// By the numbers of the shim.
const CLASSES: [Class; 13] = [
    Class::None,
    Class::Open,
    Class::Create,
    Class::Read,
    Class::Write,
    Class::Sync,
    Class::Cut,
    Class::Rename,
    Class::Remove,
    Class::Link,
    Class::MakeDir,
    Class::Map,
    Class::Lock,
];

/// What changed. Paths are relative to the watched directory and begin with a slash; its own path is empty.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Nothing,
    /// Another process begins.
    Start,
    Open {
        fd: i32,
        path: String,
        created: bool,
        nameless: bool,
    },
    Close {
        fd: i32,
    },
    Write {
        fd: i32,
        offset: u64,
        bytes: Vec<u8>,
    },
    Cut {
        fd: i32,
        len: u64,
    },
    Sync {
        fd: i32,
        failed: bool,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove {
        path: String,
    },
    Link {
        from: String,
        to: String,
    },
    MakeDir {
        path: String,
    },
    /// A line that the driver wrote outside the directory.
    Ack {
        line: String,
    },
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) class: Class,
    pub(crate) change: Change,
}

impl Event {
    /// Whether a power loss right after it can leave something else than one right before it.
    pub(crate) fn matters(&self) -> bool {
        !matches!(
            self.change,
            Change::Nothing | Change::Start | Change::Close { .. } | Change::Open { created: false, .. }
        )
    }
}

/// The bytes of a record before its two strings.
const HEAD_LEN: usize = 32;

/// Reads a trace. What a killed process did not finish writing is left out.
pub(crate) fn read(path: &Path) -> io::Result<Vec<Event>> {
    let bytes = fs::read(path)?;
    let (mut rest, mut events) = (&bytes[..], Vec::new());
    while let Some((event, after)) = take(rest) {
        events.push(event);
        rest = after;
    }
    Ok(events)
}

fn take(bytes: &[u8]) -> Option<(Event, &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD_LEN)?;
    let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (kind, class, fd) = (word(0), CLASSES[word(4) as usize], word(12) as i32);
    let offset = u64::from_ne_bytes(head[16..24].try_into().ok()?);
    let (first, rest) = rest.split_at_checked(word(24) as usize)?;
    let (second, rest) = rest.split_at_checked(word(28) as usize)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let change = match kind {
        1 => Change::Start,
        2 => Change::Open { fd, path: text(first), created: offset & 1 != 0, nameless: offset & 2 != 0 },
        3 => Change::Close { fd },
        4 => Change::Write { fd, offset, bytes: first.to_vec() },
        5 => Change::Cut { fd, len: offset },
        6 => Change::Sync { fd, failed: offset != 0 },
        7 => Change::Rename { from: text(first), to: text(second) },
        8 => Change::Remove { path: text(first) },
        9 => Change::Link { from: text(first), to: text(second) },
        10 => Change::MakeDir { path: text(first) },
        11 => Change::Ack { line: text(first).trim_end().to_owned() },
        _ => Change::Nothing,
    };
    Some((Event { class, change }, rest))
}
