//! Objects of a cluster: the fields that matter.

use std::path::Path;

use holdfast_api::EtcdMember;
use holdfast_api::agent::{Agent, PodMetadata};
use holdfast_api::cluster::{CompactionMode, ExtraEnv, Image, LogLevel, Options, Placement};
use holdfast_api::name::LocalRef;
use holdfast_api::pod_security::PodSecurity;
use holdfast_api::restore::{RestorePoint, Restoring};
use holdfast_api::store::{Location, PvcLocation, S3Location};
use holdfast_api::transport::Transport;
use holdfast_contract::{Request, StoreFlags};
use k8s_openapi::api::core::v1::{Affinity, Container, Pod, PodSpec, ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::etcd_args::etcd_args;
use super::pod::{Start, pod};
use super::store::{Use, open};
use super::*;

use crate::fixtures::{etcd_cluster, flags, flags_in, joined_member, pod_of, restoring, settings, stored};
use crate::{Proxies, Settings, pods, valid};

fn newcomer(version: &str) -> EtcdMember {
    let mut cluster = etcd_cluster(3);
    version.clone_into(&mut cluster.spec.version);
    let mut member = member::joiner(&cluster, "a-m1");
    stored(&mut member.metadata, "u-a-m1");
    member
}

fn args(member: &EtcdMember) -> Vec<String> {
    etcd_args(member, &valid::member(member).unwrap(), "a-m2=http://x:2380")
}

fn s3() -> Location {
    Location::S3(S3Location {
        bucket: "backups".to_owned(),
        prefix: Some("team/a".to_owned()),
        endpoint: Some("https://s3.example.org".to_owned()),
        ca_ref: Some(LocalRef { name: "ca".to_owned() }),
        credentials_secret_ref: Some(LocalRef { name: "keys".to_owned() }),
        ..S3Location::default()
    })
}

/// A seed's Pod with a restore step from S3.
fn restoring_pod() -> Pod {
    decrypting_pod(&[])
}

/// The same, with these Secrets for decryption.
fn decrypting_pod(identities: &[&str]) -> Pod {
    pod_that_restores(identities, None)
}

fn pod_that_restores(identities: &[&str], agent: Option<Agent>) -> Pod {
    pod_made_by(&settings(), identities, agent)
}

fn pod_made_by(settings: &Settings, identities: &[&str], agent: Option<Agent>) -> Pod {
    let mut member = member::seed(&etcd_cluster(1), "a-m0", Some(restoring("k")));
    stored(&mut member.metadata, "u-a-m0");
    let store = s3();
    let mut restoring = member.spec.restore.clone().unwrap();
    restoring.identity_secret_refs = identities.iter().map(|name| LocalRef { name: (*name).to_owned() }).collect();
    restoring.agent = agent;
    let start = Start {
        claim_uid: "u-claim",
        initial_cluster: "a-m0=http://a-m0.a.ns.svc:2380",
        may_start_empty: true,
        found: true,
        restore: Some((&restoring, &store)),
    };
    pod(&member, &valid::member(&member).unwrap(), &member.spec.placement, &start, settings)
}

fn spec(pod: &Pod) -> &PodSpec {
    pod.spec.as_ref().unwrap()
}

fn containers(pod: &Pod) -> Vec<&Container> {
    spec(pod).init_containers.iter().flatten().chain(&spec(pod).containers).collect()
}

#[test]
fn flags_follow_the_minor() {
    let has = |version: &str, flag: &str| args(&newcomer(version)).iter().any(|a| a == flag);
    assert!(has("3.5.35", "--experimental-compact-hash-check-enabled=true"));
    assert!(!has("3.5.4", "--experimental-compact-hash-check-enabled=true"), "it came with 3.5.5");
    for version in ["3.6.16", "3.7.3"] {
        assert!(has(version, "--feature-gates=CompactHashCheck=true"));
        assert!(has(version, "--max-learners=9"));
        assert!(!args(&newcomer(version)).iter().any(|a| a.contains("experimental")), "{version}");
    }
    assert!(!args(&newcomer("3.5.35")).iter().any(|a| a.contains("max-learners") || a.contains("feature-gates")));
}

#[test]
fn a_member_says_who_and_where_it_is() {
    let args = args(&newcomer("3.6.16"));
    for flag in [
        "--name=a-m1",
        "--data-dir=/var/lib/etcd/data",
        "--listen-metrics-urls=http://0.0.0.0:2381",
        "--initial-advertise-peer-urls=http://a-m1.a.ns.svc:2380",
        "--advertise-client-urls=http://a-m1.a.ns.svc:2379",
        "--initial-cluster=a-m2=http://x:2380",
        "--initial-cluster-token=ns-a-u-a",
        "--quota-backend-bytes=3758096384",
    ] {
        assert!(args.iter().any(|a| a == flag), "{flag} in {args:?}");
    }
    // I2: the gate alone decides whether a cluster is new.
    assert!(!args.iter().any(|a| a.contains("initial-cluster-state")));
}

#[test]
fn options_become_flags() {
    let mut member = newcomer("3.6.16");
    member.spec.process.options = Some(Options {
        quota_backend_bytes: Some(1 << 30),
        auto_compaction_mode: Some(CompactionMode::Periodic),
        auto_compaction_retention: Some("1h".to_owned()),
        snapshot_count: Some(5000),
        heartbeat_interval: Some(150),
        election_timeout: Some(1500),
        max_request_bytes: Some(1 << 21),
        max_txn_ops: Some(256),
        max_concurrent_streams: Some(250),
        log_level: Some(LogLevel::Warn),
        extra_args: Some(vec!["--warning-apply-duration=1s".to_owned()]),
        extra_env: Some(vec![ExtraEnv { name: "GOGC".to_owned(), value: "50".to_owned() }]),
    });
    member.spec.process.service_account_name = Some("etcd".to_owned());
    let pod = crate::fixtures::pod_of(&member);
    let env = spec(&pod).containers[0].env.as_ref().unwrap();
    assert!(env.iter().any(|v| v.name == "GOGC" && v.value.as_deref() == Some("50")), "{env:?}");
    assert_eq!(spec(&pod).service_account_name.as_deref(), Some("etcd"));
    let args = args(&member);
    for flag in [
        "--quota-backend-bytes=1073741824",
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=1h",
        "--snapshot-count=5000",
        "--heartbeat-interval=150",
        "--election-timeout=1500",
        "--max-request-bytes=2097152",
        "--max-txn-ops=256",
        "--max-concurrent-streams=250",
        "--log-level=warn",
        "--warning-apply-duration=1s",
    ] {
        assert_eq!(args.iter().filter(|a| *a == flag).count(), 1, "{flag}");
    }
}

#[test]
fn every_container_is_restricted() {
    let pod = restoring_pod();
    assert_eq!(containers(&pod).iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), container::ALL);
    for one in containers(&pod) {
        let security = one.security_context.as_ref().unwrap();
        assert_eq!(security.allow_privilege_escalation, Some(false), "{}", one.name);
        assert_eq!(security.read_only_root_filesystem, Some(true));
        assert_eq!(security.capabilities.as_ref().unwrap().drop, Some(vec!["ALL".to_owned()]));
        assert_eq!(one.termination_message_policy.as_deref(), Some("FallbackToLogsOnError"));
        assert!(one.resources.as_ref().unwrap().requests.as_ref().unwrap().contains_key("memory"));
    }
    let security = spec(&pod).security_context.as_ref().unwrap();
    assert_eq!(
        (security.run_as_non_root, security.run_as_user, security.fs_group),
        (Some(true), Some(USER), Some(USER))
    );
    assert_eq!(security.seccomp_profile.as_ref().unwrap().type_, "RuntimeDefault");
    assert_eq!(spec(&pod).automount_service_account_token, Some(false));
    assert_eq!(spec(&pod).enable_service_links, Some(false));
}

