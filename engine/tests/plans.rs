//! What a plan says is what then happens.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod oracle;

use std::collections::BTreeMap;
use std::sync::Arc;

use icecore::storage::Storage;
use icecore::testing::SimStorage;
use icecore::{
    Archive, Density, DensityRule, Error, Maintenance, MergeOptions, OpenOptions, Reader, ReindexRule,
    RewritePlan,
};
use oracle::script::{PATH, Script, options, options_with, storage};

/// Archives of several shapes, and a reader of another process.
fn archives() -> impl Iterator<Item = (Archive, Reader)> {
    [(1, None), (2, None), (3, Some(1)), (4, Some(7))].into_iter().map(|(seed, period)| {
        let disk = SimStorage::new();
        let options = period.map_or_else(options, options_with);
        let open = OpenOptions::new().maintenance(Maintenance::EmitOnly);
        let archive = Archive::create_on(storage(&disk), PATH, options, open).unwrap();
        for step in Script::new(seed).commits(40).unwind(2).commits(20 + seed).steps {
            step.apply(&archive).unwrap();
            archive.emit().unwrap();
        }
        let other: Arc<dyn Storage> = storage(&disk);
        (archive, Reader::open_on(other, PATH).unwrap())
    })
}

/// Names, entries and bytes of all files of the segments.
fn segments(reader: &Reader) -> BTreeMap<String, (u64, u64)> {
    let named = |info: icecore::SegmentInfo| {
        (
            format!("{}.{}", info.domain, info.steps),
            (info.entries, info.kv_bytes + info.bt_bytes + info.kvei_bytes),
        )
    };
    reader.segments().into_iter().map(named).collect()
}

/// A segment that was rewritten is there, no larger than was said, and its inputs are gone.
fn assert_rewritten(plans: &[RewritePlan], before: &BTreeMap<String, (u64, u64)>, reader: &Reader) {
    let after = segments(reader);
    for plan in plans {
        for input in plan.inputs.iter().filter(|input| **input != plan.segment) {
            assert!(!after.contains_key(input), "{input} is gone: {after:?}");
        }
        let inputs = || plan.inputs.iter().map(|input| before[input]);
        assert_eq!(plan.entries, inputs().map(|(entries, _)| entries).sum::<u64>());
        if let Some((entries, bytes)) = after.get(&plan.segment) {
            assert!(*entries <= plan.entries && *bytes <= plan.bytes_needed, "{plan:?}: {bytes}");
        }
    }
}

#[test]
fn a_merge_does_what_was_planned() {
    for (archive, other) in archives() {
        for span_max in [2, 8, u64::MAX] {
            let options = MergeOptions::new().span_max(span_max);
            other.refresh().unwrap();
            let before = segments(&other);
            let plan = other.plan_merge(&options).unwrap();
            assert_eq!(archive.merge(&options, &()).unwrap(), plan.merges.len() as u64);
            let after = segments(archive.reader());
            // A segment that a later merge takes is not there at the end.
            let inputs: Vec<_> = plan.merges.iter().flat_map(|merge| &merge.inputs).collect();
            for merge in &plan.merges {
                assert_eq!(
                    after.contains_key(&merge.segment),
                    !inputs.contains(&&merge.segment),
                    "{merge:?}"
                );
                let known = after.get(&merge.segment).is_none_or(|(entries, _)| *entries == merge.entries);
                assert!(known, "{merge:?}");
            }
            assert!(inputs.iter().all(|input| !after.contains_key(*input)), "{after:?}");
            let kept = before.iter().filter(|(name, _)| !inputs.contains(name));
            assert!(kept.clone().all(|(name, _)| after.contains_key(name)), "no other is touched");
        }
    }
}

#[test]
fn a_prune_does_what_was_planned() {
    for (archive, other) in archives() {
        let (first, head) = archive.reader().range().unwrap();
        for before in [first, first + (head - first) / 3, first + (head - first) / 2, head] {
            other.refresh().unwrap();
            let (was, entries) = (segments(&other), archive.reader().stats().entries);
            let blocks = blocks_of(archive.reader());
            let plan = other.plan_prune(before).unwrap();
            archive.prune(before, &()).unwrap();
            assert_eq!(archive.reader().range(), Some((plan.floor, head)));
            assert_eq!(blocks_of(archive.reader()), blocks - plan.blocks_dropped);
            assert_eq!(
                archive.reader().stats().entries,
                entries - plan.versions_dropped,
                "{before}: {plan:?}"
            );
            let after = segments(archive.reader());
            assert!(plan.segments_dropped.iter().all(|name| !after.contains_key(name)), "{plan:?}");
            assert_rewritten(&plan.rewrites, &was, archive.reader());
        }
    }
}

