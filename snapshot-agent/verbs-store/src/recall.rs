//! `agent recall`: lists the runs of a schedule in a store, for records that an outage of the operator left out.
//!
//! This file decides which snapshots belong to the schedule: `origin.schedule.uid` in the manifest. The time in a folder's name
//! limits which manifests are read. The verb reads a bounded number of folders, the oldest first, and reports how far it has
//! read. It writes nothing.

use futures::future::LocalBoxFuture;
use futures::{StreamExt, TryStreamExt, stream};
use holdfast_contract::error::Result;
use holdfast_contract::{MAX_RECALLED, RecallReport, RecallRequest, RecalledRun};
use holdfast_layout::manifest::Manifest;
use holdfast_layout::{Folder, attempt_time};
use holdfast_store::Store;
use jiff::Timestamp;

use holdfast_catalog::attempts::{AT_ONCE, attempts, lineages};
use holdfast_catalog::read_folder::{FolderState, read_folder};
use holdfast_catalog::store_id;

/// Folders whose manifests one report reads: a day and a half of snapshots every ten minutes.
const MAX_READ: usize = 200;

/// Lists the runs of one period.
pub fn run(request: RecallRequest) -> LocalBoxFuture<'static, Result<RecallReport>> {
    Box::pin(async move {
        let (expected, deadline) = (request.expect_store_id.as_deref(), request.deadline_seconds);
        let find = async |store: &Store| find(store, &request).await;
        store_id::read_checked(&request.store, expected, deadline, find).await
    })
}

async fn find(store: &Store, request: &RecallRequest) -> Result<RecallReport> {
    let mut folders: Vec<(Timestamp, Folder)> = vec![];
    // A schedule outlives its cluster: every lineage may hold its runs.
    for lineage in lineages(store, &request.namespace, &request.cluster, None).await? {
        let timed = attempts(store, &lineage).await?.into_iter().filter_map(|f| Some((attempt_time(f.name())?, f)));
        folders.extend(timed.filter(|(at, _)| *at > request.after && *at <= request.until));
    }
    folders.sort();
    let read = folders.iter().take(MAX_READ).map(|(at, folder)| async move {
        let looked = read_folder(store, folder, |manifest| is_run(manifest, folder, request)).await?;
        Ok::<_, holdfast_contract::error::Error>(match looked {
            FolderState::Complete(manifest, _) => run_of(&manifest, *at),
            // Broken and incomplete snapshots are no backups, so they need no record. The run of an archived one is unknown.
            FolderState::WithoutManifest
            | FolderState::Unwanted
            | FolderState::Broken(_)
            | FolderState::Archived(_) => None,
        })
    });
    let found: Vec<Option<RecalledRun>> = stream::iter(read).buffered(AT_ONCE).try_collect().await?;
    let rest = folders.get(MAX_READ).map(|(at, _)| *at);
    Ok(report(found.into_iter().flatten().collect(), rest, request.until))
}

/// Returns the oldest runs, each once: two Pods of one Job may both have published. `rest`: the first unread folder.
fn report(found: Vec<RecalledRun>, rest: Option<Timestamp>, until: Timestamp) -> RecallReport {
    let mut runs: Vec<RecalledRun> = vec![];
    let mut cut = rest;
    for run in found {
        if runs.iter().any(|there| there.uid == run.uid) {
            continue;
        }
        if runs.len() == MAX_RECALLED {
            cut = Some(run.at);
            break;
        }
        runs.push(run);
    }
    // Folder names hold the time in seconds: the next request covers the second of the cut again.
    let before = |at: Timestamp| at.checked_sub(jiff::SignedDuration::from_secs(1)).unwrap_or(at);
    RecallReport { through: cut.map_or(until, before), runs }
}

/// Whether the manifest is in its own folder and belongs to a run of the schedule. A merge of a snapshot and the log is no run.
fn is_run(manifest: &Manifest, folder: &Folder, request: &RecallRequest) -> bool {
    let schedule = manifest.origin.as_ref().and_then(|origin| origin.schedule.as_ref());
    schedule.is_some_and(|schedule| schedule.uid == request.schedule_uid)
        && manifest.derived_from.is_none()
        && manifest.key == folder.as_str()
        && (&manifest.namespace, &manifest.cluster) == (&request.namespace, &request.cluster)
}

