//! Without etcd: any cutting gives the same result, no garbage causes a panic or exceeds the budget, crafted pages are refused.

use std::collections::BTreeMap;

use holdfast_bbolt::scan::{NoHashKv, Proven, Reader, ScanError};

use crate::scan::support::bolt::{Bolt, Entry, header, key_value, leaf_body, rev};
use crate::scan::support::{both_ways, scan, scan_within};
use proptest::prelude::*;

/// Records: (key, value length, tombstone), one revision each from 2 on.
pub(crate) fn entries(records: &[(u8, usize, bool)]) -> Vec<Entry> {
    let one = |(i, (key, length, tombstone)): (usize, &(u8, usize, bool))| {
        let key = format!("key{key}");
        let main = i64::try_from(i / 3 + 2).unwrap();
        let sub = i64::try_from(i % 3).unwrap();
        let value = vec![u8::try_from(i % 256).unwrap(); *length];
        (rev(main, sub, *tombstone), key_value(key.as_bytes(), if *tombstone { b"" } else { &value }))
    };
    records.iter().enumerate().map(one).collect()
}

pub(crate) fn meta(compact: Option<i64>) -> Vec<Entry> {
    let mut meta = vec![(b"consistent_index".to_vec(), 9_u64.to_be_bytes().to_vec())];
    if let Some(compact) = compact {
        meta.push((b"finishedCompactRev".to_vec(), rev(compact, 0, false)));
        meta.push((b"scheduledCompactRev".to_vec(), rev(compact, 0, false)));
    }
    meta
}

pub(crate) fn database(
    size: usize,
    records: &[(u8, usize, bool)],
    compact: Option<i64>,
    junk: impl FnMut(&mut Bolt),
) -> Vec<u8> {
    let mut bolt = Bolt::new(size);
    let root = bolt.tree(&entries(records), junk);
    bolt.finish(&[("key", root)], &[("lease", &[]), ("meta", &meta(compact))])
}

/// The rule of HashKV, written a third time.
fn expected(records: &[(u8, usize, bool)], compact: i64) -> (u64, u32) {
    let entries = entries(records);
    let newest: BTreeMap<u8, usize> = records.iter().enumerate().map(|(i, record)| (record.0, i)).collect();
    let keys = newest.values().filter(|i| !records[**i].2).count();
    let mut bytes = b"key".to_vec();
    for (i, (key, value)) in entries.iter().enumerate() {
        let main = i64::try_from(i / 3 + 2).unwrap();
        let (tombstone, is_newest) = (records[i].2, newest[&records[i].0] == i);
        if main > compact || keys == 0 && !(main == compact && tombstone) || is_newest && !tombstone {
            bytes.extend([key.as_slice(), value].concat());
        }
    }
    (keys as u64, crc_fast::crc32_iscsi(&bytes))
}

fn a_record() -> impl Strategy<Value = (u8, usize, bool)> {
    (0_u8..40, prop_oneof![4 => 0_usize..300, 1 => 300_usize..9_000], prop::bool::weighted(0.3))
}

fn cases() -> u32 {
    if std::env::var_os("HOLDFAST_SOAK").is_some_and(|v| !v.is_empty()) { 10_000 } else { 100 }
}

/// Pages with a plausible header and arbitrary contents.
fn a_lie() -> impl Strategy<Value = (u16, usize, u32, Vec<u8>)> {
    let flags = prop_oneof![Just(1_u16), Just(2), Just(4), Just(0x10), any::<u16>()];
    let overflow = prop_oneof![0_u32..6, any::<u32>()];
    let body = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..1_000),
        proptest::collection::vec(a_record(), 0..8).prop_map(|records| leaf_body(&entries(&records), 0)),
    ];
    (flags, 0_usize..70, overflow, body)
}

