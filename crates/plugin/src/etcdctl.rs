//! `etcdctl CLUSTER -- ARGS`: runs the etcdctl of this machine against the voters of a cluster.
//!
//! Decides the ports and the environment: one local port leads to each voter through the API server (`pods/portforward`), and
//! etcdctl gets them with the client certificate. No container runs a command.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail};
use clap::Args;
use holdfast_api::name::Scheme;
use holdfast_api::{EtcdCluster, key, role};
use holdfast_io::scratch::Scratch;
use holdfast_kube::port_forward;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use super::access::{Access, Only, Session};
use super::certificate::{FILES, User, read, user, write};
use super::end::{FAILED, wrong_use};
use holdfast_manifests::names::object;

/// etcd's port for clients.
const PORT: u16 = 2379;

/// Flags of `etcdctl`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct EtcdctlFlags {
    /// `EtcdCluster`.
    #[arg(value_parser = object)]
    pub cluster: String,
    /// Arguments of etcdctl, after `--`.
    #[arg(last = true, required = true)]
    pub args: Vec<String>,
    /// User in the certificate: none, root, or the name of an `EtcdUser`.
    #[arg(long, value_parser = user, value_name = "NAME", default_value_t)]
    pub user: User,
    /// The program etcdctl. Default: that of PATH.
    #[arg(long, value_name = "PATH", default_value = "etcdctl")]
    pub etcdctl: PathBuf,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
}

/// Runs etcdctl; returns its exit code.
pub async fn run(flags: EtcdctlFlags) -> anyhow::Result<u8> {
    let session = flags.access.open().await?;
    let cluster = session.named::<EtcdCluster>(&flags.cluster).await?;
    let labels = format!("{}={},{}={}", key::CLUSTER, flags.cluster, key::ROLE, role::VOTER);
    let pods = session.list::<Pod>(Only { labels: Some(&labels), ..Only::default() }).await?;
    let voters: Vec<String> = pods.iter().filter(|pod| runs(pod)).map(ResourceExt::name_any).collect();
    if voters.is_empty() {
        bail!(
            "no voter of EtcdCluster {} runs: kubectl holdfast status {}{}",
            flags.cluster,
            flags.cluster,
            session.flag()
        );
    }
    let scheme = cluster.scheme();
    // Before the key is written: from now on no signal ends this process, and the key is removed.
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut hung_up = signal(SignalKind::hangup())?;
    let mut command = Command::new(&flags.etcdctl);
    // The variables of another cluster must not reach this one.
    for name in ["ETCDCTL_CACERT", "ETCDCTL_CERT", "ETCDCTL_KEY", "ETCDCTL_API"] {
        command.env_remove(name);
    }
    let folder = Scratch::new(&std::env::temp_dir(), 0)?;
    if scheme == Scheme::Https {
        let path = folder.join("tls");
        write(&path, &read(&session, &cluster, &flags.user).await?)?;
        let variables = ["ETCDCTL_CACERT", "ETCDCTL_CERT", "ETCDCTL_KEY"];
        command.envs(variables.into_iter().zip(FILES.map(|file| path.join(file))));
    }
    let mut endpoints = vec![];
    for voter in voters {
        let port = forward(&session, voter).await?;
        endpoints.push(format!("{}://127.0.0.1:{port}", scheme.as_str()));
    }
    command.env("ETCDCTL_ENDPOINTS", endpoints.join(",")).args(&flags.args).stdin(Stdio::inherit()).kill_on_drop(true);
    let mut child = match command.spawn() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let program = flags.etcdctl.display();
            return Err(wrong_use(format!(
                "there is no program {program}: install etcdctl, or name it with --etcdctl"
            )));
        }
        spawned => spawned.with_context(|| format!("starting {}", flags.etcdctl.display()))?,
    };
    // Ctrl-C reaches etcdctl itself; this process waits for its end in any case, and removes the key.
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            _ = interrupted.recv() => {}
            _ = terminated.recv() => child.start_kill()?,
            _ = hung_up.recv() => child.start_kill()?,
        }
    };
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED))
}

fn runs(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && phase == Some("Running")
}

/// Opens a local port that leads to a Pod. Each connection to it is a connection of its own.
async fn forward(session: &Session, pod: String) -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("opening a local port")?;
    let port = listener.local_addr()?.port();
    let (client, namespace) = (session.client.clone(), session.namespace.clone());
    let is_reported = Arc::new(AtomicBool::new(false));
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let (client, namespace, pod, is_reported) =
                (client.clone(), namespace.clone(), pod.clone(), Arc::clone(&is_reported));
            tokio::spawn(async move {
                // etcdctl reports only that the connection ended, and tries again.
                if let Err(error) = port_forward::connect(&client, &namespace, &pod, PORT, near).await
                    && !is_reported.swap(true, Ordering::Relaxed)
                {
                    let _ = writeln!(std::io::stderr(), "{error:#}");
                }
            });
        }
    });
    Ok(port)
}
