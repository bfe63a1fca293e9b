//! `agent compare-members`: the members' own data against etcd's member list.
//!
//! This file decides flags, the report and its sentences. `snapshot-agent/verbs-live/src/compare.rs` reads the members and decides which
//! differences exist.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::EtcdFlags;
use super::outcome::halve;

/// `agent compare-members`: read the member list that each member keeps in its database, and compare it with etcd's member list.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CompareRequest {
    /// The etcd. `--endpoints` has to name a client URL of every member.
    #[command(flatten)]
    pub etcd: EtcdFlags,
    /// etcd cluster ID (hex) that the members must have; the agent reads no other etcd.
    #[arg(long, value_name = "ID", help_heading = COMPARING)]
    pub expect_cluster_id: Option<String>,
    /// Time limit in seconds for the database of one member.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_MEMBER_SECONDS, help_heading = COMPARING)]
    pub member_seconds: u32,
    /// Print JSON instead of text.
    #[arg(long, help_heading = COMPARING)]
    pub json: bool,
    /// Time limit in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_COMPARE_SECONDS, help_heading = COMPARING)]
    pub deadline_seconds: u32,
}

/// Heading of the flags, in help texts.
const COMPARING: &str = "Comparing";

/// Fifteen minutes: a database of 8 GiB at 10 MiB/s.
pub const DEFAULT_MEMBER_SECONDS: u32 = 900;

/// Two hours: seven members of the largest suggested size, read one after the other.
pub const DEFAULT_COMPARE_SECONDS: u32 = 7200;

/// Remedy where etcd repairs its data by itself.
const REPAIR: &str = "etcd 3.5.26 and later corrects the list in a member's database when the member restarts: run the newest \
                          patch of 3.5, restart every member once, one after the other, and compare again";

/// Remedy where etcd does not.
const REPLACE: &str = "no restart corrects this: remove each named member from etcd and add a member with a new ID and an empty data \
                       directory, one after the other, and compare again";

/// Result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComparedReport {
    /// etcd cluster ID (hex).
    pub cluster_id: String,
    /// The members whose databases the agent has read.
    pub members: Vec<ComparedMember>,
    /// All differences; empty: the data agree with etcd's member list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<MemberDifference>,
    /// Number of differences that were left out of a short report.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// A member whose database the agent has read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComparedMember {
    /// Name.
    pub name: String,
    /// ID (hex).
    pub id: String,
    /// Version of the member's etcd.
    pub etcd_version: String,
    /// Bytes of the database.
    pub db_bytes: u64,
}

/// One difference between the data of one member and etcd's member list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberDifference {
    /// Name of the member that the data are wrong about; empty where neither the data nor etcd know it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub member: String,
    /// ID (hex) of that member.
    pub member_id: String,
    /// Kind of the difference.
    pub kind: DifferenceKind,
    /// Name of the member with these data.
    pub data_of: String,
    /// ID (hex) of the member with these data.
    pub data_of_id: String,
}

/// Kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DifferenceKind {
    /// The data have a learner, and etcd lists a voter (etcd issue 19557).
    LearnerInData,
    /// The data have a voter, and etcd lists a learner.
    VoterInData,
    /// etcd lists a member that the data lack.
    NotInData,
    /// The data have a member that etcd does not list (a zombie: etcd pull request 20995).
    NotListed,
    /// etcd lists a member that the data have among the removed ones.
    RemovedInData,
    /// The member answers with another member list than the leader.
    OtherList,
}

impl DifferenceKind {
    /// Describes the difference of the data of these members about a member.
    fn says(self, data: &str, member: &str) -> String {
        match self {
            Self::LearnerInData => format!("{data} has {member} as a learner, and etcd lists a voter"),
            Self::VoterInData => format!("{data} has {member} as a voter, and etcd lists a learner"),
            Self::NotInData => format!("{data} lacks {member}, which etcd lists"),
            Self::NotListed => format!("{data} has {member}, which etcd does not list: it was removed"),
            Self::RemovedInData => format!("{data} has {member} among the removed members, and etcd lists it"),
            Self::OtherList => format!("{member} answers with another member list than the leader"),
        }
    }
}

