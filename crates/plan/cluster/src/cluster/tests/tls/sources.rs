//! Certificates from a user's Secrets and from cert-manager, and the flaws that stop them.

use super::*;

/// Returns [`secured`] with a user's own certificates on both planes.
pub(super) fn own(there: usize, wanted: i32) -> Observed {
    let mut seen = secured(there, wanted);
    let named = |name: &str| Some(LocalRef { name: name.to_owned() });
    let client = ClientPlane {
        server_secret_ref: named("server"),
        operator_client_secret_ref: named("operator"),
        ..ClientPlane::default()
    };
    let peer = PeerPlane { secret_ref: named("peer"), ..PeerPlane::default() };
    seen.cluster.spec.tls = Some(Tls { client: Some(client), peer: Some(peer), ..Tls::default() });
    let names = ["*.a.ns.svc", "a-client.ns.svc"].map(str::to_owned);
    let sources = [
        ("server", known("own-server", CLIENT_CA, None, &names)),
        ("operator", known("own-operator", CLIENT_CA, Some("backup"), &[])),
        ("peer", known("own-peer", PEER_CA, None, &names[..1])),
    ];
    let all = certificates(&mut seen);
    all.cas.clear();
    (all.client, all.bundle) = (None, None);
    all.sources = sources.into_iter().map(|(name, known)| (name.to_owned(), Ok(known))).collect();
    let copied = |from: &str| all.sources[from].clone().unwrap();
    all.operator = Some(kept("a-operator-tls", "u-a", vec![(files::CLIENT, copied("operator"))]));
    for kept in all.members.values_mut() {
        let sources = [(files::PEER, "peer"), (files::SERVER, "server"), (files::ETCDCTL, "operator")];
        kept.leaves = sources.iter().map(|(files, from)| (files.certificate, Ok(copied(from)))).collect();
    }
    seen.cluster.status = Some(plan(&seen, noon()).status);
    seen
}

fn source(seen: &mut Observed, name: &str, change: impl FnOnce(&mut Known)) {
    change(certificates(seen).sources.get_mut(name).unwrap().as_mut().unwrap());
}

fn degraded(seen: &Observed) -> (String, String) {
    let conditions = planned(seen).status.conditions;
    let degraded = conditions.into_iter().find(|c| c.type_ == "Degraded").unwrap();
    (degraded.reason, degraded.message)
}

#[test]
fn own_certificates_that_are_good_cost_nothing() {
    let seen = own(3, 3);
    let plan = planned(&seen);
    assert_eq!((plan.act, plan.ensures.len(), plan.waiting), (None, 0, None));
    let told = plan.status.tls.unwrap();
    assert_eq!((told.client.provider.as_str(), told.peer.provider.as_str()), ("Secret", "Secret"));
    assert_eq!((told.client.ca_not_after, told.peer.refused), (None, None));
}

#[test]
fn a_newer_own_certificate_is_copied_to_one_member_after_the_other() {
    let mut seen = own(3, 3);
    source(&mut seen, "peer", |known| (known.fingerprint, known.contents) = ("newer".to_owned(), "newer".to_owned()));
    let issue = issued(&seen);
    assert_eq!(issue.metadata.name, Some(format!("{}-tls", named(0))));
    let Contents::Leaves { copies, cas, .. } = issue.contents else { panic!() };
    assert_eq!((copies["peer"].as_str(), cas.len()), ("newer", 0));
    let first = certificates(&mut seen).members.get_mut(&named(0)).unwrap();
    flaw(first, files::PEER, |known| (known.fingerprint, known.contents) = ("newer".to_owned(), "newer".to_owned()));
    certificates(&mut seen).unserved = vec![named(0)];
    assert_eq!(act(&seen), None, "until the first one shows its new certificate");
    certificates(&mut seen).unserved.clear();
    assert_eq!(issued(&seen).metadata.name, Some(format!("{}-tls", named(1))));
}

