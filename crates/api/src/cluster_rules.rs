//! Rules (CEL) about edits of an `EtcdCluster`: what may change after the cluster has formed.
//!
//! Decides how a rule is spelt. The messages stand in `cluster.rs`, beside the rules' names.

use kube::core::Rule;

/// CEL: the cluster has formed, or an earlier timeline of it has.
pub(crate) const FORMED: &str = "(has(self.status) && has(self.status.latches) && (has(self.status.latches.formed) || has(self.status.latches.returning)))";

/// A rule (CEL) that holds from the moment when the cluster has formed.
pub(crate) fn once_formed(rule: &str) -> Rule {
    Rule::new(format!("!{FORMED} || ({rule})"))
}

/// CEL: an optional field of the spec is what it was.
pub(crate) fn same(field: &str) -> String {
    let (new, old) = (format!("self.spec.{field}"), format!("oldSelf.spec.{field}"));
    format!("has({new}) == has({old}) && (!has({new}) || {new} == {old})")
}

/// CEL: the same of a field below optional ones.
pub(crate) fn same_below(field: &str) -> String {
    let there = |whose: &str| {
        let path = format!("{whose}.spec.{field}.");
        let steps = path.match_indices('.').skip(2).map(|(end, _)| format!("has({})", &path[..end]));
        format!("({})", steps.collect::<Vec<_>>().join(" && "))
    };
    let (is, was) = (there("self"), there("oldSelf"));
    format!("{is} == {was} && (!{is} || self.spec.{field} == oldSelf.spec.{field})")
}

/// CEL: the spec asks for plaintext on both planes.
fn insecure(whose: &str) -> String {
    format!("(has({whose}.spec.tls) && has({whose}.spec.tls.insecure) && {whose}.spec.tls.insecure)")
}

/// CEL: the edit turns TLS neither on nor off.
pub(crate) fn same_security() -> String {
    format!("{} == {}", insecure("self"), insecure("oldSelf"))
}

/// CEL: Holdfast issues all certificates.
fn issues_all(whose: &str) -> String {
    let lacks = |field: &str| format!("!has({whose}.spec.tls.{field})");
    let (client, peer) = (
        ["client.serverSecretRef", "client.certManager"].map(lacks).join(" && "),
        ["peer.secretRef", "peer.certManager"].map(lacks).join(" && "),
    );
    format!(
        "(!has({whose}.spec.tls) || ((!has({whose}.spec.tls.client) || ({client})) && (!has({whose}.spec.tls.peer) || ({peer}))))"
    )
}

/// CEL: on the way to plaintext, and back to TLS before every member is there, Holdfast issues the certificates: without a source in
/// the spec new members would get none.
pub(crate) fn issues_on_the_way() -> String {
    let there = "!has(self.status.latches.transport) || self.status.latches.transport == 'Plaintext'";
    let (off, on) = (issues_all("oldSelf"), issues_all("self"));
    let (was, is) = (insecure("oldSelf"), insecure("self"));
    format!("({was} && !{is}) ? ({there} || {on}) : ({was} || !{is} || {off})")
}

/// CEL: members serve clients with TLS and in plaintext.
pub(crate) fn allows_plaintext(whose: &str) -> String {
    let client = format!("{whose}.spec.tls.client");
    format!("(has({whose}.spec.tls) && has({client}) && has({client}.allowPlaintext) && {client}.allowPlaintext)")
}

/// Where certificates come from, and whom members accept.
pub(crate) const SOURCES: [&str; 4] =
    ["tls.client.serverSecretRef", "tls.client.operatorClientSecretRef", "tls.client.certManager", "tls.peer"];

/// CEL: the size of the volumes, with its default.
fn size(whose: &str) -> String {
    format!("quantity(has({whose}.spec.storage.size) ? string({whose}.spec.storage.size) : '8Gi')")
}

/// CEL: the volumes grow, or the size returns to one that every volume has or can get: no volume shrinks.
pub(crate) fn grows() -> String {
    let (is, was) = (size("self"), size("oldSelf"));
    let back = format!("has(self.status.volumeSize) && {is}.compareTo(quantity(string(self.status.volumeSize))) >= 0");
    format!("{is}.compareTo({was}) >= 0 || (self.spec.storage.medium != 'Memory' && {back})")
}

/// CEL: a size in memory stays.
pub(crate) fn stays_in_memory() -> String {
    format!("self.spec.storage.medium != 'Memory' || {}.compareTo({}) == 0", size("self"), size("oldSelf"))
}
