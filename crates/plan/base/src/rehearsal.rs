//! The name of an upgrade's rehearsal, which says all that was rehearsed.
//!
//! Decides when an upgrade is another upgrade, and its rehearsal another rehearsal.

use holdfast_api::upgrade::Upgrade;
use holdfast_api::{EtcdCluster, key, name};

use crate::seen::cluster::{Member, Observed};
use crate::valid::Version;
use crate::{fingerprint, meta};

/// Returns the name of the Job. Another version, image, value of the annotation `holdfast.dev/restart`, identity or volume is
/// another rehearsal, and so is each upgrade after the end of another: a member that has run the next minor may have changed its data. A
/// newer snapshot is not.
pub fn rehearsal_name(seen: &Observed) -> String {
    let meta = &seen.cluster.metadata;
    let question = question(&seen.cluster);
    let Upgrade { identity_secret_refs, scratch, .. } = seen.cluster.spec.upgrade();
    let question = match (&*identity_secret_refs, &scratch) {
        ([], None) => question,
        corrected => format!("{question}/{}", fingerprint::short(&corrected)),
    };
    // A Job of an earlier Holdfast compared no members, or does not name its snapshot.
    let question = if has_members_of_3_5(seen) { format!("{question}/compared") } else { question };
    let question = format!("{question}/named");
    name::rehearsal(meta::name(meta), meta::uid(meta), &question)
}

/// Returns the hash of the version, the image, the annotation `holdfast.dev/restart` and the end of the last upgrade: each change is
/// another upgrade.
pub fn question(cluster: &EtcdCluster) -> String {
    let restart = meta::annotation(&cluster.metadata, key::RESTART);
    let asked = fingerprint::short(&(&cluster.spec.version, &cluster.spec.image, restart));
    match cluster.status.as_ref().and_then(|status| status.latches.upgrade_ended_at.as_ref()) {
        Some(ended) => format!("{asked}/{ended}"),
        None => asked,
    }
}

/// Returns the version that a member shall run.
pub fn version(member: &Member) -> Option<Version> {
    Version::parse(&member.object.spec.process.version)
}

/// Whether a member of etcd 3.5 runs, or shall run.
pub fn has_members_of_3_5(seen: &Observed) -> bool {
    seen.hosting().filter_map(version).any(|version| version.minor == 5)
}
