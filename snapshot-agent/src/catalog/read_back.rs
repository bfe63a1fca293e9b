//! Reads a stored object back and compares it with what was sent.
//!
//! It decides nothing but equality: a store that keeps something else than it was given is found out before a manifest
//! calls it a snapshot. Against damage a checksum of 64 bits is as good as a long hash, and costs a tenth; against a store
//! that means to deceive neither helps here: it may give back one thing now and another one later, and for that the
//! manifest has a sha256.

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

/// Fails unless the store gives back what was uploaded, which is complete. What was read while it was written is not read
/// again.
pub(crate) async fn uploaded(
    store: &Store,
    upload: &Upload,
    key: &Key,
    given: Fingerprint,
    stall: Duration,
) -> Result<()> {
    let found = match (upload.given_back(), upload.seen()) {
        (Some(found), _) => found,
        // The object was looked at when it was complete, and that very one is read.
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
    // Once more, by new connections, before the store is blamed: what is right then was changed on the way back.
    tracing::warn!(%error, "reading the object back a second time, by new connections");
    match read_now(&store.anew(), key, given, stall).await {
        Ok(again) if again == given => Ok(()),
        again => Err(second_look::judge(error, again.map(|again| again == found))),
    }
}

/// Reads what is stored by now.
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

/// Length and checksum of a stream. It is faster than what brings the bytes, so it needs no thread of its own.
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

    /// One byte changes after it was written and before the disk was asked for it.
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
            let again = read_now(&store, &key, given, Duration::from_mins(1)).await.unwrap();
            assert_eq!(compared.is_ok(), again == given, "{flipped:?}");
            assert_eq!(compared.err().map(|error| error.class()), flipped.map(|_| ExitClass::Corrupt), "{flipped:?}");
        }
    }

    /// The only file of a folder, when it has so many bytes.
    async fn wait_for(folder: &std::path::Path, bytes: u64) -> PathBuf {
        let file = fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
        while fs::metadata(&file).unwrap().len() < bytes {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        file
    }
}
