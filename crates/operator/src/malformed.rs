//! Unreadable objects: reported in their own status, which can be written without understanding the object. Decides only the
//! condition.

use holdfast_api::condition::{Reason, Type};
use holdfast_api::{EtcdCluster, FIELD_MANAGER};
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::error_boundary::InvalidObject;
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};

use super::context::Context;
use super::kinds::{Clusters, Kind};

/// Sets `Ready=False/InvalidSpec` on a cluster that cannot be read.
pub(super) async fn report_unreadable(ctx: &Context, invalid: &InvalidObject) {
    let (Some(name), Some(namespace)) = (&invalid.metadata.name, &invalid.metadata.namespace) else { return };
    let api: Api<DynamicObject> =
        Api::namespaced_with(ctx.write.0.clone(), namespace, &ApiResource::erase::<EtcdCluster>(&()));
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(status(invalid));
    if let Err(error) = ctx.writing(Clusters::NAME, "status", name, api.patch_status(name, &params, &patch)).await {
        tracing::warn!(%error, "the condition of an unreadable object was not written");
    }
}

/// The status is the same on every call, so that a repeated write changes nothing (I17): the time is the object's creation.
fn status(invalid: &InvalidObject) -> Value {
    json!({"status": {"conditions": [{
        "type": Type::Ready.as_str(),
        "status": "False",
        "reason": Reason::InvalidSpec.as_str(),
        "message": format!("this object cannot be read, correct it: {}", invalid.error),
        "observedGeneration": invalid.metadata.generation,
        "lastTransitionTime": invalid.metadata.creation_timestamp,
    }]}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube::api::ObjectMeta;

    #[test]
    fn telling_it_again_says_the_same() {
        let metadata = ObjectMeta {
            creation_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
            generation: Some(3),
            ..ObjectMeta::default()
        };
        let invalid = InvalidObject { error: "missing field `version`".to_owned(), metadata };
        let told = status(&invalid);
        assert_eq!(told, status(&invalid));
        let condition = &told["status"]["conditions"][0];
        assert_eq!(condition["reason"], "InvalidSpec");
        assert_eq!(condition["observedGeneration"], 3);
        assert_eq!(condition["lastTransitionTime"], "1970-01-01T00:00:00Z");
        assert!(condition["message"].as_str().unwrap().contains("missing field `version`"));
    }
}
