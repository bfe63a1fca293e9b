//! The merge beside real etcd: at each revision of a random history, an etcd on the merged database answers as the live one
//! did then.
//!
//! The test records the history by its own watch, as an archiver does.

#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "tests know their numbers")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use etcd_client::{
    Client, DeleteOptions, EventType, LeaseGrantOptions, LeaseTimeToLiveOptions, PutOptions, Txn, TxnOp, WatchOptions,
    WatchStream,
};
use holdfast_bbolt::merge::{Merge, Merged};
use holdfast_bbolt::scan::{HashKv, Proven};
use holdfast_segment::{KeyValue, Record};
use sha2::{Digest, Sha256};

use crate::scan::support::seed::seed;
use crate::server::{BUDGET, Dice, Server, both_ways, folder, reader, run};
use crate::soak::soak;
use crate::support::{eventually, free_port, noise};

/// Flags of members that elect themselves at once.
const QUICK: [&str; 2] = ["--heartbeat-interval=10", "--election-timeout=100"];

/// Histories between two compactions, each with a base.
const PHASES: u64 = 3;

/// A record of the watch.
struct Recorded {
    main: i64,
    sub: i64,
    tombstone: bool,
    value: Vec<u8>,
    lease: i64,
}

/// Returns etcd's value in the bucket `key`.
fn stored(kv: &etcd_client::KeyValue, tombstone: bool) -> Vec<u8> {
    let key = kv.key();
    let mut record = KeyValue { key, ..KeyValue::default() };
    if !tombstone {
        let (create_revision, mod_revision, version) = (kv.create_revision(), kv.mod_revision(), kv.version());
        record = KeyValue { key, create_revision, mod_revision, version, value: kv.value(), lease: kv.lease() };
    }
    let mut out = Vec::new();
    record.encode(&mut out);
    out
}

/// A live etcd under load, and the record of its history.
struct Live {
    server: Server,
    client: Client,
    watch: WatchStream,
    dice: Dice,
    records: Vec<Recorded>,
    /// Time to live of every lease that was ever granted.
    granted: BTreeMap<i64, i64>,
    /// Leases that are not revoked.
    leases: BTreeSet<i64>,
    revision: i64,
}

async fn client_of(server: &Server) -> Client {
    let url = server.endpoint().replace("--endpoints=", "http://");
    Client::connect([url], None).await.unwrap()
}

impl Live {
    async fn start(line: &str, seed: u64) -> Self {
        let server = Server::start(line, &QUICK);
        let mut client = client_of(&server).await;
        let all = WatchOptions::new().with_all_keys().with_start_revision(1);
        let watch = client.watch("", Some(all)).await.unwrap();
        let (records, granted, leases) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        Self { server, client, watch, dice: Dice(seed), records, granted, leases, revision: 1 }
    }

    fn key(&mut self) -> String {
        format!("/registry/{}/{:02}", self.dice.below(3), self.dice.below(40))
    }

    fn put(&mut self) -> (String, Vec<u8>, PutOptions) {
        let length = match self.dice.below(20) {
            0 => self.dice.below(60_000),
            1 => 0,
            _ => self.dice.below(400),
        };
        let value = noise(self.dice.below(1_000), length as usize);
        let at = self.dice.below(self.leases.len() as u64 * 3 + 1) as usize;
        let lease = self.leases.iter().nth(at).copied();
        let options = lease.map_or_else(PutOptions::new, |lease| PutOptions::new().with_lease(lease));
        (self.key(), value, options)
    }

    /// Changes something, or tries to.
    async fn step(&mut self) {
        let header = match self.dice.below(20) {
            0 => {
                let ttl = 600 + self.dice.below(9_000) as i64;
                let id = 1 + self.dice.below(1 << 40) as i64;
                self.client.lease_grant(ttl, Some(LeaseGrantOptions::new().with_id(id))).await.unwrap();
                self.granted.insert(id, ttl);
                self.leases.insert(id);
                None
            }
            1 if self.leases.len() > 3 => {
                let at = self.dice.below(self.leases.len() as u64) as usize;
                let id = self.leases.iter().nth(at).copied().unwrap();
                self.leases.remove(&id);
                self.client.lease_revoke(id).await.unwrap().header().cloned()
            }
            2 => {
                let key = self.key();
                let prefix = DeleteOptions::new().with_prefix();
                self.client.delete(&key[..key.len() - 1], Some(prefix)).await.unwrap().header().cloned()
            }
            3..6 => {
                let key = self.key();
                self.client.delete(key, None).await.unwrap().header().cloned()
            }
            6..12 => {
                let mut ops = BTreeMap::new();
                for _ in 0..=self.dice.below(8) {
                    let (key, value, options) = self.put();
                    let op = match self.dice.below(4) {
                        0 => TxnOp::delete(key.clone(), None),
                        _ => TxnOp::put(key.clone(), value, Some(options)),
                    };
                    ops.insert(key, op);
                }
                let txn = Txn::new().and_then(ops.into_values().collect::<Vec<_>>());
                self.client.txn(txn).await.unwrap().header().cloned()
            }
            _ => {
                let (key, value, options) = self.put();
                self.client.put(key, value, Some(options)).await.unwrap().header().cloned()
            }
        };
        self.revision = header.map_or(self.revision, |header| header.revision());
    }

