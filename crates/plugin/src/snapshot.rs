//! `holdfast snapshot create`: creates an `EtcdSnapshot` with the user's rights, and optionally waits for its end.
//!
//! Decides the spec of the object, the progress lines, and when to stop waiting. The operator saves: this command needs only
//! the right to create and to watch `EtcdSnapshot`s. The command works from a laptop and from a `CronJob`.

#![allow(clippy::disallowed_types, reason = "a command for people talks to Kubernetes with their own rights")]

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context, bail};
use futures::{Stream, StreamExt};
use holdfast_api::condition::{self, Reason, Type};
use holdfast_api::snapshot::{EXTERNAL, EtcdSnapshotSpec, Phase};
use holdfast_api::{EtcdSnapshot, EtcdSnapshotStatus, key};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{ObjectMeta, PostParams};
use kube::core::Status;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, ResourceExt};

use crate::access::Access;
use crate::progress::Live;

/// Interval of a repeated progress line while the status does not change.
const SILENCE: Duration = Duration::from_secs(15);

/// How long a fault that time does not fix must last before the wait ends: the operator sees a cluster or a store that was
/// applied just before within this time.
const GRACE: Duration = Duration::from_secs(10);

/// Interval of checks while the object does not change.
const TICK: Duration = Duration::from_secs(1);

/// Exit code of a failed snapshot: repeating the command with the same name changes nothing. Exit code 1 is a failure that may
/// pass.
pub const FAILED: u8 = 3;

/// Exit code of an impossible or unwanted request: repeating the command changes nothing. clap uses the same code for an
/// invalid flag.
pub const REFUSED: u8 = 2;

/// A failure that a repetition does not fix.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(String);

fn refused<T>(why: String) -> anyhow::Result<T> {
    Err(Refused(why).into())
}

/// One snapshot to create.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The Kubernetes cluster and the namespace.
    pub access: Access,
    /// Name of the object; absent: the cluster's name and five characters from the API server. A command with a name may be
    /// repeated: the snapshot is created once.
    pub name: Option<String>,
    /// The spec of the object.
    pub spec: EtcdSnapshotSpec,
    /// Longest wait until the snapshot is complete; absent: no wait.
    pub wait: Option<Duration>,
}

/// Creates the snapshot, if the flags are valid together. Returns 0 for a created snapshot, or with `wait` for a complete
/// snapshot, [`FAILED`] for a failed snapshot, and [`REFUSED`] if the API server or this command refuses the request.
pub async fn create(request: anyhow::Result<Request>) -> anyhow::Result<u8> {
    let ended = match request {
        Ok(request) => make(request).await,
        Err(error) => refused(format!("{error:#}")),
    };
    match ended {
        Err(error) if error.is::<Refused>() => {
            tracing::error!("{error:#}");
            Ok(REFUSED)
        }
        ended => ended,
    }
}

async fn make(request: Request) -> anyhow::Result<u8> {
    let session = request.access.open().await?;
    let namespace = &session.namespace;
    let api = Api::<EtcdSnapshot>::namespaced(session.client.clone(), namespace);
    let made = post(&api, &request).await?;
    let name = made.name_any();
    let Some(limit) = request.wait else { return Ok(0) };
    let watch = std::pin::pin!(watch_object(api, &name).default_backoff());
    let mut live = Live::of_snapshot(&session, &name);
    let followed = tokio::time::timeout(limit, follow(watch, namespace, &name, &mut live)).await;
    live.end();
    followed.unwrap_or_else(|_| {
        bail!(
            "EtcdSnapshot {name} was not complete after {} s; it goes on: kubectl get -n {namespace} etcdsnap {name}",
            limit.as_secs()
        )
    })
}

