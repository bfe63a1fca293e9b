//! What a probe depends on, as one short word: when it changes, what was found before says nothing any more.
//!
//! Decides which Secrets count, and the name of the Job that finds out about exactly these inputs.

use std::collections::{BTreeMap, BTreeSet};

use super::identity;
use crate::api::store::Location;
use crate::api::{EtcdBackupStore, name};
use crate::plan::{Seen, fingerprint, meta};

/// Names of the Secrets that a store names.
pub fn secrets(store: &EtcdBackupStore) -> BTreeSet<String> {
    let location = store.spec.place.location();
    let of_location = location.iter().flat_map(Location::secrets).map(str::to_owned);
    let credentials = store.spec.credentials.clone();
    credentials.into_iter().flat_map(|c| [Some(c.write), c.read, c.prune]).flatten().chain(of_location).collect()
}

/// The spec, the versions of its Secrets, and what a person accepts. A Secret that may not be looked at counts as one that never changes.
pub fn inputs(store: &EtcdBackupStore, secrets: &BTreeMap<String, Seen<Option<String>>>) -> String {
    // JSON of our own types cannot fail.
    let spec = serde_json::to_string(&store.spec).unwrap_or_default();
    let versions = secrets.iter().map(|(name, seen)| match seen {
        Seen::Known(Some(version)) => format!("{name}={version}"),
        Seen::Known(None) => format!("{name} is missing"),
        Seen::Unknown(_) => name.clone(),
    });
    let accepts = identity::said(store).map(|said| format!("accepts {said}"));
    fingerprint::of([meta::uid(&store.metadata).to_owned(), spec].into_iter().chain(versions).chain(accepts))
}

/// Name of the Job that probes these inputs, after what was found of them before.
pub fn job_name(store: &EtcdBackupStore, inputs: &str) -> String {
    let probe = store.status.as_ref().and_then(|s| s.probe.as_ref());
    let before = probe.filter(|p| p.inputs == inputs).map(|p| p.at.as_str()).unwrap_or_default();
    let question = format!("{inputs} after {before}");
    name::probe(meta::name(&store.metadata), meta::uid(&store.metadata), &question)
}
