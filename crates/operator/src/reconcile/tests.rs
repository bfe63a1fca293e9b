//! Passes against an API server with prepared answers.

use holdfast_api::EtcdCluster;
use holdfast_plan::Target;
use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher::Event;

use super::*;
use crate::error::Class;
use crate::fake::{Answer, Asked, Fake, refusal};
use crate::kinds::Clusters;
use holdfast_kube::caches::CacheWriter;
use holdfast_kube::kinds::CacheWriters;
use holdfast_kube::kinds::Caches;

fn after(outcome: Outcome, wake: Wake, hurry: Option<u64>) -> Action {
    next(Passed { outcome, wake, hurry: hurry.map(Duration::from_millis) }, 0.5)
}

#[test]
fn outcomes_say_when_to_look_again() {
    let millis = |n| Action::requeue(Duration::from_millis(n));
    assert_eq!(after(Outcome::Applied, Wake::Now, None), millis(0));
    assert_eq!(after(Outcome::Applied, Wake::AfterMillis(100), None), millis(100));
    assert_eq!(after(Outcome::Settled, Wake::AfterMillis(10_000), None), millis(10_000));
    assert_eq!(after(Outcome::Settled, Wake::OnChange, None), millis(300_000));
    let not_yet = Outcome::NotYet(Duration::from_millis(100));
    assert_eq!(after(not_yet, Wake::AfterMillis(10_000), None), millis(100));
    assert_eq!(after(Outcome::Gone, Wake::Now, None), Action::await_change());
    assert_eq!(after(Outcome::Elsewhere, Wake::OnChange, None), millis(60_000));
}

#[test]
fn haste_without_an_act_does_not_spin() {
    assert_eq!(after(Outcome::Waiting, Wake::Now, None), Action::requeue(NO_SPIN));
    assert_eq!(after(Outcome::Stopped, Wake::Now, None), Action::requeue(NO_SPIN));
    assert_eq!(after(Outcome::Already, Wake::Now, None), Action::requeue(NO_SPIN));
}

/// Else the operator would try to create an unseen object as fast as the API server answers that it exists.
#[tokio::test]
async fn what_is_there_already_is_not_asked_for_again_at_once() {
    let mut there = cluster();
    there["status"] = serde_json::json!({"latches": {"pendingMember": "a-x"}});
    let owner: EtcdCluster = serde_json::from_value(there.clone()).unwrap();
    let mut member = holdfast_plan::objects::member::seed(&owner, "a-x", None);
    member.metadata.uid = Some("m1".to_owned());
    let list = |kind: &str| serde_json::json!({"apiVersion": "v1", "kind": kind, "metadata": {}, "items": []});
    let applied = |kind: &str| serde_json::json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}});
    let (result, fake) = pass_over(
        there.clone(),
        vec![
            ("GET", CLUSTERS, 200, there.clone()),
            ("GET", "/etcdmembers?", 200, list("EtcdMemberList")),
            ("GET", "/pods?", 200, list("PodList")),
            ("GET", "/persistentvolumeclaims?", 200, list("PersistentVolumeClaimList")),
            ("PUT", "/etcdclusters/a/status", 200, serde_json::Value::Null),
            ("PATCH", "/services/", 200, applied("Service")),
            ("PATCH", "/poddisruptionbudgets/", 200, applied("PodDisruptionBudget")),
            ("POST", "/etcdmembers", 409, refusal(409, "AlreadyExists")),
            ("GET", "/etcdmembers/a-x", 200, serde_json::to_value(member).unwrap()),
        ],
    )
    .await;
    assert_eq!(fake.writes().iter().filter(|asked| asked.method == "POST").count(), 1, "{:?}", fake.writes());
    assert!(result.is_ok_and(|action| action != Action::requeue(Duration::ZERO)));
}

