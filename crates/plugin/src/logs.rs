//! `logs CLUSTER [-f]`: the logs of etcd of all members, each line with the member's name.
//!
//! Decides the Pods, and the form of a line. A member whose log cannot be read is one line.

use std::io::Write as _;

use clap::Args;
use futures::{AsyncBufReadExt as _, StreamExt as _, stream};
use holdfast_api::{EtcdCluster, component, key};
use holdfast_io::table::printable;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::LogParams;
use kube::core::Request;

use super::access::{Access, Only, Session, words};
use super::end::{DONE, FAILED, wrong_use};
use holdfast_manifests::names::object;

/// Container of etcd.
const ETCD: &str = "etcd";

/// Flags of `logs`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct LogsFlags {
    /// `EtcdCluster`.
    #[arg(value_parser = object)]
    pub cluster: String,
    /// Go on with new lines until Ctrl-C.
    #[arg(short, long)]
    pub follow: bool,
    /// Only this member.
    #[arg(long, value_name = "NAME", value_parser = object)]
    pub member: Option<String>,
    /// Only the last lines of each member.
    #[arg(long, value_name = "LINES", value_parser = clap::value_parser!(i64).range(0..))]
    pub tail: Option<i64>,
    /// The log of the container before its last restart.
    #[arg(short, long, conflicts_with = "follow")]
    pub previous: bool,
    /// Container: `etcd`, or `restore` for the progress of a restore.
    #[arg(short, long, value_name = "NAME", default_value = ETCD)]
    pub container: String,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
}

/// Prints the logs.
pub async fn run(flags: LogsFlags) -> anyhow::Result<u8> {
    let session = flags.access.open().await?;
    let cluster = session.named::<EtcdCluster>(&flags.cluster).await?;
    let labels = format!("{}={},{}={}", key::CLUSTER, cluster.name_any(), key::COMPONENT, component::MEMBER);
    let pods = session.list::<Pod>(Only { labels: Some(&labels), ..Only::default() }).await?;
    let mut names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
    if let Some(member) = &flags.member {
        names.retain(|name| name == member);
    }
    if names.is_empty() {
        let whose = flags.member.as_deref().unwrap_or(&flags.cluster);
        return Err(wrong_use(format!("{whose} has no Pod in namespace {}", session.namespace)));
    }
    let params = LogParams {
        container: Some(flags.container),
        follow: flags.follow,
        tail_lines: flags.tail,
        previous: flags.previous,
        ..LogParams::default()
    };
    let alone = names.len() == 1;
    let all = names.iter().map(|name| copy(&session, name, &params, alone));
    let outcomes: Vec<bool> = if flags.follow {
        futures::future::join_all(all).await
    } else {
        // One after the other: lines of two members do not mix.
        stream::iter(all).then(|one| one).collect().await
    };
    Ok(if outcomes.contains(&true) { DONE } else { FAILED })
}

/// Returns a line that cannot move the cursor. Stack traces have tabs.
fn shown(line: &str) -> String {
    line.split('\t').map(|part| printable(part.as_bytes())).collect::<Vec<_>>().join("\t")
}

/// Prints the log of a Pod. Returns whether it could be read.
async fn copy(session: &Session, pod: &str, params: &LogParams, alone: bool) -> bool {
    let prefix = if alone { String::new() } else { format!("{pod} ") };
    let outcome: Result<(), String> = async {
        let request = Request::new(format!("/api/v1/namespaces/{}/pods", session.namespace)).logs(pod, params);
        let request = request.map_err(|error| error.to_string())?;
        let stream = session.client.request_stream(request).await.map_err(|error| words(&error))?;
        let mut lines = std::pin::pin!(stream.lines());
        while let Some(line) = lines.next().await {
            let line = line.map_err(|error| error.to_string())?;
            if writeln!(std::io::stdout(), "{prefix}{}", shown(&line)).is_err() {
                break;
            }
        }
        Ok(())
    }
    .await;
    if let Err(why) = &outcome {
        // The other members' logs matter more than this line.
        let _ = writeln!(std::io::stderr(), "{pod}: {why}");
    }
    outcome.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_cannot_move_the_cursor() {
        assert_eq!(shown("\tgo.uber.org/zap\x1b[2J"), "\tgo.uber.org/zap\\x1b[2J");
    }
}
