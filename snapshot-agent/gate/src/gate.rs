//! Decides whether etcd may start on a volume: a member starts only on its own volume.
//!
//! The decision is pure: [`decide`] turns facts into a value. `verbs/gate/run.rs` collects the facts, writes the identity and
//! executes etcd, at every start of the container and not only at the Pod's first. The gate fails closed: it refuses an empty,
//! unreadable or unknown volume, because an emptied volume under an unchanged member loses acknowledged writes with either
//! cluster state. Only the operator allows an empty volume, by an annotation that it takes back before the member may
//! acknowledge a write.
//!
//! The gate alone chooses `--initial-cluster-state=new`. By the Pods' numbers it refuses a volume that was rolled back to a
//! copy from before the latest Pod that served (I27). It does not detect a copy made after that Pod's start.

mod run;

use crate::pod_annotations::Annotations;
use crate::volume_identity::{IDENTITY_FILE, Identity, Part};
use crate::wal::Metadata;

pub use holdfast_contract::hex_id;

use holdfast_contract::{GateReport, GateRequest, IdentityFlags, MAY_START_EMPTY, STARTED, joined_as};
pub use run::run;

/// Reason for a refused start: a closed list, for conditions and runbooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The volume is empty, and the operator does not allow that.
    EmptyVolume,
    /// A restore has to fill the volume first, and has not completed.
    RestoreIncomplete,
    /// The volume holds data that no gate and no restore of Holdfast wrote.
    ForeignVolume,
    /// The member has served, and the identity file is missing: the data is probably the member's own and perhaps the last
    /// copy.
    IdentityLost,
    /// The data belongs to another cluster, or to an earlier incarnation of this one.
    WrongCluster,
    /// The data belongs to another member.
    WrongMember,
    /// The data was written under another claim: the volume was copied, or restored from a backup of the volume.
    WrongClaim,
    /// The data comes from another restore than the requested restore.
    WrongRestore,
    /// The member has started on this volume before, and its log or its database is missing.
    EmptiedVolume,
    /// A later Pod of this member has served than the last Pod that ran on this volume: the volume is an older copy.
    OlderVolume,
    /// The operator's annotations on the Pod cannot be read, so the required content of the volume is unknown.
    UnreadableAnnotations,
    /// The identity file exists and cannot be parsed.
    UnreadableIdentity,
    /// The write-ahead log exists and cannot be parsed.
    UnreadableWal,
    /// The write-ahead log belongs to another cluster or member than at the last start.
    WrongWal,
}

impl Verdict {
    /// All verdicts.
    pub const ALL: [Self; 14] = [
        Self::EmptyVolume,
        Self::RestoreIncomplete,
        Self::ForeignVolume,
        Self::IdentityLost,
        Self::WrongCluster,
        Self::WrongMember,
        Self::WrongClaim,
        Self::WrongRestore,
        Self::EmptiedVolume,
        Self::OlderVolume,
        Self::UnreadableAnnotations,
        Self::UnreadableIdentity,
        Self::UnreadableWal,
        Self::WrongWal,
    ];

    /// The name, as in a condition's reason.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EmptyVolume => "EmptyVolume",
            Self::RestoreIncomplete => "RestoreIncomplete",
            Self::ForeignVolume => "ForeignVolume",
            Self::IdentityLost => "IdentityLost",
            Self::WrongCluster => "WrongCluster",
            Self::WrongMember => "WrongMember",
            Self::WrongClaim => "WrongClaim",
            Self::WrongRestore => "WrongRestore",
            Self::EmptiedVolume => "EmptiedVolume",
            Self::OlderVolume => "OlderVolume",
            Self::UnreadableAnnotations => "UnreadableAnnotations",
            Self::UnreadableIdentity => "UnreadableIdentity",
            Self::UnreadableWal => "UnreadableWal",
            Self::WrongWal => "WrongWal",
        }
    }
}

