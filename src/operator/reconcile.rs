//! The generic pass, the same for every kind: observe → plan → safety → status → ensures → act → when to look again.
//!
//! Decides which view a pass takes (I26). It plans on the caches, once they show this process's own writes. Where its act
//! destroys or cannot be taken back, the pass reads everything from the API server and plans again; where the act depends on
//! one object, the pass reads that object's version first (`plan/live_reads.rs`). After an act that leaves more to do the next
//! pass follows at once.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use tracing::{Instrument, Span, field};

use super::act::{self, Actor, Done};
use super::backoff::jitter;
use super::clock;
use super::context::Context;
use super::elsewhere::GIVEN_UP;
use super::error::{Class, Error};
use super::etcd::Address;
use super::events;
use super::kinds::Kind;
use super::reader::{Reader, View};
use super::repeats::{self, Write};
use super::status;
use crate::api::condition::{self, Reason};
use crate::plan::live_reads::LiveReads;
use crate::plan::safety::{Checked, Violation};
use crate::plan::{Act, Ensure, Note, Plan, Wake};

/// Passes over one object in a row before others get their turn.
const ROUNDS: usize = 24;
/// A look every few minutes, against watch events that were lost.
const SAFETY_NET: Duration = Duration::from_mins(5);
/// Before a plan that has done nothing is made again.
const NO_SPIN: Duration = Duration::from_millis(100);

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The act was carried out.
    Applied,
    /// The act had been carried out before.
    Already,
    /// The other side was not ready for the act. It is asked again after this time.
    NotYet(Duration),
    /// No act, and not all is as desired.
    Waiting,
    /// Only status or ensures were written.
    Wrote,
    /// Nothing to do.
    Settled,
    /// A safety rule forbade the plan.
    Stopped,
    /// The object is gone.
    Gone,
    /// Another install works in the object's namespace.
    Elsewhere,
}

impl Outcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Already => "already",
            Self::NotYet(_) => "not_yet",
            Self::Waiting => "waiting",
            Self::Wrote => "wrote",
            Self::Settled => "settled",
            Self::Stopped => "stopped",
            Self::Gone => "gone",
            Self::Elsewhere => "elsewhere",
        }
    }
}

/// The object a pass is about.
struct Id {
    namespace: String,
    name: String,
    uid: String,
    /// `<kind>/<namespace>/<name>`, for the back-off table.
    key: String,
    reference: ObjectReference,
}

/// What a pass says about the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Passed {
    outcome: Outcome,
    wake: Wake,
    /// At the latest in this time.
    hurry: Option<Duration>,
}

/// Passes over one object until it is settled, waits, or others should have their turn.
pub(super) async fn reconcile<K: Kind>(object: Arc<K::Object>, ctx: Arc<Context>) -> Result<Action, Error> {
    let id = identify::<K>(&object);
    for _ in 0..ROUNDS {
        let begun = clock::instant();
        let span = tracing::info_span!(
            "pass",
            kind = K::NAME,
            object = format!("{}/{}", id.namespace, id.name),
            generation = object.meta().generation,
            act = field::Empty,
            outcome = field::Empty,
        );
        let passed = pass::<K>(&ctx, &id).instrument(span).await;
        let label = passed.as_ref().map_or("failed", |p| p.outcome.as_str());
        ctx.metrics.pass(K::NAME, label, begun.elapsed());
        let passed = passed?;
        if !matches!(passed.outcome, Outcome::NotYet(_)) {
            ctx.backoff.clear(&id.key);
        }
        // `Already` does not go on at once: a plan that asks for what is done would ask for it again and again.
        let more = passed.outcome == Outcome::Applied && passed.wake == Wake::Now;
        if !more || !*ctx.leading.borrow() {
            return Ok(next(passed, rand::random()));
        }
    }
    Ok(Action::requeue(Duration::ZERO))
}

/// When to look again.
fn next(passed: Passed, luck: f64) -> Action {
    let wait = match (passed.outcome, passed.wake) {
        (Outcome::Gone, _) => return Action::await_change(),
        (Outcome::Elsewhere, _) => GIVEN_UP,
        (Outcome::Applied, Wake::Now) => Duration::ZERO,
        (Outcome::NotYet(wait), _) => wait,
        // A plan that calls for haste and does nothing must not spin.
        (_, Wake::Now) => NO_SPIN,
        (_, Wake::AfterMillis(millis)) => Duration::from_millis(millis),
        (_, Wake::OnChange) => SAFETY_NET,
    };
    Action::requeue(jitter(passed.hurry.map_or(wait, |hurry| hurry.min(wait)), luck))
}

