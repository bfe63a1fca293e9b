//! The request of a container: one JSON value in a variable, the only input of `agent run`.
//!
//! Decides the wire format. The operator writes the variable, kubelet hands it to the agent, and a later pass of the operator reads
//! it back from the Pod: all three have one text. A person uses flags instead, from which clap makes the same requests.

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    CompactRequest, CompareRequest, EtcdFlags, GateRequest, InspectRequest, LatestRequest, LogRequest, ProbeRequest,
    PruneRequest, RecallRequest, RemoveRequest, RestoreRequest, SaveRequest, StoreFlags, SurveyRequest,
    UndeleteRequest, VerifyRequest,
};

/// Environment variable with the request.
pub const REQUEST: &str = "HOLDFAST_REQUEST";

/// Environment variable with [`PodFacts::pod_uid`].
pub const POD_UID: &str = "HOLDFAST_POD_UID";
/// Environment variable with [`PodFacts::owner_name`].
pub const OWNER_NAME: &str = "HOLDFAST_OWNER_NAME";
/// Environment variable with [`PodFacts::owner_uid`].
pub const OWNER_UID: &str = "HOLDFAST_OWNER_UID";
/// Environment variable with [`PodFacts::cluster_spec`].
pub const CLUSTER_SPEC: &str = "HOLDFAST_CLUSTER_SPEC";

/// Facts in other variables of the container.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// UID of the Pod, from kubelet.
    #[arg(long, env = POD_UID, hide = true)]
    pub pod_uid: Option<String>,
    /// Name of the Job that a `CronJob` made, from kubelet.
    #[arg(long, env = OWNER_NAME, hide = true)]
    pub owner_name: Option<String>,
    /// UID of that Job, from kubelet.
    #[arg(long, env = OWNER_UID, hide = true)]
    pub owner_uid: Option<String>,
    /// The cluster's spec as JSON. No plan reads it, and the operator's caches would hold it with the request.
    #[arg(long, env = CLUSTER_SPEC, hide = true, hide_env_values = true)]
    pub cluster_spec: Option<String>,
}

/// The work of a container of Holdfast. The name of a variant is the verb of the command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::large_enum_variant, reason = "made once for each container, and moved once")]
pub enum Request {
    /// Saves a snapshot.
    Save(SaveRequest),
    /// Records every revision.
    Log(LogRequest),
    /// Reports whether a snapshot was saved.
    Inspect(InspectRequest),
    /// Reports the latest snapshot.
    Latest(LatestRequest),
    /// Reports the stored runs of a schedule.
    Recall(RecallRequest),
    /// Announces and removes snapshots of a schedule.
    Prune(PruneRequest),
    /// Removes one snapshot.
    Remove(RemoveRequest),
    /// Probes a store.
    Probe(ProbeRequest),
    /// Verifies a snapshot; a rehearsal and a drill start etcd on it.
    Verify(VerifyRequest),
    /// Merges the newest snapshot and the log.
    Compact(CompactRequest),
    /// Compares the member lists of all members.
    CompareMembers(CompareRequest),
    /// Rebuilds a member's data from a snapshot.
    Restore(RestoreRequest),
    /// Reads how far a stopped member's data are.
    Survey(SurveyRequest),
    /// Puts keys back that a live etcd lacks.
    Undelete(UndeleteRequest),
    /// Decides whether etcd may start, and becomes etcd.
    Gate(GateRequest),
}

impl Request {
    /// Returns the value of [`REQUEST`]. Fields without a value are left out.
    pub fn to_text(&self) -> String {
        // JSON of these types fails only for a path that is not UTF-8, and a Pod's spec has no such path.
        let mut value = serde_json::to_value(self).unwrap_or_default();
        strip_absent(&mut value);
        let text = serde_json::to_string_pretty(&value).unwrap_or_default();
        // kubelet replaces `$(NAME)` and `$$` in a variable; a dollar of JSON stands only in a string (I28).
        text.replace('$', "\\u0024")
    }

