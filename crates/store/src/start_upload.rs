//! The start of an upload, which a signal may interrupt.
//!
//! This file decides that an interrupted start leaves nothing: no run could remove an upload whose name is lost (I21). So the
//! start continues to its end, at most some seconds, and is then aborted.

use std::pin::pin;
use std::time::Duration;

use futures::FutureExt;
use holdfast_contract::error::Result;
use holdfast_io::interrupt::Interrupt;
use holdfast_layout::Key;
use tokio::time::timeout;

use super::{Plan, Store, Upload};

/// Time for two small requests, or a file, and for the removal after a failed second request (10 s at most). kubelet gives 30 s
/// in all. The abort takes 10 s at most in a bucket; on a volume that hangs, the next run cleans up.
const ENDS_WITHIN: Duration = Duration::from_secs(12);

impl Store {
    /// Calls [`Store::begin`], unless a signal or the deadline interrupts: then nothing stays.
    pub async fn begin_unless(&self, key: &Key, plan: Plan, interrupt: &mut Interrupt) -> Result<Upload> {
        let mut beginning = pin!(self.begin(key, plan).fuse());
        let upload = interrupt.unless(beginning.as_mut()).await;
        if upload.is_err() && interrupt.came() {
            match timeout(ENDS_WITHIN, beginning).await {
                Ok(Ok(mut upload)) => upload.abort().await,
                Ok(Err(error)) => tracing::debug!(%error, "the upload did not begin"),
                Err(_) => tracing::warn!(%key, "the store does not answer: the upload may stay unfinished"),
            }
        }
        upload
    }
}
