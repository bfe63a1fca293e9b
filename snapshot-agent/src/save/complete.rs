//! Makes an object of what was uploaded, and reads it back where that is asked for.
//!
//! It decides what it means that it cannot be read. When all this is done is decided in `save.rs`: nothing that is complete
//! is a backup before its manifest.

use tokio::sync::watch;

use crate::contract::{ExitClass, Verify};
use crate::error::Result;
use crate::layout::Key;
use crate::pipe::Sent;
use crate::read_back::{self, Fingerprint};
use crate::store::{Store, Upload};

/// Where an upload becomes an object.
#[derive(Debug)]
pub(crate) struct Completing<'a> {
    pub(super) store: &'a Store,
    pub(super) key: Key,
    pub(super) verify: Verify,
}

/// An object that the store has.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    /// Whether it was read back, and is what was sent.
    pub(super) read_back: bool,
    /// Why it could not be read.
    pub(super) reason: Option<String>,
}

impl Completing<'_> {
    /// Completes the upload of what was sent, and says so for as long as the store is at it. An error: take it back.
    pub(super) async fn run(
        &self,
        upload: &mut Upload,
        sent: &Sent,
        being_made: &watch::Sender<bool>,
    ) -> Result<Stored> {
        being_made.send_replace(true);
        let made = upload.complete().await;
        being_made.send_replace(false);
        made?;
        tracing::debug!("the upload is complete");
        if self.verify != Verify::Stored {
            return Ok(Stored::default());
        }
        let Sent { bytes, crc64, .. } = *sent;
        let given = Fingerprint { bytes, crc64 };
        match read_back::uploaded(self.store, upload, &self.key, given, super::STALL).await {
            Ok(()) => Ok(Stored { read_back: true, reason: None }),
            // Credentials that may only write are a careful choice, and the backup is as good; it says what it lacks.
            Err(error) if error.class() == ExitClass::Denied && upload.is_signed() => {
                tracing::warn!(%error, "what is stored could not be read back");
                Ok(Stored { read_back: false, reason: Some(error.message().to_owned()) })
            }
            Err(error) => Err(error),
        }
    }
}