#[test]
fn an_unwinding_does_what_was_planned() {
    for (archive, other) in archives() {
        let (first, head) = archive.reader().range().unwrap();
        for to in [head, head - 1, head - head / 3, first + 1, first] {
            other.refresh().unwrap();
            let (was, blocks) = (segments(&other), blocks_of(archive.reader()));
            let plan = other.plan_unwind(to).unwrap();
            assert_eq!(Some(plan.head), archive.reader().head());
            archive.unwind(to, &()).unwrap();
            assert_eq!(archive.reader().head(), Some(plan.new_head));
            assert_eq!(blocks_of(archive.reader()), blocks - plan.blocks_dropped, "{plan:?}");
            let after = segments(archive.reader());
            assert!(plan.segments_dropped.iter().all(|name| !after.contains_key(name)), "{plan:?}");
            assert_rewritten(&plan.rewrites, &was, archive.reader());
            if plan.emitted_blocks_dropped == 0 {
                assert_eq!(after, was, "nothing but the log is touched");
            }
        }
    }
}

/// How many blocks can be asked for.
fn blocks_of(reader: &Reader) -> u64 {
    let (first, head) = reader.range().unwrap();
    let heights = (first..=head).map(|at| reader.at(at).unwrap().block().unwrap());
    heights.collect::<std::collections::BTreeSet<_>>().len() as u64
}

#[test]
fn a_reindex_does_what_was_planned() {
    for (archive, other) in archives() {
        let m = |m| ReindexRule::Rule(DensityRule::Fixed(Density::new(m).unwrap()));
        let budget = ReindexRule::Rule(DensityRule::Budget { bytes: 64 << 20 });
        for rule in [m(2), m(300), budget, ReindexRule::Current, ReindexRule::Rebuild] {
            other.refresh().unwrap();
            let planned = other.plan_reindex(rule, None).unwrap();
            let before = archive.reader().segments();
            let done = archive.reindex(rule, None, &()).unwrap();
            assert_eq!(planned.len(), done.len());
            // What is listed is what is touched.
            let after = archive.reader().segments();
            let touched = before.iter().zip(&after).filter(|(before, after)| before.files != after.files);
            let touched: Vec<_> =
                touched.map(|(info, _)| format!("{}.{}", info.domain, info.steps)).collect();
            let listed: Vec<_> = done.iter().map(|plan| plan.segment.clone()).collect();
            assert_eq!(touched, listed, "{rule:?}");
            if rule == ReindexRule::Current {
                assert!(planned.is_empty(), "the rule was applied just now");
            }
            for (planned, done) in planned.iter().zip(&done) {
                assert_eq!((&planned.segment, planned.m), (&done.segment, done.m));
                assert_eq!((planned.entries, planned.filter_bits), (done.entries, done.filter_bits));
                assert!(done.bt_bytes.1 <= planned.bt_bytes.1, "{planned:?} {done:?}");
            }
        }
    }
}

#[test]
fn a_budget_that_cannot_be_met_is_refused_with_the_least() {
    for (archive, other) in archives() {
        let rule = |bytes| ReindexRule::Rule(DensityRule::Budget { bytes });
        let before = (archive.density_rule(), archive.reader().segments());
        let least = 16384 * archive.reader().stats().segments;
        for refused in [archive.reindex(rule(1000), None, &()), other.plan_reindex(rule(1000), None)] {
            let error = refused.unwrap_err();
            assert!(
                matches!(&error, Error::Options { reason, .. } if reason.starts_with("1000 bytes")),
                "{error}"
            );
            let text = error.to_string();
            let told: u64 = text.split("up to ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
            assert!(least <= told && told < 2 * least, "{told} {least}");
            assert!(other.plan_reindex(rule(told - 1), None).is_err());
            assert!(other.plan_reindex(rule(told), None).is_ok());
        }
        let unknown = archive.reindex(rule(64 << 20), Some("none"), &()).unwrap_err();
        assert!(matches!(unknown, Error::UnknownDomain { .. }));
        assert_eq!((archive.density_rule(), archive.reader().segments()), before, "nothing changed");
        archive.reindex(rule(64 << 20), None, &()).unwrap();
        let sum: u64 = archive.reader().segments().iter().map(|segment| segment.bt_bytes).sum();
        assert!(sum <= 64 << 20);
    }
}