/// Good certificates plus one flaw: the status reports the exact flaw, and Holdfast copies nothing.
#[test]
fn one_flaw_of_a_source_at_a_time() {
    type Flaw = fn(&mut Observed);
    let flaws: [(&str, Flaw); 10] = [
        ("holds no PEM private key", |s| {
            let read = Err("tls.key holds no PEM private key, or an encrypted key".to_owned());
            certificates(s).sources.insert("server".to_owned(), read);
        }),
        ("it ended at", |s| source(s, "server", |k| k.not_after = noon())),
        ("it is valid from", |s| source(s, "peer", |k| k.not_before = noon() + SignedDuration::from_hours(1))),
        ("a-client.ns.svc is missing", |s| source(s, "server", |k| drop(k.names.pop()))),
        ("needs *.a.ns.svc", |s| source(s, "server", |k| drop(k.names.remove(0)))),
        ("needs *.a.ns.svc", |s| source(s, "peer", |k| k.names.clear())),
        ("lacks serverAuth", |s| source(s, "server", |k| k.for_servers = false)),
        ("lacks clientAuth", |s| source(s, "operator", |k| k.for_clients = false)),
        ("lacks clientAuth", |s| source(s, "peer", |k| k.for_clients = false)),
        ("does not exist", |s| drop(certificates(s).sources.remove("server"))),
    ];
    for (told, break_it) in flaws {
        let mut seen = own(3, 3);
        // A newer certificate, so that there is a certificate to copy.
        for name in ["server", "operator", "peer"] {
            source(&mut seen, name, |known| known.fingerprint = format!("newer-{name}"));
        }
        break_it(&mut seen);
        let (reason, message) = degraded(&seen);
        assert_eq!(reason, "CertificateRejected", "{message}");
        assert!(
            message.contains(told) && message.contains("go on with the certificate they have"),
            "{told}: {message}"
        );
        if let Some(Act::Issue(issue)) = act(&seen) {
            let Contents::Leaves { leaves, .. } = issue.contents else { panic!() };
            let broken = ["server", "operator", "peer"].into_iter().find(|name| {
                certificates(&mut seen).sources.get(*name).is_none_or(|read| {
                    read.as_ref().map_or(true, |known| {
                        *known
                            != Known {
                                fingerprint: format!("newer-{name}"),
                                ..own(3, 3).certificates.unwrap().sources[*name].clone().unwrap()
                            }
                    })
                })
            });
            let copied = |leaf: &Leaf| leaf.origin == Origin::Copied(broken.unwrap().to_owned());
            assert!(!leaves.iter().any(copied), "{told}: {leaves:?}");
        }
    }
}

/// etcd's gateway shows the server's certificate to its own member. A formed cluster with such certificates renews them: at
/// their end the cluster would lose all its clients.
#[test]
fn a_server_certificate_without_client_auth_founds_no_cluster_and_ends_none() {
    let newer = |mut seen: Observed| {
        source(&mut seen, "server", |k| (k.for_clients, k.fingerprint) = (false, "newer".to_owned()));
        seen
    };
    let formed = newer(own(1, 1));
    assert_eq!(issued(&formed).metadata.name, Some(format!("{}-tls", named(0))));
    assert_eq!(condition(&formed, "Degraded"), pair("False", "NothingWrong"));
    let mut forming = newer(own(1, 1));
    latches(&mut forming).formed = None;
    let (reason, message) = degraded(&forming);
    assert_eq!(reason, "CertificateRejected");
    assert!(message.contains("lacks clientAuth, and etcd's gateway (/v3) shows it"), "{message}");
}

/// cert-manager's issuer may refuse names that only clients need, and takes time for the other names.
#[test]
fn a_certificate_of_others_is_taken_with_the_names_that_etcd_needs() {
    let seen = own(1, 1);
    for leaf in super::super::super::tls::of_member(&seen.cluster, &named(0), None) {
        assert!(leaf.names.len() <= 2, "{leaf:?}");
    }
    let mut managed = secured(1, 1);
    let issuer = || Some(CertManager { issuer_ref: IssuerRef { name: "pki".to_owned(), kind: None, group: None } });
    let client = ClientPlane {
        cert_manager: issuer(),
        additional_names: vec!["x.example.org".to_owned()],
        ..ClientPlane::default()
    };
    managed.cluster.spec.tls = Some(Tls { client: Some(client), ..Tls::default() });
    let domain = "example.org".to_owned();
    let server = super::super::super::tls::of_member(&managed.cluster, &named(0), Some(&domain)).remove(1);
    assert!(server.names.contains(&"x.example.org".to_owned()));
    assert!(!server.names.iter().any(|name| name.ends_with(".svc.example.org")), "{:?}", server.names);
    assert_eq!(server.names[..2], [format!("{}.a.ns.svc", named(0)), "a-client.ns.svc".to_owned()]);
}

