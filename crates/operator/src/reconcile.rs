//! One pass, the same for every kind: observe → plan → safety → status → ensures → act → time of the next pass.
//!
//! Decides which view a pass takes (I26). A pass plans on the caches, once the caches show this process's own writes. Before an
//! act that destroys or that cannot be undone, the pass reads everything from the API server and plans again. Before an act that
//! depends on one object, the pass reads that object's version (`plan/live_reads.rs`). After an act that leaves more to do, the
//! next pass follows at once.

use std::sync::Arc;
use std::time::Duration;

use holdfast_api::condition::{self, Reason};
use holdfast_plan::live_reads::LiveReads;
use holdfast_plan::safety::{Checked, Violation};
use holdfast_plan::{Act, Ensure, Note, Plan, Wake};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use tracing::{Instrument, Span, field};

use super::act::{self, Actor, Description, Done};
use super::backoff::{self, jitter};
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

/// Passes over one object in a row before other objects get their turn.
const ROUNDS: usize = 24;
/// Longest time between two passes: a guard against lost watch events.
const SAFETY_NET: Duration = Duration::from_mins(5);
/// Wait after a pass whose plan asked for an immediate next pass and that made no act.
const NO_SPIN: Duration = Duration::from_millis(100);

/// Result of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The operator carried the act out.
    Applied,
    /// An earlier pass had carried the act out.
    Already,
    /// etcd was not ready for the act. The next try follows after this time.
    NotYet(Duration),
    /// No act, and the object is not yet as desired.
    Waiting,
    /// The pass wrote only status or ensures.
    Wrote,
    /// Nothing to do.
    Settled,
    /// A safety rule rejected the plan.
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

/// The object of a pass.
struct Id {
    namespace: String,
    name: String,
    uid: String,
    /// `<kind>/<namespace>/<name>`: the key in the tables of `backoff` and `repeats`.
    key: String,
    reference: ObjectReference,
}

/// Result of a pass, and the time of the next pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Passed {
    outcome: Outcome,
    wake: Wake,
    /// An upper bound for the wait until the next pass.
    hurry: Option<Duration>,
}

/// Makes passes over one object until the object is settled, the plan waits, or [`ROUNDS`] are used up.
pub(super) async fn reconcile<K: Kind>(object: Arc<K::Object>, ctx: Arc<Context>) -> Result<Action, Error> {
    let id = identify::<K>(&object);
    for _ in 0..ROUNDS {
        let started = clock::instant();
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
        ctx.metrics.pass(K::NAME, label, started.elapsed());
        let passed = passed?;
        if !matches!(passed.outcome, Outcome::NotYet(_)) {
            ctx.backoff.clear(&id.key);
        }
        // Not after `Already`: a plan that asks for an act which is already done would ask again without end.
        let more = passed.outcome == Outcome::Applied && passed.wake == Wake::Now;
        if !more || !*ctx.leading.borrow() {
            return Ok(next(passed, rand::random()));
        }
    }
    Ok(Action::requeue(Duration::ZERO))
}

/// The time of the next pass.
fn next(passed: Passed, luck: f64) -> Action {
    let wait = match (passed.outcome, passed.wake) {
        (Outcome::Gone, _) => return Action::await_change(),
        (Outcome::Elsewhere, _) => GIVEN_UP,
        (Outcome::Applied, Wake::Now) => Duration::ZERO,
        (Outcome::NotYet(wait), _) => wait,
        // A plan that asks for an immediate next pass and makes no act must not spin.
        (_, Wake::Now) => NO_SPIN,
        (_, Wake::AfterMillis(millis)) => Duration::from_millis(millis),
        (_, Wake::OnChange) => SAFETY_NET,
    };
    Action::requeue(jitter(passed.hurry.map_or(wait, |hurry| hurry.min(wait)), luck))
}

fn identify<K: Kind>(object: &K::Object) -> Id {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    Id {
        key: backoff::key::<K::Object>(&namespace, &name),
        namespace,
        name,
        uid: object.uid().unwrap_or_default(),
        reference: object.object_ref(&()),
    }
}

