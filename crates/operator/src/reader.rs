//! Reads objects of one namespace, from the caches or from the API server.
//!
//! A cache may be old and may still hold a deleted object. `reconcile.rs` decides which view a pass takes (I26). Decides nothing.

use holdfast_plan::Seen;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::clock;
use super::context::Context;
use super::error::Error;
use holdfast_kube::kinds::{Cached, Object};
use holdfast_kube::requests;
use holdfast_kube::slim::slim;

/// Objects in the first page of a list. An object has at most 1.5 MiB.
const FIRST_PAGE: u32 = 10;
/// Approximate size of each later page, computed from the size of the objects before.
const PAGE_BYTES: usize = 1 << 20;
/// Largest number of objects in a page, the same as in Kubernetes' own clients.
const LARGEST_PAGE: u32 = 500;

/// Returns `None` only where the API server answers that no object has this name. An unserved path is a 404 too, while a CRD
/// changes or when a proxy answers, and proves nothing about the object (I4).
fn absent<K>(found: kube::Result<K>, name: &str) -> kube::Result<Option<K>> {
    match found {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status))
            if status.reason == "NotFound" && status.details.as_ref().is_some_and(|about| about.name == name) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Source of the objects of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// The caches.
    Cached,
    /// The API server, with a quorum read: the current objects.
    Live,
}

/// Selector of a list.
pub(super) enum Only<'a> {
    /// Objects with this label.
    Label(&'a str, &'a str),
    /// Objects with this field; the caller's closure selects cached objects by the same field.
    Field(&'a str, &'a str),
    /// All objects: the API cannot select by owner, and users can remove labels. The caller selects.
    Everything,
}

/// Reads objects of one namespace through a [`View`].
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) ctx: &'a Context,
    pub(super) namespace: &'a str,
    pub(super) view: View,
}

