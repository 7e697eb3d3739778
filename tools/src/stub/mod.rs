//! A server that speaks as much of S3 as Icecore uses, in memory, and fails on demand.
//!
//! It counts requests, adds latency, and does what stores and the lines to them do at their worst: see [`Fault`]. It checks no
//! signature. Connections are kept alive, as those of real servers are.
//!
//! ```
//! use icecore_tools::stub::{Fault, Stub, When};
//!
//! let stub = Stub::start()?;
//! stub.fail(Fault::Status(503), When::from(2)); // the third request and those after it
//! assert!(stub.endpoint().starts_with("http://127.0.0.1:"));
//! assert_eq!(stub.requests().total(), 0);
//! # Ok::<(), std::io::Error>(())
//! ```

mod dates;
mod http;
mod objects;
mod serve;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

pub(crate) use objects::Objects;

/// What a request meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// An answer with this status.
    Status(u16),
    /// No answer at all.
    Hang,
    /// An answer that comes a byte at a time.
    Drip,
    /// The connection ends in the midst of the body.
    Truncated,
    /// Half of the body, and a header that calls that the whole.
    Short,
    /// A body with a wrong byte in its midst.
    Wrong,
    /// A body of bytes that stand one place further in the object.
    Shifted,
    /// The whole object instead of the range.
    RangeIgnored,
    /// The credentials are refused because they have expired, in an answer that repeats them.
    ExpiredToken,
    /// The object is not there any more.
    Collected,
    /// Conditions on a write are ignored.
    Unconditional,
    /// The connection ends without an answer, and the request was not carried out: as if this side had been killed.
    Drop,
    /// The request is carried out, and the connection ends without an answer.
    Unanswered,
    /// The request is carried out and answered when the fault is [healed](Stub::heal), not before.
    Held,
}

/// Which requests meet a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct When {
    from: u64,
    until: u64,
    method: Option<&'static str>,
    key: String,
}

impl When {
    /// Every request.
    pub fn always() -> Self {
        Self::from(0)
    }

    /// Every request after the first `requests` since the counts were reset.
    pub fn from(requests: u64) -> Self {
        Self { from: requests, until: u64::MAX, method: None, key: String::new() }
    }

    /// The request after the first `requests`, and no other.
    pub fn once(requests: u64) -> Self {
        Self { until: requests + 1, ..Self::from(requests) }
    }

    /// Of these, those of a method.
    pub fn method(self, method: &'static str) -> Self {
        Self { method: Some(method), ..self }
    }

    /// Of these, those whose key has this in it.
    pub fn key(self, part: &str) -> Self {
        Self { key: part.to_owned(), ..self }
    }
}

/// Requests by what they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Reads of an object or a range.
    pub get: u64,
    /// Looks at an object.
    pub head: u64,
    /// Writes of an object or a part.
    pub put: u64,
    /// Listings.
    pub list: u64,
    /// Beginnings and ends of uploads in parts, and removals.
    pub other: u64,
    /// Bytes of all bodies that were sent.
    pub bytes_out: u64,
    /// Bytes of all bodies that came.
    pub bytes_in: u64,
}

impl Requests {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.get + self.head + self.put + self.list + self.other
    }
}

/// What the threads of a server share.
#[derive(Debug, Default)]
struct State {
    objects: Mutex<Objects>,
    requests: Mutex<Requests>,
    fault: Mutex<Option<(Fault, When)>>,
    latency: Mutex<Duration>,
    is_closed: AtomicBool,
}

/// A server, until it is dropped.
#[derive(Debug)]
pub struct Stub {
    address: SocketAddr,
    state: Arc<State>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves maps and counters that can still be read.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stub {
    /// Starts a server on a port of its own.
    ///
    /// # Errors
    /// The system gives none.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, state) = (listener.local_addr()?, Arc::<State>::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.is_closed.load(Ordering::Acquire) {
                    break;
                }
                let (Ok(stream), shared) = (stream, Arc::clone(&shared)) else { continue };
                // A connection that fails is the client's to mourn.
                thread::spawn(move || drop(serve::connection(&stream, &shared)));
            }
        });
        Ok(Self { address, state })
    }

    /// What a client takes for the address of S3.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits this long before each answer.
    pub fn set_latency(&self, latency: Duration) {
        *locked(&self.state.latency) = latency;
    }

    /// Has requests meet a fault, instead of one that was set before.
    pub fn fail(&self, fault: Fault, when: When) {
        *locked(&self.state.fault) = Some((fault, when));
    }

    /// No request meets a fault any more.
    pub fn heal(&self) {
        *locked(&self.state.fault) = None;
    }

    /// The requests since the counts were reset.
    pub fn requests(&self) -> Requests {
        *locked(&self.state.requests)
    }

    /// Counts from zero.
    pub fn reset_requests(&self) {
        *locked(&self.state.requests) = Requests::default();
    }

    /// The objects, by `bucket/key`.
    pub fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        locked(&self.state.objects).all()
    }

    /// Puts an object, as if a client had.
    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        locked(&self.state.objects).put(name, bytes);
    }

    /// Removes an object.
    pub fn remove(&self, name: &str) {
        locked(&self.state.objects).remove(name);
    }

    /// Has all objects be written this long ago.
    pub fn age(&self, age: Duration) {
        locked(&self.state.objects).date(SystemTime::now() - age);
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.state.is_closed.store(true, Ordering::Release);
        // Wakes the thread that waits for connections.
        let _ = TcpStream::connect(self.address);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::time::Instant;

    use super::*;

    #[test]
    fn requests_wait_at_the_same_time() {
        let stub = Stub::start().unwrap();
        let latency = Duration::from_millis(300);
        stub.set_latency(latency);
        let begun = Instant::now();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut stream = TcpStream::connect(stub.address).unwrap();
                    stream.write_all(b"GET /bucket/key HTTP/1.1\r\n\r\n").unwrap();
                    stream.read_exact(&mut [0; 12]).unwrap();
                });
            }
        });
        assert!((latency..3 * latency).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        assert_eq!(stub.requests().get, 4);
    }
}