#[test]
fn the_gate_stands_before_etcd_and_the_restore_runs_in_etcds_image() {
    let pod = restoring_pod();
    let [install, restore, etcd] = containers(&pod)[..] else { panic!() };
    assert_eq!(install.image.as_deref(), Some("agent:1"));
    assert_eq!(install.args.as_deref(), Some(&["install".to_owned(), "--to=/holdfast-bin/holdfast".to_owned()][..]));
    for one in [restore, etcd] {
        assert_eq!(one.image.as_deref(), Some("example.org/etcd:v3.6.16"));
        assert_eq!(one.command, Some(["/holdfast-bin/holdfast", "agent", "run"].map(str::to_owned).to_vec()));
        assert_eq!(one.args, None);
    }
    assert!(matches!(request::read(restore), Some(Request::Restore(_))));
    let Some(Request::Gate(gate)) = request::read(etcd) else { panic!() };
    assert_eq!((gate.exec[0].as_str(), gate.seed), ("/usr/local/bin/etcd", true));
    assert!(gate.exec.contains(&"--name=a-m0".to_owned()));
}

#[test]
fn a_point_is_asked_for_by_its_flags() {
    let flags = |at: Option<RestorePoint>| {
        let mut member = member::seed(&etcd_cluster(1), "a-m0", Some(Restoring { at, ..restoring("k") }));
        stored(&mut member.metadata, "u-a-m0");
        let store = s3();
        let restoring = member.spec.restore.clone().unwrap();
        let start = Start {
            claim_uid: "u-claim",
            initial_cluster: "a-m0=http://a-m0.a.ns.svc:2380",
            may_start_empty: true,
            found: true,
            restore: Some((&restoring, &store)),
        };
        let server = valid::member(&member).map_err(|refusal| refusal.to_string())?;
        let pod = pod(&member, &server, &member.spec.placement, &start, &settings());
        let args = flags(containers(&pod)[1]);
        Ok::<_, String>(
            args.into_iter().filter(|arg| arg.starts_with("--at-") || arg.starts_with("--allow")).collect::<Vec<_>>(),
        )
    };
    let time = |time: &str| Some(RestorePoint { time: Some(time.to_owned()), ..RestorePoint::default() });
    let of_users = RestorePoint { revision: Some(9), allow_auth_changed: true, ..RestorePoint::default() };
    assert_eq!(flags(None).unwrap(), [] as [&str; 0]);
    assert_eq!(flags(Some(of_users)).unwrap(), ["--allow-auth-changed", "--at-revision=9"]);
    assert_eq!(flags(time("2026-11-28T12:42:07+02:00")).unwrap(), ["--at-time=2026-11-28T10:42:07Z"]);
    // A restore without its point would bring other data.
    assert!(flags(time("yesterday")).unwrap_err().contains("spec.restore.at: time \"yesterday\" is not a time"));
}

