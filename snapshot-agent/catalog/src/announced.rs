//! Announcements: `<lineage>/prunes/<time>-<pod8>.json`, written once before the removal of the named snapshots, and kept as
//! the audit trail.
//!
//! This file decides the content of a record, and which record permits a removal: a record of this lineage, store and policy
//! that is old enough by the agent's clock and by the store's, and at most a day old. A snapshot that was kept, held or
//! restored since then is announced again. `verbs/prune.rs` decides the removals.

use std::collections::{HashMap, HashSet};

use holdfast_contract::error::{Error, Result};
use holdfast_contract::{ExitClass, Policy};
use holdfast_layout::retention::LogCut;
use holdfast_layout::{Folder, Format, Key, attempt_time, record_time};
use holdfast_store::removal::Small;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::inventory::Found;
use crate::removable_store::RemovableStore;

/// Version of the format that this version writes and reads.
const FORMAT_VERSION: u32 = 1;

/// Maximum number of snapshots in one record: 25 runs remove them. Later records announce the rest.
pub const MAX_SNAPSHOTS: usize = 500;

/// A record of this many snapshots with the longest keys has 600 KB.
const MAX_BYTES: u64 = 2 << 20;

/// Maximum number of records that one run reads, the newest first. Snapshots named only in older records are announced again.
const MAX_READ: usize = 100;

/// Time for which an announcement permits a removal. At ten minutes between two runs of 20 that is 2880 snapshots.
const PERMITS_FOR: SignedDuration = SignedDuration::from_hours(24);

/// Time in which a requested single removal may still happen, with a margin: its run ends after minutes.
const ASKED_FOR: SignedDuration = SignedDuration::from_hours(1);

/// An announcement, or a requested removal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Version of the record's format.
    pub format_version: u32,
    /// The folder of the snapshots.
    pub lineage: String,
    /// Time of the judgement.
    pub announced_at: Timestamp,
    /// UID of the schedule; absent for the removal of a single snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_uid: Option<String>,
    /// The policy; absent for the removal of a single snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// Time zone of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// The store's ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_id: Option<String>,
    /// The snapshots that the run removes.
    pub snapshots: Vec<Named>,
    /// The beginning of the log that may be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<NamedLog>,
    /// Version of the agent.
    pub agent_version: String,
    /// Fields of later versions.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A snapshot that may be removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Named {
    /// Key of the snapshot's folder.
    pub key: String,
    /// sha256 (hex) of its manifest.
    pub manifest_sha256: String,
    /// Name of its data object: without the manifest no other object names it.
    pub data: String,
    /// Bytes in the store.
    pub stored_bytes: u64,
    /// Reason of the removal.
    pub reason: String,
}

/// The beginning of a log that may be removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamedLog {
    /// etcd cluster ID (hex) of the log.
    pub cluster_id: String,
    /// The part of the log that the run removes.
    #[serde(flatten)]
    pub cut: LogCut,
    /// Number of its segments.
    pub segments: u64,
    /// Their stored bytes.
    pub bytes: u64,
}

impl Named {
    /// Names a complete snapshot.
    pub fn from_found(found: &Found, reason: &str) -> Option<Self> {
        let snapshot = found.snapshot.as_ref()?;
        Some(Self {
            key: found.entry.key.clone(),
            manifest_sha256: hex::encode(snapshot.sha256),
            data: snapshot.format.name(),
            stored_bytes: snapshot.stored_bytes,
            reason: reason.to_owned(),
        })
    }

    /// Returns the data object, or `None` if the name is not that of a data object: no other object is ever removed for it
    /// (I25).
    pub fn data(&self, folder: &Folder) -> Option<Key> {
        Format::all().map(|format| folder.data(format)).find(|key| key.name() == self.data)
    }
}

/// The schedule that judges, and its lineage.
#[derive(Clone, Debug)]
pub struct Judge<'a> {
    /// The lineage of the snapshots.
    pub lineage: &'a Folder,
    /// UID of the schedule.
    pub schedule_uid: &'a str,
    /// The policy that decided.
    pub policy: &'a Policy,
    /// The policy's time zone.
    pub time_zone: &'a str,
    /// The store ID.
    pub store_id: Option<&'a str>,
}

