//! Choices after a lost quorum: wait for members, go on from a survivor, or restore from a store.
//!
//! PURE. Decides which choices there are, their order, and the sentence about the losses of each. A member's applied index is less than
//! its log may have, so that no member is called the best of several.

use holdfast_api::cluster::{DataEnd, MemberSummary};
use holdfast_api::name::LocalRef;
use holdfast_api::snapshot::{EtcdSnapshot, Phase};
use holdfast_api::timeline::FromMember;
use holdfast_api::{EtcdCluster, EtcdMember, EtcdRestore, EtcdRestoreSpec, EtcdSnapshotSchedule, role};
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::ObjectMeta;
use serde::Serialize;

use crate::restore::in_place::{find_open, name_of, timeline};
use crate::restore::yaml;
use crate::screen::{Screen, Table, Tone, cell, wrap};
use crate::status::timeline::is_present;
use crate::time::{clock, date, grouped, parse, relative};

/// The choices of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Recovery {
    /// Time of the plan.
    pub at: Timestamp,
    /// Name of the `EtcdCluster`.
    pub cluster: String,
    /// Its namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Voters that answer or may come back, and voters that a quorum needs.
    pub voters: Voters,
    /// The choices, the one that loses least first.
    pub choices: Vec<Choice>,
    /// The timeline that an `EtcdRestore` would make.
    pub timeline: u32,
    /// The only member with a volume; absent where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub survivor: Option<String>,
    /// Name of the `EtcdRestore` that goes on from the survivor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore: Option<String>,
    /// An `EtcdRestore` that comes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<String>,
}

/// Counts of voters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Voters {
    /// Voters that etcd listed last.
    pub all: usize,
    /// Voters with a claim.
    pub with_volume: usize,
    /// Voters that a quorum needs.
    pub needed: usize,
}

/// One way out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Choice {
    /// Kind of the way.
    pub way: Way,
    /// Name of the member, of the schedule with the log, or of the snapshot.
    pub name: String,
    /// Last revision; absent: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// End of a member's data by its last answer; absent: unknown, or no member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<DataEnd>,
    /// Time up to which the data goes; absent: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The losses.
    pub loses: String,
}

/// Kind of a way out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Way {
    /// Wait until members are back.
    #[default]
    Wait,
    /// Go on from one member's volume.
    Member,
    /// Restore a snapshot with the log after it into a new cluster.
    Log,
    /// Restore a snapshot into a new cluster.
    Snapshot,
}

/// A member with its facts.
struct Known<'a> {
    name: String,
    summary: Option<&'a MemberSummary>,
    has_claim: bool,
}

impl Known<'_> {
    fn end(&self) -> Option<&DataEnd> {
        self.summary.and_then(|summary| summary.data_end.as_ref())
    }

    fn describe(&self) -> String {
        match self.end() {
            Some(end) => format!("{} ({end})", self.name),
            None => format!("{} (unknown)", self.name),
        }
    }
}

impl Recovery {
    /// Makes the plan.
    pub fn plan(
        cluster: &EtcdCluster,
        members: &[EtcdMember],
        restores: &[EtcdRestore],
        (snapshots, schedules): (&[EtcdSnapshot], &[EtcdSnapshotSchedule]),
        at: Timestamp,
    ) -> Self {
        let status = cluster.status.clone().unwrap_or_default();
        let present = timeline(cluster);
        let stands = |member: &&EtcdMember| member.spec.joined.is_some() && member.spec.removed.is_none();
        let own = members.iter().filter(|member| is_present(member, present)).filter(stands);
        let known: Vec<Known<'_>> = own
            .map(|member| Known {
                name: member.name_any(),
                summary: status.members.iter().find(|it| it.name == member.name_any()),
                has_claim: member.status.as_ref().is_some_and(|status| status.claim.is_some()),
            })
            .collect();
        let votes = |it: &&Known<'_>| it.summary.is_none_or(|s| s.role.as_deref() != Some(role::LEARNER));
        let voters: Vec<&Known<'_>> = known.iter().filter(votes).collect();
        // etcd counts a voter whose EtcdMember is gone.
        let all = voters.len().max(usize::try_from(status.voters).unwrap_or(0));
        let absent = all - voters.len();
        let with_volume = voters.iter().filter(|it| it.has_claim).count();
        let voters = Voters { all, with_volume, needed: all / 2 + 1 };
        let mut survivors: Vec<&Known<'_>> = known.iter().filter(|it| it.has_claim).collect();
        survivors.sort_by(|a, b| b.end().cmp(&a.end()).then(a.name.cmp(&b.name)));
        // Applied indexes do not tell which log goes further.
        let best = match &survivors[..] {
            [only] => Some(only.name.clone()),
            _ => None,
        };
        let mut choices = vec![];
        if voters.with_volume >= voters.needed {
            choices.push(wait(&known));
        }
        choices.extend(survivors.iter().map(|survivor| from_member(survivor, &known, absent)));
        choices.extend(log(cluster, schedules, at));
        choices.extend(snapshot(&cluster.name_any(), snapshots, at));
        Self {
            at,
            cluster: cluster.name_any(),
            namespace: cluster.namespace(),
            voters,
            choices,
            timeline: present + 1,
            restore: best.as_ref().map(|_| free_name(&cluster.name_any(), present + 1, restores)),
            pending: find_open(restores, &cluster.name_any(), present + 1).map(EtcdRestore::name_any),
            survivor: best,
        }
    }

