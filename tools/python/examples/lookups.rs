//! The lookups of `figures.py` without Python: keys as lines of hex on standard input, nanoseconds a lookup on standard output.

use std::error::Error;
use std::io::{self, BufRead};
use std::time::{Duration, Instant};

use icecore::Reader;

fn main() -> Result<(), Box<dyn Error>> {
    let place = std::env::args_os().nth(1).ok_or("usage: lookups DIR < KEYS")?;
    let reader = Reader::open(place)?;
    let keys: Vec<Vec<u8>> =
        io::stdin().lock().lines().map(|line| bytes(&line?)).collect::<Result<_, _>>()?;
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let (start, mut found) = (Instant::now(), 0);
        for key in &keys {
            // A view for each, as a call from Python has it.
            found += reader.latest()?.get("kv", key)?.map_or(0, |value| value.len());
        }
        best = best.min(start.elapsed());
        std::hint::black_box(found);
    }
    println!("{}", best.as_nanos() / keys.len().max(1) as u128);
    Ok(())
}

fn bytes(digits: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let pair = |at: usize| Ok(u8::from_str_radix(digits.get(at..at + 2).ok_or("not pairs of digits")?, 16)?);
    (0..digits.len()).step_by(2).map(pair).collect()
}
