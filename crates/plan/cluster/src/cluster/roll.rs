//! Rolling changes: a changed version, image, option or resource, or a larger volume, reaches one member after the other.
//!
//! Decides whose turn it is, and the order for one member: write the template, move the leadership away, evict the Pod. A running Pod
//! gets changed resources without its end (`resize.rs`). The member's
//! own pass makes the next Pod. At most one voter is down by Holdfast's hand: a Pod ends only while every other voter is well (I1),
//! and while no member joins or leaves (I11). A member whose etcd does not run anyway gets the template first, without these
//! conditions. The turn is computed from the objects on each pass, so an interrupted roll continues. `rollback.rs` decides the
//! end of a roll whose template does not start. A member in memory is replaced instead (`replace.rs`): its Pod is its data.

use holdfast_api::cluster::Options;
use holdfast_api::condition::Reason;
use holdfast_api::template::Template;
use holdfast_api::{EtcdCluster, EtcdMember};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use super::hand_over::hand_over;
use super::health::{changes_members, in_doubt, is_well, stands_at_three, voters};
use super::recorded::recorded_evidence;
use super::upgrade::{self, Minor};
use super::{Listed, Member, Membership, Observed, enlarge, preflight, resize, rollback, successor, tls, transport};
use holdfast_base::valid::Wanted;
use holdfast_base::{Act, Next, Target, Wake, pods, template, valid, volumes};

/// Interval while a member restarts: watches report its Pod, and nothing reports its etcd.
const RETRY: Wake = Wake::AfterMillis(500);

/// How long a snapshot that is being saved holds a roll up: the agent reads one of the members, and starts again where that member
/// restarts.
const SAVES_FOR: SignedDuration = SignedDuration::from_mins(10);

/// Whether a member serves with the template of the cluster's spec.
pub(super) fn is_updated(cluster: &EtcdCluster, member: &Member) -> bool {
    let current = |pod| {
        pods::ready(pod) && template::is_current(pod, &member.object) && !volumes::has_outgrown(pod, &member.object)
    };
    member.object.spec.process == template::wanted(cluster) && member.live_pod().is_some_and(current)
}

/// Whether a member waits for its turn, or restarts in its turn.
pub(super) fn is_due(seen: &Observed, now: Timestamp) -> bool {
    let wanted = template::wanted(&seen.cluster);
    let due = |m: &Member| is_stale(m, &wanted, now) || m.object.spec.served.is_some();
    seen.members.iter().all(|m| m.stays() || m.removed()) && seen.staying().any(due)
}

/// Whether a member in memory has another template than the spec, and the cluster can take the template of the spec.
pub(super) fn wants_replacement(seen: &Observed, member: &Member) -> bool {
    let wanted = template::wanted(&seen.cluster);
    let changed = has_other_template(member, &wanted) && !resize::fits(member, &wanted);
    let outdated = changed || trusts_others(member);
    let open = |spec: Wanted| upgrade::judge(seen, spec.server.version).is_open() && forbidden(seen, &spec).is_none();
    let allowed = || valid::cluster(&seen.cluster).is_ok_and(open) && upgrade::close_way_back(seen, member).is_none();
    member.object.spec.storage.in_memory() && member.joined() && outdated && allowed()
}

/// Whether a member's etcd was started with other CAs than the member's files hold.
fn trusts_others(member: &Member) -> bool {
    member.live_pod().is_some_and(|pod| pods::has_other_cas(pod, &member.object))
}

/// Whether a member has another template than the spec, or a Pod with another template than its own.
fn has_other_template(member: &Member, wanted: &Template) -> bool {
    let outdated = |pod| !template::is_current(pod, &member.object);
    member.object.spec.process != *wanted || member.live_pod().is_some_and(outdated)
}

/// Whether a member has another template than the spec, or a Pod that was made for another template or volume than its own.
fn is_stale(member: &Member, wanted: &Template, now: Timestamp) -> bool {
    has_other_template(member, wanted) || why_outdated(member, now).is_some()
}

