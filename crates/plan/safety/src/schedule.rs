//! Rules for plans about a schedule: it records its runs. Stored snapshots are removed in one way only: by a Job that was latched
//! before the pass reads the restores (I25). A record is deleted only when nothing of its run is stored (I18).

use holdfast_api::schedule::PruneRun;
use holdfast_api::snapshot::{DeletionPolicy, Phase};
use holdfast_api::{EtcdSnapshot, EtcdSnapshotScheduleStatus, component, key, name};
use holdfast_contract::{Level, Report, Request};
use holdfast_layout::attempt_of_key;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::{CronJob, Job};

use super::{Verdict, is, rule};
use holdfast_base::objects::job::{CONTAINER, Kind, pod_spec, request_of};
use holdfast_base::restores::{is_read, is_within};
use holdfast_base::seen::schedule::Observed;
use holdfast_base::{Act, Ensure, Plan, Target, jobs, meta, pods};

/// Whether a plan keeps the rules.
pub fn schedule(seen: &Observed, plan: &Plan<EtcdSnapshotScheduleStatus>) -> Verdict {
    let uid = meta::uid(&seen.schedule.metadata);
    let idle = meta::deleting(&seen.schedule.metadata);
    rule("I13", !idle || (plan.act.is_none() && plan.ensures.is_empty()), "a deleted schedule is left alone")?;
    for ensure in &plan.ensures {
        let cron = match ensure {
            Ensure::CronJob(cron) => cron,
            Ensure::Deployment(log) => {
                record_log(seen, log)?;
                continue;
            }
            _ => {
                return rule("I13", false, "a schedule applies nothing but its CronJobs and the Deployment of its log");
            }
        };
        rule("I13", meta::controlled_by(&cron.metadata, uid), "a schedule's CronJob goes with the schedule")?;
        let live = [&seen.cron_job, &seen.drill_cron_job, &seen.compaction_cron_job].into_iter().flatten();
        let is_owned = live
            .filter(|live| live.metadata.name == cron.metadata.name)
            .all(|live| meta::controlled_by(&live.metadata, uid));
        rule("I13", is_owned, "the CronJob belongs to another owner, so Holdfast does not apply the object")?;
        recurring(seen, cron)?;
    }
    match &plan.act {
        None => Ok(()),
        Some(Act::StartJob(job)) => {
            rule("I13", meta::controlled_by(&job.metadata, uid), "a Job goes with its schedule")?;
            rule("I25", pod_spec(job).and_then(Kind::of_pod).is_some(), "a Job does what its request says")?;
            if removes(job) { start(seen, job) } else { Ok(()) }
        }
        Some(Act::StartRun(job)) => save_now(seen, job),
        Some(Act::DeleteDeployment { deployment, .. }) => {
            let own = seen.log_deployment.as_ref().filter(|live| meta::controlled_by(&live.metadata, uid));
            let own = own.is_some_and(|live| is(deployment, &live.metadata));
            rule("I13", own, "the Deployment that goes is the schedule's own, as it was seen")?;
            rule("I25", seen.schedule.spec.log.is_none(), "a log that the spec asks for goes on")
        }
        Some(Act::LatchPrune(run)) => latch(seen, run),
        Some(Act::RecordRun(record)) => {
            let run = record.spec.run.as_ref();
            let own = run.is_some() && meta::label(&record.metadata, key::SCHEDULE_UID) == Some(uid);
            rule("I13", own, "a schedule makes records of its own runs alone")?;
            let twice =
                seen.snapshots.iter().any(|there| there.spec.run.as_ref().map(|r| &r.uid) == run.map(|r| &r.uid));
            rule("I7", !twice, "a run is recorded once")?;
            let ownerless = record.metadata.owner_references.as_ref().is_none_or(Vec::is_empty);
            rule("I21", ownerless, "no deletion of a schedule takes a record of a backup away")
        }
        Some(Act::DeleteRecord { snapshot, removed, .. }) => delete(seen, snapshot, removed.as_deref()),
        Some(_) => rule(
            "I13",
            false,
            "a schedule does nothing but record runs, ask the store and remove what it does not keep",
        ),
    }
}

