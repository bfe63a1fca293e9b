//! Change to the next minor version.
//!
//! Decides when the change may begin: every voter serves, no alarm is raised, a recent snapshot is stored, and a Job has restored
//! that snapshot with the next version, started its etcd on the data and compared both. Until then Holdfast touches no member.
//! Decides how long there is a way back: etcd writes data of the next minor when the last member runs it, so the way back is
//! withdrawn before that member gets the version (I30). `roll.rs` decides the order of the members.

use std::path::PathBuf;

use holdfast_api::agent::Agent;
use holdfast_api::backup_store::Right;
use holdfast_api::cluster::Latches;
use holdfast_api::condition::Reason;
use holdfast_api::name;
use holdfast_api::template::Template;
use holdfast_api::upgrade::UpgradeRecord;
use holdfast_api::{EtcdCluster, EtcdMember, EtcdSnapshot, key};
use holdfast_contract::{
    CompareRequest, ComparedReport, DEFAULT_COMPARE_SECONDS, DEFAULT_MEMBER_SECONDS, DEFAULT_READ_DEADLINE_SECONDS,
    EtcdFlags, ProofLevel, SnapshotFlags, VerifyRequest,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;

use super::intervals::POLL;
use super::read_access::readers;
use super::{ClusterJob, Member, Membership, Observed, latest};
use crate::build::job::{AgentJob, SCRATCH, Work, job};
use crate::jobs::{self, JobState};
use crate::valid::{Version, Wanted};
use crate::{Act, Next, Wake, build, meta, pods, saving, template};

/// Interval while a Job or a member is waited for; watches report both.
const WAITED_FOR: Wake = Wake::AfterMillis(5_000);

/// Folder of etcd and etcdutl in etcd's own image.
const PROGRAMS: &str = "/usr/local/bin";

/// The minor version of the spec, beside those of the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Minor {
    /// Every member has it.
    Same,
    /// It is the next one, and the change has not begun.
    Next,
    /// The change, or the way back, is under way.
    UnderWay,
    /// The change is under way, and its record was lost with the status.
    Lost,
    /// The members cannot get it, for this reason.
    Refused(String),
}

impl Minor {
    /// Whether members may get the version of the spec.
    pub(super) const fn is_open(&self) -> bool {
        matches!(self, Self::Same | Self::UnderWay)
    }
}

/// Whether the spec asks a member for another minor.
pub fn asks_for_another_minor<'a>(cluster: &EtcdCluster, members: impl IntoIterator<Item = &'a EtcdMember>) -> bool {
    let wanted = minor(&cluster.spec.version);
    members.into_iter().any(|member| minor(&member.spec.version) != wanted)
}

/// Returns how the minor of the spec relates to those of the members.
pub(super) fn judge(seen: &Observed, target: Version) -> Minor {
    let own: Vec<Version> = seen.hosting().filter_map(version).collect();
    let Some(other) = own.iter().filter(|own| own.minor != target.minor).min() else { return Minor::Same };
    let Some(record) = seen.latches().upgrade else {
        let together = own.iter().all(|own| own.minor == other.minor);
        if target.minor == other.minor + 1 && own.iter().all(|own| own.minor <= target.minor) {
            return if together { Minor::Next } else { Minor::Lost };
        }
        let newest = own.iter().max().unwrap_or(other);
        return Minor::Refused(format!(
            "spec.version: the members have {newest}, and etcd goes to the next minor only, and not back. Set a version 3.{}.Z{}",
            newest.minor,
            if together && newest.minor < 7 { format!(" or 3.{}.Z", newest.minor + 1) } else { String::new() }
        ));
    };
    let (from, to) = (minor(&record.from), minor(&record.to));
    let is_open = record.reversible && seen.staying().any(|m| runs_minor(seen, m, from));
    if to == Some(target.minor) || (from == Some(target.minor) && is_open) {
        return Minor::UnderWay;
    }
    let later = to.unwrap_or_default();
    Minor::Refused(format!(
        "spec.version: the upgrade from {} to {} is under way{}",
        record.from,
        record.to,
        if is_open {
            ". Set a version of one of these minors".to_owned()
        } else {
            format!(", and the last member has begun: there is no way back. Set a version 3.{later}.Z")
        }
    ))
}

