//! `member replace|restart|move-leader`: requests about one member.
//!
//! Decides the request, and when it is carried out. The operator decides whether a member may leave; the API server asks the
//! disruption budget before a Pod ends.

use clap::{Args, Subcommand};
use holdfast_api::condition::{self, Type};
use holdfast_api::{EtcdCluster, EtcdMember, key};
use holdfast_kube::requests;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;

use super::access::{Access, Session, refused};
use super::end::{print, wrong_use};
use super::wait::{Look, Wait};
use holdfast_manifests::names::object;

/// Verbs of `member`.
#[derive(Subcommand, Clone, Debug, PartialEq, Eq)]
pub enum MemberVerb {
    /// Replace a member: another one joins and gets its data from the others, and this one leaves for good.
    Replace(Box<MemberFlags>),
    /// End the Pod of a member; the next one starts on the same volume. A disruption budget that permits no end refuses it.
    Restart(Box<MemberFlags>),
    /// Move the leadership to a member, once every voter is well. A later election may move it again.
    MoveLeader(Box<MemberFlags>),
}

/// Flags of the verbs of `member`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct MemberFlags {
    /// `EtcdCluster`.
    #[arg(value_parser = object)]
    pub cluster: String,
    /// `EtcdMember`.
    #[arg(value_parser = object)]
    pub member: String,
    /// Wait.
    #[command(flatten)]
    pub wait: Wait,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
}

/// Carries out a verb.
pub async fn run(verb: MemberVerb) -> anyhow::Result<u8> {
    match verb {
        MemberVerb::Replace(flags) => replace(*flags).await,
        MemberVerb::Restart(flags) => restart(*flags).await,
        MemberVerb::MoveLeader(flags) => move_leader(*flags).await,
    }
}

/// Reads the cluster and its member.
async fn read(session: &Session, flags: &MemberFlags) -> anyhow::Result<(EtcdCluster, EtcdMember)> {
    let cluster = session.named::<EtcdCluster>(&flags.cluster).await?;
    let member = session.named::<EtcdMember>(&flags.member).await?;
    if Some(&member.spec.cluster_ref.uid) != cluster.uid().as_ref() {
        let owner = &member.spec.cluster_ref.name;
        return Err(wrong_use(format!(
            "{} is a member of EtcdCluster {owner}, not of {}",
            flags.member, flags.cluster
        )));
    }
    Ok((cluster, member))
}

async fn replace(flags: MemberFlags) -> anyhow::Result<u8> {
    let session = flags.access.open().await?;
    let (cluster, member) = read(&session, &flags).await?;
    if let Some(leaving) = &member.spec.leaving {
        return Err(wrong_use(format!("{} leaves already, since {}", flags.member, leaving.at)));
    }
    let request = json!({"metadata": {"annotations": {key::REPLACE: flags.member}}});
    session.merge::<EtcdCluster>(&flags.cluster, request).await?;
    print(&format!("etcdmember.holdfast.dev/{} replacement requested\n", flags.member))?;
    warn_if_paused(&session, &cluster, &flags.cluster)?;
    flags
        .wait
        .until(async || {
            let cluster = session.named::<EtcdCluster>(&flags.cluster).await?;
            let member = session.get::<EtcdMember>(&flags.member).await?;
            Ok(replaced(&cluster, member.as_ref()))
        })
        .await
}

/// Tells that the operator does nothing for a paused cluster.
fn warn_if_paused(session: &Session, cluster: &EtcdCluster, name: &str) -> anyhow::Result<()> {
    if !cluster.spec.paused {
        return Ok(());
    }
    let flag = session.flag();
    print(&format!("The cluster is paused, so nothing happens yet: kubectl holdfast cluster resume {name}{flag}\n"))
}

async fn move_leader(flags: MemberFlags) -> anyhow::Result<u8> {
    let session = flags.access.open().await?;
    let (cluster, member) = read(&session, &flags).await?;
    if member.spec.leaving.is_some() {
        return Err(wrong_use(format!("{} leaves the cluster: name a member that stays", flags.member)));
    }
    let request = json!({"metadata": {"annotations": {key::MOVE_LEADER: flags.member}}});
    session.merge::<EtcdCluster>(&flags.cluster, request).await?;
    print(&format!("etcdmember.holdfast.dev/{} leadership requested\n", flags.member))?;
    warn_if_paused(&session, &cluster, &flags.cluster)?;
    flags
        .wait
        .until(async || {
            let cluster = session.named::<EtcdCluster>(&flags.cluster).await?;
            Ok(led(&cluster, &flags.member))
        })
        .await
}

