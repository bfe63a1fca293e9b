//! An etcd process that a verb starts on data of its own, and ends.
//!
//! This file decides the flags of etcd, and when the answer comes from this etcd: the ports are free when the agent chooses them,
//! and another etcd of this machine may take them first. etcd does not sync its files: a drill removes them afterwards, and a
//! restore syncs them before they count.
//!
//! The etcd that replays a survivor's log has the IDs of a member that others may still know. So it must reach none of them: its
//! ports are on loopback, and its connections to the members in its data go to a proxy that does not exist.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use etcd_client::{Client, StatusResponse};
use holdfast_contract::error::{Error, Result, io_error};
use holdfast_contract::{EtcdFlags, ExitClass, Origin, hex_id};
use serde::Deserialize;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use super::child::{TAKEN, TRIES, classify_failed_start, log_text, ports, spawn_server, stop_server};
use crate::connect::Dialer;
use crate::etcdutl::output::classify_output;
use crate::version::Minor;
use holdfast_gate::data_dir::WAL;
use holdfast_gate::wal::{self, Metadata};
use holdfast_io::process::terminate;

/// Time that etcd needs before it opens its database, and the speed of the slowest disk.
const START_BASE: Duration = Duration::from_mins(1);
const START_BYTES_PER_SECOND: u64 = 16 << 20;

/// A health check is a linearizable read, here with a quorum of one member.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The header in which etcd sends its cluster's ID to peers.
const CLUSTER_ID: &str = "x-etcd-cluster-id";

/// etcd commits its last batch and closes its database: seconds, on the slowest disk.
const ENDS_WITHIN: Duration = Duration::from_mins(1);

/// Proxy of an etcd that must reach no member. Nothing listens at the port (9, discard), and Go takes a proxy for every address
/// but those of loopback (net/http: `ProxyFromEnvironment`; etcd: client/pkg/transport/transport.go).
const NO_WAY_OUT: &str = "http://127.0.0.1:9";

/// More learners than a log has at once.
const MOST_LEARNERS: u32 = 1000;

/// Pause between two requests.
const INTERVAL: Duration = Duration::from_millis(50);

/// Reason for which a verb starts an etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// It serves data that were restored with a unique token.
    Serve,
    /// It applies the log of a survivor's copied data, alone. Of this version.
    Replay(Minor),
}

/// A running etcd.
pub struct Etcd {
    work: Work,
    program: PathBuf,
    data: PathBuf,
    log: PathBuf,
    /// IDs of the restored member, unique to this etcd.
    ids: Metadata,
    child: Child,
    at: Urls,
}

/// Addresses of the etcd.
struct Urls {
    client: String,
    peer: String,
}

/// An etcd that answers.
pub struct Ready {
    /// A connected client; `None`: etcd requires a user.
    pub client: Option<Client>,
    /// Its client URL.
    pub endpoint: String,
    /// ID of its member.
    pub member_id: u64,
    /// Its version.
    pub version: String,
}

impl Etcd {
    /// Starts an etcd on a data directory.
    pub fn spawn(work: Work, program: &Path, data: &Path, log: PathBuf) -> Result<Self> {
        let ids = wal::metadata_of(&data.join(WAL));
        let ids = ids.ok().flatten().ok_or_else(|| Error::transient("the data directory has no WAL"))?;
        let (child, at) = spawn(work, program, data, &log)?;
        Ok(Self { work, program: program.to_owned(), data: data.to_owned(), log, ids, child, at })
    }

    /// Returns the process ID.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until etcd has elected itself leader and has applied this Raft index.
    ///
    /// With authentication on, etcd does not name the index. It is healthy then, which is a linearizable read: a leader serves it
    /// after it has applied every entry that was committed before.
    pub async fn ready(&mut self, within: Duration, index: u64) -> Result<Ready> {
        let until = Instant::now() + within;
        let mut tries = TRIES;
        loop {
            let endpoint = self.at.client.clone();
            let flags = EtcdFlags { endpoints: vec![endpoint.clone()], ..EtcdFlags::default() };
            match Dialer::from_flags(&flags)?.dial(&endpoint).await {
                Ok((client, status))
                    if status.leader() != 0 && is_of(&status, self.ids) && status.raft_applied_index() >= index =>
                {
                    let (member_id, version) = (self.ids.member_id, status.version().to_owned());
                    return Ok(Ready { client: Some(client), endpoint, member_id, version });
                }
                Err(error) if error.class() == ExitClass::Denied => {
                    if let Some(version) = healthy(&self.at, self.ids).await? {
                        return Ok(Ready { client: None, endpoint, member_id: self.ids.member_id, version });
                    }
                }
                Ok(_) | Err(_) => {}
            }
            if let Some(status) = self.child.try_wait().map_err(io_error("waiting for etcd"))? {
                let log = log_text(&self.log);
                tries -= 1;
                if !log.contains(TAKEN) || tries == 0 {
                    return Err(not_started(self.work, status, &log));
                }
                (self.child, self.at) = spawn(self.work, &self.program, &self.data, &self.log)?;
            }
            if Instant::now() > until {
                let (_, line) = classify_output(&log_text(&self.log));
                return Err(Error::deadline(format!("etcd does not answer within {} s: {line}", within.as_secs())));
            }
            sleep(INTERVAL).await;
        }
    }

    /// Kills etcd, and returns after it has ended.
    pub async fn stop(self) {
        stop_server("etcd", self.child).await;
    }

