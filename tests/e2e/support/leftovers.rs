//! Leftovers of killed runs on the testbed, deleted before a new run, so that they do not compete for the machine.
//!
//! Only on the testbed, never on a user's cluster, and never the objects of a run that still lives.

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use super::kube_helpers::{api, names};

/// Label of the namespaces of a run, with the process that created them.
pub const RUN: &str = "holdfast.dev/run";

/// Deletes the demo's operator and the namespaces of runs that have ended.
pub async fn sweep(client: &Client) -> Result<()> {
    // The demo's operator watches every namespace: two operators on one object would undo each other's writes.
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "holdfast-system");
    if deployments.get_opt("holdfast").await?.is_some() {
        deployments.delete("holdfast", &DeleteParams::background()).await?;
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for namespace in namespaces.list(&ListParams::default().labels("holdfast.dev/test=e2e")).await?.items {
        let name = namespace.name_any();
        if namespace.labels().get(RUN).is_some_and(|run| lives(run)) {
            continue;
        }
        eprintln!("e2e: taking away {name}, left by an earlier run");
        // The namespace's operator may be gone, and only an operator removes the finalizers.
        for kind in ["EtcdSnapshot", "EtcdCluster", "EtcdMember"] {
            let objects = api(client, &name, kind);
            for object in names(&objects, "").await? {
                let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                match objects.patch(&object, &PatchParams::default(), &none).await {
                    Err(kube::Error::Api(status)) if status.is_not_found() => {}
                    answer => drop(answer?),
                }
            }
        }
        namespaces.delete(&name, &DeleteParams::background()).await?;
    }
    Ok(())
}

fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with("e2e"))
}
