//! Safety rules about the steps between plaintext and TLS: a cluster skips no step, and no member is two steps from another.

use holdfast_api::template::Template;
use holdfast_api::tls::{MemberTls, Tls};
use holdfast_api::transport::Transport;
use holdfast_base::template;

use super::*;

/// A cluster in plaintext that stands at its first step, with authentication off.
fn plain() -> Cluster {
    let mut seen = formed(3, 3);
    seen.cluster.spec.tls = Some(Tls { insecure: Some(true), ..Tls::default() });
    seen.auth = Some(false);
    latches(&mut seen).transport = Some(Transport::Plaintext);
    for n in 0..3 {
        stand(&mut seen, n, Transport::Plaintext);
    }
    seen
}

/// A member has this transport, and so does its Pod.
fn stand(seen: &mut Cluster, n: usize, transport: Transport) {
    let member = &mut seen.members[n];
    let process = Template { transport: Some(transport), ..member.object.spec.process.clone() };
    template::put(&mut member.object, &process);
    member.object.spec.tls = transport.has_certificates().then(MemberTls::default);
    let status = member.pod.take().and_then(|pod| pod.status);
    let mut pod = pod_of(&member.object);
    pod.status = status;
    member.pod = Some(pod);
}

fn stepping(seen: &Cluster, to: Option<Transport>) -> Option<&'static str> {
    let old = seen.cluster.status.clone().unwrap_or_default().latches;
    broken(seen, Act::Latch(Box::new(Latches { transport: to, ..old })))
}

#[test]
fn a_cluster_takes_one_step_after_the_other() {
    let seen = plain();
    assert_eq!(stepping(&seen, Some(Transport::ClientsPlaintext)), Some("I32"));
    assert_eq!(stepping(&seen, None), Some("I32"));
    assert_eq!(stepping(&seen, Some(Transport::PeersPlaintext)), Some("I15"), "no member has certificates");
    let mut first = plain();
    latches(&mut first).transport = None;
    assert_eq!(stepping(&first, Some(Transport::Tls)), Some("I32"), "the members are in plaintext");
    assert_eq!(stepping(&first, Some(Transport::Plaintext)), None);
}

#[test]
fn a_cluster_goes_back_while_nobody_is_two_steps_away_and_authentication_is_off() {
    let mut back = plain();
    latches(&mut back).transport = Some(Transport::PeersPlaintext);
    stand(&mut back, 0, Transport::PeersPlaintext);
    assert_eq!(stepping(&back, Some(Transport::Plaintext)), None);
    back.auth = Some(true);
    assert_eq!(stepping(&back, Some(Transport::Plaintext)), Some("I31"));
    back.auth = None;
    assert_eq!(stepping(&back, Some(Transport::Plaintext)), Some("I31"), "unknown is not off");
    back.auth = Some(false);
    stand(&mut back, 0, Transport::ClientsPlaintext);
    assert_eq!(stepping(&back, Some(Transport::Plaintext)), Some("I32"));
    stand(&mut back, 0, Transport::PeersPlaintext);
    back.members[1].object.spec.served =
        Some(Template { transport: Some(Transport::ClientsPlaintext), ..back.members[1].object.spec.process.clone() });
    assert_eq!(stepping(&back, Some(Transport::Plaintext)), Some("I32"), "a rollback would be two steps");
}

#[test]
fn a_peer_url_follows_what_the_member_serves() {
    let mut seen = plain();
    for n in 0..3 {
        stand(&mut seen, n, Transport::PeersPlaintext);
    }
    stand(&mut seen, 0, Transport::ClientsPlaintext);
    let url = |seen: &Cluster| objects::member::own_peer_url(&seen.members[0].object);
    let (id, cluster_id) = {
        let etcd = etcd(&mut seen);
        (etcd.members[0].id, etcd.cluster_id)
    };
    let set = |peer_url: String, id| Act::SetPeerUrl { name: named(0), member_id: id, peer_url, cluster_id };
    assert!(url(&seen).starts_with("https://"));
    assert_eq!(broken(&seen, set(url(&seen), id)), None);
    assert_eq!(broken(&seen, set("https://elsewhere:2380".to_owned(), id)), Some("I11"));
    assert_eq!(broken(&seen, set(url(&seen), 77)), Some("I11"));
    // Its Pod still serves plaintext to peers.
    let mut early = seen.clone();
    let old = seen.members[1].pod.clone();
    early.members[0].pod = old;
    assert_eq!(broken(&early, set(url(&early), id)), Some("I32"));
}
