//! A real server of S3, where one is installed: [versitygw](https://github.com/versity/versitygw) over a folder.
//!
//! The stub of [`crate::stub`] does what we think that servers do. This one was written by others: it checks signatures and keeps
//! conditions on writes.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Who may use a [`Gateway`].
pub const ACCESS_KEY: &str = "AKIDGATEWAY";
/// What this one proves itself by.
pub const SECRET_KEY: &str = "SECRETGATEWAY";

/// How long it may take to start.
const PATIENCE: Duration = Duration::from_secs(15);

/// A running server with one empty bucket. It ends, and what it held goes, when this is dropped.
#[derive(Debug)]
pub struct Gateway {
    server: Child,
    address: SocketAddr,
    /// Where it keeps buckets, as folders.
    _folder: TempDir,
}

impl Gateway {
    /// Starts a server, or says on standard error that `versitygw` is not on the `PATH` and returns `None`.
    ///
    /// # Errors
    /// It is there and does not start: its folder needs a file system with extended attributes.
    pub fn start(bucket: &str) -> io::Result<Option<Self>> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join(bucket))?;
        // Free now; who takes it before the server does makes the start fail.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let server = Command::new("versitygw")
            .args(["--quiet", "--port", &address.to_string(), "posix"])
            .arg(folder.path())
            .env("ROOT_ACCESS_KEY", ACCESS_KEY)
            .env("ROOT_SECRET_KEY", SECRET_KEY)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let server = match server {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                eprintln!("skipped: versitygw is not installed");
                return Ok(None);
            }
            server => server?,
        };
        let mut gateway = Self { server, address, _folder: folder };
        gateway.wait()?;
        Ok(Some(gateway))
    }

    fn wait(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            if let Some(status) = self.server.try_wait()? {
                return Err(io::Error::other(format!("versitygw ended at its start: {status}")));
            }
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::new(ErrorKind::TimedOut, "versitygw takes no connection"));
            }
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Its URL.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
