//! `agent prune`: judges the snapshots of one schedule, removes announced snapshots, and announces the next removals.
//!
//! This file decides which snapshots a run removes. A candidate must be dropped by the current policy, must be named with the
//! same manifest in an announcement of the same policy that is old enough and of the last day, and must not be locked. A run
//! removes at most [`MAX_REMOVED`], the oldest first. Any doubt about the whole (`retention::find_stop`) stops every removal.
//! The log comes after the snapshots, with a record of its own: whatever its size or state, the snapshots go first.
//! `catalog/removal.rs` decides how a snapshot is removed, `prune/log.rs` what goes of the log.

mod log;
mod report;

use futures::future::LocalBoxFuture;
use std::collections::{HashMap, HashSet};

use holdfast_contract::error::{Error, Result};
use holdfast_contract::{ExitClass, MAX_NAMED, MAX_REMOVED, PruneRequest};
use holdfast_io::clock;
use holdfast_io::interrupt::Interrupt;
use holdfast_io::process::random_uid;
use holdfast_layout::Folder;
use holdfast_layout::retention::{
    Sight, Stop, StoreMatch, Verdict, Whose, describe_usual_loss, find_stop, judge, time_zone,
};
use holdfast_store::Store;
use holdfast_store::removal::Lasting;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use holdfast_catalog::announced::{self, Asked, Judge, LogPermit, MAX_SNAPSHOTS, Named, Permit};
use holdfast_catalog::attempts::lineages;
use holdfast_catalog::inventory::{self, Found};
use holdfast_catalog::log::BoundLog;
use holdfast_catalog::removable_store::RemovableStore;
use holdfast_catalog::removal::{self, Removal};
use holdfast_catalog::removal_record;
use holdfast_catalog::store_id;
use holdfast_catalog::stored;
use holdfast_catalog::target::Target;
use log::LogPart;
pub use report::{Pruned, Row};

/// Snapshots that a run tries to remove: the agent detects a lock on the data only by trying.
const MAX_TRIED: usize = 5 * MAX_REMOVED;

/// Prunes. `Err`: the run judged nothing. After a later failure the report holds the finished work.
pub fn run(request: PruneRequest) -> LocalBoxFuture<'static, Result<Pruned>> {
    Box::pin(async move {
        request.policy.check().map_err(|why| Error::config(format!("the policy: {why}")))?;
        let none = || Error::config(format!("--time-zone={:?} is no time zone", request.time_zone));
        let zone = time_zone(&request.time_zone).ok_or_else(none)?;
        let protected = protected(&request)?;
        let mut interrupt = Interrupt::after(request.deadline_seconds.into())?;
        // The announcements are never locked, even where saves lock their objects.
        let store = Store::open(&holdfast_store::unlocked(&request.store))?;
        let lineage = Folder::of_cluster(&request.namespace, &request.cluster, Some(&request.cluster_uid))
            .map_err(|error| holdfast_store::layout(&error))?;
        let pod_uid = request.pod_uid.clone().map_or_else(random_uid, Ok)?;
        let (store_match, store_id) =
            interrupt.unless(store_id::read_before_removal(&request.store, request.expect_store_id.as_deref())).await?;
        // The run reads nothing from another store.
        let known = match store_match {
            StoreMatch::Same => interrupt.unless(lineages(&store, &request.namespace, &request.cluster, None)).await?,
            StoreMatch::Different(_) | StoreMatch::Unreadable(_) => vec![],
        };
        let earlier =
            known.iter().filter(|other| **other != lineage).map(ToString::to_string).take(MAX_NAMED).collect();
        let (now, seen) = (clock::now(), Seen::default());
        let mut run = Run { request, protected, zone, lineage, pod_uid, store_match, store_id, now, seen };
        let failed = interrupt.unless(run.prune(&store)).await.err();
        if !interrupt.came() {
            let log = interrupt.unless(run.prune_logs(&store)).await;
            run.end_log(log);
        }
        Ok(run.into_pruned(earlier, failed))
    })
}

