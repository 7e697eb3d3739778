//! The generations of a bucket by the names of its objects, and what is missing among them: for what lists, checks or collects.

use std::collections::BTreeMap;

use crate::remote::bucket::Bucket;
use crate::remote::manifest;
use crate::remote::names;
use crate::remote_error::RemoteError;

/// The numbers of the generations of each archive, rising. An archive of which only the hint is there has none.
pub(crate) type Generations = BTreeMap<String, Vec<u64>>;

/// The generations of all archives of a bucket.
///
/// # Errors
/// [`RemoteError::Request`], [`RemoteError::Denied`].
pub(crate) fn generations(bucket: &Bucket) -> Result<Generations, RemoteError> {
    let mut found = Generations::new();
    for object in bucket.store.list(names::MANIFESTS)? {
        if let Some((archive, generation)) = names::parse_manifest(&object.name) {
            found.entry(archive.to_owned()).or_default().push(generation);
        }
    }
    for object in bucket.store.list(names::HEADS)? {
        if let Some(archive) = names::parse_head(&object.name) {
            found.entry(archive.to_owned()).or_default();
        }
    }
    Ok(found)
}

/// What is missing or damaged of the generations of the bucket's archive, as far as their names and the hint tell: one in their midst, the
/// one that the hint names, the hint. A bucket without a hint is as a push may leave it that was killed, where it has one generation.
///
/// # Errors
/// Those of reading the hint, but not that it is damaged.
pub(crate) fn problems(bucket: &Bucket, numbers: &[u64]) -> Result<Vec<RemoteError>, RemoteError> {
    // It must be whole, whoever signed it.
    let bucket = Bucket { trust: None, ..bucket.clone() };
    let gone = |name: &str| RemoteError::Gone { object: bucket.store.shown(name) };
    let (mut problems, mut next) = (Vec::new(), 1);
    for number in numbers {
        if *number != next {
            problems.push(gone(&names::manifest(&bucket.archive, next)));
        }
        next = number.saturating_add(1);
    }
    let head = names::head(&bucket.archive);
    let hint = bucket.store.get(&head, manifest::LEN_MAX);
    match hint.and_then(|bytes| bytes.map(|bytes| bucket.read(&bytes, &head)).transpose()) {
        Ok(None) if next > 2 => problems.push(gone(&head)),
        Ok(None) => {}
        Ok(Some(hint)) => {
            let name = names::manifest(&bucket.archive, hint.manifest.generation());
            // It may have been published since they were listed.
            if !numbers.contains(&hint.manifest.generation()) && bucket.store.look(&name)?.is_none() {
                problems.push(gone(&name));
            }
        }
        Err(damaged @ RemoteError::Damaged { .. }) => problems.push(damaged),
        Err(error) => return Err(error),
    }
    Ok(problems)
}
