//! The smallest world in which members come and go: the objects of Kubernetes, etcd's member list, and the data on volumes.
//!
//! Decides the effect of a step of etcd, kubelet, a person or bad luck. It has no plan and no time: a slow event is a step that has
//! not happened yet. A log has one of three lengths, and an ID is a member's slot with the number of its adds.

/// Number of the template with which no etcd starts.
pub const BAD: u8 = 2;

/// Members that a history may have.
pub const SLOTS: usize = 8;

/// The part of the acknowledged data in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Log {
    /// More than 1000 entries are missing.
    Far,
    /// A few entries are missing.
    Near,
    /// No acknowledged entry is missing.
    Whole,
}

impl Log {
    /// The length of a log that lacks one more acknowledged entry.
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
    /// The ID under which the member joined.
    pub joined: Option<u8>,
    /// The member's own pass recorded that its data are lost.
    pub evidence: bool,
    pub leaving: bool,
    /// The member leaves because its data are lost.
    pub lost: bool,
    pub removed: bool,
    /// The log at the time of parking; `Some(None)` for a member that did not answer.
    pub parked: Option<Option<Log>>,
    /// `spec.initialCluster`, as slots.
    pub told: Option<u8>,
    /// Number of the template.
    pub template: u8,
    /// The template before, until the member serves.
    pub served: Option<u8>,
}

/// A Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pod {
    pub deleting: bool,
    pub serving: bool,
    /// Whether clients reach the Pod.
    pub voter: bool,
    pub may_start_empty: bool,
    pub told: u8,
    /// The template that the Pod was made with.
    pub template: u8,
    /// Whether etcd has ended in the Pod again and again.
    pub crashes: bool,
}

/// Data on a volume.
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
    /// Whether the member has started once, so that etcd knows its name.
    pub booted: bool,
}

/// Everything of one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    pub object: Option<Object>,
    pub pod: Option<Pod>,
    pub claim: Option<Claim>,
    pub entry: Option<Entry>,
    /// Number of IDs that etcd has given the member.
    pub ids: u8,
}

/// Mishaps that may still happen, with their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Luck {
    /// Edits of `spec.replicas`.
    pub edits: u8,
    /// Servers that end, or deletions of Pods.
    pub crashes: u8,
    /// Servers that are cut off from their peers and still answer.
    pub cuts: u8,
    /// Passes that read Kubernetes long before etcd.
    pub stale: u8,
    /// Requests of an operator that crashes: they arrive late or not at all.
    pub late: u8,
    /// Volumes that lose their data.
    pub wipes: u8,
    /// Writes of clients.
    pub writes: u8,
    /// Edits of the template.
    pub rolls: u8,
    /// Times that clients fill the database up to the quota.
    pub fills: u8,
}

/// The world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Facts {
    pub slots: [Slot; SLOTS],
    pub leader: Option<u8>,
    pub cut: Option<u8>,
    pub replicas: u8,
    /// The template of the spec.
    pub template: u8,
    /// The latch of a template with which a member did not start.
    pub failed: Option<u8>,
    /// The latch of the next member's name.
    pub pending: Option<u8>,
    /// The latch of the last member that was replaced on evidence. The hour after it takes no time here.
    pub replaced: Option<u8>,
    /// The latch of an ID that etcd lists without an object.
    pub orphan: Option<(u8, u8)>,
    /// Whether members keep their data in the memory of their Pods. The claim stands for that memory then.
    pub in_memory: bool,
    /// The first name that no member has had.
    pub fresh: u8,
    /// Members whose volume was wiped.
    pub wiped: u8,
    /// The latch of a member that is defragmented, and whether its beginning is latched.
    pub defragmenting: Option<(u8, bool)>,
    /// Members whose etcd rewrites its file, and answers nothing.
    pub still: u8,
    /// Members whose file has reached the quota.
    pub large: u8,
    /// Whether the data need the whole quota. A compaction leaves free pages in the large files.
    pub needed: bool,
    /// Members with a `NOSPACE` alarm.
    pub alarms: u8,
    /// Whether a member has got a template by a late request: another member may have its turn meanwhile.
    pub late_template: bool,
    pub luck: Luck,
    /// The request of an operator that crashed.
    pub late: Option<super::requests::Request>,
    /// The view of Kubernetes that a slow pass has read.
    pub begun: Option<Box<super::sight::Kube>>,
}

