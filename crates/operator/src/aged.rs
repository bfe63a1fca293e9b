//! Values that were read, each with the time of the read. Losing them costs reads.

use std::collections::HashMap;
use std::time::Duration;

use super::clock::{self, Instant};

/// Longest age of most values: no watch reports their changes.
pub(super) const FRESH: Duration = Duration::from_mins(5);

/// A value that was not read again for this long is forgotten.
const KEPT: Duration = FRESH.saturating_mul(4);

/// Namespace and name, or another pair that identifies a value.
pub(super) type Key = (String, String);

/// The values by key.
pub(super) struct Aged<T>(HashMap<Key, (Instant, T)>);

impl<T> Default for Aged<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Clone> Aged<T> {
    /// Returns a value that was read within this time.
    pub(super) fn get(&self, key: &Key, within: Duration) -> Option<T> {
        let (at, known) = self.0.get(key)?;
        (clock::instant().duration_since(*at) < within).then(|| known.clone())
    }

    /// Remembers a value, or its absence, and forgets old values.
    pub(super) fn put(&mut self, key: Key, read: Option<&T>) {
        self.0.retain(|_, (at, _)| clock::instant().duration_since(*at) < KEPT);
        match read {
            Some(read) => drop(self.0.insert(key, (clock::instant(), read.clone()))),
            None => drop(self.0.remove(&key)),
        }
    }

    /// Keeps only the values whose key has an accepted first part.
    pub(super) fn retain(&mut self, kept: impl Fn(&str) -> bool) {
        self.0.retain(|(first, _), _| kept(first));
    }
}
