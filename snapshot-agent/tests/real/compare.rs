//! `agent compare-members` on members whose databases etcd 3.5.18 left wrong, and the same members after a restart with a later etcd.

use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_contract::error::Result;
use holdfast_contract::{CompareRequest, ComparedReport, DifferenceKind, EtcdFlags, ExitClass, hex_id};
use snapshot_agent::verbs::compare;

use crate::members::{all, id};
use crate::support::{Etcd, etcd_of, eventually};

/// A program that `tests/bin/stores` builds from `snapshot-agent/tests/defective`.
fn defective(name: &str) -> PathBuf {
    let folder = std::env::var_os("HOLDFAST_DEFECTIVE");
    PathBuf::from(folder.expect("HOLDFAST_DEFECTIVE is not set: eval \"$(tests/bin/stores)\"")).join(name)
}

/// Changes the member list in the database of a stopped member.
fn change(data: &Path, how: &str, id: &str) {
    let mut members = Command::new(defective("members"));
    members.arg(how).arg(data.join("member/snap/db")).args([id, "ghost"]);
    assert!(members.status().unwrap().success());
}

async fn compared(etcd: EtcdFlags) -> Result<ComparedReport> {
    compare::run(CompareRequest { etcd, ..request() }).await
}

/// The differences: about which member, its kind, and in whose data.
fn found(report: &ComparedReport) -> Vec<(&str, DifferenceKind, &str)> {
    report.differences.iter().map(|found| (found.member.as_str(), found.kind, found.data_of.as_str())).collect()
}

/// Starts a member of 3.5.18 and a second one, which joins as a learner and gets its vote.
async fn promoted() -> Vec<Etcd> {
    let folder = tempfile::tempdir().unwrap();
    let first = Etcd::by(defective("etcd"), folder, "127.0.0.1", "m0", "http://127.0.0.1:0", &[]).await;
    first.fill(20, 1_000).await;
    let mut members = vec![first];
    let learner = Etcd::learner(&members).await;
    let learners = id(&learner).await;
    members.push(learner);
    eventually("a vote", async || members[0].client().await.member_promote(learners).await.ok()).await;
    for member in &members {
        member.ready().await;
    }
    members
}

/// etcd issue 19557: the promotion never reaches the database.
#[tokio::test(flavor = "multi_thread")]
async fn a_promotion_that_3_5_18_loses_is_found_and_repaired_by_a_restart() {
    let mut members = promoted().await;
    let list = members[0].client().await.member_list().await.unwrap();
    assert!(list.members().iter().all(|member| !member.is_learner()), "etcd lists two voters: {list:?}");
    let report = compared(all(&members)).await.unwrap();
    let lost =
        [("learner", DifferenceKind::LearnerInData, "m0"), ("learner", DifferenceKind::LearnerInData, "learner")];
    assert_eq!(found(&report), lost);
    assert_eq!(report.differences[0].member_id, hex_id(id(&members[1]).await));
    let text = compare::text(&report);
    assert!(text.contains("the database of m0, learner has learner ("), "{text}");

    // The first member alone does not help: the entry is the other one's.
    members[0].again_by(etcd_of("3.5"), |_| {}).await;
    assert_eq!(found(&compared(all(&members)).await.unwrap()), lost);
    members[1].again_by(etcd_of("3.5"), |_| {}).await;
    let agrees =
        eventually("the repair", async || compared(all(&members)).await.ok().filter(ComparedReport::agrees)).await;
    assert_eq!(agrees.members.len(), 2);
    // etcd 3.6 starts on the repaired data with the same members.
    for member in &mut members {
        member.again_by(etcd_of("3.6"), |_| {}).await;
    }
    let agrees = compared(all(&members)).await.unwrap();
    assert!(agrees.agrees() && agrees.members.iter().all(|member| member.etcd_version.starts_with("3.6.")));
}

/// etcd pull request 20995: a member that was removed is still in the database. The defect is made by hand.
#[tokio::test(flavor = "multi_thread")]
async fn a_removed_member_in_the_database_is_found_and_3_6_would_bring_it_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut member = Etcd::by(defective("etcd"), folder, "127.0.0.1", "m0", "http://127.0.0.1:0", &[]).await;
    member.fill(20, 1_000).await;
    assert!(compared(member.flags()).await.unwrap().agrees(), "a sound member");
    member.again_by(defective("etcd"), |data| change(data, "add", "dead")).await;
    let report = compared(member.flags()).await.unwrap();
    assert_eq!(found(&report), [("ghost", DifferenceKind::NotListed, "m0")]);

    let copy = tempfile::tempdir().unwrap();
    let kept = copy.path().join("kept");
    member
        .again_by(etcd_of("3.6"), |data| {
            assert!(Command::new("cp").arg("-r").args([data, &kept]).status().unwrap().success());
        })
        .await;
    let list = member.client().await.member_list().await.unwrap();
    let names: Vec<_> = list.members().iter().map(etcd_client::Member::name).collect();
    assert!(names.contains(&"ghost"), "3.6 lists the removed member again: {names:?}");

    // Its data from before 3.6.
    member
        .again_by(etcd_of("3.5"), |data| {
            std::fs::remove_dir_all(data).unwrap();
            assert!(Command::new("cp").arg("-r").args([&kept, data]).status().unwrap().success());
        })
        .await;
    eventually("the repair", async || compared(member.flags()).await.ok().filter(ComparedReport::agrees)).await;
}

/// The other two differences, made by hand on 3.5.35. A restart repairs the first one only.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_member_and_a_buried_one_are_found() {
    let mut member = Etcd::of("3.5").await;
    let own = hex_id(id(&member).await);
    member.again_by(etcd_of("3.5"), |data| change(data, "bury", &own)).await;
    let buried = [("default", DifferenceKind::RemovedInData, "default")];
    assert_eq!(found(&compared(member.flags()).await.unwrap()), buried);
    member.again_by(etcd_of("3.5"), |data| change(data, "forget", &own)).await;
    eventually("the repair of one", async || {
        compared(member.flags()).await.ok().filter(|report| found(report) == buried)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_cluster_agrees_and_a_member_that_was_not_read_is_no_agreement() {
    let mut members = Etcd::three().await;
    members[0].fill(50, 10_000).await;
    let report = compared(all(&members)).await.unwrap();
    assert!(report.agrees() && report.members.len() == 3, "{report:?}");
    // A learner answers no reads of the list; its database is read.
    let learner = Etcd::learner(&members).await;
    let mut endpoints = all(&members).endpoints;
    let error = compared(EtcdFlags { endpoints: endpoints.clone(), ..EtcdFlags::default() }).await.unwrap_err();
    assert!(error.class() == ExitClass::Config && error.message().contains("no endpoint leads"), "{error}");
    endpoints.extend([learner.url.clone(), members[0].url.clone()]);
    let flags = EtcdFlags { endpoints, ..EtcdFlags::default() };
    let report = eventually("four members", async || compared(flags.clone()).await.ok()).await;
    assert!(report.agrees() && report.members.len() == 4, "{report:?}");

    let other = CompareRequest { etcd: flags.clone(), expect_cluster_id: Some("1".to_owned()), ..request() };
    assert_eq!(compare::run(other).await.unwrap_err().class(), ExitClass::Config);
    members[1].kill();
    let error = compared(flags).await.unwrap_err();
    assert_eq!(error.failure().code, 76, "{error}");
}

fn request() -> CompareRequest {
    CompareRequest { member_seconds: 60, deadline_seconds: 120, ..CompareRequest::default() }
}
