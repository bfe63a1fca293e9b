//! The `CronJob` of a schedule: whether it exists, and whether it starts Jobs.
//!
//! The operator creates the `CronJob` when the cluster has formed and the store was usable once, and keeps it. A parked, missing or
//! deleted cluster suspends the `CronJob`; a failing store does not, because the Job's failure names the cause. Without a listed
//! voter, or after a change of the store, the operator cannot render the `CronJob` and leaves it unchanged.

use holdfast_api::backup_store::{Right, StoreRecord};
use holdfast_api::condition::Reason;
use holdfast_api::store::Location;
use holdfast_api::{EtcdCluster, key, name};
use holdfast_contract::{DEFAULT_SAVE_DEADLINE_SECONDS, Request, SaveRequest};
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec};

use super::{Line, Observed, UTC};
use crate::store;
use holdfast_base::objects::cron_job::{Recurring, cron_job, with_spec};
use holdfast_base::objects::job::{AgentJob, DEADLINE_SLACK_SECONDS};
use holdfast_base::saving::{self, Source};
use holdfast_base::{fingerprint, meta, objects, valid};

/// Between the end of a Job's time and the next due time: kubelet gives the Pod 30 s to end.
const ENDS_BEFORE_SECONDS: i64 = 30;

/// From this period on, in seconds, a run ends before the next one is due.
const SHORTEST_PERIOD: i64 = 30 * 60;

/// The wanted objects.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Arm {
    /// The `CronJob`; `None`: there is none yet.
    pub(super) cron_job: Option<CronJob>,
    /// Why it starts no run, although all is well or only the cluster is missing.
    pub(super) halted: Option<(Reason, String)>,
    /// Why it is not what the spec asks for.
    pub(super) behind: Option<(Reason, String)>,
}

/// A place, and where it was taken from.
pub(super) struct Place {
    pub(super) location: Location,
    pub(super) record: Option<StoreRecord>,
}

/// Returns the `CronJob` for this cron line. Without a line the due times are unknown, and only `suspend` changes.
pub(super) fn arm(seen: &Observed, line: Option<&Line>) -> Arm {
    let halted = halted(seen);
    let suspend = halted.is_some();
    match line.ok_or((Reason::InvalidSpec, String::new())).and_then(|line| rendered(seen, line, suspend)) {
        Ok(rendered) => Arm { cron_job: Some(rendered), halted, behind: None },
        Err(why) => {
            let stands = seen.own_cron_job().and_then(|live| live.spec.clone());
            let keep = |spec| with_spec(agent_job(seen), CronJobSpec { suspend: Some(suspend), ..spec });
            Arm { cron_job: stands.map(keep), halted, behind: Some(why) }
        }
    }
}

/// Returns why no run starts.
pub(super) fn halted(seen: &Observed) -> Option<(Reason, String)> {
    let spec = &seen.schedule.spec;
    if spec.suspend {
        let message = "spec.suspend is true: no run starts. A run that has started goes on";
        return Some((Reason::Suspended, message.to_owned()));
    }
    let wanted = &spec.cluster_ref.as_ref()?.name;
    let Some(cluster) = &seen.cluster else {
        let why = match seen.own_cron_job() {
            Some(_) => format!(
                "EtcdCluster {wanted} was deleted: no backup starts, and the stored snapshots stay. Backups of another EtcdCluster of \
                 this name begin when it has formed"
            ),
            None => format!("there is no EtcdCluster {wanted} in this namespace. Backups begin when it has formed"),
        };
        return Some((Reason::WaitingForReference, why));
    };
    if meta::deleting(&cluster.metadata) {
        return Some((Reason::WaitingForReference, format!("EtcdCluster {wanted} is being deleted")));
    }
    if cluster.spec.replicas == 0 {
        let why = format!("EtcdCluster {wanted} is parked: spec.replicas is 0. Backups go on when it is larger");
        return Some((Reason::Parked, why));
    }
    // Another one of the same name: the Jobs would look for the one before.
    if cluster.status.as_ref().is_none_or(|s| s.latches.formed.is_none()) {
        let why = format!("EtcdCluster {wanted} has not formed yet; its conditions name the cause");
        return Some((Reason::WaitingForCluster, why));
    }
    None
}

fn rendered(seen: &Observed, line: &Line, suspend: bool) -> Result<CronJob, (Reason, String)> {
    let spec = &seen.schedule.spec;
    let Place { location, record } = place(seen, Right::Write)?;
    let source = source(seen)?;
    let template = &spec.snapshot_template;
    let namespace = seen.schedule.metadata.namespace.clone().unwrap_or_default();
    let place = (namespace, saving::filed_under(spec.cluster_ref.as_ref()));
    let store_id = record.as_ref().and_then(|record| record.id.clone());
    let endpoints = source.endpoints.clone();
    let delay_seconds = delay(seen.uid(), spec.spread());
    let request = SaveRequest {
        schedule_name: Some(meta::name(&seen.schedule.metadata).to_owned()),
        schedule_uid: Some(seen.uid().to_owned()),
        delay_seconds,
        deadline_seconds: template.deadline_seconds.unwrap_or_else(|| deadline(line, delay_seconds)),
        ..saving::request(template, place, seen.cluster.as_ref(), source, store_id)
    };
    Ok(cron_job(&Recurring {
        job: AgentJob {
            work: Request::Save(request),
            destination: location,
            record,
            external: spec.external.clone().or_else(|| saving::with_certificates(seen.cluster.as_ref(), endpoints)),
            spool: template.spool.clone(),
            ..agent_job(seen)
        },
        // JSON of our own types cannot fail.
        template: Some(serde_json::to_string(template).unwrap_or_default()),
        schedule: spec.schedule.clone(),
        time_zone: spec.time_zone.clone().unwrap_or_else(|| UTC.to_owned()),
        suspend,
        starting_deadline: spec.starting_deadline(),
        failed_limit: spec.failed_limit(),
    }))
}

