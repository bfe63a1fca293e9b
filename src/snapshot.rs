//! `holdfast snapshot create`: makes an `EtcdSnapshot` as a person would, and waits for it where that is asked.
//!
//! Decides what the object says and what is told meanwhile. Saving is the operator's business: this needs the right to
//! create and to watch `EtcdSnapshot`s, and nothing else. It works from a laptop and from a `CronJob`.

#![allow(clippy::disallowed_types, reason = "a command for people talks to Kubernetes with their own rights")]

use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::{Stream, StreamExt};
use kube::api::{ObjectMeta, PostParams};
use kube::core::Status;
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, Client, Config, ResourceExt};

use crate::api::condition::{Reason, Type};
use crate::api::snapshot::{EXTERNAL, EtcdSnapshotSpec, Phase};
use crate::api::{EtcdSnapshot, EtcdSnapshotStatus, key};

/// How often a line says that it is still so.
const SILENCE: Duration = Duration::from_secs(15);

/// The exit code when the snapshot has failed: making the same one again changes nothing. 1 is whatever may pass.
pub const FAILED: u8 = 3;

/// The exit code when what was asked for cannot be, or is not wanted any more: asking again changes nothing. It is clap's
/// own for a flag that makes no sense.
pub const REFUSED: u8 = 2;

/// What asking again does not change.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(String);

fn refused<T>(why: String) -> anyhow::Result<T> {
    Err(Refused(why).into())
}

/// One snapshot to make.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Namespace; absent: the one of the kubeconfig's context, or of the Pod this runs in.
    pub namespace: Option<String>,
    /// Name of the object; absent: the cluster's name and five characters of the API server's choice. With a name the
    /// command may be repeated: the snapshot is made once.
    pub name: Option<String>,
    /// What it says.
    pub spec: EtcdSnapshotSpec,
    /// Wait until it is complete, at most so long.
    pub wait: Option<Duration>,
}

/// Makes the snapshot, if the flags go together. The exit code is 0 when it is made, or with `wait` when it is complete,
/// [`FAILED`] when it has failed, and [`REFUSED`] where nothing is made of it.
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
    let config = Config::infer().await.context("no Kubernetes to talk to: set KUBECONFIG, or run this in a Pod")?;
    let namespace = request.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let api = Api::<EtcdSnapshot>::namespaced(Client::try_from(config)?, &namespace);
    let made = post(&api, &request).await?;
    let name = made.name_any();
    let Some(limit) = request.wait else { return Ok(0) };
    let watch = std::pin::pin!(watch_object(api, &name));
    tokio::time::timeout(limit, follow(watch, &name)).await.unwrap_or_else(|_| {
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
        // The answer to an earlier try was lost, or this is a Job's second Pod.
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
        // A spec that makes no sense, and a name that is none. What somebody may allow or make room for may pass.
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => refused(status.message),
        Err(error) => Err(error).context("creating the EtcdSnapshot"),
    }
}

/// What is not there. Only a namespace is told of by name: of a kind that nobody serves the path alone is unknown.
fn missing(status: &Status) -> String {
    match status.details.as_ref().filter(|about| about.kind == "namespaces") {
        Some(namespace) => {
            let name = &namespace.name;
            format!("there is no namespace {name}: name that of the EtcdCluster with -n (kubectl get etcdc -A)")
        }
        None => "the API server does not know EtcdSnapshots: install Holdfast first (holdfast manifests)".to_owned(),
    }
}

/// Tells what happens until it is over.
async fn follow(
    mut watch: impl Stream<Item = watcher::Result<Option<EtcdSnapshot>>> + Unpin,
    name: &str,
) -> anyhow::Result<u8> {
    let (begun, mut last) = (Instant::now(), String::new());
    loop {
        let Ok(next) = tokio::time::timeout(SILENCE, watch.next()).await else {
            say(&mut io::stderr(), &format!("{:>5} s  still: {last}", begun.elapsed().as_secs()))?;
            continue;
        };
        let status = match next {
            Some(Ok(Some(seen))) => seen.status.unwrap_or_default(),
            Some(Ok(None)) => return refused(format!("EtcdSnapshot {name} was deleted")),
            // The watch begins anew by itself.
            Some(Err(error)) => {
                tracing::debug!(%error, "watching");
                continue;
            }
            None => bail!("the watch of EtcdSnapshot {name} has ended"),
        };
        let words = words(&status);
        if words != last {
            say(&mut io::stderr(), &format!("{:>5} s  {words}", begun.elapsed().as_secs()))?;
            last = words;
        }
        match status.phase {
            Phase::Complete => {
                let artifact = status.artifact.unwrap_or_default();
                say(&mut io::stdout(), &artifact.uri)?;
                return Ok(0);
            }
            Phase::Failed => return Ok(FAILED),
            Phase::Pending | Phase::Running => {}
        }
    }
}

/// A status in one line, with the page that says what a person has to do.
fn words(status: &EtcdSnapshotStatus) -> String {
    let phase = status.phase.as_str();
    let Some(ready) = status.conditions.iter().find(|c| c.type_ == Type::Ready.as_str()) else {
        return format!("{phase:<8}  the operator has not seen it yet");
    };
    let (reason, message) = (&ready.reason, &ready.message);
    let page = match Reason::named(reason) {
        Some(reason) if reason.needs_a_person() => format!(" (what to do: runbooks/{}.md)", reason.as_str()),
        Some(_) | None => String::new(),
    };
    format!("{phase:<8}  {reason}: {message}{page}")
}

/// A reader that has seen enough (`| head`) is no error.
fn say(to: &mut impl Write, line: &str) -> io::Result<()> {
    match writeln!(to, "{line}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::condition::{Wanted, merge};
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
        follow(futures::stream::iter(phases), "nightly").await.map_err(|error| error.to_string())
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
