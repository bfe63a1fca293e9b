//! `undelete CLUSTER`: compares the keys below a prefix at a point with the live etcd, and with `--apply` puts back those that are
//! missing, by a Job in the cluster: no value comes to the person's machine, and no credential.
//!
//! Decides the schedule whose store and settings the Job has, and what the person sees: progress, then the result from the log of the
//! Job's Pod. `holdfast_base::objects::job::undelete` decides the Job, the agent what goes back.

use std::time::Duration;

use clap::Args;
use futures::{AsyncBufReadExt as _, StreamExt as _};
use holdfast_api::backup_store::{Right, StoreRecord};
use holdfast_api::name::LocalRef;
use holdfast_api::snapshot::{EtcdSnapshot, Spool};
use holdfast_api::store::Location;
use holdfast_api::{EtcdCluster, EtcdSnapshotSchedule, key};
use holdfast_base::objects::job::undelete::{UndeleteJob, lineage, undelete};
use holdfast_contract::{Leases, Report, UndeleteReport, UndeleteRequest, parse_time};
use holdfast_io::clock;
use holdfast_io::table::{align_columns, printable};
use holdfast_kube::requests;
use holdfast_manifests::names::object;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt as _;
use kube::api::{LogParams, PostParams};
use kube::core::Request;
use serde_json::Value;

use super::access::{Access, MANAGER, Only, Session, refused, words};
use super::end::{DONE, print, wrong_use};
use super::progress::Live;
use super::time::size;

/// Container of the agent.
const AGENT: &str = "agent";

/// Interval of looks at the Pod.
const LOOK: Duration = Duration::from_secs(1);

/// Flags of `undelete`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct UndeleteFlags {
    /// `EtcdCluster` that has lost keys.
    #[arg(value_parser = object)]
    pub cluster: String,
    /// Prefix of the keys.
    #[arg(long, value_name = "PREFIX", conflicts_with = "all_keys")]
    pub prefix: Option<String>,
    /// Compare every key of etcd instead of a prefix.
    #[arg(long)]
    pub all_keys: bool,
    /// Compare with the state at this time (RFC 3339, such as 2026-11-28T10:42:07Z), from a snapshot before it and the log.
    #[arg(long, value_name = "TIME", group = "past", value_parser = parse_time)]
    pub at_time: Option<Timestamp>,
    /// Compare with the state at this revision, from a snapshot before it and the log.
    #[arg(long, value_name = "REVISION", group = "past", value_parser = clap::value_parser!(i64).range(1..))]
    pub at_revision: Option<i64>,
    /// Compare with this `EtcdSnapshot`, without a log.
    #[arg(long, value_name = "NAME", group = "past", value_parser = object)]
    pub snapshot: Option<String>,
    /// Only objects of this resource of Kubernetes, by the key alone: `configmaps`, `deployments.apps`, `things.example.org`.
    #[arg(long, value_name = "RESOURCE")]
    pub kind: Option<String>,
    /// Only objects in this namespace of the Kubernetes whose data the etcd holds.
    #[arg(long, value_name = "NAMESPACE")]
    pub object_namespace: Option<String>,
    /// Put the missing keys back. Without this flag the command prints the differences and writes nothing.
    #[arg(long)]
    pub apply: bool,
    /// Put back also the keys whose value has changed since the point.
    #[arg(long, requires = "apply")]
    pub changed: bool,
    /// Keys that had a lease at the point.
    #[arg(long, value_enum, default_value_t)]
    pub leases: Leases,
    /// Most keys to put back in a second.
    #[arg(long, value_name = "KEYS", value_parser = clap::value_parser!(u32).range(1..))]
    pub rate: Option<u32>,
    /// Accept a point of the same cluster before a restore.
    #[arg(long)]
    pub from_another_cluster: bool,
    /// `EtcdSnapshotSchedule` whose store holds the point. Default: the only one of the cluster, or the only one with a log.
    #[arg(long, value_name = "NAME", value_parser = object)]
    pub schedule: Option<String>,
    /// Secret with the age identity that decrypts the snapshot and the log.
    #[arg(long, value_name = "SECRET", value_parser = object)]
    pub identity_secret: Option<String>,
    /// Size of the volume for the restored point, such as 20Gi. Default: the node's disk without a limit.
    #[arg(long, value_name = "SIZE")]
    pub scratch: Option<String>,
    /// StorageClass of that volume. Default: the node's disk.
    #[arg(long, value_name = "CLASS", requires = "scratch")]
    pub scratch_class: Option<String>,
    /// Time limit of the Job in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 21_600, value_parser = clap::value_parser!(u32).range(60..))]
    pub deadline_seconds: u32,
    /// Print JSON instead of text: one line for each difference, all of them, and the report as the last line.
    #[arg(short, long, value_enum, value_name = "FORMAT", help_heading = "Output")]
    pub output: Option<Lines>,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
}

