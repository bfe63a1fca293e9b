//! Facts about a cluster that several decisions need, each computed in one place.
//! Decides nothing.

use holdfast_api::cluster::Latches;
use holdfast_api::timeline::Returning;
use holdfast_api::{key, name, role, timeline};
use holdfast_contract::hex_id;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use super::cluster::{Answer, Listed, Member, Membership, Observed};
use crate::valid::Version;
use crate::{meta, objects, pods};

impl Member {
    /// Returns the member's name.
    pub fn name(&self) -> &str {
        meta::name(&self.object.metadata)
    }

    /// Returns the Pod, if the member owns the Pod and the Pod is not being deleted.
    pub fn live_pod(&self) -> Option<&Pod> {
        let own = |p: &&Pod| meta::controlled_by(&p.metadata, meta::uid(&self.object.metadata));
        self.pod.as_ref().filter(own).filter(|p| !meta::deleting(&p.metadata))
    }

    /// Returns the claim, if the claim is not being deleted.
    pub fn live_claim(&self) -> Option<&PersistentVolumeClaim> {
        self.claim.as_ref().filter(|claim| !meta::deleting(&claim.metadata))
    }

    /// Returns a text for the lost place of the data: the claim is gone, or the Pod that held the data in memory.
    pub fn lost_volume(&self) -> Option<&'static str> {
        if self.object.spec.storage.in_memory() {
            let gone = self.pod.as_ref().is_none_or(pods::ended);
            return gone.then_some("its Pod is gone, and the data in its memory");
        }
        self.claim.is_none().then_some("its claim is gone")
    }

    /// Whether the member has served and `spec.joined` is latched.
    pub const fn joined(&self) -> bool {
        self.object.spec.joined.is_some()
    }

    /// Whether the object is being deleted.
    pub const fn deleting(&self) -> bool {
        meta::deleting(&self.object.metadata)
    }

    /// Whether etcd has removed the member, latched in `spec.removed`.
    pub const fn removed(&self) -> bool {
        self.object.spec.removed.is_some()
    }

    /// Whether the member is neither leaving nor removed.
    pub const fn stays(&self) -> bool {
        self.object.spec.leaving.is_none() && !self.removed()
    }
}

impl Observed {
    /// Returns the cluster's latches.
    pub fn latches(&self) -> Latches {
        self.cluster.status.as_ref().map(|s| s.latches.clone()).unwrap_or_default()
    }

    /// Returns the timeline of the cluster.
    pub fn timeline(&self) -> u32 {
        timeline::of_cluster(&self.cluster, self.members.iter().chain(&self.others).map(|member| &member.object))
    }

    /// Returns the return that is under way.
    pub fn returning(&self) -> Option<Returning> {
        self.latches().returning.filter(|returning| !returning.phase().is_final())
    }

    /// Whether the spec names a snapshot to restore.
    pub fn asks_for_restore(&self) -> bool {
        self.cluster.spec.bootstrap.as_ref().is_some_and(|b| b.restore.is_some())
    }

    /// Returns the members that are neither leaving nor removed.
    pub fn staying(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|m| m.stays())
    }

    /// Returns the members that run etcd, or shall run it: also a voter that is to leave and may not yet.
    pub fn hosting(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|m| !m.removed() && !m.object.spec.is_lost())
    }

    /// Returns etcd's membership, if the cluster has not formed or etcd answers with the cluster ID of the latch.
    pub fn own_etcd(&self) -> Option<&Membership> {
        let is_own = |etcd: &&Membership| self.latches().formed.is_none_or(|f| f.cluster_id == hex_id(etcd.cluster_id));
        self.etcd.known().filter(is_own)
    }

    /// Whether a member is a voter: by etcd's membership, else by the label of its Pod.
    pub fn votes(&self, etcd: Option<&Membership>, member: &Member) -> bool {
        match etcd {
            Some(etcd) => self.listed(etcd, member.name()).is_some_and(|l| !l.learner),
            None => member.live_pod().is_some_and(|p| meta::label(&p.metadata, key::ROLE) == Some(role::VOTER)),
        }
    }

    /// Returns etcd's entry for a member: by name, which no other member ever gets, or by peer URL before the entry has a name.
    pub fn listed<'a>(&self, etcd: &'a Membership, member: &str) -> Option<&'a Listed> {
        let is_own = |url: &String| objects::member::is_peer_url_of(&self.cluster, member, url);
        etcd.members.iter().find(|l| l.name == member || l.peer_urls.iter().any(is_own))
    }

    /// Returns the member of an entry in etcd's membership.
    pub fn standing_for(&self, listed: &Listed) -> Option<&Member> {
        self.members.iter().find(|m| {
            let is_own = |url: &String| objects::member::is_peer_url_of(&self.cluster, m.name(), url);
            listed.name == m.name() || listed.peer_urls.iter().any(is_own)
        })
    }

    /// Returns the answer of the server behind a member's name, whichever member it is.
    pub fn known_answer(&self, member: &str) -> Option<&Answer> {
        self.answers.get(member)?.known()
    }

    /// Whether the member has answered that it leads.
    pub fn leads(&self, member: &Member) -> bool {
        self.known_answer(member.name()).is_some_and(|answer| answer.leader == answer.member_id)
    }

    /// Returns the answer of a member's server, if its cluster ID and member ID are those that etcd lists.
    pub fn serving<'a>(&'a self, etcd: &Membership, listed: &Listed, member: &str) -> Option<&'a Answer> {
        let answer = self.known_answer(member)?;
        (answer.cluster_id == etcd.cluster_id && answer.member_id == listed.id).then_some(answer)
    }

    /// Returns the lowest version that a member runs.
    pub fn lowest_version(&self) -> Option<Version> {
        self.answers.values().filter_map(|answer| Version::parse(&answer.known()?.version)).min()
    }

    /// Returns the next member's name.
    pub fn fresh_name(&self) -> String {
        name::member(meta::name(&self.cluster.metadata), &self.fresh_suffix)
    }

    /// Returns the name of the next member: the latched name, unless a member has that name.
    pub fn next_name(&self) -> String {
        let free = |name: &String| self.members.iter().chain(&self.others).all(|m| m.name() != name);
        self.latches().pending_member.filter(free).unwrap_or_else(|| self.fresh_name())
    }
}
