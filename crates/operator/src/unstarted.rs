//! Pods of Jobs that were deleted before their agent ran, by their last state in the watch. The Job controller deletes the Pods of
//! a Job at its deadline, and afterwards no object shows that their agent never ran.
//!
//! Decides how long these Pods are remembered. Losing them costs a question to the store.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use holdfast_plan::objects::job::CONTAINER;
use holdfast_plan::pods::Unstarted;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::clock::{self, Instant};

/// The label that the Job controller puts on its Pods.
pub(super) const JOB_UID: &str = "batch.kubernetes.io/controller-uid";

/// A Job reports its end within seconds after its last Pod is gone; a busy Job controller takes minutes.
const KEPT: Duration = Duration::from_mins(10);

/// Largest number of remembered Pods: every user may create and delete Pods with Holdfast's labels.
const MOST: usize = 10_000;

/// The Pods, by the UID of their Job.
#[derive(Debug, Default)]
pub(super) struct UnstartedPods(Mutex<HashMap<String, Vec<(Instant, Unstarted)>>>);

impl UnstartedPods {
    /// Remembers a deleted Pod if its last state proves that its agent never ran.
    pub(super) fn note(&self, pod: &Pod, now: Timestamp) {
        let Some(job) = pod.labels().get(JOB_UID) else { return };
        let Some(unstarted) = Unstarted::prove(pod, CONTAINER, now) else { return };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = clock::instant();
        all.retain(|_, pods| {
            pods.retain(|(noted, _)| at.duration_since(*noted) < KEPT);
            !pods.is_empty()
        });
        if all.values().map(Vec::len).sum::<usize>() < MOST {
            all.entry(job.clone()).or_default().push((at, unstarted));
        }
    }

    /// The Pods of this Job.
    pub(super) fn of_job(&self, uid: &str) -> Vec<Unstarted> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(uid).into_iter().flatten().map(|(_, pod)| pod.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, job: &str, state: &serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "labels": {JOB_UID: job}, "creationTimestamp": "2026-11-21T12:00:00Z",
                "deletionTimestamp": "2026-11-21T13:00:00Z",
            },
            "spec": {"containers": []},
            "status": {"phase": "Pending", "containerStatuses": state},
        }))
        .unwrap()
    }

    #[test]
    fn only_pods_that_never_ran_are_remembered_for_their_job() {
        let pods = UnstartedPods::default();
        let now = "2026-11-21T13:00:00Z".parse().unwrap();
        let running = json!([{
            "name": "agent", "image": "x", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}},
        }]);
        pods.note(&pod("a", "job-1", &json!([])), now);
        pods.note(&pod("b", "job-1", &running), now);
        pods.note(&pod("c", "job-2", &json!([])), now);
        let names = |job: &str| pods.of_job(job).into_iter().map(|pod| pod.name).collect::<Vec<_>>();
        assert_eq!(
            (names("job-1"), names("job-2"), names("job-3")),
            (vec!["a".to_owned()], vec!["c".to_owned()], vec![])
        );
    }
}