fn run_of(manifest: &Manifest, at: Timestamp) -> Option<RecalledRun> {
    let origin = manifest.origin.as_ref()?;
    Some(RecalledRun { job: origin.name.clone()?, uid: origin.uid.clone()?, at })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::sample;
    use holdfast_contract::StoreFlags;
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_795_000_000 + second).unwrap()
    }

    fn named(second: i64, uid: &str) -> RecalledRun {
        RecalledRun { job: format!("nightly-{second}"), uid: uid.to_owned(), at: at(second) }
    }

    #[test]
    fn a_report_is_cut_at_a_whole_second_and_names_each_run_once() {
        let few = vec![named(1, "a"), named(2, "a"), named(3, "b")];
        let all = report(few, None, at(100));
        assert_eq!((all.through, all.runs.len()), (at(100), 2));
        let many: Vec<_> = (0..20).map(|n| named(n, &format!("u{n}"))).collect();
        let cut = report(many.clone(), None, at(100));
        assert_eq!((cut.through, cut.runs.len()), (at(11), MAX_RECALLED));
        let read = report(many[..3].to_vec(), Some(at(50)), at(100));
        assert_eq!((read.through, read.runs.len()), (at(49), 3), "folders that were not read are asked for again");
        let json = serde_json::to_string(&holdfast_contract::Report::Recalled(RecallReport {
            runs: (0..12).map(|n| RecalledRun { job: "j".repeat(63), uid: "u".repeat(36), at: at(n) }).collect(),
            through: at(100),
        }));
        assert!(json.unwrap().len() < holdfast_contract::MAX_REPORT_BYTES);
    }

    #[tokio::test]
    async fn only_complete_runs_of_the_schedule_are_named() {
        let mount = tempfile::tempdir().unwrap();
        let lineage = "shop/orders/1a2b3c4d";
        let put = |name: &str, schedule: &str, owner: &str, complete: bool| {
            let merged = owner.starts_with('6').then(|| json!({"base": "b", "baseRevision": 1, "segments": 1}));
            let key = format!("{lineage}/{name}");
            let origin = json!({"name": "nightly-1", "uid": owner, "schedule": {"name": "nightly", "uid": schedule}});
            let manifest = sample::but(sample::manifest(&key), &json!({"origin": origin, "derivedFrom": merged}));
            let folder = sample::put(mount.path(), &key, &manifest);
            if !complete {
                fs::remove_file(folder.join("manifest.json")).unwrap();
            }
        };
        put("20261121T100001Z-11111111-aaaaaaaa", "s1", "11111111-1", true);
        put("20261121T100002Z-22222222-aaaaaaaa", "s2", "22222222-1", true);
        put("20261121T100003Z-33333333-aaaaaaaa", "s1", "33333333-1", false);
        put("20261121T100004Z-44444444-aaaaaaaa", "s1", "44444444-1", true);
        put("20261121T100004Z-66666666-aaaaaaaa", "s1", "66666666-1", true);
        put("20261121T100009Z-55555555-aaaaaaaa", "s1", "55555555-1", true);
        let url = format!("file://{}", mount.path().display());
        let asked = RecallRequest {
            store: StoreFlags { url, ..StoreFlags::default() },
            namespace: "shop".to_owned(),
            cluster: "orders".to_owned(),
            schedule_uid: "s1".to_owned(),
            after: "2026-11-21T10:00:00Z".parse().unwrap(),
            until: "2026-11-21T10:00:05Z".parse().unwrap(),
            ..RecallRequest::default()
        };
        let store = Store::open(&asked.store).unwrap();
        let found = find(&store, &asked).await.unwrap();
        let uids: Vec<&str> = found.runs.iter().map(|run| run.uid.as_str()).collect();
        assert_eq!((uids, found.through), (vec!["11111111-1", "44444444-1"], asked.until));
    }
}
