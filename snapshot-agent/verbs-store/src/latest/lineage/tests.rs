//! Which snapshot of one etcd is the newest, for overlapping saves, and when the order is in doubt.

use proptest::prelude::*;

use super::*;

/// Saves in seconds: start, time until the stream was opened, time from then to the end.
fn saves() -> impl Strategy<Value = Vec<(i64, i64, i64)>> {
    prop::collection::vec((0_i64..60, 0_i64..20, 0_i64..20), 1..12)
}

fn taken(began: i64, ended: i64, revision: i64) -> Taken {
    let at = |second| Timestamp::from_second(1_800_000_000 + second).unwrap();
    Taken {
        at: at(began),
        state_at: at(began),
        ended: at(ended),
        folder: Folder::parse("key", "shop/orders/11111111").unwrap(),
        uri: String::new(),
        sha256: String::new(),
        revision: Some(revision),
        cluster_id: "cafe".to_owned(),
        restored_from: None,
        without_quorum: false,
    }
}

/// The snapshots of these saves, from an etcd that gets one write per second.
fn of_one_etcd(saves: &[(i64, i64, i64)]) -> Vec<Taken> {
    saves.iter().map(|(began, until, from)| taken(*began, began + until + from, began + until)).collect()
}

fn lineage(mut complete: Vec<Taken>) -> Lineage {
    for (number, taken) in complete.iter_mut().enumerate() {
        taken.folder = taken.folder.child(&format!("20261121T100000Z-byhand-{number:08x}")).unwrap();
    }
    let attempts = complete.len();
    let mut lineage = Lineage {
        folders: vec![],
        attempts,
        complete,
        broken: vec![],
        others: vec![],
        archived: vec![],
        unread: None,
        sound: true,
    };
    lineage.sort();
    lineage
}

/// Before the present: a snapshot from the future is a doubt.
const A_YEAR: SignedDuration = SignedDuration::from_hours(365 * 24);

/// An archived snapshot from this second, whose name holds whole seconds.
fn archived(second: i64) -> Archived {
    let folder = Folder::parse("key", "shop/orders/11111111/20261121T100000Z-byhand-ffffffff").unwrap();
    let error = Error::config("archived").in_archive(true);
    Archived { at: Timestamp::from_second(1_800_000_000 + second).unwrap() - A_YEAR, folder, error }
}

#[tokio::test]
async fn an_archived_snapshot_counts_unless_it_is_older_than_the_chosen_one() {
    let mount = tempfile::tempdir().unwrap();
    let url = format!("file://{}", mount.path().display());
    let store = Store::open(&holdfast_contract::StoreFlags { url, ..Default::default() }).unwrap();
    let chosen = async |at: &[i64], complete: Vec<Taken>| {
        let lineage = Lineage { archived: at.iter().map(|at| archived(*at)).collect(), ..lineage(complete) };
        lineage.newest(&store, "here").await.map(|report| report.revision)
    };
    let earlier = |one: Taken| Taken { at: one.at - A_YEAR, ended: one.ended - A_YEAR, ..one };
    let both = || vec![earlier(taken(10, 11, 7)), earlier(taken(20, 21, 8))];
    assert_eq!(chosen(&[5, 15, 19], both()).await, Ok(Some(8)));
    for at in [&[25][..], &[20], &[5, 30]] {
        let error = chosen(at, both()).await.unwrap_err();
        assert!(error.is_archived() && error.message().contains("is newer than"), "{at:?}: {error}");
    }
    assert!(chosen(&[5], vec![]).await.unwrap_err().is_archived());
    // The newest readable one failed a verification: the archived one may be sound.
    let failed = lineage(both()).complete[0].folder.proof(holdfast_layout::Proved {
        at: Timestamp::from_second(1_800_000_030).unwrap(),
        level: holdfast_contract::ProofLevel::Stored,
        passed: false,
    });
    std::fs::create_dir_all(mount.path().join(failed.folder().as_str())).unwrap();
    store.put_new(&failed, "{}".into()).await.unwrap();
    assert!(chosen(&[15], both()).await.unwrap_err().is_archived());
    assert_eq!(chosen(&[5], both()).await, Ok(Some(7)));
}

/// Returns the newest snapshot, then the newest without it, and so on, each with the remaining snapshots.
fn one_after_the_other(lineage: &Lineage) -> Vec<(&Taken, Vec<&Taken>)> {
    let mut left: Vec<&Taken> = lineage.complete.iter().collect();
    let mut all = vec![];
    while let Some(newest) = newest_of(left.iter().copied()) {
        all.push((newest, left.clone()));
        left.retain(|taken| taken.folder != newest.folder);
    }
    all
}

proptest! {
    #[test]
    fn of_one_etcd_the_highest_is_the_newest_and_nothing_is_in_doubt(saves in saves()) {
        let lineage = lineage(of_one_etcd(&saves));
        let all = one_after_the_other(&lineage);
        prop_assert_eq!(all.len(), saves.len());
        for (newest, left) in all {
            prop_assert_eq!(newest.revision, left.iter().filter_map(|taken| taken.revision).max());
            prop_assert_eq!(find_lower_revision(newest, &lineage.complete), None);
        }
    }

    /// Whether or not that snapshot can be restored.
    #[test]
    fn one_that_began_after_all_had_ended_and_is_lower_is_a_doubt(
        saves in saves(),
        less in 1_i64..50,
        lasted in 0_i64..20,
    ) {
        let mut complete = of_one_etcd(&saves);
        let highest = complete.iter().filter_map(|taken| taken.revision).max().unwrap();
        let end = saves.iter().map(|(began, until, from)| began + until + from).max().unwrap();
        complete.push(taken(end, end + lasted, highest - less));
        let lineage = lineage(complete);
        for (newest, _) in one_after_the_other(&lineage) {
            let (lower, higher) = find_lower_revision(newest, &lineage.complete).unwrap();
            prop_assert!(lower.revision < higher.revision && higher.ended <= lower.at);
        }
    }
}

#[test]
fn what_cannot_be_compared_is_taken_by_its_time() {
    let unknown = Taken { revision: None, ..taken(5, 9, 0) };
    let lineage = lineage(vec![taken(0, 9, 7), unknown, taken(1, 2, 8)]);
    let newest = lineage.newest_one().unwrap();
    assert_eq!((newest.revision, find_lower_revision(newest, &lineage.complete)), (None, None));
    // Another etcd has its own revisions.
    let other = Taken { cluster_id: "beef".to_owned(), ..taken(5, 9, 1) };
    let lineage = self::lineage(vec![taken(0, 9, 7), other, taken(1, 2, 8)]);
    let newest = lineage.newest_one().unwrap();
    assert_eq!((newest.revision, find_lower_revision(newest, &lineage.complete)), (Some(1), None));
}
