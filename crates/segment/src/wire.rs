//! Varints, and etcd's `mvccpb.KeyValue` as etcd's own encoder writes it.
//!
//! This file decides bytes. etcd compares its records by hash (HashKV), so an encoded value has to be equal to etcd's to the
//! byte: the fields in the order of their numbers, and none that is empty or 0.

/// etcd's `mvccpb.KeyValue`, of a put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyValue<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Revision of the put that created the key.
    pub create_revision: i64,
    /// Revision of this put.
    pub mod_revision: i64,
    /// Number of puts since the key was created.
    pub version: i64,
    /// The value.
    pub value: &'a [u8],
    /// ID of the attached lease; 0: none.
    pub lease: i64,
}

impl KeyValue<'_> {
    /// Returns the length of the encoded value.
    pub(crate) fn encoded_len(&self) -> usize {
        let mut length = bytes_len(self.key) + bytes_len(self.value);
        for number in [self.create_revision, self.mod_revision, self.version, self.lease] {
            length += if number == 0 { 0 } else { 1 + varint_len(number.cast_unsigned()) };
        }
        length
    }

    /// Appends the value of etcd's bucket `key`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(1, self.key, out);
        put_number(2, self.create_revision, out);
        put_number(3, self.mod_revision, out);
        put_number(4, self.version, out);
        put_bytes(5, self.value, out);
        put_number(6, self.lease, out);
    }
}

fn bytes_len(bytes: &[u8]) -> usize {
    if bytes.is_empty() { 0 } else { 1 + varint_len(bytes.len() as u64) + bytes.len() }
}

fn put_bytes(field: u8, bytes: &[u8], out: &mut Vec<u8>) {
    if !bytes.is_empty() {
        out.push(field << 3 | 2);
        put_varint(bytes.len() as u64, out);
        out.extend_from_slice(bytes);
    }
}

/// Appends a field with a number; 0 is no field.
pub fn put_number(field: u8, number: i64, out: &mut Vec<u8>) {
    if number != 0 {
        out.push(field << 3);
        put_varint(number.cast_unsigned(), out);
    }
}

/// Returns the key at the beginning of an encoded value; `None`: the value begins with another field.
pub fn key_of(value: &[u8]) -> Option<&[u8]> {
    let mut rest = value.strip_prefix(&[1 << 3 | 2])?;
    let mut length = Varint::default();
    loop {
        let (byte, after) = rest.split_first()?;
        rest = after;
        if let Some(length) = length.push(*byte)? {
            return rest.get(..usize::try_from(length).ok()?);
        }
    }
}

/// A varint that arrives byte by byte.
#[derive(Default)]
pub(crate) struct Varint {
    number: u64,
    shift: u32,
}

impl Varint {
    /// Takes the next byte, and returns the number after its last byte. The outer `None`: more than 64 bits.
    #[expect(clippy::option_option, reason = "invalid, unfinished, finished")]
    pub(crate) fn push(&mut self, byte: u8) -> Option<Option<u64>> {
        let bits = u64::from(byte & 0x7f);
        if self.shift > 63 || bits << self.shift >> self.shift != bits {
            return None;
        }
        self.number |= bits << self.shift;
        self.shift += 7;
        Some((byte & 0x80 == 0).then_some(self.number))
    }
}

const fn varint_len(number: u64) -> usize {
    let bits = 64 - (number | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Appends a varint.
pub fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_value_is_encoded_as_etcd_encodes_it() {
        let kv = KeyValue { key: b"k", create_revision: 2, mod_revision: 300, version: 1, value: b"v", lease: -1 };
        let mut out = Vec::new();
        kv.encode(&mut out);
        assert_eq!(out, b"\x0a\x01k\x10\x02\x18\xac\x02\x20\x01\x2a\x01v\x30\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
        assert_eq!(key_of(&out), Some(&b"k"[..]));
        let mut empty = Vec::new();
        KeyValue { key: b"k", create_revision: 2, mod_revision: 2, version: 1, ..KeyValue::default() }
            .encode(&mut empty);
        assert_eq!(empty, b"\x0a\x01k\x10\x02\x18\x02\x20\x01", "an empty value and no lease are no fields");
        for bad in [&b""[..], b"\x10\x02", b"\x0a", b"\x0a\x02k", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"] {
            assert_eq!(key_of(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn the_length_is_known_before(key: Vec<u8>, numbers: [i64; 4], value: Vec<u8>) {
            let [create_revision, mod_revision, version, lease] = numbers;
            let kv = KeyValue { key: &key, create_revision, mod_revision, version, value: &value, lease };
            let mut out = Vec::new();
            kv.encode(&mut out);
            prop_assert_eq!(out.len(), kv.encoded_len());
        }

        #[test]
        fn any_number_comes_back(number: u64) {
            let mut bytes = Vec::new();
            put_varint(number, &mut bytes);
            let mut varint = Varint::default();
            let pushed: Vec<_> = bytes.iter().map(|byte| varint.push(*byte)).collect();
            prop_assert_eq!(pushed.last(), Some(&Some(Some(number))));
        }
    }
}
