//! A return to the data of one member, after a majority of the members is lost for good.
//!
//! Decides when such a return begins: a person named the member and accepts what the others had, `silent.rs` says that the quorum is
//! lost, and kubelet finds no member ready. `set_aside.rs` ends all Pods first, because only then the volume can be read; `prepare.rs`
//! makes the data of the next timeline from it. The survivor's claim is read and never written.

use holdfast_api::cluster::Latches;
use holdfast_api::condition::Reason;
use holdfast_api::restore::Restoring;
use holdfast_api::store::{Location, PvcLocation, StoredSnapshot};
use holdfast_api::timeline::{FromMember, PhaseStart, ReturnPhase, Returning, SurvivorLog};
use holdfast_api::{EtcdRestore, name};
use holdfast_contract::{DEFAULT_REVISION_BUMP, SurvivorReport};
use jiff::Timestamp;

use super::super::{Member, Observed, silent};
use super::record;
use holdfast_base::valid::Version;
use holdfast_base::{Next, Seen, Waiting, fingerprint, meta, pods};

/// The `EtcdRestore` whose turn it is, where it names a member.
pub(super) fn asked(seen: &Observed) -> Option<(&EtcdRestore, &FromMember)> {
    let restore = seen.returns.as_ref()?;
    Some((restore, restore.spec.from_member.as_ref()?))
}

/// Returns the first step of the return; `None`: none is asked for, or it has to wait.
pub(super) fn begin(seen: &Observed, now: Timestamp) -> Option<Next> {
    let (restore, _) = asked(seen).filter(|_| hindrance(seen, now).is_none())?;
    Some(record::latch(Latches { returning: Some(first_record(seen, restore, now)?), ..seen.latches() }))
}

/// Returns why the return whose turn it is does not begin.
pub(super) fn hindrance(seen: &Observed, now: Timestamp) -> Option<Waiting> {
    let (restore, from) = asked(seen)?;
    let waits = |(reason, message)| Waiting { reason, message };
    match find(seen, restore, from) {
        Ok(member) => blocked(seen, from, member, now).map(waits),
        Err(message) => Some(waits((Reason::InvalidSpec, message))),
    }
}

/// Returns the record of the return, in its first phase; `None`: the EtcdRestore names no member with a volume.
pub(super) fn first_record(seen: &Observed, restore: &EtcdRestore, now: Timestamp) -> Option<Returning> {
    let member = find(seen, restore, restore.spec.from_member.as_ref()?).ok()?;
    let uid = meta::uid(&restore.metadata);
    Some(Returning {
        name: meta::name(&restore.metadata).to_owned(),
        uid: uid.to_owned(),
        timeline: restore.spec.timeline,
        phases: vec![PhaseStart { phase: ReturnPhase::SettingAside, at: now.to_string() }],
        deadline_seconds: restore.spec.deadline(),
        // The claims are the only copies until the next timeline serves: each of its three phases may last that long.
        keep_earlier_seconds: restore.spec.keep_earlier().saturating_add(restore.spec.deadline().saturating_mul(3)),
        restoring: Some(restoring(seen, uid, member)?),
        member: Some(seen.fresh_name()),
        earlier: seen.latches().formed,
        ..Returning::default()
    })
}

/// Finds the named member, with its volume; an error is a sentence about the field.
fn find<'a>(seen: &'a Observed, restore: &EtcdRestore, from: &FromMember) -> Result<&'a Member, String> {
    let named = &from.name;
    let uid = meta::uid(&restore.metadata);
    // The data of an earlier timeline, or of a member that etcd has removed, is no survivor's.
    let own = |m: &&Member| m.object.spec.aside.as_ref().is_some_and(|aside| aside.restore_uid == uid);
    let members = || seen.members.iter().chain(seen.others.iter().filter(own)).filter(|m| m.joined() && !m.removed());
    let survivors = || {
        let names: Vec<&str> = members().filter(|m| m.live_claim().is_some()).map(Member::name).collect();
        if names.is_empty() {
            "No member of this cluster has a volume".to_owned()
        } else {
            format!("Delete this EtcdRestore, and create another one that names one of {}", names.join(", "))
        }
    };
    match members().find(|member| member.name() == *named) {
        None => Err(format!("spec.fromMember.name: the cluster has no member {named}. {}", survivors())),
        Some(member) if member.live_claim().is_none() => {
            Err(format!("spec.fromMember.name: {named} has no volume. {}", survivors()))
        }
        Some(member) => Ok(member),
    }
}

/// Whether a quorum is known to be there: etcd answers, or kubelet finds a member ready, which is a linearizable read too (I1).
fn has_quorum(seen: &Observed) -> bool {
    let ready = |m: &Member| m.live_pod().is_some_and(pods::ready);
    seen.etcd.known().is_some() || silent::locked_out(seen).is_some() || seen.members.iter().any(ready)
}

