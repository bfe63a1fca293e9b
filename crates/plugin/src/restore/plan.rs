//! Plan of a restore: the revisions that return, the later ones that do not, and the time that earlier restores took.
//!
//! PURE. Decides the figures from statuses: revisions of later snapshots, times of clusters that were restored from the same
//! store, and of earlier returns of the same cluster.

use holdfast_api::restore::{RestorePhase, RestorePoint};
use holdfast_api::snapshot::{EtcdSnapshot, Phase};
use holdfast_api::timeline::{PhaseStart, ReturnPhase};
use holdfast_api::{EtcdCluster, EtcdRestore, EtcdSnapshotSchedule};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use serde::Serialize;

use super::log_end::{LogEnd, Reach};
use crate::screen::{Screen, Tone};
use crate::time::{clock, date, grouped, parse, relative, size, span};

/// The plan of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Time of the plan.
    pub at: Timestamp,
    /// Name of the EtcdCluster: the new one, or the one that returns.
    pub cluster: String,
    /// The return of an existing cluster; absent for a new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_place: Option<InPlace>,
    /// Name of the EtcdSnapshot.
    pub snapshot: String,
    /// Point in time up to which the log is added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub point: Option<String>,
    /// End of the log, as the operator last saw it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_end: Option<LogEnd>,
    /// A complete snapshot after the end of a log that does not reach the point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub later_snapshot: Option<Later>,
    /// Time at which the snapshot was complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<Timestamp>,
    /// Revision that comes back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Keys that come back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<i64>,
    /// Size of the database in bytes.
    pub db_bytes: u64,
    /// Bytes to download.
    pub stored_bytes: u64,
    /// Level of proof.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// Revisions of the saved cluster that are missing at least: those up to its newest snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revisions_lost: Option<i64>,
    /// Earlier restores from the same store.
    pub history: Vec<Earlier>,
    /// Expected seconds until the first member serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_seconds: Option<i64>,
}

/// The return of an existing cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InPlace {
    /// Name of the EtcdRestore.
    pub restore: String,
    /// The timeline that the return makes.
    pub timeline: u32,
    /// EtcdBackupStore of the safety snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub safety_store: Option<String>,
    /// Why there is no safety snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_safety_snapshot: Option<String>,
    /// Seconds for which the earlier members keep their claims.
    pub keep_earlier_seconds: u32,
    /// The newest complete return of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<LastReturn>,
}

/// An earlier return of the same cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastReturn {
    /// Name of the EtcdRestore.
    pub restore: String,
    /// Seconds from its beginning to its end.
    pub seconds: i64,
    /// Seconds without a member for clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outage_seconds: Option<i64>,
}

impl LastReturn {
    /// Finds the newest complete return among those of one cluster.
    pub fn find(restores: &[&EtcdRestore]) -> Option<Self> {
        let complete = restores.iter().filter_map(|restore| {
            let status = restore.status.as_ref().filter(|status| status.phase == ReturnPhase::Complete)?;
            let at = |phase: Option<&PhaseStart>| parse(&phase?.at);
            let (from, to) = (at(status.phases.first())?, at(status.phases.last())?);
            let seconds = to.duration_since(from).as_secs();
            Some((to, Self { restore: restore.name_any(), seconds, outage_seconds: status.outage_seconds }))
        });
        complete.max_by_key(|(to, _)| *to).map(|(_, last)| last)
    }
}

impl InPlace {
    /// Returns the lines about time, clients and the present data.
    fn lines(&self) -> [(&'static str, String); 4] {
        let takes = match &self.last {
            Some(LastReturn { restore, seconds, outage_seconds }) => {
                let outage = outage_seconds.map(|outage| format!(", {outage} s of them without a member for clients"));
                format!("{restore} took {seconds} s{}", outage.unwrap_or_default())
            }
            None => "unknown: the cluster has no earlier EtcdRestore that is complete".to_owned(),
        };
        let safety = match (&self.safety_store, &self.skip_safety_snapshot) {
            (Some(store), _) => format!(
                "a safety snapshot of the present data goes to EtcdBackupStore {store} (--safety-store names another), or the return fails"
            ),
            (None, why) => format!("no safety snapshot of the present data: {}", why.as_deref().unwrap_or_default()),
        };
        let kept = span(SignedDuration::from_secs(self.keep_earlier_seconds.into()));
        [
            ("takes", takes),
            ("clients", "keep names and certificates, and wait while no member serves".to_owned()),
            ("safety", safety),
            (
                "members",
                format!(
                    "of timeline {} are set aside, and keep their claims for {kept}",
                    self.timeline.saturating_sub(1)
                ),
            ),
        ]
    }
}

/// A later snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Later {
    /// Name of the EtcdSnapshot.
    pub snapshot: String,
    /// Its revision.
    pub revision: i64,
}

