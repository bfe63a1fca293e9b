//! Length and checksum that show whether a store returns the bytes that it received.

use std::fmt;

/// Length and checksum of the sent bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    pub(crate) bytes: u64,
    /// CRC64NVME.
    pub(crate) crc64: u64,
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes with CRC64NVME {:016x}", self.bytes, self.crc64)
    }
}
