//! A return to the data of one member, after a majority of the members is lost for good.
//!
//! Decides when such a return begins: a person named the member, no linearizable read succeeds, kubelet finds no member ready, and each
//! other voter is known to have no longer log, or the person accepts the loss. `set_aside.rs` ends all Pods first, because only then
//! the volume can be read; `prepare.rs` makes the data of the next timeline from it. The survivor's claim is read and never written.

use holdfast_api::cluster::Latches;
use holdfast_api::condition::Reason;
use holdfast_api::restore::Restoring;
use holdfast_api::store::{Location, PvcLocation, StoredSnapshot};
use holdfast_api::timeline::{FromMember, OnReturnFailure, PhaseStart, ReturnPhase, Returning, SurvivorLog};
use holdfast_api::{EtcdRestore, name};
use holdfast_contract::{DEFAULT_REVISION_BUMP, SurvivorReport};
use jiff::Timestamp;

use super::super::{Member, Observed, silent};
use super::record;
use holdfast_base::{Next, Seen, Waiting, fingerprint, meta, pods};

/// The `EtcdRestore` whose turn it is, where it names a member.
pub(super) fn asked(seen: &Observed) -> Option<(&EtcdRestore, &FromMember)> {
    let restore = seen.returns.as_ref()?;
    Some((restore, restore.spec.from_member.as_ref()?))
}

/// Returns the first step of the return; `None`: none is asked for, or it has to wait.
pub(super) fn begin(seen: &Observed, now: Timestamp) -> Option<Next> {
    let (restore, from) = asked(seen)?;
    let member = find(seen, restore, from).ok()?;
    if blocked(seen, from, member).is_some() {
        return None;
    }
    Some(record::latch(Latches { returning: Some(record(seen, restore, member, now)?), ..seen.latches() }))
}

/// Returns why the return whose turn it is does not begin.
pub(super) fn hindrance(seen: &Observed) -> Option<Waiting> {
    let (restore, from) = asked(seen)?;
    let waits = |(reason, message)| Waiting { reason, message };
    match find(seen, restore, from) {
        Ok(member) => blocked(seen, from, member).map(waits),
        Err(message) => Some(waits((Reason::InvalidSpec, message))),
    }
}

/// Returns the record of the return, in its first phase.
pub(super) fn record(seen: &Observed, restore: &EtcdRestore, member: &Member, now: Timestamp) -> Option<Returning> {
    let uid = meta::uid(&restore.metadata);
    Some(Returning {
        name: meta::name(&restore.metadata).to_owned(),
        uid: uid.to_owned(),
        timeline: restore.spec.timeline,
        phases: vec![PhaseStart { phase: ReturnPhase::SettingAside, at: now.to_string() }],
        deadline_seconds: restore.spec.deadline(),
        keep_earlier_seconds: restore.spec.keep_earlier(),
        stays: restore.spec.on_failure == Some(OnReturnFailure::Stay),
        restoring: Some(restoring(seen, uid, member)?),
        member: Some(seen.fresh_name()),
        earlier: seen.latches().formed,
        ..Returning::default()
    })
}

/// Finds the named member, with its volume; an error is a sentence about the field.
pub(super) fn find<'a>(seen: &'a Observed, restore: &EtcdRestore, from: &FromMember) -> Result<&'a Member, String> {
    let named = &from.name;
    // The data of an earlier timeline is no survivor's.
    let own = |m: &&Member| {
        m.object.spec.aside.as_ref().is_some_and(|aside| aside.restore_uid == meta::uid(&restore.metadata))
    };
    let members = seen.members.iter().chain(seen.others.iter().filter(own));
    let member = members.into_iter().find(|member| member.name() == named);
    let survivors = || {
        let whole = seen.members.iter().filter(|member| member.joined() && member.live_claim().is_some());
        let names: Vec<&str> = whole.map(Member::name).collect();
        if names.is_empty() {
            "No member of this cluster has a volume".to_owned()
        } else {
            format!("Name one of {}", names.join(", "))
        }
    };
    match member {
        None => Err(format!("spec.fromMember.name: the cluster has no EtcdMember {named}. {}", survivors())),
        Some(member) if !member.joined() => {
            Err(format!("spec.fromMember.name: {named} has never served. {}", survivors()))
        }
        Some(member) if member.live_claim().is_none() => {
            Err(format!("spec.fromMember.name: {named} has no volume. {}", survivors()))
        }
        Some(member) => Ok(member),
    }
}

