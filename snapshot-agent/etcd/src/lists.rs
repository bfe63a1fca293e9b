//! Member lists: etcd's own, by a linearizable read, and the one in a member's database.
//!
//! This file decides how the lists are read and which differences between two lists exist. `verbs/compare.rs` decides which members
//! are asked.

use std::collections::{BTreeMap, BTreeSet};

use etcd_client::{Client, GetOptions};
use holdfast_bbolt::scan::Proven;
use holdfast_contract::DifferenceKind;
use holdfast_contract::error::Result;

use crate::connect::ask;

/// A member in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the member.
    pub name: String,
    /// Whether the member is a learner.
    pub learner: bool,
}

/// Members by ID.
pub type List = BTreeMap<u64, Entry>;

/// The list in a member's database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    members: List,
    removed: BTreeSet<u64>,
}

impl Kept {
    /// Reads both lists from a database that was proven.
    pub fn read_lists(found: &Proven) -> Self {
        let entry = |member: &holdfast_bbolt::scan::Member| {
            (member.id, Entry { name: member.name.clone(), learner: member.learner })
        };
        Self {
            members: found.members.iter().map(entry).collect(),
            removed: found.removed_members.iter().copied().collect(),
        }
    }

    /// Returns the differences to etcd's list: the ID and the name of a member, and the kind.
    pub fn differences(&self, listed: &List) -> Vec<(u64, String, DifferenceKind)> {
        let all: BTreeSet<u64> = self.members.keys().chain(listed.keys()).copied().collect();
        all.into_iter().flat_map(|id| self.about(id, listed)).collect()
    }

    fn about(&self, id: u64, listed: &List) -> Vec<(u64, String, DifferenceKind)> {
        let (own, theirs) = (self.members.get(&id), listed.get(&id));
        let kind = match (own, theirs) {
            (Some(own), Some(theirs)) if own.learner && !theirs.learner => Some(DifferenceKind::LearnerInData),
            (Some(own), Some(theirs)) if !own.learner && theirs.learner => Some(DifferenceKind::VoterInData),
            (Some(_), None) => Some(DifferenceKind::NotListed),
            (None, Some(_)) => Some(DifferenceKind::NotInData),
            (Some(_), Some(_)) | (None, None) => None,
        };
        let removed = (theirs.is_some() && self.removed.contains(&id)).then_some(DifferenceKind::RemovedInData);
        let name = theirs.or(own).map(|entry| entry.name.clone()).unwrap_or_default();
        kind.into_iter().chain(removed).map(|kind| (id, name.clone(), kind)).collect()
    }
}

/// Reads the member list of a voter, not older than this call: a linearizable read comes first, after which the member has applied
/// every change of the membership that etcd acknowledged before.
pub async fn newest(endpoint: &str, client: &Client) -> Result<List> {
    let one = || Some(GetOptions::new().with_keys_only().with_limit(1));
    ask(endpoint, client, |mut client| async move { client.get([0], one()).await }).await?;
    let answer = ask(endpoint, client, |mut client| async move { client.member_list().await }).await?;
    let entry = |member: &etcd_client::Member| {
        (member.id(), Entry { name: member.name().to_owned(), learner: member.is_learner() })
    };
    Ok(answer.members().iter().map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(members: &[(u64, bool)]) -> List {
        members.iter().map(|(id, learner)| (*id, Entry { name: format!("m{id}"), learner: *learner })).collect()
    }

    #[test]
    fn one_difference_at_a_time() {
        use DifferenceKind::{LearnerInData, NotInData, NotListed, RemovedInData, VoterInData};
        let listed = list(&[(1, false), (2, false), (3, true)]);
        for (members, removed, wanted) in [
            (vec![(1, false), (2, false), (3, true)], vec![], vec![]),
            (vec![(1, false), (2, false), (3, true)], vec![9], vec![]),
            (vec![(1, false), (2, true), (3, true)], vec![], vec![(2, LearnerInData)]),
            (vec![(1, false), (2, false), (3, false)], vec![], vec![(3, VoterInData)]),
            (vec![(1, false), (3, true)], vec![], vec![(2, NotInData)]),
            (vec![(1, false), (3, true)], vec![2], vec![(2, NotInData), (2, RemovedInData)]),
            (vec![(1, false), (2, false), (3, true), (4, true)], vec![4], vec![(4, NotListed)]),
            (vec![(1, false), (2, false), (3, true)], vec![1], vec![(1, RemovedInData)]),
        ] {
            let kept = Kept { members: list(&members), removed: removed.into_iter().collect() };
            let wanted: Vec<_> = wanted.into_iter().map(|(id, kind)| (id, format!("m{id}"), kind)).collect();
            assert_eq!(kept.differences(&listed), wanted, "{members:?}");
        }
    }
}
