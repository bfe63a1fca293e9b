//! Certificates: which are issued, in which order, and which faults are only reported.

mod auth;
mod rotation;
mod sources;
mod transport;

use std::collections::BTreeMap;

use holdfast_api::key;
use holdfast_api::name::LocalRef;
use holdfast_api::tls::{CertManager, ClientPlane, IssuerRef, MemberTls, PeerPlane, Rotation, Tls, Trusts};
use k8s_openapi::api::core::v1::Volume;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;
use holdfast_base::certificate::{
    Ca, CaPlace, Certificates, Contents, Files, Issue, Kept, Known, Leaf, Origin, Plane, Request, UserCertificate,
    files,
};
use holdfast_base::{Ensure, meta};

const PEER_CA: &str = "ca-peer";
const CLIENT_CA: &str = "ca-client";

fn ca_of(name: &str) -> Ca {
    Ca { anchor: format!("anchor of {name}"), not_after: noon(), fingerprint: name.to_owned() }
}

fn known(fingerprint: &str, ca: &str, common_name: Option<&str>, names: &[String]) -> Known {
    Known {
        fingerprint: fingerprint.to_owned(),
        ca: ca.to_owned(),
        anchor: format!("anchor of {ca}"),
        cas: vec![ca_of(ca)],
        contents: format!("contents of {fingerprint}"),
        for_servers: true,
        for_clients: true,
        common_name: common_name.map(str::to_owned),
        names: names.to_vec(),
        not_before: noon() - SignedDuration::from_hours(24),
        not_after: noon() + SignedDuration::from_hours(24 * 89),
    }
}

fn kept(name: &str, owner: &str, leaves: Vec<(Files, Known)>) -> Kept {
    Kept {
        target: Target { name: name.to_owned(), uid: format!("u-{name}"), resource_version: "7".to_owned() },
        owner: Some(owner.to_owned()),
        typed: true,
        written: None,
        rotated_for: None,
        exchanged: None,
        digest: format!("digest-{name}"),
        leaves: leaves.into_iter().map(|(files, known)| (files.certificate, Ok(known))).collect(),
    }
}

fn of_member(seen: &Observed, n: usize) -> Kept {
    let name = named(n);
    let wanted = super::super::tls::of_member(&seen.cluster, &name, None);
    let leaf = |files: Files| {
        let leaf = wanted.iter().find(|leaf| leaf.files == files).unwrap();
        let ca = if leaf.plane == Plane::Peer { PEER_CA } else { CLIENT_CA };
        (files, known(&format!("{name}-{}", files.certificate), ca, leaf.common_name.as_deref(), &leaf.names))
    };
    let leaves = [files::PEER, files::SERVER, files::ETCDCTL].map(leaf);
    kept(&format!("{name}-tls"), &format!("u-{name}"), leaves.into())
}

/// The Pod of a member mounts its certificates.
fn mount(seen: &mut Observed, n: usize) {
    let volume = Volume { name: "tls".to_owned(), ..Volume::default() };
    let pod = seen.members[n].pod.as_mut().unwrap();
    pod.spec.get_or_insert_default().volumes.get_or_insert_default().push(volume);
}

/// Returns [`formed`] with good certificates.
fn secured(there: usize, wanted: i32) -> Observed {
    let mut seen = formed(there, wanted);
    seen.cluster.spec.tls = None;
    let mut all = Certificates {
        cas: BTreeMap::from([
            (Plane::Client, kept("a-client-ca", "u-a", vec![(files::CA, known(CLIENT_CA, CLIENT_CA, None, &[]))])),
            (Plane::Peer, kept("a-peer-ca", "u-a", vec![(files::CA, known(PEER_CA, PEER_CA, None, &[]))])),
        ]),
        operator: Some(kept("a-operator-tls", "u-a", vec![(files::CLIENT, known("o", CLIENT_CA, Some("root"), &[]))])),
        client: Some(kept("a-client-tls", "u-a", vec![(files::CLIENT, known("c", CLIENT_CA, None, &[]))])),
        ..Certificates::default()
    };
    let bundle = objects::owned_by_cluster("a-ca".to_owned(), &seen.cluster);
    all.bundle = Some((bundle, vec![CLIENT_CA.to_owned()]));
    for n in 0..there {
        let kept = of_member(&seen, n);
        seen.members[n].object.spec.tls = Some(MemberTls { staged: Some(kept.digest.clone()), ..MemberTls::default() });
        all.members.insert(named(n), kept);
        mount(&mut seen, n);
        let url = objects::member::peer_url(&seen.cluster, &named(n));
        etcd(&mut seen).members[n].peer_urls = vec![url];
    }
    seen.certificates = Some(all);
    seen.cluster.status = Some(plan(&seen, noon()).status);
    seen
}

