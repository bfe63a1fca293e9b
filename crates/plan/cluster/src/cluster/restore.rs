//! Which snapshot the first member is restored from.
//!
//! Decides the wanted restore: the same source always gives the same attempt, so no retry can pick another snapshot. For the
//! latest snapshot with a point in time the attempt names the lineage, and the agent chooses the snapshot before the point.

use holdfast_api::agent::Agent;
use holdfast_api::backup_store::Right;
use holdfast_api::condition::Reason;
use holdfast_api::name::LocalRef;
use holdfast_api::restore::{Latest, Newest, Restore, RestorePoint, Restoring};
use holdfast_api::snapshot::Phase;
use holdfast_api::store::{Location, StoredSnapshot};
use holdfast_contract::{DEFAULT_REVISION_BUMP, Engine, LatestReport, Point};
use jiff::Timestamp;

use super::read_access::{agent, asked, readers};
use super::{Observed, latest, saved_place};
use holdfast_base::{Next, Seen, Waiting, Wake, fingerprint, meta, objects, store_identity, usable_store};

/// A watch covers every named object; this interval is against a missed event.
const WAITED_FOR: Wake = Wake::AfterMillis(5_000);

/// Returns the restore that the spec asks for; `Err` has the act or the wait until the restore is known.
pub(super) fn wanted(seen: &Observed, now: Timestamp) -> Result<Option<Restoring>, Box<Next>> {
    // The next timeline begins with the data that was prepared for it.
    if let Some(returning) = seen.latches().returning.filter(|_| seen.latches().formed.is_none()) {
        return Ok(returning.restoring);
    }
    if let Some(wait) = until_the_point(seen, now) {
        return Err(Box::new(wait));
    }
    match asked_for(seen, now)? {
        // I2: the API server refuses this too. A cluster with a restore in its spec is never founded empty instead.
        None if under_way(seen).is_some() => {
            let message = "spec.bootstrap.restore was removed before this cluster formed. Holdfast founds no empty \
                           cluster instead. Set spec.bootstrap.restore again, or delete this cluster and create an \
                           empty cluster";
            Err(Box::new(Next::wait(Reason::InvalidSpec, message, Wake::OnChange)))
        }
        asked => Ok(asked.map(|new| as_under_way(seen, new))),
    }
}

/// Returns the wait for a point in the future.
fn until_the_point(seen: &Observed, now: Timestamp) -> Option<Next> {
    let Ok(Point::Time(time)) = asked(seen)?.at.as_ref()?.parse() else { return None };
    let later = Wake::at(time, now)?;
    // Minutes: a message that differs in each pass would be written each time.
    let minute = now.strftime("%Y-%m-%dT%H:%MZ");
    let message = format!(
        "spec.bootstrap.restore.at.time: {time} is in the future, because the operator's clock shows {minute}. Set a time \
         that has passed"
    );
    Some(Next::wait(Reason::InvalidSpec, message, later))
}

/// Returns the part of a message that names the point of a restore.
pub(super) fn log_words(restoring: Option<&Restoring>) -> String {
    let at = restoring.and_then(|restoring| restoring.at.as_ref());
    at.map(|at| format!(" and its log, up to {at}")).unwrap_or_default()
}

/// Returns the attempt that is under way, where the new attempt differs from it at most by: a bump that the old attempt does not
/// record and the spec does not set; a store ID that only one of the two attempts knows; or options that matter only for
/// writing to the store.
fn as_under_way(seen: &Observed, new: Restoring) -> Restoring {
    let asked = asked(seen).and_then(|r| r.revision_bump).is_some_and(|bump| bump != 0);
    let Some(old) = under_way(seen) else { return new };
    let mut like_new = Restoring { restore_uid: new.restore_uid.clone(), ..old.clone() };
    if !asked && old.revision_bump.is_none() {
        like_new.revision_bump = new.revision_bump;
    }
    // A probe with credentials that may not read the store ID finds none.
    if old.store_id.is_none() || new.store_id.is_none() {
        like_new.store_id.clone_from(&new.store_id);
    }
    if to_read(&old.source) == to_read(&new.source) {
        like_new.source.clone_from(&new.source);
    }
    if like_new == new { old } else { new }
}

