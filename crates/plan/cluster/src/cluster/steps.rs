//! The order in which the planner asks the rules about one cluster.
//!
//! Decides which rule comes first: the first rule of a table with an act or a wait ends the search. The file that a step names
//! decides when the rule applies, and its act. docs/architecture.md prints the tables.

use holdfast_api::condition::Reason;
use jiff::Timestamp;

use super::intervals::POLL;
use super::{
    Membership, Observed, alarms, auth, bootstrap, defragment, enlarge, grow, health, identity, last_snapshot,
    move_leader, park, promote, raise_quota, release, replace, retention, roll, rollback, seed, shrink, silent, stuck,
    timeline, transport,
};
use holdfast_base::valid::{self, Wanted};
use holdfast_base::{Act, Next, Seen, Wake, meta};

/// One rule and its place in the order.
#[derive(Debug)]
pub struct Step {
    /// The act or the wait, in words.
    pub name: &'static str,
    /// When the rule applies, in words.
    pub when: &'static str,
    /// The file of the rule, below `src/` of this crate; without a folder, of `holdfast_base`.
    pub file: &'static str,
    rule: fn(&Pass<'_>) -> Option<Next>,
}

/// Rules in their order.
#[derive(Debug)]
pub struct Table {
    /// The clusters that the rules are for.
    pub title: &'static str,
    /// The rules.
    pub steps: &'static [Step],
}

impl Table {
    /// Returns the act or the wait of the first rule that has one.
    pub(super) fn choose(&self, pass: &Pass<'_>) -> Option<Next> {
        self.steps.iter().find_map(|step| (step.rule)(pass))
    }
}

/// The facts that rules read.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    seen: &'a Observed,
    /// The membership, read linearizably, of the etcd that the cluster formed with.
    etcd: Option<&'a Membership>,
    /// The checked spec; `None` where `refused` or `conflict` has a wait.
    pub wanted: Option<&'a Wanted>,
    /// The wait for another spec.
    pub refused: Option<Next>,
    /// The wait for names that objects of other owners occupy.
    pub conflict: Option<Next>,
    /// The next step about certificates.
    pub certificates: Option<Next>,
    now: Timestamp,
}

impl<'a> Pass<'a> {
    /// Returns the facts that are known before the spec is checked.
    pub(super) fn new(seen: &'a Observed, now: Timestamp) -> Self {
        Self { seen, etcd: seen.own_etcd(), wanted: None, refused: None, conflict: None, certificates: None, now }
    }

    /// Returns the first of the two waits that block a change to the spec.
    fn hindrance(&self) -> Option<Next> {
        self.refused.clone().or_else(|| self.conflict.clone())
    }

    fn parks(&self) -> bool {
        self.seen.cluster.spec.replicas == 0 && !self.seen.members.is_empty()
    }
}

/// All tables, in the order in which `plan.rs` asks them.
pub const TABLES: [&Table; 4] = [&STOPPED, &FOUNDING, &FORMED, &IDLE];

/// Rules that no other rule precedes.
pub(super) const STOPPED: Table = Table {
    title: "A cluster that is deleted or paused",
    steps: &[
        Step {
            name: "save the last snapshot, in steps: lead clients away, end open connections, request an EtcdSnapshot",
            when: "the EtcdCluster is being deleted, has `spec.finalSnapshot`, and has formed",
            file: "cluster/last_snapshot.rs",
            rule: |pass| last_snapshot::next(pass.seen, pass.now),
        },
        Step {
            name: "copy `spec.storage.retention` to the members, then remove the finalizer",
            when: "the EtcdCluster is being deleted",
            file: "cluster/retention.rs",
            rule: |pass| meta::deleting(&pass.seen.cluster.metadata).then(|| retention::release(pass.seen)),
        },
        Step {
            name: "give clients back, in steps: give a defragmentation up, wake a member, admit clients",
            when: "`spec.paused` is set, and Holdfast has led clients away from a member that serves",
            file: "cluster/promote.rs",
            rule: give_clients_back,
        },
        Step {
            name: "change nothing else",
            when: "`spec.paused` is set",
            file: "cluster/steps.rs",
            rule: |pass| {
                let wait = || Next::wait(Reason::Paused, "spec.paused is set: Holdfast changes nothing", POLL);
                pass.seen.cluster.spec.paused.then(wait)
            },
        },
    ],
};

