//! Segments come back as they were written, and nothing else is read.

use proptest::prelude::*;

use super::*;

const RAFT: RaftPlace = RaftPlace { revision: 7, applied: 9, committed: 10 };
const ORIGIN: Origin =
    Origin { cluster_id: 7, member_id: 8, compact_revision: 3, auth_revision: Some(1), raft: Some(RAFT) };

fn begin(revision: i64) -> Writer {
    Writer::after(revision, 0, Vec::new())
}

/// A sample of the last complete revision.
fn sample(writer: &mut Writer, at: i64) {
    writer.sample(writer.last_complete(), at);
}

fn bytes_of(segment: Segment) -> Vec<u8> {
    let mut bytes = vec![];
    segment.write_to(&mut bytes).unwrap();
    bytes
}

/// An entry that owns its value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owned {
    Record(i64, i64, bool, Vec<u8>),
    Lease(i64, i64),
    Sample(i64, i64),
    AuthChanged(i64),
}

fn read(bytes: &[u8]) -> Result<(Header, Vec<Owned>), SegmentError> {
    let mut reader = Reader::new(bytes)?;
    let header = *reader.header();
    let mut entries = vec![];
    while let Some(entry) = reader.next()? {
        entries.push(match entry {
            Entry::Record(Record { main, sub, tombstone, value }) => {
                Owned::Record(main, sub, tombstone, value.to_vec())
            }
            Entry::Lease { id, ttl } => Owned::Lease(id, ttl),
            Entry::Sample { revision, at } => Owned::Sample(revision, at),
            Entry::AuthChanged { revision } => Owned::AuthChanged(revision),
        });
    }
    assert!(matches!(reader.next(), Ok(None)), "the end stays");
    Ok((header, entries))
}

fn put(main: i64, key: &[u8], lease: i64) -> KeyValue<'_> {
    KeyValue { key, create_revision: main, mod_revision: main, version: 1, value: b"value", lease }
}

/// A segment of the revisions 5 to 7, with an entry of each kind.
fn small() -> Segment {
    let mut writer = begin(4);
    sample(&mut writer, 1_000);
    writer.put(&put(5, b"a", 9)).unwrap();
    writer.put(&put(5, b"b", 9)).unwrap();
    writer.delete(6, b"a").unwrap();
    let leases = writer.take_leases();
    assert_eq!(leases, [9], "each lease once");
    writer.return_leases(leases);
    assert_eq!(writer.take_leases(), [9], "asked again");
    writer.lease(9, 60);
    writer.put(&put(7, b"c", 0)).unwrap();
    writer.complete(7);
    writer.auth_changed();
    sample(&mut writer, 2_000);
    writer.cut(&ORIGIN).unwrap()
}

#[test]
fn every_entry_comes_back() {
    let segment = small();
    let (header, last_sum) = (segment.header, segment.last_sum);
    let bytes = bytes_of(segment);
    let (read_header, entries) = read(&bytes).unwrap();
    assert_eq!(read_header, header);
    assert_eq!((header.first, header.last, header.first_at, header.last_at), (5, 7, 1_000, 2_000));
    assert_eq!(
        (header.cluster_id, header.member_id, header.compact_revision, header.auth_revision),
        (7, 8, 3, Some(1))
    );
    let places: Vec<_> = entries
        .iter()
        .filter_map(|entry| match entry {
            Owned::Record(main, sub, tombstone, value) => Some((*main, *sub, *tombstone, key_of(value).unwrap())),
            _ => None,
        })
        .collect();
    assert_eq!(places, [(5, 0, false, &b"a"[..]), (5, 1, false, b"b"), (6, 0, true, b"a"), (7, 0, false, b"c")]);
    assert_eq!((header.before, header.raft), (None, Some(RAFT)));
    let mut of_last = RevisionSum::default();
    of_last.add_change(false, &put(7, b"c", 0));
    assert_eq!(last_sum, Some(of_last.get()));
    assert_eq!(entries[0], Owned::Sample(4, 1_000), "before the first record");
    assert_eq!(entries.last(), Some(&Owned::Sample(7, 2_000)));
    assert!(entries.contains(&Owned::Lease(9, 60)) && entries.contains(&Owned::AuthChanged(7)));
    assert!(entries.contains(&Owned::Record(6, 0, true, b"\x0a\x01a".to_vec())), "a deletion holds the key alone");
}

