//! The log of the lineage in a prune: which segments, gaps and checks no snapshot needs any more, and their removal.
//!
//! This file decides the order of the removal: the segment that ends first goes first, so a run that ends early leaves no hole
//! between segments that stay. `holdfast_layout::retention::find_log_cut` decides up to which revision. As with snapshots, a
//! record announces the revision first, and a later run removes. The log after a held snapshot stays; a gap says that the revisions
//! behind it were removed.

use std::collections::{BTreeSet, HashSet};

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use holdfast_contract::error::Result;
use holdfast_contract::{ExitClass, MAX_REMOVED_SEGMENTS, PrunedLog, hex_id};
use holdfast_io::clock;
use holdfast_io::process::random_uid;
use holdfast_layout::retention::{LogAge, LogBase, LogCut, Untouched, find_log_cut};
use holdfast_layout::{Folder, GapName, Key, SegmentName, first8, is_record_folder};
use holdfast_store::removal::File;
use jiff::{SignedDuration, Timestamp};

use holdfast_catalog::announced::{LogPermit, NamedLog};
use holdfast_catalog::attempts::AT_ONCE;
use holdfast_catalog::inventory::Found;
use holdfast_catalog::log::{FORMAT_VERSION, Gap, render};
use holdfast_catalog::removable_store::RemovableStore;

/// Objects whose locks are read before the first of them is removed.
const CHUNK: usize = 8 * AT_ONCE;

/// An object of a log. The order is that of the removal: segments by their last revisions, then gaps and checks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Object {
    is_record: bool,
    /// Last and first revision of a segment.
    revisions: Option<(i64, i64)>,
    path: String,
    bytes: u64,
    /// `None`: a gap or a check.
    segment: Option<SegmentName>,
}

impl Object {
    fn from_file(File { path, bytes }: File) -> Self {
        let segment = SegmentName::parse(&path);
        let revisions = segment.as_ref().map(|segment| (segment.last, segment.first));
        Self { is_record: segment.is_none(), revisions, path, bytes, segment }
    }

    fn goes(&self, cut: &LogCut) -> bool {
        self.segment.as_ref().map_or_else(|| cut.removes_record(&self.path), |segment| cut.removes(segment))
    }
}

/// The log of a lineage in numbers, and the run's work on it.
#[derive(Debug)]
pub(super) struct LogPart {
    folder: Folder,
    cluster_id: u64,
    /// The beginning that may go; the error: why the whole log stays.
    cut: std::result::Result<LogCut, String>,
    /// Why the age limit removes nothing.
    no_age: Option<String>,
    permits: Vec<LogPermit>,
    /// Standing segments that each of the permits names.
    named: Vec<u64>,
    counted: PrunedLog,
    unneeded_bytes: u64,
    /// The first objects that this run may remove.
    ripe: BTreeSet<Object>,
}

/// The snapshots that stay beside a log.
#[derive(Debug, Default)]
pub(super) struct Bases {
    /// Those of its etcd cluster with a known revision.
    pub(super) own: Vec<LogBase>,
    /// Whether a snapshot of its etcd cluster is among them.
    has_own: bool,
    /// Whether a snapshot is among them whose etcd cluster is unknown.
    unread: bool,
    /// Beginning of the oldest save, of any etcd cluster of the lineage.
    oldest: Option<Timestamp>,
}

/// Returns the snapshots that the log continues, of every schedule and by hand; the error: why the whole log stays.
pub(super) fn bases<'a>(
    remaining: impl Iterator<Item = &'a Found>,
    cluster_id: u64,
    protected: &HashSet<Folder>,
) -> std::result::Result<Bases, String> {
    let wanted = hex_id(cluster_id);
    let mut bases = Bases::default();
    for found in remaining {
        if found.entry.subject == Err(Untouched::Archived) {
            let key = &found.entry.key;
            return Err(format!(
                "{key} is archived by the store, so its revision is unknown. Restore it in the store, or remove it"
            ));
        }
        let Some(snapshot) = &found.snapshot else {
            let unread = [Untouched::Broken, Untouched::LaterFormat, Untouched::Copied];
            bases.unread |= found.entry.subject.as_ref().is_err_and(|why| unread.contains(why));
            continue;
        };
        let (started_at, proven) = (snapshot.taken_at, snapshot.proven);
        bases.oldest = bases.oldest.into_iter().chain([started_at]).min();
        // A return in place gives the lineage another etcd cluster, with a log of its own.
        if snapshot.cluster_id != wanted {
            continue;
        }
        bases.has_own = true;
        let held = found.entry.subject == Err(Untouched::Held) || protected.contains(&found.folder);
        bases.own.extend(snapshot.revision.map(|revision| LogBase { revision, started_at, proven, held }));
    }
    Ok(bases)
}

