//! The newest snapshot: one search, one latch, and no empty cluster in its place.

use holdfast_contract::{ExitClass, FailedReport, LatestReport, Origin, Report, Request};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

mod held;
mod point;

use holdfast_api::agent::Agent;
use holdfast_api::restore::{Latest, RestorePhase, Restoring};
use holdfast_api::store::{Location, S3Location};

use super::*;
use crate::cluster::latest::RARELY;
use crate::fixtures::flags;
use holdfast_base::meta;
use holdfast_base::objects::request;

const KEY: &str = "ns/a/1a2b3c4d/20260101T110000Z-byhand-abcdef01";

fn ago(seconds: i64) -> Timestamp {
    noon() - SignedDuration::from_secs(seconds)
}

fn bucket(name: &str) -> Location {
    Location::S3(S3Location { bucket: name.to_owned(), ..S3Location::default() })
}

fn latest(bucket_name: &str) -> Latest {
    Latest { place: bucket(bucket_name).into(), ..Latest::default() }
}

/// Returns a cluster that asks for the newest snapshot, and has no member.
fn asking(of: Latest) -> Observed {
    let mut seen = bare(1);
    seen.cluster.spec.bootstrap = Some(Bootstrap { restore: Some(Restore { latest: Some(of), ..Restore::default() }) });
    seen
}

fn started(seen: &Observed) -> Job {
    match act(seen) {
        Some(Act::StartJob(job)) => *job,
        other => panic!("no Job is started: {other:?}"),
    }
}

/// Returns the Job of the plan as the API server stores it, with a Pod that reported this, this many seconds ago.
fn search(seen: &Observed, ended: Option<(i64, &Report)>) -> ClusterJob {
    let mut job = started(seen);
    job.metadata.uid = Some("job-uid".to_owned());
    job.metadata.creation_timestamp = Some(Time(ago(ended.map_or(1, |(seconds, _)| seconds + 5))));
    let Some((seconds, report)) = ended else { return ClusterJob { job, pods: vec![] } };
    let good = !matches!(report, Report::Failed(_));
    let condition = JobCondition {
        type_: if good { "Complete" } else { "Failed" }.to_owned(),
        status: "True".to_owned(),
        last_transition_time: Some(Time(ago(seconds))),
        ..JobCondition::default()
    };
    job.status =
        Some(JobStatus { conditions: Some(vec![condition]), failed: Some(i32::from(!good)), ..JobStatus::default() });
    let end = ContainerStateTerminated {
        exit_code: i32::from(!good),
        message: Some(serde_json::to_string(report).unwrap()),
        finished_at: Some(Time(ago(seconds))),
        ..ContainerStateTerminated::default()
    };
    let container = ContainerStatus {
        name: "agent".to_owned(),
        state: Some(ContainerState { terminated: Some(end), ..ContainerState::default() }),
        ..ContainerStatus::default()
    };
    let status = PodStatus {
        phase: Some(if good { "Succeeded" } else { "Failed" }.to_owned()),
        container_statuses: Some(vec![container]),
        ..PodStatus::default()
    };
    let pod = Pod { metadata: ObjectMeta::default(), status: Some(status), ..Pod::default() };
    ClusterJob { job, pods: vec![pod] }
}

fn found() -> Report {
    Report::Latest(LatestReport {
        key: KEY.to_owned(),
        uri: format!("s3://b/{KEY}/snapshot.db.zst"),
        sha256: "5a".repeat(32),
        taken_at: "2026-01-01T11:00:00Z".to_owned(),
        revision: Some(77),
        without_quorum: true,
        passed_over: vec!["ns/a/1a2b3c4d/newer: cut".to_owned()],
    })
}

fn failed_with(class: ExitClass) -> Report {
    let origin = (class == ExitClass::Refused).then_some(Origin::Request);
    Report::Failed(FailedReport { class, origin, message: "the store said so".to_owned() })
}

/// Returns the cluster and its restore after a Job has reported.
fn answered(mut seen: Observed) -> (Observed, Restoring) {
    seen.searches = vec![search(&seen, Some((1, &found())))];
    let Some(Act::Latch(latches)) = act(&seen) else { panic!("{:?}", act(&seen)) };
    let restoring = latches.restoring.clone().expect("a restore is latched");
    seen.cluster.status.get_or_insert_default().latches = *latches;
    (seen, restoring)
}

