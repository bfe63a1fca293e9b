//! Keeps a refusal of a restore for the next start. kubelet repeats a failed step, the operator recreates its Pod, and each
//! start would download the whole snapshot for the same refusal.
//!
//! This file decides which refusals stand without another download, for how long, and for which request: users without
//! credentials to log in, a file that does not match the request, a failed graft without space for etcdutl, a packed file that
//! unpacks to more than the free space, and a disk that returns wrong bytes. Damaged downloads are excluded, because the
//! network may have damaged them. The note is in the staging folder: etcd cannot start from there, and an attempt with another
//! request removes the note.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use holdfast_contract::error::{Error, Result};
use holdfast_contract::{ExitClass, RestoreRequest};
use holdfast_io::memory::file_budget;
use holdfast_io::sha256::Sha256;
use holdfast_io::{clock, files};
use holdfast_layout::Key;
use holdfast_store::{Stat, Store};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::replay::Size;
use super::volume::Volume;

/// Lifetime of a note without another check: a user may correct the cause outside the request.
const STANDS: SignedDuration = SignedDuration::from_hours(1);

/// Shorter for disks: disk errors can be transient.
const DISK_STANDS: SignedDuration = SignedDuration::from_mins(10);

/// Timeout for the store's answer about the file. Without an answer the note stands.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Maximum size of a note. Usually a note has about 600 bytes.
const MAX_BYTES: u64 = 64 << 10;

/// Facts that an attempt has established before it fails.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Set when all bytes are downloaded and match: a later refusal concerns their content.
    pub(super) whole: OnceLock<()>,
    /// A file of another owner, who may replace it.
    pub(super) file: OnceLock<Stat>,
    /// Bytes that a restore with etcdutl needs, if the graft failed.
    pub(super) needs: OnceLock<u64>,
    /// Bytes that the restore of a packed file or of a point in time needs, if the volume has fewer; the error names them.
    pub(super) short: OnceLock<u64>,
    /// Sizes of the merge of a snapshot and its log, when the log is read.
    pub(super) merged: OnceLock<Size>,
}

/// A refusal. It holds no secret, because errors and requests hold none.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    /// Fingerprint of the request and of the etcdutl program.
    request: String,
    /// The file's metadata from the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    /// The note stands while the volume has less free space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    needs: Option<u64>,
    class: ExitClass,
    message: String,
    at: Timestamp,
}

impl Note {
    /// Returns the note, or `None` if another attempt may end differently.
    fn for_error(request: &RestoreRequest, found: &Found, error: &Error, at: Timestamp) -> Option<Self> {
        let needs = found.short.get().or_else(|| found.needs.get());
        let needs = needs.copied().filter(|_| error.class() == ExitClass::Full);
        let stands = match error.class() {
            ExitClass::AuthRequired => request.refuse_auth,
            // Before the download is complete the cause may be a key or a setting of the store: a corrected Secret must take
            // effect at once.
            ExitClass::Config | ExitClass::Refused => found.whole.get().is_some(),
            ExitClass::Full => needs.is_some(),
            ExitClass::Denied
            | ExitClass::NotFound
            | ExitClass::Corrupt
            | ExitClass::Transient
            | ExitClass::Deadline
            | ExitClass::MembersDiffer
            | ExitClass::Undecodable => false,
        };
        stands.then(|| Self {
            request: fingerprint(request),
            file: found.file.get().map(describe_file),
            needs,
            class: error.class(),
            message: error.message().to_owned(),
            at,
        })
    }

    /// Whether the note is for the same request, and the free space is still too small.
    fn is_of(&self, request: &RestoreRequest, free: u64) -> bool {
        self.request == fingerprint(request) && self.needs.is_none_or(|needs| free < needs)
    }

    /// Whether the note stands without a request to the store. False if the clock went back.
    fn is_fresh(&self, now: Timestamp) -> bool {
        (SignedDuration::ZERO..self.lasts()).contains(&now.duration_since(self.at))
    }

    fn lasts(&self) -> SignedDuration {
        if self.class == ExitClass::Refused { DISK_STANDS } else { STANDS }
    }

