//! The share of a queue's slots that one namespace may hold, so that its objects do not delay those of other namespaces.
//!
//! Decides which objects wait, first come first served. A waiting object has no slot; it goes back to the queue when a slot of its
//! namespace is free.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The shares of all namespaces in one queue of `R`s.
pub(super) struct Shares<R> {
    most: usize,
    namespaces: Mutex<HashMap<String, Share<R>>>,
}

struct Share<R> {
    running: usize,
    waiting: VecDeque<R>,
    /// The same objects as in `waiting`, for lookup.
    known: HashSet<R>,
}

impl<R> Default for Share<R> {
    fn default() -> Self {
        Self { running: 0, waiting: VecDeque::new(), known: HashSet::new() }
    }
}

impl<R: Clone + Eq + Hash> Shares<R> {
    /// Gives each namespace at most `most` slots.
    pub(super) fn new(most: usize) -> Self {
        Self { most, namespaces: Mutex::default() }
    }

    /// Takes a slot; `false` where the object has to wait.
    pub(super) fn enter(&self, namespace: &str, one: &R) -> bool {
        let mut all = self.lock();
        let share = all.entry(namespace.to_owned()).or_default();
        if share.running < self.most {
            share.running += 1;
            return true;
        }
        if share.known.insert(one.clone()) {
            share.waiting.push_back(one.clone());
        }
        false
    }

    /// Gives a slot back, and returns the object that has waited longest.
    pub(super) fn leave(&self, namespace: &str) -> Option<R> {
        if let Some(share) = self.lock().get_mut(namespace) {
            share.running = share.running.saturating_sub(1);
        }
        self.next(namespace)
    }

    /// Returns the next waiting object if a slot is free. Called after each pass, and for each queued object that no longer exists:
    /// otherwise the objects behind it would wait for ever.
    pub(super) fn next(&self, namespace: &str) -> Option<R> {
        let mut all = self.lock();
        let share = all.get_mut(namespace).filter(|share| share.running < self.most)?;
        let next = share.waiting.pop_front();
        if let Some(next) = &next {
            share.known.remove(next);
        } else if share.running == 0 {
            all.remove(namespace);
        }
        next
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Share<R>>> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_namespace_waits_in_order_and_holds_up_no_other() {
        let shares = Shares::new(2);
        let entered: Vec<bool> = [1, 2, 3, 4, 3].iter().map(|one| shares.enter("busy", one)).collect();
        assert_eq!(entered, [true, true, false, false, false]);
        assert!(shares.enter("calm", &5));
        assert_eq!((shares.leave("calm"), shares.leave("busy")), (None, Some(3)));
        assert!(shares.enter("busy", &3));
        assert_eq!([shares.leave("busy"), shares.leave("busy")], [Some(4), None], "once, although it came twice");
        assert!(shares.enter("busy", &4));
        shares.leave("busy");
        assert!(shares.lock().is_empty(), "nothing stays of namespaces without work");
    }

    #[test]
    fn one_that_is_gone_when_its_turn_comes_is_followed_by_the_next() {
        let shares = Shares::new(1);
        assert_eq!([1, 2, 3].map(|one| shares.enter("busy", &one)), [true, false, false]);
        assert_eq!(shares.leave("busy"), Some(2));
        assert_eq!((shares.next("busy"), shares.next("busy")), (Some(3), None));
    }
}
