//! Rehearsals of upgrades in the small world: Jobs that end after a while.

use holdfast_contract::{ComparedReport, DifferenceKind, ExitClass, Failure, MemberDifference, Report};
use holdfast_plan::cluster::ClusterJob;
use holdfast_plan::objects::job::{self, COMPARE, compares};
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, PodStatus};

use super::*;

/// Ticks of a rehearsal.
const REHEARSAL: u64 = 30;

impl World {
    pub(super) fn start_rehearsal(&mut self, mut job: Job) {
        let name = meta::name(&job.metadata).to_owned();
        if !self.rehearsals.contains_key(&name) {
            self.born(&mut job.metadata);
            self.rehearsals.insert(name, (job, vec![], self.now));
            self.changed();
        }
    }

    /// The snapshot that the operator requested before an upgrade.
    pub(super) fn requested(&self) -> Option<EtcdSnapshot> {
        self.snapshots.get(&cluster::name_of_requested_snapshot(self.cluster.as_ref()?)).cloned()
    }

    pub(super) fn ending(&self, object: &EtcdCluster) -> cluster::Ending {
        let snapshot = self.snapshots.get(&cluster::name_of_final_snapshot(object)).cloned();
        cluster::Ending { snapshot, terminating: false }
    }

    /// Deletes the Jobs, as a person does after a failure.
    pub fn delete_rehearsals(&mut self) {
        self.rehearsals.clear();
        self.changed();
    }

    pub(super) fn end_rehearsals(&mut self) {
        let (now, at) = (self.now, Time(self.time()));
        let differs = self.members.keys().next_back().cloned().filter(|_| self.differ);
        let mut ended = false;
        for (job, pods, since) in self.rehearsals.values_mut() {
            if job.status.is_some() || now < *since + REHEARSAL {
                continue;
            }
            ended = true;
            let compared = job::pod_spec(job).is_some_and(compares);
            pods.extend(differs.as_deref().filter(|_| compared).map(differing));
            let unfit = self.unfit || !pods.is_empty();
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
        let seen = |(job, pods, _): &(Job, Vec<Pod>, u64)| ClusterJob { job: job.clone(), pods: pods.clone() };
        self.rehearsals.values().map(seen).collect()
    }

    pub(super) fn newest_backup(&self) -> Option<EtcdSnapshot> {
        let uid = meta::uid(&self.cluster.as_ref()?.metadata).to_owned();
        let last = cluster::newest(&uid, self.snapshots.values())?;
        self.snapshots.get(&last.name).cloned()
    }
}

/// Returns a Pod whose comparison found this member as a learner in its own database.
fn differing(member: &str) -> Pod {
    let difference = MemberDifference {
        member: member.to_owned(),
        member_id: "590a".to_owned(),
        kind: DifferenceKind::LearnerInData,
        data_of: member.to_owned(),
        data_of_id: "590a".to_owned(),
    };
    let report = Report::Compared(ComparedReport { differences: vec![difference], ..ComparedReport::default() });
    let end = ContainerStateTerminated {
        exit_code: i32::from(Failure::for_class(ExitClass::MembersDiffer, None).code),
        message: serde_json::to_string(&report).ok(),
        ..ContainerStateTerminated::default()
    };
    let state = Some(ContainerState { terminated: Some(end), ..ContainerState::default() });
    let compare = ContainerStatus { name: COMPARE.to_owned(), state, ..ContainerStatus::default() };
    let status = PodStatus {
        phase: Some("Failed".to_owned()),
        init_container_statuses: Some(vec![compare]),
        ..PodStatus::default()
    };
    Pod { status: Some(status), ..Pod::default() }
}