/// Checks the Pods of a `CronJob`: it saves, merges or drills, and neither stands behind a Service nor removes anything.
fn recurring(seen: &Observed, cron: &CronJob) -> Verdict {
    let meta = &seen.schedule.metadata;
    let template = cron.spec.as_ref().and_then(|spec| spec.job_template.spec.as_ref()).map(|job| &job.template);
    let pod = template.and_then(|template| template.spec.as_ref());
    let is_named =
        |name: fn(&str, &str) -> String| meta::name(&cron.metadata) == name(meta::name(meta), meta::uid(meta));
    let of_drills = is_named(name::drill_cron_job);
    let kind = match (of_drills, is_named(name::compaction_cron_job)) {
        (true, _) => Kind::Drill,
        (false, true) => Kind::Compact,
        (false, false) => Kind::Save,
    };
    rule("I25", kind.runs_in(pod), "a schedule's CronJobs only save, merge and drill")?;
    let labels = template.and_then(|template| template.metadata.as_ref());
    let component = labels.and_then(|labels| meta::label(labels, key::COMPONENT));
    let own = if of_drills { component::SNAPSHOT_DRILL } else { component::SNAPSHOT_AGENT };
    rule("I16", component == Some(own), "an agent's Pod never stands behind a Service of a cluster")?;
    // The user names the image of the last container, and of the one before it the version.
    let installs = pod.iter().flat_map(|pod| pod.init_containers.iter().flatten());
    let sealed = installs.flat_map(|it| it.volume_mounts.iter().flatten()).all(|mount| mount.name == "bin");
    rule("I14", sealed, "only the agent's container sees Secrets")?;
    let tokenless = pod.is_none_or(|pod| pod.automount_service_account_token == Some(false));
    rule("I14", tokenless, "an agent's Pod has no token of Kubernetes")
}

/// Checks the Pod of a log's Deployment: it belongs to the schedule, records, and has neither a token nor a place behind a Service.
fn record_log(seen: &Observed, log: &Deployment) -> Verdict {
    let uid = meta::uid(&seen.schedule.metadata);
    rule("I13", meta::controlled_by(&log.metadata, uid), "a schedule's Deployment goes with the schedule")?;
    let is_owned = seen.log_deployment.as_ref().is_none_or(|live| meta::controlled_by(&live.metadata, uid));
    rule("I13", is_owned, "the Deployment belongs to another owner, so Holdfast does not apply the object")?;
    rule("I25", seen.schedule.spec.log.is_some(), "a schedule without spec.log records nothing")?;
    let template = log.spec.as_ref().map(|spec| &spec.template);
    let pod = template.and_then(|template| template.spec.as_ref());
    rule("I25", Kind::Log.runs_in(pod), "a schedule's Deployment only records")?;
    let labels = template.and_then(|template| template.metadata.as_ref());
    let component = labels.and_then(|labels| meta::label(labels, key::COMPONENT));
    let agent = component == Some(component::SNAPSHOT_AGENT);
    rule("I16", agent, "an agent's Pod never stands behind a Service of a cluster")?;
    let tokenless = pod.is_some_and(|pod| pod.automount_service_account_token == Some(false));
    rule("I14", tokenless, "an agent's Pod has no token of Kubernetes")
}

/// Checks a run at another time than a due one: a save of the schedule's own `CronJob`, where revisions are missing from the log or the
/// cluster has gone back in place.
fn save_now(seen: &Observed, job: &Job) -> Verdict {
    let uid = meta::uid(&seen.schedule.metadata);
    let own = seen.cron_job.as_ref().filter(|cron| meta::controlled_by(&cron.metadata, uid));
    let cron = own.map(|cron| meta::uid(&cron.metadata)).unwrap_or_default();
    rule("I13", meta::controlled_by(&job.metadata, cron), "a run is a Job of the schedule's CronJob")?;
    rule("I25", Kind::Save.runs_in(pod_spec(job)), "a run saves")?;
    let latches = seen.cluster.as_ref().and_then(|cluster| cluster.status.as_ref()).map(|status| &status.latches);
    let returned = latches.is_some_and(|latches| latches.timeline.is_some() && latches.formed.is_some());
    let asks = seen.schedule.spec.log.is_some() || returned;
    rule("I25", asks, "only a gap in the log and a return in place ask for a run")
}

