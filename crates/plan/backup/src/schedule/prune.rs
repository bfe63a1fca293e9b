//! Removal of the snapshots that the retention of a schedule does not keep.
//!
//! Decides when a Job announces and removes, at most every ten minutes. The operator latches `status.pruneRun`, then reads the
//! restoring clusters and latches the snapshots that they read, then starts the Job. A restore writes its own latch before it
//! reads this latch, so at least one side sees the other. After the Job the operator asks the store which runs the store still
//! holds, since the report may be lost and contains no keys, and deletes the records of the other runs. The agent decides which
//! snapshots go.

use holdfast_api::backup_store::Right;
use holdfast_api::condition::{Reason, Type, Wanted};
use holdfast_api::name;
use holdfast_api::schedule::{Announced, LastPrune, Locked, PruneRun, PrunedLog};
use holdfast_contract::Policy;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;

use super::applied::{Halted, Pruning, condition, trouble};
use super::facts::{self, Run};
use super::forecast::{Forecast, forecast, policy};
use super::recall::{self, Answer, Hole};
use super::removal::{Place, latched_on, removes, start};
use super::{Line, Observed, Recall};
use crate::store;
use holdfast_base::jobs::{self, JobState};
use holdfast_base::objects::job::CONTAINER;
use holdfast_base::removals::may_remove;
use holdfast_base::restores::is_within;
use holdfast_base::{Act, Next, Target, Wake, job_state, meta, pods};

/// Pause between two Jobs, and the longest pause after repeated failures.
const PACE: SignedDuration = SignedDuration::from_mins(10);
const SLOWEST: SignedDuration = SignedDuration::from_hours(1);

/// Pause between two Jobs for the log alone: half of the time for which an announcement permits a removal.
const LOG_PACE: SignedDuration = SignedDuration::from_hours(12);

/// A latch older than this starts no Job.
const STALE: SignedDuration = SignedDuration::from_mins(10);

/// Interval of passes while a Job runs, against a missed event.
const WAITED_FOR: Wake = Wake::AfterMillis(15_000);

