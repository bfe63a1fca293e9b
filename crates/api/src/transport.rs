//! Which ports of a member speak TLS, and the steps between plaintext and TLS.
//!
//! Decides the order of the steps and which of them reach each other (I32). `plan::cluster::transport` decides when a cluster takes the
//! next step.

use std::cmp::Ordering;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::Scheme;

/// Which of a member's ports speak TLS. Members of neighbouring steps reach each other, so a running cluster goes step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Transport {
    /// No port, and the member has no certificates.
    Plaintext,
    /// Clients connect with TLS or in plaintext. Members connect in plaintext, and have the certificates to dial TLS.
    PeersPlaintext,
    /// Clients connect with TLS or in plaintext. Members connect with TLS.
    ClientsPlaintext,
    /// Both ports.
    Tls,
}

impl Transport {
    const ALL: [Self; 4] = [Self::Plaintext, Self::PeersPlaintext, Self::ClientsPlaintext, Self::Tls];

    /// Returns the name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plaintext => "Plaintext",
            Self::PeersPlaintext => "PeersPlaintext",
            Self::ClientsPlaintext => "ClientsPlaintext",
            Self::Tls => "Tls",
        }
    }

    /// Returns the value with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|transport| transport.as_str() == name)
    }

    /// Whether a member has certificates.
    pub fn has_certificates(self) -> bool {
        self > Self::Plaintext
    }

    /// Whether a client may connect in plaintext.
    pub fn serves_plaintext(self) -> bool {
        self < Self::Tls
    }

    /// Scheme of a member's peer URL.
    pub fn peers(self) -> Scheme {
        if self >= Self::ClientsPlaintext { Scheme::Https } else { Scheme::Http }
    }

    /// Whether members with these transports reach each other: a member without certificates dials no peer with TLS.
    pub const fn reaches(self, other: Self) -> bool {
        (self as u8).abs_diff(other as u8) <= 1
    }

    /// Returns the next step towards another transport; `None` at the end.
    pub fn next_towards(self, end: Self) -> Option<Self> {
        let at = Self::ALL.iter().position(|transport| *transport == self)?;
        let next = match self.cmp(&end) {
            Ordering::Less => at.checked_add(1)?,
            Ordering::Equal => return None,
            Ordering::Greater => at.checked_sub(1)?,
        };
        Self::ALL.get(next).copied()
    }
}
