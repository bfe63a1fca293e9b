//! The logs of a lineage: segments of etcd's revisions, gaps and checks, in `<lineage>/log/`.
//!
//! This file decides the small objects of a log, and how a log is listed. A log belongs to one etcd cluster: the first writer
//! binds the folder to the cluster ID, and revisions of another cluster never come into it (I9). After a return in place the
//! lineage has another etcd cluster, whose log is `<lineage>/log-<cluster ID>/`. Every object is written once.
//! Rules of a bucket may remove any object, so no object is the only witness: segments and checks name the cluster too, and an
//! object beside the newest segment closes a log too.
//! `cover.rs` decides what the segments hold together, `joints.rs` whether they are of one history, `read.rs` reads a segment, `bases.rs` finds the snapshots before it,
//! `checks.rs` the hash of a member.

pub mod bases;
pub mod checks;
pub mod cover;
pub mod joints;
pub mod read;

use bytes::Bytes;
use holdfast_contract::error::{Error, Result};
use holdfast_contract::{ExitClass, LogGap, Origin, hex_id};
use holdfast_io::clock;
use holdfast_io::process::random_uid;
use holdfast_layout::{
    Folder, GapName, Key, SegmentName, check_revision, first8, is_closed_name, is_log_name, is_record_folder,
};
use holdfast_store::Store;
use holdfast_store::removal::File;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The format that this version writes.
pub const FORMAT_VERSION: u32 = 1;

/// Maximum size of a small object of a log.
const MAX_BYTES: u64 = 16 << 10;

/// Maximum number of objects in the listing of one day: a segment of ten writers each second.
const MAX_OBJECTS: usize = 1_000_000;

/// Folders of the gaps and of the checks.
const GAPS: &str = "gaps";
const CHECKS: &str = "checks";

/// Maximum number of logs in a lineage: each is a return in place.
const MAX_LOGS: usize = 1000;

/// Maximum number of days in a listing.
const MAX_DAYS: usize = 10_000;

/// Days in which the newest segment is looked for: the clocks of two writers may differ at midnight.
const NEWEST_DAYS: usize = 2;

/// The etcd cluster of a log: `cluster.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bound {
    format_version: u32,
    cluster_id: String,
}

/// The end of a log: `closed.json`, and an object beside the newest segment. etcd is in another history than the log: it has
/// lost revisions that the log holds, and its next revisions have the same numbers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Closed {
    format_version: u32,
    /// The newest revision of the log or of a snapshot.
    recorded: i64,
    /// The newest revision of etcd, which a quorum confirmed.
    found: i64,
    at: Timestamp,
    #[serde(default)]
    evidence: Evidence,
}

/// The fact that shows another history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Evidence {
    /// etcd's newest revision is lower than a recorded one.
    #[default]
    Fell,
    /// etcd holds other changes of the last recorded revision.
    OtherChanges,
    /// etcd's raft has fewer entries than the revisions need.
    FewerEntries,
}

impl Closed {
    fn error(&self) -> Error {
        let Self { recorded, found, at, evidence, .. } = self;
        let fact = match evidence {
            Evidence::Fell => {
                format!("etcd was at revision {found}, and revision {recorded} of this etcd cluster had been recorded")
            }
            Evidence::OtherChanges => {
                format!("etcd held other changes of revision {recorded} than this log")
            }
            Evidence::FewerEntries => {
                format!("etcd was at revision {found} with fewer entries of raft than at revision {recorded}")
            }
        };
        Error::refused(format!(
            "at {at} {fact}: etcd was restored, or lost writes. Its revisions have numbers of the old ones, so this log goes on \
             for no etcd. Begin a log in another place: --cluster, --cluster-uid or --namespace"
        ))
        .with_origin(Origin::Request)
    }
}

/// Revisions that etcd had compacted before the agent could record them, or that a prune removed: `gaps/…json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gap {
    /// Version of the object's format: 1.
    pub format_version: u32,
    /// etcd cluster ID (hex).
    pub cluster_id: String,
    /// The last recorded revision before the gap.
    pub after: i64,
    /// The last missing revision: etcd's compact revision.
    pub until: i64,
    /// Time at which etcd refused the watch, or of the prune.
    pub at: Timestamp,
}

/// The HashKV of a member, for the proof of a merge: `checks/…json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// Version of the object's format: 1.
    pub format_version: u32,
    /// etcd cluster ID (hex).
    pub cluster_id: String,
    /// ID (hex) of the member.
    pub member_id: String,
    /// Revision of the hash.
    pub revision: i64,
    /// The member's compact revision during the hash; -1: never compacted.
    pub compact_revision: i64,
    /// The hash.
    #[serde(rename = "hashKV")]
    pub hash_kv: u32,
    /// Time of the answer.
    pub at: Timestamp,
    /// Least number of entries of raft without a revision, before the hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least: Option<i64>,
}

