//! etcd's authentication, as `spec.auth` asks for it.
//!
//! Decides when authentication is turned on and off, and the reports about it. The operator's only login is its certificate, so
//! authentication is turned on only while that certificate is of the user root (I31). Without `spec.auth` the operator
//! reports the state, and changes nothing.

use holdfast_api::condition::Reason;
use holdfast_api::name::{self, Scheme};
use holdfast_api::transport::Transport;

use super::intervals::POLL;
use super::{Member, Membership, Observed};
use holdfast_base::certificate::{ROOT, files};
use holdfast_base::{Act, Next, meta, pods};

/// Returns the change of authentication, or the wait before it; `None` where `spec.auth` asks for nothing or for the present state.
pub(super) fn next(seen: &Observed, etcd: &Membership) -> Option<Next> {
    let wanted = seen.cluster.spec.auth.as_ref()?.enabled;
    if seen.auth? == wanted || !seen.members.iter().all(knows_certificates) {
        return None;
    }
    let login = seen.certificates.as_ref()?.operator.as_ref()?.leaf(files::CLIENT)?;
    if login.common_name.as_deref() != Some(ROOT) {
        return Some(Next::wait(Reason::AuthRequiredNotConfigured, not_root(seen), POLL));
    }
    Some(Next::act(Act::SetAuth { enabled: wanted, cluster_id: etcd.cluster_id }))
}

/// Whether a member's etcd knows users by their certificates, now and after its next start.
fn knows_certificates(member: &Member) -> bool {
    let pod = member.pod.as_ref().map(pods::transport);
    member.object.spec.transport().has_certificates() && pod.is_none_or(Transport::has_certificates)
}

fn not_root(seen: &Observed) -> String {
    format!(
        "spec.auth.enabled: the operator logs in by its certificate, and the certificate in the Secret {} is not of the user root. \
         Issue it with the common name root (spec.tls.client.operatorClientSecretRef)",
        name::operator_tls(meta::name(&seen.cluster.metadata))
    )
}

/// Returns the message where etcd requires a login that the operator does not have.
pub(super) fn locked_out(seen: &Observed) -> String {
    let remedy = match seen.cluster.scheme() {
        Scheme::Https => {
            "Put a certificate with the common name root into the Secret that spec.tls.client.operatorClientSecretRef names, and \
             the operator goes on"
        }
        Scheme::Http => "Turn authentication off: etcdctl --user root auth disable",
    };
    format!(
        "etcd has authentication on, and the operator cannot log in. Members serve clients, but Holdfast adds and promotes none, and \
         a new Pod gets no clients. {remedy}"
    )
}

/// Returns the report where a person has turned authentication on.
pub(super) fn unmanaged(seen: &Observed) -> Option<(Reason, String)> {
    let by_hand = seen.auth == Some(true) && seen.cluster.spec.auth.is_none();
    let message = || {
        format!(
            "etcd's authentication is on, and spec.auth is absent: Holdfast goes on by its certificate, and keeps neither the users \
             nor authentication. Set spec.auth.enabled: true to keep it on, or false to turn it off. The certificate in the Secret \
             {} is of the user root",
            name::operator_tls(meta::name(&seen.cluster.metadata))
        )
    };
    by_hand.then(|| (Reason::AuthUnmanaged, message()))
}
