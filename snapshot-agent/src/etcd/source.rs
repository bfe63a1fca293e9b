//! The etcd side of a save: which member to read from, and its snapshot as a stream of bytes.
//!
//! It decides the source: a healthy voter without a CORRUPT alarm whose applied index is close to the leader's, a
//! follower when there is one, so that the leader's disk is left alone. A linearizable read on that member comes first:
//! a member cut off from its quorum fails there and not in the backup. How a member is spoken to is decided in
//! `etcd/connect.rs`, who is read when no quorum answers and a person wants what is left in `etcd/source/alone.rs`.

mod alone;

use std::cmp::Reverse;
use std::collections::HashSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use etcd_client::{Client, GetOptions, StatusResponse};
use futures::future::join_all;
use futures::stream::{self, Stream, StreamExt};

use crate::contract::{EtcdFlags, ExitClass, SaveRequest};
use crate::error::{Error, Result, of_etcd};
use crate::etcd::connect::{Dialer, ask, etcd_error, in_time};
use crate::etcd::member::{Candidate, Member, Voter};

/// How many entries a member may be behind. Members' answers are some milliseconds apart and a busy cluster applies
/// some thousand entries a second; a member that lags for real lags by more.
const LAG: u64 = 5_000;

/// The chosen member, connected.
pub struct Source {
    client: Client,
    /// What it said just before.
    pub facts: Candidate,
    /// Its name in the member list.
    pub name: String,
    /// The revision of a linearizable read through it: what was acknowledged before is at or below this.
    pub revision: i64,
    /// IDs and names of all members, as the member list had them.
    members: Vec<(u64, String)>,
    /// Whether no quorum answered: then `revision` is the member's own.
    pub without_quorum: bool,
    /// Other members that could be read from, best first.
    others: Vec<(Client, Candidate)>,
    /// How long it took to say how it is.
    answered_in: Duration,
}

/// Members to read from, best first.
///
/// Followers come before the leader; among equals the one that has applied most, then the smaller ID, so that two
/// agents looking at the same cluster choose the same member.
pub fn rank(candidates: &[Candidate]) -> Vec<&Candidate> {
    let leader = candidates.iter().find(|c| c.leader == c.member_id);
    let newest = leader.map_or_else(|| candidates.iter().map(|c| c.applied).max().unwrap_or(0), |c| c.applied);
    let mut ranked: Vec<_> = candidates
        .iter()
        .filter(|c| c.leader != 0 && !c.learner && !c.corrupt && c.applied.saturating_add(LAG) >= newest)
        .collect();
    ranked.sort_by_key(|c| (c.leader == c.member_id, Reverse(c.applied), c.member_id));
    each_once(ranked)
}

/// Each member at its first place: it may be behind two endpoints, and answer each with another index.
fn each_once(mut ranked: Vec<&Candidate>) -> Vec<&Candidate> {
    let mut known = HashSet::new();
    ranked.retain(|c| known.insert(c.member_id));
    ranked
}

/// Asks every member and connects to the one to read from.
///
/// Without a quorum it fails, unless the request wants what is left.
pub async fn choose(request: &SaveRequest) -> Result<Source> {
    let met = Met::of(&request.etcd, request.expect_cluster_id.as_deref()).await.map_err(of_etcd)?;
    let chosen = met.usual().await;
    let chosen = if request.no_quorum { met.member_without_quorum(chosen, &request.etcd).await } else { chosen };
    chosen.map_err(of_etcd)
}

/// How a member is asked for its revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    /// With a quorum's word that there is no newer one.
    Linearizable,
    /// For what it has itself.
    Own,
}

/// All members that were asked.
struct Met {
    dialer: Dialer,
    clients: Vec<Client>,
    /// Those that answered, each with its client at the same place.
    candidates: Vec<Candidate>,
    /// What the others came to.
    errors: Vec<Error>,
}

impl Met {
    async fn of(flags: &EtcdFlags, expect_cluster_id: Option<&str>) -> Result<Self> {
        let expected = expect_cluster_id.map(parse_id).transpose()?;
        let dialer = Dialer::of(flags)?;
        let answers = join_all(flags.endpoints.iter().map(|endpoint| meet(&dialer, endpoint))).await;
        let mut met = Self { dialer, clients: Vec::new(), candidates: Vec::new(), errors: Vec::new() };
        for answer in answers {
            match answer {
                Ok((client, candidate)) => {
                    met.clients.push(client);
                    met.candidates.push(candidate);
                }
                Err(error) => {
                    tracing::warn!(%error, "a member does not answer");
                    met.errors.push(error);
                }
            }
        }
        check_cluster(&met.candidates, expected)?;
        Ok(met)
    }

