//! Tests of a snapshot's plan, one mutation of a good world at a time.

mod doubt;
mod held;
mod in_a_store;
mod outage;
mod recorded;
mod removal;
mod stored;
mod subject;
mod unstarted;
mod world;

use holdfast_api::condition::Reason;
use holdfast_api::name::LocalRef;
use holdfast_api::snapshot::{Age, Artifact, Encryption, External, Failure, Phase};
use holdfast_api::{EtcdSnapshotStatus, key, name};
use holdfast_contract::{self as agent, ExitClass, Level, Origin, Report, SavedReport, Verification};
use jiff::SignedDuration;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerState, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use proptest::prelude::*;

use self::world::*;
use super::*;
use holdfast_base::{Act, Target, Wake};

#[test]
fn a_snapshot_of_a_formed_cluster_starts_its_job() {
    let seen = fresh();
    let plan = planned(&seen);
    assert_eq!(told(&plan.status), (Phase::Pending, "False", "JobPending", "Holdfast creates the Job"));
    assert_eq!(plan.status.started_at, None, "only what is so is told");
    assert_eq!((plan.notes[0].reason.as_str(), plan.notes[0].warning), ("JobCreated", false));
    assert_eq!(plan.wake, Wake::Now);

    let job = started(&seen);
    assert_eq!(job.metadata.name.as_deref(), Some(name::job("nightly", "snap-uid").as_str()));
    assert_eq!(job.metadata.namespace.as_deref(), Some("prod"));
    let owner = job.metadata.owner_references.clone().unwrap().remove(0);
    assert_eq!((owner.kind.as_str(), owner.uid.as_str(), owner.controller), ("EtcdSnapshot", "snap-uid", Some(true)));
    let args = args(&job);
    for arg in [
        "--endpoints=https://a-1.a.prod.svc:2379",
        "--endpoints=https://a-3.a.prod.svc:2379",
        "--tls-dir=/etc/holdfast/etcd-tls",
        "--namespace=prod",
        "--cluster=a",
        "--cluster-uid=cluster-uid",
        "--expect-cluster-id=c1",
        "--owner-name=nightly",
        "--owner-uid=snap-uid",
        "--deadline-seconds=3600",
        "--compression=zstd",
        "--verify=Stored",
        "--store=file:///backup",
    ] {
        assert!(args.contains(&arg.to_owned()), "{arg} is missing in {args:?}");
    }
    assert!(!args.iter().any(|a| a.contains("a-2")), "a learner is never asked");
}

/// A user deleted the Job before the save, and also the cluster; another cluster has the same name.
#[test]
fn a_snapshot_is_of_the_cluster_it_was_begun_for() {
    let mut seen = fresh();
    let begun = planned(&seen).status;
    assert_eq!(begun.cluster_uid.as_deref(), Some("cluster-uid"));
    seen.snapshot.status = Some(begun);
    assert!(matches!(planned(&seen).act, Some(Act::StartJob(_))), "the same one still");
    seen.cluster.as_mut().unwrap().metadata.uid = Some("another".to_owned());
    let plan = planned(&seen);
    assert!(matches!(plan.act, Some(Act::StartJob(_))), "its Job was never made, as with a quota");
    assert_eq!(plan.status.cluster_uid.as_deref(), Some("another"));
    // A Job existed, and the store does not hold its snapshot.
    seen.snapshot.status.as_mut().unwrap().attempts = 1;
    let plan = planned(&asked(seen, nothing()));
    let (phase, ready, reason, message) = told(&plan.status);
    assert_eq!((plan.act.is_none(), phase, ready, reason), (true, Phase::Failed, "False", "EtcdUnavailable"));
    assert!(message.contains("another EtcdCluster has its name"), "{message}");
    assert_eq!(plan.status.cluster_uid.as_deref(), Some("cluster-uid"), "written once");
}

