//! Writes of this process that its watch caches do not show yet.
//!
//! Decides when a pass over objects of a namespace may plan on the caches: once they show every write that this process has made
//! there. A pass does not wait for a cache that lags longer, but reads the API server (I26). Losing this memory is harmless: a
//! new process plans after its caches have listed everything.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kube::ResourceExt;
use tokio::sync::Notify;

use super::clock::{self, Instant};
use holdfast_kube::kinds::Cached;
use holdfast_kube::kinds::Caches;

/// A watch event comes within milliseconds; after this time a read of the API server is faster.
const PATIENCE: Duration = Duration::from_secs(1);

/// A write that no cache has shown for so long never will: the object was deleted before the watch reported it, or has lost
/// the label that the watch selects. Longer than a watch can hang: kube renews each watch within five minutes.
const FORGOTTEN: Duration = Duration::from_mins(10);

/// A write that a cache has to show.
struct Pending {
    namespace: String,
    at: Instant,
    is_shown: Box<dyn Fn(&Caches) -> bool + Send + Sync>,
}

/// The writes that the caches do not show yet.
#[derive(Default)]
pub(super) struct OwnWrites {
    pending: Mutex<Vec<Pending>>,
    changed: Notify,
}

impl fmt::Debug for OwnWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnWrites")
    }
}

/// Whether a cached object has at least this version. Versions that are no numbers have no order.
fn reaches(cached: &str, written: &str) -> bool {
    match (cached.parse::<u64>(), written.parse::<u64>()) {
        (Ok(cached), Ok(written)) => cached >= written,
        _ => cached == written,
    }
}

impl OwnWrites {
    /// Notes the creation of an object.
    pub(super) fn note_created<K: Cached>(&self, written: &K) {
        self.note(written, false);
    }

    /// Notes the change of an object, or the start of its deletion: a cache without the object is newer than the change.
    pub(super) fn note_changed<K: Cached>(&self, written: &K) {
        self.note(written, true);
    }

    /// Notes the end of the object with this UID.
    pub(super) fn note_gone<K: Cached>(&self, namespace: &str, name: &str, uid: &str) {
        let (place, name, uid) = (namespace.to_owned(), name.to_owned(), uid.to_owned());
        self.push(namespace, move |caches| {
            K::cache(caches).named(&place, &name).is_none_or(|there| there.uid().as_ref() != Some(&uid))
        });
    }

    fn note<K: Cached>(&self, written: &K, or_absent: bool) {
        let (namespace, name) = (written.namespace().unwrap_or_default(), written.name_any());
        let version = written.resource_version().unwrap_or_default();
        let place = namespace.clone();
        self.push(&namespace, move |caches| match K::cache(caches).named(&place, &name) {
            None => or_absent,
            // Also of another object of this name: an earlier one is older than the write.
            Some(there) => reaches(&there.resource_version().unwrap_or_default(), &version),
        });
    }

