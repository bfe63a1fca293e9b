//! Parses protocol buffers as in etcd's database: three small messages and no recursion.
//!
//! The parser is at least as strict as etcd's decoder, on whose errors a member exits.

/// The bytes are no valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// 32 or 64 fixed bits: no known field uses them.
    Fixed,
}

impl<'a> Value<'a> {
    fn number(self) -> Result<u64, Malformed> {
        match self {
            Self::Number(number) => Ok(number),
            _ => Err(Malformed),
        }
    }

    fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(Malformed),
        }
    }
}

/// Returns a varint from the start of the bytes, and advances them.
pub(super) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(first & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Returns this many bytes from the start, and advances them.
pub(super) fn take<'a>(bytes: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(taken)
}

/// Returns the next field's number and value; `None` at the end.
fn field<'a>(bytes: &mut &'a [u8]) -> Result<Option<(u64, Value<'a>)>, Malformed> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let tag = varint(bytes).ok_or(Malformed)?;
    let value = match tag & 7 {
        0 => Value::Number(varint(bytes).ok_or(Malformed)?),
        1 => take(bytes, 8).map(|_| Value::Fixed).ok_or(Malformed)?,
        2 => {
            let length = varint(bytes).ok_or(Malformed)?;
            Value::Bytes(take(bytes, length).ok_or(Malformed)?)
        }
        5 => take(bytes, 4).map(|_| Value::Fixed).ok_or(Malformed)?,
        _ => return Err(Malformed),
    };
    if tag >> 3 == 0 {
        return Err(Malformed);
    }
    Ok(Some((tag >> 3, value)))
}

/// etcd's `mvccpb.KeyValue`: the value of a record in the bucket `key`. A revision bump is an empty message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyValue<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) create_revision: i64,
    pub(crate) mod_revision: i64,
    pub(crate) version: i64,
    pub(crate) value: &'a [u8],
    pub(crate) lease: i64,
}

impl<'a> KeyValue<'a> {
    pub(crate) fn parse(mut bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut kv = Self::default();
        while let Some((number, value)) = field(&mut bytes)? {
            match number {
                1 => kv.key = value.bytes()?,
                2 => kv.create_revision = value.number()?.cast_signed(),
                3 => kv.mod_revision = value.number()?.cast_signed(),
                4 => kv.version = value.number()?.cast_signed(),
                5 => kv.value = value.bytes()?,
                6 => kv.lease = value.number()?.cast_signed(),
                _ => {}
            }
        }
        Ok(kv)
    }
}

/// Returns ID and time to live of etcd's `leasepb.Lease`.
pub(crate) fn lease(mut bytes: &[u8]) -> Result<(i64, i64), Malformed> {
    let (mut id, mut ttl) = (0, 0);
    while let Some((number, value)) = field(&mut bytes)? {
        match number {
            1 => id = value.number()?.cast_signed(),
            2 => ttl = value.number()?.cast_signed(),
            _ => {}
        }
    }
    Ok((id, ttl))
}

/// Returns the name in etcd's `authpb.User` or `authpb.Role`.
pub(super) fn name(mut bytes: &[u8]) -> Result<&[u8], Malformed> {
    let mut name = &[][..];
    while let Some((number, value)) = field(&mut bytes)? {
        if number == 1 {
            name = value.bytes()?;
        }
    }
    Ok(name)
}

/// Returns member ID and kind of etcd's `etcdserverpb.AlarmMember`.
pub(super) fn alarm(mut bytes: &[u8]) -> Result<(u64, u64), Malformed> {
    let (mut member, mut kind) = (0, 0);
    while let Some((number, value)) = field(&mut bytes)? {
        match number {
            1 => member = value.number()?,
            2 => kind = value.number()?,
            _ => {}
        }
    }
    Ok((member, kind))
}

/// Returns the CRC-32C (Castagnoli), with the processor's instructions if available.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

#[cfg(test)]
mod tests {
    use holdfast_segment::put_varint;
    use proptest::prelude::*;

    use super::*;

    /// `{key: "k", create_revision: 2, mod_revision: 300, version: 1, value: "v", lease: -1}`
    const RECORD: &[u8] = b"\x0a\x01k\x10\x02\x18\xac\x02\x20\x01\x2a\x01v\x30\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";

    #[test]
    fn a_record_is_read() {
        let kv = KeyValue { key: b"k", create_revision: 2, mod_revision: 300, version: 1, value: b"v", lease: -1 };
        assert_eq!(KeyValue::parse(RECORD), Ok(kv));
        assert_eq!(KeyValue::parse(b""), Ok(KeyValue::default()), "a revision bump");
        assert_eq!(KeyValue::parse(b"\x0a\x01k\x99\x06\0\0\0\0\0\0\0\0").map(|kv| kv.key), Ok(&b"k"[..]), "unknown");
    }

    #[test]
    fn what_etcd_cannot_read_is_refused() {
        for bad in [
            &b"\x0a\x02k"[..],
            b"\x08\x01",
            b"\x02\x00",
            b"\x0b",
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x80",
        ] {
            assert_eq!(KeyValue::parse(bad), Err(Malformed), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn any_number_comes_back(number: u64) {
            let mut bytes = Vec::new();
            put_varint(number, &mut bytes);
            let mut rest = &bytes[..];
            prop_assert_eq!(varint(&mut rest), Some(number));
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = (KeyValue::parse(&bytes), lease(&bytes), alarm(&bytes), name(&bytes));
        }
    }
}