/// Returns the source with only the options that a reader needs.
fn to_read(source: &StoredSnapshot) -> StoredSnapshot {
    match source.place.location() {
        Some(location) => StoredSnapshot { place: readers(location).into(), ..source.clone() },
        None => source.clone(),
    }
}

/// Returns the remedy where the spec asks for other data than the first member was created with: the first member serves its data,
/// and Holdfast restores nothing over that data. Where the data is the same, the way to read it does not matter.
pub(super) fn corrected_too_late(seen: &Observed, made: Option<&Restoring>) -> Option<String> {
    let (made, asked) = match (made, asked(seen)) {
        (None, None) => return None,
        (None, Some(_)) => {
            let message = "spec.bootstrap.restore was added after the first member had started empty, so Holdfast \
                           restores nothing. Delete this cluster, which no client has reached, and create the cluster \
                           again with spec.bootstrap.restore";
            return Some(message.to_owned());
        }
        (Some(made), asked) => (made, asked),
    };
    if asked.is_some_and(|asked| asks_for(asked, made)) {
        return None;
    }
    let StoredSnapshot { key, .. } = &made.source;
    let from = match (&made.snapshot, &made.store, &made.newest) {
        (Some(snapshot), _, _) => format!("snapshotRef {snapshot}"),
        (None, _, Some(_)) => format!("the latest of the search that found {key}"),
        (None, Some(store), None) => format!("source with storeRef {store} and key {key}"),
        (None, None, None) => format!("source {}", objects::store::uri(&made.source).unwrap_or_else(|| key.clone())),
    };
    let from = made.at.iter().fold(from, |from, at| format!("{from}, at {at}"));
    let bump = made.revision_bump.unwrap_or_default();
    Some(format!(
        "spec.bootstrap.restore was changed after the first member had started on data restored from {key}. Set {from} \
         again, with revisionBump {bump}; or delete this cluster, which no client has reached, and create the cluster \
         again with the change"
    ))
}

/// Whether the spec names the data of this attempt. The store's present place and credentials do not change the restored data.
fn asks_for(asked: &Restore, made: &Restoring) -> bool {
    let source = match (&asked.snapshot_ref, &asked.source, &asked.latest) {
        (Some(named), _, _) => made.snapshot.as_ref() == Some(&named.name),
        (None, Some(source), _) => {
            let at =
                |source: &StoredSnapshot| source.place.location().map(|location| store_identity::place_of(&location));
            let there = match &source.store_ref {
                Some(named) => made.store.as_ref() == Some(&named.name),
                None => made.store.is_none() && at(source) == at(&made.source),
            };
            there && made.snapshot.is_none() && made.newest.is_none() && source.key == made.source.key
        }
        (None, None, Some(latest)) => {
            made.newest.as_ref().is_some_and(|newest| newest.question == question(latest, asked.at.as_ref()))
        }
        (None, None, None) => false,
    };
    let bump = match made.revision_bump {
        Some(bump) => asked.revision_bump.unwrap_or(DEFAULT_REVISION_BUMP.cast_signed()) == bump,
        None => asked.revision_bump.unwrap_or_default() == 0,
    };
    let point = |at: &Option<RestorePoint>| at.as_ref().map(|at| (at.revision, at.time.clone()));
    source && bump && point(&asked.at) == point(&made.at)
}

/// Returns the hash of the question that a search answers: with a point in time the lineage, otherwise the newest snapshot.
fn question(latest: &Latest, at: Option<&RestorePoint>) -> String {
    if at.is_some() { fingerprint::short(&(latest, "lineage")) } else { fingerprint::short(latest) }
}

fn asked_for(seen: &Observed, now: Timestamp) -> Result<Option<Restoring>, Box<Next>> {
    let Some(restore) = asked(seen) else { return Ok(None) };
    let waits = |waiting| Box::new(Next::Wait(waiting, WAITED_FOR));
    match (&restore.snapshot_ref, &restore.source, &restore.latest) {
        (Some(named), _, _) => of_snapshot(seen, named).map(Some).map_err(waits),
        (None, Some(source), _) => match &source.store_ref {
            Some(store) => in_store(seen, store, &source.key).map(Some).map_err(waits),
            None => Ok(Some(attempt(seen, source.clone(), None, Named::default()))),
        },
        (None, None, Some(asked)) => newest(seen, asked, now).map(Some),
        (None, None, None) => Ok(None),
    }
}

