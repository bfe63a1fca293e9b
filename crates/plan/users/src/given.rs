//! What etcd has to be given for a user.
//!
//! Decides the digests that the claim keeps. The password has a digest of its own: a change of the permissions changes no password,
//! which would end the user's tokens.

use super::Observed;
use holdfast_base::user_claim::{self, Given};
use holdfast_base::{Seen, fingerprint};

/// Returns the digests of the permissions and of the login.
pub(super) fn wanted(seen: &Observed) -> Given {
    let spec = &seen.user.spec;
    let password = seen.password.as_ref().and_then(Seen::known).cloned().flatten();
    Given {
        keys: fingerprint::short(&spec.permissions),
        login: fingerprint::short(&(spec.password_secret_ref.as_ref(), password)),
    }
}

/// Whether etcd was given the user as the spec has it.
pub(super) fn is_given(seen: &Observed) -> bool {
    let formed = seen.cluster.as_ref().and_then(|cluster| cluster.status.as_ref()?.latches.formed.as_ref());
    let given = formed.and_then(|formed| user_claim::read(&seen.user, &formed.cluster_id)).flatten();
    given.is_some_and(|given| given == wanted(seen))
}
