//! Slow downloads and copies that make progress: they never fail for being slow, they report their progress, a connection that
//! breaks late is resumed where it broke, and a signal ends them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Instant;

use holdfast_contract::{Compression, Engine, RestoreRequest};

use crate::front::Mischief;
use crate::graft::ENGINES;
use crate::restore::{begin, in_s3, signal};
use crate::support::{
    Etcd, bin, child_request, eventually, file_store, files, restore_request, run_child, save_request, to_input,
};
use snapshot_agent::verbs::{restore, save};

/// A third of a MiB a second for each connection.
const RATE: u64 = 320 << 10;

/// The child half: the process whose log the test reads. In a process of its own, because a thread of another test may log too.
#[ignore = "the child half of a test"]
#[tokio::test(flavor = "multi_thread")]
async fn says_how_far_it_is() {
    let request = child_request();
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    restore::run(request).await.unwrap();
}

/// Log of a restore that succeeds.
pub(crate) async fn said(request: &RestoreRequest) -> String {
    let input = to_input(request);
    let run = move || run_child("slow::says_how_far_it_is", &input);
    String::from_utf8(tokio::task::spawn_blocking(run).await.unwrap().stderr).unwrap()
}

/// A number in a line of the log.
fn number(line: &str, field: &str) -> u64 {
    let (_, after) = line.split_once(&format!(" {field}=")).unwrap_or_else(|| panic!("no {field} in {line}"));
    after.split(' ').next().unwrap().parse().unwrap()
}

/// The bytes and the rate in a line of progress, of this many bytes in all.
fn told(line: &str, of: u64, begun: Instant) -> (u64, u64) {
    println!("{line}");
    let (bytes, total) = (number(line, "bytes"), number(line, "total"));
    assert!(bytes > 0 && bytes <= total && total == of, "{line}");
    let rate = number(line, "kib_per_s") << 10;
    // Computed from the time since the start, which a busy machine prolongs; the line has whole KiB.
    let least = bytes / (begun.elapsed().as_secs() + 1);
    assert!(rate + 1024 >= least, "{line}");
    assert!(number(line, "seconds_left") <= total / rate, "{line}");
    (bytes, rate)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_download_is_not_ended_and_says_how_far_it_is() {
    let (s3, saved) = in_s3(4).await;
    let proxy = Mischief::Slow(RATE, u64::MAX).before(&s3.address).await;
    for engine in ENGINES {
        let volume = tempfile::tempdir().unwrap();
        let store = s3.through(proxy.url());
        let request = restore_request(store, &saved.key, volume.path());
        // The whole takes longer than this stall limit.
        let request = RestoreRequest { engine, stall_seconds: 6, ..request };
        let begun = Instant::now();
        let said = said(&request).await;
        assert!(begun.elapsed().as_secs() >= 8, "it was not slow: {:?}", begun.elapsed());
        let lines: Vec<_> = said.lines().filter(|line| line.contains("reading the snapshot: ")).collect();
        assert!(!lines.is_empty(), "{engine:?}: {said}");
        for line in lines {
            let (_, rate) = told(line, saved.stored_bytes, begun);
            assert!(rate < RATE * 4, "{line}");
        }
    }
}

/// An etcdutl that takes twelve seconds for 3 MiB; then its database is longer than at the end, and it keeps working.
const COPIES_SLOWLY: &str = r#"#!/bin/sh
[ "$1" = snapshot ] || exec ETCDUTL "$@"
for arg in "$@"; do
    case $arg in --data-dir=*) data=${arg#--data-dir=} ;; esac
done
/bin/mkdir -p "$data/member/snap"
for piece in 0 1 2 3 4 5 6 7 8 9 10 11; do
    /bin/dd if="$3" bs=256k skip=$piece count=1 2>/dev/null >>"$data/member/snap/db"
    /bin/sleep 1
done
/bin/dd if=/dev/null of="$data/member/snap/db" bs=1M seek=64 count=0 2>/dev/null
/bin/sleep 7
/bin/rm -r "$data"
exec ETCDUTL "$@"
"#;

/// etcdutl itself prints nothing until its end, which takes minutes for a large database.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_copy_is_not_ended_and_says_how_far_it_is() {
    let etcd = Etcd::start().await;
    etcd.fill(4, 1 << 20).await;
    let mount = tempfile::tempdir().unwrap();
    let saved = save::run(save_request(etcd.flags(), file_store(mount.path()), Compression::Zstd)).await.unwrap();
    let etcdutl = mount.path().join("etcdutl");
    fs::write(&etcdutl, COPIES_SLOWLY.replace("ETCDUTL", &bin("etcdutl").display().to_string())).unwrap();
    fs::set_permissions(&etcdutl, fs::Permissions::from_mode(0o755)).unwrap();

    let volume = tempfile::tempdir().unwrap();
    // etcdutl hashes its output before it continues, and no file grows meanwhile: that is no stall.
    let request = restore_request(file_store(mount.path()), &saved.key, volume.path());
    let request = RestoreRequest { engine: Engine::Etcdutl, etcdutl, stall_seconds: 5, ..request };
    let begun = Instant::now();
    let said = said(&request).await;
    let lines: Vec<_> = said.lines().filter(|line| line.contains("copying the snapshot with etcdutl: ")).collect();
    let (mut halfway, mut written) = (0, 0);
    for line in lines {
        let (bytes, _) = told(line, saved.db_bytes, begun);
        let count = if bytes < saved.db_bytes { &mut halfway } else { &mut written };
        *count += 1;
    }
    assert!(halfway > 0 && written > 0, "{said}");
    assert!(restore::run(request).await.unwrap().already);
}

/// The store's client retries for 15 seconds. A slow range takes longer, and its connection ends after that.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_breaks_late_is_taken_up_again() {
    let (s3, saved) = in_s3(4).await;
    // 18 seconds of a range of 4 MiB.
    let rate = 200 << 10;
    let proxy = Mischief::Slow(rate, 18 * rate).before(&s3.address).await;
    let volume = tempfile::tempdir().unwrap();
    let store = s3.through(proxy.url());
    let request = RestoreRequest { engine: Engine::Graft, ..restore_request(store, &saved.key, volume.path()) };
    let report = restore::run(request).await.unwrap();
    assert_eq!(report.sha256, saved.sha256);
}

/// As the first process of a container the agent would ignore the signal: a restoring Pod took its whole grace period to end.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_is_told_to_stop_stops_and_leaves_nothing() {
    let (s3, saved) = in_s3(4).await;
    let proxy = Mischief::Slow(RATE, u64::MAX).before(&s3.address).await;
    for engine in ENGINES {
        for stop in ["-TERM", "-INT"] {
            let volume = tempfile::tempdir().unwrap();
            let store = s3.through(proxy.url());
            let request = RestoreRequest { engine, ..restore_request(store, &saved.key, volume.path()) };
            let mut process = begin(&request);
            eventually("its staging folder", async || (!files(volume.path()).is_empty()).then_some(())).await;
            signal(&process, stop);
            let ended = tokio::task::spawn_blocking(move || process.wait().unwrap()).await.unwrap();
            assert!(ended.code().is_some_and(|code| code != 0), "{engine:?}, {stop}: {ended}");
            assert_eq!(files(volume.path()), [] as [&str; 0], "{engine:?}, {stop}");
        }
    }
}