fn certificates(seen: &mut Observed) -> &mut Certificates {
    seen.certificates.as_mut().unwrap()
}

fn issued(seen: &Observed) -> Issue {
    let beside = planned(seen).ensures.into_iter().find_map(|ensure| match ensure {
        Ensure::Secret(issue) => Some(*issue),
        _ => None,
    });
    match act(seen) {
        Some(Act::Issue(issue)) => *issue,
        other => beside.unwrap_or_else(|| panic!("{other:?}")),
    }
}

#[test]
fn a_cluster_whose_certificates_are_good_costs_nothing() {
    let seen = secured(3, 3);
    let plan = planned(&seen);
    assert_eq!((plan.act, plan.ensures.len(), plan.waiting), (None, 0, None));
    assert_eq!(condition(&seen, "Ready"), pair("True", "AsDesired"));
    let told = plan.status.tls.unwrap();
    assert!(told.client.mutual && Some(&told.earliest_expiry) == told.peer.ca_not_after.as_ref(), "{told:?}");
    assert_eq!(plan.status.endpoint.unwrap(), "https://a-client.ns.svc:2379");
    // A cluster in plaintext has no such status.
    assert_eq!(planned(&formed(3, 3)).status.tls, None);
}

#[test]
fn each_member_has_the_end_of_its_own_certificates() {
    let mut seen = secured(3, 3);
    let ends = |seen: &Observed| -> Vec<Option<String>> {
        planned(seen).status.members.into_iter().map(|member| member.certificates_not_after).collect()
    };
    let first = certificates(&mut seen).members[&named(0)].earliest_end().unwrap();
    assert_eq!(ends(&seen), vec![Some(first.to_string()); 3]);
    let sooner = first - SignedDuration::from_hours(24);
    for leaf in certificates(&mut seen).members.get_mut(&named(1)).unwrap().leaves.values_mut().take(1) {
        leaf.as_mut().unwrap().not_after = sooner;
    }
    assert_eq!(ends(&seen), [Some(first.to_string()), Some(sooner.to_string()), Some(first.to_string())]);
    // A pass that has not read the Secrets knows no other end.
    seen.cluster.status = Some(planned(&seen).status);
    seen.certificates = None;
    seen.unread_certificates = Some("not read".to_owned());
    assert_eq!(ends(&seen)[1], Some(sooner.to_string()));
    assert_eq!(ends(&formed(3, 3)), [const { None }; 3], "in plaintext");
}

#[test]
fn the_order_is_cas_then_the_operator_then_applications_then_members() {
    let mut seen = secured(1, 1);
    latches(&mut seen).formed = None;
    seen.members.clear();
    seen.certificates = Some(Certificates::default());
    for plane in [Plane::Client, Plane::Peer] {
        let issue = issued(&seen);
        assert_eq!((issue.contents, issue.replaces), (Contents::Ca { plane, request: None }, None));
        let ca = secured(0, 1).certificates.unwrap().cas.remove(&plane).unwrap();
        certificates(&mut seen).cas.insert(plane, ca);
    }
    for name in ["a-operator-tls", "a-client-tls"] {
        let issue = issued(&seen);
        assert_eq!(issue.metadata.name.as_deref(), Some(name));
        let good = secured(0, 1).certificates.unwrap();
        match name {
            "a-operator-tls" => certificates(&mut seen).operator = good.operator,
            _ => certificates(&mut seen).client = good.client,
        }
    }
    assert!(matches!(act(&seen), Some(Act::Latch(_))), "now the first member may be made");
    let mut seen = secured(3, 3);
    certificates(&mut seen).members.remove(&named(1));
    let issue = issued(&seen);
    assert_eq!(issue.metadata.owner_references.as_ref().unwrap()[0].uid, format!("u-{}", named(1)));
    let Contents::Leaves { leaves, cas, .. } = issue.contents else { panic!() };
    assert_eq!(leaves.len(), 3);
    assert_eq!(cas[&Plane::Peer], ("a-peer-ca".to_owned(), PEER_CA.to_owned()));
}