    /// Whether the store now holds another file under this key. False if the store does not answer.
    async fn is_of_another_file(&self, request: &RestoreRequest) -> bool {
        let (Some(refused), Ok(key), Ok(store)) =
            (&self.file, Key::of_object(&request.key), Store::open(&request.store))
        else {
            return false;
        };
        let stat = tokio::time::timeout(ANSWER_WITHIN, store.stat(&key)).await;
        stat.is_ok_and(|stat| stat.is_ok_and(|stat| describe_file(&stat) != *refused))
    }
}

/// Fingerprint of the request, the programs and the memory budget: another version may accept the snapshot, and some refusals
/// ask for more memory.
fn fingerprint(request: &RestoreRequest) -> String {
    let program = request.etcdutl.metadata().ok().map(|file| (file.len(), file.modified().ok()));
    let memory = file_budget();
    let asked = format!("{request:?} {program:?} {} {memory}", env!("CARGO_PKG_VERSION"));
    hex::encode(&Sha256::digest(asked)[..8])
}

fn describe_file(Stat { bytes, etag, written }: &Stat) -> String {
    format!("{bytes} {} {}", etag.as_deref().unwrap_or_default(), written.as_deref().unwrap_or_default())
}

/// Returns the refusal of an earlier start, if it stands. Otherwise removes the leftovers of that start.
pub(super) async fn find_refusal(volume: &Volume, request: &RestoreRequest) -> Option<Error> {
    let free = files::free_bytes(&request.volume).unwrap_or(u64::MAX);
    let note = read(&volume.refusal()).filter(|note| note.is_of(request, free));
    let stands = match &note {
        Some(note) if note.is_fresh(clock::now()) => !note.is_of_another_file(request).await,
        Some(_) | None => false,
    };
    let Some(Note { class, message, at, .. }) = note.filter(|_| stands) else {
        volume.tidy();
        return None;
    };
    tracing::info!(key = request.key, %at, "an earlier start refused this snapshot: the agent does not read the \
                                            snapshot again");
    Some(Error::new(class, message))
}

/// Ends a failed attempt, whose folder is removed already; keeps a refusal that took a download.
pub(super) fn end_attempt(volume: &Volume, request: &RestoreRequest, found: &Found, error: &Error) {
    // Otherwise the manifest was enough for the refusal, and reading it again is cheap.
    let downloaded = volume.is_staged();
    volume.end();
    if downloaded
        && let Some(note) = Note::for_error(request, found, error, clock::now())
        && let Err(error) = write(volume, &note)
    {
        tracing::warn!(%error, "the refusal could not be stored: the next start reads the snapshot again");
        volume.end();
    }
}

