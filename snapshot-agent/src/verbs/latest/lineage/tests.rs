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
    let mut lineage =
        Lineage { folders: vec![], attempts, complete, broken: vec![], others: vec![], unread: None, sound: true };
    lineage.sort();
    lineage
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