fn removes(job: &Job) -> bool {
    Kind::Prune.runs_in(pod_spec(job))
}

fn latched(seen: &Observed) -> Option<&PruneRun> {
    seen.schedule.status.as_ref()?.prune_run.as_ref()
}

/// Checks that the snapshots of restores are latched once, after the run itself: a later restore sees that its snapshot is
/// missing there.
fn latch(seen: &Observed, run: &PruneRun) -> Verdict {
    rule("I25", run.ended_at.is_none(), "a latch is of a run that comes")?;
    match latched(seen) {
        None => {
            let stands = seen.recalls.iter().any(|one| meta::name(&one.job.metadata) == run.job);
            rule("I25", run.protects.is_none() || stands, "a run is latched before the restores are read")
        }
        Some(old) => {
            let same = PruneRun { protects: None, ..run.clone() } == *old;
            rule("I25", same, "what a run protects is written once, and nothing else of the run changes")?;
            let below = |key: &&String| is_within(key, &run.lineage);
            let all = seen.restores.iter().filter(below).all(|key| run.protects.iter().flatten().any(|k| k == key));
            rule("I25", all, "a run protects each snapshot and lineage that is restored")
        }
    }
}

/// Checks that a Job removes only snapshots of the latched cluster and schedule, and protects those that are restored or held.
fn start(seen: &Observed, job: &Job) -> Verdict {
    let spec = &seen.schedule.spec;
    rule("I25", spec.retention.is_some() && !spec.suspend_pruning, "only a policy that stands removes snapshots")?;
    let run = latched(seen).filter(|run| run.job == meta::name(&job.metadata) && run.ended_at.is_none());
    let protects = run.and_then(|run| run.protects.as_ref());
    rule("I25", protects.is_some(), "a Job that removes snapshots is latched with what it protects")?;
    let Some(Request::Prune(request)) = request_of(job) else {
        return rule("I25", false, "the Job removes snapshots of a schedule");
    };
    let cluster = seen.cluster.as_ref().map(|cluster| meta::uid(&cluster.metadata));
    let own =
        cluster == Some(request.cluster_uid.as_str()) && request.schedule_uid == meta::uid(&seen.schedule.metadata);
    rule("I25", own, "a Job removes snapshots of this cluster and this schedule alone")?;
    let folder = run.and_then(|run| run.lineage.rsplit('/').next()).filter(|folder| !folder.is_empty());
    let here = cluster.zip(folder).is_some_and(|(cluster, folder)| cluster.starts_with(folder));
    rule("I25", here, "what is latched is the folder of this cluster")?;
    let lineage = run.map(|run| format!("{}/", run.lineage)).unwrap_or_default();
    let held = seen.held.iter().filter(|key| key.starts_with(&lineage));
    let kept = protects.into_iter().flatten().chain(held).all(|key| request.protect.contains(key));
    rule("I25", kept, "what is restored or held stays")?;
    let named = spec.snapshot_template.destination.store_ref.is_some();
    rule("I25", !named || request.expect_store_id.is_some(), "nothing is removed from a store whose ID is not known")
}

