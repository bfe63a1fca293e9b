//! The generic pass, the same for every kind: observe → plan → safety → status → ensures → act → when to look again.
//!
//! The first look goes into the caches. Only when its plan would write anything the world is looked at live and planned
//! again, and what is then said is done (I26). After an act that leaves more to do the next pass follows at once, live.

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
use super::error::Error;
use super::etcd::Address;
use super::events;
use super::kinds::Kind;
use super::reader::{Reader, View};
use super::repeats::{self, Write};
use super::status;
use crate::api::condition::{self, Reason};
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
    let mut view = View::Cached;
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
        let passed = pass::<K>(&ctx, &id, view).instrument(span).await;
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
        view = View::Live;
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

async fn pass<K: Kind>(ctx: &Context, id: &Id, view: View) -> Result<Passed, Error> {
    let look = |view| K::observe(Reader { ctx, namespace: &id.namespace, view }, &id.name, &id.uid);
    let gone = Passed { outcome: Outcome::Gone, wake: Wake::OnChange, hurry: None };
    let now = clock::now();
    if view == View::Cached {
        let Some(seen) = look(View::Cached).await? else { return Ok(gone) };
        let plan = decide::<K>(ctx, id, &seen, now);
        if plan.act.is_none() && plan.ensures.is_empty() && !status::differs::<K>(K::object(&seen), &plan.status) {
            let outcome = if plan.waiting.is_some() { Outcome::Waiting } else { Outcome::Settled };
            Span::current().record("outcome", outcome.as_str());
            tracing::debug!(wake = ?plan.wake, "nothing to write");
            return Ok(Passed { outcome, wake: plan.wake, hurry: K::hurry(&seen, now) });
        }
    }
    if (Reader { ctx, namespace: &id.namespace, view: View::Live }).is_led_elsewhere().await? {
        Span::current().record("outcome", Outcome::Elsewhere.as_str());
        return Ok(Passed { outcome: Outcome::Elsewhere, ..gone });
    }
    // The caches would write: look at what is there now, and do only what that calls for (I26).
    let Some(seen) = look(View::Live).await? else { return Ok(gone) };
    let (checked, stopped) = match K::check(&seen, decide::<K>(ctx, id, &seen, now)) {
        Ok(checked) => (checked, false),
        Err((plan, violation)) => (stop::<K>(ctx, &seen, *plan, &violation, now), true),
    };
    let (wake, outcome) = write::<K>(ctx, id, &seen, checked).await?;
    let outcome = if stopped { Outcome::Stopped } else { outcome };
    Span::current().record("outcome", outcome.as_str());
    Ok(Passed { outcome, wake, hurry: K::hurry(&seen, now) })
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
mod tests {
    use super::*;
    use crate::api::EtcdCluster;
    use crate::operator::error::Class;
    use crate::operator::fake::{Answer, Fake, refusal};
    use crate::operator::kinds::Clusters;
    use crate::plan::Target;

    fn after(outcome: Outcome, wake: Wake, hurry: Option<u64>) -> Action {
        next(Passed { outcome, wake, hurry: hurry.map(Duration::from_millis) }, 0.5)
    }

    #[test]
    fn outcomes_say_when_to_look_again() {
        let millis = |n| Action::requeue(Duration::from_millis(n));
        assert_eq!(after(Outcome::Applied, Wake::Now, None), millis(0));
        assert_eq!(after(Outcome::Applied, Wake::AfterMillis(100), None), millis(100));
        assert_eq!(after(Outcome::Settled, Wake::AfterMillis(10_000), None), millis(10_000));
        assert_eq!(after(Outcome::Settled, Wake::OnChange, None), millis(300_000));
        let not_yet = Outcome::NotYet(Duration::from_millis(100));
        assert_eq!(after(not_yet, Wake::AfterMillis(10_000), None), millis(100));
        assert_eq!(after(Outcome::Gone, Wake::Now, None), Action::await_change());
        assert_eq!(after(Outcome::Elsewhere, Wake::OnChange, None), millis(60_000));
    }

    #[test]
    fn haste_without_an_act_does_not_spin() {
        assert_eq!(after(Outcome::Waiting, Wake::Now, None), Action::requeue(NO_SPIN));
        assert_eq!(after(Outcome::Stopped, Wake::Now, None), Action::requeue(NO_SPIN));
        assert_eq!(after(Outcome::Already, Wake::Now, None), Action::requeue(NO_SPIN));
    }

    /// Else what is there and is not seen would be made again and again, as fast as the API server says that it is there.
    #[tokio::test]
    async fn what_is_there_already_is_not_asked_for_again_at_once() {
        let mut there = cluster();
        there["status"] = serde_json::json!({"latches": {"pendingMember": "a-x"}});
        let owner: EtcdCluster = serde_json::from_value(there.clone()).unwrap();
        let mut member = crate::plan::build::member::seed(&owner, "a-x", None);
        member.metadata.uid = Some("m1".to_owned());
        let list = |kind: &str| serde_json::json!({"apiVersion": "v1", "kind": kind, "metadata": {}, "items": []});
        let applied = |kind: &str| serde_json::json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}});
        let (result, fake) = pass_over(
            there.clone(),
            vec![
                ("GET", CLUSTERS, 200, there.clone()),
                ("GET", "/etcdmembers?", 200, list("EtcdMemberList")),
                ("GET", "/pods?", 200, list("PodList")),
                ("GET", "/persistentvolumeclaims?", 200, list("PersistentVolumeClaimList")),
                ("PUT", "/etcdclusters/a/status", 200, serde_json::Value::Null),
                ("PATCH", "/services/", 200, applied("Service")),
                ("PATCH", "/poddisruptionbudgets/", 200, applied("PodDisruptionBudget")),
                ("POST", "/etcdmembers", 409, refusal(409, "AlreadyExists")),
                ("GET", "/etcdmembers/a-x", 200, serde_json::to_value(member).unwrap()),
            ],
        )
        .await;
        assert_eq!(fake.writes().iter().filter(|asked| asked.method == "POST").count(), 1, "{:?}", fake.writes());
        assert!(result.is_ok_and(|action| action != Action::requeue(Duration::ZERO)));
    }

    /// Else a snapshot that is final with that very write would be called degraded for ever.
    #[tokio::test]
    async fn trouble_with_writes_is_told_only_while_something_is_to_be_written() {
        use crate::plan::fixtures::{formed, noon, seeding};
        let fake = Fake::start(vec![]).await;
        let told = |seen: &crate::plan::cluster::Observed| {
            let id = identify::<Clusters>(&seen.cluster);
            let status = kube::core::Status { code: 403, message: "quota".to_owned(), ..Default::default() };
            let error = Error::write("create Pod a", kube::Error::Api(Box::new(status)));
            fake.ctx.backoff.failed(&id.key, &error, clock::instant(), 0.5);
            let plan = decide::<Clusters>(&fake.ctx, &id, seen, noon());
            let degraded = plan.status.conditions.into_iter().find(|c| c.type_ == "Degraded").unwrap();
            (plan.act.is_some(), degraded.reason)
        };
        assert_eq!(told(&seeding(1)), (true, "WriteRefused".to_owned()));
        assert_eq!(told(&formed(1, 1)), (false, "NothingWrong".to_owned()));
        let mut front = formed(1, 1);
        front.client_service = None;
        assert_eq!(told(&front), (false, "WriteRefused".to_owned()));
    }

    #[test]
    fn a_member_that_is_about_to_serve_shortens_the_wait_and_never_lengthens_it() {
        let millis = |n| Action::requeue(Duration::from_millis(n));
        assert_eq!(after(Outcome::Waiting, Wake::AfterMillis(10_000), Some(150)), millis(150));
        assert_eq!(after(Outcome::Waiting, Wake::AfterMillis(50), Some(150)), millis(50));
        assert_eq!(after(Outcome::Applied, Wake::Now, Some(150)), millis(0));
    }

    fn cluster() -> serde_json::Value {
        serde_json::json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdCluster",
            "metadata": {"name": "a", "namespace": "ns", "uid": "c1", "resourceVersion": "5", "generation": 1,
                "finalizers": ["holdfast.dev/cluster"]},
            "spec": {"replicas": 1, "version": "3.6.16", "tls": {"insecure": true}}})
    }

    const CLUSTERS: &str = "/etcdclusters/a";

    async fn pass_over(cached: serde_json::Value, answers: Vec<Answer>) -> (Result<Action, Class>, Fake) {
        let cached: EtcdCluster = serde_json::from_value(cached).unwrap();
        let fake = Fake::with(vec![cached.clone()], answers).await;
        let result = reconcile::<Clusters>(Arc::new(cached), Arc::clone(&fake.ctx)).await.map_err(|e| e.class());
        (result, fake)
    }

    #[tokio::test]
    async fn what_the_cache_asks_for_is_not_done_when_it_is_gone() {
        let (result, fake) = pass_over(cluster(), vec![]).await;
        assert_eq!((result, fake.writes()), (Ok(Action::await_change()), vec![]));
        // Asked of a quorum: no resourceVersion in the question.
        assert!(fake.reads().iter().any(|path| path.ends_with(CLUSTERS)), "{:?}", fake.reads());
        let mut another = cluster();
        another["metadata"]["uid"] = "c2".into();
        let (result, fake) = pass_over(cluster(), vec![("GET", CLUSTERS, 200, another)]).await;
        assert_eq!((result, fake.writes()), (Ok(Action::await_change()), vec![]));
    }

    #[tokio::test]
    async fn nothing_is_written_where_another_install_has_its_lease() {
        let lease = serde_json::json!({"metadata": {"name": "holdfast", "uid": "l", "resourceVersion": "1"}});
        let answers = vec![("GET", "/ns/leases/holdfast", 200, lease), ("GET", CLUSTERS, 200, cluster())];
        let (result, fake) = pass_over(cluster(), answers).await;
        assert!(result.is_ok_and(|action| action != Action::await_change()));
        assert_eq!((fake.writes(), fake.reads().len()), (vec![], 1), "{:?}", fake.reads());
    }

    #[tokio::test]
    async fn a_stale_writer_loses_and_does_nothing_else() {
        let list = |kind: &str| serde_json::json!({"apiVersion": "v1", "kind": kind, "metadata": {}, "items": []});
        let (result, fake) = pass_over(
            cluster(),
            vec![
                ("GET", CLUSTERS, 200, cluster()),
                ("GET", "/etcdmembers?", 200, list("EtcdMemberList")),
                ("GET", "/pods?", 200, list("PodList")),
                ("GET", "/persistentvolumeclaims?", 200, list("PersistentVolumeClaimList")),
                ("PUT", "/etcdclusters/a/status", 409, refusal(409, "Conflict")),
            ],
        )
        .await;
        assert_eq!(result, Err(Class::Conflict));
        let writes = fake.writes();
        assert_eq!(writes.len(), 1, "{writes:?}");
        assert_eq!(writes[0].body["metadata"]["resourceVersion"], "5");
        // The first member's name is latched in that very write, before anything of it exists.
        assert!(writes[0].body["status"]["latches"]["pendingMember"].is_string(), "{}", writes[0].body);
    }

    /// A latch that an older definition drops protects nothing: not even the member of its name is made.
    #[tokio::test]
    async fn nothing_is_done_while_the_definition_drops_fields_of_the_status() {
        let list = |kind: &str| serde_json::json!({"apiVersion": "v1", "kind": kind, "metadata": {}, "items": []});
        let mut pruned = cluster();
        pruned["status"] = serde_json::json!({"observedGeneration": 1});
        let answers = vec![
            ("GET", CLUSTERS, 200, cluster()),
            ("GET", "/etcdmembers?", 200, list("EtcdMemberList")),
            ("GET", "/pods?", 200, list("PodList")),
            ("GET", "/persistentvolumeclaims?", 200, list("PersistentVolumeClaimList")),
            ("PUT", "/etcdclusters/a/status", 200, pruned),
        ];
        let (result, fake) = pass_over(cluster(), answers).await;
        assert_eq!((result, fake.writes().len()), (Err(Class::Outdated), 1));
        let error = Error::DefinitionOutdated("EtcdCluster");
        fake.ctx.backoff.failed("EtcdCluster/ns/a", &error, clock::instant(), 0.5);
        let id = identify::<Clusters>(&serde_json::from_value(cluster()).unwrap());
        let told = decide::<Clusters>(&fake.ctx, &id, &crate::plan::fixtures::formed(1, 1), clock::now());
        let degraded = told.status.conditions.iter().find(|c| c.type_ == "Degraded").unwrap();
        assert_eq!(degraded.reason, "DefinitionsOutdated");
        assert!(degraded.message.contains("holdfast manifests --only crds"), "{}", degraded.message);
    }

    #[test]
    fn only_a_target_that_was_just_written_gets_the_new_version() {
        let target = |uid: &str| Target { name: "a".into(), uid: uid.into(), resource_version: "1".into() };
        let version = |act: &Act| match act {
            Act::ReleaseMember { member } => member.resource_version.clone(),
            other => panic!("{other:?}"),
        };
        let mut mine = Act::ReleaseMember { member: target("u") };
        rebase(&mut mine, "u", "2");
        assert_eq!(version(&mine), "2");
        let mut other = Act::ReleaseMember { member: target("v") };
        rebase(&mut other, "u", "2");
        assert_eq!(version(&other), "1");
    }
}