#[test]
fn a_proxy_is_told_to_the_step_that_speaks_to_the_store_alone() {
    let proxies = Proxies { https: Some("http://proxy:3128".to_owned()), ..Proxies::default() };
    let pod = pod_made_by(&Settings { proxies, ..settings() }, &[], None);
    let told = containers(&pod).into_iter().map(|one| format!("{:?}", one.env).contains("\"HTTPS_PROXY\""));
    assert_eq!(told.collect::<Vec<_>>(), [false, true, false]);
}

#[test]
fn secrets_are_files_that_may_be_missing_when_a_member_reboots() {
    let pod = restoring_pod();
    let volumes = spec(&pod).volumes.as_ref().unwrap();
    let secrets: Vec<_> = volumes.iter().filter_map(|v| v.secret.as_ref()).collect();
    assert_eq!(secrets.len(), 2);
    for secret in secrets {
        assert_eq!((secret.optional, secret.default_mode), (Some(true), Some(0o400)));
    }
    let [_, restore, etcd] = containers(&pod)[..] else { panic!() };
    let quota = "--quota-backend-bytes=3758096384".to_owned();
    assert!([restore, etcd].into_iter().all(|one| flags(one).contains(&quota)), "both have the same");
    let mounts = |c: &Container| c.volume_mounts.iter().flatten().map(|m| m.name.clone()).collect::<Vec<_>>();
    assert!(mounts(restore).contains(&"credentials".to_owned()));
    assert!(!mounts(etcd).contains(&"credentials".to_owned()), "etcd never sees them");
    assert!(flags(restore).contains(&"--store=s3://backups/team/a".to_owned()));
    assert!(flags(restore).contains(&"--s3-ca-file=/etc/holdfast/ca/ca.crt".to_owned()));
    // The Pod of a save waits for its Secrets instead.
    assert_eq!(open(&s3(), Use::Save).volumes[0].secret.as_ref().unwrap().optional, None);
}

