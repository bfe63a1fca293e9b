//! What S3 can be asked for beyond the bytes, in the protocol's own words.
//!
//! It decides names alone; what a store makes of them is found out by `agent probe`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How an S3 store encrypts what it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum S3Sse {
    /// With keys of the store's own.
    #[value(name = "AES256")]
    Aes256,
    /// With a key of the key management service.
    #[value(name = "aws:kms")]
    AwsKms,
    /// With a key that comes with every request and is kept nowhere.
    #[value(name = "SSE-C")]
    Customer,
}

impl S3Sse {
    /// The flag's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Aes256 => "AES256",
            Self::AwsKms => "aws:kms",
            Self::Customer => "SSE-C",
        }
    }

    /// Whether a key can be named.
    pub const fn has_keys(self) -> bool {
        matches!(self, Self::AwsKms)
    }
}

/// Who may take a lock away before its time (S3 Object Lock).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum, schemars::JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum LockMode {
    /// Whoever has the right `s3:BypassGovernanceRetention`.
    #[default]
    #[value(name = "GOVERNANCE")]
    Governance,
    /// Nobody, the account's owner included.
    #[value(name = "COMPLIANCE")]
    Compliance,
}

impl LockMode {
    /// The flag's value, which is also the protocol's.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Governance => "GOVERNANCE",
            Self::Compliance => "COMPLIANCE",
        }
    }
}

/// Until when a stored object may not be removed or overwritten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lock {
    /// Who may take it away earlier.
    pub mode: LockMode,
    /// Until then.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub until: Timestamp,
    /// Whether the store has said that it keeps it. Credentials that may only write cannot ask.
    pub confirmed: bool,
}

/// Which checksum an S3 store keeps with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum S3Checksum {
    /// None where the protocol does not need one: every store takes that.
    WhenRequired,
    /// CRC-64/NVME.
    Crc64nvme,
    /// SHA-256.
    Sha256,
}

impl S3Checksum {
    /// The flag's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WhenRequired => "when-required",
            Self::Crc64nvme => "crc64nvme",
            Self::Sha256 => "sha256",
        }
    }
}
