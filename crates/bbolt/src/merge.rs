//! The merge: takes a database to a later revision by adding the records of a log. Does no I/O except through the given reader
//! and writer.
//!
//! This file decides which records are added, and which leases. `merge/edge.rs` decides where pages end, `merge/leases.rs`
//! counts leases. The caller decides the base, the records and the revision, and proves the result with the scan.
//!
//! Input: a base whose newest revision is B, the records of a log in order, and a revision T. The merge skips records at or
//! below B, and each record that the log brings twice; the first record after T ends it. Main revisions of etcd are dense, so
//! a step of more than one is a hole in the log and an error.
//!
//! The added pages lie after the high-water mark, in rising order: leaves of the bucket `key` as soon as they are full, then the
//! path to its new end, the bucket `lease` if it changes, and the root bucket. Both meta pages come last, as in the graft. The
//! merge holds one path of pages and one leaf, and two numbers for each key with a lease.
//!
//! Leases. etcd logs an error for a key whose lease does not exist, and keeps the key for ever (server/storage/mvcc/kvstore.go:
//! restoreIntoIndex, restore); a lease without keys only expires. So:
//!
//! * Every lease stays that the base has. A revocation deletes the keys of the lease in one transaction, and those tombstones
//!   are in the log; the lease itself ends one time to live after the start.
//! * The merge adds every lease that a record of the log has bound to a key, if the key still has it at T.
//! * The time to live is the log's, also where the base has another: the lease was granted again.
//! * If neither names it, the lease had ended before the archiver could ask. It gets [`UNKNOWN_TTL`], and the result names it.
//!
//! All other buckets are the base's: members and progress, which a restore replaces, and users, whose changes no watch shows.

mod edge;
mod leases;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use holdfast_segment::Record;

use crate::graft::read::{Database, bucket, sequence};
use crate::graft::write::{self, Pages, header};
use crate::graft::{self, Entries, KEY, Page, Unfit};
use crate::scan::records::Rev;
use crate::scan::wire::{self, KeyValue};
use crate::scan::{ReadAt, page};
use edge::Edge;
use leases::{Leases, Needed};

/// Time to live in seconds of a lease whose own is not known: long enough for a person to look at its keys.
pub const UNKNOWN_TTL: i64 = 3600;

const LEASE: &[u8] = b"lease";

/// Reason for which a merge failed.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// Revisions are missing from the log.
    #[error("the log has a hole: revision {next} follows revision {after}")]
    Hole {
        /// The last merged revision.
        after: i64,
        /// The next revision of the log.
        next: i64,
    },
    /// The log ends early.
    #[error("the log ends at revision {reached}, before revision {until}")]
    Short {
        /// The last merged revision.
        reached: i64,
        /// The wanted revision.
        until: i64,
    },
    /// The base is too new.
    #[error("the base is at revision {base}, after revision {until}")]
    Late {
        /// The base's revision.
        base: i64,
        /// The wanted revision.
        until: i64,
    },
    /// A record is none that etcd writes.
    #[error("the log's record of revision {main}, change {sub}, {what}")]
    Record {
        /// The revision.
        main: i64,
        /// Index among the changes of one transaction.
        sub: i64,
        /// The defect, as text that follows the revision.
        what: &'static str,
    },
    /// The keys with leases exceed the memory budget.
    #[error("the leases of the log do not fit the memory budget of {budget} bytes")]
    OverBudget {
        /// The budget.
        budget: usize,
    },
    /// The base cannot be extended.
    #[error("the base: {0}")]
    Base(#[from] Unfit),
    /// The writer failed.
    #[error("writing the merged pages: {0}")]
    Write(#[from] io::Error),
}

/// A merge that takes records.
#[derive(Debug)]
pub struct Merge<R> {
    base: Database<R>,
    buckets: Entries,
    pages: Pages,
    edge: Edge,
    leases: Leases,
    budget: usize,
    /// The wanted revision.
    until: i64,
    /// The last merged revision, and the index of its next change; `None`: it has no more changes.
    newest: i64,
    next_sub: Option<i64>,
    records: u64,
    /// Whether a record after the wanted revision has come.
    is_past: bool,
}

/// The result of a merge: all but the meta pages is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// Meta pages to write last, at the start of the file.
    pub metas: [Page; 2],
    /// Size of the whole database.
    pub bytes: u64,
    /// The newest revision.
    pub revision: i64,
    /// Number of added records.
    pub records: u64,
    /// IDs of leases that got [`UNKNOWN_TTL`].
    pub unknown_ttls: Vec<i64>,
}

