//! Whether another install of Holdfast works in a namespace: an install for a single namespace keeps its Lease there. Only an
//! install for all namespaces asks, before each pass that may write.
//!
//! Decides that the namespace belongs to the other install while the Lease exists and changes. The Lease counts as abandoned only
//! after it stood unchanged for a minute by this process's clock, even without a holder, because an operator that restarts gives
//! it back for a moment. Losing this memory costs that minute. Between the start of the other install and the first read of its
//! Lease, the guards of each act keep two operators from undoing each other's writes (I12).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;

use super::clock::Instant;

/// A Lease that stood unchanged for this long is abandoned. Its holder renews it every two seconds.
pub(super) const GIVEN_UP: Duration = Duration::from_mins(1);

/// So long a judgement holds for acts that the caches are enough for. Two installs may both act for this time: the guards of
/// each act keep them apart (I12).
const RECENT: Duration = Duration::from_secs(2);

/// The Leases of other namespaces as they were read last.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    own: Option<(String, String)>,
    seen: Mutex<HashMap<String, Sight>>,
    judged: Mutex<HashMap<String, (Instant, bool)>>,
}

/// A Lease's version, and the first time that this version was read.
#[derive(Debug)]
struct Sight {
    version: String,
    since: Instant,
}

impl Elsewhere {
    /// `own`: namespace and name of this process's Lease where it watches all namespaces.
    pub(super) fn new(own: Option<(String, String)>) -> Self {
        Self { own, seen: Mutex::default(), judged: Mutex::default() }
    }

    /// Name of the Lease of another install in this namespace; `None` where there can be no other install.
    pub(super) fn lease(&self, namespace: &str) -> Option<&str> {
        self.own.as_ref().filter(|(home, _)| home != namespace).map(|(_, name)| name.as_str())
    }

    /// The judgement of the last two seconds, if there is one.
    pub(super) fn recent(&self, namespace: &str, now: Instant) -> Option<bool> {
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        judged.retain(|_, (at, _)| now.duration_since(*at) < RECENT);
        judged.get(namespace).map(|(_, elsewhere)| *elsewhere)
    }

    /// Judges by this Lease whether another install works in the namespace.
    pub(super) fn judge(&self, namespace: &str, lease: Option<&Lease>, now: Instant) -> bool {
        let elsewhere = self.judge_lease(namespace, lease, now);
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        judged.insert(namespace.to_owned(), (now, elsewhere));
        elsewhere
    }

    fn judge_lease(&self, namespace: &str, lease: Option<&Lease>, now: Instant) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(lease) = lease else {
            seen.remove(namespace);
            return false;
        };
        let version = format!("{:?}/{:?}", lease.uid(), lease.resource_version());
        let new = || Sight { version: version.clone(), since: now };
        let known = seen.contains_key(namespace);
        let sight = seen.entry(namespace.to_owned()).or_insert_with(new);
        if !known {
            let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or("no holder");
            tracing::warn!(
                namespace,
                holder,
                "another install of Holdfast has a Lease in this namespace: this one leaves the namespace to it. Delete \
                 the Lease if that install is gone"
            );
        }
        if sight.version != version {
            *sight = new();
        }
        now.duration_since(sight.since) < GIVEN_UP
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::clock;

    fn wide() -> Elsewhere {
        Elsewhere::new(Some(("home".to_owned(), "holdfast".to_owned())))
    }

    fn lease(version: &str) -> Lease {
        serde_json::from_value(json!({"metadata": {"name": "holdfast", "uid": "l", "resourceVersion": version}}))
            .unwrap()
    }

    #[test]
    fn a_judgement_holds_for_two_seconds() {
        let (wide, now) = (wide(), clock::instant());
        assert_eq!(wide.recent("ns", now), None);
        assert!(wide.judge("ns", Some(&lease("1")), now));
        assert_eq!(wide.recent("ns", now + Duration::from_millis(1900)), Some(true));
        assert_eq!(wide.recent("other", now), None);
        assert_eq!(wide.recent("ns", now + RECENT), None);
    }

    #[test]
    fn a_lease_that_changes_is_another_installs_and_one_that_stands_still_is_nobodys() {
        let (wide, begun) = (wide(), clock::instant());
        let after =
            |version: &str, seconds: u64| wide.judge("ns", Some(&lease(version)), begun + Duration::from_secs(seconds));
        assert!(after("1", 0) && after("1", 59), "nobody knows yet whether it is renewed");
        assert!(after("2", 60) && after("2", 119), "it was renewed");
        assert!(!after("2", 120) && after("3", 121), "an install that comes back has its namespace again");
        assert!(!wide.judge("ns", None, begun) && after("3", 200), "a new Lease is looked at from the beginning");
    }

    #[test]
    fn only_an_install_for_all_namespaces_looks_and_not_into_its_own() {
        assert_eq!(
            [wide().lease("ns"), wide().lease("home"), Elsewhere::default().lease("ns")],
            [Some("holdfast"), None, None]
        );
    }
}
