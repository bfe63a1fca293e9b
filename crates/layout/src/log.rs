//! Names of the objects of a log: `<lineage>/log/<yyyymmdd>/<first20>-<last20>-<hhmmss>-<run8>-<serial6>-<sum8>.seg.zst[.age]`.
//!
//! This file decides names. A segment's name holds its revisions and the time of its last sample, so that a listing alone
//! shows the covered revisions and the age of the log's end, and the checksum of its last revision, so that a later run can
//! compare that revision with etcd's. A number of the run makes a name unique, whatever a clock shows. Revisions have 20
//! digits: names sort as revisions do.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::{ENCRYPTED, Folder, Key, LayoutError, first8};

/// Folder of a lineage for its log; no attempt has such a name.
const LOG: &str = "log";
/// Folder of a log for its gaps.
const GAPS: &str = "gaps";
/// Folder of a log for its checks.
const CHECKS: &str = "checks";
/// Name of the object that binds a log to one etcd cluster.
const CLUSTER: &str = "cluster.json";
/// The object that closes a log: etcd has lost revisions that the log holds.
const CLOSED: &str = "closed.json";
/// End of the name of its second witness, beside the newest segment.
const CLOSED_HERE: &str = ".closed.json";
/// Before the time of a segment without a sample.
const UNTIMED: &str = "u";
/// In place of an unknown checksum.
const NO_SUM: &str = "none";
/// End of the name of a gap that a prune made.
const REMOVED: &str = "-removed";
const SEGMENT: &str = ".seg.zst";
const JSON: &str = ".json";

/// The facts in a segment's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentName {
    /// First main revision.
    pub first: i64,
    /// Last main revision; `first - 1`: the segment has no records.
    pub last: i64,
    /// Time of the last sample, without the fraction of its second. Of a segment without a sample: of the last one before.
    pub at: Timestamp,
    /// Eight random characters of the run that wrote the segment.
    pub run8: String,
    /// Whether the segment is encrypted.
    pub encrypted: bool,
    /// The rest of the name; `None`: a segment of format 1.
    pub tail: Option<Tail>,
}

/// The facts at the end of a segment's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tail {
    /// Number of the object among those of the run: a name is used once.
    pub serial: u32,
    /// Checksum of the last revision; `None`: unknown.
    pub sum: Option<u32>,
    /// Whether the segment has a sample.
    pub is_timed: bool,
}

impl SegmentName {
    /// Returns the segment's place in a log.
    pub fn key(&self, log: &Folder) -> Result<Key, LayoutError> {
        let Self { first, last, at, run8, encrypted, tail } = self;
        let suffix = if *encrypted { ENCRYPTED } else { "" };
        let untimed = if self.is_timed() { "" } else { UNTIMED };
        let tail = match tail {
            None => String::new(),
            Some(Tail { serial, sum: Some(sum), .. }) => format!("-{serial:06}-{sum:08x}"),
            Some(Tail { serial, sum: None, .. }) => format!("-{serial:06}-{NO_SUM}"),
        };
        let time = at.strftime("%H%M%S");
        self.day(log)?.object(&format!("{first:020}-{last:020}-{untimed}{time}-{run8}{tail}{SEGMENT}{suffix}"))
    }

    fn day(&self, log: &Folder) -> Result<Folder, LayoutError> {
        log.child(&self.at.strftime("%Y%m%d").to_string())
    }

    /// Whether the segment has a sample.
    pub fn is_timed(&self) -> bool {
        self.tail.is_none_or(|tail| tail.is_timed)
    }

    /// Returns the place of the object beside this segment that closes the log.
    pub fn closed_key(&self, log: &Folder, run8: &str) -> Result<Key, LayoutError> {
        self.day(log)?.object(&format!("{:020}-{run8}{CLOSED_HERE}", self.last))
    }

    /// Parses a path below a log; `None`: the path is not a segment's.
    pub fn parse(path: &str) -> Option<Self> {
        let (day, name) = path.split_once('/')?;
        let (name, encrypted) = match name.strip_suffix(ENCRYPTED) {
            Some(name) => (name, true),
            None => (name, false),
        };
        let mut parts = name.strip_suffix(SEGMENT)?.split('-');
        let (first, last) = (revision(parts.next()?)?, revision(parts.next()?)?);
        let (time, run8) = (parts.next()?, parts.next()?);
        let (is_timed, time) = time.strip_prefix(UNTIMED).map_or((true, time), |time| (false, time));
        let tail = match parts.next() {
            None if is_timed => None,
            None => return None,
            Some(serial) => Some(Tail { serial: serial.parse().ok()?, sum: parse_sum(parts.next()?)?, is_timed }),
        };
        let at = DateTime::strptime("%Y%m%d%H%M%S", format!("{day}{time}")).ok()?;
        let at = at.to_zoned(TimeZone::UTC).ok()?.timestamp();
        let fits = parts.next().is_none() && !run8.is_empty() && first > 0 && first.checked_sub(1)? <= last;
        fits.then(|| Self { first, last, at, run8: run8.to_owned(), encrypted, tail })
    }
}

