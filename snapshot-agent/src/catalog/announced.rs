//! Announcements: `<lineage>/prunes/<time>-<pod8>.json`, written once before anything that they name is removed, and kept
//! as the audit.
//!
//! It decides what a record says, and which record permits a removal: one of this lineage, store and policy, that is old
//! enough by the agent's clock and by the store's. What is removed is decided in `verbs/prune.rs`.

use std::collections::{HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::catalog::inventory::Found;
use crate::catalog::shelf::Shelf;
use crate::contract::{ExitClass, Policy};
use crate::error::{Error, Result};
use crate::format::layout::{Folder, Format, Key, attempt_time, record_time};
use crate::store;

/// The format this version writes and reads.
const FORMAT_VERSION: u32 = 1;

/// Snapshots that one record names at most: 25 runs remove them. The rest is announced after that.
pub(crate) const MAX_SNAPSHOTS: usize = 500;

/// A record of as many snapshots with the longest keys has 600 KB.
const MAX_BYTES: u64 = 2 << 20;

/// Records that one run reads, the newest first. What only older ones name is announced again.
const MAX_READ: usize = 100;

/// What is announced, or was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    pub(crate) format_version: u32,
    /// The folder of the snapshots.
    pub(crate) lineage: String,
    /// When the snapshots were judged.
    pub(crate) announced_at: Timestamp,
    /// UID of the schedule; absent: a single snapshot was to be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) schedule_uid: Option<String>,
    /// The policy; absent: a single snapshot was to be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<Policy>,
    /// Time zone of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) time_zone: Option<String>,
    /// The store's ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) store_id: Option<String>,
    pub(crate) snapshots: Vec<Named>,
    pub(crate) agent_version: String,
    /// Fields of later versions.
    #[serde(flatten)]
    pub(crate) other: Map<String, Value>,
}

/// One snapshot that may go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Named {
    pub(crate) key: String,
    /// sha256 (hex) of its manifest.
    pub(crate) manifest_sha256: String,
    /// Name of its data object: with the manifest gone nothing else says it.
    pub(crate) data: String,
    pub(crate) stored_bytes: u64,
    /// Why it goes.
    pub(crate) reason: String,
}

impl Named {
    /// Names a complete snapshot.
    pub(crate) fn of(found: &Found, reason: &str) -> Option<Self> {
        let snapshot = found.snapshot.as_ref()?;
        Some(Self {
            key: found.entry.key.clone(),
            manifest_sha256: hex::encode(snapshot.sha256),
            data: snapshot.format.name(),
            stored_bytes: snapshot.stored_bytes,
            reason: reason.to_owned(),
        })
    }

    /// The data object; `None`: the name is none of a data object's, and nothing else is ever removed for it (I25).
    pub(crate) fn data(&self, folder: &Folder) -> Option<Key> {
        Format::all().map(|format| folder.data(format)).find(|key| key.name() == self.data)
    }
}

/// Who judges, and where.
#[derive(Clone, Debug)]
pub(crate) struct Judge<'a> {
    pub(crate) lineage: &'a Folder,
    pub(crate) schedule_uid: &'a str,
    pub(crate) policy: &'a Policy,
    pub(crate) time_zone: &'a str,
    pub(crate) store_id: Option<&'a str>,
}

impl Judge<'_> {
    /// Writes what may go from then on, and says where.
    pub(crate) async fn announce(
        &self,
        shelf: &impl Shelf,
        snapshots: Vec<Named>,
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
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            other: Map::new(),
        };
        record.keep(shelf, self.lineage, at, pod_uid).await
    }

    /// Whether this schedule's policy, as it is now, said so.
    fn is_mine(&self, record: &Record) -> bool {
        record.schedule_uid.as_deref() == Some(self.schedule_uid)
            && record.policy.as_ref() == Some(self.policy)
            && record.time_zone.as_deref() == Some(self.time_zone)
    }
}

