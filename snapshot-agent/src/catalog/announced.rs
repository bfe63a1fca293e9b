//! Announcements: `<lineage>/prunes/<time>-<pod8>.json`, written once before anything that they name is removed, and kept
//! as the audit.
//!
//! It decides what a record says, and which record permits a removal: one of this lineage, store and policy, that is old
//! enough by the agent's clock and by the store's, and not older than a day: what has been kept, held or brought back since
//! is announced anew. What is removed is decided in `verbs/prune.rs`.

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
use crate::store::removal::Small;

/// The format this version writes and reads.
const FORMAT_VERSION: u32 = 1;

/// Snapshots that one record names at most: 25 runs remove them. The rest is announced after that.
pub(crate) const MAX_SNAPSHOTS: usize = 500;

/// A record of as many snapshots with the longest keys has 600 KB.
const MAX_BYTES: u64 = 2 << 20;

/// Records that one run reads, the newest first. What only older ones name is announced again.
const MAX_READ: usize = 100;

/// So long an announcement permits a removal. At ten minutes between two runs of 20 that is 2880 snapshots.
const PERMITS_FOR: SignedDuration = SignedDuration::from_hours(24);

/// So long a single removal that was asked for may yet be carried out, and more: its run ends after minutes.
const ASKED_FOR: SignedDuration = SignedDuration::from_hours(1);

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
    /// Whether the policy as it is now said so: only then the snapshot goes.
    pub(crate) mine: bool,
}

/// What is asked of the records.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Keys of snapshots.
    pub(crate) wanted: HashSet<String>,
    /// How old a record has to be.
    pub(crate) age: SignedDuration,
    /// Earlier records permit nothing.
    pub(crate) since: Option<Timestamp>,
    pub(crate) now: Timestamp,
    /// Whether the store may be touched to learn its time; without it none is old enough in a folder store.
    pub(crate) touch: bool,
}

/// Reads the newest records until each of the wanted keys is named.
pub(crate) async fn read(
    shelf: &impl Shelf,
    judge: &Judge<'_>,
    Asked { mut wanted, age, since, now, touch }: Asked,
) -> Result<HashMap<String, Permit>> {
    let mut permits = HashMap::new();
    if wanted.is_empty() {
        return Ok(permits);
    }
    let folder = judge.lineage.prunes();
    let names = newest(shelf, &folder, now, PERMITS_FOR).await?;
    // One answer for all records of a folder store: none is ripe that was not when the run began.
    let clock = if names.is_empty() || !touch { None } else { shelf.clock(&folder).await? };
    for (announced, key) in names.into_iter().take(MAX_READ) {
        if wanted.is_empty() {
            break;
        }
        let Some((small, record)) = read_one(shelf, &key, judge.lineage, judge.store_id).await? else { continue };
        let earliest = announced.min(record.announced_at);
        if now.duration_since(earliest) > PERMITS_FOR || since.is_some_and(|since| earliest < since) {
            continue;
        }
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

/// The records of the time before now, by their names, the newest first.
async fn newest(
    shelf: &impl Shelf,
    folder: &Folder,
    now: Timestamp,
    within: SignedDuration,
) -> Result<Vec<(Timestamp, Key)>> {
    let files = shelf.files(folder).await?;
    let mut names: Vec<(Timestamp, &str)> =
        files.iter().filter_map(|file| Some((record_time(&file.path)?, file.path.as_str()))).collect();
    names.retain(|(announced, _)| now.duration_since(*announced) <= within);
    names.sort_unstable();
    let key = |(at, name)| Ok((at, folder.object(name).map_err(|error| store::layout(&error))?));
    names.into_iter().rev().map(key).collect()
}

/// A record and what the store says of it; `None`: it is not of this lineage and store, permits nothing, and stays.
async fn read_one(
    shelf: &impl Shelf,
    key: &Key,
    lineage: &Folder,
    store_id: Option<&str>,
) -> Result<Option<(Small, Record)>> {
    let small = match shelf.read(key, MAX_BYTES).await {
        Ok(small) => small,
        // Too long to be one.
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

/// Keys of snapshots that may go at any moment: announced within a day, or asked for one by one within an hour. A record
/// that cannot be read says of none.
pub(crate) async fn leaving(
    shelf: &impl Shelf,
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