/// Returns the next step for the retention, and the retention's part of the status.
pub(super) fn decide(
    seen: &Observed,
    runs: &[Run<'_>],
    (line, halted): (Option<&Line>, Halted<'_>),
    now: Timestamp,
) -> Pruning {
    let old = seen.schedule.status.clone().unwrap_or_default();
    let mut pruning = Pruning::from(old);
    pruning.account(seen, now);
    let Some(known) = premises(seen, line) else {
        // A running Job goes on to its end; without a policy the status has no other field of the retention.
        let Pruning { run, last, pruned, .. } = pruning;
        let run = run.filter(|run| run.ended_at.is_none() && job_of(seen, run).is_some());
        return Pruning { pruned, last, run, ..Pruning::default() };
    };
    pruning.date_policy(seen, now);
    let suspended = seen.schedule.spec.suspend_pruning;
    if known.is_err() || suspended {
        // An invisible Job may still run if the operator was about to create the Job.
        let stands = |run: &PruneRun| job_of(seen, run).is_some() || (run.protects.is_some() && may_remove(run, now));
        pruning.run = pruning.run.take().filter(|run| run.ended_at.is_some() || stands(run));
    }
    let (policy, line, place) = match known {
        Ok(known) => known,
        Err(blocked) => return Pruning { condition: Some(blocked), ..pruning },
    };
    let id = place.record.as_ref().and_then(|record| record.id.as_deref());
    let forecast = forecast(seen, runs, (&policy, line), (&place.location, id), now);
    let log = pruning.last.as_ref().and_then(|last| last.log.as_ref()).map_or(0, |log| log.bytes);
    (pruning.kept, pruning.bytes) = (Some(forecast.kept), Some(forecast.bytes.saturating_add(log)));
    pruning.due = forecast.changes_at;
    if let Some(run) = pruning.run.clone() {
        pruning.go_on(seen, runs, (&run, &forecast), (&policy, line, &place), now);
    }
    // The operator clears a written latch before it writes the next latch: a restore reads either the one or the other.
    let latched = seen.schedule.status.as_ref().is_some_and(|status| status.prune_run.is_some());
    if !latched && pruning.next.is_none() {
        pruning.begin(seen, &forecast, now);
    }
    pruning.condition = Some(if suspended {
        let why = "spec.suspendPruning is true: Holdfast announces and removes nothing";
        Wanted::unknown(Type::RetentionApplied, Reason::Suspended, why)
    } else {
        condition(&pruning, &forecast, halted)
    });
    pruning
}

/// Returns the inputs of a Job; `Err`: the missing input. `None`: the schedule keeps every snapshot.
fn premises<'a>(seen: &Observed, line: Option<&'a Line>) -> Option<Result<(Policy, &'a Line, Place), Wanted>> {
    let spec = &seen.schedule.spec;
    let retention = spec.retention.as_ref()?;
    let unknown = |reason, why: String| Wanted::unknown(Type::RetentionApplied, reason, why);
    let cluster = seen.cluster.as_ref().filter(|cluster| !meta::deleting(&cluster.metadata));
    Some(match (policy(retention), line, cluster, place(seen)) {
        (Err(why), ..) => Err(Wanted::no(Type::RetentionApplied, Reason::InvalidSpec, why)),
        (_, None, ..) => Err(unknown(Reason::InvalidSpec, "the due times are not known: see Ready".to_owned())),
        (_, _, None, _) => {
            let why = "the EtcdCluster does not exist or is being deleted: its snapshots stay".to_owned();
            Err(unknown(Reason::WaitingForReference, why))
        }
        (_, _, _, Err((reason, why))) => Err(unknown(reason, why)),
        (Ok(policy), Some(line), Some(_), Ok(place)) => Ok((policy, line, place)),
    })
}

/// Returns the place of a store that is usable now and has the ID that its probe found: Holdfast removes nothing from another
/// store (I25).
fn place(seen: &Observed) -> Result<Place, (Reason, String)> {
    let destination = &seen.schedule.spec.snapshot_template.destination;
    let wrong = || {
        let why = "spec.snapshotTemplate.destination: needs exactly one of storeRef, s3, azure, gcs and pvc";
        (Reason::InvalidSpec, why.to_owned())
    };
    let Some(named) = &destination.store_ref else {
        return Ok(Place { location: destination.place.location().ok_or_else(wrong)?, record: None });
    };
    let record = store::usable(&named.name, seen.store.as_ref())?;
    if record.id.is_none() {
        let why = format!(
            "the store ID of EtcdBackupStore {} is not known. Give its credentials the right to read holdfast-store.json",
            named.name
        );
        return Err((Reason::RetentionBlocked, why));
    }
    let location = record.location(Right::Prune).ok_or_else(wrong)?;
    Ok(Place { location, record: Some(record) })
}

/// Returns the schedule's Jobs that remove snapshots, oldest first.
fn all(seen: &Observed) -> Vec<&Recall> {
    let own = |job: &Job| meta::controlled_by(&job.metadata, seen.uid()) && removes(job);
    let mut all: Vec<_> = seen.recalls.iter().filter(|one| own(&one.job)).collect();
    all.sort_by_key(|one| (jobs::created(&one.job), meta::name(&one.job.metadata)));
    all
}

fn job_of<'a>(seen: &'a Observed, run: &PruneRun) -> Option<&'a Recall> {
    all(seen).into_iter().find(|one| meta::name(&one.job.metadata) == run.job)
}

impl Pruning {
    /// Takes over the result of an ended Job, once.
    fn account(&mut self, seen: &Observed, now: Timestamp) {
        let Some(run) = self.run.as_mut().filter(|run| run.ended_at.is_none()) else { return };
        let Some(one) = job_of(seen, run).filter(|one| jobs::over(&one.job)) else { return };
        let report = one.pods.iter().rev().find_map(|pod| pods::prune_report(pod, CONTAINER));
        let (class, message) = match (&report, jobs::read(&one.job, &one.pods, None, None, now)) {
            (Some(report), _) => trouble(report, run).unzip(),
            (None, JobState::Failed { failure, message, .. }) => (Some(job_state::names_of(failure).0), Some(message)),
            (None, JobState::Lost | JobState::Stored { .. }) => {
                let why = "the Job ended, but its report is gone. Holdfast asks the store which snapshots are gone";
                (Some("ReportLost".to_owned()), Some(why.to_owned()))
            }
            (None, JobState::Pending(_) | JobState::Running(_) | JobState::HeldUp(_) | JobState::Settling) => return,
        };
        let at = jobs::last_end(&one.job, &one.pods).unwrap_or(now).to_string();
        run.ended_at = Some(at.clone());
        let before = self.last.as_ref().and_then(|last| last.failing_since.clone());
        // Without a Pod that ran the Job removed nothing.
        let nothing = jobs::never_ran(&one.job, &one.pods).then_some(0);
        self.last = Some(LastPrune {
            job: run.job.clone(),
            failing_since: class.is_some().then(|| before.unwrap_or_else(|| at.clone())),
            at,
            removed: report.as_ref().map(|report| report.removed).or(nothing),
            class,
            message,
            unknown_files: report.as_ref().map(|report| report.unknown_files.clone()).unwrap_or_default(),
            log: log_of(
                report.as_ref().and_then(|report| report.log.clone()),
                self.last.as_ref().and_then(|last| last.log.clone()),
            ),
            dropped: None,
        });
        if let Some(report) = report {
            self.pruned += report.removed;
            // A run without the right to list has seen nothing.
            if report.failed.is_none() || report.newest.is_some() {
                self.announced = report.announced.map(|piece| Announced {
                    count: piece.count,
                    bytes: piece.bytes,
                    oldest: piece.oldest.to_string(),
                    newest: piece.newest.to_string(),
                    not_before: piece.not_before.to_string(),
                });
                let until = |until: Timestamp| until.to_string();
                self.earlier_lineages = report.earlier_lineages;
                self.locked = report.locked.map(|pile| Locked { count: pile.count, until: pile.until.map(until) });
            }
        }
    }

