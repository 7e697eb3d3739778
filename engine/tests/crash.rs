//! Is every prefix of I/O recoverable? A scripted history is stopped before every operation on the disk, by kill and by
//! power loss, opened again, compared with the oracle and written on; then stopped again while it recovers. Then the
//! same history with one operation that fails while the process lives on.
//!
//! `ICECORE_SEED` chooses another history, `ICECORE_STRIDE=1` tries every operation.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod oracle;

use std::sync::Mutex;

use icecore::testing::{Fault, SimStorage};
use icecore::{
    Archive, Commitment, Durability, Error, ErrorKind, Maintenance, OpenOptions, Options, Reader, VerifyMode,
    verify_on,
};
use oracle::script::{
    PATH, Script, Step, fresh, options, options_by_path, options_of, options_with, play, storage,
};
use oracle::{DOMAINS, Oracle, commit, ethereum};

/// The commitment of most runs: it has more kinds of files than the others.
const NATIVE: Commitment = Commitment::Icecore;

fn seed() -> u64 {
    std::env::var("ICECORE_SEED").map_or(7, |seed| seed.parse().unwrap())
}

/// How many operations are between two that are tried; `ICECORE_STRIDE` (1: all of them) overrides it.
fn stride(usual: u64) -> u64 {
    std::env::var("ICECORE_STRIDE").map_or(usual, |stride| stride.parse().unwrap())
}

fn with(durability: Durability, maintenance: Maintenance) -> OpenOptions {
    // A tree that may have nothing reads the leaves of every block.
    let memory = if maintenance == Maintenance::Inline { 0 } else { u64::MAX };
    OpenOptions::new().durability(durability).maintenance(maintenance).tree_memory(memory)
}

/// Does all cases on a few threads of their own: a case that waits inside a rayon pool would be given another case to do
/// on the same stack.
fn in_parallel<T: Send>(cases: impl IntoIterator<Item = T, IntoIter: Send>, work: impl Fn(T) + Sync) {
    let cases = Mutex::new(cases.into_iter());
    let next = || cases.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(case) = next() {
                    work(case);
                }
            });
        }
    });
}

/// What may be there after a crash.
#[derive(Clone)]
struct Allowed {
    /// Before and after the step that was under way.
    states: [Oracle; 2],
    /// The lowest head that the durability allows, if blocks may be lost.
    floor: Option<u64>,
    /// For messages.
    what: String,
}

impl Allowed {
    /// The state that an archive with this range must have.
    fn find(&self, range: Option<(u64, u64)>) -> Oracle {
        let lost = |state: &Oracle| {
            let (floor, Some((_, head))) = (self.floor?, range) else {
                // No block was durable yet.
                return (self.floor == Some(0)).then(|| state.before_any_block());
            };
            let mut state = state.clone();
            state.unwind(head);
            (floor <= head && state.range() == range).then_some(state)
        };
        let whole = self.states.iter().rev().find(|state| state.range() == range).cloned();
        let allowed: Vec<_> = self.states.iter().map(Oracle::range).collect();
        whole.or_else(|| self.states.iter().rev().find_map(lost)).unwrap_or_else(|| {
            panic!("{}: found {range:?}, allowed {allowed:?} from {:?}", self.what, self.floor)
        })
    }
}

/// A run of a script with a copy of the disk before operations, and what may be there in each copy.
struct Campaign {
    steps: Vec<Step>,
    states: Vec<Oracle>,
    /// The number of operations before each step and after the last.
    marks: Vec<u64>,
    start: SimStorage,
    open: OpenOptions,
}

impl Campaign {
    fn new(steps: Vec<Step>, open: OpenOptions) -> Self {
        Self::with(options(), steps, open)
    }

