//! The truth of the trials: the contents of an etcd at each of its revisions, in each of its histories; and the contents of a
//! restored database, read without an etcd.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use etcd_client::{Client, GetOptions};
use holdfast_bbolt::scan::{HashKv, Reader as Database};
use holdfast_layout::{Folder, SegmentName};
use holdfast_segment::{Entry, Reader, put_varint};
use jiff::{SignedDuration, Timestamp};

use crate::point::pack;
use crate::server::BUDGET;

/// The keys that exist, each with its value, and with lease, first revision, last revision and version.
pub(super) type State = BTreeMap<Vec<u8>, (Vec<u8>, [i64; 4])>;

/// An etcd at one revision.
#[derive(Clone)]
pub(super) struct Moment {
    pub(super) state: State,
    /// HashKV beside the compact revision of that time.
    pub(super) hash: HashKv,
    /// A time before the write.
    pub(super) began: Timestamp,
}

/// The revisions of one history.
pub(super) type History = BTreeMap<i64, Moment>;

/// Returns the newest revision of an etcd, and its keys.
pub(super) async fn newest(client: &mut Client) -> (i64, State) {
    let all = client.get("", Some(GetOptions::new().with_all_keys())).await.unwrap();
    let numbers = |kv: &etcd_client::KeyValue| [kv.lease(), kv.create_revision(), kv.mod_revision(), kv.version()];
    let state = all.kvs().iter().map(|kv| (kv.key().to_vec(), (kv.value().to_vec(), numbers(kv)))).collect();
    (all.header().unwrap().revision(), state)
}

/// Returns HashKV of an etcd at a revision.
pub(super) async fn hash_of(client: &mut Client, revision: i64) -> HashKv {
    let hash = client.hash_kv(revision).await.unwrap();
    HashKv { hash: hash.hash(), revision, compact_revision: hash.compact_version() }
}

/// Returns the keys of a database at its newest revision, and HashKV there.
pub(super) fn stored(database: &Path, revision: i64) -> (State, HashKv) {
    let file = File::open(database).unwrap();
    let bytes = file.metadata().unwrap().len();
    let mut database = Database::open(file, bytes, BUDGET).unwrap();
    let mut state = State::new();
    database
        .live(i64::MAX, |kv| {
            state.insert(kv.key.to_vec(), (kv.value.to_vec(), [kv.lease, kv.create_revision, kv.main, kv.version]));
        })
        .unwrap();
    let compacted = database.compact_revision().unwrap();
    (state, database.hash_kv(revision, compacted).unwrap())
}

/// Writes a segment again as an archiver with a clock that differs by so many seconds writes it.
pub(super) fn shift_clock(log: &Path, path: &str, seconds: i64) {
    let shift = SignedDuration::from_secs(seconds);
    let mut name = SegmentName::parse(path).unwrap();
    let mut bytes = zstd::decode_all(&fs::read(log.join(path)).unwrap()[..]).unwrap();
    let sample = |revision: i64, at: i64| {
        let mut entry = vec![4];
        put_varint(revision.cast_unsigned(), &mut entry);
        put_varint(at.cast_unsigned(), &mut entry);
        entry
    };
    let mut samples = vec![];
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let header = *reader.header();
    while let Some(entry) = reader.next().unwrap() {
        if let Entry::Sample { revision, at } = entry {
            samples.push((sample(revision, at), sample(revision, at + seconds * 1000)));
        }
    }
    let mut from = 0;
    for (before, after) in samples {
        let place = bytes[from..].windows(before.len()).position(|window| window == before).unwrap() + from;
        from = place + before.len();
        bytes[place..from].copy_from_slice(&after);
    }
    for (place, at) in [(44, header.first_at), (52, header.last_at)] {
        bytes[place..place + 8].copy_from_slice(&(at + seconds * 1000).to_le_bytes());
    }
    name.at = name.at.checked_add(shift).unwrap();
    let key = name.key(&Folder::parse("key", super::histories::LINEAGE).unwrap().log()).unwrap().to_string();
    let to = log.join(key.split_once("/log/").unwrap().1);
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::remove_file(log.join(path)).unwrap();
    fs::write(to, pack(bytes)).unwrap();
}
