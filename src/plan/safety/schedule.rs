//! Rules for plans about a schedule: it records what has run, and never touches what is stored.

use super::{Verdict, is, rule};
use crate::api::snapshot::Phase;
use crate::api::{EtcdSnapshotScheduleStatus, key};
use crate::plan::schedule::Observed;
use crate::plan::{Act, Ensure, Plan, meta};

/// Whether a plan keeps the rules.
pub fn schedule(seen: &Observed, plan: &Plan<EtcdSnapshotScheduleStatus>) -> Verdict {
    let uid = meta::uid(&seen.schedule.metadata);
    let idle = meta::deleting(&seen.schedule.metadata);
    rule("I13", !idle || (plan.act.is_none() && plan.ensures.is_empty()), "a deleted schedule is left alone")?;
    for ensure in &plan.ensures {
        let Ensure::CronJob(cron) = ensure else {
            return rule("I13", false, "a schedule applies nothing but its CronJob");
        };
        rule("I13", meta::controlled_by(&cron.metadata, uid), "a schedule's CronJob goes with the schedule")?;
        let ours = seen.cron_job.as_ref().is_none_or(|live| meta::controlled_by(&live.metadata, uid));
        rule("I13", ours, "the CronJob belongs to another owner, so Holdfast does not apply the object")?;
    }
    match &plan.act {
        None => Ok(()),
        Some(Act::StartJob(job)) => {
            rule("I13", meta::controlled_by(&job.metadata, uid), "a Job goes with its schedule")
        }
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
        Some(Act::DeleteRecord { snapshot, .. }) => {
            let there = seen.snapshots.iter().find(|there| is(snapshot, &there.metadata));
            rule("I12", there.is_some(), "the record that goes is the one that was seen")?;
            let failed = there.and_then(|there| there.status.as_ref()).is_some_and(|s| s.phase == Phase::Failed);
            rule("I18", failed, "only records of failed runs are deleted")?;
            let own = there.is_some_and(|there| {
                there.spec.run.is_some() && meta::label(&there.metadata, key::SCHEDULE_UID) == Some(uid)
            });
            rule("I13", own, "the record belongs to this schedule")
        }
        Some(_) => rule("I13", false, "a schedule does nothing but record runs and ask the store"),
    }
}
