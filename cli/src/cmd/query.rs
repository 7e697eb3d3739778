//! `icecore query`: many questions, one answer a line, in order.
//!
//! Answers are written as soon as nobody waits to be read: a program on the other end of a pipe may ask, wait for the
//! answer and ask again, and a file of requests is still answered at full speed.
//!
//! The requests that can be had without waiting are a batch. All of it sees the same blocks. Where it is long, its `get`s are answered by
//! all processors, each a run of lines; the other requests are answered in between, one after the other, since their answers
//! may be long.

mod answer;
mod batch;

use std::path::PathBuf;

use self::batch::Batch;
use crate::ask::Asked;
use crate::encoding::{Encoding, RULE};
use crate::exit::{Exit, Outcome};
use crate::input::Lines;
use crate::number::{ByteSize, HEIGHT_FORMS};
use crate::place::Place;
use crate::print::Out;

/// Answer many questions, one JSON request and one JSON answer a line, in order.
#[derive(clap::Args)]
#[command(after_help = format!("\
Requests and answers:
  {{\"get\":{{\"domain\":\"kv\",\"key\":\"...\",\"at\":17}}}}
      {{\"value\":\"...\"|null}}
  {{\"scan\":{{\"domain\":\"kv\",\"prefix\":\"...\",\"at\":17,\"limit\":10}}}}
      {{\"items\":[[key,value],...]}} in key order
      also \"from\", \"to\" (the key after the last) and \"reverse\":true
      and of storage in an archive of the profile ethereum \"account\":\"0x..\",
      whose slots are wanted
  {{\"history\":{{\"domain\":\"kv\",\"key\":\"...\"}}}}
      {{\"versions\":[[block,value|null],...]}} newest first
  {{\"root\":{{\"at\":17}}}}
      {{\"root\":\"0x...\"}}
  {{\"prove\":{{\"domain\":\"kv\",\"key\":\"...\",\"at\":17}}}}
      what `icecore prove` prints; in an archive of the profile ethereum the key is an
      address, \"slots\":[\"0x0\"] may stand beside it, and the answer is {{\"proof\":..}}
\"domain\" may be left out where the archive has one, \"at\" for the newest
block; \"at\" may also be \"latest\", -10 or \"0x11\". An \"id\" beside the request,
any JSON, comes back first in its answer. A blank line is passed over and has
no answer. Requests that arrive later see the blocks that were committed
meanwhile. A line has less than 16 MiB.

A request that cannot be answered gets {{\"error\":\"...\"}} on its line and the
rest go on. The exit code is 0 also where there were such requests, and where
keys were not found: each answer says so itself. It is that of the first damage
or refusal of the system that a read met, as of any command, once all requests
are answered.

{RULE}

{HEIGHT_FORMS}

Examples:
  echo '{{\"get\":{{\"key\":\"alice\",\"at\":17}}}}' | icecore query chain.ice
  icecore query chain.ice requests.jsonl.zst > answers.jsonl"))]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// The requests, plain, zstd or gzip; `-` is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// How keys and values are written
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    encoding: Encoding,
    /// Read indexes and filters beforehand, in the background, where all of them fit this [default: an eighth of the memory]
    #[arg(long, value_name = "BYTES")]
    resident_budget: Option<ByteSize>,
    /// Answers are always JSON; taken so that every command takes it
    #[arg(long, hide = true)]
    json: bool,
}

/// The longest line of a request: a key has 1024 bytes at most, and a proof may name many slots.
const REQUEST_LEN_MAX: u64 = 16 << 20;

pub(crate) fn run(args: Args) -> Outcome {
    let asked = Asked::open(&args.place, args.encoding, args.resident_budget.map(|size| size.0))?;
    let mut lines = Lines::of(vec![args.file]).shorter_than(REQUEST_LEN_MAX);
    let mut out = Out::new();
    let mut batch = Batch::new();
    let mut broken = None;
    loop {
        let filled = batch.fill(&mut lines);
        // Whoever asks may have waited for the answers before asking again, and meanwhile the archive may have grown.
        let fault = batch.answer(&asked, &mut out)?;
        broken = broken.or(fault);
        out.flush()?;
        if !filled? {
            break;
        }
    }
    asked.tell_reads();
    broken.map_or(Ok(Exit::Done), Err)
}
