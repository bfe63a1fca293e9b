//! One bucket, as a folder, with the snapshots of one name; each test adds the objects that change the answer.

use std::fs;

use crate::sample;
use holdfast_contract::{ExitClass, StoreFlags};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

/// Two clusters with the name `shop/orders`.
const OLD: &str = "11111111-0000-4000-8000-000000000001";
const NEW: &str = "22222222-0000-4000-8000-000000000002";

/// A bucket, as a folder.
struct Bucket(TempDir);

impl Bucket {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes a complete snapshot of `uid`, taken at this time of the day. Returns its key.
    fn saved(&self, uid: &str, time: &str, revision: i64, more: &Value) -> String {
        self.saved_on("2026-11-21", uid, time, revision, more)
    }

    fn saved_on(&self, day: &str, uid: &str, time: &str, revision: i64, more: &Value) -> String {
        let name = format!("{}T{}Z-99887766-{revision:08x}", day.replace('-', ""), time.replace(':', ""));
        let key = format!("shop/orders/{}/{name}", &uid[..8]);
        let at = format!("{day}T{time}Z");
        let manifest = json!({
            "clusterUid": uid, "sha256": format!("{revision:064x}"), "startedAt": at, "endedAt": at,
            "contents": {"revision": revision, "revisions": 6, "members": [], "leases": 0, "alarms": 0,
                "authEnabled": false, "users": 0, "roles": 0},
        });
        let manifest = sample::but(sample::but(sample::manifest(&key), &manifest), more);
        sample::put(self.0.path(), &key, &manifest);
        key
    }

