//! Facts about a cluster that several decisions ask for, each read in one way.
//!
//! Decides nothing about what to do, but for what a silent or an incomplete cluster is waiting for.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use super::pace::{POLL, SOON};
use super::{Answer, Listed, Member, Membership, Observed, memberless};
use crate::api::cluster::Latches;
use crate::api::condition::{Reason, Type};
use crate::plan::build::budget::quorum;
use crate::plan::build::container;
use crate::plan::{Next, Seen, Unread, Wake, build, meta, pods};

impl Member {
    /// Its name.
    pub fn name(&self) -> &str {
        meta::name(&self.object.metadata)
    }

    /// Its Pod, if that is really its own and not on its way out.
    pub fn live_pod(&self) -> Option<&Pod> {
        let own = |p: &&Pod| meta::controlled_by(&p.metadata, meta::uid(&self.object.metadata));
        self.pod.as_ref().filter(own).filter(|p| !meta::deleting(&p.metadata))
    }

    /// Its claim, if that is not on its way out.
    pub fn live_claim(&self) -> Option<&PersistentVolumeClaim> {
        self.claim.as_ref().filter(|claim| !meta::deleting(&claim.metadata))
    }

    /// Whether it has been seen serving.
    pub const fn joined(&self) -> bool {
        self.object.spec.joined.is_some()
    }

    /// Whether it is on its way out.
    pub const fn deleting(&self) -> bool {
        meta::deleting(&self.object.metadata)
    }
}

/// A member that has not served for longer than this does not count as starting, however young its Pod is: one that is
/// rejected, or ends, again and again always has a young Pod.
const STARTS_WITHIN: SignedDuration = SignedDuration::from_mins(5);

/// Since when a member has not served, as its own pass tells it.
fn unready_since(member: &Member) -> Option<Timestamp> {
    let told = &member.object.status.as_ref()?.conditions;
    let ready = told.iter().find(|c| c.type_ == Type::Ready.as_str() && c.status != "True")?;
    // One that was deleted by hand serves all the same.
    (ready.reason != Reason::MemberStillListed.as_str()).then_some(ready.last_transition_time.0)
}

/// Whether its etcd runs in this Pod and was never restarted there: it may have been admitted only just now.
fn runs_from_its_first(member: &Member) -> bool {
    let status = member.pod.as_ref().filter(|pod| pods::runs(pod)).and_then(|pod| pods::status(pod, container::ETCD));
    status.is_some_and(|status| status.restart_count == 0)
}

impl Observed {
    /// The latches.
    pub fn latches(&self) -> Latches {
        self.cluster.status.as_ref().map(|s| s.latches.clone()).unwrap_or_default()
    }

    /// Whether the spec names data to begin with.
    pub fn asks_for_restore(&self) -> bool {
        self.cluster.spec.bootstrap.as_ref().is_some_and(|b| b.restore.is_some())
    }

