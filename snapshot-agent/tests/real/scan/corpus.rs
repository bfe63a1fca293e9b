//! The fuzzer's stored inputs, scanned again without the fuzzer; and the source of its first inputs.
//!
//! `tests/bin/fuzz corpus` runs `write_seeds`, and adds the inputs that the fuzzer found beyond them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use holdfast_bbolt::scan::ScanError;
use holdfast_segment::{KeyValue, Origin, Segment, Writer};

use crate::scan::files;
use crate::scan::oracle::{self, Steering};
use crate::scan::props::{database, entries, meta, rows};
use crate::scan::support::Server;
use crate::scan::support::bolt::{Bolt, Entry, header, key_value, leaf_body, rev};
use serde_json::json;

/// Limit of all stored inputs, so that a checkout stays small.
const MOST_BYTES: usize = 1 << 20;

fn inputs(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// The kind of a verdict, for a table.
fn kind(verdict: Option<Result<bool, ScanError>>) -> &'static str {
    match verdict {
        None => "too short",
        Some(Ok(true)) => "proven",
        Some(Ok(false)) => "proven without HashKV",
        Some(Err(ScanError::NoMeta { .. })) => "no meta page",
        Some(Err(ScanError::Cut { .. })) => "cut",
        Some(Err(ScanError::Page { .. })) => "page",
        Some(Err(ScanError::Bucket { .. })) => "bucket",
        Some(Err(ScanError::OverBudget { .. })) => "over budget",
        Some(Err(ScanError::Io(_))) => "not readable",
    }
}

#[test]
fn stored_databases_hold_what_is_promised() {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, input) in inputs("scan") {
        println!("{}", path.display());
        let verdict = oracle::scan(&input, &mut |_, run| run());
        *kinds.entry(kind(verdict.map(|verdict| verdict.map(|proven| proven.hash_kv.is_ok())))).or_default() += 1;
    }
    println!("{kinds:?}");
    // Inputs of one kind alone would prove little.
    for wanted in ["proven", "proven without HashKV", "no meta page", "cut", "page", "bucket", "over budget"] {
        assert!(kinds.contains_key(wanted), "no input ends with: {wanted}");
    }
}

#[test]
fn stored_manifests_are_written_as_they_were_read() {
    let read: Vec<bool> = inputs("manifest").iter().map(|(_, json)| oracle::manifest(json)).collect();
    assert!(read.contains(&true) && read.contains(&false), "{read:?}");
}

#[test]
fn stored_segments_are_read_or_refused() {
    let read: Vec<bool> = inputs("segment").iter().map(|(_, bytes)| oracle::segment(bytes)).collect();
    assert!(read.contains(&true) && read.contains(&false), "{read:?}");
}

#[test]
fn stored_inputs_are_few() {
    let bytes: usize = ["scan", "manifest", "segment"].into_iter().flat_map(inputs).map(|(_, input)| input.len()).sum();
    assert!(bytes < MOST_BYTES, "{bytes} bytes: `tests/bin/fuzz corpus` makes them fewer");
}

/// The smallest page size of bbolt, so that much fits into few bytes.
const SIZE: usize = 1_024;

