//! The campaign: scripts one after another, each hit in many ways, until the time is up.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use icecore::Maintenance;
use icecore_tools::workload::SplitMix64;

use crate::case::{Case, Loss, ScriptId, SyncMode};
use crate::check::{Kind, Verdict};
use crate::controls::Control;
use crate::report::{Family, Report};
use crate::rig::{Failure, Place, Rig, Run};
use crate::script::Script;
use crate::shim::How;
use crate::trace::{Change, Class};

/// How much is done to a script.
#[derive(Clone, Copy)]
struct Plan {
    /// Calls that are hit.
    calls: u64,
    /// Of these, how many are followed by power losses.
    repeated: u64,
    /// Power losses of the run, and of each of those.
    losses: u64,
    losses_repeated: u64,
    flips: u64,
    swaps: u64,
}

impl Plan {
    /// A part of everything; with a control, what can show its absence.
    fn of(control: Option<Control>) -> Self {
        let nothing = Self { calls: 0, repeated: 0, losses: 0, losses_repeated: 0, flips: 0, swaps: 0 };
        match control {
            None => Self { calls: 12, repeated: 4, losses: 16, losses_repeated: 4, flips: 24, swaps: 24 },
            Some(control) if control.needs_second_fault() => {
                Self { calls: 12, repeated: 12, losses_repeated: 6, ..nothing }
            }
            Some(Control::Sync(_)) => Self { losses: 64, ..nothing },
            Some(control) if control.is_of_swaps() => Self { swaps: 96, ..nothing },
            Some(Control::Check(_)) => Self { flips: 96, ..nothing },
        }
    }
}

/// Failing cases whose folders are left.
const KEPT_MAX: usize = 10;

/// Operations of a script.
pub(crate) const SCRIPT_LEN: usize = 30;

/// A campaign under way.
pub(crate) struct Campaign<'r> {
    rig: &'r Rig,
    deadline: Instant,
    /// What is left out of all of it.
    control: Option<Control>,
    report: Mutex<Report>,
    kept: AtomicUsize,
    /// The first failing case and what was found, in a campaign that ends there.
    caught: Mutex<Option<(Case, Verdict)>>,
}

impl<'r> Campaign<'r> {
    pub(crate) fn new(rig: &'r Rig, time: Duration, control: Option<Control>) -> Self {
        Self {
            rig,
            deadline: Instant::now() + time,
            control,
            report: Mutex::default(),
            kept: AtomicUsize::new(0),
            caught: Mutex::default(),
        }
    }

