//! Stores the waiting objects of a log, the oldest first.
//!
//! This file decides that a failure never skips an object: a later segment in the store without an earlier one would be a hole.
//! The agent tries again until the store takes the object.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use holdfast_contract::error::Result;
use holdfast_io::clock;
use holdfast_store::Store;

use super::numbers::{Numbers, Side};
use super::spool::{Spool, Waiting};

/// First and longest pause after a failure.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Stores objects until it is dropped. An error is one of the spool.
pub(super) async fn run(store: &Store, spool: &Spool, numbers: &Numbers) -> Result<()> {
    let mut pause = PAUSE;
    loop {
        numbers.spool_bytes.store(spool.bytes(), Relaxed);
        let oldest = spool.oldest().await;
        // Create-only: an object that an interrupted run has stored already is equal.
        match store.put_new(&oldest.key, oldest.read().await?).await {
            Ok(()) => {
                spool.remove_oldest(&oldest)?;
                count(&oldest, numbers);
                numbers.note_success(Side::Store);
                pause = PAUSE;
            }
            Err(error) => {
                numbers.note_failure(Side::Store, &error);
                tracing::warn!(class = ?error.class(), %error, waiting_bytes = spool.bytes(), "the store does not take the log");
                tokio::time::sleep(pause).await;
                pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
            }
        }
    }
}

fn count(stored: &Waiting, numbers: &Numbers) {
    let Some(segment) = &stored.segment else { return };
    numbers.count(segment, stored.bytes, clock::now());
    tracing::debug!(first = segment.first, last = segment.last, bytes = stored.bytes, "stored a segment");
}
