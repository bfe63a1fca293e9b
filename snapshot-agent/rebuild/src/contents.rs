//! `agent contents`: lists a snapshot's keys by prefix, leases, users, roles, members and alarms. Needs no etcd.
//!
//! This file decides what the agent shows. It shows a value only on request for the value's key, because most values are
//! secrets, and it never reads a user's data beyond the name. The agent unpacks a stored snapshot into a scratch folder, with
//! every check of a restore. `verbs/contents/prefixes.rs` groups the keys.
//!
//! `agent inspect` is a different verb: a Job runs it to find a lost report in a store. It takes an owner's UID, reads no data
//! and returns a report.

mod prefixes;
mod table;

use futures::future::BoxFuture;
use std::fs::File;
use std::path::Path;

use serde::Serialize;

use holdfast_catalog::foreign::{self, Named};
use holdfast_catalog::stored::{self, Stored};
use holdfast_format::packed::Plain;
use holdfast_format::trailer::{TRAILER, database_of};
use holdfast_verbs_common::{describe_alarm, neither, unsound};

use holdfast_bbolt::scan::{Names, Reader};
use holdfast_contract::error::{Error, Result, io_error, of_request, task_error};
use holdfast_contract::{ContentsRequest, StoreFlags, hex_id};
use holdfast_io::interrupt::Interrupt;
use holdfast_io::memory::file_budget;
use holdfast_io::progress::STALL;
use holdfast_io::scratch::Scratch;
use holdfast_io::table::printable;
use holdfast_layout::Key;
use holdfast_store::{Stat, Store};
pub use prefixes::Prefix;
use prefixes::Prefixes;

/// Contents of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Contents {
    /// The revision that a member reports after a start on this snapshot.
    pub revision: i64,
    /// The compact revision: history below it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compact_revision: Option<i64>,
    /// Sum over all keys below the requested prefix.
    pub total: Prefix,
    /// Keys by prefix, the largest prefix first.
    pub prefixes: Vec<Prefix>,
    /// Number of prefixes beyond the requested number.
    pub more: usize,
    /// Leases, with the number of their keys below the requested prefix.
    pub leases: Vec<Lease>,
    /// Whether authentication is enabled.
    pub auth_enabled: bool,
    /// Names of users.
    pub users: Vec<String>,
    /// Names of roles.
    pub roles: Vec<String>,
    /// Members; a restore replaces them.
    pub members: Vec<Member>,
    /// Active alarms.
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
    /// Number of keys that etcd deletes when the lease expires.
    pub keys: u64,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// ID (hex).
    pub id: String,
    /// Name; empty until the member has started once.
    pub name: String,
    /// Peer URLs.
    pub peer_urls: Vec<String>,
    /// Client URLs.
    pub client_urls: Vec<String>,
    /// Whether the member is a learner.
    pub learner: bool,
}

/// The answer to the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The contents.
    Contents(Box<Contents>),
    /// The value of the requested key.
    Value(Vec<u8>),
}

impl Contents {
    /// Formats the contents for a terminal.
    pub fn table(&self) -> String {
        table::format_contents(self)
    }
}

/// Reads one snapshot.
pub fn run(request: ContentsRequest) -> BoxFuture<'static, Result<Found>> {
    Box::pin(async move {
        let mut interrupt = Interrupt::after(request.deadline_seconds.into())?;
        let snapshot = request.snapshot.clone();
        match (snapshot.file, snapshot.store, snapshot.key) {
            (Some(file), None, None) => {
                let plain = interrupt.unless(Plain::unpack(&file, &snapshot.identities, &request.scratch)).await?;
                let found = interrupt.unless(spawn_read(plain.path.clone(), request)).await;
                drop(plain);
                found
            }
            (None, Some(store), Some(key)) => {
                let (scratch, file) = fetch(&request, &store, &key, &mut interrupt).await?;
                let found = interrupt.unless(spawn_read(file, request)).await;
                drop(scratch);
                found
            }
            _ => Err(neither()),
        }
    })
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
    let stored = interrupt.unless(Stored::check(&store, &folder, manifest)).await?;
    interrupt.unless(stored.unpack(&store, identities, file, STALL)).await?;
    Ok((scratch, path))
}

/// Does the same for a file without a manifest.
async fn fetch_file(
    request: &ContentsRequest,
    store: &Store,
    (key, stat): (&Key, &Stat),
    interrupt: &mut Interrupt,
) -> Result<(Scratch, std::path::PathBuf)> {
    let scratch = Scratch::new(&request.scratch, stat.bytes)?;
    let (path, to) = scratch.file("stored")?;
    interrupt.unless(foreign::download(store, (key, stat), to, STALL)).await?;
    let plain = interrupt.unless(Plain::unpack(&path, &request.snapshot.identities, &request.scratch)).await?;
    let unpacked = scratch.join("snapshot.db");
    std::fs::rename(&plain.path, &unpacked).map_err(io_error("moving the unpacked snapshot"))?;
    Ok((scratch, unpacked))
}

async fn spawn_read(path: std::path::PathBuf, request: ContentsRequest) -> Result<Found> {
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
    // First the proof: values from a damaged tree mean nothing.
    let proven = reader.prove(None).map_err(wrong)?;
    if let Some(key) = &request.value {
        let mut value = None;
        let show = |record: holdfast_bbolt::scan::Record<'_>| {
            if record.key == key.as_bytes() {
                value = Some(record.value.to_vec());
            }
        };
        reader.live(proven.revision, show).map_err(wrong)?;
        let gone = || Error::not_found(format!("there is no key {key:?} at revision {}", proven.revision));
        return value.map(Found::Value).ok_or_else(gone);
    }
    let mut prefixes = Prefixes::from_request(request)?;
    let mut leases = std::collections::BTreeMap::new();
    reader.records(|record| prefixes.record(record.key, record.value)).map_err(wrong)?;
    let show = |record: holdfast_bbolt::scan::Record<'_>| {
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