    /// Goes from script to script on this many threads until the time is up; with a control, until it is caught.
    pub(crate) fn run(&self, seed: u64, jobs: usize) -> Result<(), Failure> {
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let work = || -> Result<(), Failure> {
                while !self.is_over() {
                    self.script(script_id(seed, next.fetch_add(1, Ordering::Relaxed)))?;
                }
                Ok(())
            };
            let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("a worker returns its errors"))
        })
    }

    pub(crate) fn into_report(self) -> (Report, Option<(Case, Verdict)>) {
        let caught = self.caught.into_inner().expect("no worker panics");
        (self.report.into_inner().expect("no worker panics"), caught)
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.deadline || self.caught.lock().expect("no worker panics").is_some()
    }

    /// Everything that is done to one script.
    fn script(&self, id: ScriptId) -> Result<(), Failure> {
        let (plan, mut random) = (Plan::of(self.control), SplitMix64::new(id.seed ^ 0x7042_7475_7265));
        let plain = Case { without: self.control, ..Case::plain(id) };
        let mut run = self.rig.drive_followed(&plain)?;
        let script = id.script();
        self.flips(&plain, &run, plan.flips, &mut random)?;
        self.swaps(&plain, &run, plan.swaps, &mut random)?;
        self.losses(Family::PowerLoss, &plain, &script, &run, plan.losses, &mut random)?;
        let calls: Vec<Class> =
            run.events.iter().map(|event| event.class).filter(|class| *class != Class::None).collect();
        let verdict = self.rig.check_run(&plain, &mut run)?;
        self.note(Family::Nothing, &plain, String::new(), verdict, None)?;
        for i in 0..plan.calls {
            if self.is_over() {
                break;
            }
            let is_repeated = i < plan.repeated;
            let (how, at) = match self.control.and_then(Control::kill_after) {
                Some(class) => (How::KillAfter, draw_of(&calls, |found| found == class, &mut random)),
                None => draw_call(&calls, is_repeated, &mut random),
            };
            let case = Case { call: Some((how, at as u32 + 1)), ..plain.clone() };
            let losses = if is_repeated { plan.losses_repeated } else { 0 };
            self.call(&case, how, &script, losses, &mut random)?;
        }
        Ok(())
    }

    /// One call is hit; then perhaps the power goes, in the recovery after a kill, at any later moment after a failure.
    fn call(
        &self,
        case: &Case,
        how: How,
        script: &Script,
        losses: u64,
        random: &mut SplitMix64,
    ) -> Result<(), Failure> {
        let mut run = self.rig.drive_followed(case)?;
        if losses > 0 && how.kills() {
            let mut copy = self.rig.drive(case.id, case.call, self.control)?;
            self.rig.recover(case.id, &mut copy, self.control)?;
            self.losses(Family::RecoveryLoss, case, script, &copy, losses, random)?;
        } else if losses > 0 {
            self.losses(Family::ErrnoLoss, case, script, &run, losses, random)?;
        }
        let family = if how.kills() { Family::Kill } else { Family::Errno };
        let verdict = self.rig.check_run(case, &mut run)?;
        self.note(family, case, format!("{:?}", case.call.map(|call| call.1)), verdict, Some(run.place))
    }

    fn losses(
        &self,
        family: Family,
        case: &Case,
        script: &Script,
        run: &Run,
        count: u64,
        random: &mut SplitMix64,
    ) -> Result<(), Failure> {
        let points = run.loss_points(case);
        // Right after a promise was made it is easiest to break, and right after a rename the order of names counts.
        let promises = run.points_after(case, &points, |change| matches!(change, Change::Ack { .. }));
        let renames = run.points_after(case, &points, |change| matches!(change, Change::Rename { .. }));
        for _ in 0..count {
            if self.is_over() || points.is_empty() {
                break;
            }
            let wanted = [&promises, &promises, &renames, &points][random.below(4) as usize];
            let from = if wanted.is_empty() { &points } else { wanted };
            let at = from[random.below(from.len() as u64) as usize];
            let loss = Loss { at, image: draw_image(random) };
            let case = Case { loss: Some(loss), ..case.clone() };
            let (verdict, place) = self.rig.check_loss(&case, script, run, loss)?;
            self.note(family, &case, format!("{:?} {at}", case.call), verdict, Some(place))?;
        }
        Ok(())
    }

    fn flips(&self, plain: &Case, run: &Run, count: u64, random: &mut SplitMix64) -> Result<(), Failure> {
        for (flip, verdict) in self.rig.check_flips(plain, run, random.next_u64(), count)? {
            let case = Case { flip: Some(flip.clone()), ..plain.clone() };
            self.note(Family::Flip, &case, flip.to_string(), verdict, None)?;
        }
        Ok(())
    }

    fn swaps(&self, plain: &Case, run: &Run, count: u64, random: &mut SplitMix64) -> Result<(), Failure> {
        // What is done in the background depends on time, and so do the names of files.
        if plain.id.maintenance == Maintenance::Background || count == 0 {
            return Ok(());
        }
        for (swap, verdict) in self.rig.check_swaps(plain, run, random.next_u64(), count)? {
            let case = Case { swap: Some(swap.clone()), ..plain.clone() };
            self.note(Family::Swap, &case, swap.to_string(), verdict, None)?;
        }
        Ok(())
    }

    /// Counts a run. A failure is told at once, and leaves its folder. In a campaign with a control it counts when the same
    /// case succeeds without the control, and ends the campaign.
    fn note(
        &self,
        family: Family,
        case: &Case,
        point: String,
        verdict: Verdict,
        place: Option<Place>,
    ) -> Result<(), Failure> {
        self.report.lock().expect("no worker panics").add(family, format!("{} {point}", case.id), &verdict);
        if verdict.kind == Kind::Good {
            return Ok(());
        }
        if self.control.is_some() {
            let sound = Case { without: None, ..case.clone() };
            if verdict.kind != Kind::Unseen && repeat(self.rig, &sound)?.0.kind == Kind::Good {
                self.caught.lock().expect("no worker panics").get_or_insert((case.clone(), verdict));
            }
            return Ok(());
        }
        let kept = place.filter(|_| self.kept.fetch_add(1, Ordering::Relaxed) < KEPT_MAX).map(Place::keep);
        tell(case, &verdict, kept);
        Ok(())
    }
}

