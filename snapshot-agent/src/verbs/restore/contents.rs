//! What is in a snapshot beside its keys.
//!
//! It decides that users whom nobody could log in as are refused before anything startable is there: by the bytes, whatever
//! a manifest says.

use std::fs::File;

use super::RestoreRun;
use crate::contract::{CameAlong, RestoreRequest, hex_id};
use crate::error::{Error, Result};
use crate::etcd::volume_identity::Restored;
use crate::format::manifest::Contents;
use crate::graft;
use crate::scan::{MOST_NAMED, Proven};
use crate::util::table::printable;
use crate::verbs::common::describe_alarm;

/// Refuses users that nobody could log in as: a cluster that asks for credentials that its operator does not have can be
/// neither grown nor mended.
pub(super) fn check_auth(request: &RestoreRequest, CameAlong { users, auth_enabled, .. }: &CameAlong) -> Result<()> {
    if request.refuse_auth && *auth_enabled { Err(refused(&format!(" ({users} users)"))) } else { Ok(()) }
}

fn refused(users: &str) -> Error {
    Error::auth_required(format!(
        "the snapshot has authentication enabled{users}, and this cluster has no credentials to log in; nothing was \
         restored"
    ))
}

/// What came along, with the names that no manifest has.
fn named(proven: &Proven) -> CameAlong {
    let learners = proven.members.iter().filter(|member| member.learner);
    CameAlong {
        learner_ids: learners.take(MOST_NAMED).map(|member| hex_id(member.id)).collect(),
        raised: proven.alarms.iter().take(MOST_NAMED).map(describe_alarm).collect(),
        user_names: proven.first_users.iter().map(|name| printable(name)).collect(),
        ..CameAlong::from(&Contents::from(proven))
    }
}

/// What a scan has found, if it is admitted. `None`: it held more records than there is memory for; whether anybody has
/// to log in is asked of the file then.
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
