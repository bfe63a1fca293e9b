//! The operator as a process of this machine, which a story may kill, freeze and restart at any moment.
//!
//! It works in the story's namespace alone, as the ServiceAccount that is installed there and with a token of its own, so that its
//! rights are the real ones. It decides nothing about the operator's work.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::kube_helpers::{patiently, until};
use super::program::command;
use super::world::{PATIENCE, World};

/// Ends the operator at this write; see `holdfast operator`.
pub const DIE_AFTER: &str = "HOLDFAST_DIE_AFTER_WRITES";

/// Identity, rights and log of an operator across its restarts.
#[derive(Clone)]
pub struct Seat {
    holdfast: PathBuf,
    image: String,
    ns: String,
    identity: String,
    /// Folder of the kubeconfig; the last user deletes it.
    folder: Arc<TempDir>,
    log: PathBuf,
}

impl Seat {
    /// Creates a seat under this identity. `server` replaces the API server's address.
    pub async fn new(w: &World, identity: &str, server: Option<&str>) -> Result<Self> {
        let seat = Self {
            holdfast: w.env.holdfast.clone(),
            image: w.env.image.clone(),
            ns: w.ns.clone(),
            identity: identity.to_owned(),
            folder: Arc::new(tempfile::tempdir()?),
            log: w.env.logs.join(format!("{}.{identity}.log", w.story)),
        };
        let token = token(w).await?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(seat.kubeconfig())?;
        let cluster = match server {
            Some(url) => json!({ "server": url }),
            None => api_server(&w.env.kubeconfig)?,
        };
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": "holdfast", "user": {"token": token}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "holdfast"}}],
        });
        file.write_all(kubeconfig.to_string().as_bytes())?;
        Ok(seat)
    }

    /// Starts an operator. After a crash the same identity leads again at once, like a container that kubelet restarts.
    pub fn start(&self, more: &[(&str, String)]) -> Result<HostOperator> {
        Ok(HostOperator { running: self.launch(more)? })
    }

    fn launch(&self, more: &[(&str, String)]) -> Result<Running> {
        let listen = SocketAddr::from(([127, 0, 0, 1], crate::ports::free()));
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        note(&log, &format!("---- {} starts {more:?}", self.identity))?;
        let child = command(&self.holdfast)
            .args(["operator", "--log-format=json", "--leader-election-name=holdfast"])
            .args([
                format!("--watch-namespace={}", self.ns),
                format!("--leader-election-namespace={}", self.ns),
                format!("--identity={}", self.identity),
                format!("--agent-image={}", self.image),
                format!("--listen={listen}"),
            ])
            .env_clear()
            .env("KUBECONFIG", self.kubeconfig())
            .env("HOLDFAST_LOG_LEVEL", "info,holdfast=debug")
            .envs(more.iter().map(|(name, value)| (*name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log.try_clone()?)
            .spawn()
            .context("start the operator")?;
        Ok(Running { child, listen, log, _folder: Arc::clone(&self.folder) })
    }

    /// Fails where an operator of this identity panicked, or made a plan that a safety rule forbids.
    pub fn no_defects(&self) -> Result<()> {
        let log = std::fs::read_to_string(&self.log)?;
        let bad: Vec<&str> =
            log.lines().filter(|l| l.contains("panicked at") || l.contains("\"invariant\":")).take(5).collect();
        ensure!(bad.is_empty(), "{} has a defect: {bad:?}", self.identity);
        Ok(())
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }
}

/// A token of the installed ServiceAccount.
async fn token(w: &World) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(w.client.clone(), &w.ns);
    let spec = TokenRequestSpec { expiration_seconds: Some(3 * 60 * 60), ..TokenRequestSpec::default() };
    let wish = TokenRequest { spec, ..TokenRequest::default() };
    let answer =
        patiently(async |_| accounts.create_token_request("holdfast", &PostParams::default(), &wish).await).await?;
    Ok(answer.status.context("a token")?.token)
}

