//! Stores the waiting objects of a log, the oldest first.
//!
//! This file decides that a failure never skips an object: a later segment in the store without an earlier one would be a hole.
//! The agent tries again until the store takes the object. It also decides when the store is opened again: keys, tokens, CA and
//! addresses change while a run goes on, and the bytes wait in the spool meanwhile.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use holdfast_contract::error::Result;
use holdfast_contract::{ExitClass, LogRequest};
use holdfast_io::clock;
use holdfast_store::Handle;
use tokio::time::Instant;

use super::numbers::{Numbers, Side};
use super::spool::{Spool, Waiting};
use crate::catalog::store_id;

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
