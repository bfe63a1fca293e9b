//! The server processes that a verb starts: on loopback only, on free ports, without the agent's environment.
//!
//! Decides what every such process has in common: streams, ports, its end, and that a failed start is no fault of the snapshot.
//! `etcd.rs` and `kubernetes/apiserver.rs` decide the flags, and when the server is ready.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Stdio;

use holdfast_contract::ExitClass;
use holdfast_contract::error::{Result, io_error};
use tokio::process::{Child, Command};

use crate::etcdutl::output::classify_output;

/// Attempts with other ports: a port that was free may be in use when the server opens it.
pub const TRIES: usize = 3;
/// etcd's and kube-apiserver's words for a port in use.
pub const TAKEN: &str = "address already in use";

/// Starts a server with these environment variables alone. Its output goes to this file.
pub fn spawn_server<'a>(
    name: &str,
    program: &Path,
    flags: &mut Command,
    variables: impl IntoIterator<Item = (&'a str, &'a str)>,
    log: &Path,
) -> Result<Child> {
    let log = File::create(log).map_err(io_error(format!("making {}", log.display())))?;
    let errors = log.try_clone().map_err(io_error(format!("making {name}'s log")))?;
    let streams = flags.env_clear().envs(variables).stdin(Stdio::null()).stdout(log).stderr(errors);
    streams.kill_on_drop(true).spawn().map_err(io_error(format!("starting {}", program.display())))
}

/// Kills a server, and returns after it has ended.
pub async fn stop_server(name: &str, mut child: Child) {
    if let Err(error) = child.kill().await {
        tracing::warn!(%error, "{name} could not be stopped");
    }
}

/// Returns two free ports.
pub fn ports() -> std::io::Result<[u16; 2]> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    // Holds both listeners until both ports are known, so that they differ.
    let (one, other) = (listen()?, listen()?);
    Ok([one.local_addr()?.port(), other.local_addr()?.port()])
}

/// Returns the whole log of a server.
pub fn log_text(log: &Path) -> String {
    fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// Returns the class of a failed start, and the line of the log that says why. The snapshot is not broken: its pages are proven by
/// now, and memory, a disk or a flag can cause this as well.
pub fn classify_failed_start(log: &str) -> (ExitClass, String) {
    let (class, line) = classify_output(log);
    (if class == ExitClass::Full { class } else { ExitClass::Transient }, line)
}
