//! `agent compare-members`: the member list in each member's database against etcd's member list.
//!
//! etcd 3.5 answers with the list of its v2 store, and etcd 3.6 starts with the list in the database: etcd 3.5.1 to 3.5.25 left
//! differences between both. This file decides which members are read and when the result counts: every listed member is read, and
//! etcd's list is the same before and after. The agent reads a member's snapshot stream to its end, checks etcd's own sha256 and
//! keeps no byte of it. `etcd/lists.rs` decides the differences.

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use holdfast_bbolt::scan::{NEVER, Options, Proven};
use holdfast_contract::error::{Error, Result, of_etcd, task_error};
use holdfast_contract::{
    CompareRequest, ComparedMember, ComparedReport, DifferenceKind, MemberDifference, Origin, hex_id,
};
use holdfast_io::interrupt::Interrupt;
use holdfast_io::memory::scan_budget;
use holdfast_io::pool::Pool;
use holdfast_io::progress::{Progress, STALL};
use tokio::sync::mpsc;

use holdfast_etcd::feed::feed_steps;
use holdfast_etcd::lists::{Kept, List};
use holdfast_etcd::member::Candidate;
use holdfast_etcd::members::{Connected, check_all_reached, connect_all, list, name_of, reference};
use holdfast_etcd::source::{check_cluster, open, parse_id};
use holdfast_format::snapshot_scan::SnapshotScan;
use holdfast_format::trailer::{Hasher, TrailerError};
use holdfast_verbs_common::{bytes, lines, unsound};

/// Pieces of the stream that wait for the scan.
const PIECES: usize = 4;

/// Compares the members, and returns all differences.
pub fn run(request: CompareRequest) -> BoxFuture<'static, Result<ComparedReport>> {
    Box::pin(async move {
        let mut interrupt = Interrupt::after(request.deadline_seconds.into())?;
        interrupt.unless(compare(&request)).await
    })
}

async fn compare(request: &CompareRequest) -> Result<ComparedReport> {
    let expected = request.expect_cluster_id.as_deref().map(parse_id).transpose()?;
    let members = connect_all(&request.etcd).await.map_err(of_etcd)?;
    let facts: Vec<Candidate> = members.iter().map(|member| member.facts.clone()).collect();
    check_cluster(&facts, expected)?;
    let reference = reference(&members)?;
    let listed = list(reference).await?;
    check_all_reached(&listed, &members)?;
    let mut differences = vec![];
    for member in &members {
        differences.extend(differences_of(request, member, &listed).await?);
    }
    if list(reference).await? != listed {
        return Err(of_etcd(Error::transient(
            "the membership changed during the comparison. Repeat it when no member joins or leaves",
        )));
    }
    let compared = |Connected { facts, .. }: &Connected| ComparedMember {
        name: name_of(&listed, facts.member_id),
        id: hex_id(facts.member_id),
        etcd_version: facts.version.clone(),
        db_bytes: facts.db_bytes,
    };
    let cluster_id = hex_id(reference.facts.cluster_id);
    Ok(ComparedReport { cluster_id, members: members.iter().map(compared).collect(), differences, left_out: 0 })
}

async fn differences_of(request: &CompareRequest, member: &Connected, listed: &List) -> Result<Vec<MemberDifference>> {
    let Candidate { endpoint, member_id, learner, .. } = &member.facts;
    let (data_of, data_of_id) = (name_of(listed, *member_id), hex_id(*member_id));
    let difference = |(id, name, kind): (u64, String, DifferenceKind)| MemberDifference {
        member: name,
        member_id: hex_id(id),
        kind,
        data_of: data_of.clone(),
        data_of_id: data_of_id.clone(),
    };
    let mut found = vec![];
    if !learner && list(member).await? != *listed {
        found.push(difference((*member_id, data_of.clone(), DifferenceKind::OtherList)));
    }
    let limit = Duration::from_secs(request.member_seconds.into());
    let late = || {
        let seconds = request.member_seconds;
        of_etcd(Error::transient(format!("{endpoint} did not send its database within {seconds} s (--member-seconds)")))
    };
    let proven = tokio::time::timeout(limit, read(member)).await.map_err(|_| late())??;
    found.extend(Kept::read_lists(&proven).differences(listed).into_iter().map(difference));
    Ok(found)
}

