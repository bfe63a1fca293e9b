//! Source and progress of a cluster's restore: `status.restore`.
//!
//! Decides the status: the report of the restore step, and where that report is missing, the latched source. `restore.rs` decides
//! which snapshot is restored.

use holdfast_api::member::Birth;
use holdfast_api::restore::{PointStatus, RestorePhase, RestorePoint, RestoreStatus, Restoring};
use holdfast_contract::{Point, Report, RestoredReport};
use holdfast_layout as layout;
use jiff::Timestamp;

use super::{Member, Observed};
use holdfast_base::objects::{self, container};
use holdfast_base::pods;

/// Returns source and phase of the restore.
pub(super) fn status(seen: &Observed, old: Option<RestoreStatus>) -> Option<RestoreStatus> {
    let latches = seen.latches();
    let seed = seen.members.iter().find(|m| m.object.spec.role == Birth::Seed && m.object.spec.restore.is_some());
    let report = seed.and_then(restored_report);
    let phase = if let Some(formed) = &latches.formed {
        formed.restored_from.is_some().then_some(RestorePhase::Formed)
    } else if latches.restoring.is_some() || seed.is_some() || seen.asks_for_restore() {
        Some(seed.map_or(RestorePhase::Pending, |seed| phase(seed, report.is_some())))
    } else {
        None
    };
    // A report of an earlier attempt does not describe this attempt.
    let old = old.filter(|old| latches.restoring.as_ref().is_none_or(|restoring| is_of(old, restoring)));
    // A restore step that runs again finds the data complete, and reports less.
    let known = |report: &RestoredReport| {
        old.as_ref().is_some_and(|old| reported(old) && old.uri.as_ref() == Some(&report.uri))
    };
    let report =
        report.filter(|report| !(report.already && known(report))).and_then(|report| Some(lineage(seed?, report)));
    let status = match (report.or(old), phase) {
        (None, None) => return None,
        (status, phase) => RestoreStatus { phase, ..status.unwrap_or_default() },
    };
    let restore = latches.formed.and_then(|formed| formed.restored_from).or(latches.restoring);
    // Where the latches are lost too, the first member has the source.
    let restore = restore.or_else(|| seed.and_then(|seed| seed.object.spec.restore.clone()));
    Some(match restore {
        Some(restoring) => filled(status, restoring),
        None => status,
    })
}

/// Whether the status holds the report of the restore step, not only the latched source.
const fn reported(status: &RestoreStatus) -> bool {
    status.db_bytes.is_some()
}

/// Whether the status describes an attempt to restore the same source.
fn is_of(old: &RestoreStatus, restoring: &Restoring) -> bool {
    if restoring.survivor.is_some() {
        return old.uri.as_ref().is_none_or(|uri| uri.starts_with("volume:"));
    }
    let place = objects::store::uri(&restoring.source);
    let same = |uri: &String| {
        // The latched source is the folder; the report names an object in that folder.
        let below = place.as_ref().and_then(|place| uri.strip_prefix(place.as_str()));
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    old.uri.as_ref().is_none_or(same) && is_to(old.point.as_ref(), restoring.at.as_ref())
}

/// Whether a status is of a restore to this point.
fn is_to(point: Option<&PointStatus>, at: Option<&RestorePoint>) -> bool {
    let (Some(point), Some(at)) = (point, at) else { return point.is_none() && at.is_none() };
    match at.parse() {
        Ok(Point::Revision(revision)) => point.time.is_none() && point.revision == Some(revision),
        Ok(Point::Time(time)) => point.time.as_ref().is_some_and(|of| of.parse().is_ok_and(|of: Timestamp| of == time)),
        Err(_) => false,
    }
}

/// Returns the status with facts of the latched source in place of those that the restore step has not reported.
fn filled(status: RestoreStatus, restoring: Restoring) -> RestoreStatus {
    let Restoring { source, survivor, at, sha256, snapshot, revision_bump, newest, .. } = restoring;
    let by_name = layout::attempt_of_key(&source.key);
    let (whose, taken_at) = by_name.map(|(whose, at)| (whose, at.to_string())).unzip();
    // The newest snapshot need not be the one before the point.
    let newest = newest.filter(|_| at.is_none()).unwrap_or_default();
    let bump = if reported(&status) { status.revision_bump } else { revision_bump.filter(|bump| *bump > 0) };
    let non_empty = |text: String| (!text.is_empty()).then_some(text);
    RestoreStatus {
        uri: status.uri.or_else(|| survivor.is_none().then(|| objects::store::uri(&source)).flatten()),
        taken_at: status.taken_at.or_else(|| non_empty(newest.taken_at)).or(taken_at),
        from_cluster: status.from_cluster.or(whose),
        without_quorum: status.without_quorum || newest.without_quorum,
        sha256: status.sha256.or(sha256),
        revision: status.revision.or(newest.revision),
        point: status.point.or_else(|| at.as_ref().map(PointStatus::requested)),
        revision_bump: bump,
        snapshot: status.snapshot.or(snapshot),
        passed_over: newest.passed_over,
        ..status
    }
}

fn phase(seed: &Member, rebuilt: bool) -> RestorePhase {
    let Some(step) = seed.live_pod().and_then(|pod| pods::status(pod, container::RESTORE)) else {
        return RestorePhase::Pending;
    };
    let runs = step.state.as_ref().is_some_and(|state| state.running.is_some());
    match pods::last_end(step) {
        _ if rebuilt => RestorePhase::Starting,
        _ if runs => RestorePhase::Rebuilding,
        Some(_) => RestorePhase::Failed,
        None => RestorePhase::Pending,
    }
}

/// Returns the report of the seed's restore step.
fn restored_report(seed: &Member) -> Option<RestoredReport> {
    match pods::report(seed.live_pod()?, container::RESTORE)? {
        Report::Restored(report) => Some(report),
        _ => None,
    }
}

fn lineage(seed: &Member, report: RestoredReport) -> RestoreStatus {
    let non_empty = |text: String| (!text.is_empty()).then_some(text);
    RestoreStatus {
        uri: non_empty(report.uri),
        taken_at: non_empty(report.taken_at),
        from_cluster: non_empty(report.from_cluster),
        without_quorum: report.without_quorum,
        db_bytes: Some(report.db_bytes),
        sha256: non_empty(report.sha256),
        revision: report.revision,
        point: report.point.as_deref().map(PointStatus::reported),
        revision_bump: i64::try_from(report.revision_bump).ok().filter(|bump| *bump > 0),
        snapshot: seed.object.spec.restore.as_ref().and_then(|restoring| restoring.snapshot.clone()),
        came_along: report.came_along,
        not_compared: report.not_compared,
        engine: report.engine,
        fell_back: report.fell_back,
        passed_over: vec![],
        phase: None,
    }
}
