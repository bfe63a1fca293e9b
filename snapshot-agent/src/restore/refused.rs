//! What a refused restore leaves for its next start: kubelet starts a failed step again and again, and where no
//! manifest tells that users have to log in, each time would download the whole snapshot to find that out.
//!
//! It decides for how long, and for which request, a refusal stands without another look at the store. The note lies in
//! the staging folder: nothing there can be started, and it goes with the next attempt that is another one.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::volume::Volume;
use crate::contract::{ExitClass, RestoreRequest};
use crate::error::{Error, Result};
use crate::{clock, files};

/// How long it stands: another object may lie there by then, and nobody has said so.
const STANDS: SignedDuration = SignedDuration::from_hours(1);

/// A note has about 400 bytes.
const MAX_BYTES: u64 = 64 << 10;

/// What was refused. No secret is in it: an error's message has none, nor has a store's URL.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    restore_uid: String,
    store: String,
    key: String,
    class: ExitClass,
    message: String,
    at: Timestamp,
}

impl Note {
    fn of(request: &RestoreRequest, error: &Error, at: Timestamp) -> Self {
        Self {
            restore_uid: request.restore_uid.clone(),
            store: request.store.url.clone(),
            key: request.key.clone(),
            class: error.class(),
            message: error.message().to_owned(),
            at,
        }
    }

    /// Whether this request would end in the same way. A clock that went back tells nothing.
    fn stands(&self, request: &RestoreRequest, now: Timestamp) -> bool {
        let age = now.duration_since(self.at);
        (SignedDuration::ZERO..STANDS).contains(&age)
            && request.refuse_auth
            && self.class == ExitClass::AuthRequired
            && self.restore_uid == request.restore_uid
            && self.store == request.store.url
            && self.key == request.key
    }
}

/// The refusal of an earlier start, if it stands. What else an earlier attempt has left goes.
pub(super) fn standing(volume: &Volume, request: &RestoreRequest) -> Option<Error> {
    let note = read(&volume.refusal()).filter(|note| note.stands(request, clock::now()));
    let Some(Note { message, at, .. }) = note else {
        volume.tidy();
        return None;
    };
    let until = at.checked_add(STANDS).unwrap_or(at);
    tracing::info!(key = request.key, %at, %until, "refused at an earlier start: nothing is read again until then");
    Some(Error::auth_required(message))
}

/// Ends a failed attempt. The space may be what was missing, and nothing in it can be used; a refusal that took a
/// download is kept.
pub(super) fn leave(volume: &Volume, request: &RestoreRequest, error: &Error) {
    // Else its manifest was enough, and that is read in a moment.
    let downloaded = volume.is_staged();
    volume.tidy();
    let users = request.refuse_auth && error.class() == ExitClass::AuthRequired;
    if downloaded
        && users
        && let Err(error) = write(volume, &Note::of(request, error, clock::now()))
    {
        tracing::warn!(%error, "the refusal could not be kept: the next start reads the snapshot again");
        volume.tidy();
    }
}

/// What cannot be read or understood is no note: another look at the snapshot is always right.
fn read(path: &Path) -> Option<Note> {
    let metadata = path.symlink_metadata().ok()?;
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn write(volume: &Volume, note: &Note) -> Result<()> {
    volume.stage()?;
    files::put(&volume.refusal(), 0o600, |file| {
        serde_json::to_writer(&mut *file, note).map_err(io::Error::from)?;
        file.write_all(b"\n")
    })
}

#[cfg(test)]
mod tests {
    use super::super::volume::State;
    use super::*;
    use crate::contract::StoreFlags;

    fn request() -> RestoreRequest {
        RestoreRequest {
            store: StoreFlags { url: "s3://bkt/pre".to_owned(), ..StoreFlags::default() },
            key: "raw.db".to_owned(),
            restore_uid: "restore-1".to_owned(),
            refuse_auth: true,
            ..RestoreRequest::default()
        }
    }

    #[test]
    fn a_refusal_stands_for_an_hour_and_for_the_same_request() {
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        let note = Note::of(&request(), &Error::auth_required("users"), at);
        let after = |seconds| at + SignedDuration::from_secs(seconds);
        for (seconds, stands) in [(0, true), (3599, true), (3600, false), (-1, false), (-86_400, false)] {
            assert_eq!(note.stands(&request(), after(seconds)), stands, "{seconds}");
        }
        let changes: [fn(&mut RestoreRequest); 4] = [
            |request| request.refuse_auth = false,
            |request| request.restore_uid.push('2'),
            |request| request.key.insert(0, 'x'),
            |request| request.store.url.push('x'),
        ];
        for (n, change) in changes.into_iter().enumerate() {
            let mut another = request();
            change(&mut another);
            assert!(!note.stands(&another, after(1)), "change {n}");
        }
        let other = Note { class: ExitClass::Corrupt, ..note };
        assert!(!other.stands(&request(), after(1)), "only users are refused like this");
    }

    #[tokio::test]
    async fn only_users_found_in_the_data_are_kept_in_mind_and_any_other_attempt_forgets_them() {
        let folder = tempfile::tempdir().unwrap();
        let volume = Volume::alone(folder.path()).await.unwrap();
        let count = || fs::read_dir(folder.path()).unwrap().count();
        let users = Error::auth_required("it has 2 users");
        // The manifest was enough.
        leave(&volume, &request(), &users);
        assert_eq!(count(), 0);
        let (corrupt, unasked) = (Error::corrupt("x"), RestoreRequest { refuse_auth: false, ..request() });
        for (request, error) in [(&request(), &corrupt), (&unasked, &users)] {
            volume.stage().unwrap();
            leave(&volume, request, error);
            assert_eq!(count(), 0, "{error:?}");
        }
        for _ in 0..2 {
            volume.stage().unwrap();
            fs::write(volume.refusal().with_file_name("snapshot.db"), "half").unwrap();
            leave(&volume, &request(), &users);
            let note = volume.refusal();
            assert_eq!(files::names(note.parent().unwrap()).unwrap().unwrap(), ["refused.json"]);
            assert_eq!(volume.state(), Ok(State::Empty));
            for _ in 0..2 {
                assert_eq!(standing(&volume, &request()), Some(users.clone()));
            }
        }
        for nonsense in ["", "{", "{}", "null"] {
            volume.stage().unwrap();
            fs::write(volume.refusal(), nonsense).unwrap();
            assert_eq!(standing(&volume, &request()), None, "{nonsense:?}");
            assert_eq!(count(), 0, "{nonsense:?}");
        }
        volume.stage().unwrap();
        leave(&volume, &request(), &users);
        let another = RestoreRequest { restore_uid: "restore-2".to_owned(), ..request() };
        assert_eq!(standing(&volume, &another), None);
        assert_eq!((count(), standing(&volume, &request())), (0, None));
    }
}
