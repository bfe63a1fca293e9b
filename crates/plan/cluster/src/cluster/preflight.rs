//! Conditions of a change to the next minor version, as values.
//!
//! Decides for each condition whether it is met, and the next step until all are: every voter serves, no alarm is raised, a recent
//! snapshot is stored, and a Job has compared the members and has rehearsed the upgrade. Until then Holdfast touches no member (I30).
//! [`conditions`] decides the same from the status of objects, for `holdfast upgrade plan`, without the answers of etcd.

use holdfast_api::cluster::{Latches, MemberSummary};
use holdfast_api::condition::{self, Reason, Type};
use holdfast_api::upgrade::UpgradeRecord;
use holdfast_api::{EtcdCluster, EtcdMember, EtcdSnapshot, role};
use jiff::{SignedDuration, Timestamp};

use super::backups::newest;
use super::intervals::POLL;
use super::upgrade::{self, Minor, Outcome, Snapshot};
use super::{Membership, Observed, fresh_snapshot};
use holdfast_base::valid::{self, Version, Wanted};
use holdfast_base::{Act, AlarmKind, Next, Wake, meta, rehearsal};

/// Interval while a Job or a member is waited for; watches report both.
const WAITED_FOR: Wake = Wake::AfterMillis(5_000);

/// A condition of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Subject of the condition.
    pub subject: &'static str,
    /// Whether it is met.
    pub state: State,
}

/// State of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Met, with the fact.
    Met(String),
    /// Not met, with the reason of the cluster's condition, the problem and the remedy.
    Unmet(Reason, String),
    /// Not known, with the cause.
    Unknown(String),
    /// Only the Job that Holdfast starts can tell.
    Later(String),
}

/// Checks that no alarm is raised.
fn alarms(raised: Option<&str>, target: Version) -> State {
    match raised {
        None => State::Met("none is raised".to_owned()),
        Some(alarm) => {
            let way_out = if alarm == AlarmKind::NoSpace.as_str() {
                ". Compact and delete keys, or set spec.version back first: a larger quota reaches the members only then"
            } else {
                ""
            };
            let message = format!("the upgrade to {target} does not begin while the alarm {alarm} is raised{way_out}");
            State::Unmet(Reason::PreflightFailed, message)
        }
    }
}

/// Checks the lowest version that a member runs.
fn patch(lowest: Option<Version>, target: Version) -> State {
    let Some(lowest) = lowest else { return State::Unknown("no member has reported its version".to_owned()) };
    match lowest.known_defect() {
        None => State::Met(format!("{lowest} has no known defect that matters")),
        Some((_, floor)) => State::Unmet(
            Reason::PreflightFailed,
            format!(
                "a member runs {lowest}, which has known defects. Set spec.version {floor} or a later patch of it first, then \
                 {target}"
            ),
        ),
    }
}

/// Checks that the newest complete snapshot is recent, and of the minor that the members run.
fn snapshot(
    cluster: &EtcdCluster,
    backup: Option<&EtcdSnapshot>,
    target: Version,
    now: Timestamp,
) -> Result<String, String> {
    let within = cluster.spec.upgrade().snapshot_within();
    let named = meta::name(&cluster.metadata);
    let need = |found: String| {
        format!(
            "the upgrade to {target} needs a complete EtcdSnapshot of this cluster that is at most {within} s old: {found}. Create an \
             EtcdSnapshot with clusterRef {named}; Holdfast goes on when it is complete"
        )
    };
    let Some(backup) = backup else { return Err(need("there is none".to_owned())) };
    let status = backup.status.as_ref();
    let named = meta::name(&backup.metadata);
    let at = status.and_then(|status| status.completed_at.as_ref()?.parse::<Timestamp>().ok());
    let Some(at) = at.filter(|at| now.duration_since(*at) <= SignedDuration::from_secs(within.into())) else {
        let when = at.map_or_else(String::new, |at| format!(" and is from {at}"));
        return Err(need(format!("{named} is the newest{when}")));
    };
    let made_by = status.and_then(|status| Version::parse(&status.artifact.as_ref()?.etcd_version));
    if made_by.is_some_and(|made_by| made_by.minor + 1 != target.minor) {
        let made_by = made_by.map_or_else(String::new, |version| version.to_string());
        return Err(need(format!("{named} from {at} was saved from etcd {made_by}")));
    }
    Ok(format!("{named} is from {at}"))
}

