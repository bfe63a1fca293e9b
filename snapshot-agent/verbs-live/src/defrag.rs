//! `agent defrag`: gives free space of the members' databases back, one member after the other.
//!
//! etcd rewrites the whole database and serves nothing meanwhile. This file decides the order (followers first, the largest file
//! first, the leader last) and the conditions before each member: every member answers and follows one leader, none is a learner
//! or lags behind, and the membership is the one of the beginning. So at most one member stands still, and a quorum of the others
//! is well (I1). The agent cannot see the member's disk: etcd needs room there for the bytes in use.

use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use holdfast_contract::error::{Error, Result, of_etcd};
use holdfast_contract::{DefragMember, DefragOutcome, DefragReport, DefragRequest, hex_id};
use holdfast_io::interrupt::Interrupt;
use tokio::time::{sleep, timeout};

use holdfast_etcd::connect::{ask, etcd_error, logged_in};
use holdfast_etcd::lists::List;
use holdfast_etcd::member::Candidate;
use holdfast_etcd::members::{Connected, check_all_reached, connect_all, list, name_of, reference};
use holdfast_etcd::source::{LAG, check_cluster, parse_id};
use holdfast_verbs_common::{bytes, lines};

/// How long a member may take to catch up after its defragmentation, and the members to follow another leader.
const WELL_WITHIN: Duration = Duration::from_mins(1);

/// Pause between two looks at the members.
const AGAIN: Duration = Duration::from_millis(200);

/// The report, and the failure that ended the run early.
#[derive(Debug)]
pub struct Ended {
    /// All members.
    pub report: DefragReport,
    /// Why the run ended before the last member.
    pub failed: Option<Error>,
}

/// Defragments the members. An error means that the agent touched no member.
pub fn run(request: DefragRequest) -> BoxFuture<'static, Result<Ended>> {
    Box::pin(async move {
        let mut interrupt = Interrupt::after(request.deadline_seconds.into())?;
        let mut started = interrupt.unless(Run::start(&request)).await?;
        let failed = interrupt.unless(started.defragment_all(&request)).await.err();
        Ok(Ended { report: started.report, failed })
    })
}

/// The members and the results so far.
struct Run {
    members: Vec<Connected>,
    listed: List,
    report: DefragReport,
}

impl Run {
    /// Connects to all members, and plans.
    async fn start(request: &DefragRequest) -> Result<Self> {
        let expected = request.expect_cluster_id.as_deref().map(parse_id).transpose()?;
        let members = connect_all(&request.etcd).await.map_err(of_etcd)?;
        let facts: Vec<Candidate> = members.iter().map(|member| member.facts.clone()).collect();
        check_cluster(&facts, expected)?;
        let listed = list(reference(&members)?).await?;
        check_all_reached(&listed, &members)?;
        // All members have the same data, and etcd counts the pages that a compaction has freed only after the next two writes to
        // the file: the member that uses the fewest bytes tells the size.
        let used_bytes = facts.iter().map(|facts| facts.used_bytes).min().unwrap_or(0);
        let member = |facts: &Candidate| DefragMember {
            name: name_of(&listed, facts.member_id),
            id: hex_id(facts.member_id),
            outcome: match (has_enough_free(facts.db_bytes, used_bytes, request), request.dry_run) {
                (false, _) => DefragOutcome::TooLittleFree,
                (true, true) => DefragOutcome::Planned,
                (true, false) => DefragOutcome::NotReached,
            },
            before_bytes: facts.db_bytes,
            used_bytes: used_bytes.min(facts.db_bytes),
            ..DefragMember::default()
        };
        let cluster_id = facts.first().map(|facts| hex_id(facts.cluster_id)).unwrap_or_default();
        let report = DefragReport { cluster_id, members: order(&facts).into_iter().map(member).collect() };
        Ok(Self { members, listed, report })
    }

    async fn defragment_all(&mut self, request: &DefragRequest) -> Result<()> {
        for place in 0..self.report.members.len() {
            if self.report.members[place].outcome != DefragOutcome::NotReached {
                continue;
            }
            let id = self.report.members[place].id.clone();
            self.wait_until_well().await?;
            if request.move_leader && self.leads(&id) {
                self.hand_leadership_over(&id).await?;
            }
            let (after_bytes, seconds) = self.defragment(&id, request).await?;
            let DefragMember { name, before_bytes, .. } = &self.report.members[place];
            tracing::info!(
                member = name,
                "defragmented: {} to {} in {seconds:.1} s",
                bytes(*before_bytes),
                bytes(after_bytes)
            );
            let done = &mut self.report.members[place];
            (done.outcome, done.after_bytes, done.seconds) =
                (DefragOutcome::Defragmented, Some(after_bytes), Some(seconds));
        }
        Ok(())
    }

