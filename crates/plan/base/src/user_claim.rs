//! The claim of an `EtcdUser`: the annotation that says in which etcd cluster which user is Holdfast's, and what etcd was given.
//!
//! Decides the text: `CLUSTER/NAME` before etcd gets the user, `CLUSTER/NAME/KEYS/LOGIN` afterwards. The name is part of the claim,
//! since a copy of the object under another name has the annotation too (I31).

use holdfast_api::{EtcdUser, key};

use crate::meta;

/// Digests of what etcd was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// Digest of the permissions.
    pub keys: String,
    /// Digest of the login: of the Secret with the password and its version.
    pub login: String,
}

/// Returns the claim of this user in an etcd cluster (by its hexadecimal ID): `None` without a claim, `Some(None)` before etcd was
/// given the user.
pub fn read(user: &EtcdUser, cluster: &str) -> Option<Option<Given>> {
    let mut parts = meta::annotation(&user.metadata, key::USER)?.split('/');
    let mine = parts.next() == Some(cluster) && parts.next() == Some(user.user_name());
    let given = match (parts.next(), parts.next()) {
        (Some(keys), Some(login)) => Some(Given { keys: keys.to_owned(), login: login.to_owned() }),
        _ => None,
    };
    mine.then_some(given)
}

/// Returns the text of a claim.
pub fn text(cluster: &str, name: &str, given: Option<&Given>) -> String {
    match given {
        None => format!("{cluster}/{name}"),
        Some(Given { keys, login }) => format!("{cluster}/{name}/{keys}/{login}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_of_one_name_in_one_cluster() {
        let mut user = EtcdUser::default();
        user.metadata.name = Some("shop".to_owned());
        let given = Given { keys: "k".to_owned(), login: "l".to_owned() };
        for (claim, expected) in [(None, None), (Some(given.clone()), Some(given))] {
            let text = text("c1", "shop", claim.as_ref());
            user.metadata.annotations = Some([(key::USER.to_owned(), text)].into());
            assert_eq!(read(&user, "c1"), Some(expected));
            assert_eq!(read(&user, "c2"), None);
            let mut copy = user.clone();
            copy.spec.name = Some("admin".to_owned());
            assert_eq!(read(&copy, "c1"), None);
        }
    }
}
