//! Copies a survivor's data into the staging folder.
//!
//! This file decides which files etcd needs for a start (etcd: server/etcdserver/bootstrap.go): the log's records, the
//! snapshots of the membership, and the database. Holes stay holes, and the memory is bounded.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_contract::error::{Result, io_error, task_error};
use holdfast_contract::{DATA_DIR, RestoreRequest};
use holdfast_gate::data_dir::{DATABASE, SNAP, WAL};
use holdfast_io::files;
use holdfast_io::progress::Progress;
use holdfast_io::sha256::Sha256;

use super::Survivor;
use crate::restore::volume::trouble;

/// Bytes copied at once.
const PIECE: usize = 256 << 10;

/// Returns the copied data directory.
pub(super) fn data(folder: &Path) -> PathBuf {
    folder.join(DATA_DIR)
}

/// A file below the data directory, and its bytes that are copied.
struct Wanted {
    path: PathBuf,
    bytes: u64,
}

impl Survivor {
    /// Copies into a new folder; returns the sha256 (hex) of the database.
    pub(super) async fn copy(&self, folder: &Path, request: &RestoreRequest) -> Result<String> {
        let (wanted, from, to) = (self.wanted()?, self.member.data().to_owned(), data(folder));
        let progress = Progress::new("copying the survivor's data", wanted.iter().map(|file| file.bytes).sum());
        let database =
            PathBuf::from(self.received.as_ref().map_or_else(|| DATABASE.to_owned(), |name| format!("{SNAP}/{name}")));
        let counted = progress.clone();
        let work = async {
            let copying = tokio::task::spawn_blocking(move || copy_all(&wanted, (&from, &to), &database, &counted));
            copying.await.map_err(|error| task_error(&error))?
        };
        progress.watch(Duration::from_secs(request.stall_seconds.into()), work).await
    }

    fn wanted(&self) -> Result<Vec<Wanted>> {
        let data = self.member.data();
        let doing = || io_error(format!("reading {}", data.join(SNAP).display()));
        let names = files::names(&data.join(SNAP)).map_err(doing())?.unwrap_or_default();
        let is_wanted = |name: &String| {
            name.strip_suffix(".snap").is_some() || name == "db" || self.received.as_ref() == Some(name)
        };
        let mut wanted = Vec::new();
        for name in names.into_iter().filter(is_wanted) {
            let path = Path::new(SNAP).join(name);
            let bytes = data.join(&path).metadata().map_err(doing())?.len();
            wanted.push(Wanted { path, bytes });
        }
        // Without a torn end.
        let parts = self.log.parts.iter();
        wanted.extend(parts.map(|part| Wanted { path: Path::new(WAL).join(&part.name), bytes: part.bytes }));
        Ok(wanted)
    }
}

fn copy_all(wanted: &[Wanted], (from, to): (&Path, &Path), database: &Path, progress: &Progress) -> Result<String> {
    for folder in [SNAP, WAL] {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(to.join(folder));
        made.map_err(trouble("making the copy's folders"))?;
    }
    let mut sha256 = String::new();
    for Wanted { path, bytes } in wanted {
        let source = File::open(from.join(path)).map_err(io_error(format!("reading {}", from.join(path).display())))?;
        let copied = copy(&source, *bytes, &to.join(path), progress);
        let hash = copied.map_err(trouble(format!("copying the survivor's {}", path.display())))?;
        if path == database {
            sha256 = hex::encode(hash);
        }
    }
    Ok(sha256)
}

/// Copies the first bytes of a file; returns their sha256.
fn copy(source: &File, bytes: u64, to: &Path, progress: &Progress) -> io::Result<[u8; 32]> {
    let target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    let (mut source, mut piece) = (source.take(bytes), vec![0; PIECE]);
    let (mut hash, mut at) = (Sha256::new(), 0);
    loop {
        let got = source.read(&mut piece)?;
        let piece = piece.get(..got).unwrap_or_default();
        if piece.is_empty() {
            break;
        }
        hash.update(piece);
        if piece.iter().any(|byte| *byte != 0) {
            target.write_all_at(piece, at)?;
        }
        at += got as u64;
        progress.add(got);
    }
    if at != bytes {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("it has {at} of {bytes} bytes")));
    }
    // A hole at the end.
    target.set_len(bytes)?;
    Ok(hash.finalize())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_copy_has_the_same_bytes_and_keeps_its_holes() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let mut bytes = vec![0; 5 << 20];
        for at in [0, 1 << 20, (3 << 20) + 17] {
            bytes[at] = 7;
        }
        fs::write(&from, &bytes).unwrap();
        let progress = Progress::silent();
        let hash = copy(&File::open(&from).unwrap(), bytes.len() as u64, &to, &progress).unwrap();
        assert_eq!((fs::read(&to).unwrap(), hash), (bytes.clone(), Sha256::digest(&bytes)));
        assert!(fs::metadata(&to).unwrap().blocks() * 512 < 2 << 20, "the end is a hole");
        assert_eq!(progress.bytes(), 5 << 20);
        let part = folder.path().join("part");
        copy(&File::open(&from).unwrap(), 100, &part, &progress).unwrap();
        assert_eq!(fs::read(&part).unwrap(), &bytes[..100]);
        let short = copy(&File::open(&part).unwrap(), 101, &folder.path().join("short"), &progress).unwrap_err();
        assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
    }
}