/// Sound databases and broken ones, by name.
fn crafted() -> Vec<(String, Vec<u8>)> {
    let mut out: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add = |name: &str, bytes: Vec<u8>| out.push((name.to_owned(), bytes));
    add("empty", database(SIZE, &[], None, |_| {}));
    add("three", database(SIZE, &[(1, 5, false), (2, 9, false), (1, 0, true)], Some(2), |_| {}));
    add("nothing-exists", database(SIZE, &[(1, 5, false), (1, 0, true)], Some(2), |_| {}));
    let records: Vec<(u8, usize, bool)> = (0..24).map(|i| (i * 7 % 10, usize::from(i) * 8, i % 5 == 4)).collect();
    add("leaves", database(SIZE, &records, None, |_| {}));
    add("compacted", database(SIZE, &records, Some(5), |_| {}));
    add(
        "values-of-many-pages",
        database(SIZE, &[(1, 3_000, false), (2, 20, false), (3, 1_500, true)], Some(1), |_| {}),
    );
    let many: Vec<(u8, usize, bool)> = (0..160).map(|i| (i % 40, 100, i % 9 == 0)).collect();
    add("two-levels", database(SIZE, &many, Some(20), |_| {}));
    add("a-row-of-fifty-pages", database(SIZE, &[(0, 50_000, false), (1, 10, false)], None, |_| {}));
    add("rows", database(SIZE, &records, None, rows(3)));
    for (flags, count, overflow) in [(1, 3, 2), (2, 60, 0), (2, 0, 5), (4, 0, 0), (0x10, 9, 0), (0x77, 1, 1)] {
        let junk = |bolt: &mut Bolt| {
            let body = leaf_body(&entries(&records[..2]), 0);
            bolt.garbage(&[header(bolt.pages(), flags, count, overflow), body].concat());
        };
        add(&format!("junk-{flags}-{count}"), database(SIZE, &records[..8], Some(3), junk));
    }

    // Every bucket of etcd, with an entry in each.
    let member = json!({"id": 10, "peerURLs": ["http://a:1"], "name": "m", "clientURLs": ["http://a:2"]}).to_string();
    let mut metas = meta(Some(3));
    metas.push((b"storageVersion".to_vec(), b"3.6.0".to_vec()));
    metas.push((b"term".to_vec(), 2_u64.to_be_bytes().to_vec()));
    let one = |key: &[u8], value: &[u8]| vec![(key.to_vec(), value.to_vec())];
    let buckets: [(&str, Vec<Entry>); 10] = [
        ("alarm", one(b"\x08\x0a\x10\x01", b"")),
        ("auth", one(b"authEnabled", b"\x01")),
        ("authRoles", one(b"root", &key_value(b"root", b""))),
        ("authUsers", one(b"platform_operator", &key_value(b"platform_operator", b"x"))),
        ("cluster", one(b"clusterVersion", b"3.6.0")),
        ("key", entries(&[(1, 5, false), (2, 5, false), (1, 0, true)])),
        ("lease", one(&5_i64.to_be_bytes(), b"\x08\x05\x10\x3c")),
        ("members", one(b"a", member.as_bytes())),
        ("members_removed", one(b"b", b"removed")),
        ("meta", metas),
    ];
    let inline: Vec<(&str, &[Entry])> = buckets.iter().map(|(name, entries)| (*name, entries.as_slice())).collect();
    add("inline", Bolt::new(SIZE).finish(&[], &inline));
    let mut bolt = Bolt::new(SIZE);
    let roots: Vec<(&str, u64)> = buckets.iter().map(|(name, entries)| (*name, bolt.tree(entries, |_| {}))).collect();
    add("roots", bolt.finish(&roots, &[]));

    // Freed pages, one of each kind: a pointer is one byte away from them. And a database with such a pointer.
    for name in ["freed", "astray"] {
        let mut bolt = Bolt::new(SIZE);
        let freed = [5, 6, 9].map(|i| bolt.tree(&buckets[i].1, |_| {}));
        let mut roots = [5, 6, 9].map(|i| (buckets[i].0, bolt.tree(&buckets[i].1, |_| {})));
        if name == "astray" {
            roots[2].1 = freed[0];
        }
        add(name, bolt.finish(&roots, &[]));
    }

    // Broken trees.
    let some = entries(&[(1, 5, false)]);
    let mut bolt = Bolt::new(SIZE);
    let root = bolt.tree(&some, |_| {});
    add("used-twice", bolt.finish(&[("key", root), ("keyz", root)], &[]));
    add("no-key-bucket", Bolt::new(SIZE).finish(&[], &[("meta", &meta(None))]));
    add("out-of-range", Bolt::new(SIZE).finish(&[("key", 77)], &[]));
    let child =
        |position: u32, child: u64| [&position.to_le_bytes()[..], &[17, 0, 0, 0], &child.to_le_bytes()].concat();
    let mut bolt = Bolt::new(SIZE);
    bolt.page(1, 1, &[child(16, 2), rev(2, 0, false)].concat());
    add("ring", bolt.finish(&[("key", 2)], &[]));
    for (name, key, value) in [
        ("no-revision", b"abc".to_vec(), key_value(b"k", b"v")),
        ("unreadable", rev(2, 0, false), b"\x0a\x7fk".to_vec()),
        ("bump", rev(9, 0, false), Vec::new()),
    ] {
        add(name, Bolt::new(SIZE).finish(&[], &[("key", &[(key, value)])]));
    }
    out
}

/// A few revisions of a few keys, as each supported etcd writes them: some ten pages of 4 KiB.
fn real(line: &str) -> Vec<u8> {
    let mut server = Server::start(line, &[]);
    for i in 0..3 {
        server.put(format!("k{i}").as_bytes(), b"value");
    }
    let revision = server.delete(b"k1");
    server.compact(revision);
    server.put(b"k2", b"last");
    server.check().bytes
}

