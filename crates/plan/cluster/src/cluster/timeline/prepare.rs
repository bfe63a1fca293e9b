//! The preparation of a return, while the cluster serves: the data is on a new claim, proven, before a client is led away.
//!
//! Decides when a return begins, the revision of its data, and when its member is made. The member's pass restores the data in a Pod
//! without etcd (`member/pod.rs`).

use holdfast_api::cluster::Latches;
use holdfast_api::condition::Reason;
use holdfast_api::restore::Restoring;
use holdfast_api::timeline::{self, OnReturnFailure, PhaseStart, ReturnPhase, Returning};
use holdfast_contract::{Report, RestoredReport};
use jiff::Timestamp;

use super::super::{Member, Membership, Observed, bootstrap, health, restore, roll};
use super::record::{self, fail, wait};
use super::{start, survivor};
use holdfast_base::objects::{self, container};
use holdfast_base::{Act, Next, Target, Waiting, meta, pods};

/// Returns the first step of the return whose turn it is; `None`: there is none, or it has to wait.
pub(super) fn begin(seen: &Observed, etcd: &Membership, now: Timestamp) -> Option<Next> {
    let asked = seen.returns.as_ref().filter(|restore| restore.spec.from.is_some())?;
    if blocked(seen, etcd).is_some() {
        return None;
    }
    let restoring = match restore::wanted(seen, now) {
        Ok(restoring) => raised(seen, restoring?)?,
        // The search for the newest snapshot is a Job.
        Err(next) => return Some(*next).filter(|next| matches!(next, Next::Do(..))),
    };
    let returning = Returning {
        name: meta::name(&asked.metadata).to_owned(),
        uid: meta::uid(&asked.metadata).to_owned(),
        timeline: asked.spec.timeline,
        phases: vec![PhaseStart { phase: ReturnPhase::Preparing, at: now.to_string() }],
        deadline_seconds: asked.spec.deadline(),
        keep_earlier_seconds: asked.spec.keep_earlier(),
        stays: asked.spec.on_failure == Some(OnReturnFailure::Stay),
        restoring: Some(restoring),
        member: Some(seen.fresh_name()),
        earlier: seen.latches().formed,
        ..Returning::default()
    };
    Some(record::latch(Latches { returning: Some(returning), ..seen.latches() }))
}

/// Returns why the return whose turn it is waits.
pub(super) fn hindrance(seen: &Observed, etcd: &Membership, now: Timestamp) -> Option<Waiting> {
    seen.returns.as_ref()?;
    let blocked = blocked(seen, etcd).map(|message| Waiting { reason: Reason::Returning, message });
    blocked.or_else(|| match restore::wanted(seen, now) {
        Err(next) => match *next {
            Next::Wait(waiting, _) => Some(waiting),
            Next::Do(..) | Next::Settled(_) => None,
        },
        Ok(_) => None,
    })
}

/// Returns why no return begins now: each change of the cluster ends first.
fn blocked(seen: &Observed, etcd: &Membership) -> Option<String> {
    let (spec, latches) = (&seen.cluster.spec, seen.latches());
    if spec.storage.in_memory() {
        return Some("spec.storage.medium of the EtcdCluster is Memory: there is no claim to return to".to_owned());
    }
    if spec.replicas == 0 {
        return Some(
            "spec.replicas of the EtcdCluster is 0: a parked cluster returns after it serves again".to_owned(),
        );
    }
    // The object of a removed member keeps a claim for a day, and is no member any more.
    let present = || seen.members.iter().filter(|m| !m.removed());
    let whole = |m: &Member| m.joined() && m.stays() && !m.deleting() && m.object.spec.parked.is_none();
    let changes = latches.upgrade.is_some()
        || latches.defragmenting.is_some()
        || latches.orphan.is_some()
        || etcd.members.len() != present().count()
        || etcd.members.iter().any(|listed| listed.learner)
        || !present().all(whole);
    let rolls = present().any(|m| !roll::is_updated(&seen.cluster, m));
    if changes || rolls {
        return Some("the EtcdCluster changes its members or their template, or an upgrade or a defragmentation is under way: the return begins afterwards".to_owned());
    }
    (health::healthy(seen, etcd).len() * 2 <= etcd.members.len())
        .then(|| "too few voters of the EtcdCluster answer: the return begins when a quorum is healthy".to_owned())
}

/// Returns the restore with a bump that takes its first revision above each that a client may have seen (I10).
fn raised(seen: &Observed, restoring: Restoring) -> Option<Restoring> {
    let present = revision(seen)?;
    let asked = restoring.revision_bump.unwrap_or_default().max(holdfast_contract::DEFAULT_REVISION_BUMP.cast_signed());
    Some(Restoring { revision_bump: Some(asked.saturating_add(present)), ..restoring })
}

/// Returns the highest revision that a member has answered with.
pub(super) fn revision(seen: &Observed) -> Option<i64> {
    seen.answers.values().filter_map(|answer| Some(answer.known()?.revision)).max()
}

