//! Gives a database another membership by adding pages to it: the graft. No I/O but what it is given to read.
//!
//! It decides what of a database that etcdutl has restored is carried over, and nothing about what that is: etcdutl, which
//! belongs to the target version, is shown a small database with the same buckets (`Stock::small`), and what it makes of
//! that one is what it would make of the large one. So a version that changes more, or less, is followed. What it could
//! not have known from the small one is a reason not to graft (`Unfit`), and the restore is etcdutl's then.
//!
//! What is added lies after the high-water mark: the buckets that etcdutl has changed, the path to the new end of the
//! bucket `key` when the revision moves on, and the root bucket. No page that was in use is touched but the two meta pages,
//! so what was proven of the rest stays proven. Both meta pages get the new tree, as bbolt has them in a snapshot (bbolt
//! `Tx.WriteTo`): a member that dies while it writes its first one does not wake up with the old members. The list of
//! free pages, if there was one, is given up: bbolt makes it anew from the tree (`DB.loadFreelist`), and what was replaced
//! is in it.
//!
//! ```text
//! large ─► Stock ─► small ─► etcdutl ─► scion ─► Grafted: pages and meta pages ─► large
//! ```

mod read;
#[cfg(test)]
pub(crate) mod tests;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use crate::scan::page::Meta;
use crate::scan::{ReadAt, ScanError, page};
use crate::util::sha256::Sha256;
use read::{Database, Last, bucket};
use write::{Pages, header};

pub(crate) use write::Page;

/// Whether clients of this database have to log in, at the cost of a few pages (etcd: server/storage/schema/auth.go).
pub(crate) fn auth_enabled(file: impl ReadAt, bytes: u64) -> Result<bool, Unfit> {
    let database = Database::open(file, bytes)?;
    let buckets = database.buckets()?;
    let Some(auth) = buckets.get(&b"auth"[..]) else { return Ok(false) };
    Ok(database.entries(auth)?.get(&b"authEnabled"[..]).is_some_and(|value| value == &[1]))
}

/// Where a database's revisions have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    /// That of the last record; `None`: there is none.
    pub(crate) last_record: Option<i64>,
    /// The one below which history is gone, also when that has only been scheduled. `None`: never.
    pub(crate) compact_revision: Option<i64>,
}

/// The same at the cost of a few pages (etcd: server/storage/schema/meta.go, server/storage/mvcc/store.go).
pub(crate) fn reached(file: impl ReadAt, bytes: u64) -> Result<Reached, Unfit> {
    let database = Database::open(file, bytes)?;
    let buckets = database.buckets()?;
    let last = database.last(bucket(&buckets, KEY)?)?.leaf.last;
    let meta = buckets.get(&b"meta"[..]).map(|meta| database.entries(meta)).transpose()?.unwrap_or_default();
    let compacted = [&b"scheduledCompactRev"[..], b"finishedCompactRev"].map(|name| meta.get(name));
    let mut compact_revision = None;
    for value in compacted.into_iter().flatten() {
        compact_revision = compact_revision.max(Some(main_revision(b"meta", value)?));
    }
    let last_record = last.map(|key| main_revision(KEY, &key)).transpose()?;
    Ok(Reached { last_record, compact_revision })
}

/// A revision begins with the number that clients see (etcd: server/storage/mvcc/revision.go).
fn main_revision(name: &[u8], revision: &[u8]) -> Result<i64, Unfit> {
    let main = revision.first_chunk().map(|main| i64::from_be_bytes(*main)).filter(|main| *main >= 0);
    main.ok_or_else(|| Unfit::bucket(name, "a revision cannot be read"))
}

/// Entries of a bucket, or the buckets of the root bucket.
type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// The bucket with all revisions of all keys.
const KEY: &[u8] = b"key";

/// What the small database has whole: what says who is in the cluster, where it has come, and of which version it is. Of
/// the other buckets it has the names alone.
const COPIED: [&[u8]; 4] = [b"cluster", b"members", b"members_removed", b"meta"];

/// Why there is no graft. Nothing is known to be wrong with the database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unfit(String);

impl Unfit {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }

    fn page(id: u64, what: &str) -> Self {
        Self(format!("page {id} {what}"))
    }

    fn bucket(name: &[u8], what: &str) -> Self {
        Self(format!("bucket {}: {what}", String::from_utf8_lossy(name)))
    }
}

