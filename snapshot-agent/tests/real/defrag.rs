//! `agent defrag` on three members whose databases have free space.

use std::time::{Duration, Instant};

use etcd_client::{CompactionOptions, DeleteOptions};
use holdfast_contract::{DefragOutcome, DefragRequest, EtcdFlags, ExitClass, hex_id};
use snapshot_agent::verbs::defrag::{self, Ended};

use crate::members::{all, id};
use crate::support::{Etcd, eventually};

/// MiB that the test frees in each file.
const FREED: u64 = 24;

fn request(etcd: EtcdFlags) -> DefragRequest {
    DefragRequest {
        etcd,
        free_percent: 20,
        free_mib: 8,
        member_seconds: 60,
        deadline_seconds: 120,
        ..DefragRequest::default()
    }
}

/// Three members with some kept keys and freed space.
async fn fragmented() -> Vec<Etcd> {
    let members = Etcd::three().await;
    members[0].ready().await;
    members[0].fill(FREED * 16, 64 << 10).await;
    let mut client = members[0].client().await;
    let everything = DeleteOptions::new().with_prefix();
    let deleted = client.delete("k", Some(everything)).await.unwrap();
    members[0].fill(20, 1_000).await;
    let revision = deleted.header().unwrap().revision();
    client.compact(revision, Some(CompactionOptions::new().with_physical())).await.unwrap();
    // etcd counts the freed pages after the next two commits of its file.
    eventually("free pages", async || {
        members[0].client().await.put("beside", "", None).await.ok()?;
        let status = members[0].client().await.status().await.ok()?;
        (status.db_size() - status.raft_used_db_size() > 16 << 20).then_some(())
    })
    .await;
    members
}

fn sizes(members: &[Etcd]) -> Vec<u64> {
    members.iter().map(|member| member.database().metadata().unwrap().len()).collect()
}

fn outcomes(ended: &Ended) -> Vec<DefragOutcome> {
    ended.report.members.iter().map(|member| member.outcome).collect()
}

/// Writes every few milliseconds through this member. Returns the number of failed writes and the longest gap.
async fn write_beside(member: &Etcd, until: &tokio::sync::Notify) -> (usize, Duration) {
    let mut client = member.client().await;
    let (mut failed, mut gap, mut last) = (0, Duration::ZERO, Instant::now());
    let ended = until.notified();
    tokio::pin!(ended);
    loop {
        tokio::select! {
            () = &mut ended => return (failed, gap.max(last.elapsed())),
            written = client.put("beside", "x", None) => match written {
                Ok(_) => (gap, last) = (gap.max(last.elapsed()), Instant::now()),
                Err(_) => failed += 1,
            },
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn free_space_comes_back_while_the_members_serve() {
    let members = fragmented().await;
    let before = sizes(&members);
    let mut kept = members[0].content().await;
    kept.retain(|(key, _)| key != b"beside");
    let planned = defrag::run(DefragRequest { dry_run: true, ..request(all(&members)) }).await.unwrap();
    assert!(planned.failed.is_none());
    assert_eq!(outcomes(&planned), [DefragOutcome::Planned; 3]);
    assert_eq!(sizes(&members), before, "a plan changes nothing");

    let mut leader = 0;
    for (place, member) in members.iter().enumerate() {
        if member.leads().await {
            leader = place;
        }
    }
    let stop = tokio::sync::Notify::new();
    let (ended, (failed, gap)) = tokio::join!(
        async {
            let ended = defrag::run(DefragRequest { move_leader: true, ..request(all(&members)) }).await.unwrap();
            stop.notify_one();
            ended
        },
        write_beside(&members[leader], &stop),
    );
    println!("defrag of three: {:?}, {failed} writes failed, longest gap {} ms", ended.report, gap.as_millis());
    assert!(ended.failed.is_none(), "{:?}", ended.failed);
    assert_eq!(outcomes(&ended), [DefragOutcome::Defragmented; 3]);
    assert_eq!(ended.report.members[2].id, hex_id(id(&members[leader]).await), "the leader is last");
    assert!(!members[leader].leads().await, "the leadership has moved");
    for (place, (before, after)) in before.iter().zip(sizes(&members)).enumerate() {
        assert!(after + (16 << 20) < *before, "m{place}: {before} -> {after}");
    }
    let mut now = members[0].content().await;
    now.retain(|(key, _)| key != b"beside");
    assert_eq!(now, kept);

    let again = defrag::run(request(all(&members))).await.unwrap();
    assert_eq!(outcomes(&again), [DefragOutcome::TooLittleFree; 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_member_is_touched_beside_one_that_is_silent_or_not_named() {
    let members = fragmented().await;
    let before = sizes(&members);
    let error = defrag::run(request(all(&members[..2]))).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Config, "{error}");
    assert!(error.message().contains("name a client URL of every member"), "{error}");
    let paused = members[2].paused();
    let error = defrag::run(request(all(&members))).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Transient, "{error}");
    drop(paused);
    assert_eq!(sizes(&members), before);
}

/// A learner has no vote yet: one voter less would stand still than the membership shows.
#[tokio::test(flavor = "multi_thread")]
async fn a_learner_holds_it_up() {
    let mut members = fragmented().await;
    let learner = Etcd::learner(&members).await;
    members.push(learner);
    let before = sizes(&members[..3]);
    let short = DefragRequest { deadline_seconds: 5, ..request(all(&members)) };
    let ended = defrag::run(short).await.unwrap();
    assert!(ended.failed.is_some());
    assert!(!outcomes(&ended).contains(&DefragOutcome::Defragmented), "{:?}", ended.report);
    assert_eq!(sizes(&members[..3]), before);
}