impl<R: ReadAt> Merge<R> {
    /// Begins a merge of a base of this size up to a revision. `budget_bytes`: memory for leases.
    pub fn begin(base: R, bytes: u64, until: i64, budget_bytes: usize) -> Result<Self, MergeError> {
        let reached = graft::reached(&base, bytes)?;
        let base = Database::open(base, bytes)?;
        let buckets = base.buckets()?;
        // As a member determines its revision at its start.
        let newest = reached.last_record.max(reached.compact_revision).unwrap_or_default().max(1);
        if newest > until {
            return Err(MergeError::Late { base: newest, until });
        }
        let meta = *base.meta();
        let edge = Edge::after(base.last(bucket(&buckets, KEY)?)?, meta.page_size);
        Ok(Self {
            base,
            buckets,
            pages: Pages::new(meta.page_size, meta.high_water),
            edge,
            leases: Leases::default(),
            budget: budget_bytes,
            until,
            newest,
            next_sub: None,
            records: 0,
            is_past: false,
        })
    }

    /// Returns the last merged revision; before the first record the base's.
    pub fn revision(&self) -> i64 {
        self.newest
    }

    /// Returns the offset in the file at which the writer has to begin.
    pub fn offset(&self) -> u64 {
        self.base.meta().bytes()
    }

    /// Takes the next record of the log. Returns `false` for a record after the wanted revision: all that follow are too.
    ///
    /// A record that is merged already, of the base or of an overlapping segment, changes nothing.
    pub fn add(&mut self, record: &Record<'_>, out: &mut impl Write) -> Result<bool, MergeError> {
        let Record { main, sub, tombstone, value } = *record;
        let error = |what| MergeError::Record { main, sub, what };
        if main > self.until && self.newest == self.until {
            self.is_past = true;
            return Ok(false);
        }
        if main < self.newest || main == self.newest && self.next_sub.is_none_or(|next| sub < next) {
            return Ok(true);
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
        self.edge.push(Rev { main, sub, tombstone }.key().bytes(), value, &mut self.pages)?;
        self.leases.bind(&kv);
        self.check_budget()?;
        (self.newest, self.next_sub) = (main, sub.checked_add(1));
        self.records += 1;
        write_pages(&mut self.pages, out)?;
        Ok(true)
    }

    /// Takes a lease of the log with its granted time to live in seconds; 0: the lease had ended before the archiver asked.
    pub fn add_lease(&mut self, id: i64, ttl: i64) -> Result<(), MergeError> {
        if ttl > 0 {
            self.leases.add_ttl(id, ttl, self.is_past);
        }
        self.check_budget()
    }

    /// Ends a segment of the log. A segment ends between revisions, and names each of its leases.
    pub fn end_segment(&mut self) {
        self.next_sub = None;
        self.leases.drop_unbound();
    }

    fn check_budget(&self) -> Result<(), MergeError> {
        let budget = self.budget;
        if self.leases.bytes() > budget { Err(MergeError::OverBudget { budget }) } else { Ok(()) }
    }

    /// Writes the rest of the pages.
    pub fn finish(mut self, out: &mut impl Write) -> Result<Merged, MergeError> {
        if self.newest < self.until {
            return Err(MergeError::Short { reached: self.newest, until: self.until });
        }
        if self.records > 0 {
            let root = self.edge.finish(&mut self.pages)?;
            let sequence = sequence(bucket(&self.buckets, KEY)?);
            self.buckets.insert(KEY.to_vec(), header(root, sequence));
        }
        let leases = self.buckets.get(LEASE).cloned().unwrap_or_default();
        let mut needed = self.leases.needed();
        if !leases.is_empty() {
            self.base.each(&leases, |key, value| settle(&mut needed, key, value))?;
        }
        let unknown_ttls = needed.unknown();
        if !needed.is_empty() {
            let mut edge = Edge::new(self.base.meta().page_size);
            let pages = &mut self.pages;
            if !leases.is_empty() {
                self.base.each(&leases, |key, value| {
                    let mut replaced = false;
                    for (new, value) in needed.take_until(Some(key)) {
                        edge.push(&new, &value, pages)?;
                        replaced = new[..] == *key;
                    }
                    if !replaced {
                        edge.push(key, value, pages)?;
                    }
                    Ok::<_, MergeError>(write_pages(pages, out)?)
                })?;
            }
            for (key, value) in needed.take_until(None) {
                edge.push(&key, &value, pages)?;
            }
            let root = edge.finish(pages)?;
            self.buckets.insert(LEASE.to_vec(), header(root, sequence(&leases)));
        }
        let root = self.pages.tree(&self.buckets, page::BUCKET)?;
        write_pages(&mut self.pages, out)?;
        out.flush()?;
        let meta = write::next_meta(self.base.meta(), root, self.pages.next())?;
        let (revision, records) = (self.newest, self.records);
        Ok(Merged { metas: write::metas(&meta)?, bytes: meta.bytes(), revision, records, unknown_ttls })
    }
}

/// Removes a lease of the base from the leases to write.
fn settle(needed: &mut Needed, key: &[u8], value: &[u8]) -> Result<(), MergeError> {
    let (_, ttl) = wire::lease(value).map_err(|_| Unfit::new("a lease cannot be read"))?;
    needed.settle(key, ttl);
    Ok(())
}

fn write_pages(pages: &mut Pages, out: &mut impl Write) -> io::Result<()> {
    pages.take_written().iter().try_for_each(|page| out.write_all(&page.bytes))
}
