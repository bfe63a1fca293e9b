//! `agent log status`: what the log of a cluster covers, from the names of its objects.
//!
//! This file decides the rows. It reads no segment: `agent verify --log` does.

use holdfast_contract::error::{Error, Result};
use holdfast_contract::{LogStatusRequest, hex_id};
use holdfast_io::clock;
use holdfast_io::interrupt::Interrupt;
use holdfast_io::table::align_columns;
use holdfast_layout::{Folder, first8};
use holdfast_store::Store;
use indicatif::HumanBytes;
use jiff::Timestamp;
use serde::Serialize;

use holdfast_catalog::attempts::lineages;
use holdfast_catalog::log::bases::{Base, find_bases};
use holdfast_catalog::log::cover::{Cover, Hole, Range};
use holdfast_catalog::log::{BoundLog, list, logs_of};

/// Snapshots that are read, the newest first.
const MAX_BASES: usize = 100;

/// A log, and what it covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogStatus {
    /// URI of the log.
    pub uri: String,
    /// etcd cluster ID (hex).
    pub cluster_id: String,
    /// Revisions without a hole, in order.
    pub ranges: Vec<Range>,
    /// Holes between the ranges.
    pub holes: Vec<Hole>,
    /// Complete snapshots that the log continues, the newest first, each with the last revision that a restore can reach.
    pub bases: Vec<Reached>,
    /// Number of segments.
    pub segments: usize,
    /// Their stored bytes.
    pub bytes: u64,
    /// Number of checks.
    pub checks: usize,
    /// Age of the end of the log; `None`: the log has no segment.
    pub seconds_behind: Option<i64>,
}

/// A snapshot that the log continues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reached {
    /// The snapshot.
    #[serde(flatten)]
    pub base: Base,
    /// The last revision that follows the snapshot without a hole.
    pub reaches: i64,
}

/// Reads the logs of a cluster.
pub async fn run(request: LogStatusRequest) -> Result<Vec<LogStatus>> {
    let mut interrupt = Interrupt::after(request.deadline_seconds.into())?;
    let store = Store::open(&request.store)?;
    interrupt.unless(read(&store, &request)).await
}

async fn read(store: &Store, request: &LogStatusRequest) -> Result<Vec<LogStatus>> {
    let wanted = request.lineage.as_deref().map(|lineage| (lineage, first8("lineage", lineage)));
    let is_wanted = |folder: &Folder| {
        wanted.as_ref().is_none_or(|(whole, short)| folder.name() == *whole || short.as_deref() == Ok(folder.name()))
    };
    let mut logs = Vec::new();
    for lineage in lineages(store, &request.namespace, &request.cluster, None).await? {
        if !is_wanted(&lineage) {
            continue;
        }
        for log in logs_of(store, &lineage).await? {
            logs.push(status(store, &lineage, log, clock::now()).await?);
        }
    }
    if logs.is_empty() {
        let place = Folder::of_cluster(&request.namespace, &request.cluster, None);
        let place = place.map_err(|error| holdfast_store::layout(&error))?;
        return Err(Error::not_found(format!(
            "no log is below {}. `agent log` with the same --namespace and --cluster records one",
            store.uri(&place)
        )));
    }
    Ok(logs)
}

async fn status(store: &Store, lineage: &Folder, log: BoundLog, now: Timestamp) -> Result<LogStatus> {
    let BoundLog { folder: log, cluster_id } = log;
    let listed = list(store, &log).await?;
    let bytes = listed.segments.iter().map(|(_, bytes)| bytes).sum();
    let segments = listed.segments.len();
    let cover = Cover::join(listed.segments.into_iter().map(|(name, _)| name).collect(), &listed.gaps);
    let bases = find_bases(store, lineage, cluster_id, MAX_BASES).await?;
    let reached = |base: Base| Some(Reached { reaches: cover.range_after(base.revision)?.last, base });
    let until = cover.ranges.iter().map(|range| range.until).max();
    Ok(LogStatus {
        uri: store.uri(&log),
        cluster_id: hex_id(cluster_id),
        bases: bases.into_iter().filter_map(reached).collect(),
        ranges: cover.ranges,
        holes: cover.holes,
        segments,
        bytes,
        checks: listed.checks.len(),
        seconds_behind: until.map(|until| now.as_second().saturating_sub(until.as_second()).max(0)),
    })
}

