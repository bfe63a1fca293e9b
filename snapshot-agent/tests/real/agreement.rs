//! The agent compares a snapshot with the answers of live members, and records their answers.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use etcd_client::CompactionOptions;
use holdfast_contract::error::Result;
use holdfast_contract::{AskMembers, Compression, EtcdFlags, ExitClass, Level, SavedReport, StoreFlags, Verification};
use holdfast_layout::manifest::Manifest;
use snapshot_agent::verbs::save::{self, dry_run};
use tokio::sync::{mpsc, watch};

use crate::locks::{lockable, locking};
use crate::members::{lead, leader};
use crate::s3_proxy::{Asked, Fault, Op, S3Proxy, error};
use crate::server::LINES;
use crate::support::{Etcd, S3, eventually, file_store, files, noise, save_request};

async fn saved(etcd: EtcdFlags, mount: &Path, ask_members: AskMembers) -> Result<SavedReport> {
    saved_to(etcd, file_store(mount), ask_members).await
}

async fn saved_to(etcd: EtcdFlags, store: StoreFlags, ask_members: AskMembers) -> Result<SavedReport> {
    let mut request = save_request(etcd, store, Compression::Zstd);
    request.pod_uid = Some(format!("{:08x}", rand_id()));
    request.ask_members = ask_members;
    save::run(request).await
}

/// Saves like a database of 1 GiB and more.
async fn saved_as_large(etcd: EtcdFlags, store: StoreFlags, ask_members: AskMembers) -> Result<SavedReport> {
    let mut request = save_request(etcd, store, Compression::Zstd);
    request.ask_members = ask_members;
    request.pod_uid = Some(format!("{:08x}", rand_id()));
    save::run_with(request, 1).await
}

