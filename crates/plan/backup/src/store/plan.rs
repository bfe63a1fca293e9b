//! The order of decisions about one store.
//!
//! The operator probes a store when the store is new, when its spec, a Secret or the accepted store ID changes, and then once a
//! day. The operator probes an unusable store more often, since a created bucket or a granted right causes no event, and ever
//! more rarely if only a person can fix the fault. Each probe is one Job, with the credentials for writing and, if these
//! differ, the credentials for reading. `usable.rs` decides who may use the store.

use holdfast_api::backup_store::{Probe, Right};
use holdfast_api::condition::Reason;
use holdfast_api::name::LocalRef;
use holdfast_api::store::Location;
use holdfast_api::{EtcdBackupStore, EtcdBackupStoreStatus};
use holdfast_contract::{DEFAULT_PROBE_DEADLINE_SECONDS, ExitClass, ProbeRequest, Request};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;

use super::probe::{self, Progress};
use super::stage::{Stage, failure};
use super::{Observed, inputs, job_name, status};
use holdfast_base::objects::job::{AgentJob, job};
use holdfast_base::store_identity;
use holdfast_base::{Act, Next, Plan, Seen, Wake, meta, objects};

/// A change behind a working store shows within a day.
const DAILY: SignedDuration = SignedDuration::from_hours(24);
/// A network failure or a crash may be over soon.
const SOON: SignedDuration = SignedDuration::from_mins(1);
/// A missing bucket or right waits for a person.
const LATER: SignedDuration = SignedDuration::from_mins(5);
/// Longest pause for a fault that only a person can fix. The pause is as long as the fault has lasted: each probe is a Job, and
/// leaves old versions in a versioned bucket. A change of the inputs probes at once.
const AT_LAST: SignedDuration = SignedDuration::from_hours(1);

/// How often to read Secrets, which the operator does not watch, while a person may be correcting the Secrets.
const WAITED_FOR_MILLIS: u64 = 15_000;
/// How often to read Secrets otherwise.
const POLL_MILLIS: u64 = 300_000;

const WAITED_FOR: Wake = Wake::AfterMillis(WAITED_FOR_MILLIS);

/// Returns the plan for one store.
pub fn plan(seen: &Observed, now: Timestamp) -> Plan<EtcdBackupStoreStatus> {
    let inputs = inputs(&seen.store, &seen.secrets);
    let stage = stage(seen, &inputs, now);
    let status = status::whole(seen, &stage, &inputs, now);
    let notes = status::notes(seen, &stage, &status);
    let (act, waiting, wake) = next(stage, now).into_parts();
    Plan { ensures: vec![], act, status, notes, waiting, wake }
}

fn stage(seen: &Observed, inputs: &str, now: Timestamp) -> Stage {
    let meta = &seen.store.metadata;
    if meta::deleting(meta) {
        return Stage::Rest;
    }
    let Some(location) = seen.store.record().location(Right::Write) else {
        return Stage::Blocked(Reason::InvalidSpec, "spec: needs exactly one of s3, azure, gcs and pvc".to_owned());
    };
    let missing = seen.secrets.iter().filter(|(_, version)| **version == Seen::Known(None));
    let missing: Vec<_> = missing.map(|(name, _)| name.as_str()).collect();
    if !missing.is_empty() {
        let message = format!(
            "this store names Secrets that do not exist in this namespace: Secret {}",
            missing.join(", Secret ")
        );
        return Stage::Blocked(Reason::WaitingForReference, message);
    }
    match &seen.job {
        Some(job) if !meta::controlled_by(&job.metadata, meta::uid(meta)) => {
            let name = meta::name(&job.metadata);
            let message = format!("the Job {name} does not belong to this store. Delete the Job");
            Stage::Blocked(Reason::NameConflict, message)
        }
        Some(job) => match probe::read(seen, job, inputs, now) {
            Progress::Running(words) => Stage::Probing(words),
            Progress::HeldUp(held) => Stage::HeldUp(held),
            Progress::Ended(probe) => Stage::Found(status::lasting(seen, inputs, probe)),
        },
        None => match status::standing(seen, inputs) {
            Some(probe) if due(probe).is_some_and(|due| now < due) => Stage::Found(probe.clone()),
            Some(_) | None => Stage::Start(Box::new(start(seen, inputs, location))),
        },
    }
}