#[test]
fn a_segment_ends_between_revisions() {
    let mut writer = begin(4);
    writer.put(&put(5, b"a", 1)).unwrap();
    writer.put(&put(6, b"b", 2)).unwrap();
    sample(&mut writer, 1);
    assert_eq!((writer.last_complete(), writer.take_leases()), (5, vec![1]), "more of 6 may come");
    let first = writer.cut(&ORIGIN).unwrap();
    assert_eq!((first.header.first, first.header.last), (5, 5));
    writer.put(&put(6, b"c", 2)).unwrap();
    writer.complete(6);
    sample(&mut writer, 2);
    assert_eq!(writer.take_leases(), [2], "each segment names its leases");
    let second = writer.cut(&ORIGIN).unwrap();
    assert_eq!((second.header.first, second.header.last), (6, 6));
    assert!(matches!(read(&bytes_of(second)).unwrap().1[..2], [Owned::Record(6, 0, ..), Owned::Record(6, 1, ..)]));
    // A segment about time alone.
    assert_eq!(writer.cut(&ORIGIN), None);
    sample(&mut writer, 3);
    let third = writer.cut(&ORIGIN).unwrap();
    assert_eq!((third.header.first, third.header.last), (7, 6));
    assert_eq!(read(&bytes_of(third)).unwrap().1, [Owned::Sample(6, 3)]);
}

#[test]
fn a_hole_is_refused_and_a_broken_watch_begins_again() {
    let mut writer = begin(4);
    writer.put(&put(5, b"a", 0)).unwrap();
    writer.put(&put(6, b"b", 0)).unwrap();
    let hole = writer.put(&put(8, b"c", 0)).unwrap_err();
    assert_eq!((hole.after, hole.main), (6, 8));
    assert!(hole.to_string().contains('6') && hole.to_string().contains('8'), "{hole}");
    assert!(writer.put(&put(5, b"a", 0)).is_err(), "not backwards");
    writer.drop_incomplete();
    assert_eq!(writer.last_complete(), 5);
    writer.put(&put(6, b"b", 0)).unwrap();
    writer.complete(6);
    assert!(writer.put(&put(6, b"late", 0)).is_err(), "the revision was complete");
    writer.put(&put(7, b"c", 0)).unwrap();
}

#[test]
fn a_clock_that_goes_back_stands_still() {
    let mut writer = begin(4);
    for at in [1_000, 900, 1_100] {
        sample(&mut writer, at);
    }
    let (header, entries) = read(&bytes_of(writer.cut(&ORIGIN).unwrap())).unwrap();
    assert_eq!(entries, [Owned::Sample(4, 1_000), Owned::Sample(4, 1_000), Owned::Sample(4, 1_100)]);
    assert_eq!((header.first_at, header.last_at), (1_000, 1_100));
}

#[test]
fn each_flipped_bit_is_refused() {
    let bytes = bytes_of(small());
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&flipped).is_err(), "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert!(matches!(read(&bytes[..length]), Err(SegmentError::Cut(_))), "{length} bytes");
    }
    let longer = [&bytes[..], b"\0"].concat();
    assert!(read(&longer).unwrap_err().to_string().contains("bytes follow"));
}

