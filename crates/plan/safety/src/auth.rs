//! Rules of etcd's authentication: Holdfast does not lock itself out.

use holdfast_base::certificate::{ROOT, files};
use holdfast_base::seen::cluster::Observed;

use super::facts::formed_as;
use super::{Verdict, rule};

pub(super) fn set(seen: &Observed, enabled: bool, cluster_id: u64) -> Verdict {
    formed_as(seen, cluster_id)?;
    let asked = seen.cluster.spec.auth.as_ref().is_some_and(|auth| auth.enabled == enabled);
    rule("I31", asked, "authentication is turned on and off as spec.auth says")?;
    let login = seen.certificates.as_ref().and_then(|all| all.operator.as_ref()?.leaf(files::CLIENT));
    let is_root = login.is_some_and(|login| login.common_name.as_deref() == Some(ROOT));
    rule("I31", is_root, "authentication needs the operator's own login, of the user root")?;
    let all = seen.members.iter().all(|member| member.object.spec.transport().has_certificates());
    rule("I31", all, "each member knows users by their certificates")
}
