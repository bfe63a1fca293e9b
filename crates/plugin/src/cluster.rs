//! `cluster pause|resume|scale|restart|rotate-ca|renew-certificates`: the requests that the operator's plans know.
//!
//! Decides the field or the annotation of each request, and when a request is carried out. The operator decides the order of steps.

use clap::{Args, Subcommand, ValueEnum};
use holdfast_api::cluster::Retention;
use holdfast_api::condition::{self, Reason, Type};
use holdfast_api::tls::PlaneStatus;
use holdfast_api::{EtcdCluster, EtcdMember, key};
use holdfast_io::clock;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::access::{Access, Only, Session};
use super::end::{DONE, print, wrong_use};
use super::wait::{Look, Wait};
use holdfast_manifests::names::object;

/// Verbs of `cluster`.
#[derive(Subcommand, Clone, Debug, PartialEq, Eq)]
pub enum ClusterVerb {
    /// Let the operator only observe and report.
    Pause(Box<NamedFlags>),
    /// Let the operator act again.
    Resume(Box<NamedFlags>),
    /// Change the number of members. 0 parks the cluster: every Pod ends, and the volumes stay.
    Scale(Box<ScaleFlags>),
    /// Restart the members, one after the other, the leader last.
    Restart(Box<RestartFlags>),
    /// Exchange the CAs that Holdfast made: members restart twice, one after the other.
    RotateCa(Box<RotateCaFlags>),
    /// Issue the certificates of Holdfast's CAs again, one member after the other. No member restarts.
    RenewCertificates(Box<NamedFlags>),
}

/// Flags of `cluster pause` and `cluster resume`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct NamedFlags {
    /// `EtcdCluster`.
    #[arg(value_parser = object)]
    pub cluster: String,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
}

/// Flags of `cluster scale`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ScaleFlags {
    /// `EtcdCluster`.
    #[arg(value_parser = object)]
    pub cluster: String,
    /// Number of members: 0 to 9.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..=9))]
    pub replicas: i32,
    /// Wait.
    #[command(flatten)]
    pub wait: Wait,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
}

/// Flags of `cluster restart`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct RestartFlags {
    /// `EtcdCluster`.
    #[arg(value_parser = object)]
    pub cluster: String,
    /// Wait.
    #[command(flatten)]
    pub wait: Wait,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
}

/// Flags of `cluster rotate-ca`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct RotateCaFlags {
    /// `EtcdCluster`.
    #[arg(value_parser = object)]
    pub cluster: String,
    /// CA to exchange: that of clients, that of the members among each other, or both.
    #[arg(long, value_enum, default_value_t)]
    pub plane: Planes,
    /// Wait.
    #[command(flatten)]
    pub wait: Wait,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
}

/// CAs of a cluster.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planes {
    /// Both.
    #[default]
    All,
    /// The CA of clients and servers.
    Client,
    /// The CA of the members among each other.
    Peer,
}

impl Planes {
    const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Client => "client",
            Self::Peer => "peer",
        }
    }
}

/// Carries out a verb.
pub async fn run(verb: ClusterVerb) -> anyhow::Result<u8> {
    match verb {
        ClusterVerb::Pause(flags) => pause(*flags, true).await,
        ClusterVerb::Resume(flags) => pause(*flags, false).await,
        ClusterVerb::Scale(flags) => scale(*flags).await,
        ClusterVerb::Restart(flags) => restart(*flags).await,
        ClusterVerb::RotateCa(flags) => rotate_ca(*flags).await,
        ClusterVerb::RenewCertificates(flags) => renew_certificates(*flags).await,
    }
}

async fn pause(flags: NamedFlags, paused: bool) -> anyhow::Result<u8> {
    let session = flags.access.open().await?;
    change(&session, &flags.cluster, json!({"spec": {"paused": paused}}), if paused { "paused" } else { "resumed" })
        .await?;
    Ok(DONE)
}

