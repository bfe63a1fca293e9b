//! Grafts onto generated databases; the reader that the scan's tests use reads the results.

use proptest::prelude::*;

use super::*;
use crate::bolt::{self, Bolt, Entry};
use crate::scan::{Proven, Reader};

/// Content of each bucket.
type Content = BTreeMap<Vec<u8>, Entries>;

type Change<'c> = &'c dyn Fn(&mut Content);

const BUDGET: usize = 64 << 20;
const PEER: &[u8] = br#"{"id":4660,"peerURLs":["http://m:2380"],"name":"m"}"#;

fn entry(key: &[u8], value: &[u8]) -> Entry {
    (key.to_vec(), value.to_vec())
}

/// Buckets of a usual cluster: three members, one removed member, versions, a compaction.
fn small_buckets() -> Vec<(&'static str, Vec<Entry>)> {
    let member = |id: u64| {
        let json =
            format!(r#"{{"id":{id},"peerURLs":["http://m{id}:2380"],"name":"m{id}","clientURLs":["http://m"]}}"#);
        entry(format!("{id:016x}").as_bytes(), json.as_bytes())
    };
    vec![
        ("alarm", vec![]),
        ("auth", vec![entry(b"authEnabled", &[0]), entry(b"authRevision", &[0, 0, 0, 0, 0, 0, 0, 1])]),
        ("cluster", vec![entry(b"clusterVersion", b"3.6.0")]),
        ("members", (1..4).map(member).collect()),
        ("members_removed", vec![entry(b"0000000000000009", b"removed")]),
        (
            "meta",
            vec![
                entry(b"confState", b"{\"voters\":[1,2,3],\"auto_leave\":false}"),
                entry(b"consistent_index", &77_u64.to_be_bytes()),
                entry(b"storageVersion", b"3.6.0"),
                entry(b"term", &5_u64.to_be_bytes()),
            ],
        ),
    ]
}

/// Generates a database with values of these lengths, and these buckets inline in the root bucket.
fn database(size: usize, lengths: &[usize], inline: &[&str]) -> Vec<u8> {
    let records: Vec<Entry> = (2..)
        .zip(lengths)
        .map(|(revision, length)| (bolt::rev(revision, 0, false), bolt::key_value(b"k", &vec![b'v'; *length])))
        .collect();
    let mut bolt = Bolt::new(size);
    let mut all = small_buckets();
    all.push(("key", records));
    let trees: Vec<(&str, u64)> = all
        .iter()
        .filter(|(name, _)| !inline.contains(name))
        .map(|(name, all)| (*name, bolt.tree(all, |_| ())))
        .collect();
    let inline: Vec<(&str, &[Entry])> =
        all.iter().filter(|(name, _)| inline.contains(name)).map(|(name, all)| (*name, &all[..])).collect();
    bolt.finish(&trees, &inline)
}

fn open(bytes: &[u8]) -> Database<&[u8]> {
    Database::open(bytes, bytes.len() as u64).unwrap()
}

#[test]
fn whether_anybody_has_to_log_in_is_read_without_a_scan() {
    for (size, inline) in [(4096, &[][..]), (16384, &["auth"][..])] {
        let off = database(size, &[10], inline);
        let asked = |bytes: &[u8]| auth_enabled(bytes, bytes.len() as u64);
        assert_eq!(asked(&off), Ok(false));
        let mut on = off;
        let key = b"authEnabled\0";
        let at = on.windows(key.len()).position(|bytes| bytes == key).unwrap();
        on[at + key.len() - 1] = 1;
        assert_eq!(asked(&on), Ok(true));
        assert_eq!(auth_revision(&on[..], on.len() as u64), Ok(Some(1)));
        assert!(asked(&on[..on.len() - size]).is_err(), "cut short");
    }
}

#[test]
fn where_the_revisions_have_come_is_read_without_a_scan() {
    let asked = |bytes: &[u8]| reached(bytes, bytes.len() as u64);
    for (lengths, last_record) in [(&[][..], None), (&[10, 20, 30][..], Some(4)), (&[1000; 40][..], Some(41))] {
        for inline in [&[][..], &["meta"]] {
            let bytes = database(4096, lengths, inline);
            assert_eq!(asked(&bytes), Ok(Reached { last_record, compact_revision: None }), "{lengths:?}");
            let newest = last_record.unwrap_or(0) + 1_000;
            assert_eq!(
                asked(&graft(&bytes, 1_000)),
                Ok(Reached { last_record: Some(newest), compact_revision: Some(newest) }),
                "{lengths:?}"
            );
        }
    }
    let compacted = |scheduled: &[u8], finished: &[u8]| {
        let mut bolt = Bolt::new(4096);
        let trees = [("key", bolt.tree(&[(bolt::rev(7, 0, false), vec![])], |_| ()))];
        let meta = [entry(b"finishedCompactRev", finished), entry(b"scheduledCompactRev", scheduled)];
        asked(&bolt.finish(&trees, &[("meta", &meta)]))
    };
    let rev = |main| bolt::rev(main, 0, false);
    let at = |compacted| Ok(Reached { last_record: Some(7), compact_revision: Some(compacted) });
    assert_eq!(compacted(&rev(9_000), &rev(5)), at(9_000), "half done");
    assert_eq!(compacted(&rev(5), &rev(i64::MAX)), at(i64::MAX));
    assert!(compacted(&rev(5), b"5").is_err() && compacted(&rev(-5), &rev(5)).is_err());
    let bytes = database(4096, &[10; 40], &[]);
    assert!(asked(&bytes[..bytes.len() - 4096]).is_err(), "cut short");
}

#[test]
fn the_last_revision_is_summed_up_over_its_leaves() {
    // Revision 9 has changes on several leaves; deletions of the compact revision are gone.
    let earlier = (2..9).map(|main| (bolt::rev(main, 0, false), bolt::key_value(b"k", &[b'v'; 900])));
    let last = (0..20).map(|sub| {
        let value = if sub % 2 == 1 { bolt::key_value(b"k", b"") } else { bolt::key_value(b"k", &[b'w'; 900]) };
        (bolt::rev(9, sub, sub % 2 == 1), value)
    });
    let mut expected = RevisionSum::default();
    last.clone().enumerate().for_each(|(sub, (_, value))| expected.add(sub % 2 == 1, &value));
    let expected = expected.get();
    let records: Vec<Entry> = earlier.chain(last).collect();
    let asked = |records: &[Entry], compacted: i64| {
        let mut bolt = Bolt::new(4096);
        let trees = [("key", bolt.tree(records, |_| ()))];
        let meta = [entry(b"finishedCompactRev", &bolt::rev(compacted, 0, false))];
        let bytes = bolt.finish(&trees, &[("meta", &meta)]);
        let size = bytes.len() as u64;
        last_sum(&bytes[..], size, reached(&bytes[..], size).unwrap()).unwrap()
    };
    assert_eq!(asked(&records, 8), Some((9, expected)));
    assert_eq!((asked(&records, 9), asked(&[], 1)), (None, None));
}

/// Returns all buckets, and the content of the small ones.
fn content(bytes: &[u8]) -> Content {
    let database = open(bytes);
    let buckets = database.buckets().unwrap();
    buckets.iter().map(|(name, value)| (name.clone(), database.entries(value).unwrap())).collect()
}

fn written(size: usize, content: &Content) -> Vec<u8> {
    let mut pages = Pages::new(size, 2);
    let buckets: Entries =
        content.iter().map(|(name, all)| (name.clone(), header(pages.tree(all, 0).unwrap(), 0))).collect();
    let root = pages.tree(&buckets, page::BUCKET).unwrap();
    let meta = Meta { page_size: size, root, sequence: 0, freelist: None, high_water: pages.next(), txid: 9 };
    write::metas(&meta).unwrap().into_iter().chain(pages.finish()).flat_map(|page| page.bytes).collect()
}

/// Changes a database as etcdutl does: one member, no removed member, the start of the log, and perhaps a new revision.
fn etcdutl(small: &[u8], bump: i64) -> Content {
    let (database, sha256) = small.split_last_chunk::<32>().unwrap();
    assert_eq!(Sha256::digest(database)[..], sha256[..]);
    let mut content = content(database);
    let mut put = |bucket: &[u8], key: &[u8], value: &[u8]| {
        content.entry(bucket.to_vec()).or_default().insert(key.to_vec(), value.to_vec())
    };
    put(b"meta", b"consistent_index", &1_u64.to_be_bytes());
    put(b"meta", b"term", &1_u64.to_be_bytes());
    for bucket in [&b"members"[..], b"members_removed"] {
        content.insert(bucket.to_vec(), Entries::new());
    }
    content.get_mut(b"members".as_slice()).unwrap().insert(b"0000000000001234".to_vec(), PEER.to_vec());
    if bump > 0 {
        let newest = content[KEY].keys().next_back().map_or(0, |key| i64::from_be_bytes(*key.first_chunk().unwrap()));
        let revision = bolt::rev(newest + bump, 0, false);
        content.get_mut(KEY).unwrap().insert(revision.clone(), vec![]);
        content.get_mut(b"meta".as_slice()).unwrap().insert(b"scheduledCompactRev".to_vec(), revision);
    }
    content
}

fn prove(bytes: &[u8]) -> Proven {
    Reader::open(bytes, bytes.len() as u64, BUDGET).unwrap().prove(None).unwrap()
}

/// Returns revisions and lengths of all records.
fn records(bytes: &[u8]) -> Vec<(i64, Vec<u8>, usize)> {
    let mut found = Vec::new();
    let mut reader = Reader::open(bytes, bytes.len() as u64, BUDGET).unwrap();
    reader.records(|record| found.push((record.main, record.key.to_vec(), record.value.len()))).unwrap();
    found
}

fn apply(bytes: &mut Vec<u8>, grafted: &Grafted) {
    for page in grafted.pages.iter().chain(&grafted.metas) {
        let at = usize::try_from(grafted.offset(page)).unwrap();
        bytes.resize(bytes.len().max(at + page.bytes.len()), 0xee);
        bytes[at..at + page.bytes.len()].copy_from_slice(&page.bytes);
    }
}

fn graft(bytes: &[u8], bump: i64) -> Vec<u8> {
    let stock = Stock::read(bytes, bytes.len() as u64).unwrap();
    let small = stock.small().unwrap();
    assert_eq!(prove(&small[..small.len() - 32]).page_size, prove(bytes).page_size);
    let scion = written(4096, &etcdutl(&small, bump));
    let grafted = stock.graft(&scion[..], scion.len() as u64).unwrap();
    let mut after = bytes.to_vec();
    apply(&mut after, &grafted);
    assert_eq!(after.len() as u64, grafted.bytes());
    grafted.check(&stock, &after[..], after.len() as u64).unwrap();
    after
}

/// Grafts, and checks every fact.
fn proven(bytes: &[u8], bump: i64) -> Vec<u8> {
    let (before, after) = (prove(bytes), graft(bytes, bump));
    let found = prove(&after);
    assert_eq!(found.members.len(), 1);
    assert_eq!((found.members[0].id, found.removed_members.len()), (4660, 0));
    assert_eq!((found.consistent_index, found.term), (Some(1), Some(1)));
    assert_eq!((&found.storage_version, &found.cluster_version), (&before.storage_version, &before.cluster_version));
    assert_eq!(found.keys, before.keys);
    let mut expected = records(bytes);
    if bump > 0 {
        let newest = expected.last().map_or(0, |record| record.0);
        expected.push((newest + bump, vec![], 0));
        assert_eq!(found.compact_revision, Some(newest + bump));
    } else {
        assert_eq!((found.revision, found.hash_kv), (before.revision, before.hash_kv));
    }
    assert_eq!(records(&after), expected);
    // Only the meta pages have changed.
    let kept = 2 * usize::try_from(before.page_size).unwrap();
    assert_eq!(after[kept..bytes.len()], bytes[kept..]);
    // The newer meta page is the first, with an even number: the next transaction overwrites the older page.
    let (meta, after_it) = (Meta::choose(&after).unwrap(), &after[kept / 2..]);
    assert_eq!((meta.txid % 2, meta.freelist), (0, None));
    let second = u64::from_le_bytes(*after_it[page::HEADER + 48..].first_chunk().unwrap());
    assert_eq!(second, meta.txid - 1);
    after
}

fn lengths() -> impl Strategy<Value = Vec<usize>> {
    let length = prop_oneof![8 => 0_usize..300, 2 => 300_usize..5_000, 1 => 5_000_usize..70_000];
    proptest::collection::vec(length, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_graft_is_a_sound_database_with_the_new_member(
        lengths in lengths(), size in prop_oneof![Just(1024_usize), Just(4096), Just(16 << 10)],
        inline in proptest::sample::subsequence(vec!["alarm", "auth", "cluster", "members_removed", "meta"], 0..5),
        bump in prop_oneof![Just(0_i64), 1_i64..2_000_000],
    ) {
        proven(&database(size, &lengths, &inline), bump);
    }

    #[test]
    fn a_split_keeps_everything_in_order(lengths in proptest::collection::vec(0_usize..3_000, 0..200), size in 10_u32..15) {
        let entries: Entries = (0_u32..).zip(&lengths).map(|(i, n)| (i.to_be_bytes().to_vec(), vec![7; *n])).collect();
        let mut pages = Pages::new(1 << size, 2);
        let root = pages.tree(&entries, 0).unwrap();
        let meta = Meta { page_size: 1 << size, root, sequence: 0, freelist: None, high_water: pages.next(), txid: 9 };
        let all = write::metas(&meta).unwrap().into_iter().chain(pages.finish());
        let bytes: Vec<u8> = all.flat_map(|page| page.bytes).collect();
        let database = open(&bytes);
        prop_assert_eq!(database.entries(&header(root, 0)).unwrap(), entries);
    }
}

#[test]
fn a_key_space_within_the_root_bucket_or_empty_grows_too() {
    for inline in [&["key", "members"][..], &[]] {
        for lengths in [&[][..], &[5], &[5, 6, 7]] {
            for bump in [0, 1_000] {
                proven(&database(4096, lengths, inline), bump);
            }
        }
    }
}

/// Each bump adds a leaf: branches fill, split, and get new branches above.
#[test]
fn many_bumps_split_the_branches() {
    let mut bytes = database(1024, &[100; 40], &[]);
    for round in 1..120 {
        bytes = proven(&bytes, round);
    }
    let stock = Stock::read(&bytes[..], bytes.len() as u64).unwrap();
    assert!(stock.last.branches.len() >= 2, "{}", stock.last.branches.len());
    assert_eq!(prove(&bytes).revisions, 159);
}

#[test]
fn values_of_a_megabyte_and_a_half() {
    for size in [4096, 16 << 10] {
        let bytes = database(size, &[1_500_000, 10, 1_500_000, 1_500_000], &[]);
        proven(&bytes, 0);
        proven(&bytes, 1_000_000_000);
    }
}

#[test]
fn a_list_of_free_pages_is_given_up() {
    let mut bytes = database(4096, &[10; 300], &[]);
    // The list is in the last page, and holds no free page.
    let list = bytes.len() as u64 / 4096;
    bytes.extend(bolt::header(list, 0x10, 0, 0));
    bytes.resize((usize::try_from(list).unwrap() + 1) * 4096, 0);
    let meta = Meta::choose(&bytes).unwrap();
    let meta = Meta { freelist: Some(list), high_water: list + 1, txid: 11, ..meta };
    for page in write::metas(&meta).unwrap() {
        let at = usize::try_from(page.id).unwrap() * 4096;
        bytes[at..at + 4096].copy_from_slice(&page.bytes);
    }
    assert_eq!(prove(&bytes).pages, list + 1);
    let after = proven(&bytes, 7);
    assert!(Meta::choose(&after).unwrap().high_water > list + 1, "nothing in use is written over");
}

#[test]
fn what_etcdutl_was_not_known_to_do_is_unfit() {
    let bytes = database(4096, &[10; 300], &[]);
    let stock = Stock::read(&bytes[..], bytes.len() as u64).unwrap();
    let good = etcdutl(&stock.small().unwrap(), 0);
    let unfit = |change: Change<'_>| {
        let mut content = good.clone();
        change(&mut content);
        let scion = written(4096, &content);
        stock.graft(&scion[..], scion.len() as u64).map(|_| ()).map_err(|why| why.to_string())
    };
    assert_eq!(unfit(&|_| ()), Ok(()));
    let new = |content: &mut Content| drop(content.insert(b"new".to_vec(), Entries::new()));
    assert_eq!(unfit(&new), Ok(()), "a bucket of a later version");
    let says = |change: Change<'_>, word: &str| {
        let why = unfit(change).unwrap_err();
        assert!(why.contains(word), "no {word:?} in {why}");
    };
    let put = |bucket: &'static [u8], key: Vec<u8>| {
        move |content: &mut Content| {
            content.get_mut(bucket).unwrap().insert(key.clone(), vec![1]);
        }
    };
    says(&put(b"auth", b"x".to_vec()), "bucket auth");
    says(&put(b"members", b"x".to_vec()), "exactly one");
    says(&put(KEY, bolt::rev(1, 0, false)), "more than its end");
    says(&|content| drop(content.remove(b"auth".as_slice())), "bucket auth");
    says(&|content| drop(content.remove(KEY)), "bucket key");
    says(&|content| content.get_mut(KEY).unwrap().clear(), "more than its end");
    says(&|content| drop(content.remove(b"members".as_slice())), "exactly one");
    let none = stock.graft(&[0_u8; 9000][..], 9000).map(|_| ()).unwrap_err();
    assert!(none.to_string().contains("meta page"), "{none}");
}

