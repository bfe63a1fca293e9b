//! The smallest world in which members come and go: what Kubernetes stores, what etcd lists, and what lies on volumes.
//!
//! Decides what a step of etcd, of kubelet, of a person or of bad luck changes. It knows no plan and no time: whatever is slow is a
//! step that has not happened yet. A log is one of three lengths, and an ID is a member's slot with the number of its adds.

/// Members that a history may have.
pub const SLOTS: usize = 8;

/// How much of the acknowledged data a log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Log {
    /// More than 1000 entries are missing.
    Far,
    /// A few entries are missing.
    Near,
    /// It has every acknowledged entry.
    Whole,
}

impl Log {
    /// One more entry was acknowledged, and this log does not have it.
    const fn misses_one(self) -> Self {
        match self {
            Self::Whole => Self::Near,
            Self::Near | Self::Far => Self::Far,
        }
    }
}

/// An `EtcdMember`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    pub deleting: bool,
    /// Under which of its IDs.
    pub joined: Option<u8>,
    /// Its own pass has written down that its data are lost.
    pub evidence: bool,
    pub leaving: bool,
    /// It leaves because its data are lost.
    pub lost: bool,
    pub removed: bool,
    /// With which log; `Some(None)` of a member that was silent.
    pub parked: Option<Option<Log>>,
    /// `spec.initialCluster`, as slots.
    pub told: Option<u8>,
}

/// A Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pod {
    pub deleting: bool,
    pub serving: bool,
    /// Clients reach it.
    pub voter: bool,
    pub may_start_empty: bool,
    pub told: u8,
}

/// What is on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Data {
    pub id: u8,
    pub log: Log,
}

/// A claim with its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    pub deleting: bool,
    pub data: Option<Data>,
}

/// A member in etcd's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub id: u8,
    pub votes: bool,
    /// It has started once, and etcd knows its name.
    pub booted: bool,
}

/// All of one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    pub object: Option<Object>,
    pub pod: Option<Pod>,
    pub claim: Option<Claim>,
    pub entry: Option<Entry>,
    /// IDs that etcd has given it.
    pub ids: u8,
}

/// What may still go wrong, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Luck {
    /// Edits of `spec.replicas`.
    pub edits: u8,
    /// Servers that end, or Pods that are deleted.
    pub crashes: u8,
    /// Servers that are cut off from their peers and answer.
    pub cuts: u8,
    /// Passes that read Kubernetes long before etcd.
    pub stale: u8,
    /// Requests of an operator that crashes: they arrive late or never.
    pub late: u8,
    /// Volumes that lose their data.
    pub wipes: u8,
    /// Writes of clients.
    pub writes: u8,
}

/// The world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Facts {
    pub slots: [Slot; SLOTS],
    pub leader: Option<u8>,
    pub cut: Option<u8>,
    pub replicas: u8,
    /// The latch of the next member's name.
    pub pending: Option<u8>,
    /// The latch of the last member that was replaced on evidence. An hour is over at once.
    pub replaced: Option<u8>,
    /// The latch of an ID that etcd lists without an object.
    pub orphan: Option<(u8, u8)>,
    /// Whether the members' data are in the memory of their Pods. What stands for a claim then is that memory.
    pub in_memory: bool,
    /// The next name that nobody has had.
    pub fresh: u8,
    /// Members whose volume was wiped.
    pub wiped: u8,
    pub luck: Luck,
    /// The request of an operator that has crashed.
    pub late: Option<super::requests::Request>,
    /// What a slow pass has read of Kubernetes.
    pub begun: Option<Box<super::sight::Kube>>,
}

/// A rule that was broken, and how.
pub type Breach = (&'static str, &'static str);

pub const fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

impl Facts {
    /// Voters that serve clients, with all that a settled cluster has.
    pub fn settled(voters: u8, leader: u8, luck: Luck) -> Self {
        let mut slots = [Slot::default(); SLOTS];
        for n in 0..voters {
            let told = (1 << (n + 1)) - 1;
            let object = Object {
                deleting: false,
                joined: Some(0),
                evidence: false,
                leaving: false,
                lost: false,
                removed: false,
                parked: None,
                told: Some(told),
            };
            let pod = Pod { deleting: false, serving: true, voter: true, may_start_empty: false, told };
            slots[usize::from(n)] = Slot {
                object: Some(object),
                pod: Some(pod),
                claim: Some(Claim { deleting: false, data: Some(Data { id: 0, log: Log::Whole }) }),
                entry: Some(Entry { id: 0, votes: true, booted: true }),
                ids: 1,
            };
        }
        Self {
            slots,
            leader: Some(leader),
            cut: None,
            replicas: voters,
            pending: None,
            replaced: None,
            orphan: None,
            in_memory: false,
            fresh: voters,
            wiped: 0,
            luck,
            late: None,
            begun: None,
        }
    }

