//! All members of an etcd, each by a connection of its own.
//!
//! Decides which endpoints count as one member, and that every listed member has to be among them. The verbs decide the requests.

use std::collections::BTreeSet;

use etcd_client::Client;
use futures::future::join_all;
use holdfast_contract::error::{Error, Result, of_etcd};
use holdfast_contract::{EtcdFlags, hex_id};

use crate::connect::{Dialer, ask};
use crate::lists::{Entry, List, newest};
use crate::member::Candidate;
use crate::source::{candidate, meet};

/// A connected member.
pub struct Connected {
    /// Leads to this member only.
    pub client: Client,
    /// The member's last status.
    pub facts: Candidate,
}

impl Connected {
    /// Reads the status again. An endpoint that leads to another member now is an error.
    pub async fn read_status(&mut self) -> Result<()> {
        let endpoint = &self.facts.endpoint;
        let status = ask(endpoint, &self.client, |mut client| async move { client.status().await });
        let facts = candidate(endpoint, &status.await?)?;
        if (facts.cluster_id, facts.member_id) != (self.facts.cluster_id, self.facts.member_id) {
            return Err(Error::transient(format!("{endpoint} now leads to another member")));
        }
        self.facts = facts;
        Ok(())
    }
}

/// Connects to every endpoint. A member that does not answer is an error: its state is unknown.
pub async fn connect_all(etcd: &EtcdFlags) -> Result<Vec<Connected>> {
    let dialer = Dialer::from_flags(etcd)?;
    let mut members: Vec<Connected> = vec![];
    for met in join_all(etcd.endpoints.iter().map(|endpoint| meet(&dialer, endpoint))).await {
        let (client, facts) = met?;
        // Two endpoints may lead to one member.
        if members.iter().all(|member| member.facts.member_id != facts.member_id) {
            members.push(Connected { client, facts });
        }
    }
    Ok(members)
}

/// Returns the leader, or a voter if no endpoint leads to the leader: learners do not list members.
pub fn reference(members: &[Connected]) -> Result<&Connected> {
    let voters = || members.iter().filter(|member| !member.facts.learner);
    let leader = voters().find(|member| member.facts.leader == member.facts.member_id);
    leader.or_else(|| voters().next()).ok_or_else(|| Error::config("no endpoint leads to a voter"))
}

/// Reads etcd's member list through this member, linearizably.
pub async fn list(member: &Connected) -> Result<List> {
    newest(&member.facts.endpoint, &member.client).await.map_err(of_etcd)
}

/// Checks that every listed member is among the connected ones.
pub fn check_all_reached(listed: &List, members: &[Connected]) -> Result<()> {
    let reached: BTreeSet<u64> = members.iter().map(|member| member.facts.member_id).collect();
    let mut missing = listed.iter().filter(|(id, _)| !reached.contains(id));
    let Some((id, Entry { name, .. })) = missing.next() else { return Ok(()) };
    Err(Error::config(format!(
        "no endpoint leads to the member {} {name}: name a client URL of every member with --endpoints",
        hex_id(*id)
    )))
}

/// Returns the name of a member; empty where the list lacks the member.
pub fn name_of(listed: &List, id: u64) -> String {
    listed.get(&id).map(|entry| entry.name.clone()).unwrap_or_default()
}
