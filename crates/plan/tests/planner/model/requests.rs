//! Requests of the operator to Kubernetes and etcd, and their effects.
//!
//! Decides the preconditions of a request, the refusals of etcd, and the judgement of each request by the facts, independently of
//! `plan` and `safety`.

use super::facts::{Breach, Claim, Entry, Facts, Log, Object, Pod, Slot, quorum};
use super::sight::Kube;

/// An act in terms of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// The latches: the next name, the last member that was replaced on evidence, a listed ID without an object, and a template
    /// with which a member did not start, and a member that is defragmented.
    Pending(Option<u8>, Option<u8>, Option<(u8, u8)>, Option<u8>, Option<(u8, bool)>),
    Create(u8),
    Add(u8),
    Tell(u8, u8),
    Join(u8, u8),
    Forbid(u8),
    Promote(u8, u8),
    Admit(u8),
    /// A member leaves; `true`: on evidence.
    Leave(u8, bool),
    Dismiss(u8),
    Lead(u8, u8),
    Remove {
        n: u8,
        id: u8,
        learner: bool,
    },
    Prove(u8),
    Park(u8, Option<Log>),
    Unpark(u8),
    DeleteMember(u8),
    CreateClaim(u8),
    CreatePod {
        n: u8,
        may_start_empty: bool,
        told: u8,
    },
    DeletePod(u8),
    DeleteClaim(u8),
    Release(u8),
    /// A member gets a template.
    Template {
        n: u8,
        to: u8,
        served: Option<u8>,
    },
    Evict(u8),
    /// A member's etcd rewrites its file; clients come back after its answer.
    Defragment(u8),
    /// A member's `NOSPACE` alarm ends.
    Disarm(u8),
}

/// The precondition of a request: the version of the object that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guard {
    None,
    Cluster((u8, u8), Option<u8>, Option<u8>, Option<(u8, u8)>, Option<u8>, Option<(u8, bool)>),
    Object(u8, Option<Object>),
    Pod(u8, Option<Pod>),
    Claim(u8, Option<bool>),
}

/// An act with its precondition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    pub order: Order,
    guard: Guard,
}

impl Kube {
    /// The request for an order that was decided on these objects.
    pub fn request(&self, order: Order) -> Request {
        let part = |n: u8| &self.parts[usize::from(n)];
        let guard = match order {
            Order::Pending(..) => {
                let spec = (self.replicas, self.template);
                Guard::Cluster(spec, self.pending, self.replaced, self.orphan, self.failed, self.defragmenting)
            }
            Order::Create(_)
            | Order::Add(_)
            | Order::Promote(..)
            | Order::Lead(..)
            | Order::Remove { .. }
            | Order::CreateClaim(_)
            | Order::Defragment(_)
            | Order::Disarm(_)
            | Order::CreatePod { .. } => Guard::None,
            Order::Tell(n, _)
            | Order::Join(n, _)
            | Order::Leave(n, _)
            | Order::Prove(n)
            | Order::Park(n, _)
            | Order::Unpark(n)
            | Order::DeleteMember(n)
            | Order::Template { n, .. }
            | Order::Release(n) => Guard::Object(n, part(n).object),
            Order::Forbid(n) | Order::Admit(n) | Order::Dismiss(n) | Order::DeletePod(n) | Order::Evict(n) => {
                Guard::Pod(n, part(n).pod)
            }
            Order::DeleteClaim(n) => Guard::Claim(n, part(n).claim),
        };
        Request { order, guard }
    }
}

/// How a request reaches the API server or etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// At once, decided on the current facts. The facts judge the request; etcd's own refusals do not help it.
    Direct,
    /// Later, decided on earlier facts. Preconditions and etcd's own rules guard the request.
    Late,
}

fn need(invariant: &'static str, holds: bool, broken: &'static str) -> Result<(), Breach> {
    if holds { Ok(()) } else { Err((invariant, broken)) }
}

impl Facts {
    fn met(&self, guard: Guard) -> bool {
        match guard {
            Guard::None => true,
            Guard::Cluster(spec, pending, replaced, orphan, failed, defragmenting) => {
                let latches = (self.pending, self.replaced, self.orphan, self.failed, self.defragmenting);
                (self.replicas, self.template) == spec && latches == (pending, replaced, orphan, failed, defragmenting)
            }
            Guard::Object(n, object) => object.is_some() && self.at(n).object == object,
            Guard::Pod(n, pod) => pod.is_some() && self.at(n).pod == pod,
            Guard::Claim(n, claim) => claim.is_some() && self.at(n).claim.map(|c| c.deleting) == claim,
        }
    }

