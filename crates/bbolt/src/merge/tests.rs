//! Merges of generated histories beside a simple model; the scan reads the results.

mod compaction;
mod model;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::scan::page::Meta;
use crate::scan::{Lease, Proven, Reader};
use model::{Change, Model, Put, Row, Step};

const BUDGET: usize = 64 << 20;

/// Adds a segment with these revisions, and its leases, each after its first record.
fn add_segment(
    model: &Model,
    (first, last): (i64, i64),
    merge: &mut Merge<&[u8]>,
    out: &mut Vec<u8>,
) -> Result<(), MergeError> {
    let mut named = BTreeSet::new();
    for row in model.rows_between(first, last) {
        row.add(merge, out)?;
        let lease = row.put.as_ref().map_or(0, |put| put.lease);
        if lease != 0 {
            let ttl = model.at(&model.past_leases, row.main)[&lease];
            if named.insert((lease, ttl)) {
                merge.add_lease(lease, ttl)?;
            }
        }
    }
    merge.end_segment();
    Ok(())
}

fn prove(bytes: &[u8]) -> Proven {
    Reader::open(bytes, bytes.len() as u64, BUDGET).unwrap().prove(None).unwrap()
}

/// Every record, as the model keeps it.
fn rows(bytes: &[u8]) -> Vec<Row> {
    let mut found = Vec::new();
    let mut reader = Reader::open(bytes, bytes.len() as u64, BUDGET).unwrap();
    let read = |record: crate::scan::Record<'_>| {
        let put = (!record.tombstone).then(|| Put {
            value: record.value.to_vec(),
            create_revision: record.create_revision,
            version: record.version,
            lease: record.lease,
        });
        found.push(Row { main: record.main, sub: record.sub, key: record.key.to_vec(), put });
    };
    reader.records(read).unwrap();
    found
}

/// Returns the merged database.
fn apply(base: &[u8], out: &[u8], offset: u64, merged: &Merged) -> Vec<u8> {
    let offset = usize::try_from(offset).unwrap();
    let mut bytes = base[..offset].to_vec();
    bytes.extend_from_slice(out);
    assert_eq!(bytes.len() as u64, merged.bytes);
    let size = merged.metas[0].bytes.len();
    for page in &merged.metas {
        let at = usize::try_from(page.id).unwrap() * size;
        bytes[at..at + size].copy_from_slice(&page.bytes);
    }
    assert_eq!(bytes[2 * size..offset], base[2 * size..offset], "only the meta pages change");
    bytes
}

/// Merges everything up to a revision, in segments with these last revisions.
fn merge(model: &Model, base: &[u8], ends: &[i64], overlap: i64, until: i64) -> Result<(Vec<u8>, Merged), MergeError> {
    let mut merge = Merge::begin(base, base.len() as u64, until, BUDGET)?;
    let (mut out, mut first, offset) = (Vec::new(), 1, merge.offset());
    for end in ends.iter().copied().chain([model.revision]) {
        add_segment(model, (first - overlap, end), &mut merge, &mut out)?;
        first = end + 1;
    }
    let merged = merge.finish(&mut out)?;
    Ok((apply(base, &out, offset, &merged), merged))
}

