//! Retention in the small world: the effect of a Job `prune` on the store, and the actions of people.

use holdfast_api::schedule::Retention;
use holdfast_contract::{Announced, LockedPile, Policy, PruneReport, Stopped};
use holdfast_layout::retention::{Candidate, Entry, Sight, Untouched, find_stop, judge, time_zone};

use super::*;

impl World {
    /// Applies `agent prune` to the snapshots in the store.
    pub(super) fn prune(&mut self, job: &Job, mark_fits: bool) -> PruneReport {
        let name = meta::name(&job.metadata).to_owned();
        let trouble = |class: ExitClass, origin| FailedReport {
            class,
            origin,
            message: format!("the store answers {}", class.as_str()),
        };
        let failed = self.prune_trouble.or(self.store_trouble).map(|class| trouble(class, None));
        let failed = failed.or_else(|| (!mark_fits).then(|| trouble(ExitClass::Refused, Some(Origin::Store))));
        if failed.is_some() {
            self.say(format!("Kubernetes: Job {name} has failed"));
            return PruneReport { failed, ..PruneReport::default() };
        }
        let now = self.time();
        let protected = arguments(job, "protect");
        let entries: Vec<Entry> = self.stored.iter().map(|one| self.entry(one, job, &protected)).collect();
        let count = |name: &str| argument(job, name).map_or(0, |n| n.parse().unwrap());
        let policy = Policy { keep_last: count("keep-last"), keep_hourly: count("keep-hourly"), ..Policy::default() };
        let zone = time_zone(&argument(job, "time-zone").unwrap()).unwrap();
        let verdicts = judge(&entries, &policy, &zone, now);
        let accepted = argument(job, "accept-anomaly");
        let newest_after = argument(job, "newest-after").map(|at| at.parse().unwrap());
        let sight = Sight { now, complete: true, newest_after, accepted: accepted.as_deref(), ..Sight::default() };
        let stop = find_stop(&entries, &sight);
        let mut report = PruneReport {
            kept: verdicts.iter().filter(|v| !v.is_drop()).count() as u64,
            newest: self.stored.last().map(|one| one.key.clone()),
            stopped: stop.as_ref().map(|s| Stopped { reason: s.reason().to_owned(), message: s.message() }),
            ..PruneReport::default()
        };
        let dropped = entries.into_iter().zip(verdicts).filter(|(_, verdict)| verdict.is_drop());
        for entry in dropped.map(|(entry, _)| entry).collect::<Vec<_>>() {
            let announced = self.announced.get(&entry.key).copied();
            let ripe = announced.is_some_and(|at| now >= at + SignedDuration::from_hours(1));
            if stop.is_none() && self.locked.contains(&entry.key) {
                report.locked.get_or_insert_with(LockedPile::default).count += 1;
            } else if stop.is_none() && ripe {
                assert!(!self.restoring_elsewhere.contains(&entry.key), "a snapshot is removed while it is restored");
                self.stored.retain(|one| one.key != entry.key);
                self.announced.remove(&entry.key);
                report.removed += 1;
                self.say(format!("Kubernetes: Job {name} removes the snapshot of {}", entry.at));
            } else {
                if stop.is_none() && announced.is_none() {
                    self.announced.insert(entry.key.clone(), now);
                    self.say(format!("Kubernetes: Job {name} announces the snapshot of {}", entry.at));
                }
                let not_before = self.announced.get(&entry.key).map_or(now, |at| *at + SignedDuration::from_hours(1));
                let pile = report.announced.get_or_insert_with(|| Announced {
                    oldest: entry.at,
                    newest: entry.at,
                    not_before,
                    ..Announced::default()
                });
                pile.count += 1;
                pile.bytes += 1024;
                pile.newest = pile.newest.max(entry.at);
                pile.not_before = pile.not_before.min(not_before);
            }
        }
        if stop.is_some() {
            report.announced = None;
        }
        report
    }

    fn entry(&self, one: &Stored, job: &Job, protected: &[String]) -> Entry {
        let ours = argument(job, "schedule-uid").as_ref() == Some(&one.schedule);
        let judged = ours.then(|| Candidate {
            ended: one.at,
            proven: true,
            cluster_id: "c".to_owned(),
            revision: Some(7),
            keys: Some(one.keys),
            ..Candidate::default()
        });
        let (subject, spared) = if protected.contains(&one.key) {
            (Err(Untouched::Protected), judged)
        } else {
            (judged.ok_or(Untouched::OtherOrigin), None)
        };
        Entry { key: one.key.clone(), at: one.at, subject, spared }
    }

    pub fn keep_last(&mut self, count: u32) {
        let retention = Retention { keep_last: Some(count), ..Retention::default() };
        self.schedule.as_mut().unwrap().spec.retention = Some(retention);
        self.changed();
    }

    pub fn suspend_pruning(&mut self, suspend: bool) {
        self.schedule.as_mut().unwrap().spec.suspend_pruning = suspend;
        self.changed();
    }

    /// `kubectl annotate`: a person accepts that the newest snapshot has few keys.
    pub fn accept_anomaly(&mut self) {
        let newest = self.stored.last().unwrap().key.clone();
        let annotations = self.schedule.as_mut().unwrap().metadata.annotations.get_or_insert_default();
        annotations.insert(key::ACCEPT_ANOMALY.to_owned(), newest);
        self.changed();
    }

    /// A person holds the oldest recorded snapshot, or releases it.
    pub fn hold_oldest(&mut self, hold: bool) {
        let oldest = self.stored.first().unwrap().uid.clone();
        let of_run = |s: &&mut EtcdSnapshot| s.spec.run.as_ref().is_some_and(|run| run.uid == oldest);
        let mut record = self.snapshots.values_mut().find(of_run).unwrap().clone();
        record.spec.hold = hold;
        self.touch(&mut record.metadata);
        self.snapshots.insert(meta::name(&record.metadata).to_owned(), record);
    }

    /// Another cluster of the namespace starts to restore the oldest snapshot, or has ended that.
    pub fn restore_oldest_elsewhere(&mut self, begins: bool) {
        self.restoring_elsewhere.clear();
        if begins {
            self.restoring_elsewhere.insert(self.stored.first().unwrap().key.clone());
        }
        self.changed();
    }

    /// S3 sets a legal hold on the oldest snapshot, or removes it.
    pub fn lock_oldest(&mut self, lock: bool) {
        self.locked.clear();
        if lock {
            self.locked.insert(self.stored.first().unwrap().key.clone());
        }
    }

    /// Logs the snapshots in the store, and the retention in the status.
    pub fn show_retention(&mut self) {
        let Some(status) = self.schedule.as_ref().and_then(|s| s.status.clone()) else { return };
        let announced = status.announced.map_or(0, |pile| pile.count);
        let records = self.snapshots.values().filter(|s| s.spec.run.is_some()).count();
        self.say(format!(
            "{} are stored, {records} recorded; kept {}, announced {announced}, removed {}, last {}",
            self.stored.len(),
            status.kept.unwrap_or_default(),
            status.pruned,
            status.last_prune.and_then(|last| last.class).unwrap_or_else(|| "well".to_owned()),
        ));
    }
}
