//! Random histories against a plain map of versions: commits, reads at all heights, emission, merge, reindex, prune,
//! unwinding and reopening in any order.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod oracle;

use std::num::NonZeroU64;
use std::sync::Arc;

use icecore::storage::Storage;
use icecore::testing::SimStorage;
use icecore::{
    Archive, Commitment, Density, DensityRule, Domain, Durability, Error, Maintenance, MergeOptions,
    OpenOptions, Options, Reader, ReindexRule, VerifyMode,
};
use oracle::{DOMAINS, Oracle, Random, commit, ethereum};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Commit { skip: u64, seed: u64, max: u64 },
    Merge { span_max: u64 },
    Reindex { m: u32 },
    Budget { bytes: u64 },
    Rebuild,
    Prune { back: u64 },
    Unwind { back: u64 },
    Reopen { inline: bool },
    Check,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (prop_oneof![4 => Just(1u64), 1 => 2..9u64], any::<u64>(), 0..8u64)
            .prop_map(|(skip, seed, max)| Op::Commit { skip, seed, max }),
        1 => prop_oneof![Just(2u64), Just(4), Just(u64::MAX)].prop_map(|span_max| Op::Merge { span_max }),
        1 => prop_oneof![Just(1u32), Just(16), Just(64), Just(256)].prop_map(|m| Op::Reindex { m }),
        1 => (0..200_000u64).prop_map(|bytes| Op::Budget { bytes }),
        1 => Just(Op::Rebuild),
        1 => (0..30u64).prop_map(|back| Op::Prune { back }),
        2 => (0..25u64).prop_map(|back| Op::Unwind { back }),
        1 => any::<bool>().prop_map(|inline| Op::Reopen { inline }),
        2 => Just(Op::Check),
    ]
}

fn open_options(inline: bool) -> OpenOptions {
    let maintenance = if inline { Maintenance::Inline } else { Maintenance::EmitOnly };
    // A tree that may have nothing reads the leaves of every block.
    let memory = if inline { 0 } else { u64::MAX };
    OpenOptions::new().maintenance(maintenance).durability(Durability::Block).tree_memory(memory)
}

/// The archive under test and the map it must agree with.
struct Run {
    disk: SimStorage,
    archive: Option<Archive>,
    oracle: Oracle,
}

impl Run {
    fn new(commitment: Commitment, is_by_path: bool, options: &Options) -> Self {
        let disk = SimStorage::new();
        let options = options.clone().commitment(commitment);
        let options = match commitment {
            // These have domains of their own.
            Commitment::Ethereum => options,
            _ => DOMAINS.iter().fold(options, |options, name| {
                let domain = Domain::new(name);
                options.declare(if is_by_path { domain.by_path() } else { domain })
            }),
        };
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let archive = Archive::create_on(storage, "/archive", options, open_options(false)).unwrap();
        let oracle = Oracle::of_archive(archive.reader());
        Self { disk, archive: Some(archive), oracle }
    }

    fn archive(&self) -> &Archive {
        self.archive.as_ref().unwrap()
    }

