//! Reads the upload back, if the request asks for that.
//!
//! This file decides how to judge a failed read-back. `catalog/read_back.rs` compares the bytes; `verbs/save.rs` decides when.

use holdfast_contract::error::Result;
use holdfast_contract::{ExitClass, Verify};
use holdfast_io::progress::STALL;
use holdfast_layout::Key;
use holdfast_store::fingerprint::Fingerprint;
use holdfast_store::{Store, Upload};

use crate::save::pipe::Sent;
use holdfast_catalog::read_back;

/// The object to read back, if any.
#[derive(Debug)]
pub(crate) struct UploadReader<'a> {
    pub(super) store: &'a Store,
    pub(super) key: Key,
    pub(super) verify: Verify,
}

/// Result of the read-back.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Whether the object was read back and matches the sent bytes.
    pub(super) read_back: bool,
    /// Reason for which the object could not be read.
    pub(super) reason: Option<String>,
}

impl UploadReader<'_> {
    /// Reads the object of a complete upload. On an error the caller removes the object.
    pub(super) async fn read(&self, upload: &Upload, sent: &Sent) -> Result<Found> {
        if self.verify != Verify::Stored {
            return Ok(Found::default());
        }
        let Sent { bytes, crc64, .. } = *sent;
        let given = Fingerprint { bytes, crc64 };
        match read_back::uploaded(self.store, upload, &self.key, given, STALL).await {
            Ok(()) => Ok(Found { read_back: true, reason: None }),
            // Write-only credentials are a careful choice, and the backup is as good: the manifest names the missing check.
            Err(error) if error.class() == ExitClass::Denied && upload.is_signed() => {
                tracing::warn!(%error, "the stored snapshot could not be read back");
                Ok(Found { read_back: false, reason: Some(error.message().to_owned()) })
            }
            Err(error) => Err(error),
        }
    }
}
