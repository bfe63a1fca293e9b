//! The scan of a whole snapshot: etcd's sha256 at its end is no page.

use super::{Options, Proven, Scan, ScanError};
use crate::format::trailer::KeepBack;

/// One pass over the bytes of a snapshot, trailer and all. What the trailer says is for others to compare.
#[derive(Debug)]
pub(crate) struct SnapshotScan {
    scan: Scan,
    trailer: KeepBack,
}

impl SnapshotScan {
    /// Begins.
    pub(crate) fn new(options: Options) -> Self {
        Self { scan: Scan::new(options), trailer: KeepBack::default() }
    }

    /// Takes the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let Self { scan, trailer } = self;
        trailer.pass(bytes, |settled| scan.push(settled));
    }

    /// The verdict, once the last byte is in.
    pub(crate) fn finish(self) -> Result<Proven, ScanError> {
        self.scan.finish()
    }
}
