//! Larger volumes: which claim asks, what a member waits for, and what a refusal holds up.

use k8s_openapi::api::core::v1::{PersistentVolumeClaimCondition, PersistentVolumeClaimStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::*;

fn quantity(size: &str) -> Quantity {
    Quantity(size.to_owned())
}

fn storage(size: &str) -> Option<std::collections::BTreeMap<String, Quantity>> {
    Some([("storage".to_owned(), quantity(size))].into())
}

/// A formed cluster whose claims have their volumes of 8Gi, and whose spec asks for 16Gi.
fn edited(voters: usize) -> Observed {
    let mut seen = formed(voters, i32::try_from(voters).unwrap());
    seen.cluster.spec.storage.size = Some(quantity("16Gi"));
    for n in 0..voters {
        arrive(&mut seen, n, "8Gi");
    }
    seen
}

/// Gives the claim of a member this capacity.
fn arrive(seen: &mut Observed, n: usize, size: &str) {
    let status = PersistentVolumeClaimStatus {
        phase: Some("Bound".to_owned()),
        capacity: storage(size),
        ..PersistentVolumeClaimStatus::default()
    };
    seen.members[n].claim.as_mut().unwrap().status = Some(status);
}

/// Carries out the requests of all claims.
fn ask(seen: &mut Observed) -> usize {
    for count in 0.. {
        let Some(Act::GrowClaim { claim, size, at }) = act(seen) else { return count };
        let own = |m: &&mut Member| m.claim.as_ref().is_some_and(|c| Target::from(&c.metadata) == claim);
        let member = seen.members.iter_mut().find(own).unwrap();
        let annotations = member.claim.as_mut().unwrap().metadata.annotations.get_or_insert_default();
        annotations.insert(key::GROWTH_ASKED.to_owned(), at);
        let spec = member.claim.as_mut().unwrap().spec.as_mut().unwrap();
        spec.resources.as_mut().unwrap().requests = storage(&size.0);
    }
    unreachable!("a claim asks once")
}

fn pending(seen: &mut Observed, n: usize, kind: &str, words: &str) {
    let condition = PersistentVolumeClaimCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        message: Some(words.to_owned()),
        last_transition_time: Some(earlier()),
        ..PersistentVolumeClaimCondition::default()
    };
    seen.members[n].claim.as_mut().unwrap().status.as_mut().unwrap().conditions = Some(vec![condition]);
}

fn refuse(seen: &mut Observed, members: &[usize]) {
    for n in members {
        seen.refused_growth.insert(named(*n), "the class forbids it".to_owned());
    }
}

#[test]
fn every_claim_asks_and_none_waits_for_another() {
    let mut seen = edited(3);
    assert_eq!(condition(&seen, "Progressing"), pair("True", "Resizing"));
    assert_eq!(condition(&seen, "Available"), pair("True", "ReadSucceeded"));
    assert_eq!(planned(&seen).waiting.unwrap().message, "0 of 3 volumes have 16Gi");
    assert_eq!(ask(&mut seen), 3);
    assert_eq!(waits(&seen), Some(Reason::Resizing));
    assert_eq!(planned(&seen).status.volume_size, Some(quantity("8Gi")));
}

#[test]
fn a_member_gets_the_size_with_the_capacity_and_then_its_quota() {
    let mut seen = edited(3);
    ask(&mut seen);
    arrive(&mut seen, 1, "16Gi");
    let Some(Act::SetVolumeSize { member, size }) = act(&seen) else { panic!("{:?}", act(&seen)) };
    assert_eq!((member, size.0.as_str()), (member_target(&seen, 1), "16Gi"));
    seen.members[1].object.spec.storage.size = Some(size);
    let plan = planned(&seen);
    assert!(matches!(plan.act, Some(Act::EvictPod { pod, .. }) if pod == pod_target(&seen, 1)), "for its quota");
    assert_eq!((plan.status.volume_size, plan.status.updated_members), (Some(quantity("8Gi")), 2), "of each at least");
    seen.members[1].pod = Some(pod_of(&seen.members[1].object));
    assert_eq!(planned(&seen).waiting.unwrap().message, "1 of 3 volumes have 16Gi");
}

#[test]
fn the_leader_goes_last_also_when_its_volume_is_first() {
    let mut seen = edited(3);
    ask(&mut seen);
    arrive(&mut seen, 0, "16Gi");
    seen.members[0].object.spec.storage.size = Some(quantity("16Gi"));
    assert_eq!(waits(&seen), Some(Reason::Resizing));
    let mut refused = seen.clone();
    refuse(&mut refused, &[1, 2]);
    assert!(matches!(act(&refused), Some(Act::MoveLeader { .. })), "no other volume is on its way");
    let mut changed = seen.clone();
    changed.cluster.spec.options = Some(Options { snapshot_count: Some(7), ..Options::default() });
    assert!(matches!(act(&changed), Some(Act::SetTemplate { .. })), "another change waits for no volume");
}

