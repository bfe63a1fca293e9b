//! CPU and memory of containers.
//!
//! Decides defaults, and the addition for a volume in memory: kubelet counts its files as memory of the container that wrote
//! the files.

use std::collections::BTreeMap;

use holdfast_api::EtcdMember;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::valid::bytes;

/// Resources of the containers that run in etcd's image. The defaults keep a member from being evicted first.
pub fn of_member(member: &EtcdMember) -> ResourceRequirements {
    let own = member.spec.process.resources.clone().filter(|r| {
        r.requests.as_ref().is_some_and(|m| !m.is_empty()) || r.limits.as_ref().is_some_and(|m| !m.is_empty())
    });
    let mut all = own.unwrap_or_else(member_requests);
    let storage = &member.spec.storage;
    if let Some(size) = bytes(&storage.size()).filter(|_| storage.in_memory()) {
        add_memory(&mut all.requests, size);
        add_memory(&mut all.limits, size);
        limit_memory(&mut all, size);
    }
    all
}

/// Requests of a container that runs etcd, where the spec has none.
pub fn member_requests() -> ResourceRequirements {
    requests("100m", REQUESTED)
}

/// Requests of a drill, where the spec has none: the least share of a busy node's CPU.
pub fn drill_requests() -> ResourceRequirements {
    requests("50m", REQUESTED)
}

/// Requests of a drill with a kube-apiserver, where the spec has none.
pub fn kubernetes_drill_requests() -> ResourceRequirements {
    requests("50m", "768Mi")
}

/// Default memory request: an idle etcd, and a small index.
const REQUESTED: &str = "256Mi";

/// Least memory for etcd's heap beyond the request, in bytes.
const LEAST_HEAP: u64 = 256 << 20;

/// Sets a memory limit for a volume in memory: the default limit of a LimitRange ignores the volume, and the API server refuses
/// the Pod, or the kernel kills etcd. The request covers a full volume and an idle etcd. Another half of the volume is for the
/// heap: the key index and the log entries for slow followers are copies of data on the volume, and the database has at most
/// half of the volume.
fn limit_memory(all: &mut ResourceRequirements, size: u64) {
    const MEMORY: &str = "memory";
    if all.limits.as_ref().is_some_and(|limits| limits.contains_key(MEMORY)) {
        return;
    }
    let least = bytes(&Quantity(REQUESTED.to_owned())).unwrap_or_default().saturating_add(size);
    let least = Quantity(least.to_string());
    // Kubernetes requests the whole limit if the request is absent.
    let requested = all.requests.get_or_insert_default().entry(MEMORY.to_owned()).or_insert(least);
    let limit = bytes(requested).map(|requested| requested.saturating_add(LEAST_HEAP.max(size / 2)));
    if let Some(limit) = limit {
        all.limits.get_or_insert_default().insert(MEMORY.to_owned(), Quantity(limit.to_string()));
    }
}

/// Returns these requests without limits.
pub(super) fn requests(cpu: &str, memory: &str) -> ResourceRequirements {
    let quantities = [("cpu", cpu), ("memory", memory)].map(|(k, v)| (k.to_owned(), Quantity(v.to_owned())));
    ResourceRequirements { requests: Some(quantities.into()), ..ResourceRequirements::default() }
}

/// Adds the volume to the memory; an absent request or limit stays absent.
fn add_memory(all: &mut Option<BTreeMap<String, Quantity>>, size: u64) {
    let Some(memory) = all.as_mut().and_then(|all| all.get_mut("memory")) else { return };
    if let Some(sum) = bytes(memory).and_then(|own| own.checked_add(size)) {
        *memory = Quantity(sum.to_string());
    }
}

#[cfg(test)]
mod tests {
    use holdfast_api::cluster::Medium;

    use super::*;
    use crate::fixtures::{etcd_cluster, joined_member};

    #[test]
    fn a_volume_in_memory_counts_as_memory() {
        let mut member = joined_member(&etcd_cluster(3), 1);
        assert_eq!(of_member(&member), requests("100m", "256Mi"));
        (member.spec.storage.medium, member.spec.storage.size) = (Medium::Memory, Some(Quantity("1Gi".to_owned())));
        let memory =
            |all: Option<BTreeMap<String, Quantity>>| all.and_then(|mut all| all.remove("memory")).map(|q| q.0);
        let of = |member: &EtcdMember| (memory(of_member(member).requests), memory(of_member(member).limits));
        let mib = |n: u64| Some((n << 20).to_string());
        assert_eq!(of(&member), (mib(1280), mib(1280 + 512)), "its own limit");
        let only = |requests: &[(&str, &str)], limits: &[(&str, &str)]| {
            let map = |all: &[(&str, &str)]| {
                let all = all.iter().map(|(name, value)| ((*name).to_owned(), Quantity((*value).to_owned())));
                Some(all.collect()).filter(|all: &BTreeMap<_, _>| !all.is_empty())
            };
            Some(ResourceRequirements {
                requests: map(requests),
                limits: map(limits),
                ..ResourceRequirements::default()
            })
        };
        for (size, resources, requested, limit) in [
            ("256Mi", None, 512, 768),
            ("4Gi", None, 4352, 6400),
            ("1Gi", only(&[("memory", "2Gi")], &[]), 3072, 3584),
            ("1Gi", only(&[("cpu", "1")], &[]), 1280, 1792),
            ("1Gi", only(&[], &[("cpu", "1")]), 1280, 1792),
        ] {
            member.spec.storage.size = Some(Quantity(size.to_owned()));
            member.spec.process.resources = resources;
            assert_eq!(of(&member), (mib(requested), mib(limit)), "{size}");
        }
        assert_eq!(of_member(&member).limits.unwrap()["cpu"].0, "1", "its other wishes stay");
        let both = |memory: &str| Some([("memory".to_owned(), Quantity(memory.to_owned()))].into());
        member.spec.process.resources = Some(ResourceRequirements {
            requests: both("512Mi"),
            limits: both("2Gi"),
            ..ResourceRequirements::default()
        });
        assert_eq!(of(&member), (mib(1536), mib(3072)));
        member.spec.process.resources =
            Some(ResourceRequirements { limits: both("2Gi"), ..ResourceRequirements::default() });
        assert_eq!(of(&member), (None, mib(3072)), "Kubernetes asks for the limit then");
    }
}
