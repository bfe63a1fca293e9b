//! The graft: gives a database another membership by adding pages. Does no I/O except through the given reader.
//!
//! This file decides which parts of a database restored by etcdutl are carried over, and nothing about their content. etcdutl,
//! from the target version, restores a small database with the same buckets (`Stock::small`), and its changes there are those
//! that it would make to the large one. So the graft follows a version that changes more or less. A change that etcdutl cannot
//! derive from the small database is a reason not to graft (`Unfit`); etcdutl then restores the large one.
//!
//! The added pages lie after the high-water mark: the buckets that etcdutl has changed, the path to the new end of the bucket
//! `key` if the revision rises, and the root bucket. Of the pages in use the graft changes only the two meta pages, so the
//! proof of all others stays valid. Both meta pages get the new tree, as bbolt writes them in a snapshot (bbolt `Tx.WriteTo`):
//! a member that dies during its first write of a meta page does not return to the old members. The graft drops the list of
//! free pages, if there is one: bbolt rebuilds it from the tree (`DB.loadFreelist`), with the replaced pages.
//!
//! ```text
//! large ─► Stock ─► small ─► etcdutl ─► scion ─► Grafted: pages and meta pages ─► large
//! ```

pub(crate) mod read;
#[cfg(test)]
mod tests;
pub(crate) mod write;

use std::collections::{BTreeMap, BTreeSet};

use holdfast_segment::RevisionSum;
use sha2::{Digest as _, Sha256};

use crate::scan::page::Meta;
use crate::scan::records::Rev;
use crate::scan::{ReadAt, ScanError, page};
use read::{Database, Last, bucket};
use write::{Pages, header};

pub use write::Page;

/// Whether authentication is enabled, from a few pages (etcd: server/storage/schema/auth.go).
pub fn auth_enabled(file: impl ReadAt, bytes: u64) -> Result<bool, Unfit> {
    Ok(auth_value(file, bytes, b"authEnabled")?.is_some_and(|value| value == [1]))
}

/// Returns the revision of users and roles, from a few pages; `None`: the database records none.
pub fn auth_revision(file: impl ReadAt, bytes: u64) -> Result<Option<i64>, Unfit> {
    let value = auth_value(file, bytes, b"authRevision")?;
    Ok(value.and_then(|value| value.as_array::<8>().map(|bytes| i64::from_be_bytes(*bytes))))
}

fn auth_value(file: impl ReadAt, bytes: u64, key: &[u8]) -> Result<Option<Vec<u8>>, Unfit> {
    let database = Database::open(file, bytes)?;
    let buckets = database.buckets()?;
    let Some(auth) = buckets.get(&b"auth"[..]) else { return Ok(None) };
    Ok(database.entries(auth)?.remove(key))
}

/// Revisions of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Revision of the last record; `None`: no record exists.
    pub last_record: Option<i64>,
    /// Compact revision, also of a scheduled compaction: history below it is gone. `None`: never compacted.
    pub compact_revision: Option<i64>,
}

/// Reads the revisions from a few pages (etcd: server/storage/schema/meta.go, server/storage/mvcc/store.go).
pub fn reached(file: impl ReadAt, bytes: u64) -> Result<Reached, Unfit> {
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

/// State of a member, as its database records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Raft index of the last entry in the database; `None`: none is recorded.
    pub consistent_index: Option<u64>,
    /// Raft term of that entry; `None`: none is recorded.
    pub term: Option<u64>,
    /// Number of members.
    pub members: u64,
    /// Its revisions.
    pub reached: Reached,
    /// Whether clients have to log in.
    pub auth_enabled: bool,
}

/// Reads the state of a member from a few pages (etcd: server/storage/schema/cindex.go).
pub fn recorded(file: impl ReadAt, bytes: u64) -> Result<Recorded, Unfit> {
    let (reached, auth_enabled) = (reached(&file, bytes)?, auth_enabled(&file, bytes)?);
    let database = Database::open(&file, bytes)?;
    let buckets = database.buckets()?;
    let entries = |name: &[u8]| buckets.get(name).map(|bucket| database.entries(bucket)).transpose();
    let meta = entries(b"meta")?.unwrap_or_default();
    let number = |name: &[u8]| match meta.get(name).map(|value| value.as_array::<8>()) {
        Some(None) => Err(Unfit::bucket(b"meta", "a number is not 8 bytes")),
        found => Ok(found.flatten().map(|bytes| u64::from_be_bytes(*bytes)).filter(|number| *number != 0)),
    };
    let members = entries(b"members")?.unwrap_or_default().len() as u64;
    let (consistent_index, term) = (number(b"consistent_index")?, number(b"term")?);
    Ok(Recorded { consistent_index, term, members, reached, auth_enabled })
}

