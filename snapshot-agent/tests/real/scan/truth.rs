//! The scan's facts equal those of etcd: the server's HashKV, and etcdutl's hashkv and status.

use std::time::{Duration, Instant};

use holdfast_bbolt::scan::{NoHashKv, Proven};

use crate::scan::support::seed::seed;
use crate::scan::support::{Checked, Dice, Server, both_ways, minor, reader, scan};
use crate::soak::soak;
use serde_json::json;

fn empty(line: &str) {
    let mut server = Server::start(line, &[]);
    // A member records its storage version some time after it started to serve (etcd: monitorStorageVersion, every 4 s).
    let until = Instant::now() + Duration::from_mins(1);
    let Checked { proven, compared, .. } = loop {
        let checked = server.check();
        if checked.proven.storage_version.is_some() || minor(line) == "3.5" || Instant::now() > until {
            break checked;
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    assert_eq!((proven.keys, proven.revisions, proven.revision, proven.compact_revision), (Some(0), 0, 1, None));
    assert!(compared);
    assert_eq!(proven.members.len(), 1);
    assert_eq!(proven.members[0].name, "m1");
    assert!(proven.term.unwrap() >= 2 && proven.consistent_index.unwrap() > 2);
    assert_eq!(proven.storage_version.is_some(), minor(line) != "3.5");
    assert!(proven.cluster_version.as_ref().unwrap().starts_with(minor(line)));
}

fn one_key(line: &str) {
    let mut server = Server::start(line, &[]);
    server.put(b"a", b"");
    let Checked { proven, compared, .. } = server.check();
    assert_eq!((proven.keys, proven.revisions, proven.revision), (Some(1), 1, 2));
    assert!(compared);
}

/// Writes many keys in transactions of 500, overwrites some, deletes some.
fn fill(server: &Server, keys: u64, dice: &mut Dice) {
    for batch in 0..keys.div_ceil(500) {
        let value: Vec<u8> = (0..300).map(|_| dice.below(256) as u8).collect();
        let ops = (0..500.min(keys - batch * 500)).map(|i| {
            let length = dice.below(300) as usize;
            Server::put_op(format!("/registry/things/{:06}", batch * 500 + i).as_bytes(), &value[..length])
        });
        server.txn(&ops.collect::<Vec<_>>());
    }
}

fn many_keys(line: &str) {
    let keys = soak(20_000, 200_000);
    let mut server = Server::start(line, &[]);
    let mut dice = Dice(7);
    fill(&server, keys, &mut dice);
    let checked = server.check();
    assert!(checked.compared);
    assert_eq!(checked.proven.keys, Some(keys));
    for _ in 0..200 {
        let key = format!("/registry/things/{:06}", dice.below(keys));
        if dice.below(3) == 0 {
            server.delete(key.as_bytes())
        } else {
            server.put(key.as_bytes(), b"again")
        };
    }
    assert!(server.check().compared);
    let revision = server.put(b"last", b"x");
    server.compact(revision - 100);
    assert!(server.check().compared);
}

fn value_sizes(line: &str) {
    let mut server = Server::start(line, &[]);
    let mut dice = Dice(3);
    for round in 0..3 {
        for (i, size) in [0, 1, 127, 128, 3_000, 4_096, 10_000, 65_536, 300_000, 1_500_000].into_iter().enumerate() {
            let mut value = vec![0_u8; size];
            value.iter_mut().step_by(3).for_each(|byte| *byte = dice.below(256) as u8);
            server.put(format!("key{i}").as_bytes(), &value);
        }
        let checked = server.check();
        assert!(checked.compared);
        if round == 1 {
            server.compact(checked.proven.revision - 5);
        }
    }
    // Freed rows of pages keep their headers, which overlap with later writes.
    for i in 0..40 {
        server.put(format!("small{i}").as_bytes(), &vec![9; 2_000 + 700 * i]);
        let revision = server.put(b"key9", &vec![1; 500_000]);
        if i % 5 == 0 {
            server.compact(revision);
        }
    }
    server.put(b"end", b"");
    assert!(server.check().compared);
}

/// Makes forty puts, deletes and transactions over few keys; returns the newest revision, and the last tombstone's.
fn change(server: &Server, dice: &mut Dice) -> (i64, Option<i64>) {
    let (mut revision, mut tombstone) = (0, None);
    for _ in 0..40 {
        let key = |dice: &mut Dice| format!("k{}", dice.below(12)).into_bytes();
        revision = match dice.below(8) {
            0 | 1 => {
                let before = server.put(b"tick", b"");
                let after = server.delete(&key(dice));
                tombstone = if after > before { Some(after) } else { tombstone };
                after
            }
            2 => {
                let ops =
                    (0..12).filter(|_| dice.below(3) == 0).map(|i| Server::put_op(format!("k{i}").as_bytes(), b"t"));
                let ops: Vec<_> = ops.collect();
                server.txn(&ops)
            }
            _ => server.put(&key(dice), &vec![b'v'; dice.below(200) as usize]),
        };
    }
    (revision, tombstone)
}

/// Makes puts, deletes and transactions over few keys, with compactions at many revisions.
fn history(line: &str, usually: u64) {
    let mut server = Server::start(line, &[]);
    let mut dice = Dice(seed(line, usually));
    let (mut compacted, mut tombstone, mut compared) = (0, 0, 0);
    let rounds = soak(6, 40);
    for round in 0..rounds {
        let (revision, deleted) = change(&server, &mut dice);
        tombstone = deleted.unwrap_or(tombstone);
        // At a tombstone, at the newest revision, or anywhere between the last compaction and now.
        let at = match round % 3 {
            0 if tombstone > compacted => tombstone,
            1 => revision,
            _ => compacted + 1 + dice.below((revision - compacted) as u64) as i64,
        };
        let at = at.clamp(compacted + 1, revision);
        server.compact(at);
        compacted = at;
        let checked = server.check();
        assert_eq!(checked.proven.compact_revision, Some(at));
        compared += usize::from(checked.compared);
        // Overwritten and deleted after the compaction.
        server.put(b"k1", b"after");
        server.delete(b"k2");
        let checked = server.check();
        compared += usize::from(checked.compared);
        let mut reader = reader(&checked.bytes);
        for revision in compacted..=checked.proven.revision {
            let live = server.hash_kv(revision);
            if live.compact_revision == compacted && live.revision == revision {
                assert_eq!(reader.hash_kv(revision, compacted).unwrap(), live, "etcd {line}, round {round}");
                compared += 1;
            }
        }
    }
    assert!(compared >= 2 * rounds, "{compared}");
}

fn mass_delete(line: &str) {
    let mut server = Server::start(line, &[]);
    for i in 0..50 {
        server.put(format!("k{}", i % 30).as_bytes(), b"value");
    }
    let before = server.delete_all();
    let checked = server.check();
    assert_eq!(checked.proven.keys, Some(0));
    assert!(checked.compared);
    server.compact(before - 1);
    assert!(server.check().compared, "compacted before the tombstones");
    server.put(b"x", b"");
    let tombstone = server.delete(b"x");
    server.compact(tombstone);
    let mut checked = server.check();
    assert_eq!(checked.proven.keys, Some(0));
    assert_eq!(checked.proven.revision, tombstone);
    // A restart drops the member's cached hash of the compaction.
    server.stop();
    server.launch();
    checked = server.check();
    assert!(checked.compared, "compacted at the last tombstone");
    server.put(b"y", b"");
    assert!(server.check().compared);
}

fn bumped(line: &str) {
    let mut server = Server::start(line, &[]);
    for i in 0..30 {
        server.put(format!("k{}", i % 20).as_bytes(), b"value");
    }
    server.delete(b"k3");
    let first = server.check();
    let mut revision = first.proven.revision;
    let mut path = first.path;
    for round in 0..2 {
        server.restore(&path, 1_000_000);
        // Before a member ran on it.
        let db = std::fs::read(server.db()).unwrap();
        let restored = both_ways(&db);
        assert_eq!(restored.revision, revision + 1_000_000);
        assert_eq!(restored.keys, Some(19 + round));
        assert!(matches!(restored.hash_kv, Err(NoHashKv::Unfinished { .. })), "{:?}", restored.hash_kv);
        assert!(restored.members.len() == 1, "{:?}", restored.members);
        server.launch();
        server.put(b"k1", b"after");
        let checked = server.check();
        assert!(checked.compared);
        assert_eq!(checked.proven.compact_revision, Some(revision + 1_000_000));
        assert_eq!(checked.proven.keys, Some(19 + round));
        server.put(format!("new{round}").as_bytes(), b"");
        revision = server.put(b"k2", b"after");
        server.compact(revision - 1);
        let checked = server.check();
        assert!(checked.compared);
        assert_eq!(checked.proven.keys, Some(20 + round));
        path = checked.path;
    }
    // Only the record of the bump is left.
    server.delete_all();
    assert!(server.check().compared);
    server.restore(&path, 0);
    server.launch();
    assert!(server.check().compared);
}

/// Readable contents at the newest revision: keys, values, and the number of writes of each.
fn live(bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u8>, i64)> {
    let mut live = Vec::new();
    reader(bytes)
        .live(i64::MAX, |record| live.push((record.key.to_vec(), record.value.to_vec(), record.version)))
        .unwrap();
    live.sort();
    live
}

/// Random changes, a compaction between two snapshots, a restore of either with a bump, and the same again from there.
fn restored(line: &str) {
    let mut server = Server::start(line, &[]);
    let mut dice = Dice(seed(line, 4_711));
    let rounds = soak(3, 15);
    let (mut bumped, mut compared) = (0, 0);
    for round in 0..rounds {
        change(&server, &mut dice);
        let before = server.check();
        let (revision, tombstone) = change(&server, &mut dice);
        // At a tombstone, or anywhere since the last bump.
        let at = tombstone.filter(|_| round % 3 == 1);
        let at = at.unwrap_or_else(|| bumped + 1 + dice.below((revision - bumped) as u64) as i64);
        server.compact(at);
        let after = server.check();
        assert_eq!(after.proven.compact_revision, Some(at));
        let bump = 1 + dice.below(2_000_000) as i64;
        let from = if dice.below(2) == 0 { &before } else { &after };
        server.restore(&from.path, bump as u64);
        bumped = from.proven.revision + bump;

        // Before a member runs on it, after its first start, and after more writes.
        let restored = std::fs::read(server.db()).unwrap();
        let proven = both_ways(&restored);
        assert_eq!((proven.revision, proven.keys), (bumped, from.proven.keys));
        assert_eq!(live(&restored), live(&from.bytes));
        server.launch();
        let first = server.check();
        assert_eq!((first.proven.revision, first.proven.compact_revision), (bumped, Some(bumped)));
        assert_eq!((first.proven.keys, live(&first.bytes)), (from.proven.keys, live(&from.bytes)));
        change(&server, &mut dice);
        let later = server.check();
        assert!(later.proven.revision > bumped);
        compared += [&before, &after, &first, &later].into_iter().filter(|checked| checked.compared).count();
    }
    assert!(compared >= 3 * rounds, "{compared} of {}", 4 * rounds);
}

fn contents(line: &str) {
    let mut server = Server::start(line, &[]);
    server.put(b"k", b"v");
    for (id, ttl) in [(5, 600), (77, 3_600), (i64::MAX, 60)] {
        server.post("/v3/lease/grant", &json!({"ID": id.to_string(), "TTL": ttl.to_string()}));
    }
    server.post("/v3/kv/put", &json!({"key": "bQ==", "value": "bQ==", "lease": "77"}));
    let added = server.post(
        "/v3/cluster/member/add",
        &json!({"peerURLs": ["http://127.0.0.1:1", "http://127.0.0.1:2"], "isLearner": true}),
    );
    let gone = added["member"]["ID"].as_str().unwrap().to_owned();
    server.post("/v3/cluster/member/remove", &json!({"ID": gone}));
    let added = server.post("/v3/cluster/member/add", &json!({"peerURLs": ["http://127.0.0.1:3"], "isLearner": true}));
    let learner = added["member"]["ID"].as_str().unwrap().to_owned();
    let me = server.post("/v3/maintenance/status", &json!({}))["header"]["member_id"].as_str().unwrap().to_owned();
    server.post("/v3/maintenance/alarm", &json!({"action": "ACTIVATE", "memberID": me, "alarm": "NOSPACE"}));
    server.post("/v3/maintenance/alarm", &json!({"action": "ACTIVATE", "memberID": learner, "alarm": "CORRUPT"}));
    for user in ["root", "platform_operator", "u3"] {
        server.post("/v3/auth/user/add", &json!({"name": user, "password": "secret"}));
    }
    for role in ["root", "readers"] {
        server.post("/v3/auth/role/add", &json!({"name": role}));
    }
    server.post("/v3/auth/user/grant", &json!({"user": "root", "role": "root"}));
    let proven = server.check().proven;
    assert!(!proven.auth_enabled);
    server.post("/v3/auth/enable", &json!({}));
    server.user = Some("root:secret".to_owned());
    // A member answers HashKV without credentials, but not its status: only the snapshot is compared here.
    let (path, bytes) = server.save();
    let proven = Proven { bytes: proven.bytes, ..both_ways(&bytes) };
    crate::scan::support::compare_with_etcdutl(&path, &proven, &server.bin);
    assert_eq!((proven.auth_enabled, proven.users, proven.roles), (true, 3, 2));
    assert_eq!(proven.first_users, [&b"platform_operator"[..], b"root", b"u3"]);
    let leases: Vec<_> = proven.leases.iter().map(|lease| (lease.id, lease.ttl)).collect();
    assert_eq!(leases, [(5, 600), (77, 3_600), (i64::MAX, 60)]);
    let id = |id: &str| id.parse::<u64>().unwrap();
    assert_eq!(proven.removed_members, [id(&gone)]);
    let member = |wanted: u64| proven.members.iter().find(|member| member.id == wanted).unwrap();
    assert_eq!(
        (member(id(&learner)).learner, member(id(&learner)).peer_urls[0].as_str()),
        (true, "http://127.0.0.1:3")
    );
    assert!(!member(id(&me)).learner && member(id(&me)).client_urls[0].starts_with("http://127.0.0.1:"));
    let mut alarms: Vec<_> = proven.alarms.iter().map(|alarm| (alarm.member, alarm.kind)).collect();
    alarms.sort_unstable_by_key(|alarm| alarm.1);
    assert_eq!(alarms, [(id(&me), 1), (id(&learner), 2)]);
}

fn defragmented(line: &str) {
    let mut server = Server::start(line, &[]);
    let mut dice = Dice(11);
    fill(&server, 3_000, &mut dice);
    let mut revision = 0;
    for i in 0..100 {
        revision = server.delete(format!("/registry/things/{:06}", i * 20).as_bytes());
    }
    server.compact(revision - 30);
    let before = server.check();
    server.ctl(&["defrag"]);
    let after = server.check();
    assert!(before.compared && after.compared);
    assert_eq!(before.proven.hash_kv, after.proven.hash_kv);
    assert!(after.proven.pages < before.proven.pages);
    assert_eq!(scan(&after.bytes, None, 77).unwrap().keys, Some(2_900));
}

/// A slow compaction: the file has it scheduled and not finished.
fn half_compacted(line: &str) {
    let prefix = if minor(line) == "3.5" { "--experimental-" } else { "--" };
    let args = [format!("{prefix}compaction-batch-limit=10"), format!("{prefix}compaction-sleep-interval=500ms")];
    let mut server = Server::start(line, &args.each_ref().map(String::as_str));
    let mut revision = 0;
    for i in 0..300 {
        revision = server.put(format!("k{}", i % 40).as_bytes(), b"value");
    }
    server.post("/v3/kv/compaction", &json!({"revision": (revision - 10).to_string()}));
    std::thread::sleep(Duration::from_millis(300));
    let (_, bytes) = server.save();
    let proven = both_ways(&bytes);
    assert_eq!(proven.hash_kv, Err(NoHashKv::Unfinished { scheduled: revision - 10, finished: -1 }));
    assert!((50..300).contains(&proven.revisions), "{}", proven.revisions);
    assert_eq!(proven.keys, Some(40));
    let live = server.hash_kv(0);
    assert_eq!((live.revision, live.compact_revision), (revision, revision - 10));
    assert_eq!(reader(&bytes).hash_kv(revision, revision - 10), Ok(live), "what is yet to be deleted does not count");
    let begun = Instant::now();
    let finished = loop {
        let (_, bytes) = server.save();
        let found = both_ways(&bytes).hash_kv;
        let unfinished = matches!(found, Err(NoHashKv::Unfinished { .. }));
        if !unfinished || begun.elapsed() > Duration::from_mins(3) {
            break found;
        }
        std::thread::sleep(Duration::from_secs(1));
    };
    assert_eq!(finished, Ok(live));
}

/// A bucket that grew beyond one page and is empty again.
#[test]
fn leases_come_and_go() {
    let mut server = Server::start("3.6", &[]);
    for id in 1..400 {
        server.post("/v3/lease/grant", &json!({"ID": id.to_string(), "TTL": "3600"}));
    }
    assert_eq!(server.check().proven.leases.len(), 399);
    for id in 1..400 {
        server.post("/v3/lease/revoke", &json!({"ID": id.to_string()}));
        if id % 133 == 0 {
            assert_eq!(server.check().proven.leases.len(), 399 - id);
        }
    }
}

macro_rules! lines {
    ($($module:ident $line:literal),*) => {$(
        mod $module {
            #[test]
            fn empty() { super::empty($line); }
            #[test]
            fn one_key() { super::one_key($line); }
            #[test]
            fn many_keys() { super::many_keys($line); }
            #[test]
            fn value_sizes() { super::value_sizes($line); }
            #[test]
            fn history_1() { super::history($line, 1); }
            #[test]
            fn history_2() { super::history($line, 22); }
            #[test]
            fn mass_delete() { super::mass_delete($line); }
            #[test]
            fn bumped() { super::bumped($line); }
            #[test]
            fn restored() { super::restored($line); }
            #[test]
            fn contents() { super::contents($line); }
            #[test]
            fn defragmented() { super::defragmented($line); }
            #[test]
            fn half_compacted() { super::half_compacted($line); }
        }
    )*};
}

lines!(v35 "3.5", v36 "3.6", v37 "3.7", v35_old "3.5.27", v36_old "3.6.11", v37_old "3.7.1");
