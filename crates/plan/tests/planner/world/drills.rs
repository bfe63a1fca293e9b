//! Drills of a schedule in the small world: Jobs from the drills' `CronJob`, which a person starts.

use holdfast_api::drill::Drill;
use holdfast_contract::DrilledReport;
use holdfast_plan::schedule::Recall;

use super::schedules::Task;
use super::*;

impl World {
    pub fn drill_every_night(&mut self) {
        let drill = Drill { schedule: "0 3 * * *".to_owned(), ..Drill::default() };
        self.schedule.as_mut().unwrap().spec.drill = Some(drill);
        self.changed();
    }

    pub fn drill_no_more(&mut self) {
        self.schedule.as_mut().unwrap().spec.drill = None;
        self.changed();
    }

    /// `kubectl create job --from=cronjob/...`.
    pub fn drill_by_hand(&mut self, name: &str) {
        let cron = self.drill_cron.clone().expect("a CronJob of drills");
        self.start_run(&cron, name.to_owned());
    }

    pub(super) fn apply_drill_cron_job(&mut self, mut cron: CronJob) {
        match &self.drill_cron {
            Some(there) => {
                cron.metadata.uid.clone_from(&there.metadata.uid);
                cron.metadata.creation_timestamp.clone_from(&there.metadata.creation_timestamp);
                self.writes += 1;
                self.touch(&mut cron.metadata);
            }
            None => self.born(&mut cron.metadata),
        }
        let suspended = cron.spec.as_ref().unwrap().suspend == Some(true);
        let (name, state) = (meta::name(&cron.metadata), if suspended { "suspended" } else { "active" });
        self.say(format!("nightly: apply CronJob {name}, {state}"));
        self.drill_cron = Some(cron);
        self.changed();
    }

    /// The report of a drill of the newest stored snapshot.
    pub(super) fn drilled(&self) -> DrilledReport {
        let failed = self.drill_trouble.map(|class| FailedReport {
            class,
            origin: None,
            message: format!("the agent says {}", class.as_str()),
        });
        DrilledReport {
            key: self.stored.last().map(|one| one.key().to_owned()).unwrap_or_default(),
            restore_seconds: Some(7),
            serve_seconds: Some(2),
            failed,
            ..DrilledReport::default()
        }
    }

    pub(super) fn seen_drills(&self) -> Vec<Recall> {
        let uid = self.drill_cron.as_ref().map(|cron| meta::uid(&cron.metadata).to_owned()).unwrap_or_default();
        let own = self.tasks.values().filter(|task| meta::controlled_by(&task.job.metadata, &uid));
        own.map(|task| Recall { job: task.job.clone(), pods: Task::pods(task) }).collect()
    }
}