/// Form of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Lines {
    /// JSON, one value in each line.
    Json,
}

/// Creates the Job, and shows its result.
pub async fn run(flags: UndeleteFlags) -> anyhow::Result<u8> {
    request(&flags, String::new()).checked_prefix().map_err(|error| wrong_use(error.message()))?;
    let session = flags.access.open().await?;
    let cluster = session.named::<EtcdCluster>(&flags.cluster).await?;
    let schedule = choose(session.list::<EtcdSnapshotSchedule>(Only::default()).await?, &flags).map_err(wrong_use)?;
    let cron = schedule.status.as_ref().and_then(|status| status.cron_job.as_ref()).ok_or_else(|| {
        let name = schedule.name_any();
        wrong_use(format!("the schedule {name} has no CronJob yet: kubectl describe etcdsched {name}"))
    })?;
    let cron = session.named::<CronJob>(&cron.name).await?;
    let from = match &flags.snapshot {
        Some(name) => snapshot_key(&session.named::<EtcdSnapshot>(name).await?).map_err(wrong_use)?,
        None => lineage(&cluster).unwrap_or_default(),
    };
    let job = job(&flags, &schedule, &cron, request(&flags, from)).map_err(wrong_use)?;
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let made = requests::create(&session.client, &session.namespace, &params, &job).await;
    let made: Job = made.map_err(|error| refused(&error, "creating the Job"))?;
    follow(&session, &made.name_any(), &flags).await
}

/// Returns the request, without etcd and store.
fn request(flags: &UndeleteFlags, from: String) -> UndeleteRequest {
    let flags = flags.clone();
    UndeleteRequest {
        from,
        at_revision: flags.at_revision,
        at_time: flags.at_time,
        from_another_cluster: flags.from_another_cluster,
        prefix: flags.prefix,
        all_keys: flags.all_keys,
        kind: flags.kind,
        object_namespace: flags.object_namespace,
        apply: flags.apply,
        changed: flags.changed,
        leases: flags.leases,
        rate: flags.rate,
        json: true,
        deadline_seconds: Some(flags.deadline_seconds),
        ..UndeleteRequest::default()
    }
}

/// Chooses the schedule: its store holds the point, and its runs reach the etcd.
fn choose(schedules: Vec<EtcdSnapshotSchedule>, flags: &UndeleteFlags) -> Result<EtcdSnapshotSchedule, String> {
    let cluster = &flags.cluster;
    if flags.at_time.is_none() && flags.at_revision.is_none() && flags.snapshot.is_none() {
        return Err("no point is given: name one with --at-time, --at-revision or --snapshot".to_owned());
    }
    let mut own: Vec<_> = schedules
        .into_iter()
        .filter(|schedule| schedule.spec.cluster_ref.as_ref().is_some_and(|named| named.name == *cluster))
        .collect();
    if let Some(name) = &flags.schedule {
        own.retain(|schedule| schedule.name_any() == *name);
        return own
            .pop()
            .ok_or_else(|| format!("EtcdCluster {cluster} has no EtcdSnapshotSchedule {name}: kubectl get etcdsched"));
    }
    if own.len() > 1 || flags.snapshot.is_none() {
        let logged = own.iter().filter(|schedule| schedule.spec.log.is_some()).count();
        own.retain(|schedule| logged == 0 || schedule.spec.log.is_some());
    }
    match (own.pop(), own.len()) {
        (Some(schedule), 0) => Ok(schedule),
        (Some(_), _) => {
            Err(format!("EtcdCluster {cluster} has several EtcdSnapshotSchedules: name one with --schedule"))
        }
        (None, _) => Err(format!(
            "EtcdCluster {cluster} has no EtcdSnapshotSchedule, whose store and settings the Job needs. Use `holdfast agent undelete` \
             (docs/agent.md)"
        )),
    }
}

