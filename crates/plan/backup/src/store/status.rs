//! A store's whole status, computed on every pass, and the Events of its changes.
//!
//! Decides what the status reports; `plan.rs` decides the step. During a routine probe the last result stands; after a change
//! of the inputs the last result does not count.

use holdfast_api::backup_store::{Probe, Tried};
use holdfast_api::condition::{self, Reason, Type, Wanted, merge};
use holdfast_api::store::{Location, PvcLocation};
use holdfast_api::{EtcdBackupStoreStatus, key};
use holdfast_contract::{ExitClass, NEW_STORE, Trial};
use jiff::Timestamp;

use super::Observed;
use super::stage::{Stage, failure};
use holdfast_base::objects::store::url;
use holdfast_base::pod_cause::PodCause;
use holdfast_base::store_identity;
use holdfast_base::{Note, Seen, job_state, jobs};

/// Returns the last probe of the current inputs.
pub(super) fn standing<'a>(seen: &'a Observed, inputs: &str) -> Option<&'a Probe> {
    seen.store.status.as_ref()?.probe.as_ref().filter(|probe| probe.inputs == inputs)
}

/// Returns the probe with the time since when the store has been failing, for the same inputs, so that a change restarts the
/// time. A Secret that the operator may not read may have changed each time.
pub(super) fn lasting(seen: &Observed, inputs: &str, mut found: Probe) -> Probe {
    let blind = seen.secrets.values().any(|version| matches!(version, Seen::Unknown(_)));
    if !found.usable && !blind {
        let before = standing(seen, inputs).filter(|probe| !probe.usable);
        let since = before.map(|probe| probe.failing_since.as_ref().unwrap_or(&probe.at));
        found.failing_since = Some(since.unwrap_or(&found.at).clone());
    }
    found
}

/// Returns the status before the next step.
pub(super) fn whole(seen: &Observed, stage: &Stage, inputs: &str, now: Timestamp) -> EtcdBackupStoreStatus {
    let old = seen.store.status.clone().unwrap_or_default();
    if *stage == Stage::Rest {
        return old;
    }
    let generation = seen.store.metadata.generation;
    // Drops the old Degraded condition; the operator sets it again if the failure persists.
    let kept: Vec<_> = old.conditions.iter().filter(|c| c.type_ != Type::Degraded.as_str()).cloned().collect();
    let (kind, uri) = seen.store.spec.place.location().map(|at| place(&at)).unzip();
    EtcdBackupStoreStatus {
        observed_generation: generation,
        kind: kind.map(str::to_owned),
        uri,
        conditions: merge(&kept, &[ready(seen, stage, inputs)], generation, now),
        identity: match stage {
            Stage::Found(probe) => store_identity::after(&seen.store, Some(probe)),
            Stage::Rest | Stage::Blocked(..) | Stage::Start(_) | Stage::Probing(_) | Stage::HeldUp(_) => {
                store_identity::after(&seen.store, None)
            }
        },
        held_up: held_up(seen, stage, inputs).map(|held| held.recorded(old.held_up.as_ref(), now)),
        probe: match stage {
            Stage::Found(probe) => Some(probe.clone()),
            Stage::Rest | Stage::Blocked(..) | Stage::Start(_) | Stage::Probing(_) | Stage::HeldUp(_) => old.probe,
        },
    }
}

/// Returns the hold-up of the probe's Pods, until a Pod runs: the end of such a Job is no fact about the store.
fn held_up(seen: &Observed, stage: &Stage, inputs: &str) -> Option<PodCause> {
    let before = seen.held_up();
    match stage {
        Stage::HeldUp(next) => PodCause::after(before, next, standing(seen, inputs).is_none()),
        _ if jobs::ran(&seen.pods) => None,
        Stage::Found(probe) => before.filter(|_| failure(probe).is_some_and(|row| row.class == ExitClass::Deadline)),
        Stage::Probing(_) => before,
        Stage::Start(_) => before.filter(|_| standing(seen, inputs).is_some_and(|probe| !probe.usable)),
        Stage::Rest | Stage::Blocked(..) => None,
    }
}

