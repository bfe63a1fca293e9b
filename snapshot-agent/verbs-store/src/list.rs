//! `agent list`: lists a store's snapshots, of all clusters or of one cluster, the newest first: complete, unfinished and
//! broken.
//!
//! The verb reads manifests, asks for the size of data and for the names of proofs, and writes nothing. For a recreated cluster
//! it lists the earlier lineages too, unless the request names a lineage. It ignores other objects of the store.

use futures::future::LocalBoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use holdfast_contract::error::Result;
use holdfast_contract::{Level, ListRequest, ProofLevel};
use holdfast_io::interrupt::Interrupt;
use holdfast_io::table::align_columns;
use holdfast_layout::{Folder, Proved, attempt_time};
use holdfast_store::Store;
use indicatif::{HumanBytes, HumanDuration};
use jiff::Timestamp;
use serde::Serialize;

use holdfast_catalog::attempts::{AT_ONCE, attempts, lineages};
use holdfast_catalog::proof;
use holdfast_catalog::read_folder::{FolderState, read_folder};

/// Maximum number of namespaces in a store, and of clusters in a namespace.
const MAX_NAMES: usize = 1_000;

/// State of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum State {
    /// The snapshot can be restored.
    Complete,
    /// The folder has no manifest: a save is running or has died. The next save of the lineage cleans up.
    Incomplete,
    /// The store has archived the manifest: restore the object in the store first.
    Archived,
    /// The manifest cannot be read, or the data is missing or has another size.
    Broken,
}

/// One folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The folder below the store's prefix: `bootstrap.restore.source.key` takes it.
    pub key: String,
    /// State.
    pub state: State,
    /// Start of the save.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<Timestamp>,
    /// Bytes of the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub db_bytes: Option<u64>,
    /// Stored bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<u64>,
    /// The revision of the key space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Keys that exist at that revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// Level of proof; absent in old manifests that do not record it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<Level>,
    /// Whether no quorum answered at the save: acknowledged writes may be missing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub without_quorum: bool,
    /// Whether authentication is on: no `EtcdCluster` can be restored from the snapshot.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub auth_enabled: bool,
    /// The newest later verification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<NewestProof>,
    /// The member's etcd version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,
    /// The problem of a broken or archived folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Facts of the newest verification, from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewestProof {
    /// Level of the verification.
    pub level: ProofLevel,
    /// Time of the verification.
    pub at: Timestamp,
    /// Whether the verification found no fault.
    pub passed: bool,
}

impl From<Proved> for NewestProof {
    fn from(Proved { at, level, passed }: Proved) -> Self {
        Self { level, at, passed }
    }
}

impl Entry {
    fn new(folder: &Folder, state: State) -> Self {
        Self {
            key: folder.as_str().to_owned(),
            state,
            taken_at: attempt_time(folder.name()),
            db_bytes: None,
            stored_bytes: None,
            revision: None,
            keys: None,
            verified: None,
            without_quorum: false,
            auth_enabled: false,
            proof: None,
            etcd_version: None,
            problem: None,
        }
    }

    fn from_state(folder: &Folder, looked: FolderState) -> Option<Self> {
        Some(match looked {
            FolderState::Complete(manifest, _) => Self {
                taken_at: Some(manifest.started_at),
                db_bytes: Some(manifest.db_bytes),
                stored_bytes: Some(manifest.stored_bytes),
                revision: manifest.contents.as_ref().map(|contents| contents.revision),
                keys: manifest.contents.as_ref().and_then(|contents| contents.keys),
                verified: manifest.verification.map(|verification| verification.level),
                without_quorum: manifest.without_quorum,
                auth_enabled: manifest.contents.as_ref().is_some_and(|contents| contents.auth_enabled),
                etcd_version: Some(manifest.etcd_version),
                ..Self::new(folder, State::Complete)
            },
            FolderState::WithoutManifest => Self::new(folder, State::Incomplete),
            FolderState::Archived(error) => {
                Self { problem: Some(error.message().to_owned()), ..Self::new(folder, State::Archived) }
            }
            FolderState::Broken(error) => {
                Self { problem: Some(error.message().to_owned()), ..Self::new(folder, State::Broken) }
            }
            FolderState::Unwanted => return None,
        })
    }
}

/// Reads all requested folders.
pub fn run(request: ListRequest) -> LocalBoxFuture<'static, Result<Vec<Entry>>> {
    Box::pin(async move {
        let mut interrupt = Interrupt::after(request.deadline_seconds.into())?;
        let store = Store::open(&request.store)?;
        interrupt.unless(list(&store, &request)).await
    })
}

