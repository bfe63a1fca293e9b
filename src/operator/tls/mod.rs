//! The only place where keys are: reads and writes the Secrets of a cluster's certificates, and looks which certificate a
//! member shows.
//!
//! Decides nothing about whose turn it is (`plan::cluster::tls`). What leaves this module holds names, dates and
//! fingerprints; the one exception is [`Login`], which the connections to etcd are made with.

mod issue;
mod login;
mod parse;
mod read;
mod served;

pub(super) use issue::{bundle, issue};
pub(super) use login::Login;
pub(super) use read::{Memory, certificates};

use k8s_openapi::ByteString;
use std::collections::BTreeMap;

/// The data of a Secret.
type Data = BTreeMap<String, ByteString>;

/// One entry of a Secret's data; empty where there is none.
fn entry<'a>(data: &'a Data, name: &str) -> &'a [u8] {
    data.get(name).map_or(&[], |bytes| &bytes.0)
}
