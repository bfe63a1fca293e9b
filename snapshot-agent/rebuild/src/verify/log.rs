//! `agent verify --log`: reads every segment of a log.
//!
//! This file decides the faults of a log: a segment that cannot be read or that holds other revisions than its name says, two
//! segments that differ about a revision, and a hole that no gap explains. It names every fault. An archived segment is named and
//! not read, but the newest one has to be readable. Memory holds one segment, and a checksum for each revision that the next
//! segment may hold too.

use std::sync::Arc;

use bytes::Bytes;
use holdfast_contract::error::{Error, Result, task_error};
use holdfast_contract::{ExitClass, VerifyRequest, hex_id};
use holdfast_io::interrupt::Interrupt;
use holdfast_layout::{Folder, SegmentName, first8};
use holdfast_segment::{Entry, Header, RevisionSum, SegmentError};
use holdfast_store::Store;
use serde::Serialize;

use holdfast_catalog::attempts::lineages;
use holdfast_catalog::log::cover::Cover;
use holdfast_catalog::log::joints::{Fork, Joints};
use holdfast_catalog::log::read::{fetch, open, unreadable};
use holdfast_catalog::log::{BoundLog, list, logs_of};
use holdfast_format::crypt::Identities;

/// Maximum number of faults in a message.
const MAX_NAMED: usize = 8;

/// Result for a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogVerified {
    /// URI of the log.
    pub uri: String,
    /// etcd cluster ID (hex).
    pub cluster_id: String,
    /// Segments that were read.
    pub segments: usize,
    /// Segments that the store has archived: they were not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub archived: Vec<String>,
    /// First and last revision of each range without a hole.
    pub ranges: Vec<(i64, i64)>,
    /// Changes in the segments; a change in two segments counts twice.
    pub records: u64,
    /// Gaps: revisions that etcd had compacted.
    pub gaps: usize,
    /// Checks by HashKV.
    pub checks: usize,
}

impl LogVerified {
    pub(super) fn lines(&self) -> String {
        let ranges: Vec<_> = self.ranges.iter().map(|(first, last)| format!("{first} to {last}")).collect();
        let ranges = if ranges.is_empty() { "no revision".to_owned() } else { ranges.join(", ") };
        let archived = self.archived.iter().map(|uri| format!("not read, because the store has archived it: {uri}\n"));
        let archived = archived.collect::<Vec<_>>().concat();
        format!(
            "{}\netcd cluster {}: {ranges}\n{archived}{} segments with {} changes were read, {} gaps, {} checks by HashKV\n",
            self.uri, self.cluster_id, self.segments, self.records, self.gaps, self.checks
        )
    }
}

/// Verifies the logs of one lineage.
pub(super) async fn run(request: &VerifyRequest) -> Result<Vec<LogVerified>> {
    let mut interrupt = Interrupt::after(request.deadline_seconds.into())?;
    let (Some(flags), Some(namespace), Some(cluster)) = (&request.snapshot.store, &request.namespace, &request.cluster)
    else {
        return Err(Error::config("--log needs --store, --namespace and --cluster"));
    };
    let identities = match request.snapshot.identities.as_slice() {
        [] => None,
        files => Some(Identities::read_files(files)?),
    };
    let store = Store::open(flags)?;
    let verifying = async {
        let identities = Arc::new(identities);
        let mut verified = Vec::new();
        for log in find(&store, (namespace, cluster), request.lineage.as_deref()).await? {
            verified.push(verify(&store, log, &identities).await?);
        }
        Ok(verified)
    };
    interrupt.unless(verifying).await
}

/// Returns the logs of the one lineage of a cluster that has some.
async fn find(store: &Store, (namespace, cluster): (&str, &str), lineage: Option<&str>) -> Result<Vec<BoundLog>> {
    let short = lineage.map(|lineage| first8("lineage", lineage));
    let mut found: Vec<(Folder, Vec<BoundLog>)> = Vec::new();
    for folder in lineages(store, namespace, cluster, None).await? {
        let is_wanted = lineage.is_none_or(|whole| {
            folder.name() == whole || short.as_ref().is_some_and(|short| short.as_deref() == Ok(folder.name()))
        });
        let logs = if is_wanted { logs_of(store, &folder).await? } else { vec![] };
        found.extend((!logs.is_empty()).then_some((folder, logs)));
    }
    match found.pop() {
        Some((_, logs)) if found.is_empty() => Ok(logs),
        None => Err(Error::not_found(format!("no log of the cluster {namespace}/{cluster} is in the store"))),
        Some((last, _)) => {
            found.push((last, vec![]));
            let names: Vec<_> = found.iter().map(|(folder, _)| folder.name().to_owned()).collect();
            let names = names.join(", ");
            Err(Error::unclear(format!("{namespace}/{cluster} has the logs of {names}. Name one with --lineage")))
        }
    }
}

