//! Data at the destination without a manifest: of a copy that died before its end.
//!
//! This file decides when the data becomes a snapshot: it has the requested lock, it belongs to this run meanwhile, so that no
//! other run removes it as a leftover, and its hash is the manifest's.

use bytes::Bytes;
use holdfast_contract::ExitClass;
use holdfast_contract::error::{Error, Result};
use holdfast_io::interrupt::Interrupt;

use super::{CopyRun, Destination};
use holdfast_catalog::publish;
use holdfast_catalog::stored::Stored;

/// Why the agent did not publish the data.
enum Unfinished {
    /// Nothing changed.
    Untouched(Error),
    /// The manifest may exist.
    Started(Error),
}

impl CopyRun<'_> {
    /// Publishes the data if its hash is the manifest's.
    pub(super) async fn publish_left(&self, stored: &Stored, json: Bytes, interrupt: &mut Interrupt) -> Result<()> {
        let data = &stored.data;
        interrupt.unless(self.locked(data, Destination::Data)).await?;
        let taken = interrupt.unless(self.to.take_over(data, self.at, self.until)).await?;
        let ended = self.read_and_publish(stored, json, interrupt).await;
        if let (Some(taken), Ok(()) | Err(Unfinished::Untouched(_))) = (taken, &ended) {
            taken.let_go(ended.is_ok()).await;
        }
        ended.map_err(|(Unfinished::Untouched(error) | Unfinished::Started(error))| error)
    }

    async fn read_and_publish(
        &self,
        stored: &Stored,
        json: Bytes,
        interrupt: &mut Interrupt,
    ) -> Result<(), Unfinished> {
        let whole = interrupt.unless(self.read_back(stored)).await;
        whole.map_err(|error| match error.class() {
            // The data existed a moment ago: another run was already removing the leftovers.
            ExitClass::NotFound => Unfinished::Untouched(Error::transient(error.message())),
            _ => Unfinished::Untouched(error),
        })?;
        publish::run(self.to, None, &stored.data, json, interrupt).await.map_err(Unfinished::Started)
    }
}