    fn client(&self, of: &Candidate) -> Option<&Client> {
        self.candidates.iter().position(|candidate| candidate == of).and_then(|at| self.clients.get(at))
    }

    /// The one that is read from where a quorum answers.
    async fn usual(&self) -> Result<Source> {
        self.best(&rank(&self.candidates), Read::Linearizable).await
    }

    /// The first of these that can be read from.
    async fn best(&self, ranked: &[&Candidate], read: Read) -> Result<Source> {
        let mut error = no_member(&self.candidates, &self.errors);
        for chosen in ranked {
            let Some(client) = self.client(chosen) else { continue };
            match confirm(client.clone(), chosen, read).await {
                Ok(mut source) => {
                    let others = ranked.iter().filter(|other| other.member_id != chosen.member_id);
                    source.widen(&self.dialer).await;
                    source.others =
                        others.filter_map(|other| Some((self.client(other)?.clone(), (*other).clone()))).collect();
                    tracing::info!(
                        member = source.name,
                        endpoint = source.facts.endpoint,
                        leader = source.facts.leader == source.facts.member_id,
                        "reading from"
                    );
                    return Ok(source);
                }
                Err(refused) => {
                    tracing::warn!(endpoint = chosen.endpoint, error = %refused, "not reading from this member");
                    error = refused;
                }
            }
        }
        Err(error)
    }
}

/// Why no member can be read from, when it is not a member's own answer.
fn no_member(candidates: &[Candidate], errors: &[Error]) -> Error {
    if candidates.is_empty() {
        // A member that is away may come back; what the others refuse, they will refuse again.
        let last = errors.iter().max_by_key(|error| error.class() != ExitClass::Transient).cloned();
        return last.unwrap_or_else(|| Error::config("no endpoint was given"));
    }
    let why = |c: &Candidate| {
        let what = match c {
            Candidate { corrupt: true, .. } => "has a CORRUPT alarm",
            Candidate { learner: true, .. } => "is a learner",
            Candidate { leader: 0, .. } => "knows no leader",
            _ => "lags behind",
        };
        format!("{} {what}", c.endpoint)
    };
    let all: Vec<_> = candidates.iter().map(why).chain(errors.iter().map(|e| e.message().to_owned())).collect();
    let lost = candidates.iter().all(|candidate| candidate.leader == 0);
    let remedy = if lost { alone::REMEDY } else { "" };
    // A member without the alarm may serve again after an election; the alarm itself stays.
    let others =
        candidates.iter().any(|c| !c.corrupt) || errors.iter().any(|error| error.class() == ExitClass::Transient);
    let alarm = if others && candidates.iter().any(|c| c.corrupt) { ALARM } else { "" };
    let message = format!("no member can serve a snapshot: {}{remedy}{alarm}", all.join("; "));
    if others { Error::transient(message) } else { Error::corrupt(message) }
}

/// Behind reasons of which one passes and one does not.
const ALARM: &str = "; the other members may recover, so try again. The CORRUPT alarm does not clear by itself: \
                     compare the members (etcdctl endpoint hashkv --cluster)";

/// All endpoints have to lead to one cluster, and to the one this snapshot is for.
fn check_cluster(candidates: &[Candidate], expected: Option<u64>) -> Result<()> {
    let Some(first) = candidates.first() else { return Ok(()) };
    if let Some(other) = candidates.iter().find(|c| c.cluster_id != first.cluster_id) {
        return Err(Error::config(format!(
            "the endpoints belong to two clusters: {:x} ({}) and {:x} ({})",
            first.cluster_id, first.endpoint, other.cluster_id, other.endpoint
        )));
    }
    match expected {
        Some(expected) if expected != first.cluster_id => Err(Error::config(format!(
            "this is cluster {:x}, the snapshot is for cluster {expected:x}: nothing was read",
            first.cluster_id
        ))),
        Some(_) | None => Ok(()),
    }
}

/// An ID as etcdctl and the operator write it.
fn parse_id(hex: &str) -> Result<u64> {
    u64::from_str_radix(hex.strip_prefix("0x").unwrap_or(hex), 16)
        .map_err(|_| Error::config(format!("{hex:?} is no etcd cluster ID (hex)")))
}

async fn meet(dialer: &Dialer, endpoint: &str) -> Result<(Client, Candidate)> {
    let (client, status) = dialer.dial(endpoint).await?;
    Ok((client, candidate(endpoint, &status)?))
}