#[test]
fn identities_are_mounted_one_secret_beside_the_other_where_data_is_read_back_and_nowhere_else() {
    let pod = decrypting_pod(&["age-old", "age-new"]);
    let [install, restore, etcd] = containers(&pod)[..] else { panic!() };
    for (number, secret) in ["age-old", "age-new"].into_iter().enumerate() {
        let name = format!("identities-{number}");
        let volume = spec(&pod).volumes.iter().flatten().find(|v| v.name == name).unwrap().secret.as_ref().unwrap();
        assert_eq!(volume.secret_name.as_deref(), Some(secret));
        assert_eq!((volume.optional, volume.default_mode), (Some(true), Some(0o400)));
        let path = format!("/etc/holdfast/identities/{number}");
        assert!(flags(restore).contains(&format!("--age-identity-dir={path}")));
        let mounted = |c: &Container| c.volume_mounts.iter().flatten().find(|m| m.name == name).cloned();
        let mount = mounted(restore).unwrap();
        assert_eq!((mount.mount_path, mount.read_only), (path, Some(true)));
        assert_eq!((mounted(install), mounted(etcd)), (None, None), "nobody else sees them");
    }
    let without = restoring_pod();
    assert!(!format!("{without:?}").contains("identities"), "a restore without them has a Pod as before");
}

#[test]
fn a_backup_volume_is_read_only_for_a_restore() {
    let pvc = Location::Pvc(PvcLocation { claim_name: "backups".to_owned(), sub_path: Some("team/a".to_owned()) });
    let opened = open(&pvc, Use::Restore);
    assert_eq!(opened.flags.url, "file:///backup/team/a");
    assert_eq!(opened.mounts[0].read_only, Some(true));
    assert_eq!(opened.mounts[0].sub_path, None);
    assert_eq!(opened.volumes[0].persistent_volume_claim.as_ref().unwrap().read_only, Some(true));
    assert_eq!(open(&pvc, Use::Save).mounts[0].read_only, None);
}

#[test]
fn the_volume_of_a_survivor_is_mounted_read_only_and_no_store_is_named() {
    let survivor = Restoring { survivor: Some("a-m2".to_owned()), ..restoring("a-m2") };
    let mut member = member::seed(&etcd_cluster(1), "a-m7", Some(survivor));
    stored(&mut member.metadata, "u-a-m7");
    let made = pod_of(&member);
    let [_, restore, _] = containers(&made)[..] else { panic!() };
    let Some(Request::Restore(asked)) = request::read(restore) else { panic!() };
    assert_eq!(asked.from_volume.as_deref(), Some(Path::new("/backup")));
    assert_eq!((asked.store, asked.key.as_str()), (StoreFlags::default(), ""));
    assert_eq!(asked.etcd.as_deref(), Some(Path::new("/usr/local/bin/etcd")));
    let mounted = restore.volume_mounts.iter().flatten().find(|it| it.name == "backup").unwrap();
    assert_eq!(mounted.read_only, Some(true));
    let volume = spec(&made).volumes.iter().flatten().find(|it| it.name == "backup").unwrap();
    assert_eq!(volume.persistent_volume_claim.as_ref().unwrap().read_only, None, "it gets the fsGroup");
}

#[test]
fn joiners_start_after_those_before_them() {
    let member = newcomer("3.6.16");
    let everybody = "a-m0=http://m0:2380,a-m1=http://m1:2380,a-m2=http://m2:2380";
    let made = |may_start_empty| {
        let start = Start { claim_uid: "u", initial_cluster: everybody, may_start_empty, found: false, restore: None };
        pod(&member, &valid::member(&member).unwrap(), &Placement::default(), &start, &settings())
    };
    let after = |pod: &Pod| -> Vec<String> {
        let all = flags_in(pod, container::ETCD).unwrap();
        all.iter().filter(|a| a.starts_with("--after")).cloned().collect()
    };
    assert_eq!(after(&made(true)), ["--after=http://m0:2380"]);
    assert!(after(&made(false)).is_empty());
    assert!(!pods::may_start_empty(&made(false)));
}

#[test]
fn placement_is_handed_through_and_members_keep_apart_by_default() {
    let member = newcomer("3.6.16");
    let start = Start { claim_uid: "u", initial_cluster: "x", may_start_empty: true, found: false, restore: None };
    let made = |placement: &Placement| {
        pod(&member, &valid::member(&member).unwrap(), placement, &start, &settings()).spec.unwrap()
    };
    let apart = made(&Placement::default()).affinity.unwrap().pod_anti_affinity.unwrap();
    assert_eq!(apart.preferred_during_scheduling_ignored_during_execution.unwrap().len(), 2);
    assert_eq!(apart.required_during_scheduling_ignored_during_execution, None);
    let own = Placement {
        affinity: Some(Affinity::default()),
        tolerations: Some(vec![Toleration { key: Some("t".to_owned()), ..Toleration::default() }]),
        priority_class_name: Some("high".to_owned()),
        ..Placement::default()
    };
    let made = made(&own);
    assert_eq!(made.affinity, own.affinity);
    assert_eq!(made.tolerations, own.tolerations);
    assert_eq!(made.priority_class_name, own.priority_class_name);
}

