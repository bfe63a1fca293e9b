//! The right edge of a bucket's tree: takes entries in order and writes full pages, so that only one path is in memory.
//!
//! This file decides where a page ends: at etcd's share of a page, as in bbolt's own split (`node.splitTwo`), and never with
//! fewer than two children in a branch. It decides nothing about the content.

use crate::graft::Unfit;
use crate::graft::read::Last;
use crate::graft::write::{Child, LEAST, MOST, Pages, filled};
use crate::scan::page::{ELEMENT, HEADER};

/// The unwritten leaf and branches at the end of a bucket.
#[derive(Debug)]
pub(super) struct Edge {
    leaf: OpenLeaf,
    /// Children of the unwritten branches, from the bottom.
    levels: Vec<Vec<Child>>,
    /// Bytes of a page that etcd fills.
    filled: usize,
}

/// Entries of the unwritten leaf.
#[derive(Debug, Default)]
struct OpenLeaf {
    data: Vec<u8>,
    /// For each entry: ends of its key and its value in `data`.
    ends: Vec<(usize, usize)>,
}

impl OpenLeaf {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.data.extend_from_slice(key);
        let key_end = self.data.len();
        self.data.extend_from_slice(value);
        self.ends.push((key_end, self.data.len()));
    }

    /// Returns the size of the page with one more entry of this length.
    fn bytes_with(&self, more: usize) -> usize {
        HEADER + (self.ends.len() + 1) * ELEMENT + self.data.len() + more
    }

    fn write(&mut self, pages: &mut Pages) -> Result<Child, Unfit> {
        let (mut entries, mut rest): (Vec<(&[u8], &[u8])>, _) = (Vec::with_capacity(self.ends.len()), &self.data[..]);
        let mut at = 0;
        for (key_end, value_end) in &self.ends {
            let (key, after) = rest.split_at_checked(key_end - at).unwrap_or_default();
            let (value, after) = after.split_at_checked(value_end - key_end).unwrap_or_default();
            entries.push((key, value));
            (rest, at) = (after, *value_end);
        }
        let leaf = pages.leaf(&entries, 0)?;
        self.data.clear();
        self.ends.clear();
        Ok(leaf)
    }
}

impl Edge {
    /// Begins a new bucket.
    pub(super) fn new(page_size: usize) -> Self {
        Self { leaf: OpenLeaf::default(), levels: Vec::new(), filled: filled(page_size) }
    }

    /// Continues a bucket after its last entry. Its last leaf stays as it is.
    pub(super) fn after(last: Last, page_size: usize) -> Self {
        let mut edge = Self::new(page_size);
        let Last { branches, leaf, inline } = last;
        if leaf.id == 0 {
            // The bucket lies in the root bucket, in less than one page.
            for (key, value) in &inline {
                edge.leaf.add(key, value);
            }
        } else if branches.is_empty() {
            edge.levels.extend(leaf.first.map(|first| vec![(first, leaf.id)]));
        } else {
            edge.levels.extend(branches.into_iter().rev());
            // The last child of an upper branch is the branch below, which is replaced.
            for upper in edge.levels.iter_mut().skip(1) {
                upper.pop();
            }
        }
        edge
    }

    /// Adds an entry, whose key is above all others.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8], pages: &mut Pages) -> Result<(), Unfit> {
        let entries = self.leaf.ends.len();
        let is_full = self.leaf.bytes_with(key.len() + value.len()) > self.filled || entries >= MOST;
        if entries >= LEAST && is_full {
            self.end_leaf(pages)?;
        }
        self.leaf.add(key, value);
        Ok(())
    }

    fn end_leaf(&mut self, pages: &mut Pages) -> Result<(), Unfit> {
        let leaf = self.leaf.write(pages)?;
        self.push_child(0, leaf, pages)
    }

    /// Adds a child to the unwritten branch of a level. A full branch is written without its last child, so that the next one
    /// has two.
    fn push_child(&mut self, mut level: usize, mut child: Child, pages: &mut Pages) -> Result<(), Unfit> {
        loop {
            if self.levels.len() <= level {
                self.levels.push(Vec::new());
            }
            let Some(children) = self.levels.get_mut(level) else { return Ok(()) };
            let sizes = children.iter().chain([&child]).map(|(key, _)| ELEMENT + key.len());
            let is_full = HEADER + sizes.sum::<usize>() > self.filled || children.len() >= MOST;
            if !is_full || children.len() <= LEAST {
                children.push(child);
                return Ok(());
            }
            let kept = children.pop();
            let branch = pages.branch(children)?;
            children.clear();
            children.extend(kept);
            children.push(child);
            (level, child) = (level + 1, branch);
        }
    }

    /// Writes the rest, and returns the root page of the bucket; without an entry this is an empty leaf.
    pub(super) fn finish(mut self, pages: &mut Pages) -> Result<u64, Unfit> {
        self.end_leaf(pages)?;
        let mut level = 0;
        loop {
            let is_top = level + 1 == self.levels.len();
            let children = self.levels.get_mut(level).map(std::mem::take).unwrap_or_default();
            if let [(_, root)] = children[..]
                && is_top
            {
                return Ok(root);
            }
            let branch = pages.branch(&children)?;
            level += 1;
            self.push_child(level, branch, pages)?;
        }
    }
}
