//! From the present members to more members.
//!
//! Decides whether members are added back to back or one by one, and the order name → object → learner → initial cluster.
//! Adds no member while etcd lists a member without an `EtcdMember`.

use holdfast_api::cluster::Latches;
use holdfast_api::condition::Reason;
use holdfast_api::key;
use holdfast_api::member::Birth;
use holdfast_api::template::Template;
use jiff::{SignedDuration, Timestamp};

use super::hand_over::hand_over;
use super::health::voters;
use super::intervals::{POLL, SOON};
use super::{Member, Membership, Observed, alarms, health, roll, stuck, tls};
use holdfast_base::objects::budget::quorum;
use holdfast_base::valid::{self, Wanted};
use holdfast_base::{Act, AlarmKind, Next, Seen, Target, Wake, meta, objects, pods};

/// Below this size the leader sends a learner's first snapshot in well under a second, so several learners do not slow the leader.
const SMALL_DATABASE: i64 = 256 << 20;

/// A restored log starts at index 1: below this index the log has few writes since the restore.
const SHORT_LOG: u64 = 1_000;

/// Returns the next step towards the wanted number of members; `None` when there is no step left.
pub(super) fn next(seen: &Observed, wanted: &Wanted, etcd: &Membership, now: Timestamp) -> Option<Next> {
    if let Some(next) = strange(seen, etcd) {
        return Some(next);
    }
    let growth = Growth::assess(seen, wanted, etcd);
    let held = stuck::paused(seen, now).filter(|_| growth.missing > 0);
    let create = if held.is_some() { None } else { growth.create() };
    create
        .or_else(|| growth.add(now))
        .or_else(|| growth.introduce())
        .or_else(|| growth.tidy())
        .or_else(|| growth.outstanding(now))
        .or(held)
}

/// Whether a member is to be added and no rule blocks the addition.
pub(super) fn proceeds(seen: &Observed, etcd: &Membership, now: Timestamp) -> bool {
    let Ok(wanted) = valid::cluster(&seen.cluster) else { return false };
    let growth = Growth::assess(seen, &wanted, etcd);
    let comes = (growth.missing > 0 || !growth.unadded.is_empty()) && (growth.together || growth.learners() == 0);
    comes && growth.unhealthy().is_none() && strange(seen, etcd).is_none() && stuck::paused(seen, now).is_none()
}

/// Returns the act or the wait for a membership that Holdfast must not grow.
fn strange(seen: &Observed, etcd: &Membership) -> Option<Next> {
    // A seed that the API server created late, after the cluster formed. The seed never serves, since no cluster is founded twice
    // (I2).
    let late = |m: &&Member| m.object.spec.role == Birth::Seed && !m.joined() && seen.listed(etcd, m.name()).is_none();
    if let Some(seed) = seen.members.iter().find(late) {
        if seed.deleting() {
            let message = format!("Holdfast deletes {}, which came too late to found this cluster", seed.name());
            return Some(Next::wait(Reason::Growing, message, Wake::AfterMillis(1_000)));
        }
        return Some(Next::act(Act::DeleteMember {
            member: Target::from(&seed.object.metadata),
            why: "the cluster formed without this member".to_owned(),
        }));
    }
    if let Some(listed) = etcd.members.iter().find(|l| seen.standing_for(l).is_none()) {
        let message = format!(
            "etcd lists member {:x} (name {:?}, {}), which has no EtcdMember. Holdfast adds no member until then. If \
             no server runs under this ID, remove the member with etcdctl member remove",
            listed.id,
            listed.name,
            listed.peer_urls.join(" ")
        );
        return Some(Next::wait(Reason::UnknownMember, message, POLL));
    }
    let unlisted = |m: &&Member| m.joined() && seen.listed(etcd, m.name()).is_none();
    let gone = seen.staying().find(unlisted).filter(|_| !seen.cluster.spec.repairs_itself())?;
    let message = format!(
        "the member {} had joined, and etcd lists its ID no more. An ID never returns, and spec.repair.mode is Manual. To replace \
         the member: kubectl annotate etcdc {} --overwrite {}={}",
        gone.name(),
        meta::name(&seen.cluster.metadata),
        key::REPLACE,
        gone.name()
    );
    Some(Next::wait(Reason::MemberNotListed, message, POLL))
}

/// How long a leader may refuse a new member although every voter is healthy. etcd waits five seconds after a reconnection
/// (`HealthInterval`).
const REFUSED_FOR: SignedDuration = SignedDuration::from_mins(1);

