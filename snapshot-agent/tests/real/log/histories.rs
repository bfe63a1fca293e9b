//! A log belongs to one history. An etcd that goes back, by a volume that was rolled back or by a snapshot that was restored in
//! place, makes other revisions with the numbers of recorded ones, under the same cluster ID.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use etcd_client::{Client, CompactionOptions, DeleteOptions, GetOptions, Txn, TxnOp};
use holdfast_contract::{Compression, ExitClass, RestoreRequest, hex_id};
use holdfast_layout::{SegmentName, is_closed_name};
use jiff::Timestamp;
use snapshot_agent::verbs::verify::{self, Verified};
use snapshot_agent::verbs::{restore, save};
use tempfile::TempDir;

use super::archiver::Log;
use super::{FAILED, verify_request};
use crate::age::PAIRS;
use crate::support::{Etcd, bin, eventually, file_store, noise, restore_request, save_request};

pub(super) const LINEAGE: &str = "shop/orders/1a2b3c4d";

async fn put(client: &mut Client, key: &str) -> i64 {
    client.put(key, "v", None).await.unwrap().header().unwrap().revision()
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

/// Keeps the data of an etcd.
pub(super) async fn keep(etcd: &mut Etcd) -> TempDir {
    let kept = tempfile::tempdir().unwrap();
    // A clean end writes what etcd holds back.
    etcd.ends_by("-TERM");
    etcd.again(|data| copy(data, &kept.path().join("data"))).await;
    kept
}

/// Gives an etcd its kept data again.
pub(super) async fn roll_back(etcd: &mut Etcd, kept: &TempDir) {
    etcd.again(|data| {
        fs::remove_dir_all(data).unwrap();
        copy(&kept.path().join("data"), data);
    })
    .await;
}

/// Restores the kept data by etcdutl, with the member's own name, URL and cluster token.
pub(super) async fn restore_in_place(etcd: &mut Etcd, kept: &TempDir) {
    let peer = etcd.peer().to_owned();
    etcd.again(|data| {
        fs::remove_dir_all(data).unwrap();
        let restored = Command::new(bin("etcdutl"))
            .args(["snapshot", "restore", "--skip-hash-check", "--name=default"])
            .arg(format!("--data-dir={}", data.display()))
            .arg(format!("--initial-cluster=default={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(kept.path().join("data/member/snap/db"))
            .output()
            .unwrap();
        assert!(restored.status.success(), "{restored:?}");
    })
    .await;
}

/// Makes entries of raft without a revision, so that raft alone does not show the other history.
pub(super) async fn grant_leases(etcd: &Etcd) {
    let mut client = etcd.client().await;
    for _ in 0..40 {
        client.lease_grant(600, None).await.unwrap();
    }
}

/// An etcd with 20 keys whose data is kept, then a snapshot and a log that ends at revision 23.
struct Recorded {
    etcd: Etcd,
    kept: TempDir,
    mount: TempDir,
    log: Log,
}

async fn recorded() -> Recorded {
    recorded_for(vec![]).await
}

/// Does the same with a log for these recipients of age.
async fn recorded_for(age_recipients: Vec<String>) -> Recorded {
    let mut etcd = Etcd::start().await;
    let mount = tempfile::tempdir().unwrap();
    etcd.fill(20, 10).await;
    let kept = keep(&mut etcd).await;
    let saved = save::run(save_request(etcd.flags(), file_store(mount.path()), Compression::Zstd)).await.unwrap();
    assert_eq!(saved.revision, Some(21));
    let mut log = Log::prepare(etcd.flags(), file_store(mount.path()), mount.path());
    log.request.from_revision = None;
    log.request.age_recipients = age_recipients;
    log.start();
    log.is_alive().await;
    let mut client = etcd.client().await;
    put(&mut client, "a").await;
    assert_eq!(put(&mut client, "b").await, 23);
    log.has(23).await;
    log.is_alive().await;
    log.end();
    Recorded { etcd, kept, mount, log }
}

/// Does the same, and gives etcd another history with these keys from revision 22 on, and raft more entries.
async fn forked(keys: &[&str]) -> (Recorded, Client) {
    let mut recorded = recorded().await;
    roll_back(&mut recorded.etcd, &recorded.kept).await;
    grant_leases(&recorded.etcd).await;
    let mut client = recorded.etcd.client().await;
    for key in keys {
        put(&mut client, key).await;
    }
    (recorded, client)
}

impl Recorded {
    /// Starts the archiver, and returns the error with which it ends.
    fn refused(&mut self) -> String {
        self.log.start();
        let line = self.log.wait();
        assert!(line.starts_with(&format!("{FAILED}{:?}", ExitClass::Refused)), "{line}");
        line
    }

    fn to_revision(&self, volume: &Path, revision: i64) -> RestoreRequest {
        fs::create_dir(volume).unwrap();
        let request = restore_request(file_store(self.mount.path()), LINEAGE, volume);
        RestoreRequest { at_revision: Some(revision), revision_bump: 0, ..request }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_went_back_and_on_is_refused_for_good() {
    let (mut recorded, _) = forked(&["c", "d", "e"]).await;
    let line = recorded.refused();
    assert!(line.contains("other changes of revision 23") && line.contains("--cluster-uid"), "{line}");
    assert_eq!(recorded.log.last(), 23, "nothing of the other history is recorded");

    // Rules of a bucket may remove each object, also the ones that close the log and name its cluster.
    let folder = recorded.log.folder();
    fs::remove_file(folder.join("closed.json")).unwrap();
    fs::remove_file(folder.join("cluster.json")).unwrap();
    assert!(recorded.refused().contains("other changes of revision 23"), "by the witness beside the segments");
    for path in recorded.log.paths().iter().filter(|path| is_closed_name(path)) {
        fs::remove_file(folder.join(path)).unwrap();
    }
    assert!(recorded.refused().contains("other changes of revision 23"), "by etcd's own changes");
    fs::remove_file(folder.join("cluster.json")).unwrap();
    let Verified::Log(found) = verify::run(verify_request(&recorded.log, vec![])).await.unwrap() else { panic!() };
    let [found] = &found[..] else { panic!("{found:?}") };
    assert_eq!(found.ranges, [(22, 23)]);
    let volume = tempfile::tempdir().unwrap();
    let restored = restore::run(recorded.to_revision(&volume.path().join("v"), 23)).await.unwrap();
    assert_eq!(restored.revision, Some(23));
}

/// etcd has removed the changes that the log could compare: its raft began again.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_restored_in_place_is_refused_also_behind_a_compaction() {
    raft_began_again(recorded().await).await;
}

/// The agent cannot read the segments: a check has the place of raft.
#[tokio::test(flavor = "multi_thread")]
async fn raft_is_compared_also_with_an_encrypted_log() {
    let recorded = recorded_for(vec![PAIRS[0].0.to_owned()]).await;
    assert!(recorded.log.segments().iter().all(|segment| segment.encrypted));
    raft_began_again(recorded).await;
}

async fn raft_began_again(mut recorded: Recorded) {
    restore_in_place(&mut recorded.etcd, &recorded.kept).await;
    let mut client = recorded.etcd.client().await;
    let mut last = 0;
    for number in 0..20 {
        last = put(&mut client, &format!("other/{number}")).await;
    }
    assert_eq!(last, 41);
    client.compact(last, Some(CompactionOptions::new().with_physical())).await.unwrap();
    let line = recorded.refused();
    assert!(line.contains("fewer entries of raft"), "{line}");
    assert_eq!((recorded.log.last(), recorded.log.gaps().len()), (23, 0));
}

/// etcd has compacted at exactly the last recorded revision: it keeps the puts of this revision.
#[tokio::test(flavor = "multi_thread")]
async fn another_history_is_refused_at_its_compact_revision() {
    let (mut recorded, mut client) = forked(&["c", "d", "e", "f"]).await;
    client.compact(23, Some(CompactionOptions::new().with_physical())).await.unwrap();
    let line = recorded.refused();
    assert!(line.contains("other changes of revision 23"), "{line}");
    assert_eq!(recorded.log.last(), 23, "nothing of the other history is recorded");
}

/// Nested transactions put and delete a key in one revision: at its compact revision etcd keeps not all of the puts.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_revision_that_deletes_its_own_put_goes_on_after_its_compaction() {
    let mut recorded = recorded().await;
    let mut client = recorded.etcd.client().await;
    recorded.log.start();
    recorded.log.is_alive().await;
    let nested = |op: TxnOp| TxnOp::txn(Txn::new().and_then([op]));
    let both = [TxnOp::put("kept", "v", None), TxnOp::put("gone", "v", None), TxnOp::delete("gone", None)].map(nested);
    let last = client.txn(Txn::new().and_then(both)).await.unwrap().header().unwrap().revision();
    recorded.log.has(last).await;
    recorded.log.end();
    client.compact(last, Some(CompactionOptions::new().with_physical())).await.unwrap();
    recorded.log.start();
    recorded.log.has(put(&mut client, "later").await).await;
    recorded.log.end();
}

/// A snapshot, then an etcd that went back, then a new log.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_log_does_not_continue_the_snapshot_of_another_history() {
    let mut recorded = recorded().await;
    fs::remove_dir_all(recorded.log.folder()).unwrap();
    restore_in_place(&mut recorded.etcd, &recorded.kept).await;
    let mut client = recorded.etcd.client().await;
    for number in 0..20 {
        put(&mut client, &format!("other/{number}")).await;
    }
    recorded.log.start();
    recorded.log.is_alive().await;
    recorded.log.has(put(&mut client, "last").await).await;
    recorded.log.end();
    assert_eq!(recorded.log.cover().ranges[0].first, 42, "the log begins where etcd was");
}

/// A snapshot that was saved after etcd went back, with a revision that the log holds too.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_does_not_continue_a_later_snapshot_of_another_history() {
    let mut recorded = recorded().await;
    roll_back(&mut recorded.etcd, &recorded.kept).await;
    assert_eq!(put(&mut recorded.etcd.client().await, "c").await, 22);
    let flags = (recorded.etcd.flags(), file_store(recorded.mount.path()));
    let saved = save::run(save_request(flags.0, flags.1, Compression::Zstd)).await.unwrap();
    assert_eq!(saved.revision, Some(22));
    // Checks show the other history where one lies before the point.
    fs::remove_dir_all(recorded.log.folder().join("checks")).unwrap();
    let volumes = tempfile::tempdir().unwrap();
    let error = restore::run(recorded.to_revision(&volumes.path().join("v"), 23)).await.unwrap_err();
    assert!(error.message().contains("other changes of revision 22 than the snapshot"), "{error}");
    assert!(error.class() == ExitClass::Refused && error.message().contains("point is revision 22 "), "{error}");
    let restored = restore::run(recorded.to_revision(&volumes.path().join("w"), 22)).await.unwrap();
    assert!(restored.uri.contains(&saved.key), "{}", restored.uri);

    // A check of the first history at the revision of the second one's snapshot: no error names the point that it refuses.
    let member = "00000000-member";
    let status = recorded.etcd.client().await.status().await.unwrap();
    let cluster_id = status.header().unwrap().cluster_id();
    let check = serde_json::json!({
        "formatVersion": 1, "clusterId": hex_id(cluster_id), "memberId": member, "revision": 22,
        "compactRevision": -1, "hashKV": 1, "at": Timestamp::now(),
    });
    let checks = recorded.log.folder().join("checks");
    fs::create_dir(&checks).unwrap();
    fs::write(checks.join("00000000000000000022-aaaabbbb.json"), check.to_string()).unwrap();
    let error = restore::run(recorded.to_revision(&volumes.path().join("x"), 22)).await.unwrap_err();
    assert!(error.class() == ExitClass::Corrupt && error.message().contains(&format!("{member} had 1")), "{error}");
    assert!(
        error.message().contains("Restore one of the snapshots") && !error.message().contains("nearest"),
        "{error}"
    );
}

/// Segments that an archiver without these comparisons has left.
#[tokio::test(flavor = "multi_thread")]
async fn segments_of_two_histories_are_not_merged() {
    let (recorded, _) = forked(&["c", "d", "e", "f"]).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let mut other = Log::prepare(recorded.etcd.flags(), file_store(elsewhere.path()), elsewhere.path());
    other.request.from_revision = Some(24);
    other.start();
    other.has(25).await;
    other.end();
    let fork = other
        .paths()
        .into_iter()
        .find(|path| SegmentName::parse(path).is_some_and(|name| name.first == 24 && name.last >= 24));
    let fork = fork.unwrap();
    let place = recorded.log.folder().join(&fork);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::copy(other.folder().join(&fork), &place).unwrap();

    let error = verify::run(verify_request(&recorded.log, vec![])).await.unwrap_err();
    assert!(error.message().contains("other changes of revision 23"), "{error}");
    let volume = tempfile::tempdir().unwrap();
    let error = restore::run(recorded.to_revision(&volume.path().join("v"), 24)).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Refused, "{error}");
    assert!(error.message().contains("two histories") && error.message().contains("revision 23"), "{error}");
    let restored = restore::run(recorded.to_revision(&volume.path().join("w"), 23)).await.unwrap();
    assert_eq!(restored.revision, Some(23));
}