    fn with(options: Options, steps: Vec<Step>, open: OpenOptions) -> Self {
        let start = fresh(options, open);
        let disk = start.kill_clone();
        let archive = Archive::open_on(storage(&disk), PATH, open).unwrap();
        let (mut states, mut marks) = (vec![play(&archive, &[])], vec![disk.operations()]);
        for step in &steps {
            let next = states.last().unwrap().clone();
            states.push(oracle::script::advance(&archive, step, next));
            marks.push(disk.operations());
        }
        Self { steps, states, marks, start, open }
    }

    fn operations(&self) -> u64 {
        *self.marks.last().unwrap()
    }

    /// What may be there when everything before operation `at` happened. `None`: while it was being opened.
    fn allowed(&self, at: u64, durable: bool) -> Allowed {
        let step = self.marks.partition_point(|mark| *mark < at).saturating_sub(1);
        let states = [self.states[step].clone(), self.states[(step + 1).min(self.steps.len())].clone()];
        let floor = (!durable).then(|| self.floor(step));
        let what = format!("seed {} operation {at}, in step {step} {:?}", seed(), self.steps.get(step));
        Allowed { states, floor, what }
    }

    /// The lowest head that may be there when the steps before `step` returned and blocks may be lost.
    fn floor(&self, step: usize) -> u64 {
        let flushed = self.steps[..step].iter().rposition(Step::flushes).map_or(0, |last| last + 1);
        let flushed = self.states[flushed].head().unwrap_or(0);
        let head = self.states[step].head().unwrap_or(0);
        // A new step begins a new file of the log, and the old one is synced.
        let sealed =
            self.states[step].roots.range(..head / 4 * 4).next_back().map_or(0, |(height, _)| *height);
        let lowest =
            self.states[step].head().into_iter().chain(self.states.get(step + 1).and_then(Oracle::head));
        flushed.max(sealed).min(lowest.min().unwrap_or(0))
    }

    /// Runs the script and returns the disk before every `every`-th operation from `first`.
    fn film(&self, first: u64, every: u64) -> Vec<(u64, SimStorage)> {
        let disk = self.start.kill_clone();
        disk.film(first, every);
        let archive = Archive::open_on(storage(&disk), PATH, self.open).unwrap();
        play(&archive, &self.steps);
        let frames = disk.frames();
        drop(archive);
        frames
    }

    /// Stops at every `every`-th operation in every way.
    fn run(&self, every: u64, losses: u64, is_durable: bool) {
        let rounds = 8;
        in_parallel(0..rounds, |round| {
            for (at, disk) in self.film(1 + round * every, rounds * every) {
                let killed = self.allowed(at, true);
                recover(&disk, self.open, &killed, at % 5 == 0);
                for loss in 0..losses {
                    let allowed = self.allowed(at, is_durable);
                    let what = format!("{}, power loss {loss}", allowed.what);
                    recover(
                        &disk.crash_clone(at * 31 + loss),
                        self.open,
                        &Allowed { what, ..allowed },
                        false,
                    );
                }
            }
        });
    }
}

/// Opens what a crash left, compares it, writes on, and compares again. `again`: crashes on the way, too.
fn recover(disk: &SimStorage, open: OpenOptions, allowed: &Allowed, again: bool) {
    let (first, every) = (1 + disk.files().len() as u64 % 5, 5);
    let disk = disk.kill_clone();
    if again {
        disk.film(first, every);
    }
    recover_once(&disk, open, allowed);
    for (at, frame) in disk.frames() {
        let what = format!("{}, and then operation {at} of the recovery", allowed.what);
        let allowed = Allowed { what, ..allowed.clone() };
        recover_once(&frame, open, &allowed);
        recover_once(&frame.crash_clone(at), open, &allowed);
    }
}

