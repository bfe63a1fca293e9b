//! The report of a prune: a line for each folder, and the numbers for the operator.
//!
//! This file decides the wording and the order only.

use holdfast_contract::error::Error;
use holdfast_contract::{Announced, FailedReport, MAX_NAMED, PruneReport, PrunedLog, Stopped};
use holdfast_io::table::align_columns;
use holdfast_layout::retention::Verdict;
use indicatif::HumanBytes;
use jiff::Timestamp;
use serde::Serialize;

use super::Run;
use super::log::LogPart;
use holdfast_catalog::inventory::Found;

/// Findings and actions of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pruned {
    /// Numbers for the operator.
    pub report: PruneReport,
    /// Every folder of the lineage, the newest first.
    pub snapshots: Vec<Row>,
    /// A loss of keys that stops nothing, because such losses are usual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usual_loss: Option<String>,
    /// Reason for which the run ended early.
    #[serde(skip)]
    pub failed: Option<Error>,
    /// Whether the run was a dry run.
    pub dry_run: bool,
}

/// One folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The folder below the store's prefix.
    pub key: String,
    /// Start of the save.
    pub taken_at: Timestamp,
    /// `keep`, `drop`, `removed` or `untouched`.
    pub verdict: &'static str,
    /// Reason for the verdict.
    pub why: String,
    /// Stored bytes of a complete snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<u64>,
}

impl Run {
    /// Returns the final report.
    pub(super) fn into_pruned(self, earlier_lineages: Vec<String>, failed: Option<Error>) -> Pruned {
        let mut report = self.report(failed.as_ref());
        report.earlier_lineages = earlier_lineages;
        let mut snapshots: Vec<Row> = self.judged().map(|(found, verdict)| self.report_row(found, verdict)).collect();
        snapshots.sort_by(|a, b| (b.taken_at, &b.key).cmp(&(a.taken_at, &a.key)));
        Pruned { report, snapshots, usual_loss: self.seen.usual_loss, failed, dry_run: self.request.dry_run }
    }

    fn judged(&self) -> impl Iterator<Item = (&Found, &Verdict)> {
        self.seen.found.iter().zip(&self.seen.verdicts)
    }

    fn report_row(&self, found: &Found, verdict: &Verdict) -> Row {
        let key = found.entry.key.clone();
        let lock = self.seen.locked.get(&key).map(|lasting| match lasting.until {
            Some(until) if !lasting.legal_hold => format!("locked until {until}"),
            None if !lasting.legal_hold => "the store denies the removal".to_owned(),
            _ => "legal hold".to_owned(),
        });
        let (word, why) = if self.seen.removed.contains_key(&key) {
            let why = if found.half { "its removal had begun" } else { "announced, and no rule keeps it" };
            ("removed", why.to_owned())
        } else if verdict.is_drop() {
            let announced = self.permit(found).map(|permit| format!("announced, not before {}", permit.not_before));
            let now = self.seen.announced.contains(&key).then(|| "announced now".to_owned());
            let state = lock.or(announced).or(now).unwrap_or_else(|| "not announced".to_owned());
            (verdict.word(), format!("{}; {state}", verdict.why()))
        } else {
            (verdict.word(), std::iter::once(verdict.why()).chain(lock).collect::<Vec<_>>().join("; "))
        };
        let stored_bytes = found.snapshot.as_ref().map(|snapshot| snapshot.stored_bytes);
        Row { key, taken_at: found.entry.at, verdict: word, why, stored_bytes }
    }

    fn report(&self, failed: Option<&Error>) -> PruneReport {
        let mut report = PruneReport {
            record: self.seen.record.clone(),
            log: self.report_log(),
            removed: self.seen.removed.len() as u64,
            removed_bytes: self.seen.removed.values().sum(),
            unknown_files: self.seen.unknown.iter().take(MAX_NAMED).cloned().collect(),
            stopped: self
                .seen
                .stop
                .as_ref()
                .map(|stop| Stopped { reason: stop.reason().to_owned(), message: stop.message() }),
            failed: failed.map(|error| FailedReport {
                class: error.class(),
                origin: error.origin(),
                message: error.message().to_owned(),
            }),
            ..PruneReport::default()
        };
        let candidates = self.seen.found.iter().filter(|found| found.entry.subject.is_ok());
        report.newest =
            candidates.max_by_key(|found| (found.entry.at, &found.entry.key)).map(|it| it.entry.key.clone());
        for (found, verdict) in self.judged().filter(|(found, _)| !self.seen.removed.contains_key(&found.entry.key)) {
            match verdict {
                Verdict::Keep(_) => {
                    report.kept += 1;
                    report.bytes += bytes_of(found);
                }
                Verdict::Untouched(_) if !self.seen.locked.contains_key(&found.entry.key) => report.untouched += 1,
                Verdict::Untouched(_) | Verdict::Drop => self.count_dropped(&mut report, found),
            }
        }
        report
    }