/// Returns the restore of the newest snapshot, or of its lineage to a point in time. Holdfast searches once. The result stays while the spec asks for the same search at
/// the same place: credentials may be corrected, but another bucket is another search.
fn newest(seen: &Observed, asked: &Latest, now: Timestamp) -> Result<Restoring, Box<Next>> {
    let at = self::asked(seen).and_then(|restore| restore.at.as_ref());
    let question = question(asked, at);
    let under_way = under_way(seen).filter(|r| r.newest.as_ref().is_some_and(|newest| newest.question == question));
    let store = asked.store_ref.as_ref().map(|named| named.name.clone());
    let place = if let Some(named) = &asked.store_ref {
        of_store(seen, named)
    } else {
        let location = asked.place.location().map(|location| (location, None));
        location.ok_or_else(|| names_no_place("spec.bootstrap.restore.latest"))
    };
    match (place, under_way) {
        (Ok((location, id)), Some(Restoring { source, sha256, newest, .. }))
            if source
                .place
                .location()
                .is_some_and(|was| store_identity::place_of(&was) == store_identity::place_of(&location)) =>
        {
            let source = StoredSnapshot::at(location, source.key);
            let store_id = id.filter(|_| sha256.is_none());
            Ok(attempt(seen, source, sha256, Named { store, store_id, newest, ..Named::default() }))
        }
        (Err(_), Some(latched)) => Ok(again(seen, latched)),
        (Ok((location, id)), _) => {
            let LatestReport { key, sha256, taken_at, revision, without_quorum, passed_over, uri: _ } =
                latest::find(seen, asked, (&location, id.as_deref()), now)?;
            let newest = Some(Newest { question, taken_at, revision, without_quorum, passed_over });
            let lineage = at.and_then(|_| key.rsplit_once('/')).map(|(lineage, _)| lineage.to_owned());
            let (key, sha256, store_id) = match lineage {
                Some(lineage) => (lineage, None, id),
                None => (key, Some(sha256), None),
            };
            let source = StoredSnapshot::at(location, key);
            Ok(attempt(seen, source, sha256, Named { store, store_id, newest, ..Named::default() }))
        }
        (Err(waiting), None) => Err(Box::new(Next::Wait(waiting, WAITED_FOR))),
    }
}

fn of_snapshot(seen: &Observed, named: &LocalRef) -> Result<Restoring, Waiting> {
    let name = &named.name;
    let wait = |message: String| Err(Waiting { reason: Reason::WaitingForReference, message });
    // The latch holds all facts: an EtcdSnapshot that is deleted during the restore stops nothing.
    let under_way = under_way(seen).filter(|r| r.snapshot.as_ref() == Some(name));
    let latched = under_way.clone().map(|latched| again(seen, latched));
    let snapshot = match &seen.snapshot {
        Some(Seen::Known(Some(snapshot))) => snapshot,
        Some(Seen::Known(None)) => {
            return latched.map_or_else(
                || wait(format!("the EtcdSnapshot {name} does not exist. Create this EtcdSnapshot, or name another")),
                Ok,
            );
        }
        Some(Seen::Unknown(why)) => {
            return latched.map_or_else(|| wait(format!("the EtcdSnapshot {name} cannot be read: {why}")), Ok);
        }
        None => return latched.map_or_else(|| wait(format!("the EtcdSnapshot {name} has not been read yet")), Ok),
    };
    let uid = snapshot.metadata.uid.clone();
    // Another object under the same name is another snapshot: no retry picks that snapshot.
    let known = under_way.as_ref().and_then(|r| r.snapshot_uid.as_ref());
    if let (Some(latched), true) = (&latched, known.is_some_and(|known| uid.as_ref() != Some(known))) {
        return Ok(latched.clone());
    }
    let status = snapshot.status.clone().unwrap_or_default();
    match (status.phase, status.artifact) {
        (Phase::Complete, Some(artifact)) => {
            let location = match &status.store {
                Some(record) => match saved_place::saved_at(seen, record, under_way.as_ref(), &artifact.key) {
                    Ok(location) => location,
                    Err(waiting) => return latched.ok_or(waiting),
                },
                None => snapshot.spec.template.destination.place.location(),
            };
            let Some(location) = location else {
                return wait(format!("the EtcdSnapshot {name} has no destination in its status. Name another"));
            };
            let source = StoredSnapshot::at(location, artifact.key);
            let sha256 = Some(artifact.sha256).filter(|s| !s.is_empty());
            // An attempt without a UID at the same source keeps its identity: versions before `snapshotUid` wrote no UID.
            let snapshot_uid = match &under_way {
                Some(old) if old.snapshot_uid.is_none() && old.source == source && old.sha256 == sha256 => None,
                Some(_) | None => uid,
            };
            Ok(attempt(seen, source, sha256, Named { snapshot: Some(name.clone()), snapshot_uid, ..Named::default() }))
        }
        (Phase::Failed, _) => {
            let why = status.error.map(|e| e.message).unwrap_or_default();
            wait(format!("the EtcdSnapshot {name} has failed and stays incomplete ({why}). Name another"))
        }
        (Phase::Pending | Phase::Running | Phase::Complete, _) => {
            latched.map_or_else(|| wait(format!("the EtcdSnapshot {name} is not complete yet")), Ok)
        }
    }
}