/// Returns the cluster; `None`: the etcd is an external one.
pub(super) fn cluster(seen: &Observed) -> Result<Option<&EtcdCluster>, (Reason, String)> {
    match (&seen.schedule.spec.cluster_ref, &seen.cluster) {
        (None, _) => Ok(None),
        (Some(_), Some(cluster)) => Ok(Some(cluster)),
        (Some(named), None) => {
            let why = format!("there is no EtcdCluster {} in this namespace", named.name);
            Err((Reason::WaitingForReference, why))
        }
    }
}

/// Returns the etcd to read. The flags of an external one are in the spec.
pub(super) fn source(seen: &Observed) -> Result<Source, (Reason, String)> {
    cluster(seen)?.map_or_else(|| Ok(Source::default()), saving::source)
}

/// The agent's deadline where the template has none: the Job, which has some time more, ends before the next run is due, because
/// Kubernetes skips a run while the one before is active. A deadline that a user has set stands: that database may need it. So
/// does the usual one where runs are due within half an hour: a save that takes longer than the period skips a run, and with a
/// shorter deadline none of them would ever end well.
fn deadline(line: &Line, delay: u32) -> u32 {
    let Some(period) = line.period().map(|period| period.as_secs()).filter(|period| *period >= SHORTEST_PERIOD) else {
        return DEFAULT_SAVE_DEADLINE_SECONDS;
    };
    let fits = period - (DEADLINE_SLACK_SECONDS + ENDS_BEFORE_SECONDS + i64::from(delay));
    u32::try_from(fits).map_or(DEFAULT_SAVE_DEADLINE_SECONDS, |fits| fits.min(DEFAULT_SAVE_DEADLINE_SECONDS))
}

/// The same for each run of a schedule, and spread over all schedules.
fn delay(uid: &str, spread: u32) -> u32 {
    let luck = u32::from_str_radix(&fingerprint::hash_parts([uid])[..8], 16).unwrap_or_default();
    luck % spread.saturating_add(1)
}

/// Returns the settings that all Jobs of a schedule share.
pub(super) fn agent_job(seen: &Observed) -> AgentJob {
    let (meta, spec) = (&seen.schedule.metadata, &seen.schedule.spec);
    let cluster = seen.cluster.as_ref();
    let work = Request::Save(SaveRequest::default());
    let nowhere = Location::Pvc(holdfast_api::store::PvcLocation::default());
    let name = name::cron_job(meta::name(meta), meta::uid(meta));
    AgentJob {
        namespace: meta.namespace.clone(),
        owner: Some(objects::owner(&seen.schedule)),
        cluster: Some(saving::filed_under(spec.cluster_ref.as_ref())),
        schedule: Some(meta::name(meta).to_owned()),
        agent: spec.snapshot_template.agent.clone().unwrap_or_default(),
        placement: cluster.map(|c| c.spec.placement.clone()).unwrap_or_default(),
        most_bytes: cluster.and_then(valid::most_bytes),
        proxies: seen.settings.proxies.clone(),
        run_as: seen.settings.pod_run_as,
        ..AgentJob::new(name, work, nowhere, seen.settings.agent_image.clone())
    }
}

/// The place of the template; while the `EtcdBackupStore` is not usable, as the `CronJob` has it.
pub(super) fn place(seen: &Observed, right: Right) -> Result<Place, (Reason, String)> {
    let destination = &seen.schedule.spec.snapshot_template.destination;
    let wrong = || {
        let message = "spec.snapshotTemplate.destination: needs exactly one of storeRef, s3, azure, gcs and pvc";
        (Reason::InvalidSpec, message.to_owned())
    };
    let Some(named) = &destination.store_ref else {
        return Ok(Place { location: destination.place.location().ok_or_else(wrong)?, record: None });
    };
    let record = match (store::usable(&named.name, seen.store.as_ref()), standing(seen)) {
        (Ok(record), _) => record,
        (Err(_), Some(record)) if record.name == named.name => record,
        (Err(why), _) => return Err(why),
    };
    let location = record.location(right).ok_or_else(wrong)?;
    Ok(Place { location, record: Some(record) })
}

/// The store that the standing `CronJob` saves to.
fn standing(seen: &Observed) -> Option<StoreRecord> {
    let template = seen.own_cron_job()?.spec.as_ref()?.job_template.metadata.as_ref()?;
    serde_json::from_str(meta::annotation(template, key::STORE_RECORD)?).ok()
}
