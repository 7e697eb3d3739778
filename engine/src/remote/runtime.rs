//! The threads that requests run on. No caller's thread ever runs one: it may belong to a pool, or to a runtime of its own.

use std::fmt;
use std::future::Future;
use std::sync::mpsc::{Receiver, sync_channel};

use tokio::runtime::{Builder, Runtime as Tokio};

use crate::remote_error::RemoteError;

/// Requests wait for the network; these threads encrypt, and copy bytes.
const THREADS: usize = 2;

/// See the module.
pub(crate) struct Runtime(Option<Tokio>);

/// The answer to a request that was begun.
pub(crate) struct Pending<T>(Receiver<T>);

impl Runtime {
    /// Starts the threads.
    ///
    /// # Errors
    /// [`RemoteError::Runtime`].
    pub(crate) fn start() -> Result<Self, RemoteError> {
        let mut builder = Builder::new_multi_thread();
        let built = builder.worker_threads(THREADS).thread_name("icecore-remote").enable_all().build();
        built
            .map(|tokio| Self(Some(tokio)))
            .map_err(|error| RemoteError::Runtime { cause: error.to_string() })
    }

    /// Begins something.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Pending<T> {
        let (sender, receiver) = sync_channel(1);
        if let Some(tokio) = &self.0 {
            tokio.spawn(async move {
                // Nobody waits any more where this fails.
                let _ = sender.send(future.await);
            });
        }
        Pending(receiver)
    }
}

impl<T> Pending<T> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// [`RemoteError::Runtime`] where the request ended without one.
    pub(crate) fn wait(&self) -> Result<T, RemoteError> {
        self.0
            .recv()
            .map_err(|_| RemoteError::Runtime { cause: "a request ended without an answer".to_owned() })
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // Waiting here would panic where the last handle is dropped inside a runtime of the caller.
        if let Some(tokio) = self.0.take() {
            tokio.shutdown_background();
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Runtime")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_to_threads_that_belong_to_others() {
        let runtime = Runtime::start().unwrap();
        assert_eq!(runtime.begin(async { 7 }).wait(), Ok(7));
        let outer = Builder::new_current_thread().build().unwrap();
        let answer = outer.block_on(async {
            let inner = Runtime::start().unwrap();
            inner.begin(async { 8 }).wait()
        });
        assert_eq!(answer, Ok(8), "also inside a runtime, where waiting by its own means panics");
        let lost = runtime.begin::<()>(async { panic!("on purpose") }).wait();
        assert!(matches!(lost, Err(RemoteError::Runtime { .. })), "a panic there is an error here");
    }
}
