//! Objects of an earlier cluster in the way of a new cluster of the same name.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::*;

/// Returns a new cluster of this age, with the objects that its predecessor left.
fn anew(age: i64) -> Observed {
    let mut seen = bare(3);
    seen.cluster.metadata.creation_timestamp = Some(Time(noon() - SignedDuration::from_secs(age)));
    for service in [&mut seen.peer_service, &mut seen.client_service] {
        owner(&mut service.as_mut().unwrap().metadata).uid = "u-before".to_owned();
    }
    seen
}

fn owner(meta: &mut ObjectMeta) -> &mut OwnerReference {
    &mut meta.owner_references.as_mut().unwrap()[0]
}

fn after(seen: &Observed, now: Timestamp) -> (Reason, String, Wake) {
    let plan = plan(seen, now);
    safety::cluster(seen, &plan).unwrap();
    assert_eq!(plan.act, None);
    assert!(plan.ensures.iter().all(|ensure| matches!(ensure, holdfast_base::Ensure::Budget(_))), "{:?}", plan.ensures);
    let waiting = plan.waiting.unwrap();
    (waiting.reason, waiting.message, plan.wake)
}

#[test]
fn what_the_garbage_collector_takes_is_waited_for() {
    let seen = anew(1);
    let (reason, message, wake) = after(&seen, noon());
    assert_eq!((reason, wake), (Reason::WaitingForReference, Wake::AfterMillis(119_000)));
    assert_eq!(message, "Kubernetes deletes objects of the earlier cluster of this name: Service a, Service a-client");
    assert_eq!(condition(&seen, "Degraded"), pair("False", "NothingWrong"));
    // Objects that stay become a conflict.
    let (reason, message, _) = after(&seen, noon() + SignedDuration::from_secs(119));
    assert_eq!(reason, Reason::NameConflict);
    assert!(message.contains("Service a, Service a-client. Holdfast does not change"), "{message}");
    let mut gone = anew(1);
    (gone.peer_service, gone.client_service) = (None, None);
    assert_eq!(plan(&gone, noon()).ensures.len(), 2, "then they are made");
}

#[test]
fn what_nobody_takes_away_is_a_conflict_at_once() {
    type Change = fn(&mut ObjectMeta);
    let changes: [(&str, Change); 5] = [
        ("nobody's", |m| m.owner_references = None),
        ("orphaned", |m| owner(m).controller = None),
        ("of another kind", |m| owner(m).kind = "Deployment".to_owned()),
        ("of another cluster", |m| owner(m).name = "b".to_owned()),
        ("of another operator", |m| owner(m).api_version = "example.org/v1".to_owned()),
    ];
    for (what, change) in changes {
        let mut seen = anew(1);
        change(&mut seen.client_service.as_mut().unwrap().metadata);
        let (reason, message, _) = after(&seen, noon());
        assert_eq!(reason, Reason::NameConflict, "{what}");
        assert!(message.contains("Service a-client"), "{what}: {message}");
    }
    assert_eq!(after(&anew(120), noon()).0, Reason::NameConflict, "an older cluster");
}
