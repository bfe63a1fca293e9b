//! The keys of a Kubernetes in etcd: which folder of keys holds which resource, by the key alone.
//!
//! This file decides the names of folders. No value is decoded. A drill and an undelete share it.

/// Folders whose name is not the resource's (Kubernetes: `SpecialDefaultResourcePrefixes`).
pub const SPECIAL: [(&str, &str); 5] = [
    ("services", "services/specs"),
    ("endpoints", "services/endpoints"),
    ("replicationcontrollers", "controllers"),
    ("nodes", "minions"),
    ("ingresses", "ingress"),
];

/// Returns the folder of a key below the prefix: `pods`, or two parts where the first one is a group or `services`.
pub fn folder_of(key: &str) -> &str {
    let first = key.split('/').next().unwrap_or_default();
    if !first.contains('.') && first != "services" {
        return first;
    }
    key.match_indices('/').nth(1).map_or(key, |(at, _)| &key[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_two_parts_below_a_group() {
        for (key, folder) in [
            ("pods/default/a", "pods"),
            ("services/specs/default/a", "services/specs"),
            ("services/endpoints/default/a", "services/endpoints"),
            ("example.org/things/default/a", "example.org/things"),
            ("apiregistration.k8s.io/apiservices/v1.", "apiregistration.k8s.io/apiservices"),
            ("minions/n1", "minions"),
            ("example.org/things", "example.org/things"),
        ] {
            assert_eq!(folder_of(key), folder, "{key}");
        }
    }
}