/// Facts of the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Names at the volume's root, without the data directory.
    pub beside: Vec<String>,
    /// Names in the data directory, without the identity file; empty when the directory does not exist.
    pub data: Vec<String>,
    /// The identity file.
    pub identity: Result<Option<Identity>, String>,
    /// The write-ahead log's metadata; `None` when there is no segment.
    pub wal: Result<Option<Metadata>, String>,
    /// Whether the database (`member/snap/db`) exists and is not empty. etcd creates the database before its log.
    pub database: bool,
}

impl Facts {
    /// Whether every observation found nothing: a file that appeared between two observations counts as data.
    fn empty(&self) -> bool {
        let leftover = format!(".{IDENTITY_FILE}.new");
        let nothing_read = matches!(self.wal, Ok(None)) && !self.database;
        nothing_read && self.beside.is_empty() && self.data.iter().all(|name| *name == leftover)
    }
}

/// `--initial-cluster-state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterState {
    /// Found a cluster.
    New,
    /// Join a cluster, or continue in the member's cluster.
    Existing,
}

impl ClusterState {
    /// Returns the flag for etcd.
    pub const fn flag(self) -> &'static str {
        match self {
            Self::New => "--initial-cluster-state=new",
            Self::Existing => "--initial-cluster-state=existing",
        }
    }
}

/// The gate's decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Write this identity, then execute etcd.
    Start {
        /// The identity to write to the volume; its count includes this start.
        identity: Box<Identity>,
        /// The cluster state for etcd's command line.
        state: ClusterState,
        /// Whether etcd has never written its log on this volume.
        first: bool,
    },
    /// Change nothing, report the reason.
    Refuse(GateReport),
}

/// Decides from the facts of the volume and the operator's annotations on the Pod.
pub fn decide(facts: &Facts, request: &GateRequest, annotations: &Annotations) -> Decision {
    let wanted = &request.identity;
    let found = match &facts.identity {
        Ok(found) => found.as_ref(),
        Err(why) => return refuse(Verdict::UnreadableIdentity, wanted, why),
    };
    if let Some(found) = found
        && let Some((verdict, why)) = differs(found, wanted, request.restore_uid.as_deref())
    {
        return refuse(verdict, wanted, &why);
    }
    let (started, joined) = match (&annotations.started, &annotations.joined) {
        (Ok(started), Ok(joined)) => (*started, joined.as_deref()),
        (Err(why), _) | (_, Err(why)) => return refuse(Verdict::UnreadableAnnotations, wanted, why),
    };
    if found.is_none() && !facts.empty() {
        let (verdict, why) = unidentified(facts, started, joined);
        return refuse(verdict, wanted, &why);
    }
    let permitted = request.restore_uid.is_none() && annotations.permit_empty(&wanted.claim_uid);
    let Some(found) = found else {
        return match &request.restore_uid {
            // I3: the member has served, so an empty volume has lost acknowledged writes. No permission changes that.
            _ if started > 0 => {
                let why = format!("its Pod number {started} has served, and nothing is there now");
                refuse(Verdict::EmptiedVolume, wanted, &why)
            }
            _ if let Some(joined) = joined => {
                let why = format!("it has joined etcd as {joined} (cluster/member), and nothing is there now");
                refuse(Verdict::EmptiedVolume, wanted, &why)
            }
            None if permitted => start(Identity::new(wanted), request, None),
            None => refuse(Verdict::EmptyVolume, wanted, &annotation_seen(annotations.may_start_empty.as_deref())),
            Some(uid) => refuse(Verdict::RestoreIncomplete, wanted, &format!("restore {uid} is not there")),
        };
    };
    // I27: no member goes back in time.
    if found.pod_start < started {
        let why = format!(
            "the latest of its Pods to run here was number {}, and number {started} has served since ({STARTED})",
            found.pod_start
        );
        return refuse(Verdict::OlderVolume, wanted, &why);
    }
    match &facts.wal {
        Err(why) => refuse(Verdict::UnreadableWal, wanted, why),
        Ok(None) if permitted && found.restored.is_none() && found.member_id.is_none() => {
            start(found.clone(), request, None)
        }
        Ok(None) => {
            let why = format!("it was started here {} times and has no log now", found.start_count);
            refuse(Verdict::EmptiedVolume, wanted, &why)
        }
        // I3: etcd would replay the log onto an empty database. After a restore only the restored data would be missing.
        Ok(Some(_)) if !facts.database => {
            refuse(Verdict::EmptiedVolume, wanted, "its log is there and its database (member/snap/db) is not")
        }
        Ok(Some(wal)) => {
            // I5: two sources know the member's IDs. The identity file has them from the second start on; the operator has them
            // from etcd, a moment after etcd's first answer.
            let (cluster_id, member_id) = (hex_id(wal.cluster_id), hex_id(wal.member_id));
            let latched = |known: &Option<String>, id: &String| known.as_ref().is_none_or(|known| known == id);
            let here = latched(&found.cluster_id, &cluster_id) && latched(&found.member_id, &member_id);
            match joined.filter(|joined| *joined != joined_as(&cluster_id, &member_id)) {
                None if here => start(found.clone(), request, Some(*wal)),
                joined => {
                    let known = joined.map(|joined| format!("; it has joined as {joined} (cluster/member)"));
                    let why = format!(
                        "the log names cluster {cluster_id} and member {member_id}{}",
                        known.unwrap_or_default()
                    );
                    refuse(Verdict::WrongWal, wanted, &why)
                }
            }
        }
    }
}