#[test]
fn the_store_is_asked_by_a_job_of_the_clusters_own() {
    let of = Latest { cluster: Some("orders".to_owned()), lineage: Some("1a2b3c4d".to_owned()), ..latest("b") };
    let seen = asking(of);
    let job = started(&seen);
    let pod = job.spec.unwrap().template;
    let container = &pod.spec.unwrap().containers[0];
    assert!(matches!(request::read(container), Some(Request::Latest(_))));
    let args = flags(container);
    for arg in ["--store=s3://b", "--namespace=ns", "--cluster=orders", "--lineage=1a2b3c4d"] {
        assert!(args.iter().any(|there| there == arg), "{arg} in {args:?}");
    }
    // The Pod has this cluster's label, also for snapshots of another cluster: its end wakes this cluster.
    assert_eq!(meta::label(&pod.metadata.unwrap(), key::CLUSTER), Some("a"));
    assert_eq!(condition(&seen, "Available"), pair("False", "Restoring"));
    assert_eq!(condition(&seen, "Progressing"), pair("True", "AskingStore"));
    assert_eq!(planned(&seen).status.restore.unwrap().phase, Some(RestorePhase::Pending));
}

#[test]
fn nothing_is_made_before_there_is_an_answer() {
    let mut seen = asking(latest("b"));
    seen.searches = vec![search(&seen, None)];
    assert_eq!(waits(&seen), Some(Reason::AskingStore));
    for class in ExitClass::ALL {
        seen.searches = vec![];
        seen.searches = vec![search(&seen, Some((1, &failed_with(class))))];
        let reason = waits(&seen).unwrap();
        assert_eq!(reason == Reason::LineageUnclear, class == ExitClass::Refused, "{class:?}");
        assert_eq!(condition(&seen, "Degraded").0, "True", "{class:?}");
    }
}

#[test]
fn what_is_found_is_latched_with_its_hash_and_not_looked_for_again() {
    let (mut seen, restoring) = answered(asking(latest("b")));
    assert_eq!((restoring.source.key.as_str(), restoring.sha256), (KEY, Some("5a".repeat(32))));
    assert_eq!(restoring.source.place, bucket("b").into());
    // The Job is deleted, or has another report now.
    for searches in [vec![], vec![search(&asking(latest("b")), Some((1, &failed_with(ExitClass::NotFound))))]] {
        seen.searches = searches;
        let Some(Act::CreateMember(member)) = act(&seen) else { panic!("{:?}", act(&seen)) };
        assert_eq!(member.spec.restore, latches(&mut seen).restoring);
    }
    let status = planned(&seen).status.restore.unwrap();
    assert_eq!((status.taken_at.as_deref(), status.revision), (Some("2026-01-01T11:00:00Z"), Some(77)));
    assert_eq!(status.passed_over, ["ns/a/1a2b3c4d/newer: cut"]);
    assert!(status.without_quorum, "what may be missing is told");
}

#[test]
fn a_store_that_gave_no_answer_is_asked_again_and_the_reason_stays() {
    let mut seen = asking(latest("b"));
    let first = search(&seen, Some((14, &failed_with(ExitClass::NotFound))));
    seen.searches = vec![first];
    assert_eq!(waits(&seen), Some(Reason::ArtifactNotFound));
    let before = planned(&seen).status;

    seen.searches = vec![];
    seen.searches = vec![search(&seen, Some((16, &failed_with(ExitClass::NotFound))))];
    let again = started(&seen);
    assert_eq!(planned(&seen).status.conditions, before.conditions, "not even while the Job is made (I17)");
    assert_ne!(again.metadata.name, seen.searches[0].job.metadata.name);
    let second = search(&seen, None);
    seen.searches.push(second);
    assert_eq!(waits(&seen), Some(Reason::ArtifactNotFound), "it is what a person has to know");
    assert_eq!(planned(&seen).status.conditions, before.conditions);

    // After ten minutes of failures Holdfast searches every two minutes.
    seen.searches = vec![];
    seen.searches = vec![search(&seen, Some((600, &failed_with(ExitClass::NotFound))))];
    let late = search(&seen, Some((100, &failed_with(ExitClass::Denied))));
    seen.searches.push(late);
    assert_eq!(waits(&seen), Some(Reason::StoreAccessDenied));
}