/// Else a snapshot that becomes final with that write would stay degraded for ever.
#[tokio::test]
async fn trouble_with_writes_is_told_only_while_something_is_to_be_written() {
    use holdfast_fixtures::{formed, noon, seeding};
    let fake = Fake::start(vec![]).await;
    let told = |seen: &holdfast_plan::cluster::Observed| {
        let id = identify::<Clusters>(&seen.cluster);
        let status = kube::core::Status { code: 403, message: "quota".to_owned(), ..Default::default() };
        let error = Error::write("create Pod a", kube::Error::Api(Box::new(status)));
        fake.ctx.backoff.failed(&id.key, &error, clock::instant(), 0.5);
        let plan = decide::<Clusters>(&fake.ctx, &id, seen, noon());
        let degraded = plan.status.conditions.into_iter().find(|c| c.type_ == "Degraded").unwrap();
        (plan.act.is_some(), degraded.reason)
    };
    assert_eq!(told(&seeding(1)), (true, "WriteRefused".to_owned()));
    assert_eq!(told(&formed(1, 1)), (false, "NothingWrong".to_owned()));
    let mut front = formed(1, 1);
    front.client_service = None;
    assert_eq!(told(&front), (false, "WriteRefused".to_owned()));
}

#[test]
fn a_member_that_is_about_to_serve_shortens_the_wait_and_never_lengthens_it() {
    let millis = |n| Action::requeue(Duration::from_millis(n));
    assert_eq!(after(Outcome::Waiting, Wake::AfterMillis(10_000), Some(150)), millis(150));
    assert_eq!(after(Outcome::Waiting, Wake::AfterMillis(50), Some(150)), millis(50));
    assert_eq!(after(Outcome::Applied, Wake::Now, Some(150)), millis(0));
}

fn cluster() -> serde_json::Value {
    serde_json::json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"name": "a", "namespace": "ns", "uid": "c1", "resourceVersion": "5", "generation": 1,
            "finalizers": ["holdfast.dev/cluster"]},
        "spec": {"replicas": 1, "version": "3.6.16", "tls": {"insecure": true}}})
}

const CLUSTERS: &str = "/etcdclusters/a";

async fn pass_over(cached: serde_json::Value, answers: Vec<Answer>) -> (Result<Action, Class>, Fake) {
    let cached: EtcdCluster = serde_json::from_value(cached).unwrap();
    let fake = Fake::with(vec![cached.clone()], answers).await;
    let result = reconcile::<Clusters>(Arc::new(cached), Arc::clone(&fake.ctx)).await.map_err(|e| e.class());
    (result, fake)
}

/// A pass over a cluster whose Services are in the caches too.
async fn pass_with_services(cached: serde_json::Value, answers: Vec<Answer>) -> Fake {
    let cached: EtcdCluster = serde_json::from_value(cached).unwrap();
    let mut clusters = CacheWriter::<EtcdCluster>::default();
    clusters.apply(&Event::Apply(cached.clone()));
    let mut services = CacheWriter::<Service>::default();
    for service in [holdfast_plan::objects::service::peer(&cached), holdfast_plan::objects::service::client(&cached)] {
        services.apply(&Event::Apply(service));
    }
    let caches = Caches { clusters: clusters.cache(), services: services.cache(), ..CacheWriters::default().caches() };
    let fake = Fake::filled(caches, answers).await;
    let _ = reconcile::<Clusters>(Arc::new(cached), Arc::clone(&fake.ctx)).await;
    fake
}

#[tokio::test]
async fn what_the_cache_asks_for_is_not_done_when_it_is_gone() {
    let (result, fake) = pass_over(cluster(), vec![]).await;
    assert_eq!((result, fake.writes()), (Ok(Action::await_change()), vec![]));
    // A quorum read: the request has no resourceVersion.
    assert!(fake.reads().iter().any(|path| path.ends_with(CLUSTERS)), "{:?}", fake.reads());
    let mut another = cluster();
    another["metadata"]["uid"] = "c2".into();
    let (result, fake) = pass_over(cluster(), vec![("GET", CLUSTERS, 200, another)]).await;
    assert_eq!((result, fake.writes()), (Ok(Action::await_change()), vec![]));
}

