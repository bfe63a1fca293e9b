//! Input of one pass over an `EtcdBackupStore`: the object, the versions of its Secrets, and the Job that probes the store.

use holdfast_api::EtcdBackupStore;
use holdfast_plan::store::{Observed, inputs, job_name, secrets};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use super::snapshot::{claim_users, pods_of, refusal};
use crate::error::Error;
use crate::reader::Reader;

/// Reads the store of this name and UID with its probe; `None` when the store is gone.
pub(crate) async fn observe(reader: Reader<'_>, named: &str, uid: &str) -> Result<Option<Observed>, Error> {
    let Some(store) = reader.get::<EtcdBackupStore>(named).await?.filter(|s| s.uid().as_deref() == Some(uid)) else {
        return Ok(None);
    };
    let versions = secrets(&store).into_iter().map(async |name| {
        let seen = reader.secret_version(&name).await?;
        Ok::<_, Error>((name, seen))
    });
    let secrets = futures::future::try_join_all(versions).await?.into_iter().collect();
    let job = reader.get::<Job>(&job_name(&store, &inputs(&store, &secrets))).await?;
    let pods = pods_of(reader, job.as_ref()).await?;
    let refusal = refusal(reader, job.as_ref(), &pods).await;
    let claim_users = claim_users(reader, &pods);
    let settings = reader.ctx.settings.clone();
    Ok(Some(Observed { store, secrets, job, pods, claim_users, refusal, settings }))
}
