//! Asks members whether they hold the same data as the snapshot: etcd's HashKV at the snapshot's revision.
//!
//! This file decides which members to ask, which answers are comparable, and the consequence of a difference. The scan computes
//! the snapshot's HashKV (`scan.rs`).
//!
//! A member holds its backend's read lock while it hashes (0.1 to 0.9 s per gigabyte), and commits wait for the lock. So the
//! agent asks the source, which is a follower if there is one, and asks the leader of a large database only on request. The
//! agent also asks a second voter, because the source alone would confirm its own divergence; for a large database only on
//! request.

use std::time::Duration;

use holdfast_bbolt::scan::{HashKv, NoHashKv, Proven, ScanError};
use holdfast_contract::error::{Error, Result};
use holdfast_contract::{AskMembers, Level, Verification, hex_id};
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use crate::connect::{etcd_error, logged_in};
use crate::member::Voter;

/// Size from which clients notice the hashing: without `--ask-members always` the agent asks no leader and no second voter.
pub const LARGE: u64 = 1 << 30;

/// A member hashes some gigabytes a second; etcd supports databases of 8 GiB.
const HASHED_WITHIN: Duration = Duration::from_mins(2);

/// Time for another member to reach the snapshot's revision.
const CATCH_UP: Duration = Duration::from_secs(5);

/// Result of comparing a member's answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// The member has the same hash.
    Equal,
    /// The member has this hash.
    Different(u32),
    /// The member has no comparable answer, with the reason.
    None(String),
}

/// Asks the voters, the snapshot's source first, and returns the level of proof. An error: the snapshot does not hold the
/// members' data, and must not be published.
///
/// `large`: size in bytes of a large database.
pub async fn verify(
    voters: &[Voter],
    ask_members: AskMembers,
    scanned: &std::result::Result<Proven, ScanError>,
    large: u64,
) -> Result<Verification> {
    let proven = match scanned {
        Ok(proven) => proven,
        Err(why) => return Ok(only(Level::Trailer, format!("{why}{MORE_MEMORY}"))),
    };
    let found = match proven.hash_kv {
        Ok(found) => found,
        Err(why) => return Ok(only(Level::Structure, without_hash(why))),
    };
    let large = proven.bytes >= large;
    let (mut agreed_by, mut reasons, mut spared) = (Vec::new(), Vec::new(), None);
    for voter in voters {
        if !agreed_by.is_empty() && large && ask_members == AskMembers::Auto {
            spared = Some(SPARED.to_owned());
            break;
        }
        match ask_members {
            AskMembers::Never => {
                reasons.push("the request excludes questions to members (spec.askMembers, --ask-members)".to_owned());
                break;
            }
            AskMembers::Auto if large && voter.leader => {
                reasons
                    .push(format!("{} is the leader, and hashing this much data would delay its writes", voter.name));
                continue;
            }
            AskMembers::Auto | AskMembers::Always => {}
        }
        match ask(voter, found).await {
            Ok(Answer::Equal) => agreed_by.push(voter.name.clone()),
            Ok(Answer::None(why)) => reasons.push(format!("{}: {why}", voter.name)),
            Ok(Answer::Different(theirs)) => return Err(different(voter, found, theirs, &agreed_by)),
            Err(error) => reasons.push(error.message().to_owned()),
        }
        if agreed_by.len() > 1 {
            break;
        }
    }
    for reason in &reasons {
        tracing::warn!(reason, "a member's HashKV was not compared");
    }
    // Intended, so no warning.
    if let Some(reason) = &spared {
        tracing::info!(reason, "a second member's HashKV was not compared");
    }
    reasons.extend(spared);
    Ok(concluded(agreed_by, reasons))
}

/// Reason for which no second member was asked.
const SPARED: &str = "from 1 GiB up the agent asks a second voter only with spec.askMembers: Always (--ask-members \
                      always)";

