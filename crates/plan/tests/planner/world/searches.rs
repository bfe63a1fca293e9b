//! Jobs that ask a store for its newest snapshot, in the small world: each answer takes a while, and the answers differ.

use holdfast_api::restore::Latest;
use holdfast_contract::{LatestReport, Origin};
use holdfast_plan::cluster::ClusterJob;
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus};

use super::*;

/// Ticks of a Job that asks.
const SEARCH: u64 = 10;

/// Ticks until Kubernetes deletes an ended Job.
const KEPT: u64 = 6_000;

/// A Job that asks a store.
pub(super) struct Asked {
    pub(super) job: Job,
    /// Tick of its creation.
    pub(super) born: u64,
    /// Tick of its end, and the Pod with the answer.
    pub(super) end: Option<(u64, Pod)>,
}

impl World {
    pub fn restore_latest(&mut self, bucket: &str) {
        let s3 = S3Location { bucket: bucket.to_owned(), ..S3Location::default() };
        let latest = Some(Latest { place: Location::S3(s3).into(), ..Latest::default() });
        self.edit(|s| s.bootstrap = Some(Bootstrap { restore: Some(Restore { latest, ..Restore::default() }) }));
    }

    pub(super) fn end_searches(&mut self) {
        let (now, time, trouble) = (self.now, self.time(), self.store_trouble);
        let before = self.searches.len();
        self.searches.retain(|_, asked| asked.end.as_ref().is_none_or(|(at, _)| now < at + KEPT));
        let mut changed = self.searches.len() != before;
        for asked in self.searches.values_mut().filter(|asked| asked.end.is_none() && now >= asked.born + SEARCH) {
            self.answers += 1;
            let report = match trouble {
                Some(class) => {
                    let origin = (class == ExitClass::Refused).then_some(Origin::Request);
                    let message = format!("the store answers {}", class.as_str());
                    Report::Failed(FailedReport { class, origin, message })
                }
                None => Report::Latest(LatestReport {
                    key: format!("newest-{}", self.answers),
                    sha256: "5a".repeat(32),
                    taken_at: time.to_string(),
                    ..LatestReport::default()
                }),
            };
            asked.end = Some((now, ended(&mut asked.job, &report, time)));
            changed = true;
        }
        if changed {
            self.changed();
        }
    }

    /// I9: every restore reads the latched snapshot.
    pub(super) fn restores_what_is_latched(&self, key: Option<&String>) {
        let latches =
            self.cluster.as_ref().and_then(|c| c.status.as_ref()).map(|s| s.latches.clone()).unwrap_or_default();
        if let (Some(restoring), Some(key)) = (latches.restoring, key) {
            assert!(restoring.newest.is_none() || restoring.source.key == *key, "{key} is restored, not {restoring:?}");
        }
    }

    pub(super) fn seen_searches(&self) -> Vec<ClusterJob> {
        let mut all: Vec<_> = self.searches.values().collect();
        all.sort_by_key(|asked| asked.born);
        all.into_iter()
            .map(|Asked { job, end, .. }| ClusterJob {
                job: job.clone(),
                pods: end.as_ref().map(|(_, pod)| pod.clone()).into_iter().collect(),
            })
            .collect()
    }
}

/// Ends the Job, and returns its Pod with this report.
fn ended(job: &mut Job, report: &Report, at: Timestamp) -> Pod {
    let code = match report {
        Report::Failed(failed) => i32::from(failed.failure().code),
        _ => 0,
    };
    let condition = JobCondition {
        type_: if code == 0 { "Complete" } else { "Failed" }.to_owned(),
        status: "True".to_owned(),
        last_transition_time: Some(Time(at)),
        ..JobCondition::default()
    };
    let failed = Some(i32::from(code != 0));
    job.status = Some(JobStatus { conditions: Some(vec![condition]), failed, ..JobStatus::default() });
    let end = ContainerStateTerminated {
        exit_code: code,
        message: serde_json::to_string(report).ok(),
        finished_at: Some(Time(at)),
        ..ContainerStateTerminated::default()
    };
    let state = Some(ContainerState { terminated: Some(end), ..ContainerState::default() });
    let agent = ContainerStatus { name: "agent".to_owned(), state, ..ContainerStatus::default() };
    let phase = Some(if code == 0 { "Succeeded" } else { "Failed" }.to_owned());
    let status = PodStatus { phase, container_statuses: Some(vec![agent]), ..PodStatus::default() };
    Pod { status: Some(status), ..Pod::default() }
}
