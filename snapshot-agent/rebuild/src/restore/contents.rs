//! Judges the snapshot's data other than keys: users, members and alarms.
//!
//! This file decides when authentication refuses a restore, before a startable directory exists. The bytes decide, not the
//! manifest.

use std::fs::File;

use holdfast_bbolt::graft;
use holdfast_bbolt::scan::{MOST_NAMED, Proven};
use holdfast_contract::error::{Error, Result};
use holdfast_contract::{CameAlong, RestoreRequest, hex_id};
use holdfast_io::table::printable;

use super::RestoreRun;
use holdfast_catalog::recorded::recorded_contents;
use holdfast_gate::volume_identity::Restored;
use holdfast_verbs_common::describe_alarm;

/// Refuses authentication when the operator has no credentials: the operator could neither grow nor repair such a cluster.
pub(super) fn check_auth(request: &RestoreRequest, CameAlong { users, auth_enabled, .. }: &CameAlong) -> Result<()> {
    if request.refuse_auth && *auth_enabled { Err(refused(&format!(" ({users} users)"))) } else { Ok(()) }
}

fn refused(users: &str) -> Error {
    Error::auth_required(format!(
        "the snapshot has authentication enabled{users}, and this cluster has no credentials to log in; nothing was \
         restored"
    ))
}

/// Returns the restored contents beside the keys, with the names that no manifest records.
fn named(proven: &Proven) -> CameAlong {
    let learners = proven.members.iter().filter(|member| member.learner);
    CameAlong {
        learner_ids: learners.take(MOST_NAMED).map(|member| hex_id(member.id)).collect(),
        raised: proven.alarms.iter().take(MOST_NAMED).map(describe_alarm).collect(),
        user_names: proven.first_users.iter().map(|name| printable(name)).collect(),
        ..CameAlong::from(&recorded_contents(proven))
    }
}

/// Records the scan's facts, unless authentication refuses the restore. `None`: the records did not fit the memory budget; the
/// file then shows whether authentication is enabled.
pub(super) fn record(
    run: &RestoreRun<'_>,
    restored: &mut Restored,
    proven: Option<&Proven>,
    file: &File,
) -> Result<()> {
    let RestoreRun { request, .. } = run;
    if let Some(proven) = proven {
        let came_along = named(proven);
        check_auth(request, &came_along)?;
        (restored.came_along, restored.revision) = (Some(came_along), Some(proven.revision));
    } else if request.refuse_auth {
        match graft::auth_enabled(file, restored.db_bytes) {
            Ok(false) => {}
            Ok(true) => return Err(refused("")),
            Err(why) => {
                return Err(Error::auth_required(format!(
                    "the agent cannot read whether the snapshot has authentication enabled: {why}"
                )));
            }
        }
    }
    Ok(())
}

/// Returns the facts of a source without a manifest: no time, no cluster and no quorum is recorded.
pub(super) fn without_manifest(
    run: &RestoreRun<'_>,
    uri: String,
    (db_bytes, sha256): (u64, String),
    (found, file): (&Proven, &File),
) -> Result<Restored> {
    let RestoreRun { request, .. } = run;
    let mut restored = Restored {
        restore_uid: request.restore_uid.clone(),
        uri,
        db_bytes,
        sha256,
        taken_at: String::new(),
        from_cluster: String::new(),
        without_quorum: false,
        revision: Some(found.revision),
        revision_bump: request.revision_bump,
        point: None,
        survivor: None,
        came_along: None,
        not_compared: None,
        other: serde_json::Map::new(),
    };
    record(run, &mut restored, Some(found), file)?;
    Ok(restored)
}
