//! Stores the waiting objects of a log, the oldest first.
//!
//! This file decides that a failure never skips an object: a later segment in the store without an earlier one would be a hole.
//! The agent tries again until the store takes the object.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use holdfast_contract::error::Result;
use holdfast_store::Store;

use super::numbers::Numbers;
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
                pause = PAUSE;
            }
            Err(error) => {
                tracing::warn!(class = ?error.class(), %error, waiting_bytes = spool.bytes(), "the store does not take the log");
                tokio::time::sleep(pause).await;
                pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
            }
        }
    }
}

fn count(stored: &Waiting, numbers: &Numbers) {
    let Some(segment) = &stored.segment else { return };
    numbers.stored.fetch_max(segment.last, Relaxed);
    numbers.stored_until.fetch_max(segment.at.as_second(), Relaxed);
    numbers.bytes.fetch_add(stored.bytes, Relaxed);
    numbers.segments.fetch_add(1, Relaxed);
    tracing::debug!(first = segment.first, last = segment.last, bytes = stored.bytes, "stored a segment");
}