    /// Parses the value of [`REQUEST`]. An unknown field is an error: it may forbid what this version would do.
    pub fn from_text(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// Fills in the facts of the Pod, where the request leaves them open.
    pub fn fill_in(&mut self, facts: PodFacts) {
        let fill = |field: &mut Option<String>, fact: Option<String>| *field = field.take().or(fact);
        if let Self::Save(request) = self {
            fill(&mut request.cluster_spec, facts.cluster_spec);
        }
        match self {
            Self::Save(SaveRequest { pod_uid, owner_name, owner_uid, .. })
            | Self::Compact(CompactRequest { pod_uid, owner_name, owner_uid, .. }) => {
                fill(pod_uid, facts.pod_uid);
                fill(owner_name, facts.owner_name);
                fill(owner_uid, facts.owner_uid);
            }
            Self::Prune(PruneRequest { pod_uid, .. }) | Self::Remove(RemoveRequest { pod_uid, .. }) => {
                fill(pod_uid, facts.pod_uid);
            }
            _ => {}
        }
    }

    /// Sets the store.
    pub fn set_store(&mut self, store: StoreFlags) {
        match self {
            Self::Save(request) => request.store = store,
            Self::Log(request) => request.store = store,
            Self::Inspect(request) => request.store = store,
            Self::Latest(request) => request.store = store,
            Self::Recall(request) => request.store = store,
            Self::Prune(request) => request.store = store,
            Self::Remove(request) => request.store = store,
            Self::Probe(request) => request.store = store,
            Self::Verify(request) => request.snapshot.store = Some(store),
            Self::Compact(request) => request.store = store,
            Self::Restore(request) => request.store = store,
            Self::Undelete(request) => request.store = store,
            Self::CompareMembers(_) | Self::Gate(_) | Self::Survey(_) => {}
        }
    }

    /// Returns the store ID that the agent expects.
    pub fn expected_store_id(&self) -> Option<&str> {
        match self {
            Self::Save(SaveRequest { expect_store_id, .. })
            | Self::Log(LogRequest { expect_store_id, .. })
            | Self::Inspect(InspectRequest { expect_store_id, .. })
            | Self::Latest(LatestRequest { expect_store_id, .. })
            | Self::Recall(RecallRequest { expect_store_id, .. })
            | Self::Prune(PruneRequest { expect_store_id, .. })
            | Self::Remove(RemoveRequest { expect_store_id, .. })
            | Self::Probe(ProbeRequest { expect_store_id, .. })
            | Self::Verify(VerifyRequest { expect_store_id, .. })
            | Self::Compact(CompactRequest { expect_store_id, .. })
            | Self::Restore(RestoreRequest { expect_store_id, .. })
            | Self::Undelete(UndeleteRequest { expect_store_id, .. }) => expect_store_id.as_deref(),
            Self::CompareMembers(_) | Self::Gate(_) | Self::Survey(_) => None,
        }
    }

    /// Sets the etcd of a save, of a log and of an undelete; the etcd of no other request.
    pub fn set_etcd(&mut self, etcd: EtcdFlags) {
        match self {
            Self::Save(request) => request.etcd = etcd,
            Self::Log(request) => request.etcd = etcd,
            Self::Undelete(request) => request.etcd = etcd,
            _ => {}
        }
    }

    /// Returns the cluster of the snapshots.
    pub fn cluster(&self) -> Option<&str> {
        match self {
            Self::Save(SaveRequest { cluster, .. })
            | Self::Log(LogRequest { cluster, .. })
            | Self::Inspect(InspectRequest { cluster, .. })
            | Self::Latest(LatestRequest { cluster, .. })
            | Self::Recall(RecallRequest { cluster, .. })
            | Self::Prune(PruneRequest { cluster, .. })
            | Self::Compact(CompactRequest { cluster, .. }) => Some(cluster),
            Self::Verify(request) => request.cluster.as_deref(),
            Self::Remove(_)
            | Self::Probe(_)
            | Self::CompareMembers(_)
            | Self::Restore(_)
            | Self::Survey(_)
            | Self::Undelete(_)
            | Self::Gate(_) => None,
        }
    }

    /// Returns the seconds after which the agent gives up, with the delay before a save; 0: never.
    pub fn deadline_seconds(&self) -> u32 {
        match self {
            Self::Save(request) => request.deadline_seconds.saturating_add(request.delay_seconds),
            Self::Inspect(InspectRequest { deadline_seconds, .. })
            | Self::Latest(LatestRequest { deadline_seconds, .. })
            | Self::Recall(RecallRequest { deadline_seconds, .. })
            | Self::Prune(PruneRequest { deadline_seconds, .. })
            | Self::Remove(RemoveRequest { deadline_seconds, .. })
            | Self::Probe(ProbeRequest { deadline_seconds, .. })
            | Self::Verify(VerifyRequest { deadline_seconds, .. })
            | Self::Compact(CompactRequest { deadline_seconds, .. })
            | Self::CompareMembers(CompareRequest { deadline_seconds, .. }) => *deadline_seconds,
            Self::Restore(RestoreRequest { deadline_seconds, .. })
            | Self::Undelete(UndeleteRequest { deadline_seconds, .. }) => deadline_seconds.unwrap_or_default(),
            Self::Log(_) | Self::Gate(_) | Self::Survey(_) => 0,
        }
    }
}

/// Removes `null` and empty lists from objects: the defaults of these fields. `false` stays: some fields have no value by default.
fn strip_absent(value: &mut Value) {
    let Value::Object(fields) = value else { return };
    fields.values_mut().for_each(strip_absent);
    fields.retain(|_, field| match field {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        _ => true,
    });
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use proptest::prelude::*;

    use super::*;
    use crate::{
        AskMembers, Compression, IdentityFlags, Leases, LockMode, Policy, ProofLevel, S3Checksum, S3Sse, SnapshotFlags,
    };

    /// Texts that a tenant could write into a field.
    fn text() -> impl Strategy<Value = String> {
        let words = ["$(reboot)", "$$", "\"}", "--", "\\u0024", "a b;\n", ""].map(str::to_owned);
        prop_oneof![proptest::sample::select(words.to_vec()), "\\PC{0,40}"]
    }

    fn store(text: &str) -> StoreFlags {
        StoreFlags {
            url: text.to_owned(),
            group_access: true,
            s3_force_path_style: Some(false),
            s3_sse: Some(S3Sse::AwsKms),
            s3_tag: vec![text.to_owned()],
            s3_object_lock: Some(LockMode::Compliance),
            s3_object_lock_days: Some(0),
            s3_checksum: Some(S3Checksum::Crc64nvme),
            credentials_dir: Some(text.into()),
            ..StoreFlags::default()
        }
    }

    fn every(text: &str) -> Vec<Request> {
        let some = Some(text.to_owned());
        let etcd = EtcdFlags { endpoints: vec![text.to_owned()], http2_window: Some(1), ..EtcdFlags::default() };
        vec![
            Request::Save(SaveRequest {
                store: store(text),
                etcd: etcd.clone(),
                cluster_spec: some.clone(),
                compression: Compression::Gzip,
                ask_members: AskMembers::Never,
                spool_mib: Some(u64::MAX),
                ..SaveRequest::default()
            }),
            Request::Log(LogRequest { etcd, namespace: text.to_owned(), ..LogRequest::default() }),
            Request::Inspect(InspectRequest { owner_uid: text.to_owned(), ..InspectRequest::default() }),
            Request::Latest(LatestRequest { lineage: some.clone(), ..LatestRequest::default() }),
            Request::Recall(RecallRequest { cluster: text.to_owned(), ..RecallRequest::default() }),
            Request::Prune(PruneRequest {
                policy: Policy { keep_within: Some(SignedDuration::from_hours(6)), ..Policy::default() },
                protect: vec![text.to_owned(), String::new()],
                ..PruneRequest::default()
            }),
            Request::Remove(RemoveRequest { key: text.to_owned(), allow_last: true, ..RemoveRequest::default() }),
            Request::Probe(ProbeRequest { store: store(text), ..ProbeRequest::default() }),
            Request::Verify(VerifyRequest {
                snapshot: SnapshotFlags { store: Some(StoreFlags::default()), key: some, ..SnapshotFlags::default() },
                level: ProofLevel::Drill,
                latest: true,
                ..VerifyRequest::default()
            }),
            Request::Compact(CompactRequest { scratch: text.into(), ..CompactRequest::default() }),
            Request::CompareMembers(CompareRequest { member_seconds: 7, ..CompareRequest::default() }),
            Request::Restore(RestoreRequest { at_revision: Some(i64::MAX), ..RestoreRequest::default() }),
            Request::Restore(RestoreRequest { from_volume: Some(text.into()), ..RestoreRequest::default() }),
            Request::Survey(SurveyRequest { volume: text.into(), json: true }),
            Request::Undelete(UndeleteRequest {
                prefix: Some(text.to_owned()),
                leases: Leases::Keep,
                ..UndeleteRequest::default()
            }),
            Request::Gate(GateRequest {
                identity: IdentityFlags { member_name: text.to_owned(), ..IdentityFlags::default() },
                exec: vec![text.to_owned(), "--initial-cluster=a".to_owned()],
                ..GateRequest::default()
            }),
        ]
    }

    proptest! {
        #[test]
        fn a_request_comes_back_from_its_text_and_kubelet_changes_none(text in text()) {
            for request in every(&text) {
                let written = request.to_text();
                prop_assert!(!written.contains('$'), "{}", written);
                prop_assert_eq!(Request::from_text(&written), Ok(request));
            }
        }
    }

    #[test]
    fn a_field_without_a_value_is_left_out_and_an_unknown_one_is_refused() {
        let remove = RemoveRequest { key: "k".to_owned(), ..RemoveRequest::default() };
        let written: Value = serde_json::from_str(&Request::Remove(remove).to_text()).unwrap();
        let fields: Vec<&String> = written["remove"].as_object().unwrap().keys().collect();
        assert_eq!(fields, ["allowLast", "deadlineSeconds", "key", "manifestSha256", "store"]);
        let refused = Request::from_text(r#"{"remove": {"key": "k", "onlyIfOld": true}}"#).unwrap_err();
        assert!(refused.contains("onlyIfOld"), "{refused}");
        assert!(Request::from_text("{}").is_err() && Request::from_text(r#"{"destroy": {}}"#).is_err());
    }

    #[test]
    fn kubelet_s_facts_fill_what_the_request_leaves_open() {
        let mut save = Request::Save(SaveRequest { owner_uid: Some("o".to_owned()), ..SaveRequest::default() });
        let [pod_uid, owner_name, owner_uid, cluster_spec] = ["p", "j", "u", "{}"].map(|fact| Some(fact.to_owned()));
        save.fill_in(PodFacts { pod_uid, owner_name, owner_uid, cluster_spec });
        let Request::Save(save) = save else { panic!() };
        assert_eq!((save.pod_uid.as_deref(), save.owner_uid.as_deref()), (Some("p"), Some("o")));
        assert_eq!((save.owner_name.as_deref(), save.cluster_spec.as_deref()), (Some("j"), Some("{}")));
    }
}
