//! Writes small bbolt files, sound and broken, without etcd.

#![allow(dead_code, clippy::cast_possible_truncation, reason = "tests know their numbers")]

pub(crate) struct Bolt {
    pub(crate) size: usize,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) type Entry = (Vec<u8>, Vec<u8>);

pub(crate) fn rev(main: i64, sub: i64, tombstone: bool) -> Vec<u8> {
    let mut key = main.to_be_bytes().to_vec();
    key.push(b'_');
    key.extend(sub.to_be_bytes());
    key.extend(tombstone.then_some(b't'));
    key
}

/// `mvccpb.KeyValue` of a key and a value.
pub(crate) fn key_value(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (tag, bytes) in [(0x0a, key), (0x2a, value)] {
        out.push(tag);
        let mut length = bytes.len();
        while length >= 128 {
            out.push((length % 128) as u8 | 128);
            length /= 128;
        }
        out.push(length as u8);
        out.extend(bytes);
    }
    out
}

pub(crate) fn header(id: u64, flags: u16, count: usize, overflow: u32) -> Vec<u8> {
    let mut out = id.to_le_bytes().to_vec();
    out.extend(flags.to_le_bytes());
    out.extend(u16::try_from(count).unwrap().to_le_bytes());
    out.extend(overflow.to_le_bytes());
    out
}

/// A leaf's body behind its header.
pub(crate) fn leaf_body(entries: &[Entry], flags: u32) -> Vec<u8> {
    let (mut table, mut data) = (Vec::<u8>::new(), Vec::<u8>::new());
    for (i, (key, value)) in entries.iter().enumerate() {
        let position = (entries.len() - i) * 16 + data.len();
        for number in [flags as usize, position, key.len(), value.len()] {
            table.extend(u32::try_from(number).unwrap().to_le_bytes());
        }
        data.extend(key);
        data.extend(value);
    }
    table.extend(data);
    table
}

pub(crate) fn branch_body(children: &[(Vec<u8>, u64)]) -> Vec<u8> {
    let (mut table, mut data) = (Vec::<u8>::new(), Vec::<u8>::new());
    for (i, (key, id)) in children.iter().enumerate() {
        let position = (children.len() - i) * 16 + data.len();
        table.extend(u32::try_from(position).unwrap().to_le_bytes());
        table.extend(u32::try_from(key.len()).unwrap().to_le_bytes());
        table.extend(id.to_le_bytes());
        data.extend(key);
    }
    table.extend(data);
    table
}

impl Bolt {
    pub(crate) fn new(size: usize) -> Self {
        Self { size, bytes: vec![0; 2 * size] }
    }

    pub(crate) fn pages(&self) -> u64 {
        (self.bytes.len() / self.size) as u64
    }

    /// Adds a page and returns its number.
    pub(crate) fn page(&mut self, flags: u16, count: usize, body: &[u8]) -> u64 {
        let id = self.pages();
        let span = (16 + body.len()).div_ceil(self.size);
        self.bytes.extend(header(id, flags, count, u32::try_from(span - 1).unwrap()));
        self.bytes.extend(body);
        self.bytes.resize((id as usize + span) * self.size, 0xaa);
        id
    }

    /// Adds a page that nothing points to.
    pub(crate) fn garbage(&mut self, page: &[u8]) {
        let mut page = page.to_vec();
        page.resize(self.size, 0x55);
        self.bytes.extend(page);
    }

    /// Adds a bucket's tree and returns its root; `junk` runs between its pages.
    pub(crate) fn tree(&mut self, entries: &[Entry], mut junk: impl FnMut(&mut Self)) -> u64 {
        let mut level = Vec::new();
        let mut rest = entries;
        while !rest.is_empty() {
            let mut bytes = 16;
            let fits = rest.iter().take_while(|(key, value)| {
                bytes += 16 + key.len() + value.len();
                bytes <= self.size
            });
            let (page, more) = rest.split_at(fits.count().max(1));
            level.push((page[0].0.clone(), self.page(2, page.len(), &leaf_body(page, 0))));
            junk(self);
            rest = more;
        }
        if level.is_empty() {
            return self.page(2, 0, &[]);
        }
        while level.len() > 1 {
            let fan = (self.size - 16) / 48;
            level = level
                .chunks(fan.max(2))
                .map(|children| (children[0].0.clone(), self.page(1, children.len(), &branch_body(children))))
                .collect();
            junk(self);
        }
        level[0].1
    }

    /// Adds the root bucket and the meta pages.
    pub(crate) fn finish(mut self, buckets: &[(&str, u64)], inline: &[(&str, &[Entry])]) -> Vec<u8> {
        let mut entries: Vec<Entry> = buckets
            .iter()
            .map(|(name, root)| (name.as_bytes().to_vec(), [root.to_le_bytes(), [0; 8]].concat()))
            .collect();
        entries.extend(inline.iter().map(|(name, content)| {
            let page = [vec![0; 16], header(0, 2, content.len(), 0), leaf_body(content, 0)].concat();
            (name.as_bytes().to_vec(), page)
        }));
        entries.sort();
        let root = self.page(2, entries.len(), &leaf_body(&entries, 1));
        let pages = self.pages();
        for id in 0..2_u64 {
            let mut body = Vec::new();
            body.extend(0xED0C_DAED_u32.to_le_bytes());
            body.extend(2_u32.to_le_bytes());
            body.extend(u32::try_from(self.size).unwrap().to_le_bytes());
            body.extend(0_u32.to_le_bytes());
            for number in [root, 0, u64::MAX, pages, 10 - id] {
                body.extend(number.to_le_bytes());
            }
            let sum = body
                .iter()
                .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
            body.extend(sum.to_le_bytes());
            let at = id as usize * self.size;
            self.bytes[at..at + 16].copy_from_slice(&header(id, 4, 0, 0));
            self.bytes[at + 16..at + 16 + body.len()].copy_from_slice(&body);
        }
        self.bytes
    }
}