/// Builds the verification. One equal answer is proof; the missing second answer is reported.
fn concluded(agreed_by: Vec<String>, mut reasons: Vec<String>) -> Verification {
    if !agreed_by.is_empty() {
        let agreed_by_reason = (!reasons.is_empty()).then(|| bounded(reasons.join("; ")));
        return Verification { level: Level::HashKV, agreed_by, agreed_by_reason, ..Verification::default() };
    }
    if reasons.is_empty() {
        reasons.push("there was no member to ask".to_owned());
    }
    only(Level::Structure, reasons.join("; "))
}

/// Remedy for a scan with too little memory (`crates/io/src/memory.rs`).
const MORE_MEMORY: &str = ": give the agent more memory (spec.agent.resources.limits.memory)";

/// Maximum length of a reason in a report.
const REASON: usize = 600;

fn bounded(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(REASON));
    reason
}

fn only(level: Level, reason: String) -> Verification {
    Verification { level, reason: Some(bounded(reason)), ..Verification::default() }
}

fn without_hash(why: NoHashKv) -> String {
    match why {
        NoHashKv::Unfinished { .. } => format!("{why}, so no member's HashKV can be compared"),
        NoHashKv::OverBudget => format!("{why}{MORE_MEMORY}"),
        NoHashKv::Moved { .. } => why.to_string(),
    }
}

fn different(voter: &Voter, found: HashKv, theirs: u32, agreed_by: &[String]) -> Error {
    let HashKv { hash, revision, compact_revision } = found;
    let at = format!("at revision {revision} (compacted at {compact_revision})");
    let name = &voter.name;
    Error::corrupt(if agreed_by.is_empty() {
        format!(
            "the snapshot's HashKV {at} is {hash}, member {name} reports {theirs}: the data was damaged in the member \
             or in transit; nothing was published. Compare the members: etcdctl endpoint hashkv --cluster \
             --rev={revision}"
        )
    } else {
        let others = agreed_by.join(", ");
        format!(
            "members differ {at}: {others} and the snapshot have HashKV {hash}, {name} has {theirs}. A member has lost \
             or altered data; nothing was published. Find the member with etcdctl endpoint hashkv --cluster \
             --rev={revision}, then replace the member"
        )
    })
}

/// Asks one member.
pub async fn ask(voter: &Voter, found: HashKv) -> Result<Answer> {
    let until = Instant::now() + CATCH_UP;
    let mut why = String::new();
    // An idle member that was compacted at this very revision answers from a cache, with a compact revision of -1. The agent
    // then asks for its newest revision, which the member hashes again (etcd: server/storage/mvcc/hash.go).
    for revision in [found.revision, 0] {
        let answer = loop {
            // The stream may have outlasted the login.
            let call = logged_in(&voter.client, |mut client| async move { client.hash_kv(revision).await });
            let answer = timeout(HASHED_WITHIN, call).await.map_err(|_| {
                let seconds = HASHED_WITHIN.as_secs();
                Error::transient(format!("{}: no HashKV within {seconds} s", voter.endpoint))
            })?;
            match &answer {
                Err(etcd_client::Error::GRpcStatus(status)) if is_future(status) && Instant::now() < until => {
                    sleep(Duration::from_millis(100)).await;
                }
                _ => break answer,
            }
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(etcd_client::Error::GRpcStatus(status)) if status.code() == Code::OutOfRange => {
                return Ok(Answer::None(status.message().to_owned()));
            }
            Err(error) => return Err(etcd_error(&voter.endpoint, &error)),
        };
        let (member, newest) = answer.header().map_or((0, 0), |header| (header.member_id(), header.revision()));
        if member != voter.member_id {
            let (endpoint, expected, found) = (&voter.endpoint, hex_id(voter.member_id), hex_id(member));
            return Ok(Answer::None(format!("{endpoint} leads to member {found} now, not to {expected}")));
        }
        let at = match (answer.hash_revision(), revision) {
            // etcd before 3.6 reports the revision only in the header.
            (0, 0) => newest,
            (0, asked) => asked,
            (at, _) => at,
        };
        let compact = answer.compact_version();
        if (at, compact) == (found.revision, found.compact_revision) {
            let theirs = answer.hash();
            return Ok(if theirs == found.hash { Answer::Equal } else { Answer::Different(theirs) });
        }
        why = if at == found.revision {
            format!("the member is compacted at {compact}, the snapshot at {}", found.compact_revision)
        } else {
            format!("the member is at revision {at} by now")
        };
        // The newest revision is not comparable then, and hashing it would be wasted.
        if newest > found.revision {
            break;
        }
    }
    Ok(Answer::None(why))
}

