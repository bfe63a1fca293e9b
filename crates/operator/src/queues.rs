//! Works on the queue of each kind. Limits the passes at the same time, in all and per namespace. One object has at most one
//! pass at a time. The next pass comes when the last one requests it, and after a failure with the delay of `backoff`.

use std::sync::Arc;

use futures::channel::mpsc;
use futures::{StreamExt, TryStreamExt};
use kube::ResourceExt;
use kube::runtime::controller::{Action, Config as QueueConfig, Error as QueueError, applier};
use kube::runtime::reflector::{ObjectRef, Store};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::clock;
use super::context::Context;
use super::error::Error;
use super::kinds::Kind;
use super::reconcile::reconcile;
use super::shares::Shares;

/// Passes of one kind at the same time: enough that clusters with silent members (seconds each) do not delay the others, and few
/// enough not to flood an API server that has just restarted.
const CONCURRENCY: u16 = 16;

/// Passes of one kind in one namespace: half of them.
const SHARE: usize = CONCURRENCY as usize / 2;

/// Works on one kind's queue until `stop`, then finishes the passes that run.
pub(super) async fn work<K: Kind>(
    ctx: Arc<Context>,
    store: Store<K::Object>,
    queue: mpsc::UnboundedReceiver<ObjectRef<K::Object>>,
    stop: CancellationToken,
) {
    let shares = Arc::new(Shares::new(SHARE));
    let (again, waited) = mpsc::unbounded();
    let (shared, follows) = (Arc::clone(&shares), again.clone());
    let queue = futures::stream::select(queue, waited);
    let queue = queue.map(Ok::<_, std::convert::Infallible>).take_until(stop.cancelled_owned());
    let config = QueueConfig::default().concurrency(CONCURRENCY);
    let passes = applier(
        move |object, ctx| Box::pin(in_turn::<K>(object, ctx, Arc::clone(&shares), again.clone())),
        |object, error, ctx| retry::<K>(&object, error, &ctx),
        ctx,
        store,
        queue,
        config,
    );
    passes
        .map_err(|error| match error {
            // The object was deleted after it was queued.
            QueueError::ObjectNotFound(gone) => {
                if let Some(next) = shared.next(gone.namespace.as_deref().unwrap_or_default()) {
                    let _ = follows.unbounded_send(next);
                }
            }
            QueueError::ReconcilerFailed(..) => {}
            other => tracing::error!(kind = K::NAME, error = %other, "the queue failed"),
        })
        .for_each(|_| async {})
        .await;
}

/// Makes a pass, or none where the object's namespace has no free slot: a free slot queues the object again.
async fn in_turn<K: Kind>(
    object: Arc<K::Object>,
    ctx: Arc<Context>,
    shares: Arc<Shares<ObjectRef<K::Object>>>,
    again: mpsc::UnboundedSender<ObjectRef<K::Object>>,
) -> Result<Action, Error> {
    let namespace = object.namespace().unwrap_or_default();
    let reference = ObjectRef::new(&object.name_any()).within(&namespace);
    if !shares.enter(&namespace, &reference) {
        return Ok(Action::await_change());
    }
    let passed = spawned::<K>(object, ctx).await;
    if let Some(next) = shares.leave(&namespace) {
        // A closed queue is a process that ends.
        let _ = again.unbounded_send(next);
    }
    passed
}

/// Runs a pass as a task of its own: it may run on another core, and a panic ends this pass alone.
async fn spawned<K: Kind>(object: Arc<K::Object>, ctx: Arc<Context>) -> Result<Action, Error> {
    let task = AbortOnDropHandle::new(ctx.passes.spawn(reconcile::<K>(object, Arc::clone(&ctx))));
    task.await.unwrap_or_else(|error| Err(Error::Internal(format!("a pass broke off: {error}"))))
}