    /// Asks the live etcd for the hash of its key space.
    async fn hash(&mut self) -> HashKv {
        let answer = self.client.hash_kv(self.revision).await.unwrap();
        HashKv { hash: answer.hash(), revision: self.revision, compact_revision: answer.compact_version() }
    }

    /// Reads the watch up to the present revision.
    async fn record(&mut self) {
        while self.records.last().map_or(1, |record| record.main) < self.revision {
            let answer = self.watch.message().await.unwrap().expect("the watch goes on");
            assert!(!answer.canceled(), "{}", answer.cancel_reason());
            for event in answer.events() {
                let kv = event.kv().unwrap();
                let (main, tombstone) = (kv.mod_revision(), event.event_type() == EventType::Delete);
                let before = self.records.last().filter(|before| before.main == main);
                let sub = before.map_or(0, |before| before.sub + 1);
                self.records.push(Recorded { main, sub, tombstone, value: stored(kv, tombstone), lease: kv.lease() });
            }
        }
    }
}

/// A snapshot of the live etcd, and its later answers under the same compaction.
struct Base {
    bytes: Vec<u8>,
    revision: i64,
    hashes: BTreeMap<i64, HashKv>,
}

/// Loads an etcd, and takes a base after each compaction.
async fn histories(line: &str, seed: u64, points: u64) -> (Live, Vec<Base>) {
    let mut live = Live::start(line, seed).await;
    let mut bases = Vec::new();
    for phase in 0..PHASES {
        for _ in 0..60 {
            live.step().await;
        }
        if phase > 0 {
            live.server.compact(live.revision - live.dice.below(30) as i64);
        }
        // An etcd that is idle after a compaction answers with an older hash.
        live.revision = live.client.put("after", "", None).await.unwrap().header().unwrap().revision();
        let (_, bytes) = live.server.save();
        let revision = both_ways(&bytes).revision;
        assert_eq!(revision, live.revision);
        let mut hashes = BTreeMap::new();
        while (hashes.len() as u64) < points / PHASES {
            live.step().await;
            if live.revision > revision {
                hashes.insert(live.revision, live.hash().await);
            }
        }
        live.record().await;
        bases.push(Base { bytes, revision, hashes });
    }
    (live, bases)
}

impl Base {
    /// Merges the live etcd's records up to a revision, in segments of so many records.
    fn merged(&self, live: &Live, until: i64, segment: usize) -> Vec<u8> {
        let mut merge = Merge::begin(&self.bytes[..], self.bytes.len() as u64, until, BUDGET).unwrap();
        let mut out = Vec::new();
        // A segment ends between revisions.
        let mut rest = &live.records[..];
        while !rest.is_empty() {
            let end = rest.iter().skip(segment).position(|record| record.sub == 0);
            let (these, more) = rest.split_at(end.map_or(rest.len(), |end| segment + end));
            for Recorded { main, sub, tombstone, value, .. } in these {
                let record = Record { main: *main, sub: *sub, tombstone: *tombstone, value };
                merge.add(&record, &mut out).unwrap();
            }
            let leases: BTreeSet<i64> = these.iter().map(|record| record.lease).filter(|lease| *lease != 0).collect();
            for lease in leases {
                merge.add_lease(lease, live.granted[&lease]).unwrap();
            }
            merge.end_segment();
            rest = more;
        }
        let merged = merge.finish(&mut out).unwrap();
        assert_eq!(merged.unknown_ttls, [] as [i64; 0]);
        placed(&self.bytes, &out, &merged)
    }
}

/// Returns the merged database.
fn placed(base: &[u8], out: &[u8], merged: &Merged) -> Vec<u8> {
    let mut bytes = [&base[..merged.bytes as usize - out.len()], out].concat();
    let size = merged.metas[0].bytes.len();
    for page in &merged.metas {
        bytes[page.id as usize * size..][..size].copy_from_slice(&page.bytes);
    }
    bytes
}

/// Starts an etcd on a database, after etcdutl has restored it.
fn started(line: &str, database: &[u8], folder_of_data: &Path) -> Server {
    let snapshot = folder_of_data.join("merged.db");
    fs::write(&snapshot, [database, &Sha256::digest(database)].concat()).unwrap();
    let (data, peer) = (folder_of_data.join("data"), free_port());
    let url = format!("http://127.0.0.1:{peer}");
    let args = [
        "snapshot",
        "restore",
        snapshot.to_str().unwrap(),
        "--name=m1",
        &format!("--initial-cluster=m1={url}"),
        &format!("--initial-advertise-peer-urls={url}"),
        &format!("--data-dir={}", data.display()),
    ];
    run(&folder(line).join("etcdutl"), &args).unwrap();
    Server::on(line, &data, peer, None, &QUICK)
}

