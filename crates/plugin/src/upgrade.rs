//! `holdfast upgrade plan`: prints the conditions of an upgrade to the next minor version, with the user's rights, and changes nothing.
//!
//! Decides the lines and the exit code. `holdfast_cluster::cluster::conditions` decides the conditions, from the status that the operator
//! wrote: this command asks no etcd and starts no Job.

#![allow(clippy::disallowed_types, reason = "a command for people talks to Kubernetes with their own rights")]

use std::io;

use anyhow::Context as _;
use holdfast_api::{EtcdCluster, EtcdMember, EtcdSnapshot, key};
use holdfast_cluster::cluster::{Condition, State, conditions};
use holdfast_io::clock;
use kube::Api;
use kube::api::ListParams;

use crate::access::{Access, Session};
use crate::snapshot::{REFUSED, say};

/// Exit code where the upgrade cannot begin now.
pub const NOT_NOW: u8 = 3;

/// A question about one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Name of the `EtcdCluster`.
    pub cluster: String,
    /// The Kubernetes cluster and the namespace.
    pub access: Access,
    /// Version to go to.
    pub to: String,
}

/// Prints the conditions. Returns 0 where the upgrade could begin now, [`NOT_NOW`] where not, and [`REFUSED`] where the cluster
/// does not exist.
pub async fn plan(question: Question) -> anyhow::Result<u8> {
    let Session { client, namespace, .. } = question.access.open().await?;
    let clusters = Api::<EtcdCluster>::namespaced(client.clone(), &namespace);
    let Some(cluster) = clusters.get_opt(&question.cluster).await.context("reading the EtcdCluster")? else {
        tracing::error!(
            "there is no EtcdCluster {} in {namespace}: name its namespace with -n (kubectl get etcdc -A)",
            question.cluster
        );
        return Ok(REFUSED);
    };
    let labelled = ListParams::default().labels(&format!("{}={}", key::CLUSTER, question.cluster));
    let members = Api::<EtcdMember>::namespaced(client.clone(), &namespace);
    let members = members.list(&labelled).await.context("listing the EtcdMembers")?.items;
    let snapshots = Api::<EtcdSnapshot>::namespaced(client, &namespace);
    let snapshots = snapshots.list(&ListParams::default()).await.context("listing the EtcdSnapshots")?.items;
    let found = conditions(&cluster, &members, &snapshots, &question.to, clock::now());
    say(&mut io::stdout(), text(&question, &namespace, &found).trim_end())?;
    Ok(if may_begin(&found) { 0 } else { NOT_NOW })
}

/// Whether no condition keeps the upgrade from its first step, which is the Job's.
fn may_begin(conditions: &[Condition]) -> bool {
    conditions.iter().all(|found| matches!(found.state, State::Met(_) | State::Later(_)))
}

/// Formats the conditions, and the next command.
fn text(question: &Question, namespace: &str, conditions: &[Condition]) -> String {
    let Question { cluster, to, .. } = question;
    let mut text = format!("EtcdCluster {cluster} in {namespace}, to {to}:\n\n");
    for Condition { subject, state } in conditions {
        let (verdict, words) = match state {
            State::Met(fact) => ("ok", fact.clone()),
            State::Unmet(reason, why) if reason.needs_a_person() => {
                ("NOT", format!("{why} (runbooks/{}.md)", reason.as_str()))
            }
            State::Unmet(_, why) => ("NOT", why.clone()),
            State::Unknown(why) => ("unknown", why.clone()),
            State::Later(what) => ("later", what.clone()),
        };
        text.push_str(&format!("{verdict:<8} {subject:<11} {words}\n"));
    }
    let patch =
        format!("kubectl patch -n {namespace} etcdc {cluster} --type merge -p '{{\"spec\":{{\"version\":\"{to}\"}}}}'");
    let end = if may_begin(conditions) {
        format!("The upgrade can begin now: {patch}")
    } else {
        "The upgrade cannot begin now.".to_owned()
    };
    text.push_str(&format!("\n{end}\n"));
    text
}

#[cfg(test)]
mod tests;
