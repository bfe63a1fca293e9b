//! Removing the snapshots that the retention of a schedule does not keep.
//!
//! Decides when a Job announces and removes, every ten minutes at most: `status.pruneRun` is latched, then the clusters that
//! restore are read and what they read is latched too, then the Job starts. A restore writes its own latch before it reads
//! this one, so one of both sees the other. After the Job the store is asked which runs it still holds, since a report may be
//! lost and holds no keys; the records of the others are deleted. Which snapshots go, the agent decides.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use snapshot_agent::contract::{
    DEFAULT_ANNOUNCED_SECONDS, DEFAULT_PRUNE_DEADLINE_SECONDS, Policy, PruneReport, PruneRequest,
};

use super::facts::{self, Run};
use super::forecast::{Forecast, forecast, policy};
use super::recall::{self, Answer, Hole};
use super::{Line, Observed, Recall, UTC, arm};
use crate::api::backup_store::{Right, StoreRecord};
use crate::api::condition::{Reason, Type, Wanted};
use crate::api::schedule::{Announced, LastPrune, Locked, PruneRun};
use crate::api::store::Location;
use crate::api::{EtcdSnapshotSchedule, EtcdSnapshotScheduleStatus};
use crate::api::{key, name};
use crate::plan::build::job::{AgentJob, CONTAINER, Work, job, prunes};
use crate::plan::jobs::{self, Fact};
use crate::plan::{Act, Next, Target, Wake, fact, meta, pods, saving, store};

/// Between two Jobs, and longest where one fails again and again.
const PACE: SignedDuration = SignedDuration::from_mins(10);
const SLOWEST: SignedDuration = SignedDuration::from_hours(1);

/// A latch that is older starts no Job.
const STALE: SignedDuration = SignedDuration::from_mins(10);

/// So long after the latch nothing removes any more: the latch starts its Job within [`STALE`], the Job its Pod within 12
/// minutes, and the agent ends after 10. A Pod of a silent node holds no restore up for ever.
const OVER_AFTER: SignedDuration = SignedDuration::from_mins(40);

/// Against a missed event, while a Job is waited for.
const WAITED_FOR: Wake = Wake::AfterMillis(15_000);

/// What comes of a schedule's retention.
#[derive(Default)]
pub(super) struct Pruning {
    /// What is done, where nothing else is.
    pub(super) next: Option<Next>,
    /// When time alone brings something to do.
    pub(super) due: Option<Timestamp>,
    /// What is told.
    pub(super) condition: Option<Wanted>,
    pub(super) kept: Option<u64>,
    pub(super) bytes: Option<u64>,
    pub(super) announced: Option<Announced>,
    pub(super) locked: Option<Locked>,
    pub(super) earlier_lineages: Vec<String>,
    pub(super) pruned: u64,
    pub(super) last: Option<LastPrune>,
    pub(super) run: Option<PruneRun>,
}

/// Where the snapshots lie.
struct Place {
    location: Location,
    record: Option<StoreRecord>,
}

/// The run of a schedule that may remove something yet, for the restores that look.
pub fn live_run(schedule: &EtcdSnapshotSchedule, now: Timestamp) -> Option<PruneRun> {
    let run = schedule.status.as_ref()?.prune_run.clone()?;
    let over = run.latched_at.parse::<Timestamp>().is_ok_and(|at| now >= at + OVER_AFTER);
    Some(run).filter(|run| run.ended_at.is_none() && !over)
}

/// Whether a run may remove this snapshot.
pub(in crate::plan) fn endangers(run: &PruneRun, key: &str) -> bool {
    let below = key.strip_prefix(run.lineage.as_str()).is_some_and(|rest| rest.starts_with('/'));
    let protects = run.protects.as_ref().is_some_and(|protects| protects.iter().any(|protected| protected == key));
    below && !protects
}