#[test]
fn whoever_saves_gets_public_keys_alone() {
    let plain = args(&started(&fresh()));
    assert!(!plain.iter().any(|arg| arg.contains("age")), "{plain:?}");
    let mut seen = fresh();
    let recipients = vec!["age1one".to_owned(), "age1two".to_owned()];
    seen.snapshot.spec.template.encryption = Some(Encryption { age: Age { recipients } });
    let job = started(&seen);
    let asked: Vec<_> = args(&job).into_iter().filter(|arg| arg.contains("age")).collect();
    assert_eq!(asked, ["--age-recipient=age1one", "--age-recipient=age1two"]);
    assert!(!format!("{job:?}").contains("identit"), "no private key is anywhere near");
}

#[test]
fn what_is_missing_is_waited_for_and_is_no_failure() {
    type Case = (&'static str, fn(&mut Observed), Reason, &'static str);
    let cases: [Case; 7] = [
        (
            "no cluster",
            |s| s.cluster = None,
            Reason::WaitingForReference,
            "there is no EtcdCluster a in this namespace yet",
        ),
        (
            "a cluster that goes",
            |s| s.cluster.as_mut().unwrap().metadata.deletion_timestamp = Some(ago(1)),
            Reason::WaitingForReference,
            "EtcdCluster a is being deleted",
        ),
        ("no status", |s| s.cluster.as_mut().unwrap().status = None, Reason::WaitingForCluster, "has not formed yet"),
        (
            "not formed",
            |s| s.cluster.as_mut().unwrap().status.as_mut().unwrap().latches.formed = None,
            Reason::WaitingForCluster,
            "has not formed yet",
        ),
        (
            "no voters",
            |s| s.cluster.as_mut().unwrap().status.as_mut().unwrap().members.retain(|m| m.name == "a-2"),
            Reason::WaitingForCluster,
            "lists no voter",
        ),
        (
            "a parked cluster",
            |s| s.cluster.as_mut().unwrap().spec.replicas = 0,
            Reason::Parked,
            "EtcdCluster a is parked",
        ),
        (
            "credentials without a Secret",
            |s| s.missing_secrets = vec!["keys".to_owned()],
            Reason::WaitingForReference,
            "spec names Secrets that do not exist in this namespace: Secret keys. Create them",
        ),
    ];
    for (what, change, because, says) in cases {
        let mut seen = fresh();
        change(&mut seen);
        let plan = planned(&seen);
        let (phase, ready, reason, message) = told(&plan.status);
        assert_eq!((phase, ready, reason), (Phase::Pending, "False", because.as_str()), "{what}");
        assert!(message.contains(says), "{what}: {message}");
        assert_eq!(plan.act, None, "{what}");
        assert_eq!(plan.waiting.unwrap().message, message, "{what}");
        assert!(plan.notes.is_empty(), "{what}");
    }
}

#[test]
fn a_job_of_somebody_else_is_left_alone() {
    let mut seen = with(vec![saved()]);
    let own = seen.job.clone();
    for owners in [
        None,
        Some(vec![OwnerReference { uid: "old-uid".to_owned(), controller: Some(true), ..OwnerReference::default() }]),
    ] {
        // An EtcdSnapshot created again under the same name never takes over the snapshot of the old object's Job.
        seen.job.as_mut().unwrap().metadata.owner_references = owners;
        let plan = planned(&seen);
        assert_eq!(told(&plan.status).2, "NameConflict");
        assert_eq!((plan.act, plan.status.artifact, plan.status.started_at), (None, None, None));
        assert!(plan.notes[0].warning);
    }
    seen.job = own;
    assert_eq!(planned(&seen).status.phase, Phase::Complete);
}