/// Merges a change into the cluster, and prints the word as kubectl does.
async fn change(session: &Session, name: &str, change: Value, word: &str) -> anyhow::Result<EtcdCluster> {
    let changed = session.merge::<EtcdCluster>(name, change).await?;
    print(&format!("etcdcluster.holdfast.dev/{name} {word}\n"))?;
    if changed.spec.paused && word != "paused" {
        let flag = session.flag();
        print(&format!(
            "The cluster is paused, so nothing happens yet: kubectl holdfast cluster resume {name}{flag}\n"
        ))?;
    }
    Ok(changed)
}

async fn scale(flags: ScaleFlags) -> anyhow::Result<u8> {
    let session = flags.access.open().await?;
    let changed = change(&session, &flags.cluster, json!({"spec": {"replicas": flags.replicas}}), "scaled").await?;
    let generation = changed.metadata.generation;
    if let Some(note) = leaving(&changed) {
        print(&format!("{note}\n"))?;
    }
    flags
        .wait
        .until(async || {
            let cluster = session.named::<EtcdCluster>(&flags.cluster).await?;
            Ok(scaled(&cluster, generation))
        })
        .await
}

/// Returns a sentence about the members that leave.
fn leaving(cluster: &EtcdCluster) -> Option<String> {
    let members = i32::try_from(cluster.status.as_ref()?.members.len()).ok()?;
    let (replicas, retention) = (cluster.spec.replicas, cluster.spec.storage.retention);
    if replicas == 0 {
        return Some("Every Pod ends; the members and their volumes stay".to_owned());
    }
    let fate = if retention == Retention::Retain { "stay" } else { "are deleted" };
    (replicas < members)
        .then(|| format!("{} members leave, one after the other; their volumes {fate}", members - replicas))
}

/// Whether the cluster has the size that the spec asks for.
fn scaled(cluster: &EtcdCluster, generation: Option<i64>) -> Look {
    let status = cluster.status.clone().unwrap_or_default();
    let ready = condition::find(&status.conditions, Type::Ready);
    let is_seen = status.observed_generation >= generation;
    let is_ready = ready.is_some_and(|ready| ready.status == "True");
    let is_parked = ready.is_some_and(|ready| Reason::named(&ready.reason) == Some(Reason::Parked));
    let replicas = cluster.spec.replicas;
    if is_seen && is_ready && if replicas == 0 { is_parked } else { status.ready_members == replicas } {
        return Look::Done;
    }
    Look::Waits(words(cluster))
}

/// Returns the message of the condition that tells the progress.
fn words(cluster: &EtcdCluster) -> String {
    let conditions = cluster.status.iter().flat_map(|status| &status.conditions).collect::<Vec<_>>();
    let telling = [Type::Degraded, Type::Progressing]
        .into_iter()
        .find_map(|kind| condition::find(conditions.iter().copied(), kind).filter(|found| found.status == "True"));
    let shown = telling.or_else(|| condition::find(conditions.iter().copied(), Type::Ready));
    shown.map_or_else(
        || "no operator has seen the cluster yet".to_owned(),
        |it| format!("{}: {}", it.reason, it.message),
    )
}

async fn restart(flags: RestartFlags) -> anyhow::Result<u8> {
    let session = flags.access.open().await?;
    let name = &flags.cluster;
    let asked = clock::now().to_string();
    let request = json!({"metadata": {"annotations": {key::RESTART: asked}}});
    change(&session, name, request, "restart requested").await?;
    let labels = format!("{}={name}", key::CLUSTER);
    flags
        .wait
        .until(async || {
            let cluster = session.named::<EtcdCluster>(name).await?;
            let members = session.list::<EtcdMember>(Only { labels: Some(&labels), ..Only::default() }).await?;
            Ok(restarted(&cluster, &members, &asked))
        })
        .await
}

/// Whether every member runs with the request.
fn restarted(cluster: &EtcdCluster, members: &[EtcdMember], asked: &str) -> Look {
    let status = cluster.status.clone().unwrap_or_default();
    let mut own = members.iter().filter(|member| member.spec.cluster_ref.uid == cluster.uid().unwrap_or_default());
    let have = own.clone().filter(|member| member.spec.process.restart.as_deref() == Some(asked)).count();
    let all = own.all(|member| member.spec.process.restart.as_deref() == Some(asked));
    let is_ready = condition::is_true(&status.conditions, Type::Ready);
    if all && have > 0 && is_ready && status.updated_members == cluster.spec.replicas {
        return Look::Done;
    }
    Look::Waits(format!("{have} of {} members have the request; {}", cluster.spec.replicas, words(cluster)))
}

