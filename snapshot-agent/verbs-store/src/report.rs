//! The end of a run: the termination message and the exit code.
//!
//! The message is a hint for the operator; the manifest in the store is the truth, so a lost message is harmless.
//! `report/text.rs` formats the texts for a terminal.

pub mod text;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use holdfast_contract::error::Error;
use holdfast_contract::{
    ComparedReport, DrilledReport, ExitClass, FailedReport, Failure, MAX_REPORT_BYTES, Probed, RemovalReport, Report,
};
use holdfast_io::interrupt;
use serde::Serialize;

/// File from which kubelet reads a container's termination message (Kubernetes' default path).
const TERMINATION_LOG: &str = "/dev/termination-log";

/// Variable that names another file, for tests and for runs without Kubernetes.
const TERMINATION_LOG_ENV: &str = "HOLDFAST_TERMINATION_LOG";

/// Ends a run: writes the report to kubelet's file and returns the exit code.
///
/// Outside a Pod the file does not exist, and the agent writes nothing.
pub fn finish(outcome: &Result<Report, Error>) -> u8 {
    leave(&render(outcome));
    match outcome {
        Ok(_) => 0,
        Err(error) => by_hand(error.failure().code),
    }
}

/// Exit code that shells expect after Ctrl-C: 128 and the signal's number.
const ENDED_BY_HAND: u8 = 130;

/// Returns the exit code of a failed run, unless Ctrl-C has ended it.
fn by_hand(code: u8) -> u8 {
    if code != 0 && interrupt::by_hand() { ENDED_BY_HAND } else { code }
}

/// Ends a probe: reports the findings even if the store is not usable.
pub fn finish_probe(probed: &Probed) -> u8 {
    leave(&fit(Report::Probed(probed.clone())));
    probed.failed.as_ref().map_or(0, |failed| by_hand(failed.failure().code))
}

/// Ends a drill: reports the snapshot's key also after a failure.
pub fn finish_drill(drilled: &DrilledReport) -> u8 {
    leave(&fit(Report::Drilled(drilled.clone())));
    drilled.failed.as_ref().map_or(0, |failed| by_hand(failed.failure().code))
}

/// Ends a comparison: reports the members even if their data differ.
pub fn finish_comparison(compared: &ComparedReport) -> u8 {
    leave(&fit(Report::Compared(compared.clone())));
    if compared.agrees() { 0 } else { by_hand(Failure::for_class(ExitClass::MembersDiffer, None).code) }
}

/// Ends a removal: reports a prune even if the run ended early.
pub fn finish_removal(report: &RemovalReport) -> u8 {
    leave(&render_removal(report));
    by_hand(code_of_removal(report))
}

/// Returns the exit code. A run that a doubt has stopped has failed.
fn code_of_removal(report: &RemovalReport) -> u8 {
    let (failed, refused) = match report {
        RemovalReport::Pruned(pruned) => (pruned.failed.as_ref(), pruned.stopped.as_ref()),
        RemovalReport::Removed(removed) => (None, removed.refused.as_ref()),
    };
    match (failed, refused) {
        (Some(failed), _) => failed.failure().code,
        (None, Some(_)) => Failure::for_class(ExitClass::Refused, None).code,
        (None, None) => 0,
    }
}

/// Renders the report of a removal as JSON of at most [`MAX_REPORT_BYTES`].
pub fn render_removal(report: &RemovalReport) -> String {
    shorten(report.clone(), RemovalReport::cut)
}

