//! Asks the members of one cluster in parallel, and settles on one membership.

use std::collections::BTreeMap;

use futures::stream::{FuturesUnordered, StreamExt};
use holdfast_plan::Alarm;
use holdfast_plan::cluster::{Answer, Membership};
use holdfast_plan::{Seen, Unread};

use super::client::Failure;
use super::silence::ask;
use super::{Address, News, Pool};

/// The answers of the members' servers, and the alarms that they know of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Round {
    /// By member name.
    pub(crate) answers: BTreeMap<String, Result<Answer, Unread>>,
    /// The alarms of all members that answered, without duplicates.
    pub(crate) alarms: Vec<Alarm>,
}

/// Asks each member for its status. All are asked at once, so that silence costs one deadline, and costs it once: a member that
/// stays silent is asked beside the passes, and its answer calls `news`.
pub(crate) async fn answers(pool: &Pool, members: &[Address], news: &News) -> Round {
    let asked = members.iter().map(|at| async move { (at, ask(pool, at, news).await) });
    let mut all: Vec<_> = asked.collect::<FuturesUnordered<_>>().collect().await;
    all.sort_by(|(a, _), (b, _)| a.member.cmp(&b.member));
    let mut round = Round::default();
    for (at, status) in all {
        let answer = match status {
            Ok(status) => {
                for alarm in status.alarms {
                    if !round.alarms.contains(&alarm) {
                        round.alarms.push(alarm);
                    }
                }
                Ok(status.answer)
            }
            Err(failure) => Err(Unread::new(failure == Failure::LoginRequired, failure.to_string())),
        };
        round.answers.insert(at.member.clone(), answer);
    }
    round
}

/// Reads the membership by a linearizable read. The leader is asked first; the other members only after the leader gave no
/// answer, then in parallel, and the first good answer counts.
pub(crate) async fn membership(pool: &Pool, members: &[Address], round: &Round) -> Seen<Membership> {
    let answer_of = |at: &Address| round.answers.get(&at.member).and_then(|a| a.as_ref().ok());
    let mut order: Vec<(&Address, &Answer)> = members.iter().filter_map(|at| Some((at, answer_of(at)?))).collect();
    if order.is_empty() {
        return Seen::Unknown(no_answer(members, round));
    }
    // Learners refuse linearizable reads; members without a leader would time out.
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

/// Reason why no member could be asked for the membership.
fn no_answer(members: &[Address], round: &Round) -> Unread {
    if members.is_empty() {
        return Unread::Other("no member has a Pod with an address".to_owned());
    }
    let causes: Vec<String> = round
        .answers
        .iter()
        .filter_map(|(member, answer)| answer.as_ref().err().map(|why| format!("{member}: {why}")))
        .collect();
    let text = format!("no member answers ({})", causes.join("; "));
    let login = round.answers.values().any(|answer| matches!(answer, Err(Unread::LoginRequired(_))));
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