/// Rules of a cluster without a latched cluster ID. No other table founds or restores (I2, I9).
pub(super) const FOUNDING: Table = Table {
    title: "A cluster that has not formed",
    steps: &[
        Step {
            name: "return to a snapshot, in steps: make the earlier timeline serve again after a failure",
            when: "the cluster returns by an EtcdRestore, and the first member of its next timeline is late, or the return has failed",
            file: "cluster/timeline.rs",
            rule: |pass| timeline::next(pass.seen, pass.now),
        },
        REFUSED,
        CONFLICT,
        Step {
            name: "write or announce certificates, or wait for their source",
            when: "a Secret is missing, due, foreign or unreadable, or a certificate is not announced",
            file: "cluster/tls.rs",
            rule: |pass| pass.certificates.clone(),
        },
        SURVIVE,
        Step {
            name: "stay without members",
            when: "`spec.replicas` is 0 and no EtcdMember exists",
            file: "cluster/steps.rs",
            rule: |pass| {
                let none = pass.seen.cluster.spec.replicas == 0 && pass.seen.members.is_empty();
                let none = none && pass.seen.returning().is_none();
                none.then_some(Next::Settled(Wake::OnChange))
            },
        },
        Step {
            name: "park",
            when: "`spec.replicas` is 0 and a member is parked: the latch was lost with the status",
            file: "cluster/park.rs",
            rule: |pass| (pass.parks() && park::wakes(pass.seen)).then(|| park::park(pass.seen, pass.now)),
        },
        Step {
            name: "put the finalizer on the EtcdCluster",
            when: "the EtcdCluster has no finalizer of Holdfast",
            file: "cluster/retention.rs",
            rule: |pass| retention::hold(pass.seen),
        },
        Step {
            name: "copy `spec.storage.retention` to a member",
            when: "the member has another value",
            file: "cluster/retention.rs",
            rule: |pass| retention::copy(pass.seen),
        },
        Step {
            name: "latch the cluster ID: the cluster has formed",
            when: "a member has joined",
            file: "cluster/bootstrap.rs",
            rule: |pass| bootstrap::form(pass.seen, pass.now),
        },
        Step {
            name: "wait for volumes",
            when: "claims of an earlier cluster of this name exist",
            file: "cluster/bootstrap.rs",
            // A return founds from data that it prepared while the cluster served beside these.
            rule: |pass| pass.seen.returning().map_or_else(|| bootstrap::beside_foreign_volumes(pass.seen), |_| None),
        },
        Step {
            name: "found or restore, in steps: latch a name, create the seed, latch `spec.joined`",
            when: "no member has joined",
            file: "cluster/bootstrap.rs",
            rule: |pass| Some(bootstrap::seed(pass.seen, pass.now)),
        },
    ],
};

