//! Names of what we make, each rule written once, so that none is ever too long for the API server.
//!
//! Decides lengths and suffixes. Randomness and UIDs are arguments.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Longest cluster name: `<name>-client` and `<name>-<5>` fit a DNS label (63), and CronJob names (52) will too.
pub const MAX_CLUSTER_NAME: usize = 52;

/// A DNS label (RFC 1123): the limit of Pod host names, Job names and label values.
pub const MAX_LABEL: usize = 63;

/// Names that Kubernetes gives to objects (DNS subdomains, RFC 1123).
pub(super) const OBJECT_NAME: &str = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$";

/// An object in the same namespace, by name. There is no namespace field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalRef {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: String,
}

/// Name of the headless Service the members find each other by.
pub fn peer_service(cluster: &str) -> String {
    cluster.to_owned()
}

/// Name of the Service clients use.
pub fn client_service(cluster: &str) -> String {
    format!("{cluster}-client")
}

/// Name of the disruption budget.
pub fn budget(cluster: &str) -> String {
    cluster.to_owned()
}

/// Name of a member: `<cluster>-<suffix>`; the suffix is five characters of chance and never reused.
pub fn member(cluster: &str, suffix: &str) -> String {
    format!("{cluster}-{suffix}")
}

/// Name of a member's claim.
pub fn claim(member: &str) -> String {
    format!("data-{member}")
}

/// Name of a snapshot's Job: as much of the snapshot's name as fits, and 8 hex digits of its UID, so that an object
/// made again under the same name never meets the old one's Job.
pub fn job(snapshot: &str, uid: &str) -> String {
    let hash = hex::encode(&Sha256::digest(uid.as_bytes())[..4]);
    let room = MAX_LABEL - hash.len() - 1;
    let head: String = snapshot.replace('.', "-").chars().take(room).collect();
    format!("{}-{hash}", head.trim_end_matches('-'))
}

/// Name of the Job that asks the store about a snapshot: one for each `question`.
pub fn inspection(snapshot: &str, uid: &str, question: &str) -> String {
    job(snapshot, &format!("{uid}/inspect/{question}"))
}

/// Name of the Job that probes a store: one for each `question`.
pub fn probe(store: &str, uid: &str, question: &str) -> String {
    job(store, &format!("{uid}/probe/{question}"))
}

/// Most characters of a `CronJob`'s name: its Jobs have 11 more (Kubernetes).
pub const MAX_CRON_JOB: usize = 52;

/// Name of a schedule's `CronJob`. The end of the name is what an alert selects by, which needs no operator.
pub fn cron_job(schedule: &str, uid: &str) -> String {
    recurring(schedule, uid, "backup")
}

/// Name of the `CronJob` of a schedule's drills.
pub fn drill_cron_job(schedule: &str, uid: &str) -> String {
    recurring(schedule, uid, "drill")
}

/// Name of the `CronJob` of a schedule that merges snapshots and the log.
pub fn compaction_cron_job(schedule: &str, uid: &str) -> String {
    recurring(schedule, uid, "compact")
}

/// Name of the Deployment that records the log of a schedule.
pub fn log_deployment(schedule: &str, uid: &str) -> String {
    recurring(schedule, uid, "log")
}

/// Name of the Job that saves a snapshot after a gap in the log: one for each gap, by its last revision.
pub fn after_gap(schedule: &str, uid: &str, until: i64) -> String {
    job(schedule, &format!("{uid}/gap/{until}"))
}

/// Name of the Job that saves a snapshot after a return in place: one for each etcd cluster.
pub fn after_return(schedule: &str, uid: &str, cluster_id: &str) -> String {
    job(schedule, &format!("{uid}/return/{cluster_id}"))
}

/// A name with this word that Kubernetes takes for a `CronJob` and for the owner of Jobs.
fn recurring(name: &str, uid: &str, work: &str) -> String {
    let end = format!("-{work}-{}", hex::encode(&Sha256::digest(uid.as_bytes())[..4]));
    let head: String = name.replace('.', "-").chars().take(MAX_CRON_JOB - end.len()).collect();
    format!("{}{end}", head.trim_end_matches('-'))
}

