//! The order of a log's records.
//!
//! This file decides which record is the next one, which records the base or an earlier segment has brought already, and which
//! are later than the wanted revision. It does not decide which of the records stay.

use holdfast_segment::Record;

use super::MergeError;
use crate::scan::wire::KeyValue;

/// The last taken record, and the wanted revision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    until: i64,
    /// The last taken revision, and the index of its next change; `None`: the revision has no more changes.
    newest: i64,
    next_sub: Option<i64>,
    /// Whether a record after the wanted revision has come.
    is_past: bool,
}

/// Meaning of a record.
pub(super) enum Taken<'a> {
    Next(KeyValue<'a>),
    /// The base or an earlier segment has this record.
    Repeated,
    /// This record, and all that follow, are after the wanted revision.
    Late,
}

impl Order {
    /// Begins after the newest revision of the base.
    pub(super) fn after(newest: i64, until: i64) -> Self {
        Self { until, newest, next_sub: None, is_past: false }
    }

    pub(super) fn newest(&self) -> i64 {
        self.newest
    }

    pub(super) fn is_past(&self) -> bool {
        self.is_past
    }

    /// Takes the next record of the log.
    pub(super) fn take<'a>(&mut self, record: &Record<'a>) -> Result<Taken<'a>, MergeError> {
        let Record { main, sub, tombstone, value } = *record;
        let error = |what| MergeError::Record { main, sub, what };
        if main > self.until && self.newest == self.until {
            self.is_past = true;
            return Ok(Taken::Late);
        }
        if main < self.newest || main == self.newest && self.next_sub.is_none_or(|next| sub < next) {
            return Ok(Taken::Repeated);
        }
        if main > self.newest.saturating_add(1) {
            return Err(MergeError::Hole { after: self.newest, next: main });
        }
        let expected = if main == self.newest { self.next_sub.unwrap_or_default() } else { 0 };
        if sub != expected {
            return Err(error("does not follow the change before it"));
        }
        let kv = KeyValue::parse(value).map_err(|_| error("cannot be read"))?;
        if kv.key.is_empty() {
            return Err(error("has no key"));
        }
        if tombstone && kv != (KeyValue { key: kv.key, ..KeyValue::default() }) {
            return Err(error("is a tombstone with a value"));
        }
        if !tombstone && kv.mod_revision != main {
            return Err(error("holds another revision"));
        }
        (self.newest, self.next_sub) = (main, sub.checked_add(1));
        Ok(Taken::Next(kv))
    }

    /// Ends a segment, which ends between revisions.
    pub(super) fn end_segment(&mut self) {
        self.next_sub = None;
    }

    /// Checks that the wanted revision has come.
    pub(super) fn check_end(&self) -> Result<(), MergeError> {
        let Self { newest: reached, until, .. } = *self;
        if reached < until { Err(MergeError::Short { reached, until }) } else { Ok(()) }
    }
}
