//! The cause that keeps the Pods of a Job from running, and its record in `status.heldUp`.
//!
//! Decides the words, and when an earlier cause stays: after a Job's deadline kubelet removes the Pod, and the cause with the
//! Pod. Each kind decides the consequence of a cause.

use holdfast_api::blocked_pod::BlockedPod;
use holdfast_api::condition::Reason;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::{meta, pods};

/// The cause that keeps a Pod of a Job from running, or from ending.
#[derive(Clone, Debug, PartialEq)]
pub struct PodCause {
    /// `PodHeldUp`, `WriteRefused`, `NodeSilent` or `JobPending`.
    pub reason: Reason,
    /// Name of the Job.
    pub job: String,
    /// Name of the Pod, where the Job has one.
    pub pod: Option<String>,
    /// The cause.
    pub message: String,
}

impl PodCause {
    /// Returns the cause of a Pod of this Job.
    pub fn pod(reason: Reason, job: &str, pod: &Pod, message: String) -> Self {
        Self { reason, job: job.to_owned(), pod: Some(meta::name(&pod.metadata).to_owned()), message }
    }

    /// Returns the cause of a Job without a Pod.
    pub fn job(reason: Reason, job: &str, message: String) -> Self {
        Self { reason, job: job.to_owned(), pod: None, message }
    }

    /// Returns the cause in a status.
    pub fn kept(status: Option<&BlockedPod>) -> Option<Self> {
        let BlockedPod { reason, job, pod, message, since: _ } = status?.clone();
        Some(Self { reason: Reason::named(&reason)?, job, pod, message })
    }

    /// Returns the record for the status; `since` stays while the cause does.
    pub fn recorded(self, before: Option<&BlockedPod>, now: Timestamp) -> BlockedPod {
        let stands = before.filter(|old| Self::kept(Some(old)).is_some_and(|old| old.same_cause(&self)));
        let since = stands.map_or_else(|| now.to_string(), |old| old.since.clone());
        let Self { reason, job, pod, message } = self;
        BlockedPod { reason: reason.as_str().to_owned(), job, pod, message, since }
    }

    /// Whether only a person can end this cause.
    pub const fn needs_a_person(&self) -> bool {
        matches!(self.reason, Reason::PodHeldUp | Reason::WriteRefused)
    }

    /// Returns the cause after `next` was observed. `first`: whether no earlier Job had a cause to report.
    pub fn after(before: Option<Self>, next: &Self, first: bool) -> Option<Self> {
        let stands = before.as_ref().is_some_and(|old| old.outlasts(next));
        if stands {
            before
        } else if next.reason == Reason::JobPending && !first {
            before.filter(|old| old.reason != Reason::NodeSilent)
        } else {
            Some(next.clone())
        }
    }

    /// Adds the names of the Pods that keep this Pod from a claim that both mount: a claim with the access mode ReadWriteOncePod
    /// serves one Pod, and a claim with ReadWriteOnce serves one node. `all`: Pods of the Job, oldest first. `others`: Pods that
    /// mount a claim of the last Pod.
    #[must_use]
    pub fn with_claim_users(self, all: &[Pod], others: &[Pod]) -> Self {
        // The cause of a Pod that is deleted comes from the status, and has the names already.
        let is_held =
            |pod: &&Pod| self.pod.as_deref() == Some(meta::name(&pod.metadata)) && !meta::deleting(&pod.metadata);
        let Some(pod) = all.last().filter(is_held) else { return self };
        let node = |pod: &Pod| pod.spec.as_ref()?.node_name.clone().filter(|name| !name.is_empty());
        let (own, one_pod) = (node(pod), self.message.contains("ReadWriteOncePod"));
        let users = others.iter().filter_map(|other| {
            let at = node(other)?;
            let claim = pods::shared_claim(pod, other)?;
            let keeps = if one_pod { own.is_none() } else { own.as_ref().is_some_and(|own| *own != at) };
            keeps.then(|| format!("Pod {} on node {at} uses claim {claim}", meta::name(&other.metadata)))
        });
        let users = users.collect::<Vec<_>>().join(", ");
        if users.is_empty() {
            return self;
        }
        Self { message: format!("{}; {users}", self.message), ..self }
    }

    /// Returns object and cause, for a condition.
    pub fn words(&self) -> String {
        let Self { reason, job, pod, message } = self;
        match (reason, pod) {
            (Reason::PodHeldUp, Some(pod)) => format!("Pod {pod} does not run: {message}"),
            (Reason::NodeSilent, Some(pod)) => format!("kubelet does not report the end of Pod {pod}: {message}"),
            (_, Some(pod)) => format!("Pod {pod} does not run yet: {message}"),
            (Reason::WriteRefused, None) => format!("the API server refuses the Pod of Job {job}: {message}"),
            (_, None) => format!("Job {job} has no Pod yet; {message}"),
        }
    }

    /// Returns the words after the end of the Job: the Pod is gone, so the remedy for its node does not apply.
    pub fn last_words(&self) -> String {
        let words = self.words();
        words.split(pods::IF_OFF).next().unwrap_or_default().to_owned()
    }

    /// Whether both have one cause. The names of Jobs and Pods differ and do not count.
    fn same_cause(&self, other: &Self) -> bool {
        let unnamed = |held: &Self| held.message.replace(held.pod.as_deref().unwrap_or(&held.job), "");
        self.reason == other.reason && unnamed(self) == unnamed(other)
    }

    /// Whether this cause stays although the next Pod reports another cause: that Pod may not have reached the same point yet.
    fn outlasts(&self, next: &Self) -> bool {
        self.same_cause(next) || (self.needs_a_person() && next.reason == Reason::JobPending && self.job != next.job)
    }
}