/// Returns why the return does not begin now.
fn blocked(seen: &Observed, from: &FromMember, member: &Member) -> Option<(Reason, String)> {
    let spec = &seen.cluster.spec;
    let waits = |message: &str| Some((Reason::Returning, message.to_owned()));
    if spec.replicas == 0 {
        return waits("spec.replicas of the EtcdCluster is 0: a parked cluster returns after spec.replicas is raised");
    }
    if seen.etcd.known().is_some() || silent::locked_out(seen).is_some() {
        // `returns.rs` ends the object, so that it does not wait for the next short silence.
        return waits("a linearizable read of the EtcdCluster succeeds, so it has a quorum");
    }
    // I1: the operator's own way to etcd may be interrupted. kubelet probes with a linearizable read too.
    if let Some(ready) = seen.members.iter().find(|m| m.live_pod().is_some_and(pods::ready)) {
        return Some((
            Reason::Returning,
            format!(
                "kubelet finds {} ready, so the EtcdCluster has a quorum, and only the operator does not reach etcd: check the \
                 NetworkPolicies",
                ready.name()
            ),
        ));
    }
    if !from.accept_loss {
        return at_risk(seen, member).map(|message| (Reason::InvalidSpec, message));
    }
    None
}

/// Returns the sentence about the members that may have acknowledged writes that the survivor lacks.
fn at_risk(seen: &Observed, survivor: &Member) -> Option<String> {
    let status = seen.cluster.status.as_ref();
    let recorded = |name: &str| status?.members.iter().find(|it| it.name == name)?.data_end.clone();
    let end = |member: &Member| {
        let answer = seen.known_answer(member.name()).map(|answer| (answer.term, answer.applied_index));
        answer.or_else(|| recorded(member.name()).map(|end| (end.term, end.index)))
    };
    let own = end(survivor);
    let others = seen.members.iter().filter(|m| m.name() != survivor.name() && m.joined() && !m.removed());
    let risky: Vec<String> = others
        .filter(|other| own.is_none() || end(other) > own || end(other).is_none())
        .map(|other| match end(other) {
            Some((term, index)) => format!("{} (term {term}, index {index})", other.name()),
            None => format!("{} (unknown)", other.name()),
        })
        .collect();
    let own = own.map_or_else(|| "unknown".to_owned(), |(term, index)| format!("term {term}, index {index}"));
    (!risky.is_empty()).then(|| {
        format!(
            "spec.fromMember.acceptLoss is not set, and {} may have acknowledged writes that {} ({own}) lacks. Wait for these \
             members, or create another EtcdRestore with acceptLoss: true (runbook QuorumLost)",
            risky.join(", "),
            survivor.name(),
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
    if matches!(seen.etcd, Seen::Known(_)) {
        return Err("a linearizable read succeeds again: the cluster has a quorum");
    }
    let named = returning.survivor();
    let claim = seen.members.iter().chain(&seen.others).find(|m| Some(m.name()) == named).and_then(Member::live_claim);
    claim.map(drop).ok_or("the survivor's claim is gone")
}

/// Compares the volume's own record with the member that it was to be of; an error is the cause of a failure.
pub(super) fn check_report(
    seen: &Observed,
    returning: &Returning,
    report: &SurvivorReport,
) -> Result<SurvivorLog, String> {
    let named = returning.survivor().unwrap_or_default();
    let member = seen.members.iter().chain(&seen.others).find(|m| m.name() == named);
    let joined = member.and_then(|member| member.object.spec.joined.as_ref());
    let is_own = joined.is_some_and(|it| it.cluster_id == report.cluster_id && it.member_id == report.member_id);
    if !is_own {
        return Err(format!(
            "the volume of {named} holds the data of member {} of etcd cluster {}, and not its own",
            report.member_id, report.cluster_id
        ));
    }
    Ok(SurvivorLog { last_index: report.last_index, last_term: report.last_term, beyond_commit: report.beyond_commit })
}
