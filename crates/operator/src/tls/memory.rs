//! Certificates that were read, so that a settled cluster costs a few reads in five minutes. Losing them costs reads.
//!
//! Decides how old a reading may be, and that keys of deleted clusters do not stay.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_plan::certificate::{Kept, Known, Request};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Login;
use crate::aged::{Aged, FRESH, Key};

/// Longest age of a certificate to copy: a person who replaces it waits for this.
const FRESH_SOURCE: Duration = Duration::from_secs(15);

/// Metadata of a `ConfigMap`, and the fingerprints of the CAs in it.
pub(crate) type Bundle = (ObjectMeta, Vec<String>);

/// A Secret, and the operator's login in it.
#[derive(Clone)]
pub(crate) struct Read {
    pub(crate) kept: Kept,
    pub(crate) login: Option<Login>,
}

/// The readings.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Knowledge>);

#[derive(Default)]
struct Knowledge {
    secrets: Aged<Read>,
    bundles: Aged<Bundle>,
    sources: Aged<Known>,
    requests: Aged<Request>,
    /// UIDs of Pods, each with the digest of the certificates that the Pod showed.
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
    /// Returns a Secret that was read within this time and belongs to this owner. Other Secrets may change at any time.
    pub(crate) fn secret(&self, namespace: &str, name: &str, owner: &str, within: Duration) -> Option<Read> {
        let is_owned = |read: &Read| read.kept.typed && read.kept.owner.as_deref() == Some(owner);
        self.lock().secrets.get(&key(namespace, name), within).filter(is_owned)
    }

    /// Remembers a Secret, or its absence.
    pub(crate) fn put_secret(&self, namespace: &str, name: &str, read: Option<&Read>) {
        self.lock().secrets.put(key(namespace, name), read);
    }

    /// Returns a `ConfigMap` that was read within this time.
    pub(crate) fn bundle(&self, namespace: &str, name: &str, within: Duration) -> Option<Bundle> {
        self.lock().bundles.get(&key(namespace, name), within)
    }

    /// Remembers a `ConfigMap`, or its absence.
    pub(crate) fn put_bundle(&self, namespace: &str, name: &str, bundle: Option<&Bundle>) {
        self.lock().bundles.put(key(namespace, name), bundle);
    }

    /// Returns a certificate to copy that was read within seconds. A certificate with a flaw is read each time.
    pub(crate) fn source(&self, namespace: &str, name: &str) -> Option<Known> {
        self.lock().sources.get(&key(namespace, name), FRESH_SOURCE)
    }

    /// Remembers a certificate to copy, or its absence.
    pub(crate) fn put_source(&self, namespace: &str, name: &str, source: Option<&Known>) {
        self.lock().sources.put(key(namespace, name), source);
    }

    /// Returns a Certificate of cert-manager that was ready within five minutes.
    pub(crate) fn request(&self, namespace: &str, name: &str) -> Option<Request> {
        self.lock().requests.get(&key(namespace, name), FRESH)
    }

    /// Remembers a Certificate that is ready, or that it is not ready.
    pub(crate) fn put_request(&self, namespace: &str, name: &str, request: Option<&Request>) {
        self.lock().requests.put(key(namespace, name), request);
    }

    /// Forgets an object before it is written.
    pub(crate) fn forget(&self, namespace: &str, name: &str) {
        let mut known = self.lock();
        known.secrets.put(key(namespace, name), None);
        known.bundles.put(key(namespace, name), None);
        known.requests.put(key(namespace, name), None);
    }

    /// The operator's login as it was read last.
    pub(crate) fn login(&self, namespace: &str, secret: &str) -> Option<Login> {
        self.lock().secrets.get(&key(namespace, secret), Duration::MAX).and_then(|read| read.login)
    }

    /// Whether this Pod showed these certificates.
    pub(crate) fn was_shown(&self, pod_uid: &str, digest: &str) -> bool {
        self.lock().shown.contains(&key(pod_uid, digest))
    }

    /// Notes that this Pod showed these certificates.
    pub(crate) fn note_shown(&self, pod_uid: &str, digest: &str) {
        self.lock().shown.insert(key(pod_uid, digest));
    }

    fn lock(&self) -> MutexGuard<'_, Knowledge> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
