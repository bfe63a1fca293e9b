//! Decides whether the snapshot or the local disk has a fault, when data that was proven before the write is broken on the
//! disk.
//!
//! This file decides by hashing the file again: a disk that returns other bytes than were written proves nothing about the
//! snapshot, and a snapshot that is once called corrupt stays so.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use holdfast_contract::ExitClass;
use holdfast_contract::error::{Error, Result, io_error, task_error};
use holdfast_io::sha256::Sha256;
use tokio::task::spawn_blocking;

use crate::etcdutl::output::COPIED;
use holdfast_format::trailer::TRAILER;

/// Size of one read.
const PIECE: usize = 1 << 20;

/// A file with a database that had this sha256 (hex) at the write.
pub struct OnDisk {
    /// The open file.
    pub file: Arc<File>,
    /// Bytes of the database, without the trailer.
    pub db_bytes: u64,
    /// Empty if unknown.
    pub sha256: String,
    /// Whether etcd's sha256 follows the database, and is read too.
    pub trailer: bool,
    /// Name of the disk, for messages.
    pub disk: String,
}

impl OnDisk {
    /// Opens the file at this path: other programs open it by its path too.
    pub fn at(path: &Path, db_bytes: u64, sha256: String, trailer: bool, disk: String) -> Result<Self> {
        let file = File::open(path).map_err(io_error(format!("reading {}", path.display())))?;
        Ok(Self { file: Arc::new(file), db_bytes, sha256, trailer, disk })
    }

    /// Returns this error, or an error about the disk if the file's hash has changed.
    pub async fn blame(self, error: Error) -> Error {
        if error.class() != ExitClass::Corrupt || self.sha256.is_empty() {
            return error;
        }
        let Self { file, db_bytes, sha256, trailer, disk } = self;
        let read = match spawn_blocking(move || hash(&file, db_bytes, trailer)).await {
            Ok(Ok((database, trailer))) => [Some(hex::encode(database)), trailer.map(hex::encode)],
            Ok(Err(cut)) if cut.kind() == io::ErrorKind::UnexpectedEof => [Some("fewer bytes".to_owned()), None],
            Ok(Err(failed)) => return io_error(format!("{disk}: reading the written file"))(failed),
            Err(failed) => return task_error(&failed),
        };
        match read.into_iter().flatten().find(|read| !read.eq_ignore_ascii_case(&sha256)) {
            // The file is the proven file, so etcdutl's own copy differs.
            None if trailer && error.message().contains(COPIED) => other_bytes(&disk, error.message()),
            None => error,
            Some(read) => {
                other_bytes(&disk, &format!("the agent wrote sha256 {sha256} and read {read}; {}", error.message()))
            }
        }
    }
}

/// Returns the error of a disk that holds other bytes than were written.
pub fn other_bytes(disk: &str, why: &str) -> Error {
    Error::refused(format!(
        "{disk} returns other bytes than were written ({why}). The agent proved the snapshot before the write, so the \
         snapshot is intact. Check the disk, the memory of its node and the kernel's log, or use another disk"
    ))
}

/// Returns the database's sha256, and the bytes in the trailer's place.
fn hash(file: &File, bytes: u64, trailer: bool) -> io::Result<([u8; 32], Option<[u8; TRAILER]>)> {
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < bytes {
        let most = usize::try_from(bytes - at).map_or(PIECE, |remaining| remaining.min(PIECE));
        file.read_exact_at(&mut piece[..most], at)?;
        hash.update(&piece[..most]);
        at += most as u64;
    }
    let read = || {
        let mut found = [0; TRAILER];
        file.read_exact_at(&mut found, bytes).map(|()| found)
    };
    Ok((hash.finalize(), trailer.then(read).transpose()?))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    async fn blamed(error: Error, holds: &[u8], sha256: &str) -> Error {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(holds).unwrap();
        let (file, sha256, disk) = (Arc::new(file), sha256.to_owned(), "--scratch=/x".to_owned());
        let written = OnDisk { file, db_bytes: 3 << 20, sha256, trailer: true, disk };
        written.blame(error).await
    }

    #[tokio::test]
    async fn a_disk_that_lies_is_told_and_the_snapshot_is_not_accused() {
        let mut bytes = vec![7; 3 << 20];
        let digest = Sha256::digest(&bytes);
        let sha256 = hex::encode(digest);
        bytes.extend(digest);
        let corrupt = Error::corrupt("page 3 makes no sense");
        assert_eq!(blamed(corrupt.clone(), &bytes, &sha256).await, corrupt, "it is what was written");
        assert_eq!(blamed(corrupt.clone(), &bytes, &sha256.to_uppercase()).await, corrupt);
        let transient = Error::transient("x");
        for (what, at) in [("the database", (3 << 20) - 1), ("the trailer", 3 << 20)] {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            assert_eq!(blamed(corrupt.clone(), &bytes, "").await, corrupt, "{what}: nobody knows what was written");
            assert_eq!(blamed(transient.clone(), &bytes, &sha256).await, transient);
            let told = blamed(corrupt.clone(), &bytes, &sha256).await;
            assert_eq!(told.class(), ExitClass::Refused, "{what}: {told}");
            for word in ["--scratch=/x", &sha256, "page 3 makes no sense", "is intact"] {
                assert!(told.message().contains(word), "{what}: no {word:?} in {told}");
            }
        }
        for length in [9, 3 << 20] {
            let cut = blamed(corrupt.clone(), &bytes[..length], &sha256).await;
            assert!(cut.class() == ExitClass::Refused && cut.message().contains("fewer bytes"), "{cut}");
        }
    }
}