    /// Ends etcd with its database closed, and returns after it has ended.
    pub async fn end(mut self) -> Result<()> {
        if let Some(pid) = self.child.id() {
            terminate(pid)?;
        }
        let Ok(ended) = timeout(ENDS_WITHIN, self.child.wait()).await else {
            self.stop().await;
            let seconds = ENDS_WITHIN.as_secs();
            return Err(Error::deadline(format!("etcd did not end within {seconds} s after SIGTERM")));
        };
        ended.map(drop).map_err(io_error("waiting for etcd"))
    }
}

/// Returns the time that etcd may take for a start on a database of this size.
pub const fn starts_within(db_bytes: u64) -> Duration {
    START_BASE.saturating_add(Duration::from_secs(db_bytes / START_BYTES_PER_SECOND))
}

/// Whether this is an answer of the member with these IDs.
fn is_of(status: &StatusResponse, ids: Metadata) -> bool {
    let Metadata { cluster_id, member_id } = ids;
    status.header().is_some_and(|header| (header.cluster_id(), header.member_id()) == (cluster_id, member_id))
}

fn spawn(work: Work, program: &Path, data: &Path, log: &Path) -> Result<(Child, Urls)> {
    let [client, peer] = ports().map_err(io_error("choosing ports for etcd"))?;
    let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let mut folder = std::ffi::OsString::from("--data-dir=");
    folder.push(data);
    let mut command = Command::new(program);
    command
        .arg(folder)
        .arg("--name=drill")
        .arg(format!("--listen-client-urls={client}"))
        .arg(format!("--advertise-client-urls={client}"))
        .arg(format!("--listen-peer-urls={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--initial-cluster=drill={peer}"))
        .arg("--unsafe-no-fsync")
        // The cluster's quota may be larger than the default.
        .arg("--quota-backend-bytes=-1")
        .arg("--log-level=warn");
    let mut proxies = &[][..];
    if let Work::Replay(version) = work {
        command.arg("--force-new-cluster");
        if version.many_learners() {
            // etcd checks each change of the log again: with its default of one, it panics at the second of two learners.
            command.arg(format!("--max-learners={MOST_LEARNERS}"));
        }
        proxies = &["HTTP_PROXY", "HTTPS_PROXY"];
    }
    let variables = proxies.iter().map(|name| (*name, NO_WAY_OUT));
    let child = spawn_server("etcd", program, &mut command, variables, log)?;
    Ok((child, Urls { client, peer }))
}

/// Returns the version of a healthy etcd that requires a user: etcd reports health and version without a user. A NOSPACE alarm
/// does not matter. Only the peer port names the cluster's ID, and etcd opens its client port before it answers peers.
async fn healthy(at: &Urls, ids: Metadata) -> Result<Option<String>> {
    /// etcd's answer at `/version`.
    #[derive(Deserialize)]
    struct Version {
        etcdserver: String,
    }
    holdfast_io::crypto::install_crypto();
    // etcd speaks plain HTTP here. Without any CA certificates on the machine the default client would not build.
    let client = reqwest::Client::builder().timeout(ANSWER_WITHIN).no_proxy().tls_certs_only([]).build();
    let client = client.map_err(|error| Error::config(format!("asking etcd: {error}")))?;
    let cluster = hex_id(ids.cluster_id);
    let is_expected = |answer: reqwest::Response| answer.headers().get(CLUSTER_ID).is_some_and(|id| *id == cluster);
    if !get(&client, &at.peer, "members").await.is_ok_and(is_expected)
        || get(&client, &at.client, "health?exclude=NOSPACE").await.is_err()
    {
        return Ok(None);
    }
    let version = match get(&client, &at.client, "version").await {
        Ok(answer) => answer.text().await.ok(),
        Err(_) => None,
    };
    Ok(version.and_then(|json| serde_json::from_str(&json).ok()).map(|Version { etcdserver }| etcdserver))
}

async fn get(client: &reqwest::Client, url: &str, path: &str) -> reqwest::Result<reqwest::Response> {
    client.get(format!("{url}/{path}")).send().await?.error_for_status()
}

/// Returns the error of a failed start.
fn not_started(work: Work, status: ExitStatus, log: &str) -> Error {
    let (class, line) = classify_failed_start(log);
    let message = match work {
        Work::Serve => format!(
            "etcd does not start on the restored data ({status}): {line}. This machine may be the cause, so the agent \
             stores no proof"
        ),
        Work::Replay(_) => format!("etcd does not start on the copy of the survivor's data ({status}): {line}"),
    };
    Error::new(class, message).with_origin(Origin::Own)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn that_it_does_not_start_is_not_held_against_the_snapshot() {
        for (raw, said, class) in [
            (2 << 8, "flag provided but not defined: -unsafe-no-fsync\nUsage:\n", ExitClass::Transient),
            (1 << 8, "{\"level\":\"fatal\",\"error\":\"read wal: input/output error\"}", ExitClass::Transient),
            (2 << 8, "fatal error: runtime: out of memory\n\ngoroutine 1:\n", ExitClass::Transient),
            (2 << 8, "panic: freelist\n", ExitClass::Transient),
            (9, "", ExitClass::Transient),
            (1 << 8, "write wal: no space left on device\n", ExitClass::Full),
        ] {
            let error = not_started(Work::Serve, ExitStatus::from_raw(raw), said);
            assert_eq!(error.class(), class, "{error}");
            assert!(error.message().contains(said.lines().next().unwrap_or("no output")), "{error}");
        }
    }
}
