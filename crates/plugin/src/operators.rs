//! The operators of a Kubernetes cluster, by their Deployments.
//!
//! Decides where to look: in all namespaces, or, without that right, in the namespaces of the two kinds of install.

use serde::Serialize;
use serde_json::Value;

use super::access::Session;
use holdfast_manifests::NAMESPACE;

/// Labels of every operator's Deployment.
const LABELS: &str = "app.kubernetes.io/name=holdfast,app.kubernetes.io/component=operator";

/// One operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Operator {
    /// Namespace of the Deployment.
    pub namespace: String,
    /// Name of the Deployment.
    pub name: String,
    /// Image of the operator.
    pub image: String,
    /// Pods that are ready.
    pub ready: i64,
    /// Pods that the Deployment asks for.
    pub wanted: i64,
    /// Namespace that the operator watches; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watches: Option<String>,
}

impl Operator {
    /// Returns the version in the image's tag.
    pub fn version(&self) -> Option<&str> {
        let tag = self.image.split('@').next()?.rsplit_once(':')?.1;
        // Without a tag the last colon is that of a port.
        (!tag.contains('/')).then_some(tag)
    }
}

/// Lists the operators. The error is that of the place where every install for the whole cluster is.
pub async fn find(session: &Session) -> anyhow::Result<Vec<Operator>> {
    if let Ok(all) = session.raw_list("/apis/apps/v1/deployments", LABELS).await {
        return Ok(all.iter().map(operator).collect());
    }
    let place = |namespace: &str| format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    let own = session.raw_list(&place(&session.namespace), LABELS).await;
    let system = session.raw_list(&place(NAMESPACE), LABELS).await;
    match (own, system) {
        (Ok(own), Ok(system)) if session.namespace != NAMESPACE => {
            Ok(own.iter().chain(&system).map(operator).collect())
        }
        (Ok(found), _) | (Err(_), Ok(found)) => Ok(found.iter().map(operator).collect()),
        (Err(_), Err(error)) => Err(error),
    }
}

fn operator(deployment: &Value) -> Operator {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let mut flags = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let watches = flags.find_map(|flag| flag.strip_prefix("--watch-namespace="));
    Operator {
        namespace: text(&deployment["metadata"]["namespace"]),
        name: text(&deployment["metadata"]["name"]),
        image: text(&container["image"]),
        ready: deployment["status"]["readyReplicas"].as_i64().unwrap_or(0),
        wanted: deployment["spec"]["replicas"].as_i64().unwrap_or(1),
        watches: watches.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_api::pod_security::RunAs;

    use super::*;
    use holdfast_manifests::{Options, Part, Scope, objects};

    #[test]
    fn the_deployment_of_the_manifests_is_read() {
        let of = |scope| {
            let image = "registry.example.com:5000/holdfast:0.1.0@sha256:00".to_owned();
            let options = Options { image, scope, pod_run_as: RunAs::default(), only: Some(Part::Deployment) };
            let all = objects(&options).unwrap();
            let deployment = all.iter().find(|object| object["kind"] == "Deployment").unwrap();
            for (key, value) in [("app.kubernetes.io/name", "holdfast"), ("app.kubernetes.io/component", "operator")] {
                assert!(deployment["metadata"]["labels"][key] == value && LABELS.contains(&format!("{key}={value}")));
            }
            operator(deployment)
        };
        let whole = of(Scope::Cluster);
        assert_eq!((whole.namespace.as_str(), whole.name.as_str()), (NAMESPACE, "holdfast"));
        assert_eq!((whole.version(), whole.wanted, whole.ready, whole.watches.clone()), (Some("0.1.0"), 1, 0, None));
        assert_eq!(of(Scope::Namespace("shop".to_owned())).watches.as_deref(), Some("shop"));
        let untagged = Operator { image: "registry:5000/holdfast".to_owned(), ..Operator::default() };
        assert_eq!(untagged.version(), None);
    }
}
