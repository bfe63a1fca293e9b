//! What every object says of itself: its name, its UID, its owner.
//!
//! Decides nothing, so that all plans read it the same way.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Target;

impl Target {
    /// The object with this metadata, as it was seen.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
        }
    }
}

/// An object's name.
pub fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

/// An object's UID.
pub fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

/// Whether the object is on its way out.
pub const fn deleting(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

/// Whether the object's controller is the one with this UID. Names never make an owner (I13).
pub fn controlled_by(meta: &ObjectMeta, owner: &str) -> bool {
    !owner.is_empty()
        && meta.owner_references.iter().flatten().any(|r| r.controller == Some(true) && r.uid.as_str() == owner)
}

/// Whether a finalizer is on the object.
pub fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|there| there == finalizer)
}

/// The value of an annotation.
pub fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The value of a label.
pub fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}