/// Returns the restore of a snapshot by its key in the store of an `EtcdBackupStore`. A corrected store is another attempt. A store
/// that was deleted or is not ready any more stops no attempt that is under way.
fn in_store(seen: &Observed, named: &LocalRef, key: &str) -> Result<Restoring, Waiting> {
    let name = &named.name;
    let under_way = under_way(seen).filter(|r| r.store.as_ref() == Some(name) && r.source.key == key);
    let latched = under_way.map(|latched| again(seen, latched));
    match (of_store(seen, named), latched) {
        (Ok((location, store_id)), _) => {
            let source = StoredSnapshot::at(location, key.to_owned());
            Ok(attempt(seen, source, None, Named { store: Some(name.clone()), store_id, ..Named::default() }))
        }
        (Err(_), Some(latched)) => Ok(latched),
        (Err(waiting), None) => Err(waiting),
    }
}

/// Returns the place of a named store that a probe has found usable, and the store ID if known.
fn of_store(seen: &Observed, named: &LocalRef) -> Result<(Location, Option<String>), Waiting> {
    let name = &named.name;
    let wait = |reason, message| Err(Waiting { reason, message });
    let store = match &seen.store {
        Some(Seen::Known(store)) => store.as_ref(),
        Some(Seen::Unknown(why)) => {
            return wait(Reason::WaitingForReference, format!("the EtcdBackupStore {name} cannot be read: {why}"));
        }
        None => {
            return wait(Reason::WaitingForReference, format!("the EtcdBackupStore {name} has not been read yet"));
        }
    };
    match usable_store::usable(name, store) {
        Ok(record) => {
            let location = record.location(Right::Read).map(|location| (location, record.id));
            location.ok_or_else(|| names_no_place(&format!("the EtcdBackupStore {name}")))
        }
        Err((reason, why)) => wait(reason, why),
    }
}

fn names_no_place(who: &str) -> Waiting {
    Waiting { reason: Reason::InvalidSpec, message: format!("{who} names no store, or more than one store") }
}

/// Returns the attempt that is under way, with the options of the present spec. A changed option makes a new attempt, even if
/// the named object is gone.
fn again(seen: &Observed, latched: Restoring) -> Restoring {
    let Restoring { source, sha256, snapshot, snapshot_uid, store, store_id, newest, .. } = latched;
    attempt(seen, source, sha256, Named { snapshot, snapshot_uid, store, store_id, newest })
}

/// References to a source: the names in the spec, and the UID and store ID behind them.
#[derive(Default)]
struct Named {
    snapshot: Option<String>,
    snapshot_uid: Option<String>,
    store: Option<String>,
    store_id: Option<String>,
    newest: Option<Newest>,
}

/// Returns the attempt that is under way: from the seed, which no lost status can take away, else from the latch.
pub(super) fn under_way(seen: &Observed) -> Option<Restoring> {
    let latches = seen.latches();
    if latches.formed.is_some() {
        return latches.returning.and_then(|returning| returning.restoring);
    }
    let carried = seen.members.iter().filter(|m| !m.deleting()).find_map(|m| m.object.spec.restore.clone());
    carried.or_else(|| seen.latches().restoring)
}

