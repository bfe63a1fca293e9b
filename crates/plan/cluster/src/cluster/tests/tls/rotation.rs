//! The exchange of a CA, step by step: who may begin it, what each step waits for, and what safety refuses.

use super::*;

const NEXT: &str = "ca-next";

fn ask(seen: &mut Observed, request: &str) {
    let annotations = seen.cluster.metadata.annotations.get_or_insert_default();
    annotations.insert(key::ROTATE_CA.to_owned(), request.to_owned());
}

/// The contents of the Secret that the plan writes first, if any.
fn written(seen: &Observed) -> Option<(String, Contents)> {
    let plan = planned(seen);
    let beside = plan.ensures.into_iter().find_map(|ensure| match ensure {
        Ensure::Secret(issue) => Some(*issue),
        _ => None,
    });
    let issue = match plan.act {
        Some(Act::Issue(issue)) => Some(*issue),
        _ => beside,
    };
    issue.map(|issue| (issue.metadata.name.unwrap_or_default(), issue.contents))
}

/// A cluster whose clients' CA has a successor that stands in every file.
fn published(members: usize) -> Observed {
    let mut seen = secured(members, i32::try_from(members).unwrap());
    seen.cluster.spec.tls = Some(Tls {
        client: Some(ClientPlane { rotation_grace_seconds: Some(60), ..ClientPlane::default() }),
        ..Tls::default()
    });
    let all = certificates(&mut seen);
    let follows = Ok(known(NEXT, NEXT, None, &[]));
    let ca = all.cas.get_mut(&Plane::Client).unwrap();
    ca.leaves.insert(files::NEXT.certificate, follows);
    let kept = all.operator.iter_mut().chain(&mut all.client).chain(all.members.values_mut());
    for kept in kept {
        kept.written = Some(noon() - SignedDuration::from_mins(5));
        for (file, leaf) in &mut kept.leaves {
            if *file != files::PEER.certificate {
                leaf.as_mut().unwrap().cas.push(ca_of(NEXT));
            }
        }
    }
    all.bundle.as_mut().unwrap().1.push(NEXT.to_owned());
    seen
}

/// Lets members accept the next CA, by their numbers.
fn accept(seen: &mut Observed, members: &[usize]) {
    for n in members {
        let accepted = certificates(seen).accepted.entry(named(*n)).or_default();
        accepted.insert((Plane::Client, format!("anchor of {NEXT}")));
    }
}

#[test]
fn a_person_asks_or_the_ca_grows_old() {
    let mut seen = secured(3, 3);
    assert_eq!(written(&seen), None);
    ask(&mut seen, "client/1");
    let (secret, contents) = written(&seen).unwrap();
    assert_eq!(secret, "a-client-ca");
    assert_eq!(contents, Contents::NextCa { plane: Plane::Client, request: Some("1".to_owned()) });
    certificates(&mut seen).cas.get_mut(&Plane::Client).unwrap().rotated_for = Some("1".to_owned());
    assert_eq!(written(&seen), None, "answered");
    ask(&mut seen, "client/1, peer/2");
    assert_eq!(written(&seen).unwrap().0, "a-peer-ca");
    for bad in ["client", "client/", "servers/1", ""] {
        let mut seen = secured(3, 3);
        ask(&mut seen, bad);
        assert_eq!(written(&seen), None, "{bad}");
    }
    let aged = |replicas: usize, days_left: i64| {
        let mut seen = secured(replicas, i32::try_from(replicas).unwrap());
        flaw(certificates(&mut seen).cas.get_mut(&Plane::Peer).unwrap(), files::CA, |ca| {
            ca.not_before = noon() - SignedDuration::from_hours(24 * (3_650 - days_left));
            ca.not_after = noon() + SignedDuration::from_hours(24 * days_left);
        });
        written(&seen).map(|(secret, _)| secret)
    };
    assert_eq!(aged(3, 1_000).as_deref(), Some("a-peer-ca"), "two thirds of its life are over");
    assert_eq!(aged(3, 2_000), None);
    assert_eq!(aged(1, 1_000), None, "one member restarts only on request");
    assert_eq!(aged(1, 20).as_deref(), Some("a-peer-ca"), "or before the CA ends");
}

/// The Secret of a lost CA took the answered token along.
#[test]
fn an_earlier_request_exchanges_no_lost_ca() {
    let mut seen = secured(3, 3);
    ask(&mut seen, "all/1");
    for kept in certificates(&mut seen).cas.values_mut() {
        kept.rotated_for = Some("1".to_owned());
    }
    seen.cluster.status = Some(planned(&seen).status);
    certificates(&mut seen).cas.remove(&Plane::Peer);
    assert_eq!(written(&seen), None);
    assert_eq!(condition(&seen, "Degraded"), pair("True", "CaLost"));
    ask(&mut seen, "all/1,peer/2");
    let (secret, contents) = written(&seen).unwrap();
    assert_eq!(secret, "a-peer-ca");
    assert_eq!(contents, Contents::NextCa { plane: Plane::Peer, request: Some("2".to_owned()) });
}

