//! A flipped byte is refused, or it is in a place that structure and HashKV do not prove. A cut is always refused.
//!
//! Of snapshots of each minor, and of files that no installed etcd writes: of 3.4, and with pages of 16 KiB.
//!
//! The flips are at the same places each time. `HOLDFAST_SOAK=1` draws another seed and prints it, and `HOLDFAST_SEED` repeats it:
//! exactly for the stored files, and for a snapshot as far as etcd lays it out in the same way.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;

use holdfast_bbolt::scan::{Proven, Reader, ScanError};
use holdfast_contract::{ExitClass, SnapshotFlags, VerifyRequest};

use crate::scan::support::roles::Role;
use crate::scan::support::seed::seed;
use crate::scan::support::{BUDGET, Dice, Server, both_ways, scan};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use snapshot_agent::format::trailer::TRAILER;
use snapshot_agent::verbs::verify::{self, FileVerified, Verified};

/// A snapshot of every feature: rows of pages, free pages, tombstones below the compact revision, other buckets.
fn snapshot(line: &str) -> (Vec<u8>, Proven) {
    let mut server = Server::start(line, &[]);
    let mut dice = Dice(99);
    for i in 0..900 {
        let value = vec![dice.below(256) as u8; dice.below(if i % 50 == 0 { 20_000 } else { 600 }) as usize];
        server.put(format!("/registry/k{:04}", dice.below(400)).as_bytes(), &value);
    }
    for i in 0..60 {
        server.post("/v3/lease/grant", &json!({"ID": (1_000 + i).to_string(), "TTL": "3600"}));
    }
    server.post("/v3/auth/user/add", &json!({"name": "somebody", "password": "secret"}));
    let revision = server.delete(b"/registry/k0100");
    server.compact(revision - 200);
    for i in 0..120 {
        server.put(format!("/registry/k{:04}", i * 2).as_bytes(), b"later");
        server.delete(format!("/registry/k{:04}", i * 3).as_bytes());
    }
    let revision = server.delete(b"/registry/k0101");
    // The compaction removes older tombstones; those that HashKV omits stay only at the compact revision, or in an unfinished one.
    let at = server.delete(b"/registry/k0011").max(revision);
    server.compact(at);
    server.put(b"/registry/k0002", b"last");
    let checked = server.check();
    assert!(checked.compared);
    (checked.bytes, checked.proven)
}

/// A stored database.
fn stored(name: &str) -> (Vec<u8>, Proven) {
    let bytes = crate::scan::files::database(name);
    let proven = both_ways(&bytes);
    (bytes, proven)
}

/// Roles that neither structure nor HashKV proves; only the sha256 of the whole covers them.
const UNPROVEN: [Role; 8] = [
    Role::Free,
    Role::Padding,
    Role::NewerMeta,
    Role::OlderMeta,
    Role::Sequence,
    Role::LeftOut,
    Role::OtherName,
    Role::OtherValue,
];

/// A snapshot in a file, as `agent verify` reads it.
struct AtRest {
    file: tempfile::NamedTempFile,
    runtime: tokio::runtime::Runtime,
}

impl AtRest {
    fn of(bytes: &[u8], trailer: &[u8]) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        let at_rest =
            Self { file, runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap() };
        at_rest.put(bytes, 0);
        at_rest.put(trailer, bytes.len());
        at_rest
    }

    fn put(&self, bytes: &[u8], at: usize) {
        self.file.as_file().write_all_at(bytes, at as u64).unwrap();
    }

    fn verified(&self) -> holdfast_contract::error::Result<FileVerified> {
        let snapshot = SnapshotFlags { file: Some(self.file.path().to_owned()), ..SnapshotFlags::default() };
        let request = VerifyRequest { snapshot, ..VerifyRequest::default() };
        match self.runtime.block_on(verify::run(request))? {
            Verified::File(found) => Ok(found),
            other => panic!("{other:?}"),
        }
    }

    /// Checks that the proof, which does not match, refuses the file.
    fn refused(&self, at: usize) {
        let error = self.verified().unwrap_err();
        assert_eq!(error.class(), ExitClass::Corrupt, "at {at}: {error}");
        assert!(error.message().contains("does not match the sha256 at its end"), "at {at}: {error}");
    }

    /// Checks that the verdict with an adapted proof is the scan's.
    fn as_scanned(&self, scanned: &Result<Proven, ScanError>, what: &str) {
        match (self.verified(), scanned) {
            (Err(error), Err(_)) => assert_eq!(error.class(), ExitClass::Corrupt, "{what}: {error}"),
            (Ok(found), Ok(proven)) => {
                let told = (found.revision, found.revisions, found.compact_revision);
                assert_eq!(told, (proven.revision, proven.revisions, proven.compact_revision), "{what}");
                // The scan got the compact revision, and has no hash with another one.
                if let Ok(hash_kv) = proven.hash_kv {
                    assert_eq!((found.hash_kv, found.keys), (Some(hash_kv.hash), proven.keys), "{what}");
                }
            }
            (verified, scanned) => panic!("{what}: {verified:?}, scanned: {scanned:?}"),
        }
    }
}