/// A broken rule, with the reason.
pub type Breach = (&'static str, &'static str);

pub const fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

impl Facts {
    /// A settled cluster whose voters serve clients.
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
                template: 0,
                served: None,
            };
            let pod = Pod {
                deleting: false,
                serving: true,
                voter: true,
                may_start_empty: false,
                told,
                template: 0,
                crashes: false,
            };
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
            template: 0,
            failed: None,
            pending: None,
            replaced: None,
            orphan: None,
            in_memory: false,
            fresh: voters,
            wiped: 0,
            defragmenting: None,
            still: 0,
            large: 0,
            needed: false,
            alarms: 0,
            late_template: false,
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

    /// The log of a member that etcd lists, if its volume holds the log.
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

    /// Whether the member's server runs under an ID that etcd lists, and its peers reach it.
    pub fn connected(&self, n: u8) -> bool {
        self.log(n).is_some() && self.at(n).pod.is_some_and(|p| p.serving) && self.cut != Some(n) && !self.is_still(n)
    }

    /// Whether the member's etcd rewrites its file.
    pub fn is_still(&self, n: u8) -> bool {
        self.still & (1 << n) != 0
    }

    pub fn voters(&self) -> usize {
        self.slots.iter().filter(|s| s.entry.is_some_and(|e| e.votes)).count()
    }

    pub fn votes(&self, n: u8) -> bool {
        self.at(n).entry.is_some_and(|e| e.votes)
    }

    /// Voters that reach each other.
    pub fn up(&self) -> Vec<u8> {
        Self::numbers().filter(|n| self.votes(*n) && self.connected(*n)).collect()
    }

    /// Voters that count as healthy for etcd and for Holdfast: they follow the leader and lag by a few entries at most.
    pub fn healthy(&self) -> Vec<u8> {
        let close = |n: &u8| self.leader.is_some() && self.log(*n).is_some_and(|log| log >= Log::Near);
        self.up().into_iter().filter(close).collect()
    }

    /// The slots that etcd lists.
    pub fn listed(&self) -> u8 {
        Self::numbers().filter(|n| self.at(*n).entry.is_some()).map(|n| 1 << n).sum()
    }

    /// Commits a change of the membership like any entry: a quorum of the old voters gets all earlier entries.
    pub fn commit(&mut self) {
        let (mut up, needed) = (self.up(), quorum(self.voters()));
        let leader = self.leader;
        up.sort_by_key(|n| (Some(*n) != leader, std::cmp::Reverse(self.log(*n)), *n));
        for n in up.into_iter().take(needed) {
            self.set_log(n, Log::Whole);
        }
    }

    /// Clients fill the database: every file reaches the quota.
    pub fn fill(&mut self) -> bool {
        let takes_writes = self.leader.is_some() && self.alarms == 0 && self.still == 0;
        if takes_writes {
            self.needed = true;
            self.large = Self::numbers().filter(|n| self.log(*n).is_some()).map(|n| 1 << n).sum();
        }
        takes_writes
    }

    /// A person deletes keys and compacts, which etcd permits at the quota too.
    pub fn compact(&mut self) -> bool {
        self.leader.is_some() && std::mem::replace(&mut self.needed, false)
    }

    /// etcd has rewritten a member's file.
    pub fn free(&mut self, n: u8, admits: bool) -> bool {
        if !self.is_still(n) {
            return false;
        }
        self.still &= !(1 << n);
        if !self.needed {
            self.large &= !(1 << n);
        }
        if let Some(pod) = self.slot(n).pod.as_mut().filter(|pod| admits && !pod.deleting) {
            pod.voter = true;
        }
        true
    }

    /// Acknowledges a client's write. The leader and a quorum have the entry; one connected voter may lack it. At the quota the
    /// members raise alarms instead, and while an alarm is raised etcd takes no write.
    pub fn write(&mut self, lags: Option<u8>) -> bool {
        let up = self.up();
        let Some(leader) = self.leader.filter(|leader| lags != Some(*leader)) else { return false };
        let have: Vec<u8> = up.into_iter().filter(|n| Some(*n) != lags).collect();
        if have.len() < quorum(self.voters()) || !have.contains(&leader) || self.alarms != 0 {
            return false;
        }
        let full: u8 = have.iter().map(|n| self.large & (1 << *n)).sum();
        if full != 0 {
            self.alarms = full;
            return true;
        }
        for n in Self::numbers() {
            let connected = self.connected(n);
            if have.contains(&n) {
                self.set_log(n, Log::Whole);
            } else if let Some(log) = self.log(n) {
                // A connected server gets the missing entries before it falls far behind.
                self.set_log(n, if connected { log.min(Log::Near) } else { log.misses_one() });
            }
            if let Some(Some(parked)) = self.slot(n).object.as_mut().and_then(|o| o.parked.as_mut()) {
                *parked = parked.misses_one();
            }
        }
        true
    }

    /// The leader sends a member its missing entries.
    pub fn catch_up(&mut self, n: u8) -> bool {
        let behind = self.leader.is_some() && self.connected(n) && self.log(n).is_some_and(|log| log < Log::Whole);
        if behind {
            self.set_log(n, Log::Whole);
        }
        behind
    }

    /// The gate, and etcd's start.
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
        if pod.template == BAD {
            return Ok(!std::mem::replace(&mut pod.crashes, true));
        }
        match claim.data {
            Some(data) if data.id != entry.id => return Ok(false),
            Some(_) => {}
            None if !pod.may_start_empty || claim.deleting => return Ok(false),
            None if entry.votes => return Err(("I3", "a voter started on an empty volume")),
            // etcd: "member count is unequal", or no leader to join.
            None if pod.told != told || !leads => return Ok(false),
            None => claim.data = Some(Data { id: entry.id, log: Log::Far }),
        }
        pod.serving = true;
        if !std::mem::replace(&mut entry.booted, true) {
            self.large = (self.large & !(1 << n)) | (u8::from(self.needed) << n);
        }
        Ok(true)
    }

    /// kubelet reports the end of a Pod, and Kubernetes deletes an unused claim.
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

    /// Deletes a Pod: its server ends.
    pub fn delete_pod(&mut self, n: u8) -> bool {
        let Some(pod) = self.slot(n).pod.as_mut().filter(|p| !p.deleting) else { return false };
        (pod.deleting, pod.serving) = (true, false);
        true
    }

    /// A server ends; kubelet restarts its container later.
    pub fn crash(&mut self, n: u8) -> bool {
        let Some(pod) = self.slot(n).pod.as_mut().filter(|p| p.serving) else { return false };
        pod.serving = false;
        true
    }

    /// Empties a voter's volume under the same claim.
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

    /// The member's pass records that its data are lost: the gate refused the volume in two Pods, or the Pod whose memory held
    /// the data is gone. A member that serves clears the record.
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

    /// Immediate consequences: a quorum elects a leader, and a server that etcd does not list ends.
    pub fn settle(&mut self) -> Result<(), Breach> {
        for n in Self::numbers() {
            if self.log(n).is_none() {
                if let Some(pod) = self.slot(n).pod.as_mut() {
                    pod.serving = false;
                }
            }
        }
        // The end of a process ends its work on the file.
        let works = |n: &u8| self.is_still(*n) && self.at(*n).pod.is_some_and(|p| p.serving);
        self.still = Self::numbers().filter(works).map(|n| 1 << n).sum();
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
        let bad = |n: &u8| self.votes(*n) && self.at(*n).pod.is_some_and(|pod| pod.template == BAD);
        if !self.late_template && Self::numbers().filter(bad).count() > 1 {
            return Err(("I1", "a bad template stopped two voters"));
        }
        self.keeps_what_was_acknowledged()
    }

    /// I3: every quorum has a voter with every acknowledged entry. A wiped volume is an accident and does not count.
    fn keeps_what_was_acknowledged(&self) -> Result<(), Breach> {
        let lacks = |n: &u8| self.votes(*n) && self.wiped & (1 << n) == 0 && self.log(*n) != Some(Log::Whole);
        if Self::numbers().filter(lacks).count() >= quorum(self.voters()) {
            return Err(("I3", "a quorum of voters lacks an acknowledged entry"));
        }
        Ok(())
    }
}
