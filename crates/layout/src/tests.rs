//! Names of keys, prefixes and folders.

use proptest::prelude::*;

use super::*;

fn attempt() -> Attempt<'static> {
    Attempt {
        namespace: "shop",
        cluster: "orders",
        cluster_uid: Some("1A2b3c4d-0000-4000-8000-000000000000"),
        cluster_id: 0xcafe,
        owner_uid: Some("99887766-1111"),
        pod_uid: "abcdef01-2222",
        at: "2026-11-21T16:22:33.5Z".parse().unwrap(),
    }
}

#[test]
fn a_folder_says_whose_when_and_which_attempt() {
    let folder = Folder::of_attempt(&attempt()).unwrap();
    assert_eq!(folder.as_str(), "shop/orders/1a2b3c4d/20261121T162233Z-99887766-abcdef01");
    assert_eq!(
        folder.data(Compression::Zstd).to_string(),
        "shop/orders/1a2b3c4d/20261121T162233Z-99887766-abcdef01/snapshot.db.zst"
    );
    assert_eq!(folder.manifest().name(), "manifest.json");
    let names: Vec<_> = Format::all().map(Format::name).collect();
    let none = ["snapshot.db", "snapshot.db.age"];
    let expected = ["snapshot.db.zst", "snapshot.db.zst.age", "snapshot.db.gz", "snapshot.db.gz.age"];
    assert_eq!(names, [&expected[..], &none].concat());
    assert_eq!(folder.parent().unwrap().as_str(), "shop/orders/1a2b3c4d");
    let (whose_it_is, at) = attempt_of_key(folder.as_str()).unwrap();
    assert_eq!((whose_it_is.as_str(), at.to_string().as_str()), ("shop/orders", "2026-11-21T16:22:33Z"));
    for other in [
        "a.db",
        "a/b/c/d.db",
        "a/b/c/20261121T162233Z",
        "a/b/c/20261121T162233Z-1-2.db",
        "x/a/b/c/20261121T162233Z-1-2",
    ] {
        assert_eq!(attempt_of_key(other), None, "{other}");
    }
}

#[test]
fn by_hand_the_cluster_id_is_the_lineage() {
    let folder = Folder::of_attempt(&Attempt { cluster_uid: None, owner_uid: None, ..attempt() }).unwrap();
    assert_eq!(folder.as_str(), "shop/orders/etcd-000000000000cafe/20261121T162233Z-byhand-abcdef01");
}

#[test]
fn a_folder_is_found_again_by_its_name() {
    let folder = Folder::of_attempt(&attempt()).unwrap();
    let lineage = Folder::of_cluster("shop", "orders", attempt().cluster_uid).unwrap();
    assert_eq!(folder.parent().unwrap(), lineage);
    assert_eq!(lineage.parent().unwrap(), Folder::of_cluster("shop", "orders", None).unwrap());
    let name = folder.as_str().rsplit('/').next().unwrap();
    assert_eq!(lineage.child(name).unwrap(), folder);
    assert_eq!(owner8_of(name), Some("99887766"));
    assert_eq!(attempt_time(name).map(|at| at.to_string()).as_deref(), Some("2026-11-21T16:22:33Z"));
    assert_eq!(attempt_time(&name.replace("1121T", "1341T")), None);
    for other in
        ["", "x", "20261121T162233Z", "20261121T162233Z-a", "20261121T162233Z-a-b-c", "x-a-b", "20261121T162233Z-a-"]
    {
        assert_eq!(owner8_of(other), None, "{other:?}");
    }
    assert_eq!(folder.intent().to_string(), format!("{lineage}/uploads/{name}.json"));
    assert_eq!(lineage.of_intent(folder.intent().name()).as_ref(), Some(&folder));
    assert_eq!(owner8_of("uploads"), None);
    for other in ["x.json", name, ".json", "20261121T162233Z-a-b%2f.json"] {
        assert_eq!(lineage.of_intent(other), None, "{other:?}");
    }
    for bad in ["..", "a/b", "", ".hidden"] {
        lineage.child(bad).unwrap_err();
        Folder::of_cluster(bad, "orders", None).unwrap_err();
        Folder::of_cluster("shop", bad, None).unwrap_err();
    }
}

