//! Databases that no installed etcd writes: of 3.4, with pages of 16 and 64 KiB, with a list of free pages. `fixtures/make` made
//! them, and the expected values are the answers of their servers; for 3.4 also those of etcdutl 3.6.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use holdfast_bbolt::scan::{HashKv, Proven};

use crate::scan::support::{both_ways, compare_with_etcdutl, folder};
use flate2::read::GzDecoder;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/scan/fixtures").join(name)
}

pub(crate) fn database(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(fixture(&format!("{name}.db.gz"))).unwrap();
    GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    bytes
}

/// The facts of a database, after a comparison with its server's answer.
fn as_said(name: &str, server: &str) -> Proven {
    let said: Value = serde_json::from_slice(&std::fs::read(fixture(&format!("{server}.json"))).unwrap()).unwrap();
    let number = |field: &str| said[field].as_i64().unwrap();
    let (revision, compact_revision) = (number("revision"), number("compactRevision"));
    let proven = both_ways(&database(name));
    let hash = u32::try_from(number("hash")).unwrap();
    assert_eq!(proven.hash_kv, Ok(HashKv { hash, revision, compact_revision }), "{name}");
    assert_eq!(proven.keys, said["keys"].as_u64(), "{name}");
    assert_eq!((proven.revision, proven.compact_revision), (revision, Some(compact_revision)));
    proven
}

#[test]
fn etcd_34() {
    let proven = as_said("etcd-3.4", "etcd-3.4");
    assert_eq!(proven.page_size, 4_096);
    // 3.5 added the term to the database, and 3.6 the storage version.
    assert_eq!((proven.term, proven.storage_version.as_deref()), (None, None));
    assert_eq!((proven.members.len(), proven.leases.len()), (1, 1));
    assert!(proven.cluster_version.as_ref().unwrap().starts_with("3.4"));

    // With the hash at its end that 3.4 had sent: as a snapshot.
    let temporary = tempfile::tempdir().unwrap();
    let snapshot = temporary.path().join("etcd-3.4.snap");
    let mut bytes = database("etcd-3.4");
    let hash = Sha256::digest(&bytes);
    bytes.extend_from_slice(&hash);
    std::fs::write(&snapshot, bytes).unwrap();
    compare_with_etcdutl(&snapshot, &proven, &folder("3.6"));
}

#[test]
fn other_page_sizes() {
    for (name, server, size) in [
        ("etcd-3.4-1024", "etcd-3.4", 1_024),
        ("pages-16384", "pages", 16_384),
        ("pages-65536", "pages", 65_536),
        ("pages-16384-freelist", "pages", 16_384),
        ("pages-65536-freelist", "pages", 65_536),
    ] {
        let proven = as_said(name, server);
        assert_eq!(proven.page_size, size, "{name}");
        assert!(proven.pages > proven.pages_in_use, "{name}: there are free pages");
    }
}
