//! `CronJob`s that run the agent themselves: one for people to apply where there is no operator, and one as the operator
//! applies it for a schedule.
//!
//! Decides the names in a sample and the words above it. The `CronJob` comes from the operator's own builder and plan.

use jiff::Timestamp;
use serde_json::json;

use super::sample::{To, request};
use crate::api::cluster::{Formed, MemberSummary};
use crate::api::name::LocalRef;
use crate::api::schedule::EtcdSnapshotScheduleSpec;
use crate::api::snapshot::SnapshotTemplate;
use crate::api::tls::Tls;
use crate::api::{EtcdCluster, EtcdClusterSpec, EtcdClusterStatus, EtcdSnapshotSchedule, role};
use crate::plan::build::cron_job::{Recurring, cron_job};
use crate::plan::build::job::{AgentJob, Work};
use crate::plan::schedule::{Observed, plan};
use crate::plan::{Ensure, Proxies, Settings};

/// Every hour, not with the others at its beginning.
const SCHEDULE: &str = "7 * * * *";

const ALONE: &str = "\
# Saves any etcd every hour, without the operator and without its CRDs: kubectl apply -n NAMESPACE -f jobs/{file}
#
# Change, besides names and the image:
#   schedule        five fields, in quotes: minute, hour, day of month, month, day of week (0 is Sunday)
#   timeZone        the one the schedule is meant in
#   --endpoints     one line for each member; the agent picks a healthy follower
#                   (https://: mount a Secret with ca.crt, and tls.crt and tls.key if etcd asks for them, and add --tls-dir=FOLDER;
#                   users: one with username and password, and --auth-dir=FOLDER)
#   --namespace, --cluster   under which the snapshots are filed; free to choose, always the same for one etcd
{to_change}
#
# Now and by hand: kubectl create job --from=cronjob/my-etcd-save my-etcd-before-upgrade
# What is stored: holdfast agent list --store=URL --namespace=prod --cluster=my-etcd. Nothing stored is ever overwritten or removed.
";

const OF_SCHEDULE: &str = "\
# The CronJob that the operator applies for this EtcdSnapshotSchedule, to read: apply the EtcdSnapshotSchedule instead.
# It goes on while the operator is down. The operator puts changes of it back.
#
#   apiVersion: holdfast.dev/v1alpha1
#   kind: EtcdSnapshotSchedule
#   metadata: {name: nightly}
#   spec:
#     clusterRef: {name: my-etcd}
#     schedule: \"7 * * * *\"
#     snapshotTemplate: {destination: {s3: {bucket: backups, ...}}}
";

/// In quotes: `* * * * *` without them is no YAML.
fn text(heading: &str, cron: &impl serde::Serialize) -> Result<String, serde_saphyr::ser::Error> {
    let object = super::yaml(&[json!(cron)])?;
    let object = object.replace(&format!("schedule: {SCHEDULE}\n"), &format!("schedule: \"{SCHEDULE}\"\n"));
    Ok(format!("{heading}{object}"))
}

pub(super) fn without_operator(file: &str, image: &str) -> Result<String, serde_saphyr::ser::Error> {
    let name = "my-etcd-save".to_owned();
    let cron = cron_job(&Recurring {
        job: AgentJob::of(name, Work::Save(request()), To::S3.destination(), image.to_owned()),
        template: None,
        schedule: SCHEDULE.to_owned(),
        time_zone: "Etc/UTC".to_owned(),
        suspend: false,
        starting_deadline: 600,
        failed_limit: 3,
    });
    let heading = ALONE.replace("{file}", file).replace("{to_change}", To::S3.to_change());
    text(&heading, &cron)
}

pub(super) fn of_schedule(image: &str) -> Result<String, serde_saphyr::ser::Error> {
    let planned = plan(&seen(image), Timestamp::UNIX_EPOCH);
    let cron = planned.ensures.iter().find_map(|ensure| match ensure {
        Ensure::CronJob(cron) => Some(cron.as_ref()),
        _ => None,
    });
    text(OF_SCHEDULE, &cron)
}

/// A schedule of a cluster of three, as the operator sees it.
fn seen(image: &str) -> Observed {
    let named = |name: &str| Some(name.to_owned());
    let spec = EtcdSnapshotScheduleSpec {
        cluster_ref: Some(LocalRef { name: "my-etcd".to_owned() }),
        schedule: SCHEDULE.to_owned(),
        snapshot_template: SnapshotTemplate { destination: To::S3.destination().into(), ..SnapshotTemplate::default() },
        ..EtcdSnapshotScheduleSpec::default()
    };
    let mut schedule = EtcdSnapshotSchedule::new("nightly", spec);
    (schedule.metadata.namespace, schedule.metadata.uid) = (named("prod"), named("UID-OF-THE-SCHEDULE"));
    let of = EtcdClusterSpec {
        replicas: 3,
        version: "3.6.16".to_owned(),
        tls: Some(Tls { insecure: Some(true), ..Tls::default() }),
        ..EtcdClusterSpec::default()
    };
    let mut cluster = EtcdCluster::new("my-etcd", of);
    (cluster.metadata.namespace, cluster.metadata.uid) = (named("prod"), named("UID-OF-THE-CLUSTER"));
    let members = ["my-etcd-x2z4b", "my-etcd-7kq9d", "my-etcd-m5wpt"].map(|name| MemberSummary {
        name: name.to_owned(),
        role: named(role::VOTER),
        ..MemberSummary::default()
    });
    let mut status = EtcdClusterStatus { members: members.to_vec(), ..EtcdClusterStatus::default() };
    status.latches.formed = Some(Formed { cluster_id: "cdf818194e3a8c32".to_owned(), ..Formed::default() });
    cluster.status = Some(status);
    Observed {
        schedule,
        cluster: Some(cluster),
        store: None,
        cron_job: None,
        jobs: vec![],
        snapshots: vec![],
        recalls: vec![],
        restores: vec![],
        held: vec![],
        settings: Settings {
            agent_image: image.to_owned(),
            etcd_repository: String::new(),
            proxies: Proxies::default(),
            cluster_domain: None,
            pod_run_as: crate::api::pod_security::RunAs::default(),
        },
    }
}
