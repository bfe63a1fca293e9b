//! The volume of an agent's Pod: the spool, in which a snapshot waits for a slow store, or the scratch volume of a rehearsal.
//!
//! Decides flags and volume: of the node's disk, or of a storage class; never a volume of etcd.

use std::collections::BTreeMap;
use std::path::PathBuf;

use holdfast_api::snapshot::Spool;
use holdfast_contract::SaveRequest;
use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, EphemeralVolumeSource, PersistentVolumeClaimSpec, PersistentVolumeClaimTemplate, Volume,
    VolumeMount, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::store::mount;
use crate::valid;

/// Mount path of the spool.
pub const FOLDER: &str = "/spool";
const VOLUME: &str = "spool";

/// The file system's share: ext4 has tables and a journal, and reserves a twentieth for root. The agent gets the rest.
const SHARE: u64 = 8;
const JOURNAL: u64 = 16 << 20;

/// Adds the spool's flags to the request; `None`: the size is not valid (CEL refuses such a size at admission).
pub fn flags(request: SaveRequest, spool: &Spool) -> Option<SaveRequest> {
    let bytes = valid::bytes(&spool.size)?;
    let mib = (bytes - bytes / SHARE).saturating_sub(JOURNAL) >> 20;
    (mib > 0).then(|| SaveRequest { spool_dir: Some(PathBuf::from(FOLDER)), spool_mib: Some(mib), ..request })
}

/// Returns volume and mount of the spool. Both disappear with the Pod.
pub fn volume(spool: &Spool) -> (Volume, VolumeMount) {
    (volume_named(VOLUME, spool), mount(VOLUME, FOLDER, false))
}

/// Returns a volume of this size and class, under this name.
pub fn volume_named(name: &str, spool: &Spool) -> Volume {
    let volume = Volume { name: name.to_owned(), ..Volume::default() };
    match &spool.storage_class_name {
        None => {
            let limit = EmptyDirVolumeSource { size_limit: Some(spool.size.clone()), medium: None };
            Volume { empty_dir: Some(limit), ..volume }
        }
        Some(class) => Volume {
            ephemeral: Some(EphemeralVolumeSource { volume_claim_template: Some(claim(class, &spool.size)) }),
            ..volume
        },
    }
}

fn claim(class: &str, size: &Quantity) -> PersistentVolumeClaimTemplate {
    PersistentVolumeClaimTemplate {
        metadata: None,
        spec: PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: Some(class.to_owned()),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([("storage".to_owned(), size.clone())])),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spool(size: &str, class: Option<&str>) -> Spool {
        Spool { size: Quantity(size.to_owned()), storage_class_name: class.map(str::to_owned) }
    }

    #[test]
    fn the_agent_takes_less_than_the_volume_has() {
        let taken = |size| flags(SaveRequest::default(), &spool(size, None)).and_then(|request| request.spool_mib);
        assert_eq!(taken("1Gi"), Some(880));
        assert_eq!(taken("64Mi"), Some(40));
        assert_eq!(taken("1.1Gi"), Some(969), "no whole number of bytes");
        assert_eq!(taken("1Ki"), None);
        assert_eq!(taken("much"), None);
    }

    #[test]
    fn it_is_the_node_s_disk_or_a_claim_that_goes_with_the_pod() {
        let (volume, mount) = self::volume(&spool("2Gi", None));
        assert_eq!(volume.empty_dir.unwrap().size_limit.unwrap().0, "2Gi");
        assert_eq!((mount.mount_path.as_str(), mount.read_only), ("/spool", None));
        let (volume, _) = self::volume(&spool("2Gi", Some("fast")));
        let claim = volume.ephemeral.unwrap().volume_claim_template.unwrap().spec;
        assert_eq!(claim.storage_class_name.as_deref(), Some("fast"));
        assert_eq!(claim.resources.unwrap().requests.unwrap()["storage"].0, "2Gi");
    }
}
