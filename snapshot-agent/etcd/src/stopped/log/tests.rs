//! Logs as etcd writes them, by an encoder of the tests' own, and what the reader and the writer make of them.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;

use super::super::commit;
use super::*;

const IDS: Metadata = Metadata { cluster_id: 0xc1, member_id: 0x8e9e_05c5_2164_694d };

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    out.push(u8::try_from(number).unwrap());
}

fn message(fields: &[(u64, u64)]) -> Vec<u8> {
    let mut out = vec![];
    for (field, number) in fields {
        varint(field << 3, &mut out);
        varint(*number, &mut out);
    }
    out
}

fn crc32c(crc: u32, data: &[u8]) -> u32 {
    !data.iter().fold(!crc, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 })
    })
}

/// A log that is being written.
struct Wal {
    folder: TempDir,
    crc: u32,
    /// The segment that is written now.
    name: String,
    bytes: Vec<u8>,
    sequence: u64,
    last: u64,
    /// Places of the records' kinds, which no checksum covers.
    kinds: Vec<usize>,
}

impl Wal {
    fn new() -> Self {
        Self::from(0, 0)
    }

    /// A log whose earlier segments etcd has removed.
    fn from(sequence: u64, index: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let last = index.saturating_sub(1);
        let mut wal = Self { folder, crc: 0, name: String::new(), bytes: vec![], sequence, last, kinds: vec![] };
        wal.begin(index);
        if sequence == 0 {
            wal.snapshot(0, 0);
        }
        wal
    }

    fn begin(&mut self, index: u64) {
        self.name = format!("{:016x}-{index:016x}.wal", self.sequence);
        let ids = message(&[(1, IDS.member_id), (2, IDS.cluster_id)]);
        self.record(4, &[]);
        self.record(1, &ids);
    }

    fn record(&mut self, kind: u64, data: &[u8]) {
        if kind != 4 {
            self.crc = crc32c(self.crc, data);
        }
        let mut record = message(&[(1, kind), (2, self.crc.into())]);
        if kind != 4 {
            record.push(0x1a);
            varint(data.len() as u64, &mut record);
            record.extend_from_slice(data);
        }
        let padding = (8 - record.len() % 8) % 8;
        let mut head = record.len() as u64;
        if padding > 0 {
            head |= (0x80 | padding as u64) << 56;
        }
        self.bytes.extend(head.to_le_bytes());
        self.kinds.push(self.bytes.len() + 1);
        self.bytes.append(&mut record);
        self.bytes.resize(self.bytes.len() + padding, 0);
    }

    fn entry(&mut self, index: u64, term: u64, value: &[u8]) {
        let mut data = message(&[(1, 0), (2, term), (3, index)]);
        data.push(0x22);
        varint(value.len() as u64, &mut data);
        data.extend_from_slice(value);
        self.record(2, &data);
        self.last = index;
    }

    fn entries(&mut self, indexes: std::ops::RangeInclusive<u64>, term: u64) {
        for index in indexes {
            self.entry(index, term, format!("value {index}").as_bytes());
        }
    }

    fn state(&mut self, term: u64, vote: u64, commit: u64) {
        self.record(3, &message(&[(1, term), (2, vote), (3, commit)]));
    }

    fn snapshot(&mut self, index: u64, term: u64) {
        // With a list of voters, as etcd has written it since 3.5.
        let mut data = message(&[(1, index), (2, term)]);
        data.extend([0x1a, 2, 0x08, 1]);
        self.record(5, &data);
    }