/// Rules of a cluster with a latched cluster ID. The cluster keeps its clients also while Holdfast refuses its spec.
pub(super) const FORMED: Table = Table {
    title: "A cluster that has formed",
    steps: &[
        Step {
            name: "return to a snapshot, in steps: lead clients away, request the safety snapshot, set the members aside, latch the next timeline",
            when: "the cluster returns by an EtcdRestore, and the data is prepared; or the return has ended",
            file: "cluster/timeline.rs",
            rule: |pass| timeline::next(pass.seen, pass.now),
        },
        Step {
            name: "latch the transport of the members",
            when: "`spec.tls` asks for another one for the first time",
            file: "cluster/transport.rs",
            rule: |pass| transport::record(pass.seen),
        },
        Step {
            name: "give a defragmentation up",
            when: "its member is gone, a member joins or leaves, or etcd was not asked yet and a member is not well, another rule waits \
                   or an hour is over",
            file: "cluster/defragment.rs",
            rule: |pass| {
                let waits = pass.certificates.as_ref().is_some_and(|next| !is_act(next));
                defragment::stop(pass.seen, pass.etcd, waits || pass.hindrance().is_some(), pass.now)
            },
        },
        Step {
            name: "forbid a start on an empty volume, admit clients, latch that a member joined, promote a learner",
            when: "a member serves and lacks one of these, and the cluster is neither parked nor waking",
            file: "cluster/promote.rs",
            // Clients come before a renewal.
            rule: |pass| admit(pass).filter(is_act),
        },
        Step {
            name: "announce certificates to a member",
            when: "the member's Secret holds certificates that its EtcdMember does not name",
            file: "cluster/tls.rs",
            // `plan.rs` writes a Secret beside the act.
            rule: |pass| pass.certificates.clone().filter(|next| !matches!(next, Next::Do(Act::Issue(_), _))),
        },
        Step {
            name: "park",
            when: "`spec.replicas` is 0 and an EtcdMember exists; a refused spec and a foreign object come first",
            file: "cluster/park.rs",
            rule: |pass| pass.parks().then(|| pass.hindrance().unwrap_or_else(|| park::park(pass.seen, pass.now))),
        },
        Step {
            name: "give a member its earlier template back, in steps: latch the failed template, write the earlier one",
            when: "the member does not start with a changed spec, and `spec.rollback` is `Automatic`",
            file: "cluster/rollback.rs",
            // A cluster of one or two members has no quorum then.
            rule: |pass| rollback::next(pass.seen, pass.now).filter(|next| is_act(next) && pass.wanted.is_some()),
        },
        Step {
            name: "give the changed spec to a member that does not start",
            when: "the member has another template than `spec`, and no other member tries the changed spec",
            file: "cluster/roll.rs",
            rule: |pass| roll::give(pass.seen, pass.wanted?, pass.now),
        },
        SURVIVE,
        Step {
            name: "wait for etcd",
            when: "no linearizable read of the membership succeeds",
            file: "cluster/silent.rs",
            // Without such a read nothing about the membership changes (I1).
            rule: |pass| match &pass.seen.etcd {
                Seen::Unknown(_) if stuck_spec(pass).is_some() => stuck_spec(pass),
                Seen::Unknown(why) if park::wakes(pass.seen) => Some(park::silent(pass.seen, why, pass.now)),
                Seen::Unknown(why) => Some(silent::wait(pass.seen, why, pass.now)),
                Seen::Known(_) => None,
            },
        },
        Step {
            name: "stop",
            when: "etcd answers with another cluster ID than the latched one",
            file: "cluster/identity.rs",
            rule: |pass| identity::another_etcd(pass.seen),
        },
        Step {
            name: "wake: compare raft indexes, then let clients in",
            when: "a member is parked",
            file: "cluster/park.rs",
            rule: |pass| {
                let etcd = pass.etcd.filter(|_| park::wakes(pass.seen))?;
                Some(park::wake(pass.seen, etcd, pass.now))
            },
        },
        Step {
            name: "wait with a promotion",
            when: "too few voters answer for one more vote",
            file: "cluster/promote.rs",
            rule: admit,
        },
        Step {
            name: "prepare a return: latch its record, create the first member of the next timeline",
            when: "an EtcdRestore names the next timeline, and no other change is under way",
            file: "cluster/timeline.rs",
            rule: |pass| timeline::prepare(pass.seen, pass.etcd, is_sound(pass), pass.now),
        },
        Step {
            name: "defragment, in steps: move the leadership, dismiss the clients, latch the beginning, defragment, latch the result",
            when: "a defragmentation is decided, and the cluster has its turn among those of all clusters",
            file: "cluster/defragment.rs",
            rule: |pass| defragment::go_on(pass.seen, pass.etcd?, pass.now),
        },
        REFUSED,
        CONFLICT,
        Step {
            name: "clear an alarm",
            when: "no member can hold the alarm any more, and every member answers",
            file: "cluster/alarms.rs",
            rule: |pass| alarms::next(pass.seen, pass.wanted?, pass.etcd?, pass.now),
        },
        Step {
            name: "turn etcd's authentication on or off",
            when: "`spec.auth` asks for another state than etcd has",
            file: "cluster/auth.rs",
            rule: |pass| pass.wanted.and(pass.etcd).and_then(|etcd| auth::next(pass.seen, etcd)).filter(is_act),
        },
        Step {
            name: "change a member's peer URL in etcd",
            when: "the member serves peers with TLS, and its URL says plaintext, or the other way round",
            file: "cluster/transport.rs",
            rule: |pass| transport::correct_url(pass.seen, pass.etcd?),
        },
        Step {
            name: "remove a member, in steps",
            when: "a member leaves, was removed, or has no EtcdMember, or more members stay than `spec.replicas`",
            file: "cluster/shrink.rs",
            rule: |pass| shrink(pass).filter(is_act),
        },
        Step {
            name: "give up a learner",
            when: "the learner did not get its vote in time",
            file: "cluster/stuck.rs",
            rule: |pass| stuck::next(pass.seen, pass.etcd?, pass.now),
        },
        Step {
            name: "replace a member",
            when: "evidence, etcd's list or a user asks for it, and the limits permit it",
            file: "cluster/replace.rs",
            rule: |pass| replace(pass).filter(is_act),
        },
        Step {
            name: "wait with a removal",
            when: "a member is to leave and may not yet; a member that cannot be replaced yet is named first",
            file: "cluster/shrink.rs",
            rule: |pass| shrink(pass).map(|wait| replace(pass).unwrap_or(wait)),
        },
        Step {
            name: "let a member trust the CA of a member that joins: move the leadership, evict the Pod",
            when: "a member that etcd does not list waits for certificates of a CA that a running member does not trust",
            file: "cluster/roll.rs",
            rule: |pass| roll::before_growth(pass.seen, pass.etcd?, pass.now).filter(|_| pass.wanted.is_some()),
        },
        Step {
            name: "grow: latch a name, create the EtcdMember, add the learner, give the learner the member list",
            when: "fewer members stay than `spec.replicas`, or a member is on its way",
            file: "cluster/grow.rs",
            rule: |pass| grow::next(pass.seen, pass.wanted?, pass.etcd?, pass.now),
        },
        Step {
            name: "wait with a replacement",
            when: "a member is to be replaced and may not yet",
            file: "cluster/replace.rs",
            rule: replace,
        },
        Step {
            name: "move the leadership to a member, in steps: ask the leader, take the request away",
            when: "the annotation `holdfast.dev/move-leader` names the member, and every voter is well; a request for a member that \
                   cannot lead ends at once",
            file: "cluster/move_leader.rs",
            rule: |pass| move_leader::next(pass.seen, pass.etcd?),
        },
        Step {
            name: "begin a defragmentation, or wait for the cluster's turn",
            when: "a member's file has enough free space, every member is well, nothing changes, and no snapshot is being saved; a \
                   roll comes first, unless etcd takes no write",
            file: "cluster/defragment.rs",
            rule: |pass| defragment::begin(pass.seen, pass.wanted?, pass.etcd?, pass.now),
        },
        Step {
            name: "latch a larger quota",
            when: "a database is full, no defragmentation makes room, `spec.defragmentation.growQuotaTo` allows a larger quota, and \
                   each member has the present quota",
            file: "cluster/raise_quota.rs",
            rule: |pass| raise_quota::next(pass.seen, pass.wanted?, pass.etcd?, pass.now),
        },
        Step {
            name: "latch the next step between plaintext and TLS",
            when: "`spec.tls` asks for it, each member is within one step and has its certificates; a step back waits here for the end of \
                   authentication",
            file: "cluster/transport.rs",
            rule: |pass| {
                let etcd = pass.etcd.filter(|_| pass.wanted.is_some())?;
                let forth = || transport::next(pass.seen, etcd, pass.now).filter(is_act);
                transport::back(pass.seen, etcd, pass.now).or_else(forth)
            },
        },
        Step {
            name: "roll: write the template, move the leadership, evict the Pod",
            when: "a member has another template than `spec`, or a Pod another template than its member, and every other voter is \
                   well",
            file: "cluster/roll.rs",
            rule: |pass| roll::next(pass.seen, pass.wanted?, pass.etcd?, pass.now),
        },
        Step {
            name: "delete the Pod that restored",
            when: "the Pod mounts the claim of a store, and every member is well",
            file: "cluster/seed.rs",
            rule: |pass| seed::next(pass.seen, pass.wanted?, pass.etcd?),
        },
        Step {
            name: "wait with authentication",
            when: "`spec.auth` asks for authentication, and the operator's certificate is not of the user root",
            file: "cluster/auth.rs",
            rule: |pass| auth::next(pass.seen, pass.etcd?),
        },
        Step {
            name: "wait with the next step between plaintext and TLS",
            when: "a member has no usable certificates",
            file: "cluster/transport.rs",
            rule: |pass| transport::next(pass.seen, pass.etcd?, pass.now),
        },
        Step {
            name: "wait for a member",
            when: "a listed member has no ready Pod",
            file: "cluster/health.rs",
            rule: |pass| health::restarting(pass.seen, pass.etcd?, pass.now),
        },
        Step {
            name: "wait for larger volumes",
            when: "a member's volume is smaller than `spec.storage.size`, and nothing refuses its growth",
            file: "cluster/enlarge.rs",
            rule: |pass| enlarge::waits(pass.seen, pass.now),
        },
    ],
};