impl Bases {
    /// Returns the beginning of the log that may go.
    fn cut(&self, age: Option<&LogAge>) -> std::result::Result<LogCut, String> {
        // No restore begins in a log without a snapshot of its etcd cluster. One that has just begun is later than the snapshots.
        let past = self.oldest.filter(|_| !self.has_own && !self.unread);
        let past = past.map(|before| LogCut { revision: i64::MAX, before, kept: vec![] });
        let none = || "no snapshot of its etcd cluster precedes it. Save one".to_owned();
        find_log_cut(&self.own, age).or(past).ok_or_else(none)
    }
}

impl LogPart {
    /// Reads the log of a lineage, decides the beginning that may go, and counts. The run holds the names of one folder at a time.
    pub(super) async fn read(
        shelf: &impl RemovableStore,
        (folder, cluster_id): (Folder, u64),
        bases: std::result::Result<Bases, String>,
        (within, now): (Option<SignedDuration>, Timestamp),
        permits: &[LogPermit],
    ) -> Result<Self> {
        let wanted = hex_id(cluster_id);
        let permits: Vec<_> = permits.iter().filter(|permit| permit.named.cluster_id == wanted).cloned().collect();
        let folders = shelf.log_folders(&folder).await?;
        let age = match within.filter(|_| bases.is_ok()) {
            Some(within) => Some(read_age(shelf, &folder, &folders, LogAge::new(within, now)).await?),
            None => None,
        };
        let cut = bases.and_then(|bases| bases.cut(age.as_ref()));
        let wrong = age.as_ref().and_then(LogAge::wrongly_dated).and_then(|segment| segment.key(&folder).ok());
        let no_age = wrong.map(|key| {
            format!(
                "logWithin removes nothing, because the newest segment, {}, has a time in the future. Correct the clock of the \
                 node of the archiver (`agent log`)",
                shelf.uri(&key)
            )
        });
        let (counted, named) = (PrunedLog::default(), vec![0; permits.len()]);
        let ripe = BTreeSet::new();
        let mut part = Self { folder, cluster_id, cut, no_age, permits, named, counted, unneeded_bytes: 0, ripe };
        for name in folders {
            for file in shelf.log_files(&part.folder, &name).await? {
                part.count(Object::from_file(file));
            }
        }
        Ok(part)
    }

    /// Counts an object, and keeps it if this run may remove it.
    fn count(&mut self, object: Object) {
        if !object.is_record {
            self.counted.segments += 1;
            self.counted.bytes += object.bytes;
        }
        if !self.cut.as_ref().is_ok_and(|cut| object.goes(cut)) {
            return;
        }
        let naming = || self.permits.iter().filter(|permit| object.goes(&permit.named.cut));
        let (is_announced, is_ripe) = (naming().next().is_some(), naming().any(|permit| permit.ripe));
        if !object.is_record {
            self.counted.unneeded += 1;
            self.unneeded_bytes += object.bytes;
            self.counted.announced += u64::from(is_announced);
            for (permit, named) in self.permits.iter().zip(&mut self.named) {
                *named += u64::from(object.goes(&permit.named.cut));
            }
        }
        if is_ripe {
            self.ripe.insert(object);
            if self.ripe.len() > MAX_REMOVED_SEGMENTS {
                self.ripe.pop_last();
            }
        }
    }

    /// Counts an object no longer that is removed.
    fn forget(&mut self, object: &Object) {
        if object.is_record {
            return;
        }
        let PrunedLog { segments, bytes, unneeded, announced, .. } = &mut self.counted;
        for count in [segments, unneeded, announced] {
            *count = count.saturating_sub(1);
        }
        for sum in [bytes, &mut self.unneeded_bytes] {
            *sum = sum.saturating_sub(object.bytes);
        }
        for (permit, named) in self.permits.iter().zip(&mut self.named) {
            *named = named.saturating_sub(u64::from(object.goes(&permit.named.cut)));
        }
    }