fn flips(what: &str, (mut bytes, proven): (Vec<u8>, Proven)) {
    let seed = seed(what, 2_026);
    let compact = proven.compact_revision;
    let roles = crate::scan::support::roles::roles(&bytes, compact.unwrap_or(-1));
    let trailer: [u8; TRAILER] = Sha256::digest(&bytes).into();
    let at_rest = AtRest::of(&bytes, &trailer);
    assert_eq!(at_rest.verified().unwrap().sha256, Some(hex::encode(trailer)));
    for (i, byte) in trailer.iter().enumerate() {
        at_rest.put(&[byte ^ 1], bytes.len() + i);
        at_rest.refused(bytes.len() + i);
        at_rest.put(&[*byte], bytes.len() + i);
    }
    let mut counts: BTreeMap<(Role, &str), usize> = BTreeMap::new();
    let mut dice = Dice(seed);
    let count = crate::soak::soak(200, 10_000);
    // A third of the flips anywhere, which mostly hits free pages; a third in bytes that HashKV covers; a third in the few bytes of
    // structure and other buckets.
    let among = |wanted: &dyn Fn(&Role) -> bool| -> Vec<usize> {
        roles.iter().enumerate().filter(|(_, role)| wanted(role)).map(|(at, _)| at).collect()
    };
    let places = [
        (0..bytes.len()).collect(),
        among(&|role| *role == Role::Covered),
        among(&|role| !matches!(role, Role::Covered | Role::Free | Role::Padding)),
    ];
    for i in 0..count {
        let places = &places[i % 3];
        let at = places[dice.below(places.len() as u64) as usize];
        let flip = 1_u8.max(dice.below(256) as u8);
        bytes[at] ^= flip;

        // As a stored file it is refused at any place.
        at_rest.put(&[bytes[at]], at);
        at_rest.refused(at);

        // With an adapted proof the verdict is the scan's.
        let role = roles[at];
        let scanned = scan(&bytes, compact, 32 << 10);
        at_rest.put(&Sha256::digest(&bytes), bytes.len());
        at_rest.as_scanned(&scanned, &format!("{role:?} at {at}"));
        let verdict = match &scanned {
            Err(ScanError::OverBudget { .. } | ScanError::Io(_)) => panic!("not a verdict"),
            Err(_) => "refused",
            Ok(other) if other.hash_kv != proven.hash_kv => "HashKV differs",
            Ok(other) if *other != proven => {
                assert!(
                    matches!(role, Role::OtherName | Role::OtherValue | Role::Sequence),
                    "{role:?} at {at}: {other:?}"
                );
                "other facts differ"
            }
            Ok(_) => {
                let page = at / proven.page_size as usize;
                assert!(UNPROVEN.contains(&role), "{role:?} at {at} (page {page}) is not seen");
                "not seen"
            }
        };
        let length = bytes.len() as u64;
        let read = Reader::open(&bytes[..], length, BUDGET).and_then(|mut reader| reader.prove(compact));
        assert_eq!(scanned.is_ok(), read.is_ok(), "{role:?} at {at}: {scanned:?} {read:?}");
        assert!(scanned.is_err() || scanned == read, "{role:?} at {at}: {scanned:?} {read:?}");
        *counts.entry((role, verdict)).or_default() += 1;
        bytes[at] ^= flip;
        at_rest.put(&[bytes[at]], at);
        at_rest.put(&trailer, bytes.len());
    }
    assert_eq!(scan(&bytes, compact, 32 << 10).as_ref(), Ok(&proven));
    assert_eq!(at_rest.verified().unwrap().sha256, Some(hex::encode(trailer)));
    let mut total: BTreeMap<Role, usize> = BTreeMap::new();
    for role in &roles {
        *total.entry(*role).or_default() += 1;
    }
    println!("{what}: {count} flips in {} bytes: {total:?}", bytes.len());
    for ((role, verdict), flips) in counts {
        println!("{flips:6} {role:?}: {verdict}");
    }
}

fn cuts((mut bytes, proven): (Vec<u8>, Proven)) {
    let size = proven.page_size as usize;
    // A member's own file may be longer than its used part, and is whole without the rest.
    bytes.truncate(proven.pages as usize * size);
    assert!(scan(&bytes, proven.compact_revision, 1 << 20).is_ok());
    let odd = [bytes.len() - 1, bytes.len() - 511, size + 80, 100, 1];
    for end in (0..bytes.len()).step_by(size).chain(odd) {
        let cut = &bytes[..end];
        let streamed = scan(cut, proven.compact_revision, 1 << 20).unwrap_err();
        assert!(matches!(streamed, ScanError::Cut { .. } | ScanError::NoMeta { .. }), "{end}: {streamed}");
        assert_eq!(Reader::open(cut, end as u64, BUDGET).unwrap_err(), streamed);
    }
}

#[test]
fn flips_34() {
    flips("etcd 3.4", stored("etcd-3.4"));
}

#[test]
fn flips_35() {
    flips("etcd 3.5", snapshot("3.5"));
}

#[test]
fn flips_36() {
    flips("etcd 3.6", snapshot("3.6"));
}

#[test]
fn flips_37() {
    flips("etcd 3.7", snapshot("3.7"));
}

#[test]
fn flips_in_pages_of_16_kib() {
    flips("pages of 16 KiB", stored("pages-16384"));
}

#[test]
fn cuts_34() {
    cuts(stored("etcd-3.4"));
}

#[test]
fn cuts_35() {
    cuts(snapshot("3.5"));
}

#[test]
fn cuts_36() {
    cuts(snapshot("3.6"));
}

#[test]
fn cuts_37() {
    cuts(snapshot("3.7"));
}

#[test]
fn cuts_in_pages_of_16_kib() {
    cuts(stored("pages-16384"));
}
