//! Keys and certificates in memory: what they say, whom the operator logs in as with them, and which certificate a server
//! shows.
//!
//! Decides nothing about whose turn it is (`plan::cluster::tls`). Secrets of certificates are read in
//! `observe/certificates.rs` and written in `act/certificates.rs`; no other file sees a key. What leaves these files holds
//! names, dates and fingerprints; the one exception is [`Login`], with which the connections to etcd are made.

mod login;
mod memory;
pub(super) mod parse;
pub(super) mod served;

use std::collections::BTreeMap;

use k8s_openapi::ByteString;

pub(super) use login::Login;
pub(super) use memory::{Bundle, Memory, Read};

/// The data of a Secret.
pub(super) type Data = BTreeMap<String, ByteString>;

/// One entry of a Secret's data; empty where there is none.
pub(super) fn entry<'a>(data: &'a Data, name: &str) -> &'a [u8] {
    data.get(name).map_or(&[], |bytes| &bytes.0)
}