/// Parses the protected keys. An invalid key is an error, because it would protect nothing.
fn protected(request: &PruneRequest) -> Result<HashSet<Folder>> {
    let named = request.protect.iter().map(|key| stored::folder(key).map_err(|error| error.context("--protect")));
    named.collect()
}

/// One run.
struct Run {
    request: PruneRequest,
    protected: HashSet<Folder>,
    zone: TimeZone,
    lineage: Folder,
    pod_uid: String,
    store_match: StoreMatch,
    store_id: Option<String>,
    now: Timestamp,
    seen: Seen,
}

/// Findings and actions of a run; they stay when the run ends early.
#[derive(Default)]
struct Seen {
    found: Vec<Found>,
    verdicts: Vec<Verdict>,
    permits: HashMap<String, Permit>,
    stop: Option<Stop>,
    /// A loss of keys that stops nothing, because such losses are usual.
    usual_loss: Option<String>,
    /// Whether the run has judged the snapshots.
    judged: bool,
    logs: Vec<LogPart>,
    /// Reason for which the work on the log has ended early.
    log_failed: Option<Error>,
    /// Snapshots that this run has announced.
    announced: HashSet<String>,
    record: Option<String>,
    /// Snapshots that this run has removed, with their bytes.
    removed: HashMap<String, u64>,
    locked: HashMap<String, Lasting>,
    unknown: Vec<String>,
}

impl Run {
    async fn prune(&mut self, shelf: &impl RemovableStore) -> Result<()> {
        let sight = Sight {
            now: self.now,
            complete: true,
            store_match: self.store_match.clone(),
            newest_after: self.request.newest_after,
            accepted: self.request.accept_anomaly.as_deref(),
        };
        if self.store_match != StoreMatch::Same {
            self.seen.stop = find_stop(&[], &sight);
            return match &self.store_match {
                StoreMatch::Different(why) => Err(Error::exchanged(why.clone())),
                StoreMatch::Same | StoreMatch::Unreadable(_) => Ok(()),
            };
        }
        let whose = Whose { cluster_uid: &self.request.cluster_uid, schedule_uid: &self.request.schedule_uid };
        let taken = inventory::take(shelf, &self.lineage, whose, &self.protected).await?;
        let entries: Vec<_> = taken.found.iter().map(|found| found.entry.clone()).collect();
        self.seen.verdicts = judge(&entries, &self.request.policy, &self.zone, self.now);
        self.seen.stop = find_stop(&entries, &Sight { complete: taken.complete, ..sight });
        self.seen.usual_loss = describe_usual_loss(&entries, sight.accepted);
        drop(entries);
        self.seen.found = taken.found;
        for found in self.dropped() {
            let lasting = found.snapshot.as_ref().map(|snapshot| snapshot.lasting).unwrap_or_default();
            if lasting.locks(self.now) {
                self.seen.locked.insert(found.entry.key.clone(), lasting);
            }
        }
        self.seen.judged = true;
        self.read_permits(shelf).await?;
        if self.is_passive() {
            return Ok(());
        }
        // In this order: a full store takes no announcement, and removals make room.
        self.remove_announced(shelf).await?;
        self.announce(shelf).await
    }

    /// Whether the run only reports.
    fn is_passive(&self) -> bool {
        self.seen.stop.is_some() || self.request.dry_run
    }

    /// Prunes the logs by the snapshots that exist: an announced snapshot still needs its part of the log.
    async fn prune_logs(&mut self, shelf: &impl RemovableStore) -> Result<()> {
        if !self.seen.judged {
            return Ok(());
        }
        let logs = shelf.logs_of(&self.lineage).await?;
        if logs.is_empty() {
            return Ok(());
        }
        let asked = Asked { wanted: HashSet::new(), log: true, ..self.asked() };
        let permits = announced::read(shelf, &self.judge(), asked).await?.log;
        for log in logs {
            self.prune_log(shelf, log, &permits).await?;
        }
        Ok(())
    }

