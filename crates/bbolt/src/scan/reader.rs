//! Reads a database in a file with random access: the same proof as for a stream, HashKV at any revision, the records.
//!
//! The reader holds one page at a time, and summaries only of pages in the tree, so a database that exceeds a stream's budget
//! may fit here. It computes HashKV a second way, in two passes and without combining CRCs.

use std::collections::HashMap;
use std::io;

use crc_fast::{CrcAlgorithm, Digest};

use super::budget::Meter;
use super::contents::Contents;
use super::page::{self, Header, Kind, LARGEST, META_BYTES, Meta};
use super::proof::{HashKv, Proven, ScanError};
use super::prove::{Before, NEVER, entries, prove, whole};
use super::records::{Fingerprints, Records, Rev};
use super::summary::{Source, Summary, branch};
use super::tree::{Leaf, Tree};
use super::wire::KeyValue;

/// Bytes with random access.
pub trait ReadAt {
    /// Fills the buffer from this offset, or fails.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;
}

impl ReadAt for std::fs::File {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, buffer, at)
    }
}

impl ReadAt for [u8] {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let from = usize::try_from(at).ok().and_then(|at| self.get(at..)).and_then(|from| from.get(..buffer.len()));
        buffer.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl<R: ReadAt + ?Sized> ReadAt for &R {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        (**self).read_at(buffer, at)
    }
}

impl<R: ReadAt + ?Sized> ReadAt for std::sync::Arc<R> {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        (**self).read_at(buffer, at)
    }
}

/// One revision of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The revision.
    pub main: i64,
    /// Index among the changes of one transaction.
    pub sub: i64,
    /// Whether the key was deleted at this revision.
    pub tombstone: bool,
    /// The key; empty for a revision bump.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The revision at which the key was created.
    pub create_revision: i64,
    /// Number of writes to the key since.
    pub version: i64,
    /// Lease ID; 0: none.
    pub lease: i64,
}

/// Kind of the requested names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Users.
    Users,
    /// Roles.
    Roles,
}

/// A database in a file.
#[derive(Debug)]
pub struct Reader<R> {
    pages: Pages<R>,
    bytes: u64,
    budget: usize,
}

