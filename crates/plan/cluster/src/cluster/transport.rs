//! The way between plaintext and TLS of a cluster that serves: one step of `Transport` after the other.
//!
//! Decides when the cluster takes the next step, and when etcd's member list gets the peer URL that a member serves. `roll.rs` restarts
//! the members for a step, and `tls.rs` gives them certificates before the first. Members of neighbouring steps reach each other, so no
//! member takes a step before each other member is within one step of it (I32). The step stands in the status: an edit of `spec.tls`
//! in the middle walks back from there.

use holdfast_api::cluster::Latches;
use holdfast_api::condition::Reason;
use holdfast_api::name::Scheme;
use holdfast_api::transport::Transport;
use jiff::Timestamp;

use super::health::changes_members;
use super::intervals::POLL;
use super::{Member, Membership, Observed, tls};
use holdfast_base::{Act, Next, Wake, objects, pods, template};

/// Returns the latch of the step at which the members stand, before an edit of `spec.tls` reaches any of them.
pub(super) fn record(seen: &Observed) -> Option<Next> {
    if seen.latches().transport.is_some() {
        return None;
    }
    let joined = || seen.staying().filter(|m| m.joined());
    let stands = joined().map(|m| m.object.spec.transport()).min()?;
    // A template names the transport only after a change, which the status has lost.
    let was_changed = joined().any(|m| m.object.spec.process.transport.is_some());
    (was_changed || stands != seen.cluster.spec.transport()).then(|| latch(seen, stands))
}

/// Returns the transport of every member, once all serve it.
pub(super) fn reached(seen: &Observed) -> Option<Transport> {
    let step = seen.latches().transport?;
    let serves = |m: &Member| {
        let is = |it| pods::ready(it) && template::is_current(it, &m.object) && pods::transport(it) == step;
        m.object.spec.transport() == step && m.live_pod().is_some_and(is)
    };
    let urls = seen.own_etcd().is_some_and(|etcd| wrong_url(seen, etcd).is_none());
    (urls && seen.staying().all(serves)).then_some(step)
}

/// Returns the next step towards `spec.tls`, or what it waits for; `None` at the end, and while members restart for the present step.
pub(super) fn next(seen: &Observed, etcd: &Membership, now: Timestamp) -> Option<Next> {
    let present = seen.latches().transport?;
    let next = present.next_towards(seen.cluster.spec.transport())?;
    if changes_members(seen, etcd) || !seen.staying().all(|m| reaches(m, next)) || wrong_url(seen, etcd).is_some() {
        return None;
    }
    let waits = if next < present { logs_in(seen, next) } else { uncertified(seen, now) };
    waits.or_else(|| Some(latch(seen, next)))
}

/// Returns the step back towards plaintext, or its wait: a roll that goes on meanwhile would restart the other members in vain.
pub(super) fn back(seen: &Observed, etcd: &Membership, now: Timestamp) -> Option<Next> {
    (seen.latches().transport? > seen.cluster.spec.transport()).then(|| next(seen, etcd, now))?
}

/// Whether a step reaches a member: its template, the one that a rollback would bring back, and its Pod.
fn reaches(member: &Member, next: Transport) -> bool {
    let spec = &member.object.spec;
    let served = spec.served.as_ref().map(|served| spec.transport_of(served));
    [Some(spec.transport()), served, member.pod.as_ref().map(pods::transport)]
        .into_iter()
        .flatten()
        .all(|it| next.reaches(it))
}

/// Returns the change of a member's peer URL to the one that the member serves.
pub(super) fn correct_url(seen: &Observed, etcd: &Membership) -> Option<Next> {
    seen.latches().transport?;
    wrong_url(seen, etcd).filter(|(member, _)| serves(seen, etcd, member)).map(|(_, act)| Next::act(act))
}

/// Returns the step of a change in words.
pub(super) fn describe(seen: &Observed) -> Option<String> {
    let (at, end) = (seen.latches().transport?, seen.cluster.spec.transport());
    let words = match at {
        Transport::Plaintext => "members serve plaintext",
        Transport::PeersPlaintext => {
            "members serve clients with TLS and in plaintext, and connect to each other in plaintext"
        }
        Transport::ClientsPlaintext => {
            "members serve clients with TLS and in plaintext, and connect to each other with TLS"
        }
        Transport::Tls => "members serve TLS",
    };
    (at != end).then(|| format!("spec.tls has changed; in this step {words}"))
}

