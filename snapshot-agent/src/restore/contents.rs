//! What is in a snapshot beside its keys.
//!
//! It decides how that is found out where the manifest does not say it, and that users whom nobody could log in as are
//! refused before anything startable is there.

use std::fs::File;
use std::path::PathBuf;

use crate::contract::{CameAlong, RestoreRequest};
use crate::error::{Error, Result, io_error, task_error};
use crate::graft;
use crate::identity::Restored;
use crate::manifest::Contents;
use crate::pipe::scan_budget;
use crate::scan::{Proven, Reader, ScanError};
use crate::verify::unsound;

/// Refuses users that nobody could log in as: a cluster that asks for credentials that its operator does not have can be
/// neither grown nor mended.
pub(super) fn admit(request: &RestoreRequest, CameAlong { users, auth_enabled, .. }: CameAlong) -> Result<()> {
    if request.refuse_auth && auth_enabled { Err(refused(&format!(" ({users} users)"))) } else { Ok(()) }
}

fn refused(users: &str) -> Error {
    Error::auth_required(format!(
        "the snapshot has authentication on{users}, and this cluster has no credentials to log in with; nothing was \
         restored"
    ))
}

/// What a scan has found, if it is admitted. `None`: it held more records than there is memory for; whether anybody has
/// to log in is asked of the file then.
pub(super) fn found(
    request: &RestoreRequest,
    restored: &mut Restored,
    proven: Option<&Proven>,
    file: &File,
) -> Result<()> {
    if let Some(proven) = proven {
        let came_along = CameAlong::from(&Contents::from(proven));
        admit(request, came_along)?;
        (restored.came_along, restored.revision) = (Some(came_along), Some(proven.revision));
    } else if request.refuse_auth {
        match graft::auth_enabled(file, restored.db_bytes) {
            Ok(false) => {}
            Ok(true) => return Err(refused("")),
            Err(why) => {
                return Err(Error::auth_required(format!(
                    "whether the snapshot has authentication on cannot be told: {why}"
                )));
            }
        }
    }
    Ok(())
}

/// Finds out what the manifest does not say.
pub(super) async fn look_inside(request: &RestoreRequest, restored: &mut Restored, snapshot: PathBuf) -> Result<()> {
    let (uri, db_bytes) = (restored.uri.clone(), restored.db_bytes);
    let look = move || {
        let file = File::open(snapshot).map_err(io_error("opening the snapshot's file"))?;
        let scanned = Reader::open(&file, db_bytes, scan_budget(db_bytes)).and_then(|mut reader| reader.prove(None));
        match scanned {
            Err(ScanError::OverBudget { .. }) => Ok((None, file)),
            scanned => scanned.map(|proven| (Some(proven), file)).map_err(|error| unsound(&uri, &error)),
        }
    };
    let (proven, file) = tokio::task::spawn_blocking(look).await.map_err(|error| task_error(&error))??;
    found(request, restored, proven.as_ref(), &file)
}