/// Returns the key of a complete snapshot.
fn snapshot_key(snapshot: &EtcdSnapshot) -> Result<String, String> {
    let artifact = snapshot.status.as_ref().and_then(|status| status.artifact.as_ref());
    let name = snapshot.name_any();
    artifact
        .map(|artifact| artifact.key.clone())
        .ok_or_else(|| format!("EtcdSnapshot {name} is not complete: kubectl holdfast snapshot list"))
}

/// Makes the Job.
fn job(
    flags: &UndeleteFlags,
    schedule: &EtcdSnapshotSchedule,
    cron: &CronJob,
    request: UndeleteRequest,
) -> Result<Job, String> {
    let second = clock::now().strftime("%y%m%d%H%M%S").to_string();
    let mut start = flags.cluster.clone();
    // Of the 63 characters of a label.
    start.truncate(40);
    let want = UndeleteJob {
        name: format!("{}-undelete-{second}", start.trim_end_matches(['-', '.'])),
        request,
        location: location(schedule, cron).ok_or_else(|| {
            let name = schedule.name_any();
            format!("the CronJob of the schedule {name} names no store: kubectl describe etcdsched {name}")
        })?,
        identities: flags.identity_secret.clone().map(|name| LocalRef { name }).into_iter().collect(),
        scratch: flags
            .scratch
            .clone()
            .map(|size| Spool { size: Quantity(size), storage_class_name: flags.scratch_class.clone() }),
    };
    undelete(cron, &want).ok_or_else(|| {
        let name = cron.name_any();
        format!("the CronJob {name} is of another version of Holdfast: update the plugin or the operator")
    })
}

/// Returns the store of the runs, with the Secret for reading.
fn location(schedule: &EtcdSnapshotSchedule, cron: &CronJob) -> Option<Location> {
    let template = cron.spec.as_ref().and_then(|spec| spec.job_template.metadata.as_ref());
    let record = template.and_then(|meta| meta.annotations.as_ref()?.get(key::STORE_RECORD));
    match record {
        Some(record) => serde_json::from_str::<StoreRecord>(record).ok()?.location(Right::Read),
        None => schedule.spec.snapshot_template.destination.place.location(),
    }
}

/// Follows the Job to its end.
async fn follow(session: &Session, job: &str, flags: &UndeleteFlags) -> anyhow::Result<u8> {
    let mut live = Live::of_job(session, job);
    live.say(&format!("job.batch/{job} created"));
    let pod = started(session, job, &mut live).await?;
    let result = read_log(session, &pod, flags, &mut live).await;
    live.end();
    let report = result?;
    if let Some(report) = report.as_ref().filter(|_| flags.output.is_none()) {
        print(&text(report, flags))?;
    }
    let code = ended(session, &pod, job).await?;
    if report.is_none() {
        anyhow::bail!("the log of Pod {pod} has no result: kubectl logs job/{job}{}", session.flag());
    }
    Ok(code)
}

