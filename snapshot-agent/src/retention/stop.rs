//! When nothing may be removed at all, whatever the policy says: what is seen is not the whole, not the right store, or
//! not plausible.
//!
//! Decides by the entries and by what the reader found out beside them. The order of the stops is the order of the doubt:
//! the first one is told.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use super::entry::{Candidate, Entry, Untouched};

/// Clocks of one Kubernetes cluster differ by seconds, and signatures are refused where it is a quarter of an hour.
const MOST_AHEAD: SignedDuration = SignedDuration::from_mins(15);

/// Of fewer keys a large part may go in a minute of usual work.
const MANY_KEYS: u64 = 1000;

/// Whether a store is the expected one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// It is, or none is expected.
    #[default]
    Same,
    /// It is another one, and which.
    Different(String),
    /// The store does not say, and why.
    Unreadable(String),
}

/// What was found out beside the entries.
#[derive(Clone, Debug, Default)]
pub struct Sight<'a> {
    /// Now.
    pub now: Timestamp,
    /// Whether the listing came to its end and named every folder once.
    pub complete: bool,
    /// Whether it is the right store.
    pub mark: Mark,
    /// The due time before the last: backups that are older have stopped.
    pub newest_after: Option<Timestamp>,
    /// Key of a snapshot whose loss of keys, or lower revision, is intended.
    pub accepted: Option<&'a str>,
}

/// Why nothing is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The listing is incomplete, or names a folder twice.
    Listing,
    /// Another store.
    OtherStore(String),
    /// Whether it is the right store is not known.
    UnknownStore(String),
    /// A manifest of a later version.
    LaterFormat(String),
    /// A later snapshot with a lower revision, and the earlier one.
    RevisionFell {
        /// The later one.
        later: String,
        /// The earlier one, of a higher revision.
        earlier: String,
    },
    /// A snapshot that was taken in the future.
    Ahead(String, Timestamp),
    /// The newest is older than two due times.
    Overdue(String, Timestamp),
    /// A snapshot has far fewer keys than the one before.
    Anomaly {
        /// The later one.
        later: String,
        /// Its keys.
        keys: u64,
        /// The one before.
        earlier: String,
        /// The keys of the one before.
        before: u64,
    },
    /// A verification failed, and no proven snapshot is left that none contradicts.
    NoneSound(String),
}

impl Stop {
    /// A word for conditions.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Listing => "ListingIncomplete",
            Self::OtherStore(_) => "StoreExchanged",
            Self::UnknownStore(_) => "StoreUnknown",
            Self::LaterFormat(_) => "LaterFormat",
            Self::RevisionFell { .. } => "RevisionFell",
            Self::Ahead(..) => "DateAhead",
            Self::Overdue(..) => "BackupOverdue",
            Self::Anomaly { .. } => "SnapshotAnomaly",
            Self::NoneSound(_) => "NoSoundSnapshot",
        }
    }

    /// The problem and the remedy.
    pub fn message(&self) -> String {
        match self {
            Self::Listing => {
                "the store's listing is incomplete or names a folder twice. The next run lists again".to_owned()
            }
            Self::OtherStore(why) => why.clone(),
            Self::UnknownStore(why) => format!(
                "the store ID could not be read, so this may be another store: {why}. Give the credentials the right to \
                 read holdfast-store.json"
            ),
            Self::LaterFormat(key) => {
                format!("a later version of Holdfast wrote the manifest of {key}. Prune with that version")
            }
            Self::RevisionFell { later, earlier } => format!(
                "{later} was taken after {earlier} and has a lower revision: the cluster lost writes, or a clock was wrong. If \
                 the later snapshot is right, annotate the EtcdSnapshotSchedule with holdfast.dev/accept-anomaly={later} (agent \
                 prune: --accept-anomaly). If not, hold the wrong one, or remove it (agent remove) and delete its EtcdSnapshot"
            ),
            Self::Ahead(key, at) => format!(
                "{key} was taken at {at}, which is in the future: a clock was wrong. Hold this snapshot, or remove it \
                 (agent remove) and delete its EtcdSnapshot"
            ),
            Self::Overdue(key, at) => format!(
                "the newest snapshot {key} of {at} is older than two due times of the schedule. Let a backup succeed first"
            ),
            Self::Anomaly { later, keys, earlier, before } => format!(
                "{later} has {keys} keys, and the snapshot before, {earlier}, has {before}. If this is intended, \
                 annotate the EtcdSnapshotSchedule with holdfast.dev/accept-anomaly={later} (agent prune: --accept-anomaly)"
            ),
            Self::NoneSound(key) => format!(
                "a verification of {key} failed, and the schedule has no proven snapshot without a failed verification. Let \
                 a backup with an equal HashKV succeed first"
            ),
        }
    }
}