/// Every key with a lease has its lease, with the time to live of its grant.
async fn check_leases(server: &Server, live: &Live) {
    let mut client = client_of(server).await;
    let all = etcd_client::GetOptions::new().with_all_keys().with_keys_only();
    let keys = client.get("", Some(all)).await.unwrap();
    let mut bound: BTreeMap<i64, BTreeSet<Vec<u8>>> = BTreeMap::new();
    for kv in keys.kvs().iter().filter(|kv| kv.lease() != 0) {
        bound.entry(kv.lease()).or_default().insert(kv.key().to_vec());
    }
    for (lease, keys) in &bound {
        let asked = Some(LeaseTimeToLiveOptions::new().with_keys());
        let answer = client.lease_time_to_live(*lease, asked).await.unwrap();
        assert_eq!(answer.granted_ttl(), live.granted[lease], "lease {lease}");
        assert_eq!(&answer.keys().iter().cloned().collect::<BTreeSet<_>>(), keys, "lease {lease}");
    }
}

/// Every key with a lease has its lease in the database, with the time to live of its grant; returns the number of leases.
fn bound_leases(bytes: &[u8], proven: &Proven, live: &Live) -> usize {
    let found: BTreeMap<i64, i64> = proven.leases.iter().map(|lease| (lease.id, lease.ttl)).collect();
    let keys = keys_of(bytes, proven.revision);
    let bound: BTreeSet<i64> = keys.values().map(|(_, lease)| *lease).filter(|lease| *lease != 0).collect();
    for lease in &bound {
        assert_eq!(found.get(lease), live.granted.get(lease), "lease {lease} at {}", proven.revision);
    }
    bound.len()
}

/// The merged database equals the live etcd's at each point; an etcd starts on some of them.
async fn points_of(line: &str) {
    let seed = seed(&format!("points of {line}"), 11);
    let (points, starts) = soak((60, 3), (334, 334));
    let (live, bases) = histories(line, seed, points).await;
    let mut dice = Dice(seed);
    let (mut compared, mut asked, mut leases) = (0, 0, 0);
    for (n, base) in bases.iter().enumerate() {
        for (until, hash) in &base.hashes {
            let what = format!("etcd {line}, revision {until} from the base at {}", base.revision);
            let segment = 1 + dice.below(200) as usize;
            let bytes = base.merged(&live, *until, segment);
            let proven = both_ways(&bytes);
            assert_eq!(proven.hash_kv, Ok(*hash), "{what}");
            // An older base has another compaction, and the same keys.
            if let Some(older) = n.checked_sub(1).and_then(|older| bases.get(older)) {
                let from_older = older.merged(&live, *until, segment);
                assert!(keys_of(&from_older, *until) == keys_of(&bytes, *until), "{what}");
            }
            leases += bound_leases(&bytes, &proven, &live);
            if compared * starts / points >= asked {
                let data = tempfile::tempdir().unwrap();
                let server = started(line, &bytes, data.path());
                assert_eq!(server.hash_kv(0), *hash, "{what}");
                check_leases(&server, &live).await;
                asked += 1;
            }
            compared += 1;
        }
    }
    assert!(leases > 0, "no lease was compared");
    println!("etcd {line}: {compared} revisions compared, {asked} etcds started, {leases} leases");
}

/// Keys that exist, with their values and leases.
fn keys_of(bytes: &[u8], revision: i64) -> BTreeMap<Vec<u8>, (Vec<u8>, i64)> {
    let mut found = BTreeMap::new();
    let keep = |record: holdfast_bbolt::scan::Record<'_>| {
        found.insert(record.key.to_vec(), (record.value.to_vec(), record.lease));
    };
    reader(bytes).live(revision, keep).unwrap();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_points_of_3_5() {
    points_of("3.5").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_points_of_3_6() {
    points_of("3.6").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_points_of_3_7() {
    points_of("3.7").await;
}

/// A lease that the base does not know ends, and its key with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_merged_lease_expires() {
    let mut live = Live::start("3.6", 1).await;
    let (_, bytes) = live.server.save();
    let base = Base { revision: 1, bytes, hashes: BTreeMap::new() };
    live.client.lease_grant(2, Some(LeaseGrantOptions::new().with_id(7))).await.unwrap();
    live.granted.insert(7, 2);
    for (key, options) in [("short", Some(PutOptions::new().with_lease(7))), ("kept", None)] {
        live.revision = live.client.put(key, "v", options).await.unwrap().header().unwrap().revision();
    }
    live.record().await;
    let data = tempfile::tempdir().unwrap();
    let server = started("3.6", &base.merged(&live, 3, 9), data.path());
    let mut client = client_of(&server).await;
    assert_eq!(client.get("kept", None).await.unwrap().count(), 1);
    eventually("the end of the key with the lease", async || {
        (client.get("short", None).await.ok()?.count() == 0).then_some(())
    })
    .await;
    assert_eq!(client.get("kept", None).await.unwrap().count(), 1);
}