/// Whether the operator has ended the request. Before that it writes the leader into the status.
fn led(cluster: &EtcdCluster, member: &str) -> Look {
    let status = cluster.status.clone().unwrap_or_default();
    if cluster.annotations().get(key::MOVE_LEADER).is_some_and(|name| name == member) {
        let progress = condition::find(&status.conditions, Type::Progressing).filter(|it| it.status == "True");
        let words = progress.map(|it| format!("; {}: {}", it.reason, it.message)).unwrap_or_default();
        return Look::Waits(format!("{} leads{words}", status.leader.as_deref().unwrap_or("no member")));
    }
    if status.leader.as_deref() == Some(member) {
        return Look::Done;
    }
    Look::Failed(format!(
        "the operator ended the request, and {member} does not lead: kubectl holdfast status {}",
        cluster.name_any()
    ))
}

/// Whether etcd does not list the member any more, and the cluster is whole again.
fn replaced(cluster: &EtcdCluster, member: Option<&EtcdMember>) -> Look {
    let status = cluster.status.clone().unwrap_or_default();
    let is_gone = member.is_none_or(|member| member.spec.removed.is_some());
    let is_ready = condition::is_true(&status.conditions, Type::Ready);
    if is_gone && is_ready && status.ready_members == cluster.spec.replicas {
        return Look::Done;
    }
    let progress = condition::find(&status.conditions, Type::Progressing);
    let words = progress.map(|it| format!("{}: {}", it.reason, it.message)).unwrap_or_default();
    Look::Waits(if is_gone { words } else { format!("the member has not left yet; {words}") })
}

async fn restart(flags: MemberFlags) -> anyhow::Result<u8> {
    let session = flags.access.open().await?;
    let (cluster, _) = read(&session, &flags).await?;
    if cluster.spec.storage.in_memory() {
        let (name, member) = (&flags.cluster, &flags.member);
        return Err(wrong_use(format!(
            "{member} keeps its data in the memory of its Pod, and would lose the data with the Pod: kubectl holdfast member \
             replace {name} {member}"
        )));
    }
    let pod = session.named::<Pod>(&flags.member).await?;
    let (uid, version) = (pod.uid().unwrap_or_default(), pod.resource_version().unwrap_or_default());
    let evicted = requests::evict(&session.client, &session.namespace, &flags.member, &uid, &version).await;
    evicted.map_err(|error| refused(&error, &format!("evicting Pod {}", flags.member)))?;
    print(&format!("pod/{} evicted\n", flags.member))?;
    flags
        .wait
        .until(async || {
            let pod = session.get::<Pod>(&flags.member).await?;
            Ok(match &pod {
                Some(next) if next.uid().as_ref() != Some(&uid) && is_ready(next) => Look::Done,
                Some(next) if next.uid().as_ref() != Some(&uid) => {
                    Look::Waits("the next Pod is not ready yet".to_owned())
                }
                _ => Look::Waits("the Pod ends".to_owned()),
            })
        })
        .await
}

fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

#[cfg(test)]
mod tests {
    use holdfast_api::member::Removed;
    use serde_json::from_value;

    use super::*;

    #[test]
    fn a_request_for_a_leader_ends_with_its_annotation() {
        let cluster = |request: Option<&str>, leader: &str| -> EtcdCluster {
            let annotations = request.map(|name| json!({key::MOVE_LEADER: name}));
            from_value(json!({
                "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdCluster",
                "metadata": {"name": "a", "annotations": annotations},
                "spec": {"replicas": 3, "version": "3.6.16"}, "status": {"leader": leader},
            }))
            .unwrap()
        };
        assert_eq!(led(&cluster(Some("a-1"), "a-0"), "a-1"), Look::Waits("a-0 leads".to_owned()));
        assert_eq!(led(&cluster(None, "a-1"), "a-1"), Look::Done);
        assert!(matches!(led(&cluster(None, "a-0"), "a-1"), Look::Failed(why) if why.contains("a-1 does not lead")));
        let another = led(&cluster(Some("a-2"), "a-0"), "a-1");
        assert!(matches!(another, Look::Failed(_)), "another request replaced this one: {another:?}");
    }

    #[test]
    fn a_member_is_replaced_when_it_is_gone_and_the_cluster_is_whole() {
        let cluster = |ready: &str, serving: i32| -> EtcdCluster {
            from_value(json!({
                "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdCluster", "metadata": {"name": "a"},
                "spec": {"replicas": 3, "version": "3.6.16"},
                "status": {"readyMembers": serving, "conditions": [{
                    "type": "Ready", "status": ready, "reason": "AsDesired", "message": "m",
                    "lastTransitionTime": "2026-11-27T12:00:00Z",
                }]},
            }))
            .unwrap()
        };
        let mut member = EtcdMember::default();
        assert_ne!(replaced(&cluster("True", 3), Some(&member)), Look::Done, "still listed");
        member.spec.removed = Some(Removed::default());
        assert_eq!(replaced(&cluster("True", 3), Some(&member)), Look::Done, "its claim is kept");
        assert_eq!(replaced(&cluster("True", 3), None), Look::Done);
        assert_ne!(replaced(&cluster("True", 2), None), Look::Done);
        assert_ne!(replaced(&cluster("False", 3), None), Look::Done);
    }
}
