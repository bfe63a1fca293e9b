//! The manifests that the operator needs: definitions, rights, a Deployment, and optional objects.
//!
//! PURE: values in, YAML out; no connection to a cluster. Two scopes: the whole cluster, or one namespace that contains all
//! objects. The definitions, and the roles for people, serve every install, and are printed apart from a namespace's objects.
//! Both need a cluster administrator: Kubernetes lets users grant only rights that they have. `rbac.rs` alone holds the rights.

#![cfg_attr(
    test,
    allow(
        missing_docs,
        unreachable_pub,
        clippy::pedantic,
        clippy::unwrap_in_result,
        reason = "tests favour plain words"
    )
)]

use holdfast_api::pod_security::RunAs;
use holdfast_api::{
    EtcdBackupStore, EtcdCluster, EtcdMember, EtcdRestore, EtcdSnapshot, EtcdSnapshotSchedule, EtcdUser,
};
use kube::CustomResourceExt;
use serde_json::{Value, json};

pub mod jobs;
pub mod names;
pub mod restore;

mod admission;
mod deployment;
mod monitoring;
mod network;
mod rbac;

/// Name of all installed objects.
pub const NAME: &str = "holdfast";
/// Namespace of an install for the whole cluster.
pub const NAMESPACE: &str = "holdfast-system";
/// Default image: this version, under its build name.
pub const IMAGE: &str = concat!("holdfast:", env!("CARGO_PKG_VERSION"));

/// Part of the manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// The custom resource definitions, the admission policy that protects members, and the roles for people that
    /// Kubernetes adds to its own `view`, `edit` and `admin`; the same for every install.
    Crds,
    /// The operator's service account and its rights; for the whole cluster also its namespace, the admission policy and
    /// the roles for people.
    Rbac,
    /// The operator's Deployment, and the Service in front of its metrics.
    Deployment,
    /// The network policies of a namespace with clusters (`--namespace`) or of the operator's namespace; printed only
    /// on request.
    NetworkPolicies,
    /// A PodMonitor of the operator's metrics, for the Prometheus operator; printed only on request.
    PodMonitor,
}

/// Scope of an install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All namespaces, from [`NAMESPACE`].
    Cluster,
    /// One namespace, with rights in this namespace only.
    Namespace(String),
}

impl Scope {
    /// The namespace of the operator's Pod.
    fn home(&self) -> &str {
        match self {
            Self::Cluster => NAMESPACE,
            Self::Namespace(name) => name,
        }
    }
}

/// Options of the printed manifests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The operator's image, which is also the agent's image.
    pub image: String,
    /// Scope of the install.
    pub scope: Scope,
    /// The user of the Pods of operator, members and agents.
    pub pod_run_as: RunAs,
    /// Print only this part; absent: the default parts.
    pub only: Option<Part>,
}

/// Returns the objects, in an order in which kubectl can apply them.
pub fn objects(options: &Options) -> Result<Vec<Value>, serde_json::Error> {
    let mut all = vec![];
    let parts = match (options.only, &options.scope) {
        (Some(part), _) => vec![part],
        (None, Scope::Cluster) => {
            all.extend(crds()?);
            // `Rbac` contains the roles for people.
            vec![Part::Rbac, Part::Deployment]
        }
        // The definitions are not part of an install for a namespace.
        (None, Scope::Namespace(_)) => vec![Part::Rbac, Part::Deployment],
    };
    for part in parts {
        match part {
            Part::Crds => {
                all.extend(crds()?);
                all.extend(rbac::people());
                all.extend(admission::objects());
            }
            Part::Rbac => {
                all.extend(rbac::objects(&options.scope));
                if options.scope == Scope::Cluster {
                    all.extend(admission::objects());
                }
            }
            Part::Deployment => all.extend([monitoring::service(&options.scope), deployment::object(options)]),
            Part::NetworkPolicies => all.extend(network::objects(&options.scope)),
            Part::PodMonitor => all.push(monitoring::pod_monitor(&options.scope)),
        }
    }
    Ok(all)
}

/// Returns the names of the admission policies; each binding has the name of its policy.
pub const fn admission_names() -> [&'static str; 3] {
    admission::NAMES
}

/// Returns the custom resource definitions, by file name: the plural of the kind.
pub fn crds() -> Result<Vec<Value>, serde_json::Error> {
    let all = [
        EtcdBackupStore::crd(),
        EtcdCluster::crd(),
        EtcdMember::crd(),
        EtcdSnapshot::crd(),
        EtcdSnapshotSchedule::crd(),
        EtcdRestore::crd(),
        EtcdUser::crd(),
    ];
    let mut all: Vec<Value> = all.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    all.iter_mut().for_each(drop_unsigned_formats);
    Ok(all)
}

/// Removes unsigned formats: Kubernetes knows only signed formats, and warns about others at each apply. `minimum: 0` has the
/// same effect.
fn drop_unsigned_formats(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
                fields.remove("format");
            }
            fields.values_mut().for_each(drop_unsigned_formats);
        }
        Value::Array(all) => all.iter_mut().for_each(drop_unsigned_formats),
        _ => {}
    }
}

/// Returns the objects as one YAML stream for kubectl. `Value`s instead of types: YAML code for each type of a Pod is slow to
/// compile.
pub fn yaml(objects: &[Value]) -> Result<String, serde_saphyr::ser::Error> {
    let mut out = String::new();
    for (i, object) in objects.iter().enumerate() {
        if i > 0 {
            out.push_str("---\n");
        }
        out.push_str(&serde_saphyr::to_string(object)?);
    }
    Ok(out)
}

/// Returns the metadata of a Holdfast object; `namespace` is absent for a cluster-scoped object.
fn metadata(name: &str, namespace: Option<&str>) -> Value {
    let mut metadata = json!({"name": name, "labels": labels()});
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    metadata
}

fn labels() -> Value {
    json!({"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "operator"})
}

#[cfg(test)]
mod tests;