/// Rules for a pass without an act. Their act does not change the reason for which the pass waits.
pub(super) const IDLE: Table = Table {
    title: "A pass that has no act yet",
    steps: &[
        Step {
            name: "commit an entry that changes nothing",
            when: "a member's etcd runs and does not answer, and the leader does",
            file: "cluster/release.rs",
            rule: |pass| release::next(pass.seen, pass.now).map(Next::act),
        },
        Step {
            name: "put the finalizer on the EtcdCluster, or copy `spec.storage.retention` to a member",
            when: "the cluster has formed, and lacks the finalizer or the copy",
            file: "cluster/retention.rs",
            rule: |pass| retention::beside(pass.seen).map(Next::act),
        },
        Step {
            name: "ask for a larger volume, or write the size of a volume that has grown to its member",
            when: "`spec.storage.size` has grown, also without a quorum and while the cluster is parked",
            file: "cluster/enlarge.rs",
            rule: |pass| enlarge::beside(pass.seen, pass.now).map(Next::act),
        },
        Step {
            name: "delete a member of an earlier timeline, and a prepared one that no return knows",
            when: "its time is over, and no return is under way",
            file: "cluster/timeline.rs",
            rule: |pass| timeline::clear(pass.seen, pass.now).map(Next::act),
        },
    ],
};