    fn go(mut self, ops: &[Op]) {
        ops.iter().for_each(|op| self.apply(op));
        self.check();
        self.reopen(true);
        self.check();
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Commit { skip, seed, max } => {
                let height = self.oracle.head().map_or(5, |head| head + skip);
                self.commit(height, Random(*seed), *max);
            }
            Op::Merge { span_max } => {
                let options = MergeOptions::new().span_max(*span_max);
                self.archive().merge(&options, &()).unwrap();
            }
            Op::Reindex { m } => {
                let rule = DensityRule::Fixed(Density::new(*m).unwrap());
                self.archive().reindex(ReindexRule::Rule(rule), None, &()).unwrap();
            }
            Op::Budget { bytes } => {
                let rule = DensityRule::Budget { bytes: *bytes };
                match self.archive().reindex(ReindexRule::Rule(rule), None, &()) {
                    // So few bytes that no index fits in them.
                    Ok(_) | Err(icecore::Error::Options { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            Op::Rebuild => drop(self.archive().reindex(ReindexRule::Rebuild, None, &()).unwrap()),
            Op::Prune { back } => self.prune(*back),
            Op::Unwind { back } => self.unwind(*back),
            Op::Reopen { inline } => self.reopen(*inline),
            Op::Check => self.check(),
        }
    }

    /// A block of random changes. Those of Ethereum are told by account, and the archive finds out what they write.
    fn commit(&mut self, height: u64, mut random: Random, max: u64) {
        let archive = self.archive.as_ref().unwrap();
        if archive.reader().commitment() != Commitment::Ethereum {
            let changes = random.changes(max);
            return commit(archive, &mut self.oracle, height, &changes);
        }
        let drawn = ethereum::draw(&mut random, &self.oracle, max);
        let before = archive.reader().latest().ok();
        let mut block = archive.begin(height).unwrap();
        ethereum::block_state(&drawn).write(before.as_ref(), &mut block).unwrap();
        let root = block.commit().unwrap();
        let changes = ethereum::changes(&self.oracle, &drawn);
        self.oracle.commit(height, &changes, root);
    }

    fn prune(&mut self, back: u64) {
        let Some(before) = self.oracle.head().map(|head| head.saturating_sub(back)) else { return };
        let Some(before) =
            Some(before).filter(|before| Some(*before) >= self.oracle.range().map(|range| range.0))
        else {
            return;
        };
        self.archive().prune(before, &()).unwrap();
        self.oracle.prune(before);
    }

    fn unwind(&mut self, back: u64) {
        let Some(to) = self.oracle.head().map(|head| head.saturating_sub(back)) else { return };
        if Some(to) >= self.oracle.range().map(|range| range.0)
            && self.oracle.roots.range(..=to).next().is_some()
        {
            let pinned = self.archive().reader().latest().unwrap();
            let (before, keys) = (self.oracle.clone(), self.oracle.keys());
            self.archive().unwind(to, &()).unwrap();
            self.oracle.unwind(to);
            before.check_view(&pinned, &keys, pinned.height());
        }
    }

    fn reopen(&mut self, inline: bool) {
        self.archive.take().unwrap().close().unwrap();
        let storage: Arc<dyn Storage> = Arc::new(self.disk.clone());
        self.archive = Some(Archive::open_on(storage, "/archive", open_options(inline)).unwrap());
        assert!(self.archive().repairs().is_empty());
    }

    fn check(&self) {
        self.oracle.check(self.archive().reader());
        self.oracle.check(&Reader::open_on(Arc::new(self.disk.clone()), "/archive").unwrap());
        let report =
            icecore::verify_on(Arc::new(self.disk.clone()), "/archive", VerifyMode::Full, &()).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        assert!(report.garbage.is_empty(), "{:?}", report.garbage);
        let roots = self.oracle.roots.keys().rev().step_by(3).take(4).copied();
        for at in roots.filter(|at| self.oracle.range().is_some_and(|(first, _)| first <= *at)) {
            self.check_proofs(at);
        }
    }

    fn check_proofs(&self, at: u64) {
        let view = self.archive().at(at).unwrap();
        match self.archive().reader().commitment() {
            Commitment::Icecore => {}
            Commitment::Ethereum => return ethereum::check_proofs(&self.oracle, &view, 2).unwrap(),
            _ => return assert!(matches!(view.prove(DOMAINS[0], b"a"), Err(Error::Commitment { .. }))),
        }
        let root = view.root().unwrap();
        for (domain, key) in self.oracle.keys().into_iter().step_by(17) {
            let value = self.oracle.get(domain, &key, at);
            let proof = view.prove(DOMAINS[domain], &key).unwrap();
            proof.verify(&root, DOMAINS[domain], &key, value.as_deref()).unwrap();
            let other = value.map_or(Some(b"other".to_vec()), |_| None);
            assert!(proof.verify(&root, DOMAINS[domain], &key, other.as_deref()).is_err());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn an_archive_answers_as_a_map_of_versions(
        ops in prop::collection::vec(op(), 1..120),
        blocks_per_step in prop_oneof![Just(1u64), 2..6u64, Just(1000)],
        reorg_window in prop_oneof![Just(0u64), 1..6u64],
        snapshot_period in prop_oneof![Just(0u64), Just(1), 2..12u64],
    ) {
        let options = Options::new().blocks_per_step(blocks_per_step).reorg_window(reorg_window);
        let options = options.snapshot_period(NonZeroU64::new(snapshot_period));
        Run::new(Commitment::Icecore, false, &options).go(&ops);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn so_does_one_for_ethereum_and_one_without_roots(
        ops in prop::collection::vec(op(), 1..80),
        blocks_per_step in prop_oneof![Just(1u64), 2..6u64, Just(1000)],
        reorg_window in prop_oneof![Just(0u64), 1..6u64],
        commitment in prop_oneof![5 => Just(Commitment::Ethereum), 1 => Just(Commitment::None)],
    ) {
        let options = Options::new().blocks_per_step(blocks_per_step).reorg_window(reorg_window);
        Run::new(commitment, false, &options).go(&ops);
    }

    #[test]
    fn so_does_one_by_path(
        ops in prop::collection::vec(op(), 1..80),
        blocks_per_step in prop_oneof![Just(1u64), 2..6u64, Just(1000)],
        reorg_window in prop_oneof![Just(0u64), 1..6u64],
        keeps_rows in prop_oneof![4 => Just(true), 1 => Just(false)],
    ) {
        let options = Options::new().blocks_per_step(blocks_per_step).reorg_window(reorg_window);
        Run::new(Commitment::Icecore, true, &options.keep_rows(keeps_rows)).go(&ops);
    }
}