#[test]
fn a_job_is_pending_until_its_pod_runs() {
    let cases = [
        (vec![], "JobPending", "has no Pod yet"),
        (vec![waiting("ImagePullBackOff", Some("no such image"))], "PodHeldUp", "ImagePullBackOff: no such image"),
        (vec![waiting("CreateContainerConfigError", None)], "PodHeldUp", "CreateContainerConfigError"),
        (vec![waiting("ContainerCreating", None)], "JobPending", "`kubectl describe pod p-1`"),
        (vec![unschedulable()], "PodHeldUp", "Unschedulable: 0/3 nodes are available"),
    ];
    for (pods, why, says) in cases {
        let plan = planned(&with(pods));
        let (phase, ready, reason, message) = told(&plan.status);
        assert_eq!((phase, ready, reason), (Phase::Running, "False", why));
        assert!(message.contains(says), "{message}");
        assert_eq!(plan.act, None);
        assert_eq!(plan.status.started_at.as_deref(), Some("2026-11-21T11:59:00Z"));
        assert_eq!(plan.status.job.as_deref(), Some(name::job("nightly", "snap-uid").as_str()));
    }
    let mut refused = with(vec![]);
    refused.refusal = Some("pods is forbidden: exceeded quota: tight".to_owned());
    let plan = planned(&refused);
    assert_eq!(told(&plan.status).2, "WriteRefused");
    assert!(told(&plan.status).3.ends_with("exceeded quota: tight"));
    assert!(plan.notes[0].warning, "people hear of it");
    let mut suspended = with(vec![]);
    suspended.job.as_mut().unwrap().spec.as_mut().unwrap().suspend = Some(true);
    assert!(told(&planned(&suspended).status).3.contains("is suspended"));
}

/// The operator neither ends nor replaces the Pod: a person needs the node's name and the remedy.
#[test]
fn a_pod_whose_node_is_gone_is_told_with_its_node() {
    let gone = |seconds| {
        let mut pod = running();
        pod.metadata.deletion_timestamp = Some(ago(seconds));
        pod.spec.get_or_insert_default().node_name = Some("n7".to_owned());
        with(vec![pod])
    };
    let ending = planned(&gone(29));
    assert_eq!(told(&ending.status).2, "JobRunning", "it may be about to end");
    let plan = planned(&gone(30));
    let (phase, ready, reason, message) = told(&plan.status);
    assert_eq!((phase, ready, reason, plan.act.as_ref()), (Phase::Running, "False", "NodeSilent", None));
    assert!(message.contains("Pod p-1") && message.contains("kubectl taint nodes n7 "), "{message}");
}

#[test]
fn a_running_pod_is_told_with_the_attempt_and_what_went_before() {
    let seen = with(vec![running()]);
    let plan = planned(&seen);
    assert_eq!(
        told(&plan.status),
        (Phase::Running, "False", "JobRunning", "Pod p-1 saves since 2026-11-21T11:59:30Z (attempt 1 of 7)")
    );
    assert_eq!(plan.status.attempts, 1);

    let seen = with(vec![failed("p-0", ExitClass::Transient, "the store said 503"), running()]);
    let plan = planned(&seen);
    assert!(told(&plan.status).3.ends_with("(attempt 2 of 7); the previous attempt: the store said 503"));
    assert_eq!(plan.status.attempts, 2);

    // Between two Pods the save has not failed yet.
    let seen = with(vec![failed("p-0", ExitClass::Transient, "the store said 503")]);
    let plan = planned(&seen);
    assert_eq!((plan.status.phase, told(&plan.status).2), (Phase::Running, "JobRunning"));
}