impl From<ScanError> for Unfit {
    fn from(error: ScanError) -> Self {
        Self(error.to_string())
    }
}

/// The database that is grafted onto: what has to be known of it.
#[derive(Debug)]
pub(crate) struct Stock {
    meta: Meta,
    buckets: Entries,
    /// What the small database has in each bucket.
    put: BTreeMap<Vec<u8>, Entries>,
    /// The end of the bucket `key`.
    last: Last,
}

impl Stock {
    /// Reads what is small of a database of so many bytes.
    pub(crate) fn read(file: impl ReadAt, bytes: u64) -> Result<Self, Unfit> {
        let database = Database::open(file, bytes)?;
        let buckets = database.buckets()?;
        let last = database.last(bucket(&buckets, KEY)?)?;
        let mut put = BTreeMap::new();
        for (name, value) in &buckets {
            let entries = match name.as_slice() {
                // etcdutl looks for the newest revision, and at no value.
                KEY => last.leaf.last.clone().map(|newest| (newest, Vec::new())).into_iter().collect(),
                name if COPIED.contains(&name) => database.entries(value)?,
                _ => Entries::new(),
            };
            put.insert(name.clone(), entries);
        }
        Ok(Self { meta: *database.meta(), buckets, put, last })
    }

    /// The small database, with etcd's sha256 at its end.
    pub(crate) fn small(&self) -> Result<Vec<u8>, Unfit> {
        let mut pages = Pages::new(self.meta.page_size, 2);
        let mut buckets = Entries::new();
        for (name, entries) in &self.put {
            buckets.insert(name.clone(), header(pages.tree(entries, 0)?, 0));
        }
        let root = pages.tree(&buckets, page::BUCKET)?;
        let meta = Meta { root, sequence: 0, freelist: None, high_water: pages.next(), txid: 2, ..self.meta };
        let mut bytes = Vec::new();
        for page in write::metas(&meta)?.into_iter().chain(pages.finish()) {
            bytes.extend_from_slice(&page.bytes);
        }
        let sha256 = Sha256::digest(&bytes);
        bytes.extend_from_slice(&sha256);
        Ok(bytes)
    }

    /// The pages that give this database what etcdutl has given the small one.
    pub(crate) fn graft(&self, scion: impl ReadAt, bytes: u64) -> Result<Grafted, Unfit> {
        let scion = Database::open(scion, bytes)?;
        let found = scion.buckets()?;
        let mut pages = Pages::new(self.meta.page_size, self.meta.high_water);
        let (mut buckets, mut changed, mut added) = (self.buckets.clone(), BTreeMap::new(), Entries::new());
        let names: BTreeSet<&Vec<u8>> = self.put.keys().chain(found.keys()).collect();
        for name in names {
            let new = found.get(name).map(|value| scion.entries(value)).transpose()?;
            let old = self.put.get(name);
            if new.as_ref() == old {
                continue;
            }
            let sequence = self.buckets.get(name).map_or(0, |value| read::sequence(value));
            match new {
                Some(new) if name == KEY => {
                    added = self.added(new)?;
                    let root = self.append(&mut pages, &added)?;
                    buckets.insert(name.clone(), header(root, sequence));
                }
                _ if old.is_some() && !COPIED.contains(&name.as_slice()) => {
                    return Err(Unfit::bucket(name, "etcdutl has changed it, and this agent does not know how"));
                }
                Some(new) => {
                    buckets.insert(name.clone(), header(pages.tree(&new, 0)?, sequence));
                    changed.insert(name.clone(), new);
                }
                None => {
                    buckets.remove(name);
                }
            }
        }
        if found.get(b"members".as_slice()).map(|value| scion.entries(value)).transpose()?.map_or(0, |all| all.len())
            != 1
        {
            return Err(Unfit::bucket(b"members", "etcdutl has not left exactly one"));
        }
        let root = pages.tree(&buckets, page::BUCKET)?;
        // A member's next one has an odd number, and overwrites the page of the older of these two (bbolt `meta.write`).
        let txid = (self.meta.txid / 2).checked_add(1).and_then(|half| half.checked_mul(2));
        let txid = txid.ok_or_else(|| Unfit::new("there are no more transaction numbers"))?;
        let meta = Meta { root, freelist: None, high_water: pages.next(), txid, ..self.meta };
        Ok(Grafted { metas: write::metas(&meta)?, pages: pages.finish(), meta, buckets, changed, added })
    }