    fn cut(&mut self) {
        self.put();
        self.sequence += 1;
        self.bytes.clear();
        self.kinds.clear();
        self.begin(self.last + 1);
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    fn put(&self) {
        fs::write(self.path(), &self.bytes).unwrap();
    }

    fn read(&self) -> Result<Log, String> {
        self.put();
        read_folder(self.folder.path())
    }
}

fn read_folder(folder: &Path) -> Result<Log, String> {
    read(folder, &Progress::silent()).map_err(|error| error.to_string())
}

fn place(log: &Log) -> (u64, Option<u64>, LogEnd) {
    (log.last_index, log.last_term, log.end)
}

#[test]
fn a_log_of_several_segments_has_its_last_entry_and_its_newest_state() {
    let mut wal = Wal::new();
    wal.state(1, 0, 0);
    wal.entries(1..=5, 2);
    wal.state(2, 7, 4);
    let log = wal.read().unwrap();
    assert_eq!(place(&log), (5, Some(2), LogEnd::Whole));
    assert_eq!((log.ids, log.state), (IDS, Some(HardState { term: 2, vote: 7, commit: 4 })));
    assert_eq!((log.beyond_commit(), log.snapshot_index), (1, None));
    wal.cut();
    wal.entries(6..=9, 3);
    wal.snapshot(5, 2);
    wal.cut();
    wal.entry(10, 3, &vec![9; 300_000]);
    wal.state(3, 0, 10);
    let log = wal.read().unwrap();
    assert_eq!(place(&log), (10, Some(3), LogEnd::Whole));
    assert_eq!((log.parts.len(), log.beyond_commit(), log.snapshot_index), (3, 0, Some(5)));
    assert_eq!(log.bytes(), size(wal.folder.path()).unwrap());
}

#[test]
fn a_later_entry_of_a_smaller_index_replaces_what_follows() {
    let mut wal = Wal::new();
    wal.entries(1..=9, 2);
    wal.state(2, 0, 4);
    wal.entry(6, 3, b"another leader");
    let log = wal.read().unwrap();
    assert_eq!((place(&log), log.beyond_commit()), ((6, Some(3), LogEnd::Whole), 2));
    wal.cut();
    wal.entry(5, 4, b"and another");
    assert_eq!(place(&wal.read().unwrap()), (5, Some(4), LogEnd::Whole));
}

#[test]
fn a_snapshot_of_another_member_replaces_the_log_and_an_own_one_does_not() {
    let mut wal = Wal::new();
    wal.entries(1..=9, 2);
    wal.state(2, 0, 9);
    wal.snapshot(7, 2);
    let log = wal.read().unwrap();
    assert_eq!((place(&log), log.snapshot_index), ((9, Some(2), LogEnd::Whole), Some(7)));
    // Sent by the leader: the entry 20 is not here.
    wal.snapshot(20, 3);
    let log = wal.read().unwrap();
    assert_eq!(
        (place(&log), log.snapshot_index),
        ((20, Some(3), LogEnd::Whole), Some(20)),
        "before its state is written"
    );
    wal.state(3, 0, 20);
    wal.entries(21..=22, 3);
    let log = wal.read().unwrap();
    assert_eq!((place(&log), log.snapshot_index), ((22, Some(3), LogEnd::Whole), Some(20)));
    // In the place of entries that no majority had.
    let mut wal = Wal::new();
    wal.entries(1..=9, 2);
    wal.state(2, 0, 3);
    wal.snapshot(6, 3);
    assert_eq!(place(&wal.read().unwrap()), (6, Some(3), LogEnd::Whole));
    // A member that has just joined.
    let mut wal = Wal::new();
    wal.snapshot(1000, 4);
    wal.state(4, 0, 1000);
    assert_eq!(place(&wal.read().unwrap()), (1000, Some(4), LogEnd::Whole));
}

#[test]
fn segments_that_etcd_has_removed_are_not_missed() {
    let mut wal = Wal::from(3, 1000);
    wal.state(4, 0, 990);
    // Of the entries in removed segments.
    wal.snapshot(990, 4);
    wal.entries(1000..=1010, 4);
    wal.state(4, 0, 1005);
    let log = wal.read().unwrap();
    assert_eq!((place(&log), log.snapshot_index), ((1010, Some(4), LogEnd::Whole), Some(990)));
    // No entry is in the segments that are left.
    let mut wal = Wal::from(3, 1000);
    wal.state(4, 0, 999);
    let log = wal.read().unwrap();
    assert_eq!((log.last_index, log.last_term), (999, None));
    // Entries of another leader, from before the segment.
    let mut wal = Wal::from(3, 1000);
    wal.entries(995..=996, 5);
    assert_eq!(place(&wal.read().unwrap()), (996, Some(5), LogEnd::Whole));
}

#[test]
fn what_a_crash_cuts_off_is_torn_and_what_is_missing_before_the_end_is_damage() {
    let mut wal = Wal::new();
    wal.entries(1..=3, 1);
    wal.state(1, 0, 2);
    let whole = wal.bytes.len();
    wal.entry(4, 1, &[7; 2000]);
    let full = wal.bytes.clone();
    for cut in whole + 1..full.len() {
        wal.bytes.truncate(cut);
        let log = wal.read().unwrap();
        assert_eq!((place(&log), log.parts[0].bytes), ((3, Some(1), LogEnd::Torn), whole as u64), "{cut}");
        wal.bytes = full.clone();
    }
    // Space that etcd has allocated.
    wal.bytes.resize(64 << 10, 0);
    assert_eq!(place(&wal.read().unwrap()), (4, Some(1), LogEnd::Whole));
    // A sector of the last write never reached the disk.
    let sector = whole.div_ceil(512) * 512;
    wal.bytes[sector..sector + 512].fill(0);
    let log = wal.read().unwrap();
    assert_eq!((place(&log), log.parts[0].bytes), ((3, Some(1), LogEnd::Torn), whole as u64));
    // The first sector never did, and a later one did.
    wal.bytes[whole..whole + 8].fill(0);
    assert_eq!(place(&wal.read().unwrap()), (3, Some(1), LogEnd::Torn), "leftovers of a write");
    // The same before the last segment, or with other bytes than zeros.
    wal.bytes = full.clone();
    wal.bytes[sector..sector + 512].fill(0);
    let broken = wal.bytes.clone();
    wal.bytes = full.clone();
    wal.cut();
    wal.entry(5, 1, b"5");
    wal.put();
    fs::write(wal.folder.path().join(format!("{:016x}-{:016x}.wal", 0, 0)), &broken).unwrap();
    let why = wal.read().unwrap_err();
    assert!(why.contains(&format!("0000000000000000-0000000000000000.wal, byte {whole}: a record fails")), "{why}");
    fs::write(wal.folder.path().join(format!("{:016x}-{:016x}.wal", 0, 0)), &full[..whole]).unwrap();
    let why = wal.read().unwrap_err();
    assert!(why.contains("does not continue the segment before"), "{why}");
    fs::remove_file(wal.folder.path().join(format!("{:016x}-{:016x}.wal", 0, 0))).unwrap();
    assert_eq!(place(&wal.read().unwrap()), (5, Some(1), LogEnd::Whole), "etcd removes old segments");
}

#[test]
fn a_log_that_contradicts_itself_is_damaged() {
    let damage = |write: &dyn Fn(&mut Wal), says: &str| {
        let mut wal = Wal::new();
        wal.entries(1..=3, 1);
        write(&mut wal);
        let why = wal.read().unwrap_err();
        assert!(why.contains(says), "{says}: {why}");
    };
    damage(&|wal| wal.entry(5, 1, b""), "entries are missing");
    damage(&|wal| wal.entry(0, 1, b""), "no index");
    damage(&|wal| wal.state(1, 0, 4), "index 4 was committed");
    damage(&|wal| wal.record(9, b""), "unknown kind");
    damage(&|wal| wal.record(1, &message(&[(1, 1), (2, 2)])), "another member");
    damage(
        &|wal| {
            wal.cut();
            wal.sequence += 1;
            wal.begin(wal.last + 1);
        },
        "the segment before it is missing",
    );
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(read(folder.path(), &Progress::silent()), Err(LogError::Missing)));
    fs::write(folder.path().join("0.tmp"), "x").unwrap();
    assert!(matches!(read(folder.path(), &Progress::silent()), Err(LogError::Missing)));
    fs::write(folder.path().join("x.wal"), "x").unwrap();
    assert!(matches!(read(folder.path(), &Progress::silent()), Err(LogError::Damaged { .. })));
}

