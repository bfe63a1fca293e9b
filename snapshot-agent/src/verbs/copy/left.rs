//! Data at the destination without a manifest: of a copy that died before its end.
//!
//! It decides when that becomes a snapshot: when it is locked as was asked for, is this run's for as long as it takes, so
//! that no other run removes it as a dead one's, and is what it has to be.

use bytes::Bytes;
use holdfast_contract::ExitClass;
use holdfast_contract::error::{Error, Result};
use holdfast_io::interrupt::Interrupt;

use super::{CopyRun, Destination};
use crate::catalog::publish;
use crate::catalog::stored::Stored;

/// Why it was not published.
enum Left {
    /// It is as it was.
    Untouched(Error),
    /// Its manifest may be there.
    Begun(Error),
}

impl CopyRun<'_> {
    /// Publishes it if it is what it has to be.
    pub(super) async fn publish_left(&self, stored: &Stored, json: Bytes, interrupt: &mut Interrupt) -> Result<()> {
        let data = &stored.data;
        interrupt.unless(self.locked(data, Destination::Data)).await?;
        let taken = interrupt.unless(self.to.take_over(data, self.at, self.until)).await?;
        let ended = self.read_and_publish(stored, json, interrupt).await;
        if let (Some(taken), Ok(()) | Err(Left::Untouched(_))) = (taken, &ended) {
            taken.let_go(ended.is_ok()).await;
        }
        ended.map_err(|(Left::Untouched(error) | Left::Begun(error))| error)
    }

    async fn read_and_publish(&self, stored: &Stored, json: Bytes, interrupt: &mut Interrupt) -> Result<(), Left> {
        let whole = interrupt.unless(self.read_back(stored)).await;
        whole.map_err(|error| match error.class() {
            // Seen a moment ago: who cleaned up after the dead one was at it already.
            ExitClass::NotFound => Left::Untouched(Error::transient(error.message())),
            _ => Left::Untouched(error),
        })?;
        publish::run(self.to, None, &stored.data, json, interrupt).await.map_err(Left::Begun)
    }
}