/// Returns why a member's Pod ends in its turn.
fn why_outdated(member: &Member, now: Timestamp) -> Option<&'static str> {
    let pod = member.live_pod()?;
    if !template::is_current(pod, &member.object) {
        return Some("the member has another template now");
    }
    if pods::has_other_cas(pod, &member.object) {
        return Some("the member's files hold other CAs now, and etcd reads them when it starts");
    }
    needs_another_mount(member, pod, now)
}

/// Returns why the volume of a Pod needs another Pod.
fn needs_another_mount(member: &Member, pod: &Pod, now: Timestamp) -> Option<&'static str> {
    if volumes::has_outgrown(pod, &member.object) {
        return Some("the member's volume is larger now, and with it the quota");
    }
    volumes::needs_remount(member.live_claim(), pod, now)
        .then_some("the file system of the volume grows when it is mounted")
}

/// Whether the volume of a member takes the quota. The quota of a new template waits for the volume.
fn has_room(seen: &Observed, member: &Member, spec: &Wanted) -> bool {
    // The default quota follows the volume that the member has.
    let has_quota = |options: Option<&Options>| options.is_some_and(|options| options.quota_backend_bytes.is_some());
    if !has_quota(valid::options(&seen.cluster).as_ref()) {
        return true;
    }
    let by_user = has_quota(seen.cluster.spec.options.as_ref());
    let server = valid::member(&member.object);
    // The quota that Holdfast has granted leaves room for the log.
    server.is_ok_and(|server| {
        spec.server.quota < if by_user { server.volume } else { server.most_quota().saturating_add(1) }
    })
}

/// Whether the leader's turn comes before its time: it goes last, and a follower's volume is still growing.
fn waits_for_volumes(seen: &Observed, spec: &Wanted, etcd: &Membership, member: &Member, now: Timestamp) -> bool {
    let leads = seen.listed(etcd, member.name()).is_some_and(|l| Some(l.id) == etcd.leader);
    let unchanged = member.object.spec.process == template::wanted(&seen.cluster);
    let by_volume = unchanged || seen.staying().any(|m| !has_room(seen, m, spec));
    leads && by_volume && seen.staying().any(|m| m.name() != member.name() && enlarge::is_growing(seen, m, now))
}

/// Returns the progress of a roll in words.
pub(super) fn doing(seen: &Observed, now: Timestamp) -> (Reason, String) {
    let wanted = template::wanted(&seen.cluster);
    let unchanged = |m: &Member| m.object.spec.process == wanted && m.object.spec.served.is_none();
    if let Some(growing) = enlarge::doing(seen, now).filter(|_| seen.staying().all(unchanged)) {
        return growing;
    }
    if let Some(exchange) = tls::doing(seen, now).filter(|_| seen.staying().all(unchanged)) {
        return exchange;
    }
    let updated = seen.staying().filter(|m| is_updated(&seen.cluster, m)).count();
    let all = seen.staying().count();
    let mut message = format!("{updated} of {all} members serve with the changed spec");
    if let Some(step) = transport::describe(seen) {
        message.push_str(&format!("; {step}"));
    }
    if all < 3 {
        message.push_str("; with fewer than three members, no quorum answers clients while one restarts");
    }
    (reason(seen), message)
}

/// Returns what the restarts are for: another minor version, other CAs, or another spec.
fn reason(seen: &Observed) -> Reason {
    let minor = seen.latches().upgrade.is_some() || upgrade::asks_for_another_minor(&seen.cluster, objects(seen));
    let wanted = template::wanted(&seen.cluster);
    if minor {
        Reason::Upgrading
    } else if seen.staying().all(|m| m.object.spec.process == wanted) && seen.staying().any(trusts_others) {
        Reason::CaRotating
    } else {
        Reason::Rolling
    }
}

