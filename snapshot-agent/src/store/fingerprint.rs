//! What tells whether a store gives back what it was given: a length and a checksum.

use std::fmt;

/// What is known of the bytes that were sent.
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
