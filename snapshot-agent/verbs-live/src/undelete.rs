//! `agent undelete`: compares the keys below a prefix at a point with a live etcd, and puts back those that are missing.
//!
//! This file decides the order, which differences go back, and whether point and etcd are one history. A put goes back only where the
//! key is as it was in the comparison: another client's write always stays. Memory holds a page of etcd, a part of the point and one
//! transaction; the rest lies in the scratch folder. `rebuild/src/restore/undelete.rs` has restored the point, `select.rs` decides which
//! keys count, `table.rs` sorts them, `differences.rs` joins both sides, `snapshot-agent/etcd/src/keys.rs` asks etcd.

mod apply;
mod differences;
mod select;
mod table;

use std::fs::File;
use std::time::Duration;

use futures::future::BoxFuture;
use holdfast_bbolt::scan::{Reader, Record};
use holdfast_catalog::past::PastState;
use holdfast_contract::error::{Error, Result, io_error, task_error};
use holdfast_contract::{MAX_NAMED_KEYS, UndeleteReport, UndeleteRequest, hex_id};
use holdfast_etcd::keys::{Keys, Unread};
use holdfast_io::interrupt::Interrupt;
use holdfast_io::memory::file_budget;
use holdfast_io::progress::Progress;
use holdfast_io::table::printable;
use holdfast_verbs_common::{bytes, lines, progress_server, unsound};

pub use differences::{Difference, Differences, Sort};
use differences::{Join, Writer};
use select::Selection;
use table::{Table, TableBuilder};

/// Memory for the keys of the point while they are sorted. More makes fewer files.
const SORT_BYTES: usize = 32 << 20;

/// Keys of the point in one range of the live etcd: for each page etcd counts all keys of the range, so that one range for all pages would take
/// the square of the time.
const KEYS_OF_RANGE: usize = 20_000;

/// Comparisons before etcd's compactions count as too frequent: Kubernetes compacts every five minutes.
const ATTEMPTS: u32 = 5;

/// Without progress for this long the run ends: longer than etcd's client repeats a request.
const STALL: Duration = Duration::from_mins(3);

/// A finished run.
#[derive(Debug)]
pub struct Ended {
    /// The result, also of a run that ended early.
    pub report: UndeleteReport,
    /// All differences.
    pub differences: Differences,
    /// The reason for which not all keys went back.
    pub failed: Option<Error>,
}

/// Compares, and puts keys back if the request says so.
pub fn run(request: UndeleteRequest, past: PastState) -> BoxFuture<'static, Result<Ended>> {
    Box::pin(async move {
        let mut interrupt = match request.deadline_seconds {
            Some(seconds) => {
                Interrupt::after(Duration::from_secs(seconds.into()).saturating_sub(past.began.elapsed()).as_secs())?
            }
            None => Interrupt::by_signal()?,
        };
        let port = request.progress_port;
        progress_server::serve_beside(port, undelete(&request, past, &mut interrupt)).await
    })
}

async fn undelete(request: &UndeleteRequest, past: PastState, interrupt: &mut Interrupt) -> Result<Ended> {
    let selection = Selection::from_request(request)?;
    let mut keys = interrupt.unless(Keys::connect(&request.etcd)).await?;
    let same_cluster = past.cluster_id == Some(keys.cluster_id());
    if !same_cluster && !request.from_another_cluster {
        return Err(other_cluster(&past, keys.cluster_id()));
    }
    let one_history = (!request.from_another_cluster).then_some(past.revision);
    let (past, table) = interrupt.unless(sort(past, selection.clone())).await?;
    let mut report = UndeleteReport {
        cluster_id: hex_id(keys.cluster_id()),
        uri: past.uri.clone(),
        revision: past.revision,
        proof: past.proof,
        point: table.count,
        ..UndeleteReport::default()
    };
    let comparison = Comparison { selection: &selection, table: &table, one_history };
    let path = interrupt.unless(comparison.repeat(&mut keys, &past, &mut report)).await?;
    let differences = Differences::new(path, past.scratch);
    tracing::info!(
        revision = report.compared_at,
        missing = report.missing.keys,
        changed = report.changed.keys,
        added = report.added.keys,
        "compared"
    );
    let mut failed = None;
    if request.apply {
        let mut applied = holdfast_contract::Applied::default();
        let putting = apply::apply(&mut keys, request, (&table, &differences, &report), &mut applied);
        failed = interrupt.unless(putting).await.err();
        report.applied = Some(applied);
    }
    Ok(Ended { report, differences, failed })
}

fn other_cluster(past: &PastState, live: u64) -> Error {
    let point = past
        .cluster_id
        .map_or_else(|| "an unknown etcd cluster".to_owned(), |id| format!("etcd cluster {}", hex_id(id)));
    Error::unclear(format!(
        "the point {} is of {point}, and the endpoints lead to etcd cluster {}. Name the endpoints of the saved etcd; if the keys of \
         another cluster, or of this one before a restore, shall come back, give --from-another-cluster",
        past.uri,
        hex_id(live)
    ))
}

