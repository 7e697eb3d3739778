//! The objects of the server, and uploads in parts that are not complete.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::SystemTime;

use super::dates;

/// Names on one page of a listing.
const PAGE: usize = 1000;

#[derive(Clone, Debug)]
pub(super) struct Object {
    /// Shared: a request for a range must not cost a copy of the whole.
    pub(super) bytes: Arc<Vec<u8>>,
    pub(super) written: SystemTime,
}

/// See the module. Names are `bucket/key`.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    by_name: BTreeMap<String, Object>,
    uploads: BTreeMap<String, BTreeMap<u64, Vec<u8>>>,
    uploads_begun: u64,
}

impl Objects {
    pub(super) fn all(&self) -> BTreeMap<String, Vec<u8>> {
        self.by_name.iter().map(|(name, object)| (name.clone(), object.bytes.to_vec())).collect()
    }

    pub(super) fn get(&self, name: &str) -> Option<Object> {
        self.by_name.get(name).cloned()
    }

    pub(super) fn put(&mut self, name: &str, bytes: Vec<u8>) {
        self.by_name.insert(name.to_owned(), Object { bytes: bytes.into(), written: SystemTime::now() });
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
    }

    pub(super) fn date(&mut self, written: SystemTime) {
        self.by_name.values_mut().for_each(|object| object.written = written);
    }

    /// The id of a new upload.
    pub(super) fn begin_upload(&mut self) -> String {
        self.uploads_begun += 1;
        let id = format!("upload-{}", self.uploads_begun);
        self.uploads.insert(id.clone(), BTreeMap::new());
        id
    }

    /// `false`: there is no such upload.
    pub(super) fn put_part(&mut self, id: &str, number: u64, bytes: Vec<u8>) -> bool {
        self.uploads.get_mut(id).map(|parts| parts.insert(number, bytes)).is_some()
    }

    pub(super) fn abort_upload(&mut self, id: &str) {
        self.uploads.remove(id);
    }

    /// `false`: there is no such upload.
    pub(super) fn complete_upload(&mut self, id: &str, name: &str) -> bool {
        let Some(parts) = self.uploads.remove(id) else { return false };
        self.put(name, parts.into_values().collect::<Vec<_>>().concat());
        true
    }

    /// A page of the names in a bucket that begin with a prefix and come after another, in XML.
    pub(super) fn list(&self, bucket: &str, prefix: &str, after: &str) -> String {
        let start = format!("{bucket}/");
        let keys =
            self.by_name.iter().filter_map(|(name, object)| Some((name.strip_prefix(&start)?, object)));
        let mut found = keys.filter(|(key, _)| key.starts_with(prefix) && *key > after);
        let page: Vec<_> = found.by_ref().take(PAGE).collect();
        let is_truncated = found.next().is_some();
        let mut xml =
            format!("<ListBucketResult><Name>{bucket}</Name><IsTruncated>{is_truncated}</IsTruncated>");
        if let Some((last, _)) = page.last().filter(|_| is_truncated) {
            let _ = write!(xml, "<NextContinuationToken>{last}</NextContinuationToken>");
        }
        for (key, object) in page {
            let (date, len) = (dates::iso(object.written), object.bytes.len());
            let _ = write!(
                xml,
                "<Contents><Key>{key}</Key><LastModified>{date}</LastModified><ETag>\"{len}\"</ETag><Size>{len}</Size></Contents>"
            );
        }
        xml + "</ListBucketResult>"
    }
}