/// A read, linearizable as a rule, the member's name, and its state after that.
async fn confirm(client: Client, chosen: &Candidate, read: Read) -> Result<Source> {
    let endpoint = &chosen.endpoint;
    let without_quorum = read == Read::Own;
    // Any key will do; this one is short and nobody has it.
    let one = || {
        let one = GetOptions::new().with_keys_only().with_limit(1);
        Some(if without_quorum { one.with_serializable() } else { one })
    };
    let answer = ask(endpoint, &client, |mut client| async move { client.get([0], one()).await });
    let members = ask(endpoint, &client, |mut client| async move { client.member_list().await });
    let (answer, members) = tokio::join!(answer, members);
    let revision = answer?.header().map_or(0, etcd_client::ResponseHeader::revision);
    let of = |member: &etcd_client::Member| (member.id(), member.name().to_owned());
    let members = listed(members.map(|answer| answer.members().iter().map(of).collect()), chosen.learner, read)?;
    let asked = Instant::now();
    let status = ask(endpoint, &client, |mut client| async move { client.status().await }).await?;
    let answered_in = asked.elapsed();
    let facts = candidate(endpoint, &status)?;
    if (facts.cluster_id, facts.member_id) != (chosen.cluster_id, chosen.member_id) {
        return Err(Error::transient(format!("{endpoint} now leads to another member")));
    }
    let name = name_of(&members, facts.member_id);
    Ok(Source { client, facts, name, revision, members, without_quorum, others: Vec::new(), answered_in })
}

/// Members by ID and name. A learner lists them for nobody (etcd: `isRPCSupportedForLearner`), which is no reason not to
/// read it where nothing else is left; of a voter, unknown is not none.
fn listed(answer: Result<Vec<(u64, String)>>, learner: bool, read: Read) -> Result<Vec<(u64, String)>> {
    answer.or_else(|error| if learner && read == Read::Own { Ok(Vec::new()) } else { Err(error) })
}

fn name_of(members: &[(u64, String)], id: u64) -> String {
    members.iter().find(|(member, _)| *member == id).map(|(_, name)| name.clone()).unwrap_or_default()
}

fn candidate(endpoint: &str, status: &StatusResponse) -> Result<Candidate> {
    let header = status.header().ok_or_else(|| Error::transient(format!("{endpoint}: the answer has no header")))?;
    Ok(Candidate {
        endpoint: endpoint.to_owned(),
        cluster_id: header.cluster_id(),
        member_id: header.member_id(),
        leader: status.leader(),
        // Before 3.4 there was no applied index; the log's own is the best there is then.
        applied: if status.raft_applied_index() == 0 { status.raft_index() } else { status.raft_applied_index() },
        term: status.raft_term(),
        learner: status.is_learner(),
        corrupt: names_corrupt(status.errors(), header.member_id()),
        db_bytes: u64::try_from(status.db_size()).unwrap_or(0),
        version: status.version().to_owned(),
        storage_version: status.storage_version().to_owned(),
    })
}

/// Whether a CORRUPT alarm names this member. Alarms stand in a member's status as text: `memberID:1 alarm:CORRUPT`.
/// The alarm call would need a quorum, and this has to work without.
fn names_corrupt(errors: &[String], member_id: u64) -> bool {
    errors.iter().any(|error| {
        let mut words = error.split_whitespace();
        let corrupt = words.clone().any(|word| word == "alarm:CORRUPT");
        // An alarm that names nobody is everybody's.
        let named = words.find_map(|word| word.strip_prefix("memberID:"));
        corrupt && named.is_none_or(|id| id == member_id.to_string())
    })
}

/// Whether a member's word of trouble is an alarm that is on, whoever's.
pub(crate) fn is_alarm(error: &str) -> bool {
    error.split_whitespace().any(|word| word.starts_with("alarm:"))
}

impl Source {
    /// Takes larger windows for a member that is far away.
    async fn widen(&mut self, dialer: &Dialer) {
        match dialer.widen(&self.facts.endpoint, self.answered_in).await {
            Ok(None) => {}
            // An endpoint may lead to several members; then the slow connection is the right one.
            Ok(Some((client, status)))
                if status.header().is_some_and(|header| header.member_id() == self.facts.member_id) =>
            {
                self.client = client;
                tracing::debug!(millis = self.answered_in.as_millis(), "the member is far away: larger windows");
            }
            Ok(Some(_)) => tracing::debug!("another member answered: the windows stay as they are"),
            // There is a connection that works.
            Err(error) => tracing::debug!(%error, "the windows stay as they are"),
        }
    }