fn minor(text: &str) -> Option<u32> {
    Version::parse(text).map(|version| version.minor)
}

/// Whether a member has this minor, in its spec and by its own answer.
fn runs_minor(seen: &Observed, member: &Member, wanted: Option<u32>) -> bool {
    let answered = seen.known_answer(member.name()).and_then(|answer| minor(&answer.version));
    minor(&member.object.spec.version) == wanted && answered.is_none_or(|answered| Some(answered) == wanted)
}

/// Whether a member may go back to the template with which it served: of the same minor, or while there is a way back.
pub(super) fn may_have(seen: &Observed, member: &Member, served: &Template) -> bool {
    let reversible = seen.latches().upgrade.is_some_and(|record| record.reversible);
    minor(&served.version) == minor(&member.object.spec.version) || reversible
}

/// Returns the wait where a member runs an etcd of another minor than its spec says: the digest of the image belongs to another
/// version.
pub(super) fn another_etcd(seen: &Observed) -> Option<Next> {
    let differs = |m: &&Member| {
        let current = m.live_pod().is_some_and(|pod| pods::ready(pod) && template::is_current(pod, &m.object));
        let answered = seen.known_answer(m.name()).and_then(|answer| minor(&answer.version));
        current && answered.is_some() && answered != minor(&m.object.spec.version)
    };
    let member = seen.staying().find(differs)?;
    let runs = seen.known_answer(member.name()).map_or("", |answer| answer.version.as_str());
    let message = format!(
        "{} runs etcd {runs}, and spec.version is {}: spec.image.digest belongs to another version. Correct the digest, or remove it",
        member.name(),
        member.object.spec.version
    );
    // Another edit rolls.
    let asked_for = template::of_member(&member.object) == template::wanted(&seen.cluster);
    asked_for.then(|| Next::wait(Reason::RolloutStuck, message, POLL))
}

/// Latches an upgrade whose record was lost with the status, while members have both minors. Its way back is unknown.
pub(super) fn resume(seen: &Observed, spec: &Wanted, now: Timestamp) -> Option<Next> {
    let target = spec.server.version;
    if judge(seen, target) != Minor::Lost {
        return None;
    }
    let record = UpgradeRecord {
        from: seen.hosting().filter_map(version).min()?.to_string(),
        to: target.to_string(),
        reversible: false,
        at: now.to_string(),
        ..UpgradeRecord::default()
    };
    Some(Next::act(Act::Latch(Box::new(Latches { upgrade: Some(record), ..seen.latches() }))))
}

fn version(member: &Member) -> Option<Version> {
    Version::parse(&member.object.spec.version)
}

