//! The role of each byte of a sound database: a bbolt reader of its own, which trusts the file and panics on errors.

use std::collections::HashMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Role {
    /// A page that is not in use.
    Free,
    /// A page's end, behind its last element.
    Padding,
    /// The meta page that counts. Without it the older one counts, which is equal in a snapshot.
    NewerMeta,
    /// The meta page that would count only without the newer one.
    OlderMeta,
    /// Headers, elements, branch keys, bucket headers, names of buckets.
    Structure,
    /// A bucket's sequence number, which etcd does not use.
    Sequence,
    /// A record that HashKV covers.
    Covered,
    /// A record that HashKV omits.
    LeftOut,
    /// The name of a bucket other than `key`, or of an entry in one.
    OtherName,
    /// A value in a bucket other than `key`.
    OtherValue,
}

fn number(bytes: &[u8], at: usize, length: usize) -> usize {
    bytes[at..at + length].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

pub(crate) struct Map<'a> {
    bytes: &'a [u8],
    size: usize,
    pub(crate) roles: Vec<Role>,
    /// Records of `key`: offsets, revision, tombstone, key.
    records: Vec<(usize, usize, u64, bool, Vec<u8>)>,
}

/// The role of every byte; `compact`: the compact revision.
pub(crate) fn roles(bytes: &[u8], compact: i64) -> Vec<Role> {
    let size = number(bytes, 24, 4);
    let mut map = Map { bytes, size, roles: vec![Role::Free; bytes.len()], records: Vec::new() };
    let newer = usize::from(number(bytes, size + 64, 8) > number(bytes, 64, 8));
    for (meta, role) in [(newer, Role::NewerMeta), (1 - newer, Role::OlderMeta)] {
        map.set(meta * size, size, Role::Padding);
        map.set(meta * size, 80, role);
    }
    map.page(number(bytes, newer * size + 32, 8), "");
    let records = std::mem::take(&mut map.records);
    let newest: HashMap<&[u8], usize> = records.iter().map(|record| (record.4.as_slice(), record.0)).collect();
    let exists = records.iter().any(|record| newest[record.4.as_slice()] == record.0 && !record.3);
    for (start, length, main, tombstone, key) in &records {
        let main = i64::try_from(*main).unwrap();
        let kept = !exists || newest[key.as_slice()] == *start && !tombstone;
        if main <= compact && (!kept || main == compact && *tombstone) {
            map.set(*start, *length, Role::LeftOut);
        }
    }
    map.roles
}

impl Map<'_> {
    fn set(&mut self, start: usize, length: usize, role: Role) {
        self.roles[start..start + length].fill(role);
    }

    fn page(&mut self, id: usize, bucket: &str) {
        let at = id * self.size;
        assert_eq!(number(self.bytes, at, 8), id);
        let length = (number(self.bytes, at + 12, 4) + 1) * self.size;
        self.set(at, length, Role::Padding);
        self.content(at, bucket);
    }

    fn content(&mut self, at: usize, bucket: &str) {
        let (flags, count) = (number(self.bytes, at + 8, 2), number(self.bytes, at + 10, 2));
        self.set(at, 16 * (count + 1), Role::Structure);
        for element in (1..=count).map(|i| at + 16 * i) {
            if flags == 1 {
                let key = element + number(self.bytes, element, 4);
                self.set(key, number(self.bytes, element + 4, 4), Role::Structure);
                self.page(number(self.bytes, element + 8, 8), bucket);
                continue;
            }
            let key = element + number(self.bytes, element + 4, 4);
            let (key_length, length) = (number(self.bytes, element + 8, 4), number(self.bytes, element + 12, 4));
            let value = key + key_length;
            if number(self.bytes, element, 4) == 1 {
                let name = String::from_utf8(self.bytes[key..value].to_vec()).unwrap();
                self.set(key, key_length, if name == "key" { Role::Structure } else { Role::OtherName });
                self.set(value, 8, Role::Structure);
                self.set(value + 8, 8, Role::Sequence);
                match number(self.bytes, value, 8) {
                    0 => self.content(value + 16, &name),
                    root => self.page(root, &name),
                }
            } else if bucket == "key" {
                self.set(key, key_length + length, Role::Covered);
                let main = u64::from_be_bytes(self.bytes[key..key + 8].try_into().unwrap());
                let user_key = if length == 0 {
                    Vec::new()
                } else {
                    assert_eq!(self.bytes[value], 0x0a);
                    let n = usize::from(self.bytes[value + 1]);
                    assert!(n < 128);
                    self.bytes[value + 2..value + 2 + n].to_vec()
                };
                self.records.push((key, key_length + length, main, key_length == 18, user_key));
            } else {
                self.set(key, key_length, Role::OtherName);
                self.set(value, length, Role::OtherValue);
            }
        }
    }
}