/// Returns the next step before a change to the next minor begins.
pub(super) fn prepare(seen: &Observed, spec: &Wanted, etcd: &Membership, now: Timestamp) -> Next {
    let target = spec.server.version;
    let fail = |message: String| Next::wait(Reason::PreflightFailed, message, POLL);
    let raised = etcd.alarms.first().map(|alarm| alarm.kind.as_str());
    for state in [alarms(raised, target), patch(seen.lowest_version(), target)] {
        if let State::Unmet(reason, message) = state {
            return Next::wait(reason, message, POLL);
        }
    }
    if let Some(next) = upgrade::fill_log(seen, spec, etcd) {
        return next;
    }
    let begin = |snapshot: Snapshot, seconds: Option<i64>| {
        let from = seen.staying().filter_map(rehearsal::version).min();
        let record = UpgradeRecord {
            from: from.map_or_else(String::new, |from| from.to_string()),
            to: target.to_string(),
            reversible: true,
            snapshot: snapshot.name,
            key: snapshot.key,
            revision: snapshot.revision,
            rehearsed_in_seconds: seconds,
            at: now.to_string(),
        };
        Next::act(Act::Latch(Box::new(Latches { upgrade: Some(record), ..seen.latches() })))
    };
    let recent = || match (&seen.backup, snapshot(&seen.cluster, seen.backup.as_ref(), target, now)) {
        (Some(backup), Ok(_)) => Ok(backup),
        (_, found) => Err(fresh_snapshot::request(seen, found.err().unwrap_or_default())),
    };
    let named = rehearsal::rehearsal_name(seen);
    if let Some(found) = seen.rehearsals.iter().find(|found| meta::name(&found.job.metadata) == named) {
        return match upgrade::outcome(found, seen, now) {
            // The Job may have read an earlier snapshot than the newest one.
            Outcome::Passed(seconds) => {
                let rehearsed = |backup| Snapshot::read(&found.job).unwrap_or_else(|| Snapshot::describe(backup));
                recent().map_or_else(|wait| wait, |backup| begin(rehearsed(backup), seconds))
            }
            Outcome::Failed(why) => fail(format!(
                "the rehearsal of the upgrade to {target} failed, and no member was touched: {why}. After the cause is gone, delete \
                 the Job {named}: Holdfast rehearses again"
            )),
            Outcome::Differ(found) => fail(upgrade::differ(seen, target, &found)),
            Outcome::Running(words) => Next::wait(
                Reason::Upgrading,
                format!("a Job rehearses the upgrade to {target} on a snapshot; no member is touched before: {words}"),
                WAITED_FOR,
            ),
        };
    }
    let backup = match recent() {
        Ok(backup) => backup,
        Err(wait) => return wait,
    };
    if !seen.cluster.spec.upgrade().rehearses() {
        return begin(Snapshot::describe(backup), None);
    }
    match upgrade::start(seen, target, backup, &named) {
        Ok(job) => Next::act(Act::StartJob(Box::new(job))),
        Err(why) => fail(why),
    }
}

/// Returns the conditions of an upgrade to this version, in the order in which Holdfast checks them, from the status of objects.
pub fn conditions(
    cluster: &EtcdCluster,
    members: &[EtcdMember],
    snapshots: &[EtcdSnapshot],
    version: &str,
    now: Timestamp,
) -> Vec<Condition> {
    let mut asked = cluster.clone();
    version.clone_into(&mut asked.spec.version);
    let condition = |subject, state| Condition { subject, state };
    let refused = |why: String| vec![condition("spec", State::Unmet(Reason::InvalidSpec, why))];
    let target = match valid::cluster(&asked) {
        Ok(wanted) => wanted.server.version,
        Err(refusal) => return refused(refusal.to_string()),
    };
    if let Some(why) = upgrade::defect(target) {
        return refused(why);
    }
    let uid = meta::uid(&cluster.metadata);
    let hosting: Vec<&EtcdMember> = members
        .iter()
        .filter(|m| m.spec.cluster_ref.uid == uid && m.spec.removed.is_none() && !m.spec.is_lost())
        .collect();
    let own: Vec<Version> = hosting.iter().filter_map(|m| Version::parse(&m.spec.process.version)).collect();
    let step = step(cluster, &own, target);
    if !matches!(step, State::Met(_)) || own.iter().all(|own| own.minor == target.minor) {
        return vec![condition("step", step)];
    }
    let last = newest(uid, snapshots);
    let backup = last.and_then(|last| snapshots.iter().find(|found| meta::name(&found.metadata) == last.name));
    let recent = match snapshot(&asked, backup, target, now) {
        Ok(fact) => State::Met(fact),
        Err(_) if backup.is_some() => State::Later(
            "Holdfast requests an EtcdSnapshot first, to the place of the newest one, once for each edit".to_owned(),
        ),
        Err(why) => State::Unmet(Reason::SnapshotNeeded, why),
    };
    let rehearses = asked.spec.upgrade().rehearses();
    let left_out = || State::Met("left out: spec.upgrade.rehearse is false".to_owned());
    let compared = match () {
        () if !own.iter().any(|own| own.minor == 5) => {
            State::Met("etcd of this minor keeps one member list".to_owned())
        }
        () if !rehearses => left_out(),
        () => State::Later("a Job compares the member list in each member's database with etcd's".to_owned()),
    };
    let rehearsed = match backup.and_then(|backup| upgrade::lacks_identity(cluster, backup)) {
        _ if !rehearses => left_out(),
        Some(why) => State::Unmet(Reason::PreflightFailed, why),
        None => State::Later(format!("a Job restores the snapshot with etcd {target} and compares the answers")),
    };
    let log = cluster.status.as_ref().and_then(|status| status.latches.log_since).filter(|_| target.minor >= 7);
    let log = log.map(|_| State::Later("Holdfast commits entries until no log needs an entry of etcd 3.5".to_owned()));
    vec![
        condition("step", step),
        condition("members", serving(cluster)),
        condition("alarms", recorded_alarms(cluster, target)),
        condition("patch", patch(recorded_version(cluster), target)),
    ]
    .into_iter()
    .chain(log.map(|log| condition("log", log)))
    .chain([condition("snapshot", recent), condition("comparison", compared), condition("rehearsal", rehearsed)])
    .collect()
}

