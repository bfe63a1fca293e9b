//! Keys and certificates in memory: their contents, the operator's login at etcd, and the certificate that a server shows.
//!
//! Decides nothing about order and time (`plan::cluster::tls`). `observe/certificates.rs` reads Secrets of certificates and
//! `act/certificates.rs` writes them; no other file handles a key. These files return names, dates and fingerprints, with one
//! exception: [`Login`], which the connections to etcd use.

mod handshake;
mod login;
mod memory;
pub(super) mod parse;
pub(super) mod probe;
pub(super) mod served;
pub(super) mod sign;

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
