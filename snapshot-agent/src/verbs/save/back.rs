//! Reads what was uploaded back, where that is asked for.
//!
//! It decides what it means that it cannot be read. What is compared is in `catalog/read_back.rs`, and when all this is done is
//! decided in `verbs/save.rs`.

use crate::catalog::read_back;
use crate::contract::{ExitClass, Verify};
use crate::error::Result;
use crate::format::layout::Key;
use crate::store::fingerprint::Fingerprint;
use crate::store::{Store, Upload};
use crate::util::progress::STALL;
use crate::verbs::save::pipe::Sent;

/// Which object is read back, if at all.
#[derive(Debug)]
pub(crate) struct Back<'a> {
    pub(super) store: &'a Store,
    pub(super) key: Key,
    pub(super) verify: Verify,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Whether it was read back, and is what was sent.
    pub(super) read_back: bool,
    /// Why it could not be read.
    pub(super) reason: Option<String>,
}

impl Back<'_> {
    /// Reads the object of an upload that is complete. An error: take it back.
    pub(super) async fn read(&self, upload: &Upload, sent: &Sent) -> Result<Found> {
        if self.verify != Verify::Stored {
            return Ok(Found::default());
        }
        let Sent { bytes, crc64, .. } = *sent;
        let given = Fingerprint { bytes, crc64 };
        match read_back::uploaded(self.store, upload, &self.key, given, STALL).await {
            Ok(()) => Ok(Found { read_back: true, reason: None }),
            // Credentials that may only write are a careful choice, and the backup is as good; it says what it lacks.
            Err(error) if error.class() == ExitClass::Denied && upload.is_signed() => {
                tracing::warn!(%error, "the stored snapshot could not be read back");
                Ok(Found { read_back: false, reason: Some(error.message().to_owned()) })
            }
            Err(error) => Err(error),
        }
    }
}
