//! Schedules in the small world: Kubernetes' `CronJob` controller, Jobs that save to a store with a memory, and Jobs that ask the
//! store. The controller works even while the operator is down.

mod pruning;

use holdfast_api::name;
use holdfast_api::schedule::EtcdSnapshotScheduleSpec;
use holdfast_api::{EtcdSnapshotSchedule, key};
use holdfast_contract::{Level, Origin, RecallReport, RecalledRun, RemovalReport, Request, SavedReport, Verification};
use holdfast_fixtures::flags_of_job;
use holdfast_plan::objects::job::{pod_spec, request_of};
use holdfast_plan::schedule::{self, Line, Recall};
use holdfast_plan::snapshot;
use k8s_openapi::api::batch::v1::{CronJob, JobCondition, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::*;

/// Ticks of a run.
const RUN: u64 = 50;
/// Ticks of a Job that removes snapshots.
const PRUNE: u64 = 100;
/// Ticks of a Job that asks the store.
const ASK: u64 = 20;
/// Jobs of each outcome that the controller keeps.
const KEPT: usize = 3;

/// A Job of the world, its start, and its end.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) job: Job,
    born: u64,
    pod: Option<Pod>,
}

/// A stored snapshot of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    pub job: String,
    pub uid: String,
    at: Timestamp,
    schedule: String,
    key: String,
    keys: u64,
}

impl Task {
    pub(super) fn pods(&self) -> Vec<Pod> {
        self.pod.clone().into_iter().collect()
    }

    /// The Pods of a Job that saves: the agent runs until its end.
    fn saving_pods(&self) -> Vec<Pod> {
        let running = || {
            let state = serde_json::json!({"name": "agent", "ready": true, "restartCount": 0, "image": "", "imageID": "",
                "state": {"running": {}}});
            serde_json::from_value(
                serde_json::json!({"metadata": {"name": "saving"}, "status": {"containerStatuses": [state]}}),
            )
            .unwrap()
        };
        if holdfast_plan::jobs::over(&self.job) { self.pods() } else { vec![self.pod.clone().unwrap_or_else(running)] }
    }
}

impl Stored {
    pub(super) fn key(&self) -> &str {
        &self.key
    }
}

fn argument(job: &Job, name: &str) -> Option<String> {
    arguments(job, name).pop()
}

fn arguments(job: &Job, name: &str) -> Vec<String> {
    let flags = flags_of_job(job).into_iter();
    flags.filter_map(|flag| flag.strip_prefix(&format!("--{name}=")).map(str::to_owned)).collect()
}

impl World {
    pub fn schedule(&mut self, line: &str, store: &str) {
        let spec = EtcdSnapshotScheduleSpec {
            cluster_ref: Some(LocalRef { name: "a".to_owned() }),
            schedule: line.to_owned(),
            snapshot_template: SnapshotTemplate {
                destination: holdfast_api::store::Destination {
                    store_ref: Some(LocalRef { name: store.to_owned() }),
                    ..Default::default()
                },
                ..SnapshotTemplate::default()
            },
            ..EtcdSnapshotScheduleSpec::default()
        };
        let mut schedule = self.schedule.take().unwrap_or_else(|| {
            let mut schedule = EtcdSnapshotSchedule::new("nightly", EtcdSnapshotScheduleSpec::default());
            self.born(&mut schedule.metadata);
            schedule
        });
        let EtcdSnapshotScheduleSpec { suspend, retention, .. } = schedule.spec;
        schedule.spec = EtcdSnapshotScheduleSpec { suspend, retention, ..spec };
        self.schedule = Some(schedule);
        self.changed();
    }

    pub fn suspend(&mut self, suspend: bool) {
        self.schedule.as_mut().unwrap().spec.suspend = suspend;
        self.changed();
    }

    pub fn lose_schedule_status(&mut self, records: bool) {
        self.schedule.as_mut().unwrap().status = None;
        if records {
            self.snapshots.clear();
        }
        self.changed();
    }

    /// `kubectl create job --from=cronjob/...`.
    pub fn run_by_hand(&mut self, name: &str) {
        if let Some(cron) = self.cron.clone() {
            self.start_run(&cron, name.to_owned());
        }
    }

    pub fn edit_cron_job(&mut self) {
        let mut cron = self.cron.clone().unwrap();
        cron.spec.as_mut().unwrap().schedule = "0 0 1 1 *".to_owned();
        self.touch(&mut cron.metadata);
        self.cron = Some(cron);
    }

