//! etcd as the source of a save: chooses the member, and opens its snapshot as a stream of bytes.
//!
//! This file decides the source: a healthy voter without a CORRUPT alarm whose applied index is close to the leader's, a
//! follower if there is one, so that the leader's disk gets no extra load. A linearizable read on that member comes first, so a
//! member without its quorum fails before the save. `etcd/connect.rs` decides the connection, `etcd/source/alone.rs` the member
//! to read without a quorum.

mod alone;

use std::cmp::Reverse;
use std::collections::HashSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use etcd_client::{Client, GetOptions, StatusResponse};
use futures::future::join_all;
use futures::stream::{self, Stream, StreamExt};
use holdfast_contract::error::{Error, Result, of_etcd};
use holdfast_contract::{EtcdFlags, ExitClass, SaveRequest};

use crate::connect::{Dialer, ask, etcd_error, in_time};
use crate::member::{Candidate, Member, Voter};

/// Maximum lag in entries. Members' answers are some milliseconds apart and a busy cluster applies some thousand entries a
/// second; a lagging member lags by more.
pub const LAG: u64 = 5_000;

/// The chosen member, connected.
pub struct Source {
    client: Client,
    /// Status of the member just before.
    pub facts: Candidate,
    /// Name in the member list.
    pub name: String,
    /// Revision of a linearizable read through the member: every write acknowledged before is at or below it.
    pub revision: i64,
    /// IDs and names of all members, from the member list.
    members: Vec<(u64, String)>,
    /// Whether no quorum answered: `revision` is then the member's own.
    pub without_quorum: bool,
    /// Other usable members, best first.
    others: Vec<(Client, Candidate)>,
    /// Time of the member's answer to a status request.
    answered_in: Duration,
}

/// Ranks the usable members, best first.
///
/// Followers come before the leader; among equals the member with the highest applied index, then the smaller ID, so that two
/// agents choose the same member.
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

/// Keeps each member's first place: a member may answer at two endpoints, with different indexes.
fn each_once(mut ranked: Vec<&Candidate>) -> Vec<&Candidate> {
    let mut known = HashSet::new();
    ranked.retain(|c| known.insert(c.member_id));
    ranked
}

/// Asks every member and connects to the source.
///
/// Without a quorum it fails, unless the request accepts that.
pub async fn choose(request: &SaveRequest) -> Result<Source> {
    let met = Met::ask(&request.etcd, request.expect_cluster_id.as_deref()).await.map_err(of_etcd)?;
    let chosen = met.usual().await;
    let chosen = if request.no_quorum { met.member_without_quorum(chosen, &request.etcd).await } else { chosen };
    chosen.map_err(of_etcd)
}

/// Chooses the member for a watch: as for a save, and always with a quorum.
pub async fn choose_for_watch(etcd: &EtcdFlags, expect_cluster_id: Option<&str>) -> Result<Source> {
    let met = Met::ask(etcd, expect_cluster_id).await.map_err(of_etcd)?;
    met.usual().await.map_err(of_etcd)
}

/// Kind of the read for a member's revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    /// Confirmed by a quorum as the newest.
    Linearizable,
    /// The member's own.
    Own,
}

/// All members that the agent has asked.
struct Met {
    dialer: Dialer,
    clients: Vec<Client>,
    /// Status of the members that answered; the client has the same index.
    candidates: Vec<Candidate>,
    /// Errors of the others.
    errors: Vec<Error>,
}

