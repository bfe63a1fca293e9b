//! The keys that an undelete compares: a prefix, and for a Kubernetes a resource and a namespace.
//!
//! This file decides by the key alone; no value is decoded.

use holdfast_contract::error::Result;
use holdfast_contract::{REGISTRY, UndeleteRequest};
use holdfast_verbs_common::registry::{SPECIAL, folder_of};

/// The selected keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    prefix: Vec<u8>,
    /// The folder of kube-apiserver's keys, with a slash at its end.
    root: Vec<u8>,
    kind: Option<String>,
    namespace: Option<String>,
}

impl Selection {
    pub(super) fn from_request(request: &UndeleteRequest) -> Result<Self> {
        let prefix = request.checked_prefix()?;
        let root = if prefix.starts_with(REGISTRY) || prefix.is_empty() {
            REGISTRY.to_owned()
        } else {
            format!("{}/", prefix.trim_end_matches('/'))
        };
        Ok(Self {
            prefix: prefix.as_bytes().to_vec(),
            root: root.into_bytes(),
            kind: request.kind.clone(),
            namespace: request.object_namespace.clone(),
        })
    }

    /// Whether a key is selected.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        if key.is_empty() || !key.starts_with(&self.prefix) {
            return false;
        }
        if self.kind.is_none() && self.namespace.is_none() {
            return true;
        }
        let below = key.strip_prefix(self.root.as_slice()).and_then(|below| std::str::from_utf8(below).ok());
        below.is_some_and(|below| {
            let folder = folder_of(below);
            let rest = below.get(folder.len() + 1..).unwrap_or_default();
            self.kind.as_deref().is_none_or(|kind| is_of_kind(folder, kind))
                && self.namespace.as_deref().is_none_or(|namespace| is_in_namespace(folder, rest, namespace))
        })
    }

    /// Returns the range of the prefix, as etcd takes it.
    pub(super) fn range(&self) -> (Vec<u8>, Vec<u8>) {
        if self.prefix.is_empty() {
            return (vec![0], vec![0]);
        }
        (self.prefix.clone(), end_of_prefix(&self.prefix))
    }
}

/// Returns the first key after all keys with this prefix; `\0`: there is none, which etcd takes as the end of all keys.
fn end_of_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

/// Whether a folder holds a resource, given as kubectl names it: `pods`, `ingresses.networking.k8s.io`, `things.example.org`. Without a
/// group every custom resource of this name counts too.
fn is_of_kind(folder: &str, kind: &str) -> bool {
    let (plural, group) = kind.split_once('.').map_or((kind, None), |(plural, group)| (plural, Some(group)));
    let own = SPECIAL.iter().find(|(name, _)| *name == plural).map_or(plural, |(_, folder)| *folder);
    let has_own_folder = group.is_none_or(|group| !group.contains('.') || group.ends_with(".k8s.io"));
    if has_own_folder && folder == own {
        return true;
    }
    match (folder.rsplit_once('/'), group) {
        (Some((below, name)), Some(group)) => (below, name) == (group, plural),
        (Some((below, name)), None) => below.contains('.') && name == plural,
        (None, _) => false,
    }
}

/// Whether the rest of a key, after the folder, is in a namespace: `NAMESPACE/NAME`, or the namespace itself.
fn is_in_namespace(folder: &str, rest: &str, namespace: &str) -> bool {
    if folder == "namespaces" {
        return rest == namespace;
    }
    rest.split_once('/').is_some_and(|(own, _)| own == namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(prefix: Option<&str>, kind: Option<&str>, namespace: Option<&str>) -> Selection {
        let [prefix, kind, object_namespace] = [prefix, kind, namespace].map(|text| text.map(str::to_owned));
        Selection::from_request(&UndeleteRequest { prefix, kind, object_namespace, ..UndeleteRequest::default() })
            .unwrap()
    }

    #[test]
    fn a_prefix_is_a_range_of_keys() {
        assert_eq!(selection(Some("/a"), None, None).range(), (b"/a".to_vec(), b"/b".to_vec()));
        assert_eq!(end_of_prefix(b"a\xff\xff"), b"b");
        assert_eq!(end_of_prefix(b"\xff"), b"\0");
        let all = Selection::from_request(&UndeleteRequest { all_keys: true, ..UndeleteRequest::default() }).unwrap();
        assert_eq!(all.range(), (vec![0], vec![0]));
        assert!(all.has(b"\x01") && !all.has(b""));
        let some = selection(Some("/a"), None, None);
        assert!(some.has(b"/a") && some.has(b"/ab") && !some.has(b"/b"));
    }

    #[test]
    fn objects_are_selected_by_their_keys() {
        let kind = |kind, key: &str| selection(None, Some(kind), None).has(key.as_bytes());
        for (name, key) in [
            ("configmaps", "/registry/configmaps/shop/a"),
            ("deployments.apps", "/registry/deployments/shop/a"),
            ("services", "/registry/services/specs/shop/a"),
            ("ingresses.networking.k8s.io", "/registry/ingress/shop/a"),
            ("nodes", "/registry/minions/n1"),
            ("things.example.org", "/registry/example.org/things/shop/a"),
            ("things", "/registry/example.org/things/shop/a"),
            (
                "customresourcedefinitions",
                "/registry/apiextensions.k8s.io/customresourcedefinitions/things.example.org",
            ),
        ] {
            assert!(kind(name, key), "{name}: {key}");
        }
        for (name, key) in [
            ("configmaps", "/registry/secrets/shop/a"),
            ("services", "/registry/services/endpoints/shop/a"),
            ("services.example.org", "/registry/services/specs/shop/a"),
            ("things.example.com", "/registry/example.org/things/shop/a"),
            ("pods", "/registry/podsecuritypolicies/a"),
            ("pods", "/other/pods/shop/a"),
        ] {
            assert!(!kind(name, key), "{name}: {key}");
        }
    }

    #[test]
    fn a_namespace_has_its_objects_and_itself() {
        let shop = selection(None, None, Some("shop"));
        for key in ["configmaps/shop/a", "services/specs/shop/a", "example.org/things/shop/a", "namespaces/shop"] {
            assert!(shop.has(format!("/registry/{key}").as_bytes()), "{key}");
        }
        for key in ["configmaps/shop2/a", "minions/shop", "namespaces/shop2", "clusterroles/shop", "configmaps"] {
            assert!(!shop.has(format!("/registry/{key}").as_bytes()), "{key}");
        }
        let own = selection(Some("/kubernetes.io"), Some("pods"), Some("shop"));
        assert!(own.has(b"/kubernetes.io/pods/shop/a"));
        let narrow = selection(Some("/registry/configmaps/"), None, Some("shop"));
        assert!(narrow.has(b"/registry/configmaps/shop/a") && !narrow.has(b"/registry/secrets/shop/a"));
    }
}
