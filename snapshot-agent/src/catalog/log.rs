//! The log of a lineage: segments of etcd's revisions, gaps and checks, in `<lineage>/log/`.
//!
//! This file decides the small objects of a log, and how a log is listed. A log belongs to one etcd cluster: the first writer
//! binds the folder to the cluster ID, and revisions of another cluster never come into it (I9). Every object is written once.
//! `cover.rs` decides what the segments hold together, `read.rs` reads a segment, `bases.rs` finds the snapshots before it,
//! `checks.rs` the hash of a member.

pub mod bases;
pub(crate) mod checks;
pub mod cover;
pub mod read;

use bytes::Bytes;
use holdfast_contract::error::{Error, Result};
use holdfast_contract::layout::{Folder, GapName, SegmentName, check_revision, is_record_folder};
use holdfast_contract::{LogGap, Origin, hex_id};
use holdfast_io::clock;
use holdfast_store::Store;
use holdfast_store::removal::File;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The format that this version writes.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// Maximum size of a small object of a log.
const MAX_BYTES: u64 = 16 << 10;

/// Maximum number of objects in the listing of one day: a segment of ten writers each second.
const MAX_OBJECTS: usize = 1_000_000;

/// Folder of the gaps.
const GAPS: &str = "gaps";

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

/// The end of a log: `closed.json`. etcd has lost revisions that the log holds, and its next revisions have the same numbers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Closed {
    format_version: u32,
    /// The newest revision of the log or of a snapshot.
    recorded: i64,
    /// The newest revision of etcd, which a quorum confirmed.
    found: i64,
    at: Timestamp,
}

impl Closed {
    fn error(&self) -> Error {
        let Self { recorded, found, at, .. } = self;
        Error::refused(format!(
            "at {at} etcd was at revision {found}, and revision {recorded} of this etcd cluster had been recorded: etcd was restored, \
             or lost writes. Its revisions have numbers of the old ones, so this log goes on for no etcd. Begin a log in another \
             place: --cluster, --cluster-uid or --namespace"
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
pub(crate) fn render(object: &impl Serialize) -> Result<Bytes> {
    let json = serde_json::to_vec_pretty(object);
    let mut json = json.map_err(|error| Error::corrupt(format!("an object of the log cannot be written: {error}")))?;
    json.push(b'\n');
    Ok(json.into())
}

/// Returns the ID of the etcd cluster that a log belongs to; `None`: there is no log.
pub(crate) async fn bound_cluster(store: &Store, log: &Folder) -> Result<Option<u64>> {
    let at = log.log_cluster();
    let Some(json) = store.find_small(&at, MAX_BYTES).await? else { return Ok(None) };
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

/// Binds a log to an etcd cluster; an error if the log belongs to another one.
pub(crate) async fn bind(store: &Store, log: &Folder, cluster_id: u64) -> Result<()> {
    if bound_cluster(store, log).await?.is_none() {
        let bound = Bound { format_version: FORMAT_VERSION, cluster_id: hex_id(cluster_id) };
        // Another writer may come first; the object decides.
        if let Err(error) = store.put_new(&log.log_cluster(), render(&bound)?).await
            && bound_cluster(store, log).await?.is_none()
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

/// Closes a log for which etcd has lost revisions, and returns the error. No later run continues the log, also after etcd has
/// passed the recorded revision.
pub(crate) async fn close(store: &Store, log: &Folder, recorded: i64, found: i64) -> Error {
    let closed = Closed { format_version: FORMAT_VERSION, recorded, found, at: clock::now() };
    let written = match render(&closed) {
        Ok(json) => store.put_new(&log.log_closed(), json).await,
        Err(error) => Err(error),
    };
    match written {
        Ok(()) => closed.error(),
        Err(error) => error.context(closed.error().message()),
    }
}

/// Refuses a log that is closed.
pub(crate) async fn check_open(store: &Store, log: &Folder) -> Result<()> {
    let at = log.log_closed();
    let Some(json) = store.find_small(&at, MAX_BYTES).await? else { return Ok(()) };
    let closed: Closed = serde_json::from_slice(&json)
        .map_err(|_| Error::corrupt(format!("{} does not say why the log is closed", store.uri(&at))))?;
    Err(closed.error())
}

/// Returns the names of a log's folders: the days in order, then those of gaps and checks.
pub(crate) async fn folders(store: &Store, log: &Folder) -> Result<Vec<String>> {
    let is_folder = |name: &str| name.bytes().all(|b| b.is_ascii_digit()) || is_record_folder(name);
    Ok(store.last_children(log, MAX_DAYS, is_folder).await?.names)
}

/// Lists the objects in one folder of a log, with their paths below the log: the limit of a listing is that of a day.
pub(crate) async fn files_in(store: &Store, log: &Folder, name: &str) -> Result<Vec<File>> {
    let folder = log.child(name).map_err(|error| holdfast_store::layout(&error))?;
    let listed = store.files(&folder, MAX_OBJECTS).await?;
    Ok(listed.into_iter().map(|file| File { path: format!("{name}/{}", file.path), ..file }).collect())
}

/// Lists a log. A log that does not exist is empty.
pub(crate) async fn list(store: &Store, log: &Folder) -> Result<Listed> {
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

/// Returns the newest gap that etcd made; `None`: the log has none. Its time is absent where the object cannot be read.
pub(crate) async fn newest_gap(store: &Store, log: &Folder) -> Result<Option<LogGap>> {
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

/// Returns the newest stored segment, by its last revision and its time; `None`: the log has no segment.
pub(crate) async fn newest_segment(store: &Store, log: &Folder) -> Result<Option<SegmentName>> {
    let is_day = |name: &str| name.len() == 8 && name.bytes().all(|b| b.is_ascii_digit());
    let days = store.last_children(log, MAX_DAYS, is_day).await?.names;
    let mut newest: Option<SegmentName> = None;
    for (number, day) in days.iter().rev().enumerate() {
        if newest.is_some() && number >= NEWEST_DAYS {
            break;
        }
        let folder = log.child(day).map_err(|error| holdfast_store::layout(&error))?;
        let names = store.objects(&folder, MAX_OBJECTS).await?;
        let parsed = names.iter().filter_map(|name| SegmentName::parse(&format!("{day}/{name}")));
        newest = newest.into_iter().chain(parsed).max_by_key(|segment| (segment.last, segment.at));
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use holdfast_contract::{ExitClass, StoreFlags};

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

        let closed = close(&store, &log, 99, 90).await;
        assert_eq!(closed.class(), ExitClass::Refused);
        assert_eq!(check_open(&store, &log).await, Err(closed), "for every later run");
    }
}
