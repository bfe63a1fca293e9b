//! The next steps for a person, with commands to paste.
//!
//! PURE: decides by state, reasons and fields, never by messages. A runbook has the whole story of a reason; a step here is its
//! first command.

use super::facts::{Condition, Facts, Schedule, State, Step};
use super::runbook::page;
use holdfast_api::EtcdCluster;
use holdfast_api::condition::Reason;
use holdfast_api::timeline::ReturnPhase;

/// Days before the end of a certificate that nothing renews.
const ENDS_SOON_DAYS: i64 = 14;

/// Returns the steps, the most pressing first.
pub fn steps(facts: &Facts, cluster: &EtcdCluster) -> Vec<Step> {
    // A risk has time, and a missing backup has not.
    let (risks, faults): (Vec<&Condition>, Vec<&Condition>) =
        facts.conditions.iter().partition(|it| it.kind == "AtRisk");
    let mut steps: Vec<Step> = faults.into_iter().filter_map(|fault| of_condition(facts, fault)).collect();
    steps.extend(in_place(facts));
    steps.extend(of_state(facts, cluster));
    steps.extend(lost_members(facts, cluster));
    steps.extend(way_out(facts));
    steps.extend(backups(facts));
    steps.extend(certificates(facts));
    steps.extend(risks.into_iter().filter_map(|risk| of_condition(facts, risk)));
    steps
}

/// Returns a command of this program about the cluster.
fn holdfast(facts: &Facts, words: &str) -> String {
    format!("kubectl holdfast {words} -n {}", facts.namespace)
}

/// Returns a command of kubectl.
fn kubectl(facts: &Facts, words: &str) -> String {
    format!("kubectl {words} -n {}", facts.namespace)
}

fn pods(facts: &Facts) -> String {
    kubectl(facts, &format!("get pods -l holdfast.dev/cluster={} -o wide", facts.name))
}

/// Returns the member that a look at a fault begins with: one that does not answer, or else the first one.
fn suspect(facts: &Facts) -> Option<&str> {
    let silent = facts.members.iter().find(|member| !member.healthy || member.ready == Some(false));
    silent.or(facts.members.first()).map(|member| member.name.as_str())
}

fn of_condition(facts: &Facts, condition: &Condition) -> Option<Step> {
    use Reason as R;
    let reason = Reason::named(&condition.reason)?;
    let name = &facts.name;
    let logs = || holdfast(facts, &format!("logs {name}"));
    let member = || {
        let about = suspect(facts).map_or_else(|| "etcdm".to_owned(), |member| format!("etcdm {member}"));
        kubectl(facts, &format!("describe {about}"))
    };
    let (why, command) = match reason {
        R::QuorumLost => (
            "bring a majority back on its own volumes; where they are gone for good, compare the ways out",
            Some(holdfast(facts, &format!("recover plan {name}"))),
        ),
        R::DataLost => ("no member has its data: restore the newest snapshot into a new cluster", restore(facts)),
        R::AlarmRaised => {
            ("look at the alarms of etcd", Some(holdfast(facts, &format!("etcdctl {name} -- alarm list"))))
        }
        R::SpaceExhausted => {
            ("compact, delete keys, or raise the quota: look at the sizes of the databases", Some(sizes(facts)))
        }
        R::NoSpace => ("look at the sizes of the databases", Some(sizes(facts))),
        R::RolloutStuck => {
            ("correct the spec, or take the change back", Some(kubectl(facts, &format!("edit etcdc {name}"))))
        }
        R::InvalidSpec | R::ResizeRefused | R::EvenReplicas | R::QuotaTight | R::UnsafeVersion | R::NoSpareMember => {
            ("correct the spec", Some(kubectl(facts, &format!("edit etcdc {name}"))))
        }
        R::MembersColocated => {
            ("add nodes, or an affinity, so that each member has a node of its own", Some(pods(facts)))
        }
        R::PodHeldUp | R::WriteRefused | R::NodeSilent | R::NoClientEndpoint => ("look at the Pods", Some(pods(facts))),
        R::VolumeRefused | R::ClaimLost | R::MemoryLost | R::MemberNotListed | R::JoinerStuck | R::VolumeUnusable => {
            ("look at the member", Some(member()))
        }
        R::SnapshotNeeded => ("save a snapshot before the upgrade", Some(save(facts))),
        // The block about backups names the schedule.
        R::BackupOverdue | R::BackupFailing | R::RunSkipped => return None,
        R::MemberRestarting | R::DeadlineExceeded | R::AgentCrashed => ("look at the logs", Some(logs())),
        R::RightsMissing | R::DefinitionsOutdated | R::ClockSkewed => {
            ("check the install", Some("kubectl holdfast check".to_owned()))
        }
        other if other.needs_a_person() => ("follow the runbook", None),
        _ => return None,
    };
    let page = condition.runbook.clone();
    Some(Step { why: format!("{}: {why}", reason.as_str()), command, page })
}

