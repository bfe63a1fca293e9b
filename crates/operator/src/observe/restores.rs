//! Snapshots that restores of a namespace read, for passes that remove snapshots.

use holdfast_api::{EtcdCluster, EtcdMember, EtcdSnapshot};
use holdfast_plan::schedule::{restores, searches};

use crate::error::Error;
use crate::reader::{Only, Reader};

/// The restores of a namespace.
pub(super) struct Restored {
    /// Keys of the snapshots that the restores read.
    pub(super) keys: Vec<String>,
    /// Whether a cluster looks for its latest snapshot.
    pub(super) searched: bool,
}

/// Reads the restores. The caller reads its object with the latch first: a restore that latches later sees that latch.
pub(super) async fn restored(reader: Reader<'_>) -> Result<Restored, Error> {
    let (clusters, members) = futures::try_join!(
        reader.list::<EtcdCluster>(Only::Everything, |_| true),
        reader.list::<EtcdMember>(Only::Everything, |member| member.spec.restore.is_some()),
    )?;
    let named = clusters.iter().filter_map(|c| c.spec.bootstrap.as_ref()?.restore.as_ref()?.snapshot_ref.as_ref());
    let named = named.map(async |named| reader.get::<EtcdSnapshot>(&named.name).await);
    let snapshots: Vec<EtcdSnapshot> = futures::future::try_join_all(named).await?.into_iter().flatten().collect();
    Ok(Restored { keys: restores(&clusters, &members, &snapshots), searched: clusters.iter().any(searches) })
}