/// The facts of a segment that was read.
struct Facts {
    header: Header,
    records: u64,
    /// Checksum of each revision.
    sums: Vec<(i64, u32)>,
}

async fn verify(store: &Store, log: BoundLog, identities: &Arc<Option<Identities>>) -> Result<LogVerified> {
    let BoundLog { folder: log, cluster_id } = log;
    let log = &log;
    let listed = list(store, log).await?;
    let names: Vec<SegmentName> = listed.segments.into_iter().map(|(name, _)| name).collect();
    let mut found = LogVerified {
        uri: store.uri(log),
        cluster_id: hex_id(cluster_id),
        gaps: listed.gaps.len(),
        checks: listed.checks.len(),
        ..LogVerified::default()
    };
    let newest = names.iter().max_by_key(|name| (name.last, name.at)).cloned();
    let (mut faults, mut joints) = (Vec::new(), Joints::default());
    for (number, name) in names.iter().enumerate() {
        if name.encrypted && identities.is_none() {
            return Err(Error::config("the log is encrypted: name an identity file with --identity"));
        }
        let key = name.key(log).map_err(|error| holdfast_store::layout(&error))?;
        let uri = store.uri(&key);
        let stored = match fetch(store, log, name).await {
            Err(error) if error.is_archived() && Some(name) != newest.as_ref() => {
                found.archived.push(uri);
                continue;
            }
            stored => stored?,
        };
        let (opens, encrypted) = (Arc::clone(identities), name.encrypted);
        let reading = tokio::task::spawn_blocking(move || read(stored, opens.as_ref().as_ref().filter(|_| encrypted)));
        match reading.await.map_err(|error| task_error(&error))? {
            Ok(facts) => {
                faults.extend(faults_of(&uri, name, &facts, cluster_id, &mut joints));
                found.segments += 1;
                found.records = found.records.saturating_add(facts.records);
            }
            Err(error) => match unreadable(&uri, &error) {
                damage if damage.class() == ExitClass::Corrupt => faults.push(damage.message().to_owned()),
                other => return Err(other),
            },
        }
        // No later segment begins earlier.
        let next = names.get(number + 1).map_or(i64::MAX, |next| next.first);
        joints.forget_before(next.saturating_sub(1));
    }
    let cover = Cover::join(names, &listed.gaps);
    found.ranges = cover.ranges.iter().map(|range| (range.first, range.last)).collect();
    for hole in cover.holes.iter().filter(|hole| !hole.compacted && !hole.removed) {
        let (first, until) = (hole.after.saturating_add(1), hole.until);
        faults.push(format!(
            "the revisions {first} to {until} are missing, and no gap says that etcd had compacted them"
        ));
    }
    if faults.is_empty() {
        return Ok(found);
    }
    let more = faults.len().saturating_sub(MAX_NAMED);
    faults.truncate(MAX_NAMED);
    let more = if more > 0 { format!("; and {more} faults more") } else { String::new() };
    Err(Error::corrupt(format!("{}: {}{more}", found.uri, faults.join("; "))))
}

/// Reads a segment to its end.
fn read(stored: Bytes, identities: Option<&Identities>) -> Result<Facts, SegmentError> {
    let mut reader = open(stored, identities)?;
    let header = *reader.header();
    let (mut records, mut sums) = (0_u64, Vec::<(i64, u32)>::new());
    let mut revision = RevisionSum::default();
    while let Some(entry) = reader.next()? {
        let Entry::Record(record) = entry else { continue };
        records += 1;
        if sums.last().is_none_or(|(main, _)| *main != record.main) {
            revision.take();
            sums.push((record.main, 0));
        }
        revision.add(record.tombstone, record.value);
        if let Some((_, sum)) = sums.last_mut() {
            *sum = revision.get();
        }
    }
    Ok(Facts { header, records, sums })
}

/// Compares a segment with its name, its log, and the segments before.
fn faults_of(uri: &str, name: &SegmentName, facts: &Facts, cluster_id: u64, joints: &mut Joints) -> Vec<String> {
    let Header { cluster_id: of, first, last, .. } = facts.header;
    let mut faults = Vec::new();
    if of != cluster_id {
        faults.push(format!("{uri} is of the etcd cluster {of:x}, and the log is of {cluster_id:x}"));
    }
    if (first, last) != (name.first, name.last) {
        faults.push(format!("{uri} holds the revisions {first} to {last}"));
    }
    let joined = joints.open(&facts.header);
    let forked = joined.and_then(|()| facts.sums.iter().try_for_each(|(revision, sum)| joints.add(*revision, *sum)));
    faults.extend(forked.err().map(|fork| match fork {
        Fork::Changes(revision) => format!("{uri} has other changes of revision {revision} than a segment before"),
        Fork::Raft(revision) => {
            format!(
                "{uri} has fewer entries of raft than its revisions after {revision} need: etcd was restored in place"
            )
        }
    }));
    faults
}
