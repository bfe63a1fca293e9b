//! The Job that puts keys back: the Pod of a schedule's runs, with another request.
//!
//! Decides the request's lineage, and which parts of the Pod stay: image, etcd, user, placement and proxies are those of the backups.
//! The store is opened for reading. The plugin creates the Job with the rights of a person; no plan makes one.

use holdfast_api::name::LocalRef;
use holdfast_api::snapshot::Spool;
use holdfast_api::store::Location;
use holdfast_api::{EtcdCluster, key};
use holdfast_contract::{REQUEST, Request, UndeleteRequest};
use holdfast_layout::Folder;
use k8s_openapi::api::batch::v1::{CronJob, Job, JobSpec};
use k8s_openapi::api::core::v1::{Container, PodSpec, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::external::VOLUMES;
use super::super::request::{of_container, with_request};
use super::super::{progress_port, store};
use super::rehearsal::{SCRATCH, scratch};
use super::{CONTAINER, DEADLINE_SLACK_SECONDS, Kind, failure_policy};
use crate::meta;

/// The wanted Job, beside the schedule's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct UndeleteJob {
    /// Name of the Job.
    pub name: String,
    /// The request, without etcd, store and lineage.
    pub request: UndeleteRequest,
    /// The store of the schedule, with the Secret for reading.
    pub location: Location,
    /// Secrets with age identities.
    pub identities: Vec<LocalRef>,
    /// Volume of the restored point; absent: the node's disk.
    pub scratch: Option<Spool>,
}

/// Returns the lineage of a cluster below a store.
pub fn lineage(cluster: &EtcdCluster) -> Option<String> {
    let (meta, name) = (&cluster.metadata, meta::name(&cluster.metadata));
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let folder = Folder::of_lineage(namespace, name, Some(meta::uid(meta)), 0);
    folder.ok().map(|folder| folder.to_string())
}

/// Returns the Job; `None`: the `CronJob` is not one that saves.
pub fn undelete(cron: &CronJob, want: &UndeleteJob) -> Option<Job> {
    let template = cron.spec.as_ref()?.job_template.clone();
    let pods = template.spec?.template;
    let spec = pods.spec?;
    let Request::Save(save) = of_container(Some(&spec), CONTAINER)? else { return None };
    let opened = store::open(&want.location, Kind::Undelete.row().uses).with_identities(&want.identities);
    let (volume, mount) = scratch(want.scratch.as_ref());
    let request = UndeleteRequest {
        etcd: save.etcd,
        store: opened.flags,
        expect_store_id: save.expect_store_id,
        age_identity_dirs: opened.identity_dirs,
        scratch: SCRATCH.into(),
        progress_port: progress_port(),
        ..want.request.clone()
    };
    let deadline = i64::from(request.deadline_seconds.unwrap_or_default()) + DEADLINE_SLACK_SECONDS;
    let request = Request::Undelete(request);
    let reaches_etcd = |name: &str| VOLUMES.contains(&name);
    let container = |container: Container| {
        let mounts = container.volume_mounts.into_iter().flatten().filter(|mount| reaches_etcd(&mount.name));
        let mounts: Vec<VolumeMount> = mounts.chain(opened.mounts.clone()).chain([mount.clone()]).collect();
        let env = container.env.into_iter().flatten().filter(|variable| variable.name != REQUEST).collect();
        with_request(Container { volume_mounts: Some(mounts), env: Some(env), ..container }, "/holdfast", &request)
    };
    let volumes: Vec<Volume> = spec.volumes.into_iter().flatten().filter(|volume| reaches_etcd(&volume.name)).collect();
    let pod = PodSpec {
        containers: spec.containers.into_iter().map(container).collect(),
        volumes: Some(volumes.into_iter().chain(opened.volumes.clone()).chain([volume]).collect()),
        ..spec
    };
    let labels = |meta: Option<ObjectMeta>| {
        let mut labels = meta.and_then(|meta| meta.labels).unwrap_or_default();
        // The operator records each Job of a schedule as a run.
        labels.remove(key::SCHEDULE);
        Some(labels)
    };
    Some(Job {
        metadata: ObjectMeta {
            name: Some(want.name.clone()),
            namespace: cron.metadata.namespace.clone(),
            labels: labels(template.metadata),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            // A person waits, and repeats the command.
            backoff_limit: Some(Kind::Undelete.row().retries),
            active_deadline_seconds: Some(deadline),
            ttl_seconds_after_finished: Some(Kind::Undelete.row().kept_seconds),
            pod_failure_policy: Some(failure_policy(false)),
            pod_replacement_policy: Some("Failed".to_owned()),
            template: k8s_openapi::api::core::v1::PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    annotations: pods.metadata.as_ref().and_then(|meta| meta.annotations.clone()),
                    labels: labels(pods.metadata),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod),
            },
            ..JobSpec::default()
        }),
        status: None,
    })
}

#[cfg(test)]
mod tests {
    use holdfast_api::snapshot::External;
    use holdfast_api::store::S3Location;
    use holdfast_contract::SaveRequest;

    use super::super::super::cron_job::{Recurring, cron_job};
    use super::super::AgentJob;
    use super::*;

