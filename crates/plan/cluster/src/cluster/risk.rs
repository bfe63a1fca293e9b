//! Risks of a cluster that works as the spec asks: the condition `AtRisk`.
//!
//! Decides which foreseeable faults the spec and the nodes make worse, the most dangerous first. `status.rs` reports faults.

use holdfast_api::condition::{Reason, Type, Wanted as Condition};

use super::{Member, Observed, auth, transport};
use holdfast_base::valid::Wanted;

/// Returns `AtRisk`. The reason is that of the first risk, and the message names every risk.
pub(super) fn condition(seen: &Observed, wanted: Option<&Wanted>, voters: i32) -> Condition {
    let of_spec = |check: fn(&Wanted) -> Option<(Reason, String)>| wanted.and_then(check);
    let found = [
        of_spec(unsafe_version),
        no_spare(seen, wanted),
        colocated(seen, voters),
        of_spec(quota_tight),
        of_spec(even_replicas),
        auth::unmanaged(seen),
        transport::plaintext_allowed(seen),
    ];
    let mut risks = found.into_iter().flatten();
    let Some((reason, mut message)) = risks.next() else {
        return Condition::no(Type::AtRisk, Reason::NothingWrong, "no risk is known");
    };
    for (reason, more) in risks {
        message.push_str(&format!("; {}: {more}", reason.as_str()));
    }
    Condition::yes(Type::AtRisk, reason, message)
}

fn unsafe_version(wanted: &Wanted) -> Option<(Reason, String)> {
    let version = wanted.server.version;
    let (defect, floor) = version.known_defect()?;
    Some((Reason::UnsafeVersion, format!("etcd {version} has known defects: {defect}. Use {floor} or later")))
}

/// Returns the node that runs a majority of the voters. While etcd is silent, the labels of the Pods name the voters.
fn colocated(seen: &Observed, voters: i32) -> Option<(Reason, String)> {
    let voters = usize::try_from(voters).ok().filter(|voters| *voters >= 3)?;
    let etcd = seen.own_etcd();
    let node = |m: &Member| m.live_pod()?.spec.as_ref()?.node_name.clone();
    let nodes: Vec<String> = seen.members.iter().filter(|m| seen.votes(etcd, m)).filter_map(node).collect();
    let crowded = nodes.iter().find(|node| nodes.iter().filter(|other| other == node).count() > voters / 2)?;
    Some((Reason::MembersColocated, format!("a majority of the voters runs on node {crowded}")))
}

/// Returns the risk of one or two members in memory: the loss of one member loses the cluster.
fn no_spare(seen: &Observed, wanted: Option<&Wanted>) -> Option<(Reason, String)> {
    let replicas = wanted?.replicas;
    let message = "spec.storage.medium is Memory, and fewer than three members: the loss of one Pod, also by a drained node, is \
                   the loss of the cluster. Set spec.replicas to 3 or more";
    (seen.cluster.spec.storage.in_memory() && replicas < 3).then(|| (Reason::NoSpareMember, message.to_owned()))
}

fn quota_tight(wanted: &Wanted) -> Option<(Reason, String)> {
    let message = "spec.options.quotaBackendBytes leaves no room on the volume for a received snapshot beside a full \
                   database: a member that lags far behind cannot catch up";
    (!wanted.server.leaves_room()).then(|| (Reason::QuotaTight, message.to_owned()))
}

fn even_replicas(wanted: &Wanted) -> Option<(Reason, String)> {
    let replicas = wanted.replicas;
    let message = || format!("{replicas} members tolerate no more failures than {}", replicas - 1);
    (replicas > 0 && replicas.is_multiple_of(2)).then(|| (Reason::EvenReplicas, message()))
}
