//! etcd's command line for a member.
//!
//! Decides the flags for each minor version (3.6 renamed some, 3.7 removed the old names: an unknown flag is a crash loop).
//! `--initial-cluster-state` is absent: the gate alone appends this flag, at every start (I2).

use std::fmt::Display;

use holdfast_api::cluster::Options;
use holdfast_api::name::Scheme;
use holdfast_api::transport::Transport;
use holdfast_api::{EtcdMember, name};

use crate::certificate::files;
use crate::meta;
use crate::objects::{self, port};
use crate::valid::{Server, Version};

/// Mount path of a member's volume.
pub const VOLUME: &str = "/var/lib/etcd";

/// Mount path of a member's certificates.
pub const CERTIFICATES: &str = "/etc/holdfast/tls";

/// Constant for all members of all versions: members with different values disagree about the membership.
const MAX_LEARNERS: usize = 9;

/// Returns the arguments after `/usr/local/bin/etcd`.
pub fn etcd_args(member: &EtcdMember, server: &Server, initial_cluster: &str) -> Vec<String> {
    let meta = &member.metadata;
    let (name, cluster) = (meta::name(meta), member.spec.cluster_ref.name.as_str());
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let transport = member.spec.transport();
    let peers = format!("{}://0.0.0.0:{}", transport.peers().as_str(), port::PEER);
    let client = |scheme: Scheme| name::client_url(scheme, name, cluster, namespace);
    let any = |scheme: Scheme| format!("{}://0.0.0.0:{}", scheme.as_str(), port::CLIENT);
    let clients = |url: &dyn Fn(Scheme) -> String| {
        client_schemes(transport).iter().map(|it| url(*it)).collect::<Vec<_>>().join(",")
    };
    let mut args = vec![
        flag("name", name),
        flag("data-dir", format!("{VOLUME}/{}", holdfast_contract::DATA_DIR)),
        flag("listen-peer-urls", peers),
        flag("listen-client-urls", clients(&any)),
        flag("listen-metrics-urls", format!("http://0.0.0.0:{}", port::METRICS)),
        flag("initial-advertise-peer-urls", listed_url(member, initial_cluster)),
        flag("advertise-client-urls", clients(&client)),
        flag("initial-cluster", initial_cluster),
        flag("initial-cluster-token", &member.spec.cluster_token),
        flag("quota-backend-bytes", server.quota),
    ];
    // The compaction hash check finds diverged members. The initial check stays off: at every start this check asks all peers,
    // and waits 7 s for each peer that does not answer yet.
    match (server.version.minor, server.version.patch) {
        (5, ..5) => {}
        (5, _) => args.push(flag("experimental-compact-hash-check-enabled", true)),
        (_, _) => args.push(flag("feature-gates", "CompactHashCheck=true")),
    }
    if server.version.many_learners() {
        args.push(flag("max-learners", MAX_LEARNERS));
    }
    if let Some(tls) = member.spec.certificates() {
        let peer_name = tls.peer_name.clone().unwrap_or_else(|| name::peer_marker(cluster, namespace));
        args.extend(certificates(server.version, &peer_name));
    }
    if let Some(options) = &member.spec.process.options {
        args.extend(chosen(options));
    }
    args
}

/// Returns the schemes of the client port, which serves both at once.
const fn client_schemes(transport: Transport) -> &'static [Scheme] {
    match transport {
        Transport::Plaintext => &[Scheme::Http],
        Transport::PeersPlaintext | Transport::ClientsPlaintext => &[Scheme::Https, Scheme::Http],
        Transport::Tls => &[Scheme::Https],
    }
}

/// Returns the peer URL under which etcd lists the member at its first start, which etcd compares with the initial cluster. Later
/// etcd reads its URL from its data.
fn listed_url(member: &EtcdMember, initial_cluster: &str) -> String {
    let own = meta::name(&member.metadata);
    let listed = initial_cluster.split(',').filter_map(|entry| entry.split_once('=')).find(|(name, _)| *name == own);
    listed.map_or_else(|| objects::member::own_peer_url(member), |(_, url)| url.to_owned())
}

/// Both ports demand a certificate from the other side, and the peer port demands this name in a peer's certificate. etcd does
/// not compare the peer's address with its certificate: DNS knows a new Pod only seconds after the Pod dials.
fn certificates(version: Version, peer_name: &str) -> Vec<String> {
    let file = |name: &str| format!("{CERTIFICATES}/{name}");
    let skip = if version.minor == 5 {
        "experimental-peer-skip-client-san-verification"
    } else {
        "peer-skip-client-san-verification"
    };
    vec![
        flag("cert-file", file(files::SERVER.certificate)),
        flag("key-file", file(files::SERVER.key)),
        flag("trusted-ca-file", file(files::SERVER.ca)),
        flag("client-cert-auth", true),
        flag("peer-cert-file", file(files::PEER.certificate)),
        flag("peer-key-file", file(files::PEER.key)),
        flag("peer-trusted-ca-file", file(files::PEER.ca)),
        flag("peer-client-cert-auth", true),
        flag("peer-cert-allowed-hostname", peer_name),
        flag(skip, true),
    ]
}

/// Returns the user's settings; the validated values already contain the quota.
fn chosen(options: &Options) -> Vec<String> {
    let Options {
        quota_backend_bytes: _,
        auto_compaction_mode,
        auto_compaction_retention,
        snapshot_count,
        heartbeat_interval,
        election_timeout,
        max_request_bytes,
        max_txn_ops,
        max_concurrent_streams,
        log_level,
        extra_args,
        extra_env: _,
    } = options;
    let number = |name: &str, value: &Option<i64>| value.map(|v| flag(name, v));
    [
        auto_compaction_mode.map(|mode| flag("auto-compaction-mode", mode.as_str())),
        auto_compaction_retention.as_ref().map(|value| flag("auto-compaction-retention", value)),
        number("snapshot-count", snapshot_count),
        number("heartbeat-interval", heartbeat_interval),
        number("election-timeout", election_timeout),
        number("max-request-bytes", max_request_bytes),
        number("max-txn-ops", max_txn_ops),
        number("max-concurrent-streams", max_concurrent_streams),
        log_level.map(|level| flag("log-level", level.as_str())),
    ]
    .into_iter()
    .flatten()
    .chain(extra_args.iter().flatten().cloned())
    .collect()
}

fn flag(name: &str, value: impl Display) -> String {
    format!("--{name}={value}")
}