/// Merges up to a revision, and checks every fact.
fn check(model: &Model, base: &[u8], (compact, ends, overlap, until): (i64, &[i64], i64, i64)) -> Vec<u8> {
    let (bytes, merged) = merge(model, base, ends, overlap, until).unwrap();
    let (before, found) = (prove(base), prove(&bytes));
    let mut expected = model.rows_at(before.revision, compact);
    let added: Vec<Row> = model.rows_between(before.revision + 1, until).cloned().collect();
    assert_eq!((merged.records, merged.revision), (added.len() as u64, until));
    expected.extend(added);
    assert_eq!(rows(&bytes), expected);
    assert_eq!(found.revision, until);
    let keys = model.at(&model.past_keys, until);
    assert_eq!(found.keys, Some(keys.len() as u64));
    let mut live = BTreeMap::new();
    let mut reader = Reader::open(&bytes[..], bytes.len() as u64, BUDGET).unwrap();
    let keep = |record: crate::scan::Record<'_>| _ = live.insert(record.key.to_vec(), record.value.len());
    reader.live(until, keep).unwrap();
    let lengths: BTreeMap<Vec<u8>, usize> = keys.iter().map(|(key, put)| (key.clone(), put.value.len())).collect();
    assert_eq!(live, lengths);
    assert_eq!(found.hash_kv.unwrap(), reader.hash_kv(until, found.compact_revision.unwrap_or(-1)).unwrap());
    // Every key has its lease with its time to live; the rest is the base's.
    let leases: BTreeMap<i64, i64> = found.leases.iter().map(|Lease { id, ttl }| (*id, *ttl)).collect();
    let bound: BTreeSet<i64> = keys.values().map(|put| put.lease).filter(|lease| *lease != 0).collect();
    let now = model.at(&model.past_leases, until);
    for id in &bound {
        assert_eq!(leases.get(id), now.get(id), "lease {id} at {until}");
    }
    let rest: BTreeSet<i64> = leases.keys().copied().filter(|id| !bound.contains(id)).collect();
    let had: BTreeSet<i64> = before.leases.iter().map(|lease| lease.id).collect();
    assert_eq!(rest, &had - &bound);
    assert_eq!(merged.unknown_ttls, [] as [i64; 0]);
    // The newer meta page is the first, with an even number: the next transaction overwrites the older page.
    let meta = Meta::choose(&bytes).unwrap();
    assert_eq!((meta.txid % 2, meta.freelist), (0, None));
    let same = |found: &Proven| (found.consistent_index, found.term, found.members.clone(), found.auth_enabled);
    assert_eq!(same(&found), same(&before));
    bytes
}

fn changes() -> impl Strategy<Value = Step> {
    let length = prop_oneof![8 => 0_usize..300, 2 => 300_usize..5_000, 1 => 5_000_usize..40_000];
    let put = (0..12_u8, length, prop_oneof![2 => Just(None), 1 => (1..5_u8).prop_map(Some)]);
    let change = prop_oneof![
        3 => put.prop_map(|(key, length, lease)| Change::Put { key, length, lease }),
        1 => (0..12_u8).prop_map(|key| Change::Delete { key }),
    ];
    prop_oneof![
        10 => proptest::collection::vec(change, 1..6).prop_map(Step::Txn),
        2 => (1..5_u8, 10_i64..1000).prop_map(|(id, ttl)| Step::Grant(id, ttl)),
        1 => (1..5_u8).prop_map(Step::Revoke),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn log_props(
        steps in proptest::collection::vec(changes(), 1..60),
        size in prop_oneof![Just(1024_usize), Just(4096), Just(16 << 10)],
        inline in proptest::sample::subsequence(vec!["auth", "key", "lease", "meta"], 0..4),
        at: (Index, Index),
        ends in proptest::collection::vec(any::<Index>(), 0..4),
        overlap in 0_i64..4,
    ) {
        let model = Model::from_steps(&steps);
        let all = usize::try_from(model.revision).unwrap();
        let revision = |index: Index, of: usize| i64::try_from(index.index(of)).unwrap();
        let base = revision(at.0, all) + 1;
        let compact = revision(at.1, usize::try_from(base).unwrap() + 1);
        let bytes = model.database(base, compact, size, &inline);
        let mut ends: Vec<i64> = ends.into_iter().map(|end| revision(end, all) + 1).collect();
        ends.sort_unstable();
        prop_assert_eq!(prove(&bytes).revision, base);
        for until in base..=model.revision {
            check(&model, &bytes, (compact, &ends, overlap, until));
        }
    }
}

/// A history of puts of one key with values of these lengths.
fn puts(lengths: impl IntoIterator<Item = usize>) -> Model {
    let put = |length| Step::Txn(vec![Change::Put { key: 1, length, lease: None }]);
    Model::from_steps(&lengths.into_iter().map(put).collect::<Vec<_>>())
}

#[test]
fn pages_are_as_full_as_etcd_fills_them_and_the_tree_grows() {
    for size in [1024, 4096] {
        let model = puts(vec![100; 3000]);
        for base in [1, 2, 5, 700, 2999] {
            let bytes = model.database(base, 0, size, &[]);
            let after = check(&model, &bytes, (0, &[], 0, model.revision));
            let added = (after.len() - bytes.len()) / size;
            let content: usize = model.rows_between(base + 1, model.revision).map(|row| row.value().len() + 33).sum();
            // Beside the leaves: branches, the path, the root bucket.
            let most = content / (size * 8 / 10) * 21 / 20 + 8;
            assert!(added <= most, "{added} pages of {size} for {content} bytes, at most {most}");
        }
    }
}

#[test]
fn values_of_a_megabyte_and_a_half() {
    let model = puts([10, 1_500_000, 10, 1_500_000, 1_499_999, 10]);
    let bytes = model.database(2, 0, 4096, &[]);
    for until in 2..=model.revision {
        check(&model, &bytes, (0, &[4], 1, until));
    }
}

#[test]
fn a_merged_database_is_a_base() {
    let model = puts((0..400).map(|n| n % 900));
    let mut bytes = model.database(3, 0, 1024, &[]);
    for until in [40, 41, 42, 200, 401] {
        bytes = check(&model, &bytes, (0, &[], 0, until));
    }
}

/// Adds records one by one.
fn add_all<'a>(base: &[u8], until: i64, rows: impl IntoIterator<Item = &'a Row>) -> Result<Merged, MergeError> {
    let mut merge = Merge::begin(base, base.len() as u64, until, BUDGET)?;
    let mut out = Vec::new();
    for row in rows {
        if !row.add(&mut merge, &mut out)? {
            break;
        }
    }
    merge.finish(&mut out)
}

