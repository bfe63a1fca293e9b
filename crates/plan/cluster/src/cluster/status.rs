//! A cluster's whole status, on every pass, also while etcd is silent.
//!
//! Decides the report, never an act. The status keeps the latches: only their own act changes them. Messages hold times, never
//! ages, so that Holdfast writes nothing while nothing happens (I17).

use holdfast_api::cluster::MemberSummary;
use holdfast_api::condition::{self, Reason, Type, Wanted as Condition, merge};
use holdfast_api::member::{Departure, LastFailure};
use holdfast_api::timeline::FIRST;
use holdfast_api::{EtcdClusterStatus, key, name, role};
use holdfast_contract::hex_id;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use super::{
    Listed, Member, Membership, Observed, alarms, backups, defragment, diverged, enlarge, last_snapshot, latest,
    lineage, memberless, move_leader, park, replace, restore, retention, risk, roll, shrink, silent, timeline, tls,
    transport,
};
use holdfast_base::certificate::Kept;
use holdfast_base::objects;
use holdfast_base::valid::Wanted;
use holdfast_base::{Act, Next, Seen, failure, meta, pods};

/// Returns the whole status before the next act.
pub(super) fn whole(seen: &Observed, wanted: Option<&Wanted>, next: &Next, now: Timestamp) -> EtcdClusterStatus {
    let meta = &seen.cluster.metadata;
    let old = seen.cluster.status.clone().unwrap_or_default();
    let etcd = seen.own_etcd();
    let members = memberless::summaries(seen, &old.members).unwrap_or_else(|| summaries(seen, etcd, &old.members, now));
    let voters = etcd.map_or(old.voters, |e| count(e.members.iter().filter(|l| !l.learner)));
    let ready_members = count(seen.members.iter().filter(|m| seen.votes(etcd, m) && ready(m)));
    let facts = Facts { seen, wanted, next, etcd, voters, ready: ready_members, now };
    EtcdClusterStatus {
        observed_generation: meta.generation,
        cluster_id: old.latches.formed.as_ref().map(|f| f.cluster_id.clone()),
        cluster_token: memberless::token(seen).or_else(|| Some(objects::member::token(&seen.cluster))),
        ready_members,
        voters,
        broken_members: count(
            seen.staying().filter(|m| members.iter().any(|known| known.name == m.name() && known.evidence.is_some())),
        ),
        volume_size: enlarge::smallest(seen).or(old.volume_size),
        updated_members: count(seen.staying().filter(|m| roll::is_updated(&seen.cluster, m))),
        retention: retention::in_force(seen, old.retention),
        selector: Some(objects::as_text(&objects::voters(&seen.cluster))),
        endpoint: Some(name::endpoint(
            seen.cluster.scheme(),
            meta::name(meta),
            meta.namespace.as_deref().unwrap_or_default(),
        )),
        timeline: Some(seen.timeline()).filter(|timeline| *timeline > FIRST),
        transport: transport::reached(seen),
        tls: tls::status(seen, now)
            .or(old.tls.filter(|_| seen.certificates.is_some() || seen.unread_certificates.is_some())),
        last_snapshot: backups::last(old.last_snapshot, seen.last_snapshot.clone()),
        leader: etcd.and_then(|e| leader(seen, e)),
        version: seen.lowest_version().map(|v| v.to_string()).or(old.version),
        members,
        restore: lineage::status(seen, old.restore),
        held_up: latest::held_up(seen, next, now).map(|held| held.recorded(old.held_up.as_ref(), now)),
        conditions: merge(
            &old.conditions,
            &[facts.conditions().as_slice(), std::slice::from_ref(&seen.backups)].concat(),
            meta.generation,
            now,
        ),
        // A definition of an earlier version lacks the field, and a cluster without authentication does without.
        auth_enabled: seen.auth.or(old.auth_enabled).filter(|on| *on || seen.cluster.spec.auth.is_some()),
        last_empty_entry: old.last_empty_entry,
        latches: old.latches,
    }
}

fn count<T>(items: impl Iterator<Item = T>) -> i32 {
    i32::try_from(items.count()).unwrap_or(i32::MAX)
}