/// Waits until the agent runs or has ended. Returns the name of the Pod.
async fn started(session: &Session, job: &str, live: &mut Live) -> anyhow::Result<String> {
    let labels = format!("batch.kubernetes.io/job-name={job}");
    let mut shown = String::new();
    loop {
        let pods = session.list::<Pod>(Only { labels: Some(&labels), ..Only::default() }).await?;
        let words = match pods.first() {
            Some(pod) if has_started(pod) => return Ok(pod.name_any()),
            Some(pod) => format!("Pod {} has not started: {}", pod.name_any(), waits_for(pod)),
            None => "the Job has no Pod yet".to_owned(),
        };
        if words != shown {
            live.say(&words);
            shown = words;
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn has_started(pod: &Pod) -> bool {
    let states = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let mut states = states.filter_map(|status| status.state.as_ref());
    states.any(|state| state.running.is_some() || state.terminated.is_some())
}

/// Returns kubelet's or the scheduler's reason.
fn waits_for(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let waiting = status.container_statuses.iter().flatten().find_map(|it| it.state.as_ref()?.waiting.clone());
    let kubelet = waiting.and_then(|waiting| waiting.message.or(waiting.reason));
    let unscheduled =
        || status.conditions.iter().flatten().find(|it| it.type_ == "PodScheduled" && it.status == "False");
    kubelet.or_else(|| unscheduled()?.message.clone()).unwrap_or_else(|| "kubelet pulls the image".to_owned())
}

/// Reads the Pod's log until its end. With JSON prints each line of the result; returns the report.
async fn read_log(
    session: &Session,
    pod: &str,
    flags: &UndeleteFlags,
    live: &mut Live,
) -> anyhow::Result<Option<UndeleteReport>> {
    let params = LogParams { container: Some(AGENT.to_owned()), follow: true, ..LogParams::default() };
    let request = Request::new(format!("/api/v1/namespaces/{}/pods", session.namespace)).logs(pod, &params)?;
    let stream = session.client.request_stream(request).await;
    let stream = stream.map_err(|error| anyhow::anyhow!("reading the log of Pod {pod}: {}", words(&error)))?;
    let mut lines = std::pin::pin!(stream.lines());
    let mut report = None;
    loop {
        let line = match tokio::time::timeout(LOOK, lines.next()).await {
            Err(_) => {
                live.tick();
                continue;
            }
            Ok(None) => return Ok(report),
            Ok(Some(line)) => line?,
        };
        let Some(found) = result_in(&line) else { continue };
        if flags.output == Some(Lines::Json) {
            live.end();
            print(&format!("{line}\n"))?;
        }
        if let Found::Report(found) = found {
            report = Some(*found);
        }
    }
}

/// A line of the agent's result, between the lines of its log.
#[derive(Debug, PartialEq)]
enum Found {
    Difference,
    Report(Box<UndeleteReport>),
}

fn result_in(line: &str) -> Option<Found> {
    let value: Value = serde_json::from_str(line).ok()?;
    if value.get("difference").is_some() && value.get("pointRevision").is_some() {
        return Some(Found::Difference);
    }
    serde_json::from_value(value).ok().map(|report| Found::Report(Box::new(report)))
}

/// Returns the report for a person.
fn text(report: &UndeleteReport, flags: &UndeleteFlags) -> String {
    let rows = report.rows(&request(flags, String::new()), size);
    let rows: Vec<_> = rows.into_iter().map(|(title, text)| [title.to_owned(), printable(text.as_bytes())]).collect();
    align_columns(&rows)
}

/// Returns the exit code of the Pod's end.
async fn ended(session: &Session, pod: &str, job: &str) -> anyhow::Result<u8> {
    for _ in 0..30 {
        let Some(found) =
            session.list::<Pod>(Only { fields: Some(&format!("metadata.name={pod}")), ..Only::default() }).await?.pop()
        else {
            break;
        };
        if let Some(end) = terminated(&found) {
            return match end.exit_code {
                0 => Ok(DONE),
                code => {
                    let why = failure(&end).unwrap_or_else(|| format!("the agent ended with exit code {code}"));
                    anyhow::bail!("{why} (kubectl logs job/{job}{})", session.flag())
                }
            };
        }
        tokio::time::sleep(LOOK).await;
    }
    let flag = session.flag();
    anyhow::bail!("Pod {pod} has gone before its end: kubectl describe job/{job}{flag}. A repetition has less to do")
}

fn terminated(pod: &Pod) -> Option<ContainerStateTerminated> {
    pod.status.as_ref()?.container_statuses.iter().flatten().find_map(|it| it.state.as_ref()?.terminated.clone())
}

/// Returns the agent's own words from the termination message.
fn failure(end: &ContainerStateTerminated) -> Option<String> {
    match serde_json::from_str(end.message.as_deref()?).ok()? {
        Report::Failed(failed) => Some(failed.message),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
