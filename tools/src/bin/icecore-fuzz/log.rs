//! The target over the write-ahead log: its files and records, under checksums that hold.

use icecore_index::FilterHash;
use icecore_segments::checksum::crc64;

use crate::archive::{self, Forgery};
use crate::forge::{LOG_HEADER_LEN, RECORD_HEADER_LEN, log_records, seal_log};
use crate::sample::SAMPLES;
use crate::tape::Tape;

pub(crate) fn log(tape: &mut Tape<'_>) -> Result<(), String> {
    let mut forgery = Forgery::of(tape.pick(&SAMPLES));
    let paths = forgery.sample.of_kind("wal");
    for _ in 0..=tape.below(2) {
        let path = *tape.pick(&paths);
        if let Some(bytes) = forgery.files.get_mut(path) {
            mutate(tape, bytes);
        }
    }
    archive::check(&forgery, tape)
}

/// Changes records, their headers and their order, and makes all checksums hold.
pub(crate) fn mutate(tape: &mut Tape<'_>, bytes: &mut Vec<u8>) {
    let records = log_records(bytes);
    if records.is_empty() {
        tape.mutate(bytes);
        return seal_log(bytes);
    }
    let (at, end) = *tape.pick(&records);
    let other = *tape.pick(&records);
    match tape.below(8) {
        0..=2 => tape.mutate(&mut bytes[at + RECORD_HEADER_LEN..end]),
        3 => tape.mutate(&mut bytes[at + 16..at + RECORD_HEADER_LEN]),
        4 => {
            // The same record again, at the end.
            let copy = bytes[at..end].to_vec();
            bytes.extend_from_slice(&copy);
        }
        5 => {
            let (a, b) = (bytes[at..end].to_vec(), bytes[other.0..other.1].to_vec());
            if other.0 >= end {
                bytes.splice(other.0..other.1, a);
                bytes.splice(at..end, b);
            }
        }
        6 => append(tape, bytes),
        _ => tape.mutate(&mut bytes[..LOG_HEADER_LEN]),
    }
    seal_log(bytes);
}

/// Appends an unwind, or a block of one change.
fn append(tape: &mut Tape<'_>, bytes: &mut Vec<u8>) {
    let height = tape.number(40);
    let (kind, body) = if tape.below(2) == 0 {
        (2u32, height.to_le_bytes().to_vec())
    } else {
        let root = [tape.byte(); 32];
        let key = [tape.byte(), tape.byte()];
        let domain = tape.byte() % 5;
        let mixed = FilterHash::of(&key).to_u64() ^ u64::from(domain).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let fingerprint = (mixed >> 32) as u32;
        // One change; the checksum of the head is computed with the others.
        let head =
            [&height.to_le_bytes()[..], &root, &1u32.to_le_bytes(), &fingerprint.to_le_bytes(), &[0; 8]];
        (1, [&head.concat()[..], &[domain, 2], &key, &[2, tape.byte()]].concat())
    };
    let durable = if tape.below(2) == 0 { bytes.len() } else { LOG_HEADER_LEN };
    bytes.extend([0; 8]);
    bytes.extend(crc64(&body).to_le_bytes());
    bytes.extend((body.len() as u32).to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend((durable as u64).to_le_bytes());
    bytes.extend(body);
}
