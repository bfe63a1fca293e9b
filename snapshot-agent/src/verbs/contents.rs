//! `agent contents`: what is in a snapshot: keys by prefix, leases, users and roles, members, alarms. No etcd is needed.
//!
//! It decides what is shown, and that a value is only ever shown when it is asked for by its key: values are secrets
//! more often than not, and what etcd keeps of a user beside the name is never read out. A stored snapshot is unpacked
//! into a scratch folder, with every check of a restore; how keys are put together is in `verbs/contents/prefixes.rs`.
//!
//! It is no part of `agent inspect`, which is what a Job runs to find a lost report in a store: that one takes an owner's
//! UID, reads no data and answers with a report.

mod prefixes;
mod table;

use std::fs::File;
use std::path::Path;

use serde::Serialize;

use crate::catalog::foreign::{self, Named};
use crate::catalog::stored::{self, Stored};
use crate::contract::{ContentsRequest, StoreFlags, hex_id};
use crate::error::{Error, Result, io_error, of_request, task_error};
use crate::format::layout::Key;
use crate::format::packed::Plain;
use crate::format::trailer::{TRAILER, database_of};
use crate::scan::{Names, Reader};
use crate::store::{Stat, Store};
use crate::util::interrupt::Interrupt;
use crate::util::memory::file_budget;
use crate::util::progress::STALL;
use crate::util::scratch::Scratch;
use crate::util::table::printable;
use crate::verbs::common::{describe_alarm, neither, unsound};

pub use prefixes::Prefix;
use prefixes::Prefixes;

/// What is in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Contents {
    /// The revision a member that starts on it reports.
    pub revision: i64,
    /// The revision below which history is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compact_revision: Option<i64>,
    /// All keys below the prefix that was asked for.
    pub total: Prefix,
    /// The same by prefix, the largest first.
    pub prefixes: Vec<Prefix>,
    /// Prefixes that are not shown, since there are more than were asked for.
    pub more: usize,
    /// Leases, with the number of keys below the prefix that hang on each.
    pub leases: Vec<Lease>,
    /// Whether authentication is on.
    pub auth_enabled: bool,
    /// Names of users.
    pub users: Vec<String>,
    /// Names of roles.
    pub roles: Vec<String>,
    /// Members; a restore replaces them.
    pub members: Vec<Member>,
    /// Alarms that were on.
    pub alarms: Vec<String>,
    /// Version of the storage (etcd 3.6 and later).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_version: Option<String>,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// ID (hex), as etcdctl shows it.
    pub id: String,
    /// Granted seconds.
    pub ttl: i64,
    /// Keys that go when it ends.
    pub keys: u64,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// ID (hex).
    pub id: String,
    /// Name; empty until it has started once.
    pub name: String,
    /// Peer URLs.
    pub peer_urls: Vec<String>,
    /// Client URLs.
    pub client_urls: Vec<String>,
    /// Whether it has no vote yet.
    pub learner: bool,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The contents.
    Contents(Box<Contents>),
    /// One key's value.
    Value(Vec<u8>),
}

impl Contents {
    /// For people.
    pub fn table(&self) -> String {
        table::of(self)
    }
}

/// Looks into one snapshot.
pub async fn run(request: ContentsRequest) -> Result<Found> {
    let mut interrupt = Interrupt::after(request.deadline_seconds.into())?;
    let snapshot = request.snapshot.clone();
    match (snapshot.file, snapshot.store, snapshot.key) {
        (Some(file), None, None) => {
            let plain = interrupt.unless(Plain::of(&file, &snapshot.identities, &request.scratch)).await?;
            let found = interrupt.unless(look(plain.path.clone(), request)).await;
            drop(plain);
            found
        }
        (None, Some(store), Some(key)) => {
            let (scratch, file) = fetch(&request, &store, &key, &mut interrupt).await?;
            let found = interrupt.unless(look(file, request)).await;
            drop(scratch);
            found
        }
        _ => Err(neither()),
    }
}

