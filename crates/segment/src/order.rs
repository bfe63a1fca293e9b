//! The order of revisions in a segment: dense, and each with its sub-revisions from 0.
//!
//! This file decides which record may follow another. Writer and reader ask it alike.

/// A record that does not follow the record before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "revision {main}.{sub} cannot follow revision {after}.{after_sub}: a change between them is missing or out of order"
)]
pub struct OutOfOrder {
    /// Main revision before.
    pub after: i64,
    /// Its last sub-revision; -1: the segment begins after it.
    pub after_sub: i64,
    /// Main revision of the record.
    pub main: i64,
    /// Its sub-revision.
    pub sub: i64,
}

/// The last admitted revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) main: i64,
    /// -1: no record of this order has the revision.
    pub(crate) sub: i64,
}

impl Order {
    /// Returns an order whose first record has the next main revision.
    pub(crate) const fn after(main: i64) -> Self {
        Self { main, sub: -1 }
    }

    /// Admits the next record.
    pub(crate) fn admit(&mut self, main: i64, sub: i64) -> Result<(), OutOfOrder> {
        let follows = self.main.checked_add(1) == Some(main) && sub == 0;
        let continues = self.main == main && self.sub >= 0 && self.sub.checked_add(1) == Some(sub);
        if !follows && !continues {
            return Err(OutOfOrder { after: self.main, after_sub: self.sub, main, sub });
        }
        *self = Self { main, sub };
        Ok(())
    }
}