/// Otherwise `Degraded` would go and come back with every Job.
#[test]
fn what_is_unclear_is_told_until_the_store_has_said_otherwise() {
    let mut seen = asking(latest("b"));
    let first = search(&seen, Some((RARELY.as_secs() - 1, &failed_with(ExitClass::Refused))));
    seen.searches = vec![first];
    assert_eq!(waits(&seen), Some(Reason::LineageUnclear));
    let before = planned(&seen).status.conditions;

    seen.searches = vec![];
    let first = search(&seen, Some((RARELY.as_secs() + 1, &failed_with(ExitClass::Refused))));
    seen.searches = vec![first];
    let again = started(&seen).spec.unwrap();
    assert_eq!(planned(&seen).status.conditions, before);
    let second = search(&seen, None);
    seen.searches.push(second);
    assert_eq!(waits(&seen), Some(Reason::LineageUnclear));
    assert_eq!(planned(&seen).status.conditions, before);

    // For that the Job has to exist while the next Job works, however late that Job starts.
    let kept = SignedDuration::from_secs(again.ttl_seconds_after_finished.unwrap().into());
    let works = SignedDuration::from_secs(again.active_deadline_seconds.unwrap());
    assert!(kept >= RARELY * 2 + works, "{kept:?}");
}

#[test]
fn an_answer_that_is_lost_is_asked_for_again() {
    let mut seen = asking(latest("b"));
    seen.searches = vec![search(&seen, Some((60, &found())))];
    seen.searches[0].pods.clear();
    started(&seen);
}

/// A person or a tool removes the annotations: the Job still counts, and Holdfast does not start it again.
#[test]
fn a_job_without_its_annotations_is_known_by_its_name() {
    let bare = |mut search: ClusterJob| {
        search.job.metadata.annotations = None;
        search
    };
    let seen = asking(latest("b"));
    let with = |ends: &[Option<(i64, &Report)>]| {
        let mut seen = seen.clone();
        for end in ends {
            let next = search(&seen, *end);
            seen.searches.push(bare(next));
        }
        seen
    };
    let failed = failed_with(ExitClass::NotFound);
    assert_eq!(waits(&with(&[None])), Some(Reason::AskingStore));
    assert!(matches!(act(&with(&[Some((1, &found()))])), Some(Act::Latch(_))), "what it answers counts");
    let again = [Some((400, &failed)), Some((200, &failed)), None];
    assert_eq!(waits(&with(&again)), Some(Reason::ArtifactNotFound));
    let three = with(&[Some((600, &failed)), Some((400, &failed)), Some((200, &failed))]);
    let fourth = started(&three).metadata.name;
    assert!(three.searches.iter().all(|search| search.job.metadata.name != fourth));
    assert!(matches!(
        act(&with(&[Some((400, &failed)), Some((200, &failed)), Some((1, &found()))])),
        Some(Act::Latch(_))
    ));
}

#[test]
fn another_question_is_asked_anew_and_a_moved_store_is_the_same_snapshot() {
    let (mut seen, restoring) = answered(asking(latest("b")));
    let asked = |seen: &mut Observed, of: Latest| {
        seen.cluster.spec.bootstrap =
            Some(Bootstrap { restore: Some(Restore { latest: Some(of), ..Restore::default() }) });
    };
    asked(&mut seen, latest("c"));
    let other = started(&seen);
    asked(&mut seen, Latest { lineage: Some("1a2b3c4d".to_owned()), ..latest("b") });
    assert_ne!(started(&seen).metadata.name, other.metadata.name);
    // The report of the earlier search does not answer this search.
    assert!(seen.searches.iter().all(|s| s.job.metadata.name != other.metadata.name));

    asked(&mut seen, latest("b"));
    let Some(Act::CreateMember(member)) = act(&seen) else { panic!("{:?}", act(&seen)) };
    assert_eq!(member.spec.restore, Some(restoring));
}

