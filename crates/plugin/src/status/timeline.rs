//! The returns of one cluster: the `EtcdRestore` that is under way or has failed, and the members that are set aside.
//!
//! PURE. Decides which members belong to the present timeline, and the lines about the others. `next.rs` decides the steps.

use holdfast_api::condition::{self, Type};
use holdfast_api::timeline::{ReturnPhase, of_cluster, of_member};
use holdfast_api::{EtcdCluster, EtcdMember, EtcdRestore};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use serde::Serialize;

use crate::screen::{Screen, Table, Tone, cell};
use crate::time::{between, clock, date, parse, relative};

/// A return in place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Return {
    /// Name of the EtcdRestore.
    pub name: String,
    /// The timeline that the return makes.
    pub timeline: u32,
    /// Phase.
    pub phase: ReturnPhase,
    /// Begin of the phase, or of an EtcdRestore that waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// First member of the new timeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Message of the member that is prepared, else of the EtcdRestore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A member of an earlier timeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SetAside {
    /// Name of the EtcdMember.
    pub name: String,
    /// Its timeline.
    pub timeline: u32,
    /// Its claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// Time until which the claim stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<Timestamp>,
}

/// Whether a member is of a present timeline: neither set aside nor prepared for the next one.
pub fn is_present(member: &EtcdMember, present: u32) -> bool {
    member.spec.aside.is_none() && of_member(member) <= present
}

/// Finds the return that is under way, else the one that comes next, else the one that failed last.
pub fn find_return(cluster: &EtcdCluster, members: &[EtcdMember], restores: &[EtcdRestore]) -> Option<Return> {
    let next = of_cluster(cluster, members.iter()) + 1;
    let named = cluster.name_any();
    let own = restores.iter().filter(|restore| restore.spec.cluster_ref.name == named);
    let latched = cluster.status.as_ref().and_then(|status| status.latches.returning.as_ref());
    if let Some(latched) = latched.filter(|latched| !latched.phase().is_final()) {
        let object = own.into_iter().find(|restore| restore.metadata.uid.as_ref() == Some(&latched.uid));
        let ahead = members.iter().find(|member| of_member(member) >= next && member.spec.aside.is_none());
        let cause = ahead.and_then(|member| message(&member.status.as_ref()?.conditions));
        return Some(Return {
            name: latched.name.clone(),
            timeline: latched.timeline,
            phase: latched.phase(),
            since: latched.since().and_then(parse),
            member: latched.member.clone(),
            message: cause.or_else(|| message(&object?.status.as_ref()?.conditions)),
        });
    }
    let phase = |restore: &EtcdRestore| restore.status.as_ref().map(|status| status.phase).unwrap_or_default();
    let due: Vec<&EtcdRestore> = own.filter(|restore| restore.spec.timeline == next).collect();
    let made = |restore: &&&EtcdRestore| restore.creation_timestamp().map(|at| at.0);
    let waits = due.iter().filter(|restore| !phase(restore).is_final()).min_by_key(made);
    let failed = || due.iter().filter(|restore| phase(restore) == ReturnPhase::Failed).max_by_key(made);
    let found = *waits.or_else(failed)?;
    let last = found.status.as_ref().and_then(|status| status.phases.last());
    Some(Return {
        name: found.name_any(),
        timeline: found.spec.timeline,
        phase: phase(found),
        since: last.and_then(|last| parse(&last.at)).or_else(|| made(&&found)),
        member: None,
        message: found.status.as_ref().and_then(|status| message(&status.conditions)),
    })
}

/// Returns the message of a condition `Ready` that is not true.
fn message(conditions: &[Condition]) -> Option<String> {
    let ready = condition::find(conditions, Type::Ready).filter(|ready| ready.status != "True")?;
    Some(format!("{}: {}", ready.reason, ready.message))
}

/// Returns the members that are set aside.
pub fn set_aside(members: &[EtcdMember]) -> Vec<SetAside> {
    let aside = members.iter().filter_map(|member| Some((member, member.spec.aside.as_ref()?)));
    let mut found: Vec<SetAside> = aside
        .map(|(member, aside)| SetAside {
            name: member.name_any(),
            timeline: of_member(member),
            claim: member.status.as_ref().and_then(|status| Some(status.claim.as_ref()?.name.clone())),
            kept_until: aside.kept_until(),
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// Returns the line about a return that is under way.
pub fn describe(found: &Return, now: Timestamp) -> Option<String> {
    if found.phase.is_final() {
        return None;
    }
    let since = found.since.map(|since| format!(" for {}", between(since, now))).unwrap_or_default();
    Some(format!("EtcdRestore {} makes timeline {}: {:?}{since}", found.name, found.timeline, found.phase))
}

/// Returns the table of the members that are set aside.
pub fn render_aside(members: &[SetAside], now: Timestamp, screen: Screen) -> String {
    if members.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[("MEMBER", 10), ("TIMELINE", 0), ("KEPT UNTIL", 0), ("CLAIM", 8)]);
    for member in members {
        let until = member.kept_until.map(|at| format!("{} {}, {}", date(at), clock(at), relative(at, now)));
        table.push(vec![
            cell(Tone::Strong, &member.name),
            member.timeline.to_string().into(),
            until.unwrap_or_default().into(),
            cell(Tone::Faint, member.claim.as_deref().unwrap_or_default()),
        ]);
    }
    screen.heading("SET ASIDE") + &table.lines(screen, 2)
}