fn tell(case: &Case, verdict: &Verdict, kept: Option<PathBuf>) {
    eprintln!("{}: {}\n  repeat: icecore-torture replay {case}", verdict.kind, verdict.why);
    if let Some(kept) = kept {
        eprintln!("  what was left: {}", kept.display());
    }
}

/// The extremes come first among images, and as often as each of five others.
fn draw_image(random: &mut SplitMix64) -> u64 {
    match random.below(8) {
        extreme @ 0..=2 => extreme,
        _ => 3 + random.below(1 << 16),
    }
}

/// Which call is hit, and how. Where power losses follow, those that sync and rename more often than the many that write.
fn draw_call(calls: &[Class], followed: bool, random: &mut SplitMix64) -> (How, usize) {
    let any = !followed || random.below(2) == 0;
    let at = draw_of(calls, |class| any || matches!(class, Class::Sync | Class::Rename), random);
    let kinds = How::of(calls[at]);
    (kinds[random.below(kinds.len() as u64) as usize], at)
}

/// One of the calls of some classes. Creating an archive makes a call of every class that is asked for.
fn draw_of(calls: &[Class], is_wanted: impl Fn(Class) -> bool, random: &mut SplitMix64) -> usize {
    let wanted: Vec<usize> = (0..calls.len()).filter(|at| is_wanted(calls[*at])).collect();
    wanted[random.below(wanted.len() as u64) as usize]
}

/// The n-th script of a campaign: every way of syncing and of maintenance in turn.
fn script_id(seed: u64, n: u64) -> ScriptId {
    use Maintenance::{Background, EmitOnly, Inline};
    let sync = SyncMode::ALL[(n % 3) as usize];
    let maintenance = [EmitOnly, Inline, EmitOnly, Inline, Background][(n / 3 % 5) as usize];
    ScriptId { sync, maintenance, seed: seed.wrapping_add(n), len: SCRIPT_LEN }
}

/// Runs one case again.
fn repeat(rig: &Rig, case: &Case) -> Result<(Verdict, Place), Failure> {
    let mut run = if case.loss.is_none() && case.flip.is_none() && case.swap.is_none() {
        rig.drive_followed(case)?
    } else {
        rig.drive(case.id, case.call, case.without)?
    };
    if let Some(loss) = case.loss {
        if case.has_recovery() {
            rig.recover(case.id, &mut run, case.without)?;
        }
        return rig.check_loss(case, &case.id.script(), &run, loss);
    }
    let verdict = if case.flip.is_some() {
        let flips = rig.check_flips(case, &run, 0, 1)?;
        flips.into_iter().next().ok_or("a flip has a verdict")?.1
    } else if case.swap.is_some() {
        let swaps = rig.check_swaps(case, &run, 0, 1)?;
        swaps.into_iter().next().ok_or("a swap has a verdict")?.1
    } else {
        rig.check_run(case, &mut run)?
    };
    Ok((verdict, run.place))
}

/// Runs one case again and tells what is found.
pub(crate) fn replay(rig: &Rig, case: &Case) -> Result<bool, Failure> {
    let script = case.id.script();
    for (i, op) in script.ops.iter().enumerate() {
        eprintln!("{i:>4} {op:<32} then {:?}", script.states[i + 1].range());
    }
    let (verdict, place) = repeat(rig, case)?;
    let state = verdict.state.map_or(String::new(), |state| format!(": state {state}"));
    println!("{}{state} {}", verdict.kind, verdict.why);
    let is_good = verdict.kind == Kind::Good;
    if !is_good {
        println!("what was left: {}", place.keep().display());
    }
    Ok(is_good)
}