async fn list(store: &Store, request: &ListRequest) -> Result<Vec<Entry>> {
    let mut folders = Vec::new();
    for (namespace, cluster) in clusters(store, request).await? {
        for lineage in lineages(store, &namespace, &cluster, request.cluster_uid.as_deref()).await? {
            folders.extend(attempts(store, &lineage).await?);
        }
    }
    let looks = folders.iter().map(|folder| async move {
        let looked = read_folder(store, folder, |manifest| manifest.key == folder.as_str()).await?;
        let Some(mut entry) = Entry::from_state(folder, looked) else { return Ok(None) };
        if entry.state == State::Complete {
            entry.proof = proof::newest(store, folder).await?.map(NewestProof::from);
        }
        Ok(Some(entry))
    });
    let entries: Vec<Option<Entry>> = stream::iter(looks).buffer_unordered(AT_ONCE).try_collect().await?;
    let mut entries: Vec<Entry> = entries.into_iter().flatten().collect();
    entries.sort_by(|a, b| (b.taken_at, &b.key).cmp(&(a.taken_at, &a.key)));
    Ok(entries)
}

/// Returns the namespaces and names of the requested clusters.
async fn clusters(store: &Store, request: &ListRequest) -> Result<Vec<(String, String)>> {
    let inside = async |folder: &Folder, named: Option<&String>| match named {
        Some(name) => Ok(vec![name.clone()]),
        // Other names belong to other owners.
        None => store.children(folder, MAX_NAMES, Folder::is_name).await.map(|found| found.names),
    };
    let mut found = Vec::new();
    for namespace in inside(&Folder::top(), request.namespace.as_ref()).await? {
        let folder = Folder::top().child(&namespace).map_err(|error| holdfast_store::layout(&error))?;
        let names = inside(&folder, request.cluster.as_ref()).await?;
        found.extend(names.into_iter().map(|cluster| (namespace.clone(), cluster)));
    }
    Ok(found)
}

/// Returns the text for an empty list: a wrong prefix looks like an empty store.
pub fn nothing(request: &ListRequest) -> String {
    let names = [request.namespace.as_deref(), request.cluster.as_deref(), request.cluster_uid.as_deref()];
    let place = std::iter::once(request.store.url.trim_end_matches('/')).chain(names.into_iter().flatten());
    let place = place.collect::<Vec<_>>().join("/");
    format!("no snapshot is below {place}: check the bucket or folder and the prefix of --store, and the names\n")
}

/// Formats the list for a terminal.
pub fn table(entries: &[Entry]) -> String {
    table_at(entries, holdfast_io::clock::now())
}

