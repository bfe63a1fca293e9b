//! A snapshot file without a manifest (etcdctl's, another operator's), by its key: nothing is known of it beforehand.
//!
//! It decides what such a file has to prove before etcdutl sees it: etcd's sha256 at its end, unless a person has allowed
//! that it has none, and always the structure of the database, which etcdutl does not look at. What is compressed or
//! encrypted is not one, and is told as such: a bucket has no place to unpack it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use super::volume::trouble;
use super::{RestoreRun, bump, contents, disk_of, quota};
use crate::catalog::second_look::{self, Reading};
use crate::contract::RestoreRequest;
use crate::error::{Error, Result, task_error};
use crate::etcd::etcdutl::disk::OnDisk;
use crate::etcd::volume_identity::Restored;
use crate::format::layout::{Folder, Key};
use crate::format::packed::Packed;
use crate::format::trailer::database_of;
use crate::format::unpack;
use crate::scan::{Proven, Reader};
use crate::store::{self, Ahead, Stat, Store};
use crate::util::memory::file_budget;
use crate::util::progress::Progress;
use crate::util::sha256::Sha256;
use crate::verbs::common::unsound;

/// What etcdctl calls them, and everybody who calls etcdctl.
const SUFFIX: &str = ".db";

/// A file that was looked at and not read yet.
pub(super) struct FileSnapshot {
    key: Key,
    stat: Stat,
    db_bytes: u64,
    /// Whether etcd's sha256 is at its end.
    trailer: bool,
}

/// The file's key; `None`: it is not called like one.
pub(super) fn parse_key(key: &str) -> Result<Option<Key>> {
    if !key.ends_with(SUFFIX) {
        return Ok(None);
    }
    let folder = Folder::parse("key", key).map_err(|error| store::layout(&error))?;
    Ok(Some(folder.as_object()))
}

impl FileSnapshot {
    pub(super) async fn open(store: &Store, key: Key, request: &RestoreRequest) -> Result<Self> {
        let stat = store.stat(&key).await?;
        let (db_bytes, trailer) = database_of(stat.bytes);
        let uri = store.uri(&key);
        if !trailer && !request.allow_unverified {
            return Err(Error::config(format!(
                "{uri} has no sha256 at its end: {} bytes are not whole pages and 32 bytes more. The file was cut \
                 short, is compressed or encrypted (unpack it first), or is a copy of a member's own database. To \
                 restore such a copy, set allowUnverified (--allow-unverified): the agent then proves the structure, \
                 but not the values",
                stat.bytes
            )));
        }
        if !trailer && request.expect_sha256.is_some() {
            return Err(Error::config(format!("{uri} has no sha256 at its end to compare with the expected sha256")));
        }
        Ok(Self { key, stat, db_bytes, trailer })
    }

    pub(super) const fn stat(&self) -> &Stat {
        &self.stat
    }

    pub(super) const fn db_bytes(&self) -> u64 {
        self.db_bytes
    }

    pub(super) const fn has_trailer(&self) -> bool {
        self.trailer
    }