/// What to do about the retention, and the part of the status that tells of it.
pub(super) fn decide(seen: &Observed, runs: &[Run<'_>], line: Option<&Line>, now: Timestamp) -> Pruning {
    let old = seen.schedule.status.clone().unwrap_or_default();
    let mut pruning = Pruning::of(old);
    pruning.account(seen, now);
    let Some(known) = premises(seen, line) else {
        // What runs goes on to its end; without a policy nothing else is told.
        let Pruning { run, last, pruned, .. } = pruning;
        let run = run.filter(|run| run.ended_at.is_none() && job_of(seen, run).is_some());
        return Pruning { pruned, last, run, ..Pruning::default() };
    };
    let suspended = seen.schedule.spec.suspend_pruning;
    if known.is_err() || suspended {
        pruning.run = pruning.run.take().filter(|run| run.ended_at.is_some() || job_of(seen, run).is_some());
    }
    let (policy, line, place) = match known {
        Ok(known) => known,
        Err(blocked) => return Pruning { condition: Some(blocked), ..pruning },
    };
    let id = place.record.as_ref().and_then(|record| record.id.as_deref());
    let forecast = forecast(seen, runs, (&policy, line), (&place.location, id), now);
    (pruning.kept, pruning.bytes) = (Some(forecast.kept), Some(forecast.bytes));
    pruning.due = forecast.changes_at;
    if let Some(run) = pruning.run.clone() {
        pruning.go_on(seen, runs, (&run, &forecast), (&policy, line, &place), now);
    }
    // A latch that was written is taken back before the next one is: a restore reads one or the other.
    let latched = seen.schedule.status.as_ref().is_some_and(|status| status.prune_run.is_some());
    if !latched && pruning.next.is_none() {
        pruning.begin(seen, &forecast, now);
    }
    pruning.condition = Some(if suspended {
        let why = "spec.suspendPruning is true: Holdfast announces and removes nothing";
        Wanted::unknown(Type::RetentionApplied, Reason::Suspended, why)
    } else {
        condition(&pruning, &forecast)
    });
    pruning
}

/// What a Job needs; `Err`: what is missing. `None`: everything is kept.
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

/// Only a store that is usable now, with the ID that its probe found: nothing is removed from another one (I25).
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

/// The Jobs of the schedule that remove, and their Pods, oldest first.
fn all(seen: &Observed) -> Vec<&Recall> {
    let removes = |job: &Job| {
        let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        meta::controlled_by(&job.metadata, seen.uid()) && pod.is_some_and(prunes)
    };
    let mut all: Vec<_> = seen.recalls.iter().filter(|one| removes(&one.job)).collect();
    all.sort_by_key(|one| (jobs::created(&one.job), meta::name(&one.job.metadata)));
    all
}

fn job_of<'a>(seen: &'a Observed, run: &PruneRun) -> Option<&'a Recall> {
    all(seen).into_iter().find(|one| meta::name(&one.job.metadata) == run.job)
}

impl Pruning {
    fn of(old: EtcdSnapshotScheduleStatus) -> Self {
        let EtcdSnapshotScheduleStatus {
            announced,
            locked,
            earlier_lineages,
            pruned,
            last_prune: last,
            prune_run: run,
            ..
        } = old;
        Self { announced, locked, earlier_lineages, pruned, last, run, ..Self::default() }
    }

    /// Takes over what a Job that has ended says, once.
    fn account(&mut self, seen: &Observed, now: Timestamp) {
        let Some(run) = self.run.as_mut().filter(|run| run.ended_at.is_none()) else { return };
        let Some(one) = job_of(seen, run).filter(|one| jobs::over(&one.job)) else { return };
        let report = one.pods.iter().rev().find_map(|pod| pods::prune_report(pod, CONTAINER));
        let (class, message) = match (&report, jobs::read(&one.job, &one.pods, None, None, now)) {
            (Some(report), _) => trouble(report).unzip(),
            (None, Fact::Failed { failure, message, .. }) => (Some(fact::names_of(failure).0), Some(message)),
            (None, Fact::Lost | Fact::Stored { .. }) => {
                let why = "the Job ended, but its report is gone. Holdfast asks the store which snapshots are gone";
                (Some("ReportLost".to_owned()), Some(why.to_owned()))
            }
            (None, Fact::Pending(_) | Fact::Running(_) | Fact::HeldUp(_) | Fact::Settling) => return,
        };
        let at = jobs::last_end(&one.job, &one.pods).unwrap_or(now).to_string();
        run.ended_at = Some(at.clone());
        let before = self.last.as_ref().and_then(|last| last.failing_since.clone());
        // Where no Pod has run nothing is gone.
        let nothing = jobs::never_ran(&one.job, &one.pods).then_some(0);
        self.last = Some(LastPrune {
            job: run.job.clone(),
            failing_since: class.is_some().then(|| before.unwrap_or_else(|| at.clone())),
            at,
            removed: report.as_ref().map(|report| report.removed).or(nothing),
            class,
            message,
            unknown_files: report.as_ref().map(|report| report.unknown_files.clone()).unwrap_or_default(),
            dropped: None,
        });
        if let Some(report) = report {
            self.pruned += report.removed;
            // A run that was denied the listing has seen nothing.
            if report.failed.is_none() || report.newest.is_some() {
                self.announced = report.announced.map(|told| Announced {
                    count: told.count,
                    bytes: told.bytes,
                    oldest: told.oldest.to_string(),
                    newest: told.newest.to_string(),
                    not_before: told.not_before.to_string(),
                });
                let until = |until: Timestamp| until.to_string();
                self.earlier_lineages = report.earlier_lineages;
                self.locked = report.locked.map(|pile| Locked { count: pile.count, until: pile.until.map(until) });
            }
        }
    }