async fn pass<K: Kind>(ctx: &Context, id: &Id) -> Result<Passed, Error> {
    let reader = |view| Reader { ctx, namespace: &id.namespace, view };
    let observe = |view| K::observe(reader(view), &id.name, &id.uid);
    let gone = Passed { outcome: Outcome::Gone, wake: Wake::OnChange, hurry: None };
    let now = clock::now();
    // A cache that lags behind this process's writes, or that lacks an unreadable object, decides nothing.
    let cached = ctx.caches.are_whole(&id.namespace) && ctx.own.are_shown(&ctx.caches, &id.namespace).await;
    let found = if cached {
        let Some(found) = observe(View::Cached).await? else { return Ok(gone) };
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
    if let Some((plan, seen)) = planned
        && is_view_enough::<K>(reader(View::Live), &seen, &plan).await?
    {
        if is_elsewhere(ctx, id, View::Cached).await? {
            return Ok(Passed { outcome: Outcome::Elsewhere, ..gone });
        }
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
    let Some(seen) = observe(View::Live).await? else { return Ok(gone) };
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

/// Carries out a plan that keeps the safety rules. Of a plan that breaks one, writes the status alone.
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

/// The plan, with the lasting failure of earlier writes as a condition: a plan cannot know that the API server refuses (I20).
fn decide<K: Kind>(ctx: &Context, id: &Id, seen: &K::Seen, now: jiff::Timestamp) -> Plan<K::Status> {
    let mut plan = K::plan(seen, now);
    // Only for a plan that writes more than the status. A status that the API server accepts shows that the failure is over, and
    // on a final object the message would stay for ever (I18).
    let writes = plan.act.as_ref().is_some_and(|act| !act.is_latch()) || !plan.ensures.is_empty();
    let trouble = ctx.backoff.trouble(&id.key);
    // Exception: the outdated CRD makes the status itself the failing write.
    if let Some((reason, message)) = trouble.filter(|(reason, _)| writes || *reason == Reason::DefinitionsOutdated) {
        degrade::<K>(&mut plan, seen, reason, &message, now);
    }
    plan
}

/// Reduces a plan that breaks a safety rule to its status, with the condition `SafetyStop`.
fn stop<K: Kind>(
    ctx: &Context,
    seen: &K::Seen,
    mut plan: Plan<K::Status>,
    stop: &Violation,
    now: jiff::Timestamp,
) -> Checked<K::Status> {
    tracing::error!(
        invariant = stop.invariant,
        act = plan.act.as_ref().map(|act| act::describe(act).label),
        "{}",
        stop.message
    );
    ctx.metrics.violation(stop.invariant);
    let message = format!("nothing is done, because it would break rule {}: {}", stop.invariant, stop.message);
    degrade::<K>(&mut plan, seen, Reason::SafetyStop, &message, now);
    Checked::status_only(plan)
}

fn degrade<K: Kind>(plan: &mut Plan<K::Status>, seen: &K::Seen, reason: Reason, message: &str, now: jiff::Timestamp) {
    let generation = K::object(seen).meta().generation;
    let writes = plan.act.is_some() || !plan.ensures.is_empty();
    // The last transition is that of the stored condition, not of the planned one.
    let before = status::conditions::<K>(K::object(seen));
    condition::degrade(K::conditions_mut(&mut plan.status), before, writes, (reason, message), generation, now);
}

/// Writes the status, then the ensures, then carries out the act.
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

    // The latch and the status are one write under the resourceVersion that was read: a stale writer gets a conflict.
    let latch = act.take_if(|act| act.is_latch());
    if let Some(latch) = latch.as_ref().filter(|latch| !K::latch(&mut wanted, latch)) {
        return Err(Error::Internal(format!("{} has no latch of {}", K::NAME, act::describe(latch).label)));
    }
    if status::differs::<K>(object, &wanted) {
        let changes = events::changes(status::conditions::<K>(object), K::conditions(&wanted), &notes);
        let written = status::write::<K>(ctx, object, wanted).await?;
        wrote = true;
        // This write gave the object a new resourceVersion. An act on the same object was decided on the same contents.
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
        applied(ctx, id, act::describe(latch));
        outcome = Outcome::Applied;
    }
    let actor = Actor { namespace: id.namespace.clone(), uid: id.uid.clone() };
    // Ensures are idempotent and independent of each other, so they run in parallel.
    let ensured = futures::future::join_all(ensures.iter().map(|ensure| ensure_once(ctx, id, &actor, ensure))).await;
    let refused = ensured.into_iter().find_map(Result::err);
    if !ensures.is_empty() && refused.is_none() {
        wrote = true;
        if outcome == Outcome::Settled {
            outcome = Outcome::Wrote;
        }
    }
    if let Some(act) = &act {
        let description = act::describe(act);
        Span::current().record("act", description.label);
        let server = K::server(ctx, seen, act);
        outcome = match perform_once(ctx, id, &actor, server.as_ref(), (description.label, act)).await? {
            Done::Applied => {
                applied(ctx, id, description);
                Outcome::Applied
            }
            Done::Already => Outcome::Already,
            Done::NotYet(why) => {
                tracing::debug!(why, "not yet");
                Outcome::NotYet(ctx.backoff.not_yet(&id.key, &why, clock::instant(), rand::random()))
            }
            Done::Held(why) => {
                tracing::debug!(why, "held");
                Outcome::NotYet(ctx.backoff.held(&id.key, &why, clock::instant(), rand::random()))
            }
        };
    }
    // A refused ensure does not hold the act up. A pass without an act reports the refusal.
    match refused {
        Some(error) if outcome != Outcome::Applied && !is_soon(outcome) => return Err(error),
        Some(error) => tracing::warn!(%error, "the API server refused a write beside the act"),
        None => {}
    }
    // A pass that wrote nothing publishes no notes: every pass would repeat them.
    if wrote || outcome == Outcome::Applied {
        for note in &notes {
            ctx.events.say(&id.reference, "Plan", note);
        }
    }
    Ok((wake, outcome))
}

/// Whether the next try of an act comes within 300 ms: etcd is typically ready within a second.
fn is_soon(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::NotYet(wait) if wait < Duration::from_millis(300))
}

/// Applies an object, unless another writer undid equal applies.
async fn ensure_once(ctx: &Context, id: &Id, actor: &Actor, ensure: &Ensure) -> Result<(), Error> {
    let write = Write::of_ensure(ensure);
    hold_back(ctx, id, write.as_ref())?;
    act::ensure(ctx, actor, ensure).await?;
    note_write(ctx, id, write.as_ref())
}

/// Carries out an act, unless another writer undid equal acts.
async fn perform_once(
    ctx: &Context,
    id: &Id,
    actor: &Actor,
    server: Option<&Address>,
    (label, act): (&str, &Act),
) -> Result<Done, Error> {
    let write = Write::of_act(label, act);
    hold_back(ctx, id, write.as_ref())?;
    let done = act::perform(ctx, actor, server, act).await?;
    // An act that did not happen is undone by no other writer.
    if matches!(done, Done::Applied | Done::Already) {
        note_write(ctx, id, write.as_ref())?;
    }
    Ok(done)
}

/// Fails while a write has to wait because another writer undid its equals.
fn hold_back(ctx: &Context, id: &Id, write: Option<&Write>) -> Result<(), Error> {
    let held = write.and_then(|write| Some((write, ctx.repeats.held(&id.key, write, clock::instant())?)));
    held.map_or(Ok(()), |(write, wait)| Err(Error::Reverted { what: write.describe().to_owned(), wait }))
}

/// Notes a write; fails where equal writes had no lasting effect several times in a row.
fn note_write(ctx: &Context, id: &Id, write: Option<&Write>) -> Result<(), Error> {
    match write.filter(|write| ctx.repeats.note(&id.key, write, clock::instant())) {
        Some(write) => Err(Error::Reverted { what: write.describe().to_owned(), wait: Duration::ZERO }),
        None => Ok(()),
    }
}

/// Reports an act: a log line, a metric, and an Event for acts that concern users.
fn applied(ctx: &Context, id: &Id, description: Description) {
    let Description { label, event, object, sentence, warning } = description;
    tracing::info!(act = label, about = object, "{sentence}");
    ctx.metrics.act(label);
    let Some(reason) = event else { return };
    let message = if object.is_empty() || object == id.name { sentence } else { format!("{object}: {sentence}") };
    let note = Note { warning, reason: reason.to_owned(), message };
    ctx.events.say(&id.reference, &format!("{label}/{object}"), &note);
}

/// Sets the resourceVersion in an act that patches the object of the pass.
fn rebase(act: &mut Act, uid: &str, version: &str) {
    if let Some(target) = repeats::patched(act).filter(|target| target.uid == uid) {
        version.clone_into(&mut target.resource_version);
    }
}

#[cfg(test)]
mod tests;
