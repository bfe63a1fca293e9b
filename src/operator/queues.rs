//! Works on the queue of each kind: at most so many passes at once, one object never twice at the same time, each again
//! when its pass says so, and after a failure when the back-off table says so.

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

/// Passes of one kind at the same time: enough that some clusters whose members are silent (seconds each) do not hold up
/// the others, few enough not to flood an API server that has just come back.
const CONCURRENCY: u16 = 16;

/// Works on one kind's queue until `stop`, then finishes the passes that run.
pub(super) async fn work<K: Kind>(
    ctx: Arc<Context>,
    store: Store<K::Object>,
    queue: mpsc::UnboundedReceiver<ObjectRef<K::Object>>,
    stop: CancellationToken,
) {
    let queue = queue.map(Ok::<_, std::convert::Infallible>).take_until(stop.cancelled_owned());
    let config = QueueConfig::default().concurrency(CONCURRENCY);
    let passes = applier(
        |object, ctx| Box::pin(spawned::<K>(object, ctx)),
        |object, error, ctx| retry::<K>(&object, error, &ctx),
        ctx,
        store,
        queue,
        config,
    );
    passes
        .map_err(|error| match error {
            // It was deleted since it was woken.
            QueueError::ObjectNotFound(_) | QueueError::ReconcilerFailed(..) => {}
            other => tracing::error!(kind = K::NAME, error = %other, "the queue failed"),
        })
        .for_each(|_| async {})
        .await;
}

/// Each pass is a task of its own: it may run on another core, and a defect in it ends it alone.
async fn spawned<K: Kind>(object: Arc<K::Object>, ctx: Arc<Context>) -> Result<Action, Error> {
    let task = AbortOnDropHandle::new(tokio::spawn(reconcile::<K>(object, ctx)));
    task.await.unwrap_or_else(|error| Err(Error::Internal(format!("a pass broke off: {error}"))))
}

/// Notes a failed pass and says when to try again.
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