    pub fn in_memory(self) -> Self {
        Self { in_memory: true, ..self }
    }

    pub fn slot(&mut self, n: u8) -> &mut Slot {
        &mut self.slots[usize::from(n)]
    }

    pub fn at(&self, n: u8) -> &Slot {
        &self.slots[usize::from(n)]
    }

    pub fn numbers() -> impl Iterator<Item = u8> {
        (0..SLOTS).map(|n| n as u8)
    }

    /// The log of a member that etcd lists, if it is on its volume.
    fn log(&self, n: u8) -> Option<Log> {
        let slot = self.at(n);
        let data = slot.claim?.data?;
        (data.id == slot.entry?.id).then_some(data.log)
    }

    fn set_log(&mut self, n: u8, log: Log) {
        if let Some(data) = self.slot(n).claim.as_mut().and_then(|c| c.data.as_mut()) {
            data.log = log;
        }
    }

    /// Whether its server runs under an ID that etcd lists, and its peers hear it.
    pub fn connected(&self, n: u8) -> bool {
        self.log(n).is_some() && self.at(n).pod.is_some_and(|p| p.serving) && self.cut != Some(n)
    }

    pub fn voters(&self) -> usize {
        self.slots.iter().filter(|s| s.entry.is_some_and(|e| e.votes)).count()
    }

    pub fn votes(&self, n: u8) -> bool {
        self.at(n).entry.is_some_and(|e| e.votes)
    }

    /// Voters that hear each other.
    pub fn up(&self) -> Vec<u8> {
        Self::numbers().filter(|n| self.votes(*n) && self.connected(*n)).collect()
    }

    /// Voters that etcd and we count on: they hear the leader and are close behind.
    pub fn healthy(&self) -> Vec<u8> {
        let close = |n: &u8| self.leader.is_some() && self.log(*n).is_some_and(|log| log >= Log::Near);
        self.up().into_iter().filter(close).collect()
    }

    /// The slots that etcd lists.
    pub fn listed(&self) -> u8 {
        Self::numbers().filter(|n| self.at(*n).entry.is_some()).map(|n| 1 << n).sum()
    }

    /// A change of the membership is committed like any entry: a quorum of the old voters has all that came before.
    pub fn commit(&mut self) {
        let (mut up, needed) = (self.up(), quorum(self.voters()));
        let leader = self.leader;
        up.sort_by_key(|n| (Some(*n) != leader, std::cmp::Reverse(self.log(*n)), *n));
        for n in up.into_iter().take(needed) {
            self.set_log(n, Log::Whole);
        }
    }

    /// A client's write is acknowledged. The leader and a quorum have it; one voter that is connected may not have it yet.
    pub fn write(&mut self, lags: Option<u8>) -> bool {
        let up = self.up();
        let Some(leader) = self.leader.filter(|leader| lags != Some(*leader)) else { return false };
        let have: Vec<u8> = up.into_iter().filter(|n| Some(*n) != lags).collect();
        if have.len() < quorum(self.voters()) || !have.contains(&leader) {
            return false;
        }
        for n in Self::numbers() {
            let connected = self.connected(n);
            if have.contains(&n) {
                self.set_log(n, Log::Whole);
            } else if let Some(log) = self.log(n) {
                // A server that is connected gets what is missing before it falls far behind.
                self.set_log(n, if connected { log.min(Log::Near) } else { log.misses_one() });
            }
            if let Some(Some(parked)) = self.slot(n).object.as_mut().and_then(|o| o.parked.as_mut()) {
                *parked = parked.misses_one();
            }
        }
        true
    }

    /// The leader sends a member what it lacks.
    pub fn catch_up(&mut self, n: u8) -> bool {
        let behind = self.leader.is_some() && self.connected(n) && self.log(n).is_some_and(|log| log < Log::Whole);
        if behind {
            self.set_log(n, Log::Whole);
        }
        behind
    }

