//! One bucket, as a folder, with the snapshots of one name; each test adds what makes the answer another one.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::contract::{ExitClass, StoreFlags};

/// Two clusters that were called `shop/orders`.
const OLD: &str = "11111111-0000-4000-8000-000000000001";
const NEW: &str = "22222222-0000-4000-8000-000000000002";

/// A bucket, as a folder.
struct Bucket(TempDir);

impl Bucket {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A complete snapshot of `uid`, taken at this time of the day; its key.
    fn saved(&self, uid: &str, time: &str, revision: i64, more: &Value) -> String {
        let name = format!("20261121T{}Z-99887766-{:08x}", time.replace(':', ""), revision);
        let key = format!("shop/orders/{}/{name}", &uid[..8]);
        let folder = self.0.path().join(&key);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("snapshot.db.zst"), "12345").unwrap();
        let mut manifest = json!({
            "formatVersion": 1, "key": key, "namespace": "shop", "cluster": "orders", "clusterUid": uid, "podUid": "p",
            "clusterId": "cafe", "memberId": "1", "member": "m", "etcdVersion": "3.6.16", "raftTerm": 2,
            "raftAppliedIndex": 3, "dbBytes": 4096, "sha256": format!("{revision:064x}"), "storedBytes": 5,
            "storedSha256": "11".repeat(32), "compression": "zstd", "startedAt": format!("2026-11-21T{time}Z"),
            "endedAt": format!("2026-11-21T{time}Z"), "agentVersion": "0.1.0",
            "contents": {"revision": revision, "revisions": 6, "members": [], "leases": 0, "alarms": 0,
                "authEnabled": false, "users": 0, "roles": 0},
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            manifest[name] = value.clone();
        }
        fs::write(folder.join("manifest.json"), manifest.to_string()).unwrap();
        key
    }

    fn proved(&self, key: &str, name: &str) {
        let folder = self.0.path().join(key).join("proofs");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{name}.json")), "{}").unwrap();
    }

    fn request(&self, lineage: Option<&str>) -> LatestRequest {
        LatestRequest {
            store: StoreFlags { url: format!("file://{}", self.0.path().display()), ..StoreFlags::default() },
            namespace: "shop".to_owned(),
            cluster: "orders".to_owned(),
            lineage: lineage.map(str::to_owned),
            deadline_seconds: 20,
        }
    }

    async fn latest(&self, lineage: Option<&str>) -> Result<LatestReport> {
        run(self.request(lineage)).await
    }

    async fn refused(&self, lineage: Option<&str>) -> (ExitClass, String) {
        let error = self.latest(lineage).await.unwrap_err();
        (error.class(), error.message().to_owned())
    }
}

fn of_etcd(id: &str) -> Value {
    json!({ "clusterId": id })
}

#[tokio::test]
async fn the_time_decides_and_not_the_revision() {
    let bucket = Bucket::new();
    bucket.saved(OLD, "10:00:00", 900, &Value::Null);
    // Another etcd of the same cluster begins where it begins.
    let newest = bucket.saved(OLD, "12:00:00", 30, &of_etcd("beef"));
    bucket.saved(OLD, "11:00:00", 950, &Value::Null);
    let found = bucket.latest(None).await.unwrap();
    assert_eq!((found.key, found.revision, found.sha256), (newest, Some(30), format!("{:064x}", 30)));
    assert_eq!((found.taken_at.as_str(), found.passed_over), ("2026-11-21T12:00:00Z", vec![]));
}

#[tokio::test]
async fn a_revision_that_falls_is_a_doubt() {
    let bucket = Bucket::new();
    let full = bucket.saved(OLD, "10:00:00", 900, &Value::Null);
    // The clock of a node was ahead, or an etcd was made anew under the same identity.
    let empty = bucket.saved(OLD, "11:00:00", 3, &Value::Null);
    let (class, message) = bucket.refused(None).await;
    assert_eq!(class, ExitClass::Refused);
    assert!(message.contains(&format!("{empty} was taken after {full}, and has a lower revision")), "{message}");
}