    /// Returns the plan as text. The YAML at its end is an object to apply; all before it are comments.
    pub fn render(&self, screen: Screen) -> anyhow::Result<String> {
        let Voters { all, with_volume, needed } = self.voters;
        let has = if with_volume == 1 { "has" } else { "have" };
        let intro = format!(
            "EtcdCluster {}: no linearizable read succeeds. {needed} of {all} voters are needed, and {with_volume} of them {has} a volume.",
            self.cluster
        );
        let mut table = Table::new(&[("CHOICE", 20), ("REVISION", 0), ("TERM/APPLIED", 0), ("UNTIL", 0)]);
        for choice in &self.choices {
            let revision = choice.revision.map_or_else(|| "unknown".to_owned(), grouped);
            let end = choice.end.as_ref().map(|end| format!("{}/{}", end.term, grouped_index(end.index)));
            let until = choice.until.map(|at| relative(at, self.at));
            table.push(vec![
                cell(Tone::Strong, choice.title()),
                revision.into(),
                end.unwrap_or_default().into(),
                until.unwrap_or_default().into(),
            ]);
        }
        let mut lines: Vec<String> = wrap(&intro, screen.width - 2);
        lines.push(String::new());
        lines.extend(table.lines(screen, 0).lines().map(str::to_owned));
        lines.push(String::new());
        for choice in &self.choices {
            let text = format!("{} loses {}", choice.title(), choice.loses);
            lines.extend(wrap(&text, screen.width - 2));
        }
        lines.push(String::new());
        lines.extend(wrap(&self.next(), screen.width - 2));
        let comment = |line: &String| format!("# {line}").trim_end().to_owned() + "\n";
        Ok(lines.iter().map(comment).collect::<String>() + &self.object()?)
    }

    /// Returns the sentence about the object to apply.
    fn next(&self) -> String {
        match (&self.pending, &self.survivor) {
            (Some(pending), _) => {
                format!("EtcdRestore {pending} comes first: kubectl describe etcdrestore {pending}. Delete it before you create another one.")
            }
            (None, Some(survivor)) => {
                format!("To go on from {survivor}, read its line above, and apply this object:")
            }
            (None, None) if self.choices.iter().any(|choice| choice.way == Way::Member) => "The applied index tells how much a log \
                has at least. `holdfast agent survey` reads the end of each volume (docs/agent.md): name the member with the highest \
                term, then the highest index, in spec.fromMember of an EtcdRestore (docs/restore.md)."
                .to_owned(),
            (None, None) => "No member has a volume.".to_owned(),
        }
    }

    /// Returns the `EtcdRestore` from the only survivor.
    fn object(&self) -> anyhow::Result<String> {
        let (Some(survivor), Some(name), None) = (&self.survivor, &self.restore, &self.pending) else {
            return Ok(String::new());
        };
        let (name, namespace) = (Some(name.clone()), self.namespace.clone());
        let metadata = ObjectMeta { name, namespace, ..ObjectMeta::default() };
        let spec = EtcdRestoreSpec {
            cluster_ref: LocalRef { name: self.cluster.clone() },
            timeline: self.timeline,
            from_member: Some(FromMember { name: survivor.clone(), accept_loss: true }),
            ..EtcdRestoreSpec::default()
        };
        Ok(holdfast_manifests::yaml(&[yaml("EtcdRestore", &metadata, &spec)?])?)
    }
}

