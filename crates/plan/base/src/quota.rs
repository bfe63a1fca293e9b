//! A ResourceQuota that refuses a Pod beside the Pod which it follows.
//!
//! Decides whether the next Pod fits after the end of the present one: the quota still counts the present Pod when the API server judges
//! the next one. The operator has no right to read quotas, and the API server's refusal names the amounts. It names one quota; the API
//! server asks quotas after all other admission plugins, so nothing else refuses the Pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::valid;

/// The words before the amounts (Kubernetes: plugin/pkg/admission/resourcequota, `checkRequest`).
const EXCEEDED: &str = "exceeded quota: ";

/// Whether the API server refuses a Pod for a quota alone, and the quota has room for the Pod after the end of the present Pod.
pub fn has_room_after(refusal: &str, present: &Pod) -> bool {
    let Some((_, amounts)) = refusal.split_once(EXCEEDED) else { return false };
    let list = |name: &str| {
        let part = amounts.split(", ").find_map(|part| part.strip_prefix(name))?;
        part.split(',').map(|pair| pair.split_once('=')).collect::<Option<BTreeMap<&str, &str>>>()
    };
    let (Some(requested), Some(used), Some(limited)) = (list("requested: "), list("used: "), list("limited: ")) else {
        return false;
    };
    let fits = |(name, more): (&&str, &&str)| {
        let read = |amount: &str| valid::thousandths(&Quantity(amount.to_owned()));
        let (more, used, limited) = (read(more)?, read(used.get(name)?)?, read(limited.get(name)?)?);
        Some(used.saturating_sub(share(present, name)).saturating_add(more) <= limited)
    };
    !requested.is_empty() && requested.iter().all(|pair| fits(pair) == Some(true))
}

/// Returns the share of a Pod in a quota's amount, in thousandths.
fn share(pod: &Pod, name: &str) -> u128 {
    if matches!(name, "pods" | "count/pods") {
        return 1000;
    }
    let Some(spec) = &pod.spec else { return 0 };
    if let Some(resource) = name.strip_prefix("limits.") {
        return total(spec, |c| c.resources.as_ref()?.limits.as_ref()?.get(resource));
    }
    let resource = name.strip_prefix("requests.").unwrap_or(name);
    let overhead = spec.overhead.as_ref().and_then(|all| valid::thousandths(all.get(resource)?)).unwrap_or(0);
    total(spec, |c| c.resources.as_ref()?.requests.as_ref()?.get(resource)) + overhead
}

/// Returns the amount of a Pod as Kubernetes counts it: of all containers with the sidecars, or of the largest other init container.
fn total(spec: &PodSpec, amount: impl Fn(&Container) -> Option<&Quantity>) -> u128 {
    let amount = |c: &Container| amount(c).and_then(valid::thousandths).unwrap_or(0);
    let (sidecars, steps): (Vec<&Container>, Vec<&Container>) =
        spec.init_containers.iter().flatten().partition(|c| c.restart_policy.as_deref() == Some("Always"));
    let together = spec.containers.iter().chain(sidecars).map(&amount).sum::<u128>();
    together.max(steps.into_iter().map(amount).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ResourceRequirements;

    use super::*;

    /// A Pod whose only container and init container have these requests of memory.
    fn present(memory: &str) -> Pod {
        let amounts = Some([("memory".to_owned(), Quantity(memory.to_owned()))].into());
        let resources = ResourceRequirements { requests: amounts.clone(), limits: amounts, claims: None };
        let container = Container { resources: Some(resources), ..Container::default() };
        let spec = PodSpec {
            containers: vec![container.clone()],
            init_containers: Some(vec![container]),
            ..PodSpec::default()
        };
        Pod { spec: Some(spec), ..Pod::default() }
    }

    #[test]
    fn the_share_of_the_present_pod_is_free_for_the_next_one() {
        let refusal = |requested: &str, used: &str, limited: &str| {
            format!(
                "pods \"a-m0\" is forbidden: exceeded quota: tight, requested: {requested}, used: {used}, limited: {limited}"
            )
        };
        let memory = |n: &str| format!("requests.memory={n}");
        for (requested, used, limited, fits) in [
            (memory("192Mi"), memory("64Mi"), memory("192Mi"), true),
            (memory("193Mi"), memory("64Mi"), memory("192Mi"), false),
            // Another Pod takes a part.
            (memory("192Mi"), memory("65Mi"), memory("192Mi"), false),
            // An administrator has lowered the quota.
            (memory("64Mi"), memory("300Mi"), memory("256Mi"), false),
            ("pods=1".to_owned(), "pods=1".to_owned(), "pods=1".to_owned(), true),
            ("pods=1".to_owned(), "pods=2".to_owned(), "pods=1".to_owned(), false),
            (
                "limits.memory=64Mi,pods=1".to_owned(),
                "limits.memory=64Mi,pods=1".to_owned(),
                "limits.memory=64Mi,pods=1".to_owned(),
                true,
            ),
            // The present Pod has no CPU.
            ("cpu=100m".to_owned(), "cpu=900m".to_owned(), "cpu=1".to_owned(), true),
            ("cpu=101m".to_owned(), "cpu=900m".to_owned(), "cpu=1".to_owned(), false),
            (memory("64Mi"), "pods=1".to_owned(), memory("64Mi"), false),
        ] {
            let refusal = refusal(&requested, &used, &limited);
            assert_eq!(has_room_after(&refusal, &present("64Mi")), fits, "{refusal}");
        }
        for other in
            ["", "pods \"a-m0\" is forbidden: maximum memory usage per Container is 256Mi", "exceeded quota: q"]
        {
            assert!(!has_room_after(other, &present("64Mi")), "{other}");
        }
    }
}
