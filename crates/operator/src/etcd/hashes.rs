//! The hashes of the members' key spaces. A member reads its whole database for a hash, so the operator reads hashes beside the
//! passes, and a hash counts for five minutes while the same alarms stand: etcd takes no write meanwhile.
//!
//! Decides that a hash is missing only after its member was asked and gave none: while members are asked, no hash is known.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_plan::cluster::KeyHash;

use super::{Address, News, Pool};
use crate::aged::{Aged, FRESH};
use crate::clock::{self, Instant};

/// Wait before the next question to a member that gave no hash.
const AGAIN: Duration = Duration::from_secs(10);

/// A member without a hash counts as asked for this long: until the next questions have ended.
const COUNTS: Duration = Duration::from_mins(1);

/// The hashes that the operator has read.
#[derive(Default)]
pub(super) struct Hashes(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// By Pod UID, and by the `CORRUPT` alarms under which they were taken.
    hashes: Aged<KeyHash>,
    rounds: HashMap<Question, Round>,
}

/// The Pods that are asked, and the alarms that stand.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Question {
    pods: Vec<String>,
    alarms: String,
}

/// The members of one question, asked in parallel.
struct Round {
    started: Instant,
    runs: bool,
    /// End of the last round, and the Pods that gave no hash in it.
    ended: Option<(Instant, Vec<String>)>,
}

impl Hashes {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets all Pods but these.
    pub(super) fn retain(&self, kept: impl Fn(&str) -> bool) {
        let mut known = self.lock();
        known.hashes.retain(&kept);
        known.rounds.retain(|question, _| question.pods.iter().all(|pod| kept(pod)));
    }
}

impl Known {
    fn hash(&self, at: &Address, alarms: &str) -> Option<KeyHash> {
        self.hashes.get(&(at.pod_uid.clone(), alarms.to_owned()), FRESH)
    }

    fn note(&mut self, at: &Address, alarms: &str, hash: &KeyHash) {
        self.hashes.put((at.pod_uid.clone(), alarms.to_owned()), Some(hash));
    }
}

/// Returns the hash of each member's key space, without the members that gave none; an empty map while members are asked beside
/// the pass. The end of that round calls `news`. Without a `CORRUPT` alarm no member is asked, and the earlier hashes are
/// forgotten.
pub(crate) fn hashes(pool: &Pool, members: &[Address], alarms: Option<&str>, news: &News) -> BTreeMap<String, KeyHash> {
    let Some(alarms) = alarms else {
        pool.hashes.retain(|pod| members.iter().all(|at| at.pod_uid != pod));
        return BTreeMap::new();
    };
    let mut known = pool.hashes.lock();
    let there: BTreeMap<String, KeyHash> =
        members.iter().filter_map(|at| Some((at.member.clone(), known.hash(at, alarms)?))).collect();
    let missing: Vec<Address> = members.iter().filter(|at| !there.contains_key(&at.member)).cloned().collect();
    if missing.is_empty() {
        return there;
    }
    let mut pods: Vec<String> = members.iter().map(|at| at.pod_uid.clone()).collect();
    pods.sort();
    let question = Question { pods, alarms: alarms.to_owned() };
    let now = clock::instant();
    let round = known.rounds.entry(question.clone()).or_insert(Round { started: now, runs: false, ended: None });
    let gave_none = |within: Duration| {
        let ended = round.ended.as_ref().filter(|(ended, _)| ended.elapsed() < within);
        ended.is_some_and(|(_, silent)| missing.iter().all(|at| silent.contains(&at.pod_uid)))
    };
    let (asked, counts) = (gave_none(AGAIN), gave_none(COUNTS));
    if !round.runs && !asked {
        (round.started, round.runs) = (now, true);
        tokio::spawn(read(pool.clone(), missing, question, now, Arc::clone(news)));
    }
    if counts { there } else { BTreeMap::new() }
}

async fn read(pool: Pool, members: Vec<Address>, question: Question, started: Instant, news: News) {
    let all = members.iter().map(async |at| (at, pool.read_hash(at).await));
    let all = futures::future::join_all(all).await;
    let mut known = pool.hashes.lock();
    // A forgotten round: its alarm was cleared, and the members may take writes again.
    let Some(round) = known.rounds.get_mut(&question).filter(|round| round.started == started) else { return };
    let silent = all.iter().filter(|(_, hash)| hash.is_err()).map(|(at, _)| at.pod_uid.clone()).collect();
    (round.runs, round.ended) = (false, Some((clock::instant(), silent)));
    for (at, hash) in all {
        match hash {
            Ok(hash) => known.note(at, &question.alarms, &hash),
            Err(failure) => tracing::debug!(member = at.member, %failure, "a member gave no hash"),
        }
    }
    drop(known);
    news();
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn at(member: &str) -> Address {
        Address { member: member.to_owned(), pod_uid: member.to_owned(), ip: "127.0.0.1".parse().unwrap(), tls: None }
    }

    fn nothing() -> News {
        Arc::new(|| {})
    }

    /// No server listens at the address: each hash comes from memory.
    #[tokio::test]
    async fn a_hash_is_read_once_while_the_same_alarms_stand() {
        let (pool, members) = (Pool::default(), [at("a")]);
        let hash = KeyHash { hash: 1, ..KeyHash::default() };
        pool.hashes.lock().note(&members[0], "12", &hash);
        let known = BTreeMap::from([("a".to_owned(), hash)]);
        assert_eq!(hashes(&pool, &members, Some("12"), &nothing()), known);
        assert_eq!(hashes(&pool, &members, Some("11,12"), &nothing()), BTreeMap::new(), "another alarm");
        assert_eq!(hashes(&pool, &members, None, &nothing()), BTreeMap::new());
        assert_eq!(hashes(&pool, &members, Some("12"), &nothing()), BTreeMap::new(), "writes came in between");
    }

    /// A voter without a hash would count as a voter with different data.
    #[tokio::test]
    async fn a_hash_is_missing_only_after_its_member_was_asked() {
        let (pool, members) = (Pool::default(), [at("a"), at("b")]);
        let hash = KeyHash { hash: 1, ..KeyHash::default() };
        pool.hashes.lock().note(&members[0], "12", &hash);
        let told = Arc::new(AtomicBool::new(false));
        let news: News = {
            let told = Arc::clone(&told);
            Arc::new(move || told.store(true, Ordering::SeqCst))
        };
        let ask = |news: &News| hashes(&pool, &members, Some("12"), news);
        assert_eq!(ask(&news), BTreeMap::new(), "b is asked");
        while !told.load(Ordering::SeqCst) {
            clock::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(ask(&news), BTreeMap::from([("a".to_owned(), hash)]), "b gave none");
    }

    /// A hash that was read while the alarm was cleared proves nothing under the next alarm.
    #[tokio::test]
    async fn a_round_that_ends_after_its_alarm_is_not_noted() {
        let (pool, members) = (Pool::default(), [at("a")]);
        assert_eq!(hashes(&pool, &members, Some("12"), &nothing()), BTreeMap::new());
        assert_eq!(hashes(&pool, &members, None, &nothing()), BTreeMap::new());
        clock::sleep(Duration::from_millis(300)).await;
        assert!(pool.hashes.lock().rounds.is_empty());
    }
}