/// Without a report the store has the truth (I6).
#[test]
fn a_job_that_ended_well_without_a_report_has_the_store_asked() {
    let mut seen = with(vec![terminated("p-1", 0, "Completed", Some("not a report".to_owned()))]);
    ends(&mut seen, "Complete", "", 1);
    let plan = planned(&seen);
    let (phase, ready, reason, _) = told(&plan.status);
    assert_eq!((phase, ready, reason), (Phase::Running, "False", "AskingStore"));
    assert!(args(&started(&seen)).contains(&"--owner-uid=snap-uid".to_owned()));

    let asking = asked(seen.clone(), vec![running()]);
    assert_eq!((planned(&asking).act, told(&planned(&asking).status).2), (None, "AskingStore"));
    let plan = planned(&asked(seen.clone(), vec![saved()]));
    assert_eq!((plan.status.phase, plan.act), (Phase::Complete, None));
    assert_eq!(plan.status.artifact.unwrap().key, "prod/a/cluster/x");
    let status = planned(&asked(long_over(seen.clone()), nothing())).status;
    assert_eq!((status.phase, status.error.unwrap().class.as_str()), (Phase::Failed, "NotFound"));

    let silent = asked(seen, vec![failed("p-ask", ExitClass::Denied, "the key is wrong")]);
    let plan = planned(&silent);
    let (phase, ready, reason, message) = told(&plan.status);
    assert_eq!((phase, ready, reason), (Phase::Running, "Unknown", "ReportLost"));
    assert!(message.contains("report is gone") && message.ends_with("the key is wrong"), "{message}");
    assert_eq!((plan.act.as_ref(), plan.status.error.as_ref()), (None, None));
    assert_eq!(plan.wake, Wake::AfterMillis(28_000), "asked 30 s ago, in vain since 1 s: it is asked again");
    assert_eq!(planned(&asked(aged(silent.clone(), 28), vec![saved()])).status.phase, Phase::Complete);
    assert_eq!(plan.notes[0].reason, "ReportLost");
    let again = Observed {
        snapshot: holdfast_api::EtcdSnapshot { status: Some(plan.status), ..silent.snapshot.clone() },
        ..silent
    };
    assert!(planned(&again).notes.is_empty(), "told once");

    // The watch of Jobs may be ahead of the watch of Pods.
    let mut seen = with(vec![running()]);
    ends(&mut seen, "Complete", "", 9);
    assert_eq!(told(&planned(&seen).status).2, "JobRunning");
    ends(&mut seen, "Complete", "", 10);
    assert_eq!(told(&planned(&seen).status).2, "AskingStore");
}

/// Kubernetes removed a Job, its Pods and its report while the operator was down.
#[test]
fn without_its_job_a_snapshot_is_what_the_store_says() {
    let mut begun = fresh();
    begun.snapshot.status = Some(planned(&with(vec![running()])).status);
    // Finding the stored snapshot needs neither the cluster nor its voters.
    begun.cluster = None;
    assert_eq!(told(&planned(&begun).status).2, "AskingStore");
    let status = planned(&asked(begun.clone(), vec![saved()])).status;
    assert_eq!((status.phase, status.started_at.as_deref()), (Phase::Complete, Some("2026-11-21T11:59:00Z")));
    let status = planned(&asked(begun, nothing())).status;
    assert_eq!(
        (told(&status).0, told(&status).2),
        (Phase::Failed, "EtcdUnavailable"),
        "nothing is stored, nobody to ask"
    );

    // The status itself is lost.
    for status in [None, Some(EtcdSnapshotStatus::default())] {
        let mut lost = fresh();
        lost.snapshot.status = status;
        lost.snapshot.metadata.creation_timestamp = Some(ago(59));
        assert_eq!(told(&planned(&lost).status).2, "JobPending", "a fresh object has none yet");
        lost.snapshot.metadata.creation_timestamp = Some(ago(60));
        assert_eq!(told(&planned(&lost).status).2, "AskingStore");
        assert_eq!(planned(&asked(lost.clone(), vec![saved()])).status.phase, Phase::Complete);
        // The status written by the asking pass must keep the cause for the next pass.
        let (job, written) = (started(&lost), planned(&lost).status);
        let told_since = Observed {
            snapshot: holdfast_api::EtcdSnapshot { status: Some(written), ..lost.snapshot.clone() },
            ..lost.clone()
        };
        assert_eq!(started(&told_since).metadata.name, job.metadata.name);
        assert_eq!(planned(&asked(told_since, vec![saved()])).status.phase, Phase::Complete);
        let again = started(&asked(lost.clone(), nothing()));
        assert_eq!(again.metadata.name, started(&fresh()).metadata.name, "nothing is stored: it is taken now");
        // The Pod may still publish.
        lost.strays = vec![running()];
        assert_eq!((planned(&lost).act, told(&planned(&lost).status).2), (None, "AskingStore"));
    }
}