#[test]
fn a_large_value_may_lie_at_the_very_beginning() {
    for size in [1_024, 4_096, 16_384] {
        let bytes = database(size, &[(0, 1_500_000, false), (1, 10, false)], None, |_| {});
        assert_eq!(both_ways(&bytes).keys, Some(2));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn the_rule_holds(
        records in proptest::collection::vec(a_record(), 0..150),
        compact in proptest::option::of(0_i64..60),
        size in prop_oneof![Just(1_024_usize), Just(4_096), Just(16_384)],
        lies in proptest::collection::vec(a_lie(), 1..6),
    ) {
        let mut lies = lies.iter().cycle();
        let bytes = database(size, &records, compact, |bolt| {
            let (flags, count, overflow, body) = lies.next().unwrap();
            let page = [header(bolt.pages(), *flags, *count, *overflow), body.clone()].concat();
            bolt.garbage(&page[..page.len().min(size)]);
        });
        let proven = both_ways(&bytes);
        let (keys, hash) = expected(&records, compact.unwrap_or(-1));
        prop_assert_eq!(proven.keys, Some(keys));
        prop_assert_eq!(proven.revisions, records.len() as u64);
        prop_assert_eq!(proven.hash_kv.unwrap().hash, hash);
    }

    #[test]
    fn any_cutting_gives_the_same(
        records in proptest::collection::vec(a_record(), 1..60),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..30),
    ) {
        let bytes = database(4_096, &records, Some(5), |_| {});
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let options = holdfast_bbolt::scan::Options { compact_revision: Some(5), budget_bytes: crate::scan::support::BUDGET };
        let mut pieces = holdfast_bbolt::scan::Scan::new(options);
        cuts.windows(2).for_each(|cut| pieces.push(&bytes[cut[0]..cut[1]]));
        prop_assert_eq!(pieces.finish(), scan(&bytes, Some(5), bytes.len()));
    }

    #[test]
    fn garbage_is_no_database(bytes in proptest::collection::vec(any::<u8>(), 0..20_000), piece in 1_usize..5_000) {
        prop_assert_eq!(scan(&bytes, None, piece), Err(ScanError::NoMeta { bytes: bytes.len() as u64 }));
        prop_assert!(Reader::open(&bytes[..], bytes.len() as u64, 1 << 20).is_err());
    }

    /// Many bytes changed anywhere behind the meta pages: both ways end, with the same result.
    #[test]
    fn damage_is_no_panic(
        records in proptest::collection::vec(a_record(), 1..80),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..12),
        piece in 1_usize..9_000,
        budget in prop_oneof![Just(crate::scan::support::BUDGET), 0_usize..1_000_000],
    ) {
        let mut bytes = database(1_024, &records, Some(9), |_| {});
        for (at, byte, in_header) in damage {
            let at = 2_048 + at.index(bytes.len() - 2_048);
            let at = if in_header { at / 1_024 * 1_024 + at % 48 } else { at };
            bytes[at] = byte;
        }
        let streamed = scan_within(&bytes, Some(9), piece, budget);
        let read = Reader::open(&bytes[..], bytes.len() as u64, budget).and_then(|mut reader| reader.prove(Some(9)));
        let over = |result: &Result<Proven, ScanError>| match result {
            Ok(proven) => proven.keys.is_none(),
            Err(error) => matches!(error, ScanError::OverBudget { .. }),
        };
        if !over(&streamed) && !over(&read) {
            prop_assert_eq!(streamed.is_ok(), read.is_ok(), "{:?} {:?}", &streamed, &read);
            if streamed.is_ok() {
                prop_assert_eq!(streamed, read);
            }
        }
    }
}

#[test]
fn a_small_budget_costs_the_hash_first() {
    let records: Vec<(u8, usize, bool)> = (0..30_000_u32).map(|i| ((i % 200) as u8, 20, false)).collect();
    let bytes = database(4_096, &records, Some(5_000), |_| {});
    let full = scan(&bytes, Some(5_000), 1 << 20).unwrap();
    assert!(full.hash_kv.is_ok());
    let less = scan_within(&bytes, Some(5_000), 1 << 20, 400_000).unwrap();
    assert_eq!(less.hash_kv, Err(NoHashKv::OverBudget));
    assert_eq!(less, Proven { keys: None, hash_kv: less.hash_kv, ..full });
    assert_eq!(scan_within(&bytes, Some(5_000), 1 << 20, 50_000), Err(ScanError::OverBudget { budget: 50_000 }));
}

