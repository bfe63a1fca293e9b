//! Data that is written again and again, and compacted: a restore to a point and a merge apply etcd's compaction, and are as large
//! as the member's database after a defragmentation.

use std::fs;

use etcd_client::CompactionOptions;
use holdfast_contract::{Engine, ExitClass, Level, Point, PointProof, RestoreRequest};
use holdfast_layout::check_revision;
use snapshot_agent::verbs::restore;

use crate::compaction::{compacted, manifest, request};
use crate::graft::ENGINES;
use crate::point::{LINEAGE, Recorded, content, recorded};
use crate::support::{eventually, files};

const KEYS: u32 = 6;
const ROUNDS: u32 = 40;
const VALUE: usize = 128 << 10;

/// Returns bytes that do not compress.
fn noise(seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(VALUE).collect()
}

/// Writes every key many times, deletes one, and compacts. Returns a revision after the compaction.
async fn rewrite(recorded: &Recorded) -> i64 {
    let mut client = recorded.client().await;
    for round in 0..ROUNDS {
        for key in 0..KEYS {
            client.put(format!("/large/{key}"), noise(round * KEYS + key), None).await.unwrap();
        }
    }
    let deleted = client.delete("/large/0", None).await.unwrap().header().unwrap().revision();
    client.compact(deleted - 2, Some(CompactionOptions::new().with_physical())).await.unwrap();
    recorded.server.put(b"after", b"v")
}

/// Bytes of the member's database after a defragmentation.
async fn defragmented(recorded: &Recorded) -> u64 {
    let mut client = recorded.client().await;
    client.defragment().await.unwrap();
    u64::try_from(client.status().await.unwrap().db_size()).unwrap()
}

async fn a_point_after_a_compaction(line: &str) {
    let mut recorded = recorded(line).await;
    let after = rewrite(&recorded).await;
    let mut last = after;
    let checked = eventually("a check after the compaction", async || {
        last = recorded.server.put(b"later", b"v");
        recorded.paths().iter().filter_map(|path| check_revision(path)).find(|at| *at > after)
    })
    .await;
    recorded.reaches(last).await;
    recorded.end();
    // The archiver asks for the compact revision with each segment, not only with a check.
    let checked_hash = recorded.server.hash_kv(checked);
    recorded.record_without_checks();
    let later = recorded.server.put(b"later", b"w");
    recorded.reaches(later).await;
    recorded.server.compact(later);
    let chained = recorded.server.put(b"last", b"v");
    recorded.reaches(chained).await;
    recorded.end();
    let live = defragmented(&recorded).await;
    let most = live + live / 10 + (256 << 10);
    let whole = u64::from(KEYS * ROUNDS) * VALUE as u64;
    assert!(most < whole / 4, "{live} of {whole}");

    for engine in ENGINES {
        let restored = recorded.restored(line, Point::Revision(checked), engine).await;
        assert!(restored.report.db_bytes <= most, "{engine:?}: {} beside {live}", restored.report.db_bytes);
        assert_eq!(restored.report.point.unwrap().proof, PointProof::HashKV, "{engine:?}");
        assert_eq!(restored.server.hash_kv(0), checked_hash, "{engine:?}");
    }
    let restored = recorded.restored(line, Point::Revision(chained), Engine::Graft).await;
    assert!(restored.report.db_bytes <= most, "{} beside {live}", restored.report.db_bytes);
    assert_eq!(restored.server.hash_kv(0), recorded.server.hash_kv(chained));
    assert_eq!(content(&restored.server).await, content(&recorded.server).await);

    // A compaction after the last check removes records that the check counts. The restore still proves the check.
    let name = |path: &&String| check_revision(path).filter(|at| *at < chained);
    let last_check = recorded.paths().iter().max_by_key(name).unwrap().clone();
    let last_check = recorded.store.path().join(LINEAGE).join("log").join(last_check);
    let sound = fs::read_to_string(&last_check).unwrap();
    let mut other: serde_json::Value = serde_json::from_str(&sound).unwrap();
    other["hashKV"] = serde_json::json!(1);
    fs::write(&last_check, other.to_string()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let error = restore::run(recorded.request(line, folder.path(), Point::Revision(chained))).await.unwrap_err();
    assert!(error.class() == ExitClass::Corrupt && error.message().contains(" had 1. The nearest"), "{error}");
    fs::write(&last_check, sound).unwrap();

    // Before the compaction is recorded, every revision stays, and the size is refused before the merge.
    let folder = tempfile::tempdir().unwrap();
    let early = recorded.request(line, folder.path(), Point::Revision(after - 5));
    let early = RestoreRequest { quota_backend_bytes: Some(most), ..early };
    let error = restore::run(early).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Config, "{error}");
    assert!(error.message().contains(&format!("etcd's quota is {most}")), "{error}");
    let fits = RestoreRequest {
        quota_backend_bytes: Some(most),
        ..recorded.request(line, folder.path(), Point::Revision(checked))
    };
    let report = restore::run(fits).await.unwrap();
    assert!(report.db_bytes < most && report.point.is_some());

    let scratch = tempfile::tempdir().unwrap();
    let ask = |quota| holdfast_contract::CompactRequest {
        quota_backend_bytes: Some(quota),
        ..request(recorded.store.path(), scratch.path())
    };
    let attempts = || fs::read_dir(recorded.store.path().join(LINEAGE)).unwrap().count();
    let before = attempts();
    let refused = compacted(ask(VALUE as u64)).await.unwrap_err();
    assert_eq!(refused.class(), ExitClass::Config, "{refused}");
    assert!(refused.message().contains("131072") && refused.message().contains("nothing was published"), "{refused}");
    assert_eq!((attempts(), files(scratch.path())), (before, vec![]));
    let merged = compacted(ask(most)).await.unwrap().unwrap();
    assert!(merged.db_bytes <= most, "{} beside {live}", merged.db_bytes);
    assert_eq!(merged.verification.unwrap().level, Level::HashKV);
    let contents = manifest(recorded.store.path(), &merged.key).await.contents.unwrap();
    let newest = recorded.paths().iter().filter_map(|path| check_revision(path)).max().unwrap();
    assert_eq!((contents.revision, contents.compact_revision), (newest, Some(after - 3)));
    assert_eq!(files(scratch.path()), [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_5_a_point_after_a_compaction() {
    a_point_after_a_compaction("3.5").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_6_a_point_after_a_compaction() {
    a_point_after_a_compaction("3.6").await;
}