fn sizes(facts: &Facts) -> String {
    holdfast(facts, &format!("etcdctl {} -- endpoint status --cluster -w table", facts.name))
}

/// Returns the command that plans a restore of the newest snapshot.
fn restore(facts: &Facts) -> Option<String> {
    let last = facts.backups.last.as_ref()?;
    Some(holdfast(facts, &format!("restore plan {} --snapshot {}", facts.name, last.name)))
}

/// Returns the step for a cluster that does not come back.
fn way_out(facts: &Facts) -> Option<Step> {
    let is_known = facts.conditions.iter().any(|it| Reason::named(&it.reason) == Some(Reason::DataLost));
    let command = restore(facts).filter(|_| facts.state == State::Down && !is_known)?;
    let why = "If a majority of the volumes is lost for good: restore the newest snapshot into a new cluster";
    Some(Step::with_command(why, command))
}

/// Returns a command that saves the cluster to the store of its newest snapshot.
fn save(facts: &Facts) -> String {
    let store = facts.backups.last.as_ref().and_then(|last| last.store.as_deref()).unwrap_or("STORE");
    holdfast(facts, &format!("snapshot create --cluster {} --to store://{store} --wait", facts.name))
}

/// Returns the step for a return in place that is under way or has failed.
fn in_place(facts: &Facts) -> Option<Step> {
    use ReturnPhase as P;
    let found = facts.in_place.as_ref()?;
    let name = &found.name;
    let describe = kubectl(facts, &format!("describe etcdrestore {name}"));
    let message = found.message.as_deref().unwrap_or("no operator has seen it yet");
    let (why, command) = match (found.phase, &found.member) {
        (P::Preparing, Some(member)) => {
            (format!("restores the data: {message}"), kubectl(facts, &format!("logs -f {member} -c restore")))
        }
        (P::Saving, _) => (
            "leads clients away, and saves the safety snapshot".to_owned(),
            holdfast(facts, &format!("snapshot list {}", facts.name)),
        ),
        (P::SettingAside, _) => ("waits for the end of the present Pods".to_owned(), pods(facts)),
        (P::Starting, _) => ("waits for the first member of the new timeline".to_owned(), pods(facts)),
        (P::Failed, _) => (format!("has failed. {message}"), describe),
        (P::Pending, _) => (format!("has not begun. {message}"), describe),
        (phase, _) => (format!("is in the phase {phase:?}. {message}"), describe),
    };
    let has_failed = matches!(found.phase, P::Failed | P::TurningBack);
    let page = has_failed.then(|| page(Reason::ReturnFailed.as_str())).flatten();
    Some(Step { page, ..Step::with_command(format!("EtcdRestore {name} {why}"), command) })
}

fn of_state(facts: &Facts, cluster: &EtcdCluster) -> Option<Step> {
    let name = &facts.name;
    let replicas = facts.members.len().max(1);
    match facts.state {
        _ if facts.paused => Some(Step::with_command(
            "spec.paused is set: the operator changes nothing",
            holdfast(facts, &format!("cluster resume {name}")),
        )),
        State::Parked => Some(Step::with_command(
            "The cluster is parked: no Pod runs, and the volumes hold the data",
            holdfast(facts, &format!("cluster scale {name} --replicas {replicas}")),
        )),
        State::Unseen => {
            Some(Step::with_command("No operator has seen this EtcdCluster yet", "kubectl holdfast check".to_owned()))
        }
        // Without a fault that names another remedy.
        State::Down if facts.conditions.is_empty() => Some(Step::with_command("etcd does not answer", pods(facts))),
        State::Deleting if cluster.metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty()) => {
            Some(Step::with_command("The deletion waits for the members", kubectl(facts, "get etcdm,pods")))
        }
        _ => None,
    }
}

