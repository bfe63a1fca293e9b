//! The requests that acts send, and the objects that acts leave alone.

use holdfast_api::key;
use holdfast_plan::{Ensure, Target, Unelectable};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use serde_json::{Value, json};

use super::*;
use crate::error::Class;
use crate::fake::{Answer, Asked, Fake, refusal};

const PODS: &str = "/api/v1/namespaces/ns/pods";
const CLAIMS: &str = "/persistentvolumeclaims/data-a-1";

fn actor() -> Actor {
    Actor { namespace: "ns".to_owned(), uid: "m1".to_owned() }
}

fn target(name: &str) -> Target {
    Target { name: name.to_owned(), uid: "u1".to_owned(), resource_version: "7".to_owned() }
}

fn owned_pod(owner: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {
        "name": "a-1", "namespace": "ns", "uid": "u1", "resourceVersion": "7",
        "ownerReferences": [{"apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdMember", "name": "a-1", "uid": owner}],
    }})
}

/// The object as it is after a write.
fn newer(mut object: Value) -> Value {
    object["metadata"]["resourceVersion"] = json!("8");
    object
}

fn pod(owner: &str) -> Box<Pod> {
    Box::new(serde_json::from_value(owned_pod(owner)).unwrap())
}

fn claim(labelled: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {
        "name": "data-a-1", "namespace": "ns", "uid": "u1", "resourceVersion": "7",
        "labels": {"holdfast.dev/member-uid": labelled},
    }})
}

async fn done(answers: Vec<Answer>, act: Act) -> (Result<Done, Class>, Vec<Asked>) {
    let fake = Fake::start(answers).await;
    let result = perform(&fake.ctx, &actor(), None, &act).await.map_err(|e| e.class());
    (result, fake.writes())
}

fn methods(writes: &[Asked]) -> Vec<&str> {
    writes.iter().map(|w| w.method.as_str()).collect()
}

#[tokio::test]
async fn a_new_object_is_posted() {
    let (result, writes) = done(vec![("POST", PODS, 201, owned_pod("m1"))], Act::CreatePod(pod("m1"))).await;
    assert_eq!(result, Ok(Done::Applied));
    assert_eq!(methods(&writes), ["POST"]);
    assert!(writes[0].path.contains("fieldManager=holdfast"), "{}", writes[0].path);
}

#[tokio::test]
async fn one_that_is_there_already_counts_when_it_is_ours() {
    let taken = ("POST", PODS, 409, refusal(409, "AlreadyExists"));
    let (result, _) = done(vec![taken.clone(), ("GET", PODS, 200, owned_pod("m1"))], Act::CreatePod(pod("m1"))).await;
    assert_eq!(result, Ok(Done::Already));
    let (result, _) = done(vec![taken, ("GET", PODS, 200, owned_pod("other"))], Act::CreatePod(pod("m1"))).await;
    assert_eq!(result, Err(Class::NameConflict));
}

#[tokio::test]
async fn nothing_is_made_for_somebody_else() {
    let (result, writes) = done(vec![("POST", PODS, 201, owned_pod("x"))], Act::CreatePod(pod("x"))).await;
    assert_eq!((result, writes.len()), (Err(Class::Internal), 0));
    let stray: PersistentVolumeClaim = serde_json::from_value(claim("x")).unwrap();
    let (result, writes) = done(vec![], Act::CreateClaim(Box::new(stray))).await;
    assert_eq!((result, writes.len()), (Err(Class::Internal), 0));
}

#[tokio::test]
async fn deletes_name_what_was_looked_at() {
    let act = || Act::DeleteClaim { claim: target("data-a-1"), why: "test".to_owned() };
    let (result, writes) =
        done(vec![("GET", CLAIMS, 200, claim("m1")), ("DELETE", CLAIMS, 200, claim("m1"))], act()).await;
    assert_eq!(result, Ok(Done::Applied));
    assert_eq!(writes[0].body["preconditions"], json!({"uid": "u1", "resourceVersion": "7"}));
    assert_eq!(writes[0].body["propagationPolicy"], "Background");
    assert_eq!(writes[0].body["gracePeriodSeconds"], Value::Null);
}