/// As when a cluster came back from a backup of its objects, with the spec that it was founded with.
#[test]
fn beside_volumes_of_an_earlier_cluster_nobody_is_asked_and_nothing_restored() {
    for (going, reason) in [(false, Reason::ForeignVolumesFound), (true, Reason::WaitingForReference)] {
        let foreign = ForeignVolume { claim: "data-a-old".to_owned(), going };
        let mut seen = asking(latest("b"));
        seen.foreign = vec![foreign.clone()];
        assert_eq!(waits(&seen), Some(reason));
        // A latched restore waits too.
        let (mut seen, _) = answered(asking(latest("b")));
        seen.foreign = vec![foreign.clone()];
        assert_eq!(waits(&seen), Some(reason));
        // A restore by key waits too.
        let mut seen = bare(1);
        restore(&mut seen, Some("k"));
        seen.foreign = vec![foreign];
        assert_eq!(waits(&seen), Some(reason));
    }
}

#[test]
fn a_cluster_that_has_formed_asks_nobody() {
    let mut seen = formed(1, 1);
    seen.cluster.spec.bootstrap =
        Some(Bootstrap { restore: Some(Restore { latest: Some(latest("b")), ..Restore::default() }) });
    assert_eq!(act(&seen), None);
    let mut plan = planned(&seen);
    plan.act = Some(Act::StartJob(Box::new(started(&asking(latest("b"))))));
    assert_eq!(safety::cluster(&seen, &plan).unwrap_err().invariant, "I9");

    // Safety refuses any other Job of the cluster, and a Job of another owner.
    let seen = asking(latest("b"));
    let with = |change: &dyn Fn(&mut Job)| {
        let mut plan = planned(&seen);
        let Some(Act::StartJob(job)) = &mut plan.act else { panic!() };
        change(job);
        safety::cluster(&seen, &plan).map_err(|stop| stop.invariant)
    };
    assert_eq!(with(&|_| {}), Ok(()));
    assert_eq!(with(&|job| job.metadata.owner_references = None), Err("I13"));
    let saves = |job: &mut Job| {
        let pod = job.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
        pod.containers[0].command = Some(["/holdfast", "agent", "save"].map(str::to_owned).to_vec());
    };
    assert_eq!(with(&saves), Err("I1"));
}

#[test]
fn the_pods_that_look_and_restore_are_as_they_are_asked_to_be() {
    let mut seen = asking(latest("b"));
    let plain = started(&seen).metadata.name;
    let agent = Agent { service_account_name: Some("reader".to_owned()), ..Agent::default() };
    let spec = seen.cluster.spec.bootstrap.as_mut().and_then(|b| b.restore.as_mut()).unwrap();
    spec.agent = Some(agent.clone());
    let job = started(&seen);
    assert_ne!(job.metadata.name, plain, "another account may be given another answer");
    let account = job.spec.unwrap().template.spec.unwrap().service_account_name;
    assert_eq!(account.as_deref(), Some("reader"));
    seen.searches = vec![search(&seen, Some((1, &found())))];
    let Some(Act::Latch(latches)) = act(&seen) else { panic!() };
    assert_eq!(latches.restoring.unwrap().agent, Some(agent));
}

mod of_a_named_store {
    use holdfast_api::backup_store::{Credentials, Identity};
    use holdfast_api::condition::{Type, Wanted, merge};
    use holdfast_api::{EtcdBackupStore, EtcdBackupStoreSpec};

    use super::*;

    /// Returns the store `vault` with this Secret for reads.
    fn vault(bucket_name: &str, reads: &str, ready: bool) -> EtcdBackupStore {
        let credentials = Credentials { write: "writes".to_owned(), read: Some(reads.to_owned()), prune: None };
        let place = bucket(bucket_name).into();
        let spec = EtcdBackupStoreSpec { place, credentials: Some(credentials), agent: None };
        let mut store = EtcdBackupStore::new("vault", spec);
        let wanted = Wanted { state: Some(ready), ..Wanted::yes(Type::Ready, Reason::StoreUsable, "x") };
        store.status.get_or_insert_default().conditions = merge(&[], &[wanted], None, earlier().0);
        store
    }

    fn seen(store: Option<EtcdBackupStore>) -> Observed {
        let store_ref = Some(LocalRef { name: "vault".to_owned() });
        let mut seen = asking(Latest { store_ref, ..Latest::default() });
        seen.store = Some(Seen::Known(store));
        seen
    }