/// An earlier restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Earlier {
    /// Name of the EtcdCluster that was restored.
    pub cluster: String,
    /// Seconds from its creation until it had formed.
    pub seconds: i64,
    /// Size of its database in bytes.
    pub db_bytes: u64,
    /// Time at which it had formed.
    pub at: Timestamp,
}

impl Plan {
    /// Makes the plan.
    pub fn for_restore(
        snapshot: &EtcdSnapshot,
        snapshots: &[EtcdSnapshot],
        clusters: &[EtcdCluster],
        (cluster, point): (&str, Option<&RestorePoint>),
        at: Timestamp,
    ) -> Self {
        let status = snapshot.status.clone().unwrap_or_default();
        let artifact = status.artifact.clone().unwrap_or_default();
        let revision = |snapshot: &EtcdSnapshot| snapshot.status.as_ref()?.artifact.as_ref()?.revision;
        let newest = snapshots.iter().filter(|it| is_same_lineage(it, snapshot)).filter_map(revision).max();
        // How many revisions a time reaches is in the log.
        let reached = point.map_or(artifact.revision, |point| point.revision);
        let mut history: Vec<Earlier> = clusters.iter().filter_map(|cluster| earlier(cluster, snapshot)).collect();
        history.sort_by_key(|earlier| std::cmp::Reverse(earlier.at));
        Self {
            at,
            cluster: cluster.to_owned(),
            snapshot: snapshot.name_any(),
            point: point.map(ToString::to_string),
            in_place: None,
            log_end: None,
            later_snapshot: None,
            taken_at: status.completed_at.as_deref().and_then(parse),
            revision: artifact.revision,
            keys: artifact.keys,
            db_bytes: artifact.db_bytes,
            stored_bytes: artifact.stored_bytes,
            level: status.verification.map(|proof| proof.level.as_str().to_owned()),
            revisions_lost: newest.zip(reached).map(|(newest, own)| (newest - own).max(0)),
            expected_seconds: history.iter().map(|earlier| scaled(earlier, artifact.db_bytes)).max(),
            history,
        }
    }

    /// Adds the end of the log of the snapshot's cluster. A schedule's log is that of the cluster of this name now; `saved`: UID of that
    /// cluster, if there is one.
    #[must_use]
    pub fn with_log(
        mut self,
        snapshot: &EtcdSnapshot,
        snapshots: &[EtcdSnapshot],
        (schedules, point): (&[EtcdSnapshotSchedule], Option<&RestorePoint>),
        saved: Option<&str>,
    ) -> Self {
        let of_snapshot = snapshot.status.as_ref().and_then(|status| status.cluster_uid.as_deref());
        let is_its_log = saved.is_none() || saved == of_snapshot;
        let (Some(point), Some(base), Some(named), true) =
            (point, self.revision, &snapshot.spec.cluster_ref, is_its_log)
        else {
            return self;
        };
        self.log_end = LogEnd::find(schedules, &named.name, (base, point), self.at);
        if let Some(end) = self.log_end.as_ref().filter(|end| end.reach == Reach::Ended) {
            let later = snapshots.iter().filter(|it| is_same_lineage(it, snapshot)).filter_map(|it| {
                let status = it.status.as_ref().filter(|status| status.phase == Phase::Complete)?;
                let revision = status.artifact.as_ref()?.revision.filter(|revision| *revision > end.revision)?;
                Some(Later { snapshot: it.name_any(), revision })
            });
            self.later_snapshot = later.min_by_key(|later| later.revision);
        }
        self
    }

    /// Returns the sentence about the losses of a point that the log does not reach.
    fn lost_after(&self, end: &LogEnd) -> String {
        let later = match &self.later_snapshot {
            Some(Later { snapshot, revision }) => {
                format!("; the next point after it is EtcdSnapshot {snapshot}, revision {}", grouped(*revision))
            }
            None => ": nothing after it can be restored".to_owned(),
        };
        format!("every write after {}{later}", end.describe())
    }

    /// Returns the sentence about the time until a new cluster serves.
    fn expected(&self) -> String {
        match (self.expected_seconds, self.history.first()) {
            (Some(seconds), Some(last)) => format!(
                "about {seconds} s until the first member serves: {} with {} took {} s",
                last.cluster,
                size(last.db_bytes),
                last.seconds
            ),
            _ => "unknown: no cluster of this namespace was restored from this store".to_owned(),
        }
    }

