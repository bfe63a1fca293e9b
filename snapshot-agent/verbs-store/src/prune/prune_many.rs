//! Requests and memory per snapshot in a lineage of thousands.

use holdfast_io::process::peak_rss_bytes;

use super::world::{Watched, World, keeping, prune_on};

const SNAPSHOTS: usize = 5_000;

/// Approximate bytes per judged folder: its record, verdict, line and announcement.
const MOST_EACH: u64 = 4 << 10;

#[tokio::test]
async fn prune_many() {
    let world = World::new();
    world.save_hourly(SNAPSHOTS.try_into().unwrap());
    let before = peak_rss_bytes().unwrap();
    let now = "2027-11-25T12:00:00Z";
    let mut request = keeping(6);
    request.policy.keep_daily = 7;
    request.policy.keep_monthly = 12;
    for (run, removed) in [(1, 0), (2, 20), (3, 20)] {
        let watched = Watched::new(&world.store, None);
        let started = std::time::Instant::now();
        let pruned = prune_on(&watched, world.run(request.clone(), now)).await;
        let took = started.elapsed();
        assert_eq!((pruned.failed.as_ref(), pruned.report.removed), (None, removed));
        let grown = peak_rss_bytes().unwrap().saturating_sub(before);
        let each = watched.asked.get() * 1000 / pruned.snapshots.len();
        println!(
            "run {run}: {} folders, {}.{:03} requests each, {removed} removed, {:.1} s, peak RSS +{} KiB",
            pruned.snapshots.len(),
            each / 1000,
            each % 1000,
            took.as_secs_f64(),
            grown >> 10
        );
        assert!(each <= 3100, "{each} requests for a thousand snapshots");
        assert!(grown <= MOST_EACH * SNAPSHOTS as u64, "{grown} bytes");
    }
}