/// While the archiver catches up, the log gives no time to what it has not reached.
#[tokio::test(flavor = "multi_thread")]
async fn a_time_in_an_absence_is_that_of_the_revision_before() {
    let etcd = Etcd::start().await;
    let mount = tempfile::tempdir().unwrap();
    etcd.fill(3, 10).await;
    save::run(save_request(etcd.flags(), file_store(mount.path()), Compression::Zstd)).await.unwrap();
    let mut log = Log::prepare(etcd.flags(), file_store(mount.path()), mount.path());
    log.request.from_revision = None;
    log.request.segment_mib = 1;
    log.start();
    let mut client = etcd.client().await;
    let before = put(&mut client, "a").await;
    log.has(before).await;
    log.is_alive().await;
    log.signal("-STOP");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut last = 0;
    for number in 0..80 {
        last = client.put("large", noise(number, 100_000), None).await.unwrap().header().unwrap().revision();
    }
    let written = Timestamp::now();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = Timestamp::now();
    tokio::time::sleep(Duration::from_secs(1)).await;
    log.signal("-CONT");
    log.has(last).await;
    log.is_alive().await;
    log.end();
    for segment in log
        .segments()
        .iter()
        .filter(|segment| before < segment.first && segment.first <= segment.last && segment.last < last)
    {
        assert!(!segment.is_timed() || segment.at > written, "{segment:?}");
    }
    let volume = tempfile::tempdir().unwrap();
    let request = restore_request(file_store(mount.path()), LINEAGE, volume.path());
    let request = RestoreRequest { at_time: Some(asked), revision_bump: 0, ..request };
    let point = *restore::run(request).await.unwrap().point.unwrap();
    let (known, changed) = (point.known_at.unwrap(), point.changed_by.unwrap());
    println!("asked {asked}: revision {} of {last}, known at {known}, changed by {changed}", point.revision);
    assert_eq!(point.revision, before);
    assert!(known < written && changed > asked, "{known} {changed}");
}