/// The objects of a log, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Segments, with their stored bytes.
    pub segments: Vec<(SegmentName, u64)>,
    /// Gaps.
    pub gaps: Vec<GapName>,
    /// Revisions of the checks.
    pub checks: Vec<i64>,
}

/// Renders a small object.
pub fn render(object: &impl Serialize) -> Result<Bytes> {
    let json = serde_json::to_vec_pretty(object);
    let mut json = json.map_err(|error| Error::corrupt(format!("an object of the log cannot be written: {error}")))?;
    json.push(b'\n');
    Ok(json.into())
}

/// The log of one etcd cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundLog {
    /// The log's folder.
    pub folder: Folder,
    /// etcd cluster ID.
    pub cluster_id: u64,
}

/// Returns the folder for the log of this etcd cluster, whether or not the log exists. A log of its own goes on, also where rules of the
/// bucket have removed the first log.
pub async fn find_folder(store: &Store, lineage: &Folder, cluster_id: u64) -> Result<Folder> {
    let own = lineage.later_log(cluster_id);
    if bound_cluster(store, &own).await?.is_some() {
        return Ok(own);
    }
    let is_taken = bound_cluster(store, &lineage.log()).await?.is_some_and(|bound| bound != cluster_id);
    Ok(if is_taken { own } else { lineage.log() })
}

/// Returns the logs of a lineage.
pub async fn logs_of(store: &Store, lineage: &Folder) -> Result<Vec<BoundLog>> {
    find_logs(store, lineage).await?.into_iter().filter_map(Result::transpose).collect()
}

/// Returns the logs of a lineage whose etcd clusters can be read; the error, if there is no other log.
pub async fn readable_logs(store: &Store, lineage: &Folder) -> Result<Vec<BoundLog>> {
    let (mut logs, mut unread) = (Vec::new(), None);
    for found in find_logs(store, lineage).await? {
        match found {
            Ok(log) => logs.extend(log),
            Err(error) if matches!(error.class(), ExitClass::Corrupt | ExitClass::Config) || error.is_archived() => {
                tracing::warn!("a log of the lineage is passed over: {error}");
                unread = unread.or(Some(error));
            }
            Err(error) => return Err(error),
        }
    }
    match unread.filter(|_| logs.is_empty()) {
        Some(error) => Err(error),
        None => Ok(logs),
    }
}

/// Reads the etcd cluster of each folder of a log; `None`: the folder is no log any more.
async fn find_logs(store: &Store, lineage: &Folder) -> Result<Vec<Result<Option<BoundLog>>>> {
    let mut found = Vec::new();
    for name in store.last_children(lineage, MAX_LOGS, is_log_name).await?.names {
        let folder = lineage.child(&name).map_err(|error| holdfast_store::layout(&error))?;
        let bound = bound_cluster(store, &folder).await;
        found.push(bound.map(|bound| bound.map(|cluster_id| BoundLog { folder, cluster_id })));
    }
    Ok(found)
}

/// Returns the log of a lineage with the newest segment; `None`: the lineage has no log.
pub async fn newest_log(store: &Store, lineage: &Folder) -> Result<Option<BoundLog>> {
    let mut newest = None;
    for log in logs_of(store, lineage).await? {
        let until = newest_segment(store, &log.folder).await?.map(|segment| segment.at);
        if newest.as_ref().is_none_or(|(known, _)| until > *known) {
            newest = Some((until, log));
        }
    }
    Ok(newest.map(|(_, log)| log))
}

/// Returns the ID of the etcd cluster that a log belongs to; `None`: there is no log.
pub async fn bound_cluster(store: &Store, log: &Folder) -> Result<Option<u64>> {
    let at = log.log_cluster();
    let Some(json) = store.find_small(&at, MAX_BYTES).await? else { return recorded_cluster(store, log).await };
    let nonsense = || {
        Error::corrupt(format!(
            "{} holds no cluster ID. Put an earlier version of the object back, or write \
             {{\"formatVersion\": 1, \"clusterId\": \"ID\"}} with the clusterId of the snapshots' manifests beside the log",
            store.uri(&at)
        ))
    };
    let bound: Bound = serde_json::from_slice(&json).map_err(|_| nonsense())?;
    u64::from_str_radix(&bound.cluster_id, 16).map(Some).map_err(|_| nonsense())
}