#[test]
fn the_whole_log_is_committed_after_a_torn_end_is_cut_off() {
    let mut wal = Wal::new();
    wal.entries(1..=3, 1);
    wal.cut();
    wal.entries(4..=9, 2);
    wal.state(2, 7, 6);
    wal.bytes.extend([1, 2, 3]);
    let log = wal.read().unwrap();
    assert_eq!((log.end, log.beyond_commit()), (LogEnd::Torn, 3));
    let earlier = fs::read(wal.folder.path().join(&log.parts[0].name)).unwrap();
    let state = commit::state(&log);
    assert_eq!(state, HardState { term: 2, vote: 7, commit: 9 });
    commit::append(wal.folder.path(), &log, state).unwrap();
    let committed = read_folder(wal.folder.path()).unwrap();
    assert_eq!((place(&committed), committed.state), ((9, Some(2), LogEnd::Whole), Some(state)));
    assert_eq!(fs::read(wal.folder.path().join(&log.parts[0].name)).unwrap(), earlier);
    // The same bytes as etcd's: an encoder of the tests' own continues the checksum.
    wal.bytes.truncate(wal.bytes.len() - 3);
    wal.state(2, 7, 9);
    assert_eq!(fs::read(wal.path()).unwrap(), wal.bytes);
    // A crash came between the entries of a new term and its state.
    let mut wal = Wal::new();
    wal.entries(1..=3, 1);
    wal.state(1, 7, 3);
    wal.entry(4, 5, b"");
    assert_eq!(commit::state(&wal.read().unwrap()), HardState { term: 5, vote: 0, commit: 4 });
    let wal = Wal::new();
    assert_eq!(commit::state(&wal.read().unwrap()), HardState::default());
}