/// Returns the last revision that has a record, and the checksum of its changes; `None`: no record exists, or a compaction has
/// removed deletions of this revision. Reads its records and a few pages.
pub fn last_sum(file: impl ReadAt, bytes: u64, reached: Reached) -> Result<Option<(i64, u32)>, Unfit> {
    let Reached { last_record, compact_revision } = reached;
    let Some(last) = last_record.filter(|last| compact_revision.is_none_or(|compacted| compacted < *last)) else {
        return Ok(None);
    };
    let database = Database::open(file, bytes)?;
    let buckets = database.buckets()?;
    let mut sum = RevisionSum::default();
    database.each_from(bucket(&buckets, KEY)?, &last.to_be_bytes(), |key, value| {
        let rev = Rev::parse(key).ok_or_else(|| Unfit::bucket(KEY, "a revision cannot be read"))?;
        sum.add(rev.tombstone, value);
        Ok::<_, Unfit>(())
    })?;
    Ok(Some((last, sum.get())))
}

/// Returns the main revision, which a revision's key starts with (etcd: server/storage/mvcc/revision.go).
fn main_revision(name: &[u8], revision: &[u8]) -> Result<i64, Unfit> {
    let main = revision.first_chunk().map(|main| i64::from_be_bytes(*main)).filter(|main| *main >= 0);
    main.ok_or_else(|| Unfit::bucket(name, "a revision cannot be read"))
}

/// Entries of a bucket, or buckets of the root bucket.
pub(crate) type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// The bucket with all revisions of all keys.
pub(crate) const KEY: &[u8] = b"key";

/// Buckets that the small database holds completely: membership, progress and version. Of the other buckets it holds only the
/// names.
const COPIED: [&[u8]; 4] = [b"cluster", b"members", b"members_removed", b"meta"];

/// Reason for which the graft failed. It shows no fault of the database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unfit(String);

impl Unfit {
    /// Returns the reason with this text.
    pub fn new(why: impl Into<String>) -> Self {
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

/// Facts of the database that the graft extends.
#[derive(Debug)]
pub struct Stock {
    meta: Meta,
    buckets: Entries,
    /// Content of each bucket in the small database.
    put: BTreeMap<Vec<u8>, Entries>,
    /// The end of the bucket `key`.
    last: Last,
}

impl Stock {
    /// Reads the small parts of a database of this size.
    pub fn read(file: impl ReadAt, bytes: u64) -> Result<Self, Unfit> {
        let database = Database::open(file, bytes)?;
        let buckets = database.buckets()?;
        let last = database.last(bucket(&buckets, KEY)?)?;
        let mut put = BTreeMap::new();
        for (name, value) in &buckets {
            let entries = match name.as_slice() {
                // etcdutl reads the newest revision, and no value.
                KEY => last.leaf.last.clone().map(|newest| (newest, Vec::new())).into_iter().collect(),
                name if COPIED.contains(&name) => database.entries(value)?,
                _ => Entries::new(),
            };
            put.insert(name.clone(), entries);
        }
        Ok(Self { meta: *database.meta(), buckets, put, last })
    }

    /// Returns the small database, with etcd's sha256 at its end.
    pub fn small(&self) -> Result<Vec<u8>, Unfit> {
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

    /// Returns the pages that make etcdutl's changes in this database.
    pub fn graft(&self, scion: impl ReadAt, bytes: u64) -> Result<Grafted, Unfit> {
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
        let meta = write::next_meta(&self.meta, root, pages.next())?;
        Ok(Grafted { metas: write::metas(&meta)?, pages: pages.finish(), meta, buckets, changed, added })
    }

    /// Returns etcdutl's new entries in the bucket `key`, all after the existing ones.
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

    /// Returns a new root for the bucket `key`: the old content and these entries at the end.
    fn append(&self, pages: &mut Pages, added: &Entries) -> Result<u64, Unfit> {
        let Last { branches, leaf, .. } = &self.last;
        if leaf.id == 0 {
            // The whole bucket lies in the root bucket.
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
            // The branch below is replaced by itself with the new leaf, or by two branches.
            children.pop();
            children.append(&mut level);
            level = pages.branches(&children)?;
        }
        pages.over(level)
    }
}

/// A computed graft that is not written yet.
#[derive(Debug)]
pub struct Grafted {
    /// Pages to write first, after the high-water mark.
    pub pages: Vec<Page>,
    /// Pages to write last.
    pub metas: [Page; 2],
    meta: Meta,
    buckets: Entries,
    changed: BTreeMap<Vec<u8>, Entries>,
    added: Entries,
}

impl Grafted {
    /// Returns the offset of a page in the file.
    pub fn offset(&self, page: &Page) -> u64 {
        page.id.saturating_mul(self.meta.page_size as u64)
    }

    /// Returns the size of the whole database.
    pub fn bytes(&self) -> u64 {
        self.meta.bytes()
    }

    /// Reads the written file: compares every changed bucket, and the roots of all others.
    pub fn check(&self, stock: &Stock, file: impl ReadAt, bytes: u64) -> Result<(), Unfit> {
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