fn ready(member: &Member) -> bool {
    member.live_pod().is_some_and(pods::ready)
}

fn leader(seen: &Observed, etcd: &Membership) -> Option<String> {
    let listed = etcd.members.iter().find(|l| Some(l.id) == etcd.leader)?;
    seen.standing_for(listed).map(|m| m.name().to_owned())
}

fn summaries(seen: &Observed, etcd: Option<&Membership>, old: &[MemberSummary], now: Timestamp) -> Vec<MemberSummary> {
    let mut all: Vec<MemberSummary> = seen.members.iter().map(|m| summary(seen, etcd, (m, old), now)).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn summary(
    seen: &Observed,
    etcd: Option<&Membership>,
    (member, old): (&Member, &[MemberSummary]),
    now: Timestamp,
) -> MemberSummary {
    let before = old.iter().find(|s| s.name == member.name());
    let listed = etcd.and_then(|e| seen.listed(e, member.name()));
    let role = |l: &Listed| if l.learner { role::LEARNER } else { role::VOTER }.to_owned();
    let answer = seen.answers.get(member.name());
    let known = answer.and_then(Seen::known);
    let healthy = known.is_some_and(|a| etcd.is_none_or(|e| e.cluster_id == a.cluster_id));
    let unasked = seen.unread_certificates.is_some();
    let reason = if healthy { None } else { Some(why_silent(member, (answer.is_some(), unasked), now)) };
    MemberSummary {
        name: member.name().to_owned(),
        member_id: listed
            .map(|l| hex_id(l.id))
            .or_else(|| member.object.spec.joined.as_ref().map(|j| j.member_id.clone())),
        // While etcd is silent, the member keeps the last known role.
        role: match etcd {
            Some(_) => listed.map(role),
            None => before.and_then(|s| s.role.clone()),
        },
        version: known.map(|a| a.version.clone()).or_else(|| before.and_then(|s| s.version.clone())),
        healthy,
        since: before.filter(|s| s.healthy == healthy).map_or_else(|| Some(now.to_string()), |s| s.since.clone()),
        reason,
        certificates_not_after: match &seen.certificates {
            Some(all) => all.members.get(member.name()).and_then(Kept::earliest_end).map(|end| end.to_string()),
            // Not read in this pass.
            None => before.and_then(|s| s.certificates_not_after.clone()),
        },
        evidence: replace::evidence(seen, member, now).or_else(|| diverged::kept(seen, member)),
        data_end: silent::data_end(etcd, known, before),
    }
}

fn why_silent(member: &Member, (asked, unasked): (bool, bool), now: Timestamp) -> String {
    if member.removed() {
        return "etcd does not list the member any more".to_owned();
    }
    if let Some(why) = silent::lost(member, now) {
        return why;
    }
    let why = match member.live_pod() {
        None => "there is no Pod",
        Some(pod) if failure::find_last(pod).is_some() => "its Pod fails",
        Some(_) if asked => "etcd does not answer",
        Some(pod) if unasked && pods::runs(pod) => "Holdfast cannot ask etcd",
        Some(_) => "its Pod does not run yet",
    };
    why.to_owned()
}

/// The facts from which the conditions are made.
struct Facts<'a> {
    seen: &'a Observed,
    wanted: Option<&'a Wanted>,
    next: &'a Next,
    etcd: Option<&'a Membership>,
    voters: i32,
    ready: i32,
    now: Timestamp,
}

type Verdict = (Reason, String);

/// For this long a cluster may be without a client endpoint: one member restarts, and Kubernetes follows.
const UNSERVED: SignedDuration = SignedDuration::from_mins(1);

