//! Asks members whether they hold what the snapshot holds: etcd's HashKV at the snapshot's own revision.
//!
//! It decides whom to ask, which answers can be compared, and what a difference means. What the snapshot's HashKV is,
//! the scan has found (`scan.rs`).
//!
//! A member holds its backend's read lock while it hashes (0.1 to 0.9 s for a gigabyte), and commits wait for it: so the
//! source is asked, which is a follower where there is one, and a leader of much data only if told to. A second voter is
//! asked too, since the source alone would bless its own divergence; about much data only if told to.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use crate::contract::{AskMembers, Level, Verification, hex_id};
use crate::error::{Error, Result};
use crate::etcd::connect::{etcd_error, logged_in};
use crate::etcd::member::Voter;
use crate::scan::{HashKv, NoHashKv, Proven, ScanError};

/// From this size on hashing is felt by clients: without `--ask-members always` no leader is asked, and no second voter.
pub(crate) const LARGE: u64 = 1 << 30;

/// A member hashes some gigabytes a second; etcd supports databases of 8 GiB.
const HASHED_WITHIN: Duration = Duration::from_mins(2);

/// How long another member may take to come to the snapshot's revision.
const CATCH_UP: Duration = Duration::from_secs(5);

/// What a member's answer is worth.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Equal,
    Different(u32),
    /// It has no answer that could be compared, and why.
    None(String),
}

/// Asks the voters, the snapshot's source first, and says how far the snapshot is proven. An error: it is not that key
/// space, and must not be published.
///
/// A database of `large` bytes is much.
pub(crate) async fn verify(
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
    // As it is meant to be, so nobody is warned.
    if let Some(reason) = &spared {
        tracing::info!(reason, "a second member's HashKV was not compared");
    }
    reasons.extend(spared);
    Ok(concluded(agreed_by, reasons))
}

/// Why nobody else was asked.
const SPARED: &str = "from 1 GiB up the agent asks a second voter only with spec.askMembers: Always (--ask-members \
                      always)";

/// One member's word is proof; that the second one's is missing is told.
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

/// What helps where a scan has had too little (`util/memory.rs`).
const MORE_MEMORY: &str = ": give the agent more memory (spec.agent.resources.limits.memory)";

/// A reason goes into a report of bounded size.
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
pub(crate) async fn ask(voter: &Voter, found: HashKv) -> Result<Answer> {
    let until = Instant::now() + CATCH_UP;
    let mut why = String::new();
    // An idle member that was compacted at this very revision answers from a cache, with a compact revision of -1: then
    // it is asked for its newest revision, which it hashes anew (etcd: server/storage/mvcc/hash.go).
    for revision in [found.revision, 0] {
        let answer = loop {
            // The stream may have taken longer than a login lasts.
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
            let (endpoint, ours, theirs) = (&voter.endpoint, hex_id(voter.member_id), hex_id(member));
            return Ok(Answer::None(format!("{endpoint} leads to member {theirs} now, not to {ours}")));
        }
        let at = match (answer.hash_revision(), revision) {
            // etcd before 3.6 says the revision in the header only.
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
        // Then its newest is none that could be compared, and it would be hashed for nothing.
        if newest > found.revision {
            break;
        }
    }
    Ok(Answer::None(why))
}

/// The member has not come to that revision yet (etcd: `ErrGRPCFutureRev`).
fn is_future(status: &tonic::Status) -> bool {
    status.code() == Code::OutOfRange && status.message().contains("future revision")
}

#[cfg(test)]
mod tests {
    use etcd_client::Client;

    use super::*;
    use crate::contract::ExitClass;

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
