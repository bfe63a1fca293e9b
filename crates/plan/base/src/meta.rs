//! Facts in every object's metadata: name, UID, owner.
//!
//! Decides nothing, so that all plans read these facts the same way.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Target;

impl From<&ObjectMeta> for Target {
    fn from(meta: &ObjectMeta) -> Self {
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
        }
    }
}

/// Returns an object's name.
pub fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

/// Returns an object's UID.
pub fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

/// Finalizer that the API server adds for `kubectl delete --cascade=foreground` (Kubernetes: "Garbage Collection").
pub const FOREGROUND: &str = "foregroundDeletion";

/// Whether the object is being deleted.
pub const fn deleting(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

/// Whether the object's controller has this UID. A name never proves an owner (I13).
pub fn controlled_by(meta: &ObjectMeta, owner: &str) -> bool {
    !owner.is_empty()
        && meta.owner_references.iter().flatten().any(|r| r.controller == Some(true) && r.uid.as_str() == owner)
}

/// Whether the object has a finalizer.
pub fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|there| there == finalizer)
}

/// Returns the value of an annotation.
pub fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Returns the value of a label.
pub fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}