#[tokio::test]
async fn what_cannot_be_restored_is_passed_over_and_told() {
    let bucket = Bucket::new();
    let good = bucket.saved(OLD, "10:00:00", 9, &Value::Null);
    let older = bucket.saved(OLD, "09:00:00", 8, &json!({"storedBytes": 6}));
    let cut = bucket.saved(OLD, "11:00:00", 10, &json!({"storedBytes": 6}));
    let lies = bucket.saved(OLD, "12:00:00", 11, &Value::Null);
    bucket.proved(&lies, "20261121T120500.000Z-drill");
    bucket.proved(&lies, "20261121T130500.000Z-drill-failed");
    // That its bytes are right does not make etcd start on them.
    bucket.proved(&lies, "20261121T140500.000Z-stored");
    // Under way, or dead.
    fs::create_dir_all(bucket.0.path().join("shop/orders/11111111/20261121T130000Z-99887766-aaaaaaaa")).unwrap();
    // Put here by somebody: it speaks of another place, or of another cluster.
    bucket.saved(OLD, "14:00:00", 12, &json!({"key": "shop/orders/33333333/20261121T140000Z-99887766-00000000"}));
    bucket.saved(OLD, "15:00:00", 13, &json!({"cluster": "payments"}));

    let found = bucket.latest(None).await.unwrap();
    assert_eq!(found.key, good);
    let told = found.passed_over.join("\n");
    let wanted = ["another cluster", "under way, or died", "drill verification failed", "its manifest says 6"];
    let places: Vec<_> = wanted.iter().map(|words| told.find(words)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "the newest first: {told}");
    assert!(told.contains(&cut) && !told.contains(&older), "{told}");

    bucket.proved(&good, "20261121T140000.000Z-stored-failed");
    let (class, message) = bucket.refused(None).await;
    assert_eq!(class, ExitClass::Corrupt);
    assert!(message.contains("no snapshot below") && message.contains("stored verification failed"), "{message}");
    bucket.proved(&good, "20261121T150000.000Z-drill");
    assert_eq!(bucket.latest(None).await.unwrap().key, good, "more than what had failed has passed since");
}

#[tokio::test]
async fn an_empty_store_is_never_an_empty_cluster() {
    let bucket = Bucket::new();
    assert_eq!(bucket.refused(None).await.0, ExitClass::NotFound);
    bucket.saved(OLD, "10:00:00", 9, &json!({"storedBytes": 6}));
    let (class, message) = bucket.refused(None).await;
    assert_eq!(class, ExitClass::Corrupt);
    assert!(message.contains("its manifest says 6"), "{message}");
    bucket.saved(OLD, "11:00:00", 10, &Value::Null);
    assert_eq!(bucket.latest(None).await.unwrap().revision, Some(10));
    let (class, message) = bucket.refused(Some("ffffffff")).await;
    assert_eq!(class, ExitClass::NotFound);
    assert!(message.contains("no complete snapshot of ffffffff is below"), "{message}");
}

#[tokio::test]
async fn what_a_later_version_wrote_is_no_reason_for_an_older_one() {
    let bucket = Bucket::new();
    bucket.saved(OLD, "10:00:00", 9, &Value::Null);
    bucket.saved(OLD, "11:00:00", 10, &json!({"formatVersion": 2}));
    assert_eq!(bucket.refused(None).await.0, ExitClass::Config);
}

#[tokio::test]
async fn a_cluster_that_was_made_anew_hides_nothing() {
    let bucket = Bucket::new();
    let lost = bucket.saved(OLD, "10:00:00", 5_000_000, &Value::Null);
    let empty = bucket.saved(NEW, "11:00:00", 1, &of_etcd("beef"));
    let (class, message) = bucket.refused(None).await;
    assert_eq!(class, ExitClass::Refused);
    let newest = "22222222 (1 saved, the newest on 2026-11-21T11:00:00Z at revision 1)";
    for told in ["2 clusters", newest, "11111111 (1 saved,", "latest.lineage"] {
        assert!(message.contains(told), "{message}");
    }
    for (lineage, key) in [(&OLD[..8], &lost), (OLD, &lost), (NEW, &empty), ("22222222", &empty)] {
        assert_eq!(bucket.latest(Some(lineage)).await.unwrap().key, *key, "{lineage}");
    }
    // The same eight characters, and another cluster.
    let stranger = format!("{}-ffff-4000-8000-000000000002", &NEW[..8]);
    assert_eq!(bucket.refused(Some(&stranger)).await.0, ExitClass::NotFound);
}

#[tokio::test]
async fn what_is_lost_is_no_reason_to_take_what_is_there() {
    let bucket = Bucket::new();
    bucket.saved(OLD, "10:00:00", 5_000_000, &json!({"storedBytes": 6}));
    bucket.saved(NEW, "11:00:00", 1, &of_etcd("beef"));
    let (class, message) = bucket.refused(None).await;
    assert_eq!(class, ExitClass::Refused);
    assert!(message.contains("11111111 (1 saved, none of which can be restored)"), "{message}");
}

