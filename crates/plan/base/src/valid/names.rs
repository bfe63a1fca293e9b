//! Names in certificates that an issuer of the whole Kubernetes cluster signs.
//!
//! Decides which `spec.tls.client.additionalNames` such an issuer may get: names of the cluster's own namespace, and names on the
//! operator's list. Without the list a person who may write an `EtcdCluster`, and no Certificate, would get any name signed.

use holdfast_api::EtcdCluster;
use holdfast_api::tls::{ClientPlane, IssuerRef};

use super::{Refusal, refuse};
use crate::Settings;

const FIELD: &str = "spec.tls.client.additionalNames";

/// Refuses names that a `ClusterIssuer` may not sign for a cluster of this namespace.
///
/// # Errors
/// Names the first such name.
pub fn check_names(cluster: &EtcdCluster, settings: &Settings) -> Result<(), Refusal> {
    let Some(issuer) = wide_issuer(cluster) else { return Ok(()) };
    let Some(name) = refused_names(cluster, settings).into_iter().next() else { return Ok(()) };
    let namespace = cluster.metadata.namespace.as_deref().unwrap_or_default();
    refuse(
        FIELD,
        format!(
            "{name:?} is outside *.{namespace}.svc, and the {} {} signs for every namespace. Name an Issuer of this namespace, or \
             ask for the name in the operator's --allowed-names",
            issuer.kind.as_deref().unwrap_or_default(),
            issuer.name
        ),
    )
}

/// Returns the issuer of client certificates, where it signs for every namespace.
fn wide_issuer(cluster: &EtcdCluster) -> Option<&IssuerRef> {
    let issuer = &cluster.spec.client_tls()?.cert_manager.as_ref()?.issuer_ref;
    // Kinds of other groups have the word too, such as `StepClusterIssuer`. The right to write an Issuer is a namespace's own.
    issuer.kind.as_deref().is_some_and(|kind| kind.contains("Cluster")).then_some(issuer)
}

/// Returns the additional names that a `ClusterIssuer` may not sign for a cluster of this namespace.
pub fn refused_names(cluster: &EtcdCluster, settings: &Settings) -> Vec<String> {
    let names = wide_issuer(cluster).and(cluster.spec.client_tls()).map(ClientPlane::spelt_names).unwrap_or_default();
    let namespace = cluster.metadata.namespace.as_deref().unwrap_or_default();
    let service = format!(".{namespace}.svc");
    let in_domain = settings.cluster_domain.as_ref().map(|domain| format!("{service}.{domain}"));
    let is_own = |name: &str| name.ends_with(&service) || in_domain.as_ref().is_some_and(|own| name.ends_with(own));
    let permitted = |name: &String| {
        let name = name.to_ascii_lowercase();
        is_own(&name) || settings.allowed_names.iter().any(|pattern| covers(&pattern.to_ascii_lowercase(), &name))
    };
    names.into_iter().filter(|name| !permitted(name)).collect()
}

/// Whether a pattern covers a name: the name itself, `*.DOMAIN` for all names below a domain, `*` for all names.
fn covers(pattern: &str, name: &str) -> bool {
    pattern == "*"
        || pattern == name
        || pattern.strip_prefix('*').is_some_and(|below| below.starts_with('.') && name.ends_with(below))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{etcd_cluster, settings};

    #[test]
    fn a_cluster_issuer_signs_names_of_the_namespace_and_of_the_list() {
        let refused = |issuer: serde_json::Value, name: &str, allowed: &[&str]| {
            let mut cluster = etcd_cluster(3);
            cluster.metadata.namespace = Some("ns".to_owned());
            let client = serde_json::json!({"certManager": {"issuerRef": issuer}, "additionalNames": [name]});
            cluster.spec.tls = Some(serde_json::from_value(serde_json::json!({ "client": client })).unwrap());
            let allowed_names = allowed.iter().map(|name| (*name).to_owned()).collect();
            let settings = Settings { cluster_domain: Some("cluster.local".to_owned()), allowed_names, ..settings() };
            check_names(&cluster, &settings).err().map(|refusal| refusal.to_string())
        };
        let wide = || serde_json::json!({"name": "pki", "kind": "ClusterIssuer"});
        for (name, allowed) in [
            ("a-client.ns.svc", &[] as &[&str]),
            ("x.y.ns.svc.cluster.local", &[]),
            ("etcd.example.org", &["etcd.example.org"]),
            ("Etcd.Example.org", &["*.example.org"]),
            ("*.example.org", &["*.example.org"]),
            ("10.0.0.1", &["10.0.0.1"]),
            ("anything", &["*"]),
        ] {
            assert_eq!(refused(wide(), name, allowed), None, "{name}");
        }
        for (name, allowed) in [
            ("etcd.example.org", &[] as &[&str]),
            ("a.other.svc", &[]),
            ("ns.svc", &[]),
            ("a.ns.svc.example.org", &[]),
            ("example.org", &["*.example.org"]),
            ("etcdexample.org", &["*.example.org"]),
            ("kubernetes.default.svc", &["*.example.org"]),
            ("*", &["*.example.org"]),
            ("10.0.0.1", &["10.0.0.2"]),
        ] {
            let why = refused(wide(), name, allowed).unwrap_or_else(|| panic!("{name}"));
            assert!(why.starts_with("spec.tls.client.additionalNames: ") && why.contains("--allowed-names"), "{why}");
        }
        let external = serde_json::json!({"name": "pki", "kind": "StepClusterIssuer", "group": "certmanager.step.sm"});
        assert!(refused(external, "etcd.example.org", &[]).is_some());
        assert_eq!(
            refused(serde_json::json!({"name": "pki"}), "etcd.example.org", &[]),
            None,
            "an Issuer is the namespace's own"
        );
    }
}