/// Returns the replacement of lost members where the spec leaves the decision to a person.
fn lost_members(facts: &Facts, cluster: &EtcdCluster) -> Vec<Step> {
    if cluster.spec.repairs_itself() {
        return vec![];
    }
    let lost = facts.members.iter().filter(|member| member.lost);
    let step = |member: &super::facts::Member| {
        let words = format!("member replace {} {}", facts.name, member.name);
        Step::with_command(
            format!("The data of {} are lost, and spec.repair.mode is Manual", member.name),
            holdfast(facts, &words),
        )
    };
    lost.map(step).collect()
}

fn backups(facts: &Facts) -> Vec<Step> {
    // Before the cluster has formed, and without rights, nothing can be said about backups.
    let Some(schedules) = facts.backups.schedules.as_ref().filter(|_| facts.formed.is_some()) else { return vec![] };
    if facts.state == State::Deleting {
        return vec![];
    }
    let of_each = |schedule| [of_schedule(facts, schedule), of_drill(schedule), of_log(schedule), of_merge(schedule)];
    let mut steps: Vec<Step> = schedules.iter().flat_map(of_each).flatten().collect();
    let has_any = facts.backups.last.is_some() || !facts.backups.running.is_empty();
    if !has_any && schedules.is_empty() && facts.backups.complete.is_some() {
        let why = "No backup exists: a lost quorum loses the data. Save one, and make an EtcdSnapshotSchedule";
        steps.push(Step {
            page: Some("README.md#recurring-backups".to_owned()),
            ..Step::with_command(why, save(facts))
        });
    } else if let (false, Some(first)) = (has_any, schedules.iter().find(|schedule| !schedule.suspended)) {
        let run = holdfast(facts, &format!("schedule run {} --wait", first.name));
        steps.push(Step::with_command(format!("No backup exists yet: run the schedule {} now", first.name), run));
    } else if schedules.is_empty() {
        let why = "No EtcdSnapshotSchedule saves this cluster regularly: make one";
        steps.push(Step { why: why.to_owned(), command: None, page: Some("README.md#recurring-backups".to_owned()) });
    }
    steps
}

fn of_schedule(facts: &Facts, schedule: &Schedule) -> Option<Step> {
    let name = &schedule.name;
    if schedule.suspended {
        let resume = holdfast(facts, &format!("schedule resume {name}"));
        return Some(Step::with_command(format!("The schedule {name} is suspended: no backup is made"), resume));
    }
    if schedule.fresh != Some(false) || facts.state == State::Parked {
        return None;
    }
    let reason = schedule.reason.clone().unwrap_or_default();
    let run = holdfast(facts, &format!("schedule run {name} --wait"));
    let page = page(&reason);
    Some(Step {
        page,
        ..Step::with_command(format!("{reason}: the schedule {name} has no fresh backup. Run it now"), run)
    })
}

fn of_drill(schedule: &Schedule) -> Option<Step> {
    let drill = schedule.drill.as_ref().filter(|drill| drill.rehearsed == Some(false) && !schedule.suspended)?;
    let reason = drill.reason.clone().unwrap_or_default();
    let page = page(&reason);
    let why = format!("{reason}: no drill of the schedule {} proves that the newest backup restores", schedule.name);
    Some(Step { why, command: None, page })
}

fn of_log(schedule: &Schedule) -> Option<Step> {
    let log = schedule.log.as_ref().filter(|log| log.current == Some(false) && !schedule.suspended)?;
    let reason = log.reason.clone().unwrap_or_default();
    let page = page(&reason);
    let why = format!("{reason}: the log of the schedule {} lacks the newest changes", schedule.name);
    Some(Step { why, command: None, page })
}

fn of_merge(schedule: &Schedule) -> Option<Step> {
    let merge = schedule.log.as_ref()?.merge.as_ref();
    let merge = merge.filter(|merge| merge.merged == Some(false) && !schedule.suspended)?;
    let reason = merge.reason.clone().unwrap_or_default();
    let page = page(&reason);
    let why = format!("{reason}: the schedule {} does not merge its log, and a restore reads all of it", schedule.name);
    Some(Step { why, command: None, page })
}

fn certificates(facts: &Facts) -> Option<Step> {
    let end = facts.certificates.as_ref()?.earliest()?;
    let days = end.duration_since(facts.at).as_secs() / 86_400;
    let known = facts.conditions.iter().any(|condition| condition.reason.starts_with("Certificate"));
    (days < ENDS_SOON_DAYS && !known).then(|| Step {
        why: format!("A certificate ends in {} days and was not renewed", days.max(0)),
        command: None,
        page: Some(format!("runbooks/{}.md", Reason::CertificateExpiring.as_str())),
    })
}
