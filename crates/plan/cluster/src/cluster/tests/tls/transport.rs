//! The way between plaintext and TLS: what a cluster waits for before its next step.

use holdfast_api::auth::Auth;
use holdfast_api::transport::Transport;
use holdfast_base::template;

use super::*;

/// A cluster whose members stand at this step, and whose spec asks for another.
fn at(step: Transport, wanted: Transport) -> Observed {
    let mut seen = secured(3, 3);
    seen.auth = Some(false);
    let both = ClientPlane { allow_plaintext: Some(true), ..ClientPlane::default() };
    seen.cluster.spec.tls = match wanted {
        Transport::Plaintext => Some(Tls { insecure: Some(true), ..Tls::default() }),
        Transport::ClientsPlaintext => Some(Tls { client: Some(both), ..Tls::default() }),
        Transport::PeersPlaintext | Transport::Tls => None,
    };
    seen.cluster.status.as_mut().unwrap().latches.transport = Some(step);
    let wanted = template::wanted(&seen.cluster);
    for n in 0..3 {
        let member = &mut seen.members[n];
        template::put(&mut member.object, &wanted);
        let old = member.pod.take().unwrap();
        let mut pod = holdfast_base::fixtures::pod_of(&member.object);
        pod.status = old.status;
        pod.metadata.labels = old.metadata.labels;
        seen.members[n].pod = Some(pod);
        let url = objects::member::own_peer_url(&seen.members[n].object);
        etcd(&mut seen).members[n].peer_urls = vec![url];
    }
    seen
}

fn step(seen: &Observed) -> Option<Transport> {
    match act(seen) {
        Some(Act::Latch(latches)) => {
            assert_eq!(safety::cluster(seen, &planned(seen)).map(drop), Ok(()));
            latches.transport
        }
        _ => None,
    }
}

#[test]
fn a_step_follows_the_other_in_both_directions() {
    use Transport::{ClientsPlaintext, PeersPlaintext, Plaintext, Tls};
    for (present, wanted, next) in [
        (Plaintext, ClientsPlaintext, Some(PeersPlaintext)),
        (PeersPlaintext, ClientsPlaintext, Some(ClientsPlaintext)),
        (ClientsPlaintext, Tls, Some(Tls)),
        (Tls, ClientsPlaintext, Some(ClientsPlaintext)),
        (ClientsPlaintext, Plaintext, Some(PeersPlaintext)),
        (PeersPlaintext, Plaintext, Some(Plaintext)),
        (Plaintext, Plaintext, None),
        (Tls, Tls, None),
    ] {
        assert_eq!(step(&at(present, wanted)), next, "{present:?} to {wanted:?}");
    }
}

#[test]
fn no_member_restarts_for_tls_before_each_has_usable_certificates() {
    let good = at(Transport::Plaintext, Transport::ClientsPlaintext);
    let mut unnamed = good.clone();
    unnamed.members[2].object.spec.tls = None;
    let mut stale = good.clone();
    stale.members[2].object.spec.tls.as_mut().unwrap().staged = Some("of an earlier time".to_owned());
    let mut other_name = good.clone();
    other_name.members[2].object.spec.tls.as_mut().unwrap().peer_name = Some("of.an.earlier.source".to_owned());
    for seen in [unnamed, stale, other_name] {
        assert!(matches!(act(&seen), Some(Act::AnnounceCertificates { .. })), "{:?}", act(&seen));
    }
    let mut missing = good;
    certificates(&mut missing).members.remove(&named(2));
    assert_eq!(step(&missing), None);
}

#[test]
fn authentication_ends_before_plaintext_and_begins_after_it() {
    let mut seen = at(Transport::ClientsPlaintext, Transport::Plaintext);
    seen.auth = Some(true);
    assert_eq!(step(&seen), None);
    assert_eq!(condition(&seen, "Progressing").1, "AuthRequiredNotConfigured");
    seen.cluster.spec.auth = Some(Auth { enabled: false });
    assert!(matches!(act(&seen), Some(Act::SetAuth { enabled: false, .. })));
    let mut early = at(Transport::Plaintext, Transport::ClientsPlaintext);
    early.cluster.spec.auth = Some(Auth { enabled: true });
    assert_eq!(step(&early), Some(Transport::PeersPlaintext), "no member knows users by their certificates yet");
}

#[test]
fn a_peer_url_is_corrected_after_the_member_serves_it() {
    let mut seen = at(Transport::ClientsPlaintext, Transport::ClientsPlaintext);
    etcd(&mut seen).members[1].peer_urls = vec![format!("http://{}.a.ns.svc:2380", named(1))];
    let Some(Act::SetPeerUrl { name, peer_url, .. }) = act(&seen) else { panic!("{:?}", act(&seen)) };
    assert_eq!((name, peer_url), (named(1), format!("https://{}.a.ns.svc:2380", named(1))));
    assert_eq!(planned(&seen).status.transport, None);
    etcd(&mut seen).members[1].peer_urls = vec![format!("https://{}.a.ns.svc:2380", named(1))];
    assert_eq!(planned(&seen).status.transport, Some(Transport::ClientsPlaintext));
}
