//! Rules for the way between plaintext and TLS (I32): a member without certificates dials no peer with TLS, so members are never two
//! steps apart.

use holdfast_api::cluster::Latches;
use holdfast_api::name::Scheme;
use holdfast_api::template::Template;
use holdfast_api::transport::Transport;
use holdfast_base::seen::cluster::{Member, Observed};
use holdfast_base::{objects, pods, template};

use super::facts::{answers, formed_as, staying};
use super::{Verdict, rule};

/// Checks the step of a cluster that has formed.
pub(super) fn latch(seen: &Observed, old: &Latches, new: &Latches) -> Verdict {
    if new.transport == old.transport {
        return Ok(());
    }
    let Some(next) = new.transport else { return rule("I32", false, "the step of a cluster is never forgotten") };
    let Some(present) = old.transport else {
        let mut stands = staying(seen).filter(|m| m.joined()).map(|m| m.object.spec.transport());
        return rule("I32", stands.all(|it| it >= next), "the first step is the members' own");
    };
    rule("I32", present.reaches(next), "a cluster takes one step after the other")?;
    rule("I32", staying(seen).all(|m| reaches(m, next)), "no member is two steps from another")?;
    let kept = |m: &Member| Some(&seen.certificates.as_ref()?.members.get(m.name())?.digest);
    let has_files = |m: &Member| {
        let staged = m.object.spec.tls.as_ref().and_then(|tls| tls.staged.as_ref());
        staged.is_some() && staged == kept(m)
    };
    let certified = next < present || staying(seen).all(has_files);
    rule("I15", certified, "every member has certificates before the first restarts for TLS")?;
    let off = next > present || next.peers() == Scheme::Https || seen.auth == Some(false);
    rule("I31", off, "without TLS the operator and its Jobs have no login, so authentication is off before")
}

/// Checks a template with another transport.
pub(super) fn set(seen: &Observed, member: &Member, new: &Template) -> Verdict {
    if new.transport == member.object.spec.process.transport {
        return Ok(());
    }
    let new = member.object.spec.transport_of(new);
    let others = staying(seen).filter(|m| m.name() != member.name());
    let own = member.pod.as_ref().map(pods::transport).is_none_or(|pod| new.reaches(pod));
    rule("I32", own && others.into_iter().all(|m| reaches(m, new)), "no member is two steps from another")
}

/// Checks a peer URL: that of the member's own ports, which serve already.
pub(super) fn set_peer_url(seen: &Observed, name: &str, (id, url): (u64, &str), cluster_id: u64) -> Verdict {
    let etcd = formed_as(seen, cluster_id)?;
    let listed = etcd.members.iter().find(|l| l.id == id);
    let member = seen.members.iter().find(|m| m.name() == name && m.joined());
    let (Some(listed), Some(member)) = (listed, member) else {
        return rule("I11", false, "a peer URL belongs to a member that has joined");
    };
    let is_own = |url: &String| objects::member::is_peer_url_of(&seen.cluster, name, url);
    let same = listed.peer_urls.iter().all(is_own) && url == objects::member::own_peer_url(&member.object);
    rule("I11", same, "a member keeps its place, and its peer URL another scheme only")?;
    let runs = |pod| {
        template::is_current(pod, &member.object)
            && pods::transport(pod).peers() == member.object.spec.transport().peers()
    };
    let serves = member.live_pod().is_some_and(runs) && answers(seen, etcd, listed);
    rule("I32", serves, "other members dial with TLS what serves TLS, and in plaintext what serves plaintext")
}

/// Whether a member, the Pod that it has, and the template that a rollback would bring back are within one step.
fn reaches(member: &Member, step: Transport) -> bool {
    let spec = &member.object.spec;
    let served = spec.served.as_ref().map(|served| spec.transport_of(served));
    let pod = member.pod.as_ref().map(pods::transport);
    [Some(spec.transport()), served, pod].into_iter().flatten().all(|it| step.reaches(it))
}
