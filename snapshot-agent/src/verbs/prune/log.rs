//! The log of the lineage in a prune: which segments, gaps and checks no snapshot needs any more, and their removal.
//!
//! This file decides the order of the removal: the segment that ends first goes first, so a run that ends early leaves no hole
//! between segments that stay. `holdfast_contract::retention::find_log_cut` decides up to which revision. As with snapshots, a
//! record announces the revision first, and a later run removes.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use holdfast_contract::error::Result;
use holdfast_contract::layout::{Folder, Key, SegmentName};
use holdfast_contract::retention::{LogBase, LogCut, find_log_cut};
use holdfast_contract::{ExitClass, MAX_REMOVED_SEGMENTS, Policy, PrunedLog, hex_id};
use holdfast_io::clock;
use holdfast_store::removal::File;
use jiff::Timestamp;

use crate::catalog::announced::{LogPermit, NamedLog};
use crate::catalog::attempts::AT_ONCE;
use crate::catalog::inventory::Found;
use crate::catalog::removable_store::RemovableStore;

/// Objects whose locks are read before the first of them is removed.
const CHUNK: usize = 8 * AT_ONCE;

/// An object of a log.
#[derive(Clone, Debug)]
struct Object {
    path: String,
    bytes: u64,
    /// `None`: a gap or a check.
    segment: Option<SegmentName>,
    /// Whether the object is removed.
    gone: bool,
}

impl Object {
    fn goes(&self, cut: LogCut) -> bool {
        self.segment.as_ref().map_or_else(|| cut.removes_record(&self.path), |segment| cut.removes(segment))
    }
}

/// The log of a lineage, and the run's work on it.
#[derive(Debug)]
pub(super) struct LogPart {
    folder: Folder,
    cluster_id: u64,
    /// Segments in the order of their last revisions, then gaps and checks.
    objects: Vec<Object>,
    /// The beginning that may go; the error: why the whole log stays.
    cut: std::result::Result<LogCut, String>,
    permits: Vec<LogPermit>,
    counted: PrunedLog,
}

impl LogPart {
    /// Reads the log of a lineage; `None`: there is none.
    pub(super) async fn read(shelf: &impl RemovableStore, lineage: &Folder) -> Result<Option<Self>> {
        let folder = lineage.log();
        let Some(cluster_id) = shelf.log_cluster(&folder).await? else { return Ok(None) };
        let files = shelf.log_files(&folder).await?.into_iter();
        let mut objects: Vec<Object> = files
            .map(|File { path, bytes }| Object { segment: SegmentName::parse(&path), path, bytes, gone: false })
            .filter(|object| object.path.contains('/'))
            .collect();
        objects.sort_by_cached_key(|object| {
            let revisions = object.segment.as_ref().map(|segment| (segment.last, segment.first));
            (revisions.is_none(), revisions, object.path.clone())
        });
        let (permits, counted) = (vec![], PrunedLog::default());
        Ok(Some(Self { folder, cluster_id, objects, cut: Err(String::new()), permits, counted }))
    }