#[test]
fn a_digest_wins_over_the_tag() {
    let image = |repository: Option<&str>, digest: Option<&str>| Image {
        repository: repository.map(str::to_owned),
        digest: digest.map(str::to_owned),
        pull_policy: None,
    };
    assert_eq!(etcd_image(None, "3.6.16", "r"), "r:v3.6.16");
    assert_eq!(etcd_image(Some(&image(Some("m"), None)), "3.6.16", "r"), "m:v3.6.16");
    assert_eq!(etcd_image(Some(&image(None, Some("sha256:0"))), "3.6.16", "r"), "r@sha256:0");
}

/// Whether a selector selects a Pod.
fn picks(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(k, v)| labels.get(k) == Some(v))
}

#[test]
fn services_have_the_families_that_are_asked_for() {
    let mut cluster = etcd_cluster(3);
    let families = |cluster: &EtcdCluster| {
        [service::peer(cluster), service::client(cluster)].map(|service| service.spec.unwrap().ip_family_policy)
    };
    assert_eq!(families(&cluster), [None, None]);
    cluster.spec.ip_family_policy = Some(holdfast_api::family::IpFamilyPolicy::PreferDualStack);
    assert_eq!(families(&cluster), ["PreferDualStack"; 2].map(|policy| Some(policy.to_owned())));
}

#[test]
fn services_pick_members_of_this_very_cluster() {
    let cluster = etcd_cluster(3);
    let member = joined_member(&cluster, 0);
    let learner = crate::fixtures::pod_of(&EtcdMember {
        spec: {
            let mut s = member.spec.clone();
            s.joined = None;
            s
        },
        ..member.clone()
    });
    let learner = learner.metadata.labels.unwrap();
    let peers = service::peer(&cluster).spec.unwrap();
    let clients = service::client(&cluster).spec.unwrap();
    assert_eq!((peers.cluster_ip.as_deref(), peers.publish_not_ready_addresses), (Some("None"), Some(true)));
    assert!(picks(&peers.selector.clone().unwrap(), &learner));
    assert!(!picks(&clients.selector.clone().unwrap(), &learner), "clients never reach a learner");
    let mut voter = learner;
    voter.insert(key::ROLE.to_owned(), holdfast_api::role::VOTER.to_owned());
    assert!(picks(&clients.selector.clone().unwrap(), &voter));
    // A Pod of an earlier cluster with the same name, still running.
    voter.insert(key::CLUSTER_UID.to_owned(), "older".to_owned());
    assert!(!picks(&clients.selector.unwrap(), &voter));
    assert!(!picks(&peers.selector.unwrap(), &voter));
}

#[test]
fn children_say_whose_they_are_and_gitops_does_not_prune_them() {
    let cluster = etcd_cluster(3);
    let member = joined_member(&cluster, 0);
    let metas = [
        service::peer(&cluster).metadata,
        service::client(&cluster).metadata,
        budget::budget(&cluster, 3, 3).unwrap().metadata,
        member.metadata.clone(),
        pvc::claim(&member).metadata,
    ];
    for meta in &metas {
        let labels = meta.labels.as_ref().unwrap();
        assert!(!labels.contains_key("app.kubernetes.io/instance"));
        assert_eq!(labels.get(key::CLUSTER_UID).map(String::as_str), Some("u-a"));
        assert_eq!(meta.namespace.as_deref(), Some("ns"));
    }
    for meta in &metas[..4] {
        let owner = &meta.owner_references.as_ref().unwrap()[0];
        assert_eq!((owner.uid.as_str(), owner.controller, owner.block_owner_deletion), ("u-a", Some(true), Some(true)));
        assert_eq!((owner.api_version.as_str(), owner.kind.as_str()), ("holdfast.dev/v1alpha1", "EtcdCluster"));
    }
    assert_eq!(metas[4].owner_references, None);
    assert_eq!(budget::budget(&cluster, 1, 3), None);
}