/// Asks one member for the HashKV of its newest revision. `None`: another member answered.
///
/// Not for a revision of the caller's choice: an answer from the member's cache would name no compact revision.
pub async fn ask_newest(voter: &Voter) -> Result<Option<HashKv>> {
    let call = logged_in(&voter.client, |mut client| async move { client.hash_kv(0).await });
    let answer = timeout(HASHED_WITHIN, call)
        .await
        .map_err(|_| Error::transient(format!("{}: no HashKV within {} s", voter.endpoint, HASHED_WITHIN.as_secs())))?;
    let answer = answer.map_err(|error| etcd_error(&voter.endpoint, &error))?;
    let Some(header) = answer.header().filter(|header| header.member_id() == voter.member_id) else { return Ok(None) };
    // etcd before 3.6 reports the revision only in the header.
    let revision = if answer.hash_revision() == 0 { header.revision() } else { answer.hash_revision() };
    Ok(Some(HashKv { hash: answer.hash(), revision, compact_revision: answer.compact_version() }))
}

/// Whether the member has not reached that revision yet (etcd: `ErrGRPCFutureRev`).
fn is_future(status: &tonic::Status) -> bool {
    status.code() == Code::OutOfRange && status.message().contains("future revision")
}

#[cfg(test)]
mod tests {
    use etcd_client::Client;
    use holdfast_contract::ExitClass;

    use super::*;

    #[tokio::test]
    async fn what_could_not_be_compared_is_told_and_no_failure() {
        let over = Err(ScanError::OverBudget { budget: 7 });
        let said = verify(&[], AskMembers::Auto, &over, LARGE).await.unwrap();
        assert_eq!((said.level, said.agreed_by.len()), (Level::Trailer, 0));
        assert!(said.reason.unwrap().contains("memory budget"));
    }

    #[test]
    fn a_second_voter_that_says_nothing_is_told() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let silent = "m2: no HashKV within 120 s";
        for (agreed_by, reasons, level, of_others, reason) in [
            (&["m1"][..], &[silent][..], Level::HashKV, Some(silent), None),
            (&["m1", "m3"], &[silent], Level::HashKV, Some(silent), None),
            (&["m1", "m2"], &[], Level::HashKV, None, None),
            (&[], &[silent, "m3: it has gone on"], Level::Structure, None, Some("120 s; m3: it has gone on")),
            (&[], &[], Level::Structure, None, Some("there was no member to ask")),
        ] {
            let said = concluded(names(agreed_by), names(reasons));
            assert_eq!((said.level, said.agreed_by.len()), (level, agreed_by.len()), "{agreed_by:?} {reasons:?}");
            assert_eq!(said.agreed_by_reason.as_deref(), of_others, "{agreed_by:?} {reasons:?}");
            assert!(said.reason.as_deref().unwrap_or_default().ends_with(reason.unwrap_or_default()), "{said:?}");
            assert_eq!(said.reason.is_some(), reason.is_some(), "{said:?}");
        }
        let long = concluded(names(&["m1"]), names(&[&"x".repeat(REASON * 2)]));
        assert_eq!(long.agreed_by_reason.map(|reason| reason.len()), Some(REASON));
    }

    #[tokio::test]
    async fn a_member_that_differs_is_named_with_those_that_agree() {
        let found = HashKv { hash: 7, revision: 9, compact_revision: -1 };
        let client = Client::connect(["http://127.0.0.1:1"], None).await.unwrap();
        let voter = Voter { client, endpoint: String::new(), member_id: 2, name: "m2".to_owned(), leader: false };
        for (agreed, words) in [(vec![], "damaged in the member"), (vec!["m1".to_owned()], "m1 and the snapshot")] {
            let error = different(&voter, found, 8, &agreed);
            assert_eq!(error.class(), ExitClass::Corrupt);
            assert!(error.message().contains(words) && error.message().contains("m2"), "{error}");
        }
    }
}
