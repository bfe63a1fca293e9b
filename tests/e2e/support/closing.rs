//! Ends a run: deletes namespaces beside the next stories, and checks after the last story that no namespace is left and that no
//! collected file contains a Secret. It does not judge a story.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams};

use super::collect::Collected;
use super::env::Env;
use super::host_operator::Seat;
use super::kube_helpers::{patiently, until_within};
use super::secrets::no_secret_is_told;
use super::world::{PATIENCE, World};

/// Pause between two reads of a namespace.
const LOOK: Duration = Duration::from_secs(1);

/// The namespaces and collected files of the stories so far.
#[derive(Debug, Default)]
pub struct Closing {
    sweeps: Mutex<Vec<Sweep>>,
    collected: Mutex<Vec<Collected>>,
}

/// A namespace that is being deleted.
#[derive(Debug)]
struct Sweep {
    ns: String,
    thread: JoinHandle<Result<()>>,
}

impl Closing {
    /// Keeps the Secrets and files of a story for the search.
    pub fn search(&self, collected: Collected) {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner).push(collected);
    }

    /// Starts to delete a story's namespace.
    pub fn take_away(self: &Arc<Self>, world: World) -> Result<()> {
        let ns = world.ns.clone();
        let thread = std::thread::Builder::new().name(format!("sweep {}", world.story)).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let world = world.reopen().await?;
                world.step("clusters taken away", world.sweep()).await
            })
        })?;
        self.sweeps.lock().unwrap_or_else(PoisonError::into_inner).push(Sweep { ns, thread });
        Ok(())
    }

    /// Fails where a namespace is neither deleted nor being deleted.
    pub fn nothing_is_left(&self, env: &Env) -> Result<()> {
        let sweeps = std::mem::take(&mut *self.sweeps.lock().unwrap_or_else(PoisonError::into_inner));
        let (mut swept, mut failed) = (vec![], vec![]);
        for Sweep { ns, thread } in sweeps {
            match thread.join().map_err(|_| anyhow!("the sweep panicked")).flatten() {
                Ok(()) => swept.push(ns),
                Err(error) => failed.push(format!("{ns}: {error:#}")),
            }
        }
        ensure!(failed.is_empty(), "{}", failed.join("; "));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let namespaces: Api<Namespace> = Api::all(env.client().await?);
            let every = ListParams::default();
            let there = patiently(async |_| namespaces.list(&every).await).await?.items;
            let left = there.into_iter().filter(|it| swept.contains(&it.name_any()) && !goes(it));
            let left: Vec<String> = left.map(|it| format!("{}: {:?}", it.name_any(), it.status)).collect();
            ensure!(left.is_empty(), "namespaces are left: {left:?}");
            Ok(())
        })
    }

    /// Fails with the places that contain a story's Secret.
    pub fn no_secret_is_told(&self) -> Result<()> {
        no_secret_is_told(&self.collected.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whether Kubernetes deletes a namespace, within the time that everything in it needs.
fn goes(namespace: &Namespace) -> bool {
    let since = namespace.metadata.deletion_timestamp.as_ref().map(|since| since.0);
    since.is_some_and(|since| jiff::Timestamp::now().duration_since(since).unsigned_abs() < PATIENCE)
}

impl World {
    /// Deletes clusters and snapshots, waits until no finalizer is left, and deletes the namespace without waiting.
    async fn sweep(&self) -> Result<()> {
        // The story's own operators have ended, and only an operator removes the members' finalizers.
        let _sweeper = if self.is_on_host() {
            // No operator is left to renew this lease.
            let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.ns);
            if patiently(async |_| leases.get_opt("holdfast").await).await?.is_some() {
                patiently(async |_| leases.delete("holdfast", &DeleteParams::background()).await).await?;
            }
            Some(Seat::new(self, "sweeper", None).await?.start(&[])?)
        } else {
            None
        };
        for kind in ["EtcdSnapshotSchedule", "EtcdRestore", "EtcdSnapshot", "EtcdUser", "EtcdCluster"] {
            let api = self.api(kind);
            patiently(async |_| api.delete_collection(&DeleteParams::background(), &ListParams::default()).await)
                .await?;
        }
        until_within("clusters, members, users and snapshots to go", PATIENCE, LOOK, async || {
            let mut left = vec![];
            for kind in ["EtcdMember", "EtcdRestore", "EtcdSnapshot", "EtcdUser", "EtcdCluster", "EtcdSnapshotSchedule"]
            {
                left.extend(self.names(kind).await?);
                if !left.is_empty() {
                    return Ok(Err(format!("still there: {left:?}")));
                }
            }
            Ok(Ok(()))
        })
        .await?;
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        patiently(async |again| match namespaces.delete(&self.ns, &DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if again && (status.is_not_found() || status.is_conflict()) => Ok(()),
            answer => answer.map(drop),
        })
        .await?;
        Ok(())
    }
}