#[test]
fn a_bad_own_certificate_of_one_plane_does_not_hold_up_the_renewal_of_the_other() {
    let mut seen = own(3, 3);
    let tls = seen.cluster.spec.tls.as_mut().unwrap();
    tls.peer = None;
    let all = certificates(&mut seen);
    all.cas.insert(Plane::Peer, kept("a-peer-ca", "u-a", vec![(files::CA, known(PEER_CA, PEER_CA, None, &[]))]));
    all.sources.remove("server");
    for n in 0..3 {
        let names = super::super::super::tls::of_member(&seen.cluster, &named(n), None)[0].names.clone();
        let kept = certificates(&mut seen).members.get_mut(&named(n)).unwrap();
        flaw(kept, files::PEER, |known| known.names = names);
    }
    flaw(certificates(&mut seen).members.get_mut(&named(1)).unwrap(), files::PEER, |l| {
        l.not_before = noon() - SignedDuration::from_hours(24 * 300);
    });
    let issue = issued(&seen);
    let Contents::Leaves { leaves, .. } = issue.contents else { panic!() };
    assert_eq!(issue.metadata.name, Some(format!("{}-tls", named(1))));
    assert!(leaves.iter().any(|leaf| leaf.files == files::PEER) && !leaves.iter().any(|l| l.files == files::SERVER));
    assert_eq!(degraded(&seen).0, "CertificateRejected");
}

/// Returns [`secured`] by cert-manager, which has not issued yet.
fn managed(there: usize) -> Observed {
    let mut seen = secured(there, 3);
    let issuer_ref = IssuerRef { name: "pki".to_owned(), kind: None, group: None };
    let by = CertManager { issuer_ref };
    let client = ClientPlane { cert_manager: Some(by.clone()), ..ClientPlane::default() };
    let peer = PeerPlane { cert_manager: Some(by), ..PeerPlane::default() };
    seen.cluster.spec.tls = Some(Tls { client: Some(client), peer: Some(peer), ..Tls::default() });
    let all = certificates(&mut seen);
    *all = Certificates { cert_manager: true, ..Certificates::default() };
    latches(&mut seen).formed = None;
    seen
}

#[test]
fn cert_manager_is_asked_before_anything_is_made() {
    let mut seen = managed(0);
    certificates(&mut seen).cert_manager = false;
    assert_eq!(waits(&seen), Some(Reason::CertManagerMissing));
    assert!(planned(&seen).ensures.is_empty());
    certificates(&mut seen).cert_manager = true;
    assert_eq!(waits(&seen), Some(Reason::CertificatePending));
    let Some(Ensure::Certificate { metadata, spec }) = planned(&seen).ensures.pop() else { panic!() };
    assert_eq!((meta::name(&metadata), &spec["issuerRef"]["kind"]), ("a-operator-cert", &serde_json::json!("Issuer")));
    // Holdfast applies the Certificate once, and passes cert-manager's message on.
    let unready = Some("Issuer pki not found".to_owned());
    let mut more = spec.clone();
    more["revisionHistoryLimit"] = 1.into();
    let request = Request { metadata: (*metadata).clone(), spec: more, issuing: false, unready };
    certificates(&mut seen).requests.insert("a-operator-cert".to_owned(), request);
    let plan = planned(&seen);
    assert!(plan.ensures.is_empty());
    assert!(plan.waiting.unwrap().message.contains("Issuer pki not found"));
    // Holdfast changes no Certificate of another owner.
    let other = ObjectMeta { owner_references: None, ..*metadata.clone() };
    let request = certificates(&mut seen).requests.get_mut("a-operator-cert").unwrap();
    (request.metadata, request.spec) = (other, serde_json::Value::Null);
    let mut plan = planned(&seen);
    assert!(plan.ensures.is_empty());
    plan.ensures.push(Ensure::Certificate { metadata, spec });
    assert_eq!(safety::cluster(&seen, &plan).unwrap_err().invariant, "I13");
}