/// Broken trees.
#[test]
fn crafted_trees_are_refused() {
    let what = |bytes: &[u8]| {
        let streamed = scan(bytes, None, 1 << 20).unwrap_err();
        let mut reader = Reader::open(bytes, bytes.len() as u64, crate::scan::support::BUDGET).unwrap();
        let read = reader.prove(Some(-1)).unwrap_err();
        (streamed.to_string(), read.to_string())
    };
    let same = |bytes: &[u8], expected: &str| {
        let (streamed, read) = what(bytes);
        assert!(streamed.contains(expected) && read.contains(expected), "{expected}: {streamed} / {read}");
    };
    let some = entries(&[(1, 5, false), (2, 5, false), (1, 5, true)]);

    // A bucket's root belongs to another bucket.
    let mut bolt = Bolt::new(4_096);
    let root = bolt.tree(&some, |_| {});
    same(&bolt.finish(&[("key", root), ("keyz", root)], &[]), "is used twice");

    // The bucket is missing.
    same(&Bolt::new(4_096).finish(&[], &[("meta", &meta(None))]), "bucket key: it is missing");

    // A root out of range, a root that is a meta page.
    same(&Bolt::new(4_096).finish(&[("key", 77)], &[]), "out of range");
    same(&Bolt::new(4_096).finish(&[("key", 1)], &[]), "out of range");

    // Branches in a ring, and branches in a chain.
    for ring in [true, false] {
        let mut bolt = Bolt::new(4_096);
        let first = bolt.pages();
        for i in 0..100 {
            let child = if ring && i == 5 { first } else { first + i + 1 };
            let body = [
                16_u32.to_le_bytes().to_vec(),
                17_u32.to_le_bytes().to_vec(),
                child.to_le_bytes().to_vec(),
                rev(2, 0, false),
            ]
            .concat();
            bolt.page(1, 1, &body);
        }
        bolt.page(2, 1, &leaf_body(&some[..1], 0));
        same(&bolt.finish(&[("key", first)], &[]), if ring { "is used twice" } else { "is too deep" });
    }

    // A bucket that points to a page of the bucket `key`, or has one inline: its own contents are lost.
    for inline in [false, true] {
        let mut bolt = Bolt::new(4_096);
        let roots = [("key", bolt.tree(&some, |_| {})), ("meta", bolt.tree(&some, |_| {}))];
        let bytes = if inline { bolt.finish(&roots[..1], &[("meta", &some)]) } else { bolt.finish(&roots, &[]) };
        same(&bytes, "bucket meta: it has a page that looks like one of the bucket `key`");
    }

    // An invalid revision key; a value that etcd cannot read; a bucket among the records; a user under another name.
    let bad: [(&str, Vec<Entry>); 2] = [
        ("is no revision", vec![(b"abc".to_vec(), key_value(b"k", b"v"))]),
        ("etcd cannot read", vec![(rev(2, 0, false), b"\x0a\x7fk".to_vec())]),
    ];
    for (expected, entries) in bad {
        let mut bolt = Bolt::new(4_096);
        let root = bolt.tree(&entries, |_| {});
        same(&bolt.finish(&[("key", root)], &[]), expected);
        same(&Bolt::new(4_096).finish(&[], &[("key", &entries)]), expected);
    }
    let mut bolt = Bolt::new(4_096);
    let root = bolt.page(2, 1, &leaf_body(&some[..1], 1));
    same(&bolt.finish(&[("key", root)], &[]), "bucket among the records");
    let mut lost = Bolt::new(4_096).finish(&[], &[("key", &some)]);
    let count = lost.len() - 4_096 + 16 + 16 + 3 + 16 + 10;
    assert_eq!(lost[count], 3);
    lost[count] = 0;
    same(&lost, "does not end with its elements");
    let users = [(b"me".to_vec(), b"\x0a\x03you".to_vec())];
    same(&Bolt::new(4_096).finish(&[], &[("authUsers", &users), ("key", &some)]), "another's name");
}

/// A user's name may look like a revision, and a page of such names like a page of the bucket `key`.
#[test]
fn names_that_look_like_revisions() {
    let names: [&[u8]; 2] = [b"another_operator0", b"platform_operator"];
    let users: Vec<Entry> = names.iter().map(|name| (name.to_vec(), key_value(name, b"hash"))).collect();
    let mut bolt = Bolt::new(4_096);
    let users = bolt.tree(&users, |_| {});
    let keys = bolt.tree(&entries(&[(1, 5, false)]), |_| {});
    let bytes = bolt.finish(&[("authUsers", users), ("key", keys)], &[]);
    let proven = both_ways(&bytes);
    assert_eq!((proven.users, proven.first_users.len()), (2, 2));
    // And revisions may be as large as names.
    let large: Vec<Entry> = (0..500).map(|i| (rev(i64::MAX - 500 + i, 0, false), key_value(b"k", b"v"))).collect();
    let mut bolt = Bolt::new(4_096);
    let keys = bolt.tree(&large, |_| {});
    let bytes = bolt.finish(&[("key", keys)], &[]);
    assert_eq!(both_ways(&bytes).revisions, 500);
}