#[test]
fn the_next_ca_signs_when_each_member_has_accepted_it_and_applications_had_their_time() {
    let rotation = |seen: &Observed| planned(seen).status.tls.unwrap().client.rotation;
    for accepted in [&[][..], &[0], &[0, 2]] {
        let mut seen = published(3);
        accept(&mut seen, accepted);
        assert_eq!(written(&seen), None, "{accepted:?}");
        assert_eq!(rotation(&seen), Some(Rotation::Trusting));
        assert_eq!(condition(&seen, "Progressing"), pair("True", "CaRotating"));
        assert_eq!(condition(&seen, "Ready"), pair("True", "AsDesired"));
    }
    let mut seen = published(3);
    accept(&mut seen, &[0, 1, 2]);
    let promote = Contents::PromoteCa { plane: Plane::Client, next: NEXT.to_owned() };
    assert_eq!(written(&seen), Some(("a-client-ca".to_owned(), promote)));
    // Not before the time of applications.
    let mut early = seen.clone();
    certificates(&mut early).client.as_mut().unwrap().written = Some(noon() - SignedDuration::from_secs(10));
    assert_eq!((written(&early), rotation(&early)), (None, Some(Rotation::Waiting)));
    // Nor while a file lacks the CA.
    let user = |trusts: &[&str]| UserCertificate {
        name: "shop".to_owned(),
        signed_by: Some(format!("anchor of {CLIENT_CA}")),
        trusts: trusts.iter().map(|ca| format!("anchor of {ca}")).collect(),
    };
    let mut late = seen.clone();
    certificates(&mut late).users = vec![user(&[CLIENT_CA])];
    assert_eq!(written(&late), None, "the Secret of a user lacks the next CA");
    certificates(&mut late).users = vec![user(&[CLIENT_CA, NEXT])];
    assert!(written(&late).is_some());
    // A lost CA that has a successor is no fault any more.
    certificates(&mut late).cas.get_mut(&Plane::Client).unwrap().leaves.remove(files::CA.certificate);
    assert_eq!(condition(&late, "Degraded"), pair("False", "NothingWrong"));
}

#[test]
fn an_earlier_ca_stays_while_a_certificate_or_a_user_needs_it() {
    let mut seen = published(3);
    accept(&mut seen, &[0, 1, 2]);
    let all = certificates(&mut seen);
    let ca = all.cas.get_mut(&Plane::Client).unwrap();
    let next = ca.leaves.remove(files::NEXT.certificate).unwrap();
    ca.leaves.insert(files::CA.certificate, next);
    let (secret, contents) = written(&seen).unwrap();
    let Contents::Leaves { trusts, cas, .. } = contents else { panic!() };
    assert_eq!((secret.as_str(), cas[&Plane::Client].1.as_str()), ("a-operator-tls", NEXT));
    assert_eq!(trusts[files::CLIENT.ca].len(), 2, "both CAs");
    // Every certificate comes from the next CA.
    let all = certificates(&mut seen);
    let kept = all.operator.iter_mut().chain(&mut all.client).chain(all.members.values_mut());
    for (file, leaf) in kept.flat_map(|kept| &mut kept.leaves) {
        if *file != files::PEER.certificate {
            let leaf = leaf.as_mut().unwrap();
            (leaf.anchor, leaf.ca) = (ca_of(NEXT).anchor, NEXT.to_owned());
        }
    }
    let written_cas = |seen: &Observed| match written(seen)?.1 {
        Contents::Leaves { trusts, leaves, .. } => Some((trusts[files::CLIENT.ca].len(), leaves.len())),
        other => panic!("{other:?}"),
    };
    assert_eq!(written_cas(&seen), Some((1, 0)), "the earlier CA leaves, and no certificate is issued");
    let mut used = seen.clone();
    certificates(&mut used).users = vec![UserCertificate {
        name: "shop".to_owned(),
        signed_by: Some(format!("anchor of {CLIENT_CA}")),
        trusts: vec![],
    }];
    assert_eq!(written_cas(&used), None, "a user's certificate comes from it");
    let mut early = seen.clone();
    certificates(&mut early).operator.as_mut().unwrap().exchanged = Some(noon() - SignedDuration::from_secs(10));
    assert_eq!(written_cas(&early), None, "applications read their new certificates");
}

