//! What was read, each with the time at which it was read. Losing it costs reads.

use std::collections::HashMap;
use std::time::Duration;

use super::clock::{self, Instant};

/// So long most of it counts: nothing tells when it changes.
pub(super) const FRESH: Duration = Duration::from_mins(5);

/// What was not read again for so long is forgotten.
const KEPT: Duration = FRESH.saturating_mul(4);

/// Namespace and name, or what else tells one from the others.
pub(super) type Key = (String, String);

/// What is known, by key.
pub(super) struct Aged<T>(HashMap<Key, (Instant, T)>);

impl<T> Default for Aged<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Clone> Aged<T> {
    /// What was read within this time.
    pub(super) fn get(&self, key: &Key, within: Duration) -> Option<T> {
        let (at, known) = self.0.get(key)?;
        (clock::instant().duration_since(*at) < within).then(|| known.clone())
    }

    /// Remembers what was read, or that there is nothing; and forgets what nobody asks for any more.
    pub(super) fn put(&mut self, key: Key, read: Option<&T>) {
        self.0.retain(|_, (at, _)| clock::instant().duration_since(*at) < KEPT);
        match read {
            Some(read) => drop(self.0.insert(key, (clock::instant(), read.clone()))),
            None => drop(self.0.remove(&key)),
        }
    }

    /// Keeps only what has such a first part of its key.
    pub(super) fn retain(&mut self, kept: impl Fn(&str) -> bool) {
        self.0.retain(|(first, _), _| kept(first));
    }
}