    /// Continues a latched run: with the Job, its end, or the question which snapshots the store still holds.
    fn go_on(
        &mut self,
        seen: &Observed,
        runs: &[Run<'_>],
        (run, forecast): (&PruneRun, &Forecast),
        known: (&Policy, &Line, &Place),
        now: Timestamp,
    ) {
        if run.ended_at.is_some() {
            return self.settle(seen, runs, (run, forecast), now);
        }
        if job_of(seen, run).is_some() {
            let message = format!("Job {} announces and removes snapshots", run.job);
            self.next = Some(Next::wait(Reason::Pruning, message, WAITED_FOR));
            return;
        }
        let stale = facts::time(Some(&run.latched_at)).is_none_or(|at| now >= at + STALE);
        // Another cluster with the same name has another folder.
        let other = forecast.newest.as_ref().is_none_or(|(_, lineage)| *lineage != run.lineage);
        if stale || other || forecast.stop.is_some() || seen.schedule.spec.suspend_pruning {
            // The run's Job may exist although no pass sees the Job.
            self.run = self.run.take().filter(|run| run.protects.is_some() && may_remove(run, now));
            return;
        }
        let since = self.policy.as_ref().and_then(|policy| facts::time(Some(&policy.since)));
        let act = match &run.protects {
            None => {
                let protects = seen.restores.iter().filter(|key| is_within(key, &run.lineage)).cloned().collect();
                Act::LatchPrune(Box::new(PruneRun { protects: Some(protects), ..run.clone() }))
            }
            Some(protects) => Act::StartJob(Box::new(start(seen, (run, protects), since, known, now))),
        };
        self.next = Some(Next::act(act));
    }

    /// Asks the store, page by page, and deletes the records of snapshots that the store does not hold any more.
    fn settle(&mut self, seen: &Observed, runs: &[Run<'_>], (run, forecast): (&PruneRun, &Forecast), now: Timestamp) {
        let second = SignedDuration::from_secs(1);
        let times = [&run.oldest, &run.newest].map(|time| facts::time(Some(time)).unwrap_or(now));
        let [oldest, until] = times;
        let remaining =
            self.announced.as_ref().map_or(0, |pile| pile.count) + self.locked.as_ref().map_or(0, |pile| pile.count);
        let agreed = self.last.as_ref().and_then(|last| last.removed) == Some(0)
            && u64::try_from(forecast.dropped.len()).is_ok_and(|dropped| dropped <= remaining);
        let blocked = self.last.as_ref().is_some_and(|last| last.removed == Some(0) && last.class.is_some());
        let mut after = facts::time(run.checked_through.as_ref()).unwrap_or(oldest - second);
        while !agreed && !blocked && after < until {
            let found = match recall::answer(seen, Hole { after, until }, Some(&run.job), now) {
                Answer::Found(found) => found,
                Answer::Ask(job, silent) => {
                    self.silent = silent;
                    self.next = Some(Next::act(Act::StartJob(job)));
                    return;
                }
                Answer::Wait(wake, silent) => {
                    self.silent = silent;
                    let message = "a Job asks the store which snapshots it holds";
                    self.next = Some(Next::wait(Reason::AskingStore, message, wake));
                    return;
                }
            };
            let through = found.through.max(after + second).min(until);
            let gone = forecast.dropped.iter().filter(|(at, _)| *at > after && *at <= through).find_map(|(_, key)| {
                let of_key = |run: &&Run<'_>| key_of(run).is_some_and(|there| there == key);
                // While the run's Job exists, the next pass would record the run again; the next prune run finds the record.
                let stands = |run: &&Run<'_>| seen.jobs.iter().any(|job| meta::uid(&job.metadata) == run.job.uid);
                let record = runs.iter().find(of_key).filter(|run| !stands(run))?;
                (!found.runs.iter().any(|there| there.uid == record.job.uid)).then_some((record, key))
            });
            if let Some((record, key)) = gone {
                let why = format!("the store does not hold its snapshot any more after Job {}", run.job);
                let snapshot = Target::from(&record.snapshot.metadata);
                self.next = Some(Next::act(Act::DeleteRecord { snapshot, removed: Some(key.clone()), why }));
                return;
            }
            after = through;
            self.run = Some(PruneRun { checked_through: Some(after.to_string()), ..run.clone() });
        }
        if let Some(last) = &mut self.last {
            last.dropped = u64::try_from(forecast.dropped.len()).ok();
        }
        self.run = None;
    }

    /// Returns when a Job looks at the log: no record of a snapshot says what the store holds of it.
    fn log_due(&self, seen: &Observed, now: Timestamp) -> Option<Timestamp> {
        seen.schedule.spec.log.as_ref()?;
        let Some(last) = &self.last else { return Some(now) };
        let announced = facts::time(last.log.as_ref().and_then(|log| log.not_before.as_ref()));
        Some(announced.unwrap_or(facts::time(Some(&last.at)).unwrap_or(now) + LOG_PACE))
    }

    /// Starts a run if a Job has something to do, or sets the time when a Job will.
    fn begin(&mut self, seen: &Observed, forecast: &Forecast, now: Timestamp) {
        // The status was lost, or the API server carried out a request late: the Job's annotation holds the latched run.
        let newest = all(seen).pop();
        let last = self.last.as_ref().map(|last| (last.job.as_str(), facts::time(Some(&last.at))));
        let untold = |one: &&Recall| {
            last.is_none_or(|(job, at)| meta::name(&one.job.metadata) != job && jobs::created(&one.job) >= at)
        };
        if let Some(one) = newest.filter(untold)
            && let Some(run) = latched_on(&one.job)
        {
            self.next = Some(Next::act(Act::LatchPrune(Box::new(run))));
            return;
        }
        let count = u64::try_from(forecast.dropped.len()).unwrap_or(u64::MAX);
        if let Some(last) = &mut self.last {
            last.dropped = last.dropped.map(|before| before.min(count));
        }
        if forecast.stop.is_some() || seen.schedule.spec.suspend_pruning {
            return;
        }
        let time = |text: Option<&String>| facts::time(text);
        let announced = time(self.announced.as_ref().map(|pile| &pile.not_before));
        let unlocked = time(self.locked.as_ref().and_then(|pile| pile.until.as_ref()));
        let (earliest, again, more) = match &self.last {
            None => (now, false, count > 0),
            Some(last) => {
                let ended = time(Some(&last.at)).unwrap_or(now);
                let since = time(last.failing_since.as_ref()).unwrap_or(ended);
                let pause = ended.duration_since(since).clamp(PACE, SLOWEST);
                let more = count > last.dropped.unwrap_or_default();
                (ended + pause, last.class.is_some() && (count > 0 || announced.is_some()), more)
            }
        };
        let log = self.log_due(seen, now);
        let wanted =
            if more || again { Some(earliest) } else { announced.into_iter().chain(unlocked).chain(log).min() };
        let Some(at) = wanted.map(|wanted| wanted.max(earliest)) else { return };
        if at > now {
            self.due = self.due.into_iter().chain([at]).min();
            return;
        }
        let Some((newest, lineage)) = &forecast.newest else { return };
        let range = [forecast.dropped.first(), forecast.dropped.last()];
        let [oldest, newest] = range.map(|one| one.map_or(*newest, |(at, _)| *at));
        let meta = &seen.schedule.metadata;
        let run = PruneRun {
            job: name::prune(meta::name(meta), meta::uid(meta), &now.to_string()),
            latched_at: now.to_string(),
            lineage: lineage.clone(),
            oldest: oldest.to_string(),
            newest: newest.to_string(),
            ..PruneRun::default()
        };
        self.next = Some(Next::act(Act::LatchPrune(Box::new(run))));
    }
}

/// Returns the numbers for the status; the old ones stay where the Job has not read the log.
fn log_of(found: Option<holdfast_contract::PrunedLog>, old: Option<PrunedLog>) -> Option<PrunedLog> {
    let Some(found) = found else { return old.map(|old| PrunedLog { not_before: None, ..old }) };
    let holdfast_contract::PrunedLog { segments, bytes, removed, locked, not_before, kept, .. } = found;
    if let Some(old) = old.filter(|_| segments == 0 && kept.is_some()) {
        return Some(PrunedLog { removed, not_before: None, kept, ..old });
    }
    let not_before = not_before.filter(|_| locked == 0).map(|at| at.to_string());
    Some(PrunedLog { segments, bytes, removed, not_before, kept })
}

fn key_of<'a>(run: &Run<'a>) -> Option<&'a String> {
    Some(&run.snapshot.status.as_ref()?.artifact.as_ref()?.key)
}