#[test]
fn an_announcement_lies_beside_the_attempts_and_is_none() {
    let lineage = Folder::of_cluster("shop", "orders", attempt().cluster_uid).unwrap();
    let record = lineage.prune_record(attempt().at, "ABCDEF01-2222").unwrap();
    assert_eq!(record.to_string(), format!("{lineage}/prunes/20261121T162233Z-abcdef01.json"));
    assert_eq!(record_time(record.name()).map(|at| at.to_string()).as_deref(), Some("2026-11-21T16:22:33Z"));
    for other in ["", "x", "20261121T162233Z.json", "20261121T162233Z-.json", "20261121T162233Z-a", "x-a.json"] {
        assert_eq!(record_time(other), None, "{other:?}");
    }
    assert!(attempt_time("prunes").is_none() && lineage.prunes().is_made_on_demand());
    // The record of a started removal is in the same folder, and is no announcement.
    let begun = lineage.child("20261121T162233Z-11111111-aaaaaaaa").unwrap().removal_record();
    assert_eq!(begun.to_string(), format!("{lineage}/prunes/20261121T162233Z-11111111-aaaaaaaa.json"));
    assert_eq!(record_time(begun.name()), None);
    for bad in ["..", "a/b", "", ".hidden"] {
        lineage.object(bad).unwrap_err();
    }
}

#[test]
fn what_could_lead_elsewhere_is_refused() {
    for bad in [
        "", "..", ".", "a/../b", "a//b", "../a", "a/..", "/", "//a", ".hidden", "a/.b", "-rf", "a\0b", "a b", "a\\b",
        "a%2e", "é", "a\n", "a;b", "$(x)",
    ] {
        assert!(Folder::parse("key", bad).is_err(), "{bad:?} was taken");
        assert!(Folder::of_attempt(&Attempt { namespace: bad, ..attempt() }).is_err(), "{bad:?} as a namespace");
        assert!(Folder::of_attempt(&Attempt { cluster: bad, ..attempt() }).is_err(), "{bad:?} as a cluster");
    }
    assert!(Folder::of_attempt(&Attempt { namespace: "a/b", ..attempt() }).is_err());
    assert!(Folder::of_attempt(&Attempt { pod_uid: "--", ..attempt() }).is_err());
    assert!(Folder::parse("key", &"a/".repeat(500)).is_err());
}

#[test]
fn a_probe_is_where_no_cluster_can_be() {
    let probe = Folder::of_probe("0A1b2c3d-4e5f").unwrap();
    assert_eq!(probe.as_str(), ".holdfast-probe-0a1b2c3d");
    assert_eq!(probe.child("try").unwrap().intent().to_string(), ".holdfast-probe-0a1b2c3d/uploads/try.json");
    assert_eq!(probe.intent().to_string(), "uploads/.holdfast-probe-0a1b2c3d.json");
    Folder::of_cluster(probe.as_str(), "x", None).unwrap_err();
    Folder::of_probe("../..").unwrap_err();
}

#[test]
fn the_mark_of_a_store_is_at_its_root_and_nothing_else() {
    assert_eq!(Key::of_store().to_string(), "holdfast-store.json");
    assert!(Key::of_store().is_at_root() && !Folder::of_attempt(&attempt()).unwrap().manifest().is_at_root());
}

#[test]
fn a_slash_at_either_end_is_forgiven() {
    assert_eq!(Folder::parse("key", "/a/b/").unwrap().as_str(), "a/b");
}

proptest! {
    #[test]
    fn whatever_is_taken_stays_below(path in "\\PC{0,60}|[a./_-]{0,20}") {
        if let Ok(folder) = Folder::parse("key", &path) {
            for part in folder.as_str().split('/') {
                prop_assert!(!part.is_empty() && part != "." && part != "..");
                prop_assert!(part.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b'\\' && b != b'%'));
            }
        }
    }
}
