//! A case: one script and what happens to it. Its printed name is enough to repeat it.
//!
//! ```text
//! block.emit.7.30                               the script of seed 7 with 30 operations, synced per block, emission by `commit`
//! block.emit.7.30+kill-before@123               killed before call 123
//! group3.inline.7.30+EIO@55                     call 55 fails
//! relaxed.emit.7.30+loss@200#5                  power lost after event 200 of the trace, image 5
//! block.emit.7.30+kill-after@123+loss@40#5      killed; power lost after event 40 of the recovery
//! block.emit.7.30+flip@MANIFEST:17:1            a bit of a file flipped when the script is through
//! block.emit.7.30+stale@MANIFEST:4              a file replaced by its fifth version when the script is through
//! block.emit.7.30+exchanged@a.0-1.kv:a.1-2.kv   two files exchanged
//! block.emit.7.30+foreign@a.0-1.kv              a file replaced by that of the script's twin, which has other values
//! ...+without@log-record                        a sync or a check is taken out
//! ```

use std::fmt;
use std::str::FromStr;

use icecore::{Durability, Maintenance, OpenOptions};

use crate::controls::Control;
use crate::script::{Op, Script};
use crate::shim::How;
use crate::swaps::Swap;

/// Blocks per sync in group mode.
const GROUP: u32 = 3;

/// When blocks are synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SyncMode {
    Block,
    Group,
    Relaxed,
}

impl SyncMode {
    pub(crate) const ALL: [Self; 3] = [Self::Block, Self::Group, Self::Relaxed];

    /// The first state that a power loss may leave, when the operations before `done` have returned.
    pub(crate) fn floor(self, script: &Script, done: usize) -> usize {
        let mut floor = done;
        let mut lost = 0;
        let mut step = None;
        while floor > 0 {
            // What a prune or unwinding that had nothing to do promises is nothing.
            let is_idle = script.states[floor - 1].range() == script.states[floor].range();
            match &script.ops[floor - 1] {
                Op::Emit | Op::Merge | Op::Reindex { .. } | Op::Rebuild | Op::Checkpoint => {}
                Op::Prune { .. } | Op::Unwind { .. } if is_idle => {}
                Op::Commit { height, .. } => {
                    let step = *step.get_or_insert(height / script.blocks_per_step);
                    let may_go = match self {
                        Self::Block => false,
                        Self::Group => lost < GROUP,
                        Self::Relaxed => height / script.blocks_per_step == step,
                    };
                    if !may_go {
                        break;
                    }
                    lost += 1;
                }
                _ => break,
            }
            floor -= 1;
        }
        floor
    }

    fn durability(self) -> Durability {
        match self {
            Self::Block => Durability::Block,
            Self::Group => Durability::Group { blocks: GROUP },
            Self::Relaxed => Durability::Relaxed,
        }
    }
}

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScriptId {
    pub(crate) sync: SyncMode,
    pub(crate) maintenance: Maintenance,
    pub(crate) seed: u64,
    pub(crate) len: usize,
}

impl ScriptId {
    pub(crate) fn open_options(self) -> OpenOptions {
        // Of the archives for Ethereum every other one reads the leaves of each block.
        let memory = if self.seed.is_multiple_of(2) { 0 } else { u64::MAX };
        let options = OpenOptions::new().durability(self.sync.durability()).maintenance(self.maintenance);
        options.tree_memory(memory)
    }

    pub(crate) fn script(self) -> Script {
        Script::new(self.seed, self.len)
    }
}

/// A power loss: after this many events of the trace, and which of its outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) at: usize,
    pub(crate) image: u64,
}

/// A bit of a file of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flip {
    pub(crate) file: String,
    pub(crate) offset: u64,
    pub(crate) bit: u8,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) id: ScriptId,
    /// The fault at the n-th call.
    pub(crate) call: Option<(How, u32)>,
    /// In the run, or in the recovery after a kill.
    pub(crate) loss: Option<Loss>,
    pub(crate) flip: Option<Flip>,
    pub(crate) swap: Option<Swap>,
    pub(crate) without: Option<Control>,
}

impl Case {
    pub(crate) fn plain(id: ScriptId) -> Self {
        Self { id, call: None, loss: None, flip: None, swap: None, without: None }
    }