fn identify<K: Kind>(object: &K::Object) -> Id {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    Id {
        key: format!("{}/{namespace}/{name}", K::NAME),
        namespace,
        name,
        uid: object.uid().unwrap_or_default(),
        reference: object.object_ref(&()),
    }
}

async fn pass<K: Kind>(ctx: &Context, id: &Id) -> Result<Passed, Error> {
    let reader = |view| Reader { ctx, namespace: &id.namespace, view };
    let look = |view| K::observe(reader(view), &id.name, &id.uid);
    let gone = Passed { outcome: Outcome::Gone, wake: Wake::OnChange, hurry: None };
    let now = clock::now();
    // A cache that lags behind our own writes, or lacks an object that cannot be read, decides nothing.
    let cached = ctx.caches.are_whole(&id.namespace) && ctx.own.are_shown(&ctx.caches, &id.namespace).await;
    let found = if cached {
        let Some(found) = look(View::Cached).await? else { return Ok(gone) };
        Some(found).filter(|found| !K::is_incomplete(found, now))
    } else {
        None
    };
    let planned = found.map(|seen| (decide::<K>(ctx, id, &seen, now), seen));
    if let Some((plan, seen)) = &planned
        && plan.act.is_none()
        && plan.ensures.is_empty()
        && !status::differs::<K>(K::object(seen), &plan.status)
    {
        let outcome = if plan.waiting.is_some() { Outcome::Waiting } else { Outcome::Settled };
        Span::current().record("outcome", outcome.as_str());
        tracing::debug!(wake = ?plan.wake, "nothing to write");
        return Ok(Passed { outcome, wake: plan.wake, hurry: K::hurry(seen, now) });
    }
    let view = if planned.is_some() { View::Cached } else { View::Live };
    if is_elsewhere(ctx, id, view).await? {
        return Ok(Passed { outcome: Outcome::Elsewhere, ..gone });
    }
    if let Some((plan, seen)) = planned
        && is_view_enough::<K>(reader(View::Live), &seen, &plan).await?
    {
        match carry_out::<K>(ctx, id, &seen, plan, now).await {
            // An object has changed since the caches showed it, or is there and the caches lack it.
            Err(error) if matches!(error.class(), Class::Conflict | Class::Gone) => {}
            Ok(passed) if passed.outcome == Outcome::Already => {}
            done => return done,
        }
    }
    if is_elsewhere(ctx, id, View::Live).await? {
        return Ok(Passed { outcome: Outcome::Elsewhere, ..gone });
    }
    let Some(seen) = look(View::Live).await? else { return Ok(gone) };
    let plan = decide::<K>(ctx, id, &seen, now);
    carry_out::<K>(ctx, id, &seen, plan, now).await
}

/// Whether another install works in the object's namespace.
async fn is_elsewhere(ctx: &Context, id: &Id, view: View) -> Result<bool, Error> {
    let elsewhere = (Reader { ctx, namespace: &id.namespace, view }).is_led_elsewhere().await?;
    if elsewhere {
        Span::current().record("outcome", Outcome::Elsewhere.as_str());
    }
    Ok(elsewhere)
}

/// Whether the view of the caches is enough for a plan (I26).
async fn is_view_enough<K: Kind>(reader: Reader<'_>, seen: &K::Seen, plan: &Plan<K::Status>) -> Result<bool, Error> {
    let object = K::object(seen);
    // A person who edits an object waits for an answer that counts what is there now, certificates in Secrets included, which
    // no watch reports.
    let generation = object.meta().generation;
    let edited = status::conditions::<K>(object).iter().any(|condition| condition.observed_generation != generation);
    if edited || K::is_final(&plan.status) {
        return Ok(false);
    }
    match &plan.act {
        None => Ok(true),
        Some(act) => match act.live_reads() {
            LiveReads::None => Ok(true),
            LiveReads::Guards => K::are_guards_current(reader, seen, act).await,
            LiveReads::Everything => Ok(false),
        },
    }
}

