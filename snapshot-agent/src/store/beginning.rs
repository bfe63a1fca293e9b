//! The beginning of an upload, in the middle of which a run may be told to stop.
//!
//! It decides that nothing is left halfway there: what nobody knows the name of, nobody takes back (I21). So a beginning
//! comes to its end, which is some seconds away at most, and is taken back then.

use std::pin::pin;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::timeout;

use super::{Plan, Store, Upload};
use crate::error::Result;
use crate::format::layout::Key;
use crate::util::interrupt::Interrupt;

/// Two small requests, or a file; and where the second one fails, it takes the first one back itself (10 s at most). The
/// kubelet gives 30 s in all; to take it back here takes 10 at most in a bucket, and on a volume that hangs it is left to the
/// next run.
const ENDS_WITHIN: Duration = Duration::from_secs(12);

impl Store {
    /// [`Store::begin`], unless something comes between: then nothing of it stays.
    pub(crate) async fn begin_unless(&self, key: &Key, plan: Plan, interrupt: &mut Interrupt) -> Result<Upload> {
        let mut beginning = pin!(self.begin(key, plan).fuse());
        let begun = interrupt.unless(beginning.as_mut()).await;
        if begun.is_err() && interrupt.came() {
            match timeout(ENDS_WITHIN, beginning).await {
                Ok(Ok(mut upload)) => upload.abort().await,
                Ok(Err(error)) => tracing::debug!(%error, "the upload did not begin"),
                Err(_) => tracing::warn!(%key, "the store does not answer: the upload may stay unfinished"),
            }
        }
        begun
    }
}