/// Returns the template for a member that does not start with the one that it has. Needs no quorum: a bad template may have cost the
/// quorum. A parked member waits until it wakes, so that a bad template costs one member here too.
pub(super) fn give(seen: &Observed, spec: &Wanted, now: Timestamp) -> Option<Next> {
    let wanted = template::wanted(&seen.cluster);
    let closed = !upgrade::judge(seen, spec.server.version).is_open();
    if closed || spec.replicas == 0 || rollback::has_failed(seen, &wanted) || forbidden(seen, spec).is_some() {
        return None;
    }
    let runs = |m: &Member| m.pod.as_ref().is_some_and(pods::runs);
    let needed = |m: &Member| m.stays() || m.object.spec.served.is_some();
    let stops = |m: &Member| {
        successor::refusal(seen, m).is_some() || m.live_pod().is_some_and(|pod| rollback::stops(m, pod, now).is_some())
    };
    let changes = |m: &Member| m.object.spec.process != wanted && has_room(seen, m, spec);
    let idle = |m: &&Member| needed(m) && !m.deleting() && stops(m) && changes(m);
    let in_memory = |m: &&Member| m.object.spec.storage.in_memory() && m.joined();
    let member = seen.hosting().filter(idle).find(|m| !in_memory(m))?;
    // One member at a time tries a template that no member has started with. A member that joins has no vote yet, and a member
    // without its data starts with no template.
    let runs_with_it = |m: &Member| runs(m) && m.live_pod().is_some_and(|pod| template::is_current(pod, &m.object));
    let starts = |m: &Member| m.lost_volume().is_none() && recorded_evidence(m).is_none();
    let tries = |m: &&Member| m.joined() && starts(m) && m.object.spec.process == wanted && !runs_with_it(m);
    if let Some(other) = seen.hosting().find(tries) {
        return take_back(seen, other);
    }
    Some(upgrade::close_way_back(seen, member).unwrap_or_else(|| set(member, wanted)))
}

/// Returns the template for a new member: that of a member which serves, while no member gets the template of the spec. `None`: the
/// template of the spec.
pub(super) fn template_of_new_member(seen: &Observed, spec: &Wanted) -> Option<Template> {
    let open = upgrade::judge(seen, spec.server.version).is_open();
    let failed = rollback::has_failed(seen, &template::wanted(&seen.cluster));
    if open && !failed && forbidden(seen, spec).is_none() {
        return None;
    }
    let serves = |m: &&Member| m.live_pod().is_some_and(|p| pods::ready(p) && template::is_current(p, &m.object));
    let proven = seen.staying().find(serves).map(|m| m.object.spec.process.clone());
    let earlier = |m: &Member| m.object.spec.served.clone().unwrap_or_else(|| m.object.spec.process.clone());
    proven.or_else(|| seen.staying().find(|m| m.joined()).map(earlier))
}

/// Whether the only change of the members is a member that etcd does not list yet and that waits for its certificates.
fn awaits_trust(seen: &Observed, etcd: &Membership) -> bool {
    let stands = |l: &Listed| !l.learner && seen.standing_for(l).is_some_and(Member::stays);
    let comes = |m: &Member| seen.listed(etcd, m.name()).is_none();
    let uncertified = |m: &Member| m.object.spec.certificates().is_some_and(|tls| tls.staged.is_none());
    let waits = |m: &Member| !m.joined() && uncertified(m);
    etcd.members.iter().all(stands)
        && seen.members.iter().all(|m| m.stays() || m.removed())
        && seen.staying().filter(|m| comes(m)).all(waits)
}

