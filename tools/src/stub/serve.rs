//! Answers requests, or fails them as it was told to.

use std::io::{self, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use super::http::{Answer, Request};
use super::{Fault, State, When, dates, locked};

/// Longer than any client waits.
const HANG: Duration = Duration::from_secs(60);

/// Between two bytes of a drip.
const DRIP: Duration = Duration::from_millis(500);

/// Between two looks whether a request is held still.
const HELD: Duration = Duration::from_millis(1);

/// Serves a connection until its client, or a fault, ends it.
pub(super) fn connection(stream: &TcpStream, state: &State) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(request) = Request::read(&mut reader)? {
        let mut fault = count(&request, state);
        if fault == Some(Fault::Held) {
            while locked(&state.fault).as_ref().is_some_and(|(fault, _)| *fault == Fault::Held) {
                thread::sleep(HELD);
            }
            fault = None;
        }
        // A copy: other requests wait at the same time.
        let latency = *locked(&state.latency);
        thread::sleep(latency);
        if !answer(stream, &request, fault, state)? {
            return stream.shutdown(Shutdown::Both);
        }
    }
    Ok(())
}

/// Counts a request and says what it meets.
fn count(request: &Request, state: &State) -> Option<Fault> {
    let mut requests = locked(&state.requests);
    let number = requests.total();
    requests.bytes_in += request.body.len() as u64;
    let is_part = request.query.contains_key("partNumber");
    let counter = match &*request.method {
        "GET" if request.query.contains_key("list-type") => &mut requests.list,
        "GET" => &mut requests.get,
        "HEAD" => &mut requests.head,
        "PUT" if is_part || request.query.is_empty() => &mut requests.put,
        _ => &mut requests.other,
    };
    *counter += 1;
    drop(requests);
    let fault = locked(&state.fault);
    let (fault, When { from, until, method, key }) = fault.as_ref()?;
    let meets = (*from..*until).contains(&number)
        && method.is_none_or(|method| method == request.method)
        && request.path.contains(&**key);
    meets.then_some(*fault)
}

/// `false`: the connection is to end.
fn answer(
    mut stream: &TcpStream,
    request: &Request,
    fault: Option<Fault>,
    state: &State,
) -> io::Result<bool> {
    match fault {
        Some(Fault::Status(status)) => Answer::error(status, "InternalError", "").write(&mut stream)?,
        Some(Fault::ExpiredToken) => {
            let repeated = request.headers.get("authorization").cloned().unwrap_or_default();
            let repeated = format!("<StringToSign>{repeated}</StringToSign>");
            Answer::error(400, "ExpiredToken", &repeated).write(&mut stream)?;
        }
        Some(Fault::Hang) => {
            thread::sleep(HANG);
            return Ok(false);
        }
        Some(Fault::Drop) => return Ok(false),
        Some(Fault::Unanswered) => {
            carry_out(request, false, state);
            return Ok(false);
        }
        Some(Fault::Collected) if request.method != "PUT" => {
            Answer::error(404, "NoSuchKey", "").write(&mut stream)?;
        }
        _ => {
            let is_unconditional = fault == Some(Fault::Unconditional);
            let ranged = if fault == Some(Fault::RangeIgnored) { None } else { request.range() };
            let answer = match &*request.method {
                "GET" | "HEAD" if !request.query.contains_key("list-type") => {
                    read(request, ranged, fault, state)
                }
                _ => carry_out(request, is_unconditional, state),
            };
            locked(&state.requests).bytes_out += answer.body.len() as u64;
            return send(stream, &answer, fault);
        }
    }
    Ok(true)
}

/// Sends an answer, or as much of it as the fault lets through.
fn send(mut stream: &TcpStream, answer: &Answer, fault: Option<Fault>) -> io::Result<bool> {
    match fault {
        Some(Fault::Drip) => {
            stream.write_all(&answer.head())?;
            for byte in &answer.body {
                stream.write_all(&[*byte])?;
                thread::sleep(DRIP);
            }
        }
        Some(Fault::Truncated) => {
            stream.write_all(&answer.head())?;
            stream.write_all(&answer.body[..answer.body.len() / 2])?;
            return Ok(false);
        }
        _ => answer.write(&mut stream)?,
    }
    Ok(true)
}