    /// A run is latched: the Job comes next, or its end, or what is gone of the store.
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
        // Another cluster of the name has another folder.
        let other = forecast.newest.as_ref().is_none_or(|(_, lineage)| *lineage != run.lineage);
        if stale || other || forecast.stop.is_some() {
            self.run = None;
            return;
        }
        let act = match &run.protects {
            None => {
                let below = format!("{}/", run.lineage);
                let protects = seen.restores.iter().filter(|key| key.starts_with(&below)).cloned().collect();
                Act::LatchPrune(Box::new(PruneRun { protects: Some(protects), ..run.clone() }))
            }
            Some(protects) => Act::StartJob(Box::new(start(seen, (run, protects), forecast, known, now))),
        };
        self.next = Some(Next::act(act));
    }

    /// Asks the store, page by page, and deletes the records of what it does not hold any more.
    fn settle(&mut self, seen: &Observed, runs: &[Run<'_>], (run, forecast): (&PruneRun, &Forecast), now: Timestamp) {
        let second = SignedDuration::from_secs(1);
        let times = [&run.oldest, &run.newest].map(|time| facts::time(Some(time)).unwrap_or(now));
        let [oldest, until] = times;
        let left =
            self.announced.as_ref().map_or(0, |pile| pile.count) + self.locked.as_ref().map_or(0, |pile| pile.count);
        let agreed = self.last.as_ref().and_then(|last| last.removed) == Some(0)
            && u64::try_from(forecast.dropped.len()).is_ok_and(|dropped| dropped <= left);
        let blocked = self.last.as_ref().is_some_and(|last| last.removed == Some(0) && last.class.is_some());
        let mut after = facts::time(run.checked_through.as_ref()).unwrap_or(oldest - second);
        while !agreed && !blocked && after < until {
            let found = match recall::answer(seen, Hole { after, until }, Some(&run.job), now) {
                Answer::Found(found) => found,
                Answer::Ask(job, _) => {
                    self.next = Some(Next::act(Act::StartJob(job)));
                    return;
                }
                Answer::Wait(wake) => {
                    let message = "a Job asks the store which snapshots it holds";
                    self.next = Some(Next::wait(Reason::AskingStore, message, wake));
                    return;
                }
            };
            let through = found.through.max(after + second).min(until);
            let gone = forecast.dropped.iter().filter(|(at, _)| *at > after && *at <= through).find_map(|(_, key)| {
                let of_key = |run: &&Run<'_>| key_of(run).is_some_and(|there| there == key);
                // While its Job stands it would be recorded again; the next run finds it.
                let stands = |run: &&Run<'_>| seen.jobs.iter().any(|job| meta::uid(&job.metadata) == run.job.uid);
                let record = runs.iter().find(of_key).filter(|run| !stands(run))?;
                (!found.runs.iter().any(|there| there.uid == record.job.uid)).then_some((record, key))
            });
            if let Some((record, key)) = gone {
                let why = format!("the store does not hold its snapshot any more after Job {}", run.job);
                let snapshot = Target::of(&record.snapshot.metadata);
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

    /// Whether a Job is worth starting, and when.
    fn begin(&mut self, seen: &Observed, forecast: &Forecast, now: Timestamp) {
        // A status that was lost, or a request that was carried out late: the Job says what was latched for it.
        let newest = all(seen).pop();
        let told = self.last.as_ref().map(|last| last.job.as_str());
        if let Some(one) = newest.filter(|one| Some(meta::name(&one.job.metadata)) != told)
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
        let wanted = if more || again { Some(earliest) } else { announced.into_iter().chain(unlocked).min() };
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

fn key_of<'a>(run: &Run<'a>) -> Option<&'a String> {
    Some(&run.snapshot.status.as_ref()?.artifact.as_ref()?.key)
}

/// Why a Job that reported has removed nothing, or not all.
fn trouble(report: &PruneReport) -> Option<(String, String)> {
    let failed = report.failed.as_ref().map(|failed| (failed.class.as_str().to_owned(), failed.message.clone()));
    failed.or_else(|| report.stopped.as_ref().map(|stop| (stop.reason.clone(), stop.message.clone())))
}

/// The run that a Job was made for.
fn latched_on(job: &Job) -> Option<PruneRun> {
    serde_json::from_str(meta::annotation(&job.metadata, key::PRUNE_RUN)?).ok()
}

fn start(
    seen: &Observed,
    (run, protects): (&PruneRun, &[String]),
    forecast: &Forecast,
    (policy, line, place): (&Policy, &Line, &Place),
    now: Timestamp,
) -> Job {
    let (meta, spec) = (&seen.schedule.metadata, &seen.schedule.spec);
    let request = PruneRequest {
        expect_store_id: place.record.as_ref().and_then(|record| record.id.clone()),
        namespace: meta.namespace.clone().unwrap_or_default(),
        cluster: saving::filed_under(spec.cluster_ref.as_ref()),
        cluster_uid: seen.cluster.as_ref().map(|cluster| meta::uid(&cluster.metadata).to_owned()).unwrap_or_default(),
        schedule_uid: seen.uid().to_owned(),
        policy: policy.clone(),
        time_zone: spec.time_zone.clone().unwrap_or_else(|| UTC.to_owned()),
        newest_after: line.before_last(now),
        protect: protects.iter().chain(&forecast.held).cloned().collect(),
        accept_anomaly: meta::annotation(meta, key::ACCEPT_ANOMALY).map(str::to_owned),
        announced_seconds: DEFAULT_ANNOUNCED_SECONDS,
        deadline_seconds: DEFAULT_PRUNE_DEADLINE_SECONDS,
        ..PruneRequest::default()
    };
    let mut job = job(&AgentJob {
        name: run.job.clone(),
        work: Work::Prune(request),
        destination: place.location.clone(),
        record: place.record.clone(),
        ..arm::agent_job(seen)
    });
    // JSON of our own types cannot fail.
    let latched = serde_json::to_string(run).unwrap_or_default();
    job.metadata.annotations.get_or_insert_default().insert(key::PRUNE_RUN.to_owned(), latched);
    job
}

fn snapshots(count: u64) -> String {
    format!("{count} snapshot{}", if count == 1 { "" } else { "s" })
}

/// What a person is told.
fn condition(pruning: &Pruning, forecast: &Forecast) -> Wanted {
    let yes = |reason, message: String| Wanted::yes(Type::RetentionApplied, reason, message);
    let pending = !forecast.dropped.is_empty() || pruning.announced.is_some();
    let blocked = |class: &str, message: &str| {
        let anomaly = class == Reason::SnapshotAnomaly.as_str();
        let reason = if anomaly { Reason::SnapshotAnomaly } else { Reason::RetentionBlocked };
        let class = if anomaly { String::new() } else { format!("{class}: ") };
        Wanted::no(Type::RetentionApplied, reason, format!("Holdfast removes nothing. {class}{message}"))
    };
    if let Some(stop) = &forecast.stop {
        let word = stop.reason();
        if pending || word == Reason::SnapshotAnomaly.as_str() {
            return blocked(word, &stop.message());
        }
    }
    if let Some(LastPrune { class: Some(class), message, .. }) = pruning.last.as_ref().filter(|_| pending) {
        return blocked(class, message.as_deref().unwrap_or_default());
    }
    let locks = pruning.locked.as_ref().map(|pile| match &pile.until {
        Some(until) => format!("the store locks {} more, the first until {until}", pile.count),
        None => format!("the store holds {} more by legal hold, which a person has to remove", pile.count),
    });
    if let Some(pile) = &pruning.announced {
        let more = locks.map(|locks| format!("; {locks}")).unwrap_or_default();
        let message = format!(
            "Holdfast removes {} ({} bytes), taken from {} to {}, after {}. To keep some of them, set spec.hold of their \
             EtcdSnapshots; to keep all, set spec.suspendPruning{more}",
            snapshots(pile.count),
            pile.bytes,
            pile.oldest,
            pile.newest,
            pile.not_before
        );
        return yes(Reason::RemovalAnnounced, message);
    }
    match (locks, forecast.dropped.len()) {
        (Some(locks), 0) => yes(Reason::SnapshotsLocked, locks),
        (_, 0) => yes(
            Reason::AsDesired,
            match forecast.kept {
                0 => "Nothing is to be removed".to_owned(),
                kept => format!("Nothing is to be removed: retention keeps {}", snapshots(kept)),
            },
        ),
        (_, more) => {
            let more = snapshots(u64::try_from(more).unwrap_or(u64::MAX));
            yes(Reason::RemovalAnnounced, format!("Holdfast announces the removal of {more} next"))
        }
    }
}
