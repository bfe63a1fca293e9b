//! The status of a schedule's retention.
//!
//! Decides the retention's part of the status, and since when a policy applies; `prune.rs` decides the step.

use holdfast_api::EtcdSnapshotScheduleStatus;
use holdfast_api::condition::{Reason, Type, Wanted};
use holdfast_api::schedule::{Announced, AppliedPolicy, LastPrune, Locked, PruneRun};
use holdfast_contract::PruneReport;
use holdfast_layout::attempt_of_key;
use holdfast_layout::retention::Stop;
use jiff::Timestamp;

use super::forecast::Forecast;
use super::{Observed, UTC, facts};
use holdfast_base::{Next, fingerprint};

/// Result of a pass over a schedule's retention.
#[derive(Default)]
pub(super) struct Pruning {
    /// The step, if no other step comes first.
    pub(super) next: Option<Next>,
    /// When time alone causes a step.
    pub(super) due: Option<Timestamp>,
    /// The condition `RetentionApplied`.
    pub(super) condition: Option<Wanted>,
    pub(super) kept: Option<u64>,
    pub(super) bytes: Option<u64>,
    pub(super) announced: Option<Announced>,
    pub(super) locked: Option<Locked>,
    pub(super) earlier_lineages: Vec<String>,
    pub(super) pruned: u64,
    pub(super) last: Option<LastPrune>,
    pub(super) policy: Option<AppliedPolicy>,
    pub(super) run: Option<PruneRun>,
    /// Why the store does not answer which snapshots the store holds.
    pub(super) silent: Option<String>,
}

/// Why no run starts, if the spec requests that.
pub(super) type Halted<'a> = Option<(Reason, &'a str)>;

impl From<EtcdSnapshotScheduleStatus> for Pruning {
    fn from(old: EtcdSnapshotScheduleStatus) -> Self {
        let EtcdSnapshotScheduleStatus {
            announced,
            locked,
            earlier_lineages,
            pruned,
            last_prune: last,
            policy,
            prune_run: run,
            ..
        } = old;
        Self { announced, locked, earlier_lineages, pruned, last, policy, run, ..Self::default() }
    }
}

impl Pruning {
    /// Records when the policy changed: the agent announces again what an earlier policy announced, also after the policy is
    /// set back.
    pub(super) fn date_policy(&mut self, seen: &Observed, now: Timestamp) {
        let spec = &seen.schedule.spec;
        // JSON of our own types cannot fail.
        let retention = serde_json::to_string(&spec.retention).unwrap_or_default();
        let suspended = spec.suspend_pruning.to_string();
        let fingerprint =
            fingerprint::hash_parts([retention.as_str(), spec.time_zone.as_deref().unwrap_or(UTC), &suspended]);
        if self.policy.as_ref().is_none_or(|known| known.fingerprint != fingerprint) {
            self.policy = Some(AppliedPolicy { fingerprint, since: now.to_string() });
        }
    }

    /// Sets the condition while the store does not answer which runs the store holds: no Job removes any snapshot then.
    pub(super) fn wait_for_store(&mut self, silent: Option<&str>) {
        if let (Some(why), Some(condition)) = (silent, self.condition.as_mut()) {
            *condition = store_is_silent(why);
        }
    }

    /// Whether the last Job left this many snapshots, and no other Job is due.
    fn is_left(&self, dropped: usize) -> bool {
        let remaining = self.last.as_ref().filter(|last| last.class.is_none()).and_then(|last| last.dropped);
        self.run.is_none()
            && remaining.is_some_and(|remaining| u64::try_from(dropped).is_ok_and(|dropped| dropped <= remaining))
    }
}

/// Returns why a Job that reported removed nothing, or not everything. An empty store is a fault, not a removal of all
/// snapshots.
pub(super) fn trouble(report: &PruneReport, run: &PruneRun) -> Option<(String, String)> {
    let failed = report.failed.as_ref().map(|failed| (failed.class.as_str().to_owned(), failed.message.clone()));
    let stopped = report.stopped.as_ref().map(|stop| (stop.reason.clone(), stop.message.clone()));
    let newest = report.newest.as_deref().and_then(attempt_of_key).map(|(_, at)| at);
    let missing = facts::time(Some(&run.newest)).is_some_and(|known| newest.is_none_or(|newest| newest < known));
    let missing = missing.then(|| {
        let why = "the store holds none of the newer snapshots that EtcdSnapshots record. Check that the right bucket or \
                   volume is in place; the EtcdSnapshots stay";
        ("ListingIncomplete".to_owned(), why.to_owned())
    });
    failed.or(stopped).or(missing)
}

fn store_is_silent(why: &str) -> Wanted {
    let message = format!("Holdfast removes nothing, because the store does not say which snapshots it holds: {why}");
    Wanted::no(Type::RetentionApplied, Reason::RetentionBlocked, message)
}

fn snapshots(count: u64) -> String {
    format!("{count} snapshot{}", if count == 1 { "" } else { "s" })
}

/// Returns the condition `RetentionApplied`.
pub(super) fn condition(pruning: &Pruning, forecast: &Forecast, halted: Halted<'_>) -> Wanted {
    if let Some(why) = &pruning.silent {
        return store_is_silent(why);
    }
    let yes = |reason, message: String| {
        let usual = forecast.usual_loss.as_ref().map(|loss| format!(". {loss}")).unwrap_or_default();
        Wanted::yes(Type::RetentionApplied, reason, message + &usual)
    };
    let pending = !forecast.dropped.is_empty() || pruning.announced.is_some();
    let blocked = |class: &str, message: &str| {
        let anomaly = class == Reason::SnapshotAnomaly.as_str();
        let reason = if anomaly { Reason::SnapshotAnomaly } else { Reason::RetentionBlocked };
        let class = if anomaly { String::new() } else { format!("{class}: ") };
        Wanted::no(Type::RetentionApplied, reason, format!("Holdfast removes nothing. {class}{message}"))
    };
    if let Some(stop) = &forecast.stop {
        let word = stop.reason();
        // The spec requests the pause.
        if let (Stop::Overdue(..), Some((reason, why))) = (stop, halted) {
            let message = format!("Holdfast removes nothing while no backups run: {why}");
            return Wanted::unknown(Type::RetentionApplied, reason, message);
        }
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
        (_, more) if pruning.is_left(more) => {
            let more = snapshots(u64::try_from(more).unwrap_or(u64::MAX));
            let message = format!(
                "retention does not keep {more}, and the store has another reason to keep them: holdfast agent prune \
                 --dry-run shows it"
            );
            yes(Reason::AsDesired, message)
        }
        (_, more) => {
            let more = snapshots(u64::try_from(more).unwrap_or(u64::MAX));
            yes(Reason::RemovalAnnounced, format!("Holdfast announces the removal of {more} next"))
        }
    }
}
