//! A user's whole status, computed on every pass.
//!
//! Decides what the status reports; `plan.rs` decides the step.

use holdfast_api::EtcdUserStatus;
use holdfast_api::condition::{Reason, Type, Wanted, merge};
use holdfast_api::user::Permission;
use jiff::Timestamp;

use super::Observed;
use super::given::is_given;
use holdfast_base::certificate::files;
use holdfast_base::{Next, meta};

/// Characters of a permission in a column of `kubectl get`.
const WIDEST: usize = 24;

/// Returns the status before the next step.
pub(super) fn whole(seen: &Observed, next: &Next, now: Timestamp) -> EtcdUserStatus {
    let old = seen.user.status.clone().unwrap_or_default();
    let generation = seen.user.metadata.generation;
    let certificate = seen.secret.as_ref().filter(|_| seen.user.spec.certificate.is_some());
    let own = certificate.filter(|kept| kept.belongs_to(meta::uid(&seen.user.metadata)));
    let known = own.and_then(|kept| kept.leaf(files::CLIENT));
    let mut trusts: Vec<String> = known.into_iter().flat_map(|known| &known.cas).map(|ca| ca.anchor.clone()).collect();
    trusts.sort();
    EtcdUserStatus {
        observed_generation: generation,
        keys: if is_given(seen) { Some(keys(&seen.user.spec.permissions)) } else { old.keys },
        certificate_not_after: known.map(|known| known.not_after.to_string()),
        signed_by: known.map(|known| known.anchor.clone()),
        trusts,
        conditions: merge(&old.conditions, &[ready(seen, next)], generation, now),
    }
}

fn ready(seen: &Observed, next: &Next) -> Wanted {
    let no = |reason, message: &str| Wanted::no(Type::Ready, reason, message);
    let name = seen.user.user_name();
    match next {
        _ if meta::deleting(&seen.user.metadata) => match next {
            Next::Wait(waiting, _) => no(waiting.reason, &waiting.message),
            _ => no(Reason::Deleting, "the user is being deleted"),
        },
        Next::Wait(waiting, _) => no(waiting.reason, &waiting.message),
        Next::Do(..) => {
            no(Reason::ApplyingUser, &format!("Holdfast gives etcd the user {name}, its role and its certificate"))
        }
        Next::Settled(_) => Wanted::yes(
            Type::Ready,
            Reason::AsDesired,
            format!("the user {name} can log in, and may do what spec.permissions say"),
        ),
    }
}

/// Returns the first permission, cut, and the number of the others.
fn keys(permissions: &[Permission]) -> String {
    let Some((first, others)) = permissions.split_first() else { return "none".to_owned() };
    let whole = first.in_short();
    let mut short: String = whole.chars().take(WIDEST).collect();
    if short.len() < whole.len() {
        short.push('…');
    }
    if others.is_empty() { short } else { format!("{short} +{}", others.len()) }
}