/// Returns the next step that lets present members trust the CA of a member that joins: the joining member gets its certificates
/// afterwards.
pub(super) fn before_growth(seen: &Observed, etcd: &Membership, now: Timestamp) -> Option<Next> {
    let awaits = |m: &Member| tls::hindrance(seen, m.name(), now).is_some_and(|(why, _)| why == Reason::CaRotating);
    let comes = seen.staying().any(|m| seen.listed(etcd, m.name()).is_none() && awaits(m));
    if !comes || !awaits_trust(seen, etcd) {
        return None;
    }
    let wanted = template::wanted(&seen.cluster);
    let stale: Vec<&Member> = seen.staying().filter(|m| m.joined() && trusts_others(m)).collect();
    let member = choose(seen, etcd, &stale, &wanted)?;
    let in_memory = member.object.spec.storage.in_memory();
    (!in_memory).then(|| held(seen, etcd, member, now).or_else(|| end(seen, etcd, member, now)))?
}

/// Returns why no member gets the spec, for a cluster whose etcd does not answer.
pub(super) fn why_stuck(seen: &Observed, spec: &Wanted, now: Timestamp) -> Option<Next> {
    let waits = |next: &Next| matches!(next, Next::Wait(..));
    rollback::next(seen, now).filter(waits).or_else(|| forbidden(seen, spec).filter(|_| is_due(seen, now)))
}

/// Returns the earlier template for a member whose Pod still runs with it: the turn goes to a member that does not run.
fn take_back(seen: &Observed, member: &Member) -> Option<Next> {
    let may = |served: &Template| !member.deleting() && upgrade::may_have(seen, member, served);
    let served = member.object.spec.served.clone().filter(may)?;
    let runs_on = |pod| pods::runs(pod) && template::may_be_of(pod, &served);
    member.live_pod().is_some_and(runs_on).then(|| set(member, served.clone()))
}

/// Returns the next step of a roll, or its wait; `None` where every member has the template of the spec.
pub(super) fn next(seen: &Observed, spec: &Wanted, etcd: &Membership, now: Timestamp) -> Option<Next> {
    let wanted = template::wanted(&seen.cluster);
    if let Some(wait) = upgrade::another_etcd(seen) {
        return Some(wait);
    }
    let stale: Vec<&Member> = seen.staying().filter(|m| is_stale(m, &wanted, now)).collect();
    if stale.is_empty() {
        let last = seen.staying().find(|m| m.object.spec.served.is_some() && !m.live_pod().is_some_and(pods::ready));
        let wait = last.map(|m| {
            let message = format!("{} restarts with the changed spec", m.name());
            Next::wait(reason(seen), message, RETRY)
        });
        return wait.or_else(|| upgrade::finish(seen, now));
    }
    let member = if let Some(stuck) = rollback::next(seen, now) {
        // The Pod that runs with the failed template and does not serve.
        let restored = |m: &&&Member| m.object.spec.served.as_ref() == Some(&m.object.spec.process);
        let outdated =
            |m: &&&Member| m.live_pod().is_some_and(|pod| pods::runs(pod) && !template::is_current(pod, &m.object));
        let Some(member) = stale.iter().filter(restored).find(outdated) else {
            return Some(stuck);
        };
        let ends = held(seen, etcd, member, now).is_none();
        return Some(if ends { renew(seen, etcd, member, now).unwrap_or(stuck) } else { stuck });
    } else if let Some(refused) = forbidden(seen, spec) {
        return Some(refused);
    } else if let Some(resumed) = upgrade::resume(seen, spec, now) {
        return Some(resumed);
    } else if upgrade::judge(seen, spec.server.version) == Minor::Next {
        let whole = |m: &&Member| held(seen, etcd, m, now);
        return Some(stale.iter().find_map(whole).unwrap_or_else(|| preflight::prepare(seen, spec, etcd, now)));
    } else {
        let fits = |m: &&Member| m.object.spec.process == wanted || has_room(seen, m, spec);
        let stale: Vec<&Member> = stale.into_iter().filter(fits).collect();
        match choose(seen, etcd, &stale, &wanted) {
            Some(member) => member,
            None => return enlarge::hold(seen, now),
        }
    };
    if waits_for_volumes(seen, spec, etcd, member, now) {
        return enlarge::hold(seen, now);
    }
    if member.object.spec.storage.in_memory() && (!resize::fits(member, &wanted) || trusts_others(member)) {
        // `replace.rs` replaces the member.
        return upgrade::close_way_back(seen, member);
    }
    if let Some(wait) = held(seen, etcd, member, now) {
        return Some(wait);
    }
    if member.object.spec.process != wanted {
        return Some(upgrade::close_way_back(seen, member).unwrap_or_else(|| set(member, wanted)));
    }
    renew(seen, etcd, member, now)
}

