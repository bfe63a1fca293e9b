//! The report of a drill: the newest or a named snapshot, restored into a scratch folder and served by an etcd.
//!
//! This file decides the wire format only. `snapshot-agent/src/verbs/verify/drill.rs` decides what a drill proves.

use serde::{Deserialize, Serialize};

use super::FailedReport;
use super::outcome::halve;

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
    /// Why the store has no proof of the drill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof_not_kept: Option<String>,
    /// Why the drill failed; absent: the drill passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedReport>,
}

impl DrilledReport {
    /// Shortens the report; `false` when nothing is left to cut.
    pub fn cut(&mut self) -> bool {
        let words = self.proof_not_kept.as_mut().into_iter().chain(self.failed.as_mut().map(|it| &mut it.message));
        words.max_by_key(|words| words.len()).is_some_and(halve)
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
}
