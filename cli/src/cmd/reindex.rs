//! `icecore reindex`.

use std::path::PathBuf;

use icecore::{Archive, Density, DensityRule, Reader, ReindexPlan, ReindexRule};
use serde_json::json;

use super::upkeep::UpkeepArgs;
use crate::ask::open_for_one_read;
use crate::exit::{Exit, Failure, Outcome};
use crate::number::ByteSize;
use crate::print::{Out, bytes, count, plural, table};
use crate::progress::Bars;

/// Rebuild pivot indexes and filters with another density. The .kv files stay as they are and no answer changes.
#[derive(clap::Args)]
#[command(after_help = "\
The rule that is chosen stays with the archive and shapes the segments to
come. Without one, segments that do not match the present rule are rebuilt.

Examples:
  icecore reindex chain.ice --dry-run   what the present rule would change
  icecore reindex chain.ice --m 64      64 entries for each pivot, everywhere
  icecore reindex chain.ice --policy    16 for fresh segments, 64, 256 for old
  icecore reindex chain.ice --index-budget 100MB
                                        freshest first, 100 MB for all .bt
  icecore reindex chain.ice --rebuild   all again as it is: repairs damage")]
pub(crate) struct Args {
    /// The archive
    dir: PathBuf,
    #[command(flatten)]
    rule: Rule,
    /// Only this domain
    #[arg(long, short, value_name = "NAME")]
    domain: Option<String>,
    #[command(flatten)]
    upkeep: UpkeepArgs,
    /// Tell what was done as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[group(multiple = false)]
struct Rule {
    /// The same number of entries for each pivot in every segment
    #[arg(long, value_name = "N")]
    m: Option<u32>,
    /// Dense for fresh segments, sparse for old ones
    #[arg(long)]
    policy: bool,
    /// As dense as fits: the largest total size of all .bt files
    #[arg(long, value_name = "BYTES")]
    index_budget: Option<ByteSize>,
    /// Build everything again as it is
    #[arg(long)]
    rebuild: bool,
}

impl Rule {
    fn chosen(&self) -> Result<ReindexRule, Failure> {
        Ok(if let Some(m) = self.m {
            let m = Density::new(m)
                .ok_or_else(|| Failure::usage(format!("--m {m}: must be 1 to {}", Density::MAX)))?;
            ReindexRule::Rule(DensityRule::Fixed(m))
        } else if self.policy {
            ReindexRule::Rule(DensityRule::Recency)
        } else if let Some(ByteSize(bytes)) = self.index_budget {
            ReindexRule::Rule(DensityRule::Budget { bytes })
        } else if self.rebuild {
            ReindexRule::Rebuild
        } else {
            ReindexRule::Current
        })
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    let rule = args.rule.chosen()?;
    let domain = args.domain.as_deref();
    if args.upkeep.dry_run {
        let reader = open_for_one_read(&args.dir)?;
        return tell(args, &reader.plan_reindex(rule, domain)?, segments(&reader, domain));
    }
    let work = |archive: &Archive| {
        let plans = archive.reindex(rule, domain, &Bars::new())?;
        Ok((plans, segments(archive.reader(), domain)))
    };
    args.upkeep.run(&args.dir, work, |(plans, segments)| tell(args, &plans, segments))
}

fn tell(args: &Args, plans: &[ReindexPlan], segments: u64) -> Outcome {
    let mut out = Out::new();
    if args.json {
        for plan in plans {
            out.json(&as_json(plan, args.upkeep.dry_run))?;
        }
    } else {
        if !plans.is_empty() {
            out.line(listing(plans))?;
        }
        let verb = if args.upkeep.dry_run { "would be rebuilt" } else { "rebuilt" };
        out.summary(format_args!("{} of {} {verb}", plans.len(), plural(segments, "segment")))?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// How many segments the command is about.
fn segments(reader: &Reader, domain: Option<&str>) -> u64 {
    let segments = reader.segments();
    segments.iter().filter(|segment| domain.is_none_or(|domain| domain == segment.domain)).count() as u64
}

/// The rule that is in force, in the words of the options that choose it.
pub(crate) fn rule_name(rule: DensityRule) -> String {
    match rule {
        DensityRule::Recency => "--policy: 16 for fresh segments, 64, 256 for old".to_owned(),
        DensityRule::Budget { bytes: all } => format!("--index-budget: {} for all .bt", bytes(all)),
        DensityRule::Fixed(m) => format!("--m {}: everywhere", m.get()),
    }
}

/// The same for programs.
pub(crate) fn rule_as_json(rule: DensityRule) -> serde_json::Value {
    match rule {
        DensityRule::Recency => json!({ "rule": "policy" }),
        DensityRule::Budget { bytes } => json!({ "rule": "index-budget", "bytes": bytes }),
        DensityRule::Fixed(m) => json!({ "rule": "m", "m": m.get() }),
    }
}

fn listing(plans: &[ReindexPlan]) -> String {
    let change =
        |before: String, after: String| if before == after { after } else { format!("{before} -> {after}") };
    table(
        ["SEGMENT", ">ENTRIES", ">M", ">BITS", ">.BT"],
        plans.iter().map(|plan| {
            [
                plan.segment.clone(),
                count(plan.entries),
                change(plan.m.0.to_string(), plan.m.1.to_string()),
                change(plan.filter_bits.0.to_string(), plan.filter_bits.1.to_string()),
                change(bytes(plan.bt_bytes.0), bytes(plan.bt_bytes.1)),
            ]
        }),
    )
}

fn as_json(plan: &ReindexPlan, dry_run: bool) -> serde_json::Value {
    json!({
        "segment": plan.segment,
        "entries": plan.entries,
        "m": [plan.m.0, plan.m.1],
        "filter_bits": [plan.filter_bits.0, plan.filter_bits.1],
        "bt_bytes": [plan.bt_bytes.0, plan.bt_bytes.1],
        "rebuilt": !dry_run,
    })
}