impl Judge<'_> {
    /// Writes an announcement of these snapshots and of this part of the log, and returns its key.
    pub async fn announce(
        &self,
        shelf: &impl RemovableStore,
        (snapshots, log): (Vec<Named>, Option<NamedLog>),
        at: Timestamp,
        pod_uid: &str,
    ) -> Result<Key> {
        let record = Record {
            format_version: FORMAT_VERSION,
            lineage: self.lineage.to_string(),
            announced_at: at,
            schedule_uid: Some(self.schedule_uid.to_owned()),
            policy: Some(self.policy.clone()),
            time_zone: Some(self.time_zone.to_owned()),
            store_id: self.store_id.map(str::to_owned),
            snapshots,
            log,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            other: Map::new(),
        };
        record.keep(shelf, self.lineage, at, pod_uid).await
    }

    /// Whether the record is from the current policy of this schedule.
    fn is_mine(&self, record: &Record) -> bool {
        record.schedule_uid.as_deref() == Some(self.schedule_uid)
            && record.policy.as_ref() == Some(self.policy)
            && record.time_zone.as_deref() == Some(self.time_zone)
    }
}

impl Record {
    /// Returns the record of a single removal.
    pub fn of_one(lineage: &Folder, one: Named, store_id: Option<&str>, at: Timestamp) -> Self {
        Self {
            format_version: FORMAT_VERSION,
            lineage: lineage.to_string(),
            announced_at: at,
            schedule_uid: None,
            policy: None,
            time_zone: None,
            store_id: store_id.map(str::to_owned),
            snapshots: vec![one],
            log: None,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            other: Map::new(),
        }
    }

    /// Writes the record, if no record has its name.
    pub async fn keep(
        &self,
        shelf: &impl RemovableStore,
        lineage: &Folder,
        at: Timestamp,
        pod_uid: &str,
    ) -> Result<Key> {
        let key = lineage.prune_record(at, pod_uid).map_err(|error| holdfast_store::layout(&error))?;
        let json = serde_json::to_vec(self);
        let mut json = json.map_err(|error| Error::config(format!("the announcement cannot be written: {error}")))?;
        json.push(b'\n');
        shelf.put_new(&key, json.into()).await?;
        Ok(key)
    }

    /// Whether the record is of this version, lineage and store.
    fn fits(&self, lineage: &Folder, store_id: Option<&str>) -> bool {
        self.format_version == FORMAT_VERSION
            && self.lineage == lineage.as_str()
            && self.store_id.as_deref() == store_id
    }
}

/// Permission of a record to remove a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    /// The snapshot, as it was judged.
    pub named: Named,
    /// Start of the permission, by the record's time.
    pub not_before: Timestamp,
    /// Whether the record is old enough, by both clocks.
    pub ripe: bool,
    /// Whether the record is from the current policy: otherwise the snapshot stays.
    pub mine: bool,
}

/// Permission of a record of the current policy to remove the beginning of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPermit {
    /// The part of the log, as it was judged.
    pub named: NamedLog,
    /// Start of the permission, by the record's time.
    pub not_before: Timestamp,
    /// Whether the record is old enough, by both clocks.
    pub ripe: bool,
}

/// Permissions of the records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permits {
    /// Of the wanted snapshots, by their keys.
    pub snapshots: HashMap<String, Permit>,
    /// Of the log, the newest first.
    pub log: Vec<LogPermit>,
}

/// Query for the records.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Keys of the wanted snapshots.
    pub wanted: HashSet<String>,
    /// Whether the records of the log are wanted too.
    pub log: bool,
    /// Minimum age of a record.
    pub age: SignedDuration,
    /// Records before this time permit nothing.
    pub since: Option<Timestamp>,
    /// The time of the run.
    pub now: Timestamp,
    /// Whether the agent may write to the store to learn its time. Without that, no record in a folder store is old enough.
    pub touch: bool,
}