#[test]
fn a_pod_that_loaded_other_cas_ends_in_its_turn_and_one_of_an_earlier_operator_does_not() {
    let mut seen = secured(3, 3);
    assert_eq!(act(&seen), None, "an update of the operator restarts nothing");
    let published = published(3);
    seen.certificates.clone_from(&published.certificates);
    for n in 0..3 {
        let tls = seen.members[n].object.spec.tls.as_mut().unwrap();
        tls.cas = Some("two".to_owned());
        let annotations = seen.members[n].pod.as_mut().unwrap().metadata.annotations.get_or_insert_default();
        annotations.insert(key::CAS.to_owned(), "two".to_owned());
    }
    seen.cluster.status = Some(planned(&seen).status);
    seen.next_pods = (0..3).map(|n| (named(n), Seen::Known(Judgement::Permitted))).collect();
    assert_eq!(act(&seen), None);
    for n in 0..3 {
        let annotations = seen.members[n].pod.as_mut().unwrap().metadata.annotations.as_mut().unwrap();
        annotations.remove(key::CAS);
    }
    let ended = act(&seen);
    assert!(matches!(&ended, Some(Act::EvictPod { why, .. }) if why.contains("other CAs")), "{ended:?}");
    seen.next_pods.clear();
    assert!(!matches!(act(&seen), Some(Act::EvictPod { .. })), "the API server has not judged the next Pod");
}

#[test]
fn a_small_cluster_waits_for_a_person_where_the_source_has_another_ca() {
    let exchanged = |members: usize| {
        let mut seen = super::sources::own(members, i32::try_from(members).unwrap());
        let source = certificates(&mut seen).sources.get_mut("peer").unwrap().as_mut().unwrap();
        (source.anchor, source.ca, source.fingerprint) = (ca_of(NEXT).anchor, NEXT.to_owned(), "newer".to_owned());
        source.cas = vec![ca_of(NEXT)];
        seen
    };
    let seen = exchanged(3);
    let (secret, contents) = written(&seen).unwrap();
    let Contents::Leaves { leaves, trusts, .. } = contents else { panic!() };
    assert_eq!((secret, leaves.len()), (format!("{}-tls", named(0)), 0));
    assert_eq!(trusts[files::PEER.ca].len(), 2, "both CAs");
    let mut small = exchanged(1);
    assert_eq!(written(&small), None);
    assert_eq!(condition(&small, "Degraded"), pair("True", "CaRotationWaits"));
    ask(&mut small, "peer/now");
    assert!(written(&small).is_some());
}

#[test]
fn safety_refuses_each_step_that_would_cut_a_member_off() {
    let verdict = |seen: &Observed, contents: Contents| {
        let (metadata, replaces) = match &contents {
            Contents::PromoteCa { .. } => {
                ("a-client-ca", certificates(&mut seen.clone()).cas[&Plane::Client].target.clone())
            }
            _ => ("a-operator-tls", certificates(&mut seen.clone()).operator.as_ref().unwrap().target.clone()),
        };
        let metadata = objects::owned_by_cluster(metadata.to_owned(), &seen.cluster);
        let act = Act::Issue(Box::new(Issue { metadata, contents, replaces: Some(replaces) }));
        let status = seen.cluster.status.clone().unwrap();
        let plan = Plan { ensures: vec![], act: Some(act), status, notes: vec![], waiting: None, wake: Wake::Now };
        holdfast_safety::cluster(seen, &plan).map_err(|violation| violation.invariant)
    };
    let promote = || Contents::PromoteCa { plane: Plane::Client, next: NEXT.to_owned() };
    let mut seen = published(3);
    accept(&mut seen, &[0, 1]);
    assert_eq!(verdict(&seen, promote()), Err("I15"), "one member has not accepted it");
    accept(&mut seen, &[2]);
    assert_eq!(verdict(&seen, promote()), Ok(()));
    // The files lose the CA of certificates in use.
    let place = |secret: &str, ca: &str, file| CaPlace { fingerprint: ca.to_owned(), secret: secret.to_owned(), file };
    let files_of = |cas: Vec<CaPlace>| Contents::Leaves {
        leaves: vec![],
        trusts: [(files::CLIENT.ca, cas)].into(),
        cas: [].into(),
        copies: [].into(),
        exchanges: false,
    };
    let (old, next) = (place("a-client-ca", CLIENT_CA, files::CA.ca), place("a-client-ca", NEXT, files::NEXT.ca));
    assert_eq!(verdict(&seen, files_of(vec![old.clone(), next.clone()])), Ok(()));
    assert_eq!(verdict(&seen, files_of(vec![next])), Err("I15"), "members show certificates of the earlier CA");
    assert_eq!(
        verdict(&seen, files_of(vec![old, place("a-client-ca", "b", files::CA.ca)])),
        Err("I15"),
        "no Secret holds the CA"
    );
}