/// Sorts the selected keys of the point, and removes its database.
async fn sort(past: PastState, selection: Selection) -> Result<(PastState, Table)> {
    let progress = Progress::new("sorting the keys of the point", past.db_bytes);
    let counted = progress.clone();
    let sorting = tokio::task::spawn_blocking(move || {
        let doing = || format!("reading {}", past.path.display());
        let file = File::open(&past.path).map_err(io_error(doing()))?;
        let wrong = |error| unsound(&past.path.display().to_string(), &error);
        let mut reader = Reader::open(&file, past.db_bytes, file_budget()).map_err(wrong)?;
        let (mut builder, mut failed) = (TableBuilder::new(&past.scratch, SORT_BYTES), None);
        let add = |record: Record<'_>| {
            counted.add(record.key.len() + record.value.len());
            if failed.is_none() && selection.has(record.key) {
                let value = (!record.tombstone).then_some(record.value);
                failed = builder.add(record.key, value, (record.main, record.lease)).err();
            }
        };
        reader.records(add).map_err(wrong)?;
        if let Some(error) = failed {
            return Err(error);
        }
        let table = builder.finish()?;
        // Only the table is needed, and the list of differences needs room.
        std::fs::remove_file(&past.path).map_err(io_error(doing()))?;
        Ok((past, table))
    });
    progress.watch(STALL, async { sorting.await.map_err(|error| task_error(&error))? }).await
}

/// A comparison of a table with the live keys.
struct Comparison<'a> {
    selection: &'a Selection,
    table: &'a Table,
    /// Revision of the point, if the live etcd has to be its later state.
    one_history: Option<i64>,
}

impl Comparison<'_> {
    /// Compares at etcd's newest revision, again if etcd compacts it meanwhile. Returns the path of the list.
    async fn repeat(
        &self,
        keys: &mut Keys,
        past: &PastState,
        report: &mut UndeleteReport,
    ) -> Result<std::path::PathBuf> {
        let empty = report.clone();
        for attempt in 1..=ATTEMPTS {
            let mut writer = Writer::new(&past.scratch, &format!("differences-{attempt}"))?;
            let progress = Progress::new("comparing", self.table.count.bytes);
            let compared = progress.watch(STALL, async {
                match self.compare(keys, report, &mut writer, &progress).await {
                    Err(Unread::Failed(error)) => Err(error),
                    Ok(()) => Ok(true),
                    Err(Unread::Compacted) => Ok(false),
                }
            });
            if compared.await? {
                return writer.finish();
            }
            tracing::warn!(
                revision = report.compared_at,
                "etcd has compacted the revision of the comparison, which begins again"
            );
            *report = empty.clone();
        }
        Err(Error::transient(format!(
            "etcd has compacted the revision of the comparison {ATTEMPTS} times. Select fewer keys with --prefix, or let etcd compact \
             less often meanwhile (kube-apiserver: --etcd-compaction-interval)"
        ))
        .with_origin(holdfast_contract::Origin::Etcd))
    }

    async fn compare(
        &self,
        keys: &mut Keys,
        report: &mut UndeleteReport,
        writer: &mut Writer,
        progress: &Progress,
    ) -> Result<(), Unread> {
        let mut join = Join::new(self.table.keys().map_err(Unread::Failed)?, self.one_history);
        let mut ahead = self.table.keys().map_err(Unread::Failed)?;
        let (mut from, end) = self.selection.range();
        let mut revision = 0;
        loop {
            let bound = ahead.nth(KEYS_OF_RANGE - 1).transpose().map_err(Unread::Failed)?.map(|past| past.key);
            loop {
                let page = keys.page(&from, bound.as_deref().unwrap_or(&end), revision).await?;
                if revision == 0 {
                    revision = page.revision;
                    report.compared_at = revision;
                    self.check_revision(revision).map_err(Unread::Failed)?;
                }
                for live in &page.keys {
                    let bytes = live.key.len() + live.value.len();
                    progress.add(bytes);
                    if self.selection.has(&live.key) {
                        report.live.add(bytes as u64);
                        join.live(live, |found| note(report, writer, found)).map_err(Unread::Failed)?;
                    }
                }
                progress.moved();
                match page.keys.last() {
                    Some(last) if page.more => from = [last.key.as_slice(), &[0]].concat(),
                    Some(_) | None => break,
                }
            }
            let Some(bound) = bound else { break };
            from = bound;
        }
        join.finish(|found| note(report, writer, found)).map_err(Unread::Failed)
    }

    /// Refuses an etcd that has not reached the point.
    fn check_revision(&self, live: i64) -> Result<()> {
        match self.one_history {
            Some(point) if live < point => Err(Error::unclear(format!(
                "etcd is at revision {live}, and the point is the later revision {point}: etcd was restored in place, or lost writes. To \
                 compare all the same, give --from-another-cluster"
            ))),
            Some(_) | None => Ok(()),
        }
    }
}

/// Counts a difference, names it while there are few, and writes it to the list.
fn note(report: &mut UndeleteReport, writer: &mut Writer, found: &Difference) -> Result<()> {
    let (count, names, bytes) = match found.difference {
        Sort::Missing => (&mut report.missing, &mut report.missing_keys, found.point_bytes),
        Sort::Changed => (&mut report.changed, &mut report.changed_keys, found.point_bytes),
        Sort::Added => (&mut report.added, &mut report.added_keys, found.live_bytes),
    };
    count.add(bytes);
    name(names, &found.key);
    if found.lease != 0 {
        report.with_lease.add(bytes);
    }
    writer.add(found)
}

/// Formats a report for a terminal.
pub fn text(report: &UndeleteReport, request: &UndeleteRequest) -> String {
    lines(&report.rows(request, bytes))
}

/// Names a key, if not too many are named.
fn name(names: &mut Vec<String>, key: &[u8]) {
    if names.len() < MAX_NAMED_KEYS {
        names.push(printable(key));
    }
}