#[test]
fn a_failure_is_told_by_class() {
    for class in ExitClass::ALL {
        let mut seen = with(vec![failed("p-1", class, "what happened, and what to do")]);
        ends(&mut seen, "Failed", "PodFailurePolicy", 1);
        let mut ended = "2026-11-21T11:59:59Z";
        if matches!(class, ExitClass::Transient | ExitClass::Deadline) {
            seen = asked(long_over(seen), nothing());
            ended = "2026-11-21T11:56:39Z";
        }
        let plan = planned(&seen);
        let (phase, ready, reason, message) = told(&plan.status);
        assert_eq!((phase, ready, message), (Phase::Failed, "False", "what happened, and what to do"));
        let origin = (class == ExitClass::Refused).then_some(Origin::Store);
        assert_eq!(reason, agent::Failure::for_class(class, origin).reason);
        let origin = origin.map(|origin| origin.as_str().to_owned());
        let error = Failure { class: class.as_str().to_owned(), origin, message: message.to_owned() };
        assert_eq!(plan.status.error, Some(error));
        assert_eq!(plan.status.completed_at.as_deref(), Some(ended));
        assert_eq!((plan.notes[0].reason.as_str(), plan.notes[0].warning), ("SnapshotFailed", true));
    }
}

#[test]
fn a_failure_without_a_report_says_where_to_look() {
    let job_failed = |pods: Vec<Pod>, reason: &str| {
        let mut seen = with(pods);
        ends(&mut seen, "Failed", reason, 60);
        if planned(&seen).act.is_some() {
            seen = asked(long_over(seen), nothing());
        }
        let status = planned(&seen).status;
        assert_eq!(status.phase, Phase::Failed);
        (told(&status).2.to_owned(), status.error.unwrap())
    };
    let (reason, error) = job_failed(vec![terminated("p-1", 101, "Error", Some("a panic's text".to_owned()))], "x");
    assert_eq!((reason.as_str(), error.class.as_str()), ("AgentCrashed", "Crashed"));
    assert!(error.message.contains("code 101") && error.message.contains("kubectl logs p-1"), "{}", error.message);
    assert!(!error.message.contains("panic"), "log lines never become a status");

    let (reason, error) = job_failed(vec![terminated("p-1", 69, "Error", None)], "x");
    assert_eq!((reason.as_str(), error.class.as_str()), ("NoSpace", "Full"), "the exit code has the class too");

    let (reason, error) = job_failed(vec![terminated("p-1", 137, "OOMKilled", None)], "x");
    assert_eq!((reason.as_str(), error.class.as_str()), ("AgentMisconfigured", "Config"));
    assert!(error.message.contains("limit 256Mi"), "{}", error.message);

    let mut evicted = pod("p-1", "Failed", ContainerState::default());
    evicted.status.as_mut().unwrap().reason = Some("Evicted".to_owned());
    assert!(job_failed(vec![evicted], "x").1.message.contains("Evicted"));

    assert!(job_failed(vec![], "BackoffLimitExceeded").1.message.contains("the Job's own words"));

    let (reason, error) = job_failed(vec![failed("p-1", ExitClass::Transient, "503")], "DeadlineExceeded");
    assert_eq!((reason.as_str(), error.class.as_str()), ("AgentTimedOut", "Deadline"));
    assert!(error.message.contains("3720 s") && error.message.contains("its last Pod: 503"), "{}", error.message);
}

/// A Job may fail visibly before its Pod's report is visible: the report may contain a stored snapshot.
#[test]
fn a_failed_job_is_believed_only_when_its_pods_have_spoken() {
    let mut seen = with(vec![running()]);
    ends(&mut seen, "Failed", "DeadlineExceeded", 9);
    let plan = planned(&seen);
    assert_eq!((plan.status.phase, plan.wake), (Phase::Running, Wake::AfterMillis(10_000)));
    ends(&mut seen, "Failed", "DeadlineExceeded", 10);
    assert_eq!(planned(&asked(long_over(seen), nothing())).status.phase, Phase::Failed);

    // The Job counts two failed Pods and one is visible: the other Pod may have stored the snapshot.
    let mut seen = with(vec![failed("p-1", ExitClass::Transient, "503")]);
    ends(&mut seen, "Failed", "BackoffLimitExceeded", 1);
    seen.job.as_mut().unwrap().status.as_mut().unwrap().failed = Some(2);
    assert_eq!(planned(&seen).status.phase, Phase::Running);
}