    /// Waits until every member is well, and the membership is the one of the beginning.
    async fn wait_until_well(&mut self) -> Result<()> {
        let until = Instant::now() + WELL_WITHIN;
        loop {
            let why = match self.read_all().await {
                Ok(()) => {
                    let facts: Vec<Candidate> = self.members.iter().map(|member| member.facts.clone()).collect();
                    let Some(why) = describe_unwell(&facts) else { break };
                    Error::transient(format!("{why}. Defragment again when every member is well"))
                }
                Err(error) => error,
            };
            if Instant::now() >= until {
                return Err(of_etcd(why));
            }
            sleep(AGAIN).await;
        }
        if list(reference(&self.members)?).await? == self.listed {
            return Ok(());
        }
        Err(of_etcd(Error::transient("the membership changed. Defragment again when no member joins or leaves")))
    }

    async fn read_all(&mut self) -> Result<()> {
        for member in &mut self.members {
            member.read_status().await?;
        }
        Ok(())
    }

    fn leads(&self, id: &str) -> bool {
        self.members.iter().any(|member| hex_id(member.facts.leader) == id)
    }

    /// Moves the leadership to the follower with the highest applied index, and waits until every member follows it.
    async fn hand_leadership_over(&mut self, from: &str) -> Result<()> {
        let others = self.members.iter().filter(|member| hex_id(member.facts.member_id) != from);
        let Some(to) = others.max_by_key(|member| member.facts.applied).map(|member| member.facts.member_id) else {
            tracing::warn!("the only member stands still: clients wait until it is defragmented");
            return Ok(());
        };
        let leader = self.member(from)?;
        ask(&leader.facts.endpoint, &leader.client, |mut client| async move { client.move_leader(to).await })
            .await
            .map_err(of_etcd)?;
        tracing::info!(to = name_of(&self.listed, to), "moved the leadership");
        let until = Instant::now() + WELL_WITHIN;
        loop {
            let read = self.read_all().await;
            if read.is_ok() && self.members.iter().all(|member| member.facts.leader == to) {
                return Ok(());
            }
            if Instant::now() >= until {
                let why = read.err().unwrap_or_else(|| Error::transient("the members do not follow another leader"));
                return Err(of_etcd(why));
            }
            sleep(AGAIN).await;
        }
    }

    /// Defragments one member. Returns the bytes of its file and the seconds.
    async fn defragment(&mut self, id: &str, request: &DefragRequest) -> Result<(u64, f64)> {
        let limit = Duration::from_secs(request.member_seconds.into());
        let member = self.member(id)?;
        let endpoint = member.facts.endpoint.clone();
        tracing::info!(endpoint, "defragmenting {}", bytes(member.facts.db_bytes));
        let started = Instant::now();
        let call = logged_in(&member.client, |mut client| async move { client.defragment().await });
        let late = || {
            let seconds = request.member_seconds;
            of_etcd(Error::transient(format!(
                "{endpoint} did not finish within {seconds} s (--member-seconds). etcd goes on with it: look at the member \
                 before the next run"
            )))
        };
        let answer = timeout(limit, call).await.map_err(|_| late())?;
        answer.map_err(|error| of_etcd(etcd_error(&endpoint, &error)))?;
        let seconds = started.elapsed().as_secs_f64();
        let member = self.members.iter_mut().find(|member| hex_id(member.facts.member_id) == id);
        let member = member.ok_or_else(|| Error::config("the member is not connected"))?;
        member.read_status().await.map_err(of_etcd)?;
        Ok((member.facts.db_bytes, seconds))
    }

    fn member(&self, id: &str) -> Result<&Connected> {
        let found = self.members.iter().find(|member| hex_id(member.facts.member_id) == id);
        found.ok_or_else(|| Error::config("the member is not connected"))
    }
}

/// Whether a file of this size has enough free space for a defragmentation.
fn has_enough_free(bytes: u64, used: u64, request: &DefragRequest) -> bool {
    let free = bytes.saturating_sub(used);
    let percent = u128::from(free) * 100 >= u128::from(request.free_percent) * u128::from(bytes);
    free > 0 && free >= u64::from(request.free_mib) << 20 && percent
}

/// Returns the members in their order: the leader last, before it the largest file first.
fn order(members: &[Candidate]) -> Vec<&Candidate> {
    let mut all: Vec<&Candidate> = members.iter().collect();
    all.sort_by_key(|member| (member.leader == member.member_id, std::cmp::Reverse(member.db_bytes), member.member_id));
    all
}

/// Returns why no member may stand still; `None` where every member is well.
fn describe_unwell(members: &[Candidate]) -> Option<String> {
    let leader = members.iter().find(|member| member.leader == member.member_id);
    let Some(leader) = leader else { return Some("no member leads".to_owned()) };
    let why = |member: &Candidate| match member {
        Candidate { learner: true, .. } => Some("is a learner"),
        Candidate { corrupt: true, .. } => Some("has a CORRUPT alarm"),
        _ if member.leader != leader.member_id => Some("does not follow the leader"),
        _ if member.applied.saturating_add(LAG) < leader.applied => Some("lags behind"),
        _ => None,
    };
    members.iter().find_map(|member| Some(format!("{} {}", member.endpoint, why(member)?)))
}

