//! What has to stand in a Kubernetes cluster for the operator to run: definitions, rights, a Deployment, and what may.
//!
//! PURE: values in, YAML out; nothing here talks to a cluster. Two scopes: the whole cluster, or one namespace, whose
//! objects all live in it. The definitions, and the roles by which people read and write them, stand for everybody and are
//! printed apart from a namespace's objects. Either takes a cluster administrator: Kubernetes lets nobody give away rights
//! that they do not have. Rights are in `rbac.rs` and nowhere else.

use kube::CustomResourceExt;
use serde_json::{Value, json};

use crate::api::pod_security::RunAs;
use crate::api::{EtcdBackupStore, EtcdCluster, EtcdMember, EtcdSnapshot, EtcdSnapshotSchedule};

pub mod jobs;
pub mod restore;

mod admission;
mod deployment;
mod monitoring;
mod network;
mod rbac;

/// Name of everything we install.
pub const NAME: &str = "holdfast";
/// Namespace of an install for the whole cluster.
pub const NAMESPACE: &str = "holdfast-system";
/// Image where none is named: this version, under the name it is built by.
pub const IMAGE: &str = concat!("holdfast:", env!("CARGO_PKG_VERSION"));

/// Which objects.
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

/// Where the operator works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In every namespace, from [`NAMESPACE`].
    Cluster,
    /// In this one only, and with rights in this one only.
    Namespace(String),
}

impl Scope {
    /// The namespace the operator itself runs in.
    fn home(&self) -> &str {
        match self {
            Self::Cluster => NAMESPACE,
            Self::Namespace(name) => name,
        }
    }
}

/// What to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The operator's image, which is also the agent's.
    pub image: String,
    /// Where it works.
    pub scope: Scope,
    /// The user of the Pods of operator, members and agents.
    pub pod_run_as: RunAs,
    /// One part only.
    pub only: Option<Part>,
}

/// The objects, in the order in which they can be applied.
pub fn objects(options: &Options) -> Result<Vec<Value>, serde_json::Error> {
    let mut all = vec![];
    let parts = match (options.only, &options.scope) {
        (Some(part), _) => vec![part],
        (None, Scope::Cluster) => {
            all.extend(crds()?);
            // The roles for people are among the rights.
            vec![Part::Rbac, Part::Deployment]
        }
        // Definitions are not a namespace's to bring along.
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

/// The custom resource definitions, by file name: the plural of the kind.
pub fn crds() -> Result<Vec<Value>, serde_json::Error> {
    let all = [
        EtcdBackupStore::crd(),
        EtcdCluster::crd(),
        EtcdMember::crd(),
        EtcdSnapshot::crd(),
        EtcdSnapshotSchedule::crd(),
    ];
    let mut all: Vec<Value> = all.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    all.iter_mut().for_each(drop_unsigned_formats);
    Ok(all)
}

/// Kubernetes knows signed formats only, and warns of each other one on every apply. `minimum: 0` says the same.
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

/// Objects as one YAML stream that kubectl reads. Values, not types: YAML code for each type of a Pod is slow to compile.
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

/// Metadata of an object of ours; `namespace` is absent for what stands above namespaces.
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
