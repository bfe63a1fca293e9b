//! Table tests of the plans of a cluster: a good value, one changed field, the exact result.

mod alarms;
mod backups;
mod bootstrap;
mod client_services;
mod corrected;
mod defragmenting;
mod diverged;
mod enlarging;
mod growing;
mod last_snapshot;
mod latest;
mod leading;
mod lineage;
mod memberless;
mod memory;
mod promoting;
mod pruned;
mod raising_the_quota;
mod release;
mod replacing;
mod retention;
mod retrying;
mod rolling;
mod scaling;
mod seed;
mod stored;
mod stuck;
mod successor;
mod tls;
mod upgrading;

use holdfast_api::cluster::{Latches, Options};
use holdfast_api::condition::{Reason, Type, Wanted, merge};
use holdfast_api::member::Birth;
use holdfast_api::name::LocalRef;
use holdfast_api::restore::{Bootstrap, Restore};
use holdfast_api::snapshot::{Artifact, Failure, Phase};
use holdfast_api::store::Destination;
use holdfast_api::{EtcdSnapshot, EtcdSnapshotSpec, EtcdSnapshotStatus, key, role};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::fixtures::{
    CLUSTER_ID, answer, bare, claim_of, earlier, etcd, failed, formed, joined_member, labels, latches, named, noon,
    pod_of, restoring, running, seeding, stored, with_learner,
};
use crate::safety;
use holdfast_base::{Act, Alarm, AlarmKind, Plan, Seen, Target, Unread, Wake, objects};

/// Returns the plan, after the check that the plan keeps the rules.
fn planned(seen: &Observed) -> Plan<holdfast_api::EtcdClusterStatus> {
    let plan = plan(seen, noon());
    safety::cluster(seen, &plan).unwrap();
    plan
}

/// Returns the plan's act. The entries for silent members have their own tests (`release.rs`).
fn act(seen: &Observed) -> Option<Act> {
    planned(seen).act.filter(|act| !matches!(act, Act::CommitEntry { .. }))
}

fn waits(seen: &Observed) -> Option<Reason> {
    let plan = planned(seen);
    assert_eq!(act(seen), None);
    plan.waiting.map(|w| w.reason)
}

