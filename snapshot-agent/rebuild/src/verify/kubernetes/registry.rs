//! The keys of a Kubernetes in etcd.
//!
//! Decides which prefix a kube-apiserver has written below, and which folder of keys belongs to a resource. Reads keys and a few
//! values at the snapshot's revision, and takes everything out of the scratch etcd that makes a kube-apiserver call other servers.
//! `kubernetes.rs` decides which objects have to be decoded.

use std::collections::{BTreeMap, BTreeSet};

use etcd_client::{GetOptions, KvClient};
use holdfast_contract::error::{Error, Result};
use serde_json::{Value, json};

use super::api::Resource;
use holdfast_etcd::connect::etcd_error;
use holdfast_verbs_common::registry::{SPECIAL, folder_of};

/// kube-apiserver's default of `--etcd-prefix`.
const DEFAULT_PREFIX: &str = "/registry";

/// Ends of the keys of namespaces that every Kubernetes has.
const NAMESPACES: [&str; 2] = ["/namespaces/kube-system", "/namespaces/default"];

/// Keys of one answer: far below the size at which etcd's client refuses an answer.
const PAGE: i64 = 4000;

/// Built-in groups whose name is a part of the keys: those of the servers for custom resources and for other servers' APIs.
const GROUPED: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];

/// Folders in which kube-apiserver keeps records of its own, which no API serves.
const INTERNAL: [&str; 3] = ["ranges", "masterleases", "peerserverleases"];

/// The first bytes of a value that kube-apiserver has encrypted, before the names of the provider and its key.
const ENCRYPTED: &[u8] = b"k8s:enc:";

/// Longest name of a provider in a message.
const PROVIDER: usize = 120;

/// The keys of a Kubernetes at one revision.
pub(super) struct Registry {
    kv: KvClient,
    endpoint: String,
    revision: i64,
    /// The `--etcd-prefix` of the kube-apiserver that wrote the keys.
    prefix: String,
    /// Number of keys in each folder.
    folders: BTreeMap<String, u64>,
    /// Names of the custom resources that were served.
    custom: BTreeSet<String>,
}

impl Registry {
    /// Finds the prefix, and counts the keys below it.
    pub(super) async fn read(kv: KvClient, endpoint: &str, revision: i64) -> Result<Self> {
        let (prefix, endpoint) = (DEFAULT_PREFIX.to_owned(), endpoint.to_owned());
        let (folders, custom) = (BTreeMap::new(), BTreeSet::new());
        let mut registry = Self { kv, endpoint, revision, prefix, folders, custom };
        if registry.page(b"/registry/namespaces/", b"/registry/namespaces0", 1).await?.is_empty() {
            registry.prefix = registry.find_prefix().await?;
        }
        let below = format!("{}/", registry.prefix);
        let mut folders = BTreeMap::<String, u64>::new();
        let mut from = below.clone().into_bytes();
        loop {
            let page = registry.page(&from, &end(&below), PAGE).await?;
            let Some(last) = page.last() else { break };
            from = after(last);
            for key in page.iter().filter_map(|key| std::str::from_utf8(key).ok()?.strip_prefix(&below)) {
                *folders.entry(folder_of(key).to_owned()).or_default() += 1;
            }
        }
        Ok(Self { folders, ..registry })
    }

