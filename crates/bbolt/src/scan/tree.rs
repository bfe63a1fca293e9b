//! Walks a bbolt tree and checks it: pages in range, each used once, keys in order, and every branch's keys equal to the first
//! keys of its children.
//!
//! The walk does not recurse, and it ends, because it takes each page once.

use std::hash::{DefaultHasher, Hasher as _};

use super::budget::Meter;
use super::page::{self, Header, Kind, Meta};
use super::proof::ScanError;
use super::records::{Fingerprints, Revs};
use super::summary::{Source, Summary, add_key};

/// A tree of 4 KiB pages over 2^63 records would be less deep.
const MAX_DEPTH: usize = 64;
/// Maximum number of children of all branches on the path; bbolt splits a branch that exceeds a page.
const MAX_WIDTH: usize = 1 << 18;
/// etcd has ten buckets.
const MAX_BUCKETS: usize = 1024;

/// A leaf in the walk; leaves come in the order of their keys.
#[derive(Clone, Copy, Debug)]
pub(super) enum Leaf<'a> {
    /// Summarized records of the bucket `key`.
    Records(Revs),
    /// A leaf with its bytes.
    Raw { id: u64, count: usize, page: &'a [u8] },
}

/// A bucket in the root bucket.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    pub(super) name: Vec<u8>,
    root: u64,
    /// The only page of a small bucket, inline in its parent's value.
    inline: Vec<u8>,
    /// The page that holds the bucket.
    parent: u64,
}

impl Bucket {
    pub(super) fn error(&self, what: &'static str) -> ScanError {
        ScanError::Bucket { bucket: String::from_utf8_lossy(&self.name).into_owned(), what }
    }
}

/// First and last key of a leaf; `None`: the leaf is empty.
type Ends<'a> = Option<(&'a [u8], &'a [u8])>;

/// Pages that the walks have used.
#[derive(Debug)]
pub(super) struct Tree {
    meta: Meta,
    used: Vec<u64>,
    count: u64,
}

/// A branch on the path.
struct Frame {
    page: u64,
    children: std::vec::IntoIter<u64>,
    keys: u64,
    found: DefaultHasher,
}

