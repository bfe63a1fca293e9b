//! One good snapshot among other objects: the search finds only the right snapshot, and gives a reason otherwise.

use std::fs;

use crate::sample;
use holdfast_contract::{Level, Verification};
use holdfast_io::sha256::Sha256;
use serde_json::{Value, json};

use super::*;

const OWNER: &str = "99887766-1111-4000-8000-000000000000";
const CLUSTER: &str = "1a2b3c4d-0000-4000-8000-000000000000";
const GOOD: &str = "shop/orders/1a2b3c4d/20261121T162233Z-99887766-abcdef01";

fn request(mount: &Path) -> InspectRequest {
    InspectRequest {
        store: StoreFlags { url: format!("file://{}", mount.display()), ..StoreFlags::default() },
        expect_store_id: None,
        namespace: "shop".to_owned(),
        cluster: "orders".to_owned(),
        cluster_uid: Some(CLUSTER.to_owned()),
        owner_uid: OWNER.to_owned(),
        deadline_seconds: 20,
    }
}

/// Writes one snapshot to its folder, with a change.
fn put(mount: &Path, key: &str, change: impl FnOnce(&mut Value)) {
    let origin = json!({
        "clusterUid": CLUSTER, "origin": {"name": "nightly", "uid": OWNER}, "member": "orders-x", "storageVersion": "3.6.0",
    });
    let mut manifest = sample::but(sample::manifest(key), &origin);
    change(&mut manifest);
    sample::put(mount, key, &manifest);
}

async fn found(request: InspectRequest) -> Result<String> {
    run(request).await.map(|report| report.key)
}

#[tokio::test]
async fn the_report_is_what_the_manifest_says() {
    let mount = tempfile::tempdir().unwrap();
    put(mount.path(), GOOD, |manifest| {
        manifest["contents"] = json!({
            "revision": 9, "compactRevision": 4, "keys": 3, "revisions": 6, "hashKV": 7, "members": ["1"], "leases": 0,
            "alarms": 0, "authEnabled": false, "users": 0, "roles": 0,
        });
        manifest["verification"] = json!({"level": "HashKV", "agreedBy": ["orders-x"]});
    });
    let report = run(request(mount.path())).await.unwrap();
    let expected = SavedReport {
        key: GOOD.to_owned(),
        uri: format!("file://{}/{GOOD}/snapshot.db.zst", mount.path().display()),
        db_bytes: 4096,
        stored_bytes: 5,
        sha256: "00".repeat(32),
        stored_sha256: "11".repeat(32),
        manifest_sha256: Some(hex::encode(Sha256::digest(
            fs::read(mount.path().join(GOOD).join("manifest.json")).unwrap(),
        ))),
        compression: holdfast_contract::Compression::Zstd,
        encrypted: false,
        member: "orders-x".to_owned(),
        member_id: "1".to_owned(),
        cluster_id: "cafe".to_owned(),
        etcd_version: "3.6.16".to_owned(),
        storage_version: Some("3.6.0".to_owned()),
        revision: Some(9),
        compact_revision: Some(4),
        keys: Some(3),
        hash_kv: Some(7),
        auth_enabled: false,
        verification: Some(Verification {
            level: Level::HashKV,
            agreed_by: vec!["orders-x".to_owned()],
            ..Verification::default()
        }),
        without_quorum: false,
        lock: None,
        millis: 1500,
        peak_rss_bytes: None,
    };
    assert_eq!(report, expected);
    // Without the cluster's UID the search reads all lineages, also that of another incarnation.
    let any = InspectRequest { cluster_uid: None, ..request(mount.path()) };
    fs::create_dir_all(mount.path().join("shop/orders/0000aaaa/20261121T162233Z-99887766-ffff")).unwrap();
    assert_eq!(run(any).await, Ok(expected));
}

#[tokio::test]
async fn one_wrong_thing_at_a_time_and_it_is_not_found() {
    type Change = fn(&mut Value);
    let changes: [(&str, Change, ExitClass); 10] = [
        ("another owner with the same mark", |m| m["origin"]["uid"] = json!("99887766-2222"), ExitClass::NotFound),
        ("no owner", |m| m["origin"] = json!(null), ExitClass::NotFound),
        ("copied from elsewhere", |m| m["key"] = json!("shop/orders/1a2b3c4d/x"), ExitClass::NotFound),
        ("another cluster of the same lineage", |m| m["clusterUid"] = json!("1a2b3c4d-9"), ExitClass::NotFound),
        ("another namespace", |m| m["namespace"] = json!("stock"), ExitClass::NotFound),
        ("data cut", |m| m["storedBytes"] = json!(6), ExitClass::Corrupt),
        ("data under another name", |m| m["compression"] = json!("gzip"), ExitClass::NotFound),
        (
            "encrypted, and its data is not",
            |m| m["encryption"] = json!({"kind": "age", "recipients": ["age1x"]}),
            ExitClass::NotFound,
        ),
        ("a newer format", |m| m["formatVersion"] = json!(2), ExitClass::Config),
        ("no sha256", |m| m["sha256"] = json!(""), ExitClass::Corrupt),
    ];
    for (what, change, class) in changes {
        let mount = tempfile::tempdir().unwrap();
        put(mount.path(), GOOD, change);
        let error = found(request(mount.path())).await.expect_err(what);
        assert_eq!(error.class(), class, "{what}: {error}");
        assert!(error.message().contains(OWNER), "{what}: {error}");
        // A good snapshot beside it is still found.
        let beside = GOOD.replace("abcdef01", "abcdef02");
        put(mount.path(), &beside, |_| ());
        assert_eq!(found(request(mount.path())).await.as_deref(), Ok(beside.as_str()), "{what}");
    }
}