    async fn prune_log(
        &mut self,
        shelf: &impl RemovableStore,
        BoundLog { folder, cluster_id }: BoundLog,
        permits: &[LogPermit],
    ) -> Result<()> {
        let is_passive = self.is_passive();
        let remaining = self.seen.found.iter().filter(|found| !self.seen.removed.contains_key(&found.entry.key));
        let bases = match log::bases(remaining, cluster_id, &self.protected) {
            _ if self.protected.contains(&self.lineage) => {
                Err("the request protects the lineage (--protect)".to_owned())
            }
            bases => bases,
        };
        let within = self.request.policy.log_within;
        let read = LogPart::read(shelf, (folder, cluster_id), bases, (within, self.now), permits).await?;
        self.seen.logs.push(read);
        let Some(part) = self.seen.logs.last_mut().filter(|_| !is_passive) else { return Ok(()) };
        part.remove(shelf, (self.now, self.request.not_after)).await?;
        let Some(named) = part.announcement() else { return Ok(()) };
        // The record of the snapshots may have the UID of the Pod in its name.
        let record = self.judge().announce(shelf, (vec![], Some(named.clone())), self.now, &random_uid()?).await?;
        self.seen.record.get_or_insert_with(|| record.to_string());
        let not_before = self.not_before();
        if let Some(part) = self.seen.logs.last_mut() {
            part.announced(named, not_before);
        }
        Ok(())
    }

    /// Takes the end of the work on the log. An error is one of the log alone: the snapshots have been pruned.
    fn end_log(&mut self, ended: Result<()>) {
        self.seen.log_failed = ended.err();
        if let Some(error) = &self.seen.log_failed {
            tracing::warn!("the log is not pruned in this run: {error}");
        }
    }

    /// Returns the snapshots that the policy drops, the oldest first.
    fn dropped(&self) -> Vec<Found> {
        let pairs = self.seen.found.iter().zip(&self.seen.verdicts);
        let mut dropped: Vec<Found> =
            pairs.filter(|(_, verdict)| verdict.is_drop()).map(|(found, _)| found.clone()).collect();
        dropped.sort_by_key(|found| found.entry.at);
        dropped
    }