/// Returns the ID of the etcd cluster from the objects of a log without `cluster.json`; `None`: there is no segment.
async fn recorded_cluster(store: &Store, log: &Folder) -> Result<Option<u64>> {
    let Some(newest) = newest_segment(store, log).await? else { return Ok(None) };
    let missing = store.uri(&log.log_cluster());
    let found = if newest.encrypted {
        newest_check(store, log).await?.and_then(|check| u64::from_str_radix(&check.cluster_id, 16).ok())
    } else {
        let key = newest.key(log).map_err(|error| holdfast_store::layout(&error))?;
        let stored = read::fetch(store, log, &newest).await?;
        let reader = read::open(stored, None).map_err(|error| read::unreadable(&store.uri(&key), &error))?;
        Some(reader.header().cluster_id)
    };
    let Some(cluster_id) = found else {
        return Err(Error::config(format!(
            "{missing} is missing, and the segments of this log are encrypted. Write \
             {{\"formatVersion\": 1, \"clusterId\": \"ID\"}} there, with the clusterId of the snapshots' manifests beside the log"
        )));
    };
    tracing::warn!(missing, cluster_id = hex_id(cluster_id), "the object is missing: segments name the etcd cluster");
    Ok(Some(cluster_id))
}

/// Binds a log to an etcd cluster; an error if the log belongs to another one.
pub async fn bind(store: &Store, log: &Folder, cluster_id: u64) -> Result<()> {
    let missing = store.find_small(&log.log_cluster(), MAX_BYTES).await?.is_none();
    if missing && bound_cluster(store, log).await?.is_none_or(|recorded| recorded == cluster_id) {
        let bound = Bound { format_version: FORMAT_VERSION, cluster_id: hex_id(cluster_id) };
        // Another writer may come first; the object decides.
        if let Err(error) = store.put_new(&log.log_cluster(), render(&bound)?).await
            && store.find_small(&log.log_cluster(), MAX_BYTES).await?.is_none()
        {
            return Err(error);
        }
    }
    match bound_cluster(store, log).await? {
        Some(bound) if bound == cluster_id => Ok(()),
        Some(bound) => Err(Error::unclear(format!(
            "{} is the log of the etcd cluster {bound:x}, and this is the etcd cluster {cluster_id:x}. Give the log of \
             this cluster another place: --cluster, --cluster-uid or --namespace",
            store.uri(log)
        ))),
        None => Err(Error::transient(format!("{} was written and is not there", store.uri(&log.log_cluster())))),
    }
}

/// Closes a log whose etcd is in another history, and returns the error. No later run continues the log, also after etcd has
/// passed the recorded revision.
pub async fn close(store: &Store, log: &Folder, (recorded, found): (i64, i64), evidence: Evidence) -> Error {
    let closed = Closed { format_version: FORMAT_VERSION, recorded, found, at: clock::now(), evidence };
    match write_closed(store, log, &closed).await {
        Ok(()) => closed.error(),
        Err(error) => error.context(closed.error().message()),
    }
}

async fn write_closed(store: &Store, log: &Folder, closed: &Closed) -> Result<()> {
    let json = render(closed)?;
    if let Some(newest) = newest_segment(store, log).await? {
        let run8 = first8("run", &random_uid()?).map_err(|error| holdfast_store::layout(&error))?;
        let beside = newest.closed_key(log, &run8).map_err(|error| holdfast_store::layout(&error))?;
        store.put_new(&beside, json.clone()).await?;
    }
    let at = log.log_closed();
    if store.find_small(&at, MAX_BYTES).await?.is_some() {
        return Ok(());
    }
    match store.put_new(&at, json).await {
        // Another archiver has closed the log meanwhile.
        Err(_) if store.find_small(&at, MAX_BYTES).await?.is_some() => Ok(()),
        written => written,
    }
}

/// Refuses a log that is closed.
pub async fn check_open(store: &Store, log: &Folder) -> Result<()> {
    let mut witnesses = vec![log.log_closed()];
    witnesses.extend(newest_objects(store, log).await?.closed);
    for at in witnesses {
        let Some(json) = store.find_small(&at, MAX_BYTES).await? else { continue };
        let closed: Closed = serde_json::from_slice(&json)
            .map_err(|_| Error::corrupt(format!("{} does not say why the log is closed", store.uri(&at))))?;
        return Err(closed.error());
    }
    Ok(())
}

/// Returns the names of a log's folders: the days in order, then those of gaps and checks.
pub async fn folders(store: &Store, log: &Folder) -> Result<Vec<String>> {
    let is_folder = |name: &str| name.bytes().all(|b| b.is_ascii_digit()) || is_record_folder(name);
    Ok(store.last_children(log, MAX_DAYS, is_folder).await?.names)
}

