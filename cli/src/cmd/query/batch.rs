//! The requests that can be had without waiting, and their answers in order.

use std::iter::once;
use std::ops::Range;
use std::thread;

use icecore::{DomainHandle, View};

use super::answer::{OfKey, Request, begin, respond};
use crate::ask::Asked;
use crate::exit::Failure;
use crate::input::Lines;
use crate::number::Height;
use crate::print::Out;

/// Fewer requests than these are no work for another thread: starting one takes as long as answering some ten.
const LINES_PER_THREAD: usize = 64;

/// Lines that were read and not answered. See the module.
pub(super) struct Batch {
    text: Vec<u8>,
    /// Where each line ends in the text.
    ends: Vec<usize>,
    threads_max: usize,
}

impl Batch {
    /// An empty one, to be answered by as many threads as there are processors.
    pub(super) fn new() -> Self {
        let threads_max = thread::available_parallelism().map_or(1, usize::from);
        Self { text: Vec::new(), ends: Vec::new(), threads_max }
    }

    /// Takes the next line, waiting for it, and all that can then be had without waiting, instead of those that it holds. `false`
    /// after the last line.
    ///
    /// # Errors
    /// The input cannot be read. The lines before are taken all the same.
    pub(super) fn fill(&mut self, lines: &mut Lines) -> Result<bool, Failure> {
        self.text.clear();
        self.ends.clear();
        loop {
            let Some(line) = lines.next_line()? else { return Ok(false) };
            self.text.extend_from_slice(line);
            self.ends.push(self.text.len());
            if !lines.has_line() {
                return Ok(true);
            }
        }
    }

    fn line(&self, number: usize) -> &[u8] {
        let from = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[from..self.ends[number]]
    }

    /// Answers all lines, after a look at what was committed meanwhile. Returns the first failure that is the archive's fault.
    ///
    /// # Errors
    /// Nobody reads the answers.
    pub(super) fn answer(&self, asked: &Asked, out: &mut Out) -> Result<Option<Failure>, Failure> {
        let (mut broken, mut first) = (None, 0);
        if self.ends.is_empty() {
            return Ok(None);
        }
        if let Err(failure) = asked.refresh() {
            // Where the manifest cannot be read now, one request gets the error; a later one may find it again.
            broken = respond(asked, self.line(0), Err(failure), out)?;
            first = 1;
        }
        for run in self.runs(asked, first) {
            let mut written = 0;
            for (place, number) in run.left {
                out.with(|out| out.write_all(&run.text[written..place]))?;
                written = place;
                let fault = respond(asked, self.line(number), Ok(()), out)?;
                broken = broken.or(fault);
            }
            out.with(|out| out.write_all(&run.text[written..]))?;
        }
        Ok(broken)
    }

    /// The answers to the lines from `first` on: consecutive runs, each made by a thread of its own.
    fn runs(&self, asked: &Asked, first: usize) -> Vec<Run> {
        let lines = self.ends.len() - first;
        let threads = (lines / LINES_PER_THREAD).clamp(1, self.threads_max);
        let share = lines.div_ceil(threads);
        let part = |thread: usize| first + lines.min(thread * share)..first + lines.min((thread + 1) * share);
        thread::scope(|scope| {
            let others = (1..threads).map(|thread| scope.spawn(move || self.run(asked, part(thread))));
            let others: Vec<_> = others.collect();
            let own = self.run(asked, part(0));
            let others = others.into_iter().map(|thread| thread.join().expect("answering does not panic"));
            once(own).chain(others).collect()
        })
    }

    fn run(&self, asked: &Asked, lines: Range<usize>) -> Run {
        let mut gets = Gets { asked, view: None, domain: None };
        let mut run = Run { text: Vec::with_capacity(64 * lines.len()), left: Vec::new() };
        for number in lines {
            let place = run.text.len();
            if gets.answer(self.line(number), &mut run.text).is_none() {
                run.text.truncate(place);
                run.left.push((place, number));
            }
        }
        run
    }
}

/// The answers to a run of lines.
struct Run {
    text: Vec<u8>,
    /// Where in the text the answer to which line is still to come.
    left: Vec<(usize, usize)>,
}

/// Answers sound `get`s, and remembers what consecutive ones share.
struct Gets<'a> {
    asked: &'a Asked,
    view: Option<(Height, View)>,
    domain: Option<DomainHandle>,
}

impl Gets<'_> {
    /// Appends the answer. `None` where the request is another one, or cannot be answered: then what was appended counts for nothing.
    fn answer(&mut self, line: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let request: Request = serde_json::from_slice(line).ok()?;
        let Request { id, get: Some(of), scan: None, history: None, root: None, prove: None } = request
        else {
            return None;
        };
        let value = self.value(&of)?;
        begin(id, out).ok()?;
        out.extend_from_slice(b"\"value\":");
        let name = self.asked.domain(of.domain.as_deref()).ok()?;
        self.asked.face_of(name).write_json_value(value.as_deref(), out).ok()?;
        out.extend_from_slice(b"}\n");
        Some(())
    }

    fn value(&mut self, of: &OfKey<'_>) -> Option<Option<Vec<u8>>> {
        let name = self.asked.domain(of.domain.as_deref()).ok()?;
        let key = self.asked.key(name, &of.key).ok()?;
        let height = of.at.unwrap_or_default();
        if self.view.as_ref().is_none_or(|(known, _)| *known != height) {
            self.view = Some((height, self.asked.view(of.at).ok()?));
        }
        let (_, view) = self.view.as_ref()?;
        if self.domain.as_ref().is_none_or(|known| known.domain().name != name) {
            self.domain = self.asked.reader.domain(name).ok();
        }
        let Some(domain) = &self.domain else { return self.asked.value(view, name, name, &key).ok() };
        self.asked.value(view, domain, name, &key).ok()
    }
}