/// The right to write an EtcdCluster is not the right to any name of an issuer for all namespaces.
#[test]
fn a_cluster_issuer_is_asked_for_names_of_the_namespace_and_of_the_operators_list() {
    let mut seen = managed(0);
    certificates(&mut seen).cert_manager = true;
    let client = seen.cluster.spec.tls.as_mut().unwrap().client.as_mut().unwrap();
    client.additional_names = vec!["etcd.example.org".to_owned()];
    let issuer = |seen: &mut Observed, kind: &str| {
        let client = seen.cluster.spec.tls.as_mut().unwrap().client.as_mut().unwrap();
        client.cert_manager.as_mut().unwrap().issuer_ref.kind = Some(kind.to_owned());
    };
    assert_eq!(waits(&seen), Some(Reason::CertificatePending), "an Issuer is the namespace's own");
    issuer(&mut seen, "ClusterIssuer");
    assert_eq!(waits(&seen), Some(Reason::InvalidSpec));
    assert!(planned(&seen).ensures.is_empty());
    seen.settings.allowed_names = vec!["*.example.org".to_owned()];
    assert_eq!(waits(&seen), Some(Reason::CertificatePending));
    assert!(matches!(planned(&seen).ensures.pop(), Some(Ensure::Certificate { .. })));
}

/// An operator that refuses a name which it asked for earlier ends neither the name nor the cluster's repair.
#[test]
fn a_formed_cluster_keeps_its_names_and_gets_no_new_one() {
    let mut seen = managed(3);
    certificates(&mut seen).cert_manager = true;
    let names = |seen: &Observed| -> Vec<Vec<String>> {
        let specs = planned(seen).ensures.into_iter().filter_map(|it| match it {
            Ensure::Certificate { spec, .. } => {
                assert!(!spec.to_string().contains("null"), "the definition has no null: {spec}");
                serde_json::from_value(spec["dnsNames"].clone()).ok()
            }
            _ => None,
        });
        specs.collect()
    };
    latches(&mut seen).formed = secured(3, 3).latches().formed.clone();
    let client = seen.cluster.spec.tls.as_mut().unwrap().client.as_mut().unwrap();
    client.additional_names = vec!["etcd.example.org".to_owned()];
    let asked = planned(&seen).ensures.into_iter().filter_map(|it| match it {
        Ensure::Certificate { metadata, spec } => {
            Some((metadata.name.clone().unwrap(), Request { metadata: *metadata, spec, issuing: false, unready: None }))
        }
        _ => None,
    });
    // One member is new, and the Certificates of the others hold the name from before.
    let others: BTreeMap<_, _> = asked.filter(|(name, _)| !name.starts_with(&named(1))).collect();
    certificates(&mut seen).requests = others;
    let client = seen.cluster.spec.tls.as_mut().unwrap().client.as_mut().unwrap();
    client.cert_manager.as_mut().unwrap().issuer_ref.kind = Some("ClusterIssuer".to_owned());
    for request in certificates(&mut seen).requests.values_mut() {
        request.spec["issuerRef"]["kind"] = "ClusterIssuer".into();
    }
    let asked = names(&seen);
    assert!(!asked.is_empty() && asked.iter().flatten().all(|name| name != "etcd.example.org"), "{asked:?}");
    assert_ne!(planned(&seen).waiting.map(|waiting| waiting.reason), Some(Reason::InvalidSpec));
    assert_eq!(condition(&seen, "Degraded"), pair("True", "CertificateRejected"));
    seen.settings.allowed_names = vec!["etcd.example.org".to_owned()];
    assert!(names(&seen).iter().flatten().any(|name| name == "etcd.example.org"));
}

