//! The watch cache of a kind, with an index by namespace and cluster, so that a pass does not walk the objects of all
//! others. The operator reads from the caches or from the API server.

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};

use futures::FutureExt as _;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};

/// An object that an index finds by the cluster in its spec.
pub trait Indexed: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + Sync + 'static {
    /// Name of the cluster in the object's spec.
    fn cluster(&self) -> Option<&str>;
}

/// Objects by namespace, by the cluster in their spec (empty: none), and by name.
type Index<K> = HashMap<String, HashMap<String, HashMap<String, Arc<K>>>>;

/// The cache of one kind.
#[derive(Debug)]
pub struct Cache<K: Indexed> {
    store: Store<K>,
    index: Arc<RwLock<Index<K>>>,
    unreadable: Arc<RwLock<Unreadable>>,
}

/// Objects that the cache lacks.
#[derive(Debug, Default)]
struct Unreadable {
    /// Namespace and name of objects that the operator cannot read: the cache lacks them, or holds an older version.
    objects: HashSet<(String, String)>,
    /// Those of a list that is under way, which replaces the others when it is complete.
    listed: Option<HashSet<(String, String)>>,
    /// The watch has failed, and has reported nothing since.
    broken: bool,
}

impl<K: Indexed> Clone for Cache<K> {
    fn clone(&self) -> Self {
        let Self { store, index, unreadable } = self;
        Self { store: store.clone(), index: Arc::clone(index), unreadable: Arc::clone(unreadable) }
    }
}

impl<K: Indexed> Deref for Cache<K> {
    type Target = Store<K>;

    fn deref(&self) -> &Store<K> {
        &self.store
    }
}

impl<K: Indexed> Cache<K> {
    /// The object of this name.
    pub fn named(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new(name).within(namespace))
    }

    /// Whether the first list is complete.
    pub fn is_filled(&self) -> bool {
        self.store.wait_until_ready().now_or_never().is_some_and(|ready| ready.is_ok())
    }

    /// Whether the cache holds every object of a namespace that the watch reported.
    pub fn is_whole(&self, namespace: &str) -> bool {
        let unreadable = self.unreadable.read().unwrap_or_else(PoisonError::into_inner);
        !unreadable.broken && unreadable.objects.iter().all(|(place, _)| place != namespace)
    }

    /// The objects of a namespace that `wanted` accepts.
    pub fn within(&self, namespace: &str, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let there = index.get(namespace).into_iter().flat_map(HashMap::values).flat_map(HashMap::values);
        there.filter(|object| wanted(object)).cloned().collect()
    }

    /// The objects whose spec names this cluster.
    pub fn of_cluster(&self, namespace: &str, cluster: &str) -> Vec<Arc<K>> {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let there = index.get(namespace).and_then(|clusters| clusters.get(cluster));
        there.into_iter().flat_map(HashMap::values).cloned().collect()
    }
}

/// The writing end of a cache.
pub struct CacheWriter<K: Indexed> {
    writer: Writer<K>,
    index: Arc<RwLock<Index<K>>>,
    unreadable: Arc<RwLock<Unreadable>>,
}

impl<K: Indexed> Default for CacheWriter<K> {
    fn default() -> Self {
        Self { writer: Writer::default(), index: Arc::default(), unreadable: Arc::default() }
    }
}

impl<K: Indexed> CacheWriter<K> {
    /// Returns the reading end.
    pub fn cache(&self) -> Cache<K> {
        let (index, unreadable) = (Arc::clone(&self.index), Arc::clone(&self.unreadable));
        Cache { store: self.writer.as_reader(), index, unreadable }
    }

    /// Notes an object that the watch reports and the operator cannot read.
    pub fn note_unreadable(&self, namespace: &str, name: &str) {
        let place = (namespace.to_owned(), name.to_owned());
        self.change_unreadable(|unreadable| {
            if let Some(listed) = &mut unreadable.listed {
                listed.insert(place.clone());
            }
            unreadable.objects.insert(place);
        });
    }

    /// Notes an object that can be read, or is gone.
    pub fn note_readable(&self, namespace: &str, name: &str) {
        let place = (namespace.to_owned(), name.to_owned());
        self.change_unreadable(|unreadable| {
            unreadable.objects.remove(&place);
        });
    }

    /// Notes that the watch has failed. The next event ends that.
    pub fn note_broken(&self) {
        self.change_unreadable(|unreadable| unreadable.broken = true);
    }