impl Facts<'_> {
    fn conditions(&self) -> [Condition; 5] {
        let doing = self.doing();
        let trouble = self.trouble();
        let complete = self.complete();
        [
            if self.parked() {
                let message = "spec.replicas is 0: no Pod runs, and the members' volumes hold the data";
                Condition::yes(Type::Ready, Reason::Parked, message)
            } else if complete {
                let (_, serving) = self.short();
                let message = match &trouble {
                    Some((reason, message)) => format!("{serving}; {}: {message}", reason.as_str()),
                    None => serving,
                };
                Condition::yes(Type::Ready, Reason::AsDesired, message)
            } else {
                let short = || if self.all_serve() { self.unreached() } else { self.short() };
                // A refused volume keeps nothing from being ready.
                let pressing =
                    trouble.clone().filter(|(reason, _)| *reason != Reason::ResizeRefused || doing.is_none());
                let (reason, message) = pressing.or_else(|| doing.clone()).unwrap_or_else(short);
                Condition::no(Type::Ready, reason, message)
            },
            self.available(),
            match doing {
                // Nothing progresses until a person acts.
                Some((reason, message)) if reason == Reason::Paused || reason.needs_a_person() => {
                    Condition::no(Type::Progressing, reason, message)
                }
                Some((reason, message)) => Condition::yes(Type::Progressing, reason, message),
                None => Condition::no(Type::Progressing, Reason::Idle, "nothing is in progress"),
            },
            match trouble {
                Some((reason, message)) => Condition::yes(Type::Degraded, reason, message),
                None => Condition::no(Type::Degraded, Reason::NothingWrong, "no fault is known"),
            },
            risk::condition(self.seen, self.wanted, self.voters),
        ]
    }

    fn short(&self) -> Verdict {
        let message = format!("{} of {} members serve", self.ready, self.seen.cluster.spec.replicas);
        (Reason::MemberRestarting, message)
    }

    /// Whether no Pod runs, as `spec.replicas: 0` asks.
    fn parked(&self) -> bool {
        self.seen.cluster.spec.replicas == 0 && matches!(self.next, Next::Settled(_))
    }

    /// Whether the cluster is as the spec asks. While an alarm is raised etcd takes no write.
    fn complete(&self) -> bool {
        let settled = match self.next {
            Next::Settled(_) => true,
            Next::Wait(waiting, _) => waiting.reason == Reason::Paused,
            // A renewal restarts no member.
            Next::Do(act, _) => is_upkeep(act),
        };
        let settled = settled || self.defragmenting().is_some() || self.moves_leader_on_request();
        settled && self.formed() && self.all_serve() && self.alarm().is_none() && self.is_reached()
    }

    fn moves_leader_on_request(&self) -> bool {
        let Next::Do(Act::MoveLeader { to, .. }, _) = self.next else { return false };
        move_leader::is_requested(self.seen, self.etcd, *to)
    }

    /// Whether etcd has `spec.replicas` voters, each with a ready Pod.
    fn all_serve(&self) -> bool {
        let replicas = self.seen.cluster.spec.replicas;
        self.etcd.is_some() && self.voters == replicas && self.ready == replicas && replicas > 0
    }

    /// Whether clients reach a member of this cluster through the client Service.
    fn is_reached(&self) -> bool {
        let Some(endpoints) = &self.seen.client_endpoints else { return true };
        let mut pods = self.seen.members.iter().filter_map(Member::live_pod);
        pods.any(|pod| endpoints.iter().any(|uid| uid == meta::uid(&pod.metadata)))
    }

    /// Whether a linearizable read succeeded, and clients reach a member.
    fn is_served(&self) -> bool {
        let admitted = |pod: &Pod| meta::label(&pod.metadata, key::ROLE) == Some(role::VOTER);
        self.etcd.is_some() && self.formed() && self.seen.members.iter().filter_map(Member::live_pod).any(admitted)
    }

    fn unreached(&self) -> Verdict {
        // A single member has no clients while it stands still.
        if let Some(record) = self.seen.latches().defragmenting.filter(|_| self.seen.has_turn) {
            return defragment::describe_progress(&record);
        }
        let service = name::client_service(meta::name(&self.seen.cluster.metadata));
        let message = format!(
            "etcd serves, and the Service {service} has no ready endpoint of this cluster, so clients reach no member. Check that \
             a ready Pod of a voter has the label {}={}, and that kube-controller-manager runs",
            key::ROLE,
            role::VOTER
        );
        (Reason::NoClientEndpoint, message)
    }

    fn formed(&self) -> bool {
        self.seen.latches().formed.is_some()
    }

    fn available(&self) -> Condition {
        if let Some(returning) =
            self.seen.returning().filter(|returning| returning.phase().is_outage() && !self.is_served())
        {
            return Condition::no(Type::Available, Reason::Returning, timeline::waits_for(&returning));
        }
        let closed = |reason: &Reason| {
            let parks = matches!(reason, Reason::Parking | Reason::Waking | Reason::VolumeRolledBack);
            parks || matches!(reason, Reason::SavingFinalSnapshot | Reason::FinalSnapshotHeld | Reason::Deleting)
        };
        if let Some((reason, message)) = self.doing().filter(|(reason, _)| closed(reason)) {
            return Condition::no(Type::Available, reason, message);
        }
        match (&self.seen.etcd, self.next) {
            _ if self.parked() => Condition::no(Type::Available, Reason::Parked, "spec.replicas is 0"),
            _ if !self.formed() => {
                let reason = if self.restoring() { Reason::Restoring } else { Reason::Seeding };
                match self.podless() {
                    Some((cause, why)) => {
                        let message = format!("the cluster has not formed yet, and {why}");
                        Condition::no(Type::Available, cause, message)
                    }
                    None => Condition::no(Type::Available, reason, "the cluster has not formed yet"),
                }
            }
            (Seen::Known(_), _) if self.etcd.is_some() && !self.is_reached() => {
                let (reason, message) = self.unreached();
                Condition::no(Type::Available, reason, message)
            }
            (Seen::Known(_), _) if self.etcd.is_some() => {
                Condition::yes(Type::Available, Reason::ReadSucceeded, "a linearizable read succeeded")
            }
            // etcd may serve clients that log in.
            (_, Next::Wait(waiting, _)) if waiting.reason == Reason::AuthRequiredNotConfigured => {
                Condition::unknown(Type::Available, waiting.reason, waiting.message.clone())
            }
            (_, Next::Wait(waiting, _)) if waiting.reason != Reason::Paused => match self.podless() {
                Some((cause, why)) if waiting.reason == Reason::WaitingForEtcd => {
                    Condition::no(Type::Available, cause, why)
                }
                Some((_, why)) if waiting.reason == Reason::QuorumLost => {
                    Condition::no(Type::Available, waiting.reason, format!("{}; {why}", waiting.message))
                }
                Some(_) | None => Condition::no(Type::Available, waiting.reason, waiting.message.clone()),
            },
            (_, _) => Condition::no(Type::Available, Reason::WaitingForEtcd, "no linearizable read succeeds"),
        }
    }

    /// Returns the cause where no staying member has a Pod, as a member's own status names it.
    fn podless(&self) -> Option<Verdict> {
        let staying = || self.seen.staying().filter(|m| !m.deleting());
        let (reason, why) = staying().find_map(failed).filter(|_| staying().all(|m| m.pod.is_none()))?;
        Some((reason, format!("no member has a Pod: {why}")))
    }

    fn restoring(&self) -> bool {
        self.seen.asks_for_restore()
            || self.seen.latches().restoring.is_some()
            || self.seen.members.iter().any(|m| m.object.spec.restore.is_some())
    }

    /// Returns the act or the wait in words. Consecutive acts of one change share their words, so that the operator does not write
    /// the status again for each act.
    fn doing(&self) -> Option<Verdict> {
        if let Some(doing) = self.defragmenting() {
            return Some(doing);
        }
        if let Some(returning) = self.seen.returning().filter(|_| !matches!(self.next, Next::Wait(..))) {
            return Some((Reason::Returning, timeline::waits_for(&returning)));
        }
        match self.next {
            Next::Settled(_) => tls::doing(self.seen, self.now),
            Next::Wait(waiting, _) => Some((waiting.reason, waiting.message.clone())),
            Next::Do(..) if self.seen.cluster.spec.paused && !meta::deleting(&self.seen.cluster.metadata) => Some((
                Reason::Paused,
                "spec.paused is set: Holdfast gives clients back, and changes nothing else".to_owned(),
            )),
            Next::Do(
                Act::Latch(_) | Act::DismissClients { .. } | Act::DeletePod { .. } | Act::RequestSnapshot(_),
                _,
            ) if meta::deleting(&self.seen.cluster.metadata) => {
                let message = "clients are led away before the last snapshot (spec.finalSnapshot)";
                Some((Reason::SavingFinalSnapshot, message.to_owned()))
            }
            Next::Do(Act::FillLog { .. }, _) => {
                let message = "etcd 3.7 does not read entries of etcd 3.5: Holdfast commits empty entries until each member has taken a raft snapshot";
                Some((Reason::Upgrading, message.to_owned()))
            }
            Next::Do(Act::RequestSnapshot(_), _) => {
                Some((Reason::Upgrading, "Holdfast saves a snapshot before the upgrade".to_owned()))
            }
            Next::Do(Act::StartJob(_), _) if self.formed() => {
                Some((Reason::Upgrading, "a Job rehearses the upgrade".to_owned()))
            }
            Next::Do(Act::StartJob(_), _) => Some(latest::asking(self.seen, self.now)),
            Next::Do(Act::Park { .. }, _) => Some((Reason::Parking, "spec.replicas is 0: the Pods end".to_owned())),
            Next::Do(Act::Unpark { .. }, _) => Some((Reason::Waking, "the cluster serves again".to_owned())),
            Next::Do(Act::Latch(new), _) if new.replaced != self.seen.latches().replaced => {
                let name = new.replaced.as_ref().map_or("", |replaced| replaced.member.as_str());
                Some((Reason::Replacing, format!("another member takes the place of {name}")))
            }
            Next::Do(Act::Latch(new), _)
                if new.granted_quota != self.seen.latches().granted_quota
                    || new.failed_template != self.seen.latches().failed_template
                    || new.upgrade != self.seen.latches().upgrade =>
            {
                Some(roll::doing(self.seen, self.now))
            }
            Next::Do(
                Act::LatchLeaving { member, .. } | Act::LatchRemoved { member, .. } | Act::DeleteMember { member, .. },
                _,
            ) if self.formed() => Some(self.shrinking(&member.name)),
            Next::Do(
                Act::SetTemplate { .. }
                | Act::BeginResize { .. }
                | Act::ResizePod { .. }
                | Act::EndResize { .. }
                | Act::EvictPod { .. },
                _,
            ) => Some(roll::doing(self.seen, self.now)),
            Next::Do(Act::DeletePod { .. } | Act::MoveLeader { .. } | Act::AdmitClients { .. }, _)
                if roll::is_due(self.seen, self.now) =>
            {
                Some(roll::doing(self.seen, self.now))
            }
            Next::Do(Act::DismissClients { pod }, _) => Some(self.shrinking(&pod.name)),
            Next::Do(Act::MoveLeader { name, .. } | Act::RemoveMember { name, .. }, _) if self.leaves(name) => {
                Some(self.shrinking(name))
            }
            // The same words as while the Pod comes back.
            Next::Do(Act::DeletePod { pod, .. }, _) => {
                Some((Reason::MemberRestarting, format!("not ready: {}", pod.name)))
            }
            Next::Do(..) if meta::deleting(&self.seen.cluster.metadata) => {
                Some((Reason::Deleting, "the cluster is being deleted".to_owned()))
            }
            // The spec asks for no leader.
            Next::Do(Act::MoveLeader { .. }, _) if self.moves_leader_on_request() => None,
            // A renewal is no progress towards the spec.
            Next::Do(act, _) if is_upkeep(act) && self.formed() && self.voters == self.seen.cluster.spec.replicas => {
                tls::doing(self.seen, self.now)
            }
            Next::Do(..) if self.formed() => {
                let message = format!("growing to {} members", self.seen.cluster.spec.replicas);
                Some((Reason::Growing, message))
            }
            Next::Do(..) if self.restoring() => {
                let log = super::restore::log_words(restore::under_way(self.seen).as_ref());
                Some((Reason::Restoring, format!("Holdfast creates the first member from the snapshot{log}")))
            }
            Next::Do(..) => Some((Reason::Seeding, "Holdfast creates the first member".to_owned())),
        }
    }

    /// Returns the progress of a defragmentation, where the step belongs to one.
    fn defragmenting(&self) -> Option<Verdict> {
        let seen = self.seen.latches().defragmenting.filter(|_| self.seen.has_turn);
        let record = match self.next {
            // The wait for a turn.
            Next::Wait(waiting, _) if waiting.reason == Reason::Defragmenting && seen.is_none() => {
                return Some((waiting.reason, waiting.message.clone()));
            }
            Next::Wait(waiting, _) if waiting.reason == Reason::Defragmenting => seen,
            Next::Do(Act::Latch(new), _) => seen.or_else(|| new.defragmenting.clone()),
            Next::Do(Act::DismissClients { .. } | Act::MoveLeader { .. } | Act::Defragment { .. }, _) => seen,
            _ => None,
        };
        record.map(|record| defragment::describe_progress(&record))
    }

    /// Whether a member leaves, or has no `EtcdMember`.
    fn leaves(&self, name: &str) -> bool {
        let own = self.seen.members.iter().find(|m| m.name() == name);
        own.is_none_or(|m| m.object.spec.leaving.is_some())
    }

    /// Returns the words for a member that leaves, with its replacement if another member takes its place.
    fn shrinking(&self, name: &str) -> Verdict {
        let decided =
            matches!(self.next, Next::Do(Act::LatchLeaving { leaving, .. }, _) if leaving.why != Departure::ScaledIn);
        let own = || self.seen.members.iter().find(|m| m.name() == name);
        // A listed member without an EtcdMember makes room for another.
        let makes_place = matches!(self.next, Next::Do(Act::RemoveMember { .. }, _)) && own().is_none();
        if decided || makes_place || own().is_some_and(|m| !shrink::is_scaled_in(m)) {
            return (Reason::Replacing, format!("another member takes the place of {name}"));
        }
        (Reason::Shrinking, format!("shrinking to {} members", self.seen.cluster.spec.replicas))
    }

    /// Returns the wait that has lasted longer than `spec.progressDeadlineSeconds`. Only the status reports it.
    fn overdue(&self) -> Option<Verdict> {
        let Next::Wait(waiting, _) = self.next else { return None };
        // A rehearsal has a deadline of its own.
        let rehearses = waiting.reason == Reason::Upgrading && self.seen.latches().upgrade.is_none();
        let in_a_row = waiting.reason == Reason::Defragmenting && !self.seen.has_turn;
        if rehearses
            || in_a_row
            || matches!(
                waiting.reason,
                Reason::Restoring | Reason::Paused | Reason::Deleting | Reason::SavingFinalSnapshot | Reason::Returning
            )
        {
            return None;
        }
        let conditions = &self.seen.cluster.status.as_ref()?.conditions;
        let progressing = condition::find_with_status(conditions, Type::Progressing, "True")?;
        let seconds = self.seen.cluster.spec.progress_deadline();
        let over = self.now >= progressing.last_transition_time.0 + SignedDuration::from_secs(seconds.into());
        let message =
            format!("in progress for more than {seconds} s ({}): {}", waiting.reason.as_str(), waiting.message);
        over.then_some((Reason::DeadlineExceeded, message))
    }

    /// Returns the most pressing fault.
    fn trouble(&self) -> Option<Verdict> {
        let wrong = || self.failing_member().or_else(|| tls::trouble(self.seen, self.now)).or_else(|| self.overdue());
        let larger = || if self.formed() { enlarge::refused(self.seen, self.now) } else { None };
        self.stuck()
            .or_else(|| last_snapshot::fault(self.seen))
            .or_else(|| self.failed_seed())
            .or_else(|| self.alarm())
            .or_else(wrong)
            .or_else(larger)
            .or_else(|| self.unserved())
    }

    /// Returns the fault of a cluster whose clients have reached no member for a minute, also where Holdfast led them away.
    fn unserved(&self) -> Option<Verdict> {
        let cluster = &self.seen.cluster;
        let asked = cluster.spec.replicas == 0 || park::wakes(self.seen) || meta::deleting(&cluster.metadata);
        let asked = asked || self.seen.returning().is_some();
        // The first members get their clients now.
        let admits = matches!(
            self.next,
            Next::Do(
                Act::AdmitClients { .. } | Act::ForbidEmptyStart { .. } | Act::LatchJoined { .. } | Act::Latch(_),
                _
            )
        );
        let asked = asked || (admits && !cluster.spec.paused && self.seen.latches().defragmenting.is_none());
        let available = self.available();
        if asked || !self.formed() || self.is_reached() || available.state != Some(false) {
            return None;
        }
        let before = condition::find_with_status(&cluster.status.as_ref()?.conditions, Type::Available, "False")?;
        // A cluster that woke was not available before.
        let ready = self.seen.hosting().filter_map(|member| pods::ready_since(member.live_pod()?)).max();
        let since = ready.map_or(before.last_transition_time.0, |at| at.max(before.last_transition_time.0));
        if self.now < since + UNSERVED {
            return None;
        }
        let service = name::client_service(meta::name(&cluster.metadata));
        let message = format!(
            "clients reach no member since {since}: the Service {service} has no ready endpoint of this cluster. {}",
            available.message
        );
        Some((Reason::NoClientEndpoint, message))
    }

    /// Returns the wait that ends only when a person acts.
    fn stuck(&self) -> Option<Verdict> {
        match self.next {
            Next::Wait(waiting, _) if waiting.reason.needs_a_person() => {
                Some((waiting.reason, waiting.message.clone()))
            }
            Next::Do(Act::StartJob(_), _) if !self.formed() => {
                Some(latest::asking(self.seen, self.now)).filter(|(reason, _)| reason.needs_a_person())
            }
            // A paused cluster gets no act, but the status reports the loss.
            Next::Wait(waiting, _) if waiting.reason == Reason::Paused => self.lost(),
            Next::Wait(..) | Next::Do(..) | Next::Settled(_) => None,
        }
    }

    fn lost(&self) -> Option<Verdict> {
        let Seen::Unknown(why) = &self.seen.etcd else { return None };
        match silent::wait(self.seen, why, self.now) {
            Next::Wait(waiting, _) if self.formed() && waiting.reason.needs_a_person() => {
                Some((waiting.reason, waiting.message))
            }
            Next::Wait(..) | Next::Do(..) | Next::Settled(_) => None,
        }
    }

    /// Returns the failure of the first member's Pod before the cluster has formed: the cluster reports the same reason.
    fn failed_seed(&self) -> Option<Verdict> {
        if self.formed() {
            return None;
        }
        self.seen.members.iter().find_map(failed)
    }

    fn alarm(&self) -> Option<Verdict> {
        alarms::describe(self.seen, self.etcd?, self.now)
    }

    fn failing_member(&self) -> Option<Verdict> {
        self.seen.staying().find_map(failed)
    }
}

/// Whether an act restarts no member and changes no serving member.
const fn is_upkeep(act: &Act) -> bool {
    matches!(
        act,
        Act::Disarm { .. }
            | Act::SetAuth { .. }
            | Act::Issue(_)
            | Act::AnnounceCertificates { .. }
            | Act::HoldCluster { .. }
            | Act::CopyRetention { .. }
            | Act::EndLeaderRequest { .. }
    )
}

/// Returns a member's failure in words: from its Pod, else from the member's own status, which keeps a failure while the Pod is
/// created again, and knows the failures without a Pod.
fn failed(member: &Member) -> Option<Verdict> {
    let failure: Option<LastFailure> = member.live_pod().filter(|p| !pods::ready(p)).and_then(failure::find_last);
    let (reason, message) = if let Some(failure) = failure {
        (failure::reason(&failure), failure::explain(&failure))
    } else {
        let conditions = member.object.status.iter().flat_map(|s| &s.conditions);
        let wrong = condition::find_with_status(conditions, Type::Degraded, "True")?;
        (Reason::named(&wrong.reason)?, wrong.message.clone())
    };
    Some((reason, format!("{}: {message}", member.name())))
}