/// Either meta page may be destroyed, as after an interrupted write.
#[test]
fn one_meta_page_is_enough() {
    for size in [1_024, 4_096, 65_536] {
        let bytes = database(size, &[(1, 5, false), (2, 9_000, false)], None, |_| {});
        let proven = both_ways(&bytes);
        for meta in 0..2 {
            let mut bytes = bytes.clone();
            bytes[meta * size + 40] ^= 1;
            for piece in [100, 4_096, bytes.len()] {
                assert_eq!(scan(&bytes, None, piece).as_ref(), Ok(&proven));
            }
            bytes[(1 - meta) * size + 40] ^= 1;
            assert_eq!(scan(&bytes, None, 4_096), Err(ScanError::NoMeta { bytes: bytes.len() as u64 }));
        }
    }
}

/// Nested rows of pages, all well formed, as a value may look.
pub(crate) fn rows(depth: u32) -> impl FnMut(&mut Bolt) {
    let mut left = depth;
    move |bolt: &mut Bolt| {
        while left > 0 {
            left -= 1;
            // A value with a length of four bytes, up to the last page.
            let size = bolt.size as u32;
            let length = left * size + size / 4 * 3;
            let varint = [0, 7, 14, 21].map(|shift| (length >> shift) as u8 & 0x7f | if shift < 21 { 0x80 } else { 0 });
            let mut fake = header(bolt.pages(), 2, 1, left);
            for number in [0, 16, 17, length + 8] {
                fake.extend(number.to_le_bytes());
            }
            fake.extend([rev(7, 0, false), b"\x0a\x01k\x2a".to_vec(), varint.to_vec()].concat());
            bolt.garbage(&fake);
        }
    }
}

/// Pages that the scan omits for lack of room excuse no other broken page.
#[test]
fn a_row_that_is_left_out_does_not_hide_what_is_broken() {
    let records: Vec<(u8, usize, bool)> = (0..3_000_u32).map(|i| ((i % 200) as u8, 20, false)).collect();
    let bytes = database(4_096, &records, None, rows(200));
    both_ways(&bytes);
    let mut refused = 0;
    for page in 2..bytes.len() / 4_096 {
        let mut bytes = bytes.clone();
        // Another page number.
        bytes[page * 4_096] ^= 0x55;
        let read =
            Reader::open(&bytes[..], bytes.len() as u64, crate::scan::support::BUDGET).and_then(|mut r| r.prove(None));
        let streamed = scan(&bytes, None, 1 << 20);
        match read {
            Ok(read) => assert_eq!(streamed, Ok(read), "page {page}"),
            Err(_) => {
                assert!(matches!(streamed, Err(ScanError::Page { .. })), "page {page}: {streamed:?}");
                refused += 1;
            }
        }
    }
    assert!(refused > 10, "{refused}");
}

#[test]
fn rows_within_rows_are_not_read_for_ever() {
    let records: Vec<(u8, usize, bool)> = (0..200).map(|i| (i, 9_000, false)).collect();
    for depth in [20, 4_000] {
        let bytes = database(4_096, &records, None, rows(depth));
        let proven =
            Reader::open(&bytes[..], bytes.len() as u64, crate::scan::support::BUDGET).unwrap().prove(None).unwrap();
        for piece in [10_000, 1 << 20, bytes.len()] {
            let began = std::time::Instant::now();
            let result = scan(&bytes, None, piece);
            println!(
                "{depth} rows, {} bytes in pieces of {piece}: {:?}, {}",
                bytes.len(),
                began.elapsed(),
                result.is_ok()
            );
            // Without the bound it would be 32 GB of CRC, half a minute and more.
            assert!(began.elapsed().as_secs() < 15);
            match result {
                Err(error) => {
                    assert_eq!((error, depth), (ScanError::OverBudget { budget: crate::scan::support::BUDGET }, 4_000))
                }
                Ok(result) => assert_eq!(result, proven),
            }
        }
    }
}
