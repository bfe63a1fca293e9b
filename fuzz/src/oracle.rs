//! What must hold for any bytes (I24): what the fuzzer's targets ask, and the agent's tests of the stored inputs ask again.
//!
//! It decides what an input means and panics where a promise is broken. Where inputs come from, and how memory is
//! measured, is the caller's business.

#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "a broken promise ends in a panic")]

use holdfast_bbolt::scan::{NoHashKv, Options, Proven, Reader, Scan, ScanError};
use holdfast_layout::manifest::Manifest;
use holdfast_segment::{Entry, Reader as SegmentReader, SegmentError};
use serde_json::Value;

/// An input for [`scan`] is a database and so many bytes of steering behind it.
pub const STEERING: usize = 8;

/// What a database of any sensible size fits.
const AMPLE: usize = 96 << 20;

/// How a database is looked at. The last bytes of an input, each of which means something whatever it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steering {
    /// Meta pages get the checksums that they should have: otherwise every change in them ends the story.
    pub checksums: bool,
    /// Meta pages speak of as many pages as there are, and what is no whole page is dropped.
    pub pages: bool,
    /// The compact revision that the scan is told; `None`: nothing.
    pub compact: Option<i8>,
    /// The memory budget in units of 4 KiB; `None`: ample.
    pub budget: Option<u8>,
    /// Lengths of pieces.
    pub pieces: [u16; 2],
}

impl Steering {
    /// As bytes, to be put behind a database.
    pub fn bytes(&self) -> [u8; STEERING] {
        let flags = u8::from(self.checksums)
            | u8::from(self.pages) << 1
            | u8::from(self.compact.is_some()) << 2
            | u8::from(self.budget.is_some()) << 3;
        let [a, b] = self.pieces.map(u16::to_le_bytes);
        [flags, self.compact.unwrap_or(0).cast_unsigned(), self.budget.unwrap_or(0), 0, a[0], a[1], b[0], b[1]]
    }

    fn read([flags, compact, budget, _, a, b, c, d]: [u8; STEERING]) -> Self {
        let has = |bit: u8| flags >> bit & 1 == 1;
        Self {
            checksums: has(0),
            pages: has(1),
            compact: has(2).then_some(compact.cast_signed()),
            budget: has(3).then_some(budget),
            pieces: [u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])],
        }
    }

    fn mend(&self, database: &mut Vec<u8>) {
        let at = |bytes: &[u8], at: usize| bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes);
        let size = at(database, 24).map_or(0, |size| size as usize);
        let size = if size.is_power_of_two() && (1 << 10..=16 << 20).contains(&size) { size } else { 1 << 10 };
        if self.pages {
            database.truncate(database.len() / size * size);
        }
        let pages = (database.len() / size) as u64;
        for meta in [0, size] {
            let Some(body) = database.get_mut(meta..).and_then(|page| page.get_mut(16..80)) else { continue };
            if self.pages {
                body[40..48].copy_from_slice(&pages.to_le_bytes());
            }
            if self.checksums || self.pages {
                let sum = body[..56].iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                    (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
                });
                body[56..].copy_from_slice(&sum.to_le_bytes());
            }
        }
    }
}

type Verdict = Result<Proven, ScanError>;

/// Scans a database in three cuttings and reads it at random: no panic, and one verdict. `watch` is given a budget and
/// what is to be done within it. Gives the verdict back; `None`: the input is too short to be one.
pub fn scan(input: &[u8], watch: &mut dyn FnMut(usize, &mut dyn FnMut())) -> Option<Verdict> {
    let (database, steering) = input.split_last_chunk::<STEERING>()?;
    let steering = Steering::read(*steering);
    let mut database = database.to_vec();
    steering.mend(&mut database);
    let database = &database[..];
    let budget = steering.budget.map_or(AMPLE, |units| usize::from(units) << 12);
    let compact = steering.compact.map(i64::from);
    let mut within = |what: &mut dyn FnMut() -> Verdict| {
        let mut verdict = None;
        watch(budget, &mut || verdict = Some(what()));
        verdict.expect("it was done")
    };

    let [a, b] = steering.pieces.map(|piece| usize::from(piece).max(1));
    let whole = within(&mut || cut(database, compact, budget, [database.len().max(1); 2]));
    for pieces in [[a, a], [a, b]] {
        let other = within(&mut || cut(database, compact, budget, pieces));
        // With memory enough, what is read and what is not depends on the file alone.
        let same = if steering.budget.is_some() { agree(&whole, &other) } else { whole == other };
        assert!(same, "in one piece {whole:?}, in pieces of {pieces:?} {other:?}");
    }
    let bytes = database.len() as u64;
    let read = within(&mut || Reader::open(database, bytes, budget)?.prove(compact));
    // A stream finds out about a page before anybody points to it, so the two may name different pages.
    let same = if whole.is_ok() && read.is_ok() { agree(&whole, &read) } else { whole.is_ok() == read.is_ok() };
    assert!(same || over(&whole) || over(&read), "streamed {whole:?}, read {read:?}");
    if let Ok(proven) = &whole {
        read_again(database, proven);
    }
    Some(whole)
}

