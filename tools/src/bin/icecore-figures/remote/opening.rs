//! Opening an archive of many small segments in a bucket.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use icecore::remote::Accessors;
use icecore::storage::os::OsStorage;
use icecore::{Archive, Options};
use icecore_tools::workload::mix;

use super::{Bench, LATENCY, Place, emit_only};

/// Steps of two domains and that of roots.
const STEPS: u64 = 87;

/// Keys that a block changes in each domain.
const CHANGES: u64 = 8;

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Box<dyn Error>> {
    let path = bench.dir.join("unmerged");
    let options = Options::new().domain("accounts").domain("storage").blocks_per_step(1).reorg_window(0);
    let archive = Archive::create_on(Arc::new(OsStorage), &path, options, emit_only())?;
    for height in 0..STEPS {
        let mut block = archive.begin(height)?;
        for domain in ["accounts", "storage"] {
            for change in 0..CHANGES {
                let number = height * CHANGES + change;
                block.put(domain, &mix(number).to_be_bytes(), &number.to_be_bytes())?;
            }
        }
        block.commit()?;
        archive.emit()?;
    }
    archive.close()?;
    let place = Place::push(path)?;
    place.stub.reset_requests();
    place.stub.set_latency(LATENCY);
    let begun = Instant::now();
    let reader = place.open(&bench.dir.join("opened"), 64 << 10, Accessors::None)?;
    let (time, requests) = (begun.elapsed(), place.stub.requests());
    let mut add = |what: &str, measured: f64| {
        bench.figures.add(&format!("bucket, opening unmerged segments: {what}"), measured);
    };
    add("segments", reader.segments().len() as f64);
    add("requests", requests.total() as f64);
    add("bytes", requests.bytes_out as f64 / 1e3);
    add("time, 20 ms injected", time.as_secs_f64() * 1e3);
    Ok(())
}