#[test]
fn a_writer_that_lags_cuts_segments_without_a_sample() {
    let mut writer = Writer::after(4, 500, Vec::new());
    writer.set_sum(Some(44));
    writer.put(&put(5, b"a", 0)).unwrap();
    writer.complete(5);
    let first = writer.cut(&ORIGIN).unwrap();
    assert!(!first.is_timed);
    assert_eq!((first.header.first_at, first.header.last_at, first.header.before), (500, 500, Some(44)));
    let of_5 = first.last_sum;
    writer.put(&put(6, b"b", 0)).unwrap();
    writer.put(&put(7, b"b", 0)).unwrap();
    writer.sample(6, 900);
    writer.sample(9, 950);
    let second = writer.cut(&ORIGIN).unwrap();
    assert_eq!((second.header.first, second.header.last, second.header.before), (6, 6, of_5));
    let samples = |segment| read(&bytes_of(segment)).unwrap().1;
    assert!(samples(second).ends_with(&[Owned::Sample(6, 900), Owned::Sample(6, 950)]), "never beyond the revisions");
    assert_eq!(samples(first).len(), 1);
    assert_eq!(writer.cut(&ORIGIN), None, "nothing to say");
}

#[test]
fn a_segment_of_format_1_is_read() {
    let bytes = bytes_of(small());
    let mut old = bytes[..HEADER_1].to_vec();
    old[8] = 1;
    old.extend(&bytes[HEADER..bytes.len() - 4]);
    let crc = crc_fast::crc32_iscsi(&old);
    old.extend(crc.to_le_bytes());
    let ((header, entries), (_, now)) = (read(&old).unwrap(), read(&bytes).unwrap());
    assert_eq!((header.first, header.last, header.before, header.raft), (5, 7, None, None));
    assert_eq!(entries, now);
}

/// Puts the right checksum behind changed bytes.
fn sealed(mut bytes: Vec<u8>, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    bytes.truncate(bytes.len() - 4);
    change(&mut bytes);
    let crc = crc_fast::crc32_iscsi(&bytes);
    bytes.extend(crc.to_le_bytes());
    bytes
}

#[test]
fn what_no_writer_writes_is_refused_also_with_a_right_checksum() {
    let bytes = bytes_of(small());
    let reason = |change: fn(&mut [u8])| read(&sealed(bytes.clone(), change)).unwrap_err().to_string();
    assert!(read(&sealed(bytes.clone(), |_| {})).is_ok());
    let later = reason(|bytes| bytes[8] = 3);
    assert!(later.contains("format 3") && later.contains("Use a later version"), "{later}");
    assert!(reason(|bytes| bytes[8] = 0).contains("header"));
    assert!(reason(|bytes| bytes[28] = 0).contains("header"), "no first revision");
    assert!(reason(|bytes| bytes[28] = 7).contains("sample"), "a sample before the header's first");
    assert!(reason(|bytes| (bytes[28], bytes[HEADER + 1]) = (6, 5)).contains("cannot follow"), "another first record");
    assert!(reason(|bytes| bytes[36] = 6).contains("beyond"), "a record after the header's last");
    assert!(reason(|bytes| bytes[36] = 8).contains("missing"), "the header's last is missing");
    assert!(reason(|bytes| bytes[44] ^= 1).contains("sample"));
    assert!(reason(|bytes| bytes[52] ^= 1).contains("sample"));
    assert!(reason(|bytes| bytes[HEADER] = 9).contains("unknown kind"));
    assert!(reason(|bytes| *bytes.last_mut().unwrap() ^= 1).contains("number of entries"));
}

#[test]
fn a_length_reserves_no_memory() {
    let mut writer = begin(4);
    sample(&mut writer, 1);
    let mut bytes = bytes_of(writer.cut(&ORIGIN).unwrap());
    bytes.truncate(HEADER);
    bytes[36] = 5;
    for length in [u64::MAX, MAX_VALUE as u64 + 1, MAX_VALUE as u64] {
        let mut cut = bytes.clone();
        cut.extend([PUT, 5, 0]);
        wire::put_varint(length, &mut cut);
        let mut reader = Reader::new(&cut[..]).unwrap();
        let error = reader.next().unwrap_err();
        assert_eq!(matches!(error, SegmentError::Cut(_)), length == MAX_VALUE as u64, "{error}");
    }
}