    /// Applies a request. `Err`: the operator must not make this request.
    pub fn perform(&mut self, request: Request, way: Way) -> Result<(), Breach> {
        if !self.met(request.guard) {
            return Ok(());
        }
        let direct = way == Way::Direct;
        match request.order {
            Order::Pending(pending, replaced, orphan, failed, defragmenting) => {
                (self.pending, self.replaced, self.orphan) = (pending, replaced, orphan);
                (self.failed, self.defragmenting) = (failed, defragmenting);
                if pending == Some(self.fresh) {
                    self.fresh += 1;
                }
            }
            Order::Create(n) => self.create(n, direct)?,
            Order::Add(n) => self.add(n, direct)?,
            Order::Promote(n, id) => self.promote(n, id, direct)?,
            Order::Lead(from, to) => self.lead(from, to, direct)?,
            Order::Remove { n, id, learner } => self.remove(n, id, learner, direct)?,
            Order::Forbid(n) => self.change_pod(n, |p| p.may_start_empty = false),
            Order::Dismiss(n) => self.change_pod(n, |p| p.voter = false),
            Order::Admit(n) => {
                let parked = self.slots.iter().any(|s| s.object.is_some_and(|o| o.parked.is_some()));
                need("I3", !direct || !parked, "clients reached a cluster that is not back yet")?;
                let object = self.at(n).object;
                let moves = self.votes(n) && !self.is_still(n);
                let serves = moves && object.is_some_and(|o| o.joined.is_some() && !o.leaving);
                need("I16", !direct || serves, "clients reached a member that does not serve, or leaves")?;
                self.change_pod(n, |p| p.voter = true);
            }
            Order::Prove(n) => {
                need("I4", !direct || self.at(n).entry.is_none(), "a member that etcd lists was latched as removed")?;
                self.change(n, |o| o.removed = true);
            }
            Order::Leave(n, lost) => {
                let gone = self.wiped & (1 << n) != 0 && !self.connected(n);
                need("I29", !lost || gone, "a member was replaced on evidence that has its data")?;
                // A lost member may leave beside a member that waits to leave, and a member without a vote beside any.
                let leaves = |s: &Slot| s.object.is_some_and(|o| o.leaving && !o.removed && (!lost || o.lost));
                let others = self.slots.iter().filter(|s| leaves(s)).count();
                let votes = self.at(n).entry.is_some_and(|entry| entry.votes);
                need("I11", !direct || others == 0 || !votes, "two members leave")?;
                self.change(n, |o| (o.leaving, o.lost) = (true, lost));
            }
            Order::DeleteMember(n) => {
                need("I4", !direct || !self.counts(n), "a member that etcd lists was deleted")?;
                self.change(n, |o| o.deleting = true);
            }
            Order::Tell(n, told) => self.change(n, |o| o.told = Some(told)),
            Order::Join(n, id) => self.change(n, |o| o.joined = Some(id)),
            Order::Park(n, log) => self.change(n, |o| o.parked = Some(log)),
            Order::Unpark(n) => self.change(n, |o| o.parked = None),
            Order::Release(n) => self.slot(n).object = None,
            Order::CreateClaim(n) => {
                if self.at(n).claim.is_none() {
                    self.slot(n).claim = Some(Claim { deleting: false, data: None });
                }
            }
            Order::CreatePod { n, may_start_empty, told } => {
                // Without its owner the garbage collector deletes the Pod.
                if self.at(n).pod.is_none() && self.at(n).object.is_some() {
                    let template = self.at(n).object.map_or(0, |object| object.template);
                    self.slot(n).pod = Some(Pod {
                        deleting: false,
                        serving: false,
                        voter: false,
                        may_start_empty,
                        told,
                        template,
                        crashes: false,
                    });
                    if self.in_memory {
                        self.slot(n).claim = Some(Claim { deleting: false, data: None });
                    }
                }
            }
            Order::DeletePod(n) => {
                let parked = self.replicas == 0 && self.at(n).object.is_some_and(|o| o.parked.is_some());
                let counts = self.votes(n) && self.connected(n);
                let spared = self.voters() < 3 && self.is_spared(n);
                need("I1", !direct || parked || !counts || spared, "the Pod of a voter that serves was deleted")?;
                self.delete_pod(n);
            }
            Order::Evict(n) => {
                need("I1", !direct || self.is_spared(n), "the Pod of a voter was evicted that is needed")?;
                // The disruption budget, which counts ready voters.
                let ready = |other: &u8| *other != n && self.at(*other).pod.is_some_and(|pod| pod.voter);
                let left = self.up().iter().filter(|other| ready(other)).count();
                if direct || left >= quorum(self.voters()) {
                    self.delete_pod(n);
                }
            }
            Order::Template { n, to, served } => {
                let back = self.at(n).object.is_some_and(|o| o.served == Some(to));
                let fails = self.failed == Some(to) && !back && self.at(n).object.is_some_and(|o| o.template != to);
                need("I1", !direct || !fails, "a member got a template with which another did not start")?;
                self.late_template |= !direct;
                self.change(n, |o| (o.template, o.served) = (to, served));
            }
            Order::Defragment(n) => self.defragment(n, direct)?,
            Order::Disarm(n) => {
                let full = self.large & (1 << n) != 0 && self.at(n).entry.is_some();
                need("I12", !direct || !full, "the alarm of a member whose file is full was cleared")?;
                if self.leader.is_some() {
                    self.alarms &= !(1 << n);
                }
            }
            Order::DeleteClaim(n) => {
                let slot = self.at(n);
                let own = slot.claim.and_then(|c| c.data).map(|d| d.id) == slot.entry.map(|e| e.id);
                let live = own && self.counts(n);
                need("I4", !live, "the volume of a member that etcd lists was deleted")?;
                if let Some(claim) = self.slot(n).claim.as_mut() {
                    claim.deleting = true;
                }
            }
        }
        Ok(())
    }

