//! The API server's judgements of objects that it does not store (`dryRun`), each with its time. Losing them costs requests, and the
//! time for which a refusal has lasted.
//!
//! Decides how long a judgement counts: nothing reports a changed StorageClass, quota or policy.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::aged::{Aged, Key};
use super::clock::{self, Instant};

/// How long a judgement counts.
const FRESH: Duration = Duration::from_secs(30);

/// The API server permits the object, or refuses it in these words.
pub(super) type Answer = Result<(), String>;

/// The judgements, by UID and contents of the object, each with the time since which the API server has judged so.
#[derive(Default)]
pub(super) struct Judgements(Mutex<Aged<(Answer, Instant)>>);

impl std::fmt::Debug for Judgements {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Judgements")
    }
}

impl Judgements {
    /// Returns a judgement that still counts, and how long it has lasted.
    pub(super) fn recent(&self, key: &Key) -> Option<(Answer, Duration)> {
        let (answer, since) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key, FRESH)?;
        Some((answer, since.elapsed()))
    }

    /// Remembers a judgement, and returns how long it has lasted.
    pub(super) fn remember(&self, key: Key, answer: &Answer) -> Duration {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(&key, Duration::MAX).filter(|(before, _)| before.is_ok() == answer.is_ok());
        let since = before.map_or_else(clock::instant, |(_, since)| since);
        all.put(key, Some(&(answer.clone(), since)));
        since.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_refusal_lasts_until_the_object_is_permitted() {
        let (all, key) = (Judgements::default(), || ("u".to_owned(), "p".to_owned()));
        let refused = || Err("no".to_owned());
        all.remember(key(), &refused());
        clock::sleep(Duration::from_millis(20)).await;
        assert!(all.remember(key(), &Err("no, in other words".to_owned())) >= Duration::from_millis(20));
        let permitted = all.remember(key(), &Ok(()));
        assert!(permitted < all.recent(&key()).unwrap().1 + Duration::from_millis(20));
        assert_eq!(all.recent(&key()).unwrap().0, Ok(()));
        let again = all.remember(key(), &refused());
        assert!(again < Duration::from_secs(10));
    }
}
