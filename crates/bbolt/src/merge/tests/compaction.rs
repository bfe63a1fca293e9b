//! Merges with a compaction, beside a member that etcd has compacted at the same revision.

use super::*;

/// Takes a revision's records as the archiver records them: in segments with these last revisions, in as many passes as the
/// survey needs. Returns the number of passes too.
fn survey(
    model: &Model,
    base: &[u8],
    (ends, until): (&[i64], i64),
    compact: i64,
    budget: usize,
) -> Result<(Surveyed, usize), MergeError> {
    surveyed(model, ends, Survey::begin(base, base.len() as u64, until, Some(compact), budget)?)
}

fn surveyed(model: &Model, ends: &[i64], mut survey: Survey<&[u8]>) -> Result<(Surveyed, usize), MergeError> {
    for passes in 1.. {
        let mut first = 1;
        for end in ends.iter().copied().chain([model.revision]) {
            for row in model.rows_between(first, end) {
                let Row { main, sub, .. } = *row;
                survey.add(&Record { main, sub, tombstone: row.put.is_none(), value: &row.value() })?;
            }
            survey.end_segment();
            first = end + 1;
        }
        if let Some(surveyed) = survey.end_pass()? {
            return Ok((surveyed, passes));
        }
    }
    unreachable!("passes end")
}

/// Merges up to a revision with a compaction into a file of its own.
fn compacted(model: &Model, base: &[u8], (ends, until): (&[i64], i64), kept: Kept) -> (Vec<u8>, Merged) {
    let mut out = Vec::new();
    let mut merge = Merge::compact(base, base.len() as u64, until, kept, BUDGET).unwrap();
    let (mut first, offset) = (1, merge.offset());
    for end in ends.iter().copied().chain([model.revision]) {
        add_segment(model, (first, end), &mut merge, &mut out).unwrap();
        first = end + 1;
    }
    let merged = merge.finish(&mut out).unwrap();
    let metas: Vec<u8> = merged.metas.iter().flat_map(|page| page.bytes.clone()).collect();
    assert_eq!(metas.len() as u64, offset);
    let bytes = [metas, out].concat();
    assert_eq!(bytes.len() as u64, merged.bytes);
    (bytes, merged)
}

/// Entries of all buckets beside `key`, `lease` and `meta`.
fn others(bytes: &[u8]) -> BTreeMap<Vec<u8>, Entries> {
    let database = Database::open(bytes, bytes.len() as u64).unwrap();
    let buckets = database.buckets().unwrap().into_iter();
    let others = buckets.filter(|(name, _)| ![KEY, LEASE, b"meta"].contains(&&name[..]));
    others.map(|(name, value)| (name, database.entries(&value).unwrap())).collect()
}

/// Merges up to a revision with each later compaction, and compares with a member that etcd has compacted there.
fn check_compacted(model: &Model, base: &[u8], (ends, until): (&[i64], i64), compact: i64) {
    let (surveyed, passes) = survey(model, base, (ends, until), compact, BUDGET).unwrap();
    assert_eq!(passes, 1);
    let kept = surveyed.kept.expect("a later compaction");
    assert_eq!(kept.compact_revision(), compact);
    let (bytes, merged) = compacted(model, base, (ends, until), kept);
    assert!(surveyed.least_bytes <= merged.bytes, "{} of {}", surveyed.least_bytes, merged.bytes);
    let found = prove(&bytes);
    assert_eq!((found.revision, merged.revision, found.compact_revision), (until, until, Some(compact)));
    // A member since 3.5.16 keeps the tombstones at the compact revision itself.
    let is_kept = |row: &&Row| row.main == compact && row.put.is_none();
    let mut expected = model.rows_at(until, compact);
    expected.extend(model.rows.iter().filter(is_kept).cloned());
    expected.sort_by_key(|row| (row.main, row.sub));
    assert_eq!(rows(&bytes), expected);
    assert_eq!(found.keys, Some(model.at(&model.past_keys, until).len() as u64));
    let member = model.database(until, compact, 4096, &[]);
    if found.keys != Some(0) {
        assert_eq!(found.hash_kv, prove(&member).hash_kv);
    }
    // All but history and leases is that of the merge that adds pages; the leases are compared there.
    let (appended, _) = merge(model, base, ends, 0, until).unwrap();
    assert_eq!((found.leases, others(&bytes)), (prove(&appended).leases, others(&appended)));
    // The merged database is a base.
    let open = Reader::open(&bytes[..], bytes.len() as u64, BUDGET).unwrap().compact_revision();
    assert_eq!(open, Ok(compact));
    if until < model.revision {
        let (further, _) = merge(model, &bytes, ends, 0, model.revision).unwrap();
        assert_eq!(prove(&further).revision, model.revision);
    }
}