/// Good certificates plus one flaw: Holdfast writes that Secret again, and no other.
#[test]
fn one_flaw_at_a_time() {
    type Flaw = fn(&mut Kept);
    let flaws: [(&str, Flaw); 6] = [
        ("another CA", |k| flaw(k, files::SERVER, |l| l.ca = "other".to_owned())),
        ("a name less", |k| flaw(k, files::SERVER, |l| drop(l.names.pop()))),
        ("another name", |k| flaw(k, files::PEER, |l| l.names[0] = "x".to_owned())),
        ("another user", |k| flaw(k, files::ETCDCTL, |l| l.common_name = None)),
        ("broken", |k| drop(k.leaves.insert("peer.crt", Err("the key does not belong".to_owned())))),
        ("near its end", |k| flaw(k, files::PEER, |l| l.not_before = noon() - SignedDuration::from_hours(24 * 300))),
    ];
    for (flaw, change) in flaws {
        let mut seen = secured(3, 3);
        change(certificates(&mut seen).members.get_mut(&named(2)).unwrap());
        let issue = issued(&seen);
        assert_eq!(issue.metadata.name, Some(format!("{}-tls", named(2))), "{flaw}");
        assert_eq!(issue.replaces.unwrap().uid, format!("u-{}-tls", named(2)), "{flaw}");
    }
    let mut seen = secured(3, 3);
    seen.members[1].object.spec.tls = Some(MemberTls { staged: Some("older".to_owned()), ..MemberTls::default() });
    assert!(matches!(act(&seen), Some(Act::AnnounceCertificates { member, .. }) if member.name == named(1)));
}

fn flaw(kept: &mut Kept, files: Files, change: impl FnOnce(&mut Known)) {
    change(kept.leaves.get_mut(files.certificate).unwrap().as_mut().unwrap());
}

#[test]
fn one_member_is_renewed_after_the_other() {
    let old = |seen: &mut Observed, n: usize| {
        let kept = certificates(seen).members.get_mut(&named(n)).unwrap();
        flaw(kept, files::PEER, |l| l.not_before = noon() - SignedDuration::from_hours(24 * 300));
    };
    let mut seen = secured(3, 3);
    old(&mut seen, 0);
    old(&mut seen, 1);
    assert_eq!(issued(&seen).metadata.name, Some(format!("{}-tls", named(0))));
    certificates(&mut seen).members.insert(named(0), of_member(&secured(3, 3), 0));
    certificates(&mut seen).unserved = vec![named(0)];
    assert_eq!(act(&seen), None, "until the first one shows its new certificate");
    assert_eq!(condition(&seen, "Degraded"), pair("True", "CertificateNotServed"), "issued a day ago");
    flaw(certificates(&mut seen).members.get_mut(&named(0)).unwrap(), files::PEER, |l| {
        l.not_before = noon() - SignedDuration::from_hours(1);
    });
    assert_eq!(condition(&seen, "Degraded"), pair("False", "NothingWrong"), "issued just now");
    certificates(&mut seen).unserved.clear();
    assert_eq!(issued(&seen).metadata.name, Some(format!("{}-tls", named(1))));
}

#[test]
fn a_lost_ca_is_reported_and_never_replaced() {
    for plane in [Plane::Client, Plane::Peer] {
        let mut seen = secured(3, 3);
        certificates(&mut seen).cas.remove(&plane);
        assert_eq!(act(&seen), None);
        assert_eq!(condition(&seen, "Degraded"), pair("True", "CaLost"));
        assert_eq!(condition(&seen, "Available"), pair("True", "ReadSucceeded"));
        // A broken CA counts as lost too.
        let mut seen = secured(3, 3);
        let broken = Err("the key in tls.key does not belong to tls.crt".to_owned());
        certificates(&mut seen).cas.get_mut(&plane).unwrap().leaves.insert("tls.crt", broken);
        assert_eq!(act(&seen), None);
        assert_eq!(condition(&seen, "Degraded"), pair("True", "CaLost"));
    }
}

#[test]
fn a_secret_of_somebody_else_is_left_alone() {
    for change in [|k: &mut Kept| k.typed = false, |k: &mut Kept| k.owner = None] {
        let mut seen = secured(3, 3);
        change(certificates(&mut seen).operator.as_mut().unwrap());
        assert_eq!(act(&seen), None);
        assert_eq!(condition(&seen, "Degraded"), pair("True", "NameConflict"));
        latches(&mut seen).formed = None;
        assert_eq!(waits(&seen), Some(Reason::NameConflict));
    }
}

/// I15: the safety rules refuse each breach.
#[test]
fn safety_refuses_certificates_that_nobody_trusts() {
    let mut seen = secured(3, 3);
    certificates(&mut seen).members.remove(&named(1));
    let good = issued(&seen);
    let mut plan = planned(&seen);
    let mut refused = |issue: Issue, expected: &str| {
        plan.act = Some(Act::Issue(Box::new(issue)));
        assert_eq!(safety::cluster(&seen, &plan).unwrap_err().invariant, expected);
    };
    let mut other_ca = good.clone();
    let Contents::Leaves { cas, .. } = &mut other_ca.contents else { panic!() };
    cas.insert(Plane::Peer, ("a-peer-ca".to_owned(), "another".to_owned()));
    refused(other_ca, "I15");
    let mut unsigned = good.clone();
    let Contents::Leaves { cas, .. } = &mut unsigned.contents else { panic!() };
    cas.clear();
    refused(unsigned, "I15");
    refused(Issue { contents: Contents::Ca { plane: Plane::Peer, request: None }, ..good.clone() }, "I15");
    let mut foreign = good;
    foreign.metadata.owner_references = None;
    refused(foreign, "I13");
}

