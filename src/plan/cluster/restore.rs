//! Which snapshot the first member is to be restored from.
//!
//! Decides the wanted restore, exactly: the same source always gives the same attempt, so no retry can pick another.

use sha2::{Digest, Sha256};
use snapshot_agent::contract::{DEFAULT_REVISION_BUMP, Engine};

use super::Observed;
use crate::api::backup_store::Right;
use crate::api::cluster::{Restore, Restoring};
use crate::api::condition::Reason;
use crate::api::name::LocalRef;
use crate::api::snapshot::Phase;
use crate::api::store::StoredSnapshot;
use crate::plan::{Seen, Waiting, pods, store};

/// The restore that the spec asks for; `Err` while it cannot be known.
pub(super) fn wanted(seen: &Observed) -> Result<Option<Restoring>, Waiting> {
    Ok(asked_for(seen)?.map(|new| as_begun(seen, new)))
}

/// An attempt from before there was a bump is ended as it was begun, unless the spec asks for one in so many words.
fn as_begun(seen: &Observed, new: Restoring) -> Restoring {
    let asked = spec(seen).and_then(|r| r.revision_bump).is_some_and(|bump| bump != 0);
    let (restore_uid, revision_bump) = (new.restore_uid.clone(), new.revision_bump);
    match seen.under_way() {
        Some(old) if !asked && old.revision_bump.is_none() => {
            let same = Restoring { restore_uid, revision_bump, ..old.clone() } == new;
            if same { old } else { new }
        }
        Some(_) | None => new,
    }
}

fn asked_for(seen: &Observed) -> Result<Option<Restoring>, Waiting> {
    let Some(restore) = spec(seen) else { return Ok(None) };
    match (&restore.snapshot_ref, &restore.source) {
        (None, Some(source)) => match &source.store_ref {
            Some(store) => in_store(seen, store, &source.key).map(Some),
            None => Ok(Some(attempt(seen, source.clone(), None, Named::default()))),
        },
        (Some(named), _) => of_snapshot(seen, named).map(Some),
        (None, None) => Ok(None),
    }
}

fn of_snapshot(seen: &Observed, named: &LocalRef) -> Result<Restoring, Waiting> {
    let name = &named.name;
    let wait = |message: String| Err(Waiting { reason: Reason::WaitingForReference, message });
    // The latch holds all that is needed: an EtcdSnapshot that goes away under way stops nothing.
    let latched = seen.under_way().filter(|r| r.snapshot.as_ref() == Some(name)).map(|latched| again(seen, latched));
    let snapshot = match &seen.snapshot {
        Some(Seen::Known(Some(snapshot))) => snapshot,
        Some(Seen::Known(None)) => {
            return latched.map_or_else(
                || wait(format!("the EtcdSnapshot {name} does not exist (yet); create it, or name another")),
                Ok,
            );
        }
        Some(Seen::Unknown(why)) => {
            return latched.map_or_else(|| wait(format!("the EtcdSnapshot {name} cannot be read: {why}")), Ok);
        }
        None => return latched.map_or_else(|| wait(format!("the EtcdSnapshot {name} has not been read yet")), Ok),
    };
    let status = snapshot.status.clone().unwrap_or_default();
    match (status.phase, status.artifact) {
        (Phase::Complete, Some(artifact)) => {
            // Where it was saved, wherever the store that was named then is now.
            let location = match &status.store {
                Some(record) => record.location(Right::Read),
                None => snapshot.spec.destination.place.location(),
            };
            let Some(location) = location else {
                return wait(format!("the EtcdSnapshot {name} does not say which store it is in; name another"));
            };
            let source = StoredSnapshot::at(location, artifact.key);
            let sha256 = Some(artifact.sha256).filter(|s| !s.is_empty());
            Ok(attempt(seen, source, sha256, Named { snapshot: Some(name.clone()), store: None }))
        }
        (Phase::Failed, _) => {
            let why = status.error.map(|e| e.message).unwrap_or_default();
            wait(format!("the EtcdSnapshot {name} has failed and will never be complete ({why}); name another"))
        }
        (Phase::Pending | Phase::Running | Phase::Complete, _) => {
            latched.map_or_else(|| wait(format!("the EtcdSnapshot {name} is not complete yet")), Ok)
        }
    }
}