/// Name of the Job that asks the store for runs after an outage: one for each hole, and each time it is asked.
pub fn recall(schedule: &str, uid: &str, hole: &str, number: i32) -> String {
    job(schedule, &format!("{uid}/recall/{hole}/{number}"))
}

/// Name of the Job that removes snapshots of a schedule: one for each time that this is decided.
pub fn prune(schedule: &str, uid: &str, decided: &str) -> String {
    job(schedule, &format!("{uid}/prune/{decided}"))
}

/// Name of the Job that removes the stored snapshot of an object: one for each time that this is decided.
pub fn removal(snapshot: &str, uid: &str, decided: &str) -> String {
    job(snapshot, &format!("{uid}/remove/{decided}"))
}

/// Name of the Job that looks for the latest snapshot to restore: one for each `question`, and each time it is asked.
pub fn search(cluster: &str, uid: &str, question: &str, number: i32) -> String {
    job(cluster, &format!("{uid}/latest/{question}/{number}"))
}

/// Name of the Job that rehearses an upgrade: one for each `question`.
pub fn rehearsal(cluster: &str, uid: &str, question: &str) -> String {
    job(cluster, &format!("{uid}/rehearsal/{question}"))
}

/// Name of the `EtcdSnapshot` that the operator requests before an upgrade: one for each `question`.
pub fn before_upgrade(cluster: &str, uid: &str, question: &str) -> String {
    job(cluster, &format!("{uid}/before-upgrade/{question}"))
}

/// Name of the last `EtcdSnapshot` of a cluster that is being deleted.
pub fn final_snapshot(cluster: &str, uid: &str) -> String {
    recurring(cluster, uid, "final")
}

/// Name of the safety snapshot of an `EtcdRestore` with this UID.
pub fn safety_snapshot(cluster: &str, uid: &str) -> String {
    recurring(cluster, uid, "safety")
}

/// A value that fits a label: itself where it does, else its beginning and a hash of the whole.
pub fn label_value(name: &str) -> String {
    if name.len() <= MAX_LABEL {
        return name.to_owned();
    }
    let hash = hex::encode(&Sha256::digest(name.as_bytes())[..4]);
    let head: String = name.chars().take(MAX_LABEL - hash.len() - 1).collect();
    format!("{}-{hash}", head.trim_end_matches(['-', '.']))
}

/// Scheme of the URLs of a cluster's members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Plaintext.
    Http,
    /// TLS.
    Https,
}

