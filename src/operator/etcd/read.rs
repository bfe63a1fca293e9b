//! Asks the members of one cluster, side by side, and agrees on one membership.

use std::collections::BTreeMap;

use futures::stream::{FuturesUnordered, StreamExt};

use super::client::Failure;
use super::{Address, Pool};
use crate::plan::cluster::{Alarm, Answer, KeyHash, Membership};
use crate::plan::{Seen, Unread};

/// What the members' servers said, and the alarms they know of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::operator) struct Round {
    /// By member name.
    pub(in crate::operator) answers: BTreeMap<String, Result<Answer, Unread>>,
    /// Of all who answered, each once.
    pub(in crate::operator) alarms: Vec<Alarm>,
}

/// What each member's server says of itself. All are asked at once, so silence costs one deadline, not several.
pub(in crate::operator) async fn answers(pool: &Pool, members: &[Address]) -> Round {
    let asked = members.iter().map(|at| async move { (at, pool.status(at).await) });
    let mut all: Vec<_> = asked.collect::<FuturesUnordered<_>>().collect().await;
    all.sort_by(|(a, _), (b, _)| a.member.cmp(&b.member));
    let mut round = Round::default();
    for (at, said) in all {
        let answer = match said {
            Ok(said) => {
                for alarm in said.alarms {
                    if !round.alarms.contains(&alarm) {
                        round.alarms.push(alarm);
                    }
                }
                Ok(said.answer)
            }
            Err(failure) => Err(Unread::new(failure == Failure::LoginRequired, failure.to_string())),
        };
        round.answers.insert(at.member.clone(), answer);
    }
    round
}

/// The hash of each member's key space, of those that give one. While an alarm `CORRUPT` stands etcd takes no write, so all
/// that are level are at one revision. Without such an alarm nothing is asked, and what was known is forgotten.
pub(in crate::operator) async fn hashes(
    pool: &Pool,
    members: &[Address],
    alarms: Option<&str>,
) -> BTreeMap<String, KeyHash> {
    let Some(alarms) = alarms else {
        for at in members {
            pool.forget_hashes(&at.pod_uid);
        }
        return BTreeMap::new();
    };
    let asked =
        members.iter().map(|at| async move { Some((at.member.clone(), pool.key_hash(at, alarms).await.ok()?)) });
    let all: Vec<_> = asked.collect::<FuturesUnordered<_>>().collect().await;
    all.into_iter().flatten().collect()
}

/// The membership by a linearizable read. The leader is asked first; the others only when it gives no answer, and then
/// side by side, the first good answer counts.
pub(in crate::operator) async fn membership(pool: &Pool, members: &[Address], round: &Round) -> Seen<Membership> {
    let said = |at: &Address| round.answers.get(&at.member).and_then(|a| a.as_ref().ok());
    let mut order: Vec<(&Address, &Answer)> = members.iter().filter_map(|at| Some((at, said(at)?))).collect();
    if order.is_empty() {
        return Seen::Unknown(nobody(members, round));
    }
    // Learners refuse linearizable reads; members that know no leader would only let us wait.
    order.retain(|(_, answer)| !answer.learner && answer.leader != 0);
    order.sort_by_key(|(_, answer)| answer.leader != answer.member_id);
    let Some(((first, answer), rest)) = order.split_first() else {
        return Seen::unknown("no voter that answers knows a leader");
    };
    let known = |membership: Membership| Seen::Known(Membership { alarms: round.alarms.clone(), ..membership });
    let (mut causes, mut login) = (vec![], false);
    let mut note = |member: &str, failure: &Failure| {
        login |= *failure == Failure::LoginRequired;
        causes.push(format!("{member}: {failure}"));
    };
    match pool.membership(first, Some(answer.leader)).await {
        Ok(membership) => return known(membership),
        Err(failure) => note(&first.member, &failure),
    }
    let mut others: FuturesUnordered<_> = rest
        .iter()
        .map(|(at, answer)| async move { (&at.member, pool.membership(at, Some(answer.leader)).await) })
        .collect();
    while let Some((member, got)) = others.next().await {
        match got {
            Ok(membership) => return known(membership),
            Err(failure) => note(member, &failure),
        }
    }
    causes.sort();
    let text = format!("no linearizable read succeeded ({})", causes.join("; "));
    Seen::Unknown(Unread::new(login, text))
}

/// Why nobody could be asked for the membership.
fn nobody(members: &[Address], round: &Round) -> Unread {
    if members.is_empty() {
        return Unread::Other("no member has a Pod with an address".to_owned());
    }
    let causes: Vec<String> = round
        .answers
        .iter()
        .filter_map(|(member, said)| said.as_ref().err().map(|why| format!("{member}: {why}")))
        .collect();
    let text = format!("no member answers ({})", causes.join("; "));
    let login = round.answers.values().any(|said| matches!(said, Err(Unread::LoginRequired(_))));
    Unread::new(login, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(member: &str) -> Address {
        Address { member: member.to_owned(), pod_uid: member.to_owned(), ip: "127.0.0.1".parse().unwrap(), tls: None }
    }

    fn round(answers: Vec<(&str, Result<Answer, Unread>)>) -> Round {
        Round { answers: answers.into_iter().map(|(m, a)| (m.to_owned(), a)).collect(), alarms: vec![] }
    }

    /// No server listens at the address: each hash comes from memory.
    #[tokio::test]
    async fn a_hash_is_read_once_while_the_same_alarms_stand() {
        let (pool, members) = (Pool::default(), [at("a")]);
        let hash = KeyHash { hash: 1, ..KeyHash::default() };
        pool.note_hash(&members[0], "12", &hash);
        let known = BTreeMap::from([("a".to_owned(), hash)]);
        assert_eq!(hashes(&pool, &members, Some("12")).await, known);
        assert_eq!(hashes(&pool, &members, Some("11,12")).await, BTreeMap::new(), "another alarm");
        assert_eq!(hashes(&pool, &members, None).await, BTreeMap::new());
        assert_eq!(hashes(&pool, &members, Some("12")).await, BTreeMap::new(), "writes came in between");
    }

    #[tokio::test]
    async fn nobody_is_asked_who_cannot_know() {
        let pool = Pool::default();
        assert_eq!(
            membership(&pool, &[], &Round::default()).await,
            Seen::unknown("no member has a Pod with an address")
        );
        let silent = round(vec![("a", Err(Unread::Other("connection refused".to_owned())))]);
        assert_eq!(
            membership(&pool, &[at("a")], &silent).await,
            Seen::unknown("no member answers (a: connection refused)")
        );
        let learner = Answer { learner: true, leader: 7, ..Answer::default() };
        let lone = Answer { leader: 0, ..Answer::default() };
        assert_eq!(
            membership(&pool, &[at("a"), at("b")], &round(vec![("a", Ok(learner)), ("b", Ok(lone))])).await,
            Seen::unknown("no voter that answers knows a leader")
        );
    }
}