    /// Downloads it, proves what can be proven, and says how far etcdutl is to move the revision on.
    pub(super) async fn download(&self, run: &RestoreRun<'_>, (path, file): (&Path, File)) -> Result<(Restored, u64)> {
        let RestoreRun { request, store, etcdutl, found: looked, .. } = run;
        let uri = store.uri(&self.key);
        let progress = Progress::new("reading the snapshot", self.stat.bytes);
        let stream = store.read(&self.key, &self.stat, Ahead::FAR, &progress);
        let stall = Duration::from_secs(request.stall_seconds.into());
        // Nothing is durable yet: etcdutl reads the file from memory, and a graft syncs it before anything leads to it.
        let reading = unpack::plain(stream, self.stat.bytes, (file, &progress));
        let (hasher, file) = progress.watch(stall, reading).await?;
        let written = file.metadata().map_err(trouble("looking at the snapshot's file"))?.len();
        if written != self.stat.bytes {
            return Err(Error::corrupt(format!(
                "{uri}: {written} bytes arrived, the store announced {}",
                self.stat.bytes
            )));
        }
        if let Some(packed) = Packed::of_file(&file).map_err(trouble("reading the snapshot's file"))? {
            looked.whole.get_or_init(|| ());
            let (how, command) = (packed.as_str(), packed.command());
            return Err(Error::config(format!(
                "{uri} is packed with {how}, and a restore takes an unpacked file: unpack it ({command}), upload the \
                 result under a name that ends with {SUFFIX}, and name that"
            )));
        }
        let sha256 = if self.trailer {
            match hasher.finish() {
                Ok(proven) => hex::encode(proven.sha256),
                Err(error) => {
                    let error = Error::corrupt(format!("{uri}: {error}"));
                    let first = digest_of(file).await?;
                    return Err(second_look::of_data(store, &self.key, (Some(first), None), error, stall).await);
                }
            }
        } else {
            tracing::warn!(
                uri,
                "the file has no sha256 at its end: the agent proves only the structure, as allowUnverified permits"
            );
            String::new()
        };
        if let Some(expected) = &request.expect_sha256
            && !expected.eq_ignore_ascii_case(&sha256)
        {
            let error = Error::corrupt(format!("{uri}: its sha256 is {sha256}, expected is {expected}"));
            let first = digest_of(file).await?;
            return Err(second_look::of_data(store, &self.key, (Some(first), None), error, stall).await);
        }
        looked.whole.get_or_init(|| ());
        let proven = self.prove(path, &uri).await.and_then(|(found, used)| {
            let bump = bump::for_etcdutl(request.revision_bump, Some(&found), &file, self.db_bytes);
            bump.map(|bump| (found, used, bump)).map_err(|error| error.context(&uri))
        });
        let (found, used, bump) = match proven {
            Ok(proven) => proven,
            Err(error) => {
                let error = OnDisk::at(path, self.db_bytes, sha256, false, disk_of(request))?.blame(error).await;
                let first = digest_of(file).await?;
                return Err(second_look::of_data(store, &self.key, (Some(first), None), error, stall).await);
            }
        };
        // A member's own file may be longer than what is in use of it.
        quota::check(request, used)?;
        etcdutl.version().takes_database(&found)?;
        let mut restored = Restored {
            restore_uid: request.restore_uid.clone(),
            uri,
            db_bytes: self.db_bytes,
            sha256,
            // Nobody has written down when it was taken, from which cluster, and who stood behind it.
            taken_at: String::new(),
            from_cluster: String::new(),
            without_quorum: false,
            revision: Some(found.revision),
            revision_bump: request.revision_bump,
            came_along: None,
            not_compared: None,
            other: serde_json::Map::new(),
        };
        contents::record(run, &mut restored, Some(&found), &file)?;
        Ok((restored, bump))
    }

    /// Reads the whole tree; gives its bytes up to the high-water mark too.
    async fn prove(&self, path: &Path, uri: &str) -> Result<(Proven, u64)> {
        let (path, uri, db_bytes) = (path.to_owned(), uri.to_owned(), self.db_bytes);
        let prove = move || {
            let file = File::open(&path).map_err(trouble("opening the snapshot's file"))?;
            let mut reader = Reader::open(&file, db_bytes, file_budget()).map_err(|error| unsound(&uri, &error))?;
            let used = reader.used_bytes();
            reader.prove(None).map(|found| (found, used)).map_err(|error| unsound(&uri, &error))
        };
        tokio::task::spawn_blocking(prove).await.map_err(|error| task_error(&error))?
    }
}

/// Length and sha256 of all that arrived.
async fn digest_of(file: File) -> Result<Reading> {
    let digest = move || {
        let (mut hash, mut piece, mut bytes) = (Sha256::new(), vec![0; 1 << 20], 0_u64);
        loop {
            match file.read_at(&mut piece, bytes)? {
                0 => return Ok((bytes, hash.finalize())),
                got => {
                    hash.update(piece.get(..got).unwrap_or_default());
                    bytes += got as u64;
                }
            }
        }
    };
    let digest = tokio::task::spawn_blocking(digest).await.map_err(|error| task_error(&error))?;
    digest.map_err(trouble("reading the snapshot's file"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::ExitClass;

    #[test]
    fn only_what_is_called_like_a_file_is_one() {
        assert_eq!(parse_key("shop/orders/1a2b3c4d/20261121T162233Z-1-2").unwrap(), None);
        assert_eq!(parse_key("a/snapshot.db.zst").unwrap(), None);
        assert_eq!(parse_key("old/etcd-2026.db").unwrap().unwrap().to_string(), "old/etcd-2026.db");
        assert_eq!(parse_key("etcd.db").unwrap().unwrap().to_string(), "etcd.db");
        for bad in ["../x.db", "a//x.db", "a/../x.db", ".db"] {
            assert_eq!(parse_key(bad).unwrap_err().class(), ExitClass::Config, "{bad}");
        }
    }
}