#[test]
fn what_was_not_written_as_it_should_be_is_seen() {
    let bytes = database(1024, &[100; 200], &[]);
    let stock = Stock::read(&bytes[..], bytes.len() as u64).unwrap();
    let scion = written(4096, &etcdutl(&stock.small().unwrap(), 5));
    let grafted = stock.graft(&scion[..], scion.len() as u64).unwrap();
    let mut good = bytes.clone();
    apply(&mut good, &grafted);
    let check = |bytes: &[u8]| grafted.check(&stock, bytes, bytes.len() as u64);
    assert_eq!(check(&good), Ok(()));
    assert!(check(&bytes).is_err(), "nothing was written");
    // The unused ends of pages are zero, as is the rest of the first meta page.
    for at in (0..1024).chain(bytes.len()..good.len()).filter(|at| good[*at] != 0) {
        let mut flipped = good.clone();
        flipped[at] ^= 0x10;
        assert!(check(&flipped).is_err(), "byte {at} of {}", good.len());
    }
    for page in &grafted.pages {
        let at = usize::try_from(grafted.offset(page)).unwrap();
        let mut lost = good.clone();
        lost[at..at + page.bytes.len()].fill(0);
        assert!(check(&lost).is_err(), "page {}", page.id);
    }
}

proptest! {
    /// No readable input makes it panic or loop.
    #[test]
    fn garbage_is_unfit_or_grafted_and_never_a_panic(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), bump in 0_i64..3,
    ) {
        let mut bytes = database(1024, &[40; 60], &["auth", "meta"]);
        let good = bytes.clone();
        for (at, value) in flips {
            let at = 2048 + at.index(bytes.len() - 2048);
            bytes[at] = value;
        }
        let good = Stock::read(&good[..], good.len() as u64).unwrap().small().unwrap();
        let scion = written(4096, &etcdutl(&good, bump));
        if let Ok(stock) = Stock::read(&bytes[..], bytes.len() as u64) {
            let _small = stock.small();
            let _grafted = stock.graft(&scion[..], scion.len() as u64);
            let _other = stock.graft(&bytes[..], bytes.len() as u64);
        }
    }
}

/// A scan without enough memory has not proven such a tree: the cost of detecting the loop is bounded.
#[test]
fn a_branch_that_leads_to_itself_costs_no_memory() {
    let mut bytes = database(4096, &[10; 20], &[]);
    let root = u64::from_le_bytes(bytes[32..40].try_into().unwrap());
    let children: Vec<_> = (0..100_u32).map(|n| (n.to_be_bytes().to_vec(), root)).collect();
    let page = [bolt::header(root, 1, children.len(), 0), bolt::branch_body(&children)].concat();
    let at = usize::try_from(root).unwrap() * 4096;
    bytes[at..at + page.len()].copy_from_slice(&page);
    let error = auth_enabled(&bytes[..], bytes.len() as u64).unwrap_err();
    assert!(error.to_string().contains("leads to pages twice"), "{error}");
}