impl Record {
    /// The record of a single removal.
    pub(crate) fn of_one(lineage: &Folder, one: Named, store_id: Option<&str>, at: Timestamp) -> Self {
        Self {
            format_version: FORMAT_VERSION,
            lineage: lineage.to_string(),
            announced_at: at,
            schedule_uid: None,
            policy: None,
            time_zone: None,
            store_id: store_id.map(str::to_owned),
            snapshots: vec![one],
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            other: Map::new(),
        }
    }

    /// Writes it, if there is none of its name.
    pub(crate) async fn keep(&self, shelf: &impl Shelf, lineage: &Folder, at: Timestamp, pod_uid: &str) -> Result<Key> {
        let key = lineage.prune_record(at, pod_uid).map_err(|error| store::layout(&error))?;
        let json = serde_json::to_vec(self);
        let mut json = json.map_err(|error| Error::config(format!("the announcement cannot be written: {error}")))?;
        json.push(b'\n');
        shelf.put_new(&key, json.into()).await?;
        Ok(key)
    }

    /// Whether it is of this version, lineage and store.
    fn fits(&self, lineage: &Folder, store_id: Option<&str>) -> bool {
        self.format_version == FORMAT_VERSION
            && self.lineage == lineage.as_str()
            && self.store_id.as_deref() == store_id
    }
}

/// What a record permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Permit {
    /// The snapshot, as it was judged.
    pub(crate) named: Named,
    /// From when on it may be removed, as far as the record's time says.
    pub(crate) not_before: Timestamp,
    /// Whether the record is old enough, by both clocks.
    pub(crate) ripe: bool,
    /// Whether the policy as it is now said so: only then a complete snapshot goes.
    pub(crate) mine: bool,
}

/// Reads the newest records until each of the wanted keys is named.
pub(crate) async fn read(
    shelf: &impl Shelf,
    judge: &Judge<'_>,
    mut wanted: HashSet<String>,
    age: SignedDuration,
    now: Timestamp,
) -> Result<HashMap<String, Permit>> {
    let mut permits = HashMap::new();
    if wanted.is_empty() {
        return Ok(permits);
    }
    let folder = judge.lineage.prunes();
    let files = shelf.files(&folder).await?;
    let mut names: Vec<(Timestamp, &str)> =
        files.iter().filter_map(|file| Some((record_time(&file.path)?, file.path.as_str()))).collect();
    names.sort_unstable();
    // One answer for all records of a folder store: none is ripe that was not when the run began.
    let clock = if names.is_empty() { None } else { shelf.clock(&folder).await? };
    for (announced, name) in names.into_iter().rev().take(MAX_READ) {
        if wanted.is_empty() {
            break;
        }
        let key = folder.object(name).map_err(|error| store::layout(&error))?;
        let small = match shelf.read(&key, MAX_BYTES).await {
            Ok(small) => small,
            // Too long to be one.
            Err(error) if error.class() == ExitClass::Corrupt => None,
            Err(error) => return Err(error),
        };
        let record = small.as_ref().and_then(|small| serde_json::from_slice::<Record>(&small.content).ok());
        let record = record.filter(|record| record.fits(judge.lineage, judge.store_id));
        let (Some(small), Some(record)) = (small, record) else {
            // It permits nothing, and stays.
            tracing::warn!(uri = shelf.uri(&key), "this announcement is of another store or version, or not valid");
            continue;
        };
        // A store that does not say its time cannot confirm the age.
        let aged = clock.or(small.now).is_some_and(|clock| clock.duration_since(small.stored) >= age);
        let ripe = aged && now.duration_since(announced.max(record.announced_at)) >= age;
        let mine = judge.is_mine(&record);
        let not_before = announced.max(record.announced_at).checked_add(age).unwrap_or(Timestamp::MAX);
        for named in record.snapshots {
            let inside = named.key.strip_prefix(judge.lineage.as_str()).and_then(|rest| rest.strip_prefix('/'));
            if inside.is_some_and(|name| attempt_time(name).is_some()) && wanted.remove(&named.key) {
                permits.insert(named.key.clone(), Permit { named, not_before, ripe, mine });
            }
        }
    }
    Ok(permits)
}