impl Scheme {
    /// The part of a URL before `://`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// Host name of a member.
pub fn host(member: &str, cluster: &str, namespace: &str) -> String {
    format!("{member}.{}.{namespace}.svc", peer_service(cluster))
}

/// URL by which the other members reach a member.
pub fn peer_url(scheme: Scheme, member: &str, cluster: &str, namespace: &str) -> String {
    format!("{}://{}:2380", scheme.as_str(), host(member, cluster, namespace))
}

/// URL by which clients and agents reach exactly this member.
pub fn client_url(scheme: Scheme, member: &str, cluster: &str, namespace: &str) -> String {
    format!("{}://{}:2379", scheme.as_str(), host(member, cluster, namespace))
}

/// URL by which clients reach the voters of a cluster.
pub fn endpoint(scheme: Scheme, cluster: &str, namespace: &str) -> String {
    format!("{}://{}.{namespace}.svc:2379", scheme.as_str(), client_service(cluster))
}

/// Name of the Secret with the CA that signs the members' certificates towards each other.
pub fn peer_ca(cluster: &str) -> String {
    format!("{cluster}-peer-ca")
}

/// Name of the Secret with the CA that signs the servers' and the clients' certificates.
pub fn client_ca(cluster: &str) -> String {
    format!("{cluster}-client-ca")
}

/// Name of the Secret with the client certificate of the operator and its Jobs (CN=root).
pub fn operator_tls(cluster: &str) -> String {
    format!("{cluster}-operator-tls")
}

/// Name of the Secret with a client certificate for applications.
pub fn client_tls(cluster: &str) -> String {
    format!("{cluster}-client-tls")
}

/// Name of the Secret with the certificate of an `EtcdUser`.
pub fn user_tls(user: &str) -> String {
    format!("{user}-etcd-tls")
}

/// Name of the `ConfigMap` with the certificate of the client CA.
pub fn ca_bundle(cluster: &str) -> String {
    format!("{cluster}-ca")
}

/// Name of the Secret with all certificates and keys of one member.
pub fn member_tls(member: &str) -> String {
    format!("{member}-tls")
}

/// Name of the Certificate, and of its Secret, that cert-manager issues for a member towards clients.
pub fn server_request(member: &str) -> String {
    format!("{member}-server-cert")
}

/// Name of the Certificate, and of its Secret, that cert-manager issues for a member towards its peers.
pub fn peer_request(member: &str) -> String {
    format!("{member}-peer-cert")
}

/// Name of the Certificate, and of its Secret, that cert-manager issues for the operator.
pub fn operator_request(cluster: &str) -> String {
    format!("{cluster}-operator-cert")
}

/// A name that every peer certificate of a cluster contains, and no other certificate of Holdfast's: members accept no
/// peer without this name.
pub fn peer_marker(cluster: &str, namespace: &str) -> String {
    format!("peer.{cluster}.{namespace}.svc")
}

/// etcd's cluster token: one for each incarnation of a cluster, so that members of two never speak to each other.
pub fn cluster_token(namespace: &str, cluster: &str, uid: &str) -> String {
    format!("{namespace}-{cluster}-{uid}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_longest_cluster_fit() {
        let cluster = "c".repeat(MAX_CLUSTER_NAME);
        let member = member(&cluster, "x2z4b");
        for name in [client_service(&cluster), peer_service(&cluster), budget(&cluster), member.clone(), claim(&member)]
        {
            assert!(name.len() <= MAX_LABEL, "{name}");
        }
    }

    #[test]
    fn a_jobs_name_fits_and_tells_objects_of_one_name_apart() {
        for snapshot in ["nightly", &"s".repeat(253), "with.dots", &format!("{}.x", "s".repeat(54))] {
            let name = job(snapshot, "uid-1");
            assert!(name.len() <= MAX_LABEL, "{name}");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'), "{name}");
            assert_ne!(name, job(snapshot, "uid-2"));
            assert_eq!(name, job(snapshot, "uid-1"));
        }
    }

    #[test]
    fn a_cron_jobs_name_fits_and_ends_with_its_hash() {
        for schedule in ["nightly", &"s".repeat(253), "with.dots", &format!("{}.x", "s".repeat(35))] {
            let name = cron_job(schedule, "uid-1");
            assert!(name.len() <= MAX_CRON_JOB && !name.contains('.') && !name.contains("--"), "{name}");
            let end = &name[name.len() - 16..];
            assert!(end.starts_with("-backup-") && end[8..].bytes().all(|b| b.is_ascii_hexdigit()), "{name}");
            assert_ne!(name, cron_job(schedule, "uid-2"));
            let drill = drill_cron_job(schedule, "uid-1");
            assert!(drill.len() <= MAX_CRON_JOB && drill[..drill.len() - 8].ends_with("-drill-"), "{drill}");
        }
    }

    #[test]
    fn label_values_fit_and_differ() {
        assert_eq!(label_value("short"), "short");
        let (one, two) = ("n".repeat(100), format!("{}m", "n".repeat(99)));
        assert_eq!(label_value(&one).len(), MAX_LABEL);
        assert_ne!(label_value(&one), label_value(&two));
        let dots = format!("{}..............................", "n".repeat(50));
        assert!(!label_value(&dots).contains(".-"));
    }

    #[test]
    fn addresses_are_those_of_the_headless_service() {
        assert_eq!(peer_url(Scheme::Http, "a-x", "a", "ns"), "http://a-x.a.ns.svc:2380");
        assert_eq!(client_url(Scheme::Https, "a-x", "a", "ns"), "https://a-x.a.ns.svc:2379");
        assert_eq!(endpoint(Scheme::Https, "a", "ns"), "https://a-client.ns.svc:2379");
        assert_ne!(cluster_token("ns", "a", "u1"), cluster_token("ns", "a", "u2"));
    }
}