/// Unpacks a stored snapshot into a scratch folder.
async fn fetch(
    request: &ContentsRequest,
    flags: &StoreFlags,
    key: &str,
    interrupt: &mut Interrupt,
) -> Result<(Scratch, std::path::PathBuf)> {
    let store = Store::open(flags)?;
    let folder = match interrupt.unless(foreign::find(&store, key)).await? {
        Named::Folder(folder) => folder,
        Named::File(key, stat) => return fetch_file(request, &store, (&key, &stat), interrupt).await,
    };
    let (manifest, _) = interrupt.unless(stored::manifest_in_its_place(&store, &folder)).await?;
    let encryption = manifest.encryption.as_ref();
    let identities = encryption.map(|e| stored::identities(e, &request.snapshot.identities)).transpose()?;
    let scratch = Scratch::new(&request.scratch, manifest.db_bytes.saturating_add(TRAILER as u64))?;
    let (path, file) = scratch.file("snapshot.db")?;
    let stored = interrupt.unless(Stored::of(&store, &folder, manifest)).await?;
    interrupt.unless(stored.unpack(&store, identities, file, STALL)).await?;
    Ok((scratch, path))
}

/// The same of a file without a manifest.
async fn fetch_file(
    request: &ContentsRequest,
    store: &Store,
    (key, stat): (&Key, &Stat),
    interrupt: &mut Interrupt,
) -> Result<(Scratch, std::path::PathBuf)> {
    let scratch = Scratch::new(&request.scratch, stat.bytes)?;
    let (path, to) = scratch.file("stored")?;
    interrupt.unless(foreign::download(store, (key, stat), to, STALL)).await?;
    let plain = interrupt.unless(Plain::of(&path, &request.snapshot.identities, &request.scratch)).await?;
    let unpacked = scratch.join("snapshot.db");
    std::fs::rename(&plain.path, &unpacked).map_err(io_error("moving the unpacked snapshot"))?;
    Ok((scratch, unpacked))
}

async fn look(path: std::path::PathBuf, request: ContentsRequest) -> Result<Found> {
    tokio::task::spawn_blocking(move || read(&path, &request)).await.map_err(|error| task_error(&error))?
}

fn read(path: &Path, request: &ContentsRequest) -> Result<Found> {
    let doing = || format!("reading {}", path.display());
    let file = File::open(path).map_err(io_error(doing())).map_err(of_request)?;
    let bytes = file.metadata().map_err(io_error(doing()))?.len();
    let (db_bytes, _) = database_of(bytes);
    let at = path.display().to_string();
    let wrong = |error| unsound(&at, &error);
    let mut reader = Reader::open(&file, db_bytes, file_budget()).map_err(wrong)?;
    // First of all: what is read from a tree that does not hold together means nothing.
    let proven = reader.prove(None).map_err(wrong)?;
    if let Some(key) = &request.value {
        let mut value = None;
        let show = |record: crate::scan::Record<'_>| {
            if record.key == key.as_bytes() {
                value = Some(record.value.to_vec());
            }
        };
        reader.live(proven.revision, show).map_err(wrong)?;
        let gone = || Error::not_found(format!("there is no key {key:?} at revision {}", proven.revision));
        return value.map(Found::Value).ok_or_else(gone);
    }
    let mut prefixes = Prefixes::of(request)?;
    let mut leases = std::collections::BTreeMap::new();
    reader.records(|record| prefixes.record(record.key, record.value)).map_err(wrong)?;
    let show = |record: crate::scan::Record<'_>| {
        if prefixes.live(record.key, record.value) && record.lease != 0 {
            *leases.entry(record.lease).or_insert(0) += 1;
        }
    };
    reader.live(proven.revision, show).map_err(wrong)?;
    let (total, prefixes, more) = prefixes.finish(request.top)?;
    let leases = proven.leases.iter().map(|lease| Lease {
        id: format!("{:016x}", lease.id),
        ttl: lease.ttl,
        keys: leases.get(&lease.id).copied().unwrap_or(0),
    });
    let members = proven.members.into_iter().map(|member| Member {
        id: hex_id(member.id),
        name: member.name,
        peer_urls: member.peer_urls,
        client_urls: member.client_urls,
        learner: member.learner,
    });
    Ok(Found::Contents(Box::new(Contents {
        revision: proven.revision,
        compact_revision: proven.compact_revision,
        total,
        prefixes,
        more,
        leases: leases.collect(),
        auth_enabled: proven.auth_enabled,
        users: reader.names(Names::Users).map_err(wrong)?.iter().map(|name| printable(name)).collect(),
        roles: reader.names(Names::Roles).map_err(wrong)?.iter().map(|name| printable(name)).collect(),
        members: members.collect(),
        alarms: proven.alarms.iter().map(describe_alarm).collect(),
        storage_version: proven.storage_version,
    })))
}