/// One way to cut: pieces of two lengths in turn.
fn cut(mut database: &[u8], compact_revision: Option<i64>, budget_bytes: usize, pieces: [usize; 2]) -> Verdict {
    let mut scan = Scan::new(Options { compact_revision, budget_bytes });
    for piece in pieces.into_iter().cycle() {
        let (taken, rest) = database.split_at(piece.min(database.len()));
        scan.push(taken);
        database = rest;
        if rest.is_empty() {
            break;
        }
    }
    scan.finish()
}

fn over(verdict: &Verdict) -> bool {
    matches!(verdict, Err(ScanError::OverBudget { .. }))
}

/// Whether two verdicts are the same as far as the budget went for both.
fn agree(one: &Verdict, other: &Verdict) -> bool {
    let (Ok(one), Ok(other)) = (one, other) else {
        return one == other || over(one) || over(other);
    };
    let [mut one, mut other] = [one.clone(), other.clone()];
    if one.keys.is_none() || other.keys.is_none() {
        for proven in [&mut one, &mut other] {
            proven.keys = None;
            proven.hash_kv = proven.hash_kv.and(Err(NoHashKv::OverBudget));
        }
    }
    one == other
}

/// What was proven is found again record by record.
fn read_again(database: &[u8], proven: &Proven) {
    let mut reader = Reader::open(database, database.len() as u64, AMPLE).expect("it was proven");
    let compact = reader.compact_revision().expect("it was proven");
    assert_eq!(compact, proven.compact_revision.unwrap_or(-1));
    let (mut records, mut live) = (0, 0);
    reader.records(|_| records += 1).expect("it was proven");
    reader.live(i64::MAX, |_| live += 1).expect("it was proven");
    assert_eq!(records, proven.revisions);
    assert!(proven.keys.is_none_or(|keys| keys == live), "{live} keys, {proven:?}");
    if let Ok(hash) = proven.hash_kv {
        assert_eq!(reader.hash_kv(hash.revision, compact), Ok(hash));
    }
}

/// A manifest that can be read is written so that the same is read again: every field that is known exactly, the others
/// but for the last digits of a fraction (serde_json reads those fast, not exactly). Says whether it could be read.
pub fn manifest(json: &[u8]) -> bool {
    let Ok(mut read) = Manifest::parse(json) else {
        return false;
    };
    let rendered = read.render().expect("what was read can be written");
    let mut again = Manifest::parse(&rendered).expect("what was written can be read");
    assert!(again.manifest_sha256.is_some(), "written without its checksum");
    // The text that was read may have none, or another for its fractions.
    (read.manifest_sha256, again.manifest_sha256) = (None, None);
    let unknown = [&mut read, &mut again].map(|manifest| {
        let origin = manifest.origin.as_mut().map(|origin| std::mem::take(&mut origin.other));
        [Value::Object(std::mem::take(&mut manifest.other)), Value::Object(origin.unwrap_or_default())]
    });
    assert_eq!(read, again);
    let [[here, origin], [here_again, origin_again]] = &unknown;
    assert!(same(here, here_again), "{here} {here_again}");
    assert!(same(origin, origin_again), "{origin} {origin_again}");
    true
}

/// Whether two values are the same but for the rounding of fractions.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| one.0 == other.0 && same(one.1, other.1))
        }
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            let (a, b) = (a.as_f64().unwrap_or(f64::NAN), b.as_f64().unwrap_or(f64::NAN));
            (a - b).abs() <= (a.abs() * f64::EPSILON * 4.0).max(f64::MIN_POSITIVE)
        }
        _ => one == other,
    }
}

/// A segment that can be read holds dense revisions from its header's first to its last, and a checksum alone does not make
/// a segment. Says whether the bytes, with the right checksum at their end, could be read.
pub fn segment(bytes: &[u8]) -> bool {
    let raw = read_segment(bytes).is_ok();
    let Some((content, _)) = bytes.split_last_chunk::<4>() else { return false };
    let sealed = [content, &crc_fast::crc32_iscsi(content).to_le_bytes()].concat();
    let read = read_segment(&sealed).is_ok();
    assert!(read || !raw, "a right checksum does no harm");
    assert!(!raw || sealed == bytes, "another checksum was taken");
    read
}

fn read_segment(bytes: &[u8]) -> Result<(), SegmentError> {
    let mut reader = SegmentReader::new(bytes)?;
    let header = *reader.header();
    let mut last = header.first - 1;
    let mut times = Vec::new();
    while let Some(entry) = reader.next()? {
        match entry {
            Entry::Record(record) => {
                assert!(record.main == last || record.main == last + 1, "{record:?} after {last}");
                last = record.main;
            }
            Entry::Sample { revision, at } => {
                assert!(revision <= last && times.last().is_none_or(|before| *before <= at), "{revision} {at}");
                times.push(at);
            }
            Entry::Lease { .. } | Entry::AuthChanged { .. } => {}
        }
    }
    assert_eq!((last, times.first(), times.last()), (header.last, Some(&header.first_at), Some(&header.last_at)));
    Ok(())
}
