//! The report of a drill: the newest or a named snapshot, restored into a scratch folder and served by an etcd, and decoded by a
//! kube-apiserver where the request names one.
//!
//! This file decides the wire format, and which facts of a long report stay. `snapshot-agent/rebuild/src/verify/drill.rs` decides
//! the proof.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::FailedReport;
use super::outcome::halve;

/// Resources that a report names with their number of objects.
const MAX_RESOURCES: usize = 20;

/// Length of a message that stays as long as resources and keys can be cut.
const READABLE: usize = 800;

/// Result of a drill.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrilledReport {
    /// The snapshot's folder below the store's prefix.
    pub key: String,
    /// Revision of the key space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Keys at that revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// etcd's HashKV at that revision.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "hashKV")]
    pub hash_kv: Option<u32>,
    /// Version of the etcd that served the restored data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,
    /// Seconds from the first byte of the store to the restored data directory, rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_seconds: Option<u64>,
    /// Seconds from the start of etcd to its first answer, rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serve_seconds: Option<u64>,
    /// Objects that a kube-apiserver decoded; absent: the request names no kube-apiserver, or none became ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesReport>,
    /// Whether authentication is on: no `EtcdCluster` can be restored from the snapshot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auth_enabled: bool,
    /// Why the store has no proof of the drill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof_not_kept: Option<String>,
    /// Why the drill failed; absent: the drill passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedReport>,
}

/// Objects that a kube-apiserver decoded from the restored data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesReport {
    /// Version of kube-apiserver.
    pub version: String,
    /// Seconds from the start of kube-apiserver until it was ready, rounded up.
    pub ready_seconds: u64,
    /// Decoded objects.
    pub objects: u64,
    /// Decoded objects of each resource, such as `pods` and `deployments.apps`. A report has the largest numbers only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, u64>,
    /// Keys of resources that this kube-apiserver does not serve; absent: none. The proof in the store names their folders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out_keys: Option<u64>,
    /// etcd's keys of objects that kube-apiserver cannot decode; the first ones only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undecodable: Vec<String>,
    /// Resources with values that kube-apiserver cannot decrypt, each with the provider that the value names:
    /// `secrets k8s:enc:aescbc:v1:key1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub encrypted: Vec<String>,
}

impl KubernetesReport {
    /// Removes the resources with the fewest objects, down to the number that a report names.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        while self.resources.len() > MAX_RESOURCES && self.cut_resource() {}
        self
    }

    fn cut_resource(&mut self) -> bool {
        let fewest = self.resources.iter().min_by_key(|(_, objects)| **objects).map(|(name, _)| name.clone());
        fewest.is_some_and(|name| self.resources.remove(&name).is_some())
    }

    fn cut(&mut self) -> bool {
        self.cut_resource() || self.undecodable.pop().is_some() || self.encrypted.pop().is_some()
    }
}

impl DrilledReport {
    /// Shortens the report; `false` when nothing is left to cut.
    pub fn cut(&mut self) -> bool {
        let Self { proof_not_kept, failed, kubernetes, .. } = self;
        let words = proof_not_kept.as_mut().into_iter().chain(failed.as_mut().map(|it| &mut it.message));
        let longest = words.max_by_key(|words| words.len());
        let is_readable = longest.as_ref().is_none_or(|words| words.len() <= READABLE);
        is_readable && kubernetes.as_mut().is_some_and(KubernetesReport::cut) || longest.is_some_and(halve)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExitClass;

    #[test]
    fn a_short_report_keeps_the_key_and_the_class() {
        let failed = FailedReport { class: ExitClass::Corrupt, origin: None, message: "x".repeat(9000) };
        let proof_not_kept = Some("y".repeat(5000));
        let key = "ns/a/12345678/20261121T100000Z-1-2".to_owned();
        let mut report =
            DrilledReport { key: key.clone(), proof_not_kept, failed: Some(failed), ..DrilledReport::default() };
        while report.cut() {}
        assert_eq!((&report.key, report.failed.as_ref().unwrap().class), (&key, ExitClass::Corrupt));
        assert!(serde_json::to_string(&report).unwrap().len() < 300);
    }

    #[test]
    fn a_report_of_objects_loses_the_smallest_resources_first_and_keeps_the_sum() {
        let resources = (0..50).map(|n| (format!("things{n}.example.org"), n)).collect();
        let found = KubernetesReport { objects: 1225, resources, ..KubernetesReport::default() }.bounded();
        assert_eq!((found.resources.len(), found.objects), (MAX_RESOURCES, 1225));
        assert!(found.resources.contains_key("things49.example.org"), "{found:?}");
        let undecodable = (0..20).map(|n| format!("/registry/{}/{n}", "k".repeat(300))).collect();
        let message = "m".repeat(3000);
        let failed = FailedReport { class: ExitClass::Undecodable, origin: None, message };
        let kubernetes = Some(KubernetesReport { undecodable, ..found });
        let mut report = DrilledReport { failed: Some(failed), kubernetes, ..DrilledReport::default() };
        while serde_json::to_string(&report).unwrap().len() > 4000 {
            assert!(report.cut(), "{report:?}");
        }
        let found = report.kubernetes.unwrap();
        assert_eq!((found.objects, found.resources.len()), (1225, 0), "keys are worth more than numbers");
        assert!(found.undecodable.len() > 5 && report.failed.unwrap().message.len() > 300, "{:?}", found.undecodable);
    }
}