impl Met {
    async fn ask(flags: &EtcdFlags, expect_cluster_id: Option<&str>) -> Result<Self> {
        let expected = expect_cluster_id.map(parse_id).transpose()?;
        let dialer = Dialer::from_flags(flags)?;
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

    /// Returns the source with a quorum.
    async fn usual(&self) -> Result<Source> {
        self.best(&rank(&self.candidates), Read::Linearizable).await
    }

    /// Returns the first usable member.
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

/// Returns the reason for which no member is usable.
fn no_member(candidates: &[Candidate], errors: &[Error]) -> Error {
    if candidates.is_empty() {
        // A missing member may return; a refusal of another member stays.
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

/// Appended if one reason is transient and the alarm is not.
const ALARM: &str = "; the other members may recover, so try again. The CORRUPT alarm does not clear by itself: \
                     compare the members (etcdctl endpoint hashkv --cluster)";

/// Checks that all endpoints lead to one cluster, the expected one.
pub fn check_cluster(candidates: &[Candidate], expected: Option<u64>) -> Result<()> {
    let Some(first) = candidates.first() else { return Ok(()) };
    if let Some(other) = candidates.iter().find(|c| c.cluster_id != first.cluster_id) {
        return Err(Error::config(format!(
            "the endpoints belong to two clusters: {:x} ({}) and {:x} ({})",
            first.cluster_id, first.endpoint, other.cluster_id, other.endpoint
        )));
    }
    match expected {
        Some(expected) if expected != first.cluster_id => Err(Error::config(format!(
            "this is cluster {:x}, the request is for cluster {expected:x}: nothing was read",
            first.cluster_id
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Parses an ID as etcdctl and the operator write it.
pub fn parse_id(hex: &str) -> Result<u64> {
    u64::from_str_radix(hex.strip_prefix("0x").unwrap_or(hex), 16)
        .map_err(|_| Error::config(format!("{hex:?} is no etcd cluster ID (hex)")))
}

/// Connects to an endpoint, and asks its member for its status.
pub async fn meet(dialer: &Dialer, endpoint: &str) -> Result<(Client, Candidate)> {
    let (client, status) = dialer.dial(endpoint).await?;
    Ok((client, candidate(endpoint, &status)?))
}

/// Reads the member's revision, usually linearizable, then its name and its status.
async fn confirm(client: Client, chosen: &Candidate, read: Read) -> Result<Source> {
    let endpoint = &chosen.endpoint;
    let without_quorum = read == Read::Own;
    // Any key works; this key is short and does not exist.
    let one = || {
        let one = GetOptions::new().with_keys_only().with_limit(1);
        Some(if without_quorum { one.with_serializable() } else { one })
    };
    let answer = ask(endpoint, &client, |mut client| async move { client.get([0], one()).await });
    let members = ask(endpoint, &client, |mut client| async move { client.member_list().await });
    let (answer, members) = tokio::join!(answer, members);
    let revision = answer?.header().map_or(0, etcd_client::ResponseHeader::revision);
    let identify = |member: &etcd_client::Member| (member.id(), member.name().to_owned());
    let members = listed(members.map(|answer| answer.members().iter().map(identify).collect()), chosen.learner, read)?;
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

/// Returns the members by ID and name. A learner does not list members (etcd: `isRPCSupportedForLearner`), which must not
/// prevent a read from the last member; for a voter, unknown is not empty.
fn listed(answer: Result<Vec<(u64, String)>>, learner: bool, read: Read) -> Result<Vec<(u64, String)>> {
    answer.or_else(|error| if learner && read == Read::Own { Ok(Vec::new()) } else { Err(error) })
}

fn name_of(members: &[(u64, String)], id: u64) -> String {
    members.iter().find(|(member, _)| *member == id).map(|(_, name)| name.clone()).unwrap_or_default()
}

/// Reads a member's status.
pub fn candidate(endpoint: &str, status: &StatusResponse) -> Result<Candidate> {
    let header = status.header().ok_or_else(|| Error::transient(format!("{endpoint}: the answer has no header")))?;
    Ok(Candidate {
        endpoint: endpoint.to_owned(),
        cluster_id: header.cluster_id(),
        member_id: header.member_id(),
        leader: status.leader(),
        // etcd before 3.4 reports no applied index; the log's index is the best substitute.
        applied: if status.raft_applied_index() == 0 { status.raft_index() } else { status.raft_applied_index() },
        term: status.raft_term(),
        learner: status.is_learner(),
        corrupt: names_corrupt(status.errors(), header.member_id()),
        db_bytes: u64::try_from(status.db_size()).unwrap_or(0),
        used_bytes: u64::try_from(status.raft_used_db_size()).unwrap_or(0),
        version: status.version().to_owned(),
        storage_version: status.storage_version().to_owned(),
    })
}

/// Whether a CORRUPT alarm names this member. A member's status holds alarms as text: `memberID:1 alarm:CORRUPT`. The alarm
/// call would need a quorum, and this must work without.
fn names_corrupt(errors: &[String], member_id: u64) -> bool {
    errors.iter().any(|error| {
        let mut words = error.split_whitespace();
        let corrupt = words.clone().any(|word| word == "alarm:CORRUPT");
        // An alarm without a member concerns all.
        let named = words.find_map(|word| word.strip_prefix("memberID:"));
        corrupt && named.is_none_or(|id| id == member_id.to_string())
    })
}

/// Whether an error in a member's status is an active alarm of any member.
pub fn is_alarm(error: &str) -> bool {
    error.split_whitespace().any(|word| word.starts_with("alarm:"))
}

impl Source {
    /// Opens larger windows to a distant member.
    async fn widen(&mut self, dialer: &Dialer) {
        match dialer.widen(&self.facts.endpoint, self.answered_in).await {
            Ok(None) => {}
            // An endpoint may lead to several members; the existing connection is then the right one.
            Ok(Some((client, status)))
                if status.header().is_some_and(|header| header.member_id() == self.facts.member_id) =>
            {
                self.client = client;
                tracing::debug!(millis = self.answered_in.as_millis(), "the member is far away: larger windows");
            }
            Ok(Some(_)) => tracing::debug!("another member answered: the windows stay as they are"),
            // The existing connection works.
            Err(error) => tracing::debug!(%error, "the windows stay as they are"),
        }
    }

    /// Opens the snapshot. Returns its storage version (empty before 3.6), and its bytes with the trailer.
    ///
    /// The stream must be read to its end: the trailer comes in a message of its own, after the first message with no remaining
    /// bytes.
    pub async fn open(&mut self) -> Result<(String, impl Stream<Item = Result<Bytes>> + Send + Unpin + use<>)> {
        open(&self.client, self.facts.endpoint.clone()).await
    }

    /// Returns the client of the member.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the facts for the manifest.
    pub fn member(&self) -> Member {
        Member { facts: self.facts.clone(), name: self.name.clone(), without_quorum: self.without_quorum }
    }

    /// Returns the members for HashKV requests, the source first.
    pub fn voters(&self) -> Vec<Voter> {
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

/// Opens a member's snapshot, as [`Source::open`] does.
pub async fn open(
    client: &Client,
    endpoint: String,
) -> Result<(String, impl Stream<Item = Result<Bytes>> + Send + Unpin + use<>)> {
    // The upload of a save started meanwhile, so the login may have expired.
    let mut messages =
        ask(&endpoint, client, |mut client| async move { client.snapshot().await }).await.map_err(of_etcd)?;
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

/// A message whose bytes are used in place.
struct Blob(etcd_client::SnapshotResponse);

impl AsRef<[u8]> for Blob {
    fn as_ref(&self) -> &[u8] {
        self.0.blob()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A healthy member; member 1 leads.
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
            used_bytes: 1,
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