/// The first act of a cluster adds the finalizer: a patch with UID and resourceVersion needs no other read.
#[tokio::test]
async fn a_guarded_patch_is_decided_on_the_caches() {
    let mut bare = cluster();
    bare["metadata"]["finalizers"] = serde_json::json!([]);
    let mut held = cluster();
    held["metadata"]["resourceVersion"] = "6".into();
    let status = ("PUT", "/etcdclusters/a/status", 200, serde_json::Value::Null);
    let there = ("GET", CLUSTERS, 200, bare.clone());
    let patched = ("PATCH", CLUSTERS, 200, held);
    let fake = pass_with_services(bare.clone(), vec![there.clone(), status.clone(), patched]).await;
    let (log, patches) = (fake.log(), |asked: &Asked| asked.method == "PATCH" && asked.path.contains(CLUSTERS));
    let at = log.iter().position(patches).unwrap();
    assert_eq!(log[at].body["metadata"]["resourceVersion"], "5");
    let lists = log[..at].iter().filter(|asked| asked.method == "GET" && asked.path.contains('?'));
    assert_eq!(lists.count(), 0, "neither members nor Pods nor claims: {log:?}");

    // Where the cached version is old, the same pass reads everything and plans again.
    let refused = ("PATCH", CLUSTERS, 409, refusal(409, "Conflict"));
    let fake = pass_with_services(bare, vec![there, status, refused]).await;
    assert_eq!(fake.log().iter().filter(|asked| patches(asked)).count(), 1, "{:?}", fake.writes());
    assert!(fake.reads().iter().any(|path| path.contains("/etcdmembers?")), "{:?}", fake.reads());
}

/// I26: the operator reads the versions of cluster and member before etcd's membership changes.
#[tokio::test]
async fn a_change_of_the_membership_needs_current_guards() {
    let mut seen = holdfast_fixtures::formed(1, 1);
    let named = seen.members[0].name().to_owned();
    seen.cluster.metadata.resource_version = Some("5".to_owned());
    seen.members[0].object.metadata.resource_version = Some("7".to_owned());
    let promote = Act::Promote { name: named.clone(), member_id: 1, cluster_id: 1 };
    let metadata = |object: &kube::api::ObjectMeta, version: &str| {
        let metadata = serde_json::json!({"name": object.name, "uid": object.uid, "resourceVersion": version});
        serde_json::json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata})
    };
    let ask = async |cluster: &str, member: Option<&str>, act: &Act| {
        let mut answers = vec![("GET", "/etcdclusters/", 200, metadata(&seen.cluster.metadata, cluster))];
        if let Some(version) = member {
            answers.push(("GET", "/etcdmembers/", 200, metadata(&seen.members[0].object.metadata, version)));
        } else {
            answers.push(("GET", "/etcdmembers/", 404, crate::fake::missing(&named)));
        }
        let fake = Fake::start(answers).await;
        let reader = Reader { ctx: &fake.ctx, namespace: "ns", view: View::Live };
        let mut plan = holdfast_plan::cluster::plan(&seen, holdfast_fixtures::noon());
        plan.act = Some(act.clone());
        is_view_enough::<Clusters>(reader, &seen, &plan).await.unwrap()
    };
    assert!(ask("5", Some("7"), &promote).await);
    assert!(!ask("6", Some("7"), &promote).await, "the cluster has changed");
    assert!(!ask("5", Some("8"), &promote).await, "the member has changed");
    assert!(!ask("5", None, &promote).await, "the member is gone");
    let elsewhere = Act::Promote { name: "b-x".to_owned(), member_id: 1, cluster_id: 1 };
    assert!(!ask("5", Some("7"), &elsewhere).await, "a member that the caches do not hold");
    let target = Target { name: named.clone(), uid: "u".to_owned(), resource_version: "7".to_owned() };
    let delete = Act::DeleteMember { member: target, why: "because".to_owned() };
    assert!(!ask("5", Some("7"), &delete).await, "a deletion needs everything");
}

