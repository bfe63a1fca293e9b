//! The claim of a user: the annotation that says in which etcd cluster the user is Holdfast's, and what etcd was given.
//!
//! Decides the text. A claim stands before etcd gets the user (I31).

use holdfast_api::key;

use super::Observed;
use holdfast_base::{Seen, fingerprint, meta};

/// Returns the etcd cluster of the claim, and the digest of what etcd was given.
pub(super) fn claim(seen: &Observed) -> Option<(String, Option<String>)> {
    let text = meta::annotation(&seen.user.metadata, key::USER)?;
    match text.split_once('/') {
        Some((of, applied)) => Some((of.to_owned(), Some(applied.to_owned()))),
        None => Some((text.to_owned(), None)),
    }
}

/// Returns the annotation for an etcd cluster, and for what etcd was given.
pub(super) fn annotation(formed: &str, applied: Option<&str>) -> String {
    applied.map_or_else(|| formed.to_owned(), |applied| format!("{formed}/{applied}"))
}

/// Returns the digest of the permissions, and of the password's version, that etcd has to be given.
pub(super) fn wanted(seen: &Observed) -> String {
    let spec = &seen.user.spec;
    let password = seen.password.as_ref().and_then(Seen::known).cloned().flatten();
    fingerprint::short(&(spec.permissions.as_slice(), spec.password_secret_ref.as_ref(), password))
}