#[test]
fn a_job_that_was_deleted_is_made_again_and_counted_on() {
    let mut seen = with(vec![failed("p-0", ExitClass::Transient, "503"), running()]);
    seen.snapshot.status = Some(planned(&seen).status);

    seen.job.as_mut().unwrap().metadata.deletion_timestamp = Some(ago(1));
    assert!(told(&planned(&seen).status).3.contains("is being deleted"));

    let (job, pods) = (seen.job.take(), std::mem::take(&mut seen.pods));
    let mut seen = asked(seen, nothing());
    let plan = planned(&seen);
    assert_eq!((plan.status.phase, plan.status.attempts), (Phase::Pending, 2));
    assert!(plan.notes[0].warning && plan.notes[0].message.contains("creates Job"));
    let mut again = started(&seen);
    assert_eq!(again.metadata.annotations.as_ref().unwrap()[key::ATTEMPTS_BEFORE], "2");

    again.metadata.creation_timestamp = Some(ago(1));
    seen.job = Some(again);
    seen.pods = vec![running()];
    seen.snapshot.status = Some(plan.status);
    let status = planned(&seen).status;
    assert_eq!(status.attempts, 3);
    assert_eq!(status.started_at.as_deref(), Some("2026-11-21T11:59:00Z"), "what is waited for began with the first");

    seen.pods = vec![];
    seen.snapshot.status = Some(status);
    assert_eq!(planned(&seen).status.attempts, 3, "never fewer");

    // The answer to the create was lost and the cache is behind: the operator creates the same Job again, under the same name.
    assert_eq!(job.unwrap().metadata.name, started(&Observed { job: None, pods, ..seen }).metadata.name);
}

#[test]
fn nothing_is_done_for_a_snapshot_that_goes() {
    let mut seen = fresh();
    seen.snapshot.metadata.deletion_timestamp = Some(ago(1));
    let plan = planned(&seen);
    assert_eq!((plan.act, plan.notes, plan.status), (None, vec![], EtcdSnapshotStatus::default()));
}

#[test]
fn a_pass_that_repeats_changes_nothing() {
    for pods in [vec![], vec![running()], vec![waiting("ImagePullBackOff", Some("m"))]] {
        let mut seen = with(pods);
        let first = planned(&seen).status;
        seen.snapshot.status = Some(first.clone());
        let later = plan(&seen, now() + SignedDuration::from_hours(1));
        assert_eq!(later.status, first);
        assert!(later.notes.is_empty());
    }
}

#[test]
fn the_operators_own_trouble_is_not_told_for_ever() {
    let mut seen = with(vec![running()]);
    let mut old = planned(&seen).status;
    let mut stale = old.conditions[0].clone();
    stale.type_ = "Degraded".to_owned();
    old.conditions.push(stale);
    let stale = old.conditions.last().cloned().unwrap();
    seen.snapshot.status = Some(old);
    assert!(planned(&seen).status.conditions.iter().all(|c| c.type_ == "Ready"));
    // Nor a status that became final before the operator could clear the condition.
    let last = planned(&with(vec![saved()])).status;
    assert_eq!(last.phase, Phase::Complete);
    seen.snapshot.status = Some(last.clone());
    seen.snapshot.status.as_mut().unwrap().conditions.push(stale);
    assert_eq!(planned(&seen).status, last);
}

/// Any Pod that kubelet can report.
fn any_pod() -> impl Strategy<Value = Pod> {
    let class = proptest::sample::select(ExitClass::ALL.to_vec());
    prop_oneof![
        Just(saved()),
        Just(running()),
        class.prop_map(|class| failed("p", class, "words")),
        (0..140_i32, "\\PC{0,20}").prop_map(|(code, text)| terminated("p", code, "Error", Some(text))),
        "\\PC{0,10}".prop_map(|reason| waiting(&reason, None)),
        Just(Pod::default()),
    ]
}