    /// Returns the numbers of the log; after an error those that the run knows.
    fn report_log(&self) -> Option<PrunedLog> {
        let log = self.seen.logs.iter().map(LogPart::report).reduce(PrunedLog::with);
        match &self.seen.log_failed {
            Some(error) => Some(PrunedLog { kept: Some(error.message().to_owned()), ..log.unwrap_or_default() }),
            None => log,
        }
    }

    /// Counts a dropped or half-removed snapshot that still exists: locked, announced, or neither.
    fn count_dropped(&self, report: &mut PruneReport, found: &Found) {
        let key = &found.entry.key;
        if let Some(lasting) = self.seen.locked.get(key) {
            let pile = report.locked.get_or_insert_default();
            pile.count += 1;
            let until = lasting.until.filter(|_| !lasting.legal_hold);
            pile.until = pile.until.into_iter().chain(until).min();
            return;
        }
        let now = self.seen.announced.contains(key).then(|| self.not_before());
        match self.permit(found).map(|permit| permit.not_before).or(now) {
            Some(not_before) => add(&mut report.announced, found.entry.at, bytes_of(found), not_before),
            None => report.unannounced += 1,
        }
    }
}

fn bytes_of(found: &Found) -> u64 {
    found.snapshot.as_ref().map_or(0, |snapshot| snapshot.stored_bytes)
}

/// Adds an announced snapshot.
fn add(pile: &mut Option<Announced>, at: Timestamp, bytes: u64, not_before: Timestamp) {
    let pile = pile.get_or_insert_with(|| Announced { oldest: at, newest: at, not_before, ..Announced::default() });
    pile.count += 1;
    pile.bytes += bytes;
    pile.oldest = pile.oldest.min(at);
    pile.newest = pile.newest.max(at);
    pile.not_before = pile.not_before.min(not_before);
}

impl Pruned {
    /// Formats the result for a terminal: a line for each folder, then the totals.
    pub fn table(&self) -> String {
        let head = ["VERDICT", "TAKEN", "STORED", "WHY", "KEY"].map(str::to_owned);
        let rows = self.snapshots.iter().map(|row| {
            let stored = row.stored_bytes.map_or_else(|| "-".to_owned(), |bytes| HumanBytes(bytes).to_string());
            [row.verdict.to_owned(), row.taken_at.to_string(), stored, row.why.clone(), row.key.clone()]
        });
        let PruneReport { kept, bytes, untouched, removed, removed_bytes, unannounced, .. } = self.report;
        let announced = self.report.announced.as_ref().map_or(0, |pile| pile.count);
        let locked = self.report.locked.as_ref().map_or(0, |pile| pile.count);
        let mut text = format!(
            "{}{kept} kept ({}), {announced} announced, {unannounced} not announced, {locked} locked, {untouched} \
             untouched, {removed} removed ({})\n",
            align_columns(&std::iter::once(head).chain(rows).collect::<Vec<_>>()),
            HumanBytes(bytes),
            HumanBytes(removed_bytes),
        );
        let mut add = |line: String| text.push_str(&(line + "\n"));
        if let Some(log) = &self.report.log {
            add(describe_log(log));
        }
        for file in &self.report.unknown_files {
            add(format!("unknown file, not removed: {file}"));
        }
        for lineage in &self.report.earlier_lineages {
            add(format!("earlier lineage, not judged: {lineage}"));
        }
        if let Some(record) = &self.report.record {
            add(format!("announced in {record}"));
        }
        if let Some(loss) = &self.usual_loss {
            add(loss.clone());
        }
        if let Some(stopped) = &self.report.stopped {
            add(format!("nothing is removed ({}): {}", stopped.reason, stopped.message));
        }
        if self.dry_run {
            add("dry run: nothing was announced or removed".to_owned());
        }
        text
    }
}

fn describe_log(log: &PrunedLog) -> String {
    let PrunedLog { segments, bytes, unneeded, announced, locked, removed, removed_bytes, .. } = log;
    let state = format!(
        "the log: {segments} segments ({}), of which no snapshot needs {unneeded}, {announced} announced, {locked} locked, \
         {removed} removed ({})",
        HumanBytes(*bytes),
        HumanBytes(*removed_bytes)
    );
    log.kept.as_ref().map_or(state.clone(), |why| format!("{state}. It stays: {why}"))
}