/// Checks that the version is one step, and no upgrade is under way.
fn step(cluster: &EtcdCluster, own: &[Version], target: Version) -> State {
    let record = cluster.status.as_ref().and_then(|status| status.latches.upgrade.clone());
    let Some(lowest) = own.iter().min() else { return State::Unknown("the cluster has no member".to_owned()) };
    let earlier = record.as_ref().and_then(|record| Version::parse(&record.from));
    let earlier = earlier.is_some_and(|from| own.iter().any(|own| own.minor == from.minor));
    match upgrade::relate(own, record, earlier, target) {
        _ if cluster.spec.paused => State::Unmet(Reason::Paused, "spec.paused is set: remove it".to_owned()),
        Minor::Next => State::Met(format!("{target} is of the next minor after {lowest}")),
        Minor::Same => State::Met(format!("{target} is of the members' minor: the members roll without a preflight")),
        Minor::UnderWay | Minor::Lost => State::Unmet(Reason::Upgrading, "this upgrade has begun already".to_owned()),
        Minor::Refused(why) => State::Unmet(Reason::InvalidSpec, why),
    }
}

/// Whether the operator has written the status for the present spec.
fn is_current(cluster: &EtcdCluster) -> bool {
    let observed = cluster.status.as_ref().and_then(|status| status.observed_generation);
    observed.is_some() && observed == cluster.metadata.generation
}

fn stale() -> State {
    State::Unknown("the operator has not written the status for the present spec".to_owned())
}

/// Checks that every member is a voter and serves.
fn serving(cluster: &EtcdCluster) -> State {
    let Some(status) = cluster.status.as_ref().filter(|_| is_current(cluster)) else { return stale() };
    let well = |m: &&MemberSummary| m.healthy && m.role.as_deref() == Some(role::VOTER);
    if let Some(unwell) = status.members.iter().find(|member| !well(member)) {
        let message = format!("{} does not serve as a voter; the cluster's conditions name the cause", unwell.name);
        return State::Unmet(Reason::Upgrading, message);
    }
    let (ready, voters, wanted) = (status.ready_members, status.voters, cluster.spec.replicas);
    if ready == wanted && voters == wanted {
        return State::Met(format!("{voters} voters serve"));
    }
    State::Unmet(
        Reason::Upgrading,
        format!("{ready} of {wanted} members serve; the cluster's conditions name the cause"),
    )
}

/// Checks the alarms by the condition `Degraded`: another fault there hides an alarm.
fn recorded_alarms(cluster: &EtcdCluster, target: Version) -> State {
    let Some(status) = cluster.status.as_ref().filter(|_| is_current(cluster)) else { return stale() };
    match condition::find(&status.conditions, Type::Degraded) {
        Some(fault) if fault.status == "False" => alarms(None, target),
        Some(fault) if [Reason::AlarmRaised, Reason::SpaceExhausted].iter().any(|r| fault.reason == r.as_str()) => {
            alarms(Some("in the condition Degraded"), target)
        }
        Some(fault) => State::Unknown(format!("the condition Degraded has another reason first: {}", fault.reason)),
        None => stale(),
    }
}

/// Returns the lowest version in the status; `None` where a member has reported none.
fn recorded_version(cluster: &EtcdCluster) -> Option<Version> {
    let members = &cluster.status.as_ref()?.members;
    let all: Option<Vec<Version>> = members.iter().map(|m| Version::parse(m.version.as_deref()?)).collect();
    all?.into_iter().min()
}
