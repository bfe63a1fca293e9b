//! `report [CLUSTER] --out FILE`: a support bundle, with the list of its contents first.
//!
//! Decides the objects: Holdfast's own, and those of Kubernetes that Holdfast makes. Never a Secret, a ConfigMap or a key: no request
//! here names them. What the person may not read is a line in the list.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use holdfast_api::{EtcdCluster, key};
use holdfast_io::clock;
use kube::ResourceExt as _;
use kube::api::LogParams;
use kube::core::Request;
use serde_json::Value;

use super::access::{Access, Only, Session, words};
use super::archive::pack;
use super::end::{DONE, print, wrong_use};
use super::operators;
use super::screen::{Screen, plain};
use super::status::{observe, render};
use super::time::size;
use holdfast_manifests::names::object;

/// Lines of each log.
const LINES: i64 = 5000;

/// Holdfast's kinds.
const OWN: [&str; 7] = [
    "etcdclusters",
    "etcdmembers",
    "etcdsnapshots",
    "etcdsnapshotschedules",
    "etcdbackupstores",
    "etcdusers",
    "etcdrestores",
];

/// Kinds of Kubernetes that Holdfast makes: the path of the group, and the plural.
const MADE: [(&str, &str); 7] = [
    ("/api/v1", "pods"),
    ("/api/v1", "persistentvolumeclaims"),
    ("/api/v1", "services"),
    ("/apis/batch/v1", "jobs"),
    ("/apis/batch/v1", "cronjobs"),
    ("/apis/policy/v1", "poddisruptionbudgets"),
    ("/apis/discovery.k8s.io/v1", "endpointslices"),
];

/// Flags of `report`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ReportFlags {
    /// `EtcdCluster`. Default: every cluster of the namespace.
    #[arg(value_parser = object)]
    pub cluster: Option<String>,
    /// File to write: a new one.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
}

/// Files of the bundle, and what could not be read.
#[derive(Debug, Default)]
struct Bundle {
    files: Vec<(String, Vec<u8>)>,
    unread: Vec<String>,
}

impl Bundle {
    fn add(&mut self, name: impl Into<String>, text: impl Into<Vec<u8>>) {
        self.files.push((name.into(), text.into()));
    }

    /// Returns the list of the contents.
    fn contents(&self) -> String {
        let mut out = String::new();
        for (name, contents) in &self.files {
            out.push_str(&format!("{:>10}  {name}\n", size(contents.len() as u64)));
        }
        for unread in &self.unread {
            out.push_str(&format!("{:>10}  {}\n", "not read", plain(unread)));
        }
        out
    }
}

/// Writes the bundle.
pub async fn run(flags: ReportFlags) -> anyhow::Result<u8> {
    let session = flags.access.open().await?;
    // Before the work: a file that exists may be another report.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&flags.out);
    let mut file = file.map_err(|error| wrong_use(format!("--out={}: {error}", flags.out.display())))?;
    let gathered = gather(&session, flags.cluster.as_deref()).await;
    let written = gathered.and_then(|bundle| {
        let contents = bundle.contents();
        print(&contents)?;
        let seconds = u64::try_from(clock::now().as_second()).unwrap_or(0);
        let files = [vec![("CONTENTS".to_owned(), contents.into_bytes())], bundle.files].concat();
        let packed = pack(&files, seconds)?;
        file.write_all(&packed).with_context(|| format!("writing {}", flags.out.display()))?;
        print(&format!("{}: {}\n", flags.out.display(), size(packed.len() as u64)))
    });
    if written.is_err() {
        // An empty file would pass for a report.
        let _ = std::fs::remove_file(&flags.out);
    }
    written.map(|()| DONE)
}