/// Without the members' Secrets Holdfast still knows the CAs that members trust.
#[test]
fn deleted_secrets_of_members_do_not_open_the_door_for_another_ca() {
    let mut seen = own(3, 3);
    for n in 0..3 {
        let tls = seen.members[n].object.spec.tls.as_mut().unwrap();
        let anchor = |ca: &str| Some(format!("anchor of {ca}"));
        tls.trusts = Trusts { client: anchor(CLIENT_CA), peer: anchor(PEER_CA) };
    }
    certificates(&mut seen).members.clear();
    source(&mut seen, "peer", |known| known.anchor = "other".to_owned());
    assert_eq!(act(&seen), None, "a Secret is written whole or not at all");
    source(&mut seen, "peer", |known| known.anchor = format!("anchor of {PEER_CA}"));
    assert!(matches!(act(&seen), Some(Act::Issue(_))));
    // Neither a Secret of Holdfast's own CA, exchanged at the same time.
    let mut seen = secured(3, 3);
    for n in 0..3 {
        let tls = seen.members[n].object.spec.tls.as_mut().unwrap();
        tls.trusts = Trusts { client: None, peer: Some(format!("anchor of {PEER_CA}")) };
    }
    let all = certificates(&mut seen);
    all.members.clear();
    all.cas.insert(Plane::Peer, kept("a-peer-ca", "u-a", vec![(files::CA, known("b", "b", None, &[]))]));
    assert_eq!(act(&seen), None);
    assert_eq!(condition(&seen, "Degraded"), pair("True", "CaLost"));
}

#[test]
fn a_clients_certificate_is_no_peers() {
    let mut seen = own(3, 3);
    for name in ["server", "operator"] {
        source(&mut seen, name, |known| {
            known.anchor = format!("anchor of {PEER_CA}");
            known.names.push("*.a.ns.svc".to_owned());
        });
    }
    let (reason, message) = degraded(&seen);
    assert_eq!(reason, "CertificateRejected");
    assert!(message.contains("could speak as a member"), "{message}");
}

/// The CAs of the servers' source stand in each file, without another certificate.
#[test]
fn more_cas_of_a_source_reach_the_operator_then_the_members() {
    let mut seen = own(3, 3);
    let more = ca_of("more");
    source(&mut seen, "operator", |known| known.cas.push(more.clone()));
    assert_eq!(act(&seen), None, "the operator's source says nothing about the clients that members accept");
    source(&mut seen, "server", |known| known.cas.push(more.clone()));
    let issue = issued(&seen);
    assert_eq!(issue.metadata.name.as_deref(), Some("a-operator-tls"));
    let Contents::Leaves { leaves, trusts, .. } = issue.contents else { panic!() };
    let of: Vec<_> = trusts[files::CLIENT.ca].iter().map(|place| place.secret.as_str()).collect();
    assert_eq!((leaves.len(), of), (0, vec!["server"; 2]));
    let operators = certificates(&mut seen).operator.as_mut().unwrap();
    flaw(operators, files::CLIENT, |known| known.cas.push(more.clone()));
    assert_eq!(issued(&seen).metadata.name, Some(format!("{}-tls", named(0))));
}

#[test]
fn another_source_before_the_cluster_has_formed_makes_the_seed_anew() {
    let mut seen = managed(0);
    certificates(&mut seen).operator =
        Some(kept("a-operator-tls", "u-a", vec![(files::CLIENT, known("o", "x", Some("root"), &[]))]));
    // cert-manager issued for the operator alone, and a user changes to Holdfast's own CA.
    seen.cluster.spec.tls = None;
    assert_eq!(issued(&seen).contents, Contents::Ca { plane: Plane::Client, request: None });
    let seed = objects::member::seed(&seen.cluster, "a-m0", None);
    assert!(!objects::member::is_outdated(&seed, &seen.cluster));
    let peer = PeerPlane { allowed_hostname: Some("typo".to_owned()), ..PeerPlane::default() };
    seen.cluster.spec.tls = Some(Tls { peer: Some(peer), ..Tls::default() });
    assert!(objects::member::is_outdated(&seed, &seen.cluster));
}