/// One revision with more changes than the archiver may hold in memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_revision_of_any_size_is_recorded_in_bounded_memory() {
    const KEYS: usize = 128_000;
    let etcd = Etcd::start().await;
    let mount = tempfile::tempdir().unwrap();
    let mut client = etcd.client().await;
    let mut last = 0;
    for first in (0..KEYS).step_by(128) {
        // As many bytes in fewer keys: etcd's own work grows with the number of keys.
        let key = |at: usize| format!("many/{at:0600}");
        let puts: Vec<_> = (first..first + 128).map(|at| TxnOp::put(key(at), "v", None)).collect();
        last = client.txn(Txn::new().and_then(puts)).await.unwrap().header().unwrap().revision();
    }
    let mut log = Log::prepare(etcd.flags(), file_store(mount.path()), mount.path());
    log.request.from_revision = Some(last + 1);
    log.start();
    log.is_alive().await;
    // On a busy machine etcd needs more than the seven seconds after which it ends the request. It still applies the deletion.
    let _ = client.delete("many/", Some(DeleteOptions::new().with_prefix())).await;
    let gone = eventually("no key of them", async || {
        let left = client.clone().get("many/", Some(GetOptions::new().with_prefix().with_count_only())).await.ok()?;
        (left.count() == 0).then(|| left.header().unwrap().revision())
    })
    .await;
    assert_eq!(gone, last + 1);
    log.has(gone).await;
    let status = fs::read_to_string(format!("/proc/{}/status", log.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim().trim_end_matches(" kB");
    let peak: u64 = peak.parse().unwrap();
    log.end();
    let recorded = log.read().records.len();
    println!("{recorded} changes in one revision: peak RSS {} MiB", peak >> 10);
    assert_eq!(recorded, KEYS);
    assert!(peak < 128 << 10, "{peak} KiB");
    eventually("an empty spool", async || {
        let left = fs::read_dir(log.spool.path()).unwrap().filter_map(Result::ok);
        left.into_iter().all(|entry| !entry.file_name().to_string_lossy().starts_with(".entries")).then_some(())
    })
    .await;
}
