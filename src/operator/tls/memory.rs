//! What was read of certificates, so that a settled cluster costs a few reads in five minutes. Losing it costs reads.
//!
//! Decides how old knowledge may be, and that keys of clusters that are gone do not stay.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Login;
use crate::operator::aged::{Aged, FRESH, Key};
use crate::plan::certificate::{Kept, Known, Request};

/// A person who puts a corrected certificate in place waits for this.
const FRESH_SOURCE: Duration = Duration::from_secs(15);

/// Metadata of a `ConfigMap`, and the fingerprint of the CA in it.
pub(in crate::operator) type Bundle = (ObjectMeta, Option<String>);

/// A Secret, and the operator's login in it.
#[derive(Clone)]
pub(in crate::operator) struct Read {
    pub(in crate::operator) kept: Kept,
    pub(in crate::operator) login: Option<Login>,
}

/// The memory.
#[derive(Default)]
pub(in crate::operator) struct Memory(Mutex<Knowledge>);

#[derive(Default)]
struct Knowledge {
    secrets: Aged<Read>,
    bundles: Aged<Bundle>,
    sources: Aged<Known>,
    requests: Aged<Request>,
    /// UIDs of Pods, each with the digest of the certificates that it was seen to show.
    shown: HashSet<(String, String)>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}

fn key(namespace: &str, name: &str) -> Key {
    (namespace.to_owned(), name.to_owned())
}

impl Memory {
    /// A Secret as it was read within this time, where it belongs to this owner: anything else is expected to change.
    pub(in crate::operator) fn secret(
        &self,
        namespace: &str,
        name: &str,
        owner: &str,
        within: Duration,
    ) -> Option<Read> {
        let ours = |read: &Read| read.kept.typed && read.kept.owner.as_deref() == Some(owner);
        self.lock().secrets.get(&key(namespace, name), within).filter(ours)
    }

    /// Remembers a Secret, or that there is none.
    pub(in crate::operator) fn put_secret(&self, namespace: &str, name: &str, read: Option<&Read>) {
        self.lock().secrets.put(key(namespace, name), read);
    }

    /// A `ConfigMap` as it was read within this time.
    pub(in crate::operator) fn bundle(&self, namespace: &str, name: &str, within: Duration) -> Option<Bundle> {
        self.lock().bundles.get(&key(namespace, name), within)
    }

    /// Remembers a `ConfigMap`, or that there is none.
    pub(in crate::operator) fn put_bundle(&self, namespace: &str, name: &str, bundle: Option<&Bundle>) {
        self.lock().bundles.put(key(namespace, name), bundle);
    }

    /// A certificate to copy, as it was read within seconds. One that cannot be read is read each time.
    pub(in crate::operator) fn source(&self, namespace: &str, name: &str) -> Option<Known> {
        self.lock().sources.get(&key(namespace, name), FRESH_SOURCE)
    }

    /// Remembers a certificate to copy, or that there is none.
    pub(in crate::operator) fn put_source(&self, namespace: &str, name: &str, source: Option<&Known>) {
        self.lock().sources.put(key(namespace, name), source);
    }

    /// A Certificate of cert-manager's that was ready within five minutes.
    pub(in crate::operator) fn request(&self, namespace: &str, name: &str) -> Option<Request> {
        self.lock().requests.get(&key(namespace, name), FRESH)
    }

    /// Remembers a Certificate that is ready, or that it is not.
    pub(in crate::operator) fn put_request(&self, namespace: &str, name: &str, request: Option<&Request>) {
        self.lock().requests.put(key(namespace, name), request);
    }

    /// Forgets an object that is about to be written.
    pub(in crate::operator) fn forget(&self, namespace: &str, name: &str) {
        let mut known = self.lock();
        known.secrets.put(key(namespace, name), None);
        known.bundles.put(key(namespace, name), None);
    }

    /// The operator's login that was read last.
    pub(in crate::operator) fn login(&self, namespace: &str, secret: &str) -> Option<Login> {
        self.lock().secrets.get(&key(namespace, secret), Duration::MAX).and_then(|read| read.login)
    }

    /// Whether this Pod was seen to show these certificates.
    pub(in crate::operator) fn was_shown(&self, pod_uid: &str, digest: &str) -> bool {
        self.lock().shown.contains(&key(pod_uid, digest))
    }

    /// This Pod was seen to show these certificates.
    pub(in crate::operator) fn note_shown(&self, pod_uid: &str, digest: &str) {
        self.lock().shown.insert(key(pod_uid, digest));
    }

    fn lock(&self) -> MutexGuard<'_, Knowledge> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