fn start(mut identity: Identity, request: &GateRequest, wal: Option<Metadata>) -> Decision {
    identity.start_count = identity.start_count.saturating_add(1);
    identity.pod_start = identity.pod_start.max(request.start);
    if let Some(wal) = wal {
        identity.cluster_id = Some(hex_id(wal.cluster_id));
        identity.member_id = Some(hex_id(wal.member_id));
    }
    let first = wal.is_none();
    // Only a seed without a log founds a cluster (I2). etcd ignores the flag when a log exists.
    let state = if request.seed && first { ClusterState::New } else { ClusterState::Existing };
    Decision::Start { identity: Box::new(identity), state, first }
}

/// Returns the first difference between the volume's identity and the wanted identity.
fn differs(found: &Identity, wanted: &IdentityFlags, restore_uid: Option<&str>) -> Option<(Verdict, String)> {
    let (part, why) = found.difference(wanted, restore_uid)?;
    let verdict = match part {
        Part::Cluster => Verdict::WrongCluster,
        Part::Member => Verdict::WrongMember,
        Part::Claim => Verdict::WrongClaim,
        Part::Restore => Verdict::WrongRestore,
    };
    Some((verdict, why))
}

/// Judges data without an identity file. Data of a member that has served is probably its own (I3): a user who removes such
/// data as foreign would lose the last copy.
fn unidentified(facts: &Facts, started: u64, joined: Option<&str>) -> (Verdict, String) {
    let mut names: Vec<_> = facts.beside.iter().chain(&facts.data).take(3).map(String::as_str).collect();
    if names.is_empty() {
        names.push("a log or a database");
    }
    let holds = format!("the volume holds {}", names.join(", "));
    if started == 0 && joined.is_none() {
        return (Verdict::ForeignVolume, holds);
    }
    let served = if started > 0 {
        format!("Pod number {started} of this member has served")
    } else {
        "this member has joined etcd".to_owned()
    };
    let log = match (&facts.wal, joined) {
        (Ok(Some(wal)), Some(joined)) if joined == joined_as(&hex_id(wal.cluster_id), &hex_id(wal.member_id)) => {
            "; the log is the one with which this member joined".to_owned()
        }
        (Ok(Some(wal)), Some(joined)) => format!(
            "; the log names {} (cluster/member), and this member joined as {joined}",
            joined_as(&hex_id(wal.cluster_id), &hex_id(wal.member_id))
        ),
        _ => String::new(),
    };
    (Verdict::IdentityLost, format!("{served}; {holds}{log}"))
}