    /// Returns the arguments of the agent, and its Secrets.
    fn asked(job: &Job) -> (Vec<String>, Vec<String>) {
        let pod = job.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
        let secrets = pod.volumes.iter().flatten().filter_map(|v| v.secret.as_ref()?.secret_name.clone());
        (flags(&pod.containers[0]), secrets.collect())
    }

    /// Returns bucket and Secret of a restore.
    fn reads(restoring: &Restoring) -> (String, Option<String>) {
        let s3 = restoring.source.place.s3.clone().unwrap();
        (s3.bucket, s3.credentials_secret_ref.map(|secret| secret.name))
    }

    fn place(bucket_name: &str, secret: &str) -> (String, Option<String>) {
        (bucket_name.to_owned(), Some(secret.to_owned()))
    }

    #[test]
    fn it_is_asked_where_it_is_with_what_reads() {
        let seen = seen(Some(vault("b", "reads", true)));
        let (args, secrets) = asked(&started(&seen));
        for arg in ["--store=s3://b", "--credentials-dir=/etc/holdfast/credentials", "--namespace=ns", "--cluster=a"] {
            assert!(args.iter().any(|there| there == arg), "{arg} in {args:?}");
        }
        assert_eq!(secrets, ["reads"]);
        assert_eq!(condition(&seen, "Progressing"), pair("True", "AskingStore"));
        // The latch has the place itself: the store may be edited or deleted.
        let (_, restoring) = answered(seen);
        assert_eq!((restoring.store.as_deref(), restoring.source.store_ref.as_ref()), (Some("vault"), None));
        assert_eq!((restoring.source.key.as_str(), reads(&restoring)), (KEY, place("b", "reads")));
    }

    #[test]
    fn its_mark_is_expected_and_another_mark_is_another_question() {
        let marked = |id: &str| {
            let mut store = vault("b", "reads", true);
            let place = holdfast_base::store_identity::place(&store).unwrap();
            store.status.get_or_insert_default().identity = Some(Identity { id: id.to_owned(), place, accepted: None });
            seen(Some(store))
        };
        let (plain, one, two) =
            (started(&seen(Some(vault("b", "reads", true)))), started(&marked("one")), started(&marked("two")));
        let told = |job: &Job| {
            asked(job).0.into_iter().find_map(|arg| arg.strip_prefix("--expect-store-id=").map(str::to_owned))
        };
        assert_eq!([&plain, &one, &two].map(told), [None, Some("one".to_owned()), Some("two".to_owned())]);
        assert!(plain.metadata.name != one.metadata.name && one.metadata.name != two.metadata.name);
        // I25: the safety rules require this too.
        let seen = marked("one");
        let mut plan = planned(&seen);
        plan.act = Some(Act::StartJob(Box::new(two)));
        assert_eq!(safety::cluster(&seen, &plan).unwrap_err().invariant, "I25");
        // A report has a key and a hash: it needs no store ID, and stays when the store gets another ID.
        let (latched, restoring) = answered(seen);
        assert_eq!((restoring.store_id.as_deref(), restoring.sha256.is_some()), (None, true));
        let mut moved = latched;
        moved.store = marked("two").store;
        assert!(!matches!(act(&moved), Some(Act::StartJob(_) | Act::Latch(_))), "{:?}", act(&moved));
    }

