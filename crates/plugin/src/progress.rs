//! Live progress of a save or a restore, for `--wait`: bytes, rate and time left.
//!
//! Decides which Pod to ask, how often, and when to stop asking. The agent in the Pod answers on a port of its own, and the API
//! server passes the question on (`pods/proxy`). A missing right, or a network without a way to the Pod, costs one line: the wait
//! goes on without figures. `meter.rs` decides the form of the figures.

mod meter;

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use holdfast_api::{component, key, name};
use holdfast_base::objects::port;
use holdfast_contract::{PROGRESS_PATH, ProgressReport};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use kube::core::Request;
use kube::{Error, ResourceExt};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::access::{Only, Session};
use meter::Meter;

/// Interval of questions.
const INTERVAL: Duration = Duration::from_secs(1);

/// Interval of questions that the API server refuses.
const REFUSED: Duration = Duration::from_secs(10);

/// Longest wait for an answer. The API server itself waits half a minute for a Pod that drops its packets.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Unanswered questions to one running Pod before a line says so: the agent opens its port after its start.
const UNANSWERED: u32 = 5;

/// Label of the Job controller on a Job's Pods.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// Knowledge about the progress.
#[derive(Clone, Debug, Default, PartialEq)]
enum Figures {
    /// No Pod works yet, or it has ended.
    #[default]
    None,
    /// The agent's answer.
    Known(ProgressReport),
    /// The figures stay unknown, and why.
    Unknown(String),
}

/// Progress of one piece of work, on the screen of a person who waits.
pub struct Live {
    started: Instant,
    figures: Option<watch::Receiver<Figures>>,
    meter: Meter,
    /// Ends with this value.
    _asking: JoinSet<()>,
}

impl Live {
    /// Shows lines alone.
    pub fn without_figures() -> Self {
        Self { started: Instant::now(), figures: None, meter: Meter::hidden(), _asking: JoinSet::new() }
    }

    /// Follows the save of an `EtcdSnapshot`.
    pub fn of_snapshot(session: &Session, snapshot: &str) -> Self {
        Self::follow(session, vec![of_snapshot(snapshot)])
    }

    /// Follows the Pod of a Job.
    pub fn of_job(session: &Session, job: &str) -> Self {
        Self::follow(session, vec![format!("{JOB_NAME}={job}")])
    }

    /// Follows the restore of an `EtcdCluster`.
    pub fn of_restore(session: &Session, cluster: &str) -> Self {
        Self::follow(session, vec![format!("{}={cluster},{}={}", key::CLUSTER, key::COMPONENT, component::MEMBER)])
    }

    /// Follows the return of a cluster with this UID: the Pod that restores its data, and its safety snapshot.
    pub fn of_return(session: &Session, cluster_uid: &str, safety_snapshot: &str) -> Self {
        let restores = format!("{}={cluster_uid},{}={}", key::CLUSTER_UID, key::COMPONENT, component::SNAPSHOT_AGENT);
        Self::follow(session, vec![restores, of_snapshot(safety_snapshot)])
    }

    /// Follows the first Pod that works, of those that one of the selectors selects.
    fn follow(session: &Session, selectors: Vec<String>) -> Self {
        let (to, figures) = watch::channel(Figures::None);
        let mut asking = JoinSet::new();
        asking.spawn(ask(session.clone(), selectors, to));
        let meter = if std::io::stderr().is_terminal() { Meter::at_terminal() } else { Meter::in_lines() };
        Self { started: Instant::now(), figures: Some(figures), meter, _asking: asking }
    }

    /// Returns the time since the begin of the wait.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Shows the newest figures.
    pub fn tick(&mut self) {
        let Some(figures) = &self.figures else { return };
        let (newest, elapsed) = (figures.borrow().clone(), self.elapsed());
        match newest {
            Figures::None => self.meter.show(None, elapsed),
            Figures::Known(report) => self.meter.show(Some(&report), elapsed),
            Figures::Unknown(why) => self.meter.explain(&why, elapsed),
        }
    }

    /// Prints a line, after the seconds of the wait.
    pub fn say(&self, words: &str) {
        self.meter.say(words, self.elapsed());
    }

    /// Prints a line as it is.
    pub fn print(&self, line: &str) {
        self.meter.print(line);
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.meter.end();
    }
}

/// Returns the selector of the Pods that save a snapshot.
fn of_snapshot(snapshot: &str) -> String {
    format!("{}={}", key::SNAPSHOT, name::label_value(snapshot))
}