#[tokio::test]
async fn what_a_cluster_was_restored_from_is_its_own_past() {
    let bucket = Bucket::new();
    let first = bucket.saved(OLD, "10:00:00", 900, &Value::Null);
    let second = bucket.saved(NEW, "12:00:00", 901, &json!({"restoredFrom": first, "clusterId": "beef"}));
    assert_eq!(bucket.latest(None).await.unwrap().key, second);
    // And its past in turn.
    let third_uid = "33333333-0000-4000-8000-000000000003";
    let third = bucket.saved(third_uid, "14:00:00", 902, &json!({"restoredFrom": second, "clusterId": "feed"}));
    assert_eq!(bucket.latest(None).await.unwrap().key, third);
    assert_eq!(bucket.latest(Some(OLD)).await.unwrap().key, first);

    // The first one had saved more before it was gone, or lives on: neither is the other one's past.
    bucket.saved(OLD, "11:30:00", 950, &Value::Null);
    let (class, message) = bucket.refused(None).await;
    assert_eq!(class, ExitClass::Refused);
    let told = |words: &str| message.contains(words);
    assert!(told("33333333 (1 ") && told("11111111 (2 ") && !told("22222222"), "{message}");
}

#[tokio::test]
async fn ten_thousand_older_ones_need_not_be_looked_at() {
    let bucket = Bucket::new();
    let newest = bucket.saved(OLD, "12:00:00", 900, &Value::Null);
    for second in 0..60_i64 {
        bucket.saved(OLD, &format!("11:00:{second:02}"), 100 + second, &Value::Null);
    }
    // So old that nobody reads it.
    bucket.saved(OLD, "01:00:00", 1, &json!({"formatVersion": 2}));
    assert_eq!(bucket.latest(None).await.unwrap().key, newest);
}

#[tokio::test]
async fn however_many_there_are_the_newest_is_found() {
    let bucket = Bucket::new();
    for minute in 0..40_i64 {
        bucket.saved(OLD, &format!("11:{minute:02}:00"), 100 + minute, &Value::Null);
    }
    let newest = bucket.saved(OLD, "12:00:00", 900, &Value::Null);
    let lineage = bucket.0.path().join(&newest).parent().unwrap().to_owned();
    for number in 0..10_001 {
        fs::create_dir(lineage.join(format!("20200101T000000Z-99887766-{number:08x}"))).unwrap();
    }
    assert_eq!(bucket.latest(None).await.unwrap().key, newest);
}

#[tokio::test]
async fn what_was_saved_before_many_that_died_is_found() {
    let bucket = Bucket::new();
    let whole = bucket.saved(OLD, "10:00:00", 9, &Value::Null);
    let lineage = bucket.0.path().join(&whole).parent().unwrap().to_owned();
    for second in 10..17 {
        fs::create_dir(lineage.join(format!("20261121T1100{second}Z-99887766-aaaaaaaa"))).unwrap();
        fs::create_dir(lineage.join(format!("20261121T0900{second}Z-99887766-aaaaaaaa"))).unwrap();
    }
    let request = bucket.request(None);
    let store = Store::open(&request.store).unwrap();
    // Whether the names that are kept end before it, with it, after it, or are all there are.
    for names in [1, 2, 3, 7, 8, 15, 100] {
        let folder = Folder::parse("key", "shop/orders/11111111").unwrap();
        let told = Lineage::seen_by(&store, folder, &request, names).await.unwrap().told();
        assert_eq!(told, "11111111 (15 saved, the newest on 2026-11-21T10:00:00Z at revision 9)", "{names}");
    }
}

#[tokio::test]
async fn what_was_saved_by_hand_is_of_the_same_etcd_or_named_by_its_folder() {
    let by_hand = |bucket: &Bucket, id: &str| {
        let name = format!("etcd-{id:0>16}");
        let key = format!("shop/orders/{name}/20261121T120000Z-byhand-abcdef01");
        let there = bucket.saved(NEW, "12:00:00", 70, &json!({"key": key, "clusterUid": null, "clusterId": id}));
        let (from, to) = (bucket.0.path().join(there), bucket.0.path().join(&key));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::rename(from, to).unwrap();
        (name, key)
    };
    let bucket = Bucket::new();
    bucket.saved(OLD, "10:00:00", 9, &Value::Null);
    let (_, key) = by_hand(&bucket, "cafe");
    assert_eq!(bucket.latest(None).await.unwrap().key, key, "the same etcd");

    let bucket = Bucket::new();
    let scheduled = bucket.saved(OLD, "10:00:00", 9, &Value::Null);
    let (name, key) = by_hand(&bucket, "beef");
    assert_eq!(bucket.refused(None).await.0, ExitClass::Refused);
    assert_eq!(bucket.latest(Some(&name)).await.unwrap().key, key);
    assert_eq!(bucket.latest(Some(OLD)).await.unwrap().key, scheduled);
}
