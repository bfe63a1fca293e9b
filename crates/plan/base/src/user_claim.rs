//! The claim of an `EtcdUser`: the annotation that says in which etcd cluster which user is Holdfast's, and what etcd was given.
//!
//! Decides the text: `CLUSTER/NAME` before etcd gets the user, `CLUSTER/NAME/KEYS/LOGIN` afterwards. The name is part of the claim,
//! since a copy of the object under another name has the annotation too (I31).

use holdfast_api::formed::Formed;
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

/// Returns the claim of this user in an etcd cluster: `None` without a claim, `Some(None)` before etcd was given the user. After a
/// return in place the data may or may not hold the user that was claimed in the earlier timeline.
pub fn read(user: &EtcdUser, formed: &Formed) -> Option<Option<Given>> {
    let mut parts = meta::annotation(&user.metadata, key::USER)?.split('/');
    let claimed_in = parts.next()?;
    let is_present = claimed_in == formed.cluster_id;
    let is_known = is_present || formed.earlier_cluster_ids.iter().any(|earlier| earlier == claimed_in);
    let mine = is_known && parts.next() == Some(user.user_name());
    let given = match (parts.next(), parts.next()) {
        (Some(keys), Some(login)) => Some(Given { keys: keys.to_owned(), login: login.to_owned() }),
        _ => None,
    };
    mine.then_some(given.filter(|_| is_present))
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
            let formed = |id: &str, earlier: &[&str]| Formed {
                cluster_id: id.to_owned(),
                earlier_cluster_ids: earlier.iter().map(|id| (*id).to_owned()).collect(),
                ..Formed::default()
            };
            assert_eq!(read(&user, &formed("c1", &[])), Some(expected));
            assert_eq!(read(&user, &formed("c2", &[])), None);
            assert_eq!(read(&user, &formed("c2", &["c0", "c1"])), Some(None), "after a return in place");
            let mut copy = user.clone();
            copy.spec.name = Some("admin".to_owned());
            assert_eq!(read(&copy, &formed("c1", &["c1"])), None);
        }
    }
}
