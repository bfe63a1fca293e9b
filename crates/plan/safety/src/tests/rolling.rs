//! Rolling changes: deliberate breaches.

use holdfast_api::EtcdSnapshot;
use holdfast_api::cluster::Options;
use holdfast_api::member::Resize;
use holdfast_api::name::LocalRef;
use holdfast_api::repair::{Evidence, Loss};
use holdfast_api::snapshot::{DeletionPolicy, EtcdSnapshotSpec};
use holdfast_api::template::{FailedTemplate, Template};
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::*;
use holdfast_base::objects::resources::of_member;
use holdfast_base::template;

/// A cluster of this size with an edited spec; the last member has the new template, and its Pod the old one.
fn rolling(voters: usize) -> Cluster {
    let mut seen = formed(voters, i32::try_from(voters).unwrap());
    seen.cluster.spec.options = Some(Options { snapshot_count: Some(7), ..Options::default() });
    let wanted = template::wanted(&seen.cluster);
    let spec = &mut seen.members[voters - 1].object.spec;
    spec.template = Some(template::fingerprint(&wanted));
    spec.process.options = wanted.options;
    seen
}

fn evict(seen: &Cluster, n: usize) -> Act {
    Act::EvictPod { pod: pod_target(seen, n), why: String::new() }
}

fn delete(seen: &Cluster, n: usize) -> Act {
    Act::DeletePod { pod: pod_target(seen, n), why: String::new() }
}

fn set(seen: &Cluster, n: usize, template: Template, served: Option<Template>) -> Act {
    let member = target(&seen.members[n].object.metadata);
    Act::SetTemplate { member, template: Box::new(template), served: served.map(Box::new) }
}

#[test]
fn a_pod_ends_only_beside_voters_that_are_well() {
    let seen = rolling(3);
    assert_eq!(broken(&seen, evict(&seen, 2)), None);
    assert_eq!(broken(&seen, evict(&seen, 1)), Some("I1"), "its Pod has the template of its member");
    assert_eq!(broken(&seen, delete(&seen, 2)), Some("I1"), "three voters have a budget");
    let breach = |change: fn(&mut Cluster)| {
        let mut seen = rolling(3);
        change(&mut seen);
        broken(&seen, evict(&seen, 2))
    };
    assert_eq!(breach(|seen| drop(seen.answers.insert(named(1), Seen::unknown("refused")))), Some("I1"));
    assert_eq!(breach(|seen| running(seen.members[1].pod.as_mut().unwrap(), false)), Some("I1"));
    assert_eq!(breach(|seen| etcd(seen).leader = Some(0x12)), Some("I1"));
    assert_eq!(breach(|seen| seen.etcd = Seen::unknown("timed out")), Some("I1"));
    assert_eq!(breach(|seen| seen.members[0].claim = None), Some("I4"));
    assert_eq!(breach(|seen| etcd(seen).members[1].learner = true), Some("I11"));
    assert_eq!(breach(|seen| seen.cluster.spec.paused = true), Some("I13"));
    let two = rolling(2);
    assert_eq!((broken(&two, delete(&two, 1)), broken(&two, evict(&two, 1))), (None, None));
}

#[test]
fn a_template_comes_from_the_spec_and_fits_the_data() {
    let mut seen = rolling(3);
    let wanted = template::wanted(&seen.cluster);
    let own = seen.members[0].object.spec.process.clone();
    assert_eq!(broken(&seen, set(&seen, 0, wanted.clone(), Some(own.clone()))), Some("I1"), "another one has its turn");
    seen.members[2].pod = Some(pod_of(&seen.members[2].object));
    assert_eq!(broken(&seen, set(&seen, 0, wanted.clone(), Some(own.clone()))), None);
    let other = Template { version: "3.6.15".to_owned(), ..wanted.clone() };
    assert_eq!(broken(&seen, set(&seen, 0, other, Some(own.clone()))), Some("I13"));
    assert_eq!(broken(&seen, set(&seen, 0, wanted.clone(), Some(wanted.clone()))), Some("I1"), "it never served");
    let mut minor = seen.clone();
    minor.cluster.spec.version = "3.7.3".to_owned();
    let newer = template::wanted(&minor.cluster);
    assert_eq!(broken(&minor, set(&minor, 0, newer, Some(own.clone()))), Some("I30"));
    let mut failed = seen.clone();
    latches(&mut failed).failed_template =
        Some(FailedTemplate { template: template::fingerprint(&wanted), ..FailedTemplate::default() });
    assert_eq!(broken(&failed, set(&failed, 0, wanted.clone(), Some(own.clone()))), Some("I1"));
    let mut tried = seen.clone();
    tried.members[2].pod = None;
    assert_eq!(broken(&tried, set(&tried, 0, wanted.clone(), Some(own.clone()))), Some("I1"), "another one tries it");
    // A member without its data starts with no template: the next member does not wait for it.
    running(tried.members[0].pod.as_mut().unwrap(), false);
    let status = tried.members[0].pod.as_mut().unwrap().status.as_mut().unwrap();
    status.container_statuses.as_mut().unwrap()[0].restart_count = 2;
    assert_eq!(broken(&tried, set(&tried, 0, wanted.clone(), Some(own.clone()))), Some("I1"), "another one tries it");
    let refused = Evidence { kind: Loss::VolumeRefused, ..Evidence::default() };
    tried.members[2].object.status = Some(EtcdMemberStatus { evidence: Some(refused), ..EtcdMemberStatus::default() });
    assert_eq!(broken(&tried, set(&tried, 0, wanted.clone(), Some(own.clone()))), None);
    // The template that served is forgotten only for one that serves.
    let mut kept = seen.clone();
    kept.members[2].object.spec.served = Some(own);
    running(kept.members[2].pod.as_mut().unwrap(), false);
    assert_eq!(broken(&kept, set(&kept, 2, wanted, None)), Some("I1"));
}