impl Reader<'_> {
    /// Reads the object of this name; `None` where it is absent.
    pub(super) async fn get<K: Cached>(&self, name: &str) -> Result<Option<K>, Error> {
        match self.view {
            View::Cached => Ok(K::cache(&self.ctx.caches).named(self.namespace, name).map(|object| (*object).clone())),
            View::Live => {
                let found = async { absent(requests::get(&self.ctx.read.0, self.namespace, name).await, name) };
                self.ctx.reading(|| format!("get {} {name}", K::NAME), found).await
            }
        }
    }

    /// Reads an object of a kind that no cache holds, such as a Secret.
    pub(super) async fn live<K: Object>(&self, name: &str) -> Result<Option<K>, Error> {
        let found = requests::get_opt(&self.ctx.read.0, self.namespace, name);
        self.ctx.reading(|| format!("get {} {name}", K::NAME), found).await
    }

    /// Whether the API server still has this version of an object. Always a live read.
    pub(super) async fn is_current<K: Cached>(&self, object: &K) -> Result<bool, Error> {
        let name = object.name_any();
        let found = async { absent(requests::get_metadata::<K>(&self.ctx.read.0, self.namespace, &name).await, &name) };
        let found = self.ctx.reading(|| format!("look at {} {name}", K::NAME), found).await?;
        Ok(found.is_some_and(|now| (now.uid, now.resource_version) == (object.uid(), object.resource_version())))
    }

    /// Whether another install of Holdfast works in the namespace. The live view asks each time, the other every few seconds.
    pub(super) async fn is_led_elsewhere(&self) -> Result<bool, Error> {
        let elsewhere = &self.ctx.elsewhere;
        let Some(name) = elsewhere.lease(self.namespace) else { return Ok(false) };
        if self.view == View::Cached
            && let Some(recent) = elsewhere.recent(self.namespace, clock::instant())
        {
            return Ok(recent);
        }
        let api: Api<Lease> = Api::namespaced(self.ctx.read.0.clone(), self.namespace);
        let found = async { absent(api.get(name).await, name) };
        match self.ctx.reading(|| format!("get Lease {name}"), found).await {
            Ok(lease) => Ok(elsewhere.judge(self.namespace, lease.as_ref(), clock::instant())),
            // Roles of an earlier version forbid the read: other installs are unknown.
            Err(Error::Kube { source, .. }) if matches!(source.as_ref(), kube::Error::Api(status) if status.is_forbidden()) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the version of the Secret of this name: UID and resourceVersion, never its data. Always a live read, because the
    /// operator does not watch Secrets. Unknown where the operator lacks the right.
    pub(super) async fn secret_version(&self, name: &str) -> Result<Seen<Option<String>>, Error> {
        let api: Api<Secret> = Api::namespaced(self.ctx.read.0.clone(), self.namespace);
        match self.ctx.reading(|| format!("look at Secret {name}"), api.get_metadata_opt(name)).await {
            Ok(found) => Ok(Seen::Known(found.map(|secret| {
                let (uid, version) = (secret.uid().unwrap_or_default(), secret.resource_version().unwrap_or_default());
                format!("{uid}/{version}")
            }))),
            Err(Error::Kube { source, .. }) if matches!(source.as_ref(), kube::Error::Api(status) if status.is_forbidden()) => {
                Ok(Seen::unknown("the operator may not get Secrets"))
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the objects that match `only` and that `wanted` accepts, sorted by name.
    pub(super) async fn list<K: Cached>(&self, only: Only<'_>, wanted: impl Fn(&K) -> bool) -> Result<Vec<K>, Error> {
        let mut found: Vec<K> = match self.view {
            View::Cached => {
                let there = K::cache(&self.ctx.caches).within(self.namespace, wanted);
                there.into_iter().map(|object| (*object).clone()).collect()
            }
            View::Live => {
                let params = match only {
                    Only::Label(key, value) => ListParams::default().labels(&format!("{key}={value}")),
                    Only::Field(path, value) => ListParams::default().fields(&format!("{path}={value}")),
                    Only::Everything => ListParams::default(),
                };
                self.pages(params, wanted).await?
            }
        };
        found.sort_by_key(ResourceExt::name_any);
        Ok(found)
    }

    /// Reads a list in pages, because users may have made objects large, and returns the objects that `wanted` accepts. The pages
    /// show one moment; once that moment is too old, the API server refuses, and the pass fails.
    async fn pages<K: Cached>(&self, params: ListParams, wanted: impl Fn(&K) -> bool) -> Result<Vec<K>, Error> {
        // Without a resourceVersion: the answer comes from a quorum, not from the API server's cache.
        let mut params = params.limit(FIRST_PAGE);
        let mut found = vec![];
        loop {
            let page = requests::list::<K>(&self.ctx.read.0, self.namespace, &params);
            let (bytes, list) = self.ctx.reading(|| format!("list {}", K::plural(&())), page).await?;
            let each = bytes / list.items.len().max(1);
            found.extend(list.items.into_iter().filter(&wanted).map(|mut object| {
                slim(&mut object, usize::MAX);
                object
            }));
            let Some(next) = list.metadata.continue_.filter(|next| !next.is_empty()) else { return Ok(found) };
            let limit = PAGE_BYTES / each.max(1);
            params.limit = u32::try_from(limit).ok().map(|limit| limit.clamp(1, LARGEST_PAGE));
            params.continue_token = Some(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_api::{EtcdCluster, key};
    use serde_json::{Value, json};

    use super::*;
    use crate::fake::{Fake, missing, refusal};

    /// Two pages: the large objects of the first make the second page small.
    #[tokio::test]
    async fn a_live_list_is_read_in_pages_and_slim() {
        let cluster = |name: &str, label: &str| {
            let labels = json!({key::CLUSTER: "a", "example.com/x": "y".repeat(400 << 10)});
            json!({"metadata": {"name": name, "namespace": "ns", "labels": labels, "managedFields": [{"manager": label}]},
                "spec": {"replicas": 1, "version": "3.6.16", "tls": {"insecure": true}}})
        };
        let page = |next: &str, items: Value| {
            let metadata = json!({"continue": next, "resourceVersion": "7"});
            json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdClusterList", "metadata": metadata, "items": items})
        };
        let fake = Fake::start(vec![
            ("GET", "continue=t", 200, page("", json!([cluster("b", "x")]))),
            ("GET", "/etcdclusters?", 200, page("t", json!([cluster("c", "x"), cluster("a", "x")]))),
        ])
        .await;
        let reader = Reader { ctx: &fake.ctx, namespace: "ns", view: View::Live };
        let found = reader.list::<EtcdCluster>(Only::Everything, |c| c.name_any() != "c").await.unwrap();
        assert_eq!(found.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["a", "b"]);
        let labels = [(key::CLUSTER.to_owned(), "a".to_owned())].into();
        assert!(found.iter().all(|c| c.labels() == &labels && c.managed_fields().is_empty()));
        let reads = fake.reads();
        assert!(reads[0].contains("limit=10") && reads[1].contains("limit=2&"), "{reads:?}");
    }

    async fn live(said: Value) -> Result<Option<EtcdCluster>, Error> {
        let fake = Fake::start(vec![("GET", "/etcdclusters/a", 404, said)]).await;
        Reader { ctx: &fake.ctx, namespace: "ns", view: View::Live }.get("a").await
    }

    #[tokio::test]
    async fn another_install_is_known_by_its_lease() {
        let lease = json!({"metadata": {"name": "holdfast", "uid": "l", "resourceVersion": "1"}});
        let led = async |code, lease| {
            let fake = Fake::start(vec![("GET", "/ns/leases/holdfast", code, lease)]).await;
            Reader { ctx: &fake.ctx, namespace: "ns", view: View::Live }.is_led_elsewhere().await.ok()
        };
        assert_eq!(led(200, lease).await, Some(true));
        assert_eq!(led(404, missing("holdfast")).await, Some(false));
        assert_eq!(led(403, refusal(403, "Forbidden")).await, Some(false), "rights of an earlier version");
        assert_eq!(led(500, refusal(500, "InternalError")).await, None, "unknown is not absent");
    }

    /// I4: the operator may delete a member and its data once the cluster is gone.
    #[tokio::test]
    async fn only_a_word_about_the_object_itself_says_that_it_is_gone() {
        assert_eq!(live(missing("a")).await.unwrap(), None);
        for unknown in [missing("b"), refusal(404, "NotFound"), json!("404 page not found")] {
            assert!(live(unknown.clone()).await.is_err(), "{unknown}");
        }
    }
}