/// Notes a failed pass and returns the time of the next try.
fn retry<K: Kind>(object: &K::Object, error: &Error, ctx: &Context) -> Action {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let class = error.class();
    ctx.metrics.error(class.as_str());
    let wait = ctx.backoff.failed(&format!("{}/{namespace}/{name}", K::NAME), error, clock::instant(), rand::random());
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    if class.is_ordinary() {
        tracing::debug!(kind = K::NAME, namespace, name, class = class.as_str(), wait_ms, "{error}");
    } else {
        tracing::warn!(kind = K::NAME, namespace, name, class = class.as_str(), wait_ms, "{error}");
    }
    Action::requeue(wait)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use holdfast_api::EtcdCluster;
    use holdfast_api::key;
    use holdfast_fixtures::formed;
    use kube::runtime::watcher::Event;

    use super::*;
    use crate::fake::Fake;
    use crate::kinds::Clusters;
    use holdfast_kube::caches::CacheWriter;
    use holdfast_kube::kinds::CacheWriters;
    use holdfast_kube::kinds::Cached;
    use holdfast_kube::kinds::Caches;

    fn filled<K: Cached>(objects: impl IntoIterator<Item = K>) -> holdfast_kube::caches::Cache<K> {
        let mut writer = CacheWriter::default();
        writer.apply(&Event::Init);
        for object in objects {
            writer.apply(&Event::InitApply(object));
        }
        writer.apply(&Event::InitDone);
        writer.cache()
    }

    /// A cluster with one member, whose Pod has this address.
    fn cluster(namespace: &str, name: &str, ip: &str) -> holdfast_plan::cluster::Observed {
        let mut seen = formed(1, 1);
        let whole = &mut seen.members[0];
        let (member, pod) = (&mut whole.object, whole.pod.as_mut().unwrap());
        for meta in [&mut seen.cluster.metadata, &mut member.metadata, &mut pod.metadata] {
            meta.namespace = Some(namespace.to_owned());
            meta.name = Some(name.to_owned());
        }
        seen.cluster.metadata.uid = Some(name.to_owned());
        member.metadata.uid = Some(format!("{name}-member"));
        (member.spec.cluster_ref.name, member.spec.cluster_ref.uid) = (name.to_owned(), name.to_owned());
        pod.metadata.uid = Some(format!("{name}-pod"));
        pod.metadata.labels.get_or_insert_default().insert(key::CLUSTER_UID.to_owned(), name.to_owned());
        for owner in pod.metadata.owner_references.iter_mut().flatten() {
            owner.uid = format!("{name}-member");
        }
        pod.status.as_mut().unwrap().pod_ip = Some(ip.to_owned());
        seen
    }

    /// A pass waits for a member that accepts connections and sends nothing.
    #[tokio::test]
    async fn a_lost_lease_breaks_off_every_pass_and_a_later_term_begins_afresh() {
        let silent = TcpListener::bind("127.77.2.1:2379").unwrap();
        let seen = cluster("busy", "silent", "127.77.2.1");
        let caches = Caches {
            clusters: filled([seen.cluster.clone()]),
            members: filled([seen.members[0].object.clone()]),
            pods: filled([seen.members[0].pod.clone().unwrap()]),
            ..CacheWriters::default().caches()
        };
        let fake = Fake::filled(caches.clone(), vec![]).await;
        let ctx = &fake.ctx;
        let begin = || {
            let queues = ctx.wakers.lead();
            let store = (*caches.clusters).clone();
            let mut work = tokio::task::JoinSet::new();
            work.spawn(super::work::<Clusters>(Arc::clone(ctx), store, queues.clusters, CancellationToken::new()));
            ctx.wakers.news_of(&seen.cluster)();
            work
        };
        let work = begin();
        while ctx.passes.is_empty() {
            clock::sleep(Duration::from_millis(5)).await;
        }
        fake.leading.send_replace(false);
        crate::stand_down(ctx, work).await;
        assert!(ctx.passes.is_empty(), "no pass of the lost term is left to write in a later one");
        drop(silent);
        let before = fake.log().len();
        fake.leading.send_replace(true);
        let _work = begin();
        while fake.log().len() == before {
            clock::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Forty clusters of one namespace whose members accept connections and send nothing, and one of another namespace whose member
    /// refuses them. Each pass ends at the API server, which has none of the clusters.
    #[tokio::test]
    async fn silent_members_of_others_hold_up_no_cluster() {
        let silent: Vec<_> = (1..=40).map(|n| TcpListener::bind(format!("127.77.0.{n}:2379")).unwrap()).collect();
        let busy = (1..=silent.len()).map(|n| cluster("busy", &format!("silent-{n}"), &format!("127.77.0.{n}")));
        let all: Vec<_> = busy.chain([cluster("calm", "healthy", "127.78.0.1")]).collect();
        let caches = Caches {
            clusters: filled(all.iter().map(|seen| seen.cluster.clone())),
            members: filled(all.iter().map(|seen| seen.members[0].object.clone())),
            pods: filled(all.iter().filter_map(|seen| seen.members[0].pod.clone())),
            ..CacheWriters::default().caches()
        };
        let fake = Fake::filled(caches.clone(), vec![]).await;
        let (wake, queue) = mpsc::unbounded();
        let (stop, store) = (CancellationToken::new(), (*caches.clusters).clone());
        let worked = tokio::spawn(work::<Clusters>(Arc::clone(&fake.ctx), store, queue, stop.clone()));
        let asked = |cluster: &str| fake.reads().iter().filter(|path| path.ends_with(&format!("/{cluster}"))).count();
        let mut times = vec![];
        for round in 1..=2 {
            let begun = clock::instant();
            for seen in &all {
                wake.unbounded_send(ObjectRef::<EtcdCluster>::from_obj(&seen.cluster)).unwrap();
            }
            let until = async |names: &[&str]| {
                while names.iter().any(|name| asked(name) < round) {
                    assert!(begun.elapsed() < Duration::from_secs(60), "{names:?}");
                    clock::sleep(Duration::from_millis(10)).await;
                }
                begun.elapsed()
            };
            let healthy = until(&["healthy"]).await;
            let names: Vec<&str> = all.iter().filter_map(|seen| seen.cluster.metadata.name.as_deref()).collect();
            times.push((healthy, until(&names).await));
        }
        // One deadline is two seconds. A pass that waits for a silent member keeps its slot for that long.
        let [(first, _), (second, all_again)] = times[..] else { panic!("{times:?}") };
        assert!(first < Duration::from_millis(1500) && second < Duration::from_millis(1500), "{times:?}");
        assert!(all_again < Duration::from_secs(2), "silence that is known costs no pass a deadline: {times:?}");
        stop.cancel();
        worked.await.unwrap();
    }
}