/// Formats logs for a terminal.
pub fn table(logs: &[LogStatus]) -> String {
    logs.iter().map(LogStatus::table).collect::<Vec<_>>().join("\n")
}

impl LogStatus {
    fn table(&self) -> String {
        let mut rows = vec![["", "FROM", "TO", ""].map(str::to_owned)];
        let mut row = |what: &str, from: i64, to: i64, more: String| {
            rows.push([what.to_owned(), from.to_string(), to.to_string(), more]);
        };
        let mut holes = self.holes.iter();
        for range in &self.ranges {
            row("covered", range.first, range.last, format!("{} segments, until {}", range.segments, range.until));
            if let Some(hole) = holes.next() {
                let why = match hole {
                    Hole { compacted: true, .. } => "etcd had compacted them",
                    Hole { removed: true, .. } => "retention removed them",
                    Hole { .. } => "segments are missing",
                };
                row("HOLE", hole.after.saturating_add(1), hole.until, why.to_owned());
            }
        }
        for Reached { base, reaches } in &self.bases {
            row("snapshot", base.revision, *reaches, base.key.clone());
        }
        let behind = match self.seconds_behind {
            Some(seconds) => format!("{seconds} s behind"),
            None => "without a segment yet".to_owned(),
        };
        let base = if self.bases.is_empty() { ". No snapshot precedes the log: save one now" } else { "" };
        format!(
            "{}\netcd cluster {}: {} segments, {}, {} checks, {behind}{base}\n{}",
            self.uri,
            self.cluster_id,
            self.segments,
            HumanBytes(self.bytes),
            self.checks,
            align_columns(&rows)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_stand_between_the_ranges() {
        let until: Timestamp = "2026-11-28T10:42:07Z".parse().unwrap();
        let range = |first, last| Range { first, last, until, segments: 2 };
        let base = Base {
            key: "shop/orders/1a2b3c4d/x".to_owned(),
            revision: 9,
            started_at: until,
            ended_at: until,
            least: 0,
        };
        let mut status = LogStatus {
            uri: "s3://b/shop/orders/1a2b3c4d/log".to_owned(),
            cluster_id: "cafe".to_owned(),
            ranges: vec![range(2, 20), range(31, 40), range(51, 60), range(71, 80)],
            holes: vec![
                Hole { after: 20, until: 30, compacted: true, removed: false },
                Hole { after: 40, until: 50, compacted: false, removed: true },
                Hole { after: 60, until: 70, compacted: false, removed: false },
            ],
            bases: vec![Reached { base, reaches: 20 }],
            segments: 6,
            bytes: 2048,
            checks: 1,
            seconds_behind: Some(7),
        };
        let text = table(&[status.clone()]);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(
            lines,
            [
                "s3://b/shop/orders/1a2b3c4d/log",
                "etcd cluster cafe: 6 segments, 2.00 KiB, 1 checks, 7 s behind",
                "          FROM  TO",
                "covered   2     20  2 segments, until 2026-11-28T10:42:07Z",
                "HOLE      21    30  etcd had compacted them",
                "covered   31    40  2 segments, until 2026-11-28T10:42:07Z",
                "HOLE      41    50  retention removed them",
                "covered   51    60  2 segments, until 2026-11-28T10:42:07Z",
                "HOLE      61    70  segments are missing",
                "covered   71    80  2 segments, until 2026-11-28T10:42:07Z",
                "snapshot  9     20  shop/orders/1a2b3c4d/x",
            ]
        );
        status.bases.clear();
        assert!(table(&[status]).contains("No snapshot precedes the log"));
    }
}