/// Reads the note. An unreadable note counts as none: reading the snapshot again is always right.
fn read(path: &Path) -> Option<Note> {
    let metadata = path.symlink_metadata().ok()?;
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn write(volume: &Volume, note: &Note) -> Result<()> {
    volume.keep()?;
    files::put(&volume.refusal(), 0o600, |file| {
        serde_json::to_writer(&mut *file, note).map_err(io::Error::from)?;
        file.write_all(b"\n")
    })
}

#[cfg(test)]
mod tests {
    use holdfast_contract::StoreFlags;

    use super::super::volume::State;
    use super::*;

    fn request(volume: &Path) -> RestoreRequest {
        RestoreRequest {
            store: StoreFlags { url: "s3://bkt/pre".to_owned(), ..StoreFlags::default() },
            key: "shop/orders/1a2b3c4d/20261121T162233Z-1-2".to_owned(),
            restore_uid: "restore-1".to_owned(),
            volume: volume.to_owned(),
            refuse_auth: true,
            ..RestoreRequest::default()
        }
    }

    #[test]
    fn a_refusal_stands_for_an_hour_and_for_the_same_request() {
        let folder = tempfile::tempdir().unwrap();
        let request = request(folder.path());
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        let note = Note::for_error(&request, &Found::default(), &Error::auth_required("users"), at).unwrap();
        let after = |seconds| at + SignedDuration::from_secs(seconds);
        for (seconds, stands) in [(0, true), (3599, true), (3600, false), (-1, false), (-86_400, false)] {
            assert_eq!(note.is_fresh(after(seconds)), stands, "{seconds}");
        }
        assert!(note.is_of(&request, 0));
        let another_etcdutl = folder.path().join("etcdutl");
        fs::write(&another_etcdutl, "3.7").unwrap();
        let changes: [&dyn Fn(&mut RestoreRequest); 6] = [
            &|request| request.refuse_auth = false,
            &|request| request.restore_uid.push('2'),
            &|request| request.key.insert(0, 'x'),
            &|request| request.store.url.push('x'),
            &|request| request.quota_backend_bytes = Some(1 << 30),
            &|request| request.etcdutl.clone_from(&another_etcdutl),
        ];
        for (n, change) in changes.into_iter().enumerate() {
            let mut another = request.clone();
            change(&mut another);
            assert!(!note.is_of(&another, 0), "change {n}");
        }
    }

    #[test]
    fn what_another_attempt_may_do_otherwise_is_not_kept() {
        let request = request(Path::new("/volume"));
        let unasked = RestoreRequest { refuse_auth: false, ..request.clone() };
        let (grafted, whole) = (Found::default(), Found::default());
        grafted.needs.set(100).unwrap();
        whole.whole.set(()).unwrap();
        for class in ExitClass::ALL {
            let kept = |request: &RestoreRequest, found: &Found| {
                Note::for_error(request, found, &Error::new(class, "x"), clock::now())
            };
            let users = class == ExitClass::AuthRequired;
            assert_eq!(kept(&request, &Found::default()).is_some(), users, "{class:?}");
            let content = matches!(class, ExitClass::Config | ExitClass::Refused);
            assert_eq!(kept(&request, &whole).is_some(), users || content, "{class:?}");
            assert_eq!(kept(&unasked, &whole).is_some(), content, "{class:?}");
            assert_eq!(kept(&unasked, &grafted).is_some(), class == ExitClass::Full, "{class:?}");
        }
        let unpacked = Found::default();
        unpacked.short.set(200).unwrap();
        let short = Note::for_error(&request, &unpacked, &Error::full("x"), clock::now()).unwrap();
        assert!(short.is_of(&request, 199) && !short.is_of(&request, 200), "the volume has grown");
        let full = Note::for_error(&request, &grafted, &Error::full("x"), clock::now()).unwrap();
        assert!(full.is_of(&request, 99) && !full.is_of(&request, 100), "room was made");
        whole.needs.set(100).unwrap();
        let disk = Note::for_error(&request, &whole, &Error::refused("x"), clock::now()).unwrap();
        let after = |minutes| disk.at + SignedDuration::from_mins(minutes);
        assert!(disk.is_fresh(after(9)) && !disk.is_fresh(after(10)), "a disk is tried again");
        let other = Note::for_error(&request, &whole, &Error::config("x"), clock::now()).unwrap();
        assert!(other.is_of(&request, 100), "room is not what was missing");
    }

    #[tokio::test]
    async fn only_what_took_a_download_is_kept_in_mind_and_any_other_attempt_forgets_it() {
        let folder = tempfile::tempdir().unwrap();
        let volume = Volume::alone(folder.path()).await.unwrap();
        let request = request(folder.path());
        let count = || fs::read_dir(folder.path()).unwrap().count();
        let found = Found::default();
        found.whole.set(()).unwrap();
        let leave = |error: &Error| end_attempt(&volume, &request, &found, error);
        let users = Error::auth_required("it has 2 users");
        // The manifest was enough.
        leave(&users);
        assert_eq!(count(), 0);
        volume.stage().unwrap();
        leave(&Error::corrupt("x"));
        assert_eq!(count(), 0);
        for error in [users.clone(), Error::config("too new")] {
            for _ in 0..2 {
                volume.stage().unwrap();
                leave(&error);
                let note = volume.refusal();
                assert_eq!(files::names(note.parent().unwrap()).unwrap().unwrap(), ["refused.json"]);
                assert_eq!(volume.state(), Ok(State::Empty));
                for _ in 0..2 {
                    assert_eq!(find_refusal(&volume, &request).await, Some(error.clone()));
                }
            }
        }
        for nonsense in ["", "{", "{}", "null"] {
            volume.stage().unwrap();
            fs::write(volume.refusal(), nonsense).unwrap();
            assert_eq!(find_refusal(&volume, &request).await, None, "{nonsense:?}");
            assert_eq!(count(), 0, "{nonsense:?}");
        }
        volume.stage().unwrap();
        leave(&users);
        let another = RestoreRequest { restore_uid: "restore-2".to_owned(), ..request.clone() };
        assert_eq!(find_refusal(&volume, &another).await, None);
        assert_eq!((count(), find_refusal(&volume, &request).await), (0, None));
    }
}
