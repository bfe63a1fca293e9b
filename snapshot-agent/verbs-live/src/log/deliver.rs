//! Stores the waiting objects of a log, the oldest first.
//!
//! This file decides that a failure never skips an object: a later segment in the store without an earlier one would be a hole.
//! The agent tries again until the store takes the object. Where another object has its name, the object gets another name. It
//! also decides when the store is opened again: keys, tokens, CA and addresses change while a run goes on, and the bytes wait in
//! the spool meanwhile.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use holdfast_contract::error::Result;
use holdfast_contract::{ExitClass, LogRequest};
use holdfast_io::clock;
use holdfast_store::Handle;
use tokio::time::Instant;

use super::numbers::{Numbers, Side};
use super::spool::{Spool, Waiting};
use holdfast_catalog::log::read::MAX_STORED;
use holdfast_catalog::store_id;

/// First and longest pause after a failure.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Time after which the store is opened again in any case: its name may lead to another store, whose ID differs.
const OPEN_AGAIN: Duration = Duration::from_mins(5);

/// Stores objects until it is dropped. An error is one of the spool.
pub(super) async fn run(request: &LogRequest, store: &Handle, spool: &Spool, numbers: &Numbers) -> Result<()> {
    let mut pause = PAUSE;
    // The run has checked the store ID before.
    let mut opened = Some(Instant::now());
    loop {
        numbers.spool_bytes.store(spool.bytes(), Relaxed);
        let oldest = spool.oldest().await;
        let content = oldest.read().await?;
        let storing = async {
            if opened.is_none_or(|at| at.elapsed() >= OPEN_AGAIN) || store.files_changed() {
                opened = None;
                open_again(request, store).await?;
                opened = Some(Instant::now());
            }
            // Create-only: an object that an interrupted run has stored already is equal.
            store.store().put_new(&oldest.key, content).await
        };
        match storing.await {
            Ok(()) => {
                spool.remove_oldest(&oldest)?;
                count(&oldest, numbers);
                numbers.note_success(Side::Store);
                pause = PAUSE;
            }
            Err(_) if is_taken(store, &oldest).await => {
                let key = oldest.another_key()?;
                tracing::warn!(taken = %oldest.key, %key, "another object has the name: the object gets another one");
                spool.rename_oldest(&oldest, key)?;
            }
            Err(error) => {
                if error.class() == ExitClass::Denied {
                    // Also without a changed file: a role's session is requested again.
                    opened = None;
                }
                numbers.note_failure(Side::Store, &error);
                tracing::warn!(class = ?error.class(), %error, waiting_bytes = spool.bytes(), "the store does not take the log");
                tokio::time::sleep(pause).await;
                pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Whether another object has the name of this one.
async fn is_taken(store: &Handle, oldest: &Waiting) -> bool {
    let Ok(own) = oldest.read().await else { return false };
    // Unknown is not taken.
    matches!(store.store().find_small(&oldest.key, MAX_STORED).await, Ok(Some(other)) if other != own)
}

/// Opens the store with its present files. Writes go to the opened store only if its ID is the expected ID (I25).
async fn open_again(request: &LogRequest, store: &Handle) -> Result<()> {
    let opened = store.open_again()?;
    store_id::check_before_write(&request.store, request.expect_store_id.as_deref()).await?;
    store.replace(opened);
    tracing::debug!("opened the store again");
    Ok(())
}

fn count(stored: &Waiting, numbers: &Numbers) {
    let Some(segment) = &stored.segment else { return };
    numbers.count(segment, stored.bytes, clock::now());
    tracing::debug!(first = segment.first, last = segment.last, bytes = stored.bytes, "stored a segment");
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Duration;

    use holdfast_contract::StoreFlags;
    use holdfast_layout::{Folder, GapName, Key, SegmentName, Tail, check_key};

    use super::*;

    /// A clock that went back, or a copied spool: the names exist, and the objects are others.
    #[tokio::test]
    async fn an_object_whose_name_is_taken_gets_another() {
        let [mount, spooled] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let flags = StoreFlags { url: format!("file://{}", mount.path().display()), ..StoreFlags::default() };
        let handle = Handle::open(&flags).unwrap();
        let store = handle.store();
        let request = LogRequest { store: flags, ..LogRequest::default() };
        let log = Folder::parse("key", "shop/orders/1a2b3c4d").unwrap().log();
        let spool = Spool::open(spooled.path().join("spool"), log.clone(), 1 << 20).unwrap();
        let at = "2026-11-28T10:42:07Z".parse().unwrap();
        let tail = Some(Tail { serial: 1, sum: None, is_timed: true });
        let segment = SegmentName { first: 2, last: 9, at, run8: "aaaabbbb".to_owned(), encrypted: false, tail };
        let keys: [Key; 3] = [
            segment.key(&log).unwrap(),
            GapName { after: 9, until: 12, removed: false }.key(&log, "aaaabbbb").unwrap(),
            check_key(&log, 20, "aaaabbbb").unwrap(),
        ];
        for key in &keys {
            store.put_new(key, "others".into()).await.unwrap();
            spool.push(key.clone(), |file| file.write_all(b"own")).await.unwrap();
        }
        let numbers = Numbers::default();
        tokio::select! {
            ended = run(&request, &handle, &spool, &numbers) => panic!("{ended:?}"),
            () = spool.wait_until(|bytes| bytes == 0) => {}
            () = tokio::time::sleep(Duration::from_mins(1)) => panic!("{} bytes wait", spool.bytes()),
        }
        for key in &keys {
            assert_eq!(&store.get_small(key, 100).await.unwrap()[..], b"others");
            let names = store.objects(key.folder(), 10).await.unwrap();
            assert_eq!(names.len(), 2, "{names:?}");
        }
        assert_eq!(numbers.report(clock::now()).stored_revision, Some(9));
    }
}