    /// The gate, and etcd's own start.
    pub fn boot(&mut self, n: u8) -> Result<bool, Breach> {
        let (told, leads) = (self.listed(), self.leader.is_some());
        let slot = self.slot(n);
        let (Some(pod), Some(claim), Some(entry)) = (slot.pod.as_mut(), slot.claim.as_mut(), slot.entry.as_mut())
        else {
            return Ok(false);
        };
        if pod.deleting || pod.serving {
            return Ok(false);
        }
        match claim.data {
            Some(data) if data.id != entry.id => return Ok(false),
            Some(_) => {}
            None if !pod.may_start_empty || claim.deleting => return Ok(false),
            None if entry.votes => return Err(("I3", "a voter started on an empty volume")),
            // etcd: "member count is unequal", or nobody to join.
            None if pod.told != told || !leads => return Ok(false),
            None => claim.data = Some(Data { id: entry.id, log: Log::Far }),
        }
        pod.serving = true;
        entry.booted = true;
        Ok(true)
    }

    /// kubelet reports a Pod as gone, and Kubernetes deletes a claim that nothing uses.
    pub fn clear(&mut self, n: u8) -> bool {
        let (in_memory, slot) = (self.in_memory, self.slot(n));
        if slot.pod.is_some_and(|p| p.deleting) {
            slot.pod = None;
            let memory = if in_memory { slot.claim.take() } else { None };
            if memory.is_some_and(|memory| memory.data.is_some()) {
                self.wiped |= 1 << n;
            }
        } else if slot.pod.is_none() && slot.claim.is_some_and(|c| c.deleting) {
            slot.claim = None;
        } else {
            return false;
        }
        true
    }

    /// A Pod is deleted: its server ends.
    pub fn delete_pod(&mut self, n: u8) -> bool {
        let Some(pod) = self.slot(n).pod.as_mut().filter(|p| !p.deleting) else { return false };
        (pod.deleting, pod.serving) = (true, false);
        true
    }

    /// A server ends, and its container starts again in time.
    pub fn crash(&mut self, n: u8) -> bool {
        let Some(pod) = self.slot(n).pod.as_mut().filter(|p| p.serving) else { return false };
        pod.serving = false;
        true
    }

    /// A voter's volume is empty, under the same claim.
    pub fn wipe(&mut self, n: u8) -> bool {
        if self.in_memory || !self.votes(n) || self.at(n).pod.is_some_and(|p| p.serving) || self.log(n).is_none() {
            return false;
        }
        if let Some(claim) = self.slot(n).claim.as_mut() {
            claim.data = None;
        }
        self.wiped |= 1 << n;
        true
    }

    /// The gate has refused the volume in two Pods, or the Pod is gone in whose memory the data were, and the member's pass writes
    /// that down; a member that serves clears it.
    pub fn notice(&mut self, n: u8) -> bool {
        let slot = *self.at(n);
        let shows = if self.in_memory { slot.pod.is_none() } else { slot.pod.is_some_and(|p| !p.serving) };
        let refused = self.wiped & (1 << n) != 0 && shows;
        match self.slot(n).object.as_mut() {
            Some(object) if object.joined.is_some() && !object.leaving && refused != object.evidence => {
                object.evidence = refused;
                true
            }
            _ => false,
        }
    }

    /// What follows at once: a leader where there is a quorum, and the end of a server that etcd does not list.
    pub fn settle(&mut self) -> Result<(), Breach> {
        for n in Self::numbers() {
            if self.log(n).is_none() {
                if let Some(pod) = self.slot(n).pod.as_mut() {
                    pod.serving = false;
                }
            }
        }
        if self.cut.is_some_and(|n| !self.at(n).pod.is_some_and(|p| p.serving)) {
            self.cut = None;
        }
        let up = self.up();
        if up.len() < quorum(self.voters()) {
            self.leader = None;
        } else if self.leader.is_none_or(|leader| !up.contains(&leader)) {
            let longest = up.iter().copied().max_by_key(|n| (self.log(*n), std::cmp::Reverse(*n)));
            self.leader = longest;
            if longest.and_then(|n| self.log(n)) != Some(Log::Whole) {
                return Err(("I3", "a leader was elected that lacks an acknowledged entry"));
            }
        }
        self.keeps_what_was_acknowledged()
    }

    /// I3: every quorum has a voter with every acknowledged entry. A wiped volume is nobody's decision.
    fn keeps_what_was_acknowledged(&self) -> Result<(), Breach> {
        let lacks = |n: &u8| self.votes(*n) && self.wiped & (1 << n) == 0 && self.log(*n) != Some(Log::Whole);
        if Self::numbers().filter(lacks).count() >= quorum(self.voters()) {
            return Err(("I3", "a quorum of voters lacks an acknowledged entry"));
        }
        Ok(())
    }
}