fn ready(seen: &Observed, stage: &Stage, inputs: &str) -> Wanted {
    let no = |reason, message: &str| Wanted::no(Type::Ready, reason, message);
    let before = standing(seen, inputs);
    let held = held_up(seen, stage, inputs);
    // A silent Pod counts as ended after its Job has ended.
    let silent = |held: &PodCause| held.reason == Reason::NodeSilent && matches!(stage, Stage::HeldUp(_));
    let stuck = held.as_ref().filter(|held| held.needs_a_person() || silent(held));
    match (stage, before, stuck) {
        // A silent Pod has no visible end: the Pod may still run and create the store ID, so the operator starts no second
        // probe.
        (Stage::HeldUp(_), Some(probe), Some(held)) if probe.usable && held.reason == Reason::NodeSilent => {
            let usable = found(probe);
            let message = format!("{}; Holdfast does not probe the store meanwhile: {}", usable.message, held.words());
            Wanted { message, ..usable }
        }
        (Stage::HeldUp(_) | Stage::Probing(_), Some(probe), _) if probe.usable => found(probe),
        (Stage::HeldUp(_) | Stage::Found(_) | Stage::Start(_) | Stage::Probing(_), _, Some(held)) => {
            no(held.reason, &held.words())
        }
        (Stage::Found(probe), ..) | (Stage::Start(_) | Stage::Probing(_) | Stage::HeldUp(_), Some(probe), None) => {
            found(probe)
        }
        (Stage::Blocked(reason, message), ..) => no(*reason, message),
        (Stage::HeldUp(held), None, None) => no(Reason::Probing, &held.words()),
        (Stage::Start(_), None, None) => no(Reason::Probing, "Holdfast starts a probe of the store"),
        (Stage::Probing(message), None, None) => no(Reason::Probing, message),
        // Unreachable: a status at rest stays as it is.
        (Stage::Rest, ..) => no(Reason::Deleting, "the store is being deleted"),
    }
}

/// Appendix of the message about a usable store that keeps versions. The trial's own text has more.
const VERSIONS_STAY: &str =
    "; removed objects stay as old versions until a lifecycle rule of the bucket removes the versions";

/// Returns `Ready` for a probe's result. The message has no time, and the agent leaves out the name of the trial's folder: a
/// probe with the same result changes no condition, and no condition that quotes this condition (I17).
pub(super) fn found(probe: &Probe) -> Wanted {
    if probe.usable {
        let weak = weak(probe).map(|tried| format!("; failed trial: {} ({})", tried.name, tried.detail));
        let weak: String = weak.collect();
        // Old versions are not listed, but still cost storage.
        let kept = probe.trials.iter().any(|tried| tried.name == Trial::Versions.name() && tried.outcome == "Yes");
        let versions = if kept { VERSIONS_STAY } else { "" };
        let message = format!("snapshots can be saved to and restored from this store{weak}{versions}");
        return Wanted::yes(Type::Ready, Reason::StoreUsable, message);
    }
    let failure = failure(probe);
    let class = failure.map(|failure| failure.class);
    let reason = job_state::reason_of(failure);
    let message = probe.message.as_deref().unwrap_or("the agent gave no reason");
    if reason == Reason::StoreExchanged {
        let accept = probe.store_id.as_deref().unwrap_or(NEW_STORE);
        let remedy = format!(
            "To accept this store, set the annotation {}={accept} on the EtcdBackupStore; remove an equal annotation \
             first",
            key::ACCEPT_STORE
        );
        return Wanted::no(Type::Ready, reason, format!("{message}. {remedy}"));
    }
    // The Job's deadline, not the agent's: the message ends with the remedy.
    if class == Some(ExitClass::Deadline) && probe.trials.is_empty() {
        return Wanted::no(Type::Ready, reason, message);
    }
    Wanted::no(Type::Ready, reason, format!("{message}. {}", remedy(class)))
}