#[test]
fn a_hole_is_named_by_both_ends() {
    let model = puts([10; 9]);
    let base = model.database(4, 0, 4096, &[]);
    let error = |until, without: &[i64]| {
        let rows = model.rows.iter().filter(|row| !without.contains(&row.main));
        add_all(&base, until, rows).map(|merged| merged.records).map_err(|error| error.to_string())
    };
    assert_eq!(error(9, &[]).unwrap(), 5);
    assert_eq!(error(9, &[2, 3, 4]).unwrap(), 5, "the base has these");
    assert_eq!(error(6, &[7, 8]).unwrap(), 2, "after the wanted revision");
    assert_eq!(error(9, &[5]).unwrap_err(), "the log has a hole: revision 6 follows revision 4");
    assert_eq!(error(9, &[7, 8]).unwrap_err(), "the log has a hole: revision 9 follows revision 6");
    assert_eq!(error(7, &[7, 8]).unwrap_err(), "the log has a hole: revision 9 follows revision 6");
    assert_eq!(error(11, &[]).unwrap_err(), "the log ends at revision 10, before revision 11");
    assert_eq!(error(3, &[]).unwrap_err(), "the base is at revision 4, after revision 3");
}

#[test]
fn a_record_that_etcd_does_not_write_is_refused() {
    let changes = |key| Change::Put { key, length: 3, lease: None };
    let both = || Step::Txn(vec![changes(1), changes(2)]);
    let model = Model::from_steps(&[both(), both(), Step::Txn(vec![Change::Delete { key: 1 }])]);
    let base = model.database(2, 0, 4096, &[]);
    let error = |change: &dyn Fn(&mut Vec<Row>)| {
        let mut rows = model.rows.clone();
        change(&mut rows);
        add_all(&base, 4, &rows).map(|merged| merged.records).map_err(|error| error.to_string())
    };
    assert_eq!(error(&|_| ()).unwrap(), 3);
    let twice = |rows: &mut Vec<Row>| rows.insert(2, rows[2].clone());
    assert_eq!(error(&twice).unwrap(), 3, "an overlap");
    let lacks = "the log's record of revision 3, change 1, does not follow the change before it";
    assert_eq!(error(&|rows| drop(rows.remove(2))).unwrap_err(), lacks);
    let nameless = error(&|rows| rows[2].key.clear()).unwrap_err();
    assert!(nameless.ends_with("change 0, has no key"), "{nameless}");
    let raw = |main, tombstone, value: &[u8]| {
        let mut merge = Merge::begin(&base[..], base.len() as u64, 4, BUDGET).unwrap();
        merge.add(&Record { main, sub: 0, tombstone, value }, &mut Vec::new()).unwrap_err().to_string()
    };
    assert!(raw(3, false, b"\x0a\x09k").contains("cannot be read"));
    assert!(raw(3, false, &model.rows[0].value()).contains("holds another revision"));
    assert!(raw(3, true, &model.rows[2].value()).contains("is a tombstone with a value"));
}