/// Parses the checksum in a name; the outer `None`: another text.
#[expect(clippy::option_option, reason = "invalid, unknown, known")]
fn parse_sum(text: &str) -> Option<Option<u32>> {
    if text == NO_SUM {
        return Some(None);
    }
    let fits = text.len() == 8 && text.bytes().all(|b| b.is_ascii_hexdigit());
    u32::from_str_radix(text, 16).ok().filter(|_| fits).map(Some)
}

/// Whether an object in the folder of a day closes the log.
pub fn is_closed_name(name: &str) -> bool {
    name.ends_with(CLOSED_HERE)
}

/// The facts in a gap's name: revisions that no segment holds, because etcd had compacted them, or because a prune removed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GapName {
    /// The last recorded revision before the gap.
    pub after: i64,
    /// The last missing revision.
    pub until: i64,
    /// Whether a prune removed the revisions.
    pub removed: bool,
}

impl GapName {
    /// Returns the gap's place in a log.
    pub fn key(self, log: &Folder, run8: &str) -> Result<Key, LayoutError> {
        let Self { after, until, removed } = self;
        let why = if removed { REMOVED } else { "" };
        log.child(GAPS)?.object(&format!("{after:020}-{until:020}-{run8}{why}{JSON}"))
    }

    /// Parses a path below a log; `None`: the path is not a gap's.
    pub fn parse(path: &str) -> Option<Self> {
        let name = path.strip_prefix(GAPS)?.strip_prefix('/')?.strip_suffix(JSON)?;
        let mut parts = name.split('-');
        let (after, until) = (revision(parts.next()?)?, revision(parts.next()?)?);
        let removed = name.ends_with(REMOVED);
        (parts.next().is_some() && after < until).then_some(Self { after, until, removed })
    }
}

/// Returns the place in a log of the check at this revision.
pub fn check_key(log: &Folder, at: i64, run8: &str) -> Result<Key, LayoutError> {
    log.child(CHECKS)?.object(&format!("{at:020}-{run8}{JSON}"))
}

/// Returns the revision of a check; `None`: the path is not a check's.
pub fn check_revision(path: &str) -> Option<i64> {
    let (at, _run8) = path.strip_prefix(CHECKS)?.strip_prefix('/')?.strip_suffix(JSON)?.split_once('-')?;
    revision(at)
}

/// Whether a folder of a log has this name and holds gaps or checks.
pub fn is_record_folder(name: &str) -> bool {
    [GAPS, CHECKS].contains(&name)
}

/// Parses the 20 digits of a revision.
fn revision(digits: &str) -> Option<i64> {
    let fits = digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| fits)
}

impl Folder {
    /// Returns the folder of a lineage's first log.
    #[must_use]
    pub fn log(&self) -> Self {
        Self(format!("{}/{LOG}", self.0))
    }

    /// Returns the folder of the log of a later etcd cluster: a return in place gives a lineage another one.
    #[must_use]
    pub fn later_log(&self, cluster_id: u64) -> Self {
        Self(format!("{}/{LOG}-{cluster_id:016x}", self.0))
    }

    /// Returns the lineage of a save or a log: of the cluster's UID, by hand of the etcd cluster ID.
    pub fn of_lineage(
        namespace: &str,
        cluster: &str,
        cluster_uid: Option<&str>,
        cluster_id: u64,
    ) -> Result<Self, LayoutError> {
        let lineage = match cluster_uid {
            Some(uid) => first8("cluster UID", uid)?,
            None => format!("etcd-{cluster_id:016x}"),
        };
        Self::of_cluster(namespace, cluster, None)?.child(&lineage)
    }

    /// Returns the key of the object that binds this log to one etcd cluster.
    pub fn log_cluster(&self) -> Key {
        Key { folder: self.clone(), name: CLUSTER.to_owned() }
    }

    /// Returns the key of the object that closes this log.
    pub fn log_closed(&self) -> Key {
        Key { folder: self.clone(), name: CLOSED.to_owned() }
    }

    /// Whether this is a log or a folder in a log: such a folder is created with its first object, and its parents too.
    pub fn is_of_log(&self) -> bool {
        self.0.split('/').nth(3).is_some_and(is_log_name)
    }
}