/// Kubernetes evicts no Pod that two budgets select, and answers 500 without their names.
#[tokio::test]
async fn a_refused_eviction_names_the_budgets_that_select_the_pod() {
    let mut pod = owned_pod("m1");
    pod["metadata"]["labels"] = json!({key::CLUSTER_UID: "m1", "app": "etcd"});
    let budget = |name: &str, app: &str| json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"selector": {"matchLabels": {"app": app}}}});
    let evicted = async |code: u16, said: Value, names: &[&str]| {
        let items: Vec<Value> =
            names.iter().map(|name| budget(name, "etcd")).chain([budget("b-other", "web")]).collect();
        let list =
            json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudgetList", "metadata": {}, "items": items});
        let get = ("GET", PODS, 200, pod.clone());
        let answers = vec![("POST", "/eviction", code, said), ("GET", "/poddisruptionbudgets", 200, list), get];
        done(answers, Act::EvictPod { pod: target("a-1"), why: "test".to_owned() }).await.0
    };
    let held = |result: Result<Done, Class>| match result {
        Ok(Done::Held(why)) => why,
        other => panic!("{other:?}"),
    };
    let two = held(evicted(500, refusal(500, ""), &["a-budget", "team"]).await);
    assert!(
        two.contains("PodDisruptionBudget a-budget, PodDisruptionBudget team") && !two.contains("b-other"),
        "{two}"
    );
    assert_eq!(evicted(500, refusal(500, "InternalError"), &["a-budget"]).await, Err(Class::Unavailable));
    let mut full = refusal(429, "TooManyRequests");
    full["details"] = json!({"causes": [{"reason": "DisruptionBudget", "message": "needs 3 and has 3"}]});
    assert!(held(evicted(429, full, &["team"]).await).contains("PodDisruptionBudget team;"));
}

#[tokio::test]
async fn what_is_gone_or_another_is_not_deleted() {
    let act = || Act::DeleteClaim { claim: target("data-a-1"), why: "test".to_owned() };
    let (result, writes) = done(vec![], act()).await;
    assert_eq!((result, writes.len()), (Ok(Done::Already), 0));
    let mut newer = claim("m1");
    newer["metadata"]["uid"] = json!("u2");
    let (result, writes) = done(vec![("GET", CLAIMS, 200, newer)], act()).await;
    assert_eq!((result, writes.len()), (Ok(Done::Already), 0));
    let (result, writes) = done(vec![("GET", CLAIMS, 200, claim("m2"))], act()).await;
    assert_eq!((result, writes.len()), (Err(Class::NameConflict), 0));
}

#[tokio::test]
async fn a_request_for_a_leader_is_taken_away_and_a_refusal_is_a_warning() {
    let path = "/apis/holdfast.dev/v1alpha1/namespaces/ns/etcdclusters";
    let cluster = json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "8"},
        "spec": {"replicas": 3, "version": "3.6.16"}});
    let end = |refused| Act::EndLeaderRequest { cluster: target("a"), member: "a-1".to_owned(), refused };
    let (result, writes) = done(vec![("PATCH", path, 200, cluster)], end(None)).await;
    assert_eq!(result, Ok(Done::Applied));
    let metadata = json!({"uid": "u1", "resourceVersion": "7", "annotations": {"holdfast.dev/move-leader": null}});
    assert_eq!(writes[0].body, json!({"metadata": metadata}));
    let carried_out = describe(&end(None));
    assert_eq!((carried_out.event, carried_out.warning), (None, false), "LeaderMoved says so");
    for (refused, why) in [(Unelectable::Absent, "no such member"), (Unelectable::Learner, "no vote yet")] {
        let refused = describe(&end(Some(refused)));
        assert_eq!((refused.event, refused.warning), (Some("LeaderRequestRefused"), true));
        assert!(refused.sentence.contains("a-1") && refused.sentence.contains(why), "{}", refused.sentence);
    }
}

