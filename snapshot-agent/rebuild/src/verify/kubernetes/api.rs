//! Requests to the kube-apiserver of a drill: readiness, its resources, lists, single objects.
//!
//! Decides how the agent asks. Answers have only the metadata of objects: kube-apiserver decodes each object whole, and no value
//! leaves it. `kubernetes.rs` decides which answers prove something.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_contract::Origin;
use holdfast_contract::error::{Error, Result};
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Certificate, Client, StatusCode};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

/// A page of a list needs seconds on a slow disk.
const ANSWER_WITHIN: Duration = Duration::from_mins(2);

/// Objects of one page of a list.
const PAGE: u32 = 500;

/// kube-apiserver is ready without its own caches: they never fill where an object of theirs cannot be decoded.
const READY: &str = "/readyz?exclude=informer-sync";

const JSON: &str = "application/json";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Resources that can be listed and are not in etcd.
const COMPUTED: [(&str, &str); 1] = [("", "componentstatuses")];

/// Resources that are the objects of another group once more.
const TWICE: [(&str, &str); 1] = [("events.k8s.io", "events")];

/// A connection to the kube-apiserver.
pub(super) struct Api {
    client: Client,
    base: String,
}

/// A resource that the kube-apiserver lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Resource {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    pub(super) namespaced: bool,
}

impl Resource {
    /// Returns the name that kubectl knows: `pods`, `deployments.apps`.
    pub(super) fn name(&self) -> String {
        let Self { group, plural, .. } = self;
        if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") }
    }

    fn root(&self) -> String {
        let Self { group, version, .. } = self;
        if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
    }

    /// Returns the path of the object with this name in etcd: `NAMESPACE/NAME` or `NAME`.
    fn object(&self, name: &str) -> Option<String> {
        let (root, plural) = (self.root(), &self.plural);
        match name.split_once('/') {
            Some((namespace, name)) if self.namespaced && !name.contains('/') => {
                Some(format!("{root}/namespaces/{namespace}/{plural}/{name}"))
            }
            None if !self.namespaced => Some(format!("{root}/{plural}/{name}")),
            Some(_) | None => None,
        }
    }
}

/// The objects of a resource.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Listed {
    /// kube-apiserver has decoded so many.
    Decoded(u64),
    /// kube-apiserver refused a page with this status.
    Refused(u16),
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMetadata,
    #[serde(default)]
    items: Option<Vec<IgnoredAny>>,
}

#[derive(Deserialize)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: String,
}

#[derive(Deserialize)]
struct Groups {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    name: String,
    preferred_version: Version,
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
    version: String,
}

#[derive(Deserialize)]
struct Kinds {
    resources: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    name: String,
    namespaced: bool,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Built {
    git_version: String,
}

impl Api {
    /// Returns a connection that trusts this certificate only. Sends no request.
    pub(super) fn new(port: u16, certificate: &str, token: &str) -> Result<Self> {
        holdfast_io::crypto::install_crypto();
        let wrong = |error: reqwest::Error| Error::config(format!("asking kube-apiserver: {error}"));
        let certificate = Certificate::from_pem(certificate.as_bytes()).map_err(wrong)?;
        let mut bearer = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|error| Error::config(format!("asking kube-apiserver: {error}")))?;
        bearer.set_sensitive(true);
        let client = Client::builder()
            .timeout(ANSWER_WITHIN)
            .no_proxy()
            .tls_certs_only([certificate])
            .default_headers(HeaderMap::from_iter([(AUTHORIZATION, bearer)]))
            .build()
            .map_err(wrong)?;
        Ok(Self { client, base: format!("https://127.0.0.1:{port}") })
    }

    /// Whether the kube-apiserver is ready to list.
    pub(super) async fn is_ready(&self) -> bool {
        self.send(READY, JSON).await.is_ok_and(|(status, _)| status.is_success())
    }

    /// Returns the checks that keep the kube-apiserver from being ready.
    pub(super) async fn failing_checks(&self) -> Result<Vec<String>> {
        let (_, text) = self.send(&format!("{READY}&verbose"), JSON).await?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let names = text.lines().filter_map(|line| line.strip_prefix("[-]")?.split_whitespace().next());
        Ok(names.map(str::to_owned).collect())
    }

    pub(super) async fn version(&self) -> Result<String> {
        Ok(self.must::<Built>("/version").await?.git_version)
    }

    /// Returns the resources that the kube-apiserver lists from etcd, each in one version.
    pub(super) async fn resources(&self) -> Result<BTreeSet<Resource>> {
        let mut found = BTreeSet::new();
        self.add_resources("", "v1", &mut found).await?;
        for Group { name, preferred_version, versions } in self.must::<Groups>("/apis").await?.groups {
            for Version { version } in std::iter::once(preferred_version).chain(versions) {
                self.add_resources(&name, &version, &mut found).await?;
            }
        }
        Ok(found)
    }

