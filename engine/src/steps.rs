//! The length of a step, and the conversion between heights and steps.
//!
//! The length is chosen when an archive is created and stands in its manifest.

use std::num::NonZeroU64;

use icecore_segments::step::{BlockNumber, Step, StepRange};

/// The number of blocks in a step. Step `s` holds the heights `[s * len, (s + 1) * len)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepLen(pub(crate) NonZeroU64);

impl StepLen {
    /// The step that holds `height`.
    pub(crate) fn step_of(self, height: BlockNumber) -> Step {
        Step(height / self.0)
    }

    /// The first height of a step.
    pub(crate) fn first_block(self, step: Step) -> BlockNumber {
        step.0.saturating_mul(self.0.get())
    }

    /// The heights of a range of steps, both inside.
    pub(crate) fn blocks(self, steps: StepRange) -> (BlockNumber, BlockNumber) {
        (self.first_block(steps.from()), self.first_block(steps.to()).saturating_sub(1))
    }

    /// The first step that must stay in memory: every step before it is complete and has left the reorg window.
    pub(crate) fn emission_boundary(self, head: BlockNumber, reorg_window: u64) -> Step {
        Step(head.saturating_add(1).saturating_sub(reorg_window) / self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_leaves_when_its_last_block_leaves_the_window() {
        let len = StepLen(NonZeroU64::new(10).unwrap());
        for (head, window, boundary) in
            [(8, 0, 0), (9, 0, 1), (18, 0, 1), (19, 0, 2), (14, 5, 1), (13, 5, 0), (3, 9, 0)]
        {
            assert_eq!(len.emission_boundary(head, window), Step(boundary), "head={head} window={window}");
        }
        assert_eq!(len.first_block(Step(2)), 20);
        assert_eq!(len.step_of(29), Step(2));
    }
}