#[test]
fn added_labels_and_annotations_reach_every_owned_object_and_replace_none_of_ours() {
    let pairs = |all: &[(&str, &str)]| all.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let mut cluster = etcd_cluster(3);
    cluster.spec.additional_metadata = Some(PodMetadata {
        labels: pairs(&[("team", "a"), (key::CLUSTER, "mine"), (key::ROLE, "voter")]),
        annotations: pairs(&[("note", "x"), (key::JOINED, "y")]),
    });
    cluster.spec.pod_metadata = Some(PodMetadata { labels: pairs(&[("team", "b")]), ..PodMetadata::default() });
    let member = member::joiner(&cluster, "a-x");
    let pod = crate::fixtures::pod_of(&member).metadata;
    for (meta, team) in [
        (service::peer(&cluster).metadata, "a"),
        (service::client(&cluster).metadata, "a"),
        (budget::budget(&cluster, 3, 3).unwrap().metadata, "a"),
        (member.metadata.clone(), "a"),
        (pod, "b"),
    ] {
        let (labels, annotations) = (meta.labels.unwrap(), meta.annotations.unwrap());
        assert_eq!(labels.get("team").map(String::as_str), Some(team));
        assert_eq!(labels.get(key::CLUSTER).map(String::as_str), Some("a"));
        assert_ne!(labels.get(key::ROLE).map(String::as_str), Some("voter"));
        assert_eq!(annotations.get("note").map(String::as_str), Some("x"));
        assert_eq!(annotations.get(key::JOINED), None);
    }
    // A tool that prunes by a label, such as Argo CD, deletes objects without an owner.
    let claim = pvc::claim(&member).metadata;
    assert_eq!((claim.labels.unwrap().get("team"), claim.annotations, claim.owner_references), (None, None, None));
}

#[test]
fn a_restore_runs_under_its_own_account_and_takes_nothing_of_ours_away() {
    let labels = [(key::ROLE, "voter"), ("azure.workload.identity/use", "true")];
    let agent = Agent {
        service_account_name: Some("reader".to_owned()),
        pod_metadata: Some(PodMetadata {
            labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            annotations: [(key::STARTED.to_owned(), "9".to_owned())].into(),
        }),
        resources: Some(ResourceRequirements {
            limits: Some([("memory".to_owned(), Quantity("2Gi".to_owned()))].into()),
            ..ResourceRequirements::default()
        }),
        ..Agent::default()
    };
    let (plain, pod) = (restoring_pod(), pod_that_restores(&[], Some(agent)));
    let mut expected = plain.metadata.labels.unwrap();
    expected.insert("azure.workload.identity/use".to_owned(), "true".to_owned());
    assert_eq!((pod.metadata.labels, pod.metadata.annotations), (Some(expected), plain.metadata.annotations));
    let (spec, plain) = (pod.spec.unwrap(), plain.spec.unwrap());
    assert_eq!((spec.service_account_name.as_deref(), plain.service_account_name), (Some("reader"), None));
    assert_eq!(spec.automount_service_account_token, Some(false));
    let limit = |container: &Container| container.resources.as_ref()?.limits.as_ref()?.get("memory").cloned();
    let steps = spec.init_containers.unwrap();
    assert_eq!(limit(&steps[1]), Some(Quantity("2Gi".to_owned())));
    assert_eq!((limit(&steps[0]), limit(&spec.containers[0])), (None, None));
}

/// For a person who waits for the restore.
#[test]
fn a_restore_answers_about_its_progress() {
    let spec = pod_that_restores(&[], None).spec.unwrap();
    let ports = |container: &Container| -> Vec<i32> {
        container.ports.iter().flatten().map(|port| port.container_port).collect()
    };
    let restore = &spec.init_containers.as_ref().unwrap()[1];
    assert_eq!((restore.name.as_str(), ports(restore)), ("restore", vec![port::PROGRESS]));
    assert!(flags(restore).contains(&format!("--progress-port={}", port::PROGRESS)));
    assert!(!ports(&spec.containers[0]).contains(&port::PROGRESS), "etcd answers no such question");
}