    pub(super) const fn revision(&self) -> i64 {
        self.revision
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the keys of a resource: the folder below the prefix, and the number of keys.
    pub(super) fn keys_of(&self, resource: &Resource) -> (String, u64) {
        // The definition may be encrypted: the folder of its objects is not.
        let in_group = self.folders.contains_key(&format!("{}/{}", resource.group, resource.plural));
        let folder = folder_for(resource, in_group || self.custom.contains(&resource.name()));
        let keys = self.folders.get(&folder).copied().unwrap_or_default();
        (folder, keys)
    }

    /// Returns the folders with keys that none of these folders' resources covers, each with the number of keys.
    pub(super) fn without(&self, covered: &BTreeSet<String>) -> Vec<(String, u64)> {
        let is_left_out = |folder: &str| !covered.contains(folder) && !INTERNAL.contains(&folder);
        let rest = self.folders.iter().filter(|(folder, _)| is_left_out(folder));
        rest.map(|(folder, keys)| (format!("{}/{folder}", self.prefix), *keys)).collect()
    }

    /// Returns the next keys of a folder, below the prefix and the folder, after this one.
    pub(super) async fn names_after(&self, folder: &str, last: Option<&str>) -> Result<Vec<String>> {
        let below = format!("{}/{folder}/", self.prefix);
        let from = last.map_or_else(|| below.clone().into_bytes(), |last| after(format!("{below}{last}").as_bytes()));
        let page = self.page(&from, &end(&below), PAGE).await?;
        Ok(page
            .iter()
            .filter_map(|key| Some(std::str::from_utf8(key).ok()?.strip_prefix(&below)?.to_owned()))
            .collect())
    }

    /// Returns the whole key of a name in a folder.
    pub(super) fn key(&self, folder: &str, name: &str) -> String {
        format!("{}/{folder}/{name}", self.prefix)
    }

    /// Returns the provider with which the value of this key is encrypted, such as `k8s:enc:aescbc:v1:key1`; `None`: the value is
    /// not encrypted.
    pub(super) async fn provider(&self, key: &str) -> Result<Option<String>> {
        Ok(self.value(key, self.revision).await?.and_then(|value| provider_of(&value)))
    }

    /// Keeps the kube-apiserver from calling other servers: removes the APIs that other servers serve, and the conversion of custom
    /// resources by webhooks. The snapshot's revision stays as it is.
    pub(super) async fn cut_calls(&mut self) -> Result<()> {
        for name in self.all_names("apiregistration.k8s.io/apiservices").await? {
            let key = self.key("apiregistration.k8s.io/apiservices", &name);
            if self.json(&key).await?.is_some_and(|service| !service["spec"]["service"].is_null()) {
                self.kv.delete(key.as_str(), None).await.map_err(|error| etcd_error(&self.endpoint, &error))?;
            }
        }
        for name in self.all_names("apiextensions.k8s.io/customresourcedefinitions").await? {
            let key = self.key("apiextensions.k8s.io/customresourcedefinitions", &name);
            let Some(mut definition) = self.json(&key).await? else { continue };
            if is_established(&definition) {
                self.custom.insert(name);
            }
            if let Some(conversion) =
                definition.pointer_mut("/spec/conversion").filter(|it| it["strategy"] == "Webhook")
            {
                *conversion = json!({"strategy": "None"});
                let put = self.kv.put(key.as_str(), definition.to_string(), None).await;
                put.map_err(|error| etcd_error(&self.endpoint, &error))?;
            }
        }
        Ok(())
    }

    /// Returns the custom resources that were served and are not among these.
    pub(super) fn missing<'a>(&'a self, found: &BTreeSet<Resource>) -> Vec<&'a str> {
        let names: BTreeSet<String> = found.iter().map(Resource::name).collect();
        self.custom.iter().filter(|name| !names.contains(*name)).map(String::as_str).collect()
    }

    /// Returns the shortest prefix below which keys of namespaces are.
    async fn find_prefix(&self) -> Result<String> {
        let (mut from, mut found) = (vec![0], BTreeSet::new());
        loop {
            let page = self.page(&from, &[0], PAGE).await?;
            let Some(last) = page.last() else { break };
            from = after(last);
            found.extend(page.iter().filter_map(|key| prefix_of(std::str::from_utf8(key).ok()?).map(str::to_owned)));
        }
        found.into_iter().min_by_key(String::len).ok_or_else(|| {
            Error::config(
                "the snapshot is not of a Kubernetes: no key ends in /namespaces/kube-system. Drill without --kubernetes \
                 (spec.drill.kubernetes)",
            )
        })
    }

    async fn all_names(&self, folder: &str) -> Result<Vec<String>> {
        let mut all: Vec<String> = Vec::new();
        loop {
            let page = self.names_after(folder, all.last().map(String::as_str)).await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    /// Returns the keys in this range at the snapshot's revision, in their order.
    async fn page(&self, from: &[u8], end: &[u8], limit: i64) -> Result<Vec<Vec<u8>>> {
        let options = GetOptions::new().with_range(end).with_limit(limit).with_keys_only().with_revision(self.revision);
        let answer = self.kv.clone().get(from, Some(options)).await;
        let answer = answer.map_err(|error| etcd_error(&self.endpoint, &error))?;
        Ok(answer.kvs().iter().map(|kv| kv.key().to_vec()).collect())
    }

    /// Returns the present value of a key, if the value is JSON.
    async fn json(&self, key: &str) -> Result<Option<Value>> {
        Ok(self.value(key, 0).await?.and_then(|value| serde_json::from_slice(&value).ok()))
    }

    async fn value(&self, key: &str, revision: i64) -> Result<Option<Vec<u8>>> {
        let options = GetOptions::new().with_revision(revision);
        let answer = self.kv.clone().get(key, Some(options)).await;
        let answer = answer.map_err(|error| etcd_error(&self.endpoint, &error))?;
        Ok(answer.kvs().first().map(|kv| kv.value().to_vec()))
    }
}

/// Returns the first key after this key.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// Returns the first key after all keys that begin with this text, which ends with a slash.
fn end(below: &str) -> Vec<u8> {
    let mut end = below.as_bytes().to_vec();
    end.pop();
    end.push(b'/' + 1);
    end
}

/// Returns the prefix of a key of a namespace that every Kubernetes has.
fn prefix_of(key: &str) -> Option<&str> {
    NAMESPACES.iter().find_map(|end| key.strip_suffix(end)).filter(|prefix| prefix.starts_with('/') && prefix.len() > 1)
}

/// Returns the folder of a resource. A custom resource, and the two kinds of the servers beside it, lie below their group; the group
/// of any other resource is no part of the keys.
fn folder_for(resource: &Resource, is_custom: bool) -> String {
    let Resource { group, plural, .. } = resource;
    if is_custom || GROUPED.contains(&group.as_str()) {
        return format!("{group}/{plural}");
    }
    SPECIAL.iter().find(|(name, _)| name == plural).map_or(plural.as_str(), |(_, folder)| folder).to_owned()
}

/// Returns the provider that an encrypted value names: the first five parts.
fn provider_of(value: &[u8]) -> Option<String> {
    if !value.starts_with(ENCRYPTED) {
        return None;
    }
    let mut parts = value.splitn(6, |byte| *byte == b':');
    let named: Vec<&[u8]> = parts.by_ref().take(5).collect();
    let text = String::from_utf8_lossy(&named.join(&b':')).into_owned();
    // A value without a sixth part is broken, and its bytes may be the user's.
    let is_named = parts.next().is_some() && text.len() <= PROVIDER && text.chars().all(|c| !c.is_control());
    Some(if is_named { text } else { "k8s:enc:?".to_owned() })
}

/// Whether kube-apiserver served this custom resource.
fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|it| it["type"] == "Established" && it["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_is_that_of_the_namespaces() {
        assert_eq!(prefix_of("/registry/namespaces/kube-system"), Some("/registry"));
        assert_eq!(prefix_of("/kubernetes.io/a/namespaces/default"), Some("/kubernetes.io/a"));
        for other in
            ["/registry/namespaces/prod", "/namespaces/default", "x/namespaces/default", "/registry/pods/default"]
        {
            assert_eq!(prefix_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_resource_lies_in_its_groups_folder_or_under_its_own_or_an_old_name() {
        let folder = |group: &str, plural: &str, is_custom| {
            let (group, plural) = (group.to_owned(), plural.to_owned());
            folder_for(&Resource { group, plural, version: "v1".to_owned(), namespaced: true }, is_custom)
        };
        assert_eq!(folder("example.org", "ingresses", true), "example.org/ingresses");
        assert_eq!(folder("apiregistration.k8s.io", "apiservices", false), "apiregistration.k8s.io/apiservices");
        assert_eq!(folder("networking.k8s.io", "ingresses", false), "ingress");
        assert_eq!(folder("apps", "deployments", false), "deployments");
        assert_eq!(folder("", "nodes", false), "minions");
        assert_eq!(folder("", "services", false), "services/specs");
    }

    #[test]
    fn an_encrypted_value_names_its_provider_and_nothing_of_itself() {
        assert_eq!(provider_of(b"k8s:enc:aescbc:v1:key1:\x00\xffsecret"), Some("k8s:enc:aescbc:v1:key1".to_owned()));
        assert_eq!(provider_of(b"k8s:enc:kms:v2:vault:a:b"), Some("k8s:enc:kms:v2:vault".to_owned()));
        assert_eq!(provider_of(b"k8s:enc:secret"), Some("k8s:enc:?".to_owned()));
        assert_eq!(
            provider_of(&[b"k8s:enc:aescbc:v1:", &[b'x'; 500][..], b":y"].concat()),
            Some("k8s:enc:?".to_owned())
        );
        assert_eq!(provider_of(b"k8s\x00\x0a"), None);
    }

    #[test]
    fn only_established_custom_resources_are_awaited() {
        let with = |status: &str| json!({"status": {"conditions": [{"type": "Established", "status": status}]}});
        assert!(is_established(&with("True")) && !is_established(&with("False")) && !is_established(&json!({})));
    }

    #[test]
    fn pages_go_on_after_the_last_key_and_end_with_the_folder() {
        assert_eq!(after(b"/a"), b"/a\0");
        assert_eq!(end("/registry/pods/"), b"/registry/pods0");
    }
}