async fn post(api: &Api<EtcdSnapshot>, request: &Request) -> anyhow::Result<EtcdSnapshot> {
    let cluster = request.spec.cluster_ref.as_ref().map_or(EXTERNAL, |cluster| &cluster.name);
    let metadata = ObjectMeta {
        name: request.name.clone(),
        generate_name: request.name.is_none().then(|| format!("{cluster}-")),
        labels: Some([(key::CLUSTER.to_owned(), cluster.to_owned())].into()),
        ..ObjectMeta::default()
    };
    let object = EtcdSnapshot { metadata, spec: request.spec.clone(), status: None };
    match api.create(&PostParams::default(), &object).await {
        Ok(made) => {
            say(&mut io::stdout(), &format!("etcdsnapshot.holdfast.dev/{} created", made.name_any()))?;
            Ok(made)
        }
        // The answer to an earlier attempt was lost, or this is a Job's second Pod.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let name = request.name.as_deref().unwrap_or_default();
            let there = api.get(name).await?;
            if there.spec != request.spec {
                return refused(format!(
                    "there is an EtcdSnapshot {name} that says something else: choose another --name"
                ));
            }
            say(&mut io::stdout(), &format!("etcdsnapshot.holdfast.dev/{name} unchanged"))?;
            Ok(there)
        }
        Err(kube::Error::Api(status)) if status.code == 404 => refused(missing(&status)),
        // An invalid spec or name. A missing right or an exhausted quota may be fixed later.
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => refused(status.message),
        Err(error) => Err(error).context("creating the EtcdSnapshot"),
    }
}

/// Returns the sentence about a missing object. Only a missing namespace has a name in the answer: for an unknown kind the API
/// server reports only the path.
fn missing(status: &Status) -> String {
    match status.details.as_ref().filter(|about| about.kind == "namespaces") {
        Some(namespace) => {
            let name = &namespace.name;
            format!("there is no namespace {name}: name that of the EtcdCluster with -n (kubectl get etcdc -A)")
        }
        None => "the API server does not know EtcdSnapshots: install Holdfast first (holdfast manifests)".to_owned(),
    }
}

/// Prints the progress until the wait is over.
async fn follow(
    mut watch: impl Stream<Item = watcher::Result<Option<EtcdSnapshot>>> + Unpin,
    namespace: &str,
    name: &str,
    live: &mut Live,
) -> anyhow::Result<u8> {
    let (mut wait, mut status) = (Wait::default(), None);
    loop {
        match tokio::time::timeout(TICK, watch.next()).await {
            Ok(Some(Ok(Some(seen)))) => status = Some(seen.status.unwrap_or_default()),
            Ok(Some(Ok(None))) => return refused(format!("EtcdSnapshot {name} was deleted")),
            Ok(Some(Err(error))) if is_forbidden(&error) => {
                return refused(format!("the API server does not allow to watch EtcdSnapshot {name}: {error}"));
            }
            // The watch restarts by itself.
            Ok(Some(Err(error))) => tracing::debug!(%error, "watching"),
            Ok(None) => bail!("the watch of EtcdSnapshot {name} has ended"),
            Err(_) => {}
        }
        let Some(status) = &status else { continue };
        let (line, end) = wait.step(status, live.elapsed());
        if let Some(line) = line {
            live.print(&line);
        }
        live.tick();
        match end {
            Some(End::Complete) => {
                live.end();
                say(&mut io::stdout(), status.artifact.as_ref().map_or("", |artifact| &artifact.uri))?;
                return Ok(0);
            }
            Some(End::Failed) => return Ok(FAILED),
            Some(End::Stuck(why)) => {
                return refused(format!(
                    "EtcdSnapshot {name} cannot start: {why}. Correct this, and the snapshot starts by itself; or remove \
                     it: kubectl delete -n {namespace} etcdsnap {name}"
                ));
            }
            None => {}
        }
    }
}

/// Whether the user may not watch the object: then no status would ever arrive.
fn is_forbidden(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    matches!(error, InitialListFailed(kube::Error::Api(s)) | WatchStartFailed(kube::Error::Api(s)) if s.code == 403)
}

/// Why the wait is over.
#[derive(Debug, PartialEq)]
enum End {
    Complete,
    Failed,
    /// Nothing happens until a person changes something.
    Stuck(String),
}

/// The last progress line, and since when a fault has lasted that time does not fix.
#[derive(Default)]
struct Wait {
    words: String,
    printed_at: Duration,
    stuck: Option<(Reason, Duration)>,
}

