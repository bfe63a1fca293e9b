//! A `CronJob` beside that of the backups: of the drills, or of the merges of the log.
//!
//! Decides when there is one, and when it stands still. `drill_job.rs` and `compaction.rs` decide the Job.

use holdfast_api::condition::Reason;
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec};

use super::{Observed, arm};
use crate::build::cron_job::with_spec;
use crate::build::job::AgentJob;
use crate::{drift, meta};

/// A `CronJob`, compared with the spec.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Armed {
    /// The `CronJob` to apply.
    pub(super) apply: Option<CronJob>,
    /// The mistake that a person has to correct.
    pub(super) wrong: Option<(Reason, String)>,
    /// Why no Job starts, although there is no mistake.
    pub(super) waits: Option<(Reason, String)>,
    /// Whether the `CronJob` starts Jobs.
    pub(super) starts: bool,
}

/// The live `CronJob` of a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Live<'a> {
    /// The object, of any owner.
    pub(super) any: Option<&'a CronJob>,
    /// The object, if the schedule controls it.
    pub(super) own: Option<&'a CronJob>,
}

impl Live<'_> {
    /// Compares the standing `CronJob` with the spec. `job`: the settings that need no rendering. `begins`: why none stands yet.
    pub(super) fn arm(
        self,
        seen: &Observed,
        job: impl Fn() -> AgentJob,
        begins: (Reason, String),
        rendered: impl FnOnce(bool) -> Result<CronJob, (Reason, String)>,
    ) -> Armed {
        let Self { any, own: stands } = self;
        if let Some(foreign) = any.filter(|_| stands.is_none()) {
            let why = format!(
                "CronJob {} exists and belongs to another owner. Delete the CronJob, or create the schedule under another name",
                meta::name(&foreign.metadata)
            );
            return Armed { wrong: Some((Reason::NameConflict, why)), ..Armed::default() };
        }
        let halted = arm::halted(seen);
        let suspend = halted.is_some();
        let (wanted, behind) = match rendered(suspend) {
            // The first one begins with Jobs, not with a pause.
            Ok(rendered) => (Some(rendered).filter(|_| stands.is_some() || !suspend), None),
            Err(why) => (self.suspended(job, suspend), Some(why)),
        };
        let apply = wanted.filter(|want| stands.is_none_or(|live| drift::differs_by_name(want, live)));
        let (wrong, behind) = match behind {
            Some((reason, why)) if reason.needs_a_person() => (Some((reason, why)), None),
            other => (None, other),
        };
        let waits =
            halted.or_else(|| behind.filter(|_| stands.is_none())).or_else(|| stands.is_none().then_some(begins));
        let starts = stands.is_some() && waits.is_none() && wrong.is_none();
        Armed { apply, wrong, waits, starts }
    }

    /// Returns the `CronJob` without Jobs, where the spec asks for none any more: the operator has no right to delete it.
    pub(super) fn retire(self, job: impl Fn() -> AgentJob) -> Option<CronJob> {
        let want = self.suspended(job, true)?;
        self.own.filter(|live| drift::differs_by_name(&want, *live)).map(|_| want)
    }

    /// Returns the standing `CronJob`, suspended or not.
    fn suspended(self, job: impl Fn() -> AgentJob, suspend: bool) -> Option<CronJob> {
        let spec = self.own?.spec.clone()?;
        Some(with_spec(job(), CronJobSpec { suspend: Some(suspend), ..spec }))
    }
}