/// Checks that the record's run failed; or that a Job of this schedule has removed snapshots, the store was asked after the Job's
/// end and does not name the run, and a later proven backup exists.
fn delete(seen: &Observed, target: &Target, removed: Option<&str>) -> Verdict {
    let uid = meta::uid(&seen.schedule.metadata);
    let there = seen.snapshots.iter().find(|there| is(target, &there.metadata));
    rule("I12", there.is_some(), "the record that goes is the one that was seen")?;
    let own = there
        .is_some_and(|there| there.spec.run.is_some() && meta::label(&there.metadata, key::SCHEDULE_UID) == Some(uid));
    rule("I13", own, "the record belongs to this schedule")?;
    let run = there.and_then(|there| there.spec.run.as_ref());
    let stands = seen.jobs.iter().any(|job| run.is_some_and(|run| meta::uid(&job.metadata) == run.uid));
    rule("I7", !stands, "a run whose Job stands would be recorded again")?;
    let status = there.and_then(|there| there.status.as_ref());
    let Some(key) = removed else {
        let failed = status.is_some_and(|s| s.phase == Phase::Failed);
        let spare = there.is_some_and(|there| is_surplus(seen, there));
        return rule("I18", failed || spare, "only records of failed runs, and of complete ones beyond the limit, go");
    };
    let same = status.and_then(|s| s.artifact.as_ref()).is_some_and(|artifact| artifact.key == key);
    rule("I18", same, "the record is that of the snapshot that is gone")?;
    rule(
        "I18",
        there.is_some_and(|there| is_gone(seen, there, key)),
        "the store was asked whether it holds the snapshot",
    )?;
    let at = |key: &str| attempt_of_key(key).map(|(_, at)| at);
    let proven = |other: &EtcdSnapshot| {
        let status = other.status.as_ref()?;
        let level = status.verification.as_ref().map(|proof| proof.level);
        (level == Some(Level::HashKV)).then(|| at(&status.artifact.as_ref()?.key)).flatten()
    };
    let later = seen.snapshots.iter().filter_map(proven).any(|other| at(key).is_some_and(|this| other > this));
    rule("I25", later, "a later snapshot that is proven stays")
}

/// Whether a record of a complete run is beyond the limit, and takes nothing along: newer complete runs have as many records as the
/// spec keeps, all runs up to its time were recorded, no person holds it and no restore names it.
fn is_surplus(seen: &Observed, record: &EtcdSnapshot) -> bool {
    let complete = |snapshot: &EtcdSnapshot| snapshot.status.as_ref().is_some_and(|s| s.phase == Phase::Complete);
    let at = |snapshot: &EtcdSnapshot| snapshot.spec.run.as_ref()?.started_at.parse::<Timestamp>().ok();
    let Some(own) = at(record).filter(|_| complete(record)) else { return false };
    let newer = seen.snapshots.iter().filter(|other| complete(other) && at(other).is_some_and(|at| at > own)).count();
    let through = seen.schedule.status.as_ref().and_then(|status| status.recalled_through.as_ref()?.parse().ok());
    let recorded = through.is_some_and(|through: Timestamp| own <= through);
    let key = record.status.as_ref().and_then(|status| Some(status.artifact.as_ref()?.key.clone()));
    let restored = key.is_none_or(|key| is_read(&seen.restores, &key));
    let retained = !record.spec.hold && record.spec.deletion_policy == DeletionPolicy::Retain;
    newer >= seen.schedule.spec.successful_limit() && recorded && retained && !restored
}

/// Whether a search of the store after the end of the run does not find the snapshot.
fn is_gone(seen: &Observed, record: &EtcdSnapshot, key: &str) -> bool {
    let status = seen.schedule.status.as_ref();
    let run = status.and_then(|status| status.prune_run.as_ref());
    let Some(prune) = run.and_then(|run| seen.recalls.iter().find(|one| meta::name(&one.job.metadata) == run.job))
    else {
        // Kubernetes deletes the Job after an hour; the status keeps the time of its end.
        return run.and_then(|run| run.ended_at.as_ref()).is_some_and(|_| is_reported(seen, record, key, None));
    };
    jobs::over(&prune.job) && is_reported(seen, record, key, jobs::created(&prune.job))
}

/// Whether a Job that was created after this time has read past the snapshot, and does not name its run.
fn is_reported(seen: &Observed, record: &EtcdSnapshot, key: &str, after: Option<Timestamp>) -> bool {
    let (Some((_, at)), Some(run)) = (attempt_of_key(key), record.spec.run.as_ref()) else { return false };
    seen.recalls.iter().filter(|one| !removes(&one.job)).any(|one| {
        let later = after.is_none_or(|after| jobs::created(&one.job).is_some_and(|made| made >= after));
        let Some(Request::Recall(request)) = request_of(&one.job) else { return false };
        later
            && request.after < at
            && one.pods.iter().filter_map(|pod| pods::report(pod, CONTAINER)).any(|report| match report {
                Report::Recalled(found) => found.through >= at && !found.runs.iter().any(|there| there.uid == run.uid),
                _ => false,
            })
    })
}