/// Reads and proves the database of a member.
async fn read(member: &Connected) -> Result<Proven> {
    let Candidate { endpoint, db_bytes, .. } = &member.facts;
    let (_, stream) = open(&member.client, endpoint.clone()).await?;
    let progress = Progress::new("comparing", *db_bytes);
    let (to_scan, pieces) = mpsc::channel(PIECES);
    let (budget, at) = (scan_budget(*db_bytes), endpoint.clone());
    let scan = tokio::task::spawn_blocking(move || prove(pieces, budget, &at));
    let feeding = async {
        // The scan returns the reason where the scan ends first.
        let _whole = feed_steps(stream, &Pool::default(), &[to_scan], &progress).await?;
        scan.await.map_err(|error| task_error(&error))?
    };
    progress.watch(STALL, feeding).await
}

/// Checks etcd's sha256 and the pages.
fn prove(mut pieces: mpsc::Receiver<Bytes>, budget_bytes: usize, at: &str) -> Result<Proven> {
    // The comparison needs no HashKV, and without it the records take less memory.
    let options = Options { compact_revision: Some(NEVER), budget_bytes };
    let (mut hasher, mut scan) = (Hasher::default(), SnapshotScan::new(options));
    while let Some(piece) = pieces.blocking_recv() {
        hasher.update(&piece);
        scan.push(&piece);
    }
    hasher.finish().map_err(|error| match error {
        // A member that is stopped in the middle may end its stream without an error.
        TrailerError::Empty(_) | TrailerError::Cut(_) => of_etcd(Error::transient(format!("{at}: {error}"))),
        TrailerError::Mismatch(_) => Error::corrupt(format!("{at}: {error}")).with_origin(Origin::Etcd),
    })?;
    scan.finish().map_err(|error| unsound(at, &error))
}

/// Formats a report for a terminal.
pub fn text(report: &ComparedReport) -> String {
    let ComparedReport { cluster_id, members, .. } = report;
    let member = |member: &ComparedMember| {
        let ComparedMember { name, id, etcd_version, db_bytes } = member;
        ("read", format!("{name} ({id}), etcd {etcd_version}, {}", bytes(*db_bytes)))
    };
    let mut rows = vec![("cluster", cluster_id.clone())];
    rows.extend(members.iter().map(member));
    if report.agrees() {
        rows.push(("agree", "the members' databases have the members that etcd lists".to_owned()));
        return lines(&rows);
    }
    rows.extend(report.sentences().into_iter().map(|sentence| ("DIFFERS", sentence)));
    rows.push(("remedy", report.remedy().to_owned()));
    lines(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_printed_with_its_remedy() {
        let member = ComparedMember {
            name: "m1".to_owned(),
            id: "d1d8".to_owned(),
            etcd_version: "3.5.18".to_owned(),
            db_bytes: 24576,
        };
        let mut report =
            ComparedReport { cluster_id: "30d2".to_owned(), members: vec![member], ..ComparedReport::default() };
        let agrees = text(&report);
        assert_eq!(
            agrees,
            "cluster  30d2\n\
             read     m1 (d1d8), etcd 3.5.18, 24.00 KiB (24576 bytes)\n\
             agree    the members' databases have the members that etcd lists\n"
        );
        report.differences.push(MemberDifference {
            member: "m2".to_owned(),
            member_id: "590a".to_owned(),
            kind: DifferenceKind::LearnerInData,
            data_of: "m1".to_owned(),
            data_of_id: "d1d8".to_owned(),
        });
        let differs = text(&report);
        assert!(differs.contains("DIFFERS  the database of m1 has m2 (590a) as a learner, and etcd lists a voter\n"));
        assert!(differs.contains("remedy   etcd 3.5.26 and later") && !differs.contains("agree "), "{differs}");
    }
}