/// Whether a change restarts members, or will soon, and nothing holds it up but its own order.
pub(super) fn comes_first(seen: &Observed, spec: &Wanted, etcd: &Membership, now: Timestamp) -> bool {
    let turn_taken = || seen.staying().any(|m| m.object.spec.served.is_some());
    let all_well = || etcd.members.iter().all(|l| seen.standing_for(l).is_some_and(|m| is_well(seen, etcd, l, m)));
    match next(seen, spec, etcd, now) {
        Some(Next::Do(..)) => true,
        Some(Next::Wait(waiting, _))
            if matches!(waiting.reason, Reason::Rolling | Reason::Upgrading | Reason::CaRotating) =>
        {
            turn_taken() || all_well()
        }
        Some(Next::Wait(..) | Next::Settled(_)) | None => false,
    }
}

/// Brings the Pod of a member to the member's template: the running Pod gets other resources, or ends.
fn renew(seen: &Observed, etcd: &Membership, member: &Member, now: Timestamp) -> Option<Next> {
    // A larger volume needs another Pod, which has the resources too.
    let ends =
        trusts_others(member) || member.live_pod().is_some_and(|pod| needs_another_mount(member, pod, now).is_some());
    let resized = if ends { None } else { resize::next(member, reason(seen)) };
    if resized.is_none() && member.object.spec.storage.in_memory() {
        let message = format!("{} gets the changed resources when it serves", member.name());
        return Some(Next::wait(reason(seen), message, RETRY));
    }
    resized.or_else(|| end(seen, etcd, member, now))
}

/// Ends an outdated Pod: the leadership goes first.
fn end(seen: &Observed, etcd: &Membership, member: &Member, now: Timestamp) -> Option<Next> {
    let listed = seen.listed(etcd, member.name())?;
    if etcd.leader == Some(listed.id) && voters(etcd) > 1 {
        let wait = || {
            let message = format!("no healthy voter can lead in place of {}", member.name());
            Next::wait(reason(seen), message, RETRY)
        };
        return Some(hand_over(seen, etcd, listed, member.name()).unwrap_or_else(wait));
    }
    let pod = Target::from(&member.live_pod()?.metadata);
    let why = why_outdated(member, now)?.to_owned();
    // No disruption budget lets a Pod of one or two voters go.
    let alone = voters(etcd) < 3;
    Some(Next::act(if alone { Act::DeletePod { pod, why } } else { Act::EvictPod { pod, why } }))
}

/// A member that keeps no earlier template has served with the present one, or has not joined.
fn set(member: &Member, template: Template) -> Next {
    let kept = member.object.spec.served.clone();
    let served = Some(Box::new(kept.unwrap_or_else(|| member.object.spec.process.clone())));
    Next::act(Act::SetTemplate { member: Target::from(&member.object.metadata), template: Box::new(template), served })
}

/// Returns the member whose turn it is: first a member whose spec has the template already, then a member that does not serve, then
/// the follower with the shortest log, and the leader last.
fn choose<'a>(seen: &Observed, etcd: &Membership, stale: &[&'a Member], wanted: &Template) -> Option<&'a Member> {
    let order = |m: &&&'a Member| {
        let listed = seen.listed(etcd, m.name());
        let answer = listed.and_then(|l| seen.serving(etcd, l, m.name()));
        let leads = listed.is_some_and(|l| Some(l.id) == etcd.leader);
        (
            m.object.spec.process != *wanted,
            listed.is_some_and(|l| is_well(seen, etcd, l, m)),
            leads,
            answer.map(|answer| answer.applied_index),
            m.name().to_owned(),
        )
    };
    stale.iter().min_by_key(order).copied()
}