/// 3.5 uses another flag name for the skipped comparison; an unknown flag is a crash loop.
#[test]
fn certificates_in_arguments_for_each_minor() {
    for (version, skip) in [
        ("3.5.35", "--experimental-peer-skip-client-san-verification=true"),
        ("3.6.16", "--peer-skip-client-san-verification=true"),
        ("3.7.3", "--peer-skip-client-san-verification=true"),
    ] {
        let mut secured = newcomer(version);
        secured.spec.tls = Some(holdfast_api::tls::MemberTls::default());
        let secured = args(&secured);
        for wanted in [
            skip,
            "--listen-peer-urls=https://0.0.0.0:2380",
            "--listen-client-urls=https://0.0.0.0:2379",
            "--listen-metrics-urls=http://0.0.0.0:2381",
            "--advertise-client-urls=https://a-m1.a.ns.svc:2379",
            "--initial-advertise-peer-urls=https://a-m1.a.ns.svc:2380",
            "--client-cert-auth=true",
            "--peer-client-cert-auth=true",
            "--peer-cert-allowed-hostname=peer.a.ns.svc",
            "--trusted-ca-file=/etc/holdfast/tls/client-ca.crt",
            "--peer-trusted-ca-file=/etc/holdfast/tls/peer-ca.crt",
        ] {
            assert!(secured.iter().any(|arg| arg == wanted), "{version}: {wanted} is not in {secured:?}");
        }
        let plain = args(&newcomer(version));
        assert!(!plain.iter().any(|arg| arg.contains("cert") || arg.contains("https")), "{plain:?}");
    }
}

/// Between plaintext and TLS both work for clients, and the peers' port changes alone.
#[test]
fn the_ports_of_a_member_on_its_way_to_tls() {
    for (transport, peers) in [(Transport::PeersPlaintext, "http"), (Transport::ClientsPlaintext, "https")] {
        let mut member = newcomer("3.6.16");
        member.spec.tls = Some(holdfast_api::tls::MemberTls::default());
        member.spec.process.transport = Some(transport);
        let there = args(&member);
        for wanted in [
            format!("--listen-peer-urls={peers}://0.0.0.0:2380"),
            format!("--initial-advertise-peer-urls={peers}://a-m1.a.ns.svc:2380"),
            "--listen-client-urls=https://0.0.0.0:2379,http://0.0.0.0:2379".to_owned(),
            "--advertise-client-urls=https://a-m1.a.ns.svc:2379,http://a-m1.a.ns.svc:2379".to_owned(),
            "--peer-cert-file=/etc/holdfast/tls/peer.crt".to_owned(),
        ] {
            assert!(there.contains(&wanted), "{transport:?}: {wanted} is not in {there:?}");
        }
        // etcd compares the URL with the initial cluster at the first start.
        let listed = etcd_args(&member, &valid::member(&member).unwrap(), "a-m1=http://a-m1.a.ns.svc:2380");
        assert!(listed.iter().any(|arg| arg == "--initial-advertise-peer-urls=http://a-m1.a.ns.svc:2380"));
        let pod = crate::fixtures::pod_of(&member);
        assert_eq!(crate::pods::transport(&pod), transport);
    }
    let mut member = newcomer("3.6.16");
    member.spec.tls = Some(holdfast_api::tls::MemberTls::default());
    assert_eq!(crate::pods::transport(&crate::fixtures::pod_of(&member)), Transport::Tls);
    member.spec.process.transport = Some(Transport::Plaintext);
    let plain = args(&member);
    assert!(!plain.iter().any(|arg| arg.contains("cert") || arg.contains("https")), "{plain:?}");
    assert_eq!(crate::pods::transport(&crate::fixtures::pod_of(&member)), Transport::Plaintext);
}

#[test]
fn the_user_of_a_member_is_the_clusters_else_the_operators() {
    let member = newcomer("3.6.16");
    let start = Start { claim_uid: "u", initial_cluster: "x", may_start_empty: true, found: false, restore: None };
    let named = |run_as| Placement { pod_security: Some(PodSecurity { run_as }), ..Placement::default() };
    for (cluster, operator, user) in [
        (Placement::default(), RunAs::Fixed, Some(USER)),
        (Placement::default(), RunAs::Unset, None),
        (named(None), RunAs::Unset, None),
        (named(Some(RunAs::Unset)), RunAs::Fixed, None),
        (named(Some(RunAs::Fixed)), RunAs::Unset, Some(USER)),
    ] {
        let settings = Settings { pod_run_as: operator, ..settings() };
        let pod = pod(&member, &valid::member(&member).unwrap(), &cluster, &start, &settings);
        let security = spec(&pod).security_context.as_ref().unwrap();
        let users = [security.run_as_user, security.run_as_group, security.fs_group];
        assert_eq!((security.run_as_non_root, users), (Some(true), [user; 3]), "{cluster:?} {operator:?}");
    }
}
