//! What one pass over an `EtcdSnapshot` sees: the object, its cluster, its Job and the Job's Pods.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::owned_by;
use crate::api::{EtcdCluster, EtcdSnapshot, name};
use crate::operator::error::Error;
use crate::operator::stores::{Only, Reader};
use crate::plan::snapshot::Observed;

/// The label that the Job controller puts on its Pods.
const JOB_UID: &str = "batch.kubernetes.io/controller-uid";

/// The snapshot of this name and UID with its Job; `None` when it is gone.
pub(in crate::operator) async fn observe(
    reader: Reader<'_>,
    named: &str,
    uid: &str,
) -> Result<Option<Observed>, Error> {
    let Some(snapshot) = reader.get::<EtcdSnapshot>(named).await?.filter(|s| s.uid().as_deref() == Some(uid)) else {
        return Ok(None);
    };
    let job_name = name::job(named, uid);
    let (cluster, job) =
        futures::try_join!(reader.get::<EtcdCluster>(&snapshot.spec.cluster_ref.name), reader.get::<Job>(&job_name),)?;
    let mut pods: Vec<Pod> = match job.as_ref().and_then(ResourceExt::uid) {
        Some(job_uid) => reader.list::<Pod>(Only::Label(JOB_UID, &job_uid), |pod| owned_by(pod, &job_uid)).await?,
        None => vec![],
    };
    pods.sort_by_key(|pod| pod.creation_timestamp().map(|at| at.0));
    Ok(Some(Observed { snapshot, cluster, job, pods, settings: reader.ctx.settings.clone() }))
}