/// A user with the right to write Secrets can exchange a CA: running members trust the old CA until they restart.
#[test]
fn an_exchanged_ca_signs_nothing() {
    for (plane, name) in [(Plane::Client, "tls.crt"), (Plane::Peer, "tls.crt")] {
        let mut seen = secured(3, 3);
        let other = known("another", "another", None, &[]);
        certificates(&mut seen).cas.get_mut(&plane).unwrap().leaves.insert(name, Ok(other));
        let plan = planned(&seen);
        assert_eq!((plan.act, plan.ensures.len()), (None, 0));
        assert_eq!(condition(&seen, "Degraded"), pair("True", "CaLost"));
    }
}

#[test]
fn renewals_go_on_whatever_hinders_the_cluster_otherwise() {
    let old = |seen: &mut Observed, n: usize, days: i64| {
        let kept = certificates(seen).members.get_mut(&named(n)).unwrap();
        flaw(kept, files::PEER, |l| {
            l.not_before = noon() - SignedDuration::from_hours(24 * days);
            l.not_after = noon() + SignedDuration::from_hours(24 * (90 - days));
        });
    };
    type Hindrance = fn(&mut Observed);
    let hindrances: [Hindrance; 3] = [
        |s| certificates(s).client.as_mut().unwrap().typed = false,
        |s| s.client_service.as_mut().unwrap().metadata.owner_references = None,
        |s| s.members[1].object.metadata.deletion_timestamp = Some(earlier()),
    ];
    for hinder in hindrances {
        let mut seen = secured(3, 3);
        hinder(&mut seen);
        old(&mut seen, 1, 70);
        assert_eq!(issued(&seen).metadata.name, Some(format!("{}-tls", named(1))));
    }
    // A member that does not show its new certificate blocks other renewals only while there is time.
    let mut seen = secured(3, 3);
    certificates(&mut seen).unserved = vec![named(0)];
    old(&mut seen, 1, 70);
    assert_eq!(act(&seen), None);
    old(&mut seen, 1, 80);
    assert_eq!(issued(&seen).metadata.name, Some(format!("{}-tls", named(1))));
    assert_eq!(condition(&seen, "Degraded"), pair("True", "CertificateExpiring"));
}

#[test]
fn addresses_are_spelt_as_in_certificates() {
    let mut seen = secured(1, 1);
    let names = ["2001:DB8:0:0::1", "etcd.example.org"].map(str::to_owned);
    let client = holdfast_api::tls::ClientPlane { additional_names: names.into(), ..Default::default() };
    seen.cluster.spec.tls = Some(holdfast_api::tls::Tls { client: Some(client), ..Default::default() });
    let server = super::super::tls::of_member(&seen.cluster, &named(0), None).remove(1);
    assert!(server.names.contains(&"2001:db8::1".to_owned()), "{:?}", server.names);
    assert!(server.names.contains(&"etcd.example.org".to_owned()));
}

#[test]
fn servers_are_known_by_their_whole_names_where_the_domain_is_known() {
    let seen = secured(1, 1);
    let domain = "example.org".to_owned();
    let leaves = super::super::tls::of_member(&seen.cluster, &named(0), Some(&domain));
    for name in ["a-client.ns.svc.example.org".to_owned(), format!("{}.a.ns.svc.example.org", named(0))] {
        assert!(leaves[1].names.contains(&name), "{name}: {:?}", leaves[1].names);
    }
}

#[test]
fn other_names_reach_one_member_after_the_other() {
    let mut seen = secured(3, 3);
    let client = ClientPlane { additional_names: vec!["etcd.example.org".to_owned()], ..Default::default() };
    seen.cluster.spec.tls = Some(Tls { client: Some(client), ..Tls::default() });
    let first = issued(&seen);
    assert_eq!(first.metadata.name, Some(format!("{}-tls", named(0))));
    certificates(&mut seen).unserved.push(named(0));
    assert_eq!(act(&seen), None, "until a member shows its new certificate");
}

#[test]
fn no_learner_is_added_before_its_certificates_are_there() {
    let mut seen = secured(1, 2);
    let mut object = objects::member::joiner(&seen.cluster, &named(5));
    stored(&mut object.metadata, "u-a-m5");
    seen.members.push(Member { object, pod: None, claim: None });
    certificates(&mut seen).cas.remove(&Plane::Peer);
    assert_eq!(waits(&seen), Some(Reason::CertificatePending));
    assert_eq!(condition(&seen, "Degraded"), pair("True", "CaLost"));
}