/// An object or a range of it.
fn read(request: &Request, range: Option<(usize, usize)>, fault: Option<Fault>, state: &State) -> Answer {
    let Some(object) = locked(&state.objects).get(&request.path) else {
        return Answer::error(404, "NoSuchKey", "");
    };
    let whole = object.bytes.len();
    let (first, last) = range.unwrap_or((0, whole.saturating_sub(1)));
    if range.is_some() && first >= whole {
        return Answer::error(416, "InvalidRange", "");
    }
    let end = (last + 1).min(whole);
    let mut bytes = object.bytes[first.min(end)..end].to_vec();
    let half = bytes.len() / 2;
    match fault {
        Some(Fault::Wrong) if !bytes.is_empty() => bytes[half] ^= 0x40,
        Some(Fault::Shifted) if !bytes.is_empty() => bytes.rotate_left(1),
        Some(Fault::Short) => bytes.truncate(half),
        _ => {}
    }
    let mut answer = Answer::new(if range.is_some() { 206 } else { 200 }, bytes)
        .header("ETag", format!("\"{whole}\""))
        .header("Last-Modified", dates::header(object.written));
    if range.is_some() {
        answer = answer.header("Content-Range", format!("bytes {first}-{}/{whole}", end - 1));
    }
    if request.method == "HEAD" {
        answer.stated_len = Some(answer.body.len());
        answer.body.clear();
    }
    answer
}

/// Everything but reading an object.
fn carry_out(request: &Request, is_unconditional: bool, state: &State) -> Answer {
    let mut objects = locked(&state.objects);
    let (name, query) = (&*request.path, &request.query);
    let upload = query.get("uploadId").map(String::as_str);
    match (&*request.method, upload) {
        ("PUT", Some(id)) => {
            let number = query.get("partNumber").and_then(|number| number.parse().ok()).unwrap_or(0);
            if objects.put_part(id, number, request.body.clone()) {
                return Answer::new(200, "").header("ETag", format!("\"{number}\""));
            }
            Answer::error(404, "NoSuchUpload", "")
        }
        ("PUT", None) => {
            let must_be_new = request.headers.contains_key("if-none-match") && !is_unconditional;
            if must_be_new && objects.get(name).is_some() {
                return Answer::error(412, "PreconditionFailed", "");
            }
            objects.put(name, request.body.clone());
            Answer::new(200, "").header("ETag", format!("\"{}\"", request.body.len()))
        }
        ("POST", Some(id)) if objects.complete_upload(id, name) => Answer::new(
            200,
            "<CompleteMultipartUploadResult><ETag>\"1\"</ETag></CompleteMultipartUploadResult>",
        ),
        ("POST", None) if query.contains_key("uploads") => {
            let id = objects.begin_upload();
            Answer::new(
                200,
                format!(
                    "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
                ),
            )
        }
        ("POST", None) if query.contains_key("delete") => {
            let body = String::from_utf8_lossy(&request.body);
            let keys = body.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next());
            let mut xml = "<DeleteResult>".to_owned();
            for key in keys {
                objects.remove(&format!("{name}/{key}"));
                xml.extend(["<Deleted><Key>", key, "</Key></Deleted>"]);
            }
            Answer::new(200, xml + "</DeleteResult>")
        }
        ("DELETE", upload) => {
            match upload {
                Some(id) => objects.abort_upload(id),
                None => objects.remove(name),
            }
            Answer::new(204, "")
        }
        ("GET", None) => {
            let field = |name: &str| query.get(name).map_or("", String::as_str);
            let after = [field("continuation-token"), field("start-after")];
            Answer::new(200, objects.list(name, field("prefix"), after.into_iter().max().unwrap_or("")))
        }
        _ => Answer::error(404, "NoSuchUpload", ""),
    }
}
