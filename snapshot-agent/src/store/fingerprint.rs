//! Length and checksum that show whether a store returns the bytes that it received.

use std::fmt;

/// Length and checksum of the sent bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sum {
    /// Worked out while they were sent.
    Crc64(u64),
    /// What their manifest says.
    Sha256([u8; 32]),
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crc64(crc) => write!(f, "CRC64NVME {crc:016x}"),
            Self::Sha256(sha256) => write!(f, "sha256 {}", hex::encode(sha256)),
        }
    }
}

/// What tells whether a store gives back what it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    pub(crate) bytes: u64,
    /// CRC64NVME.
    pub(crate) crc64: u64,
}

impl Fingerprint {
    pub(crate) const fn parts(self) -> (u64, Sum) {
        (self.bytes, Sum::Crc64(self.crc64))
    }
}