fn attempt(seen: &Observed, source: StoredSnapshot, sha256: Option<String>, named: Named) -> Restoring {
    let restore = asked(seen);
    let identity_secret_refs = restore.map(|r| r.identity_secret_refs.clone()).unwrap_or_default();
    let how = How {
        revision_bump: restore.and_then(|r| r.revision_bump).unwrap_or(DEFAULT_REVISION_BUMP.cast_signed()),
        allow_unverified: restore.is_some_and(|r| r.allow_unverified),
        engine: restore.and_then(|r| r.engine).unwrap_or_default(),
        deadline_seconds: restore.and_then(|r| r.deadline_seconds),
        at: restore.and_then(|r| r.at.as_ref()),
        agent: agent(seen),
    };
    let uid = meta::uid(&seen.cluster.metadata);
    let Named { snapshot, snapshot_uid, store, store_id, newest } = named;
    let restored = Of { source: &source, sha256: sha256.as_deref(), store_id: store_id.as_deref() };
    let restore_uid = restore_uid(uid, restored, how, &identity_secret_refs);
    Restoring {
        restore_uid,
        source,
        survivor: None,
        at: how.at.cloned(),
        sha256,
        snapshot,
        snapshot_uid,
        store,
        store_id,
        identity_secret_refs,
        revision_bump: Some(how.revision_bump),
        allow_unverified: how.allow_unverified,
        engine: Some(how.engine).filter(|engine| *engine != Engine::default()),
        deadline_seconds: how.deadline_seconds,
        newest,
        agent: how.agent.cloned(),
    }
}

/// Options of a restore, for any source.
#[derive(Clone, Copy, Debug, Default)]
pub struct How<'a> {
    /// How far the restore raises the revision.
    pub revision_bump: i64,
    /// Whether the restore accepts a raw file without etcd's sha256.
    pub allow_unverified: bool,
    /// How the agent makes the data directory.
    pub engine: Engine,
    /// Seconds that an attempt may take.
    pub deadline_seconds: Option<u32>,
    /// Point up to which the log is added.
    pub at: Option<&'a RestorePoint>,
    /// Settings of the Pod that differ from the default.
    pub agent: Option<&'a Agent>,
}

/// The source of a restore.
#[derive(Clone, Copy, Debug)]
pub struct Of<'a> {
    /// Place and key of the snapshot.
    pub source: &'a StoredSnapshot,
    /// sha256 of the database, where it is known.
    pub sha256: Option<&'a str>,
    /// The store ID, where only the store ID distinguishes two stores.
    pub store_id: Option<&'a str>,
}

/// Returns the UID of the attempt to restore this source into this cluster: the same UID for a retry, another UID for a corrected
/// source, other options or other identities.
pub fn restore_uid(cluster_uid: &str, restored: Of<'_>, how: How<'_>, identities: &[LocalRef]) -> String {
    // Serializing Holdfast's own types to JSON cannot fail.
    let source = serde_json::to_string(restored.source).unwrap_or_default();
    let secrets = identities.iter().map(|secret| secret.name.as_str());
    // No Secret can have such a name. An option at its default adds nothing, so that attempts of earlier versions keep
    // their UID.
    let bump = (how.revision_bump != 0).then(|| format!("bump={}", how.revision_bump));
    let unverified = how.allow_unverified.then_some("unverified=");
    let engine = (how.engine != Engine::default()).then(|| format!("engine={}", how.engine.as_str()));
    let at = how.at.map(|at| format!("at={}", serde_json::to_string(at).unwrap_or_default()));
    let deadline = how.deadline_seconds.map(|seconds| format!("deadline={seconds}"));
    let agent = how.agent.map(|agent| format!("agent={}", serde_json::to_string(agent).unwrap_or_default()));
    let store = restored.store_id.map(|id| format!("store={id}"));
    let parts = [cluster_uid, &source, restored.sha256.unwrap_or_default()].into_iter();
    let how = [bump.as_deref(), unverified, engine.as_deref(), deadline.as_deref(), agent.as_deref(), store.as_deref()];
    let how = how.into_iter().chain([at.as_deref()]);
    fingerprint::hash_parts(parts.chain(how.flatten()).chain(secrets))
}