    /// Removes what was announced, the oldest first.
    pub(super) async fn remove(
        &mut self,
        shelf: &impl RemovableStore,
        (now, not_after): (Timestamp, Option<Timestamp>),
    ) -> Result<()> {
        let going: Vec<Object> = std::mem::take(&mut self.ripe).into_iter().collect();
        if going.is_empty() || shelf.log_cluster(&self.folder).await? != Some(self.cluster_id) {
            return Ok(());
        }
        self.record_holes(shelf, &going).await?;
        for chunk in going.chunks(CHUNK) {
            if not_after.is_some_and(|until| clock::now() >= until) {
                tracing::warn!("the run has started or lasted longer than it may, and removes no more of the log");
                break;
            }
            let keys: Vec<Key> = chunk.iter().map(|object| key_of(&self.folder, object)).collect::<Result<_>>()?;
            let locks: Vec<_> =
                stream::iter(&keys).map(|key| shelf.lasting(key)).buffered(AT_ONCE).try_collect().await?;
            let mut moved = false;
            for ((object, key), lasting) in chunk.iter().zip(&keys).zip(locks) {
                let segment = u64::from(!object.is_record);
                let removed = match lasting {
                    Some(lasting) if lasting.locks(now) => false,
                    Some(_) => match shelf.remove(key).await {
                        Ok(()) => true,
                        Err(error) if error.class() == ExitClass::Denied => false,
                        Err(error) => return Err(error),
                    },
                    // Another run has removed it.
                    None => {
                        self.forget(object);
                        moved = true;
                        continue;
                    }
                };
                if removed {
                    self.forget(object);
                    moved = true;
                    self.counted.removed += segment;
                    self.counted.removed_bytes += segment * object.bytes;
                } else {
                    self.counted.locked += segment;
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

    /// Records the holes that this run makes behind the log of a held snapshot, before it makes them.
    async fn record_holes(&self, shelf: &impl RemovableStore, going: &[Object]) -> Result<()> {
        let last = going.iter().filter_map(|object| object.segment.as_ref()).map(|segment| segment.last).max();
        let Some((cut, last)) = self.cut.as_ref().ok().zip(last) else { return Ok(()) };
        for hole in cut.holes(last) {
            let GapName { after, until, .. } = hole;
            let uid = random_uid()?;
            let key = first8("run", &uid).and_then(|run8| hole.key(&self.folder, &run8));
            let key = key.map_err(|error| holdfast_store::layout(&error))?;
            let (cluster_id, at) = (hex_id(self.cluster_id), clock::now());
            let gap = Gap { format_version: FORMAT_VERSION, cluster_id, after, until, at };
            shelf.put_new(&key, render(&gap)?).await?;
        }
        Ok(())
    }

    /// Returns the announcement of what may go and no announcement names. Only one is pending at a time: the end of a log moves on
    /// with each segment.
    pub(super) fn announcement(&self) -> Option<NamedLog> {
        let cut = self.cut.clone().ok()?;
        let PrunedLog { unneeded, announced, .. } = self.counted;
        if unneeded == announced || self.permits.iter().any(|permit| !permit.ripe) {
            return None;
        }
        Some(NamedLog { cluster_id: hex_id(self.cluster_id), cut, segments: unneeded, bytes: self.unneeded_bytes })
    }

    /// Counts an announcement that this run has written.
    pub(super) fn announced(&mut self, named: NamedLog, not_before: Timestamp) {
        self.counted.announced = named.segments;
        self.named.push(named.segments);
        self.permits.push(LogPermit { named, not_before, ripe: false });
    }

    /// Returns the numbers for the report.
    pub(super) fn report(&self) -> PrunedLog {
        let naming = self.permits.iter().zip(&self.named).filter(|(_, named)| **named > 0);
        let not_before = naming.map(|(permit, _)| permit.not_before).min();
        let kept = self.cut.clone().err().or_else(|| self.no_age.clone());
        PrunedLog { not_before, kept, ..self.counted.clone() }
    }
}

/// Reads the young part of a log, the last day first.
async fn read_age(shelf: &impl RemovableStore, log: &Folder, folders: &[String], mut age: LogAge) -> Result<LogAge> {
    for day in folders.iter().rev().filter(|name| !is_record_folder(name)) {
        let files = shelf.log_files(log, day).await?;
        age.add(&files.iter().filter_map(|file| SegmentName::parse(&file.path)).collect::<Vec<_>>());
        if age.is_complete() {
            break;
        }
    }
    Ok(age)
}

fn key_of(log: &Folder, object: &Object) -> Result<Key> {
    let (folder, name) = object.path.split_once('/').unwrap_or_default();
    log.child(folder).and_then(|folder| folder.object(name)).map_err(|error| holdfast_store::layout(&error))
}