async fn rotate_ca(flags: RotateCaFlags) -> anyhow::Result<u8> {
    let session = flags.access.open().await?;
    let name = &flags.cluster;
    let cluster = session.named::<EtcdCluster>(name).await?;
    refuse_other_cas(&cluster, flags.plane).map_err(wrong_use)?;
    let token = clock::now().as_second().to_string();
    let asked = format!("{}/{token}", flags.plane.as_str());
    change(&session, name, json!({"metadata": {"annotations": {key::ROTATE_CA: asked}}}), "exchange of CAs requested")
        .await?;
    flags
        .wait
        .until(async || {
            let cluster = session.named::<EtcdCluster>(name).await?;
            Ok(exchanged(&cluster, flags.plane, &token))
        })
        .await
}

/// Refuses the exchange of CAs that are not Holdfast's, unless a small cluster waits for the request.
fn refuse_other_cas(cluster: &EtcdCluster, plane: Planes) -> Result<(), String> {
    let name = cluster.name_any();
    let Some(tls) = cluster.status.as_ref().and_then(|status| status.tls.as_ref()) else {
        return Err(format!("EtcdCluster {name} has no certificates yet, or serves plaintext"));
    };
    let is_own = |plane: &PlaneStatus| plane.provider == "Auto";
    let any = match plane {
        Planes::All => is_own(&tls.client) || is_own(&tls.peer),
        Planes::Client => is_own(&tls.client),
        Planes::Peer => is_own(&tls.peer),
    };
    let waits = cluster.status.iter().flat_map(|status| &status.conditions);
    let mut waits = waits.filter(|it| Reason::named(&it.reason) == Some(Reason::CaRotationWaits));
    if any || waits.next().is_some() {
        return Ok(());
    }
    Err(format!(
        "the certificates of EtcdCluster {name} come from a CA of yours or of cert-manager: exchange the CA there, and Holdfast follows"
    ))
}

/// Whether the CAs of these planes are exchanged.
fn exchanged(cluster: &EtcdCluster, plane: Planes, token: &str) -> Look {
    let status = cluster.status.clone().unwrap_or_default();
    let tls = status.tls.unwrap_or_default();
    // The operator has not seen the request of a small cluster yet.
    let mut reasons = status.conditions.iter().filter_map(|it| Reason::named(&it.reason));
    let waits = reasons.any(|reason| reason == Reason::CaRotationWaits);
    let over = |plane: &PlaneStatus| {
        let answered = plane.rotated_for.as_deref() == Some(token) || plane.provider != "Auto" && !waits;
        answered && plane.rotation.is_none()
    };
    let over = match plane {
        Planes::All => over(&tls.client) && over(&tls.peer),
        Planes::Client => over(&tls.client),
        Planes::Peer => over(&tls.peer),
    };
    if over && condition::is_true(&status.conditions, Type::Ready) { Look::Done } else { Look::Waits(words(cluster)) }
}

async fn renew_certificates(flags: NamedFlags) -> anyhow::Result<u8> {
    let session = flags.access.open().await?;
    let at = clock::now().to_string();
    let request = json!({"metadata": {"annotations": {key::RENEW: at}}});
    change(&session, &flags.cluster, request, "renewal of certificates requested").await?;
    Ok(DONE)
}

#[cfg(test)]
mod tests {
    use holdfast_api::tls::TlsStatus;
    use serde_json::from_value;

    use super::*;