fn recover_once(disk: &SimStorage, open: OpenOptions, allowed: &Allowed) {
    let fail = |error: Error| -> ! { panic!("{}: {error} {error:?}", allowed.what) };
    let reader = Reader::open_on(storage(disk), PATH).unwrap_or_else(|error| fail(error));
    // Before a writer recovered it shows only what it knows to be durable: after a power loss, a block less.
    let durable = Allowed { floor: Some(0), ..allowed.clone() }.find(reader.range());
    durable.read_all(&reader, 2).unwrap_or_else(|error| fail(error));
    drop(reader);
    let archive = Archive::open_on(storage(disk), PATH, open).unwrap_or_else(|error| fail(error));
    assert!(archive.repairs().is_empty(), "{}: {:?}", allowed.what, archive.repairs());
    let mut state = allowed.find(archive.reader().range());
    state.read_all(archive.reader(), 3).unwrap_or_else(|error| fail(error));
    verify(disk, &allowed.what);
    drop(archive);
    let reader = Reader::open_on(storage(disk), PATH).unwrap_or_else(|error| fail(error));
    assert_eq!(reader.range(), state.range(), "{}: a reader sees what a writer made durable", allowed.what);
    // On a copy, so that what was filmed is the recovery alone.
    let disk = disk.kill_clone();
    let archive = Archive::open_on(storage(&disk), PATH, open).unwrap_or_else(|error| fail(error));
    let next = state.head().map_or(5, |head| head + 4);
    let changes = state.sure_change();
    commit(&archive, &mut state, next, &changes);
    state.read_all(archive.reader(), 1).unwrap_or_else(|error| fail(error));
    prove(&archive, &state).unwrap_or_else(|error| fail(error));
    verify(&disk, &allowed.what);
}

/// Proofs at some blocks, snapshots or not.
fn prove(archive: &Archive, state: &Oracle) -> Result<(), Error> {
    for at in state.heights(2) {
        let view = archive.at(at)?;
        match archive.reader().commitment() {
            Commitment::Ethereum => ethereum::check_proofs(state, &view, 3)?,
            NATIVE => {
                let value = state.get(0, b"a", at);
                let proof = view.prove(DOMAINS[0], b"a")?;
                proof.verify(&view.root()?, DOMAINS[0], b"a", value.as_deref()).unwrap();
            }
            _ => assert!(matches!(view.prove(DOMAINS[0], b"a"), Err(Error::Commitment { .. }))),
        }
    }
    Ok(())
}

fn verify(disk: &SimStorage, what: &str) {
    let report = verify_on(storage(disk), PATH, VerifyMode::Full, &()).unwrap();
    assert!(report.problems.is_empty(), "{what}: {:?}", report.problems);
    assert!(report.garbage.is_empty(), "{what}: {:?}", report.garbage);
}

#[test]
fn nothing_committed_is_lost_wherever_the_run_stops() {
    let open = with(Durability::Block, Maintenance::EmitOnly);
    let campaign = Campaign::new(Script::everything(NATIVE, seed()), open);
    println!("{} operations", campaign.operations());
    campaign.run(stride(5), 2, true);
}

#[test]
fn the_same_with_maintenance_inside_commits() {
    let open = with(Durability::Block, Maintenance::Inline);
    Campaign::new(Script::everything(NATIVE, seed() + 1), open).run(stride(11), 2, true);
}

#[test]
fn snapshots_make_no_difference() {
    let open = with(Durability::Block, Maintenance::EmitOnly);
    Campaign::with(options_with(3), Script::everything(NATIVE, seed() + 6), open).run(stride(37), 1, true);
}

#[test]
fn nothing_is_lost_of_an_archive_by_path() {
    let open = with(Durability::Block, Maintenance::EmitOnly);
    Campaign::with(options_by_path(), Script::everything(NATIVE, seed() + 8), open).run(stride(37), 1, true);
}