fn rand_id() -> u32 {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

fn proof(saved: &SavedReport) -> (Level, usize) {
    let Verification { level, agreed_by, reason, read_back, differences, .. } = saved.verification.clone().unwrap();
    assert!(read_back);
    assert_eq!(differences, [] as [&str; 0], "nobody changed members, users or roles");
    assert_eq!(reason.is_none(), level == Level::HashKV, "{reason:?}");
    (level, agreed_by.len())
}

/// Writes keys, overwrites and deletes them, with a compaction in between.
async fn history(etcd: &Etcd) -> (i64, u64) {
    let mut client = etcd.client().await;
    for i in 0..300_u64 {
        client.put(format!("k{}", i % 100), noise(i, 500), None).await.unwrap();
    }
    for i in 0..10 {
        client.delete(format!("k{i}"), None).await.unwrap();
    }
    let options = CompactionOptions::new().with_physical();
    client.compact(250, Some(options)).await.unwrap();
    let revision = client.put("last", "", None).await.unwrap().header().unwrap().revision();
    (revision, 91)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_agrees_with_its_own_snapshot() {
    for line in LINES {
        let (etcd, mount) = (Etcd::of(line).await, tempfile::tempdir().unwrap());
        let first = saved(etcd.flags(), mount.path(), AskMembers::Auto).await.unwrap();
        assert_eq!(
            (first.revision, first.keys, proof(&first)),
            (Some(1), Some(0), (Level::HashKV, 1)),
            "{line}: empty"
        );

        let (revision, keys) = history(&etcd).await;
        let report = saved(etcd.flags(), mount.path(), AskMembers::Auto).await.unwrap();
        assert_eq!((report.revision, report.keys), (Some(revision), Some(keys)), "{line}");
        assert_eq!((report.compact_revision, proof(&report)), (Some(250), (Level::HashKV, 1)), "{line}");
        let live = etcd.client().await.hash_kv(0).await.unwrap();
        assert_eq!(report.hash_kv, Some(live.hash()), "{line}");
        let manifest = fs::read(mount.path().join(&report.key).join("manifest.json")).unwrap();
        let manifest = Manifest::parse(&manifest).unwrap();
        assert_eq!(manifest.verification, report.verification);
        let contents = manifest.contents.unwrap();
        assert_eq!((contents.revision, contents.hash_kv), (revision, report.hash_kv));
        assert_eq!(contents.members, std::slice::from_ref(&report.member_id));

        // No key was written after the compaction at the newest revision: etcd answers from a cache.
        let options = CompactionOptions::new().with_physical();
        etcd.client().await.compact(revision, Some(options)).await.unwrap();
        let idle = saved(etcd.flags(), mount.path(), AskMembers::Auto).await.unwrap();
        assert_eq!((idle.compact_revision, proof(&idle)), (Some(revision), (Level::HashKV, 1)), "{line}: idle");

        let mut request = save_request(etcd.flags(), file_store(mount.path()), Compression::Zstd);
        request.dry_run = true;
        let kept = files(mount.path());
        let rehearsed = dry_run::run(request).await.unwrap();
        let proven = Verification { read_back: false, ..idle.verification.clone().unwrap() };
        assert_eq!((rehearsed.revision, rehearsed.verification), (idle.revision, proven));
        assert_eq!((rehearsed.db_bytes, rehearsed.keys), (idle.db_bytes, idle.keys), "{line}");
        assert_eq!(files(mount.path()), kept);
        let mut nowhere = save_request(etcd.flags(), StoreFlags::default(), Compression::Zstd);
        nowhere.dry_run = true;
        let rehearsed = dry_run::run(nowhere).await.unwrap();
        assert_eq!((rehearsed.db_bytes, rehearsed.keys), (idle.db_bytes, idle.keys), "{line}: without a store");
        assert!(rehearsed.lines().contains("this was a dry run"), "{}", rehearsed.lines());

        let never = saved(etcd.flags(), mount.path(), AskMembers::Never).await.unwrap();
        assert_eq!(proof(&never), (Level::Structure, 0), "{line}");
        assert_eq!(never.hash_kv, idle.hash_kv);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_and_compactions_meanwhile_are_no_reason_to_fail() {
    let (etcd, s3) = (Etcd::start().await, S3::start().await);
    etcd.fill(40, 500_000).await;
    let mut client = etcd.client().await;
    let pause = Arc::new(AtomicU64::new(0));
    let pauses = Arc::clone(&pause);
    let writer = tokio::spawn(async move {
        for i in 0.. {
            tokio::time::sleep(Duration::from_millis(pauses.load(Ordering::Relaxed))).await;
            let revision = client.put(format!("w{}", i % 7), noise(i, 300), None).await.unwrap();
            if i % 50 == 49 {
                let revision = revision.header().unwrap().revision();
                client.compact(revision - 20, None).await.unwrap();
            }
        }
    });
    let (mut before, mut levels) = (0, vec![]);
    for i in 0..9 {
        let mut request = save_request(etcd.flags(), s3.flags(), Compression::Zstd);
        request.pod_uid = Some(format!("busy-{i}"));
        let report = save::run(request).await.unwrap();
        assert!(report.revision >= Some(before), "each holds what was acknowledged before it");
        before = etcd.client().await.get("w0", None).await.unwrap().header().unwrap().revision();
        levels.push(proof(&report).0);
        // From here on one save is compared: compactions are ten seconds apart then.
        if i == 4 {
            pause.store(200, Ordering::Relaxed);
        }
        if i > 4 && levels.last() == Some(&Level::HashKV) {
            break;
        }
    }
    writer.abort();
    assert!(!levels.contains(&Level::Trailer), "{levels:?}");
    assert!(levels.last() == Some(&Level::HashKV), "{levels:?}");
}

/// Damages a file as a failing disk does: another byte in a value, in every copy of the value in the file.
fn damage(data: &Path, marker: &[u8]) {
    let file = data.join("member/snap/db");
    let mut bytes = fs::read(&file).unwrap();
    let places: Vec<_> =
        bytes.windows(marker.len()).enumerate().filter(|(_, w)| *w == marker).map(|(i, _)| i).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at] ^= 1;
    }
    fs::write(file, bytes).unwrap();
}

const MARKER: &[u8] = b"a-value-that-is-nowhere-else";

/// Starts three members that hold the marker.
async fn marked() -> (Vec<Etcd>, EtcdFlags) {
    let (members, flags) = three().await;
    members[0].client().await.put("marker", MARKER, None).await.unwrap();
    (members, flags)
}

/// Damages the marker in a follower; returns its number.
async fn damage_one(members: &mut [Etcd]) -> usize {
    let at = (leader(members).await + 1) % members.len();
    // Before etcd has written its batch, the log would restore the value.
    let stored = || fs::read(members[at].database()).unwrap().windows(MARKER.len()).any(|part| part == MARKER);
    eventually("the batch in the file", async || stored().then_some(())).await;
    members[at].again(|data| damage(data, MARKER)).await;
    at
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_has_other_data_stops_the_snapshot() {
    let (mut members, flags) = marked().await;
    let mount = tempfile::tempdir().unwrap();
    let good = saved(flags.clone(), mount.path(), AskMembers::Auto).await.unwrap();
    assert_eq!(proof(&good), (Level::HashKV, 2), "two voters agree");

    let at = damage_one(&mut members).await;
    let kept = files(mount.path());
    let names = format!("m{at}");
    let error = eventually("the members are one cluster again", async || {
        saved(flags.clone(), mount.path(), AskMembers::Auto).await.err().filter(|e| e.class() != ExitClass::Transient)
    })
    .await;
    assert_eq!(error.class(), ExitClass::Corrupt, "{error}");
    assert!(error.message().contains("members differ") && error.message().contains(&names), "{error}");
    assert_eq!(files(mount.path()), kept, "nothing was published and nothing is left over");

    // With much data the save asks a second member if requested.
    let mount = tempfile::tempdir().unwrap();
    let error = eventually("two members are compared", async || {
        let saved = saved_as_large(flags.clone(), file_store(mount.path()), AskMembers::Always).await;
        saved.err().filter(|e| e.class() != ExitClass::Transient)
    })
    .await;
    assert_eq!(error.class(), ExitClass::Corrupt, "{error}");
    assert!(error.message().contains("members differ") && error.message().contains(&names), "{error}");
}

/// Progress of an object when a member contradicts, or the reason why its upload did not start.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Object {
    Made,
    BeingMade,
    OnlyWritten,
    Locked,
}

/// A bucket may have the whole object before the second member reports different data: the save then removes the object, even if
/// the bucket is just assembling it. With write-only credentials, or with an object lock, it cannot be removed, so the save does
/// not create it earlier.
#[tokio::test(flavor = "multi_thread")]
async fn what_became_an_object_while_the_members_were_asked_is_taken_back() {
    let (mut members, _) = marked().await;
    // More than fits between etcd and a bucket that accepts no part yet.
    members[0].fill(130, 500_000).await;
    let at = damage_one(&mut members).await;
    let leads = (at + 1) % members.len();
    // The save reads the follower, whose own answers agree with its data.
    let endpoints = vec![members[leads].url.clone(), members[at].url.clone()];
    let flags = EtcdFlags { endpoints, ..EtcdFlags::default() };
    for what in [Object::Made, Object::BeingMade, Object::OnlyWritten, Object::Locked] {
        let early = matches!(what, Object::Made | Object::BeingMade);
        let (late, writes_only, locks) =
            (what == Object::BeingMade, what == Object::OnlyWritten, what == Object::Locked);
        lead(&members, leads).await;
        let mount = tempfile::tempdir().unwrap();
        eventually("the members are one cluster again", async || {
            let saved = saved(flags.clone(), mount.path(), AskMembers::Auto).await;
            saved.err().filter(|error| error.class() == ExitClass::Corrupt)
        })
        .await;
        lead(&members, leads).await;

        let s3 = if locks { lockable().await } else { S3::start().await };
        let ((send, taken), (make, made)) = (watch::channel(false), watch::channel(false));
        let (tell, mut asked) = mpsc::unbounded_channel();
        let proxy = S3Proxy::before(&s3, move |request| {
            let _told = tell.send(request.op);
            match request.op {
                Op::Part => Fault::When(taken.clone()),
                Op::Complete => Fault::When(made.clone()),
                Op::Get | Op::Head | Op::List | Op::Delete if writes_only => Fault::Answer(403, error("AccessDenied")),
                _ => Fault::Pass,
            }
        })
        .await;
        let mut comes = async |op| {
            let comes = async { while asked.recv().await.unwrap() != op {} };
            tokio::time::timeout(Duration::from_mins(1), comes).await.unwrap();
        };
        let meanwhile = async {
            comes(Op::Part).await;
            let stands_still = members[leads].paused();
            send.send_replace(true);
            if early {
                comes(Op::Complete).await;
                make.send_replace(!late);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(stands_still);
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(!late || proxy.count(Op::Abort) == 0, "it was given up while it was being made");
            make.send_replace(true);
        };
        let store = if locks { locking(proxy.flags(&s3)) } else { proxy.flags(&s3) };
        let saving = saved_to(flags.clone(), store, AskMembers::Auto);
        let (refused, ()) = tokio::join!(saving, meanwhile);
        let refused = refused.unwrap_err();
        assert!(refused.class() == ExitClass::Corrupt && refused.message().contains("members differ"), "{refused}");
        assert_eq!(proxy.count(Op::Complete), usize::from(early), "{what:?}");
        let erased = |request: &Asked| request.op == Op::Delete && request.uri.contains("/snapshot.db");
        assert_eq!(proxy.asked().iter().any(erased), early, "{what:?}");
        let bucket = s3.folder.path().join(if locks { "buckets/locked" } else { "buckets/bkt" });
        // A delete marker of the intent stays in a versioned bucket, and the whole intent where removals are denied.
        let left: Vec<_> = files(&bucket).into_iter().filter(|file| early || !file.contains("/uploads/")).collect();
        assert_eq!(left, [""; 0], "{what:?}: nothing was published and nothing is left over");
    }
}

/// Starts three members with some data; returns them with their flags.
async fn three() -> (Vec<Etcd>, EtcdFlags) {
    let members = Etcd::three().await;
    members[0].fill(50, 2000).await;
    let flags = EtcdFlags { endpoints: members.iter().map(|m| m.url.clone()).collect(), ..EtcdFlags::default() };
    (members, flags)
}

#[tokio::test(flavor = "multi_thread")]
async fn about_much_data_a_second_member_is_asked_where_that_is_wanted() {
    let (members, flags) = three().await;
    for (ask_members, agreed) in [(AskMembers::Auto, 1), (AskMembers::Always, 2)] {
        let (leads, saved) = eventually("a save under one leader", async || {
            let leads = leader(&members).await;
            let mount = tempfile::tempdir().unwrap();
            let saved = saved_as_large(flags.clone(), file_store(mount.path()), ask_members).await.ok()?;
            (leader(&members).await == leads).then_some((leads, saved))
        })
        .await;
        assert_eq!(proof(&saved), (Level::HashKV, agreed), "{ask_members:?}: {saved:?}");
        let Verification { agreed_by, agreed_by_reason, .. } = saved.verification.unwrap();
        assert!(agreed == 2 || !agreed_by.contains(&format!("m{leads}")), "the leader is let alone: {agreed_by:?}");
        let spared = agreed_by_reason.is_some_and(|why| why.contains("only with spec.askMembers: Always"));
        assert_eq!(spared, agreed == 1, "{ask_members:?}");
    }
}
