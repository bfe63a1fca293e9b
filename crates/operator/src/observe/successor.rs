//! Whether the API server lets a member's next Pod exist.
//!
//! Decides nothing: the operator sends the Pod for a judgement alone (`dryRun`). The Pod has the name of the present one: the API server
//! looks for an object of the name after all admission plugins, so `AlreadyExists` shows that they permit the Pod.

use std::collections::BTreeMap;

use holdfast_api::{EtcdCluster, FIELD_MANAGER};
use holdfast_plan::cluster::{Judgement, Member};
use holdfast_plan::{Seen, cluster, fingerprint, meta, quota};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;

use crate::error::Error;
use crate::judgements::Answer;
use crate::reader::{Reader, View};

/// Answer of a webhook that declares side effects: the API server cannot judge without them, and judges the real Pod later.
const NO_DRY_RUN: &str = "does not support dry run";

/// Returns the judgements, by member name. Asks only for the Pods that the plan may need.
pub(super) async fn next_pods(
    reader: Reader<'_>,
    cluster: &EtcdCluster,
    members: &[Member],
) -> BTreeMap<String, Seen<Judgement>> {
    let asked = cluster::next_pods(cluster, members, &reader.ctx.settings);
    let answers = asked.into_iter().map(|(member, pod)| async move {
        let judged = judge(reader, member, &pod).await.unwrap_or_else(|error| Seen::unknown(error.to_string()));
        (member.name().to_owned(), judged)
    });
    futures::future::join_all(answers).await.into_iter().collect()
}

async fn judge(reader: Reader<'_>, member: &Member, pod: &Pod) -> Result<Seen<Judgement>, Error> {
    let contents = serde_json::to_string(pod).unwrap_or_default();
    let key = (meta::uid(&member.object.metadata).to_owned(), fingerprint::hash_parts([contents]));
    // The live view comes before the act.
    let known = reader.ctx.judgements.recent(&key).filter(|_| reader.view == View::Cached);
    let (answer, lasted) = if let Some(known) = known {
        known
    } else {
        let answer = ask(reader, member, pod).await?;
        let lasted = reader.ctx.judgements.remember(key, &answer);
        (answer, lasted)
    };
    Ok(Seen::Known(match answer {
        Ok(()) => Judgement::Permitted,
        Err(words) => Judgement::Refused { words, lasted: lasted.try_into().unwrap_or_default() },
    }))
}

async fn ask(reader: Reader<'_>, member: &Member, pod: &Pod) -> Result<Answer, Error> {
    let api: Api<Pod> = Api::namespaced(reader.ctx.read.0.clone(), reader.namespace);
    let params = PostParams { dry_run: true, field_manager: Some(FIELD_MANAGER.to_owned()) };
    let asked = reader.ctx.reading(|| format!("judge the next Pod of {}", member.name()), api.create(&params, pod));
    let error = match asked.await {
        Ok(_) => return Ok(Ok(())),
        Err(error) if error.already_exists() => return Ok(Ok(())),
        Err(error) => error,
    };
    let Some(words) = error.refused() else { return Err(error) };
    let frees = |present| quota::has_room_after(&words, present);
    let permitted = words.contains(NO_DRY_RUN) || member.live_pod().is_some_and(frees);
    Ok(if permitted { Ok(()) } else { Err(words) })
}

#[cfg(test)]
mod tests {
    use holdfast_api::cluster::Options;
    use holdfast_fixtures::formed;
    use serde_json::{Value, json};

    use super::*;
    use crate::fake::{Fake, refusal};

    const PODS: &str = "/namespaces/ns/pods";

    fn refused(words: &str) -> Value {
        let mut answer = refusal(403, "Forbidden");
        answer["message"] = json!(words);
        answer
    }

    /// The judgement of the next Pod of one member whose spec has changed, and the requests.
    async fn asked(view: View, times: usize, code: u16, answer: Value) -> (Option<Seen<Judgement>>, usize) {
        let mut seen = formed(1, 1);
        seen.cluster.spec.options = Some(Options { snapshot_count: Some(7), ..Options::default() });
        let api = Fake::start(vec![("POST", PODS, code, answer); times]).await;
        let mut judged = BTreeMap::new();
        for _ in 0..times {
            let reader = Reader { ctx: &api.ctx, namespace: "ns", view };
            judged = next_pods(reader, &seen.cluster, &seen.members).await;
        }
        (judged.remove("a-m0"), api.log().len())
    }

    fn words(judged: Option<Seen<Judgement>>) -> Option<String> {
        match judged {
            Some(Seen::Known(Judgement::Refused { words, .. })) => Some(words),
            _ => None,
        }
    }

    #[tokio::test]
    async fn the_api_server_judges_a_pod_that_is_about_to_end() {
        let policy = "pods \"a-m0\" is forbidden: ValidatingAdmissionPolicy 'images' denied request";
        let (judged, requests) = asked(View::Cached, 3, 403, refused(policy)).await;
        assert_eq!((words(judged).as_deref(), requests), (Some(policy), 1));
        assert_eq!(asked(View::Live, 2, 403, refused(policy)).await.1, 2, "before an act");
        let permitted = Some(Seen::Known(Judgement::Permitted));
        assert_eq!(asked(View::Cached, 1, 409, refusal(409, "AlreadyExists")).await.0, permitted);
        let dry = refused("admission webhook \"w.io\" does not support dry run");
        assert_eq!(asked(View::Cached, 1, 400, dry).await.0, permitted);
        let quota = |limited| {
            format!(
                "pods \"a-m0\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods={limited}"
            )
        };
        assert_eq!(
            asked(View::Cached, 1, 403, refused(&quota(1))).await.0,
            permitted,
            "the present Pod frees its share"
        );
        assert_eq!(words(asked(View::Cached, 1, 403, refused(&quota(0))).await.0), Some(quota(0)));
        let (unknown, requests) = asked(View::Cached, 2, 500, refusal(500, "InternalError")).await;
        assert!(matches!(unknown, Some(Seen::Unknown(_))) && requests == 2, "{unknown:?}");
    }

    #[tokio::test]
    async fn a_cluster_without_changes_costs_no_request() {
        let mut seen = formed(3, 3);
        let api = Fake::start(vec![]).await;
        let reader = Reader { ctx: &api.ctx, namespace: "ns", view: View::Live };
        assert_eq!(next_pods(reader, &seen.cluster, &seen.members).await, BTreeMap::new());
        seen.cluster.spec.options = Some(Options { snapshot_count: Some(7), ..Options::default() });
        seen.cluster.spec.paused = true;
        assert_eq!(next_pods(reader, &seen.cluster, &seen.members).await, BTreeMap::new());
        assert!(api.log().is_empty());
    }
}