#[test]
fn nothing_is_lost_of_an_archive_for_ethereum_or_of_one_without_roots() {
    // Without memory for the tree its outline is written at emissions, and each opening begins with it.
    let open = with(Durability::Block, Maintenance::EmitOnly).tree_memory(0);
    for (commitment, every) in [(Commitment::Ethereum, 47), (Commitment::None, 97)] {
        let steps = Script::everything(commitment, seed() + 7);
        let campaign = Campaign::with(options_of(commitment), steps, open);
        // All operations around its writing, which strides may miss.
        let is_writing = |disk: &SimStorage| disk.files().iter().any(|(path, _)| path.ends_with("TREE.new"));
        let frames = campaign.film(1, 1);
        let around =
            |i: usize| frames[i.saturating_sub(3)..].iter().take(6).any(|(_, disk)| is_writing(disk));
        let cases: Vec<usize> = (0..frames.len()).filter(|i| around(*i)).collect();
        assert_eq!(cases.len() > 10, commitment == Commitment::Ethereum, "{}", cases.len());
        in_parallel(cases, |i| {
            let (at, disk) = &frames[i];
            let allowed = campaign.allowed(*at, true);
            recover(disk, open, &allowed, true);
            (0..4).for_each(|loss| recover(&disk.crash_clone(at * 31 + loss), open, &allowed, false));
        });
        drop(frames);
        println!("{commitment}: {} operations", campaign.operations());
        campaign.run(stride(every), 1, true);
    }
}

#[test]
fn weaker_durability_loses_a_tail_and_nothing_else() {
    for (durability, shift) in [(Durability::Relaxed, 2), (Durability::Group { blocks: 3 }, 3)] {
        let open = with(durability, Maintenance::EmitOnly);
        Campaign::new(Script::everything(NATIVE, seed() + shift), open).run(stride(17), 3, false);
    }
}

#[test]
fn a_group_loses_fewer_blocks_than_it_has() {
    let open = with(Durability::Group { blocks: 3 }, Maintenance::EmitOnly);
    let campaign = Campaign::new(Script::new(seed()).commits(12).steps, open);
    for (at, disk) in campaign.film(1, 2) {
        let committed = campaign.allowed(at, true).states[0].roots.len();
        for loss in 0..4 {
            let archive = Archive::open_on(storage(&disk.crash_clone(loss)), PATH, open).unwrap();
            let head = archive.reader().head();
            let kept =
                campaign.states.last().unwrap().roots.keys().filter(|block| Some(**block) <= head).count();
            assert!(kept + 3 > committed, "{kept} of {committed} at operation {at}");
        }
    }
}

/// Runs a script with failures arranged on the disk, up to the first error. Returns the step that failed.
fn run_until_error(campaign: &Campaign, archive: &Archive) -> Option<(usize, Error)> {
    let failed = |(i, step): (usize, &Step)| step.apply(archive).err().map(|error| (i, error));
    campaign.steps.iter().enumerate().find_map(failed)
}

/// What a living process must still do after an operation failed in step `i`.
fn live_on(campaign: &Campaign, archive: &Archive, disk: &SimStorage, i: usize, error: &Error) {
    let what = format!("seed {} step {i} {:?}: {error}", seed(), campaign.steps[i]);
    let states = [campaign.states[i].clone(), campaign.states[i + 1].clone()];
    let state = Allowed { states, floor: None, what: what.clone() }.find(archive.reader().range());
    state.read_all(archive.reader(), 2).unwrap_or_else(|error| panic!("{what}: reading: {error}"));
    let next = state.head().map_or(5, |head| head + 1);
    match archive.begin(next).map(drop) {
        Err(refused) => {
            assert!(
                matches!(refused, Error::Poisoned { .. })
                    && [ErrorKind::Closed, ErrorKind::NoSpace].contains(&refused.kind()),
                "{what}"
            );
            assert!(matches!(archive.flush(), Err(Error::Poisoned { .. })), "{what}");
            assert!(archive.unwind(state.range().map_or(0, |r| r.0), &()).is_err(), "{what}");
        }
        Ok(()) => {
            let garbage = verify_on(storage(disk), PATH, VerifyMode::Fast, &()).unwrap().garbage;
            assert!(garbage.is_empty(), "{what}: what failed leaves nothing behind: {garbage:?}");
            go_on(campaign, archive, i, &state, &what);
        }
    }
}

