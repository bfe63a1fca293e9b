//! Where the stories run: decides which cluster and which images, and nothing else.
//!
//! Only `HOLDFAST_KUBECONFIG` selects somebody's own cluster; a plain `KUBECONFIG` never does. `make` sets the rest.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The cluster under test and what to install in it.
#[derive(Clone, Debug)]
pub struct Env {
    /// Credentials of the cluster.
    pub kubeconfig: PathBuf,
    /// The operator's and agent's image.
    pub image: String,
    /// Image of the tool that asserts through etcd's own client.
    pub probe_image: String,
    /// The S3 server's manifest.
    pub s3_manifest: PathBuf,
    /// Where the diagnostics of failed stories go.
    pub logs: PathBuf,
    /// The `holdfast` binary under test.
    pub holdfast: PathBuf,
    /// Whether it is the testbed of this machine, whose Pods can be reached from here.
    pub throwaway: bool,
}

/// The etcd version the stories run on.
pub const ETCD_VERSION: &str = "3.6.16";

/// Whether the full counts are wanted.
pub fn soak() -> bool {
    std::env::var_os("HOLDFAST_SOAK").is_some_and(|v| !v.is_empty())
}

/// Where full sweeps begin: `HOLDFAST_FROM` goes on with one that was broken off.
pub fn soak_from() -> u64 {
    std::env::var("HOLDFAST_FROM").ok().and_then(|from| from.parse().ok()).unwrap_or(1)
}

impl Env {
    /// Reads the environment and installs the custom resource definitions.
    pub fn prepare() -> Result<Self> {
        let var = |name: &str| {
            std::env::var(name).ok().filter(|v| !v.is_empty()).with_context(|| {
                format!("{name} is not set: run the end-to-end stories with `make test` or `make e2e`, which set it")
            })
        };
        let own = std::env::var("HOLDFAST_KUBECONFIG").ok().filter(|v| !v.is_empty());
        let throwaway = own.is_none();
        let kubeconfig = own.map_or_else(|| var("HOLDFAST_TESTBED_KUBECONFIG"), Ok)?;
        let env = Self {
            kubeconfig: PathBuf::from(kubeconfig),
            image: var("HOLDFAST_IMAGE")?,
            probe_image: var("HOLDFAST_PROBE_IMAGE")?,
            s3_manifest: PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/testbed/manifests/s3.yaml"),
            logs: PathBuf::from(var("HOLDFAST_LOGS")?),
            holdfast: PathBuf::from(env!("CARGO_BIN_EXE_holdfast")),
            throwaway,
        };
        std::fs::create_dir_all(&env.logs)?;
        eprintln!("e2e: context {}", env.kubectl(&["config", "current-context"])?.trim());
        let crds = env.manifests(&["--only", "crds"])?;
        env.apply(None, &crds)?;
        env.kubectl(&[
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "crd/etcdclusters.holdfast.dev",
            "crd/etcdmembers.holdfast.dev",
            "crd/etcdsnapshots.holdfast.dev",
        ])?;
        if throwaway {
            super::leftovers::sweep(&env)?;
        }
        Ok(env)
    }

    /// `holdfast manifests` for our image.
    pub fn manifests(&self, args: &[&str]) -> Result<String> {
        let out = Command::new(&self.holdfast)
            .args(["manifests", "--image", &self.image])
            .args(args)
            .output()
            .with_context(|| format!("run {}", self.holdfast.display()))?;
        if !out.status.success() {
            bail!("holdfast manifests {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        }
        Ok(String::from_utf8(out.stdout)?)
    }

    /// Runs kubectl; its standard output, or an error with what it said.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.kubectl_with(args, None)
    }

    /// Applies YAML.
    pub fn apply(&self, namespace: Option<&str>, yaml: &str) -> Result<()> {
        let mut args = vec!["apply", "--server-side", "--force-conflicts", "-f", "-"];
        if let Some(namespace) = namespace {
            args.extend(["-n", namespace]);
        }
        self.kubectl_with(&args, Some(yaml)).map(drop)
    }

    /// Runs kubectl with something on its standard input, and for a minute again while nothing has come of it.
    pub fn kubectl_with(&self, args: &[&str], input: Option<&str>) -> Result<String> {
        let begun = Instant::now();
        loop {
            match self.kubectl_once(args, input) {
                Err(why) if not_begun(&format!("{why:#}")) && begun.elapsed() < Duration::from_mins(1) => {
                    eprintln!("e2e: run again: {why:#}");
                    std::thread::sleep(Duration::from_secs(1));
                }
                answer => return answer,
            }
        }
    }

    /// Runs kubectl, once only.
    pub fn kubectl_once(&self, args: &[&str], input: Option<&str>) -> Result<String> {
        use std::io::Write;
        use std::process::Stdio;

        let mut child = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(args)
            .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("run kubectl (is it in PATH? `make` puts the testbed's there)")?;
        if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
            stdin.write_all(text.as_bytes())?;
        }
        let out = child.wait_with_output()?;
        if !out.status.success() {
            bail!("kubectl {}: {}", args.join(" "), String::from_utf8_lossy(&out.stderr).trim());
        }
        Ok(String::from_utf8(out.stdout)?)
    }
}

/// Whether kubectl failed on its way: what it was to do has not begun.
fn not_begun(said: &str) -> bool {
    let on_the_way = [
        "error dialing backend",
        "unable to upgrade connection",
        "container not found",
        "TLS handshake timeout",
        "connection refused",
        "etcdserver:",
    ];
    // A command that did run may have said the like before it ended or its connection broke.
    let under_way = ["command terminated with exit code", "EOF", "connection reset", "lost connection"];
    let says = |words: &[&str]| words.iter().any(|words| said.contains(words));
    says(&on_the_way) && !says(&under_way)
}