    fn cluster(replicas: i32, ready: (&str, &str), serving: i32, seen: i64) -> EtcdCluster {
        from_value(json!({
            "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdCluster",
            "metadata": {"name": "a", "uid": "u", "generation": 2},
            "spec": {"replicas": replicas, "version": "3.6.16"},
            "status": {
                "observedGeneration": seen, "readyMembers": serving, "updatedMembers": serving,
                "members": [{"name": "a-1"}, {"name": "a-2"}, {"name": "a-3"}],
                "conditions": [{
                    "type": "Ready", "status": ready.0, "reason": ready.1, "message": "m",
                    "lastTransitionTime": "2026-11-27T12:00:00Z",
                }],
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_size_is_reached_when_the_operator_says_so_about_this_spec() {
        let done = |cluster: &EtcdCluster| scaled(cluster, Some(2)) == Look::Done;
        assert!(done(&cluster(3, ("True", "AsDesired"), 3, 2)));
        assert!(!done(&cluster(3, ("True", "AsDesired"), 3, 1)), "an earlier spec");
        assert!(!done(&cluster(3, ("True", "AsDesired"), 5, 2)), "members still leave");
        assert!(!done(&cluster(3, ("False", "Growing"), 3, 2)));
        assert!(done(&cluster(0, ("True", "Parked"), 0, 2)));
        assert!(!done(&cluster(0, ("True", "AsDesired"), 0, 2)));
    }

    #[test]
    fn members_that_leave_and_their_volumes_are_named() {
        let of = |replicas| leaving(&cluster(replicas, ("True", "AsDesired"), 3, 2));
        assert!(of(1).unwrap().contains("2 members leave") && of(1).unwrap().contains("are deleted"));
        assert!(of(0).unwrap().contains("stay"));
        assert_eq!((of(3), of(5)), (None, None));
        let mut kept = cluster(1, ("True", "AsDesired"), 3, 2);
        kept.spec.storage.retention = Retention::Retain;
        assert!(leaving(&kept).unwrap().ends_with("stay"));
    }

    #[test]
    fn an_exchange_is_over_when_the_operator_has_answered_the_request() {
        let plane = |rotation: Option<&str>, provider: &str| {
            from_value::<PlaneStatus>(json!({
                "provider": provider, "mutual": true, "notAfter": "2027-01-01T00:00:00Z", "rotatedFor": "7", "rotation": rotation,
            }))
            .unwrap()
        };
        let of = |client, peer| {
            let mut cluster = cluster(3, ("True", "AsDesired"), 3, 2);
            let tls = TlsStatus { client, peer, ..TlsStatus::default() };
            cluster.status.as_mut().unwrap().tls = Some(tls);
            cluster
        };
        let done = of(plane(None, "Auto"), plane(None, "Auto"));
        assert_eq!(exchanged(&done, Planes::All, "7"), Look::Done);
        assert_ne!(exchanged(&done, Planes::Client, "8"), Look::Done, "an earlier request");
        let under_way = of(plane(Some("Waiting"), "Auto"), plane(None, "Auto"));
        assert_ne!(exchanged(&under_way, Planes::All, "7"), Look::Done);
        assert_eq!(exchanged(&under_way, Planes::Peer, "7"), Look::Done);
        let managed = of(plane(None, "CertManager"), plane(None, "Auto"));
        assert!(refuse_other_cas(&managed, Planes::Client).unwrap_err().contains("cert-manager"));
        assert!(refuse_other_cas(&managed, Planes::All).is_ok());
        assert!(refuse_other_cas(&cluster(3, ("True", "AsDesired"), 3, 2), Planes::All).is_err());
    }

    #[test]
    fn a_restart_is_over_when_every_member_has_the_request() {
        let mut member = EtcdMember::default();
        member.spec.cluster_ref.uid = "u".to_owned();
        let mut restarted_one = member.clone();
        restarted_one.spec.process.restart = Some("now".to_owned());
        let ready = cluster(3, ("True", "AsDesired"), 3, 2);
        let all = vec![restarted_one.clone(); 3];
        assert_eq!(restarted(&ready, &all, "now"), Look::Done);
        assert_ne!(restarted(&ready, &all, "later"), Look::Done);
        assert_ne!(restarted(&ready, &[restarted_one, member], "now"), Look::Done);
        assert_ne!(restarted(&cluster(3, ("False", "Rolling"), 3, 2), &all, "now"), Look::Done);
        assert_ne!(restarted(&ready, &[], "now"), Look::Done);
    }
}