    /// What etcd lists for a member: by name, which is never used twice, or by peer URL before it has a name.
    pub fn listed<'a>(&self, etcd: &'a Membership, member: &str) -> Option<&'a Listed> {
        let url = build::member::peer_url(&self.cluster, member);
        etcd.members.iter().find(|l| l.name == member || l.peer_urls.contains(&url))
    }

    /// The member that stands for what etcd lists.
    pub fn standing_for(&self, listed: &Listed) -> Option<&Member> {
        self.members.iter().find(|m| {
            listed.name == m.name() || listed.peer_urls.contains(&build::member::peer_url(&self.cluster, m.name()))
        })
    }

    /// What a member's own server said, if it is this cluster's and the one that etcd lists.
    pub fn serving<'a>(&'a self, etcd: &Membership, listed: &Listed, member: &str) -> Option<&'a Answer> {
        let answer = self.answers.get(member)?.known()?;
        (answer.cluster_id == etcd.cluster_id && answer.member_id == listed.id).then_some(answer)
    }

    /// Voters that answer for themselves, of those that etcd lists.
    pub fn healthy_voters(&self, etcd: &Membership) -> usize {
        let voters = etcd.members.iter().filter(|l| !l.learner);
        voters.filter(|l| self.standing_for(l).is_some_and(|m| self.serving(etcd, l, m.name()).is_some())).count()
    }

    /// What is told where etcd asks for a login. It answers, so there is a quorum, and this is no lost one.
    pub(super) fn locked_out(&self) -> Option<Next> {
        let Seen::Unknown(Unread::LoginRequired(_)) = &self.etcd else { return None };
        let message = "etcd has authentication enabled, and this version of Holdfast cannot log in. Members serve clients, but \
                       Holdfast adds and promotes none, and a new Pod gets no clients. Disable authentication: etcdctl --user \
                       root auth disable";
        Some(Next::wait(Reason::AuthRequiredNotConfigured, message, POLL))
    }

    /// Why etcd is silent: it wants a login, members start, or a quorum is lost.
    pub(super) fn silent(&self, why: &Unread, now: Timestamp) -> Next {
        if let Some(next) = self.locked_out() {
            return next;
        }
        if self.members.is_empty() {
            return memberless::next(self);
        }
        // A missing Pod is made again at once, unless the member's claim is lost. A deleted one is soon gone, unless its node
        // is dead.
        let starts = |m: &&Member| match &m.pod {
            _ if unready_since(m).is_some_and(|since| now >= since + STARTS_WITHIN) && !runs_from_its_first(m) => false,
            Some(pod) if meta::deleting(&pod.metadata) => !pods::lingers(pod, now),
            Some(pod) => pods::starting(Some(pod), now),
            None => m.claim.is_some() && !m.deleting() && !self.cluster.spec.paused,
        };
        if let Some(first) = self.members.iter().find(starts) {
            let soon = self.members.iter().filter(starts).any(|m| m.live_pod().is_some_and(pods::runs));
            let message = format!("{} is starting; no linearizable read succeeds yet", first.name());
            return Next::wait(Reason::WaitingForEtcd, message, if soon { SOON } else { Wake::AfterMillis(500) });
        }
        let said: Vec<String> = self
            .members
            .iter()
            .map(|m| match self.answers.get(m.name()) {
                None => format!("{} does not run", m.name()),
                Some(Seen::Unknown(why)) => format!("{} does not answer ({why})", m.name()),
                Some(Seen::Known(_)) => format!("{} answers", m.name()),
            })
            .collect();
        let message = format!(
            "no linearizable read succeeds ({why}): {}. {} of {} members are needed; bring their Pods and volumes back, \
             nothing is removed",
            said.join(", "),
            quorum(self.members.len()),
            self.members.len()
        );
        // A quorum comes back when a Pod does, which is watched; an election is not.
        Next::wait(Reason::QuorumLost, message, Wake::AfterMillis(2_000))
    }

    /// Nothing is left to decide: all serve, or some are on their way back.
    pub(super) fn rest(&self, etcd: &Membership, now: Timestamp) -> Next {
        let back: Vec<&str> = etcd
            .members
            .iter()
            .filter_map(|l| self.standing_for(l))
            .filter(|m| !m.live_pod().is_some_and(pods::ready))
            .map(Member::name)
            .collect();
        if let Some(member) = self.members.iter().find(|m| m.deleting()) {
            let message = format!(
                "the member {} was deleted by hand. Holdfast keeps the member while the cluster counts on the member; \
                 replacing members is not supported yet",
                member.name()
            );
            return Next::wait(Reason::MemberStillListed, message, POLL);
        }
        if back.is_empty() {
            return Next::Settled(POLL);
        }
        let starting = self.members.iter().any(|m| pods::starting(m.live_pod(), now));
        let message = format!("not ready: {}", back.join(", "));
        Next::wait(Reason::MemberRestarting, message, if starting { Wake::AfterMillis(1_000) } else { POLL })
    }
}
