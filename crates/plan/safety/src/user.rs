//! Rules of a plan about a user: Holdfast changes only users that it claimed, in the etcd cluster of the claim, and never root.

use holdfast_api::user::ReclaimPolicy;
use holdfast_api::{EtcdUserStatus, USER_FINALIZER};
use holdfast_base::certificate::{CaPlace, Contents, Issue, Plane, ROOT};
use holdfast_base::seen::user::Observed;
use holdfast_base::{Act, Plan, Seen, Target, meta, user_claim};

use super::{Verdict, rule};

/// Checks the plan of a user.
///
/// # Errors
/// The plan breaks a rule.
pub fn user(seen: &Observed, plan: &Plan<EtcdUserStatus>) -> Verdict {
    rule("I13", plan.ensures.is_empty(), "a user's pass applies no object")?;
    match &plan.act {
        None => Ok(()),
        Some(Act::HoldUser { user }) => own(seen, user),
        Some(Act::ReleaseUser { user }) => {
            own(seen, user)?;
            rule("I21", may_go(seen), "a user that etcd has to lose keeps its object")
        }
        Some(Act::ClaimUser { user, claim }) => {
            own(seen, user)?;
            may_change(seen, seen.user.user_name())?;
            let wanted = seen.formed().map(|formed| user_claim::text(formed, seen.user.user_name(), None));
            rule(
                "I31",
                wanted.as_ref() == Some(claim),
                "a claim names the user, and the etcd cluster that has formed",
            )?;
            let free = seen.taken == Some(Seen::Known(false)) || (seen.user.spec.take_over && is_known(seen));
            rule("I31", free, "a user of another owner is not claimed")
        }
        Some(Act::PutUser { user, change, cluster_id }) => {
            own(seen, user)?;
            may_change(seen, &change.name)?;
            claimed(seen, *cluster_id)
        }
        Some(Act::DropUser { user, name, cluster_id }) => {
            own(seen, user)?;
            rule("I31", meta::deleting(&seen.user.metadata), "a user is deleted in etcd with its object")?;
            rule("I31", name == seen.user.user_name() && name != ROOT, "the user is that of the object")?;
            claimed(seen, *cluster_id)
        }
        Some(Act::Issue(issue)) => issued(seen, issue),
        Some(_) => rule("I13", false, "a user's pass changes its own user alone"),
    }
}

fn is_known(seen: &Observed) -> bool {
    matches!(seen.taken, Some(Seen::Known(_)))
}

fn own(seen: &Observed, user: &Target) -> Verdict {
    let same = user.uid == meta::uid(&seen.user.metadata) && user.name == meta::name(&seen.user.metadata);
    rule("I12", same, "the act is about the object of the pass")
}

fn may_change(seen: &Observed, name: &str) -> Verdict {
    rule("I31", name == seen.user.user_name() && name != ROOT && !name.is_empty(), "root is the operator's user")?;
    let held = meta::has_finalizer(&seen.user.metadata, USER_FINALIZER) && !meta::deleting(&seen.user.metadata);
    rule("I21", held, "a user that etcd gets has an object that waits for its end")
}

fn claimed(seen: &Observed, cluster_id: u64) -> Verdict {
    let of = seen.formed().filter(|_| seen.claim().is_some());
    let same = of.is_some_and(|formed| u64::from_str_radix(formed, 16) == Ok(cluster_id));
    rule("I31", same && seen.rival.is_none(), "a user is changed in the etcd cluster in which it was claimed")
}

/// Whether etcd keeps the user, lacks it, or goes too.
fn may_go(seen: &Observed) -> bool {
    let stays = seen.cluster.as_ref().is_some_and(|cluster| !meta::deleting(&cluster.metadata));
    let mine = seen.claim().is_some();
    let retains = seen.user.spec.reclaim_policy == ReclaimPolicy::Retain;
    meta::deleting(&seen.user.metadata) && (retains || !stays || !mine || seen.rival.is_some())
}

fn issued(seen: &Observed, issue: &Issue) -> Verdict {
    let owners = issue.metadata.owner_references.iter().flatten();
    rule(
        "I13",
        owners.into_iter().any(|owner| owner.uid == meta::uid(&seen.user.metadata)),
        "the Secret is the user's",
    )?;
    let replaced = issue.replaces.as_ref().map(|target| &target.uid);
    let there = seen.secret.as_ref();
    let mine = there.is_none_or(|kept| kept.belongs_to(meta::uid(&seen.user.metadata)));
    rule("I13", mine && replaced == there.map(|kept| &kept.target.uid), "a Secret of another owner is not changed")?;
    let Contents::Leaves { leaves, cas, trusts, .. } = &issue.contents else {
        return rule("I15", false, "a user gets no CA");
    };
    let ca = seen.ca.as_ref().zip(seen.cluster.as_ref());
    let ca = ca.filter(|(ca, cluster)| ca.belongs_to(meta::uid(&cluster.metadata)));
    let signs = cas.is_empty() || ca.is_some_and(|(ca, _)| cas.values().all(|(secret, _)| *secret == ca.target.name));
    let known = |place: &CaPlace| {
        let kept = [seen.ca.as_ref(), seen.servers.as_ref()].into_iter().flatten();
        kept.flat_map(|kept| kept.leaves.values())
            .flatten()
            .any(|known| known.cas.iter().any(|ca| ca.fingerprint == place.fingerprint))
    };
    rule("I15", trusts.values().flatten().all(known), "a user trusts the CAs that the operator trusts")?;
    rule("I15", signs, "the CA of the cluster signs a user's certificate")?;
    let user = seen.user.user_name();
    let own = leaves.iter().all(|leaf| {
        leaf.plane == Plane::Client
            && leaf.names.is_empty()
            && leaf.common_name.as_deref() == Some(user)
            && user != ROOT
    });
    rule("I31", own, "a user's certificate has the user's name, which is not root, and no host")
}