/// A step of a member.
#[derive(Clone, Debug)]
enum Step {
    /// Entries of this term, from so far behind the end.
    Append {
        term: u64,
        back: u64,
        count: u64,
        bytes: usize,
    },
    Commit,
    Snapshot,
    Cut,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_u64..3, 0_u64..4, 1_u64..6, prop_oneof![0_usize..40, 400_usize..1500])
            .prop_map(|(term, back, count, bytes)| Step::Append { term, back, count, bytes }),
        2 => Just(Step::Commit),
        1 => Just(Step::Snapshot),
        1 => Just(Step::Cut),
    ];
    proptest::collection::vec(step, 1..24)
}

/// Writes a history; returns the terms of its entries and the commit index, as Raft would have them.
fn written(steps: &[Step]) -> (Wal, Vec<u64>, Option<u64>) {
    let (mut wal, mut terms, mut term, mut commit) = (Wal::new(), Vec::<u64>::new(), 1, None);
    for step in steps {
        let known = commit.unwrap_or(0);
        match *step {
            Step::Append { term: later, back, count, bytes } => {
                // Only a newer leader replaces entries, and never a committed one.
                term += later;
                let keep =
                    if later == 0 { terms.len() as u64 } else { (terms.len() as u64).saturating_sub(back).max(known) };
                terms.truncate(usize::try_from(keep).unwrap());
                for _ in 0..count {
                    terms.push(term);
                    wal.entry(terms.len() as u64, term, &vec![0xa5; bytes]);
                }
            }
            Step::Commit => {
                commit = Some(terms.len() as u64);
                wal.state(term, 0, terms.len() as u64);
            }
            Step::Snapshot if known > 0 => wal.snapshot(known, terms[usize::try_from(known).unwrap() - 1]),
            Step::Snapshot => {}
            Step::Cut => wal.cut(),
        }
    }
    (wal, terms, commit)
}

proptest! {
    #[test]
    fn the_log_is_what_raft_has_written(steps in steps()) {
        let (wal, terms, commit) = written(&steps);
        let log = wal.read().unwrap();
        prop_assert_eq!(place(&log), (terms.len() as u64, terms.last().copied(), LogEnd::Whole));
        prop_assert_eq!(log.state.map(|state| state.commit), commit);
        commit::append(wal.folder.path(), &log, commit::state(&log)).unwrap();
        let log = read_folder(wal.folder.path()).unwrap();
        prop_assert_eq!((log.last_index, log.beyond_commit()), (terms.len() as u64, 0));
    }

    #[test]
    fn a_cut_of_the_last_segment_is_torn_and_never_gives_other_entries(steps in steps(), to: prop::sample::Index) {
        let (mut wal, _, _) = written(&steps);
        let whole = wal.read().unwrap();
        let to = to.index(wal.bytes.len());
        wal.bytes.truncate(to);
        if let Ok(log) = wal.read() {
            prop_assert!(log.parts.last().unwrap().bytes <= to as u64);
            let is_at_a_record = log.parts.last().unwrap().bytes == to as u64;
            prop_assert_eq!(log.end == LogEnd::Whole, is_at_a_record);
            prop_assert!(log.state.map(|state| state.commit) <= whole.state.map(|state| state.commit));
        }
    }

    #[test]
    fn a_flipped_bit_never_gives_other_numbers(steps in steps(), at: prop::sample::Index, bit in 0_u32..8) {
        let (mut wal, _, _) = written(&steps);
        let whole = wal.read().unwrap();
        let at = at.index(wal.bytes.len());
        prop_assume!(!wal.kinds.contains(&at));
        wal.bytes[at] ^= 1 << bit;
        if let Ok(log) = wal.read() {
            // A length that leads beyond the end of the file looks like a crash.
            prop_assert!(log == whole || log.end == LogEnd::Torn, "{:?}", log);
        }
    }
}
