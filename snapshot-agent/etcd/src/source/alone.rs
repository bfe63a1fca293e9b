//! A save without a quorum: the remaining member to read from, on request.
//!
//! This file decides which member has the most data. Acknowledged writes may be missing without a trace, so the snapshot
//! is marked. This runs only after the usual choice has failed, and never for an object of Kubernetes.

use std::cmp::Reverse;

use holdfast_contract::error::{Error, Result};
use holdfast_contract::{EtcdFlags, ExitClass};

use super::{Met, Read, Source, each_once};
use crate::member::Candidate;

/// Appended to the reason that no member has a leader.
pub(super) const REMEDY: &str = "; if most members are lost for good, `holdfast agent save --no-quorum` saves the data \
                                 of one remaining member by hand";

/// Appended to a failed login.
const NO_LOGIN: &str = "; without a quorum etcd accepts no login: instead of a user, give a client certificate with \
                        the common name root";

/// Ranks the members by their data, independent of a leader: a learner only without a voter, and never a member with a CORRUPT
/// alarm.
fn rank(candidates: &[Candidate]) -> Vec<&Candidate> {
    let mut ranked: Vec<_> = candidates.iter().filter(|candidate| !candidate.corrupt).collect();
    // Only committed entries are applied, so the index alone decides.
    ranked.sort_by_key(|candidate| (candidate.learner, Reverse(candidate.applied), candidate.member_id));
    each_once(ranked)
}

/// Returns the number of answering voters if it is more than half of all members, learners included: these voters can elect a
/// leader, or their network needs repair, so a save without a quorum is not the last resort.
fn most(answering: &[&Candidate], members: usize) -> Option<usize> {
    let voters = answering.iter().filter(|candidate| !candidate.learner).count();
    (members > 0 && 2 * voters > members).then_some(voters)
}

impl Met {
    /// Returns the chosen source, or the member with the most data if there is no leader.
    pub(super) async fn member_without_quorum(&self, chosen: Result<Source>, flags: &EtcdFlags) -> Result<Source> {
        let Err(error) = chosen else { return chosen };
        let ranked = rank(&self.candidates);
        if ranked.is_empty() {
            let logs_in = flags.user.is_some() || flags.auth_dir.is_some();
            return Err(if logs_in {
                Error::new(error.class(), format!("{}{NO_LOGIN}", error.message()))
            } else {
                error
            });
        }
        let led = self.candidates.iter().any(|candidate| !candidate.learner && candidate.leader != 0);
        if led || error.class() == ExitClass::Denied {
            return Err(error);
        }
        let source = self.best(&ranked, Read::Own).await?;
        if let Some(voters) = most(&ranked, source.members.len()) {
            return Err(Error::transient(format!(
                "{}; but {voters} of {} members answer, so the majority is not lost. Try again, or name a single member",
                error.message(),
                source.members.len()
            )));
        }
        tracing::warn!(%error, "no quorum answers: the snapshot may lack acknowledged writes");
        Ok(source)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::healthy;
    use super::*;

    fn member(member_id: u64, applied: u64) -> Candidate {
        Candidate { leader: 0, applied, ..healthy(member_id) }
    }

    #[test]
    fn who_has_most_is_read() {
        let order = |members: &[Candidate]| rank(members).iter().map(|member| member.member_id).collect::<Vec<_>>();
        let (a, b) = (member(1, 10), member(2, 9_000));
        assert_eq!(order(&[a.clone(), b.clone()]), [2, 1], "however far behind");
        let learner = Candidate { learner: true, ..b.clone() };
        assert_eq!(order(&[learner.clone(), a.clone()]), [1, 2]);
        assert_eq!(order(&[learner]), [2], "better than nothing");
        let corrupt = Candidate { corrupt: true, ..b };
        assert_eq!(order(&[corrupt, a.clone(), a]), [1]);
    }

    #[test]
    fn more_than_half_is_no_lost_majority() {
        let (a, b) = (member(1, 10), member(2, 9));
        let learner = Candidate { learner: true, ..member(3, 8) };
        for (answering, members, voters) in [
            (&[&a][..], 3, None),
            (&[&a, &b], 3, Some(2)),
            (&[&a, &b], 4, None),
            (&[&a, &learner], 3, None),
            // A member that listed no others is a learner.
            (&[&a], 0, None),
        ] {
            assert_eq!(most(answering, members), voters, "{answering:?} of {members}");
        }
    }
}