    /// Whether the power is lost in the recovery, not in the run.
    pub(crate) fn has_recovery(&self) -> bool {
        self.call.is_some_and(|(how, _)| how.kills())
    }
}

impl fmt::Display for ScriptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sync = match self.sync {
            SyncMode::Block => "block",
            SyncMode::Group => "group3",
            SyncMode::Relaxed => "relaxed",
        };
        let maintenance = match self.maintenance {
            Maintenance::Background => "background",
            Maintenance::Inline => "inline",
            _ => "emit",
        };
        write!(f, "{sync}.{maintenance}.{}.{}", self.seed, self.len)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)?;
        if let Some((how, at)) = self.call {
            write!(f, "+{how}@{at}")?;
        }
        if let Some(loss) = self.loss {
            write!(f, "+loss@{}#{}", loss.at, loss.image)?;
        }
        if let Some(flip) = &self.flip {
            write!(f, "+flip@{flip}")?;
        }
        if let Some(swap) = &self.swap {
            write!(f, "+{swap}")?;
        }
        if let Some(control) = self.without {
            write!(f, "+without@{}", control.name())?;
        }
        Ok(())
    }
}

impl FromStr for ScriptId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is no script: SYNC.MAINTENANCE.SEED.LENGTH, such as block.emit.7.30");
        let [sync, maintenance, seed, len] = text.split('.').collect::<Vec<_>>()[..] else {
            return Err(bad());
        };
        let sync = match sync {
            "block" => SyncMode::Block,
            "group3" => SyncMode::Group,
            "relaxed" => SyncMode::Relaxed,
            _ => return Err(bad()),
        };
        let maintenance = match maintenance {
            "background" => Maintenance::Background,
            "inline" => Maintenance::Inline,
            "emit" => Maintenance::EmitOnly,
            _ => return Err(bad()),
        };
        let (seed, len) = (seed.parse().map_err(|_| bad())?, len.parse().map_err(|_| bad())?);
        Ok(Self { sync, maintenance, seed, len })
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('+');
        let mut case = Self::plain(parts.next().unwrap_or_default().parse()?);
        for part in parts {
            let bad = || format!("{part:?} is no fault");
            let (what, place) = part.split_once('@').ok_or_else(bad)?;
            match what {
                "loss" => {
                    let (at, image) = place.split_once('#').ok_or_else(bad)?;
                    let (at, image) = (at.parse().map_err(|_| bad())?, image.parse().map_err(|_| bad())?);
                    case.loss = Some(Loss { at, image });
                }
                "stale" | "exchanged" | "foreign" => case.swap = Some(part.parse()?),
                "flip" => case.flip = Some(place.parse()?),
                "without" => case.without = Some(Control::by_name(place).ok_or_else(bad)?),
                how => case.call = Some((how.parse()?, place.parse().map_err(|_| bad())?)),
            }
        }
        Ok(case)
    }
}

impl fmt::Display for Flip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.offset, self.bit)
    }
}

impl FromStr for Flip {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (rest, bit) = text.rsplit_once(':')?;
            let (file, offset) = rest.rsplit_once(':')?;
            let bit: u8 = bit.parse().ok().filter(|bit| *bit < 8)?;
            Some(Self { file: file.to_owned(), offset: offset.parse().ok()?, bit })
        };
        parse().ok_or_else(|| format!("{text:?} is no bit: FILE:OFFSET:BIT"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back() {
        for name in [
            "block.emit.7.30",
            "group3.inline.8.30+EIO@55",
            "relaxed.background.9.12+kill-after@123+loss@40#5",
            "block.emit.7.30+ENOSPC-from@4",
            "block.emit.7.30+flip@wal/0000000000000001.wal:17:3",
            "block.emit.7.30+stale@MANIFEST:4",
            "block.emit.7.30+exchanged@a.0-1.kv:a.1-2.1.kv",
            "block.emit.7.30+foreign@wal/0000000000000001.wal",
            "relaxed.emit.7.30+loss@200#5+without@log-record",
        ] {
            assert_eq!(name.parse::<Case>().unwrap().to_string(), name);
        }
        for name in
            ["", "block.emit.7", "block.emit.7.30+EIO", "block.emit.7.30+E@1", "block.emit.7.30+loss@1"]
        {
            assert!(name.parse::<Case>().is_err(), "{name}");
        }
    }
}
