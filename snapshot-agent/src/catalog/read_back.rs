//! Reads a stored object back and compares it with the sent bytes.
//!
//! This file decides equality only: it detects a store that keeps other bytes than it received, before a manifest is written.
//! Against damage a 64-bit checksum is as good as a long hash and costs a tenth. Against a malicious store neither helps here,
//! because the store may return other bytes later; for that the manifest holds a sha256.

use std::time::Duration;

use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use futures::{Stream, StreamExt};

use crate::catalog::second_look;
use crate::error::{Error, Result};
use crate::format::layout::Key;
use crate::store::fingerprint::Fingerprint;
use crate::store::{Ahead, Stat, Store, Upload};
use crate::util::progress::Progress;

/// Fails unless the store returns the uploaded bytes. The upload must be complete. Bytes that were read back during the upload
/// are not read again.
pub(crate) async fn uploaded(
    store: &Store,
    upload: &Upload,
    key: &Key,
    given: Fingerprint,
    stall: Duration,
) -> Result<()> {
    let found = match (upload.given_back(), upload.seen()) {
        (Some(found), _) => found,
        // The upload has the object's metadata from its completion; exactly that object is read.
        (None, Some(stat)) => read(store, key, stat, given, stall).await?,
        (None, None) => read_now(store, key, given, stall).await?,
    };
    if found == given {
        return Ok(());
    }
    let error = Error::corrupt(format!(
        "{}: the store returns {found}, the agent sent {given}; nothing was published",
        store.uri(key)
    ));
    // Before it blames the store, the agent reads again by new connections: if the bytes are right now, they were changed on
    // the way.
    tracing::warn!(%error, "reading the object back a second time, by new connections");
    match read_now(&store.anew(), key, given, stall).await {
        Ok(again) if again == given => Ok(()),
        again => Err(second_look::judge(error, again.map(|again| again == found))),
    }
}

/// Reads the stored object.
async fn read_now(store: &Store, key: &Key, given: Fingerprint, stall: Duration) -> Result<Fingerprint> {
    store.forget(key).await?;
    let stat = store.stat(key).await?;
    read(store, key, &stat, given, stall).await
}

async fn read(store: &Store, key: &Key, stat: &Stat, given: Fingerprint, stall: Duration) -> Result<Fingerprint> {
    let progress = Progress::new("reading back", given.bytes);
    let stream = store.read(key, stat, Ahead::LITTLE, &progress);
    progress.watch(stall, fingerprint(stream)).await
}

/// Computes length and checksum of a stream. The computation is faster than the download, so it needs no thread.
async fn fingerprint(mut stream: impl Stream<Item = Result<Bytes>> + Unpin) -> Result<Fingerprint> {
    let (mut crc, mut bytes) = (crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme), 0_u64);
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        crc.update(&piece);
        bytes += piece.len() as u64;
    }
    Ok(Fingerprint { bytes, crc64: crc.finalize() })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::FileExt as _;
    use std::path::PathBuf;

    use super::*;
    use crate::contract::{Compression, ExitClass, StoreFlags};
    use crate::format::layout::Folder;
    use crate::store::Plan;
    use crate::util::clock;

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
            // A later reading without the upload's memory gives the same result.
            let again = read_now(&store, &key, given, Duration::from_mins(1)).await.unwrap();
            assert_eq!(compared.is_ok(), again == given, "{flipped:?}");
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
