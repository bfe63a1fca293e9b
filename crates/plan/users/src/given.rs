//! Digests of the permissions and of the login that a user has to have in etcd.
//!
//! Decides their inputs; the claim keeps them. The password has a digest of its own: a change of the permissions changes no password,
//! which would end the user's tokens.

use super::Observed;
use holdfast_base::user_claim::Given;
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
    seen.claim().flatten().is_some_and(|given| given == wanted(seen))
}
