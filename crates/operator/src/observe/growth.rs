//! Whether the API server lets a claim ask for a larger volume: the StorageClass may forbid it, or a quota of the namespace.
//!
//! Decides nothing: the operator sends the change for a judgement alone (`dryRun`), so that a refusal is a fact of the plan and no
//! failure of a write.

use std::collections::BTreeMap;

use holdfast_api::{EtcdCluster, FIELD_MANAGER};
use holdfast_kube::requests;
use holdfast_plan::cluster::{Member, claim_to_grow};
use holdfast_plan::meta;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Patch, PatchParams};

use crate::reader::{Reader, View};

/// Returns why claims do not grow, by member name. Asks only for the claims that have to grow.
pub(super) async fn refused_growth(
    reader: Reader<'_>,
    cluster: &EtcdCluster,
    members: &[Member],
) -> BTreeMap<String, String> {
    let asked = members.iter().filter_map(|member| Some((member, claim_to_grow(cluster, member)?)));
    let answers = asked.map(|(member, claim)| async move {
        let why = judge(reader, cluster, claim).await?;
        Some((member.name().to_owned(), why))
    });
    futures::future::join_all(answers).await.into_iter().flatten().collect()
}

async fn judge(reader: Reader<'_>, cluster: &EtcdCluster, claim: &PersistentVolumeClaim) -> Option<String> {
    let (name, uid, size) = (meta::name(&claim.metadata), meta::uid(&claim.metadata), cluster.spec.storage.size());
    let key = (uid.to_owned(), size.0.clone());
    // The live view comes before the act.
    if let Some((known, _)) = reader.ctx.judgements.recent(&key).filter(|_| reader.view == View::Cached) {
        return known.err();
    }
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), dry_run: true, ..PatchParams::default() };
    let mut change = requests::larger_claim(&size);
    change["metadata"] = serde_json::json!({"uid": uid});
    let change = Patch::Merge(change);
    let asked = requests::patch::<PersistentVolumeClaim>(&reader.ctx.read.0, reader.namespace, name, &params, &change);
    let answer = match reader.ctx.reading(|| format!("judge a larger claim {name}"), asked).await {
        Ok(_) => Ok(()),
        // Unknown is no refusal: the act meets the same trouble, and reports it.
        Err(error) => Err(error.refused()?),
    };
    reader.ctx.judgements.remember(key, &answer);
    answer.err()
}

#[cfg(test)]
mod tests {
    use holdfast_fixtures::formed;
    use k8s_openapi::api::core::v1::PersistentVolumeClaimStatus;
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use serde_json::json;

    use super::*;
    use crate::fake::{Fake, refusal};

    const CLAIM: &str = "/persistentvolumeclaims/data-a-m0";

    /// The answers to a claim that has to grow, and the requests.
    async fn asked(
        view: View,
        times: usize,
        code: u16,
        answer: serde_json::Value,
    ) -> (BTreeMap<String, String>, usize) {
        let mut seen = formed(1, 1);
        seen.cluster.spec.storage.size = Some(Quantity("16Gi".to_owned()));
        let bound = PersistentVolumeClaimStatus { phase: Some("Bound".to_owned()), ..Default::default() };
        seen.members[0].claim.as_mut().unwrap().status = Some(bound);
        let api = Fake::start(vec![("PATCH", CLAIM, code, answer); times]).await;
        let mut refused = BTreeMap::new();
        for _ in 0..times {
            let reader = Reader { ctx: &api.ctx, namespace: "ns", view };
            refused = refused_growth(reader, &seen.cluster, &seen.members).await;
        }
        (refused, api.log().len())
    }

    #[tokio::test]
    async fn the_api_server_is_asked_once_in_a_while() {
        let forbidden = || refusal(403, "Forbidden");
        let (refused, requests) = asked(View::Cached, 3, 403, forbidden()).await;
        assert_eq!((refused.keys().map(String::as_str).collect::<Vec<_>>(), requests), (vec!["a-m0"], 1));
        assert_eq!(asked(View::Live, 2, 403, forbidden()).await.1, 2, "before an act");
        let (refused, _) = asked(View::Cached, 1, 500, refusal(500, "InternalError")).await;
        assert!(refused.is_empty(), "unknown is no refusal");
        let fine = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data-a-m0"}});
        assert_eq!(asked(View::Cached, 2, 200, fine).await, (BTreeMap::new(), 1));
    }
}
