//! How far the probe is, on standard error and only where that is a terminal.
//!
//! The bar is drawn between measurements alone: nothing works beside what is measured.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Counts measurements, each a series of lookups or the building of what they need.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Nothing to do yet.
    pub(crate) fn new() -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}");
        Self(match style {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        })
    }

    /// There are this many measurements more.
    pub(crate) fn expect(&self, measurements: usize) {
        self.0.inc_length(measurements as u64);
    }

    /// Measures, and says what while it lasts.
    pub(crate) fn measure<T>(&self, what: String, work: impl FnOnce() -> T) -> T {
        self.0.set_message(what);
        self.0.tick();
        let result = work();
        self.0.inc(1);
        result
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