    /// Opens the snapshot: the storage version it was made with (empty before 3.6), and its bytes, trailer and all.
    ///
    /// The stream is read to its end: the trailer comes in a message of its own, after the first one that says that
    /// nothing remains.
    pub async fn open(&mut self) -> Result<(String, impl Stream<Item = Result<Bytes>> + Send + Unpin + use<>)> {
        let endpoint = self.facts.endpoint.clone();
        // The upload was begun meanwhile, so the login may have expired.
        let mut messages =
            ask(&endpoint, &self.client, |mut client| async move { client.snapshot().await }).await.map_err(of_etcd)?;
        let first = in_time(&endpoint, messages.message()).await.map_err(of_etcd)?;
        let version = first.as_ref().map(|first| first.version().to_owned()).unwrap_or_default();
        let rest = stream::unfold((messages, endpoint), |(mut messages, endpoint)| async move {
            let next = match messages.message().await {
                Ok(None) => return None,
                Ok(Some(message)) => Ok(Bytes::from_owner(Blob(message))),
                Err(error) => Err(of_etcd(etcd_error(&endpoint, &error))),
            };
            Some((next, (messages, endpoint)))
        });
        let first = stream::iter(first.map(|first| Ok(Bytes::from_owner(Blob(first)))));
        Ok((version, first.chain(rest).boxed()))
    }
}

impl Source {
    /// What a manifest records of it.
    pub(crate) fn member(&self) -> Member {
        Member { facts: self.facts.clone(), name: self.name.clone(), without_quorum: self.without_quorum }
    }

    /// The members to ask whether they hold the same, this one first.
    pub(crate) fn voters(&self) -> Vec<Voter> {
        let this = std::iter::once((&self.client, &self.facts));
        let all = this.chain(self.others.iter().map(|(client, facts)| (client, facts)));
        let voter = |(client, facts): (&Client, &Candidate)| Voter {
            client: client.clone(),
            endpoint: facts.endpoint.clone(),
            member_id: facts.member_id,
            name: name_of(&self.members, facts.member_id),
            leader: facts.leader == facts.member_id,
        };
        all.map(voter).collect()
    }
}

/// A message whose bytes are used where they lie.
struct Blob(etcd_client::SnapshotResponse);