/// Compares HashKV of the records up to a revision with a member that etcd has compacted, for every such compaction.
fn check_hash_kv(model: &Model, base: &[u8], before: i64, ends: &[i64], revision: i64) {
    for compact in before..=revision {
        let survey = Survey::for_hash_kv(base, base.len() as u64, revision, compact, BUDGET).unwrap();
        let (surveyed, _) = surveyed(model, ends, survey).unwrap();
        let exists = !model.at(&model.past_keys, revision).is_empty();
        assert_eq!(surveyed.is_empty, compact > 0 && !exists, "{compact} at {revision}");
        let mut hash = LogHash::begin(base, base.len() as u64, revision, surveyed.kept).unwrap();
        let mut first = 1;
        for end in ends.iter().copied().chain([model.revision]) {
            for row in model.rows_between(first, end) {
                let Row { main, sub, .. } = *row;
                hash.add(&Record { main, sub, tombstone: row.put.is_none(), value: &row.value() }).unwrap();
            }
            hash.end_segment();
            first = end + 1;
        }
        if !surveyed.is_empty {
            let member = prove(&model.database(revision, compact, 4096, &[]));
            assert_eq!(hash.finish().unwrap(), member.hash_kv.unwrap().hash, "{compact} at {revision}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// etcd compacts at every revision between the base's compaction and the point.
    #[test]
    fn compaction_props(
        steps in proptest::collection::vec(changes(), 1..30),
        size in prop_oneof![Just(1024_usize), Just(4096)],
        inline in proptest::sample::subsequence(vec!["auth", "key", "lease", "meta"], 0..4),
        at: (Index, Index, Index),
        end: Index,
    ) {
        let model = Model::from_steps(&steps);
        let pick = |index: Index, of: i64| i64::try_from(index.index(usize::try_from(of).unwrap())).unwrap();
        let base = pick(at.0, model.revision) + 1;
        let before = pick(at.1, base + 1);
        let bytes = model.database(base, before, size, &inline);
        let until = base + pick(at.2, model.revision - base + 1);
        let ends = [pick(end, model.revision) + 1];
        for compact in before + 1..=until {
            check_compacted(&model, &bytes, (&ends, until), compact);
        }
        check_hash_kv(&model, &bytes, before, &ends, until);
        for compact in [before, until + 1, 0] {
            let (surveyed, _) = survey(&model, &bytes, (&ends, until), compact, BUDGET).unwrap();
            prop_assert!(surveyed.kept.is_none(), "{} after {} until {}", compact, before, until);
            let (appended, _) = merge(&model, &bytes, &ends, 0, until).unwrap();
            prop_assert!(surveyed.least_bytes <= appended.len() as u64);
        }
    }
}

/// Values that are written again and again: the result has the size of the values that stay.
#[test]
fn a_compacted_merge_is_as_large_as_what_stays() {
    let steps: Vec<Step> = (0..800_u16)
        .map(|n| Step::Txn(vec![Change::Put { key: u8::try_from(n % 20).unwrap(), length: 20_000, lease: None }]))
        .collect();
    let model = Model::from_steps(&steps);
    let base = model.database(21, 0, 4096, &[]);
    let (surveyed, _) = survey(&model, &base, (&[], model.revision), model.revision, BUDGET).unwrap();
    let (bytes, _) = compacted(&model, &base, (&[], model.revision), surveyed.kept.unwrap());
    assert!((400_000..460_000).contains(&bytes.len()), "{}", bytes.len());
    assert!((400_000..410_000).contains(&surveyed.least_bytes), "{}", surveyed.least_bytes);
    let (appended, _) = merge(&model, &base, &[], 0, model.revision).unwrap();
    assert!(appended.len() > 16_000_000);
}

/// A table that is too small takes part of the keys, and further passes decide about the others.
#[test]
fn a_small_budget_takes_more_passes_and_gives_the_same() {
    let mut model = Model::new();
    for n in 0..6000_i64 {
        let key = (n * 7919 % 2500).to_be_bytes().to_vec();
        let put = (n % 11 != 0).then(|| Put { value: vec![1; 10], create_revision: n + 2, version: 1, lease: 0 });
        model.revision = n + 2;
        model.rows.push(Row { main: model.revision, sub: 0, key, put });
    }
    let mut base = Model { revision: 1, ..model.clone() };
    base.rows.truncate(1000);
    base.revision = 1001;
    base.past_leases = vec![BTreeMap::new(); 1001];
    let bytes = base.database(1001, 0, 4096, &[]);
    let (whole, one) = survey(&model, &bytes, (&[3000], 6001), 5990, BUDGET).unwrap();
    let (parts, many) = survey(&model, &bytes, (&[3000], 6001), 5990, 60_000).unwrap();
    assert!(one == 1 && many > 2, "{one} and {many}");
    assert_eq!(whole.least_bytes, parts.least_bytes);
    let rows_of = |surveyed: Surveyed| {
        let mut out = Vec::new();
        let kept = surveyed.kept.unwrap();
        let mut merge = Merge::compact(&bytes[..], bytes.len() as u64, 6001, kept, BUDGET).unwrap();
        model.rows.iter().for_each(|row| _ = row.add(&mut merge, &mut out).unwrap());
        let merged = merge.finish(&mut out).unwrap();
        let metas: Vec<u8> = merged.metas.iter().flat_map(|page| page.bytes.clone()).collect();
        rows(&[metas, out].concat())
    };
    let found = rows_of(parts);
    assert_eq!(found, rows_of(whole));
    assert!(found.len() > 2000 && found.len() < 2600, "{}", found.len());
    let error = survey(&model, &bytes, (&[], 6001), 5990, 10).unwrap_err();
    assert!(matches!(error, MergeError::OverBudget { budget: 10 }), "{error}");
}