/// Returns the end of a preparation that is not wanted any more, or late. It needs no etcd.
pub(super) fn give_up(seen: &Observed, returning: &Returning, now: Timestamp) -> Option<Next> {
    if !record::is_wanted(seen, returning) {
        return Some(fail(seen, returning, "the EtcdRestore was deleted", now));
    }
    let late = record::is_over(returning, returning.deadline_seconds, now);
    let member = seen.others.iter().find(|m| Some(m.name()) == returning.member.as_deref());
    late.then(|| {
        let why = match member {
            Some(member) if restored(member).is_some() => "the cluster was not fit to be led away in time".to_owned(),
            Some(member) => {
                format!("the data was not restored. The condition of EtcdMember {} names the cause", member.name())
            }
            None => "its first member was not made".to_owned(),
        };
        fail(seen, returning, &format!("after {} s (spec.deadlineSeconds) {why}", returning.deadline_seconds), now)
    })
}

/// Returns the next step of a return that has begun.
pub(super) fn next(seen: &Observed, returning: &Returning, is_sound: bool, now: Timestamp) -> Next {
    let (Some(restoring), Some(named)) = (&returning.restoring, &returning.member) else {
        return fail(seen, returning, "the record of the return lacks its restore", now);
    };
    let next_timeline = |m: &&Member| timeline::of_member(&m.object) == returning.timeline;
    // Of a record that was lost with the status.
    if let Some(other) = seen.others.iter().filter(next_timeline).find(|m| m.name() != named) {
        if other.deleting() {
            return wait(format!("{}: {} goes", record::waits_for(returning), other.name()));
        }
        let why = "the return that it was prepared for has lost its record".to_owned();
        return Next::act(Act::DeleteMember { member: Target::from(&other.object.metadata), why });
    }
    let Some(member) = seen.others.iter().find(next_timeline) else {
        if let Some(wait) = bootstrap::until_pruned(seen, Some(restoring)) {
            return wait;
        }
        // I2, I9: the member of the next timeline gets no etcd before that timeline begins.
        let mut seed = objects::member::seed(&seen.cluster, named, Some(restoring.clone()));
        seed.spec.timeline = Some(returning.timeline);
        return Next::act(Act::CreateMember(Box::new(seed)));
    };
    if let Some(report) = restored(member) {
        return prepared(seen, returning, (member, &report), is_sound, now);
    }
    wait(record::waits_for(returning))
}

/// Whether the prepared data is still there, before a member is set aside for it.
pub(super) fn is_there(seen: &Observed, returning: &Returning) -> bool {
    let own = |m: &&Member| Some(m.name()) == returning.member.as_deref() && !m.deleting();
    let claim = seen.others.iter().find(own).and_then(Member::live_claim);
    claim.is_some_and(|claim| Some(meta::uid(&claim.metadata)) == returning.claim_uid.as_deref())
}

/// Returns the report of a restore that is complete.
fn restored(member: &Member) -> Option<RestoredReport> {
    let pod = member.live_pod().filter(|pod| pods::prepares(pod) && pods::ended(pod))?;
    match pods::report(pod, container::RESTORE)? {
        Report::Restored(report) => Some(report),
        _ => None,
    }
}

/// Records the revisions, and leads clients away next; a revision that a client may have seen ends the return (I10).
fn prepared(
    seen: &Observed,
    returning: &Returning,
    (member, report): (&Member, &RestoredReport),
    is_sound: bool,
    now: Timestamp,
) -> Next {
    let Some(restored) = report.revision else {
        return fail(seen, returning, "the restore has reported no revision", now);
    };
    let first = restored.saturating_add_unsigned(report.revision_bump);
    let record = Returning {
        first_revision: Some(first),
        restored_revision: Some(restored),
        claim_uid: member.live_claim().map(|claim| meta::uid(&claim.metadata).to_owned()),
        ..returning.clone()
    };
    if returning.survivor().is_some() {
        return survived(seen, returning, (record, report), is_sound, now);
    }
    if seen.etcd.known().is_none() || !is_sound {
        return wait("the data is restored. Before clients are led away, a linearizable read has to succeed, and the spec and its certificates have to be accepted".to_owned());
    }
    if revision(seen).is_none_or(|present| present >= first) {
        let why =
            "the cluster has written more revisions than the restored data was raised by. Create another EtcdRestore";
        return fail(seen, returning, why, now);
    }
    let saves = seen.returns.as_ref().is_some_and(|restore| restore.spec.safety_snapshot.is_some());
    let phase = if saves { ReturnPhase::Saving } else { ReturnPhase::SettingAside };
    record::write(seen, record.entering(phase, now))
}

/// Begins the next timeline with a survivor's data; a revision that a client may have seen ends the return (I10).
fn survived(
    seen: &Observed,
    returning: &Returning,
    (record, report): (Returning, &RestoredReport),
    is_sound: bool,
    now: Timestamp,
) -> Next {
    let found = report.survivor.as_deref().ok_or_else(|| "the restore has reported no survivor".to_owned());
    let log = match found.and_then(|found| survivor::check_report(seen, returning, found)) {
        Ok(log) => log,
        Err(why) => return fail(seen, returning, &why, now),
    };
    if !is_sound {
        return wait(
            "the data is restored. Before its first member starts, the spec and its certificates have to be accepted"
                .to_owned(),
        );
    }
    if returning.earlier_revision >= record.first_revision {
        return fail(seen, returning, "the survivor is too far behind the others: its revisions would come twice", now);
    }
    start::begin(seen, Returning { survivor_log: Some(log), ..record }, now)
}