#[test]
fn a_members_pass_ends_no_pod_in_which_etcd_runs() {
    let cluster = formed(3, 3);
    let mut object = cluster.members[1].object.clone();
    object.spec.template = Some("another".to_owned());
    let mut seen = Member {
        pod: cluster.members[1].pod.clone(),
        claim: cluster.members[1].claim.clone(),
        cluster: Seen::Known(Some(cluster.cluster.clone())),
        settings: cluster.settings.clone(),
        member: object,
    };
    let delete =
        |seen: &Member| Act::DeletePod { pod: target(&seen.pod.as_ref().unwrap().metadata), why: String::new() };
    assert_eq!(wrong(&seen, delete(&seen)), Some("I1"));
    seen.pod.as_mut().unwrap().status = None;
    assert_eq!(wrong(&seen, delete(&seen)), None);
    seen.member.spec.template = cluster.members[1].object.spec.template.clone();
    assert_eq!(wrong(&seen, delete(&seen)), Some("I1"));
}

#[test]
fn a_running_pod_gets_resources_in_order_and_beside_voters_that_are_well() {
    let mut seen = formed(3, 3);
    let requests = [("cpu".to_owned(), Quantity("300m".to_owned()))].into();
    seen.cluster.spec.resources = Some(ResourceRequirements { requests: Some(requests), ..Default::default() });
    let wanted = template::wanted(&seen.cluster);
    template::put(&mut seen.members[2].object, &wanted);
    let print = template::fingerprint(&wanted);
    let begin =
        |seen: &Cluster, template: &str| Act::BeginResize { pod: pod_target(seen, 2), template: template.to_owned() };
    let resources = Box::new(of_member(&seen.members[2].object));
    let resize = |seen: &Cluster| Act::ResizePod { pod: pod_target(seen, 2), resources: resources.clone() };
    let note = |seen: &mut Cluster, note: Resize| {
        let annotations = seen.members[2].pod.as_mut().unwrap().metadata.annotations.get_or_insert_default();
        annotations.insert(key::TEMPLATE.to_owned(), print.clone());
        annotations.insert(key::RESIZE.to_owned(), note.as_str().to_owned());
    };
    assert_eq!(broken(&seen, begin(&seen, &print)), None);
    assert_eq!(broken(&seen, begin(&seen, "another")), Some("I1"));
    assert_eq!(broken(&seen, resize(&seen)), Some("I1"), "the Pod has no mark");
    assert_eq!(broken(&seen, Act::EndResize { pod: pod_target(&seen, 2), differs: None }), Some("I1"));
    let mut asked = seen.clone();
    note(&mut asked, Resize::Asked);
    assert_eq!(broken(&asked, resize(&asked)), None);
    let other = Act::ResizePod { pod: pod_target(&asked, 2), resources: Box::default() };
    assert_eq!(broken(&asked, other), Some("I1"), "not the member's resources");
    let breach = |change: fn(&mut Cluster)| {
        let mut seen = asked.clone();
        change(&mut seen);
        broken(&seen, resize(&seen))
    };
    assert_eq!(breach(|seen| drop(seen.answers.insert(named(1), Seen::unknown("refused")))), Some("I1"));
    assert_eq!(breach(|seen| running(seen.members[1].pod.as_mut().unwrap(), false)), Some("I1"));
    assert_eq!(breach(|seen| seen.cluster.spec.paused = true), Some("I13"));
    let mut process = seen.clone();
    process.members[2].object.spec.process.options = Some(Options { snapshot_count: Some(7), ..Options::default() });
    assert_eq!(broken(&process, begin(&process, &print)), Some("I1"), "another option needs another process");
    note(&mut seen, Resize::Accepted);
    assert_eq!(broken(&seen, Act::EndResize { pod: pod_target(&seen, 2), differs: None }), None);
}

#[test]
fn a_snapshot_is_requested_of_this_cluster_to_a_known_place_before_an_upgrade() {
    let mut seen = formed(3, 3);
    let request = |change: fn(&mut EtcdSnapshot)| {
        let mut snapshot = EtcdSnapshot::new("a-1", EtcdSnapshotSpec::default());
        snapshot.metadata.namespace = Some("ns".to_owned());
        snapshot.spec.cluster_ref = Some(LocalRef { name: "a".to_owned() });
        change(&mut snapshot);
        Act::RequestSnapshot(Box::new(snapshot))
    };
    seen.backup = Some(EtcdSnapshot::new("nightly", EtcdSnapshotSpec::default()));
    assert_eq!(broken(&seen, request(|_| {})), Some("I30"), "the spec asks for no upgrade");
    seen.cluster.spec.version = "3.7.3".to_owned();
    assert_eq!(broken(&seen, request(|_| {})), None);
    for (breach, why) in [
        (request(|s| s.spec.cluster_ref = Some(LocalRef { name: "b".to_owned() })), "I13"),
        (request(|s| s.metadata.namespace = Some("other".to_owned())), "I13"),
        (request(|s| s.spec.template.deadline_seconds = Some(7)), "I13"),
        (request(|s| s.spec.deletion_policy = DeletionPolicy::Delete), "I6"),
    ] {
        assert_eq!(broken(&seen, breach), Some(why));
    }
    seen.backup = None;
    assert_eq!(broken(&seen, request(|_| {})), Some("I13"), "no earlier snapshot names a place");
}