/// Returns status and reason of a condition.
fn condition(seen: &Observed, kind: &str) -> (String, String) {
    let all = planned(seen).status.conditions;
    let one = all.into_iter().find(|c| c.type_ == kind).unwrap();
    (one.status, one.reason)
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

fn member_target(seen: &Observed, n: usize) -> Target {
    Target::from(&seen.members[n].object.metadata)
}

/// Gives the member's Pod the label of a new Pod: no client reaches the Pod.
fn not_admitted(member: &mut Member) {
    let labels = member.pod.as_mut().unwrap().metadata.labels.as_mut().unwrap();
    labels.insert(key::ROLE.to_owned(), role::LEARNER.to_owned());
}

fn pod_target(seen: &Observed, n: usize) -> Target {
    Target::from(&seen.members[n].pod.as_ref().unwrap().metadata)
}

/// Returns the act that forbids the nth Pod to start empty, with the member's joined IDs.
fn forbidden(seen: &Observed, n: usize) -> Act {
    Act::ForbidEmptyStart { pod: pod_target(seen, n), joined: seen.members[n].object.spec.joined.clone().unwrap() }
}

fn restore(seen: &mut Observed, key: Option<&str>) {
    let source = key.map(|k| restoring(k).source);
    seen.cluster.spec.bootstrap =
        source.map(|s| Bootstrap { restore: Some(Restore { source: Some(s), ..Restore::default() }) });
}

/// Sets the version of the spec and of all members.
fn with_version(seen: &mut Observed, version: &str) {
    version.clone_into(&mut seen.cluster.spec.version);
    seen.members.iter_mut().for_each(|m| version.clone_into(&mut m.object.spec.process.version));
}

mod settled {
    use super::*;

    #[test]
    fn a_cluster_as_desired_costs_nothing() {
        for n in [1, 2, 3, 5] {
            let seen = formed(n, i32::try_from(n).unwrap());
            let plan = planned(&seen);
            assert_eq!((plan.act, plan.waiting), (None, None));
            assert_eq!(plan.ensures, vec![]);
            assert_eq!(Some(plan.status), seen.cluster.status);
            assert_eq!(plan.wake, Wake::AfterMillis(10_000));
            assert_eq!(condition(&seen, "Ready"), pair("True", "AsDesired"));
            assert_eq!(condition(&seen, "Available"), pair("True", "ReadSucceeded"));
            assert_eq!(condition(&seen, "Progressing"), pair("False", "Idle"));
            assert_eq!(condition(&seen, "Degraded"), pair("False", "NothingWrong"));
        }
    }

    #[test]
    fn the_status_tells_it_all() {
        let status = planned(&formed(3, 3)).status;
        assert_eq!((status.voters, status.ready_members), (3, 3));
        assert_eq!(status.leader.as_deref(), Some("a-m0"));
        assert_eq!(status.version.as_deref(), Some("3.6.16"));
        assert_eq!(status.cluster_id.as_deref(), Some("c1"));
        assert_eq!(status.cluster_token.as_deref(), Some("ns-a-u-a"));
        assert_eq!(
            status.selector.as_deref(),
            Some(
                "app.kubernetes.io/component=etcd-member,holdfast.dev/cluster=a,holdfast.dev/cluster-uid=u-a,holdfast.dev/role=voter"
            )
        );
        let one = &status.members[1];
        assert_eq!(
            (one.name.as_str(), one.member_id.as_deref(), one.role.as_deref()),
            ("a-m1", Some("11"), Some("voter"))
        );
        assert!(one.healthy && one.reason.is_none());
    }

    #[test]
    fn a_member_that_is_not_ready_is_waited_for() {
        let mut seen = formed(3, 3);
        running(seen.members[1].pod.as_mut().unwrap(), false);
        assert_eq!(waits(&seen), Some(Reason::MemberRestarting));
        assert_eq!(condition(&seen, "Ready"), pair("False", "MemberRestarting"));
        assert_eq!(condition(&seen, "Available"), pair("True", "ReadSucceeded"));
        assert_eq!(planned(&seen).status.ready_members, 2);
    }

    #[test]
    fn others_objects_conditions_and_drift() {
        let mut seen = formed(3, 3);
        seen.client_service.as_mut().unwrap().spec.as_mut().unwrap().selector = labels(&[("app", "mine")]);
        assert_eq!(planned(&seen).ensures.len(), 1);
        seen.client_service.as_mut().unwrap().metadata.owner_references = None;
        assert_eq!(planned(&seen).ensures, vec![]);
        assert_eq!(waits(&seen), Some(Reason::NameConflict));
        assert_eq!(condition(&seen, "Degraded"), pair("True", "NameConflict"));
        let mut seen = formed(3, 3);
        seen.budget = None;
        assert_eq!(planned(&seen).ensures.len(), 1);
    }

    #[test]
    fn a_risk_is_no_fault() {
        let mut seen = formed(3, 3);
        assert_eq!(condition(&seen, "AtRisk"), pair("False", "NothingWrong"));
        with_version(&mut seen, "3.6.10");
        assert_eq!(condition(&seen, "AtRisk"), pair("True", "UnsafeVersion"));
        assert_eq!(condition(&seen, "Degraded"), pair("False", "NothingWrong"));
        assert_eq!(condition(&seen, "Ready"), pair("True", "AsDesired"));
        let mut seen = formed(3, 3);
        let node = |seen: &mut Observed, n: usize, node: &str| {
            seen.members[n].pod.as_mut().unwrap().spec.as_mut().unwrap().node_name = Some(node.to_owned());
        };
        node(&mut seen, 0, "n1");
        node(&mut seen, 2, "n1");
        assert_eq!(condition(&seen, "AtRisk"), pair("True", "MembersColocated"));
        assert_eq!(condition(&seen, "Degraded"), pair("False", "NothingWrong"));
        let mut silent = seen.clone();
        silent.etcd = Seen::unknown("timed out");
        assert_eq!(condition(&silent, "AtRisk"), pair("True", "MembersColocated"), "the nodes are the same");
        node(&mut seen, 2, "n2");
        assert_eq!(condition(&seen, "AtRisk"), pair("False", "NothingWrong"));
        etcd(&mut seen).alarms.push(Alarm { member_id: 0x11, kind: AlarmKind::NoSpace });
        assert_eq!(condition(&seen, "Degraded"), pair("True", "AlarmRaised"));
        assert_eq!(condition(&seen, "Ready"), pair("False", "AlarmRaised"), "no write is taken");
        assert_eq!(condition(&seen, "Available"), pair("True", "ReadSucceeded"));
    }

    #[test]
    fn every_risk_is_named() {
        let mut seen = formed(4, 4);
        assert_eq!(condition(&seen, "AtRisk"), pair("True", "EvenReplicas"));
        let quota = Options { quota_backend_bytes: Some(8_000_000_000), ..Options::default() };
        seen.cluster.spec.options = Some(quota);
        assert_eq!(condition(&seen, "AtRisk"), pair("True", "QuotaTight"));
        let all = planned(&seen).status.conditions;
        let risk = all.into_iter().find(|c| c.type_ == "AtRisk").unwrap();
        assert!(
            risk.message.ends_with("; EvenReplicas: 4 members tolerate no more failures than 3"),
            "{}",
            risk.message
        );
        assert_eq!(condition(&seen, "Degraded"), pair("False", "NothingWrong"));
    }
}

mod idle {
    use super::*;

    #[test]
    fn paused_deleted_and_refused_clusters_are_only_reported() {
        let mut seen = formed(1, 3);
        seen.cluster.spec.paused = true;
        seen.client_service = None;
        assert_eq!(waits(&seen), Some(Reason::Paused));
        assert_eq!(planned(&seen).ensures, vec![]);
        assert_eq!(condition(&seen, "Progressing"), pair("False", "Paused"));
        let mut seen = formed(1, 3);
        seen.cluster.metadata.deletion_timestamp = Some(earlier());
        seen.cluster.metadata.finalizers = None;
        assert_eq!(waits(&seen), Some(Reason::Deleting));
        let mut seen = formed(1, 3);
        seen.cluster.spec.version = "4.0.0".to_owned();
        assert_eq!(waits(&seen), Some(Reason::InvalidSpec));
        assert_eq!(condition(&seen, "Ready"), pair("False", "InvalidSpec"));
    }
}

mod silence {
    use super::*;

    fn silent() -> Observed {
        let mut seen = formed(3, 3);
        seen.etcd = Seen::unknown("timed out");
        seen.answers = (0..2).map(|n| (named(n), Seen::unknown("refused"))).collect();
        seen
    }

    #[test]
    fn a_lost_quorum_is_named_member_by_member_and_nothing_is_touched() {
        let seen = silent();
        assert_eq!(waits(&seen), Some(Reason::QuorumLost));
        assert_eq!(condition(&seen, "Available"), pair("False", "QuorumLost"));
        assert_eq!(condition(&seen, "Ready"), pair("False", "QuorumLost"));
        let message = planned(&seen).waiting.unwrap().message;
        for said in ["a-m0 does not answer (refused)", "a-m2 does not run", "2 of 3"] {
            assert!(message.contains(said), "{message}");
        }
        let status = planned(&seen).status;
        assert_eq!((status.voters, status.leader), (3, None));
        assert_eq!(status.members[0].role.as_deref(), Some("voter"));
        // The disruption budget stays.
        assert_eq!(planned(&seen).ensures, vec![]);
    }

    #[test]
    fn members_that_start_are_given_time() {
        let mut seen = silent();
        seen.members[1].pod = None;
        assert_eq!(waits(&seen), Some(Reason::WaitingForEtcd));
        assert_eq!(planned(&seen).wake, Wake::AfterMillis(500));
        seen.members[1].claim = None;
        assert_eq!(waits(&seen), Some(Reason::QuorumLost), "without its claim no Pod is made");
        let mut seen = silent();
        let pod = pod_of(&seen.members[0].object);
        seen.members[0].pod = Some(Pod { status: None, ..pod });
        assert_eq!(waits(&seen), Some(Reason::QuorumLost), "it has been pending for two minutes");
    }

    /// The volume of a cluster of one is empty: kubelet starts the container again and again, and the gate refuses.
    #[test]
    fn a_lost_quorum_says_the_same_at_every_look() {
        let mut seen = formed(1, 1);
        seen.etcd = Seen::unknown("timed out");
        seen.answers.clear();
        let report = r#"{"kind":"gate","verdict":"EmptiedVolume","message":"the volume has lost its data"}"#;
        let whole = seen.members[0].pod.clone().unwrap();
        let mut waiting = whole.clone();
        failed(&mut waiting, "etcd", 71, report, Time(noon() + SignedDuration::from_secs(-20)));
        let told = failure::find_last(&waiting).unwrap();
        assert_eq!(told.verdict.as_deref(), Some("EmptiedVolume"));
        let mut starts = waiting.clone();
        let statuses = starts.status.as_mut().unwrap().init_container_statuses.as_mut().unwrap();
        let young = Time(noon() + SignedDuration::from_secs(-1));
        statuses[0].state = Some(ContainerState {
            running: Some(ContainerStateRunning { started_at: Some(young.clone()) }),
            ..ContainerState::default()
        });
        let mut fresh = Pod { status: None, ..whole };
        fresh.metadata.creation_timestamp = Some(young);
        seen.members[0].object.status.get_or_insert_default().last_failure = Some(told);
        let mut said = vec![];
        for pod in [Some(waiting), Some(starts.clone()), Some(fresh), None] {
            seen.members[0].pod = pod;
            assert_eq!(waits(&seen), Some(Reason::QuorumLost));
            for (kind, status) in
                [("Ready", "False"), ("Available", "False"), ("Progressing", "False"), ("Degraded", "True")]
            {
                assert_eq!(condition(&seen, kind), pair(status, "QuorumLost"));
            }
            let plan = planned(&seen);
            said.push((plan.waiting.unwrap().message, plan.status.members[0].reason.clone()));
        }
        let (message, reason) = said[0].clone();
        assert!(
            message.starts_with("a-m0: its volume has lost its data (EmptiedVolume). 1 of 1 voters are needed"),
            "{message}"
        );
        assert_eq!(reason.as_deref(), Some("its volume has lost its data (EmptiedVolume)"));
        assert!(said.iter().all(|other| *other == said[0]), "{said:?}");
        // The right volume is back: the gate let etcd start.
        let statuses = starts.status.as_mut().unwrap().init_container_statuses.as_mut().unwrap();
        let running = statuses[0].state.as_mut().unwrap().running.as_mut().unwrap();
        running.started_at = Some(Time(noon() + SignedDuration::from_secs(-11)));
        seen.members[0].pod = Some(starts);
        assert_eq!(waits(&seen), Some(Reason::WaitingForEtcd));
    }

    /// Of three voters one has lost its volume and one its claim; a learner does not count.
    #[test]
    fn each_voter_is_named_with_its_own_reason() {
        let mut seen = silent();
        let summary = |n: usize, role: &str| MemberSummary {
            name: named(n),
            role: Some(role.to_owned()),
            ..MemberSummary::default()
        };
        seen.cluster.status.as_mut().unwrap().members = (0..3).map(|n| summary(n, "voter")).collect();
        let report = r#"{"kind":"gate","verdict":"OlderVolume","message":"an older copy"}"#;
        failed(seen.members[0].pod.as_mut().unwrap(), "etcd", 71, report, earlier());
        seen.members[1].claim = None;
        seen.members[1].pod = None;
        seen.members[2].pod = None;
        let message = planned(&seen).waiting.unwrap().message;
        for said in
            ["a-m0: its volume is an older copy", "a-m1: its claim is gone", "a-m2 does not run", "2 of 3", "and 1 can"]
        {
            assert!(message.contains(said), "{message}");
        }
        assert_eq!(waits(&seen), Some(Reason::QuorumLost), "although a Pod of the third is made at once");
        seen.cluster.status.as_mut().unwrap().members[1].role = Some("learner".to_owned());
        assert_eq!(waits(&seen), Some(Reason::QuorumLost), "of two voters one is lost");
        seen.cluster.status.as_mut().unwrap().members[0].role = Some("learner".to_owned());
        assert_eq!(waits(&seen), Some(Reason::WaitingForEtcd), "the one voter starts");
    }

    /// Two of three nodes are dead: after some minutes Kubernetes marks their Pods, and kubelet never reports their end.
    #[test]
    fn pods_that_never_end_do_not_hide_a_lost_quorum() {
        let mut seen = silent();
        for (number, seconds) in [(0, -29), (1, -300)] {
            let at = noon() + SignedDuration::from_secs(seconds);
            seen.members[number].pod.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(at));
        }
        assert_eq!(waits(&seen), Some(Reason::WaitingForEtcd), "the first is soon gone");
        let at = noon() + SignedDuration::from_secs(-30);
        seen.members[0].pod.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(at));
        assert_eq!(waits(&seen), Some(Reason::QuorumLost));
        assert_eq!(condition(&seen, "Degraded"), pair("True", "QuorumLost"));
    }

    /// kubelet rejects each new Pod at once, or etcd ends soon after each start: the Pod is always young.
    #[test]
    fn pods_that_are_made_again_and_again_do_not_hide_a_lost_quorum() {
        let mut seen = silent();
        let unready = Wanted::no(Type::Ready, Reason::WaitingForPod, "its Pod has ended; Holdfast creates another Pod");
        let young = Time(noon() + SignedDuration::from_secs(-2));
        for member in &mut seen.members[..2] {
            let pod = member.pod.as_mut().unwrap();
            (pod.status, pod.metadata.creation_timestamp) = (None, Some(young.clone()));
            let since = noon() + SignedDuration::from_mins(-5);
            member.object.status.get_or_insert_default().conditions =
                merge(&[], std::slice::from_ref(&unready), None, since);
        }
        assert_eq!(waits(&seen), Some(Reason::QuorumLost));
        let since = noon() + SignedDuration::from_secs(-299);
        seen.members[0].object.status.get_or_insert_default().conditions = merge(&[], &[unready], None, since);
        assert_eq!(waits(&seen), Some(Reason::WaitingForEtcd), "the first may still come");
    }

    /// Sets the members' own statuses: the API server refuses their Pods.
    fn refused(seen: &mut Observed) {
        let why = "the API server refuses the Pod: memory limit 512Mi is less than the request";
        let unready = Wanted::no(Type::Ready, Reason::WriteRefused, why);
        let degraded = Wanted::yes(Type::Degraded, Reason::WriteRefused, why);
        for member in &mut seen.members {
            let since = noon() + SignedDuration::from_secs(-10);
            let wanted = [unready.clone(), degraded.clone()];
            member.object.status.get_or_insert_default().conditions = merge(&[], &wanted, None, since);
        }
    }

    fn available(seen: &Observed) -> (String, String) {
        let all = planned(seen).status.conditions;
        let one = all.into_iter().find(|c| c.type_ == "Available").unwrap();
        assert_eq!(one.status, "False");
        (one.reason, one.message)
    }

    /// No etcd starts without a Pod: the reason is the cause that keeps the Pods from existing.
    #[test]
    fn members_without_a_pod_are_not_called_starting() {
        let mut seen = silent();
        seen.members.iter_mut().for_each(|member| member.pod = None);
        let (reason, message) = available(&seen);
        assert_eq!(reason, "WaitingForEtcd");
        assert!(message.contains("has no Pod yet") && !message.contains("starting"), "{message}");
        refused(&mut seen);
        let (reason, message) = available(&seen);
        assert_eq!(reason, "WriteRefused");
        assert!(
            message.starts_with("no member has a Pod: a-m0: the API server refuses the Pod: memory limit"),
            "{message}"
        );
        // The cause does not count for members with Pods.
        let mut beside = silent();
        refused(&mut beside);
        assert_ne!(available(&beside).0, "WriteRefused");

        let mut new = seeding(1);
        assert_eq!(available(&new), ("Seeding".to_owned(), "the cluster has not formed yet".to_owned()));
        new.members.iter_mut().for_each(|member| member.pod = None);
        refused(&mut new);
        let (reason, message) = available(&new);
        assert_eq!(reason, "WriteRefused");
        assert!(message.starts_with("the cluster has not formed yet, and no member has a Pod: "), "{message}");
    }

    #[test]
    fn a_lost_quorum_is_told_of_a_paused_cluster_too() {
        let mut seen = silent();
        seen.cluster.spec.paused = true;
        assert_eq!(waits(&seen), Some(Reason::Paused));
        assert_eq!(condition(&seen, "Progressing"), pair("False", "Paused"));
        for kind in ["Degraded", "Ready"] {
            assert_eq!(condition(&seen, kind).1, "QuorumLost", "{kind}");
        }
        for number in [0, 1] {
            seen.members[number].pod = None;
        }
        assert_eq!(condition(&seen, "Degraded"), pair("True", "QuorumLost"), "nobody makes their Pods now");
    }

    /// The quorum exists, but etcd refuses the operator.
    #[test]
    fn an_etcd_that_wants_a_login_has_not_lost_its_quorum() {
        let login = || Unread::LoginRequired("no linearizable read succeeded (a-m0: user name is empty)".to_owned());
        let mut seen = formed(3, 3);
        seen.etcd = Seen::Unknown(login());
        assert_eq!(waits(&seen), Some(Reason::AuthRequiredNotConfigured));
        for (kind, state) in [("Available", "Unknown"), ("Ready", "False"), ("Degraded", "True")] {
            assert_eq!(condition(&seen, kind), pair(state, "AuthRequiredNotConfigured"));
        }
        let message = planned(&seen).waiting.unwrap().message;
        assert!(message.contains("etcdctl --user root auth disable"), "{message}");
        assert!(!message.contains("a-m0"), "who said so is chance: {message}");
        assert_eq!((planned(&seen).status.voters, planned(&seen).ensures), (3, vec![]));
        // Also where a Pod was just deleted, and where a user paused the cluster.
        seen.members[1].pod = None;
        assert_eq!(waits(&seen), Some(Reason::AuthRequiredNotConfigured));
        seen.cluster.spec.paused = true;
        assert_eq!(waits(&seen), Some(Reason::Paused));
        assert_eq!(condition(&seen, "Degraded"), pair("True", "AuthRequiredNotConfigured"));
        let mut seed = seeding(1);
        seed.etcd = Seen::Unknown(login());
        assert_eq!(waits(&seed), Some(Reason::AuthRequiredNotConfigured), "nor is a first member still starting");
    }

    /// Members that restart keep their clients (I16).
    #[test]
    fn what_hinders_a_formed_cluster_does_not_cost_it_its_clients() {
        let admitted = |seen: &mut Observed| {
            let pod = seen.members[1].pod.as_mut().unwrap();
            pod.metadata.labels.as_mut().unwrap().insert(key::ROLE.to_owned(), role::LEARNER.to_owned());
            matches!(planned(seen).act, Some(Act::AdmitClients { .. }))
        };
        let mut seen = formed(3, 5);
        seen.client_service.as_mut().unwrap().metadata.owner_references = None;
        assert_eq!(waits(&seen), Some(Reason::NameConflict), "nor does it grow");
        assert!(admitted(&mut seen));
        let mut seen = formed(3, 5);
        seen.cluster.spec.version = "4.0.0".to_owned();
        assert_eq!(waits(&seen), Some(Reason::InvalidSpec));
        assert!(admitted(&mut seen));
        let mut seen = silent();
        seen.client_service.as_mut().unwrap().metadata.owner_references = None;
        assert_eq!(waits(&seen), Some(Reason::QuorumLost), "worse than a name");
    }

    use holdfast_api::cluster::MemberSummary;
    use k8s_openapi::api::core::v1::{ContainerState, ContainerStateRunning, Pod};

    use holdfast_base::failure;
}