    /// Writes a complete snapshot that was saved by hand, of the etcd with this ID. Returns the name of its lineage, and its
    /// key.
    fn by_hand(&self, id: &str, time: &str, revision: i64, more: &Value) -> (String, String) {
        let name = format!("etcd-{id:0>16}");
        let key = format!("shop/orders/{name}/20261121T{}Z-byhand-abcdef01", time.replace(':', ""));
        let manifest = sample::but(json!({"key": key, "clusterUid": null, "clusterId": id}), more);
        let there = self.saved(NEW, time, revision, &manifest);
        let (from, to) = (self.0.path().join(there), self.0.path().join(&key));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::rename(from, to).unwrap();
        (name, key)
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
            ..LatestRequest::default()
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

fn until(time: &str) -> Value {
    json!({ "endedAt": format!("2026-11-21T{time}Z") })
}

/// Times in a manifest, independent of the folder's name.
fn taken_at(time: &str) -> Value {
    let at = format!("2026-11-21T{time}Z");
    json!({ "startedAt": at, "endedAt": at })
}

fn of_a_later_version() -> Value {
    json!({ "formatVersion": 2 })
}

/// A clock was ahead: many such snapshots may hide all saves since its correction.
#[tokio::test]
async fn what_was_taken_in_a_time_to_come_is_a_doubt() {
    let bucket = Bucket::new();
    bucket.saved(OLD, "10:00:00", 10, &Value::Null);
    let ahead = bucket.saved_on("2190-01-01", OLD, "10:00:00", 20, &Value::Null);
    let (class, said) = bucket.refused(None).await;
    assert_eq!(class, ExitClass::Refused, "{said}");
    for part in [ahead.as_str(), "in the future", "bootstrap.restore.source"] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
}

#[tokio::test]
async fn the_time_decides_and_not_the_revision() {
    let bucket = Bucket::new();
    bucket.saved(OLD, "10:00:00", 900, &Value::Null);
    // Another etcd of the same cluster has its own revisions.
    let newest = bucket.saved(OLD, "12:00:00", 30, &of_etcd("beef"));
    bucket.saved(OLD, "11:00:00", 950, &Value::Null);
    let found = bucket.latest(None).await.unwrap();
    assert_eq!((found.key, found.revision, found.sha256), (newest, Some(30), format!("{:064x}", 30)));
    assert_eq!((found.taken_at.as_str(), found.passed_over), ("2026-11-21T12:00:00Z", vec![]));
}

#[tokio::test]
async fn the_time_in_the_manifest_decides_and_not_the_folders_name() {
    let bucket = Bucket::new();
    let newest = bucket.saved(OLD, "10:00:00", 903, &taken_at("12:00:00"));
    let middle = bucket.saved(OLD, "11:00:00", 902, &taken_at("11:00:00"));
    bucket.saved(OLD, "12:00:00", 901, &taken_at("10:00:00"));
    let found = bucket.latest(None).await.unwrap();
    assert_eq!((&found.key, found.revision), (&newest, Some(903)));
    assert_eq!(found.taken_at, "2026-11-21T12:00:00Z");
    bucket.proved(&newest, "20261121T130000.000Z-stored-failed");
    assert_eq!(bucket.latest(None).await.unwrap().key, middle, "nor does it when that one is passed over");
}

/// Nobody wrote to it between the two saves, so no revision tells which was the last.
#[tokio::test]
async fn what_was_saved_since_is_told_by_its_manifest_and_not_by_its_folders_name() {
    for (from_the_last, times) in [(false, ["12:00:00", "10:00:00"]), (true, ["10:00:00", "12:00:00"])] {
        let bucket = Bucket::new();
        bucket.saved(OLD, "10:00:00", 901, &taken_at(times[0]));
        let from = bucket.saved(OLD, "12:00:00", 901, &taken_at(times[1]));
        let copy = bucket.saved(NEW, "13:00:00", 902, &json!({"restoredFrom": from, "clusterId": "beef"}));
        match bucket.latest(None).await {
            Ok(found) => assert!(from_the_last && found.key == copy, "{found:?}"),
            Err(error) => assert!(!from_the_last && error.class() == ExitClass::Refused, "{error:?}"),
        }
    }
}

#[tokio::test]
async fn a_revision_that_falls_is_a_doubt() {
    let bucket = Bucket::new();
    let full = bucket.saved(OLD, "10:00:00", 900, &Value::Null);
    // The clock of a node was ahead, or an etcd was recreated under the same identity.
    let empty = bucket.saved(OLD, "11:00:00", 3, &Value::Null);
    let (class, message) = bucket.refused(None).await;
    assert_eq!(class, ExitClass::Refused);
    assert!(message.contains(&format!("{empty} was taken after {full}, and has a lower revision")), "{message}");
}

/// A manifest holds the time of the save's start, and the stream is opened seconds later.
#[tokio::test]
async fn of_saves_that_overlap_the_higher_revision_is_the_newer_one() {
    let bucket = Bucket::new();
    let higher = bucket.saved(OLD, "10:00:00", 901, &until("10:00:09"));
    let lower = bucket.saved(OLD, "10:00:01", 900, &until("10:00:08"));
    assert_eq!(bucket.latest(None).await.unwrap().key, higher);

    // What a cluster was restored from is its past only if that was the last.
    for (from, lost) in [(&higher, false), (&lower, true)] {
        let restored = bucket.saved(NEW, "12:00:00", 902, &json!({"restoredFrom": from, "clusterId": "beef"}));
        match bucket.latest(None).await {
            Ok(found) => assert!(found.key == restored && !lost, "{found:?}"),
            Err(error) => {
                let newest = "11111111 (2 saved, the newest on 2026-11-21T10:00:00Z at revision 901)";
                assert!(lost && error.message().contains(newest), "{error:?}");
            }
        }
    }
    fs::remove_dir_all(bucket.0.path().join("shop/orders/22222222")).unwrap();

    // It is told although it began before the one that is taken in its place.
    bucket.proved(&higher, "20261121T110000.000Z-stored-failed");
    let found = bucket.latest(None).await.unwrap();
    assert_eq!(found.key, lower);
    assert!(found.passed_over.len() == 1 && found.passed_over[0].starts_with(&higher), "{found:?}");

    // The earlier save had ended when this save began: no order of the streams explains the lower revision.
    let fallen = bucket.saved(OLD, "10:00:09", 899, &until("10:00:20"));
    let (class, message) = bucket.refused(None).await;
    assert_eq!(class, ExitClass::Refused);
    assert!(message.contains(&format!("{fallen} was taken after {lower}")), "{message}");
}

#[tokio::test]
async fn a_revision_that_falls_is_a_doubt_below_what_is_passed_over_too() {
    let bucket = Bucket::new();
    let full = bucket.saved(OLD, "10:00:00", 900, &Value::Null);
    let empty = bucket.saved(OLD, "11:00:00", 3, &Value::Null);
    let lies = bucket.saved(OLD, "12:00:00", 1_000, &Value::Null);
    assert_eq!(bucket.latest(None).await.unwrap().key, lies, "what is higher than all of them is no doubt");
    let doubt = format!("{empty} was taken after {full}, and has a lower revision: an etcd was created again");
    bucket.proved(&lies, "20261121T120500.000Z-drill-failed");
    let (class, message) = bucket.refused(None).await;
    assert!(class == ExitClass::Refused && message.contains(&doubt), "{message}");
    // The doubt stays when the lower snapshot cannot be restored either.
    bucket.proved(&empty, "20261121T120500.000Z-drill-failed");
    let (class, message) = bucket.refused(None).await;
    assert!(class == ExitClass::Refused && message.contains(&doubt), "{message}");
}

/// A fault in a member has made every drill fail for days.
#[tokio::test]
async fn however_many_cannot_be_restored_an_older_one_that_can_is_found() {
    let bucket = Bucket::new();
    let good = bucket.saved(OLD, "09:00:00", 9, &Value::Null);
    for revision in 10..90 {
        let lies = bucket.saved(OLD, &format!("10:{:02}:{:02}", revision / 60, revision % 60), revision, &Value::Null);
        bucket.proved(&lies, "20261121T160500.000Z-drill-failed");
    }
    assert_eq!(bucket.latest(None).await.unwrap().key, good);
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
    // Right bytes do not prove that etcd starts on them.
    bucket.proved(&lies, "20261121T140500.000Z-stored");
    // A running or dead save.
    fs::create_dir_all(bucket.0.path().join("shop/orders/11111111/20261121T130000Z-99887766-aaaaaaaa")).unwrap();
    // Snapshots that were moved here: their manifests name another folder or another cluster.
    bucket.saved(OLD, "14:00:00", 12, &json!({"key": "shop/orders/33333333/20261121T140000Z-99887766-00000000"}));
    bucket.saved(OLD, "15:00:00", 13, &json!({"cluster": "payments"}));

    let found = bucket.latest(None).await.unwrap();
    assert_eq!(found.key, good);
    let told = found.passed_over.join("\n");
    let wanted = ["another cluster", "is running or has died", "drill verification failed", "its manifest says 6"];
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

/// A restore under a new name asks for snapshots of the new name, and does not name the old cluster.
#[tokio::test]
async fn a_name_without_snapshots_says_which_names_have_some() {
    let bucket = Bucket::new();
    let of_house = async || {
        let request = LatestRequest { cluster: "house".to_owned(), ..bucket.request(None) };
        let error = run(request).await.unwrap_err();
        (error.class(), error.message().to_owned())
    };
    let (class, message) = of_house().await;
    assert_eq!(class, ExitClass::NotFound);
    assert!(message.contains("no cluster of the namespace shop has any there"), "{message}");
    bucket.saved(OLD, "10:00:00", 9, &Value::Null);
    let (class, message) = of_house().await;
    assert_eq!(class, ExitClass::NotFound);
    assert!(message.contains("the store has snapshots of orders. Set latest.cluster"), "{message}");
}

#[tokio::test]
async fn what_a_later_version_wrote_is_no_reason_for_an_older_one() {
    let bucket = Bucket::new();
    bucket.saved(OLD, "10:00:00", 9, &Value::Null);
    bucket.saved(OLD, "11:00:00", 10, &json!({"formatVersion": 2}));
    assert_eq!(bucket.refused(None).await.0, ExitClass::Config);
}

#[tokio::test]
async fn who_names_a_lineage_is_not_stopped_by_what_a_later_version_wrote_of_another() {
    let bucket = Bucket::new();
    let mine = bucket.saved(OLD, "10:00:00", 9, &Value::Null);
    bucket.saved(NEW, "11:00:00", 10, &of_a_later_version());
    let (other, _) = bucket.by_hand("feed", "12:00:00", 11, &of_a_later_version());
    for lineage in [OLD, &OLD[..8]] {
        assert_eq!(bucket.latest(Some(lineage)).await.unwrap().key, mine, "{lineage}");
    }
    // It may be the newest of all, and where it is named it is.
    for lineage in [None, Some(NEW), Some(other.as_str())] {
        let (class, message) = bucket.refused(lineage).await;
        assert!(class == ExitClass::Config && message.contains("has format 2"), "{lineage:?}: {message}");
    }
    // Saved by hand, and of the very etcd: the name of its folder says so.
    let (same, _) = bucket.by_hand("cafe", "13:00:00", 12, &of_a_later_version());
    for lineage in [OLD, same.as_str()] {
        let (class, message) = bucket.refused(Some(lineage)).await;
        assert!(class == ExitClass::Config && message.contains(&same), "{lineage}: {message}");
    }
}

#[tokio::test]
async fn an_older_one_by_hand_is_not_taken_where_a_cluster_that_cannot_be_read_may_be_of_its_etcd() {
    let bucket = Bucket::new();
    let (name, key) = bucket.by_hand("cafe", "10:00:00", 9, &Value::Null);
    bucket.by_hand("feed", "12:00:00", 11, &of_a_later_version());
    assert_eq!(bucket.latest(Some(&name)).await.unwrap().key, key, "another etcd's, as its folder says");
    bucket.saved(OLD, "11:00:00", 10, &of_a_later_version());
    let (class, message) = bucket.refused(Some(&name)).await;
    assert_eq!(class, ExitClass::Config);
    let told = ["shop/orders/11111111 may hold newer snapshots", "bootstrap.restore.source", "has format 2"];
    assert!(told.iter().all(|words| message.contains(words)), "{message}");
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
    // The same eight characters in another cluster's UID.
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
    // Too old to be read.
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
    // The names in memory end before the complete snapshot, with it, after it, or include all.
    for names in [1, 2, 3, 7, 8, 15, 100] {
        let folder = Folder::parse("key", "shop/orders/11111111").unwrap();
        let told = Lineage::seen_by(&store, folder, &request, names).await.unwrap().describe();
        assert_eq!(told, "11111111 (15 saved, the newest on 2026-11-21T10:00:00Z at revision 9)", "{names}");
    }
}

#[tokio::test]
async fn what_was_saved_by_hand_is_of_the_same_etcd_or_named_by_its_folder() {
    let bucket = Bucket::new();
    bucket.saved(OLD, "10:00:00", 9, &Value::Null);
    let (_, key) = bucket.by_hand("cafe", "12:00:00", 70, &Value::Null);
    assert_eq!(bucket.latest(None).await.unwrap().key, key, "the same etcd");

    let bucket = Bucket::new();
    let scheduled = bucket.saved(OLD, "10:00:00", 9, &Value::Null);
    let (name, key) = bucket.by_hand("beef", "12:00:00", 70, &Value::Null);
    assert_eq!(bucket.refused(None).await.0, ExitClass::Refused);
    assert_eq!(bucket.latest(Some(&name)).await.unwrap().key, key);
    assert_eq!(bucket.latest(Some(OLD)).await.unwrap().key, scheduled);
}

#[tokio::test]
async fn who_names_a_lineage_gets_what_was_told_of_it() {
    let bucket = Bucket::new();
    bucket.saved(OLD, "10:00:00", 9, &Value::Null);
    let (name, last) = bucket.by_hand("cafe", "12:00:00", 70, &Value::Null);
    let empty = bucket.saved(NEW, "13:00:00", 1, &of_etcd("beef"));
    let (class, message) = bucket.refused(None).await;
    let told = format!("11111111 with {name} (2 saved, the newest on 2026-11-21T12:00:00Z at revision 70)");
    assert!(class == ExitClass::Refused && message.contains(&told), "{message}");
    for lineage in ["11111111", OLD, name.as_str()] {
        let found = bucket.latest(Some(lineage)).await.unwrap();
        assert_eq!((found.key, found.revision), (last.clone(), Some(70)), "{lineage}");
    }
    assert_eq!(bucket.latest(Some(NEW)).await.unwrap().key, empty);
    // The same eight characters, and another cluster: what was saved by hand is none of its.
    let stranger = format!("{}-ffff-4000-8000-000000000001", &OLD[..8]);
    assert_eq!(bucket.refused(Some(&stranger)).await.0, ExitClass::NotFound);
}

/// A member that no quorum stood behind may lack what had been saved before.
#[tokio::test]
async fn what_was_saved_without_a_quorum_and_is_lower_is_a_doubt() {
    let bucket = Bucket::new();
    let more = bucket.saved(OLD, "10:00:00", 9, &Value::Null);
    let (_, less) = bucket.by_hand("cafe", "12:00:00", 8, &json!({"withoutQuorum": true}));
    for lineage in [None, Some(OLD)] {
        let (class, message) = bucket.refused(lineage).await;
        assert_eq!(class, ExitClass::Refused);
        let told = format!(
            "{less} was taken after {more}, and has a lower revision: the later snapshot was saved without a quorum"
        );
        assert!(message.contains(&told), "{message}");
    }
}