struct Growth<'a> {
    seen: &'a Observed,
    etcd: &'a Membership,
    latches: Latches,
    /// Template of a new member, if not that of the spec.
    template: Option<Template>,
    /// Number of members without an object.
    missing: usize,
    /// Members that etcd does not list yet, by name.
    unadded: Vec<&'a Member>,
    /// Whether etcd adds a member while a quorum of the grown cluster answers; otherwise every voter has to answer.
    adds_beside_silent: bool,
    /// Whether etcd may list all newcomers before any of them starts.
    together: bool,
}

impl<'a> Growth<'a> {
    fn assess(seen: &'a Observed, wanted: &Wanted, etcd: &'a Membership) -> Self {
        let mut unadded: Vec<&Member> = seen
            .members
            .iter()
            .filter(|m| !m.joined() && !m.deleting() && m.stays() && seen.listed(etcd, m.name()).is_none())
            .collect();
        unadded.sort_by_key(|m| m.name());
        // `unhealthy` waits for a voter that does not answer now; such a voter must not split the newcomers.
        let small = |answer: &super::Answer| answer.db_bytes < SMALL_DATABASE;
        let all_small = seen.answers.values().filter_map(Seen::known).all(small);
        // In a cluster that was restored a moment ago no client waits for the leader.
        let fresh = |answer: &super::Answer| answer.applied_index < SHORT_LOG;
        let restored = seen.latches().formed.is_some_and(|formed| formed.restored_from.is_some());
        let all_fresh = restored && seen.answers.values().filter_map(Seen::known).all(fresh);
        // A limit of the leader's: while versions differ, the lowest one counts.
        let version = seen.lowest_version().map_or(wanted.server.version, |lowest| lowest.min(wanted.server.version));
        Self {
            seen,
            etcd,
            latches: seen.latches(),
            template: roll::template_of_new_member(seen, wanted),
            missing: wanted.replicas.saturating_sub(seen.staying().count()),
            unadded,
            adds_beside_silent: version.adds_beside_silent(),
            // etcd 3.5 accepts one learner at a time; the leader sends one snapshot of a large database at a time.
            together: version.many_learners() && (all_small || all_fresh),
        }
    }

    fn learners(&self) -> usize {
        self.etcd.members.iter().filter(|l| l.learner).count()
    }

    /// Latches a name first, then creates the object: a lost answer or a crash between the two never makes two members (I11).
    fn create(&self) -> Option<Next> {
        if self.missing == 0 || (!self.together && (self.learners() > 0 || !self.unadded.is_empty())) {
            return None;
        }
        if let Some(wait) = self.unhealthy() {
            return Some(wait);
        }
        let there = |name: &str| self.seen.members.iter().any(|m| m.name() == name);
        if let Some(pending) = self.latches.pending_member.as_deref().filter(|name| !there(name)) {
            let mut joiner = objects::member::joiner(&self.seen.cluster, pending);
            if let Some(proven) = &self.template {
                objects::member::give(&mut joiner, proven, &self.seen.cluster);
            }
            return Some(Next::act(Act::CreateMember(Box::new(joiner))));
        }
        let fresh = self.seen.fresh_name();
        if there(&fresh) {
            return Some(Next::wait(Reason::Growing, "the generated name of the next member is taken", SOON));
        }
        Some(Next::act(Act::Latch(Box::new(Latches { pending_member: Some(fresh), ..self.latches.clone() }))))
    }

    fn add(&self, now: Timestamp) -> Option<Next> {
        let member = self.unadded.first()?;
        if !self.together && self.learners() > 0 {
            return None;
        }
        if let Some(wait) = self.unhealthy() {
            return Some(wait);
        }
        if member.object.spec.certificates().is_some_and(|tls| tls.staged.is_none()) {
            let (reason, message) = match tls::hindrance(self.seen, member.name(), now) {
                Some((reason, why)) => {
                    let name = member.name();
                    (reason, format!("{name} has no certificates yet; Holdfast adds it to etcd afterwards: {why}"))
                }
                None if tls::trouble(self.seen, now).is_some() => {
                    let name = member.name();
                    (
                        Reason::CertificatePending,
                        format!("{name} has no certificates yet; Holdfast adds it to etcd afterwards"),
                    )
                }
                // Holdfast writes the certificates beside this step, in milliseconds: the same words as for the other steps.
                None => (Reason::Growing, format!("growing to {} members", self.seen.cluster.spec.replicas)),
            };
            return Some(Next::wait(reason, message, Wake::AfterMillis(1_000)));
        }
        // A late failure of a request to a peer's earlier Pod marks the peer as disconnected, and no later success of its streams
        // takes the mark back (etcd: rafthttp, `pipeline.handle`). Another leader has marks of its own.
        let refused = self.seen.refused_for.is_some_and(|lasted| lasted >= REFUSED_FOR);
        let leader = self.etcd.members.iter().find(|l| Some(l.id) == self.etcd.leader);
        let leader = leader.filter(|_| refused && health::healthy(self.seen, self.etcd).len() == voters(self.etcd));
        if let Some((leader, own)) = leader.and_then(|l| Some((l, self.seen.standing_for(l)?)))
            && let Some(next) = hand_over(self.seen, self.etcd, leader, own.name())
        {
            return Some(next);
        }
        Some(Next::act(Act::AddLearner {
            name: member.name().to_owned(),
            peer_url: objects::member::own_peer_url(&member.object),
            cluster_id: self.etcd.cluster_id,
        }))
    }