fn leave(report: &str) {
    let path = std::env::var_os(TERMINATION_LOG_ENV).map_or_else(|| PathBuf::from(TERMINATION_LOG), PathBuf::from);
    // Without `create`: kubelet creates the file before the container starts.
    let written = match OpenOptions::new().write(true).truncate(true).open(&path) {
        Ok(mut file) => file.write_all(report.as_bytes()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = written {
        tracing::warn!(path = %path.display(), %error, "could not write the report");
    }
}

/// Renders the report as JSON of at most [`MAX_REPORT_BYTES`]: a cut message is better than cut JSON.
pub fn render(outcome: &Result<Report, Error>) -> String {
    fit(match outcome {
        Ok(report) => report.clone(),
        Err(error) => match error.gate_report() {
            Some(report) => Report::Gate(report.clone()),
            None => Report::Failed(FailedReport {
                class: error.class(),
                origin: error.origin(),
                message: error.message().to_owned(),
            }),
        },
    })
}

fn fit(report: Report) -> String {
    shorten(report, cut)
}

fn shorten<T: Serialize>(mut report: T, cut: impl Fn(&mut T) -> bool) -> String {
    loop {
        let json = serde_json::to_string(&report).unwrap_or_default();
        if json.len() <= MAX_REPORT_BYTES || !cut(&mut report) {
            return json;
        }
    }
}

/// Shortens the report; `false` when nothing is left to cut. Escapes make the JSON longer than the text, so several rounds may
/// be needed.
fn cut(report: &mut Report) -> bool {
    let message = match report {
        Report::Failed(failed) => &mut failed.message,
        Report::Gate(gate) => &mut gate.message,
        Report::Saved(saved) => return saved.cut(),
        Report::Restored(restored) => return restored.cut(),
        Report::Latest(latest) => return latest.passed_over.pop().is_some(),
        Report::Probed(probed) => return probed.cut(),
        Report::Compared(compared) => return compared.cut(),
        Report::Drilled(drilled) => return drilled.cut(),
        Report::Surveyed(surveyed) => return surveyed.cut(),
        // The agent bounds its length, and the operator would never record a run that is cut away.
        Report::Recalled(_) => return false,
    };
    let half = message.floor_char_boundary(message.len() / 2);
    message.truncate(half);
    message.push('…');
    true
}

#[cfg(test)]
mod tests {
    use holdfast_contract::{
        CameAlong, DifferenceKind, Finding, GateReport, Level, MemberDifference, Outcome, PruneReport, RemovedReport,
        RestoredReport, SavedReport, Stopped, Trial, Verification,
    };
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_refusal_of_the_gate_keeps_its_verdict() {
        let report = GateReport { verdict: "EmptyVolume".to_owned(), message: "do this".to_owned() };
        let json = render(&Err(Error::gate(report.clone())));
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), Report::Gate(report));
    }

    #[test]
    fn a_removal_that_was_stopped_or_refused_does_not_end_well() {
        let failed = FailedReport { class: ExitClass::Denied, origin: None, message: "403".to_owned() };
        let stopped = || Some(Stopped { reason: "BackupOverdue".to_owned(), message: "x".to_owned() });
        let pruned = |stopped, failed| {
            code_of_removal(&RemovalReport::Pruned(Box::new(PruneReport { stopped, failed, ..PruneReport::default() })))
        };
        let refused = Failure::for_class(ExitClass::Refused, None).code;
        assert_ne!(refused, 0);
        assert_eq!((pruned(None, None), pruned(stopped(), None)), (0, refused));
        assert_eq!(pruned(stopped(), Some(failed.clone())), failed.failure().code);
        let removed = RemovedReport { refused: stopped(), ..RemovedReport::default() };
        assert_eq!(code_of_removal(&RemovalReport::Removed(removed)), refused);
    }

    #[test]
    fn a_difference_of_members_always_fits_and_names_a_member() {
        let difference = MemberDifference {
            member: "\u{1}".repeat(500),
            member_id: "590a6a550598115b".to_owned(),
            kind: DifferenceKind::LearnerInData,
            data_of: "m1".to_owned(),
            data_of_id: "d1d8a5ecbb153ae2".to_owned(),
        };
        let report = ComparedReport { differences: vec![difference; 90], ..ComparedReport::default() };
        let json = fit(Report::Compared(report));
        assert!(json.len() <= MAX_REPORT_BYTES, "{}", json.len());
        let Ok(Report::Compared(report)) = serde_json::from_str(&json) else { panic!("{json}") };
        assert!(!report.agrees() && report.left_out + report.differences.len() == 90);
        assert_eq!(report.differences[0].member_id, "590a6a550598115b");
    }

    #[test]
    fn a_success_is_its_report() {
        let report = Report::Saved(Box::new(SavedReport { key: "a/b".to_owned(), ..SavedReport::default() }));
        let json = render(&Ok(report.clone()));
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    }

    #[test]
    fn what_a_probe_has_found_always_fits() {
        let findings = Trial::ALL.map(|trial| Finding {
            trial,
            outcome: Outcome::No,
            needed: trial.needed(),
            detail: "the store said \"<html>\n\".".repeat(100),
        });
        let failed = FailedReport { class: ExitClass::Denied, origin: None, message: "\"".repeat(5000) };
        let store = "s3://b".to_owned();
        let (findings, store_id) = (findings.to_vec(), Some("x".repeat(64)));
        let probed = Probed { store, usable: false, findings, store_id, left_behind: None, failed: Some(failed) };
        let json = fit(Report::Probed(probed));
        assert!(json.len() <= MAX_REPORT_BYTES, "{}", json.len());
        let Ok(Report::Probed(probed)) = serde_json::from_str(&json) else { panic!("{json}") };
        assert_eq!(probed.findings.len(), Trial::ALL.len());
        assert_eq!(probed.failed.unwrap().class, ExitClass::Denied);
    }

    /// Cut JSON cannot be read, and a repeated report of the same manifest would be cut again: the operator would never learn
    /// of the snapshot.
    #[test]
    fn what_was_saved_always_fits_and_still_says_where_it_is() {
        let (key, uri) = ("k".repeat(600), format!("s3://{}", "k".repeat(1200)));
        let told = Verification {
            level: Level::HashKV,
            agreed_by: vec!["\u{1}".repeat(500); 2],
            agreed_by_reason: Some("ä".repeat(600)),
            read_back_reason: Some("the store said \"<html>\n\".".repeat(300)),
            ..Verification::default()
        };
        let many = Verification { differences: vec!["members differ".to_owned(); 500], ..told.clone() };
        let long = Verification { differences: vec!["the snapshot has the members 1, ".repeat(200); 4], ..told };
        for verification in [many, long] {
            let report = SavedReport {
                key: key.clone(),
                uri: uri.clone(),
                sha256: "0".repeat(64),
                stored_sha256: "1".repeat(64),
                member: "m".repeat(3000),
                member_id: "f".repeat(16),
                verification: Some(verification),
                ..SavedReport::default()
            };
            let json = fit(Report::Saved(Box::new(report.clone())));
            assert!(json.len() <= MAX_REPORT_BYTES, "{}", json.len());
            let Ok(Report::Saved(left)) = serde_json::from_str(&json) else { panic!("{json}") };
            assert_eq!((&left.key, &left.uri, &left.sha256), (&key, &uri, &report.sha256));
            assert_eq!((&left.stored_sha256, &left.member_id), (&report.stored_sha256, &report.member_id));
            let told = left.verification.unwrap();
            assert!(told.level == Level::HashKV && told.read_back_reason.is_some(), "{told:?}");
        }
        let short = Report::Saved(Box::new(SavedReport { key, uri, ..SavedReport::default() }));
        assert_eq!(serde_json::from_str::<Report>(&fit(short.clone())).unwrap(), short, "nothing is cut for nothing");
    }

    #[test]
    fn what_came_along_always_fits() {
        let names = vec!["\u{1}".repeat(64); 20];
        let came_along = CameAlong { users: 20, user_names: names.clone(), raised: names, ..CameAlong::default() };
        let uri = format!("s3://{}", "k".repeat(1000));
        let report = RestoredReport { uri: uri.clone(), came_along: Some(came_along), ..RestoredReport::default() };
        let json = fit(Report::Restored(report));
        assert!(json.len() <= MAX_REPORT_BYTES, "{}", json.len());
        let Ok(Report::Restored(report)) = serde_json::from_str(&json) else { panic!("{json}") };
        let told = report.came_along.unwrap();
        assert_eq!((report.uri, told.users, told.user_names.len()), (uri.clone(), 20, 0));
        assert!(!told.raised.is_empty());

        let not_compared = Some("\u{1}".repeat(1000));
        let report = RestoredReport { uri: uri.clone(), not_compared, ..RestoredReport::default() };
        let json = fit(Report::Restored(report));
        assert!(json.len() <= MAX_REPORT_BYTES, "{}", json.len());
        let Ok(Report::Restored(report)) = serde_json::from_str(&json) else { panic!("{json}") };
        assert!(report.uri == uri && report.not_compared.is_some_and(|why| why.ends_with('…')));
    }

    proptest! {
        #[test]
        fn a_report_always_fits_and_always_parses(message in "\\PC{0,200}", times in 1usize..200) {
            let json = render(&Err(Error::new(ExitClass::Transient, message.repeat(times))));
            prop_assert!(json.len() <= MAX_REPORT_BYTES);
            prop_assert!(serde_json::from_str::<Report>(&json).is_ok());
        }
    }
}
