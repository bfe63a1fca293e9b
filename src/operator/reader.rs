//! Reads objects of one namespace: from the caches, or past them from the API server.
//!
//! A cache may be old and may still hold what is gone: it is good for noticing, and for deciding that nothing is to be
//! done. Before anything is written the same question goes to the API server (I26). Decides nothing.

use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt};

use super::caches::Cached;
use super::context::Context;
use super::error::Error;
use crate::plan::Seen;

/// `None` only where the API server says that it has no object of this name: a path that nobody serves is a 404 too, when a
/// CRD is changed or something in front of the server answers, and says nothing of the object (I4).
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

/// Where a pass looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// Into the caches.
    Cached,
    /// At the API server, with quorum: what is there now.
    Live,
}

/// What a list is narrowed to.
pub(super) enum Only<'a> {
    /// Objects with this label.
    Label(&'a str, &'a str),
    /// Objects with this field; the closure says the same of a cached object.
    Field(&'a str, &'a str),
    /// Not narrowed: the API cannot select by owner, and labels can be removed. The caller picks.
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
    /// The object of this name, if there is one.
    pub(super) async fn get<K: Cached>(&self, name: &str) -> Result<Option<K>, Error> {
        match self.view {
            View::Cached => {
                let key = ObjectRef::new(name).within(self.namespace);
                Ok(K::cache(&self.ctx.caches).get(&key).map(|object| (*object).clone()))
            }
            View::Live => {
                let api: Api<K> = Api::namespaced(self.ctx.read.0.clone(), self.namespace);
                let found = async { absent(api.get(name).await, name) };
                self.ctx.reading(|| format!("get {} {name}", K::kind(&())), found).await
            }
        }
    }

    /// The version of the Secret of this name: UID and resourceVersion, never what is in it. It is asked for live in both
    /// views, since Secrets are not watched; an operator that may not look knows nothing of them.
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

    /// The objects that `only` asks the server for and that `wanted` accepts, by name.
    pub(super) async fn list<K: Cached>(&self, only: Only<'_>, wanted: impl Fn(&K) -> bool) -> Result<Vec<K>, Error> {
        let mut found: Vec<K> = match self.view {
            View::Cached => K::cache(&self.ctx.caches)
                .state_filter(|object| object.namespace().as_deref() == Some(self.namespace) && wanted(object))
                .into_iter()
                .map(|object| (*object).clone())
                .collect(),
            View::Live => {
                // Without a resourceVersion: the answer comes from a quorum, not from the server's own cache.
                let params = match only {
                    Only::Label(key, value) => ListParams::default().labels(&format!("{key}={value}")),
                    Only::Field(path, value) => ListParams::default().fields(&format!("{path}={value}")),
                    Only::Everything => ListParams::default(),
                };
                let api: Api<K> = Api::namespaced(self.ctx.read.0.clone(), self.namespace);
                let list = self.ctx.reading(|| format!("list {}", K::plural(&())), api.list(&params)).await?;
                list.items.into_iter().filter(|object| wanted(object)).collect()
            }
        };
        found.sort_by_key(ResourceExt::name_any);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::EtcdCluster;
    use crate::operator::fake::{Fake, missing, refusal};

    async fn live(said: Value) -> Result<Option<EtcdCluster>, Error> {
        let fake = Fake::start(vec![("GET", "/etcdclusters/a", 404, said)]).await;
        Reader { ctx: &fake.ctx, namespace: "ns", view: View::Live }.get("a").await
    }

    /// I4: a member whose cluster is gone may be taken down with its data.
    #[tokio::test]
    async fn only_a_word_about_the_object_itself_says_that_it_is_gone() {
        assert_eq!(live(missing("a")).await.unwrap(), None);
        for unknown in [missing("b"), refusal(404, "NotFound"), json!("404 page not found")] {
            assert!(live(unknown.clone()).await.is_err(), "{unknown}");
        }
    }
}