    /// Returns the wait for healthy voters: Holdfast adds members while a quorum of the grown cluster is healthy (I1).
    fn unhealthy(&self) -> Option<Next> {
        let corrupt: Vec<_> = self.etcd.alarms_of(AlarmKind::Corrupt).collect();
        if !corrupt.is_empty() {
            let mut described: Vec<_> =
                corrupt.iter().map(|a| alarms::describe_corrupt(self.seen, self.etcd, a)).collect();
            described.sort();
            let message = format!("{}; Holdfast adds no member while a CORRUPT alarm is raised", described.join(", "));
            return Some(Next::wait(Reason::AlarmRaised, message, POLL));
        }
        let voters = voters(self.etcd);
        let needed = if self.adds_beside_silent { quorum(voters + 1).min(voters) } else { voters };
        (health::healthy(self.seen, self.etcd).len() < needed).then(|| {
            let message = format!("Holdfast adds members when {needed} of {voters} voters are healthy");
            Next::wait(Reason::WaitingForEtcd, message, Wake::AfterMillis(1_000))
        })
    }

    /// Gives each newcomer, before its first start, the full member list: etcd exits if the list has a member too few or too many.
    fn introduce(&self) -> Option<Next> {
        if self.together && !self.unadded.is_empty() {
            return None;
        }
        let mut newcomers: Vec<&Member> = self
            .etcd
            .members
            .iter()
            .filter(|l| l.name.is_empty())
            .filter_map(|l| self.seen.standing_for(l).filter(|m| !m.joined() && !m.deleting() && m.stays()))
            .collect();
        newcomers.sort_by_key(|m| m.name());
        let initial_cluster = self.member_list();
        let member = newcomers
            .into_iter()
            .find(|m| m.object.spec.initial_cluster.as_deref() != Some(initial_cluster.as_str()))?;
        Some(Next::act(Act::SetInitialCluster { member: Target::from(&member.object.metadata), initial_cluster }))
    }

    /// Returns `name=url` of every member that etcd lists, sorted. A member without a name in etcd has the name of its object.
    fn member_list(&self) -> String {
        let mut all: Vec<String> = self
            .etcd
            .members
            .iter()
            .flat_map(|l| {
                let name = self.seen.standing_for(l).map_or(l.name.as_str(), Member::name);
                l.peer_urls.iter().map(move |url| format!("{name}={url}"))
            })
            .collect();
        all.sort();
        all.join(",")
    }

    fn tidy(&self) -> Option<Next> {
        let finished = self.missing == 0 && self.latches.pending_member.is_some();
        // Every member is a voter.
        let arrived = self.missing == 0 && !self.seen.staying().any(|m| stuck::joins(self.seen, self.etcd, m));
        let given_up = self.latches.given_up.clone().filter(|_| !arrived);
        let over = given_up != self.latches.given_up;
        let latches = || Latches { pending_member: None, given_up, ..self.latches.clone() };
        (finished || over).then(|| Next::act(Act::Latch(Box::new(latches()))))
    }

    /// Returns the wait for members that have no vote yet.
    fn outstanding(&self, now: Timestamp) -> Option<Next> {
        let learners: Vec<&Member> =
            self.etcd.members.iter().filter(|l| l.learner).filter_map(|l| self.seen.standing_for(l)).collect();
        let (running, idle): (Vec<&Member>, Vec<&Member>) =
            learners.into_iter().partition(|m| m.live_pod().is_some_and(pods::runs));
        let soon = running.iter().any(|m| pods::starting(m.live_pod(), now));
        let wake = if soon { SOON } else { Wake::AfterMillis(1_000) };
        if let Some(member) = running.first() {
            let message = format!("{} has not caught up with the leader yet", member.name());
            return Some(Next::wait(Reason::WaitingForLearner, message, wake));
        }
        let message = format!("the Pod of {} does not run yet", idle.first()?.name());
        Some(Next::wait(Reason::WaitingForPod, message, wake))
    }
}