    #[test]
    fn one_that_cannot_be_used_is_waited_for_and_nobody_is_asked() {
        let good = || vault("b", "reads", true);
        let (mut going, mut edited) = (good(), good());
        going.metadata.deletion_timestamp = Some(earlier());
        edited.metadata.generation = Some(2);
        let known = |store| Some(Seen::Known(store));
        let cases = vec![
            ("not read yet", None, Reason::WaitingForReference),
            ("cannot be read", Some(Seen::unknown("timeout")), Reason::WaitingForReference),
            ("missing", known(None), Reason::WaitingForReference),
            ("going", known(Some(going)), Reason::WaitingForReference),
            ("never probed", known(Some(EtcdBackupStore { status: None, ..good() })), Reason::WaitingForStore),
            ("not ready", known(Some(vault("b", "reads", false))), Reason::WaitingForStore),
            ("edited since it was probed", known(Some(edited)), Reason::WaitingForStore),
        ];
        let answer = search(&seen(Some(good())), Some((1, &found())));
        for (what, store, reason) in cases {
            // Before the first search, and with a report that is not latched yet.
            for searches in [vec![], vec![answer.clone()]] {
                let mut seen = seen(None);
                (seen.store, seen.searches) = (store.clone(), searches);
                assert_eq!(waits(&seen), Some(reason), "{what}");
                assert_eq!(condition(&seen, "Ready"), pair("False", reason.as_str()), "{what}");
                assert_eq!(condition(&seen, "Available"), pair("False", "Restoring"), "{what}");
                assert_eq!(planned(&seen).status.restore.unwrap().phase, Some(RestorePhase::Pending), "{what}");
                // The store is back: the report still counts.
                let asked_before = !seen.searches.is_empty();
                seen.store = known(Some(good()));
                assert_eq!(matches!(act(&seen), Some(Act::Latch(_))), asked_before, "{what}");
                assert_eq!(matches!(act(&seen), Some(Act::StartJob(_))), !asked_before, "{what}");
            }
        }
    }

    #[test]
    fn what_is_latched_goes_on_when_it_goes() {
        let (latched, restoring) = answered(seen(Some(vault("b", "reads", true))));
        for (what, store) in [
            ("deleted", Seen::Known(None)),
            ("not ready any more", Seen::Known(Some(vault("b", "reads", false)))),
            ("moved, and not found usable there", Seen::Known(Some(vault("moved", "reads", false)))),
            ("cannot be read", Seen::unknown("timeout")),
        ] {
            for searches in [latched.searches.clone(), vec![]] {
                let mut seen = latched.clone();
                (seen.store, seen.searches) = (Some(store.clone()), searches);
                let Some(Act::CreateMember(member)) = act(&seen) else { panic!("{what}: {:?}", act(&seen)) };
                assert_eq!(member.spec.restore.as_ref(), Some(&restoring), "{what}");
            }
        }
    }

    #[test]
    fn other_credentials_read_the_same_snapshot() {
        let (mut seen, restoring) = answered(seen(Some(vault("b", "wrong", true))));
        seen.store = Some(Seen::Known(Some(vault("b", "right", true))));
        seen.fresh_suffix = "other".to_owned();
        let Some(Act::Latch(latches)) = act(&seen) else { panic!("{:?}", act(&seen)) };
        let corrected = latches.restoring.unwrap();
        assert_eq!((reads(&restoring), reads(&corrected)), (place("b", "wrong"), place("b", "right")));
        assert_eq!((&corrected.source.key, &corrected.sha256), (&restoring.source.key, &restoring.sha256));
        assert_eq!(corrected.newest, restoring.newest);
        assert_ne!(corrected.restore_uid, restoring.restore_uid);
    }

    #[test]
    fn one_that_was_moved_is_asked_anew() {
        let (latched, restoring) = answered(seen(Some(vault("b", "reads", true))));
        let mut unanswered = seen(Some(vault("b", "reads", true)));
        let first = search(&unanswered, None);
        unanswered.searches = vec![first];
        assert_eq!(waits(&unanswered), Some(Reason::AskingStore));
        let asks_anew = |mut seen: Observed| {
            let before = seen.searches[0].job.metadata.name.clone();
            seen.store = Some(Seen::Known(Some(vault("moved", "reads", true))));
            let job = started(&seen);
            assert_ne!(job.metadata.name, before);
            let (args, _) = asked(&job);
            assert!(args.iter().any(|arg| arg == "--store=s3://moved"), "{args:?}");
            let there = search(&seen, Some((1, &found())));
            seen.searches.push(there);
            seen.fresh_suffix = "other".to_owned();
            let Some(Act::Latch(latches)) = act(&seen) else { panic!("{:?}", act(&seen)) };
            let moved = latches.restoring.unwrap();
            assert_eq!(reads(&moved), place("moved", "reads"));
            assert_ne!(moved.restore_uid, restoring.restore_uid);
        };
        asks_anew(unanswered);
        asks_anew(latched);
    }
}