type Visit<'v> = &'v mut dyn FnMut(Leaf<'_>) -> Result<(), ScanError>;

impl Tree {
    /// The file must be at least as long as the meta page records.
    pub(super) fn new(meta: Meta, meter: &mut Meter) -> Result<Self, ScanError> {
        let over = ScanError::OverBudget { budget: meter.limit() };
        let words = usize::try_from(meta.high_water.div_ceil(64)).map_err(|_| over.clone())?;
        meter.take(words.saturating_mul(8)).map_err(|_| over)?;
        let mut tree = Self { meta, used: vec![0; words], count: 0 };
        tree.take(0, 2)?;
        Ok(tree)
    }

    /// Returns the number of used pages.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    fn take(&mut self, page: u64, span: u64) -> Result<(), ScanError> {
        let end = page.checked_add(span).filter(|end| *end <= self.meta.high_water);
        let end = end.ok_or(ScanError::Page { page, what: "goes on beyond the high-water mark" })?;
        for page in page..end {
            let word = usize::try_from(page / 64).ok().and_then(|word| self.used.get_mut(word));
            let word = word.ok_or(ScanError::Page { page, what: "is beyond the high-water mark" })?;
            let bit = 1 << (page % 64);
            if *word & bit != 0 {
                return Err(ScanError::Page { page, what: "is used twice" });
            }
            *word |= bit;
        }
        self.count += span;
        Ok(())
    }

    /// Returns the buckets in the root bucket.
    pub(super) fn buckets(
        &mut self,
        source: &mut impl Source,
        fingerprints: &Fingerprints,
        meter: &mut Meter,
    ) -> Result<Vec<Bucket>, ScanError> {
        let over = ScanError::OverBudget { budget: meter.limit() };
        let mut buckets = Vec::new();
        self.walk(source, fingerprints, self.meta.root, &mut |leaf| {
            let Leaf::Raw { id: parent, count, page } = leaf else {
                return Err(ScanError::Page { page: 0, what: "leads to a root bucket of records" });
            };
            for element in page::leaf(page, count) {
                let element = element.map_err(|what| ScanError::Page { page: parent, what })?;
                let bucket = (element.flags == page::BUCKET).then(|| page::bucket(element.value)).flatten();
                let what = "is of the root bucket and has something that is no bucket";
                let (root, inline) = bucket.ok_or(ScanError::Page { page: parent, what })?;
                if buckets.len() == MAX_BUCKETS {
                    return Err(ScanError::Page { page: parent, what: "has too many buckets" });
                }
                let inline = if root == 0 { inline.to_vec() } else { Vec::new() };
                meter.take(element.key.len() + inline.len()).map_err(|_| over.clone())?;
                buckets.push(Bucket { name: element.key.to_vec(), root, inline, parent });
            }
            Ok(())
        })?;
        Ok(buckets)
    }

    /// Passes all leaves of a bucket to `visit`, in order.
    pub(super) fn bucket(
        &mut self,
        source: &mut impl Source,
        fingerprints: &Fingerprints,
        bucket: &Bucket,
        visit: Visit<'_>,
    ) -> Result<(), ScanError> {
        if bucket.root != 0 {
            return self.walk(source, fingerprints, bucket.root, visit);
        }
        // An inline page has no page number.
        let is_leaf = |header: &Header| header.kind == Kind::Leaf && header.span == 1 && header.id == 0;
        let header = Header::parse(&bucket.inline).filter(is_leaf);
        let header = header.ok_or_else(|| bucket.error("the page within its parent is no leaf"))?;
        let end = page::leaf_end(&bucket.inline, header.count);
        let end = end.map_err(|what| ScanError::Page { page: bucket.parent, what })?;
        // A lost count would look like an empty bucket: bbolt leaves no gap after the elements.
        if end != bucket.inline.len() {
            return Err(bucket.error("the page within its parent does not end with its elements"));
        }
        visit(Leaf::Raw { id: bucket.parent, count: header.count, page: &bucket.inline })
    }

    /// Passes all leaves below a page to `visit`, in order.
    fn walk(
        &mut self,
        source: &mut impl Source,
        fingerprints: &Fingerprints,
        root: u64,
        visit: Visit<'_>,
    ) -> Result<(), ScanError> {
        let mut frames: Vec<Frame> = Vec::new();
        let mut last = Vec::new();
        let mut next = Some(root);
        loop {
            // Down, to the next child, or up.
            let id = match (next.take(), frames.last_mut()) {
                (Some(id), _) => id,
                (None, None) => return Ok(()),
                (None, Some(frame)) => {
                    if let Some(child) = frame.children.next() {
                        child
                    } else {
                        if frame.found.finish() != frame.keys {
                            let what = "is a branch whose keys are not its children's first keys";
                            return Err(ScanError::Page { page: frame.page, what });
                        }
                        frames.pop();
                        continue;
                    }
                }
            };
            let error = |what| ScanError::Page { page: id, what };
            if !(2..self.meta.high_water).contains(&id) {
                return Err(error("is pointed to and out of range"));
            }
            let summary = source.page(id)?;
            let (Summary::Branch { span, .. } | Summary::Records { span, .. } | Summary::Leaf { span, .. }) = summary;
            self.take(id, span)?;
            let parent = frames.last_mut();
            match summary {
                Summary::Branch { first, children, keys, .. } => {
                    if let Some(parent) = parent {
                        add_key(&mut parent.found, first);
                    }
                    if frames.len() == MAX_DEPTH {
                        return Err(error("is too deep in the tree"));
                    }
                    if frames.iter().map(|frame| frame.children.len()).sum::<usize>() + children.len() > MAX_WIDTH {
                        return Err(error("has too many children"));
                    }
                    let found = fingerprints.list();
                    frames.push(Frame { page: id, children: children.into_iter(), keys, found });
                }
                Summary::Records { revs, .. } => {
                    in_order(parent, &mut last, revs.first.key().bytes(), revs.last.key().bytes()).map_err(error)?;
                    visit(Leaf::Records(revs))?;
                }
                Summary::Leaf { count, page, .. } => {
                    match ends(page, count).map_err(error)? {
                        Some((first, end)) => in_order(parent, &mut last, first, end).map_err(error)?,
                        None if parent.is_some() => return Err(error("is empty and not the only one")),
                        None => {}
                    }
                    visit(Leaf::Raw { id, count, page })?;
                }
            }
        }
    }

    /// Checks a stored list of free pages: every page is either used or free.
    pub(super) fn account(&mut self, source: &mut impl Source, meter: &mut Meter) -> Result<(), ScanError> {
        let Some(list) = self.meta.freelist else {
            return Ok(());
        };
        let (span, free) = source.freelist(list)?;
        self.take(list, span)?;
        let used = self.count;
        let bytes = free.len().saturating_mul(size_of::<u64>());
        meter.take(bytes).map_err(|_| ScanError::OverBudget { budget: meter.limit() })?;
        for page in free {
            self.take(page, 1)?;
        }
        meter.give(bytes);
        if self.count != self.meta.high_water {
            return Err(ScanError::Page { page: list, what: "does not list all pages that are not used" });
        }
        self.count = used;
        Ok(())
    }
}

/// Checks that keys rise from leaf to leaf; adds the first key to the branch above.
fn in_order(parent: Option<&mut Frame>, last: &mut Vec<u8>, first: &[u8], end: &[u8]) -> Result<(), page::Defect> {
    // No key is empty, so an empty key is below all others.
    if first <= last.as_slice() {
        return Err("has keys below those of the page before it");
    }
    if let Some(parent) = parent {
        add_key(&mut parent.found, first);
    }
    last.clear();
    last.extend_from_slice(end);
    Ok(())
}

/// Returns first and last key of a leaf, after a check of the whole leaf.
fn ends(page: &[u8], count: usize) -> Result<Ends<'_>, page::Defect> {
    let mut ends = None;
    for element in page::leaf(page, count) {
        let key = element?.key;
        ends = Some((ends.map_or(key, |(first, _)| first), key));
    }
    Ok(ends)
}