    /// What etcdutl has added to the bucket `key`, all of it after what was there.
    fn added(&self, mut new: Entries) -> Result<Entries, Unfit> {
        let unknown = || Unfit::bucket(KEY, "etcdutl has changed more than its end");
        if let Some(newest) = &self.last.leaf.last {
            let kept = new.remove(newest).is_some_and(|value| value.is_empty());
            let all_after = new.keys().all(|key| key > newest);
            if !kept || !all_after {
                return Err(unknown());
            }
        }
        if new.is_empty() { Err(unknown()) } else { Ok(new) }
    }

    /// A new root for the bucket `key`, which is what it was and ends with these.
    fn append(&self, pages: &mut Pages, added: &Entries) -> Result<u64, Unfit> {
        let Last { branches, leaf, .. } = &self.last;
        if leaf.id == 0 {
            // All of it lies in the root bucket.
            return pages.tree(&self.last.with(added), 0);
        }
        let mut new = pages.leaves(added, 0)?;
        let Some((bottom, above)) = branches.split_last() else {
            let first = leaf.first.clone().map(|first| (first, leaf.id));
            return pages.over(first.into_iter().chain(new).collect());
        };
        let mut children = bottom.clone();
        children.append(&mut new);
        let mut level = pages.branches(&children)?;
        for branch in above.iter().rev() {
            let mut children = branch.clone();
            // The branch below is replaced by itself with the new leaf, or by two.
            children.pop();
            children.append(&mut level);
            level = pages.branches(&children)?;
        }
        pages.over(level)
    }
}

/// A graft that is made and not written.
#[derive(Debug)]
pub(crate) struct Grafted {
    /// What is written first, after the high-water mark.
    pub(crate) pages: Vec<Page>,
    /// What is written last.
    pub(crate) metas: [Page; 2],
    meta: Meta,
    buckets: Entries,
    changed: BTreeMap<Vec<u8>, Entries>,
    added: Entries,
}

impl Grafted {
    /// Where a page lies in the file.
    pub(crate) fn offset(&self, page: &Page) -> u64 {
        page.id.saturating_mul(self.meta.page_size as u64)
    }

    /// Bytes of the whole database.
    pub(crate) fn bytes(&self) -> u64 {
        self.meta.bytes()
    }

    /// Reads the written file again: every changed bucket is what it should be, and of all others the root is the same.
    pub(crate) fn check(&self, stock: &Stock, file: impl ReadAt, bytes: u64) -> Result<(), Unfit> {
        let database = Database::open(file, bytes)?;
        if *database.meta() != self.meta {
            return Err(Unfit::new("the new meta page is not the one that counts"));
        }
        if database.buckets()? != self.buckets {
            return Err(Unfit::new("the new root bucket is not what was written"));
        }
        for (name, entries) in &self.changed {
            if database.entries(bucket(&self.buckets, name)?)? != *entries {
                return Err(Unfit::bucket(name, "it is not what was written"));
            }
        }
        if self.added.is_empty() {
            return Ok(());
        }
        let wrong = || Unfit::bucket(KEY, "it does not have all it had, and the new revision");
        let (before, now) = (bucket(&stock.buckets, KEY)?, bucket(&self.buckets, KEY)?);
        let end = database.last(now)?;
        if end.leaf.last.as_ref() != self.added.keys().next_back() {
            return Err(wrong());
        }
        if stock.last.leaf.id == 0 {
            let all = stock.last.with(&self.added);
            return if database.entries(now)? == all { Ok(()) } else { Err(wrong()) };
        }
        let (mut before, now) = (database.leaves(before)?, database.leaves(now)?);
        if stock.last.leaf.first.is_none() {
            before.clear();
        }
        let new = now.strip_prefix(before.as_slice()).ok_or_else(wrong)?;
        let mut added = Entries::new();
        for (id, first) in new {
            let mut leaf = database.leaf(*id)?;
            if leaf.keys().next().map(|key| read::fingerprint(key)) != Some(*first) {
                return Err(wrong());
            }
            added.append(&mut leaf);
        }
        if added == self.added { Ok(()) } else { Err(wrong()) }
    }
}