    fn judge(&self) -> Judge<'_> {
        Judge {
            lineage: &self.lineage,
            schedule_uid: &self.request.schedule_uid,
            policy: &self.request.policy,
            time_zone: &self.request.time_zone,
            store_id: self.store_id.as_deref(),
        }
    }

    async fn read_permits(&mut self, shelf: &impl RemovableStore) -> Result<()> {
        let permits = announced::read(shelf, &self.judge(), self.asked()).await?;
        self.seen.permits = permits.snapshots;
        Ok(())
    }

    /// Returns the query for the records of the dropped snapshots.
    fn asked(&self) -> Asked {
        let wanted = self.dropped().into_iter().map(|found| found.entry.key).collect();
        let age = SignedDuration::from_secs(self.request.announced_seconds.into());
        let (since, touch) = (self.request.announced_after, !self.is_passive());
        Asked { wanted, log: false, age, since, now: self.now, touch }
    }

    /// Returns the announcement of a complete snapshot, if it names the current policy and the current manifest.
    fn permit(&self, found: &Found) -> Option<&Permit> {
        let sha256 = hex::encode(found.snapshot.as_ref()?.sha256);
        let permit = self.seen.permits.get(&found.entry.key)?;
        (permit.mine && permit.named.manifest_sha256.eq_ignore_ascii_case(&sha256)).then_some(permit)
    }

    async fn remove_announced(&mut self, shelf: &impl RemovableStore) -> Result<()> {
        let half = self.seen.found.iter().filter(|found| found.half).cloned().collect::<Vec<_>>();
        let (mut tried, mut denials) = (0, vec![]);
        for found in half.into_iter().chain(self.dropped()) {
            if tried == MAX_TRIED || self.seen.removed.len() == MAX_REMOVED {
                break;
            }
            let key = &found.entry.key;
            if self.request.not_after.is_some_and(|until| clock::now() >= until) {
                tracing::warn!(key, "the run has started or lasted longer than it may, and removes nothing more");
                break;
            }
            let ended = match self.remove_one(shelf, &found).await {
                Ok(None) => continue,
                Ok(Some(ended)) => ended,
                // A denial for one snapshot may not hold for the others.
                Err(error) if error.class() == ExitClass::Denied => {
                    tracing::warn!(key, "the store denies the removal, and the snapshot counts as locked: {error}");
                    self.seen.locked.insert(key.clone(), Lasting::default());
                    denials.push(error);
                    tried += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            tried += 1;
            match ended {
                Removal::Removed { bytes, unknown } => {
                    tracing::info!(key, bytes, "removed");
                    self.seen.removed.insert(key.clone(), bytes);
                    self.seen.unknown.extend(unknown);
                }
                Removal::Locked(lasting) => {
                    self.seen.locked.insert(key.clone(), lasting);
                }
                Removal::Held => tracing::info!(key, "held since it was judged: it stays"),
                Removal::Changed(why) => tracing::info!(key, why, "it stays"),
            }
        }
        match denials.pop() {
            Some(denied) if denials.len() + 1 == tried => Err(denied),
            _ => Ok(()),
        }
    }

    /// Removes an announced snapshot, or finishes a half-done removal; `None`: the snapshot is neither.
    async fn remove_one(&self, shelf: &impl RemovableStore, found: &Found) -> Result<Option<Removal>> {
        let store_id = self.store_id.as_deref();
        if found.half {
            return match removal_record::find(shelf, &found.folder, store_id).await? {
                Some(target) => removal::finish(shelf, &target, self.now).await,
                None => Ok(None),
            };
        }
        let permit =
            self.permit(found).filter(|permit| permit.ripe && !self.seen.locked.contains_key(&found.entry.key));
        let target = permit.and_then(|permit| Target::locate(found.folder.clone(), permit.named.clone(), store_id));
        match target {
            Some(target) => removal::remove(shelf, &target, self.now).await.map(Some),
            None => Ok(None),
        }
    }

    /// Announces the snapshots that the policy drops and no announcement names yet, the oldest first.
    async fn announce(&mut self, shelf: &impl RemovableStore) -> Result<()> {
        let standing: Vec<Found> = self.dropped().into_iter().filter(|found| self.stands(found)).collect();
        let (pending, new): (Vec<_>, Vec<_>) = standing.iter().partition(|found| self.permit(found).is_some());
        let most = MAX_SNAPSHOTS.saturating_sub(pending.len()).min(1) * MAX_SNAPSHOTS;
        let reason = |found: &Found| match &found.entry.subject {
            Ok(is) if is.failed => "a verification failed",
            _ => "no rule keeps it",
        };
        let named: Vec<Named> =
            new.iter().filter_map(|found| Named::from_found(found, reason(found))).take(most).collect();
        if named.is_empty() {
            return Ok(());
        }
        let keys = named.iter().map(|named| named.key.clone()).collect();
        let record = self.judge().announce(shelf, (named, None), self.now, &self.pod_uid).await?;
        self.seen.record = Some(record.to_string());
        self.seen.announced = keys;
        Ok(())
    }

    /// Returns the earliest time at which a later run removes what this run announces.
    fn not_before(&self) -> Timestamp {
        let age = SignedDuration::from_secs(self.request.announced_seconds.into());
        self.now.checked_add(age).unwrap_or(Timestamp::MAX)
    }

    /// Whether the snapshot may be announced: this run has not removed it, and it is not locked.
    fn stands(&self, found: &Found) -> bool {
        !self.seen.removed.contains_key(&found.entry.key) && !self.seen.locked.contains_key(&found.entry.key)
    }
}

#[cfg(test)]
mod log_tests;
#[cfg(test)]
mod prune_faults;
#[cfg(test)]
mod prune_many;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
