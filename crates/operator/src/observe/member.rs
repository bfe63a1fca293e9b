//! Input of one pass over an `EtcdMember`: the object, its cluster, and the objects at the names of its Pod and claim.

use holdfast_api::{EtcdCluster, EtcdMember, name};
use holdfast_plan::Seen;
use holdfast_plan::member::Observed;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;

use crate::error::Error;
use crate::reader::Reader;

/// Reads the member of this name and UID with its parts; `None` when the member is gone.
pub(crate) async fn observe(reader: Reader<'_>, named: &str, uid: &str) -> Result<Option<Observed>, Error> {
    let Some(member) = reader.get::<EtcdMember>(named).await?.filter(|m| m.uid().as_deref() == Some(uid)) else {
        return Ok(None);
    };
    let claim_name = name::claim(named);
    let (cluster, pod, claim) = futures::join!(
        reader.get::<EtcdCluster>(&member.spec.cluster_ref.name),
        reader.get::<Pod>(named),
        reader.get::<PersistentVolumeClaim>(&claim_name),
    );
    // A failed read of the cluster does not make it absent: no deletion may follow from it.
    let cluster = match cluster {
        Ok(found) => Seen::Known(found.filter(|c| c.uid().as_deref() == Some(&member.spec.cluster_ref.uid))),
        Err(error) => Seen::unknown(error.to_string()),
    };
    Ok(Some(Observed { member, cluster, pod: pod?, claim: claim?, settings: reader.ctx.settings.clone() }))
}
