//! Progress of long work on standard error: bars where that is a terminal, under `--verbose` a line for each task.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};

use icecore::ProgressListener;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::notes::{detail, is_quiet, is_verbose};
use crate::print::count;

/// How often the terminal is written.
const DRAWS_HZ: u8 = 8;

/// A bar over `total` bytes of input, or a spinner where nobody knows how much there is.
pub(crate) fn input(total: Option<u64>) -> ProgressBar {
    let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let template = match total {
        Some(_) => "{bar:30} {bytes}/{total_bytes} {msg} eta {eta}",
        None => "{spinner} {bytes} {msg}",
    };
    styled(bar, template)
}

/// Shows the archive's long work, a task after the other.
pub(crate) struct Bars(Mutex<Option<ProgressBar>>);

impl Bars {
    /// Nothing is shown before a task begins.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(None))
    }

    fn with(&self, change: impl FnOnce(&mut Option<ProgressBar>)) {
        // A panic elsewhere leaves a bar that can still be drawn.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl ProgressListener for Bars {
    fn begin(&self, task: &str, units: Option<u64>) {
        let bar = units.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        let template = match units {
            Some(_) => "{bar:30} {human_pos}/{human_len} {msg} eta {eta}",
            None => "{spinner} {human_pos} {msg} {elapsed}",
        };
        let bar = styled(bar, template).with_message(task.to_owned());
        bar.reset_elapsed();
        self.with(|shown| *shown = Some(bar));
    }

    fn advance(&self, units: u64) {
        self.with(|shown| {
            if let Some(bar) = shown {
                bar.inc(units);
            }
        });
    }

    fn end(&self) {
        self.with(|shown| {
            if let Some(bar) = shown.take() {
                detail(format_args!(
                    "{}: {} in {:.2} s",
                    bar.message(),
                    count(bar.position()),
                    bar.elapsed().as_secs_f64()
                ));
                bar.finish_and_clear();
            }
        });
    }
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    // The lines of `--verbose` and a bar would tear each other.
    if std::io::stderr().is_terminal() && !is_quiet() && !is_verbose() {
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(DRAWS_HZ));
    } else {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
