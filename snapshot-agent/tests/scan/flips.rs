//! A flipped byte is refused, or it lies where structure and HashKV prove nothing. A cut is always refused.

use std::collections::BTreeMap;

use crate::support::roles::Role;
use crate::support::{BUDGET, Dice, Server, scan};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use snapshot_agent::scan::{Proven, Reader, ScanError};
use snapshot_agent::trailer::{Hasher, TRAILER, TrailerError};

/// A snapshot with a bit of everything: rows of pages, free pages, tombstones below the compact revision, other buckets.
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
    // Tombstones below the next compaction go; those that are left out of HashKV and still there are at it, or half done.
    let at = server.delete(b"/registry/k0011").max(revision);
    server.compact(at);
    server.put(b"/registry/k0002", b"last");
    let checked = server.check();
    assert!(checked.compared);
    (checked.bytes, checked.proven)
}

/// What neither structure nor HashKV can prove; the sha256 of the whole is there for it.
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

/// A stored snapshot's verdict: the proof at its end, and the hash that the manifest has.
fn at_rest(bytes: &[u8], trailer: &[u8; TRAILER]) -> Result<[u8; 32], TrailerError> {
    let mut hasher = Hasher::default();
    hasher.update(bytes);
    hasher.update(trailer);
    hasher.finish().map(|proven| proven.sha256)
}

fn flips(line: &str) {
    let (mut bytes, proven) = snapshot(line);
    let compact = proven.compact_revision;
    let roles = crate::support::roles::roles(&bytes, compact.unwrap_or(-1));
    let trailer: [u8; 32] = Sha256::digest(&bytes).into();
    assert_eq!(at_rest(&bytes, &trailer), Ok(trailer));
    let mut counts: BTreeMap<(Role, &str), usize> = BTreeMap::new();
    let mut dice = Dice(2_026);
    let count = crate::soak::soak(500, 10_000);
    // A third anywhere, which is free pages most often; a third in what HashKV covers; a third in what is few bytes:
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

        // At rest it is refused wherever it is; with a proof that was made to match, by the manifest's hash.
        assert!(matches!(at_rest(&bytes, &trailer), Err(TrailerError::Mismatch(_))), "at {at}");
        let matching: [u8; 32] = Sha256::digest(&bytes).into();
        assert!(at_rest(&bytes, &matching).is_ok_and(|sha256| sha256 != trailer), "at {at}");

        // On its way, with that matching proof, it is the scan's.
        let role = roles[at];
        let scanned = scan(&bytes, compact, 32 << 10);
        let what = match &scanned {
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
                assert!(UNPROVEN.contains(&role), "{role:?} at {at} (page {}) is not seen", at / 4096);
                "not seen"
            }
        };
        let length = bytes.len() as u64;
        let read = Reader::open(&bytes[..], length, BUDGET).and_then(|mut reader| reader.prove(compact));
        assert_eq!(scanned.is_ok(), read.is_ok(), "{role:?} at {at}: {scanned:?} {read:?}");
        assert!(scanned.is_err() || scanned == read, "{role:?} at {at}: {scanned:?} {read:?}");
        *counts.entry((role, what)).or_default() += 1;
        bytes[at] ^= flip;
    }
    assert_eq!(scan(&bytes, compact, 32 << 10).as_ref(), Ok(&proven));
    let mut total: BTreeMap<Role, usize> = BTreeMap::new();
    for role in &roles {
        *total.entry(*role).or_default() += 1;
    }
    println!("etcd {line}: {count} flips in {} bytes: {total:?}", bytes.len());
    for ((role, what), flips) in counts {
        println!("{flips:6} {role:?}: {what}");
    }
}

fn cuts(line: &str) {
    let (bytes, proven) = snapshot(line);
    let size = proven.page_size as usize;
    let odd = [bytes.len() - 1, bytes.len() - 511, size + 80, 100, 1];
    for end in (0..bytes.len()).step_by(size).chain(odd) {
        let cut = &bytes[..end];
        let streamed = scan(cut, proven.compact_revision, 1 << 20).unwrap_err();
        assert!(matches!(streamed, ScanError::Cut { .. } | ScanError::NoMeta { .. }), "{end}: {streamed}");
        assert_eq!(Reader::open(cut, end as u64, BUDGET).unwrap_err(), streamed);
    }
}

#[test]
fn flips_35() {
    flips("3.5");
}

#[test]
fn flips_36() {
    flips("3.6");
}

#[test]
fn flips_37() {
    flips("3.7");
}

#[test]
fn cuts_35() {
    cuts("3.5");
}

#[test]
fn cuts_36() {
    cuts("3.6");
}

#[test]
fn cuts_37() {
    cuts("3.7");
}