impl Wait {
    /// Returns the progress line for this status at this time, if the line is new or due, and whether the wait is over.
    fn step(&mut self, status: &EtcdSnapshotStatus, at: Duration) -> (Option<String>, Option<End>) {
        let words = words(status);
        let still = if words == self.words { "still: " } else { "" };
        let line = (still.is_empty() || at >= self.printed_at + SILENCE).then(|| {
            self.printed_at = at;
            format!("{:>5} s  {still}{words}", at.as_secs())
        });
        self.words = words;
        let ready = ready(status);
        let fault = ready.and_then(|c| Reason::named(&c.reason)).filter(|reason| stands(*reason));
        self.stuck = fault.map(|reason| match self.stuck {
            Some(before) if before.0 == reason => before,
            _ => (reason, at),
        });
        let end = match (status.phase, self.stuck) {
            (Phase::Complete, _) => Some(End::Complete),
            (Phase::Failed, _) => Some(End::Failed),
            (Phase::Pending | Phase::Running, Some((reason, since))) if at >= since + GRACE => {
                let message = ready.map_or("", |c| c.message.trim_end_matches('.'));
                Some(End::Stuck(format!("{}: {message}", reason.as_str())))
            }
            (Phase::Pending | Phase::Running, _) => None,
        };
        (line, end)
    }
}

/// Whether this reason persists until a person changes something.
const fn stands(reason: Reason) -> bool {
    use Reason::{InvalidSpec, NameConflict, Parked, SafetyStop, WaitingForReference, WriteRefused};
    matches!(reason, InvalidSpec | NameConflict | Parked | SafetyStop | WaitingForReference | WriteRefused)
}

fn ready(status: &EtcdSnapshotStatus) -> Option<&Condition> {
    condition::find(&status.conditions, Type::Ready)
}

/// Returns the status in one line, with the runbook for the user.
fn words(status: &EtcdSnapshotStatus) -> String {
    let phase = status.phase.as_str();
    let Some(ready) = ready(status) else {
        return format!("{phase:<8}  the operator has not seen it yet");
    };
    let (reason, message) = (&ready.reason, &ready.message);
    let page = match Reason::named(reason) {
        Some(reason) if reason.needs_a_person() => format!(" (what to do: runbooks/{}.md)", reason.as_str()),
        Some(_) | None => String::new(),
    };
    format!("{phase:<8}  {reason}: {message}{page}")
}

