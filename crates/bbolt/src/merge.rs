//! The merge: takes a database to a later revision by adding the records of a log. Does no I/O except through the given reader
//! and writer.
//!
//! This file decides which records are added, and which leases. `merge/order.rs` decides the order of records, `merge/survey.rs`
//! which records a compaction leaves, `merge/edge.rs` where pages end; `merge/leases.rs` counts leases, `merge/hash.rs` computes
//! HashKV before the end. The caller decides the base, the records, the compaction and the revision, and proves the result with
//! the scan.
//!
//! Input: a base whose newest revision is B, the records of a log in order, and a revision T. The merge skips records at or
//! below B, and each record that the log brings twice; the first record after T ends it. Main revisions of etcd are dense, so
//! a step of more than one is a hole in the log and an error.
//!
//! The added pages lie after the high-water mark, in rising order: leaves of the bucket `key` as soon as they are full, then the
//! path to its new end, the bucket `lease` if it changes, and the root bucket. Both meta pages come last, as in the graft. The
//! merge holds one path of pages and one leaf, and two numbers for each key with a lease.
//!
//! Where etcd has compacted after the base, the merge writes a file of its own instead: the records that the compaction leaves,
//! and all other buckets. The result is as large as the file of a member after a defragmentation.
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
mod hash;
mod leases;
mod order;
mod survey;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use holdfast_segment::Record;

use crate::graft::read::{Database, bucket, sequence};
use crate::graft::write::{self, Pages, header};
use crate::graft::{self, Entries, KEY, Page, Unfit};
use crate::scan::records::Rev;
use crate::scan::wire;
use crate::scan::{ReadAt, page};
use edge::Edge;
use leases::{Leases, Needed};
use order::{Order, Taken};

pub use hash::LogHash;
pub use survey::{Kept, Survey, Surveyed};

/// Time to live in seconds of a lease whose own is not known: long enough for a person to look at its keys.
pub const UNKNOWN_TTL: i64 = 3600;

const LEASE: &[u8] = b"lease";

/// The first page behind the meta pages.
const AFTER_METAS: u64 = 2;

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
    /// The keys exceed the memory budget.
    #[error("the keys of the log do not fit the memory budget of {budget} bytes")]
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
    /// Number of the first written page.
    first_page: u64,
    edge: Edge,
    /// The records that stay, in a file of its own.
    kept: Option<Kept>,
    /// Whether the base's records are to be written first.
    lacks_base: bool,
    leases: Leases,
    budget: usize,
    order: Order,
    records: u64,
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
    /// Number of taken records of the log.
    pub records: u64,
    /// IDs of leases that got [`UNKNOWN_TTL`].
    pub unknown_ttls: Vec<i64>,
}

/// A base, its buckets, and its revisions; `compacted`: 0 without a compaction.
struct Opened<R> {
    base: Database<R>,
    buckets: Entries,
    newest: i64,
    compacted: i64,
}

/// Opens a base of this size for a merge up to a revision.
fn open<R: ReadAt>(base: R, bytes: u64, until: i64) -> Result<Opened<R>, MergeError> {
    let reached = graft::reached(&base, bytes)?;
    let base = Database::open(base, bytes)?;
    let buckets = base.buckets()?;
    // As a member determines its revision at its start.
    let newest = reached.last_record.max(reached.compact_revision).unwrap_or_default().max(1);
    if newest > until {
        return Err(MergeError::Late { base: newest, until });
    }
    Ok(Opened { base, buckets, newest, compacted: reached.compact_revision.unwrap_or_default() })
}

impl<R: ReadAt> Merge<R> {
    /// Begins a merge of a base of this size up to a revision, by pages behind those of the base. `budget_bytes`: memory for
    /// leases.
    pub fn begin(base: R, bytes: u64, until: i64, budget_bytes: usize) -> Result<Self, MergeError> {
        let Opened { base, buckets, newest, .. } = open(base, bytes, until)?;
        let meta = *base.meta();
        let edge = Edge::after(base.last(bucket(&buckets, KEY)?)?, meta.page_size);
        let order = Order::after(newest, until);
        Ok(Self::new((base, buckets), (meta.high_water, edge), None, order, budget_bytes))
    }

    /// Begins a merge into a file of its own, with the records that stay.
    pub fn compact(base: R, bytes: u64, until: i64, kept: Kept, budget_bytes: usize) -> Result<Self, MergeError> {
        let Opened { base, buckets, newest, .. } = open(base, bytes, until)?;
        let edge = Edge::new(base.meta().page_size);
        let order = Order::after(newest, until);
        let merge = Self::new((base, buckets), (AFTER_METAS, edge), Some(kept), order, budget_bytes);
        Ok(Self { lacks_base: true, ..merge })
    }

    /// Writes the records of the base that stay into a file of its own, before the first of the log.
    fn write_base(&mut self, out: &mut impl Write) -> Result<(), MergeError> {
        if !std::mem::take(&mut self.lacks_base) {
            return Ok(());
        }
        let Self { base, buckets, edge, pages, kept, .. } = self;
        base.each(bucket(buckets, KEY)?, |key, value| {
            let rev = Rev::parse(key).ok_or_else(|| Unfit::new("a revision of the bucket `key` cannot be read"))?;
            if kept.as_mut().is_none_or(|kept| kept.stays(rev.main)) {
                edge.push(key, value, pages)?;
            }
            Ok(write_pages(pages, out)?)
        })
    }

