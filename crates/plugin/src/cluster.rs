//! `cluster pause|resume|scale|restart`: the requests that the operator's plans know.
//!
//! Decides the field or the annotation of each request, and when a request is carried out. The operator decides the order of steps.

use clap::{Args, Subcommand};
use holdfast_api::cluster::Retention;
use holdfast_api::condition::{self, Reason, Type};
use holdfast_api::{EtcdCluster, EtcdMember, key};
use holdfast_io::clock;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::access::{Access, Only, Session};
use super::end::{DONE, print};
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

/// Carries out a verb.
pub async fn run(verb: ClusterVerb) -> anyhow::Result<u8> {
    match verb {
        ClusterVerb::Pause(flags) => pause(*flags, true).await,
        ClusterVerb::Resume(flags) => pause(*flags, false).await,
        ClusterVerb::Scale(flags) => scale(*flags).await,
        ClusterVerb::Restart(flags) => restart(*flags).await,
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

#[cfg(test)]
mod tests {
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
