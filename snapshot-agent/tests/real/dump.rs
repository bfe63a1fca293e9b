//! The whole contents of a bbolt file, read in the plainest way, without the agent's own readers: tests compare the output of two
//! engines with it.

use std::collections::BTreeMap;
use std::path::Path;

use crate::bolt::Bolt;

/// Buckets by name, with their entries.
pub(crate) type Dump = BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>>;

fn number(bytes: &[u8], at: usize, length: usize) -> usize {
    bytes[at..at + length].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}

struct File {
    bytes: Vec<u8>,
    size: usize,
}

impl File {
    fn page(&self, id: usize) -> &[u8] {
        let at = id * self.size;
        &self.bytes[at..at + (number(&self.bytes, at + 12, 4) + 1) * self.size]
    }

    /// Entries below a page, in order.
    fn entries(&self, page: &[u8], found: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
        for element in (0..number(page, 10, 2)).map(|i| 16 + 16 * i) {
            let field = |i: usize| number(page, element + 4 * i, 4);
            if number(page, 8, 2) == 1 {
                self.entries(self.page(number(page, element + 8, 8)), found);
            } else {
                let at = element + field(1);
                let (key, value) = page[at..at + field(2) + field(3)].split_at(field(2));
                assert!(found.insert(key.to_vec(), value.to_vec()).is_none(), "a key is there twice");
            }
        }
    }
}

/// The contents of a file, without etcd's hash at its end.
pub(crate) fn dump(path: &Path) -> Dump {
    let bytes = std::fs::read(path).unwrap();
    let size = number(&bytes, 24, 4);
    let file = File { bytes, size };
    let txid = |meta: usize| number(&file.bytes, meta * size + 64, 8);
    let meta = usize::from(txid(1) > txid(0)) * size;
    let mut buckets = BTreeMap::new();
    file.entries(file.page(number(&file.bytes, meta + 32, 8)), &mut buckets);
    let bucket = |(name, value): (Vec<u8>, Vec<u8>)| {
        let mut entries = BTreeMap::new();
        match number(&value, 0, 8) {
            0 => file.entries(&value[16..], &mut entries),
            root => file.entries(file.page(root), &mut entries),
        }
        (name, entries)
    };
    buckets.into_iter().map(bucket).collect()
}

/// Writes the same contents as a file with pages of another size.
pub(crate) fn with_pages(dump: &Dump, size: usize) -> Vec<u8> {
    let mut bolt = Bolt::new(size);
    let mut roots = Vec::new();
    for (name, entries) in dump {
        let entries: Vec<_> = entries.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        roots.push((std::str::from_utf8(name).unwrap(), bolt.tree(&entries, |_| ())));
    }
    bolt.finish(&roots, &[])
}
