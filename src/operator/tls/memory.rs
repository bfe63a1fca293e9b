//! What was read of certificates, so that a settled cluster costs a few reads in five minutes. Losing it costs reads.
//!
//! Decides how old knowledge may be, and that keys of clusters that are gone do not stay.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Login;
use crate::operator::clock::{self, Instant};
use crate::plan::certificate::{Kept, Known, Request};

/// Nothing tells when a Secret changes.
const FRESH: Duration = Duration::from_mins(5);

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

/// Namespace and name.
type Key = (String, String);

#[derive(Default)]
struct Knowledge {
    secrets: HashMap<Key, (Instant, Read)>,
    bundles: HashMap<Key, (Instant, Bundle)>,
    sources: HashMap<Key, (Instant, Known)>,
    requests: HashMap<Key, (Instant, Request)>,
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
    /// A Secret as it was read within five minutes, where it belongs to this owner: anything else is expected to change.
    pub(in crate::operator) fn secret(&self, namespace: &str, name: &str, owner: &str) -> Option<Read> {
        let known = self.lock();
        let (at, read) = known.secrets.get(&key(namespace, name))?;
        let ours = read.kept.typed && read.kept.owner.as_deref() == Some(owner);
        (ours && clock::instant().duration_since(*at) < FRESH).then(|| read.clone())
    }

    /// Remembers a Secret, or that there is none.
    pub(in crate::operator) fn put_secret(&self, namespace: &str, name: &str, read: Option<&Read>) {
        let mut known = self.lock();
        known.secrets.retain(|_, (at, _)| clock::instant().duration_since(*at) < 4 * FRESH);
        let key = key(namespace, name);
        match read {
            Some(read) => drop(known.secrets.insert(key, (clock::instant(), read.clone()))),
            None => drop(known.secrets.remove(&key)),
        }
    }

    /// A `ConfigMap` as it was read within five minutes.
    pub(in crate::operator) fn bundle(&self, namespace: &str, name: &str) -> Option<Bundle> {
        let known = self.lock();
        let (at, bundle) = known.bundles.get(&key(namespace, name))?;
        (clock::instant().duration_since(*at) < FRESH).then(|| bundle.clone())
    }

    /// Remembers a `ConfigMap`, or that there is none.
    pub(in crate::operator) fn put_bundle(&self, namespace: &str, name: &str, bundle: Option<&Bundle>) {
        let mut known = self.lock();
        match bundle {
            Some(bundle) => drop(known.bundles.insert(key(namespace, name), (clock::instant(), bundle.clone()))),
            None => drop(known.bundles.remove(&key(namespace, name))),
        }
    }

    /// A certificate to copy, as it was read within seconds. One that cannot be read is read each time.
    pub(in crate::operator) fn source(&self, namespace: &str, name: &str) -> Option<Known> {
        let known = self.lock();
        let (at, source) = known.sources.get(&key(namespace, name))?;
        (clock::instant().duration_since(*at) < FRESH_SOURCE).then(|| source.clone())
    }

    /// Remembers a certificate to copy.
    pub(in crate::operator) fn put_source(&self, namespace: &str, name: &str, source: Option<&Known>) {
        let mut known = self.lock();
        known.sources.retain(|_, (at, _)| clock::instant().duration_since(*at) < FRESH_SOURCE);
        known.sources.extend(source.map(|source| (key(namespace, name), (clock::instant(), source.clone()))));
    }

    /// A Certificate of cert-manager's that was ready within five minutes.
    pub(in crate::operator) fn request(&self, namespace: &str, name: &str) -> Option<Request> {
        let known = self.lock();
        let (at, request) = known.requests.get(&key(namespace, name))?;
        (clock::instant().duration_since(*at) < FRESH).then(|| request.clone())
    }

    /// Remembers a Certificate that is ready.
    pub(in crate::operator) fn put_request(&self, namespace: &str, name: &str, request: Option<&Request>) {
        let mut known = self.lock();
        known.requests.retain(|_, (at, _)| clock::instant().duration_since(*at) < FRESH);
        known.requests.extend(request.map(|request| (key(namespace, name), (clock::instant(), request.clone()))));
    }

    /// Forgets an object that is about to be written.
    pub(in crate::operator) fn forget(&self, namespace: &str, name: &str) {
        let mut known = self.lock();
        known.secrets.remove(&key(namespace, name));
        known.bundles.remove(&key(namespace, name));
    }

    /// The operator's login that was read last.
    pub(in crate::operator) fn login(&self, namespace: &str, secret: &str) -> Option<Login> {
        self.lock().secrets.get(&key(namespace, secret)).and_then(|(_, read)| read.login.clone())
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