/// Returns the next step before a change to the next minor begins.
pub(super) fn prepare(seen: &Observed, spec: &Wanted, etcd: &Membership, now: Timestamp) -> Next {
    let target = spec.server.version;
    let fail = |message: String| Next::wait(Reason::PreflightFailed, message, POLL);
    if let Some(alarm) = etcd.alarms.first() {
        return fail(format!(
            "the upgrade to {target} does not begin while the alarm {} is raised",
            alarm.kind.as_str()
        ));
    }
    let lowest = seen.lowest_version();
    if let Some((version, (_, floor))) = lowest.and_then(|lowest| Some((lowest, lowest.known_defect()?))) {
        return fail(format!(
            "a member runs {version}, which has known defects. Set spec.version {floor} or a later patch of it first, then {target}"
        ));
    }
    if let Some(next) = fill_log(seen, spec, etcd) {
        return next;
    }
    let begin = |backup: &EtcdSnapshot, seconds: Option<i64>| {
        let record = UpgradeRecord {
            from: seen.staying().filter_map(version).min().map_or_else(String::new, |from| from.to_string()),
            to: target.to_string(),
            reversible: true,
            snapshot: meta::name(&backup.metadata).to_owned(),
            revision: backup.status.as_ref().and_then(|status| status.artifact.as_ref()?.revision),
            rehearsed_in_seconds: seconds,
            at: now.to_string(),
        };
        Next::act(Act::Latch(Box::new(Latches { upgrade: Some(record), ..seen.latches() })))
    };
    let named = rehearsal_name(seen);
    if let Some(found) = seen.rehearsals.iter().find(|found| meta::name(&found.job.metadata) == named) {
        return match outcome(found, seen, now) {
            // The rehearsed snapshot may be an earlier one.
            Outcome::Passed(seconds) => match recent(seen, target, now) {
                Ok(backup) => begin(backup, seconds),
                Err(wait) => *wait,
            },
            Outcome::Failed(why) => fail(format!(
                "the rehearsal of the upgrade to {target} failed, and no member was touched: {why}. After the cause is gone, delete \
                 the Job {named}: Holdfast rehearses again"
            )),
            Outcome::Differ(found) => fail(differ(seen, target, &found)),
            Outcome::Running(words) => Next::wait(
                Reason::Upgrading,
                format!("a Job rehearses the upgrade to {target} on a snapshot; no member is touched before: {words}"),
                WAITED_FOR,
            ),
        };
    }
    let backup = match recent(seen, target, now) {
        Ok(backup) => backup,
        Err(wait) => return *wait,
    };
    if !seen.cluster.spec.upgrade().rehearses() {
        return begin(backup, None);
    }
    match start(seen, target, backup, &named) {
        Ok(job) => Next::act(Act::StartJob(Box::new(job))),
        Err(why) => fail(why),
    }
}

/// Returns the newest complete snapshot, if it is recent enough and of the minor that the members run.
fn recent(seen: &Observed, target: Version, now: Timestamp) -> Result<&EtcdSnapshot, Box<Next>> {
    let within = seen.cluster.spec.upgrade().snapshot_within();
    let cluster = meta::name(&seen.cluster.metadata);
    let need = |found: String| {
        let message = format!(
            "the upgrade to {target} needs a complete EtcdSnapshot of this cluster that is at most {within} s old: {found}. Create an \
             EtcdSnapshot with clusterRef {cluster}; Holdfast goes on when it is complete"
        );
        Box::new(Next::wait(Reason::SnapshotNeeded, message, POLL))
    };
    let Some(backup) = &seen.backup else { return Err(need("there is none".to_owned())) };
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
    Ok(backup)
}

/// Returns the name of the Job. Another version, image or value of the annotation `holdfast.dev/restart` is another rehearsal; a newer
/// snapshot is not.
pub(crate) fn rehearsal_name(seen: &Observed) -> String {
    let meta = &seen.cluster.metadata;
    let question = (&seen.cluster.spec.version, &seen.cluster.spec.image, meta::annotation(meta, key::RESTART));
    name::rehearsal(meta::name(meta), meta::uid(meta), &latest::hash(&question))
}

enum Outcome {
    Passed(Option<i64>),
    Failed(String),
    /// The members' databases differ from etcd's member list.
    Differ(ComparedReport),
    Running(String),
}

fn outcome(found: &ClusterJob, seen: &Observed, now: Timestamp) -> Outcome {
    let status = found.job.status.clone().unwrap_or_default();
    if status.succeeded.unwrap_or_default() > 0 {
        let took =
            status.start_time.zip(status.completion_time).map(|(from, to)| to.0.duration_since(from.0).as_secs());
        return Outcome::Passed(took);
    }
    match jobs::read(&found.job, &found.pods, seen.refusal.as_deref(), None, now) {
        JobState::Failed { message, .. } => {
            found.pods.iter().rev().find_map(jobs::differences).map_or(Outcome::Failed(message), Outcome::Differ)
        }
        JobState::Pending(words) | JobState::Running(words) => Outcome::Running(words),
        JobState::HeldUp(held) if held.needs_a_person() => Outcome::Failed(held.words()),
        JobState::HeldUp(held) => Outcome::Running(held.words()),
        JobState::Settling | JobState::Lost | JobState::Stored { .. } => {
            Outcome::Running("the Job has ended; its result is on its way".to_owned())
        }
    }
}

