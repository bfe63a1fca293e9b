//! A `CronJob` that makes `EtcdSnapshot`s, with a service account and a role of its own: recurring backups that people
//! read and edit.
//!
//! Decides what stands in the sample. Each run of it is one Job, and each Job makes one snapshot, whatever becomes of its
//! Pods: the snapshot has the Job's name.

use serde_json::{Value, json};

use crate::api::{GROUP, component, key};
use crate::plan::build::job::USAGE;
use crate::plan::build::{container_security, pod_security};
use crate::snapshot::FAILED;

/// The sample's cluster; everything is named after it.
const CLUSTER: &str = "my-etcd";

/// Every hour, not with the others at its beginning.
const SCHEDULE: &str = "7 * * * *";

const HEADING: &str = "\
# Has Holdfast save the EtcdCluster my-etcd every hour: kubectl apply -n NAMESPACE -f jobs/{file}
#
# Change, besides names and the image:
#   schedule        five fields, in quotes: minute, hour, day of month, month, day of week (0 is Sunday)
#   timeZone        the one the schedule is meant in
#   --cluster       the EtcdCluster, in the same namespace
#   --to            store://NAME of an EtcdBackupStore; pvc://CLAIM or pvc://CLAIM/FOLDER; or s3://BUCKET or s3://BUCKET/PREFIX, and then add
#                   --s3-credentials=SECRET, and --s3-endpoint=URL or --s3-region=REGION
#                   (holdfast snapshot create --help tells the rest)
#
# Each run makes one EtcdSnapshot with the name of its Job and waits for it, so `kubectl get jobs` shows which have failed.
# A run gives up after two hours, and after 10 seconds while the EtcdCluster or the store does not exist. Its EtcdSnapshot goes
# on waiting (Pending, REASON says for what), and so does one of every later run, until all of them are saved at once. To see those that wait, and to remove them, which takes no backup away:
#   kubectl get etcdsnap -n NAMESPACE --field-selector spec.clusterRef.name=my-etcd,status.phase=Pending
#   kubectl delete etcdsnap -n NAMESPACE --field-selector spec.clusterRef.name=my-etcd,status.phase=Pending
# Now and by hand: kubectl create job --from=cronjob/my-etcd-snapshot my-etcd-before-upgrade
# Nothing is ever deleted: neither the EtcdSnapshots (delete old ones as you like, what they stored stays) nor what is
# stored.
";

pub(super) fn text(file: &str, image: &str) -> Result<String, serde_saphyr::ser::Error> {
    // In quotes: `* * * * *` without them is no YAML.
    let objects = super::yaml(&objects(image))?;
    let objects = objects.replace(&format!("schedule: {SCHEDULE}\n"), &format!("schedule: \"{SCHEDULE}\"\n"));
    Ok(format!("{}{objects}", HEADING.replace("{file}", file)))
}

fn objects(image: &str) -> [Value; 4] {
    let name = format!("{CLUSTER}-snapshot");
    let metadata = json!({"name": name});
    [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, "automountServiceAccountToken": false}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": metadata,
            // `create` cannot be narrowed to names; `list` and `watch` are how it waits.
            "rules": [{
                "apiGroups": [GROUP],
                "resources": ["etcdsnapshots"],
                "verbs": ["create", "get", "list", "watch"],
            }],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name}],
        }),
        json!({
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": metadata,
            "spec": {
                "schedule": SCHEDULE,
                "timeZone": "Etc/UTC",
                // A snapshot that takes longer than the pause is not joined by a second one.
                "concurrencyPolicy": "Forbid",
                // After an outage one run makes up for those that were missed.
                "startingDeadlineSeconds": 600,
                "successfulJobsHistoryLimit": 3,
                "failedJobsHistoryLimit": 3,
                "jobTemplate": {"spec": {
                    "backoffLimit": 2,
                    // A little longer than the command waits by itself: it says how far the snapshot is, and this does not.
                    "activeDeadlineSeconds": 7320,
                    "podFailurePolicy": {"rules": [{
                        "action": "FailJob",
                        "onExitCodes": {"containerName": "create", "operator": "In", "values": [USAGE, FAILED]},
                    }]},
                    "template": {"metadata": {"labels": labels()}, "spec": pod(&name, image)},
                }},
            },
        }),
    ]
}

/// By which its Pods are known: no agent's and no member's.
pub(super) fn labels() -> Value {
    json!({(key::NAME): super::NAME, (key::COMPONENT): component::SNAPSHOT_CREATOR})
}

fn pod(account: &str, image: &str) -> Value {
    json!({
        "restartPolicy": "Never",
        "serviceAccountName": account,
        "automountServiceAccountToken": true,
        "enableServiceLinks": false,
        "securityContext": pod_security(),
        "containers": [{
            "name": "create",
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["/holdfast", "snapshot", "create"],
            "args": [
                format!("--cluster={CLUSTER}"),
                "--to=pvc://backups/etcd",
                "--wait",
            ],
            "env": [{
                "name": "HOLDFAST_SNAPSHOT_NAME",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/job-name']"}},
            }],
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
            "securityContext": container_security(),
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command, Snapshot};
    use clap::Parser;

    /// What is printed is what is read back.
    #[test]
    fn the_command_in_the_sample_is_one_of_ours() {
        let cron = &objects("r/h:1")[3];
        let container = &cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0];
        let words = |key: &str| -> Vec<String> {
            container[key].as_array().unwrap().iter().map(|w| w.as_str().unwrap().to_owned()).collect()
        };
        let Ok(Cli { command: Command::Snapshot(Snapshot::Create(flags)), .. }) =
            Cli::try_parse_from([words("command"), words("args")].concat())
        else {
            panic!("{container}")
        };
        let request = flags.request().unwrap();
        assert_eq!(request.spec.cluster_ref.unwrap().name, CLUSTER);
        assert!(request.wait.is_some() && request.namespace.is_none());
    }
}