    /// Whether a Pod has another template than its member, and every other voter is healthy without it. A leader ends last, when the
    /// leadership is elsewhere.
    fn is_spared(&self, n: u8) -> bool {
        let slot = self.at(n);
        let outdated = slot.object.zip(slot.pod).is_some_and(|(object, pod)| object.template != pod.template);
        let others = self.healthy().into_iter().filter(|other| *other != n).count();
        let well = others + 1 == self.voters() && (self.voters() == 1 || self.leader != Some(n));
        outdated && well && !self.in_memory
    }

    /// Whether etcd counts on a member. A member that etcd lists again after the proof has no vote, and copies of the others' data.
    fn counts(&self, n: u8) -> bool {
        let proven = self.at(n).object.is_some_and(|o| o.removed);
        self.at(n).entry.is_some_and(|e| e.votes || !proven)
    }

    fn change(&mut self, n: u8, change: impl FnOnce(&mut Object)) {
        if let Some(object) = self.slot(n).object.as_mut() {
            change(object);
        }
    }

    fn change_pod(&mut self, n: u8, change: impl FnOnce(&mut Pod)) {
        if let Some(pod) = self.slot(n).pod.as_mut().filter(|p| !p.deleting) {
            change(pod);
        }
    }

    fn create(&mut self, n: u8, direct: bool) -> Result<(), Breach> {
        if self.at(n).object.is_some() {
            return Ok(());
        }
        let object = Object {
            deleting: false,
            joined: None,
            evidence: false,
            leaving: false,
            lost: false,
            removed: false,
            parked: None,
            told: None,
            template: self.template,
            served: None,
        };
        self.slot(n).object = Some(object);
        let counted = self.slots.iter().filter(|s| s.object.is_some_and(|o| !o.leaving && !o.removed)).count();
        need("I11", !direct || counted <= usize::from(self.replicas), "more members than are wanted")
    }

    fn add(&mut self, n: u8, direct: bool) -> Result<(), Breach> {
        let (voters, healthy) = (self.voters(), self.healthy().len());
        if self.leader.is_none() || self.at(n).entry.is_some() {
            return Ok(());
        }
        let again = self.at(n).object.is_some_and(|o| o.joined.is_some());
        need("I5", !direct || !again, "a member that had joined was added again")?;
        let enough = healthy >= quorum(voters + 1).min(voters);
        need("I1", !direct || enough, "a member was added beside too few healthy voters")?;
        // etcd's own check: a quorum of the grown cluster is connected.
        if voters > 1 && self.up().len() < quorum(voters + 1) {
            return Ok(());
        }
        self.commit();
        let slot = self.slot(n);
        slot.entry = Some(Entry { id: slot.ids, votes: false, booted: false });
        slot.ids += 1;
        Ok(())
    }

