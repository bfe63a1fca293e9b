//! The acts that change a few fields of one object: each is one merge patch (RFC 7396).
//!
//! Decides the patch. The operator sends it with the UID and the resourceVersion of the target (I12), and the simulated world of the
//! tests applies it.

use holdfast_api::member::Resize;
use holdfast_api::transport::Transport;
use holdfast_api::{key, role};
use serde_json::{Value, json};

use crate::act::FirstCertificates;
use crate::{Act, Target};

/// The object that a patch changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patched<'a> {
    /// The `EtcdCluster`.
    Cluster(&'a Target),
    /// An `EtcdMember`.
    Member(&'a Target),
    /// A Pod.
    Pod(&'a Target),
    /// An `EtcdUser`.
    User(&'a Target),
}

impl Act {
    /// Returns the object and the patch; `None`: the act needs more than one merge patch.
    pub fn to_patch(&self) -> Option<(Patched<'_>, Value)> {
        let spec = |member, change| Some((Patched::Member(member), json!({"spec": change})));
        let annotate = |pod, change| Some((Patched::Pod(pod), json!({"metadata": {"annotations": change}})));
        let label = |pod, change| Some((Patched::Pod(pod), json!({"metadata": {"labels": change}})));
        match self {
            Self::EndLeaderRequest { cluster, .. } => {
                Some((Patched::Cluster(cluster), json!({"metadata": {"annotations": {key::MOVE_LEADER: null}}})))
            }
            Self::ClaimUser { user, claim } => {
                Some((Patched::User(user), json!({"metadata": {"annotations": {key::USER: claim}}})))
            }
            Self::CopyRetention { member, retention } => spec(member, json!({"storage": {"retention": retention}})),
            Self::SetInitialCluster { member, initial_cluster } => {
                spec(member, json!({"initialCluster": initial_cluster}))
            }
            Self::LatchJoined { member, joined } => spec(member, json!({"joined": joined})),
            Self::LatchStart { member, count } => spec(member, json!({"startCount": count})),
            Self::LatchLeaving { member, leaving } => spec(member, json!({"leaving": leaving})),
            Self::LatchRemoved { member, removed } => spec(member, json!({"removed": removed})),
            Self::Park { member, parked } => spec(member, json!({"parked": parked})),
            Self::SetAside { member, aside } => spec(member, json!({"aside": aside})),
            Self::TakeBack { member, parked } => spec(member, json!({"aside": null, "parked": parked})),
            Self::Unpark { member } => spec(member, json!({"parked": null})),
            Self::SetVolumeSize { member, size } => spec(member, json!({"storage": {"size": size}})),
            Self::AnnounceCertificates { member, first, digest, trusts, cas } => {
                let mut change = json!({"tls": {"staged": digest, "trusts": trusts, "cas": cas}});
                if let Some(FirstCertificates { peer_name }) = first {
                    change["transport"] = json!(Transport::Plaintext);
                    change["tls"]["peerName"] = json!(peer_name);
                }
                spec(member, change)
            }
            Self::CopyPodMetadata { member, old, new } => {
                let change = if new.is_empty() { Value::Null } else { replacing(&json!(old), &json!(new)) };
                spec(member, json!({"podMetadata": change}))
            }
            Self::ForbidEmptyStart { pod, joined } => {
                annotate(pod, json!({key::MAY_START_EMPTY: null, key::JOINED: joined.annotation()}))
            }
            Self::MarkStarted { pod, count, joined } => {
                annotate(pod, json!({key::STARTED: count.to_string(), key::JOINED: joined.annotation()}))
            }
            Self::RefreshCertificates { pod, digest } => annotate(pod, json!({key::TLS: digest})),
            Self::RefreshVolume { pod, size } => annotate(pod, json!({key::VOLUME_REQUEST: size})),
            Self::BeginResize { pod, template } => {
                annotate(pod, json!({key::TEMPLATE: template, key::RESIZE: Resize::Asked.as_str()}))
            }
            Self::EndResize { pod, .. } => annotate(pod, json!({key::RESIZE: null})),
            Self::SetPodMetadata { pod, labels, annotations } => {
                Some((Patched::Pod(pod), json!({"metadata": {"labels": labels, "annotations": annotations}})))
            }
            Self::Relabel { pod, labels } => label(pod, json!(labels)),
            Self::AdmitClients { pod } => label(pod, json!({key::ROLE: role::VOTER})),
            Self::DismissClients { pod } => label(pod, json!({key::ROLE: role::LEARNER})),
            _ => None,
        }
    }
}

/// Returns the merge patch after which `old` is `new`: `null` for each field that `new` lacks.
pub fn replacing(old: &Value, new: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (old, new) else { return new.clone() };
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let kept =
        after.iter().map(|(key, value)| (key.clone(), replacing(before.get(key).unwrap_or(&Value::Null), value)));
    Value::Object(gone.chain(kept).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_value_keeps_no_field_of_the_old_one() {
        let old = json!({"options": {"a": 1, "b": 2}, "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "image": {"x": 1}});
        let new = json!({"options": {"b": 3}, "resources": {"limits": {"cpu": "2"}}});
        let patch = json!({"options": {"a": null, "b": 3}, "resources": {"limits": {"cpu": "2", "memory": null}}, "image": null});
        assert_eq!(replacing(&old, &new), patch);
        assert_eq!(replacing(&json!({"a": null}), &json!({"a": {"b": 1}})), json!({"a": {"b": 1}}));
    }
}