proptest! {
    /// For each history of a Job and its Pods: the rules hold, a final phase stays, the phase is `Complete` exactly if some Pod
    /// reported a stored snapshot, and a snapshot that some Pod stored never becomes `Failed`.
    #[test]
    fn any_history_keeps_the_rules(
        steps in proptest::collection::vec(
            (
                proptest::collection::vec(any_pod(), 0..4),
                proptest::sample::select(vec!["", "Complete", "Failed"]),
                0..20_i64,
                any::<bool>(),
            ),
            1..6,
        ),
    ) {
        let mut status: Option<EtcdSnapshotStatus> = None;
        for (pods, end, since, there) in steps {
            let mut seen = with(pods);
            if !end.is_empty() {
                ends(&mut seen, end, "BackoffLimitExceeded", since);
            }
            if !there {
                seen.job = None;
                seen.pods = vec![];
            }
            seen.snapshot.status = status.clone();
            let plan = plan(&seen, now());
            prop_assert_eq!(plan.status.artifact.is_some(), plan.status.phase == Phase::Complete);
            if let Some(old) = status.filter(|s| s.phase.is_final()) {
                prop_assert_eq!((&plan.status, &plan.act), (&old, &None));
            } else {
                let stored = seen.pods.iter().any(|p| *p == saved());
                prop_assert_eq!(plan.status.phase == Phase::Complete, stored);
            }
            prop_assert!(plan.status.conditions.iter().all(|c| c.message.len() <= 1003));
            status = Some(plan.status);
        }
    }
}

#[test]
fn an_etcd_of_somebody_elses_is_reached_with_files() {
    let mut seen = fresh();
    let named = |name: &str| Some(LocalRef { name: name.to_owned() });
    seen.cluster = None;
    seen.snapshot.spec.cluster_ref = None;
    seen.snapshot.spec.external = Some(External {
        endpoints: vec!["https://a:2379".to_owned(), "https://b:2379".to_owned()],
        server_name: Some("etcd.example.org".to_owned()),
        tls_secret_ref: named("certs"),
        auth_secret_ref: named("root"),
    });
    let job = started(&seen);
    let told = args(&job);
    for arg in [
        "--endpoints=https://a:2379",
        "--endpoints=https://b:2379",
        "--server-name=etcd.example.org",
        "--tls-dir=/etc/holdfast/etcd-tls",
        "--auth-dir=/etc/holdfast/etcd-auth",
        "--cluster=external",
        "--store=file:///backup",
    ] {
        assert!(told.contains(&arg.to_owned()), "{arg} is missing in {told:?}");
    }
    for none in ["--cluster-uid", "--expect-cluster-id", "--user", "--password-file"] {
        assert!(!told.iter().any(|arg| arg.starts_with(none)), "{none} in {told:?}");
    }
    let pod = job.spec.unwrap().template.spec.unwrap();
    let mounts: Vec<_> = pod.containers[0].volume_mounts.clone().unwrap();
    let secrets = pod.volumes.unwrap().into_iter().filter_map(|v| Some((v.name, v.secret?.secret_name?)));
    for (volume, secret) in secrets.collect::<Vec<_>>() {
        let mount = mounts.iter().find(|m| m.name == volume).unwrap();
        let expected = if secret == "certs" { "/etc/holdfast/etcd-tls" } else { "/etc/holdfast/etcd-auth" };
        assert_eq!((mount.mount_path.as_str(), mount.read_only), (expected, Some(true)), "{secret}");
    }
    seen.snapshot.status = Some(EtcdSnapshotStatus { started_at: Some("x".to_owned()), ..planned(&seen).status });
    let asks = args(&started(&seen));
    assert!(asks.contains(&"--cluster=external".to_owned()) && !asks.iter().any(|a| a.contains("etcd-")), "{asks:?}");

    seen.snapshot.spec.cluster_ref = named("a");
    seen.snapshot.status = None;
    assert_eq!(told_reason(&seen), "InvalidSpec");
}

fn told_reason(seen: &Observed) -> String {
    told(&planned(seen).status).2.to_owned()
}