/// Returns a name that no EtcdRestore has: an ended one keeps its name.
fn free_name(cluster: &str, timeline: u32, restores: &[EtcdRestore]) -> String {
    let first = name_of(cluster, timeline);
    let names = std::iter::once(first.clone()).chain((2..100).map(|number| format!("{first}-{number}")));
    let taken = |name: &String| restores.iter().any(|it| it.name_any() == *name);
    names.into_iter().find(|name| !taken(name)).unwrap_or(first)
}

impl Choice {
    fn title(&self) -> String {
        match self.way {
            Way::Wait => "wait".to_owned(),
            Way::Member => format!("member {}", self.name),
            Way::Log => format!("log of {}", self.name),
            Way::Snapshot => format!("snapshot {}", self.name),
        }
    }
}

fn grouped_index(index: u64) -> String {
    i64::try_from(index).map_or_else(|_| index.to_string(), grouped)
}

/// The members whose volumes are there come back by themselves.
fn wait(known: &[Known<'_>]) -> Choice {
    let away = known.iter().filter(|it| it.has_claim && it.summary.is_none_or(|summary| !summary.healthy));
    let away: Vec<String> = away
        .map(|it| {
            let why = it.summary.and_then(|summary| summary.reason.clone()).unwrap_or_else(|| "it is away".to_owned());
            format!("{}: {why}", it.name)
        })
        .collect();
    let loses = format!("nothing: the volumes of a majority are there. Bring these members back: {}", away.join("; "));
    Choice { way: Way::Wait, loses, ..Choice::default() }
}

fn from_member(survivor: &Known<'_>, known: &[Known<'_>], absent: usize) -> Choice {
    let others = known.iter().filter(|other| other.name != survivor.name);
    let mut ahead: Vec<String> = others.map(Known::describe).collect();
    if absent > 0 {
        ahead.push(format!("{absent} voters without an EtcdMember"));
    }
    let loses = if ahead.is_empty() {
        "nothing: it is the only voter".to_owned()
    } else {
        format!("writes that only {} acknowledged, if there are any", ahead.join(" and "))
    };
    Choice {
        way: Way::Member,
        name: survivor.name.clone(),
        revision: survivor.end().map(|end| end.revision),
        end: survivor.end().cloned(),
        until: None,
        loses,
    }
}

/// The log that goes furthest.
fn log(cluster: &EtcdCluster, schedules: &[EtcdSnapshotSchedule], at: Timestamp) -> Option<Choice> {
    let named = cluster.name_any();
    let own = schedules.iter().filter(|schedule| {
        schedule.spec.log.is_some() && schedule.spec.cluster_ref.as_ref().is_some_and(|it| it.name == named)
    });
    let ends = own.filter_map(|schedule| {
        let log = schedule.status.as_ref()?.log.as_ref()?;
        Some((log.revision?, log.time.as_deref().and_then(parse), schedule.name_any()))
    });
    let (revision, until, name) = ends.max()?;
    let after = until.map_or_else(|| format!("revision {}", grouped(revision)), |until| moment(until, at));
    let loses = format!(
        "every write after {after}. The log may have more than the status says: kubectl holdfast restore plan {named} \
         --at-revision {revision}"
    );
    Some(Choice { way: Way::Log, name, revision: Some(revision), end: None, until, loses })
}

/// The newest complete snapshot.
fn snapshot(named: &str, snapshots: &[EtcdSnapshot], at: Timestamp) -> Option<Choice> {
    let complete = snapshots.iter().filter_map(|snapshot| {
        let status = snapshot.status.as_ref().filter(|status| status.phase == Phase::Complete)?;
        Some((parse(status.completed_at.as_deref()?)?, status.artifact.as_ref()?.revision, snapshot.name_any()))
    });
    let (until, revision, name) = complete.max()?;
    let loses =
        format!("every write after {}: kubectl holdfast restore create {named} --snapshot {name}", moment(until, at));
    Some(Choice { way: Way::Snapshot, name, revision, end: None, until: Some(until), loses })
}

fn moment(until: Timestamp, now: Timestamp) -> String {
    format!("{} {} ({})", date(until), clock(until), relative(until, now))
}

#[cfg(test)]
mod tests;
