//! What the measurements share: numbered keys and values, the mix of a batch, time on the CPU.
#![allow(dead_code, reason = "each example uses its part")]

use std::time::{Duration, Instant};

use icecore_hot::Batch;
use icecore_hot::measure::{RandomLines, hash_blocks};

/// The domain of all keys.
pub(crate) const DOMAIN: &str = "storage";

/// `SplitMix64`, step by step or at once.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The key of a number.
pub(crate) fn key(id: u64) -> [u8; 52] {
    let mut key = [0; 52];
    for (i, part) in key.chunks_mut(8).enumerate() {
        let bytes = mix(id * 7 + i as u64).to_le_bytes();
        part.copy_from_slice(&bytes[..part.len()]);
    }
    key
}

/// A value of a key; another for each salt.
pub(crate) fn value(id: u64, salt: u64) -> [u8; 32] {
    let mut value = [0; 32];
    value[..8].copy_from_slice(&mix(id ^ salt << 40).to_le_bytes());
    value[24..].copy_from_slice(&salt.to_le_bytes());
    value
}

/// The keys that are there, by number, and the next that is not.
pub(crate) struct Keys {
    live: Vec<u32>,
    next: u32,
    state: u64,
}

impl Keys {
    /// The keys `0..count`.
    pub(crate) fn new(count: usize) -> Self {
        let next = u32::try_from(count).expect("fewer than 2^32 keys");
        Self { live: (0..next).collect(), next, state: 1 }
    }

    fn random(&mut self) -> usize {
        self.state += 1;
        (mix(self.state) % self.live.len() as u64) as usize
    }

    /// One batch: 85 % new values of random keys, 10 % new keys, 5 % deletions.
    pub(crate) fn fill(&mut self, batch: &mut Batch, changes: usize, salt: u64) {
        batch.clear();
        for i in 0..changes {
            match i % 20 {
                0 | 10 => {
                    batch.put(DOMAIN, &key(u64::from(self.next)), &value(u64::from(self.next), salt));
                    self.live.push(self.next);
                    self.next += 1;
                }
                5 => {
                    let at = self.random();
                    let id = self.live.swap_remove(at);
                    batch.delete(DOMAIN, &key(u64::from(id)));
                }
                _ => {
                    let at = self.random();
                    let id = u64::from(self.live[at]);
                    batch.put(DOMAIN, &key(id), &value(id, salt));
                }
            }
        }
    }
}

/// The time this thread was on a CPU, where the system tells: a shared machine makes the clock run on.
pub(crate) fn on_cpu() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?))
}

/// Wall time and time on the CPU, of one piece of work or summed up.
#[derive(Clone, Copy, Default)]
pub(crate) struct Times {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

impl Times {
    /// Times some work of this thread. Where the system does not tell the time on the CPU, it is the wall time.
    pub(crate) fn of<R>(work: impl FnOnce() -> R) -> (Self, R) {
        let (start, cpu_start) = (Instant::now(), on_cpu());
        let result = work();
        let wall = start.elapsed();
        let cpu = on_cpu().zip(cpu_start).map_or(wall, |(end, start)| end.saturating_sub(start));
        (Self { wall, cpu }, result)
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.wall += other.wall;
        self.cpu += other.cpu;
    }
}

/// Millions per second.
pub(crate) fn rate(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64() / 1e6
}

/// What this machine can do of the two things that the tree is made of, in millions per second on the CPU.
#[derive(Clone, Copy)]
pub(crate) struct Roofs {
    /// 64-byte blocks hashed, 16 at a time.
    pub(crate) hashes: f64,
    /// Lines read at random addresses that are known ahead.
    pub(crate) lines: f64,
    /// Lines read at random, each at an address that follows from the one before.
    pub(crate) chained: f64,
}

impl Roofs {
    /// Measures them: the best of several rounds, because other work on the machine only makes them worse.
    pub(crate) fn measure(options: &icecore_hot::Options, bytes: usize) -> Self {
        let best = |count: usize, work: &dyn Fn() -> u64| {
            (0..5).map(|_| rate(count, Times::of(|| std::hint::black_box(work())).0.cpu)).fold(0.0, f64::max)
        };
        let lines = RandomLines::new(options, bytes);
        Self {
            hashes: best(1 << 21, &|| hash_blocks(options, 1 << 21)),
            lines: best(1 << 21, &|| lines.read(1 << 21)),
            chained: best(1 << 17, &|| lines.chase(1 << 17)),
        }
    }
}

/// Resident memory of this process, where the system tells it.
pub(crate) fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}