/// The disk is in a known state: the rest of the script goes as if nothing had happened.
fn go_on(campaign: &Campaign, archive: &Archive, i: usize, state: &Oracle, what: &str) {
    let happened =
        matches!(campaign.steps[i], Step::Commit(..)) && state.head() == campaign.states[i + 1].head();
    for step in &campaign.steps[i + usize::from(happened)..] {
        step.apply(archive).unwrap_or_else(|error| panic!("{what}: then {step:?}: {error}"));
    }
    let last = campaign.states.last().unwrap();
    last.read_all(archive.reader(), 2).unwrap_or_else(|error| panic!("{what}: at last: {error}"));
}

/// One failure of operation `at`, then everything that may follow.
fn fail_once(campaign: &Campaign, fault: Fault, at: u64) {
    let disk = campaign.start.kill_clone();
    disk.inject(fault);
    let Ok(archive) = Archive::open_on(storage(&disk), PATH, campaign.open) else {
        return drop(Archive::open_on(storage(&disk.kill_clone()), PATH, campaign.open).unwrap());
    };
    let failed = run_until_error(campaign, &archive);
    let end = campaign.steps.len();
    let (i, lost) = failed.as_ref().map_or((end, None), |(i, _)| (*i, Some(disk.crash_clone(at))));
    disk.heal();
    let what = format!("seed {} operation {at} {fault:?}: {failed:?}", seed());
    if let Some((i, error)) = &failed {
        live_on(campaign, &archive, &disk, *i, error);
    }
    let poisoned = archive.flush().is_err();
    drop(archive);
    let i = if poisoned { i } else { end };
    let states = [campaign.states[i].clone(), campaign.states[(i + 1).min(end)].clone()];
    recover_once(&disk.kill_clone(), campaign.open, &Allowed { states, floor: None, what: what.clone() });
    if let Some(lost) = lost {
        let i = failed.map_or(end, |(i, _)| i);
        let states = [campaign.states[i].clone(), campaign.states[(i + 1).min(end)].clone()];
        recover_once(
            &lost,
            campaign.open,
            &Allowed { states, floor: None, what: format!("{what}, power loss") },
        );
    }
}

#[test]
fn one_failed_operation_is_reported_and_survived() {
    let open = with(Durability::Block, Maintenance::EmitOnly).tree_memory(0);
    for (commitment, every) in [(NATIVE, 9), (Commitment::Ethereum, 61)] {
        let steps = Script::everything(commitment, seed() + 4);
        let campaign = Campaign::with(options_of(commitment), steps, open);
        let faults = |at| [Fault::at(at), Fault::at(at).torn(at), Fault::at(at).no_space()];
        let cases: Vec<_> = (1..=campaign.operations())
            .filter(|at| at % stride(every) == 0)
            .flat_map(|at| faults(at).map(|f| (at, f)))
            .collect();
        in_parallel(cases, |(at, fault)| fail_once(&campaign, fault, at));
    }
}

#[test]
fn a_disk_that_fails_from_some_operation_on_is_survived() {
    let open = with(Durability::Block, Maintenance::Inline);
    let campaign = Campaign::new(Script::everything(NATIVE, seed() + 5), open);
    let cases: Vec<_> = (1..=campaign.operations()).filter(|at| at % stride(13) == 0).collect();
    in_parallel(cases, |at| {
        let disk = campaign.start.kill_clone();
        disk.inject(Fault::at(at).torn(at).from_then_on());
        let Ok(archive) = Archive::open_on(storage(&disk), PATH, open) else { return };
        let failed = run_until_error(&campaign, &archive);
        let step = failed.map_or(campaign.steps.len() - 1, |(i, _)| i);
        let states = [campaign.states[step].clone(), campaign.states[step + 1].clone()];
        let allowed =
            Allowed { states, floor: None, what: format!("seed {} from operation {at} on", seed()) };
        allowed.find(archive.reader().range());
        drop(archive);
        recover_once(&disk.kill_clone(), open, &allowed);
        recover_once(&disk.crash_clone(at), open, &allowed);
    });
}

