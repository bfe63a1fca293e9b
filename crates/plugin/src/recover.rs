//! `recover plan CLUSTER`: the ways out of a lost quorum, each with the end of its data and its losses. Changes nothing.
//!
//! Reads statuses and the custom resources alone: no volume, no etcd, no store. `plan.rs` decides the choices.

use clap::{Args, Subcommand};
use holdfast_api::condition::{self, Type};
use holdfast_api::{EtcdCluster, EtcdMember, EtcdRestore, EtcdSnapshot, EtcdSnapshotSchedule, key};
use holdfast_io::clock;

use super::access::{Access, Only, Session};
use super::end::{DONE, print};
use super::screen::Output;
use holdfast_manifests::names::object;

pub mod plan;

use plan::Recovery;

/// Verbs of `recover`.
#[derive(Subcommand, Clone, Debug, PartialEq, Eq)]
pub enum RecoverVerb {
    /// Print the ways out of a lost quorum, one line each, and the YAML of the `EtcdRestore` that goes on from the survivor.
    /// Changes nothing.
    Plan(Box<PlanFlags>),
}

/// Flags of `recover plan`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct PlanFlags {
    /// `EtcdCluster` that has lost its quorum.
    #[arg(value_parser = object)]
    pub cluster: String,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
    /// Output.
    #[command(flatten)]
    pub output: Output,
}

/// Carries out a verb.
pub async fn run(verb: RecoverVerb) -> anyhow::Result<u8> {
    let RecoverVerb::Plan(flags) = verb;
    let session = flags.access.open().await?;
    let cluster = session.named::<EtcdCluster>(&flags.cluster).await?;
    let recovery = read(&session, &cluster).await?;
    if let Some(why) = no_loss(&cluster) {
        print(&format!("EtcdCluster {} {why}\n", flags.cluster))?;
        return Ok(DONE);
    }
    print(&match flags.output.encoded(&recovery)? {
        Some(text) => text,
        None => recovery.render(flags.output.screen())?,
    })?;
    Ok(DONE)
}

/// Returns why there is nothing to recover.
fn no_loss(cluster: &EtcdCluster) -> Option<&'static str> {
    let returning = cluster.status.as_ref().and_then(|status| status.latches.returning.as_ref());
    if returning.is_some_and(|returning| !returning.phase().is_final()) {
        return Some("returns by an EtcdRestore: kubectl get etcdrestores shows it");
    }
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    if condition::is_true(conditions, Type::Available) {
        return Some("has a quorum: a linearizable read succeeded, and nothing is lost");
    }
    (cluster.spec.replicas == 0).then_some("is parked: raise spec.replicas")
}

async fn read(session: &Session, cluster: &EtcdCluster) -> anyhow::Result<Recovery> {
    let named = cluster.metadata.name.as_deref().unwrap_or_default();
    let labels = format!("{}={named}", key::CLUSTER);
    let members = session.list::<EtcdMember>(Only { labels: Some(&labels), ..Only::default() }).await?;
    let fields = format!("spec.clusterRef.name={named}");
    let snapshots = session.list::<EtcdSnapshot>(Only { fields: Some(&fields), ..Only::default() }).await?;
    let schedules = session.list::<EtcdSnapshotSchedule>(Only::default()).await?;
    let restores = session.list::<EtcdRestore>(Only::default()).await?;
    Ok(Recovery::plan(cluster, &members, &restores, (&snapshots, &schedules), clock::now()))
}