/// Prints a line; a reader that closes the pipe (`| head`) is no error.
pub(crate) fn say(to: &mut impl Write, line: &str) -> io::Result<()> {
    match writeln!(to, "{line}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_api::condition::{Wanted, merge};

    use super::*;
    use jiff::Timestamp;
    use serde_json::json;

    fn seen(phase: Phase) -> watcher::Result<Option<EtcdSnapshot>> {
        let told = Wanted::no(Type::Ready, Reason::JobRunning, "so far so good");
        let spec = serde_json::json!({"clusterRef": {"name": "a"}, "destination": {"pvc": {"claimName": "b"}}});
        let status = EtcdSnapshotStatus {
            phase,
            conditions: merge(&[], &[told], None, Timestamp::UNIX_EPOCH),
            ..EtcdSnapshotStatus::default()
        };
        let spec = serde_json::from_value(spec).unwrap();
        Ok(Some(EtcdSnapshot { metadata: ObjectMeta::default(), spec, status: Some(status) }))
    }

    async fn followed(phases: Vec<watcher::Result<Option<EtcdSnapshot>>>) -> Result<u8, String> {
        follow(futures::stream::iter(phases), "prod", "nightly", &mut Live::without_figures())
            .await
            .map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn it_waits_for_the_end_and_says_how_it_was() {
        assert_eq!(followed(vec![seen(Phase::Pending), seen(Phase::Running), seen(Phase::Complete)]).await, Ok(0));
        assert_eq!(followed(vec![seen(Phase::Running), seen(Phase::Failed), seen(Phase::Complete)]).await, Ok(FAILED));
        assert!(followed(vec![seen(Phase::Running), Ok(None)]).await.unwrap_err().contains("was deleted"));
        let trouble = Err(watcher::Error::NoResourceVersion);
        assert_eq!(
            followed(vec![trouble, seen(Phase::Complete)]).await,
            Ok(0),
            "a watch that begins anew is no trouble"
        );
        assert!(followed(vec![seen(Phase::Running)]).await.unwrap_err().contains("has ended"));
    }

    fn told(phase: Phase, reason: Reason) -> EtcdSnapshotStatus {
        let ready = Wanted::no(Type::Ready, reason, "this is why.");
        let conditions = merge(&[], &[ready], None, Timestamp::UNIX_EPOCH);
        EtcdSnapshotStatus { phase, conditions, ..EtcdSnapshotStatus::default() }
    }

    #[test]
    fn what_time_does_not_heal_ends_the_wait_within_seconds() {
        use Reason::{InvalidSpec, JobRunning, Parked, StoreUnavailable, WaitingForCluster, WaitingForStore};
        let seconds = Duration::from_secs;
        for (reason, stuck) in [
            (Reason::WaitingForReference, true),
            (Reason::WriteRefused, true),
            (Reason::NameConflict, true),
            (InvalidSpec, true),
            (Parked, true),
            (WaitingForCluster, false),
            (WaitingForStore, false),
            (StoreUnavailable, false),
            (JobRunning, false),
        ] {
            let (mut wait, status) = (Wait::default(), told(Phase::Pending, reason));
            let (line, end) = wait.step(&status, seconds(1));
            assert!(line.is_some_and(|line| line.contains(reason.as_str())) && end.is_none(), "{reason:?}");
            assert_eq!(wait.step(&status, seconds(10)), (None, None), "{reason:?}: it may be seen yet");
            let end = wait.step(&status, seconds(11)).1;
            let why = format!("{}: this is why", reason.as_str());
            assert_eq!(end, stuck.then_some(End::Stuck(why)), "{reason:?}");
        }
        // The cluster appears in time, and then its store is missing: each fault has its own time limit.
        let mut wait = Wait::default();
        for (at, reason) in
            [(0, Reason::WaitingForReference), (9, WaitingForCluster), (12, Reason::WaitingForReference)]
        {
            assert_eq!(wait.step(&told(Phase::Pending, reason), seconds(at)).1, None, "{at} s");
        }
        assert_eq!(wait.step(&told(Phase::Failed, InvalidSpec), seconds(13)).1, Some(End::Failed), "at once");
        assert_eq!(wait.step(&told(Phase::Complete, Reason::Stored), seconds(13)).1, Some(End::Complete));
    }

    #[test]
    fn a_line_is_told_when_something_changes_and_now_and_then() {
        let (mut wait, running) = (Wait::default(), told(Phase::Running, Reason::JobRunning));
        let mut line = |status: &EtcdSnapshotStatus, at| wait.step(status, Duration::from_secs(at)).0;
        let first = "    2 s  Running   JobRunning: this is why.";
        assert_eq!(line(&running, 2).as_deref(), Some(first));
        assert_eq!(line(&running, 3), None);
        assert!(line(&running, 17).is_some_and(|line| line.contains("17 s  still: Running")));
        assert_eq!(line(&running, 18), None);
        assert!(line(&told(Phase::Running, Reason::AskingStore), 19).is_some_and(|line| line.contains("AskingStore")));
    }

    #[tokio::test]
    async fn a_wait_without_the_right_to_watch_ends() {
        let status = serde_json::from_value(json!({"code": 403, "reason": "Forbidden", "message": "no"})).unwrap();
        let denied = Err(watcher::Error::InitialListFailed(kube::Error::Api(status)));
        assert!(followed(vec![denied, seen(Phase::Complete)]).await.unwrap_err().contains("does not allow to watch"));
    }

    #[test]
    fn a_status_is_one_line() {
        let Ok(Some(snapshot)) = seen(Phase::Running) else { panic!() };
        assert_eq!(words(&snapshot.status.unwrap()), "Running   JobRunning: so far so good");
        assert_eq!(words(&EtcdSnapshotStatus::default()), "Pending   the operator has not seen it yet");
        let denied = Wanted::no(Type::Ready, Reason::StoreAccessDenied, "it was refused");
        let conditions = merge(&[], &[denied], None, Timestamp::UNIX_EPOCH);
        let status = EtcdSnapshotStatus { phase: Phase::Failed, conditions, ..EtcdSnapshotStatus::default() };
        let said = "Failed    StoreAccessDenied: it was refused (what to do: runbooks/StoreAccessDenied.md)";
        assert_eq!(words(&status), said);
    }

    #[test]
    fn a_namespace_that_is_missing_is_no_missing_install() {
        let said = |details| -> Status {
            serde_json::from_value(json!({"code": 404, "reason": "NotFound", "details": details})).unwrap()
        };
        let namespace = missing(&said(json!({"name": "prdo", "kind": "namespaces"})));
        assert!(namespace.contains("no namespace prdo") && namespace.contains("-n"), "{namespace}");
        for nobody in [json!({}), json!(null), json!({"name": "x", "group": "holdfast.dev", "kind": "etcdsnapshots"})] {
            assert!(missing(&said(nobody)).contains("install Holdfast first"));
        }
    }
}