/// Whether a folder of a lineage has this name and is a log.
pub fn is_log_name(name: &str) -> bool {
    let is_id = |id: &str| id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit());
    name == LOG || name.strip_prefix(LOG).and_then(|rest| rest.strip_prefix('-')).is_some_and(is_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Folder {
        Folder::parse("key", "shop/orders/1a2b3c4d").unwrap().log()
    }

    fn path(key: &Key) -> String {
        key.to_string().strip_prefix("shop/orders/1a2b3c4d/log/").unwrap().to_owned()
    }

    #[test]
    fn a_listing_says_what_a_segment_holds() {
        let at = "2026-11-28T10:42:07Z".parse().unwrap();
        let plain = SegmentName { first: 5, last: 70, at, run8: "aaaabbbb".to_owned(), encrypted: false, tail: None };
        let tail = Tail { serial: 17, sum: Some(0xbeef), is_timed: true };
        for name in [
            SegmentName { tail: Some(tail), ..plain.clone() },
            SegmentName { tail: Some(Tail { sum: None, is_timed: false, ..tail }), ..plain.clone() },
            plain.clone(),
            SegmentName { encrypted: true, ..plain.clone() },
            SegmentName { last: 4, ..plain.clone() },
            SegmentName { first: i64::MAX, last: i64::MAX, ..plain.clone() },
        ] {
            assert_eq!(SegmentName::parse(&path(&name.key(&log()).unwrap())), Some(name));
        }
        let text = path(&plain.key(&log()).unwrap());
        assert_eq!(text, "20261128/00000000000000000005-00000000000000000070-104207-aaaabbbb.seg.zst");
        assert_eq!(SegmentName::parse(&text.replace("-aaaabbbb", "")), None);
        let named = SegmentName { tail: Some(tail), ..plain };
        let text = path(&named.key(&log()).unwrap());
        assert!(text.ends_with("-104207-aaaabbbb-000017-0000beef.seg.zst"), "{text}");
        let closed = path(&named.closed_key(&log(), "ccccdddd").unwrap());
        assert!(closed == "20261128/00000000000000000070-ccccdddd.closed.json" && is_closed_name(&closed), "{closed}");
        assert_eq!(SegmentName::parse(&closed), None);
        for (from, to) in [
            ("-0000beef", ""),
            ("-0000beef", "-beef"),
            ("-0000beef", "-0000beefx"),
            ("-0000beef", "-0000beef-1"),
            ("-000017", "-x"),
            ("00005-", "0005-"),
            ("00070", "00003"),
            ("000005", "00000x"),
            ("1042", "9942"),
            ("20261128", "20261328"),
            ("-aaaabbbb", "-aaaa-bbbb"),
            (".seg", ".sag"),
            ("20261128/", ""),
            ("-000017-0000beef", "-000017"),
        ] {
            assert_eq!(SegmentName::parse(&text.replacen(from, to, 1)), None, "{from} {to}");
        }
    }

    #[test]
    fn gaps_and_checks_come_back() {
        for removed in [false, true] {
            let gap = GapName { after: 7, until: 20, removed };
            assert_eq!(GapName::parse(&path(&gap.key(&log(), "aaaabbbb").unwrap())), Some(gap));
        }
        assert_eq!(GapName::parse("gaps/00000000000000000007-00000000000000000007-a.json"), None);
        assert_eq!(check_revision(&path(&check_key(&log(), 12, "aaaabbbb").unwrap())), Some(12));
        assert_eq!(check_revision("checks/12-a.json"), None);
        assert!(log().is_of_log() && log().child("20261128").unwrap().is_of_log());
        let later = Folder::parse("key", "shop/orders/1a2b3c4d").unwrap().later_log(0xcafe);
        assert_eq!(later.as_str(), "shop/orders/1a2b3c4d/log-000000000000cafe");
        assert!(later.is_of_log() && later.child("20261128").unwrap().is_of_log());
        assert!(["logs", "log-", "log-cafe", "log-000000000000cafg"].iter().all(|name| !is_log_name(name)));
        assert!(!Folder::parse("key", "shop/orders/1a2b3c4d").unwrap().is_of_log());
    }

    #[test]
    fn a_log_stands_beside_the_snapshots_of_its_lineage() {
        let of = |uid| Folder::of_lineage("shop", "orders", uid, 0xcafe).unwrap().to_string();
        assert_eq!(of(Some("1a2b3c4d-0000")), "shop/orders/1a2b3c4d");
        assert_eq!(of(None), "shop/orders/etcd-000000000000cafe");
    }
}