    fn promote(&mut self, n: u8, id: u8, direct: bool) -> Result<(), Breach> {
        let slot = *self.at(n);
        let Some(entry) = slot.entry.filter(|e| e.id == id && !e.votes && self.leader.is_some()) else { return Ok(()) };
        let joined = slot.object.is_some_and(|o| o.joined == Some(id));
        need("I3", !direct || joined, "a member got its vote before it was latched as joined")?;
        let permitted = slot.pod.is_some_and(|p| p.may_start_empty);
        need("I3", !direct || !permitted, "a voter may start on an empty volume")?;
        let enough = self.up().len() + usize::from(self.connected(n)) >= quorum(self.voters() + 1);
        need("I1", !direct || enough, "a vote was given that the quorum lacks")?;
        // etcd's own check: the learner has most of the log.
        if slot.claim.and_then(|c| c.data).is_none_or(|d| d.log == Log::Far) {
            return Ok(());
        }
        self.commit();
        self.slot(n).entry = Some(Entry { votes: true, ..entry });
        Ok(())
    }

    fn lead(&mut self, from: u8, to: u8, direct: bool) -> Result<(), Breach> {
        if self.leader != Some(from) {
            return Ok(());
        }
        let stays = self.at(to).object.is_some_and(|o| !o.leaving);
        need(
            "I1",
            !direct || (stays && self.healthy().contains(&to)),
            "leadership went to a voter that is not healthy",
        )?;
        // The leader waits until its successor has every entry.
        if self.up().contains(&to) {
            self.catch_up(to);
            self.leader = Some(to);
        }
        Ok(())
    }

    /// etcd itself refuses nothing here.
    fn defragment(&mut self, n: u8, direct: bool) -> Result<(), Breach> {
        let slot = *self.at(n);
        let others = self.still & !(1 << n) == 0;
        need("I1", !direct || others, "two members stand still at once")?;
        let joins = |s: &Slot| s.entry.is_some_and(|e| !e.votes) || s.object.is_some_and(|o| o.leaving && !o.removed);
        let changes = self.pending.is_some() || self.slots.iter().any(joins);
        need("I11", !direct || !changes, "a member stands still while another one joins or leaves")?;
        // The Pod of a removed member may end slowly.
        let rolls = |s: &Slot| {
            let there = s.object.filter(|o| !o.removed).zip(s.pod);
            there.is_some_and(|(o, p)| o.served.is_some() || o.template != p.template)
        };
        need("I1", !direct || !self.slots.iter().any(rolls), "a member stands still while a change rolls")?;
        let well = self.healthy().into_iter().filter(|other| *other != n).count() + 1 == self.voters();
        need("I1", !direct || well, "a member stands still beside a voter that is not healthy")?;
        let leads = self.leader == Some(n) && self.voters() > 1;
        need("I1", !direct || !leads, "the leader stands still")?;
        need("I16", !direct || !slot.pod.is_some_and(|p| p.voter), "a member stands still that clients reach")?;
        if self.connected(n) {
            self.still |= 1 << n;
        }
        Ok(())
    }

    fn remove(&mut self, n: u8, id: u8, learner: bool, direct: bool) -> Result<(), Breach> {
        let slot = *self.at(n);
        let Some(entry) = slot.entry.filter(|e| e.id == id && e.votes != learner && self.leader.is_some()) else {
            return Ok(());
        };
        let never_served = slot.object.is_none() && learner && !entry.booted;
        let fenced = slot.pod.is_none() || slot.object.is_none_or(|o| !o.lost);
        need("I29", !direct || fenced, "a lost member was removed before its Pod had ended")?;
        let latched = slot.object.is_some_and(|o| o.leaving);
        need("I11", !direct || latched || never_served, "a member was removed without a latch")?;
        let (up, voters) = (self.up(), self.voters());
        if !learner {
            let clients = slot.pod.is_some_and(|p| p.voter && !p.deleting);
            need("I16", !direct || !clients, "a voter was removed that clients reach")?;
            need("I1", !direct || self.leader != Some(n), "the leader was removed")?;
            let rest = self.healthy().into_iter().filter(|other| *other != n).count();
            let enough = voters > 1 && rest >= quorum(voters - 1);
            need("I1", !direct || enough, "a voter was removed, and a quorum of the rest is not healthy")?;
            // etcd's own check (mayRemoveMember), for a late request.
            if !direct && (voters < 2 || (up.contains(&n) && voters > 2 && up.len() < 2 + (voters - 1) / 2)) {
                return Ok(());
            }
        }
        self.commit();
        self.slot(n).entry = None;
        Ok(())
    }
}