/// The API server and its certificate authority, without credentials.
fn api_server(kubeconfig: &std::path::Path) -> Result<Value> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let current = config.current_context.as_deref().context("current-context")?;
    let context = config.contexts.iter().find(|c| c.name == current).and_then(|c| c.context.as_ref());
    let cluster = &context.context("context")?.cluster;
    let found = config.clusters.iter().find(|c| &c.name == cluster).and_then(|c| c.cluster.as_ref());
    Ok(serde_json::to_value(found.context("cluster")?)?)
}

/// The operator's process.
struct Running {
    child: Child,
    listen: SocketAddr,
    log: File,
    _folder: Arc<TempDir>,
}

/// A running operator; dropping it kills the process.
pub struct HostOperator {
    running: Running,
}

impl HostOperator {
    /// Process ID, for [`send`].
    pub fn pid(&self) -> u32 {
        self.running.child.id()
    }

    /// The exit status, if the operator has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.running.child.try_wait()?)
    }

    /// Waits until the operator has ended.
    pub async fn end(&mut self, patience: Duration) -> Result<ExitStatus> {
        until("the operator to end", patience, async || Ok(self.ended()?.ok_or_else(|| "it runs".to_owned()))).await
    }

    /// Kills the operator.
    pub fn kill(&mut self) -> Result<()> {
        note(&self.running.log, "---- killed")?;
        self.running.child.kill()?;
        self.running.child.wait()?;
        Ok(())
    }

    /// Asks the operator to end, so that it gives its lease back, and waits for its end.
    pub async fn retire(&mut self) -> Result<()> {
        send("TERM", self.pid())?;
        let status = self.end(PATIENCE).await?;
        ensure!(status.success(), "an operator that was asked to end ended with {status}");
        Ok(())
    }

    /// Stops the process at once.
    pub fn freeze(&self) -> Result<()> {
        note(&self.running.log, "---- frozen")?;
        send("STOP", self.pid())
    }

    /// Continues the process.
    pub fn thaw(&self) -> Result<()> {
        note(&self.running.log, "---- thawed")?;
        send("CONT", self.pid())
    }

    /// Waits until the operator leads.
    pub async fn until_leading(&self) -> Result<()> {
        until("the operator to lead", PATIENCE, async || {
            Ok(if self.number("holdfast_leader").await? == 1 { Ok(()) } else { Err("it does not".to_owned()) })
        })
        .await
    }

    /// Waits until the operator leads no more.
    pub async fn until_standing_by(&self) -> Result<()> {
        until("the operator to stand by", PATIENCE, async || {
            Ok(if self.number("holdfast_leader").await? == 0 { Ok(()) } else { Err("it leads".to_owned()) })
        })
        .await
    }

    /// Number of the operator's writes, by its own count.
    pub async fn writes(&self) -> Result<u64> {
        self.number("holdfast_writes_total").await
    }

    /// Sum of one of the operator's metrics.
    async fn number(&self, metric: &str) -> Result<u64> {
        let listen = self.running.listen;
        let mut connection = tokio::net::TcpStream::connect(listen).await?;
        connection.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
        let mut page = String::new();
        connection.read_to_string(&mut page).await?;
        let values = page.lines().filter_map(|line| {
            let rest = line.strip_prefix(metric)?;
            rest.starts_with([' ', '{']).then(|| rest.rsplit(' ').next()?.parse::<u64>().ok()).flatten()
        });
        Ok(values.sum())
    }
}

impl Drop for HostOperator {
    fn drop(&mut self) {
        let running = &mut self.running;
        let _ = running.child.kill();
        let _ = running.child.wait();
    }
}

/// Sends a signal to a process that the story started.
pub fn send(signal: &str, pid: u32) -> Result<()> {
    let status = Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).status()?;
    if !status.success() {
        bail!("kill -{signal} {pid}: {status}");
    }
    Ok(())
}

fn note(mut log: &File, text: &str) -> Result<()> {
    Ok(writeln!(log, "{text}")?)
}