/// Returns why the return does not begin now.
fn blocked(seen: &Observed, from: &FromMember, member: &Member, now: Timestamp) -> Option<(Reason, String)> {
    if has_quorum(seen) {
        let message = "the EtcdCluster has a quorum: a linearizable read succeeds, or kubelet finds a member ready";
        return Some((Reason::Returning, message.to_owned()));
    }
    let Seen::Unknown(why) = &seen.etcd else { return None };
    // Members that start, or that the operator cannot ask, are not lost.
    if let Next::Wait(waiting, _) = silent::wait(seen, why, now)
        && waiting.reason != Reason::QuorumLost
    {
        let message = format!("the quorum is not known to be lost: {}", waiting.message);
        return Some((Reason::Returning, message));
    }
    let (wanted, runs) = (&seen.cluster.spec.version, &member.object.spec.process.version);
    let minor = |version: &str| Version::parse(version).map(|version| version.minor);
    if minor(wanted) != minor(runs) {
        let message = format!(
            "spec.version of the EtcdCluster is {wanted}, and {} runs {runs}: its log is applied by its own minor. Set \
             spec.version to {runs}, and upgrade after the return",
            member.name()
        );
        return Some((Reason::InvalidSpec, message));
    }
    at_risk(seen, member).filter(|_| !from.accept_loss).map(|message| (Reason::InvalidSpec, message))
}

/// Returns the sentence about the members that may have acknowledged writes that the survivor lacks: an applied index tells how much a
/// log has at least.
fn at_risk(seen: &Observed, survivor: &Member) -> Option<String> {
    let status = seen.cluster.status.as_ref();
    let recorded = |name: &str| status?.members.iter().find(|it| it.name == name)?.data_end.clone();
    let describe = |member: &Member| match recorded(member.name()) {
        Some(end) => format!("{} ({end})", member.name()),
        None => format!("{} (unknown)", member.name()),
    };
    let others = seen.members.iter().filter(|m| m.name() != survivor.name() && m.joined() && !m.removed());
    let mut others: Vec<String> = others.map(describe).collect();
    let listed = status.map_or(0, |status| usize::try_from(status.voters).unwrap_or(0));
    let absent = listed.saturating_sub(others.len() + 1);
    if absent > 0 {
        others.push(format!("{absent} voters without an EtcdMember"));
    }
    (!others.is_empty()).then(|| {
        format!(
            "spec.fromMember.acceptLoss is not set, and {} may have acknowledged writes that {} lacks. Wait for them; or \
             delete this EtcdRestore, and create another one with acceptLoss: true (runbook QuorumLost)",
            others.join(", "),
            describe(survivor)
        )
    })
}

/// Returns the restore of the survivor's volume. Another EtcdRestore is another attempt.
fn restoring(seen: &Observed, restore_uid: &str, member: &Member) -> Option<Restoring> {
    let claim = member.live_claim()?;
    let parts = [meta::uid(&seen.cluster.metadata), restore_uid, meta::uid(&claim.metadata)];
    let claim_name = name::claim(member.name());
    let source = StoredSnapshot::at(
        Location::Pvc(PvcLocation { claim_name, ..PvcLocation::default() }),
        member.name().to_owned(),
    );
    Some(Restoring {
        restore_uid: fingerprint::hash_parts(parts),
        source,
        survivor: Some(member.name().to_owned()),
        // I10: the others may have served some revisions more than the survivor has.
        revision_bump: Some(DEFAULT_REVISION_BUMP.cast_signed()),
        ..Restoring::default()
    })
}

/// Whether a return that is under way may still end Pods (I2): no quorum answers, and the survivor's volume is there.
pub(super) fn still_lost(seen: &Observed, returning: &Returning) -> Result<(), &'static str> {
    if has_quorum(seen) {
        return Err("the cluster has a quorum again");
    }
    survivor_of(seen, returning).and_then(Member::live_claim).map(drop).ok_or("the survivor's claim is gone")
}

/// Returns the member whose data a return goes on from.
fn survivor_of<'a>(seen: &'a Observed, returning: &Returning) -> Option<&'a Member> {
    seen.members.iter().chain(&seen.others).find(|member| Some(member.name()) == returning.survivor())
}

/// Compares the volume's own record with the member that it was to be of; an error is the cause of a failure.
pub(super) fn check_report(
    seen: &Observed,
    returning: &Returning,
    report: &SurvivorReport,
) -> Result<SurvivorLog, String> {
    let named = returning.survivor().unwrap_or_default();
    let member = survivor_of(seen, returning);
    let joined = member.and_then(|member| member.object.spec.joined.as_ref());
    let is_own = joined.is_some_and(|it| it.cluster_id == report.cluster_id && it.member_id == report.member_id);
    if !is_own {
        return Err(format!(
            "the volume of {named} holds the data of member {} of etcd cluster {}, and not its own",
            report.member_id, report.cluster_id
        ));
    }
    let recorded = member.and_then(|member| member.object.spec.aside.as_ref()?.index);
    if let Some(applied) = recorded.filter(|applied| report.last_index < *applied) {
        return Err(format!(
            "the volume of {named} is an older copy: its log ends at raft index {}, and the member had applied {applied} before \
             its Pod ended",
            report.last_index
        ));
    }
    Ok(SurvivorLog { last_index: report.last_index, last_term: report.last_term, beyond_commit: report.beyond_commit })
}