impl AsRef<[u8]> for Blob {
    fn as_ref(&self) -> &[u8] {
        self.0.blob()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A healthy member; 1 leads.
    pub(super) fn healthy(member_id: u64) -> Candidate {
        Candidate {
            endpoint: format!("http://m{member_id}:2379"),
            cluster_id: 7,
            member_id,
            leader: 1,
            applied: 100_000,
            term: 2,
            learner: false,
            corrupt: false,
            db_bytes: 1,
            version: "3.6.16".to_owned(),
            storage_version: "3.6.0".to_owned(),
        }
    }

    fn three() -> Vec<Candidate> {
        (1..=3).map(healthy).collect()
    }

    fn order(change: impl FnOnce(&mut Vec<Candidate>)) -> Vec<u64> {
        let mut members = three();
        change(&mut members);
        rank(&members).into_iter().map(|c| c.member_id).collect()
    }

    #[test]
    fn followers_first_then_the_leader() {
        assert_eq!(order(|_| {}), [2, 3, 1]);
        assert_eq!(order(|m| m.reverse()), [2, 3, 1], "the order of the endpoints does not matter");
        assert_eq!(order(|m| m[2].applied += 1), [3, 2, 1]);
        assert_eq!(order(|m| m.truncate(1)), [1], "a cluster of one");
    }

    #[test]
    fn a_member_behind_two_endpoints_is_one() {
        let again = |m: &mut Vec<Candidate>| {
            let before = Candidate { applied: m[1].applied - 2, ..m[1].clone() };
            m[2].applied = m[1].applied - 1;
            m.push(before);
        };
        assert_eq!(order(again), [2, 3, 1], "others stand between its two answers");
    }

    #[test]
    fn a_list_that_does_not_come_is_no_empty_list() {
        let failed = || Err(Error::transient("no answer"));
        for (learner, read) in [(false, Read::Own), (false, Read::Linearizable), (true, Read::Linearizable)] {
            assert_eq!(listed(failed(), learner, read), failed(), "{learner} {read:?}");
        }
        assert_eq!(listed(failed(), true, Read::Own), Ok(Vec::new()), "it answers this for nobody");
        let some = vec![(1, "house-1".to_owned())];
        assert_eq!(listed(Ok(some.clone()), true, Read::Own), Ok(some));
    }

    #[test]
    fn one_unfit_member_at_a_time() {
        assert_eq!(order(|m| m[1].learner = true), [3, 1]);
        assert_eq!(order(|m| m[1].corrupt = true), [3, 1]);
        assert_eq!(order(|m| m[1].leader = 0), [3, 1]);
        assert_eq!(order(|m| m[1].applied -= LAG + 1), [3, 1]);
        assert_eq!(order(|m| m[1].applied -= LAG), [3, 2, 1]);
        assert_eq!(order(|m| m.iter_mut().for_each(|c| c.leader = 0)), [] as [u64; 0]);
    }

    #[test]
    fn two_names_of_one_member_are_one_member() {
        assert_eq!(order(|m| m.push(Candidate { endpoint: "http://svc:2379".to_owned(), ..m[1].clone() })), [2, 3, 1]);
    }

    #[test]
    fn another_cluster_is_refused() {
        assert_eq!(check_cluster(&three(), Some(7)), Ok(()));
        assert_eq!(check_cluster(&three(), None), Ok(()));
        assert_eq!(check_cluster(&three(), Some(8)).unwrap_err().class(), ExitClass::Config);
        let mut mixed = three();
        mixed[2].cluster_id = 8;
        assert_eq!(check_cluster(&mixed, None).unwrap_err().class(), ExitClass::Config);
        assert_eq!(parse_id("0xcafe"), Ok(0xcafe));
        assert_eq!(parse_id("xyz").unwrap_err().class(), ExitClass::Config);
    }

    #[test]
    fn only_a_corrupt_alarm_of_its_own_counts() {
        let corrupt = |text: &str| names_corrupt(&[text.to_owned()], 1);
        assert!(corrupt("memberID:1 alarm:CORRUPT "));
        assert!(corrupt("memberID:1  alarm:CORRUPT"));
        assert!(corrupt("alarm:CORRUPT"));
        assert!(!corrupt("memberID:11 alarm:CORRUPT "));
        assert!(!corrupt("memberID:1 alarm:NOSPACE "));
        assert!(is_alarm("memberID:1 alarm:NOSPACE ") && !is_alarm("etcdserver: no leader"));
        assert!(!corrupt("etcdserver: no leader"));
    }

    #[test]
    fn when_nobody_is_left_the_reason_is_told() {
        let mut members = three();
        for member in &mut members {
            member.leader = 0;
        }
        let error = no_member(&members, &[Error::transient("m4 is gone")]);
        assert_eq!(error.class(), ExitClass::Transient);
        for word in ["knows no leader", "m4 is gone", "--no-quorum"] {
            assert!(error.message().contains(word), "{error}");
        }
        assert_eq!(no_member(&[], &[]).class(), ExitClass::Config);
        assert_eq!(no_member(&[], &[Error::denied("no")]).class(), ExitClass::Denied);
        let mixed = vec![Error::transient("away"), Error::denied("no"), Error::transient("away")];
        assert_eq!(no_member(&[], &mixed).class(), ExitClass::Denied, "asked again, it says the same");
    }

    #[test]
    fn an_alarm_is_no_last_word_on_who_has_none() {
        let corrupt = Candidate { corrupt: true, ..healthy(1) };
        let leaderless = |id| Candidate { leader: 0, ..healthy(id) };
        let away = || Error::transient("m2 does not answer");
        for (others, errors) in [
            (vec![leaderless(2), leaderless(3)], vec![]),
            (vec![leaderless(2)], vec![Error::denied("m3 says no")]),
            (vec![], vec![away(), away()]),
            (vec![], vec![Error::denied("m3 says no"), away()]),
        ] {
            let all = [vec![corrupt.clone()], others].concat();
            assert!(rank(&all).is_empty());
            let error = no_member(&all, &errors);
            assert_eq!(error.class(), ExitClass::Transient, "{error}");
            for word in ["m1:2379 has a CORRUPT alarm", "m2", "try again", "does not clear by itself"] {
                assert!(error.message().contains(word), "no {word:?} in {error}");
            }
        }
        let all = [corrupt, Candidate { corrupt: true, ..leaderless(2) }];
        for errors in [vec![], vec![Error::denied("m3 says no")]] {
            let error = no_member(&all, &errors);
            assert_eq!(error.class(), ExitClass::Corrupt, "{error}");
            assert!(!error.message().contains("try again"), "{error}");
        }
    }
}