    fn push(&self, namespace: &str, is_shown: impl Fn(&Caches) -> bool + Send + Sync + 'static) {
        let pending = Pending { namespace: namespace.to_owned(), at: clock::instant(), is_shown: Box::new(is_shown) };
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).push(pending);
    }

    /// Wakes the waiting passes: a cache has changed.
    pub(super) fn wake(&self) {
        self.changed.notify_waiters();
    }

    /// Waits until the caches show every write in a namespace; `false` where they lag.
    pub(super) async fn are_shown(&self, caches: &Caches, namespace: &str) -> bool {
        loop {
            // Before the check, so that no change in between is lost.
            let changed = self.changed.notified();
            let now = clock::instant();
            let Some(oldest) = self.oldest(caches, namespace, now) else { return true };
            let remaining = PATIENCE.saturating_sub(now.duration_since(oldest));
            if remaining.is_zero() || clock::within(remaining, changed).await.is_none() {
                return self.oldest(caches, namespace, clock::instant()).is_none();
            }
        }
    }

    /// Time of the oldest write that the caches do not show. Forgets the writes that they show.
    fn oldest(&self, caches: &Caches, namespace: &str, now: Instant) -> Option<Instant> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.retain(|write| now.duration_since(write.at) < FORGOTTEN && !(write.is_shown)(caches));
        pending.iter().filter(|write| write.namespace == namespace).map(|write| write.at).min()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use holdfast_api::EtcdCluster;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use holdfast_kube::caches::CacheWriter;
    use holdfast_kube::kinds::CacheWriters;

    fn cluster(uid: &str, version: &str) -> EtcdCluster {
        serde_json::from_value(
            json!({"metadata": {"name": "a", "namespace": "ns", "uid": uid, "resourceVersion": version},
            "spec": {"replicas": 1, "version": "3.6.16", "tls": {"insecure": true}}}),
        )
        .unwrap()
    }

    fn caches() -> (CacheWriter<EtcdCluster>, Caches) {
        let writer = CacheWriter::<EtcdCluster>::default();
        let caches = Caches { clusters: writer.cache(), ..CacheWriters::default().caches() };
        (writer, caches)
    }

    async fn at_once(own: &OwnWrites, caches: &Caches, namespace: &str) -> Option<bool> {
        clock::within(Duration::from_millis(20), own.are_shown(caches, namespace)).await
    }

    #[tokio::test]
    async fn a_pass_waits_for_the_version_that_was_written() {
        let ((mut writer, caches), own) = (caches(), OwnWrites::default());
        writer.apply(&Event::Apply(cluster("u", "9")));
        own.note_changed(&cluster("u", "10"));
        assert_eq!(at_once(&own, &caches, "ns").await, None, "9 comes before 10");
        assert_eq!(at_once(&own, &caches, "other").await, Some(true), "other namespaces do not wait");
        writer.apply(&Event::Apply(cluster("u", "11")));
        assert_eq!(at_once(&own, &caches, "ns").await, Some(true));
    }

    #[tokio::test]
    async fn what_was_created_must_appear_and_what_was_deleted_must_go() {
        let ((mut writer, caches), own) = (caches(), OwnWrites::default());
        own.note_created(&cluster("u", "10"));
        assert_eq!(at_once(&own, &caches, "ns").await, None);
        writer.apply(&Event::Apply(cluster("u", "10")));
        assert_eq!(at_once(&own, &caches, "ns").await, Some(true));
        own.note_gone::<EtcdCluster>("ns", "a", "u");
        assert_eq!(at_once(&own, &caches, "ns").await, None);
        writer.apply(&Event::Apply(cluster("v", "12")));
        assert_eq!(at_once(&own, &caches, "ns").await, Some(true), "another object has the name");
        own.note_created(&cluster("w", "13"));
        assert_eq!(at_once(&own, &caches, "ns").await, None, "an earlier object of the name");
        writer.apply(&Event::Apply(cluster("w", "13")));
        assert_eq!(at_once(&own, &caches, "ns").await, Some(true));
        own.note_changed(&cluster("w", "14"));
        writer.apply(&Event::Delete(cluster("w", "15")));
        assert_eq!(at_once(&own, &caches, "ns").await, Some(true), "gone is newer than changed");
    }

    #[tokio::test]
    async fn a_change_of_the_cache_ends_the_wait() {
        let ((mut writer, caches), own) = (caches(), Arc::new(OwnWrites::default()));
        own.note_created(&cluster("u", "10"));
        let waiting = {
            let (own, caches) = (Arc::clone(&own), caches.clone());
            tokio::spawn(async move { own.are_shown(&caches, "ns").await })
        };
        tokio::task::yield_now().await;
        writer.apply(&Event::Apply(cluster("u", "10")));
        own.wake();
        assert!(waiting.await.unwrap());
    }

    #[tokio::test]
    async fn a_cache_that_lags_is_not_waited_for_long() {
        let ((_writer, caches), own) = (caches(), OwnWrites::default());
        own.note_created(&cluster("u", "10"));
        assert!(!own.are_shown(&caches, "ns").await);
        assert_eq!(at_once(&own, &caches, "ns").await, Some(false), "nor again by the next pass");
    }
}
