//! The StorageClass, the volume driver and kubelet in the small world: what becomes of a claim that asks for a larger volume.

use k8s_openapi::api::core::v1::{PersistentVolumeClaimCondition, PersistentVolumeClaimStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::*;

/// Ticks until the volume driver answers.
const DRIVER: u64 = 20;

/// The answer to a claim that asks for a larger volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// The file system grows while it is mounted.
    Online,
    /// The file system grows when it is mounted.
    AtMount,
    /// The StorageClass forbids it, and the API server refuses the request.
    Forbidden,
    /// The volume driver refuses the size.
    Infeasible,
}

fn sized(size: &Quantity) -> Option<BTreeMap<String, Quantity>> {
    Some([("storage".to_owned(), size.clone())].into())
}

fn asked(claim: &PersistentVolumeClaim) -> Quantity {
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    resources.and_then(|r| r.requests.as_ref()?.get("storage").cloned()).unwrap()
}

fn arrived(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    claim.status.as_ref()?.capacity.as_ref()?.get("storage")
}

impl World {
    /// A claim gets its volume at once.
    pub(super) fn bind(claim: &mut PersistentVolumeClaim) {
        let status = PersistentVolumeClaimStatus {
            phase: Some("Bound".to_owned()),
            capacity: sized(&asked(claim)),
            ..PersistentVolumeClaimStatus::default()
        };
        claim.status = Some(status);
    }

    /// The API server's answers to a larger request.
    pub(super) fn refused_growth(&self, cluster: &EtcdCluster) -> BTreeMap<String, String> {
        let larger = |member: &EtcdMember| {
            let claim = self.claim(meta::name(&member.metadata))?;
            let lags = asked(&claim) != cluster.spec.storage.size();
            let why = "only dynamically provisioned pvc can be resized".to_owned();
            (lags && self.growth == Growth::Forbidden).then(|| (meta::name(&member.metadata).to_owned(), why))
        };
        self.members.values().filter_map(larger).collect()
    }

    pub(super) fn grow_claim(&mut self, target: &Target, size: Quantity, at: String) -> Result<(), ()> {
        let mut volume = self.volumes.get(&target.name).ok_or(())?.clone();
        Self::same(target, &volume.claim.metadata)?;
        assert_ne!(self.growth, Growth::Forbidden, "a refused request is not sent again and again");
        let resources = volume.claim.spec.as_mut().and_then(|spec| spec.resources.as_mut()).ok_or(())?;
        resources.requests = sized(&size);
        volume.claim.metadata.annotations.get_or_insert_default().insert(key::GROWTH_ASKED.to_owned(), at);
        self.touch(&mut volume.claim.metadata);
        self.volumes.insert(target.name.clone(), volume);
        self.growing.insert(target.name.clone(), self.now + DRIVER);
        Ok(())
    }

    /// The volume driver's answers.
    pub(super) fn grow_volumes(&mut self) {
        let due: Vec<String> = self.growing.iter().filter(|(_, at)| **at <= self.now).map(|(n, _)| n.clone()).collect();
        for name in due {
            self.growing.remove(&name);
            let Some(mut volume) = self.volumes.remove(&name) else { continue };
            let at = Some(Time(self.time()));
            let condition = |kind: &str, message: &str| PersistentVolumeClaimCondition {
                type_: kind.to_owned(),
                status: "True".to_owned(),
                message: Some(message.to_owned()),
                last_transition_time: at.clone(),
                ..PersistentVolumeClaimCondition::default()
            };
            let size = asked(&volume.claim);
            let status = volume.claim.status.get_or_insert_default();
            let mounted = self.pods.contains_key(name.trim_start_matches("data-"));
            match self.growth {
                Growth::Online if mounted => status.capacity = sized(&size),
                Growth::Infeasible => {
                    let words = "failed to expand pvc with rpc error: code = OutOfRange desc = the pool is full";
                    status.conditions = Some(vec![condition("ControllerResizeError", words)]);
                    let stage = ("storage".to_owned(), "ControllerResizeInfeasible".to_owned());
                    status.allocated_resource_statuses = Some([stage].into());
                }
                Growth::Online | Growth::AtMount | Growth::Forbidden => {
                    status.conditions = Some(vec![condition("FileSystemResizePending", "waiting for a Pod")]);
                }
            }
            self.touch(&mut volume.claim.metadata);
            self.volumes.insert(name.clone(), volume);
            self.say(format!("the volume driver answers for {name}"));
        }
    }

    /// kubelet mounts a volume, and its file system grows.
    pub(super) fn mount(&mut self, pod: &str) {
        let name = format!("data-{pod}");
        // A member in memory has no claim.
        let Some(mut volume) = (if self.in_memory() { None } else { self.volumes.remove(&name) }) else { return };
        let size = asked(&volume.claim);
        let status = volume.claim.status.get_or_insert_default();
        if status.conditions.take_if(|all| all.iter().any(|c| c.type_ == "FileSystemResizePending")).is_some() {
            status.capacity = sized(&size);
            self.touch(&mut volume.claim.metadata);
            self.say(format!("the file system of {name} has grown"));
        }
        self.volumes.insert(name, volume);
    }

    /// Whether every volume has grown to the size of the spec, each member counts on it, and runs with its default quota.
    pub fn have_grown(&self) -> bool {
        let Some(size) = self.cluster.as_ref().map(|c| c.spec.storage.size()) else { return false };
        let members = || self.members.values().filter(|m| m.spec.leaving.is_none());
        let has =
            |m: &EtcdMember| self.claim(meta::name(&m.metadata)).is_some_and(|claim| arrived(&claim) == Some(&size));
        let counts = |m: &EtcdMember| m.spec.storage.size() == size;
        let current = |m: &EtcdMember| {
            self.pods.get(meta::name(&m.metadata)).is_none_or(|pod| !holdfast_plan::volumes::has_outgrown(pod, m))
        };
        members().all(|m| has(m) && counts(m) && current(m))
    }

    /// Tells each member's quota, by its Pod.
    pub fn show_quotas(&mut self) {
        let quota = |pod| Self::flag(pod, "etcd", "quota-backend-bytes").and_then(|bytes| bytes.parse::<u64>().ok());
        let all: Vec<String> =
            self.pods.values().filter_map(quota).map(|bytes| format!("{} MiB", bytes >> 20)).collect();
        self.say(format!("quotas: {}", all.join(", ")));
    }
}
