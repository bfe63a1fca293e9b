//! Decides when nothing may be removed under any policy: the listing is incomplete, the store is not the expected one, or the
//! data is implausible.
//!
//! This file decides by the entries and by the reader's findings. The order of the stops is the order of the doubt: the first
//! stop is reported.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use super::entry::{Candidate, Entry, Untouched};

/// Maximum difference of clocks. In one Kubernetes cluster clocks differ by seconds, and stores refuse signatures that are a
/// quarter of an hour off.
const MOST_AHEAD: SignedDuration = SignedDuration::from_mins(15);

/// With fewer keys, usual work can delete a large part within a minute.
const MANY_KEYS: u64 = 1000;

/// Losses of the same size whose keys came back, after which the next one is expected. After one alone, a user may have restored
/// keys that were deleted by mistake.
const USUAL: usize = 2;

/// Result of comparing a store's ID with the expected ID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreMatch {
    /// The expected ID, or no ID is expected.
    #[default]
    Same,
    /// Another ID, with the message.
    Different(String),
    /// The ID cannot be read, with the reason.
    Unreadable(String),
}

/// Findings beside the entries.
#[derive(Clone, Debug, Default)]
pub struct Sight<'a> {
    /// The current time.
    pub now: Timestamp,
    /// Whether the listing reached its end and named every folder once.
    pub complete: bool,
    /// Whether the store has the expected ID.
    pub store_match: StoreMatch,
    /// The due time before the last: if all backups are older, backups have stopped.
    pub newest_after: Option<Timestamp>,
    /// Key of a snapshot whose loss of keys, or lower revision, a user has accepted.
    pub accepted: Option<&'a str>,
}

/// Reason for which nothing is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The listing is incomplete, or names a folder twice.
    Listing,
    /// Another store.
    OtherStore(String),
    /// The store's ID is unknown.
    UnknownStore(String),
    /// A later version wrote a manifest.
    LaterFormat(String),
    /// A later snapshot has a lower revision than an earlier one.
    RevisionFell {
        /// The later snapshot.
        later: String,
        /// The earlier snapshot, with a higher revision.
        earlier: String,
    },
    /// A snapshot has a time in the future.
    Ahead(String, Timestamp),
    /// The newest snapshot is older than two due times.
    Overdue(String, Timestamp),
    /// A snapshot has far fewer keys than the snapshot before.
    Anomaly {
        /// The later snapshot.
        later: String,
        /// Its keys.
        keys: u64,
        /// The snapshot before.
        earlier: String,
        /// The keys of the snapshot before.
        before: u64,
    },
    /// A verification failed, and no proven snapshot without a contradicting verification is left.
    NoneSound(String),
}

impl Stop {
    /// Returns the reason for conditions.
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

    /// Returns the problem and the remedy.
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

/// Returns the first reason to remove nothing.
pub fn find_stop(entries: &[Entry], sight: &Sight<'_>) -> Option<Stop> {
    match &sight.store_match {
        StoreMatch::Same => {}
        StoreMatch::Different(why) => return Some(Stop::OtherStore(why.clone())),
        StoreMatch::Unreadable(why) => return Some(Stop::UnknownStore(why.clone())),
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
    let loss = find_losses(entries, sight.accepted).into_iter().find(|loss| !loss.is_usual())?;
    let Loss { later, keys, earlier, before, .. } = loss;
    Some(Stop::Anomaly { later: later.key.clone(), keys, earlier: earlier.key.clone(), before })
}

/// Describes the newest loss of keys that stops nothing, because the keys of such losses came back before.
pub fn describe_usual_loss(entries: &[Entry], accepted: Option<&str>) -> Option<String> {
    let usual = find_losses(entries, accepted).into_iter().find(Loss::is_usual)?;
    let Loss { later, keys, earlier, before, like } = usual;
    let (later, earlier) = (&later.key, &earlier.key);
    Some(format!(
        "{later} has {keys} keys, and the snapshot before, {earlier}, has {before}. This stops no removal, because the keys came \
         back after each of {like} earlier losses of this size"
    ))
}

/// A loss of keys between two snapshots.
struct Loss<'a> {
    later: &'a Entry,
    keys: u64,
    earlier: &'a Entry,
    before: u64,
    /// Earlier losses of at least this size whose keys came back.
    like: usize,
}

impl Loss<'_> {
    const fn is_usual(&self) -> bool {
        self.like >= USUAL
    }

    /// Whether the other loss left no larger part of the keys, but for small differences.
    fn is_like(&self, other: &Self) -> bool {
        let [keys, before, other_keys, other_before] =
            [self.keys, self.before, other.keys, other.before].map(u128::from);
        keys.saturating_mul(other_before).saturating_mul(10) >= other_keys.saturating_mul(before).saturating_mul(7)
    }
}

/// Whether under 70 % of the keys are left. By keys, not by bytes: a defragmentation shrinks bytes.
fn is_lost(keys: u64, before: u64) -> bool {
    u128::from(keys) * 10 < u128::from(before) * 7
}

/// Returns the losses of keys between two snapshots, the newest first: those after the loss that a user has accepted, and whose
/// keys are not back in a later proven snapshot. Held and protected snapshots count, so that a hold on the fuller snapshot does not
/// hide the loss.
fn find_losses<'a>(entries: &'a [Entry], accepted: Option<&str>) -> Vec<Loss<'a>> {
    let counted = entries.iter().filter_map(|entry| {
        let is = entry.subject.as_ref().ok().or(entry.spared.as_ref())?;
        Some((entry, is, is.keys?))
    });
    let mut newest_first: Vec<(&Entry, &Candidate, u64)> = counted.collect();
    newest_first.sort_unstable_by(|(a, ..), (b, ..)| (b.at, &b.key).cmp(&(a.at, &a.key)));
    let (mut open, mut is_known) = (Vec::<Loss<'_>>::new(), false);
    // The most keys of a later proven snapshot.
    let mut later_keys = 0;
    for pair in newest_first.windows(2) {
        let [(later, is, keys), (earlier, _, before)] = *pair else { continue };
        if before >= MANY_KEYS && is_lost(keys, before) {
            is_known |= accepted == Some(later.key.as_str());
            let loss = Loss { later, keys, earlier, before, like: 0 };
            if !is_lost(later_keys, before) {
                open.iter_mut().filter(|open| open.is_like(&loss)).for_each(|open| open.like += 1);
            } else if !is_known {
                open.push(loss);
            }
        }
        if is.proven && !is.failed {
            later_keys = later_keys.max(keys);
        }
    }
    open
}

/// Returns a snapshot with a lower revision whose save began after the end of an earlier save of the same etcd. Revisions
/// before an accepted snapshot do not count.
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