/// Returns the wait for a template that the cluster's data or its members cannot take.
pub(super) fn forbidden(seen: &Observed, spec: &Wanted) -> Option<Next> {
    let refuse = |message: String| Some(Next::wait(Reason::InvalidSpec, message, super::intervals::POLL));
    let target = spec.server.version;
    // I30: etcd writes its data for one minor.
    if let Minor::Refused(why) = upgrade::judge(seen, target) {
        return refuse(why);
    }
    // A member may always go back to the version with which it served.
    let spec_version = &seen.cluster.spec.version;
    let had_it = |m: &Member| m.object.spec.served.as_ref().is_some_and(|served| served.version == *spec_version);
    let changes = seen.staying().any(|m| m.object.spec.process.version != *spec_version && !had_it(m));
    if let Some(why) = upgrade::defect(target).filter(|_| changes) {
        return refuse(why);
    }
    // A quota that does not fit the volume waits for the volume.
    let quota = |m: &Member, template: &Template| {
        valid::process(&m.object.spec.storage, template).map_or(spec.server.quota, |server| server.quota)
    };
    let wanted = template::wanted(&seen.cluster);
    let next = |m: &Member| quota(m, &wanted);
    let shrunk = seen.staying().filter(|m| quota(m, &m.object.spec.process) > next(m)).map(next).min();
    let largest = seen.answers.values().filter_map(|answer| u64::try_from(answer.known()?.db_bytes).ok()).max()?;
    // etcd raises NOSPACE at the quota.
    if let Some(shrunk) = shrunk.filter(|shrunk| shrunk / 10 * 9 < largest) {
        // In whole MiB, which change rarely (I17).
        let mib = largest.div_ceil(1 << 20);
        return refuse(format!(
            "spec.options.quotaBackendBytes: the quota is {} MiB, and a database has {mib} MiB. Set at least {} MiB, or compact and \
             defragment first",
            shrunk >> 20,
            mib.saturating_mul(10).div_ceil(9) + 1
        ));
    }
    None
}

/// Returns the wait while the member's Pod must not end.
fn held(seen: &Observed, etcd: &Membership, member: &Member, now: Timestamp) -> Option<Next> {
    let wait = |message: String| Some(Next::wait(reason(seen), message, RETRY));
    if let Some(doubt) = in_doubt(etcd) {
        return Some(doubt);
    }
    if changes_members(seen, etcd) && !stands_at_three(seen, etcd) && !awaits_trust(seen, etcd) {
        return wait(format!("{} gets the changed spec when no member joins or leaves", member.name()));
    }
    if let Some(saving) = seen.saving.iter().find(|saving| now < saving.since + SAVES_FOR) {
        let message = format!("{} gets the changed spec when the EtcdSnapshot {} is saved", member.name(), saving.name);
        return Some(Next::wait(reason(seen), message, Wake::AfterMillis(2_000)));
    }
    if !member.object.spec.storage.in_memory() && member.live_claim().is_none() {
        return wait(format!("the claim of {} is going or gone, so its Pod does not end", member.name()));
    }
    if let Some(refused) = successor::hold(seen, member) {
        return Some(refused);
    }
    let unwell = etcd.members.iter().find_map(|listed| {
        let other = seen.standing_for(listed).filter(|m| m.name() != member.name())?;
        (!is_well(seen, etcd, listed, other)).then_some(other)
    });
    let other = unwell?;
    let soon = pods::starting(other.live_pod(), now);
    let message = format!("{} gets the changed spec when {} serves", member.name(), other.name());
    Some(Next::wait(reason(seen), message, if soon { RETRY } else { Wake::AfterMillis(2_000) }))
}

fn objects(seen: &Observed) -> impl Iterator<Item = &EtcdMember> {
    seen.hosting().map(|member| &member.object)
}
