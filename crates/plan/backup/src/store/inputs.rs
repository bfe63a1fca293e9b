//! Inputs of a probe as a fingerprint: after a change of the inputs earlier results do not count.
//!
//! Decides which Secrets count, and the name of the Job that probes exactly these inputs.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_api::store::Location;
use holdfast_api::{EtcdBackupStore, name};

use holdfast_base::store_identity;
use holdfast_base::{Seen, fingerprint, meta};

/// Returns the names of the Secrets in a store's spec.
pub fn secrets(store: &EtcdBackupStore) -> BTreeSet<String> {
    let location = store.spec.place.location();
    let of_location = location.iter().flat_map(Location::secrets).map(str::to_owned);
    let credentials = store.spec.credentials.clone();
    credentials.into_iter().flat_map(|c| [Some(c.write), c.read, c.prune]).flatten().chain(of_location).collect()
}

/// Fingerprint of the spec, the versions of its Secrets, and the accepted store. A Secret that the operator may not read counts
/// as constant.
pub fn inputs(store: &EtcdBackupStore, secrets: &BTreeMap<String, Seen<Option<String>>>) -> String {
    // JSON of our own types cannot fail.
    let spec = serde_json::to_string(&store.spec).unwrap_or_default();
    let versions = secrets.iter().map(|(name, seen)| match seen {
        Seen::Known(Some(version)) => format!("{name}={version}"),
        Seen::Known(None) => format!("{name} is missing"),
        Seen::Unknown(_) => name.clone(),
    });
    let accepts = store_identity::accepted_id(store).map(|id| format!("accepts {id}"));
    fingerprint::hash_parts([meta::uid(&store.metadata).to_owned(), spec].into_iter().chain(versions).chain(accepts))
}

/// Returns the name of the Job that probes these inputs after the last result for the same inputs.
pub fn job_name(store: &EtcdBackupStore, inputs: &str) -> String {
    let probe = store.status.as_ref().and_then(|s| s.probe.as_ref());
    let before = probe.filter(|p| p.inputs == inputs).map(|p| p.at.as_str()).unwrap_or_default();
    let question = format!("{inputs} after {before}");
    name::probe(meta::name(&store.metadata), meta::uid(&store.metadata), &question)
}