/// A step leaves memory because of a block after it. If the power takes that block and leaves the emission, the next block must not
/// come into a step that is in segments already: it would be in none of both.
#[test]
fn what_let_a_step_go_is_durable_before_it_is_gone() {
    let options = || Options::new().domain(DOMAINS[0]).blocks_per_step(10).reorg_window(0);
    let open = with(Durability::Relaxed, Maintenance::EmitOnly);
    let disk = fresh(options(), open);
    let archive = Archive::open_on(storage(&disk), PATH, open).unwrap();
    // The step ends at 9, and its last block is 7.
    for height in [3, 7, 12] {
        let mut block = archive.begin(height).unwrap();
        block.put(DOMAINS[0], b"k", &height.to_le_bytes()).unwrap();
        block.commit().unwrap();
    }
    for seed in 0..40 {
        let after = disk.crash_clone(seed);
        let archive = Archive::open_on(storage(&after), PATH, open).unwrap();
        let Some(head) = archive.reader().head() else { continue };
        let mut block = archive.begin(head + 1).unwrap();
        block.put(DOMAINS[0], b"k", b"new").unwrap();
        block.commit().unwrap();
        archive.close().unwrap();
        let reader = Reader::open_on(storage(&after), PATH).unwrap();
        assert_eq!(reader.head(), Some(head + 1), "seed {seed}");
        assert_eq!(reader.at(head + 1).unwrap().get(DOMAINS[0], b"k").unwrap().unwrap(), b"new");
    }
}

#[test]
fn a_step_that_ends_again_after_an_unwind_is_durable() {
    let options = Options::new().domain(DOMAINS[0]).blocks_per_step(4).reorg_window(100);
    let open = with(Durability::Relaxed, Maintenance::EmitOnly);
    let disk = fresh(options, open);
    let archive = Archive::open_on(storage(&disk), PATH, open).unwrap();
    let commit = |height: u64| {
        archive.begin(height).unwrap().commit().unwrap();
    };
    [2, 5].into_iter().for_each(commit);
    archive.unwind(2, &()).unwrap();
    [3, 4].into_iter().for_each(commit);
    for seed in 0..40 {
        let after = Reader::open_on(storage(&disk.crash_clone(seed)), PATH).unwrap();
        assert!(
            after.head() >= Some(3),
            "seed {seed}: the step of 3 ended with 4, and {:?} is left",
            after.head()
        );
    }
}

#[test]
fn what_a_failed_sync_left_to_see_is_made_durable_by_the_next_writer() {
    let open = with(Durability::Block, Maintenance::EmitOnly);
    for k in 1.. {
        let disk = fresh(Options::new().domain(DOMAINS[0]).blocks_per_step(4), open);
        let archive = Archive::open_on(storage(&disk), PATH, open).unwrap();
        let commit = |archive: &Archive, height: u64| archive.begin(height).unwrap().commit().map(drop);
        commit(&archive, 1).unwrap();
        let at = disk.operations() + k;
        disk.inject(Fault::at(at));
        let _ = commit(&archive, 2);
        // The system goes on showing what it may have dropped.
        drop(archive);
        if disk.operations() < at {
            assert!(k > 3, "a commit and the end of a writer write and sync");
            break;
        }
        let archive = Archive::open_on(storage(&disk), PATH, open).unwrap();
        let head = archive.reader().head().unwrap();
        commit(&archive, head + 1).unwrap();
        for seed in 0..40 {
            let after = Archive::open_on(storage(&disk.crash_clone(seed)), PATH, open);
            let after = after.unwrap_or_else(|error| panic!("operation {k}, seed {seed}: {error}"));
            assert_eq!(after.reader().head(), Some(head + 1), "operation {k}, seed {seed}");
        }
    }
}