/// Segments of a few revisions, with each kind of entry, and broken ones, by name.
fn segments() -> Vec<(&'static str, Vec<u8>)> {
    let origin = Origin { cluster_id: 7, member_id: 8, compact_revision: 3, auth_revision: Some(1), raft: None };
    let mut writer = Writer::after(4, 0, Vec::new());
    let bytes = |segment: Segment| {
        let mut bytes = Vec::new();
        segment.write_to(&mut bytes).unwrap();
        bytes
    };
    let kv =
        |mod_revision, key, lease| KeyValue { key, create_revision: 5, mod_revision, version: 1, value: b"v", lease };
    writer.sample(4, 1_000);
    writer.put(&kv(5, b"a", 9)).unwrap();
    writer.put(&kv(5, b"b", 9)).unwrap();
    writer.delete(6, b"a").unwrap();
    writer.lease(9, 60);
    writer.put(&kv(7, b"c", 0)).unwrap();
    writer.complete(7);
    writer.auth_changed();
    writer.sample(7, 2_000);
    let each_kind = bytes(writer.cut(&origin).unwrap());
    writer.sample(7, 3_000);
    let time_alone = bytes(writer.cut(&origin).unwrap());
    let mut later = each_kind.clone();
    later[8] = 3;
    let cut = each_kind[..each_kind.len() / 2].to_vec();
    vec![("each-kind", each_kind), ("time-alone", time_alone), ("format-3", later), ("cut", cut)]
}

const MANIFEST: &str = r#"{"formatVersion": 1, "key": "a/b/c/d", "namespace": "a", "cluster": "b", "podUid": "p",
"clusterId": "cafe", "memberId": "1", "member": "b-x", "etcdVersion": "3.6.16", "raftTerm": 2,
"raftAppliedIndex": 18446744073709551615, "dbBytes": 4096, "sha256": "HASH", "storedBytes": 1000,
"storedSha256": "HASH", "compression": "zstd", "startedAt": "2026-11-21T16:22:33Z",
"endedAt": "2026-11-21T16:22:34.5Z", "agentVersion": "0.1.0"REST}"#;

#[test]
#[ignore = "writes into the folder that HOLDFAST_SEEDS names"]
fn write_seeds() {
    let folder = PathBuf::from(std::env::var_os("HOLDFAST_SEEDS").unwrap());
    let write = |target: &str, name: &str, bytes: &[u8]| {
        std::fs::create_dir_all(folder.join(target)).unwrap();
        std::fs::write(folder.join(target).join(name), bytes).unwrap();
    };
    let ample = Steering { pieces: [1_024, 77], ..Steering::default() };
    let told = Steering { compact: Some(3), checksums: true, pages: true, pieces: [333, 5_000], ..ample };
    let mut databases = ["3.5", "3.6", "3.7"].map(|line| (line.to_owned(), real(line))).to_vec();
    databases.push(("3.4".to_owned(), files::database("etcd-3.4-1024")));
    databases.extend(crafted());
    for (name, bytes) in databases {
        let some = &bytes[..bytes.len() - bytes.len() / 3];
        let (less, least) = (Steering { budget: Some(17), ..told }, Steering { budget: Some(1), ..ample });
        for (how, bytes, steering) in [
            ("ample", &bytes[..], ample),
            ("told", &bytes, told),
            ("less", &bytes, less),
            ("least", &bytes, least),
            ("cut", some, ample),
        ] {
            // Of a large database only once: every run of the tests reads all inputs.
            if how != "ample" && bytes.len() > 6 << 10 {
                continue;
            }
            write("scan", &format!("{name}-{how}"), &[bytes, &steering.bytes()].concat());
        }
    }
    for (name, bytes) in segments() {
        write("segment", name, &bytes);
    }
    let manifest = |rest: &str| MANIFEST.replace("HASH", &"0a".repeat(32)).replace("REST", rest);
    for (name, json) in [
        ("least", manifest("")),
        (
            "origin",
            manifest(
                r#", "clusterUid": "u", "origin": {"name": "n", "uid": "u", "kind": "k"}, "storageVersion": "3.6.0""#,
            ),
        ),
        (
            "later",
            manifest(r#", "hashKv": {"revision": 7, "list": [1, -2.5, null, true, "\u00e4"]}, "age": ["age1x"]"#),
        ),
        (
            "fractions",
            manifest(r#", "x": [5e-324, 2.2250738585072011e-308, 51.248178375505404, -1e308, 123456789012345678901]"#),
        ),
        ("format-2", manifest("").replace(": 1, \"key", ": 2, \"key")),
        ("gzip", manifest("").replace("zstd", "gzip")),
        ("no-hash", manifest("").replace("0a0a", "zz")),
    ] {
        write("manifest", name, json.as_bytes());
    }
}
