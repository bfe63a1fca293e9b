//! The view of a pass in few and small values: two passes with equal views decide the same.

use super::facts::{Entry, Facts, Log, Object, Pod, SLOTS};

/// A member as Kubernetes shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Part {
    pub object: Option<Object>,
    pub pod: Option<Pod>,
    /// The member's claim, and whether the claim is being deleted.
    pub claim: Option<bool>,
    pub in_memory: bool,
}

impl Part {
    pub fn of(facts: &Facts, n: u8) -> Self {
        let slot = facts.at(n);
        if slot.object.is_none() {
            return Self::default();
        }
        let claim = slot.claim.filter(|_| !facts.in_memory).map(|c| c.deleting);
        Self { object: slot.object, pod: slot.pod, claim, in_memory: facts.in_memory }
    }
}

/// Everything that Kubernetes shows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kube {
    pub replicas: u8,
    pub template: u8,
    pub failed: Option<u8>,
    pub pending: Option<u8>,
    pub replaced: Option<u8>,
    pub orphan: Option<(u8, u8)>,
    pub defragmenting: Option<(u8, bool)>,
    pub fresh: u8,
    pub in_memory: bool,
    pub parts: [Part; SLOTS],
}

/// A member's file, by its size and its pages in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum File {
    Small,
    /// At the quota, with free pages.
    Loose,
    /// At the quota, without a free page.
    Full,
}

/// Answer of a member's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Heard {
    Nobody,
    Silent,
    Says { id: u8, log: Log, leader: Option<u8>, learner: bool, file: File },
}

/// etcd's list, from a linearizable read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct List {
    pub leader: Option<u8>,
    pub entries: [Option<Entry>; SLOTS],
    /// Members with a `NOSPACE` alarm.
    pub alarms: u8,
}

/// View of a pass over the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sight {
    pub kube: Kube,
    pub list: Option<List>,
    pub answers: [Heard; SLOTS],
}

/// View of a pass over a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemberSight {
    pub n: u8,
    pub part: Part,
    pub replicas: u8,
}

impl Kube {
    pub fn of(facts: &Facts) -> Self {
        Self {
            replicas: facts.replicas,
            template: facts.template,
            failed: facts.failed,
            pending: facts.pending,
            replaced: facts.replaced,
            orphan: facts.orphan,
            defragmenting: facts.defragmenting,
            fresh: facts.fresh,
            in_memory: facts.in_memory,
            parts: std::array::from_fn(|n| Part::of(facts, n as u8)),
        }
    }
}

impl Sight {
    /// A view with Kubernetes as it was read earlier, or as it is now. etcd is always read afterwards.
    pub fn of(facts: &Facts, kube: Kube) -> Self {
        let entries = std::array::from_fn(|n| facts.slots[n].entry);
        let heard = |n: usize| {
            let (slot, n) = (&facts.slots[n], n as u8);
            let Some(pod) = slot.pod.filter(|p| !p.deleting) else { return Heard::Nobody };
            match slot.claim.and_then(|c| c.data) {
                Some(data) if pod.serving && !facts.is_still(n) => Heard::Says {
                    id: data.id,
                    log: data.log,
                    leader: facts.leader.filter(|_| facts.connected(n)),
                    learner: !facts.votes(n),
                    file: match facts.large & (1 << n) {
                        0 => File::Small,
                        _ if facts.needed => File::Full,
                        _ => File::Loose,
                    },
                },
                _ => Heard::Silent,
            }
        };
        Self {
            kube,
            list: facts.leader.map(|leader| List { leader: Some(leader), entries, alarms: facts.alarms }),
            answers: std::array::from_fn(heard),
        }
    }
}