/// An operator with a clock that was ahead has issued them. No peer accepts them, and their end is far away.
#[test]
fn certificates_that_are_not_valid_yet_are_made_again_at_once() {
    for member in [0, 1] {
        let mut seen = secured(2, 2);
        let kept = certificates(&mut seen).members.get_mut(&named(member)).unwrap();
        flaw(kept, files::SERVER, |l| l.not_before = noon() + SignedDuration::from_secs(1));
        // A renewal that another member does not show yet blocks only a renewal that has time.
        certificates(&mut seen).unserved = vec![named(1 - member)];
        assert_eq!(issued(&seen).metadata.name.as_deref(), Some(format!("{}-tls", named(member)).as_str()));
    }
}

/// A refused Secret (a quota) must not keep clients from a serving member, nor block another act.
#[test]
fn a_missing_secret_holds_up_no_act_of_a_formed_cluster() {
    let lacking = |mut seen: Observed| {
        certificates(&mut seen).client = None;
        seen
    };
    let mut seen = lacking(secured(1, 1));
    assert_eq!(
        issued(&seen).metadata.name.as_deref(),
        Some("a-client-tls"),
        "in the place of an act where there is none"
    );
    not_admitted(&mut seen.members[0]);
    let plan = planned(&seen);
    assert!(matches!(plan.act, Some(Act::AdmitClients { .. })), "{:?}", plan.act);
    let beside =
        |plan: &Plan<holdfast_api::EtcdClusterStatus>| plan.ensures.iter().any(|e| matches!(e, Ensure::Secret(_)));
    assert!(beside(&plan));
    for (size, wanted) in [(3, 2), (2, 3)] {
        let plan = planned(&lacking(secured(size, wanted)));
        assert!(beside(&plan) && plan.act.is_some(), "{size} to {wanted}: {:?}", plan.act);
    }
}

/// Without the right to read Secrets (docs/security.md) the operator cannot ask etcd. The quorum is not lost, and Holdfast issues
/// no certificate in place of an unread one.
#[test]
fn secrets_that_cannot_be_read_are_a_reason() {
    let unread = |mut seen: Observed| {
        (seen.certificates, seen.unread_certificates) = (None, Some("secrets \"a-peer-ca\" is forbidden".to_owned()));
        seen.etcd = Seen::unknown("there is no Pod to ask");
        seen.answers.clear();
        seen
    };
    let formed = unread(secured(3, 3));
    assert_eq!(waits(&formed), Some(Reason::RightsMissing));
    for kind in ["Ready", "Available"] {
        assert_eq!(condition(&formed, kind), pair("False", "RightsMissing"));
    }
    assert_eq!(planned(&formed).status.tls, formed.cluster.status.unwrap().tls, "the last known state stays");
    let mut forming = unread(secured(1, 1));
    latches(&mut forming).formed = None;
    assert_eq!(waits(&forming), Some(Reason::RightsMissing));
}

/// The first Secret of a cluster with certificates of a person has the CAs of the servers, although no member exists yet.
#[test]
fn the_operators_secret_has_its_cas_before_the_first_member() {
    let mut seen = own(1, 1);
    latches(&mut seen).formed = None;
    seen.members.clear();
    let all = certificates(&mut seen);
    (all.operator, all.client) = (None, None);
    all.members.clear();
    let issue = issued(&seen);
    let Contents::Leaves { trusts, .. } = issue.contents else { panic!() };
    assert_eq!(issue.metadata.name.as_deref(), Some("a-operator-tls"));
    assert_eq!(trusts[files::CLIENT.ca].iter().map(|place| place.secret.as_str()).collect::<Vec<_>>(), ["server"]);
    // Without a usable certificate of the servers there is no CA, and the first member names the flaw.
    source(&mut seen, "server", |known| known.names.clear());
    assert!(!matches!(act(&seen), Some(Act::Issue(_))), "{:?}", act(&seen));
}