const SURVIVE: Step = Step {
    name: "return to the data of one member, in steps: latch the record, create the first member of the next timeline, latch that timeline",
    when: "an EtcdRestore names the member, and no linearizable read succeeds",
    file: "cluster/timeline.rs",
    rule: |pass| {
        let held = || pass.hindrance().or_else(|| pass.certificates.clone());
        let waits = || timeline::waits_for_spec(pass.seen, pass.now).then(held).flatten();
        timeline::survive(pass.seen, is_sound(pass), pass.now).or_else(waits)
    },
};

const REFUSED: Step = Step {
    name: "wait for another spec",
    when: "Holdfast refuses the spec",
    file: "valid.rs",
    rule: |pass| pass.refused.clone(),
};

const CONFLICT: Step = Step {
    name: "wait for a name",
    when: "a Service or a disruption budget of another owner, or of an earlier cluster, has the name",
    file: "cluster/client_services.rs",
    rule: |pass| pass.conflict.clone(),
};

/// Whether the next timeline could be founded: nothing refuses the spec, its names or the objects beside it, and no certificate is
/// missing.
fn is_sound(pass: &Pass<'_>) -> bool {
    let waits = pass.certificates.as_ref().is_some_and(|next| !is_act(next));
    pass.wanted.is_some() && !waits && valid::check_names(&pass.seen.cluster, &pass.seen.settings).is_ok()
}

/// Gives back what Holdfast takes from clients in steps: a paused cluster takes none of the next steps.
fn give_clients_back(pass: &Pass<'_>) -> Option<Next> {
    let seen = pass.seen;
    // A return stands still where it is: its safety snapshot has to have the last write.
    let returns = seen.returning().is_some_and(|returning| returning.phase().is_outage());
    if !seen.cluster.spec.paused || seen.cluster.spec.replicas == 0 || returns {
        return None;
    }
    if seen.latches().defragmenting.is_some() {
        return Some(defragment::give_up(seen));
    }
    let etcd = pass.etcd?;
    let next = if park::wakes(seen) { Some(park::wake(seen, etcd, pass.now)) } else { promote::admit(seen, etcd) };
    next.filter(is_act)
}

fn admit(pass: &Pass<'_>) -> Option<Next> {
    let serves = !pass.parks() && !park::wakes(pass.seen);
    promote::next(pass.seen, pass.etcd.filter(|_| serves)?)
}

fn shrink(pass: &Pass<'_>) -> Option<Next> {
    shrink::next(pass.seen, pass.wanted?, pass.etcd?, pass.now)
}

fn replace(pass: &Pass<'_>) -> Option<Next> {
    // A voter that cannot leave may wait for the replacement of a lost member.
    let beside = shrink(pass).is_some();
    replace::next(pass.seen, pass.etcd?, beside, pass.now)
}

/// The wait for another spec, where a changed spec has cost the quorum.
fn stuck_spec(pass: &Pass<'_>) -> Option<Next> {
    roll::why_stuck(pass.seen, pass.wanted?, pass.now)
}

const fn is_act(next: &Next) -> bool {
    matches!(next, Next::Do(..))
}
