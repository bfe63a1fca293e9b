//! An object that stands beside the `CronJob` of the backups: the `CronJob` of the drills or of the merges, or the Deployment of the log.
//!
//! Decides when there is one, and when it stands still. `drill_job.rs`, `compaction.rs` and `log_deployment.rs` decide its Pod.

use holdfast_api::condition::Reason;
use holdfast_api::cron::CronJobRef;
use jiff::Timestamp;
use k8s_openapi::Metadata;
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use super::{Line, Observed, arm};
use holdfast_base::objects::cron_job::with_spec;
use holdfast_base::objects::job::AgentJob;
use holdfast_base::{drift, meta};

/// An object, compared with the spec.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Armed<K> {
    /// The object to apply.
    pub(super) apply: Option<K>,
    /// The mistake that a person has to correct.
    pub(super) wrong: Option<(Reason, String)>,
    /// Why nothing starts, although there is no mistake.
    pub(super) waits: Option<(Reason, String)>,
    /// Whether the object stands, and nothing halts it.
    pub(super) runs: bool,
}

impl<K> Armed<K> {
    /// Returns a mistake with which nothing is applied.
    pub(super) const fn wrong(reason: Reason, why: String) -> Self {
        Self { apply: None, wrong: Some((reason, why)), waits: None, runs: false }
    }
}

/// The live object of a name.
#[derive(Debug)]
pub(super) struct Live<'a, K> {
    /// The object, of any owner.
    pub(super) any: Option<&'a K>,
    /// The object, if the schedule controls it.
    pub(super) own: Option<&'a K>,
}

impl<K: Metadata<Ty = ObjectMeta> + Serialize> Live<'_, K> {
    /// Compares the standing object with the spec. `begins`: why none stands yet. `standing` returns the standing object, halted or not,
    /// and `rendered` that of the spec.
    pub(super) fn arm(
        &self,
        seen: &Observed,
        begins: (Reason, String),
        standing: impl FnOnce(bool) -> Option<K>,
        rendered: impl FnOnce(bool) -> Result<K, (Reason, String)>,
    ) -> Armed<K> {
        let stands = self.own;
        if let Some(why) = self.conflict() {
            return Armed::wrong(Reason::NameConflict, why);
        }
        let halted = arm::halted(seen);
        let halts = halted.is_some();
        let (wanted, behind) = match rendered(halts) {
            // The first one begins with work, not with a pause.
            Ok(rendered) => (Some(rendered).filter(|_| stands.is_some() || !halts), None),
            Err(why) => (standing(halts), Some(why)),
        };
        let apply = wanted.filter(|want| stands.is_none_or(|live| drift::differs_by_name(want, live)));
        let (wrong, behind) = match behind {
            Some((reason, why)) if reason.needs_a_person() => (Some((reason, why)), None),
            other => (None, other),
        };
        let waits =
            halted.or_else(|| behind.filter(|_| stands.is_none())).or_else(|| stands.is_none().then_some(begins));
        let runs = stands.is_some() && waits.is_none();
        Armed { apply, wrong, waits, runs }
    }

    /// Returns the problem of an object with this name that belongs to another owner.
    pub(super) fn conflict(&self) -> Option<String> {
        let foreign = self.any.filter(|_| self.own.is_none())?;
        let (kind, name) = (K::KIND, meta::name(foreign.metadata()));
        Some(format!(
            "{kind} {name} exists and belongs to another owner. Delete the {kind}, or create the schedule under another name"
        ))
    }
}

impl Live<'_, CronJob> {
    /// Returns the `CronJob` without Jobs, where the spec asks for none any more: the operator has no right to delete it.
    pub(super) fn retire(&self, job: AgentJob) -> Option<CronJob> {
        let want = self.suspended(job, true)?;
        self.own.filter(|live| drift::differs_by_name(&want, *live)).map(|_| want)
    }

    /// Returns the standing `CronJob`, suspended or not. `job`: the settings that need no rendering.
    pub(super) fn suspended(&self, job: AgentJob, suspend: bool) -> Option<CronJob> {
        let spec = self.own?.spec.clone()?;
        Some(with_spec(job, CronJobSpec { suspend: Some(suspend), ..spec }))
    }
}

/// Returns the entry of a status for a `CronJob`.
pub(super) fn reference(cron: &CronJob) -> CronJobRef {
    CronJobRef { name: meta::name(&cron.metadata).to_owned(), uid: meta::uid(&cron.metadata).to_owned() }
}

/// Parses the due times in this field of the spec, in its own time zone or in that of the backups.
pub(super) fn line(
    seen: &Observed,
    field: &str,
    (schedule, time_zone): (&str, Option<&str>),
    now: Timestamp,
) -> Result<Line, (Reason, String)> {
    let named = |why: String| match why.strip_prefix("spec.") {
        Some(rest) if time_zone.is_some() || rest.starts_with("schedule") => format!("{field}.{rest}"),
        _ => why,
    };
    let zone = time_zone.or(seen.schedule.spec.time_zone.as_deref());
    let line = Line::parse(schedule, zone).map_err(|why| (Reason::InvalidSpec, named(why)))?;
    if line.next(now).is_none() {
        let why = format!("{field}.schedule: {schedule:?} is never due: no such day comes. Correct the line");
        return Err((Reason::NeverFires, why));
    }
    Ok(line)
}