/// Carries out a plan that keeps the rules; of another one only the status is written.
async fn carry_out<K: Kind>(
    ctx: &Context,
    id: &Id,
    seen: &K::Seen,
    plan: Plan<K::Status>,
    now: jiff::Timestamp,
) -> Result<Passed, Error> {
    let (checked, stopped) = match K::check(seen, plan) {
        Ok(checked) => (checked, false),
        Err((plan, violation)) => (stop::<K>(ctx, seen, *plan, &violation, now), true),
    };
    let (wake, outcome) = write::<K>(ctx, id, seen, checked).await?;
    let outcome = if stopped { Outcome::Stopped } else { outcome };
    Span::current().record("outcome", outcome.as_str());
    Ok(Passed { outcome, wake, hurry: K::hurry(seen, now) })
}

/// The plan, with what keeps failing told in its conditions: a plan cannot know what the API server refuses (I20).
fn decide<K: Kind>(ctx: &Context, id: &Id, seen: &K::Seen, now: jiff::Timestamp) -> Plan<K::Status> {
    let mut plan = K::plan(seen, now);
    // Only where something besides the status is to be written: a status that can be written shows that the trouble is over,
    // and on an object that is final the message would stay for ever (I18).
    let writes = plan.act.as_ref().is_some_and(|act| !act.is_latch()) || !plan.ensures.is_empty();
    let trouble = ctx.backoff.trouble(&id.key);
    // A status that is not stored whole is itself what is to be written.
    if let Some((reason, message)) = trouble.filter(|(reason, _)| writes || *reason == Reason::DefinitionsOutdated) {
        degrade::<K>(&mut plan, seen, reason, &message, now);
    }
    plan
}

/// Nothing of a plan that breaks a rule is carried out; the status says so.
fn stop<K: Kind>(
    ctx: &Context,
    seen: &K::Seen,
    mut plan: Plan<K::Status>,
    stop: &Violation,
    now: jiff::Timestamp,
) -> Checked<K::Status> {
    tracing::error!(invariant = stop.invariant, act = plan.act.as_ref().map(act::label), "{}", stop.message);
    ctx.metrics.violation(stop.invariant);
    let message = format!("nothing is done, because it would break rule {}: {}", stop.invariant, stop.message);
    degrade::<K>(&mut plan, seen, Reason::SafetyStop, &message, now);
    Checked::status_only(plan)
}

fn degrade<K: Kind>(plan: &mut Plan<K::Status>, seen: &K::Seen, reason: Reason, message: &str, now: jiff::Timestamp) {
    let generation = K::object(seen).meta().generation;
    let writes = plan.act.is_some() || !plan.ensures.is_empty();
    // The time of the last transition is that of the condition as it stands, not of the plan's.
    let before = status::conditions::<K>(K::object(seen));
    condition::degrade(K::conditions_mut(&mut plan.status), before, writes, (reason, message), generation, now);
}

