//! Manifests for tests: the required fields of format 1, with a test's changes.

use serde_json::{Value, json};

/// Content of the data object.
pub(crate) const DATA: &str = "12345";

/// Returns the manifest of a snapshot with this key.
pub(crate) fn manifest(key: &str) -> Value {
    json!({
        "formatVersion": 1, "key": key, "namespace": "shop", "cluster": "orders", "podUid": "p", "clusterId": "cafe",
        "memberId": "1", "member": "m", "etcdVersion": "3.6.16", "raftTerm": 2, "raftAppliedIndex": 3, "dbBytes": 4096,
        "sha256": "00".repeat(32), "storedBytes": DATA.len(), "storedSha256": "11".repeat(32), "compression": "zstd",
        "startedAt": "2026-11-21T16:22:33Z", "endedAt": "2026-11-21T16:22:34.5Z", "agentVersion": "0.1.0",
    })
}

/// Returns the manifest with the fields of `other`.
pub(crate) fn but(mut manifest: Value, other: &Value) -> Value {
    for (name, value) in other.as_object().into_iter().flatten() {
        manifest[name] = value.clone();
    }
    manifest
}