    /// Adds the resources of a version that no version before has.
    async fn add_resources(&self, group: &str, version: &str, found: &mut BTreeSet<Resource>) -> Result<()> {
        let named = |plural: String, namespaced| {
            let (group, version) = (group.to_owned(), version.to_owned());
            Resource { group, version, plural, namespaced }
        };
        let root = named(String::new(), false).root();
        // A group whose definition has just come is known before it is served.
        let Ok(kinds) = self.get::<Kinds>(&root, JSON).await? else { return Ok(()) };
        for Kind { name, namespaced, verbs } in kinds.resources {
            let is_stored = !COMPUTED.contains(&(group, name.as_str())) && !TWICE.contains(&(group, name.as_str()));
            let is_listed = verbs.iter().any(|verb| verb == "list") && !name.contains('/');
            let is_known = found.iter().any(|other| other.group == group && other.plural == name);
            if is_stored && is_listed && !is_known {
                found.insert(named(name, namespaced));
            }
        }
        Ok(())
    }

    /// Lists a resource at this revision of etcd, page by page.
    pub(super) async fn list(&self, resource: &Resource, revision: i64) -> Result<Listed> {
        let path = format!("{}/{}?limit={PAGE}", resource.root(), resource.plural);
        let (mut objects, mut next) = (0, format!("&resourceVersion={revision}&resourceVersionMatch=Exact"));
        loop {
            let page = match self.get::<Page>(&format!("{path}{next}"), METADATA_LIST).await? {
                Ok(page) => page,
                Err(status) => return Ok(Listed::Refused(status.as_u16())),
            };
            objects += page.items.map_or(0, |items| items.len() as u64);
            if page.metadata.next.is_empty() {
                return Ok(Listed::Decoded(objects));
            }
            next = format!("&continue={}", page.metadata.next);
        }
    }

    /// Whether the kube-apiserver decodes the object with this name in etcd. An object that is gone by now, and a name that is
    /// none of this resource, count as decoded.
    pub(super) async fn decodes(&self, resource: &Resource, name: &str) -> Result<bool> {
        let Some(path) = resource.object(name) else { return Ok(true) };
        let answer = self.get::<IgnoredAny>(&path, METADATA).await?;
        Ok(answer.err().is_none_or(|status| status != StatusCode::INTERNAL_SERVER_ERROR))
    }

    async fn must<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let refused = |status: StatusCode| own(format!("kube-apiserver refused GET {path}: {status}"));
        self.get(path, JSON).await?.map_err(refused)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, accept: &str) -> Result<std::result::Result<T, StatusCode>> {
        let (status, body) = self.send(path, accept).await?;
        if !status.is_success() {
            return Ok(Err(status));
        }
        let read = serde_json::from_slice(&body);
        read.map(Ok).map_err(|error| own(format!("kube-apiserver's answer to GET {path} cannot be read: {error}")))
    }

    async fn send(&self, path: &str, accept: &str) -> Result<(StatusCode, bytes::Bytes)> {
        let failed = |error: reqwest::Error| own(format!("kube-apiserver does not answer: {error}"));
        let answer = self.client.get(format!("{}{path}", self.base)).header(ACCEPT, accept).send().await;
        let answer = answer.map_err(failed)?;
        let status = answer.status();
        Ok((status, answer.bytes().await.map_err(failed)?))
    }
}

/// Returns an error that shows no fault of the snapshot.
fn own(message: String) -> Error {
    Error::transient(message).with_origin(Origin::Own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_becomes_the_path_of_its_object() {
        let named = |group: &str, version: &str, plural: &str, namespaced| Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            namespaced,
        };
        let (pods, nodes) = (named("", "v1", "pods", true), named("", "v1", "nodes", false));
        let things = named("example.org", "v2", "things", true);
        let path = |resource: &Resource, name: &str| resource.object(name);
        assert_eq!(path(&pods, "ns/a"), Some("/api/v1/namespaces/ns/pods/a".to_owned()));
        assert_eq!(path(&nodes, "n1"), Some("/api/v1/nodes/n1".to_owned()));
        assert_eq!(path(&things, "ns/a"), Some("/apis/example.org/v2/namespaces/ns/things/a".to_owned()));
        assert_eq!((path(&pods, "a"), path(&pods, "a/b/c"), path(&nodes, "a/b")), (None, None, None));
        assert_eq!((pods.name(), things.name()), ("pods".to_owned(), "things.example.org".to_owned()));
    }

    #[test]
    fn a_page_needs_no_items_and_may_be_the_last() {
        let page: Page = serde_json::from_str(r#"{"metadata":{"continue":"t"},"items":[{"a":1},{}]}"#).unwrap();
        assert_eq!((page.metadata.next.as_str(), page.items.unwrap().len()), ("t", 2));
        let page: Page = serde_json::from_str(r#"{"metadata":{},"items":null}"#).unwrap();
        assert_eq!((page.metadata.next.as_str(), page.items.is_none()), ("", true));
    }
}
