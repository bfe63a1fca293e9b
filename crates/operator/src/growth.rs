//! The API server's answers about larger claims, each with its time. Losing them costs requests.
//!
//! Decides how long an answer counts: nothing reports a changed StorageClass or quota.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::aged::{Aged, Key};

/// How long an answer counts.
const FRESH: Duration = Duration::from_secs(30);

/// The API server permits the size, or refuses it in these words.
pub(super) type Answer = Result<(), String>;

/// The answers, by UID of the claim and size.
#[derive(Default)]
pub(super) struct Growth(Mutex<Aged<Answer>>);

impl std::fmt::Debug for Growth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Growth")
    }
}

impl Growth {
    /// Returns an answer that still counts.
    pub(super) fn recent(&self, key: &Key) -> Option<Answer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key, FRESH)
    }

    /// Remembers an answer.
    pub(super) fn remember(&self, key: Key, answer: &Answer) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put(key, Some(answer));
    }
}