/// Returns the risk of clients that connect in plaintext.
pub(super) fn plaintext_allowed(seen: &Observed) -> Option<(Reason, String)> {
    let message = "spec.tls.client.allowPlaintext is true: members serve clients also in plaintext, without a certificate. When all \
                   clients have moved to TLS, remove the field";
    let wanted = seen.cluster.spec.transport();
    if wanted == Transport::ClientsPlaintext {
        return Some((Reason::PlaintextAllowed, message.to_owned()));
    }
    let is_plain = |m: &&Member| m.live_pod().is_some_and(|it| pods::transport(it).serves_plaintext());
    let member = seen.staying().find(is_plain).filter(|_| wanted == Transport::Tls)?;
    let message = format!("{} serves clients also in plaintext until it restarts for spec.tls", member.name());
    Some((Reason::PlaintextAllowed, message))
}

/// Returns the wait for the end of authentication: Jobs in plaintext have no login, and without TLS the operator has none either.
fn logs_in(seen: &Observed, next: Transport) -> Option<Next> {
    if next.peers() == Scheme::Https {
        return None;
    }
    let (reason, message) = match seen.auth {
        Some(false) => return None,
        Some(true) => (
            Reason::AuthRequiredNotConfigured,
            "spec.tls.insecure: etcd's authentication is on, and without TLS the operator and its Jobs have no login. Set \
             spec.auth.enabled to false first",
        ),
        None => (
            Reason::WaitingForEtcd,
            "etcd does not say whether its authentication is on: without TLS the operator has no login",
        ),
    };
    Some(Next::wait(reason, message, POLL))
}

/// Returns the wait for certificates: every member has usable ones before the first member restarts.
fn uncertified(seen: &Observed, now: Timestamp) -> Option<Next> {
    if matches!(tls::next(seen, now), Some(Next::Do(..))) {
        return Some(wait(
            Reason::CertificatePending,
            "Holdfast writes the members' certificates before the first restarts",
        ));
    }
    let all = seen.certificates.as_ref();
    let member = seen.staying().find(|m| !tls::is_certified(seen, all, m, now))?;
    let (reason, why) =
        tls::hindrance(seen, member.name(), now).or_else(|| tls::trouble(seen, now)).unwrap_or_else(|| {
            (Reason::CertificatePending, "its Secret is missing, out of date or for another peer name".to_owned())
        });
    let name = member.name();
    Some(wait(reason, format!("{name} has no usable certificates, and no member restarts for TLS before: {why}")))
}

fn wait(reason: Reason, message: impl Into<String>) -> Next {
    Next::wait(reason, message, Wake::AfterMillis(1_000))
}

/// Returns a member whose entry in etcd's member list has another peer URL than its template, and the correction.
fn wrong_url<'a>(seen: &'a Observed, etcd: &Membership) -> Option<(&'a Member, Act)> {
    etcd.members.iter().find_map(|listed| {
        let member = seen.standing_for(listed).filter(|m| m.joined() && m.stays())?;
        let peer_url = objects::member::own_peer_url(&member.object);
        let is_own = |url: &String| objects::member::is_peer_url_of(&seen.cluster, member.name(), url);
        let differs = !listed.peer_urls.contains(&peer_url) && listed.peer_urls.iter().all(is_own);
        let (name, member_id, cluster_id) = (member.name().to_owned(), listed.id, etcd.cluster_id);
        differs.then_some((member, Act::SetPeerUrl { name, member_id, peer_url, cluster_id }))
    })
}

/// Whether a member's etcd runs with its template. A member with TLS behind a peer URL in plaintext receives what it asks for, and
/// nothing that others send.
fn serves(seen: &Observed, etcd: &Membership, member: &Member) -> bool {
    let runs = |it| template::is_current(it, &member.object) && pods::transport(it) == member.object.spec.transport();
    let answers = || Some(seen.serving(etcd, seen.listed(etcd, member.name())?, member.name()).is_some());
    member.live_pod().is_some_and(runs) && answers().unwrap_or_default()
}

fn latch(seen: &Observed, step: Transport) -> Next {
    Next::act(Act::Latch(Box::new(Latches { transport: Some(step), ..seen.latches() })))
}