#[tokio::test]
async fn patches_carry_their_guard() {
    let admit = || Act::AdmitClients { pod: target("a-1") };
    let (result, writes) = done(vec![("PATCH", PODS, 200, newer(owned_pod("m1")))], admit()).await;
    assert_eq!(result, Ok(Done::Applied));
    assert_eq!(
        writes[0].body,
        json!({"metadata": {"uid": "u1", "resourceVersion": "7", "labels": {"holdfast.dev/role": "voter"}}})
    );
    let relabel = Act::Relabel { pod: target("a-1"), labels: [("a".to_owned(), "b".to_owned())].into() };
    let (result, writes) = done(vec![("PATCH", PODS, 200, newer(owned_pod("m1")))], relabel).await;
    assert_eq!(result, Ok(Done::Applied));
    assert_eq!(writes[0].body, json!({"metadata": {"uid": "u1", "resourceVersion": "7", "labels": {"a": "b"}}}));
    let (result, _) = done(vec![("PATCH", PODS, 409, refusal(409, "Conflict"))], admit()).await;
    assert_eq!(result, Err(Class::Conflict));
    // The API server stores nothing where an admission policy removes the change.
    let (result, _) = done(vec![("PATCH", PODS, 200, owned_pod("m1"))], admit()).await;
    assert_eq!(result, Ok(Done::Already));
}

#[tokio::test]
async fn only_our_finalizer_goes() {
    let member = json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdMember",
        "metadata": {"name": "a-1", "namespace": "ns", "uid": "u1", "resourceVersion": "7",
            "finalizers": ["example.com/keep", "holdfast.dev/member"]},
        "spec": {"clusterRef": {"name": "a", "uid": "c1"}, "role": "seed", "version": "3.6.16", "clusterToken": "t"}});
    let path = "/etcdmembers/a-1";
    let (result, writes) = done(
        vec![("GET", path, 200, member.clone()), ("PATCH", path, 200, newer(member))],
        Act::ReleaseMember { member: target("a-1") },
    )
    .await;
    assert_eq!(result, Ok(Done::Applied));
    assert_eq!(writes[0].body["metadata"]["finalizers"], json!(["example.com/keep"]));
}

#[tokio::test]
async fn applies_leave_strangers_alone_and_name_what_they_change() {
    let service = |owner: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "ns", "uid": "s1",
            "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "a", "uid": owner}]}})
    };
    let path = "/services/a";
    let wanted = || -> Ensure { Ensure::Service(Box::new(serde_json::from_value::<Service>(service("m1")).unwrap())) };
    let patched = ("PATCH", path, 200, service("m1"));

    let fake = Fake::start(vec![("GET", path, 200, service("other")), patched.clone()]).await;
    let refused = ensure(&fake.ctx, &actor(), &wanted()).await.map_err(|e| e.class());
    assert_eq!((refused, fake.writes().len()), (Err(Class::NameConflict), 0));

    let fake = Fake::start(vec![("GET", path, 200, service("m1")), patched.clone()]).await;
    ensure(&fake.ctx, &actor(), &wanted()).await.unwrap();
    let write = fake.writes().remove(0);
    assert_eq!(write.body["metadata"]["uid"], "s1");
    assert!(write.path.contains("force=true"), "{}", write.path);

    let fake = Fake::start(vec![patched]).await;
    ensure(&fake.ctx, &actor(), &wanted()).await.unwrap();
    assert!(!fake.writes()[0].path.contains("force=true"));
}

#[tokio::test]
async fn who_does_not_lead_writes_nothing() {
    let fake = Fake::start(vec![("POST", PODS, 201, owned_pod("m1"))]).await;
    fake.leading.send_replace(false);
    let result = perform(&fake.ctx, &actor(), None, &Act::CreatePod(pod("m1"))).await.map_err(|e| e.class());
    assert_eq!((result, fake.writes().len()), (Err(Class::NotLeader), 0));
}

#[tokio::test]
async fn membership_is_not_changed_without_a_leader_to_ask() {
    let act = Act::AddLearner { name: "a".to_owned(), peer_url: "http://a:2380".to_owned(), cluster_id: 1 };
    assert_eq!(done(vec![], act).await.0, Err(Class::Etcd));
}