#[tokio::test]
async fn nothing_is_written_where_another_install_has_its_lease() {
    let lease = serde_json::json!({"metadata": {"name": "holdfast", "uid": "l", "resourceVersion": "1"}});
    let answers = vec![("GET", "/ns/leases/holdfast", 200, lease), ("GET", CLUSTERS, 200, cluster())];
    let (result, fake) = pass_over(cluster(), answers).await;
    assert!(result.is_ok_and(|action| action != Action::await_change()));
    assert_eq!((fake.writes(), fake.reads().len()), (vec![], 1), "{:?}", fake.reads());
}

#[tokio::test]
async fn a_stale_writer_loses_and_does_nothing_else() {
    let list = |kind: &str| serde_json::json!({"apiVersion": "v1", "kind": kind, "metadata": {}, "items": []});
    let (result, fake) = pass_over(
        cluster(),
        vec![
            ("GET", CLUSTERS, 200, cluster()),
            ("GET", "/etcdmembers?", 200, list("EtcdMemberList")),
            ("GET", "/pods?", 200, list("PodList")),
            ("GET", "/persistentvolumeclaims?", 200, list("PersistentVolumeClaimList")),
            ("PUT", "/etcdclusters/a/status", 409, refusal(409, "Conflict")),
        ],
    )
    .await;
    assert_eq!(result, Err(Class::Conflict));
    let writes = fake.writes();
    assert_eq!(writes.len(), 1, "{writes:?}");
    assert_eq!(writes[0].body["metadata"]["resourceVersion"], "5");
    // The same write latches the first member's name, before any object of that member exists.
    assert!(writes[0].body["status"]["latches"]["pendingMember"].is_string(), "{}", writes[0].body);
}

/// A latch that an older CRD drops protects nothing: the operator does not even create the member.
#[tokio::test]
async fn nothing_is_done_while_the_definition_drops_fields_of_the_status() {
    let list = |kind: &str| serde_json::json!({"apiVersion": "v1", "kind": kind, "metadata": {}, "items": []});
    let mut pruned = cluster();
    pruned["status"] = serde_json::json!({"observedGeneration": 1});
    let answers = vec![
        ("GET", CLUSTERS, 200, cluster()),
        ("GET", "/etcdmembers?", 200, list("EtcdMemberList")),
        ("GET", "/pods?", 200, list("PodList")),
        ("GET", "/persistentvolumeclaims?", 200, list("PersistentVolumeClaimList")),
        ("PUT", "/etcdclusters/a/status", 200, pruned),
    ];
    let (result, fake) = pass_over(cluster(), answers).await;
    assert_eq!((result, fake.writes().len()), (Err(Class::Outdated), 1));
    let error = Error::DefinitionOutdated("EtcdCluster");
    fake.ctx.backoff.failed("EtcdCluster/ns/a", &error, clock::instant(), 0.5);
    let id = identify::<Clusters>(&serde_json::from_value(cluster()).unwrap());
    let told = decide::<Clusters>(&fake.ctx, &id, &holdfast_fixtures::formed(1, 1), clock::now());
    let degraded = told.status.conditions.iter().find(|c| c.type_ == "Degraded").unwrap();
    assert_eq!(degraded.reason, "DefinitionsOutdated");
    assert!(degraded.message.contains("holdfast manifests --only crds"), "{}", degraded.message);
}

#[test]
fn only_a_target_that_was_just_written_gets_the_new_version() {
    let target = |uid: &str| Target { name: "a".into(), uid: uid.into(), resource_version: "1".into() };
    let version = |act: &Act| match act {
        Act::ReleaseMember { member } => member.resource_version.clone(),
        other => panic!("{other:?}"),
    };
    let mut mine = Act::ReleaseMember { member: target("u") };
    rebase(&mut mine, "u", "2");
    assert_eq!(version(&mine), "2");
    let mut other = Act::ReleaseMember { member: target("v") };
    rebase(&mut other, "u", "2");
    assert_eq!(version(&other), "1");
}