#[test]
fn a_named_quota_restarts_no_member() {
    let mut seen = edited(3);
    for n in 0..3 {
        seen.members[n].object.spec.process.options =
            Some(Options { quota_backend_bytes: Some(1 << 30), ..Options::default() });
        let template = template_of(&seen, n);
        seen.members[n].object.spec.template = Some(template);
        seen.members[n].pod = Some(pod_of(&seen.members[n].object));
        seen.members[n].object.spec.storage.size = Some(quantity("16Gi"));
    }
    seen.cluster.spec.options = seen.members[0].object.spec.process.options.clone();
    assert_eq!((act(&seen), waits(&seen)), (None, None));
}

fn template_of(seen: &Observed, n: usize) -> String {
    holdfast_base::template::fingerprint(&seen.members[n].object.spec.process)
}

#[test]
fn claims_grow_without_a_quorum_and_while_parked_but_not_of_a_cluster_that_goes() {
    let grows = |change: fn(&mut Observed)| {
        let mut seen = edited(3);
        change(&mut seen);
        matches!(act(&seen), Some(Act::GrowClaim { .. }))
    };
    assert!(grows(|seen| seen.etcd = Seen::unknown("timed out")));
    assert!(grows(|seen| {
        seen.cluster.spec.replicas = 0;
        for member in &mut seen.members {
            let parked = holdfast_api::member::Parked { at: noon().to_string(), ..Default::default() };
            (member.object.spec.parked, member.pod) = (Some(parked), None);
        }
    }));
    assert!(!grows(|seen| seen.cluster.metadata.deletion_timestamp = Some(earlier())));
    assert!(!grows(|seen| seen.cluster.spec.paused = true));
    assert!(!grows(|seen| {
        // The API server lets no unbound claim grow.
        for member in &mut seen.members {
            member.claim.as_mut().unwrap().status = None;
        }
    }));
    assert!(!grows(|seen| seen.cluster.spec.storage.size = Some(quantity("8192Mi"))));
    assert!(!grows(|seen| seen.cluster.spec.storage.size = Some(quantity("4Gi"))), "no volume shrinks");
}

#[test]
fn a_refusal_holds_nothing_up() {
    let mut seen = edited(3);
    seen.client_endpoints = None;
    refuse(&mut seen, &[0, 1, 2]);
    assert_eq!((act(&seen), waits(&seen)), (None, None));
    assert_eq!(condition(&seen, "Ready"), pair("True", "AsDesired"));
    assert_eq!(condition(&seen, "Degraded"), pair("True", "ResizeRefused"));
    assert_eq!(condition(&seen, "Progressing"), pair("False", "Idle"));
    let mut rolls = seen.clone();
    rolls.cluster.spec.options = Some(Options { snapshot_count: Some(7), ..Options::default() });
    assert!(matches!(act(&rolls), Some(Act::SetTemplate { .. })));
    let mut scales = seen.clone();
    scales.cluster.spec.replicas = 5;
    assert!(matches!(act(&scales), Some(Act::Latch(_))));
    // The others grow.
    let mut some = edited(3);
    refuse(&mut some, &[1]);
    assert_eq!(ask(&mut some), 2);
    assert_eq!(waits(&some), Some(Reason::Resizing));
    assert_eq!(condition(&some, "Degraded"), pair("True", "ResizeRefused"));
}

#[test]
fn the_drivers_refusal_is_reported_in_its_words() {
    let mut seen = edited(1);
    ask(&mut seen);
    pending(&mut seen, 0, "ControllerResizeError", "the pool is full");
    assert_eq!(condition(&seen, "Degraded"), pair("True", "ResizeRefused"));
    let degraded = planned(&seen).status.conditions.into_iter().find(|c| c.type_ == "Degraded").unwrap();
    assert!(degraded.message.contains("claim data-a-m0: the pool is full"), "{}", degraded.message);
    arrive(&mut seen, 0, "16Gi");
    assert!(matches!(act(&seen), Some(Act::SetVolumeSize { .. })));
    assert_eq!(condition(&seen, "Degraded"), pair("False", "NothingWrong"));
}

