#![allow(missing_docs)]
use icecore_segments::*;
use icecore_segments::step::*;
fn main() {
    for file in std::env::args().skip(1) {
        let data = std::fs::read(&file).unwrap();
        for rule in [EncodingRule::Plain, EncodingRule::Zstd, EncodingRule::Auto] {
            let started = std::time::Instant::now();
            let mut b = SegmentBuilder::new(Vec::new(), "x", StepRange::single(Step(0)), rule, ()).unwrap();
            let mut rest = &data[..];
            while !rest.is_empty() {
                let k = u16::from_le_bytes([rest[0], rest[1]]) as usize;
                let v = u16::from_le_bytes([rest[2], rest[3]]) as usize;
                let block = u64::from_le_bytes(rest[4..12].try_into().unwrap());
                let key = &rest[12..12 + k];
                let (value, next) = if v == 0xFFFF { (Value::Deletion, 12 + k) } else { (Value::Inline(&rest[12 + k..12 + k + v]), 12 + k + v) };
                b.push(Entry { key, block, value }).unwrap();
                rest = &rest[next..];
            }
            let (s, bytes, ()) = b.finish().unwrap();
            let seg = Segment::open(&bytes[..]).unwrap();
            let t = std::time::Instant::now();
            for _ in 0..10 { seg.offer_pivots(&mut ()).unwrap(); }
            println!("{file} {rule:?} {:?} entries={} len={} B/entry={:.2} pages={} {:.2} M/s; walk {:.1} us/page", s.encoding, s.entries, s.file.len, s.file.len as f64 / s.entries as f64, s.pages, s.entries as f64 / started.elapsed().as_secs_f64() / 1e6, t.elapsed().as_secs_f64() * 1e5 / s.pages as f64);
        }
    }
}