    fn new(
        (base, buckets): (Database<R>, Entries),
        (first_page, edge): (u64, Edge),
        kept: Option<Kept>,
        order: Order,
        budget: usize,
    ) -> Self {
        let pages = Pages::new(base.meta().page_size, first_page);
        let (leases, lacks_base) = (Leases::default(), false);
        Self { base, buckets, pages, first_page, edge, kept, lacks_base, leases, budget, order, records: 0 }
    }

    /// Returns the last merged revision; before the first record the base's.
    pub fn revision(&self) -> i64 {
        self.order.newest()
    }

    /// Returns the offset in the file at which the writer has to begin.
    pub fn offset(&self) -> u64 {
        self.first_page.saturating_mul(self.base.meta().page_size as u64)
    }

    /// Takes the next record of the log. Returns `false` for a record after the wanted revision: all that follow are too.
    ///
    /// A record that is merged already, of the base or of an overlapping segment, changes nothing.
    pub fn add(&mut self, record: &Record<'_>, out: &mut impl Write) -> Result<bool, MergeError> {
        let Record { main, sub, tombstone, value } = *record;
        let kv = match self.order.take(record)? {
            Taken::Next(kv) => kv,
            Taken::Repeated => return Ok(true),
            Taken::Late => return Ok(false),
        };
        self.write_base(out)?;
        if self.kept.as_mut().is_none_or(|kept| kept.stays(main)) {
            self.edge.push(Rev { main, sub, tombstone }.key().bytes(), value, &mut self.pages)?;
        }
        self.leases.bind(&kv);
        self.check_budget()?;
        self.records += 1;
        write_pages(&mut self.pages, out)?;
        Ok(true)
    }

    /// Takes a lease of the log with its granted time to live in seconds; 0: the lease had ended before the archiver asked.
    pub fn add_lease(&mut self, id: i64, ttl: i64) -> Result<(), MergeError> {
        if ttl > 0 {
            self.leases.add_ttl(id, ttl, self.order.is_past());
        }
        self.check_budget()
    }

    /// Ends a segment of the log. A segment ends between revisions, and names each of its leases.
    pub fn end_segment(&mut self) {
        self.order.end_segment();
        self.leases.drop_unbound();
    }

    fn check_budget(&self) -> Result<(), MergeError> {
        let budget = self.budget;
        if self.leases.bytes() > budget { Err(MergeError::OverBudget { budget }) } else { Ok(()) }
    }

    /// Writes the rest of the pages.
    pub fn finish(mut self, out: &mut impl Write) -> Result<Merged, MergeError> {
        self.order.check_end()?;
        self.write_base(out)?;
        if self.records > 0 || self.kept.is_some() {
            let edge = std::mem::replace(&mut self.edge, Edge::new(self.base.meta().page_size));
            let root = edge.finish(&mut self.pages)?;
            let sequence = sequence(bucket(&self.buckets, KEY)?);
            self.buckets.insert(KEY.to_vec(), header(root, sequence));
        }
        let leases = self.buckets.get(LEASE).cloned().unwrap_or_default();
        let mut needed = std::mem::take(&mut self.leases).needed();
        if !leases.is_empty() {
            self.base.each(&leases, |key, value| settle(&mut needed, key, value))?;
        }
        let unknown_ttls = needed.unknown();
        if let Some(kept) = &self.kept {
            let compact = kept.compact_revision();
            self.copy_buckets(compact, out)?;
        }
        if !needed.is_empty() || self.kept.is_some() && has_pages(&leases) {
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
        let (revision, records) = (self.order.newest(), self.records);
        Ok(Merged { metas: write::metas(&meta)?, bytes: meta.bytes(), revision, records, unknown_ttls })
    }

    /// Writes the buckets beside `key` and `lease` into a file of its own, with the compact revision as etcd stores it (etcd:
    /// server/storage/mvcc/store.go, `SetScheduledCompact` and `SetFinishedCompact`).
    fn copy_buckets(&mut self, compact: i64, out: &mut impl Write) -> Result<(), MergeError> {
        let Self { base, buckets, pages, .. } = self;
        for (name, value) in buckets.iter_mut() {
            if [KEY, LEASE].contains(&&name[..]) || name != b"meta" && !has_pages(value) {
                continue;
            }
            let mut edge = Edge::new(base.meta().page_size);
            if name == b"meta" {
                let mut entries = base.entries(value)?;
                let revision = Rev { main: compact, sub: 0, tombstone: false }.key();
                for name in [&b"finishedCompactRev"[..], b"scheduledCompactRev"] {
                    entries.insert(name.to_vec(), revision.bytes().to_vec());
                }
                entries.iter().try_for_each(|(key, value)| edge.push(key, value, pages))?;
            } else {
                base.each(value, |key, value| {
                    edge.push(key, value, pages)?;
                    Ok::<_, MergeError>(write_pages(pages, out)?)
                })?;
            }
            *value = header(edge.finish(pages)?, sequence(value));
        }
        Ok(write_pages(pages, out)?)
    }
}

/// Whether a bucket has pages of its own: a small bucket lies in the root bucket, with which it is copied.
fn has_pages(bucket: &[u8]) -> bool {
    page::bucket(bucket).is_some_and(|(root, _)| root != 0)
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
