//! One namespace with its own operator, S3 server and toolbox: everything a story needs, created and deleted with the story.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;
use kube::Client;
use kube::api::{Api, DynamicObject};
use serde_json::json;

use super::closing::Closing;
use super::env::Env;
use super::kube_helpers;
use super::leftovers;
use super::make;
use super::steps;

/// A running story; it returns its world.
pub type Telling = Pin<Box<dyn Future<Output = Result<World>>>>;

/// A story: a name and its steps.
pub struct Story {
    /// Also the name of the test.
    pub name: &'static str,
    /// Whether its operators are processes of this machine, which the story starts itself.
    pub on_host: bool,
    /// The steps.
    pub tell: fn(World) -> Telling,
}

/// Wraps an async function as a story; `on host` when it starts its operators itself.
#[macro_export]
macro_rules! story {
    ($name:literal, $tell:path) => {
        $crate::story!($name, $tell, false)
    };
    (on host $name:literal, $tell:path) => {
        $crate::story!($name, $tell, true)
    };
    ($name:literal, $tell:path, $on_host:literal) => {
        $crate::support::world::Story {
            name: $name,
            on_host: $on_host,
            tell: |world| {
                Box::pin(async move {
                    $tell(&world).await?;
                    Ok(world)
                })
            },
        }
    };
}

/// A namespace of one story.
#[derive(Clone)]
pub struct World {
    /// The story's name.
    pub story: &'static str,
    /// Environment of the run.
    pub env: Env,
    /// The namespace.
    pub ns: String,
    /// A client with full rights.
    pub client: Client,
    /// Whether the story starts its operators itself.
    on_host: bool,
}

/// Generous deadline: a machine with two busy cores starts four of everything at a time.
pub const PATIENCE: Duration = Duration::from_mins(4);

impl World {
    /// Opens the world of a story, with a client for this thread's runtime.
    async fn open(env: &Env, story: &Story) -> Result<Self> {
        Ok(Self {
            story: story.name,
            env: env.clone(),
            ns: format!("e2e-{}-{:05x}", story.name.replace('_', "-"), std::process::id() & 0xf_ffff),
            client: env.client().await?,
            on_host: story.on_host,
        })
    }

    /// Opens the same world for another thread.
    pub(super) async fn reopen(&self) -> Result<Self> {
        Ok(Self { client: self.env.client().await?, ..self.clone() })
    }

    /// Creates the namespace, runs the story, and hands the remains over for removal and search. The diagnostics of a failed
    /// story are kept.
    pub fn tell(env: &Env, story: &Story, closing: &Arc<Closing>) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let world = Self::open(env, story).await?;
            let told = async {
                world.step("namespace, operator, S3 server and toolbox", world.furnish()).await?;
                (story.tell)(world.clone()).await?;
                closing.search(world.step("objects and logs collected", world.collect()).await?);
                Ok(())
            };
            let told = told.await;
            if let Err(why) = &told {
                let file = world.keep_evidence(&format!("{why:#}"));
                eprintln!("e2e: {}: FAILED: {why:#}\ne2e: {}: evidence in {file}", story.name, story.name);
                if std::env::var_os("HOLDFAST_KEEP").is_some() {
                    return told;
                }
            }
            closing.take_away(world)?;
            told
        })
    }

    /// One step of the story, timed.
    pub async fn step<T>(&self, what: &str, doing: impl Future<Output = Result<T>>) -> Result<T> {
        steps::step(self.story, what, doing).await
    }

    /// An API of the namespace.
    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        kube_helpers::api(&self.client, &self.ns, kind)
    }

    async fn furnish(&self) -> Result<()> {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": self.ns, "labels": {
                "holdfast.dev/test": "e2e",
                leftovers::RUN: std::process::id().to_string(),
                "pod-security.kubernetes.io/enforce": "restricted",
            }}
        });
        self.apply(&namespace.to_string()).await?;
        // Without the ServiceAccount admission refuses every Pod. Kubernetes creates it later.
        self.apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}).to_string())
            .await?;
        let mut wanted = vec!["--namespace", &self.ns];
        if self.on_host {
            wanted.extend(["--only", "rbac"]);
            self.forget_logs()?;
        }
        let furniture = [
            self.env.manifests(&wanted)?,
            std::fs::read_to_string(&self.env.s3_manifest)?,
            make::claim("look", "256Mi").to_string(),
            make::toolbox("toolbox", &self.env.probe_image, &["look"]).to_string(),
        ];
        try_join_all(furniture.iter().map(|text| self.apply(text))).await?;
        if !self.on_host {
            self.wait("Deployment", "holdfast", "operator ready", |d| d["status"]["readyReplicas"] == 1).await?;
        }
        self.wait("Deployment", "s3", "S3 server ready", |d| d["status"]["readyReplicas"] == 1).await?;
        self.wait("Pod", "toolbox", "running", |p| p["status"]["phase"] == "Running").await?;
        Ok(())
    }

    /// Whether the story starts its operators itself.
    pub(super) const fn is_on_host(&self) -> bool {
        self.on_host
    }

    /// Logs of operators that the story started.
    pub(super) fn operator_logs(&self) -> Result<Vec<PathBuf>> {
        let ours = format!("{}.", self.story);
        let mut found = vec![];
        for entry in std::fs::read_dir(&self.env.logs)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&ours) && name.ends_with(".log") {
                found.push(entry.path());
            }
        }
        found.sort();
        Ok(found)
    }

    fn forget_logs(&self) -> Result<()> {
        Ok(self.operator_logs()?.iter().try_for_each(std::fs::remove_file)?)
    }

    /// Writes the diagnostics of a failure into one file.
    fn keep_evidence(&self, why: &str) -> String {
        let path = self.env.logs.join(format!("{}.txt", self.story));
        let mut text = format!("{}: {why}\n", self.story);
        let mut ask = |args: &[&str]| {
            let args = [&["-n", &self.ns], args].concat();
            // At once: a server that does not answer now is part of the evidence.
            let out = self.env.kubectl_once(&args, None).unwrap_or_else(|e| format!("{e:#}"));
            text.extend(["\n===== kubectl ", &args.join(" "), "\n", &out]);
            out
        };
        ask(&["get", "etcd,pods,pvc,services,pdb,jobs,endpointslices", "-o", "wide"]);
        ask(&["get", "events", "--sort-by=.lastTimestamp"]);
        ask(&["logs", "deployment/holdfast", "--tail=400"]);
        ask(&["get", "etcd,pods,jobs", "-o", "yaml"]);
        for pod in ask(&["get", "pods", "-o", "name"]).lines() {
            ask(&["logs", pod, "--all-containers", "--tail=60", "--ignore-errors"]);
        }
        for path in self.operator_logs().unwrap_or_default() {
            let log = std::fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(400)..].join("\n");
            text.extend(["\n===== ", &path.display().to_string(), "\n", &last]);
        }
        match std::fs::write(&path, text) {
            Ok(()) => path.display().to_string(),
            Err(why) => format!("nowhere ({why})"),
        }
    }
}