/// A member in a text.
fn named(name: &str, id: &str) -> String {
    if name.is_empty() { format!("a member without a name ({id})") } else { format!("{name} ({id})") }
}

impl ComparedReport {
    /// Whether the data agree with etcd's member list.
    pub const fn agrees(&self) -> bool {
        self.differences.is_empty()
    }

    /// Whether a restart with etcd 3.5.26 or later repairs every difference.
    pub fn repairs_itself(&self) -> bool {
        let kinds = [DifferenceKind::RemovedInData, DifferenceKind::OtherList];
        !self.differences.iter().any(|found| kinds.contains(&found.kind))
    }

    /// Returns the remedy.
    pub fn remedy(&self) -> &'static str {
        if self.repairs_itself() { REPAIR } else { REPLACE }
    }

    /// Returns one sentence for each member and kind of difference.
    pub fn sentences(&self) -> Vec<String> {
        let mut groups: Vec<(&MemberDifference, Vec<&str>)> = vec![];
        for found in &self.differences {
            let same = |(of, _): &&mut (&MemberDifference, Vec<&str>)| {
                (&of.member_id, of.kind) == (&found.member_id, found.kind)
            };
            match groups.iter_mut().find(same) {
                Some((_, all)) => all.push(&found.data_of),
                None => groups.push((found, vec![&found.data_of])),
            }
        }
        let sentence = |(of, all): (&MemberDifference, Vec<&str>)| {
            let data = format!("the database of {}", all.join(", "));
            of.kind.says(&data, &named(&of.member, &of.member_id))
        };
        let more = (self.left_out > 0).then(|| format!("and {} differences more", self.left_out));
        groups.into_iter().map(sentence).chain(more).collect()
    }

    /// Shortens the report; `false` when nothing is left to cut. One difference stays.
    pub fn cut(&mut self) -> bool {
        let Self { cluster_id: _, members, differences, left_out } = self;
        if members.pop().is_some() {
            return true;
        }
        if differences.len() > 1 {
            differences.pop();
            *left_out += 1;
            return true;
        }
        let names = differences.iter_mut().flat_map(|found| [&mut found.member, &mut found.data_of]);
        names.max_by_key(|name| name.len()).is_some_and(halve)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learner_in(data_of: &str) -> MemberDifference {
        MemberDifference {
            member: "m2".to_owned(),
            member_id: "590a".to_owned(),
            kind: DifferenceKind::LearnerInData,
            data_of: data_of.to_owned(),
            data_of_id: "1".to_owned(),
        }
    }

    #[test]
    fn members_with_the_same_difference_share_a_sentence() {
        let zombie = MemberDifference {
            member: String::new(),
            member_id: "dead".to_owned(),
            kind: DifferenceKind::NotListed,
            ..learner_in("m1")
        };
        let differences = vec![learner_in("m1"), zombie, learner_in("m2")];
        let report = ComparedReport { differences, ..ComparedReport::default() };
        assert!(!report.agrees());
        assert_eq!(
            report.sentences(),
            [
                "the database of m1, m2 has m2 (590a) as a learner, and etcd lists a voter",
                "the database of m1 has a member without a name (dead), which etcd does not list: it was removed"
            ]
        );
    }

    #[test]
    fn a_short_report_keeps_a_difference() {
        let member = ComparedMember { name: "m".repeat(500), ..ComparedMember::default() };
        let mut report = ComparedReport {
            members: vec![member; 9],
            differences: vec![learner_in(&"x".repeat(900)); 40],
            ..ComparedReport::default()
        };
        while report.cut() {}
        assert_eq!((report.differences.len(), report.left_out), (1, 39));
        assert!(report.sentences().last().unwrap().contains("39 differences more"));
        assert!(serde_json::to_string(&report).unwrap().len() < 400);
    }
}