    /// Returns the plan as text, each line a comment of the YAML below.
    pub fn render(&self, screen: Screen) -> String {
        let mut lines = vec![];
        let facts = [
            self.revision.map(|revision| format!("revision {}", grouped(revision))),
            self.keys.map(|keys| format!("{} keys", grouped(keys))),
            Some(format!("{} ({} to download)", size(self.db_bytes), size(self.stored_bytes))),
            self.level.as_ref().map(|level| format!("verified {level}")),
        ];
        let facts: Vec<String> = facts.into_iter().flatten().collect();
        lines.push(("comes back", format!("EtcdSnapshot {}: {}", self.snapshot, facts.join(", "))));
        let taken = self.taken_at.map(|at| format!("{} {}, {}", date(at), clock(at), relative(at, self.at)));
        lines.push(("taken", taken.unwrap_or_else(|| "unknown".to_owned())));
        if let Some(point) = &self.point {
            let unknown = || format!("up to {point}; a log that ends earlier refuses the restore");
            let log = self.log_end.as_ref().map_or_else(unknown, |end| end.sentence(point));
            lines.push(("and the log", log));
        }
        let ended = self.log_end.as_ref().filter(|end| end.reach == Reach::Ended);
        let lost = match (self.revisions_lost, self.taken_at) {
            _ if let Some(end) = ended => self.lost_after(end),
            (revisions, _) if let Some(point) = &self.point => {
                let at_least = revisions.filter(|revisions| *revisions > 0);
                let at_least = at_least.map(|revisions| format!(", {} revisions at least", grouped(revisions)));
                format!("every write after {point}{}", at_least.unwrap_or_default())
            }
            (Some(0), Some(at)) => format!("every write after {}: this is the newest snapshot", clock(at)),
            (Some(revisions), Some(at)) => {
                format!("every write after {}, {} revisions at least", clock(at), grouped(revisions))
            }
            _ => "every write after the snapshot".to_owned(),
        };
        lines.push(("is lost", lost));
        if let Some(in_place) = &self.in_place {
            lines.extend(in_place.lines());
        } else {
            lines.push(("takes", self.expected()));
            let clients = format!("move to the Service {}-client; the saved cluster stays as it is", self.cluster);
            lines.push(("clients", clients));
        }
        let comment = |(title, text): &(&str, String)| {
            format!("{} {}\n", screen.paint(Tone::Faint, &format!("# {title:<10}")), screen.paint(Tone::Strong, text))
        };
        lines.iter().map(comment).collect()
    }
}

/// Whether two snapshots are of one etcd, and not of two clusters of the same name or of two timelines.
fn is_same_lineage(a: &EtcdSnapshot, b: &EtcdSnapshot) -> bool {
    let uid = |snapshot: &EtcdSnapshot| snapshot.status.as_ref().and_then(|status| status.cluster_uid.clone());
    let etcd = |snapshot: &EtcdSnapshot| Some(snapshot.status.as_ref()?.source.as_ref()?.cluster_id.clone());
    uid(a) == uid(b) && etcd(a).zip(etcd(b)).is_none_or(|(a, b)| a == b)
}

/// Returns the time that a restore took, if it was from the store of this snapshot.
fn earlier(cluster: &EtcdCluster, snapshot: &EtcdSnapshot) -> Option<Earlier> {
    let status = cluster.status.as_ref()?;
    let restore = status.restore.as_ref().filter(|restore| restore.phase == Some(RestorePhase::Formed))?;
    let at = parse(&status.latches.formed.as_ref()?.at)?;
    let own = &snapshot.status.as_ref()?.artifact.as_ref()?.uri;
    let root = |uri: &str| uri.split('/').take(3).collect::<Vec<_>>().join("/");
    if root(restore.uri.as_ref()?) != root(own) {
        return None;
    }
    let seconds = at.duration_since(cluster.creation_timestamp()?.0).as_secs();
    Some(Earlier { cluster: cluster.name_any(), seconds: seconds.max(1), db_bytes: restore.db_bytes?, at })
}

/// Scales the time of an earlier restore to a larger database. A smaller one waits for the same Pod.
fn scaled(earlier: &Earlier, db_bytes: u64) -> i64 {
    let ratio = db_bytes / earlier.db_bytes.max(1);
    let seconds =
        u128::try_from(earlier.seconds).unwrap_or(1) * u128::from(db_bytes) / u128::from(earlier.db_bytes.max(1));
    if ratio == 0 { earlier.seconds } else { i64::try_from(seconds).unwrap_or(i64::MAX).max(earlier.seconds) }
}
