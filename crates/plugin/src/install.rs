//! `install`: applies the manifests of the operator, as `holdfast manifests | kubectl apply --server-side` does; with `--to` copies
//! this program, for the first container of every Pod of Holdfast's, and with `--etcd-to` the programs of etcd's image.
//!
//! Decides the order of writes and the words. `holdfast_manifests` decides the objects.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use holdfast_api::pod_security::RunAs;
use kube::Resource as _;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, TypeMeta};
use kube::core::Request;
use kube::{Error, core};
use serde_json::Value;

use super::access::{Entry, Session, words};
use super::end::{DONE, print};
use holdfast_manifests::names::{image, namespace};
use holdfast_manifests::{IMAGE, Options, Part, Scope, objects};

/// Field manager of the applied fields: kubectl's own, so that `install` and `kubectl apply --server-side` may follow each other.
const MANAGER: &str = "kubectl";

/// Flags of `install`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct InstallFlags {
    /// Copy this program to a path instead, for another container.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["namespace", "only", "dry_run", "force_conflicts"])]
    pub to: Option<PathBuf>,
    /// Copy etcd and etcdutl of this container's image to a folder instead, for another container.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["to", "namespace", "only", "dry_run", "force_conflicts"])]
    pub etcd_to: Option<PathBuf>,
    /// Image of this program, for the operator and its agents.
    #[arg(long, default_value = IMAGE, value_parser = image)]
    pub image: String,
    /// Install the operator into this namespace, and watch only this namespace.
    #[arg(short, long, value_name = "NS", value_parser = namespace)]
    pub namespace: Option<String>,
    /// User of the Pods of the operator, of members and of agents.
    #[arg(long, value_enum, default_value_t)]
    pub pod_run_as: RunAs,
    /// Apply only this part.
    #[arg(long, value_enum, value_name = "PART")]
    pub only: Option<Part>,
    /// Let the API server check everything, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Take over fields that another tool has set.
    #[arg(long)]
    pub force_conflicts: bool,
    /// The Kubernetes cluster.
    #[command(flatten)]
    pub entry: Entry,
}

/// Applies the manifests.
pub async fn run(flags: InstallFlags) -> anyhow::Result<u8> {
    let session = flags.entry.open(flags.namespace.as_deref()).await?;
    let params = PatchParams {
        dry_run: flags.dry_run,
        force: flags.force_conflicts,
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let has_operator = matches!(flags.only, None | Some(Part::Deployment));
    let place = flags.namespace.as_ref().map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
    let scope = flags.namespace.map_or(Scope::Cluster, Scope::Namespace);
    let options = Options { image: flags.image, scope, pod_run_as: flags.pod_run_as, only: flags.only };
    for object in objects(&options)? {
        let applied = apply(&session, &object, &params).await?;
        let note = if flags.dry_run { " (dry run)" } else { "" };
        print(&format!("{applied} serverside-applied{note}\n"))?;
    }
    if has_operator && !flags.dry_run {
        print(&format!("Wait for the operator: kubectl holdfast check --wait{place}\n"))?;
    }
    Ok(DONE)
}

/// Applies an object; returns its kind and name as kubectl prints them.
async fn apply(session: &Session, object: &Value, params: &PatchParams) -> anyhow::Result<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let types = TypeMeta { api_version: text(&object["apiVersion"]), kind: text(&object["kind"]) };
    let kind = GroupVersionKind::try_from(&types).context("a manifest without a kind")?;
    let (resource, name) = (ApiResource::from_gvk(&kind), text(&object["metadata"]["name"]));
    let collection = DynamicObject::url_path(&resource, object["metadata"]["namespace"].as_str());
    let named = format!("{}/{name}", kind.kind.to_lowercase());
    let request = Request::new(collection).patch(&name, params, &Patch::Apply(object));
    let request = request.map_err(|error: core::request::Error| Error::BuildRequest(error))?;
    match session.client.request::<Value>(request).await {
        Ok(_) => Ok(named),
        Err(Error::Api(status)) if status.code == 409 => {
            anyhow::bail!(
                "{named}: {}. To take the fields over: --force-conflicts",
                status.message.trim_end_matches('.')
            )
        }
        Err(error) => anyhow::bail!("{named}: {}", words(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_manifest_has_the_path_that_the_api_server_serves() {
        let options =
            Options { image: "i".to_owned(), scope: Scope::Cluster, pod_run_as: RunAs::default(), only: None };
        for object in objects(&options).unwrap() {
            let types: TypeMeta = serde_json::from_value(object.clone()).unwrap();
            let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
            let known = [
                "customresourcedefinitions",
                "namespaces",
                "serviceaccounts",
                "clusterroles",
                "clusterrolebindings",
                "roles",
                "rolebindings",
                "validatingadmissionpolicies",
                "validatingadmissionpolicybindings",
                "services",
                "deployments",
            ];
            assert!(known.contains(&resource.plural.as_str()), "{}", resource.plural);
        }
    }
}
