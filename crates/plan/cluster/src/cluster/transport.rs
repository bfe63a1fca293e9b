//! The way between plaintext and TLS of a cluster that serves: one step of `Transport` after the other.
//!
//! Decides when the cluster takes the next step, and when etcd's member list gets the peer URL that a member serves. `roll.rs` restarts
//! the members for a step, and `tls.rs` gives them certificates before the first. Members of neighbouring steps reach each other, so no
//! member takes a step before each other member is within one step of it (I32). The step stands in the status: an edit of `spec.tls`
//! in the middle walks back from there.

use holdfast_api::cluster::Latches;
use holdfast_api::condition::Reason;
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
    let stands = seen.staying().filter(|m| m.joined()).map(|m| m.object.spec.transport()).min()?;
    (stands != seen.cluster.spec.transport()).then(|| latch(seen, stands))
}

/// Returns the next step towards `spec.tls`, or what it waits for; `None` at the end, and while members restart for the present step.
pub(super) fn next(seen: &Observed, etcd: &Membership, now: Timestamp) -> Option<Next> {
    let next = seen.latches().transport?.next_towards(seen.cluster.spec.transport())?;
    let reaches = |m: &Member| next.reaches(m.object.spec.transport()) && pod(m).is_none_or(|it| next.reaches(it));
    if changes_members(seen, etcd) || !seen.staying().all(reaches) || wrong_url(seen, etcd).is_some() {
        return None;
    }
    hindrance(seen, next, now).or_else(|| Some(latch(seen, next)))
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
    let allowed = seen.cluster.spec.transport() == Transport::ClientsPlaintext;
    allowed.then(|| (Reason::PlaintextAllowed, message.to_owned()))
}

/// Returns why the cluster does not take the step yet.
fn hindrance(seen: &Observed, next: Transport, now: Timestamp) -> Option<Next> {
    match (next, seen.auth) {
        (Transport::Plaintext, Some(false)) => None,
        (Transport::Plaintext, Some(true)) => {
            let message = "spec.tls.insecure: etcd's authentication is on, and without TLS the operator has no login. Set \
                           spec.auth.enabled to false first";
            Some(Next::wait(Reason::AuthRequiredNotConfigured, message, POLL))
        }
        (Transport::Plaintext, None) => {
            let message = "etcd does not say whether its authentication is on: without TLS the operator has no login";
            Some(Next::wait(Reason::WaitingForEtcd, message, POLL))
        }
        (_, _) => uncertified(seen, now),
    }
}

/// Returns the wait for certificates: every member has them before the first member restarts.
fn uncertified(seen: &Observed, now: Timestamp) -> Option<Next> {
    let lacks = |m: &&Member| m.object.spec.tls.as_ref().is_none_or(|tls| tls.staged.is_none());
    let member = seen.staying().find(lacks)?;
    let (reason, why) = tls::hindrance(seen, member.name(), now)
        .or_else(|| tls::trouble(seen, now))
        .unwrap_or_else(|| (Reason::CertificatePending, "Holdfast writes them".to_owned()));
    let message = format!("{} has no certificates yet, and no member restarts for TLS before: {why}", member.name());
    Some(Next::wait(reason, message, Wake::AfterMillis(1_000)))
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

fn pod(member: &Member) -> Option<Transport> {
    member.pod.as_ref().map(pods::transport)
}

fn latch(seen: &Observed, step: Transport) -> Next {
    Next::act(Act::Latch(Box::new(Latches { transport: Some(step), ..seen.latches() })))
}