fn table_at(entries: &[Entry], now: Timestamp) -> String {
    const HEAD: [&str; 9] = ["STATE", "AGE", "REVISION", "KEYS", "SIZE", "STORED", "VERIFIED", "PROOF", "KEY"];
    let dash = || "-".to_owned();
    let bytes = |bytes: Option<u64>| bytes.map_or_else(dash, |bytes| HumanBytes(bytes).to_string());
    let age = |at: Timestamp| now.duration_since(at).try_into().ok().map(|age| format!("{:#}", HumanDuration(age)));
    let rows = entries.iter().map(|entry| {
        let proof = entry.proof.map(|NewestProof { level, at, passed }| {
            let failed = if passed { "" } else { "FAILED " };
            format!("{failed}{} {}", level.as_str(), age(at).unwrap_or_else(dash))
        });
        let alone = if entry.without_quorum { ", no quorum" } else { "" };
        let closed = if entry.auth_enabled { ", authentication on" } else { "" };
        [
            format!("{:?}", entry.state),
            entry.taken_at.and_then(age).unwrap_or_else(dash),
            entry.revision.map_or_else(dash, |revision| revision.to_string()),
            entry.keys.map_or_else(dash, |keys| keys.to_string()),
            bytes(entry.db_bytes),
            bytes(entry.stored_bytes),
            entry.verified.map_or_else(dash, |level| level.as_str().to_owned()) + alone + closed,
            proof.unwrap_or_else(dash),
            entry.problem.as_ref().map_or_else(|| entry.key.clone(), |problem| format!("{}  ({problem})", entry.key)),
        ]
    });
    align_columns(&std::iter::once(HEAD.map(str::to_owned)).chain(rows).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::sample;
    use holdfast_contract::StoreFlags;
    use serde_json::json;

    use super::*;

    const LINEAGE: &str = "shop/orders/1a2b3c4d";

    #[tokio::test]
    async fn everything_is_listed_newest_first_and_for_what_it_is() {
        let mount = tempfile::tempdir().unwrap();
        let put = |name: &str, manifest: Option<serde_json::Value>, data: &str| {
            let folder = mount.path().join(LINEAGE).join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("snapshot.db.zst"), data).unwrap();
            if let Some(mut manifest) = manifest {
                manifest["key"] = json!(format!("{LINEAGE}/{name}"));
                fs::write(folder.join("manifest.json"), manifest.to_string()).unwrap();
            }
        };
        let manifest = |at: &str| sample::but(sample::manifest(""), &json!({"startedAt": at, "endedAt": at}));
        let mut proven = manifest("2026-11-21T10:00:00Z");
        proven["contents"] = json!({
            "revision": 9, "keys": 3, "revisions": 6, "members": [], "leases": 0, "alarms": 0, "authEnabled": true,
            "users": 2, "roles": 1,
        });
        proven["verification"] = json!({"level": "HashKV"});
        put("20261121T100000Z-11111111-aaaaaaaa", Some(proven), "12345");
        put("20261121T110000Z-22222222-bbbbbbbb", None, "1");
        put("20261121T120000Z-33333333-cccccccc", Some(manifest("2026-11-21T12:00:00Z")), "1234");
        put("20261121T130000Z-44444444-dddddddd", Some(manifest("2026-11-21T13:00:00Z")), "12345");
        fs::create_dir_all(mount.path().join(LINEAGE).join("uploads")).unwrap();
        for (name, proofs) in [
            ("20261121T100000Z-11111111-aaaaaaaa", &["20261121T110000.000Z-drill", "20261121T130000.001Z-stored"][..]),
            ("20261121T130000Z-44444444-dddddddd", &["20261121T140000.000Z-stored-failed", "x"]),
        ] {
            let folder = mount.path().join(LINEAGE).join(name).join("proofs");
            fs::create_dir(&folder).unwrap();
            for proof in proofs {
                fs::write(folder.join(format!("{proof}.json")), "{}").unwrap();
            }
        }

        let request = ListRequest {
            store: StoreFlags { url: format!("file://{}", mount.path().display()), ..StoreFlags::default() },
            namespace: Some("shop".to_owned()),
            cluster: Some("orders".to_owned()),
            deadline_seconds: 20,
            ..ListRequest::default()
        };
        let entries = run(request.clone()).await.unwrap();
        let states: Vec<_> = entries.iter().map(|entry| entry.state).collect();
        assert_eq!(states, [State::Complete, State::Broken, State::Incomplete, State::Complete]);
        assert_eq!((entries[0].verified, entries[3].verified), (None, Some(Level::HashKV)));
        assert_eq!((entries[0].auth_enabled, entries[3].auth_enabled), (false, true));
        assert!(entries[1].problem.as_ref().unwrap().contains("its manifest says 5"));
        let now = "2026-11-21T15:00:00Z".parse().unwrap();
        let table = table_at(&entries, now);
        let lines: Vec<_> = table.lines().collect();
        assert!(lines[0].starts_with("STATE       AGE  REVISION  KEYS  SIZE"), "{table}");
        assert!(lines[1].contains("  -                          FAILED stored 60m  shop/"), "{table}");
        assert!(lines[2].starts_with("Broken      3h   -"), "{table}");
        assert!(
            lines[4].starts_with(
                "Complete    5h   9         3     4.00 KiB  5 B     HashKV, authentication on  stored 2h          shop/"
            ),
            "{table}"
        );

        // A store also holds objects of other owners, which the list ignores.
        for foreign in ["other/orders/not-a-lineage", ".trash/x/y", "shop/.hidden/y", "lost+found"] {
            fs::create_dir_all(mount.path().join(foreign)).unwrap();
        }
        for (namespace, cluster) in [(None, None), (request.namespace.clone(), None)] {
            let all = ListRequest { namespace, cluster, ..request.clone() };
            assert_eq!(run(all).await.as_ref(), Ok(&entries));
        }
        let other = ListRequest { cluster_uid: Some("ffffffff-0000".to_owned()), ..request.clone() };
        assert_eq!(run(other).await, Ok(vec![]));
        assert_eq!(run(ListRequest { cluster: Some("other".to_owned()), ..request }).await, Ok(vec![]));
    }
}
