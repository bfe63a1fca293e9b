//! Rules for plans about a snapshot: it starts Jobs, each under a name that is used once. A stored snapshot is removed in one way
//! only: by a Job of an object that is being deleted, latched before the pass reads the restores (I25).

use holdfast_api::snapshot::{DeletionPolicy, Phase, Removal};
use holdfast_api::{EtcdSnapshotStatus, key};
use holdfast_contract::Request;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

use super::{Verdict, is, rule};
use holdfast_base::objects::job::{CONTAINER, Kind, pod_spec, request_of};
use holdfast_base::removals::PATIENCE;
use holdfast_base::restores::is_read;
use holdfast_base::seen::snapshot::Observed;
use holdfast_base::{Act, Plan, meta, pods};

/// Whether a plan keeps the rules.
pub fn snapshot(seen: &Observed, plan: &Plan<EtcdSnapshotStatus>, now: Timestamp) -> Verdict {
    let deleting = meta::deleting(&seen.snapshot.metadata);
    rule("I12", plan.ensures.is_empty(), "a snapshot applies nothing")?;
    match &plan.act {
        None => Ok(()),
        Some(Act::StartJob(job)) => {
            let own = meta::controlled_by(&job.metadata, meta::uid(&seen.snapshot.metadata));
            rule("I13", own, "a Job goes with its snapshot")?;
            let kind = pod_spec(job).and_then(Kind::of_pod);
            rule("I25", kind.is_some(), "a Job does what its request says")?;
            if kind == Some(Kind::Remove) {
                return start(seen, job);
            }
            rule("I18", !deleting || kind != Some(Kind::Save), "a snapshot that is being deleted saves nothing")
        }
        Some(Act::DeleteJob { job, .. }) => {
            let own = seen.job.as_ref().filter(|own| seen.owns(own) && is(job, &own.metadata));
            rule("I12", own.is_some(), "the Job is the snapshot's own, as it was seen")?;
            let recorded = seen.snapshot.status.as_ref().is_some_and(|status| status.phase.is_final());
            rule("I18", recorded, "a Job goes after its result is recorded")?;
            let failed = seen.snapshot.status.as_ref().is_some_and(|status| status.phase == Phase::Failed);
            let state = |pod: &Pod| pods::status(pod, CONTAINER).and_then(|s| s.state.clone());
            // The Pod of a failed save may wait for a Secret that is gone.
            let ended =
                |pod: &Pod| state(pod).map_or(failed, |s| s.terminated.is_some() || (failed && s.running.is_none()));
            rule("I6", seen.pods.iter().all(ended), "a Job whose agent runs is not deleted")
        }
        Some(Act::LatchRemoval(removal)) => latch(seen, removal),
        Some(Act::KeepArtifact { snapshot }) => rule(
            "I12",
            is(snapshot, &seen.snapshot.metadata) && !deleting,
            "the finalizer is of the object that was seen",
        ),
        Some(Act::ReleaseArtifact { snapshot }) => {
            rule("I12", is(snapshot, &seen.snapshot.metadata), "the finalizer is of the object that was seen")?;
            let over = !deleting || !goes_along(seen) || may_end(seen, now);
            rule("I25", over, "an object whose stored snapshot is to go waits for that, and not for ever")
        }
        Some(_) => rule("I12", false, "a snapshot starts and ends its Jobs and holds itself, and nothing else"),
    }
}

fn goes_along(seen: &Observed) -> bool {
    seen.snapshot.spec.deletion_policy == DeletionPolicy::Delete && seen.snapshot.spec.run.is_none()
}

fn latched(seen: &Observed) -> Option<&Removal> {
    seen.snapshot.status.as_ref()?.removal.as_ref()
}

fn stored(seen: &Observed) -> Option<(&str, &str)> {
    let status = seen.snapshot.status.as_ref().filter(|status| status.phase == Phase::Complete)?;
    let artifact = status.artifact.as_ref()?;
    Some((&artifact.key, artifact.manifest_sha256.as_deref()?))
}

/// Checks that the snapshot's object is being deleted with the policy Delete, and that no hold keeps the stored snapshot.
fn wanted(seen: &Observed) -> Verdict {
    let deleting = meta::deleting(&seen.snapshot.metadata);
    rule(
        "I25",
        deleting && goes_along(seen),
        "only the deletion of an object with deletionPolicy Delete removes its snapshot",
    )?;
    rule("I25", !seen.snapshot.spec.hold, "a snapshot that is held stays")?;
    rule("I18", stored(seen).is_some(), "only a complete snapshot is removed")
}

fn latch(seen: &Observed, removal: &Removal) -> Verdict {
    wanted(seen)?;
    let other = latched(seen).is_none_or(|old| old.job != removal.job);
    rule("I25", other, "each removal has a Job of its own")
}

fn start(seen: &Observed, job: &Job) -> Verdict {
    wanted(seen)?;
    let latch = latched(seen).filter(|latch| latch.job == meta::name(&job.metadata));
    rule("I25", latch.is_some(), "a Job that removes a snapshot is latched first")?;
    let key = stored(seen).map(|(key, _)| key).unwrap_or_default();
    let read = seen.deletion.as_ref().is_none_or(|deletion| deletion.searched || is_read(&deletion.restores, key));
    rule("I25", !read, "a snapshot that is restored stays")?;
    let Some(Request::Remove(request)) = request_of(job) else {
        return rule("I25", false, "the Job removes a snapshot");
    };
    let exact = stored(seen) == Some((request.key.as_str(), request.manifest_sha256.as_str()));
    let own = request.owner_uid.as_deref() == Some(meta::uid(&seen.snapshot.metadata));
    rule("I25", exact && own, "the agent removes this very snapshot, of this very object")?;
    let asked = meta::annotation(&seen.snapshot.metadata, key::REMOVE_LAST) == Some("true");
    rule("I25", asked || !request.allow_last, "a person alone lets the last proven snapshot go")?;
    let named = seen.snapshot.spec.template.destination.store_ref.is_some();
    rule("I25", !named || request.expect_store_id.is_some(), "nothing is removed from a store whose ID is not known")
}

/// Whether the deletion may complete: nothing is stored, or the snapshot is removed, or its removal took too long.
fn may_end(seen: &Observed, now: Timestamp) -> bool {
    let status = seen.snapshot.status.as_ref();
    let nothing_stored = status.is_none_or(|status| status.artifact.is_none());
    let deleted = seen.snapshot.metadata.deletion_timestamp.as_ref();
    let late = deleted.is_none_or(|at| now >= at.0 + PATIENCE);
    let gone = seen.deletion.as_ref().is_some_and(|deletion| {
        let job = deletion.job.as_ref().filter(|one| {
            latched(seen).is_some_and(|latch| latch.job == meta::name(&one.job.metadata))
                && meta::controlled_by(&one.job.metadata, meta::uid(&seen.snapshot.metadata))
        });
        let reports = job.into_iter().flat_map(|one| &one.pods).filter_map(|pod| pods::removed_report(pod, CONTAINER));
        deletion.terminating || reports.into_iter().any(|report| report.refused.is_none())
    });
    nothing_stored || late || gone || stored(seen).is_none()
}