/// The first reason to remove nothing.
pub fn find_stop(entries: &[Entry], sight: &Sight<'_>) -> Option<Stop> {
    match &sight.mark {
        Mark::Same => {}
        Mark::Different(why) => return Some(Stop::OtherStore(why.clone())),
        Mark::Unreadable(why) => return Some(Stop::UnknownStore(why.clone())),
    }
    if !sight.complete {
        return Some(Stop::Listing);
    }
    if let Some(later) = entries.iter().find(|entry| entry.subject == Err(Untouched::LaterFormat)) {
        return Some(Stop::LaterFormat(later.key.clone()));
    }
    let mut oldest_first: Vec<(&Entry, &Candidate)> =
        entries.iter().filter_map(|entry| Some((entry, entry.subject.as_ref().ok()?))).collect();
    oldest_first.sort_unstable_by(|(a, _), (b, _)| (a.at, &a.key).cmp(&(b.at, &b.key)));
    let (newest, _) = oldest_first.last()?;
    if newest.at.duration_since(sight.now) > MOST_AHEAD {
        return Some(Stop::Ahead(newest.key.clone(), newest.at));
    }
    if let Some(fall) = find_fall(&oldest_first, sight.accepted) {
        return Some(fall);
    }
    if sight.newest_after.is_some_and(|due| newest.at < due) {
        return Some(Stop::Overdue(newest.key.clone(), newest.at));
    }
    let failed = oldest_first.iter().rfind(|(_, is)| is.failed);
    if let Some((failed, _)) = failed
        && !oldest_first.iter().any(|(_, is)| is.proven && !is.failed)
    {
        return Some(Stop::NoneSound(failed.key.clone()));
    }
    find_loss(entries, sight.accepted)
}

/// The newest loss of keys from one snapshot to the next, if nobody accepts it: a backup after it does not make it good.
/// Who is held or protected counts, so that holding the fuller one does not hide the loss.
fn find_loss(entries: &[Entry], accepted: Option<&str>) -> Option<Stop> {
    let counted = entries.iter().filter_map(|entry| {
        let is = entry.subject.as_ref().ok().or(entry.spared.as_ref())?;
        Some((entry, is.keys?))
    });
    let mut newest_first: Vec<(&Entry, u64)> = counted.collect();
    newest_first.sort_unstable_by(|(a, _), (b, _)| (b.at, &b.key).cmp(&(a.at, &a.key)));
    let pairs = newest_first.windows(2).filter_map(|pair| pair.first().zip(pair.get(1)));
    // By keys, never by bytes: a defragmentation shrinks bytes.
    let lost = |(keys, before): (u64, u64)| before >= MANY_KEYS && u128::from(keys) * 10 < u128::from(before) * 7;
    let ((later, keys), (earlier, before)) =
        pairs.into_iter().find(|((_, keys), (_, before))| lost((*keys, *before)))?;
    (accepted != Some(later.key.as_str())).then(|| Stop::Anomaly {
        later: later.key.clone(),
        keys: *keys,
        earlier: earlier.key.clone(),
        before: *before,
    })
}

/// A snapshot whose save began after another one of the same etcd had ended, with a lower revision. From an accepted one on
/// revisions count anew.
fn find_fall(oldest_first: &[(&Entry, &Candidate)], accepted: Option<&str>) -> Option<Stop> {
    let mut by_end: Vec<_> = oldest_first.iter().filter_map(|(entry, is)| Some((*entry, *is, is.revision?))).collect();
    by_end.sort_by_key(|(_, is, _)| is.ended);
    let mut ended = by_end.into_iter().peekable();
    let mut highest: HashMap<&str, (i64, &Entry)> = HashMap::new();
    for (later, is) in oldest_first {
        while let Some((entry, before, revision)) = ended.next_if(|(_, before, _)| before.ended <= later.at) {
            let most = highest.entry(&before.cluster_id).or_insert((revision, entry));
            if revision > most.0 {
                *most = (revision, entry);
            }
        }
        if accepted == Some(later.key.as_str()) {
            highest.remove(is.cluster_id.as_str());
        }
        if let (Some(revision), Some((most, earlier))) = (is.revision, highest.get(is.cluster_id.as_str()))
            && revision < *most
        {
            return Some(Stop::RevisionFell { later: later.key.clone(), earlier: earlier.key.clone() });
        }
    }
    None
}
