//! Requests and answers as bytes of HTTP/1.1.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

/// One request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    /// `bucket/key`, or `bucket`.
    pub(super) path: String,
    pub(super) query: BTreeMap<String, String>,
    /// By lower-case name.
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// Reads the next one; `None` where the client ended the connection.
    pub(super) fn read(stream: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut parts = line.split(' ');
        let (method, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let query = pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| (decoded(name), decoded(value)))
            .collect();
        let (method, path) = (method.to_owned(), decoded(path.trim_matches('/')));
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let len = headers.get("content-length").and_then(|len: &String| len.parse().ok()).unwrap_or(0);
        let mut body = vec![0; len];
        stream.read_exact(&mut body)?;
        Ok(Some(Self { method, path, query, headers, body }))
    }

    /// The first and the last byte of the range that is asked for.
    pub(super) fn range(&self) -> Option<(usize, usize)> {
        let (first, last) = self.headers.get("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    }
}

/// With `%XX` and `+` as what they stand for.
fn decoded(text: &str) -> String {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        let digits = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(if bytes[at] == b'+' { b' ' } else { bytes[at] });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// One answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
    /// The length that the header states, where it is not that of the body: an answer to HEAD.
    pub(super) stated_len: Option<usize>,
}

impl Answer {
    pub(super) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), stated_len: None }
    }

    /// What S3 says of a failure.
    pub(super) fn error(status: u16, code: &str, rest: &str) -> Self {
        let xml = format!("<Error><Code>{code}</Code><Message>as the test wishes</Message>{rest}</Error>");
        Self::new(status, xml)
    }

    pub(super) fn header(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The bytes before the body.
    pub(super) fn head(&self) -> Vec<u8> {
        let len = self.stated_len.unwrap_or(self.body.len());
        let mut head = format!("HTTP/1.1 {} -\r\nContent-Length: {len}\r\n", self.status);
        for (name, value) in &self.headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        (head + "\r\n").into_bytes()
    }

    pub(super) fn write(&self, stream: &mut impl Write) -> io::Result<()> {
        let mut bytes = self.head();
        bytes.extend_from_slice(&self.body);
        stream.write_all(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read() {
        let text = b"PUT /b/a%20c?partNumber=2&uploadId=x%2F1 HTTP/1.1\r\nContent-Length: 3\r\nRange: bytes=4-9\r\n\r\nabcGET";
        let request = Request::read(&mut &text[..]).unwrap().unwrap();
        assert_eq!((&*request.method, &*request.path, &*request.body), ("PUT", "b/a c", &b"abc"[..]));
        assert_eq!((&*request.query["partNumber"], &*request.query["uploadId"]), ("2", "x/1"));
        assert_eq!(request.range(), Some((4, 9)));
        assert!(Request::read(&mut &b""[..]).unwrap().is_none());
    }
}