/// Reads the newest records until each of the wanted keys is named, for the log all of the last day.
pub async fn read(
    shelf: &impl RemovableStore,
    judge: &Judge<'_>,
    Asked { mut wanted, log, age, since, now, touch }: Asked,
) -> Result<Permits> {
    let mut permits = Permits::default();
    if wanted.is_empty() && !log {
        return Ok(permits);
    }
    let folder = judge.lineage.prunes();
    let names = newest(shelf, &folder, now, PERMITS_FOR).await?;
    // One time for all records of a folder store: a record must have been old enough at the start of the run.
    let clock = if names.is_empty() || !touch { None } else { shelf.clock(&folder).await? };
    for (announced, key) in names.into_iter().take(MAX_READ) {
        if wanted.is_empty() && !log {
            break;
        }
        let Some((small, record)) = read_one(shelf, &key, judge.lineage, judge.store_id).await? else { continue };
        let earliest = announced.min(record.announced_at);
        if now.duration_since(earliest) > PERMITS_FOR || since.is_some_and(|since| earliest < since) {
            continue;
        }
        // A store that does not report its time cannot confirm the age.
        let aged = clock.or(small.now).is_some_and(|clock| clock.duration_since(small.stored) >= age);
        let ripe = aged && now.duration_since(announced.max(record.announced_at)) >= age;
        let mine = judge.is_mine(&record);
        let not_before = announced.max(record.announced_at).checked_add(age).unwrap_or(Timestamp::MAX);
        if let Some(named) = record.log.filter(|_| log && mine) {
            permits.log.push(LogPermit { named, not_before, ripe });
        }
        for named in record.snapshots {
            let inside = named.key.strip_prefix(judge.lineage.as_str()).and_then(|rest| rest.strip_prefix('/'));
            if inside.is_some_and(|name| attempt_time(name).is_some()) && wanted.remove(&named.key) {
                permits.snapshots.insert(named.key.clone(), Permit { named, not_before, ripe, mine });
            }
        }
    }
    Ok(permits)
}

/// Returns the records of the period before now, by their names, the newest first.
async fn newest(
    shelf: &impl RemovableStore,
    folder: &Folder,
    now: Timestamp,
    within: SignedDuration,
) -> Result<Vec<(Timestamp, Key)>> {
    let files = shelf.files(folder).await?;
    let mut names: Vec<(Timestamp, &str)> =
        files.iter().filter_map(|file| Some((record_time(&file.path)?, file.path.as_str()))).collect();
    names.retain(|(announced, _)| now.duration_since(*announced) <= within);
    names.sort_unstable();
    let key = |(at, name)| Ok((at, folder.object(name).map_err(|error| holdfast_store::layout(&error))?));
    names.into_iter().rev().map(key).collect()
}

/// Returns a record with the store's metadata. `None`: the record is of another lineage or store; it permits nothing and stays.
async fn read_one(
    shelf: &impl RemovableStore,
    key: &Key,
    lineage: &Folder,
    store_id: Option<&str>,
) -> Result<Option<(Small, Record)>> {
    let small = match shelf.read(key, MAX_BYTES).await {
        Ok(small) => small,
        // Too long for a record.
        Err(error) if error.class() == ExitClass::Corrupt => None,
        Err(error) => return Err(error),
    };
    let read = small.and_then(|small| Some((serde_json::from_slice::<Record>(&small.content).ok()?, small)));
    let fits = read.filter(|(record, _)| record.fits(lineage, store_id)).map(|(record, small)| (small, record));
    if fits.is_none() {
        tracing::warn!(uri = shelf.uri(key), "this announcement is of another store or version, or not valid");
    }
    Ok(fits)
}

/// Returns the keys of snapshots that may be removed at any moment: announced within a day, or requested one by one within an
/// hour. An unreadable record counts as empty.
pub async fn leaving(
    shelf: &impl RemovableStore,
    lineage: &Folder,
    store_id: Option<&str>,
    now: Timestamp,
) -> Result<HashSet<String>> {
    let mut leaving = HashSet::new();
    for (at, key) in newest(shelf, &lineage.prunes(), now, PERMITS_FOR).await? {
        let Some((_, record)) = read_one(shelf, &key, lineage, store_id).await? else { continue };
        if record.schedule_uid.is_some() || now.duration_since(at.max(record.announced_at)) <= ASKED_FOR {
            leaving.extend(record.snapshots.into_iter().map(|named| named.key));
        }
    }
    Ok(leaving)
}
