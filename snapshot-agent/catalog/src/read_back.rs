//! Reads a stored object back and compares it with the sent bytes.
//!
//! This file decides equality only: it detects a store that keeps other bytes than it received, before a manifest is written.
//! Against damage a 64-bit checksum is as good as a long hash and costs a tenth. Against a malicious store neither helps here,
//! because the store may return other bytes later; for that the manifest holds a sha256.

use std::time::Duration;

use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use futures::{Stream, StreamExt};
use holdfast_contract::error::{Error, Result};
use holdfast_io::progress::Progress;
use holdfast_layout::Key;
use holdfast_store::fingerprint::{Fingerprint, Sum};
use holdfast_store::{Ahead, Stat, Store, Upload};

use crate::digest::digest;
use crate::reread;

/// Fails unless the store returns the uploaded bytes. The upload must be complete. Bytes that were read back during the upload
/// are not read again.
pub async fn uploaded(store: &Store, upload: &Upload, key: &Key, given: Fingerprint, stall: Duration) -> Result<()> {
    match upload.given_back() {
        Some(found) => match judge(store, key, given.parts(), found.parts()) {
            Ok(()) => Ok(()),
            Err(error) => again(store, key, given.parts(), (found.parts(), error), stall).await,
        },
        None => match upload.seen() {
            // The object was looked at when it was complete, and that very one is read.
            Some(stat) => compare_seen(store, key, stat, given.parts(), stall).await,
            None => compare(store, key, given.bytes, Sum::Crc64(given.crc64), stall).await,
        },
    }
}

/// Fails unless the store gives these bytes back.
pub async fn compare(store: &Store, key: &Key, bytes: u64, sum: Sum, stall: Duration) -> Result<()> {
    store.forget(key).await?;
    let stat = store.stat(key).await?;
    compare_seen(store, key, &stat, (bytes, sum), stall).await
}

/// The same of an object of which it is known which one it is.
async fn compare_seen(store: &Store, key: &Key, stat: &Stat, (bytes, sum): (u64, Sum), stall: Duration) -> Result<()> {
    let found = read(store, key, stat, (bytes, sum), stall).await?;
    match judge(store, key, (bytes, sum), found) {
        Ok(()) => Ok(()),
        Err(error) => again(store, key, (bytes, sum), (found, error), stall).await,
    }
}

async fn read(store: &Store, key: &Key, stat: &Stat, (bytes, sum): (u64, Sum), stall: Duration) -> Result<(u64, Sum)> {
    let progress = Progress::new("reading back", bytes);
    let stream = store.read(key, stat, Ahead::LITTLE, &progress);
    Ok(match sum {
        Sum::Crc64(_) => progress.watch(stall, crc64(stream)).await?,
        Sum::Sha256(_) => {
            let (bytes, sha256) = progress.watch(stall, digest(stream)).await?;
            (bytes, Sum::Sha256(sha256))
        }
    })
}

/// Reads it once more, by new connections, before the store is blamed: what is right then was changed on the way back.
async fn again(
    store: &Store,
    key: &Key,
    given: (u64, Sum),
    (first, error): ((u64, Sum), Error),
    stall: Duration,
) -> Result<()> {
    tracing::warn!(%error, "reading the object back a second time, by new connections");
    let store = store.with_new_connections();
    let reading = async {
        store.forget(key).await?;
        let stat = store.stat(key).await?;
        read(&store, key, &stat, given, stall).await
    };
    match reading.await {
        Ok(found) if found == given => Ok(()),
        found => Err(reread::judge(error, found.map(|found| found == first))),
    }
}

fn judge(store: &Store, key: &Key, given: (u64, Sum), found: (u64, Sum)) -> Result<()> {
    if found == given {
        return Ok(());
    }
    let (bytes, sum) = given;
    Err(Error::corrupt(format!(
        "{}: the store returns {} bytes with {}, the agent sent {bytes} bytes with {sum}; nothing was published",
        store.uri(key),
        found.0,
        found.1,
    )))
}

/// Length and checksum of a stream. It is faster than what brings the bytes, so it needs no thread of its own.
async fn crc64(mut stream: impl Stream<Item = Result<Bytes>> + Unpin) -> Result<(u64, Sum)> {
    let (mut crc, mut total) = (crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme), 0_u64);
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        crc.update(&piece);
        total += piece.len() as u64;
    }
    Ok((total, Sum::Crc64(crc.finalize())))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::FileExt as _;
    use std::path::PathBuf;

    use holdfast_contract::{Compression, ExitClass, StoreFlags};
    use holdfast_io::clock;
    use holdfast_layout::Folder;
    use holdfast_store::Plan;

    use super::*;

    /// One byte changes between the write and the read-back.
    #[tokio::test]
    async fn a_folder_whose_disk_gives_back_something_else_is_found_out() {
        let mount = tempfile::tempdir().unwrap();
        let flags = StoreFlags { url: format!("file://{}", mount.path().display()), ..StoreFlags::default() };
        let store = Store::open(&flags).unwrap();
        let content = Bytes::from(vec![7; 3 << 20]);
        let given = Fingerprint { bytes: 3 << 20, crc64: crc_fast::checksum(CrcAlgorithm::Crc64Nvme, &content) };
        let at = clock::now();
        for (number, flipped) in [None, Some(0), Some((3 << 20) - 1)].into_iter().enumerate() {
            let folder = Folder::parse("key", &format!("shop/orders/1a2b3c4d/{number}")).unwrap();
            let (key, place) = (folder.data(Compression::None), mount.path().join(folder.to_string()));
            let plan = Plan { estimate: 1, at, until: at, read_back: true, patient: false };
            let mut upload = store.begin(&key, plan).await.unwrap();
            upload.write(content.clone()).await.unwrap();
            let written = wait_for(&place, given.bytes).await;
            if let Some(flipped) = flipped {
                fs::OpenOptions::new().write(true).open(written).unwrap().write_all_at(&[6], flipped).unwrap();
            }
            upload.complete().await.unwrap();
            let compared = uploaded(&store, &upload, &key, given, Duration::from_mins(1)).await;
            // Later, and with nobody who remembers: the same.
            let again = compare(&store, &key, given.bytes, Sum::Crc64(given.crc64), Duration::from_mins(1)).await;
            assert_eq!(compared, again, "{flipped:?}");
            assert_eq!(compared.err().map(|error| error.class()), flipped.map(|_| ExitClass::Corrupt), "{flipped:?}");
        }
    }

    /// Returns the only file of a folder, once it has this many bytes.
    async fn wait_for(folder: &std::path::Path, bytes: u64) -> PathBuf {
        let file = fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
        while fs::metadata(&file).unwrap().len() < bytes {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        file
    }
}
