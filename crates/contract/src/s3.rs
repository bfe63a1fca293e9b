//! Options of S3 for stored objects, in the protocol's own words.
//!
//! This file decides names only; `agent probe` tests a store's support.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Server-side encryption of an S3 store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum S3Sse {
    /// The store's own keys.
    #[value(name = "AES256")]
    #[serde(rename = "AES256")]
    Aes256,
    /// A key of the key management service.
    #[value(name = "aws:kms")]
    #[serde(rename = "aws:kms")]
    AwsKms,
    /// Your key, sent with every request; the store does not keep the key.
    #[value(name = "SSE-C")]
    #[serde(rename = "SSE-C")]
    Customer,
}

impl S3Sse {
    /// Returns the flag's value.
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

/// Credentials that may remove a lock before its end (S3 Object Lock).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum, schemars::JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum LockMode {
    /// Credentials with the right `s3:BypassGovernanceRetention`.
    #[default]
    #[value(name = "GOVERNANCE")]
    Governance,
    /// No credentials, not even those of the account's owner.
    #[value(name = "COMPLIANCE")]
    Compliance,
}

impl LockMode {
    /// Returns the flag's value, which is also the protocol's.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Governance => "GOVERNANCE",
            Self::Compliance => "COMPLIANCE",
        }
    }
}

/// Lock of a stored object against removal and overwriting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lock {
    /// Mode of the lock.
    pub mode: LockMode,
    /// End of the lock.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub until: Timestamp,
    /// Whether the store has confirmed the lock. Credentials that permit only writes cannot ask.
    pub confirmed: bool,
}

/// Checksum that an S3 store keeps with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum S3Checksum {
    /// None, unless the protocol requires a checksum; every store accepts this.
    WhenRequired,
    /// CRC-64/NVME.
    Crc64nvme,
    /// SHA-256.
    Sha256,
}

impl S3Checksum {
    /// Returns the flag's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WhenRequired => "when-required",
            Self::Crc64nvme => "crc64nvme",
            Self::Sha256 => "sha256",
        }
    }
}