/// Lists the objects in one folder of a log, with their paths below the log: the limit of a listing is that of a day.
pub async fn files_in(store: &Store, log: &Folder, name: &str) -> Result<Vec<File>> {
    let folder = log.child(name).map_err(|error| holdfast_store::layout(&error))?;
    let listed = store.files(&folder, MAX_OBJECTS).await?;
    Ok(listed.into_iter().map(|file| File { path: format!("{name}/{}", file.path), ..file }).collect())
}

/// Lists a log. A log that does not exist is empty.
pub async fn list(store: &Store, log: &Folder) -> Result<Listed> {
    let mut listed = Listed::default();
    for name in folders(store, log).await? {
        for file in files_in(store, log, &name).await? {
            if let Some(segment) = SegmentName::parse(&file.path) {
                listed.segments.push((segment, file.bytes));
            } else if let Some(gap) = GapName::parse(&file.path) {
                listed.gaps.push(gap);
            } else {
                listed.checks.extend(check_revision(&file.path));
            }
        }
    }
    listed.segments.sort_unstable();
    listed.gaps.sort_unstable();
    listed.checks.sort_unstable();
    Ok(listed)
}

/// Returns the newest segment with this property, looked for from the newest day back: a log has thousands of segments a day.
pub async fn find_segment(
    store: &Store,
    log: &Folder,
    is_wanted: impl Fn(&SegmentName) -> bool,
) -> Result<Option<SegmentName>> {
    for day in folders(store, log).await?.iter().rev().filter(|name| !is_record_folder(name)) {
        let files = files_in(store, log, day).await?;
        let segments = files.iter().filter_map(|file| SegmentName::parse(&file.path));
        if let Some(found) = segments.filter(&is_wanted).max() {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Returns the newest gap that etcd made; `None`: the log has none. Its time is absent where the object cannot be read.
pub async fn newest_gap(store: &Store, log: &Folder) -> Result<Option<LogGap>> {
    let folder = log.child(GAPS).map_err(|error| holdfast_store::layout(&error))?;
    let names = store.objects(&folder, MAX_OBJECTS).await?;
    let parsed = names.iter().filter_map(|name| Some((GapName::parse(&format!("{GAPS}/{name}"))?, name)));
    let of_etcd = parsed.filter(|(gap, _)| !gap.removed);
    let Some((GapName { after, until, .. }, name)) = of_etcd.max_by_key(|(gap, _)| (gap.until, gap.after)) else {
        return Ok(None);
    };
    let key = folder.object(name).map_err(|error| holdfast_store::layout(&error))?;
    let json = store.find_small(&key, MAX_BYTES).await?;
    let at = json.and_then(|json| serde_json::from_slice::<Gap>(&json).ok()).map(|gap| gap.at);
    Ok(Some(LogGap { after, until, at }))
}

/// Returns the newest check whose content can be read; `None`: the log has none.
pub async fn newest_check(store: &Store, log: &Folder) -> Result<Option<Check>> {
    let folder = log.child(CHECKS).map_err(|error| holdfast_store::layout(&error))?;
    let names = store.objects(&folder, MAX_OBJECTS).await?;
    let Some(name) = names.iter().filter(|name| check_revision(&format!("{CHECKS}/{name}")).is_some()).max() else {
        return Ok(None);
    };
    let key = folder.object(name).map_err(|error| holdfast_store::layout(&error))?;
    let json = store.find_small(&key, MAX_BYTES).await?;
    Ok(json.and_then(|json| serde_json::from_slice(&json).ok()))
}

/// The newest objects of a log.
#[derive(Debug, Default)]
struct Newest {
    segment: Option<SegmentName>,
    /// An object beside a segment that closes the log.
    closed: Option<Key>,
}

/// Returns the newest stored segment, by its last revision and its time; `None`: the log has no segment.
pub async fn newest_segment(store: &Store, log: &Folder) -> Result<Option<SegmentName>> {
    Ok(newest_objects(store, log).await?.segment)
}

async fn newest_objects(store: &Store, log: &Folder) -> Result<Newest> {
    let is_day = |name: &str| name.len() == 8 && name.bytes().all(|b| b.is_ascii_digit());
    let days = store.last_children(log, MAX_DAYS, is_day).await?.names;
    let mut newest = Newest::default();
    for (number, day) in days.iter().rev().enumerate() {
        if newest.segment.is_some() && number >= NEWEST_DAYS {
            break;
        }
        let folder = log.child(day).map_err(|error| holdfast_store::layout(&error))?;
        let names = store.objects(&folder, MAX_OBJECTS).await?;
        let parsed = names.iter().filter_map(|name| SegmentName::parse(&format!("{day}/{name}")));
        newest.segment = newest.segment.into_iter().chain(parsed).max_by_key(|segment| (segment.last, segment.at));
        if let Some(name) = names.iter().find(|name| is_closed_name(name)) {
            newest.closed = Some(folder.object(name).map_err(|error| holdfast_store::layout(&error))?);
        }
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use holdfast_contract::StoreFlags;

    use super::*;

    #[tokio::test]
    async fn a_log_belongs_to_one_etcd_and_is_listed_by_name() {
        let mount = tempfile::tempdir().unwrap();
        let flags = StoreFlags { url: format!("file://{}", mount.path().display()), ..StoreFlags::default() };
        let store = Store::open(&flags).unwrap();
        let log = Folder::parse("key", "shop/orders/1a2b3c4d").unwrap().log();
        assert_eq!(bound_cluster(&store, &log).await.unwrap(), None);
        bind(&store, &log, 0xcafe).await.unwrap();
        bind(&store, &log, 0xcafe).await.unwrap();
        let at = mount.path().join(log.log_cluster().to_string());
        let whole = std::fs::read(&at).unwrap();
        std::fs::write(&at, "{}").unwrap();
        let damaged = bound_cluster(&store, &log).await.unwrap_err();
        assert!(
            damaged.message().contains("cluster.json") && damaged.message().contains("Put an earlier"),
            "{damaged}"
        );
        std::fs::write(&at, whole).unwrap();
        let error = bind(&store, &log, 0xbeef).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Refused);
        for words in ["cafe", "beef", "--cluster-uid"] {
            assert!(error.message().contains(words), "{words}: {error}");
        }
        assert_eq!(
            (newest_segment(&store, &log).await.unwrap(), newest_gap(&store, &log).await.unwrap()),
            (None, None)
        );
        check_open(&store, &log).await.unwrap();

        let name = |first, last, at: &str| SegmentName {
            first,
            last,
            at: at.parse().unwrap(),
            run8: "a".to_owned(),
            encrypted: false,
            tail: None,
        };
        // The clock of the second writer is behind, across midnight.
        let [one, two, three] = [
            name(2, 9, "2026-11-27T10:00:00Z"),
            name(10, 99, "2026-11-28T23:59:59Z"),
            name(100, 99, "2026-11-29T00:00:01Z"),
        ];
        for name in [&one, &two, &three] {
            store.put_new(&name.key(&log).unwrap(), Bytes::from_static(b"four")).await.unwrap();
        }
        let gap = GapName { after: 1, until: 5, removed: false };
        let removed = GapName { after: 9, until: 50, removed: true };
        for gap in [gap, removed] {
            store.put_new(&gap.key(&log, "a").unwrap(), Bytes::from_static(b"{}")).await.unwrap();
        }
        std::fs::write(mount.path().join("shop/orders/1a2b3c4d/log/notes.txt"), "theirs").unwrap();
        assert_eq!(
            newest_segment(&store, &log).await.unwrap(),
            Some(three.clone()),
            "the later end, by the other clock"
        );
        let found = newest_gap(&store, &log).await.unwrap();
        assert_eq!(found, Some(LogGap { after: 1, until: 5, at: None }));
        let listed = list(&store, &log).await.unwrap();
        assert_eq!(listed.segments, [(one, 4), (two, 4), (three, 4)]);
        assert_eq!((listed.gaps, listed.checks), (vec![gap, removed], vec![]));

        // Segments of a log name its cluster.
        std::fs::remove_file(&at).unwrap();
        let missing = bound_cluster(&store, &log).await.unwrap_err();
        assert_eq!(missing.class(), ExitClass::Corrupt, "four bytes are no segment: {missing}");

        let closing = || close(&store, &log, (99, 90), Evidence::Fell);
        let (closed, beside) = tokio::join!(closing(), closing());
        for closed in [&closed, &beside] {
            assert_eq!(closed.class(), ExitClass::Refused, "two archivers close one log: {closed}");
        }
        let closed = check_open(&store, &log).await.unwrap_err();
        assert_eq!(closed.class(), ExitClass::Refused);
        assert_eq!(check_open(&store, &log).await, Err(closed.clone()), "for every later run");
        let again = close(&store, &log, (99, 95), Evidence::OtherChanges).await;
        assert!(again.message().contains("other changes of revision 99"), "{again}");
        std::fs::remove_file(mount.path().join(log.log_closed().to_string())).unwrap();
        let error = check_open(&store, &log).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Refused, "the witness beside the newest segment: {error}");
    }
}