/// Status, then ensures, then the one act.
async fn write<K: Kind>(
    ctx: &Context,
    id: &Id,
    seen: &K::Seen,
    plan: Checked<K::Status>,
) -> Result<(Wake, Outcome), Error> {
    let Plan { ensures, mut act, status: mut wanted, notes, waiting, wake } = plan.into_plan();
    let object = K::object(seen);
    let mut outcome = if waiting.is_some() { Outcome::Waiting } else { Outcome::Settled };
    let mut wrote = false;

    // Latches go with the status, in one write under the version that was read: a stale writer loses.
    let latch = act.take_if(|act| act.is_latch());
    if let Some(latch) = latch.as_ref().filter(|latch| !K::latch(&mut wanted, latch)) {
        return Err(Error::Internal(format!("{} has no latch of {}", K::NAME, act::label(latch))));
    }
    if status::differs::<K>(object, &wanted) {
        let changes = events::changes(status::conditions::<K>(object), K::conditions(&wanted));
        let written = status::write::<K>(ctx, object, wanted).await?;
        wrote = true;
        // Our own write made the object newer; an act on this very object was decided on the same contents.
        if let (Some(act), Some(version)) = (act.as_mut(), written.resource_version()) {
            rebase(act, &id.uid, &version);
        }
        for note in &changes {
            ctx.events.say(&id.reference, "Observe", note);
        }
        if outcome == Outcome::Settled {
            outcome = Outcome::Wrote;
        }
    }
    if let Some(latch) = &latch {
        applied(ctx, id, latch);
        outcome = Outcome::Applied;
    }
    let actor = Actor { namespace: id.namespace.clone(), uid: id.uid.clone() };
    // Harmless and independent of each other: side by side.
    let ensured = futures::future::join_all(ensures.iter().map(|ensure| ensure_once(ctx, id, &actor, ensure))).await;
    let refused = ensured.into_iter().find_map(Result::err);
    if !ensures.is_empty() && refused.is_none() {
        wrote = true;
        if outcome == Outcome::Settled {
            outcome = Outcome::Wrote;
        }
    }
    if let Some(act) = &act {
        Span::current().record("act", act::label(act));
        outcome = match perform_once(ctx, id, &actor, K::leader(ctx, seen).as_ref(), act).await? {
            Done::Applied => {
                applied(ctx, id, act);
                Outcome::Applied
            }
            Done::Already => Outcome::Already,
            Done::NotYet(why) => {
                tracing::debug!(why, "not yet");
                Outcome::NotYet(ctx.backoff.not_yet(&id.key, &why, clock::instant(), rand::random()))
            }
        };
    }
    // What is refused holds no act up, and a pass without an act reports it.
    match refused {
        Some(error) if outcome != Outcome::Applied && !is_soon(outcome) => return Err(error),
        Some(error) => tracing::warn!(%error, "the API server refused a write beside the act"),
        None => {}
    }
    // A note that accompanies nothing would be said again on every pass.
    if wrote || outcome == Outcome::Applied {
        for note in &notes {
            ctx.events.say(&id.reference, "Plan", note);
        }
    }
    Ok((wake, outcome))
}

/// Whether an act is tried again at once: etcd is typically ready within a second.
fn is_soon(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::NotYet(wait) if wait < Duration::from_millis(300))
}

/// Applies an object, unless equal applies were taken back.
async fn ensure_once(ctx: &Context, id: &Id, actor: &Actor, ensure: &Ensure) -> Result<(), Error> {
    let write = Write::of_ensure(ensure);
    hold_back(ctx, id, write.as_ref())?;
    act::ensure(ctx, actor, ensure).await?;
    note_write(ctx, id, write.as_ref())
}

/// Carries out an act, unless equal acts were taken back.
async fn perform_once(
    ctx: &Context,
    id: &Id,
    actor: &Actor,
    leader: Option<&Address>,
    act: &Act,
) -> Result<Done, Error> {
    let write = Write::of_act(act::label(act), act);
    hold_back(ctx, id, write.as_ref())?;
    let done = act::perform(ctx, actor, leader, act).await?;
    note_write(ctx, id, write.as_ref())?;
    Ok(done)
}

/// Fails while a write waits because its equals were taken back.
fn hold_back(ctx: &Context, id: &Id, write: Option<&Write>) -> Result<(), Error> {
    let held = write.and_then(|write| Some((write, ctx.repeats.held(&id.key, write, clock::instant())?)));
    held.map_or(Ok(()), |(write, wait)| Err(Error::Reverted { what: write.describe().to_owned(), wait }))
}

/// Fails where the write had been made before, again and again, without a lasting effect.
fn note_write(ctx: &Context, id: &Id, write: Option<&Write>) -> Result<(), Error> {
    match write.filter(|write| ctx.repeats.note(&id.key, write, clock::instant())) {
        Some(write) => Err(Error::Reverted { what: write.describe().to_owned(), wait: Duration::ZERO }),
        None => Ok(()),
    }
}

/// Tells of an act: log, metric, and an Event where people have a use for one.
fn applied(ctx: &Context, id: &Id, act: &Act) {
    let label = act::label(act);
    let (about, what) = act::told(act);
    tracing::info!(act = label, about, "{what}");
    ctx.metrics.act(label);
    let Some(reason) = act::event_reason(act) else { return };
    let message = if about.is_empty() || about == id.name { what } else { format!("{about}: {what}") };
    let note = Note { warning: false, reason: reason.to_owned(), message };
    ctx.events.say(&id.reference, &format!("{label}/{about}"), &note);
}

/// Sets the version of a target that is the object of the pass itself.
fn rebase(act: &mut Act, uid: &str, version: &str) {
    if let Some(target) = repeats::patched(act).filter(|target| target.uid == uid) {
        version.clone_into(&mut target.resource_version);
    }
}

#[cfg(test)]
mod tests;