#[tokio::test]
async fn the_reason_counts_what_was_seen() {
    let mount = tempfile::tempdir().unwrap();
    let says = async |text: &str| {
        let error = found(request(mount.path())).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::NotFound);
        assert!(error.message().contains(text), "{error}");
    };
    says("of 0 folders").await;
    put(mount.path(), "shop/orders/1a2b3c4d/20261120T000000Z-aaaaaaaa-bbbb", |m| {
        m["origin"]["uid"] = json!("aaaaaaaa");
    });
    says("of 1 folders, 0 have this UID in their names, and 0 of these").await;
    put(mount.path(), GOOD, |_| ());
    fs::remove_file(mount.path().join(GOOD).join("manifest.json")).unwrap();
    says("of 2 folders, 1 have this UID in their names, and 1 of these have no manifest").await;
}

/// "Not found" is final for the caller, so a missing store must give another error.
#[tokio::test]
async fn a_place_that_is_not_there_has_no_say() {
    let volume = tempfile::tempdir().unwrap();
    let at = |path: &str| volume.path().join(path);
    fs::write(at("file"), "x").unwrap();
    fs::create_dir_all(at("stray/shop/orders")).unwrap();
    fs::write(at("stray/shop/orders/1a2b3c4d"), "x").unwrap();
    let rows = [
        ("a folder that nobody makes", "none", None, ExitClass::Config),
        ("a volume that is not mounted", "none/etcd", Some("none"), ExitClass::Config),
        ("a file in the store's place", "file", Some(""), ExitClass::Config),
        ("a file where the store's folder should be", "file/etcd", Some(""), ExitClass::Config),
        ("a file in the lineage's place", "stray", Some(""), ExitClass::Config),
        ("a folder that the first save makes", "new/etcd", Some(""), ExitClass::NotFound),
    ];
    for (what, folder, mount, class) in rows {
        let mut request = request(&at(folder));
        request.store.mount = mount.map(at);
        let url = request.store.url.clone();
        let error = found(request).await.expect_err(what);
        assert_eq!(error.class(), class, "{what}: {error}");
        assert!(error.message().contains(&url), "{what}: {error}");
    }
}

#[tokio::test]
async fn of_two_complete_ones_it_is_always_the_one_that_ended_first() {
    let mount = tempfile::tempdir().unwrap();
    let folder = |time: &str, pod: &str| format!("shop/orders/1a2b3c4d/{time}-99887766-{pod}");
    // This save began first and ended last.
    put(mount.path(), &folder("20261121T162233Z", "a"), |m| m["endedAt"] = json!("2026-11-21T16:30:00Z"));
    let first = folder("20261121T162300Z", "c");
    put(mount.path(), &first, |m| m["endedAt"] = json!("2026-11-21T16:25:00Z"));
    put(mount.path(), &folder("20261121T162301Z", "b"), |m| m["endedAt"] = json!("2026-11-21T16:25:00.5Z"));
    assert_eq!(found(request(mount.path())).await, Ok(first));
}

#[tokio::test]
async fn what_is_looked_at_is_bounded() {
    let mount = tempfile::tempdir().unwrap();
    for pod in 0..=MAX_MARKED {
        let name = format!("20261121T162233Z-99887766-{pod}");
        fs::create_dir_all(mount.path().join("shop/orders/1a2b3c4d").join(name)).unwrap();
    }
    let error = found(request(mount.path())).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Config, "{error}");
    let store = Store::open(&request(mount.path()).store).unwrap();
    let lineage = Folder::parse("key", "shop/orders/1a2b3c4d").unwrap();
    let children = store.children(&lineage, MAX_MARKED + 1, |name| name.ends_with("-7")).await.unwrap();
    assert_eq!((children.seen, children.names.len()), (MAX_MARKED + 1, 1));
    assert_eq!(store.children(&lineage, MAX_MARKED, |_| false).await.unwrap_err().class(), ExitClass::Config);
}

#[tokio::test]
async fn names_that_lead_elsewhere_are_refused_or_not_followed() {
    let mount = tempfile::tempdir().unwrap();
    for bad in ["..", "a/b", ""] {
        for request in [
            InspectRequest { namespace: bad.to_owned(), ..request(mount.path()) },
            InspectRequest { cluster: bad.to_owned(), ..request(mount.path()) },
        ] {
            assert_eq!(found(request).await.unwrap_err().class(), ExitClass::Config, "{bad:?}");
        }
    }
    let owner = InspectRequest { owner_uid: "--".to_owned(), ..request(mount.path()) };
    assert_eq!(found(owner).await.unwrap_err().class(), ExitClass::Config);
    // A planted link under the right name.
    let outside = tempfile::tempdir().unwrap();
    put(outside.path(), GOOD, |_| ());
    fs::create_dir_all(mount.path().join(GOOD).parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(outside.path().join(GOOD), mount.path().join(GOOD)).unwrap();
    let error = found(request(mount.path())).await.unwrap_err();
    assert!(error.message().contains("of 0 folders"), "{error}");
}