/// A snapshot by its key in a store that an `EtcdBackupStore` names. A store that is corrected is another attempt; one
/// that is not there, or not ready, any more stops nothing that is under way.
fn in_store(seen: &Observed, named: &LocalRef, key: &str) -> Result<Restoring, Waiting> {
    let name = &named.name;
    let wait = |reason, message| Err(Waiting { reason, message });
    let under_way = seen.under_way().filter(|r| r.store.as_ref() == Some(name) && r.source.key == key);
    let latched = under_way.map(|latched| again(seen, latched));
    let store = match &seen.store {
        Some(Seen::Known(store)) => store.as_ref(),
        Some(Seen::Unknown(why)) => {
            let message = format!("the EtcdBackupStore {name} cannot be read: {why}");
            return latched.map_or_else(|| wait(Reason::WaitingForReference, message), Ok);
        }
        None => {
            let message = format!("the EtcdBackupStore {name} has not been read yet");
            return latched.map_or_else(|| wait(Reason::WaitingForReference, message), Ok);
        }
    };
    match store::usable(name, store) {
        Ok(record) => match record.location(Right::Read) {
            Some(location) => {
                let source = StoredSnapshot::at(location, key.to_owned());
                Ok(attempt(seen, source, None, Named { snapshot: None, store: Some(name.clone()) }))
            }
            None => wait(Reason::InvalidSpec, format!("the EtcdBackupStore {name} names no place, or more than one")),
        },
        Err((reason, why)) => latched.map_or_else(|| wait(reason, why), Ok),
    }
}

/// The attempt that is under way, as the spec has it now: what is decided otherwise is another one, whether or not what was
/// named is still there.
fn again(seen: &Observed, latched: Restoring) -> Restoring {
    let Restoring { source, sha256, snapshot, store, .. } = latched;
    attempt(seen, source, sha256, Named { snapshot, store })
}

/// What a source was named by.
#[derive(Default)]
struct Named {
    snapshot: Option<String>,
    store: Option<String>,
}

impl Observed {
    /// The attempt that is under way: as the seed carries it, which no lost status can take away, else as latched.
    pub(super) fn under_way(&self) -> Option<Restoring> {
        let carried = self.members.iter().filter(|m| !m.deleting()).find_map(|m| m.object.spec.restore.clone());
        carried.or_else(|| self.latches().restoring)
    }
}

fn attempt(seen: &Observed, source: StoredSnapshot, sha256: Option<String>, named: Named) -> Restoring {
    let restore = spec(seen);
    let identity_secret_refs = restore.map(|r| r.identity_secret_refs.clone()).unwrap_or_default();
    let how = How {
        revision_bump: restore.and_then(|r| r.revision_bump).unwrap_or(DEFAULT_REVISION_BUMP.cast_signed()),
        allow_unverified: restore.is_some_and(|r| r.allow_unverified),
        engine: restore.and_then(|r| r.engine).unwrap_or_default(),
        deadline_seconds: restore.and_then(|r| r.deadline_seconds),
    };
    let uid = pods::uid(&seen.cluster.metadata);
    let restore_uid = restore_uid(uid, &source, sha256.as_deref(), how, &identity_secret_refs);
    let Named { snapshot, store } = named;
    Restoring {
        restore_uid,
        source,
        sha256,
        snapshot,
        store,
        identity_secret_refs,
        revision_bump: Some(how.revision_bump),
        allow_unverified: how.allow_unverified,
        engine: Some(how.engine).filter(|engine| *engine != Engine::default()),
        deadline_seconds: how.deadline_seconds,
    }
}

/// What the spec says of it.
fn spec(seen: &Observed) -> Option<&Restore> {
    seen.cluster.spec.bootstrap.as_ref()?.restore.as_ref()
}

/// What is done with a source, whichever it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    /// How far the revision is moved on.
    pub revision_bump: i64,
    /// Whether a raw file without etcd's sha256 is taken.
    pub allow_unverified: bool,
    /// How the data directory is made.
    pub engine: Engine,
    /// Seconds that an attempt may take.
    pub deadline_seconds: Option<u32>,
}

/// UID of the attempt to restore this source into this cluster: the same for a retry, another for a corrected source, done
/// in another way, or with other identities.
pub fn restore_uid(
    cluster_uid: &str,
    source: &StoredSnapshot,
    sha256: Option<&str>,
    how: How,
    identities: &[LocalRef],
) -> String {
    let mut hash = Sha256::new();
    // Lengths keep two different lists from reading the same. JSON of our own types cannot fail.
    let source = serde_json::to_string(source).unwrap_or_default();
    let secrets = identities.iter().map(|secret| secret.name.as_str());
    // No object can be called so. Without these the UID is that of the time before there were any.
    let bump = (how.revision_bump != 0).then(|| format!("bump={}", how.revision_bump));
    let unverified = how.allow_unverified.then_some("unverified=");
    let engine = (how.engine != Engine::default()).then(|| format!("engine={}", how.engine.as_str()));
    let deadline = how.deadline_seconds.map(|seconds| format!("deadline={seconds}"));
    for part in [cluster_uid, &source, sha256.unwrap_or_default()]
        .into_iter()
        .chain(bump.as_deref())
        .chain(unverified)
        .chain(engine.as_deref())
        .chain(deadline.as_deref())
        .chain(secrets)
    {
        hash.update(part.len().to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex::encode(hash.finalize())[..16].to_owned()
}
