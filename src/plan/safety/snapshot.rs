//! Rules for plans about a snapshot.

use k8s_openapi::api::batch::v1::Job;

use super::{Verdict, rule};
use crate::api::{EtcdSnapshotStatus, component, key};
use crate::plan::build::job::{expects, inspects};
use crate::plan::snapshot::{Observed, made_for};
use crate::plan::{Act, Plan, meta};

/// Whether a plan keeps the rules.
pub fn snapshot(seen: &Observed, plan: &Plan<EtcdSnapshotStatus>) -> Verdict {
    rule("I13", plan.ensures.is_empty(), "a snapshot has nothing that is applied")?;
    written_once(seen, plan)?;
    match &plan.act {
        None => Ok(()),
        Some(Act::StartJob(job)) => start(seen, job),
        Some(
            Act::Latch(_)
            | Act::CreateMember(_)
            | Act::AddLearner { .. }
            | Act::SetInitialCluster { .. }
            | Act::LatchJoined { .. }
            | Act::ForbidEmptyStart { .. }
            | Act::LatchStart { .. }
            | Act::MarkStarted { .. }
            | Act::Promote { .. }
            | Act::Disarm { .. }
            | Act::AdmitClients { .. }
            | Act::Relabel { .. }
            | Act::CreateClaim(_)
            | Act::CreatePod(_)
            | Act::DeletePod { .. }
            | Act::DeleteClaim { .. }
            | Act::DeleteMember { .. }
            | Act::ReleaseMember { .. },
        ) => rule("I13", false, "a snapshot's pass never changes a cluster"),
    }
}

/// What is final stays as it is, and an artifact stands only in what is complete.
fn written_once(seen: &Observed, plan: &Plan<EtcdSnapshotStatus>) -> Verdict {
    let new = &plan.status;
    if let Some(old) = seen.snapshot.status.as_ref().filter(|s| s.phase.is_final()) {
        // Conditions may tell of other things; what was decided may not move.
        let same = EtcdSnapshotStatus { conditions: old.conditions.clone(), ..new.clone() } == *old;
        rule("I18", same, "a final snapshot never changes")?;
        rule("I18", plan.act.is_none(), "nothing is started for a final snapshot")?;
    }
    if let Some(was) = seen.snapshot.status.as_ref().and_then(|s| s.store.as_ref()) {
        rule("I7", new.store.as_ref() == Some(was), "where a snapshot was stored never changes")?;
    }
    let complete = new.phase == crate::api::snapshot::Phase::Complete;
    rule("I7", complete == new.artifact.is_some(), "a snapshot has an artifact exactly when it is complete")
}

fn start(seen: &Observed, job: &Job) -> Verdict {
    let meta = &seen.snapshot.metadata;
    rule("I18", !meta::deleting(meta), "nothing is started for a snapshot that is being deleted")?;
    if job.spec.as_ref().and_then(|s| s.template.spec.as_ref()).is_some_and(inspects) {
        let one = seen.inspections.iter().all(|old| old.is_done() && old.job.metadata.name != job.metadata.name);
        rule("I7", one, "the store is asked by one Job after the other")?;
    } else {
        rule("I7", seen.job.is_none() && seen.strays.is_empty(), "one Job at a time")?;
        let again = seen.snapshot.status.as_ref().is_some_and(|s| s.started_at.is_some());
        let answered = seen.inspections.iter().any(|i| meta::controlled_by(&i.job.metadata, meta::uid(meta)));
        rule("I6", !again || answered, "another one is taken only when the store has been asked for the first")?;
    }
    let mark = made_for(job).and_then(|record| record.id);
    let told = mark.is_none_or(|mark| expects(job, &mark));
    rule("I25", told, "a store whose mark is known is expected to have it, whether it is written to or asked")?;
    let owned = meta::controlled_by(&job.metadata, meta::uid(meta)) && job.metadata.namespace == meta.namespace;
    rule("I13", owned, "a snapshot's Job is its own and stands beside it")?;
    let template = job.spec.as_ref().map(|s| &s.template).and_then(|t| t.metadata.as_ref());
    let agent = template.is_some_and(|m| meta::label(m, key::COMPONENT) == Some(component::SNAPSHOT_AGENT));
    rule("I16", agent, "an agent's Pod never stands behind a Service of a cluster")
}