    fn change_unreadable(&self, change: impl FnOnce(&mut Unreadable)) {
        change(&mut self.unreadable.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Applies an event of the watch.
    pub fn apply(&mut self, event: &Event<K>) {
        let cache = self.cache();
        self.change_unreadable(|unreadable| unreadable.broken = false);
        let place = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
        match event {
            Event::Apply(object) | Event::Delete(object) => {
                let (namespace, name) = place(object);
                self.note_readable(&namespace, &name);
                let before = cache.named(&namespace, &name);
                self.writer.apply_watcher_event(event);
                let now = cache.named(&namespace, &name);
                let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
                if let Some(before) = before {
                    remove(&mut index, &namespace, before.cluster().unwrap_or_default(), &name);
                }
                if let Some(now) = now {
                    insert(&mut index, namespace, name, now);
                }
            }
            Event::InitDone => {
                self.writer.apply_watcher_event(event);
                self.change_unreadable(|unreadable| unreadable.objects = unreadable.listed.take().unwrap_or_default());
                let mut all = Index::new();
                for object in cache.state() {
                    let (namespace, name) = place(&object);
                    insert(&mut all, namespace, name, object);
                }
                *self.index.write().unwrap_or_else(PoisonError::into_inner) = all;
            }
            Event::Init => {
                self.change_unreadable(|unreadable| unreadable.listed = Some(HashSet::new()));
                self.writer.apply_watcher_event(event);
            }
            Event::InitApply(_) => self.writer.apply_watcher_event(event),
        }
    }
}

fn insert<K: Indexed>(index: &mut Index<K>, namespace: String, name: String, object: Arc<K>) {
    let cluster = object.cluster().unwrap_or_default().to_owned();
    index.entry(namespace).or_default().entry(cluster).or_default().insert(name, object);
}

/// Removes an object, and the maps of its cluster and namespace where they are empty.
fn remove<K>(index: &mut Index<K>, namespace: &str, cluster: &str, name: &str) {
    let Some(clusters) = index.get_mut(namespace) else { return };
    if let Some(objects) = clusters.get_mut(cluster) {
        objects.remove(name);
        if objects.is_empty() {
            clusters.remove(cluster);
        }
    }
    if clusters.is_empty() {
        index.remove(namespace);
    }
}

#[cfg(test)]
mod tests {
    use holdfast_api::EtcdSnapshot;

    use super::*;

    fn snapshot(namespace: &str, name: &str, cluster: &str) -> EtcdSnapshot {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"clusterRef": {"name": cluster}, "destination": {"pvc": {"claimName": "backups"}}},
        }))
        .unwrap()
    }

    #[test]
    fn the_index_follows_the_cache() {
        let mut writer = CacheWriter::default();
        let cache = writer.cache();
        let names = |objects: Vec<Arc<EtcdSnapshot>>| {
            let mut names: Vec<String> = objects.iter().map(|object| object.name_any()).collect();
            names.sort();
            names
        };
        let of = |cluster: &str| names(cache.of_cluster("ns", cluster));
        writer.apply(&Event::Init);
        for (namespace, name, cluster) in [("ns", "s-1", "a"), ("ns", "s-2", "b"), ("other", "s-3", "a")] {
            writer.apply(&Event::InitApply(snapshot(namespace, name, cluster)));
        }
        assert_eq!(of("a"), Vec::<String>::new(), "a list counts when it is complete");
        writer.apply(&Event::InitDone);
        assert_eq!(
            (of("a"), names(cache.within("ns", |_| true))),
            (vec!["s-1".into()], vec!["s-1".into(), "s-2".into()])
        );
        writer.apply(&Event::Apply(snapshot("ns", "s-4", "a")));
        writer.apply(&Event::Apply(snapshot("ns", "s-1", "b")));
        assert_eq!((of("a"), of("b")), (vec!["s-4".into()], vec!["s-1".into(), "s-2".into()]));
        writer.apply(&Event::Delete(snapshot("ns", "s-4", "a")));
        assert_eq!(of("a"), Vec::<String>::new());
        writer.apply(&Event::Init);
        writer.apply(&Event::InitDone);
        assert!(cache.index.read().unwrap().is_empty() && cache.is_empty());
    }

    #[test]
    fn an_object_that_cannot_be_read_makes_its_namespace_unknown_until_it_can() {
        let mut writer = CacheWriter::default();
        let cache = writer.cache();
        writer.note_unreadable("ns", "s-1");
        assert!(!cache.is_whole("ns") && cache.is_whole("other"));
        writer.apply(&Event::Apply(snapshot("ns", "s-2", "a")));
        assert!(!cache.is_whole("ns"), "another object says nothing of it");
        writer.apply(&Event::Apply(snapshot("ns", "s-1", "a")));
        assert!(cache.is_whole("ns"));
        writer.note_unreadable("ns", "s-1");
        writer.apply(&Event::Init);
        assert!(!cache.is_whole("ns"), "until the new list is complete");
        writer.note_unreadable("ns", "s-3");
        writer.apply(&Event::InitDone);
        assert!(!cache.is_whole("ns"), "the new list reports another one");
        writer.note_readable("ns", "s-3");
        assert!(cache.is_whole("ns"), "it is gone");
        writer.note_broken();
        assert!(!cache.is_whole("other"));
        writer.apply(&Event::Apply(snapshot("ns", "s-4", "a")));
        assert!(cache.is_whole("other"), "the watch works again");
    }
}
