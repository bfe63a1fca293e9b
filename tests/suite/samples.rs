//! The samples of `jobs/` are written by hand: Kubernetes must know their fields, and this binary their commands.

use std::fs;
use std::path::Path;

use clap::{Parser as _, ValueEnum as _};
use holdfast::cli::{Agent, Cli, Command, LogVerb, Snapshot};
use holdfast_contract::{Failure, ProofLevel, Retry, StoreFlags, VerifyRequest};
use holdfast_manifests::IMAGE;
use holdfast_manifests::jobs::{Sample, samples};
use holdfast_plugin::snapshot::FAILED;
use holdfast_store::Store;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::{CronJob, Job, JobSpec};
use k8s_openapi::api::core::v1::{Container, PodSpec, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Exit code of a program with unknown flags (clap's code).
const USAGE: i32 = 2;

/// Reads an object as its type: a misspelt field does not survive, and the comparison fails.
fn typed<T: DeserializeOwned + Serialize>(object: &Value) -> T {
    let typed: T = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(&serde_json::to_value(&typed).unwrap(), object);
    typed
}

fn words(words: &Option<Vec<String>>) -> Vec<String> {
    words.clone().unwrap()
}

/// Exit codes of the agent with which another Pod cannot help.
fn final_codes_of_the_agent() -> Vec<i32> {
    let ends = Failure::by_code().into_iter().filter(|failure| failure.retry != Retry::Again);
    std::iter::once(USAGE).chain(ends.map(|failure| failure.code.into())).collect()
}

/// Checks that the Job of a sample runs with this image as it stands, and stops retrying where a retry cannot help.
fn check_job(spec: &JobSpec, image: &str) {
    let pod = spec.template.spec.as_ref().unwrap();
    let [container] = &pod.containers[..] else { panic!("one container: {pod:?}") };
    let own = pod.init_containers.iter().flatten().next().unwrap_or(container);
    assert_eq!(own.image.as_deref(), Some(image));
    let cli = Cli::try_parse_from([words(&container.command), words(&container.args)].concat()).unwrap();
    let final_codes: Vec<i32> = match cli.command {
        Command::Agent(Agent::Save(request)) => {
            assert!(i64::from(request.deadline_seconds) < spec.active_deadline_seconds.unwrap());
            check_mounts(pod, container, &request.store);
            check_store(request.store);
            final_codes_of_the_agent()
        }
        Command::Agent(Agent::Defrag(request)) => {
            assert!(i64::from(request.deadline_seconds) < spec.active_deadline_seconds.unwrap());
            assert!(!request.dry_run && request.etcd.endpoints.len() == 3);
            final_codes_of_the_agent()
        }
        Command::Agent(Agent::Verify(request)) => {
            assert!(i64::from(request.deadline_seconds) < spec.active_deadline_seconds.unwrap());
            assert!(request.search().is_some() && request.level == ProofLevel::Drill && !request.no_proof);
            check_drill(pod, container, &request);
            check_store(request.snapshot.store.unwrap());
            final_codes_of_the_agent()
        }
        Command::Agent(Agent::Compact(request)) => {
            assert!(i64::from(request.deadline_seconds) < spec.active_deadline_seconds.unwrap());
            assert!(
                container.volume_mounts.iter().flatten().any(|mount| request.scratch.starts_with(&mount.mount_path))
            );
            check_mounts(pod, container, &request.store);
            check_store(request.store);
            final_codes_of_the_agent()
        }
        Command::Snapshot(Snapshot::Create(flags)) => {
            let request = flags.request().unwrap();
            assert!(request.wait.is_some() && request.access.namespace.is_none());
            vec![USAGE, FAILED.into()]
        }
        other => panic!("{other:?}"),
    };
    let rules = &spec.pod_failure_policy.as_ref().unwrap().rules;
    let codes = rules.iter().find(|rule| rule.action == "FailJob").unwrap().on_exit_codes.as_ref().unwrap();
    assert_eq!((&codes.container_name, &codes.values), (&Some(container.name.clone()), &final_codes));
    check_pod(pod);
    check_restricted(container);
}

fn check_pod(pod: &PodSpec) {
    let security = pod.security_context.as_ref().unwrap();
    assert_eq!(security.run_as_non_root, Some(true));
    assert_eq!(security.seccomp_profile.as_ref().unwrap().type_, "RuntimeDefault");
}

/// Checks that one Pod records a log, with a folder for its spool.
fn check_log(deployment: &Deployment, image: &str) {
    let spec = deployment.spec.as_ref().unwrap();
    assert_eq!((spec.replicas, spec.strategy.as_ref().unwrap().type_.as_deref()), (Some(1), Some("Recreate")));
    let labels = spec.template.metadata.as_ref().unwrap().labels.as_ref().unwrap();
    assert!(spec.selector.match_labels.iter().flatten().all(|(name, value)| labels.get(name) == Some(value)));
    let pod = spec.template.spec.as_ref().unwrap();
    let [container] = &pod.containers[..] else { panic!("one container: {pod:?}") };
    assert_eq!(container.image.as_deref(), Some(image));
    let cli = Cli::try_parse_from([words(&container.command), words(&container.args)].concat()).unwrap();
    let Command::Agent(Agent::Log(verb)) = cli.command else { panic!("{:?}", cli.command) };
    let LogVerb::Record(request) = *verb else { panic!("{verb:?}") };
    check_mounts(pod, container, &request.store);
    let written = container.volume_mounts.iter().flatten().filter(|mount| mount.read_only != Some(true));
    assert_eq!(written.map(|mount| Path::new(&mount.mount_path)).collect::<Vec<_>>(), [request.spool_dir.as_path()]);
    let port = container.ports.iter().flatten().next().unwrap().container_port;
    assert_eq!(request.metrics_port.map(i32::from), Some(port));
    check_store(request.store);
    check_pod(pod);
    check_restricted(container);
}

fn check_restricted(container: &Container) {
    let security = container.security_context.as_ref().unwrap();
    assert_eq!((security.allow_privilege_escalation, security.read_only_root_filesystem), (Some(false), Some(true)));
    assert_eq!(security.capabilities.as_ref().unwrap().drop, Some(vec!["ALL".to_owned()]));
}

/// The agent finds credentials and volume where the Pod mounts them.
fn check_mounts(pod: &PodSpec, container: &Container, store: &StoreFlags) {
    let volumes: Vec<&str> = pod.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect();
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    assert!(mounts.iter().all(|mount| volumes.contains(&mount.name.as_str())), "{mounts:?}, {volumes:?}");
    for path in [&store.credentials_dir, &store.mount].into_iter().flatten() {
        assert!(mounts.iter().any(|mount| path.starts_with(&mount.mount_path)), "{path:?}, {mounts:?}");
    }
}

/// The init container copies the binary to the place from which the agent starts, beside etcd in etcd's own image.
fn check_drill(pod: &PodSpec, container: &Container, request: &VerifyRequest) {
    check_mounts(pod, container, request.snapshot.store.as_ref().unwrap());
    let [install] = pod.init_containers.as_deref().unwrap() else { panic!("one init container") };
    check_restricted(install);
    let cli = Cli::try_parse_from([words(&install.command), words(&install.args)].concat()).unwrap();
    let Command::Install(flags) = cli.command else { panic!("{:?}", cli.command) };
    assert_eq!(flags.to.unwrap().to_str(), Some(words(&container.command)[0].as_str()));
    assert!(container.image.as_ref().unwrap().contains("/etcd:v3."));
    let written = container.volume_mounts.iter().flatten().filter(|mount| mount.read_only != Some(true));
    assert_eq!(written.map(|mount| mount.mount_path.as_str()).collect::<Vec<_>>(), [request.scratch.to_str().unwrap()]);
}

/// The flags of the store go together; credentials and volume are the Pod's.
fn check_store(mut store: StoreFlags) {
    let volume = tempfile::tempdir().unwrap();
    store.credentials_dir = None;
    if let Some(mount) = &store.mount {
        store.url = store.url.replace(mount.to_str().unwrap(), volume.path().to_str().unwrap());
        store.mount = Some(volume.path().to_owned());
    }
    if store.url.starts_with("azure://") {
        store.azure_account = Some("account".to_owned());
    }
    Store::open(&store).unwrap();
}

#[test]
fn kubernetes_and_this_binary_take_each_sample() {
    let mut files: Vec<_> = Sample::value_variants().iter().map(|sample| file(*sample)).collect();
    files.sort();
    let folder = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs")).unwrap();
    let mut there: Vec<_> = folder.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    there.sort();
    assert_eq!(there, files, "each file is one of `holdfast jobs`");
    for sample in Sample::value_variants() {
        let text = samples(Some(*sample), "r/h:1");
        assert!(text.contains(&format!(" -f jobs/{}\n", file(*sample))) && !text.contains(IMAGE), "{text}");
        for word in ["ownerReferences", "--owner-uid", "--cluster-uid", "--expect-cluster-id", "resourceVersion"] {
            assert!(!text.contains(word), "{}: only the operator knows {word}", file(*sample));
        }
        for document in text.split("\n---\n") {
            let object: Value = serde_saphyr::from_str(document).unwrap();
            assert_eq!(object["metadata"].get("namespace"), None, "kubectl names the namespace");
            match object["kind"].as_str().unwrap() {
                "Job" => check_job(&typed::<Job>(&object).spec.unwrap(), "r/h:1"),
                "CronJob" => {
                    check_job(&typed::<CronJob>(&object).spec.unwrap().job_template.spec.unwrap(), "r/h:1");
                }
                "Deployment" => check_log(&typed::<Deployment>(&object), "r/h:1"),
                "ServiceAccount" => drop(typed::<ServiceAccount>(&object)),
                "Role" => drop(typed::<Role>(&object)),
                "RoleBinding" => drop(typed::<RoleBinding>(&object)),
                other => panic!("{other}"),
            }
        }
    }
}

fn file(sample: Sample) -> String {
    format!("{}.yaml", sample.to_possible_value().unwrap().get_name())
}
