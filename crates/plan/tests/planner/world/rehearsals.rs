//! Rehearsals of upgrades in the small world: Jobs that end after a while.

use holdfast_plan::cluster::ClusterJob;
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus};

use super::*;

/// Ticks of a rehearsal.
const REHEARSAL: u64 = 30;

impl World {
    pub(super) fn start_rehearsal(&mut self, mut job: Job) {
        let name = meta::name(&job.metadata).to_owned();
        if !self.rehearsals.contains_key(&name) {
            self.born(&mut job.metadata);
            self.rehearsals.insert(name, (job, self.now));
            self.changed();
        }
    }

    /// Deletes the Jobs, as a person does after a failure.
    pub fn delete_rehearsals(&mut self) {
        self.rehearsals.clear();
        self.changed();
    }

    pub(super) fn end_rehearsals(&mut self) {
        let (now, at, unfit) = (self.now, Time(self.time()), self.unfit);
        let mut ended = false;
        for (job, since) in self.rehearsals.values_mut() {
            if job.status.is_some() || now < *since + REHEARSAL {
                continue;
            }
            ended = true;
            let condition = JobCondition {
                type_: if unfit { "Failed" } else { "Complete" }.to_owned(),
                status: "True".to_owned(),
                last_transition_time: Some(at.clone()),
                ..JobCondition::default()
            };
            job.status = Some(JobStatus {
                succeeded: (!unfit).then_some(1),
                failed: unfit.then_some(1),
                start_time: job.metadata.creation_timestamp.clone(),
                completion_time: Some(at.clone()),
                conditions: Some(vec![condition]),
                ..JobStatus::default()
            });
        }
        if ended {
            self.changed();
        }
    }

    pub(super) fn seen_rehearsals(&self) -> Vec<ClusterJob> {
        self.rehearsals.values().map(|(job, _)| ClusterJob { job: job.clone(), pods: vec![] }).collect()
    }

    pub(super) fn newest_backup(&self) -> Option<EtcdSnapshot> {
        let uid = meta::uid(&self.cluster.as_ref()?.metadata).to_owned();
        let last = cluster::newest(&uid, self.snapshots.values())?;
        self.snapshots.get(&last.name).cloned()
    }
}
