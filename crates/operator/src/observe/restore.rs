//! Input of one pass over an `EtcdRestore`: the object, and its cluster until the return has ended.

use holdfast_api::EtcdRestore;
use holdfast_plan::returns::Observed;
use kube::ResourceExt;

use super::cluster;
use crate::error::Error;
use crate::reader::{Reader, View};

/// Reads the restore of this name and UID with its cluster; `None` when the restore is gone.
pub(crate) async fn observe(reader: Reader<'_>, named: &str, uid: &str) -> Result<Option<Observed>, Error> {
    let Some(restore) = reader.get::<EtcdRestore>(named).await?.filter(|it| it.uid().as_deref() == Some(uid)) else {
        return Ok(None);
    };
    let ended = restore.status.as_ref().is_some_and(|status| status.phase.is_final());
    let cluster = if ended {
        None
    } else {
        // The record is the cluster's; its own pass reads what guards an act.
        let cached = Reader { view: View::Cached, ..reader };
        cluster::observe_named(cached, &restore.spec.cluster_ref.name).await?
    };
    Ok(Some(Observed { restore, cluster }))
}