async fn gather(session: &Session, cluster: Option<&str>) -> anyhow::Result<Bundle> {
    let mut bundle = Bundle::default();
    let clusters = match cluster {
        Some(name) => vec![session.named::<EtcdCluster>(name).await?],
        None => session.list::<EtcdCluster>(Only::default()).await?,
    };
    for cluster in &clusters {
        let name = cluster.name_any();
        let objects = observe::observe(session, &name).await?;
        let facts = observe::facts(&objects, clock::now());
        let screen = Screen { width: 120, coloured: false, is_terminal: false };
        bundle.add(format!("status/{name}.txt"), render::render(&facts, screen));
        bundle.add(format!("status/{name}.json"), serde_json::to_string_pretty(&facts)?);
    }
    let namespace = &session.namespace;
    let group = format!("/apis/{}/{}", holdfast_api::GROUP, holdfast_api::VERSION);
    for plural in OWN {
        list(session, &mut bundle, &format!("{group}/namespaces/{namespace}/{plural}"), "", cluster).await?;
    }
    let labels = match cluster {
        Some(name) => format!("{}={name}", key::CLUSTER),
        None => format!("{}=holdfast", key::MANAGED_BY),
    };
    let mut pods = vec![];
    for (group, plural) in MADE {
        let items =
            list(session, &mut bundle, &format!("{group}/namespaces/{namespace}/{plural}"), &labels, None).await?;
        if plural == "pods" {
            pods = items;
        }
    }
    list(session, &mut bundle, &format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"), "", None).await?;
    logs(session, &mut bundle, namespace, &pods).await;
    operator(session, &mut bundle).await;
    Ok(bundle)
}

/// Adds a list of objects. Returns the objects.
async fn list(
    session: &Session,
    bundle: &mut Bundle,
    collection: &str,
    labels: &str,
    cluster: Option<&str>,
) -> anyhow::Result<Vec<Value>> {
    let plural = collection.rsplit('/').next().unwrap_or_default();
    match session.raw_list(collection, labels).await {
        Ok(mut items) => {
            items.retain(|object| cluster.is_none_or(|name| is_about(object, name)));
            items.iter_mut().for_each(slim);
            if !items.is_empty() {
                bundle.add(format!("objects/{plural}.yaml"), holdfast_manifests::yaml(&items)?);
            }
            Ok(items)
        }
        Err(error) => {
            bundle.unread.push(format!("{plural}: {error:#}"));
            Ok(vec![])
        }
    }
}

/// Whether an object of Holdfast's is a cluster, or of a cluster. A store is of every cluster.
fn is_about(object: &Value, cluster: &str) -> bool {
    let named = &object["spec"]["clusterRef"]["name"];
    let is_store = !object["spec"].as_object().is_some_and(|spec| spec.contains_key("clusterRef"));
    object["metadata"]["name"] == cluster || named == cluster || (is_store && object["status"]["probe"].is_object())
}

/// Removes the records of field managers, which are longer than the object, and the copy that kubectl keeps.
fn slim(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
}

/// Adds the logs of every container of these Pods, also those before a restart.
async fn logs(session: &Session, bundle: &mut Bundle, namespace: &str, pods: &[Value]) {
    for pod in pods {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let statuses = ["initContainerStatuses", "containerStatuses"].map(|key| pod["status"][key].as_array());
        for status in statuses.into_iter().flatten().flatten() {
            let container = status["name"].as_str().unwrap_or_default();
            let restarted = status["restartCount"].as_i64().unwrap_or(0) > 0;
            for previous in [false, true].into_iter().filter(|previous| !previous || restarted) {
                let suffix = if previous { ".previous" } else { "" };
                let params = LogParams {
                    container: Some(container.to_owned()),
                    previous,
                    tail_lines: Some(LINES),
                    timestamps: true,
                    ..LogParams::default()
                };
                let request = Request::new(format!("/api/v1/namespaces/{namespace}/pods")).logs(name, &params);
                let read = async {
                    let request = request.map_err(kube::Error::BuildRequest)?;
                    session.client.request_text(request).await
                };
                match read.await {
                    Ok(text) => bundle.add(format!("logs/{name}/{container}{suffix}.log"), text),
                    Err(error) => bundle.unread.push(format!("log of {name}, {container}{suffix}: {}", words(&error))),
                }
            }
        }
    }
}

/// Adds the operators, and the logs of their Pods.
async fn operator(session: &Session, bundle: &mut Bundle) {
    let found = match operators::find(session).await {
        Ok(found) => found,
        Err(error) => return bundle.unread.push(format!("operators: {error:#}")),
    };
    let serves = |watches: &Option<String>| watches.as_ref().is_none_or(|watched| *watched == session.namespace);
    for operator in found.into_iter().filter(|operator| serves(&operator.watches)) {
        let home = &operator.namespace;
        bundle.add(format!("operator/{home}.txt"), format!("{operator:#?}\n"));
        let labels = "app.kubernetes.io/name=holdfast,app.kubernetes.io/component=operator";
        match session.raw_list(&format!("/api/v1/namespaces/{home}/pods"), labels).await {
            Ok(pods) => logs(session, bundle, home, &pods).await,
            Err(error) => bundle.unread.push(format!("Pods of the operator in {home}: {error:#}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_list_names_files_and_gaps_and_objects_lose_their_managers() {
        let mut bundle = Bundle::default();
        bundle.add("objects/pods.yaml", "x".repeat(2048));
        bundle.unread.push("jobs: forbidden\nfor you".to_owned());
        assert_eq!(bundle.contents(), "   2.0 KiB  objects/pods.yaml\n  not read  jobs: forbidden for you\n");
        let last = "kubectl.kubernetes.io/last-applied-configuration";
        let mut object = json!({"metadata": {"name": "a", "managedFields": [], "annotations": {last: "s", "b": "c"}}});
        slim(&mut object);
        assert_eq!(object, json!({"metadata": {"name": "a", "annotations": {"b": "c"}}}));
    }

    #[test]
    fn one_cluster_brings_its_own_objects_and_the_stores() {
        let of = |spec: Value| json!({"metadata": {"name": "x"}, "spec": spec});
        assert!(is_about(&json!({"metadata": {"name": "alpha"}, "spec": {}}), "alpha"));
        assert!(is_about(&of(json!({"clusterRef": {"name": "alpha"}})), "alpha"));
        assert!(!is_about(&of(json!({"clusterRef": {"name": "beta"}})), "alpha"));
        assert!(!is_about(&of(json!({"replicas": 3})), "alpha"), "another cluster");
        let mut store = of(json!({"s3": {"bucket": "b"}}));
        store["status"] = json!({"probe": {"usable": true}});
        assert!(is_about(&store, "alpha"));
    }

    #[test]
    fn no_request_names_secrets() {
        let paths = OWN.iter().chain(MADE.iter().map(|(_, plural)| plural));
        assert!(paths.copied().all(|plural| plural != "secrets" && plural != "configmaps"));
    }
}
