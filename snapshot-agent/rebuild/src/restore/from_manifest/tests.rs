//! Facts of the manifest are compared even where the stream's scan had too little memory; the report names the uncompared
//! facts.

use std::path::Path;

use holdfast_contract::{ExitClass, StoreFlags};
use holdfast_io::sha256::Sha256;
use holdfast_layout::manifest::Contents;
use serde_json::json;

use super::*;
use crate::sample;
use holdfast_catalog::recorded::recorded_contents;
use holdfast_format::snapshot_scan::SnapshotScan;

#[path = "../../../../tests/real/scan/support/bolt.rs"]
mod bolt;

use bolt::{Bolt, Entry};

const KEY: &str = "shop/orders/1a2b3c4d/20261121T162233Z-1-2";

/// Enough memory for a small database.
const MUCH: usize = 64 << 20;

/// Two budgets: room for the pages and a third of the records; too little even for the pages.
const STREAMED: [usize; 2] = [400_000, 50_000];

const RECORDS: i64 = 30_000;

/// A database of records over this many keys; the record at revision `changed` has another value.
fn database(keys: i64, removed_members: u64, changed: Option<i64>) -> Vec<u8> {
    let record = |revision: i64| {
        let value = if changed == Some(revision) { b"altered!" } else { b"original" };
        let key = format!("key{}", revision % keys);
        (bolt::rev(revision, 0, false), bolt::key_value(key.as_bytes(), value))
    };
    let records: Vec<Entry> = (2..RECORDS + 2).map(record).collect();
    let removed: Vec<Entry> =
        (1..=removed_members).map(|id| (format!("{id:016x}").into_bytes(), b"removed".to_vec())).collect();
    let mut bolt = Bolt::new(4096);
    let trees = [("key", bolt.tree(&records, |_| ())), ("members_removed", bolt.tree(&removed, |_| ()))];
    bolt.finish(&trees, &[])
}

fn proven(database: &[u8]) -> Proven {
    Reader::open(database, database.len() as u64, MUCH).unwrap().prove(None).unwrap()
}

/// Scans the database as a stream with this budget.
fn scanned(database: &[u8], budget_bytes: usize) -> std::result::Result<Proven, ScanError> {
    let mut scan = SnapshotScan::new(Options { compact_revision: Some(NEVER), budget_bytes });
    database.chunks(32 << 10).for_each(|piece| scan.push(piece));
    scan.push(&Sha256::digest(database));
    scan.finish()
}

/// Compares a database with a manifest that has its sha256 and records these contents.
async fn compared(
    database: &[u8],
    recorded: &Contents,
    streamed: std::result::Result<Proven, ScanError>,
    again: usize,
) -> Result<(Option<Proven>, Option<String>)> {
    let mount = tempfile::tempdir().unwrap();
    let sha256 = hex::encode(Sha256::digest(database));
    let fits = json!({ "dbBytes": database.len(), "sha256": sha256, "contents": recorded });
    sample::put(mount.path(), KEY, &sample::but(sample::manifest(KEY), &fits));
    let url = format!("file://{}", mount.path().display());
    let store = Store::open(&StoreFlags { url, ..StoreFlags::default() }).unwrap();
    let folder = stored::folder(KEY).unwrap();
    let (manifest, _) = stored::manifest_of(&store, &folder).await.unwrap();
    let stored = Stored::check(&store, &folder, manifest).await.unwrap();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(database).unwrap();
    let request = RestoreRequest { volume: Path::new("/volume").to_owned(), ..RestoreRequest::default() };
    ManifestSnapshot { stored, moved_from: None, identities: None, again }
        .prove(&store, streamed, &Arc::new(file), &request)
        .await
}

#[tokio::test]
async fn a_value_that_was_altered_with_all_hashes_but_hashkv_is_refused_in_little_memory_too() {
    for keys in [RECORDS, 100] {
        let (original, altered) = (database(keys, 0, None), database(keys, 0, Some(9_000)));
        let recorded = recorded_contents(&proven(&original));
        assert!(recorded.hash_kv.is_some() && recorded.keys.is_some(), "{recorded:?}");
        for streamed in STREAMED {
            let scan = |database: &[u8]| scanned(database, streamed);
            match scan(&altered) {
                Ok(found) => assert!(found.hash_kv.is_err() && found.keys.is_none(), "{found:?}"),
                Err(error) => assert_eq!(error, ScanError::OverBudget { budget: streamed }),
            }
            for (again, is_enough) in [(MUCH, true), (STREAMED[0], keys == 100)] {
                let what = format!("{keys} keys, {streamed}, {again}");
                let (found, told) = compared(&original, &recorded, scan(&original), again).await.unwrap();
                assert_eq!(found.unwrap().revision, RECORDS + 1, "{what}");
                let refused = compared(&altered, &recorded, scan(&altered), again).await;
                if is_enough {
                    assert_eq!(told, None, "{what}");
                    let refused = refused.unwrap_err();
                    assert!(refused.class() == ExitClass::Corrupt, "{what}: {refused}");
                    assert!(refused.message().contains("its HashKV is"), "{what}: {refused}");
                } else {
                    // Both facts are unknown, and the report names both.
                    let words = "HashKV and the number of keys: the records did not fit the memory budget";
                    assert_eq!((told.as_deref(), refused.unwrap().1), (Some(words), told.clone()), "{what}");
                }
            }
        }
    }
}

/// HashKV is compared even where the budget is too small for the structure.
#[tokio::test]
async fn hashkv_is_compared_where_not_even_the_structure_is_proven() {
    let (original, altered) = (database(100, 10_000, None), database(100, 10_000, Some(9_000)));
    let recorded = recorded_contents(&proven(&original));
    let over = || Err(ScanError::OverBudget { budget: 1 });
    let (found, told) = compared(&original, &recorded, over(), 100_000).await.unwrap();
    assert_eq!((found, told.as_deref()), (None, Some("structure: the pages did not fit the memory budget")));
    let refused = compared(&altered, &recorded, over(), 100_000).await.unwrap_err();
    assert!(refused.class() == ExitClass::Corrupt && refused.message().contains("its HashKV is"), "{refused}");
    let nothing = Contents { hash_kv: None, ..recorded };
    let (_, told) = compared(&original, &nothing, over(), 100_000).await.unwrap();
    assert_eq!(told.as_deref(), Some("structure and HashKV: the pages did not fit the memory budget"));
}

#[tokio::test]
async fn what_was_compared_as_it_came_is_not_read_again() {
    let original = database(100, 0, None);
    let recorded = recorded_contents(&proven(&original));
    // A second reading would fail with so little memory.
    let (found, told) = compared(&original, &recorded, scanned(&original, MUCH), 0).await.unwrap();
    assert!(found.is_some() && told.is_none(), "{told:?}");
    let nothing = Contents { hash_kv: None, keys: None, ..recorded };
    let (found, told) = compared(&original, &nothing, scanned(&original, STREAMED[0]), 0).await.unwrap();
    assert!(found.is_some() && told.is_some_and(|told| told.starts_with("HashKV: ")), "it cannot be compared");
}
