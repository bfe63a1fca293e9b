//! Length and checksum that show whether a store returns the bytes that it received.

use std::fmt;

/// Length and checksum of the sent bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// Worked out while they were sent.
    Crc64(u64),
    /// The sha256 from the manifest.
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

/// Length and checksum of an object, to compare with the bytes that the store returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Length of the object.
    pub bytes: u64,
    /// CRC64NVME.
    pub crc64: u64,
}

impl Fingerprint {
    /// Returns length and sum.
    pub const fn parts(self) -> (u64, Sum) {
        (self.bytes, Sum::Crc64(self.crc64))
    }
}