/// Receives a record: its revision, its bytes as key and value, and the decoded value.
type Show<'s> = &'s mut dyn FnMut(Rev, &[u8], &[u8], KeyValue<'_>);

/// The pages of a file.
#[derive(Debug)]
struct Pages<R> {
    file: R,
    meta: Meta,
    budget: usize,
    fingerprints: Fingerprints,
    page: Vec<u8>,
}

impl<R: ReadAt> Reader<R> {
    /// Opens a database of this size (without etcd's trailer), with a memory budget.
    pub fn open(file: R, bytes: u64, budget_bytes: usize) -> Result<Self, ScanError> {
        let meta = Meta::read(&file, bytes)?;
        whole(&meta, bytes)?;
        let pages = Pages { file, meta, budget: budget_bytes, fingerprints: Fingerprints::default(), page: Vec::new() };
        Ok(Self { pages, bytes, budget: budget_bytes })
    }

    /// Returns the size up to the high-water mark, which etcd calls the size of its database. The file may be longer.
    pub fn used_bytes(&self) -> u64 {
        self.pages.meta.bytes()
    }

    /// Checks the whole tree and returns its facts, as [`super::Scan`] does. The compact revision is the file's own, unless the
    /// caller gives the one of a HashKV to compare with.
    pub fn prove(&mut self, compact_revision: Option<i64>) -> Result<Proven, ScanError> {
        let compact = match compact_revision {
            Some(compact) => compact,
            None => self.compact_revision()?,
        };
        let records = Records::new(Some(compact), self.pages.fingerprints.clone());
        let before = Before { meta: self.pages.meta, bytes: self.bytes, compact: Some(compact) };
        prove(&mut self.pages, before, records, &mut Meter::new(self.budget))
    }

    /// Returns the file's compact revision, scheduled or finished; -1 for none.
    pub fn compact_revision(&mut self) -> Result<i64, ScanError> {
        let mut contents = Contents::default();
        let over = ScanError::OverBudget { budget: self.budget };
        self.walk(b"meta", &mut |bucket, leaf| {
            entries(leaf, bucket, |key, value| contents.add(b"meta", key, value, &mut Meter::new(usize::MAX)), &over)
        })?;
        Ok(contents.compact_revision().unwrap_or(NEVER))
    }

    /// Returns etcd's HashKV at a revision and a compact revision, if its records still exist: the revision must not be below
    /// the file's compact revision. Also works during an unfinished compaction: records that it will delete do not count, as
    /// long as any key exists.
    pub fn hash_kv(&mut self, revision: i64, compact_revision: i64) -> Result<HashKv, ScanError> {
        let newest = self.newest(revision)?;
        let nothing_exists = newest.values().all(|rev| rev.tombstone);
        let fingerprints = self.pages.fingerprints.clone();
        let mut hash = Digest::new(CrcAlgorithm::Crc32Iscsi);
        hash.update(b"key");
        self.each(&mut |rev, key, bytes, kv| {
            let skipped = rev.main > revision
                || rev.main == compact_revision && rev.tombstone
                || rev.main <= compact_revision
                    && !nothing_exists
                    && (rev.tombstone || newest.get(&fingerprints.hash_key(kv.key)) != Some(&rev));
            if !skipped {
                hash.update(key);
                hash.update(bytes);
            }
        })?;
        // The algorithm has 32 bits.
        let hash = u32::try_from(hash.finalize()).unwrap_or_default();
        Ok(HashKv { hash, revision, compact_revision })
    }

    /// Passes every record to `show`, by revision.
    pub fn records(&mut self, mut show: impl FnMut(Record<'_>)) -> Result<(), ScanError> {
        self.each(&mut |rev, _, _, kv| show(record(rev, kv)))
    }

    /// Passes the keys that exist at a revision to `show`, each with its newest record there, by revision; without the record
    /// of a revision bump.
    pub fn live(&mut self, revision: i64, mut show: impl FnMut(Record<'_>)) -> Result<(), ScanError> {
        let newest = self.newest(revision)?;
        let fingerprints = self.pages.fingerprints.clone();
        self.each(&mut |rev, _, _, kv| {
            if !rev.tombstone && !kv.key.is_empty() && newest.get(&fingerprints.hash_key(kv.key)) == Some(&rev) {
                show(record(rev, kv));
            }
        })
    }

    /// Returns the names of users or roles, and none of their other data.
    pub fn names(&mut self, whose: Names) -> Result<Vec<Vec<u8>>, ScanError> {
        let bucket: &[u8] = match whose {
            Names::Users => b"authUsers",
            Names::Roles => b"authRoles",
        };
        let over = ScanError::OverBudget { budget: self.budget };
        let (mut names, mut meter) = (Vec::new(), Meter::new(self.budget));
        self.walk(bucket, &mut |bucket, leaf| {
            let take = |name: &[u8], _: &[u8]| {
                meter.take(name.len().saturating_add(size_of::<Vec<u8>>()))?;
                names.push(name.to_vec());
                Ok(())
            };
            entries(leaf, bucket, take, &over)
        })?;
        Ok(names)
    }

    /// Returns each key's newest record up to a revision.
    fn newest(&mut self, revision: i64) -> Result<HashMap<u64, Rev>, ScanError> {
        let budget = self.budget;
        let fingerprints = self.pages.fingerprints.clone();
        let (mut newest, mut over) = (HashMap::new(), false);
        self.each(&mut |rev, _, _, kv| {
            if rev.main <= revision && !over {
                newest.insert(fingerprints.hash_key(kv.key), rev);
                // An entry and its control byte; while the table doubles, the old half exists too.
                over = newest.capacity() > budget / (size_of::<(u64, Rev)>() + 1) / 3 * 2;
            }
        })?;
        if over { Err(ScanError::OverBudget { budget }) } else { Ok(newest) }
    }

    /// Passes every record to `show`.
    fn each(&mut self, show: Show<'_>) -> Result<(), ScanError> {
        self.walk(b"key", &mut |bucket, leaf| {
            let Leaf::Raw { id, count, page } = leaf else {
                return Ok(());
            };
            for element in page::leaf(page, count) {
                let element = element.map_err(|what| ScanError::Page { page: id, what })?;
                let rev = Rev::parse(element.key).ok_or_else(|| bucket.error("a key is no revision"))?;
                let kv = KeyValue::parse(element.value);
                let kv = kv.map_err(|_| bucket.error("there is a record that etcd cannot read"))?;
                show(rev, element.key, element.value, kv);
            }
            Ok(())
        })
    }

    /// Passes the leaves of one bucket to `visit`.
    fn walk(
        &mut self,
        name: &[u8],
        visit: &mut dyn FnMut(&super::tree::Bucket, Leaf<'_>) -> Result<(), ScanError>,
    ) -> Result<(), ScanError> {
        let fingerprints = self.pages.fingerprints.clone();
        let mut meter = Meter::new(self.budget);
        let mut tree = Tree::new(self.pages.meta, &mut meter)?;
        for bucket in tree.buckets(&mut self.pages, &fingerprints, &mut meter)? {
            if bucket.name == name {
                tree.bucket(&mut self.pages, &fingerprints, &bucket, &mut |leaf| visit(&bucket, leaf))?;
            }
        }
        Ok(())
    }
}

impl Meta {
    /// Returns the meta page of a database of this size.
    pub(crate) fn read(file: &impl ReadAt, bytes: u64) -> Result<Self, ScanError> {
        let mut beginning = Vec::new();
        // Most databases have pages of 4 KiB.
        let meta = [16 << 10, LARGEST + META_BYTES].into_iter().find_map(|length| {
            let length = usize::try_from(bytes).map_or(length, |bytes| length.min(bytes));
            beginning.resize(length, 0);
            file.read_at(&mut beginning, 0).map(|()| Self::choose(&beginning)).transpose()
        });
        meta.transpose().map_err(|error| io_error(&error))?.ok_or(ScanError::NoMeta { bytes })
    }

    /// Reads a page of one of these kinds with its overflow into a buffer. `None`: that exceeds `most` bytes.
    pub(crate) fn page(
        &self,
        file: &impl ReadAt,
        id: u64,
        kinds: &[Kind],
        most: usize,
        page: &mut Vec<u8>,
    ) -> Result<Option<Header>, ScanError> {
        let error = |what| ScanError::Page { page: id, what };
        let size = self.page_size;
        let at = id.checked_mul(size as u64).filter(|_| id < self.high_water);
        let at = at.ok_or_else(|| error("is pointed to and out of range"))?;
        page.resize(size, 0);
        file.read_at(page, at).map_err(|error| io_error(&error))?;
        let header = Header::parse(page).filter(|header| header.id == id && kinds.contains(&header.kind));
        let header = header.ok_or_else(|| error("is part of the tree and no valid page"))?;
        if header.span > self.high_water - id {
            return Err(error("goes on beyond the high-water mark"));
        }
        let length = usize::try_from(header.span).ok().and_then(|span| span.checked_mul(size));
        let Some(length) = length.filter(|length| *length <= most) else { return Ok(None) };
        page.resize(length, 0);
        if let Some((_, rest)) = page.split_at_mut_checked(size) {
            file.read_at(rest, at + size as u64).map_err(|error| io_error(&error))?;
        }
        Ok(Some(header))
    }
}

fn record(rev: Rev, kv: KeyValue<'_>) -> Record<'_> {
    let Rev { main, sub, tombstone } = rev;
    let KeyValue { key, value, create_revision, version, lease, .. } = kv;
    Record { main, sub, tombstone, key, value, create_revision, version, lease }
}

fn io_error(error: &io::Error) -> ScanError {
    ScanError::Io(error.to_string())
}

impl<R: ReadAt> Pages<R> {
    /// Reads a page with its overflow into the buffer.
    fn read(&mut self, id: u64, kinds: &[Kind]) -> Result<Header, ScanError> {
        let header = self.meta.page(&self.file, id, kinds, self.budget / 2, &mut self.page)?;
        header.ok_or(ScanError::OverBudget { budget: self.budget })
    }
}

impl<R: ReadAt> Source for Pages<R> {
    fn page(&mut self, id: u64) -> Result<Summary<'_>, ScanError> {
        let header = self.read(id, &[Kind::Branch, Kind::Leaf])?;
        if !page::fills(&self.page, &header) {
            return Err(ScanError::Page { page: id, what: "is part of the tree and no valid page" });
        }
        let Header { kind, count, span, .. } = header;
        if kind == Kind::Leaf {
            return Ok(Summary::Leaf { span, count, page: &self.page });
        }
        let branch = branch(&self.page, count, &self.fingerprints);
        let (first, children, keys) = branch.map_err(|what| ScanError::Page { page: id, what })?;
        Ok(Summary::Branch { span, first, children, keys })
    }

    fn freelist(&mut self, id: u64) -> Result<(u64, Vec<u64>), ScanError> {
        let header = self.read(id, &[Kind::Freelist])?;
        let ids = page::freelist(&self.page, header.count).map_err(|what| ScanError::Page { page: id, what })?;
        Ok((header.span, ids.collect()))
    }
}