    fn location(secret: &str) -> Location {
        let credentials_secret_ref = Some(LocalRef { name: secret.to_owned() });
        Location::S3(S3Location { bucket: "b".to_owned(), credentials_secret_ref, ..S3Location::default() })
    }

    fn runs(work: Request) -> CronJob {
        let external = External {
            endpoints: vec!["https://m1:2379".to_owned()],
            tls_secret_ref: Some(LocalRef { name: "orders-operator-tls".to_owned() }),
            ..External::default()
        };
        let job = AgentJob::new("orders-hourly".to_owned(), work, location("writes"), "agent:1".to_owned());
        let spool = Spool {
            size: k8s_openapi::apimachinery::pkg::api::resource::Quantity("1Gi".to_owned()),
            ..Spool::default()
        };
        cron_job(&Recurring {
            job: AgentJob {
                namespace: Some("shop".to_owned()),
                schedule: Some("hourly".to_owned()),
                cluster: Some("orders".to_owned()),
                external: Some(external),
                spool: Some(spool),
                ..job
            },
            template: Some("{}".to_owned()),
            schedule: "7 * * * *".to_owned(),
            time_zone: "Etc/UTC".to_owned(),
            suspend: false,
            starting_deadline: 100,
            failed_limit: 1,
        })
    }

    fn want() -> UndeleteJob {
        UndeleteJob {
            name: "orders-undelete-1".to_owned(),
            request: UndeleteRequest {
                from: "shop/orders/1a2b3c4d".to_owned(),
                prefix: Some("$(x)".to_owned()),
                deadline_seconds: Some(600),
                ..UndeleteRequest::default()
            },
            location: location("reads"),
            identities: vec![LocalRef { name: "age".to_owned() }],
            scratch: None,
        }
    }

    #[test]
    fn the_pod_of_a_backup_gets_another_request_and_the_store_for_reading() {
        let save = SaveRequest { expect_store_id: Some("id-12345".to_owned()), ..SaveRequest::default() };
        let job = undelete(&runs(Request::Save(save)), &want()).unwrap();
        let Some(Request::Undelete(request)) = super::super::request_of(&job) else { panic!() };
        assert_eq!(request.etcd.endpoints, ["https://m1:2379"]);
        assert_eq!(request.etcd.tls_dir.as_deref(), Some("/etc/holdfast/etcd-tls".as_ref()));
        assert_eq!((request.store.url.as_str(), request.expect_store_id.as_deref()), ("s3://b", Some("id-12345")));
        assert_eq!((request.prefix.as_deref(), request.scratch.to_str()), (Some("$(x)"), Some(SCRATCH)));
        assert_eq!(request.age_identity_dirs, ["/etc/holdfast/identities/0"].map(std::path::PathBuf::from));
        let (meta, spec) = (&job.metadata, job.spec.as_ref().unwrap());
        assert_eq!((meta.name.as_deref(), meta.namespace.as_deref()), (Some("orders-undelete-1"), Some("shop")));
        assert_eq!((&meta.owner_references, &meta.annotations), (&None, &None));
        for labels in [&meta.labels, &spec.template.metadata.as_ref().unwrap().labels] {
            let labels = labels.as_ref().unwrap();
            assert_eq!((labels.get(key::SCHEDULE), labels[key::CLUSTER].as_str()), (None, "orders"));
        }
        assert_eq!(
            (spec.backoff_limit, spec.active_deadline_seconds, spec.ttl_seconds_after_finished),
            (Some(0), Some(720), Some(3600))
        );
        let pod = spec.template.spec.as_ref().unwrap();
        let names: Vec<&str> = pod.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect();
        assert_eq!(
            names,
            ["etcd-tls", "credentials", "identities-0", "scratch"],
            "no spool, and no Secret for writing"
        );
        let secrets: Vec<_> =
            pod.volumes.iter().flatten().filter_map(|volume| volume.secret.as_ref()?.secret_name.as_deref()).collect();
        assert_eq!(secrets, ["orders-operator-tls", "reads", "age"]);
        let container = &pod.containers[0];
        let mounts: Vec<&str> = container.volume_mounts.iter().flatten().map(|mount| mount.name.as_str()).collect();
        assert_eq!((mounts, container.image.as_deref()), (names, Some("agent:1")));
        assert_eq!(container.env.iter().flatten().filter(|variable| variable.name == REQUEST).count(), 1);
        assert_eq!((Kind::of_job(&job), container.ports.as_ref().unwrap().len()), (Kind::Undelete, 1));
    }

    #[test]
    fn only_the_runs_of_a_schedule_have_an_etcd() {
        let compacts = Request::Compact(holdfast_contract::CompactRequest::default());
        assert_eq!(undelete(&runs(compacts), &want()), None);
        assert_eq!(undelete(&CronJob::default(), &want()), None);
        let mut cluster = EtcdCluster::default();
        assert_eq!(lineage(&cluster), None, "without a name");
        cluster.metadata = ObjectMeta {
            name: Some("orders".to_owned()),
            namespace: Some("shop".to_owned()),
            uid: Some("1A2b3c4d-9999".to_owned()),
            ..ObjectMeta::default()
        };
        assert_eq!(lineage(&cluster).as_deref(), Some("shop/orders/1a2b3c4d"));
    }
}