/// Returns the failed optional trials, which weaken Holdfast's promises.
fn weak(probe: &Probe) -> impl Iterator<Item = &Tried> {
    probe.trials.iter().filter(|tried| tried.outcome == "No" && !tried.needed)
}

const fn remedy(class: Option<ExitClass>) -> &'static str {
    match class {
        Some(ExitClass::Config) => {
            "Correct the spec, or the keys of the Secret. Holdfast probes a changed store at once, otherwise within an \
             hour"
        }
        Some(ExitClass::Denied) => {
            "Correct the credentials in the Secret, or grant the missing right. Holdfast probes a changed Secret at \
             once, otherwise within an hour"
        }
        Some(ExitClass::NotFound) => {
            "Create the bucket, container or folder, or correct the name, the endpoint or the region"
        }
        Some(ExitClass::Corrupt) => "Do not use this store: the store returns other bytes than were written",
        Some(ExitClass::Transient) => "Holdfast probes the store again every minute",
        Some(ExitClass::Full) => "Free space in the store, or raise its quota",
        Some(ExitClass::Deadline) => {
            "Check the network and the store's load. Holdfast probes the store again every minute"
        }
        Some(ExitClass::Refused | ExitClass::AuthRequired | ExitClass::MembersDiffer | ExitClass::Undecodable)
        | None => "Holdfast probes the store again every minute. If the probe keeps failing, check the log of its Pod",
    }
}

/// Returns the Events of this pass, once for each change, so a repeated pass returns none.
pub(super) fn notes(seen: &Observed, stage: &Stage, new: &EtcdBackupStoreStatus) -> Vec<Note> {
    let Stage::Found(probe) = stage else { return vec![] };
    let old = seen.store.status.as_ref();
    let before = old.and_then(|s| s.probe.as_ref());
    let warn = |reason: &str, message: String| Note { warning: true, reason: reason.to_owned(), message };
    let mut notes = vec![];
    let is =
        |of: &EtcdBackupStoreStatus| condition::find(&of.conditions, Type::Ready).map(|ready| ready.reason.clone());
    if !probe.usable && old.and_then(is) != is(new) {
        let finding = found(probe);
        notes.push(warn(finding.reason.as_str(), finding.message));
    }
    if let (Some(was), Some(is)) = (store_identity::known(&seen.store), &new.identity)
        && was.id != is.id
    {
        let message = format!("the store with the store ID {} is accepted instead of {}", is.id, was.id);
        notes.push(Note { warning: false, reason: "StoreAccepted".to_owned(), message });
    }
    let names = |probe: &Probe| weak(probe).map(|tried| tried.name.clone()).collect::<Vec<_>>();
    if !names(probe).is_empty() && before.map(names) != Some(names(probe)) {
        let details: Vec<_> = weak(probe).map(|tried| format!("{}: {}", tried.name, tried.detail)).collect();
        notes.push(warn("StoreWeak", details.join("; ")));
    }
    if let Some(place) = probe.left_behind.as_ref().filter(|_| before != Some(probe)) {
        notes.push(warn(
            "LeftBehind",
            format!("the probe could not remove its objects at {place}. Remove these objects"),
        ));
    }
    notes
}

/// Returns the kind of a place and its URI.
fn place(location: &Location) -> (&'static str, String) {
    match location {
        Location::S3(s3) => ("S3", url("s3", &s3.bucket, s3.prefix.as_deref())),
        Location::Azure(azure) => ("Azure", url("azure", &azure.container, azure.prefix.as_deref())),
        Location::Gcs(gcs) => ("GCS", url("gs", &gcs.bucket, gcs.prefix.as_deref())),
        Location::Pvc(PvcLocation { claim_name, sub_path }) => ("PVC", url("pvc", claim_name, sub_path.as_deref())),
    }
}