#[test]
fn leases_follow_their_rules() {
    let put = |lease| Step::Txn(vec![Change::Put { key: lease, length: 1, lease: Some(lease) }]);
    // The leases 1 to 4; lease 2 is granted again for longer, lease 3 loses its key.
    let model = Model::from_steps(&[
        Step::Grant(1, 10),
        Step::Grant(2, 20),
        put(1),
        put(2),
        Step::Revoke(2),
        Step::Grant(2, 99),
        Step::Grant(3, 30),
        put(3),
        Step::Txn(vec![Change::Put { key: 3, length: 1, lease: None }]),
        put(2),
        Step::Grant(4, 40),
        put(4),
    ]);
    let base = model.database(3, 0, 4096, &[]);
    let merged = |until, asked: &[(i64, i64)]| {
        let mut merge = Merge::begin(&base[..], base.len() as u64, until, BUDGET).unwrap();
        let (mut out, offset) = (Vec::new(), merge.offset());
        for row in &model.rows {
            row.add(&mut merge, &mut out).unwrap();
        }
        for (id, ttl) in asked {
            merge.add_lease(*id, *ttl).unwrap();
        }
        let merged = merge.finish(&mut out).unwrap();
        let leases = prove(&apply(&base, &out, offset, &merged)).leases;
        (leases.iter().map(|lease| (lease.id, lease.ttl)).collect::<Vec<_>>(), merged.unknown_ttls)
    };
    let all = [(1, 10), (2, 99), (3, 30), (4, 40)];
    assert_eq!(merged(3, &all), (vec![(1, 10), (2, 20)], vec![]));
    assert_eq!(merged(4, &all), (vec![(1, 10), (2, 20)], vec![]), "a lease without keys only expires");
    assert_eq!(merged(5, &all), (vec![(1, 10), (2, 20), (3, 30)], vec![]));
    assert_eq!(merged(6, &all), (vec![(1, 10), (2, 20)], vec![]));
    assert_eq!(merged(7, &all), (vec![(1, 10), (2, 99)], vec![]));
    assert_eq!(merged(8, &all), (vec![(1, 10), (2, 99), (4, 40)], vec![]));
    assert_eq!(merged(8, &all[..3]), (vec![(1, 10), (2, 99), (4, UNKNOWN_TTL)], vec![4]));
    assert_eq!(
        merged(8, &[(1, 0), (2, 99), (4, 0)]),
        (vec![(1, 10), (2, 99), (4, UNKNOWN_TTL)], vec![4]),
        "it had ended"
    );
    assert_eq!(merged(8, &[]), (vec![(1, 10), (2, 20), (4, UNKNOWN_TTL)], vec![4]), "the base knows lease 2");
}

/// A time to live that comes after the wanted revision may be that of a later grant.
#[test]
fn a_later_grant_does_not_change_an_earlier_lease() {
    let put = |key| Step::Txn(vec![Change::Put { key, length: 1, lease: Some(1) }]);
    let model = Model::from_steps(&[Step::Grant(1, 10), put(1), put(2), Step::Revoke(1), Step::Grant(1, 99), put(1)]);
    let base = model.database(1, 0, 4096, &[]);
    let mut merge = Merge::begin(&base[..], base.len() as u64, 3, BUDGET).unwrap();
    let (mut out, offset) = (Vec::new(), merge.offset());
    add_segment(&model, (2, 3), &mut merge, &mut out).unwrap();
    add_segment(&model, (4, 5), &mut merge, &mut out).unwrap();
    let merged = merge.finish(&mut out).unwrap();
    assert_eq!(prove(&apply(&base, &out, offset, &merged)).leases, [Lease { id: 1, ttl: 10 }]);
}