    pub(super) fn start_run(&mut self, cron: &CronJob, name: String) {
        let template = cron.spec.clone().unwrap().job_template;
        let mut metadata = template.metadata.unwrap_or_default();
        metadata.name = Some(name.clone());
        metadata.owner_references = Some(vec![OwnerReference {
            api_version: "batch/v1".to_owned(),
            kind: "CronJob".to_owned(),
            name: meta::name(&cron.metadata).to_owned(),
            uid: meta::uid(&cron.metadata).to_owned(),
            controller: Some(true),
            block_owner_deletion: None,
        }]);
        self.born(&mut metadata);
        self.writes -= 1;
        let job = Job { metadata, spec: template.spec, status: None };
        self.say(format!("Kubernetes: Job {name} begins"));
        self.tasks.insert(name, Task { job, born: self.now, pod: None });
        self.changed();
    }

    /// One tick of the controllers of Kubernetes.
    pub(super) fn tick_jobs(&mut self) {
        let now = self.time();
        // The controller looks once a second.
        if let Some(cron) = self.cron.clone().filter(|cron| self.now.is_multiple_of(10) && cron.spec.is_some()) {
            let spec = cron.spec.clone().unwrap();
            let line = Line::parse(&spec.schedule, spec.time_zone.as_deref()).unwrap();
            let since = self.last_due.unwrap_or_else(|| cron.metadata.creation_timestamp.as_ref().unwrap().0);
            let suspended = spec.suspend == Some(true);
            if suspended {
                self.last_due = Some(now);
            } else if let Some(due) = line.next(since).filter(|due| *due <= now) {
                let free = !self.tasks.values().any(|task| self.of_cron(task) && task.pod.is_none());
                let deadline = SignedDuration::from_secs(spec.starting_deadline_seconds.unwrap());
                if now > due + deadline {
                    self.last_due = Some(due);
                } else if free {
                    self.last_due = Some(due);
                    let name = format!("{}-{}", meta::name(&cron.metadata), due.as_second() / 60);
                    self.start_run(&cron, name);
                }
            }
        }
        let due: Vec<String> = self
            .tasks
            .iter()
            .filter(|(_, task)| task.pod.is_none())
            .filter(|(_, task)| {
                let takes = match request_of(&task.job) {
                    Some(Request::Save(_)) => RUN,
                    Some(Request::Prune(_)) => PRUNE,
                    _ => ASK,
                };
                self.now >= task.born + takes
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in due {
            self.end_task(&name);
        }
        self.clean();
    }

    /// Runs hours of a cluster at rest, and skips the time between two events of its schedule.
    pub fn hours(&mut self, count: u64) {
        let end = self.now + 36_000 * count;
        while self.now < end {
            self.due.retain(|who, _| matches!(who, Who::Schedule | Who::Record(_) | Who::Store(_)));
            let runs = self.tasks.values().any(|task| task.pod.is_none());
            let events = self.due.values().copied().chain(self.next_run()).chain([end]);
            let next = events.min().filter(|next| !runs && *next > self.now + 30);
            self.now = next.map_or(self.now, |next| next - 20);
            self.run_until(10, |_| false);
        }
    }

    /// The tick at which the controller starts the next run.
    fn next_run(&self) -> Option<u64> {
        let spec = self.cron.as_ref()?.spec.as_ref().filter(|spec| spec.suspend != Some(true))?;
        let line = Line::parse(&spec.schedule, spec.time_zone.as_deref()).ok()?;
        let since = self.last_due.or(self.cron.as_ref()?.metadata.creation_timestamp.as_ref().map(|at| at.0))?;
        let ahead = line.next(since)?.duration_since(self.time()).as_millis();
        Some(self.now + u64::try_from(ahead / i128::from(TICK)).unwrap_or_default())
    }

    fn of_cron(&self, task: &Task) -> bool {
        let uid = self.cron.as_ref().map(|cron| meta::uid(&cron.metadata).to_owned()).unwrap_or_default();
        meta::controlled_by(&task.job.metadata, &uid)
    }

    fn end_task(&mut self, name: &str) {
        let task = self.tasks.remove(name).unwrap();
        let mark_fits = self.fits(&task.job);
        if Kind::Prune.runs_in(pod_spec(&task.job)) {
            let report = self.prune(&task.job, mark_fits);
            let code = report.failed.as_ref().map_or(0, |failed| failed.failure().code.into());
            let message = serde_json::to_string(&RemovalReport::Pruned(Box::new(report))).unwrap();
            return self.finish_task(task, code, message);
        }
        if Kind::Drill.runs_in(pod_spec(&task.job)) || Kind::Rehearse.runs_in(pod_spec(&task.job)) {
            let report = self.drilled();
            let code = report.failed.as_ref().map_or(0, |failed| failed.failure().code.into());
            self.say(format!("Kubernetes: Job {name} has {}", if code == 0 { "ended well" } else { "failed" }));
            return self.finish_task(task, code, serde_json::to_string(&Report::Drilled(report)).unwrap());
        }
        let report = self.outcome(&task);
        let report = match (self.store_trouble, mark_fits) {
            (Some(class), _) => failed(class, None),
            (None, false) => failed(ExitClass::Refused, Some(Origin::Store)),
            (None, true) => report,
        };
        let ok = !matches!(report, Report::Failed(_));
        if ok && Kind::Save.runs_in(pod_spec(&task.job)) {
            self.say(format!("Kubernetes: Job {name} has saved"));
        } else if !ok {
            self.say(format!("Kubernetes: Job {name} has failed"));
        }
        if let (true, Report::Saved(saved)) = (Kind::Save.runs_in(pod_spec(&task.job)), &report) {
            self.stored.push(Stored {
                job: name.to_owned(),
                uid: meta::uid(&task.job.metadata).to_owned(),
                at: task.job.metadata.creation_timestamp.as_ref().unwrap().0,
                schedule: argument(&task.job, "schedule-uid").unwrap_or_default(),
                key: saved.key.clone(),
                keys: saved.keys.unwrap_or_default(),
            });
        }
        let code = match &report {
            Report::Failed(failed) => failed.failure().code.into(),
            _ => 0,
        };
        self.finish_task(task, code, serde_json::to_string(&report).unwrap());
    }

    fn finish_task(&mut self, mut task: Task, code: i32, message: String) {
        let (name, ok) = (meta::name(&task.job.metadata).to_owned(), code == 0);
        let time = Time(self.time());
        let kind = if ok { "Complete" } else { "Failed" };
        let end = JobCondition {
            type_: kind.to_owned(),
            status: "True".to_owned(),
            last_transition_time: Some(time.clone()),
            ..JobCondition::default()
        };
        task.job.status = Some(JobStatus {
            conditions: Some(vec![end]),
            succeeded: ok.then_some(1),
            failed: (!ok).then_some(1),
            ..JobStatus::default()
        });
        task.pod = Some(pod_of(&task.job, code, message, time));
        self.tasks.insert(name, task);
        self.changed();
    }

    fn fits(&self, job: &Job) -> bool {
        let url = argument(job, "store").unwrap_or_default();
        argument(job, "expect-store-id").is_none_or(|expected| self.marks.get(&url) == Some(&expected))
    }

    /// The report of a Job without a mishap.
    fn outcome(&self, task: &Task) -> Report {
        let keys = self.keys;
        let saved = |key: &str| {
            Report::Saved(Box::new(SavedReport {
                key: key.to_owned(),
                uri: format!("s3://b/{key}"),
                db_bytes: 4096,
                stored_bytes: 1024,
                revision: Some(7),
                keys: Some(keys),
                verification: Some(Verification { level: Level::HashKV, ..Verification::default() }),
                ..SavedReport::default()
            }))
        };
        match request_of(&task.job).unwrap() {
            Request::Save(_) => {
                let lineage = argument(&task.job, "cluster-uid").unwrap_or_default();
                let at = task.job.metadata.creation_timestamp.as_ref().unwrap().0.strftime("%Y%m%dT%H%M%SZ");
                let owner: u64 = meta::uid(&task.job.metadata).trim_start_matches("uid-").parse().unwrap();
                saved(&format!("ns/a/{lineage}/{at}-{owner:08x}-{owner:08x}"))
            }
            Request::Inspect(_) => {
                let owner = argument(&task.job, "owner-uid").unwrap();
                match self.stored.iter().find(|one| one.uid == owner) {
                    Some(one) => saved(&one.key),
                    None => failed(ExitClass::NotFound, None),
                }
            }
            _ => {
                let of = |name: &str| argument(&task.job, name).unwrap();
                let (after, until): (Timestamp, Timestamp) =
                    (of("after").parse().unwrap(), of("until").parse().unwrap());
                let mine = |one: &&Stored| one.schedule == of("schedule-uid") && one.at > after && one.at <= until;
                let all: Vec<&Stored> = self.stored.iter().filter(mine).collect();
                let run = |one: &&Stored| RecalledRun { job: one.job.clone(), uid: one.uid.clone(), at: one.at };
                let through = all.get(12).map_or(until, |cut| cut.at - SignedDuration::from_secs(1));
                Report::Recalled(RecallReport { runs: all.iter().take(12).map(run).collect(), through })
            }
        }
    }

    /// Deletes old Jobs with their Pods: the controller keeps the newest Jobs of each outcome.
    fn clean(&mut self) {
        for ok in [true, false] {
            let well = |task: &Task| task.job.status.as_ref().map(|s| s.succeeded.is_some());
            let ended = self.tasks.values().filter(|task| self.of_cron(task) && well(task) == Some(ok));
            let mut ended: Vec<(u64, String)> =
                ended.map(|task| (task.born, meta::name(&task.job.metadata).to_owned())).collect();
            ended.sort();
            let surplus = ended.len().saturating_sub(KEPT);
            for (_, name) in ended.into_iter().take(surplus) {
                self.tasks.remove(&name);
                self.changed();
            }
        }
    }

    pub(super) fn start_task(&mut self, mut job: Job) {
        let name = meta::name(&job.metadata).to_owned();
        if !self.tasks.contains_key(&name) {
            self.born(&mut job.metadata);
            self.tasks.insert(name, Task { job, born: self.now, pod: None });
            self.changed();
        }
    }

    pub(super) fn apply_cron_job(&mut self, mut cron: CronJob) {
        match &self.cron {
            Some(there) => {
                cron.metadata.uid.clone_from(&there.metadata.uid);
                cron.metadata.creation_timestamp.clone_from(&there.metadata.creation_timestamp);
                self.writes += 1;
                self.touch(&mut cron.metadata);
            }
            None => self.born(&mut cron.metadata),
        }
        let (name, spec) = (meta::name(&cron.metadata).to_owned(), cron.spec.as_ref().unwrap());
        let state = if spec.suspend == Some(true) { "suspended" } else { "active" };
        self.say(format!("nightly: apply CronJob {name}, {state}"));
        self.cron = Some(cron);
        self.changed();
    }

    pub(super) fn record_run(&mut self, mut record: EtcdSnapshot) {
        let name = meta::name(&record.metadata).to_owned();
        if !self.snapshots.contains_key(&name) {
            self.born(&mut record.metadata);
            self.snapshots.insert(name, record);
            self.changed();
        }
    }

    fn pods_of(&self, task: &Task) -> Vec<Pod> {
        task.pods()
    }

    pub fn observe_schedule(&self) -> Option<schedule::Observed> {
        let object = self.schedule.clone()?;
        let uid = meta::uid(&object.metadata).to_owned();
        let of_store = object.spec.snapshot_template.destination.store_ref.as_ref();
        let jobs = self.tasks.values().filter(|task| self.of_cron(task)).map(|task| task.job.clone());
        let recalls = self.tasks.values().filter(|task| meta::controlled_by(&task.job.metadata, &uid));
        Some(schedule::Observed {
            cluster: self.cluster.clone(),
            store: of_store.and_then(|named| self.stores.get(&named.name).cloned()),
            cron_job: self
                .cron
                .clone()
                .filter(|cron| meta::name(&cron.metadata) == name::cron_job(meta::name(&object.metadata), &uid)),
            jobs: jobs.collect(),
            drill_cron_job: self.drill_cron.clone(),
            compaction_cron_job: None,
            merges: vec![],
            drills: self.seen_drills(),
            log_deployment: None,
            log_forbidden: false,
            log_pods: vec![],
            log_report: holdfast_plan::Seen::unknown("no log"),
            snapshots: self.snapshots.values().filter(|s| s.spec.run.is_some()).cloned().collect(),
            restores: schedule::restores(
                self.cluster.as_slice(),
                &self.members.values().cloned().collect::<Vec<_>>(),
                &self.snapshots.values().cloned().collect::<Vec<_>>(),
            )
            .into_iter()
            .chain(self.restoring_elsewhere.iter().cloned())
            .collect(),
            held: {
                let held = self.snapshots.values().filter(|snapshot| snapshot.spec.hold);
                held.filter_map(|snapshot| Some(snapshot.status.clone()?.artifact?.key)).collect()
            },
            recalls: recalls.map(|task| Recall { job: task.job.clone(), pods: self.pods_of(task) }).collect(),
            settings: settings(),
            schedule: object,
        })
    }

    pub fn observe_record(&self, named: &str) -> Option<snapshot::Observed> {
        let object = self.snapshots.get(named)?.clone();
        let run = object.spec.run.clone()?;
        let task = self.tasks.get(&run.job).filter(|task| meta::uid(&task.job.metadata) == run.uid);
        let uid = meta::uid(&object.metadata);
        let asks = self.tasks.values().filter(|task| meta::controlled_by(&task.job.metadata, uid));
        let number =
            |job: &Job| meta::annotation(&job.metadata, key::ATTEMPTS_BEFORE).map_or(0, |n| n.parse().unwrap());
        let of_store = object.spec.template.destination.store_ref.as_ref();
        Some(snapshot::Observed {
            cluster: self.cluster.clone(),
            store: of_store.and_then(|named| self.stores.get(&named.name).cloned()),
            missing_secrets: vec![],
            job: task.map(|task| task.job.clone()),
            cron_job: self.cron.clone().filter(|_| task.is_some()),
            pods: task.map(Task::saving_pods).unwrap_or_default(),
            refusal: None,
            unstarted: vec![],
            claim_users: vec![],
            strays: vec![],
            inspections: asks
                .map(|task| snapshot::Inspection {
                    number: number(&task.job),
                    job: task.job.clone(),
                    pods: self.pods_of(task),
                })
                .collect(),
            deletion: None,
            settings: settings(),
            snapshot: object,
        })
    }

    /// UIDs of the Jobs whose runs are recorded as complete.
    pub fn complete_records(&self) -> Vec<String> {
        let complete = |s: &&EtcdSnapshot| s.status.as_ref().is_some_and(|s| s.phase == Phase::Complete);
        let runs = self.snapshots.values().filter(complete).filter_map(|s| s.spec.run.as_ref());
        runs.map(|run| run.uid.clone()).collect()
    }

    /// Makes every object due, as after a start of the operator.
    pub fn wake_all(&mut self) {
        self.changed();
    }

    /// Logs the printed state of the schedule in a line.
    pub fn show_schedule(&mut self) {
        let Some(status) = self.schedule.as_ref().and_then(|s| s.status.clone()) else { return };
        let records: Vec<String> = self
            .snapshots
            .values()
            .filter(|s| s.spec.run.is_some())
            .map(|s| format!("{:?}", s.status.as_ref().map(|s| s.phase).unwrap_or_default()))
            .collect();
        let last = status.last_successful.map(|last| last.taken_at).unwrap_or_default();
        self.say(format!(
            "{} runs are stored, {} recorded ({}); last success {last}, failures {}, next {}",
            self.stored.len(),
            records.len(),
            records.join(" "),
            status.consecutive_failures,
            status.next_time.as_deref().unwrap_or("none")
        ));
    }
}

fn failed(class: ExitClass, origin: Option<Origin>) -> Report {
    Report::Failed(FailedReport { class, origin, message: format!("the store answers {}", class.as_str()) })
}

fn pod_of(job: &Job, exit_code: i32, message: String, at: Time) -> Pod {
    let end = ContainerStateTerminated {
        exit_code,
        message: Some(message),
        started_at: Some(at.clone()),
        finished_at: Some(at),
        ..ContainerStateTerminated::default()
    };
    let state = Some(ContainerState { terminated: Some(end), ..ContainerState::default() });
    let agent = ContainerStatus { name: "agent".to_owned(), state, ..ContainerStatus::default() };
    let phase = if exit_code == 0 { "Succeeded" } else { "Failed" };
    let mut pod = Pod {
        status: Some(PodStatus {
            phase: Some(phase.to_owned()),
            container_statuses: Some(vec![agent]),
            ..PodStatus::default()
        }),
        spec: job.spec.as_ref().and_then(|s| s.template.spec.clone()),
        ..Pod::default()
    };
    pod.metadata.name = Some(format!("{}-pod", meta::name(&job.metadata)));
    pod.metadata.creation_timestamp.clone_from(&job.metadata.creation_timestamp);
    pod
}
