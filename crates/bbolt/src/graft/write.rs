//! Writes bbolt's pages. Pure: builds the pages in memory, each with its number in the file.
//!
//! This file decides how entries are spread over pages: as bbolt does (`node.splitTwo`), with etcd's share of a page
//! (`bucket.FillPercent`). The callers decide the content.

use super::{Entries, Unfit};
use crate::scan::page::{BRANCH, ELEMENT, HEADER, LEAF, MAGIC, META, META_BYTES, Meta, NOT_STORED, VERSION, fnv1a};

/// bbolt never splits off fewer entries (`MinKeysPerPage`).
pub(crate) const LEAST: usize = 2;

/// etcd's share of a page, in tenths: its keys are written in order (etcd `batch_tx.go`).
const FILLED: usize = 9;

/// bbolt refuses more entries in one page.
pub(crate) const MOST: usize = 0xfffe;

/// A child of a branch: its first key, and its page.
pub(crate) type Child = (Vec<u8>, u64);

/// A page with its overflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Number of the page.
    pub id: u64,
    /// The page, in whole pages of the database.
    pub bytes: Vec<u8>,
}

/// Pages with consecutive numbers.
#[derive(Debug)]
pub(crate) struct Pages {
    size: usize,
    next: u64,
    made: Vec<Page>,
}

impl Pages {
    /// Starts with this number.
    pub(crate) fn new(size: usize, next: u64) -> Self {
        Self { size, next, made: Vec::new() }
    }

    /// Returns the number after the last.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn finish(self) -> Vec<Page> {
        self.made
    }

    /// Returns the pages that were written since the last call.
    pub(crate) fn take_written(&mut self) -> Vec<Page> {
        std::mem::take(&mut self.made)
    }

    /// Writes a whole bucket; returns its root page. `flags` are those of every entry.
    pub(crate) fn tree(&mut self, entries: &Entries, flags: u32) -> Result<u64, Unfit> {
        let leaves = self.leaves(entries, flags)?;
        self.over(leaves)
    }

    /// Writes leaves with these entries, at least one.
    pub(super) fn leaves(&mut self, entries: &Entries, flags: u32) -> Result<Vec<Child>, Unfit> {
        let entries: Vec<(&[u8], &[u8])> = entries.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        let mut leaves = Vec::new();
        for part in split(&entries, self.size, |(key, value)| key.len() + value.len()) {
            leaves.push(self.leaf(part, flags)?);
        }
        Ok(leaves)
    }

    /// Writes one leaf with these entries.
    pub(crate) fn leaf(&mut self, entries: &[(&[u8], &[u8])], flags: u32) -> Result<Child, Unfit> {
        let (mut table, mut data) = (Vec::new(), Vec::new());
        for (index, (key, value)) in entries.iter().enumerate() {
            let position = (entries.len() - index) * ELEMENT + data.len();
            for number in [flags, short(position)?, short(key.len())?, short(value.len())?] {
                table.extend_from_slice(&number.to_le_bytes());
            }
            data.extend_from_slice(key);
            data.extend_from_slice(value);
        }
        let first = entries.first().map(|(key, _)| key.to_vec()).unwrap_or_default();
        Ok((first, self.page(LEAF, entries.len(), &table, &data)?))
    }

    /// Writes branches with these children, at least one.
    pub(super) fn branches(&mut self, children: &[Child]) -> Result<Vec<Child>, Unfit> {
        split(children, self.size, |(key, _)| key.len()).into_iter().map(|part| self.branch(part)).collect()
    }

    /// Writes one branch with these children.
    pub(crate) fn branch(&mut self, children: &[Child]) -> Result<Child, Unfit> {
        let (mut table, mut data) = (Vec::new(), Vec::new());
        for (index, (key, child)) in children.iter().enumerate() {
            let position = (children.len() - index) * ELEMENT + data.len();
            for number in [short(position)?, short(key.len())?] {
                table.extend_from_slice(&number.to_le_bytes());
            }
            table.extend_from_slice(&child.to_le_bytes());
            data.extend_from_slice(key);
        }
        let first = children.first().map(|(key, _)| key.clone()).unwrap_or_default();
        Ok((first, self.page(BRANCH, children.len(), &table, &data)?))
    }

    /// Returns the page above all of these: the only page, or the topmost of new branches.
    pub(super) fn over(&mut self, mut level: Vec<Child>) -> Result<u64, Unfit> {
        // Each branch has at least two children, so every level has fewer pages.
        while level.len() > 1 {
            level = self.branches(&level)?;
        }
        level.pop().map(|(_, id)| id).ok_or_else(|| Unfit::new("there is no page to begin with"))
    }

    fn page(&mut self, kind: u16, count: usize, table: &[u8], data: &[u8]) -> Result<u64, Unfit> {
        let id = self.next;
        let length = HEADER + table.len() + data.len();
        let span = length.div_ceil(self.size).max(1);
        let count = u16::try_from(count).ok().filter(|count| usize::from(*count) <= MOST);
        let count = count.ok_or_else(|| Unfit::page(id, "would have too many entries"))?;
        let mut bytes = Vec::with_capacity(span * self.size);
        bytes.extend_from_slice(&id.to_le_bytes());
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.extend_from_slice(&short(span - 1)?.to_le_bytes());
        bytes.extend_from_slice(table);
        bytes.extend_from_slice(data);
        bytes.resize(span * self.size, 0);
        self.next += span as u64;
        self.made.push(Page { id, bytes });
        Ok(id)
    }
}