#[test]
fn many_leases_make_a_bucket_of_many_pages_or_exceed_the_budget() {
    let base = Model::new().database(1, 0, 1024, &[]);
    let run = |budget, keys: i64| {
        let mut merge = Merge::begin(&base[..], base.len() as u64, 1 + keys, budget)?;
        let (mut out, offset) = (Vec::new(), merge.offset());
        for n in 1..=keys {
            let put = Put { value: vec![], create_revision: n + 1, version: 1, lease: n * 3 };
            let row = Row { main: n + 1, sub: 0, key: n.to_be_bytes().to_vec(), put: Some(put) };
            row.add(&mut merge, &mut out)?;
            merge.add_lease(n * 3, n)?;
            if n % 100 == 0 {
                merge.end_segment();
            }
        }
        let merged = merge.finish(&mut out)?;
        Ok::<_, MergeError>(apply(&base, &out, offset, &merged))
    };
    let leases = prove(&run(BUDGET, 5000).unwrap()).leases;
    assert!(leases.len() == 5000 && leases.iter().all(|lease| lease.ttl * 3 == lease.id));
    assert!(matches!(run(10_000, 5000), Err(MergeError::OverBudget { budget: 10_000 })));
}

/// Leases whose keys are gone take no memory: each comes with its time to live in a segment of its own.
#[test]
fn leases_that_come_and_go_fit_a_small_budget() {
    let base = Model::new().database(1, 0, 4096, &[]);
    let mut merge = Merge::begin(&base[..], base.len() as u64, 40_001, 100 << 10).unwrap();
    let mut out = Vec::new();
    for n in 1..=20_000 {
        let put = Put { value: vec![], create_revision: 2 * n, version: 1, lease: n };
        let row = Row { main: 2 * n, sub: 0, key: b"k".to_vec(), put: Some(put) };
        row.add(&mut merge, &mut out).unwrap();
        merge.add_lease(n, 10).unwrap();
        let row = Row { main: 2 * n + 1, sub: 0, key: b"k".to_vec(), put: None };
        row.add(&mut merge, &mut out).unwrap();
        if n % 100 == 0 {
            merge.end_segment();
        }
    }
    assert_eq!(merge.finish(&mut out).unwrap().unknown_ttls, [] as [i64; 0]);
}

#[test]
fn pages_are_handed_out_as_they_are_full() {
    let base = Model::new().database(1, 0, 4096, &[]);
    let mut merge = Merge::begin(&base[..], base.len() as u64, 10_001, BUDGET).unwrap();
    let (mut out, mut given) = (Vec::new(), 0);
    for row in puts(vec![300; 10_000]).rows {
        row.add(&mut merge, &mut out).unwrap();
        given += row.value().len() + 33;
        assert!(out.len() + 4096 * 2 > given, "{} of {given}", out.len());
    }
}

/// A writer without space.
struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_error_of_the_writer_keeps_its_kind() {
    let model = puts([10]);
    let base = model.database(1, 0, 4096, &[]);
    let mut merge = Merge::begin(&base[..], base.len() as u64, 2, BUDGET).unwrap();
    model.rows[0].add(&mut merge, &mut Vec::new()).unwrap();
    let error = merge.finish(&mut Full).unwrap_err();
    assert!(matches!(&error, MergeError::Write(error) if error.kind() == io::ErrorKind::StorageFull), "{error}");
}

#[test]
fn a_base_that_cannot_be_read_is_an_error() {
    let base = puts([10; 100]).database(50, 0, 1024, &[]);
    for bytes in [&base[..base.len() - 1024], &base[..0], &vec![0; 9000][..]] {
        let error = Merge::begin(bytes, bytes.len() as u64, 60, BUDGET).unwrap_err();
        assert!(matches!(error, MergeError::Base(_)), "{error}");
    }
}
