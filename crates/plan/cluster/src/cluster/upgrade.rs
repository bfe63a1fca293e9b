//! Change to the next minor version.
//!
//! Decides how the minor of the spec relates to those of the members, and the Job that rehearses. `preflight.rs` decides when the change
//! may begin. Decides how long there is a way back: etcd writes data of the next minor when the last member runs it, so the way back is
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
    EtcdFlags, ProofLevel, Request, SnapshotFlags, VerifyRequest,
};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use serde::{Deserialize, Serialize};

use super::intervals::POLL;
use super::read_access::readers;
use super::{ClusterJob, Member, Membership, Observed};
use holdfast_base::jobs::{self, JobState};
use holdfast_base::objects::job::{AgentJob, SCRATCH, job};
use holdfast_base::valid::{Version, Wanted};
use holdfast_base::{Act, Next, Wake, meta, objects, pods, rehearsal, saving, template};

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
    members.into_iter().any(|member| minor(&member.spec.process.version) != wanted)
}

/// Returns how the minor of the spec relates to those of the members.
pub(super) fn judge(seen: &Observed, target: Version) -> Minor {
    let own: Vec<Version> = seen.hosting().filter_map(rehearsal::version).collect();
    let record = seen.latches().upgrade;
    let from = record.as_ref().and_then(|record| minor(&record.from));
    relate(&own, record, seen.staying().any(|m| runs_minor(seen, m, from)), target)
}

