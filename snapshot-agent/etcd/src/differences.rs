//! Compares the parts of a snapshot that HashKV does not cover with the member: members, alarms, users and roles.
//!
//! This file decides which differences a save reports; a difference never refuses a snapshot, because users add members and
//! etcd users during a save, and a login may not be allowed to list users. Alarms come from the member's status (etcd's Alarm
//! call writes a raft entry even to read). Leases are not compared: in a live cluster they differ in every snapshot.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use etcd_client::Client;
use holdfast_bbolt::scan::Proven;
use holdfast_contract::hex_id;
use tokio::time::timeout;

use crate::connect::logged_in;
use crate::member::Voter;
use crate::source;

/// The member answers all of these from memory.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Returns the differences between the snapshot and the member, one sentence each.
pub async fn differences(voter: &Voter, proven: &Proven) -> Vec<String> {
    let (members, status, users, roles) = tokio::join!(
        ask(voter, |mut client| async move { client.member_list().await }),
        ask(voter, |mut client| async move { client.status().await }),
        ask(voter, |mut client| async move { client.user_list().await }),
        ask(voter, |mut client| async move { client.role_list().await }),
    );
    let live = members.map(|answer| answer.members().iter().map(|m| (m.id(), m.is_learner())).collect());
    let mut differences: Vec<_> = live.and_then(|live| members_differ(proven, &live)).into_iter().collect();
    let alarms = status.map(|answer| answer.errors().iter().filter(|error| source::is_alarm(error)).count());
    differences.extend(alarms.and_then(|live| counts_differ("alarms", proven.alarms.len() as u64, live)));
    differences.extend(users.and_then(|answer| counts_differ("users", proven.users, answer.users().len())));
    differences.extend(roles.and_then(|answer| counts_differ("roles", proven.roles, answer.roles().len())));
    for difference in &differences {
        tracing::warn!(member = voter.name, difference, "the snapshot and the member differ");
    }
    differences
}

/// Makes a call; `None` if the member does not answer.
async fn ask<T, F>(voter: &Voter, call: impl Fn(Client) -> F) -> Option<T>
where
    F: Future<Output = Result<T, etcd_client::Error>>,
{
    match timeout(ANSWER_WITHIN, logged_in(&voter.client, call)).await {
        Ok(Ok(answer)) => Some(answer),
        Ok(Err(error)) => {
            tracing::debug!(member = voter.name, %error, "not compared");
            None
        }
        Err(_) => None,
    }
}

/// Compares the members by ID and by learner status.
fn members_differ(proven: &Proven, live: &BTreeMap<u64, bool>) -> Option<String> {
    let stored: BTreeMap<_, _> = proven.members.iter().map(|member| (member.id, member.learner)).collect();
    let words = |members: &BTreeMap<u64, bool>| {
        let word =
            |(id, learner): (&u64, &bool)| format!("{}{}", hex_id(*id), if *learner { " (learner)" } else { "" });
        members.iter().map(word).collect::<Vec<_>>().join(", ")
    };
    (stored != *live).then(|| {
        let (stored, live) = (words(&stored), words(live));
        format!(
            "the snapshot has the members {stored}; the member lists {live}: the members changed during the save, or \
             the snapshot is damaged"
        )
    })
}

fn counts_differ(what: &str, stored: u64, live: usize) -> Option<String> {
    (stored != live as u64).then(|| {
        format!(
            "the snapshot has {stored} {what}, the member {live}: the {what} changed during the save, or the snapshot \
             is damaged"
        )
    })
}

#[cfg(test)]
mod tests {
    use holdfast_bbolt::scan::Member;

    use super::*;

    #[test]
    fn a_member_more_or_another_role_is_told() {
        let member = |id, learner| Member { id, name: String::new(), peer_urls: vec![], client_urls: vec![], learner };
        let proven = |members| Proven { members, users: 2, ..Proven::empty() };
        let live = BTreeMap::from([(1, false), (2, false)]);
        assert_eq!(members_differ(&proven(vec![member(2, false), member(1, false)]), &live), None);
        let fewer = members_differ(&proven(vec![member(1, false)]), &live).unwrap();
        assert!(fewer.contains("the members 1;") && fewer.contains("lists 1, 2:"), "{fewer}");
        let other = members_differ(&proven(vec![member(1, false), member(2, true)]), &live).unwrap();
        assert!(other.contains("2 (learner);"), "{other}");
        assert_eq!(counts_differ("users", 2, 2), None);
        assert!(counts_differ("users", 2, 3).unwrap().starts_with("the snapshot has 2 users, the member 3"));
    }
}
