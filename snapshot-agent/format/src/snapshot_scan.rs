//! Scans a whole snapshot, without etcd's sha256 at its end.

use std::io;

use bytes::Bytes;
use holdfast_bbolt::scan::{Options, Proven, Scan, ScanError};

use crate::trailer::KeepBack;
use crate::unpack::Sink;

/// One pass over the bytes of a snapshot with its trailer. The caller compares the trailer.
#[derive(Debug)]
pub struct SnapshotScan {
    scan: Scan,
    trailer: KeepBack,
}

impl SnapshotScan {
    /// Returns a new scan.
    pub fn new(options: Options) -> Self {
        Self { scan: Scan::new(options), trailer: KeepBack::default() }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let Self { scan, trailer } = self;
        trailer.pass(bytes, |settled| scan.push(settled));
    }

    /// Returns the verdict after the last byte.
    pub fn finish(self) -> Result<Proven, ScanError> {
        self.scan.finish()
    }
}

impl Sink for SnapshotScan {
    fn take(&mut self, bytes: &Bytes) -> io::Result<()> {
        self.push(bytes);
        Ok(())
    }
}
