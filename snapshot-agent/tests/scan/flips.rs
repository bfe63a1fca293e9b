//! A flipped byte is refused, or it lies where structure and HashKV prove nothing. A cut is always refused.

use std::collections::BTreeMap;

use crate::support::roles::Role;
use crate::support::{Dice, Server, scan};
use serde_json::json;
use snapshot_agent::scan::{Proven, ScanError};

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

fn flips(line: &str) {
    let (mut bytes, proven) = snapshot(line);
    let compact = proven.compact_revision;
    let roles = crate::support::roles::roles(&bytes, compact.unwrap_or(-1));
    let pieces = 32 << 10;
    let mut counts: BTreeMap<(Role, &str), usize> = BTreeMap::new();
    let mut dice = Dice(2_026);
    let count = if std::env::var_os("HOLDFAST_SOAK").is_some_and(|v| !v.is_empty()) { 10_000 } else { 500 };
    // Half of them anywhere, half of them where they matter: other buckets and structure are few bytes.
    let rare: Vec<usize> =
        (0..bytes.len()).filter(|at| !matches!(roles[*at], Role::Covered | Role::Free | Role::Padding)).collect();
    for i in 0..count {
        let at = if i % 2 == 0 {
            dice.below(bytes.len() as u64) as usize
        } else {
            rare[dice.below(rare.len() as u64) as usize]
        };
        let flip = 1_u8.max(dice.below(256) as u8);
        bytes[at] ^= flip;
        let role = roles[at];
        let what = match scan(&bytes, compact, pieces) {
            Err(ScanError::OverBudget { .. } | ScanError::Io(_)) => panic!("not a verdict"),
            Err(_) => "refused",
            Ok(other) if other.hash_kv != proven.hash_kv => "HashKV differs",
            Ok(other) if other != proven => {
                assert!(matches!(role, Role::OtherBucket | Role::Sequence), "{role:?} at {at}: {other:?}");
                "other facts differ"
            }
            Ok(_) => {
                let invisible =
                    [Role::Free, Role::Padding, Role::Meta, Role::Sequence, Role::LeftOut, Role::OtherBucket];
                assert!(invisible.contains(&role), "{role:?} at {at} (page {}) is not seen", at / 4096);
                "not seen"
            }
        };
        *counts.entry((role, what)).or_default() += 1;
        bytes[at] ^= flip;
    }
    assert_eq!(scan(&bytes, compact, pieces).as_ref(), Ok(&proven));
    let mut total: BTreeMap<Role, usize> = BTreeMap::new();
    for role in &roles {
        *total.entry(*role).or_default() += 1;
    }
    println!("etcd {line}: {} bytes {total:?}\n{counts:#?}", bytes.len());
}

fn cuts(line: &str) {
    let (bytes, proven) = snapshot(line);
    for end in (0..bytes.len()).step_by(proven.page_size as usize) {
        let error = scan(&bytes[..end], proven.compact_revision, 1 << 20).unwrap_err();
        assert!(matches!(error, ScanError::Cut { .. } | ScanError::NoMeta { .. }), "{error}");
    }
    for end in [bytes.len() - 1, bytes.len() - 511, 4096 + 80, 100, 1] {
        assert!(scan(&bytes[..end], proven.compact_revision, 1 << 20).is_err());
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
fn cuts_36() {
    cuts("3.6");
}
