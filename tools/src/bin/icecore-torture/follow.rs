//! Readers that are there before and after a fault: each refresh finds a state of the script that is not before the last one,
//! and a view stays what it was when it was taken.

use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use icecore::{Error, Reader, View};

use crate::check::{Kind, Verdict};
use crate::examine::{examine_view, resembles};
use crate::script::Script;

/// The most views that a reader keeps.
const PINNED_MAX: usize = 16;

/// Between two refreshes.
const PAUSE: Duration = Duration::from_micros(300);

/// A reader that follows a script.
pub(crate) struct Follower<'s> {
    script: &'s Script,
    reader: Reader,
    /// The state that it saw last.
    state: usize,
    /// The views of the states that it saw, at their first and their last height.
    pinned: Vec<(usize, View)>,
}

impl<'s> Follower<'s> {
    /// Opens the archive; `None` where there is none.
    pub(crate) fn open(dir: &Path, script: &'s Script) -> Result<Option<Self>, Verdict> {
        let reader = match Reader::open(dir) {
            Err(Error::NotAnArchive { .. }) => return Ok(None),
            reader => reader?,
        };
        let mut follower = Self { script, reader, state: 0, pinned: Vec::new() };
        follower.look()?;
        Ok(Some(follower))
    }

    /// Takes over what is new.
    pub(crate) fn go_on(&mut self) -> Result<(), Verdict> {
        if self.reader.refresh()? { self.look() } else { Ok(()) }
    }

    /// The same between two operations of a writer that is at this state: it is seen as it is, its lowest height too.
    pub(crate) fn go_on_to(&mut self, state: usize) -> Result<(), Verdict> {
        self.go_on()?;
        self.expect(state)
    }

    fn expect(&self, state: usize) -> Result<(), Verdict> {
        let model = &self.script.states[state];
        if resembles(&self.reader, model)? {
            return Ok(());
        }
        let (range, expected) = (self.reader.range(), model.range());
        let why = format!("a reader that was there before sees {range:?} and not {expected:?}");
        Err(Verdict::new(Kind::Unseen, why))
    }

    fn look(&mut self) -> Result<(), Verdict> {
        for state in self.state..self.script.states.len() {
            if self.may_see(state)? {
                self.state = state;
                return self.pin();
            }
        }
        let (range, from) = (self.reader.range(), self.state);
        let why = format!("a reader that was there before sees {range:?}: no state from {from} on");
        Err(Verdict::new(Kind::Wrong, why))
    }

    /// Whether this is the state, but for its lowest height: a writer may prune and commit between the manifest and the log that
    /// one refresh reads. The manifest is not older than what the refresh before saw.
    fn may_see(&self, state: usize) -> Result<bool, Error> {
        let states = &self.script.states;
        let (Some((first, head)), Some((_, newest))) = (self.reader.range(), states[state].range()) else {
            return resembles(&self.reader, &states[state]);
        };
        let view = self.reader.latest()?;
        let is_floor =
            states[self.state..=state].iter().any(|state| state.range().is_some_and(|r| r.0 == first));
        Ok(is_floor && head == newest && Some((view.block()?, view.root()?)) == states[state].block_at(head))
    }

    fn pin(&mut self) -> Result<(), Verdict> {
        let Some((first, head)) = self.script.states[self.state].range() else { return Ok(()) };
        if self.pinned.len() < PINNED_MAX {
            self.pinned.push((self.state, self.reader.at(first)?));
            self.pinned.push((self.state, self.reader.at(head)?));
        }
        Ok(())
    }

    /// The script is at its end: so is what the reader sees, and its views are what they were.
    pub(crate) fn finish(mut self) -> Result<(), Verdict> {
        self.go_on_to(self.script.ops.len())?;
        for (state, view) in &self.pinned {
            let model = &self.script.states[*state];
            let bad = |bad: Verdict| Verdict { why: format!("a view of state {state}: {}", bad.why), ..bad };
            examine_view(view, model, &model.keys(), view.height()).map_err(|why| bad(why.into()))?;
        }
        Ok(())
    }
}

/// Follows an archive, from before there is one until standard input is closed.
pub(crate) fn until_told(dir: &Path, script: &Script) -> Result<Verdict, Verdict> {
    let is_over = AtomicBool::new(false);
    let follow = || -> Result<Option<Follower<'_>>, Verdict> {
        let mut follower = None;
        while !is_over.load(Ordering::Acquire) {
            match &mut follower {
                None => follower = Follower::open(dir, script)?,
                Some(follower) => follower.go_on()?,
            }
            thread::sleep(PAUSE);
        }
        Ok(follower)
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            // Nothing is sent: this ends when the other end is closed.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            is_over.store(true, Ordering::Release);
        });
        if let Some(follower) = follow()? {
            follower.finish()?;
        }
        Ok(Verdict::good(script.ops.len()))
    })
}