#[test]
fn a_file_system_that_does_not_grow_in_use_gets_another_mount() {
    let mut seen = edited(3);
    ask(&mut seen);
    for n in 0..3 {
        pending(&mut seen, n, "FileSystemResizePending", "");
    }
    // 120 s after the growth; the Pod is as old as the condition.
    let Some(Act::EvictPod { pod, why }) = act(&seen) else { panic!("{:?}", act(&seen)) };
    assert_eq!(pod, pod_target(&seen, 1), "a follower first");
    assert!(why.contains("mounted"), "{why}");
    assert_eq!(condition(&seen, "Progressing"), pair("True", "Resizing"));
    let mut next = pod_of(&seen.members[1].object);
    next.metadata.creation_timestamp = Some(Time(noon()));
    seen.members[1].pod = Some(next);
    assert!(
        matches!(act(&seen), Some(Act::EvictPod { pod, .. }) if pod == pod_target(&seen, 2)),
        "one after the other"
    );
}

#[test]
fn a_quota_waits_for_its_volume() {
    let mut seen = edited(3);
    seen.cluster.spec.options = Some(Options { quota_backend_bytes: Some(9 << 30), ..Options::default() });
    ask(&mut seen);
    assert_eq!(waits(&seen), Some(Reason::Resizing));
    // The first volume that has grown takes the quota.
    arrive(&mut seen, 2, "16Gi");
    seen.members[2].object.spec.storage.size = Some(quantity("16Gi"));
    assert!(matches!(act(&seen), Some(Act::SetTemplate { member, .. }) if member == member_target(&seen, 2)));
    // A member that does not start gets no quota that its volume cannot take.
    let mut stops = edited(1);
    stops.cluster.spec.options = seen.cluster.spec.options.clone();
    failed(stops.members[0].pod.as_mut().unwrap(), "etcd", 2, "", earlier());
    assert!(!matches!(act(&stops), Some(Act::SetTemplate { .. })), "{:?}", act(&stops));
    refuse(&mut stops, &[0]);
    let mut refused = edited(3);
    refused.cluster.spec.options = seen.cluster.spec.options.clone();
    refuse(&mut refused, &[0, 1, 2]);
    assert_eq!(waits(&refused), Some(Reason::ResizeRefused));
}

#[test]
fn a_new_member_gets_the_new_size() {
    let mut seen = edited(3);
    seen.cluster.spec.replicas = 4;
    let born = objects::member::joiner(&seen.cluster, "a-new");
    assert_eq!(born.spec.storage.size, Some(quantity("16Gi")));
    assert_eq!(objects::pvc::claim(&born).spec.unwrap().resources.unwrap().requests, storage("16Gi"));
}

/// The fixture of a growth that began this long ago.
fn asked_ago(seconds: i64) -> Observed {
    let mut seen = edited(3);
    ask(&mut seen);
    for member in &mut seen.members {
        let asked = (noon() - SignedDuration::from_secs(seconds)).to_string();
        let annotations = member.claim.as_mut().unwrap().metadata.annotations.get_or_insert_default();
        annotations.insert(key::GROWTH_ASKED.to_owned(), asked);
    }
    seen
}

#[test]
fn a_growth_that_no_program_answers_is_named_and_holds_no_roll_up() {
    assert_eq!(waits(&asked_ago(119)), Some(Reason::Resizing));
    assert_eq!(planned(&asked_ago(119)).wake, Wake::AfterMillis(1_000));
    let mut seen = asked_ago(120);
    assert_eq!(waits(&seen), None);
    assert_eq!(condition(&seen, "Degraded"), pair("True", "ResizeRefused"));
    let all = planned(&seen).status.conditions;
    let message = all.into_iter().find(|c| c.type_ == "Degraded").unwrap().message;
    assert!(message.contains("no program has begun") && message.contains("kubectl describe pvc"), "{message}");
    // The leader does not wait for its followers' volumes.
    arrive(&mut seen, 0, "16Gi");
    seen.members[0].object.spec.storage.size = Some(quantity("16Gi"));
    assert!(matches!(act(&seen), Some(Act::MoveLeader { .. })), "{:?}", act(&seen));
    // A resizer begins.
    let mut seen = asked_ago(3600);
    for n in 0..3 {
        pending(&mut seen, n, "Resizing", "");
    }
    assert_eq!(waits(&seen), Some(Reason::Resizing));
}

#[test]
fn a_volume_that_grows_only_without_a_node_names_the_way() {
    let mut seen = asked_ago(1);
    for n in 0..3 {
        pending(&mut seen, n, "ControllerResizeError", "rpc error: code = FailedPrecondition desc = disk is attached");
    }
    let all = planned(&seen).status.conditions;
    let message = all.into_iter().find(|c| c.type_ == "Degraded").unwrap().message;
    assert!(message.contains("spec.replicas: 0"), "{message}");
}