fn short(number: usize) -> Result<u32, Unfit> {
    u32::try_from(number).map_err(|_| Unfit::new("an entry is too long for a page"))
}

/// Splits entries into pages: never fewer than [`LEAST`] per page. A page with few entries may be larger than one page (it gets
/// overflow pages).
fn split<T>(mut items: &[T], size: usize, bytes: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let mut parts = Vec::new();
    loop {
        let whole = items.iter().fold(HEADER, |sum, item| sum + ELEMENT + bytes(item));
        if items.len() <= 2 * LEAST || whole < size {
            parts.push(items);
            return parts;
        }
        let threshold = filled(size);
        let (mut at, mut sum) = (0, HEADER);
        for (index, item) in items.iter().take(items.len() - LEAST).enumerate() {
            at = index;
            let more = ELEMENT + bytes(item);
            if index >= LEAST && sum + more > threshold {
                break;
            }
            sum += more;
        }
        let (part, rest) = items.split_at(at);
        parts.push(part);
        items = rest;
    }
}

/// Returns the bytes of a page that etcd fills.
pub(crate) const fn filled(size: usize) -> usize {
    size / 10 * FILLED
}

/// Returns a bucket's value for the root bucket.
pub(crate) fn header(root: u64, sequence: u64) -> Vec<u8> {
    [root.to_le_bytes(), sequence.to_le_bytes()].concat()
}

/// Returns the meta page of the next state: this root, without the list of free pages. A member's next transaction has an odd
/// number, and overwrites the page of the older of the two written ones (bbolt `meta.write`).
pub(crate) fn next_meta(before: &Meta, root: u64, high_water: u64) -> Result<Meta, Unfit> {
    let txid = (before.txid / 2).checked_add(1).and_then(|half| half.checked_mul(2));
    let txid = txid.ok_or_else(|| Unfit::new("there are no more transaction numbers"))?;
    Ok(Meta { root, freelist: None, high_water, txid, ..*before })
}

/// Returns both meta pages of a database, the first being the newer, as bbolt writes them in a snapshot (`Tx.WriteTo`).
pub(crate) fn metas(meta: &Meta) -> Result<[Page; 2], Unfit> {
    let before = meta.txid.checked_sub(1).ok_or_else(|| Unfit::new("there is no transaction before the first"))?;
    let page_size = short(meta.page_size)?;
    Ok([(0, meta.txid), (1, before)].map(|(id, txid): (u64, u64)| {
        let mut body = Vec::with_capacity(META_BYTES);
        for number in [MAGIC, VERSION, page_size, 0] {
            body.extend_from_slice(&number.to_le_bytes());
        }
        for number in [meta.root, meta.sequence, meta.freelist.unwrap_or(NOT_STORED), meta.high_water, txid] {
            body.extend_from_slice(&number.to_le_bytes());
        }
        let sum = fnv1a(&body);
        let mut bytes = Vec::with_capacity(meta.page_size);
        bytes.extend_from_slice(&id.to_le_bytes());
        bytes.extend_from_slice(&META.to_le_bytes());
        bytes.extend_from_slice(&[0; 6]);
        bytes.append(&mut body);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.resize(meta.page_size, 0);
        Page { id, bytes }
    }))
}