fn annotation_seen(value: Option<&str>) -> String {
    match value {
        None => format!("the Pod has no annotation {MAY_START_EMPTY}"),
        Some(value) => format!("the Pod's annotation {MAY_START_EMPTY} names {value:?}"),
    }
}

/// The remedy for lost data: the gate never suggests to replace the member.
const GONE: &str = "save a snapshot while others serve (if none does, take the last one), and restore it as a new cluster \
                    (runbook VolumeRefused)";

fn refuse(verdict: Verdict, wanted: &IdentityFlags, why: &str) -> Decision {
    let member = &wanted.member_name;
    let claim = &wanted.claim_uid;
    let message = match verdict {
        Verdict::EmptyVolume => format!(
            "the volume of member {member} (claim {claim}) is empty and may not be ({why}). Starting here could lose \
             acknowledged writes. If a wrong volume was mounted, mount the right one; if the data is really gone, {GONE}"
        ),
        Verdict::RestoreIncomplete => format!(
            "the volume of member {member} must hold restored data before it starts, and does not ({why}). Look at the \
             restore's init container; correct the snapshot's place or credentials"
        ),
        Verdict::ForeignVolume => format!(
            "the volume of member {member} holds data that Holdfast has not put there ({why}). Nothing was touched. \
             Mount an empty volume, or move that data away"
        ),
        Verdict::IdentityLost => format!(
            "the data of member {member} lack Holdfast's identity file data/{IDENTITY_FILE} ({why}). They are probably this \
             member's own data, and may be the last copy: do not move or delete them. Put the file back from a copy of the \
             volume; without a copy, read data/member/snap/db with `holdfast agent verify FILE` and restore it as a new \
             cluster (runbook VolumeRefused)"
        ),
        Verdict::WrongCluster => format!(
            "the volume of member {member} belongs to another cluster ({why}). Nothing was touched. Mount the right \
             volume; if there is none any more, {GONE}"
        ),
        Verdict::WrongMember => format!(
            "the volume belongs to another member than {member} ({why}). Nothing was touched. Mount the right volume; \
             if there is none any more, {GONE}"
        ),
        Verdict::WrongClaim => format!(
            "the data of member {member} was written under another claim ({why}): a copy, or a volume from a backup. It \
             may be older than what this member has acknowledged. Instead, {GONE}"
        ),
        Verdict::WrongRestore => format!(
            "the volume of member {member} was filled by another restore ({why}). Delete the member's claim, so that \
             this restore gets a volume of its own"
        ),
        Verdict::EmptiedVolume => format!(
            "the volume of member {member} has lost its data ({why}). Starting here could lose acknowledged writes. \
             Instead, {GONE}"
        ),
        Verdict::OlderVolume => format!(
            "the volume of member {member} is an older copy ({why}): writes acknowledged since then are missing. \
             Nothing was touched. Mount the newest volume; if it is gone, {GONE}"
        ),
        Verdict::UnreadableAnnotations => format!(
            "the annotations of the Pod of member {member} cannot be read ({why}), so the gate cannot check the volume. \
             Nothing was touched. Delete the Pod: the operator creates another Pod"
        ),
        Verdict::UnreadableIdentity => format!(
            "the volume of member {member} does not show whose data it holds ({why}). Nothing was touched. Put the file \
             back from a copy of the volume; if there is none, {GONE}"
        ),
        Verdict::UnreadableWal => {
            format!("the log on the volume of member {member} is damaged ({why}). Nothing was touched. Instead, {GONE}")
        }
        Verdict::WrongWal => format!(
            "the log on the volume of member {member} is not this member's ({why}). Nothing was touched. Mount the \
             right volume; if there is none any more, {GONE}"
        ),
    };
    Decision::Refuse(GateReport { verdict: verdict.name().to_owned(), message })
}

#[cfg(test)]
mod tests;