/// Returns when to probe the store again without a change of the inputs.
fn due(probe: &Probe) -> Option<Timestamp> {
    let at = probe.at.parse::<Timestamp>().ok()?;
    let class = failure(probe).map(|failure| failure.class);
    let pause = match class {
        _ if probe.usable => DAILY,
        None | Some(ExitClass::Transient | ExitClass::Deadline) => SOON,
        Some(ExitClass::Config | ExitClass::Denied | ExitClass::Corrupt) => {
            let since = probe.failing_since.as_deref().and_then(|since| since.parse::<Timestamp>().ok());
            since.map_or(LATER, |since| at.duration_since(since).clamp(LATER, AT_LAST))
        }
        Some(
            ExitClass::NotFound
            | ExitClass::Full
            | ExitClass::Refused
            | ExitClass::AuthRequired
            | ExitClass::MembersDiffer
            | ExitClass::Undecodable,
        ) => LATER,
    };
    at.checked_add(pause).ok()
}

/// Returns the Job that probes.
fn start(seen: &Observed, inputs: &str, location: Location) -> Job {
    let store = &seen.store;
    let request = ProbeRequest {
        // The first probe creates the store ID, or takes the existing store ID (I25).
        expect_store_id: store_identity::known(store).map(|known| known.id.clone()),
        accept_store_id: store_identity::accepts(store).cloned(),
        deadline_seconds: DEFAULT_PROBE_DEADLINE_SECONDS,
        ..ProbeRequest::default()
    };
    let image = seen.settings.agent_image.clone();
    job(&AgentJob {
        namespace: store.metadata.namespace.clone(),
        owner: Some(objects::owner(store)),
        store: Some(meta::name(&store.metadata).to_owned()),
        readers: readers(store, &location),
        agent: store.spec.agent.clone().unwrap_or_default(),
        proxies: seen.settings.proxies.clone(),
        run_as: seen.settings.pod_run_as,
        ..AgentJob::new(job_name(store, inputs), Request::Probe(request), location, image)
    })
}

/// Returns the Secret for reading if it differs from the Secret for writing: restores depend on it.
fn readers(store: &EtcdBackupStore, location: &Location) -> Option<LocalRef> {
    // A volume has no credentials, whatever the spec contains.
    let credentials = store.spec.credentials.as_ref().filter(|_| !matches!(location, Location::Pvc(_)))?;
    let reads = credentials.secret(Right::Read);
    (reads != credentials.secret(Right::Write)).then(|| LocalRef { name: reads.to_owned() })
}

fn next(stage: Stage, now: Timestamp) -> Next {
    match stage {
        Stage::Rest => Next::Settled(Wake::OnChange),
        Stage::Blocked(reason, message) => Next::wait(reason, message, WAITED_FOR),
        Stage::HeldUp(held) => Next::wait(held.reason, held.words(), WAITED_FOR),
        Stage::Start(job) => Next::act(Act::StartJob(job)),
        Stage::Probing(message) => Next::wait(Reason::Probing, message, WAITED_FOR),
        Stage::Found(probe) => {
            let remaining = due(&probe).map_or(0, |due| due.duration_since(now).as_millis());
            let poll = if probe.usable { POLL_MILLIS } else { WAITED_FOR_MILLIS };
            let wake = Wake::AfterMillis(u64::try_from(remaining).unwrap_or_default().clamp(1_000, poll));
            if probe.usable {
                return Next::Settled(wake);
            }
            let finding = status::found(&probe);
            Next::wait(finding.reason, finding.message, wake)
        }
    }
}