/// Formats a report for a terminal.
pub fn text(report: &DefragReport, request: &DefragRequest) -> String {
    let member = |member: &DefragMember| {
        let DefragMember { name, id, outcome, before_bytes, used_bytes, after_bytes, seconds } = member;
        let free = bytes(before_bytes.saturating_sub(*used_bytes));
        let whole = bytes(*before_bytes);
        let (label, result) = match outcome {
            DefragOutcome::TooLittleFree => {
                let (percent, mib) = (request.free_percent, request.free_mib);
                (
                    "left",
                    format!("{free} of {whole} are free; --free-percent {percent} and --free-mib {mib} ask for more"),
                )
            }
            DefragOutcome::Planned => ("planned", format!("{free} of {whole} are free")),
            DefragOutcome::NotReached => ("NOT REACHED", format!("{free} of {whole} are free")),
            DefragOutcome::Defragmented => {
                let (after, seconds) = (bytes(after_bytes.unwrap_or_default()), seconds.unwrap_or_default());
                ("defragmented", format!("{whole} to {after} in {seconds:.1} s"))
            }
        };
        (label, format!("{name} ({id}): {result}"))
    };
    let mut rows = vec![("cluster", report.cluster_id.clone())];
    rows.extend(report.members.iter().map(member));
    lines(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(member_id: u64, db_bytes: u64, used_bytes: u64) -> Candidate {
        Candidate {
            endpoint: format!("http://m{member_id}:2379"),
            cluster_id: 7,
            member_id,
            leader: 1,
            applied: 100_000,
            term: 2,
            learner: false,
            corrupt: false,
            db_bytes,
            used_bytes,
            version: "3.6.16".to_owned(),
            storage_version: "3.6.0".to_owned(),
        }
    }

    fn limits(free_percent: u8, free_mib: u32) -> DefragRequest {
        DefragRequest { free_percent, free_mib, ..DefragRequest::default() }
    }

    #[test]
    fn both_limits_hold() {
        const MIB: u64 = 1 << 20;
        let half = |request: DefragRequest| has_enough_free(512 * MIB, 256 * MIB, &request);
        assert!(half(limits(50, 256)) && !half(limits(51, 256)) && !half(limits(50, 257)));
        assert!(!has_enough_free(100, 100, &limits(0, 0)), "nothing is free");
        assert!(!has_enough_free(100, 120, &limits(0, 0)), "a file that grew between two answers");
    }

    #[test]
    fn the_leader_is_last_and_the_largest_file_first() {
        let members = [member(1, 900, 100), member(2, 400, 100), member(3, 500, 100)];
        assert_eq!(order(&members).iter().map(|member| member.member_id).collect::<Vec<_>>(), [3, 2, 1]);
    }

    #[test]
    fn no_member_stands_still_beside_one_that_is_not_well() {
        let changed = |change: fn(&mut Candidate)| {
            let mut members = [member(1, 1, 1), member(2, 1, 1), member(3, 1, 1)];
            change(&mut members[2]);
            describe_unwell(&members)
        };
        assert_eq!(changed(|_| {}), None);
        assert_eq!(changed(|m| m.applied -= LAG), None);
        assert_eq!(changed(|m| m.applied -= LAG + 1).unwrap(), "http://m3:2379 lags behind");
        assert_eq!(changed(|m| m.leader = 0).unwrap(), "http://m3:2379 does not follow the leader");
        assert_eq!(changed(|m| m.learner = true).unwrap(), "http://m3:2379 is a learner");
        assert_eq!(changed(|m| m.corrupt = true).unwrap(), "http://m3:2379 has a CORRUPT alarm");
        assert_eq!(describe_unwell(&[Candidate { leader: 0, ..member(1, 1, 1) }]).unwrap(), "no member leads");
    }

    #[test]
    fn a_report_is_printed_with_each_outcome() {
        let member = DefragMember {
            name: "m1".to_owned(),
            id: "d1d8".to_owned(),
            before_bytes: 1 << 30,
            used_bytes: 1 << 28,
            ..DefragMember::default()
        };
        let done = DefragMember {
            outcome: DefragOutcome::Defragmented,
            after_bytes: Some(1 << 28),
            seconds: Some(2.54),
            ..member.clone()
        };
        let planned = DefragMember { outcome: DefragOutcome::Planned, ..member.clone() };
        let missed = DefragMember { outcome: DefragOutcome::NotReached, ..member.clone() };
        let report = DefragReport { cluster_id: "30d2".to_owned(), members: vec![done, planned, missed, member] };
        assert_eq!(
            text(&report, &limits(90, 256)),
            "cluster       30d2\n\
             defragmented  m1 (d1d8): 1.00 GiB (1073741824 bytes) to 256.00 MiB (268435456 bytes) in 2.5 s\n\
             planned       m1 (d1d8): 768.00 MiB (805306368 bytes) of 1.00 GiB (1073741824 bytes) are free\n\
             NOT REACHED   m1 (d1d8): 768.00 MiB (805306368 bytes) of 1.00 GiB (1073741824 bytes) are free\n\
             left          m1 (d1d8): 768.00 MiB (805306368 bytes) of 1.00 GiB (1073741824 bytes) are free; \
             --free-percent 90 and --free-mib 256 ask for more\n"
        );
    }
}