/// Returns the problem and the remedy where the members' databases differ from etcd's member list. Another value of the annotation
/// is another rehearsal, so the person deletes no Job.
fn differ(seen: &Observed, target: Version, found: &ComparedReport) -> String {
    let present = seen.staying().filter_map(version).max().map_or_else(String::new, |present| present.to_string());
    let remedy = if found.repairs_itself() {
        format!(
            "Set spec.version to {present} and another value of the annotation {}. When every member has restarted, which corrects \
             the list, set spec.version to {target}",
            key::RESTART
        )
    } else {
        format!(
            "No restart corrects this: set spec.version to {present}, replace each named member (annotation {}), then set another \
             value of the annotation {} and spec.version {target}",
            key::REPLACE,
            key::RESTART
        )
    };
    let how = found.sentences().join("; ");
    format!(
        "the upgrade to {target} does not begin, because etcd {target} would start with another member list: {how}. {remedy}"
    )
}

/// Returns the comparison of the members' databases with etcd's member list, which etcd 3.5 may have left different. etcd 3.6 keeps
/// one list only.
fn comparison(seen: &Observed) -> Option<CompareRequest> {
    let of_3_5 = seen.hosting().filter_map(version).any(|version| version.minor == 5);
    let meta = &seen.cluster.metadata;
    let (name, namespace) = (meta::name(meta), meta.namespace.as_deref().unwrap_or_default());
    let scheme = seen.cluster.spec.scheme();
    let endpoints = seen.staying().map(|member| name::client_url(scheme, member.name(), name, namespace)).collect();
    of_3_5.then(|| CompareRequest {
        etcd: EtcdFlags { endpoints, ..EtcdFlags::default() },
        expect_cluster_id: seen.latches().formed.map(|formed| formed.cluster_id),
        member_seconds: DEFAULT_MEMBER_SECONDS,
        json: false,
        deadline_seconds: DEFAULT_COMPARE_SECONDS,
    })
}

/// Returns the Job that compares the members and restores the snapshot in the image of the next version.
fn start(seen: &Observed, target: Version, backup: &EtcdSnapshot, named: &str) -> Result<Job, String> {
    let meta = &seen.cluster.metadata;
    let snapshot = meta::name(&backup.metadata);
    let status = backup.status.as_ref();
    let artifact = status.and_then(|status| status.artifact.as_ref());
    let place = match status.and_then(|status| status.store.as_ref()) {
        Some(record) => record.location(Right::Read),
        None => backup.spec.template.destination.place.location(),
    };
    let (Some(artifact), Some(place)) = (artifact, place) else {
        return Err(format!("the EtcdSnapshot {snapshot} names no place in its status"));
    };
    if artifact.encrypted {
        return Err(format!(
            "the EtcdSnapshot {snapshot} is encrypted, and the operator has no identity to rehearse with. Save one without \
             encryption, or set spec.upgrade.rehearse to false"
        ));
    }
    let request = VerifyRequest {
        snapshot: SnapshotFlags { key: Some(artifact.key.clone()), ..SnapshotFlags::default() },
        level: ProofLevel::Drill,
        bin_dir: Some(PathBuf::from(PROGRAMS)),
        scratch: PathBuf::from(SCRATCH),
        // The proof would say that the snapshot was drilled with its own version.
        no_proof: true,
        write: true,
        json: false,
        deadline_seconds: DEFAULT_READ_DEADLINE_SECONDS,
    };
    let spec = &seen.cluster.spec;
    let image = build::etcd_image(spec.image.as_ref(), &target.to_string(), &seen.settings.etcd_repository);
    // As the snapshot's own agent reached the store, with the resources of a member.
    let own = backup.spec.template.agent.clone().unwrap_or_default();
    let agent = Agent { resources: Some(spec.resources.clone().unwrap_or_else(build::member_requests)), ..own };
    Ok(job(&AgentJob {
        namespace: meta.namespace.clone(),
        owner: Some(build::owner(&seen.cluster)),
        cluster: Some(meta::name(meta).to_owned()),
        snapshot: Some(snapshot.to_owned()),
        external: saving::with_certificates(Some(&seen.cluster), vec![]),
        compares: comparison(seen),
        etcd_image: Some((image, build::pull_policy(spec.image.as_ref()).to_owned())),
        agent,
        placement: spec.placement.clone(),
        proxies: seen.settings.proxies.clone(),
        run_as: seen.settings.pod_run_as,
        ..AgentJob::of(named.to_owned(), Work::Rehearse(request), readers(place), seen.settings.agent_image.clone())
    }))
}