/// A key, and the value and the lease of a put; `None`: a deletion.
type Change = (Vec<u8>, Option<(Vec<u8>, i64)>);

/// One step of a watch.
#[derive(Clone, Debug)]
enum Step {
    /// A transaction.
    Changes(Vec<Change>),
    Complete,
    Sample(u32),
    AuthChanged,
    Cut,
    Break,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = |most| prop::collection::vec(any::<u8>(), 1..most);
    let change = (bytes(6), prop::option::of((bytes(40), prop_oneof![Just(0), 1..4_i64])));
    let step = prop_oneof![
        6 => prop::collection::vec(change, 1..4).prop_map(Step::Changes),
        2 => Just(Step::Complete),
        2 => any::<u32>().prop_map(Step::Sample),
        1 => Just(Step::AuthChanged),
        2 => Just(Step::Cut),
        1 => Just(Step::Break),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    /// Whatever a watch brings, and wherever it breaks: the segments together hold every record once, in order.
    #[test]
    fn segments_together_are_the_history(steps in steps(), begin in 1..1_000_i64) {
        let mut writer = Writer::after(begin, 0, Vec::new());
        let mut history: Vec<(i64, Vec<Owned>)> = vec![];
        let mut segments = vec![];
        let feed = |writer: &mut Writer, main: i64, changes: &[Change]| {
            for (key, put) in changes {
                match put {
                    Some((value, lease)) => {
                        let kv = KeyValue { key, create_revision: main, mod_revision: main, version: 1, value, lease: *lease };
                        writer.put(&kv).unwrap();
                    }
                    None => writer.delete(main, key).unwrap(),
                }
            }
        };
        let mut sent: Vec<Vec<Change>> = vec![];
        for step in steps.iter().chain(&[Step::Complete, Step::Sample(0), Step::Cut]) {
            let newest = begin + i64::try_from(sent.len()).unwrap();
            match step {
                Step::Changes(changes) => {
                    feed(&mut writer, newest + 1, changes);
                    let record = |(sub, (key, put)): (usize, &Change)| {
                        let mut value = vec![];
                        let kv = match put {
                            Some((value, lease)) => KeyValue {
                                key, create_revision: newest + 1, mod_revision: newest + 1, version: 1, value, lease: *lease,
                            },
                            None => KeyValue { key, ..KeyValue::default() },
                        };
                        kv.encode(&mut value);
                        Owned::Record(newest + 1, i64::try_from(sub).unwrap(), put.is_none(), value)
                    };
                    history.push((newest + 1, changes.iter().enumerate().map(record).collect()));
                    sent.push(changes.clone());
                }
                Step::Complete => writer.complete(newest),
                Step::Sample(at) => sample(&mut writer, (*at).into()),
                Step::AuthChanged => writer.auth_changed(),
                Step::Cut => segments.extend(writer.cut(&ORIGIN)),
                Step::Break => {
                    writer.drop_incomplete();
                    for main in writer.last_complete() + 1..=newest {
                        feed(&mut writer, main, &sent[usize::try_from(main - begin - 1).unwrap()]);
                    }
                }
            }
        }
        let mut after = begin;
        let mut records = vec![];
        for segment in &segments {
            let (header, entries) = read(&bytes_of(segment.clone())).unwrap();
            prop_assert_eq!(&header, &segment.header);
            prop_assert_eq!(header.first, after + 1);
            after = header.last;
            records.extend(entries.into_iter().filter(|entry| matches!(entry, Owned::Record(..))));
        }
        let whole: Vec<Owned> = history.into_iter().flat_map(|(_, records)| records).collect();
        prop_assert_eq!(records, whole);
    }

    #[test]
    fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), seal: bool) {
        if seal {
            bytes.splice(..0, [&MAGIC[..], &FORMAT.to_le_bytes()].concat());
        }
        let _ = read(&bytes);
    }
}