    /// Decides the beginning that may go, from the snapshots that exist.
    pub(super) fn judge<'a>(
        &mut self,
        remaining: impl Iterator<Item = &'a Found>,
        policy: &Policy,
        is_protected: bool,
    ) {
        let wanted = hex_id(self.cluster_id);
        let mut bases = vec![];
        let mut other = None;
        for found in remaining {
            let Some(snapshot) = &found.snapshot else { continue };
            if snapshot.cluster_id != wanted {
                other = Some(found.entry.key.clone());
            }
            let (started_at, proven) = (found.entry.at, snapshot.proven);
            bases.extend(snapshot.revision.map(|revision| LogBase { revision, started_at, proven }));
        }
        let segments: Vec<SegmentName> = self.objects.iter().filter_map(|object| object.segment.clone()).collect();
        self.cut = match other {
            _ if is_protected => Err("the request protects the lineage (--protect)".to_owned()),
            Some(key) => Err(format!(
                "{key} is of another etcd cluster than the log, {wanted}. Move the snapshots or the log of one etcd cluster away"
            )),
            None => find_log_cut(&bases, &segments, policy.log_within)
                .ok_or_else(|| "no snapshot of its etcd cluster precedes it. Save one".to_owned()),
        };
    }

    /// Returns the segments that the run has not removed.
    fn standing(&self) -> impl Iterator<Item = &Object> {
        self.objects.iter().filter(|object| object.segment.is_some() && !object.gone)
    }

    /// Takes the announcements of this log.
    pub(super) fn permit(&mut self, permits: Vec<LogPermit>) {
        let wanted = hex_id(self.cluster_id);
        self.permits = permits.into_iter().filter(|permit| permit.named.cluster_id == wanted).collect();
    }

    /// Whether an announcement names the object, and the policy lets it go still.
    fn is_announced(&self, object: &Object, is_ripe: impl Fn(&LogPermit) -> bool) -> bool {
        let Ok(cut) = self.cut else { return false };
        object.goes(cut) && self.permits.iter().any(|permit| is_ripe(permit) && object.goes(permit.named.cut))
    }

    /// Removes what was announced, the oldest first.
    pub(super) async fn remove(
        &mut self,
        shelf: &impl RemovableStore,
        (now, not_after): (Timestamp, Option<Timestamp>),
    ) -> Result<()> {
        let numbered = self.objects.iter().enumerate();
        let going = numbered.filter(|(_, object)| self.is_announced(object, |permit| permit.ripe));
        let going: Vec<usize> = going.map(|(at, _)| at).take(MAX_REMOVED_SEGMENTS).collect();
        if going.is_empty() || shelf.log_cluster(&self.folder).await? != Some(self.cluster_id) {
            return Ok(());
        }
        for chunk in going.chunks(CHUNK) {
            if not_after.is_some_and(|until| clock::now() >= until) {
                tracing::warn!("the run has started or lasted longer than it may, and removes no more of the log");
                break;
            }
            let named = chunk.iter().filter_map(|at| Some((*at, self.objects.get(*at)?)));
            let keys: Vec<(usize, Key)> =
                named.map(|(at, object)| Ok((at, key_of(&self.folder, object)?))).collect::<Result<_>>()?;
            let locks: Vec<_> =
                stream::iter(&keys).map(|(_, key)| shelf.lasting(key)).buffered(AT_ONCE).try_collect().await?;
            let mut moved = false;
            for ((at, key), lasting) in keys.iter().zip(locks) {
                let Some(object) = self.objects.get_mut(*at) else { continue };
                let (segment, counted) = (u64::from(object.segment.is_some()), &mut self.counted);
                let removed = match lasting {
                    Some(lasting) if lasting.locks(now) => false,
                    Some(_) => match shelf.remove(key).await {
                        Ok(()) => true,
                        Err(error) if error.class() == ExitClass::Denied => false,
                        Err(error) => return Err(error),
                    },
                    // Another run has removed it.
                    None => {
                        object.gone = true;
                        moved = true;
                        continue;
                    }
                };
                if removed {
                    object.gone = true;
                    moved = true;
                    counted.removed += segment;
                    counted.removed_bytes += segment * object.bytes;
                } else {
                    counted.locked += segment;
                }
            }
            // Later segments are locked for longer.
            if !moved {
                break;
            }
        }
        if self.counted.removed > 0 {
            tracing::info!(segments = self.counted.removed, bytes = self.counted.removed_bytes, "removed from the log");
        }
        Ok(())
    }

    /// Returns the announcement of what may go and no announcement names. Only one is pending at a time: the end of a log moves on
    /// with each segment.
    pub(super) fn announcement(&self) -> Option<NamedLog> {
        let cut = self.cut.as_ref().ok()?;
        if self.permits.iter().any(|permit| !permit.ripe) {
            return None;
        }
        if !self.standing().any(|object| object.goes(*cut) && !self.is_announced(object, |_| true)) {
            return None;
        }
        let going = self.standing().filter(|object| object.goes(*cut));
        let (segments, bytes) = going.fold((0, 0), |(count, bytes), object| (count + 1, bytes + object.bytes));
        Some(NamedLog { cluster_id: hex_id(self.cluster_id), cut: *cut, segments, bytes })
    }

    /// Counts an announcement that this run has written.
    pub(super) fn announced(&mut self, named: NamedLog, not_before: Timestamp) {
        self.permits.push(LogPermit { named, not_before, ripe: false });
    }

    /// Returns the numbers for the report.
    pub(super) fn report(&self) -> PrunedLog {
        let mut report = PrunedLog { kept: self.cut.clone().err(), ..self.counted.clone() };
        for object in self.standing() {
            report.segments += 1;
            report.bytes += object.bytes;
            report.unneeded += u64::from(self.cut.as_ref().is_ok_and(|cut| object.goes(*cut)));
            if self.is_announced(object, |_| true) {
                report.announced += 1;
                let naming = self.permits.iter().filter(|permit| object.goes(permit.named.cut));
                report.not_before = report.not_before.into_iter().chain(naming.map(|permit| permit.not_before)).min();
            }
        }
        report
    }
}

fn key_of(log: &Folder, object: &Object) -> Result<Key> {
    let (folder, name) = object.path.split_once('/').unwrap_or_default();
    log.child(folder).and_then(|folder| folder.object(name)).map_err(|error| holdfast_store::layout(&error))
}