/// Returns how a minor relates to the members' versions and the record of an upgrade. `earlier`: a member runs the minor from before.
pub(super) fn relate(own: &[Version], record: Option<UpgradeRecord>, earlier: bool, target: Version) -> Minor {
    let Some(other) = own.iter().filter(|own| own.minor != target.minor).min() else { return Minor::Same };
    let Some(record) = record else {
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
    let is_open = record.reversible && earlier;
    if to == Some(target.minor) || (from == Some(target.minor) && is_open) {
        return Minor::UnderWay;
    }
    let later = to.unwrap_or_default();
    if !is_open && own.iter().all(|own| Some(own.minor) == to) {
        return Minor::Refused(format!(
            "spec.version: every member has the version of the upgrade from {} to {}, and Holdfast has not recorded its end, because \
             the last member has not started or spec.paused is set. Set a version 3.{later}.Z until then",
            record.from, record.to
        ));
    }
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

/// Returns the refusal of a version with known defects.
pub(super) fn defect(target: Version) -> Option<String> {
    let (_, floor) = target.known_defect()?;
    Some(format!("spec.version: {target} has known defects. Set {floor} or a later patch"))
}

fn minor(text: &str) -> Option<u32> {
    Version::parse(text).map(|version| version.minor)
}

/// Whether a member has this minor, in its spec and by its own answer.
fn runs_minor(seen: &Observed, member: &Member, wanted: Option<u32>) -> bool {
    let answered = seen.known_answer(member.name()).and_then(|answer| minor(&answer.version));
    minor(&member.object.spec.process.version) == wanted && answered.is_none_or(|answered| Some(answered) == wanted)
}

/// Whether a member may go back to the template with which it served: of the same minor, or while there is a way back.
pub(super) fn may_have(seen: &Observed, member: &Member, served: &Template) -> bool {
    let reversible = seen.latches().upgrade.is_some_and(|record| record.reversible);
    minor(&served.version) == minor(&member.object.spec.process.version) || reversible
}

/// Returns the wait where a member runs an etcd of another minor than its spec says: the digest of the image belongs to another
/// version.
pub(super) fn another_etcd(seen: &Observed) -> Option<Next> {
    let differs = |m: &&Member| {
        let current = m.live_pod().is_some_and(|pod| pods::ready(pod) && template::is_current(pod, &m.object));
        let answered = seen.known_answer(m.name()).and_then(|answer| minor(&answer.version));
        current && answered.is_some() && answered != minor(&m.object.spec.process.version)
    };
    let member = seen.staying().find(differs)?;
    let runs = seen.known_answer(member.name()).map_or("", |answer| answer.version.as_str());
    let message = format!(
        "{} runs etcd {runs}, and spec.version is {}: spec.image.digest belongs to another version. Correct the digest, or remove it",
        member.name(),
        member.object.spec.process.version
    );
    // Another edit rolls.
    let asked_for = member.object.spec.process == template::wanted(&seen.cluster);
    asked_for.then(|| Next::wait(Reason::RolloutStuck, message, POLL))
}

/// Latches an upgrade whose record was lost with the status, while members have both minors. Its way back is unknown.
pub(super) fn resume(seen: &Observed, spec: &Wanted, now: Timestamp) -> Option<Next> {
    let target = spec.server.version;
    if judge(seen, target) != Minor::Lost {
        return None;
    }
    let record = UpgradeRecord {
        from: seen.hosting().filter_map(rehearsal::version).min()?.to_string(),
        to: target.to_string(),
        reversible: false,
        at: now.to_string(),
        ..UpgradeRecord::default()
    };
    Some(Next::act(Act::Latch(Box::new(Latches { upgrade: Some(record), ..seen.latches() }))))
}

/// The snapshot that an upgrade rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Snapshot {
    /// Name of the `EtcdSnapshot`.
    pub(super) name: String,
    /// Its key in the store.
    pub(super) key: Option<String>,
    /// Its revision.
    pub(super) revision: Option<i64>,
}

impl Snapshot {
    /// Returns the snapshot that an `EtcdSnapshot` holds.
    pub(super) fn describe(backup: &EtcdSnapshot) -> Self {
        let artifact = backup.status.as_ref().and_then(|status| status.artifact.as_ref());
        Self {
            name: meta::name(&backup.metadata).to_owned(),
            key: artifact.map(|artifact| artifact.key.clone()),
            revision: artifact.and_then(|artifact| artifact.revision),
        }
    }

    /// Returns the snapshot that a Job rehearses.
    pub(super) fn read(job: &Job) -> Option<Self> {
        serde_json::from_str(meta::annotation(&job.metadata, key::REHEARSES)?).ok()
    }
}

/// State of a rehearsal.
pub(super) enum Outcome {
    /// It passed, in so many seconds.
    Passed(Option<i64>),
    /// It failed, or a person has to act.
    Failed(String),
    /// The members' databases differ from etcd's member list.
    Differ(ComparedReport),
    /// Nothing is known yet.
    Running(String),
}

/// Returns the state of a rehearsal.
pub(super) fn outcome(found: &ClusterJob, seen: &Observed, now: Timestamp) -> Outcome {
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
pub(super) fn differ(seen: &Observed, target: Version, found: &ComparedReport) -> String {
    let present =
        seen.staying().filter_map(rehearsal::version).max().map_or_else(String::new, |present| present.to_string());
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
    let of_3_5 = rehearsal::has_members_of_3_5(seen);
    let meta = &seen.cluster.metadata;
    let (name, namespace) = (meta::name(meta), meta.namespace.as_deref().unwrap_or_default());
    let scheme = seen.cluster.scheme();
    let endpoints = seen.staying().map(|member| name::client_url(scheme, member.name(), name, namespace)).collect();
    of_3_5.then(|| CompareRequest {
        etcd: EtcdFlags { endpoints, ..EtcdFlags::default() },
        expect_cluster_id: seen.latches().formed.map(|formed| formed.cluster_id),
        member_seconds: DEFAULT_MEMBER_SECONDS,
        json: false,
        deadline_seconds: DEFAULT_COMPARE_SECONDS,
    })
}

/// Returns why an encrypted snapshot is not rehearsed: the spec names no identity.
pub(super) fn lacks_identity(cluster: &EtcdCluster, backup: &EtcdSnapshot) -> Option<String> {
    let encrypted = backup.status.as_ref()?.artifact.as_ref()?.encrypted;
    let snapshot = meta::name(&backup.metadata);
    (encrypted && cluster.spec.upgrade().identity_secret_refs.is_empty()).then(|| {
        format!(
            "the EtcdSnapshot {snapshot} is encrypted, and the spec names no identity to rehearse with. Name the Secret with an \
             identity in spec.upgrade.identitySecretRefs, or set spec.upgrade.rehearse to false"
        )
    })
}

/// Returns the Job that compares the members and restores the snapshot in the image of the next version.
pub(super) fn start(seen: &Observed, target: Version, backup: &EtcdSnapshot, named: &str) -> Result<Job, String> {
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
    if let Some(why) = lacks_identity(&seen.cluster, backup) {
        return Err(why);
    }
    let request = VerifyRequest {
        snapshot: SnapshotFlags { key: Some(artifact.key.clone()), ..SnapshotFlags::default() },
        level: ProofLevel::Drill,
        bin_dir: Some(PathBuf::from(PROGRAMS)),
        scratch: PathBuf::from(SCRATCH),
        // The proof would say that the snapshot was drilled with its own version.
        no_proof: true,
        write: true,
        deadline_seconds: DEFAULT_READ_DEADLINE_SECONDS,
        ..VerifyRequest::default()
    };
    let spec = &seen.cluster.spec;
    let image = objects::etcd_image(spec.image.as_ref(), &target.to_string(), &seen.settings.etcd_repository);
    // As the snapshot's own agent reached the store, with the resources of a member.
    let own = backup.spec.template.agent.clone().unwrap_or_default();
    let agent = Agent { resources: Some(spec.resources.clone().unwrap_or_else(objects::member_requests)), ..own };
    let mut job = job(&AgentJob {
        namespace: meta.namespace.clone(),
        owner: Some(objects::owner(&seen.cluster)),
        cluster: Some(meta::name(meta).to_owned()),
        snapshot: Some(snapshot.to_owned()),
        external: saving::with_certificates(Some(&seen.cluster), vec![]),
        compares: comparison(seen),
        spool: spec.upgrade().scratch,
        identities: spec.upgrade().identity_secret_refs,
        etcd_image: Some((image, objects::pull_policy(spec.image.as_ref()).to_owned())),
        agent,
        placement: spec.placement.clone(),
        proxies: seen.settings.proxies.clone(),
        run_as: seen.settings.pod_run_as,
        ..AgentJob::new(named.to_owned(), Request::Verify(request), readers(place), seen.settings.agent_image.clone())
    });
    let names = serde_json::to_string(&Snapshot::describe(backup)).unwrap_or_default();
    job.metadata.annotations.get_or_insert_default().insert(key::REHEARSES.to_owned(), names);
    Ok(job)
}

/// Withdraws the way back before the last member gets the next minor.
pub(super) fn close_way_back(seen: &Observed, member: &Member) -> Option<Next> {
    let record = seen.latches().upgrade.filter(|record| record.reversible)?;
    if minor(&seen.cluster.spec.version) != minor(&record.to) {
        return None;
    }
    let earlier = |m: &Member| runs_minor(seen, m, minor(&record.from));
    let own = minor(&member.object.spec.process.version) == minor(&record.from);
    let last = own && !seen.staying().any(|m| m.name() != member.name() && earlier(m));
    last.then(|| {
        let record = UpgradeRecord { reversible: false, ..record };
        Next::act(Act::Latch(Box::new(Latches { upgrade: Some(record), ..seen.latches() })))
    })
}

/// Removes the record of an upgrade after every member serves with one minor.
pub(super) fn finish(seen: &Observed, now: Timestamp) -> Option<Next> {
    let latches = seen.latches();
    let record = latches.upgrade.as_ref()?;
    if asks_for_another_minor(&seen.cluster, seen.hosting().map(|member| &member.object)) {
        return None;
    }
    let (own, newest) = (
        minor(&seen.cluster.spec.version),
        seen.answers.values().filter_map(|answer| Some(answer.known()?.applied_index)).max(),
    );
    let log_since = match own {
        Some(6) if minor(&record.from) == Some(5) => newest.and_then(|index| i64::try_from(index).ok()),
        Some(5 | 6) => latches.log_since,
        _ => None,
    };
    let upgrade_ended_at = Some(now.to_string());
    Some(Next::act(Act::Latch(Box::new(Latches { upgrade: None, upgrade_ended_at, log_since, ..latches }))))
}

/// Entries between two raft snapshots where `options.snapshotCount` is absent (etcd 3.6: `DefaultSnapshotCount`).
const SNAPSHOT_COUNT: u64 = 10_000;

/// Entries that etcd may apply in one step, before it takes a due raft snapshot.
const IN_FLIGHT: u64 = 2_000;

/// Entries of one act.
const PART: u64 = 2_000;

/// Returns the entries that are missing until every member has taken a raft snapshot after the last entry of etcd 3.5: etcd 3.7 ends
/// when it reads such an entry (etcd 3.6 still translates them: `v2ToV3Request`).
pub(super) fn fill_log(seen: &Observed, spec: &Wanted, etcd: &Membership) -> Option<Next> {
    let since = seen.latches().log_since.filter(|_| spec.server.version.minor >= 7)?;
    let of_member = |m: &Member| m.object.spec.process.options.as_ref().and_then(|options| options.snapshot_count);
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
