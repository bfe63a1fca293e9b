//! Which stored snapshots are being restored.
//!
//! Decides by what clusters that have not formed, and their first members, name: what is latched, and what the spec says
//! where nothing is latched yet.

use std::collections::BTreeSet;

use crate::api::{EtcdCluster, EtcdMember, EtcdSnapshot};
use crate::plan::meta;

/// Keys of the snapshots that restores read.
pub fn restores(clusters: &[EtcdCluster], members: &[EtcdMember], snapshots: &[EtcdSnapshot]) -> Vec<String> {
    let forming = clusters.iter().filter(|c| c.status.as_ref().is_none_or(|s| s.latches.formed.is_none()));
    let of_cluster = forming.flat_map(|cluster| {
        let latched = cluster.status.as_ref().and_then(|status| status.latches.restoring.as_ref());
        let asked = cluster.spec.bootstrap.as_ref().and_then(|bootstrap| bootstrap.restore.as_ref());
        let named = asked.and_then(|asked| asked.snapshot_ref.as_ref()).and_then(|named| {
            let snapshot = snapshots.iter().find(|snapshot| meta::name(&snapshot.metadata) == named.name)?;
            Some(snapshot.status.as_ref()?.artifact.as_ref()?.key.clone())
        });
        let source = asked.and_then(|asked| asked.source.as_ref()).map(|source| source.key.clone());
        [latched.map(|latched| latched.source.key.clone()), named, source]
    });
    // A lost status takes no restore away that a member carries.
    let carried = members.iter().filter(|member| member.spec.joined.is_none());
    let carried = carried.map(|member| member.spec.restore.as_ref().map(|restoring| restoring.source.key.clone()));
    of_cluster.chain(carried).flatten().collect::<BTreeSet<_>>().into_iter().collect()
}