/// Asks until the wait is over.
async fn ask(session: Session, selectors: Vec<String>, to: watch::Sender<Figures>) {
    let (mut working, mut unanswered) = (None, 0);
    loop {
        let pause = match find_figures(&session, &selectors, &mut working, &mut unanswered).await {
            Ok(None) => INTERVAL,
            Ok(Some(figures)) => {
                to.send_replace(figures);
                INTERVAL
            }
            Err(why) => {
                to.send_replace(Figures::Unknown(why));
                REFUSED
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Finds the Pod that works, and asks it. `None` keeps the figures. An error is a refused request, with its reason.
async fn find_figures(
    session: &Session,
    selectors: &[String],
    working: &mut Option<String>,
    unanswered: &mut u32,
) -> Result<Option<Figures>, String> {
    let pod = if let Some(pod) = working.take() {
        pod
    } else {
        let mut pods = vec![];
        for labels in selectors {
            let found = session.list::<Pod>(Only { labels: Some(labels), ..Only::default() }).await;
            pods.extend(found.map_err(|error| format!("no figures: {error:#}"))?);
        }
        let Some(pod) = pods.iter().find(|pod| works(pod)) else { return Ok(Some(Figures::None)) };
        pod.name_any()
    };
    match question(session, &pod).await {
        Ok(report) => {
            (*working, *unanswered) = (Some(pod), 0);
            Ok(Some(Figures::Known(report)))
        }
        Err(Error::Api(status)) if status.code == 403 => {
            let namespace = &session.namespace;
            Err(format!(
                "no figures: your rights do not permit to get pods/proxy in namespace {namespace} (docs/plugin.md#rights)"
            ))
        }
        // The Pod has ended, or its agent does not listen yet. The next look finds its successor.
        Err(error) => {
            tracing::debug!(%error, pod, "asking for the progress");
            *unanswered += 1;
            Ok((*unanswered >= UNANSWERED).then(|| {
                Figures::Unknown(format!(
                    "no figures: the API server gets no answer from port {} of Pod {pod} (docs/plugin.md#progress)",
                    port::PROGRESS
                ))
            }))
        }
    }
}

/// Asks the agent of a Pod.
async fn question(session: &Session, pod: &str) -> Result<ProgressReport, Error> {
    let agent = format!("/api/v1/namespaces/{}/pods/{pod}:{}/proxy", session.namespace, port::PROGRESS);
    let read = async {
        let request = Request::new(agent).get(PROGRESS_PATH.trim_start_matches('/'), &kube::api::GetParams::default());
        session.client.request::<ProgressReport>(request.map_err(Error::BuildRequest)?).await
    };
    tokio::time::timeout(ANSWER_WITHIN, read).await.unwrap_or_else(|_| Err(Error::Service("no answer".into())))
}

/// Whether a container of this Pod runs that answers about its progress.
fn works(pod: &Pod) -> bool {
    let (Some(spec), Some(status)) = (&pod.spec, &pod.status) else { return false };
    let answers = |container: &Container| {
        container.ports.iter().flatten().any(|declared| declared.container_port == port::PROGRESS)
    };
    let runs = |statuses: &Option<Vec<ContainerStatus>>, name: &str| {
        let mut all = statuses.iter().flatten();
        all.any(|it| it.name == name && it.state.as_ref().is_some_and(|state| state.running.is_some()))
    };
    let saves = spec.containers.iter().any(|it| answers(it) && runs(&status.container_statuses, &it.name));
    let mut before = spec.init_containers.iter().flatten();
    saves || before.any(|it| answers(it) && runs(&status.init_container_statuses, &it.name))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    #[test]
    fn a_pod_is_asked_while_its_agent_runs() {
        let pod = |container: &str, state: Value| -> Pod {
            let agent = json!({"name": container, "ports": [{"containerPort": port::PROGRESS}]});
            let etcd = json!({"name": "etcd", "ports": [{"containerPort": port::CLIENT}]});
            from_value(json!({
                "metadata": {"name": "a"},
                "spec": {"initContainers": [agent], "containers": [etcd]},
                "status": {
                    "initContainerStatuses": [{
                        "name": "restore", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
                    }],
                    "containerStatuses": [{
                        "name": "etcd", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                        "state": {"running": {}},
                    }],
                },
            }))
            .unwrap()
        };
        assert!(works(&pod("restore", json!({"running": {}}))));
        assert!(!works(&pod("restore", json!({"waiting": {}}))));
        assert!(!works(&pod("restore", json!({"terminated": {"exitCode": 0}}))));
        assert!(!works(&pod("install", json!({"running": {}}))), "another container runs");
        assert!(!works(&Pod::default()));
    }
}