/// Withdraws the way back before the last member gets the next minor.
pub(super) fn close_way_back(seen: &Observed, member: &Member) -> Option<Next> {
    let record = seen.latches().upgrade.filter(|record| record.reversible)?;
    if minor(&seen.cluster.spec.version) != minor(&record.to) {
        return None;
    }
    let earlier = |m: &Member| runs_minor(seen, m, minor(&record.from));
    let own = minor(&member.object.spec.version) == minor(&record.from);
    let last = own && !seen.staying().any(|m| m.name() != member.name() && earlier(m));
    last.then(|| {
        let record = UpgradeRecord { reversible: false, ..record };
        Next::act(Act::Latch(Box::new(Latches { upgrade: Some(record), ..seen.latches() })))
    })
}

/// Removes the record of an upgrade after every member serves with one minor.
pub(super) fn finish(seen: &Observed) -> Option<Next> {
    let latches = seen.latches();
    let record = latches.upgrade.as_ref()?;
    if asks_for_another_minor(&seen.cluster, seen.hosting().map(|member| &member.object)) {
        return None;
    }
    let (now, newest) = (
        minor(&seen.cluster.spec.version),
        seen.answers.values().filter_map(|answer| Some(answer.known()?.applied_index)).max(),
    );
    let log_since = match now {
        Some(6) if minor(&record.from) == Some(5) => newest.and_then(|index| i64::try_from(index).ok()),
        Some(5 | 6) => latches.log_since,
        _ => None,
    };
    Some(Next::act(Act::Latch(Box::new(Latches { upgrade: None, log_since, ..latches }))))
}

/// Entries between two raft snapshots where `options.snapshotCount` is absent (etcd 3.6: `DefaultSnapshotCount`).
const SNAPSHOT_COUNT: u64 = 10_000;

/// Entries that etcd may apply in one step, before it takes a due raft snapshot.
const IN_FLIGHT: u64 = 2_000;

/// Entries of one act.
const PART: u64 = 2_000;

/// Returns the entries that are missing until every member has taken a raft snapshot after the last entry of etcd 3.5: etcd 3.7 ends
/// when it reads such an entry (etcd 3.6 still translates them: `v2ToV3Request`).
fn fill_log(seen: &Observed, spec: &Wanted, etcd: &Membership) -> Option<Next> {
    let since = seen.latches().log_since.filter(|_| spec.server.version.minor >= 7)?;
    let of_member = |m: &Member| m.object.spec.options.as_ref().and_then(|options| options.snapshot_count);
    let counts =
        seen.staying().map(|m| of_member(m).and_then(|count| u64::try_from(count).ok()).unwrap_or(SNAPSHOT_COUNT));
    let count = counts.max().unwrap_or(SNAPSHOT_COUNT);
    let enough = u64::try_from(since).unwrap_or_default().saturating_add(count).saturating_add(IN_FLIGHT);
    let least =
        etcd.members.iter().filter_map(|l| Some(seen.known_answer(seen.standing_for(l)?.name())?.applied_index)).min();
    let missing = enough.saturating_sub(least?);
    let entries = u32::try_from(missing.min(PART)).unwrap_or_default();
    let next = Wake::AfterMillis(200);
    (missing > 0).then_some(Next::Do(Act::FillLog { entries, cluster_id: etcd.cluster_id }, next))
}
