//! The environment of the stories: decides the cluster and the images, and nothing else.
//!
//! Only `HOLDFAST_KUBECONFIG` selects a user's cluster; a plain `KUBECONFIG` never does. `make` sets the rest.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use super::apply::apply;
use super::exec::not_begun;
use super::kube_helpers::until;

/// The cluster under test and the images to install in it.
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
    /// Folder for the diagnostics of failed stories.
    pub logs: PathBuf,
    /// The `holdfast` binary under test.
    pub holdfast: PathBuf,
    /// Whether the cluster is the testbed of this machine, whose Pods can be reached from here.
    pub throwaway: bool,
}

/// The etcd version of most stories.
pub const ETCD_VERSION: &str = "3.6.16";

/// Whether the run uses the full counts.
pub fn soak() -> bool {
    std::env::var_os("HOLDFAST_SOAK").is_some_and(|v| !v.is_empty())
}

/// First number of a full sweep: `HOLDFAST_FROM` resumes a sweep that was interrupted.
pub fn soak_from() -> u64 {
    std::env::var("HOLDFAST_FROM").ok().and_then(|from| from.parse().ok()).unwrap_or(1)
}

impl Env {
    /// Reads the environment and installs the custom resource definitions.
    pub async fn prepare() -> Result<Self> {
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
        let context = Kubeconfig::read_from(&env.kubeconfig)?.current_context;
        eprintln!("e2e: context {}", context.unwrap_or_default());
        let client = env.client().await?;
        apply(&client, "", &env.manifests(&["--only", "crds"])?).await?;
        established(&client).await?;
        if throwaway {
            super::leftovers::sweep(&client).await?;
        }
        Ok(env)
    }

    /// A client with full rights, for the runtime of this thread.
    pub async fn client(&self) -> Result<Client> {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig)?;
        Ok(Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)?)
    }

    /// Prints `holdfast manifests` for the image under test.
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

    /// Runs kubectl; returns its standard output, or an error with its message.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.kubectl_with(args, None)
    }

    /// Runs kubectl with this standard input, and repeats it for a minute while it fails without an effect.
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

    /// Runs kubectl once.
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

/// Waits until the API server serves the five kinds.
async fn established(client: &Client) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    until("the custom resource definitions to be served", Duration::from_mins(1), async || {
        let ours = crds.list(&ListParams::default()).await?.items.into_iter();
        let waiting: Vec<_> = ours
            .filter(|crd| crd.spec.group == "holdfast.dev")
            .filter(|crd| {
                let conditions = crd.status.iter().flat_map(|status| status.conditions.iter().flatten());
                !conditions.into_iter().any(|it| it.type_ == "Established" && it.status == "True")
            })
            .map(|crd| crd.spec.names.kind)
            .collect();
        Ok(if waiting.is_empty() { Ok(()) } else { Err(format!("{waiting:?}")) })
    })
    .await
}
