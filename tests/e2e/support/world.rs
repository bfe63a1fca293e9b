//! One namespace with its own operator, S3 server and toolbox: everything a story needs, made anew and taken away.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt as _};
use serde_json::{Value, json};

use super::env::Env;
use super::host_operator::Seat;
use super::kube_helpers::{self, patiently, until, wait_for};
use super::leftovers;
use super::make;
use super::steps;

/// A story that is being told; it hands the world back.
pub type Telling = Pin<Box<dyn Future<Output = Result<World>>>>;

/// A story: a name and what happens.
pub struct Story {
    /// Also the name of the test.
    pub name: &'static str,
    /// Whether its operators are processes of this machine, which the story starts itself.
    pub on_host: bool,
    /// What happens.
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

/// One namespace, ours alone.
#[derive(Clone)]
pub struct World {
    /// The story's name.
    pub story: &'static str,
    /// Where.
    pub env: Env,
    /// The namespace.
    pub ns: String,
    /// A client with full rights.
    pub client: Client,
    /// Whether the story starts its operators itself.
    on_host: bool,
}

/// Generous: a machine with two busy cores starts four of everything at a time.
pub const PATIENCE: Duration = Duration::from_mins(4);

impl World {
    /// Makes the namespace, tells the story, takes the namespace away. What happened is kept when it went wrong.
    pub fn tell(env: &Env, story: &Story) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let config =
                Config::from_custom_kubeconfig(Kubeconfig::read_from(&env.kubeconfig)?, &KubeConfigOptions::default())
                    .await?;
            let world = Self {
                story: story.name,
                env: env.clone(),
                ns: format!("e2e-{}-{:05x}", story.name.replace('_', "-"), std::process::id() & 0xf_ffff),
                client: Client::try_from(config)?,
                on_host: story.on_host,
            };
            let told = async {
                world.step("namespace, operator, S3 server and toolbox", world.furnish()).await?;
                (story.tell)(world.clone()).await?;
                world.step("no Secret is told anywhere", world.no_secret_is_told()).await
            };
            let told = told.await;
            if let Err(why) = &told {
                let file = world.keep_evidence(&format!("{why:#}"));
                eprintln!("e2e: {}: FAILED: {why:#}\ne2e: {}: evidence in {file}", story.name, story.name);
                if std::env::var_os("HOLDFAST_KEEP").is_some() {
                    return told;
                }
            }
            let swept = world.step("clusters taken away", world.sweep()).await;
            told.and(swept)
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
        self.env.apply(None, &namespace.to_string())?;
        let mut wanted = vec!["--namespace", &self.ns];
        if self.on_host {
            wanted.extend(["--only", "rbac"]);
            self.forget_logs()?;
        }
        self.env.apply(Some(&self.ns), &self.env.manifests(&wanted)?)?;
        self.env.apply(Some(&self.ns), &std::fs::read_to_string(&self.env.s3_manifest)?)?;
        // No Pod is let in before.
        self.wait("ServiceAccount", "default", "there", |_| true).await?;
        self.create(make::claim("look", "256Mi")).await?;
        self.create(make::toolbox("toolbox", &self.env.probe_image, &["look"])).await?;
        if !self.on_host {
            self.wait("Deployment", "holdfast", "operator ready", |d| d["status"]["readyReplicas"] == 1).await?;
        }
        self.wait("Deployment", "s3", "S3 server ready", |d| d["status"]["readyReplicas"] == 1).await?;
        self.wait("Pod", "toolbox", "running", |p| p["status"]["phase"] == "Running").await?;
        Ok(())
    }

    /// Deletes clusters and snapshots, waits until no finalizer is left, and lets the namespace go by itself: that it
    /// does is `a_namespace_can_be_deleted`'s to check, and here it would only cost each story half a minute.
    async fn sweep(&self) -> Result<()> {
        // The story's own operators have ended with it; somebody has to let the members go.
        let _sweeper = if self.on_host {
            // None of them is left to renew their lease.
            self.env.kubectl(&["delete", "lease", "holdfast", "-n", &self.ns, "--ignore-not-found"])?;
            Some(Seat::new(self, "sweeper", None)?.keep(&[])?)
        } else {
            None
        };
        for kind in ["EtcdSnapshotSchedule", "EtcdSnapshot", "EtcdCluster"] {
            let api = self.api(kind);
            patiently(async |_| api.delete_collection(&DeleteParams::background(), &ListParams::default()).await)
                .await?;
        }
        until("clusters, members and snapshots to go", PATIENCE, async || {
            let mut left = vec![];
            for kind in ["EtcdSnapshotSchedule", "EtcdCluster", "EtcdMember", "EtcdSnapshot"] {
                left.extend(self.names(kind).await?);
            }
            Ok(if left.is_empty() { Ok(()) } else { Err(format!("still there: {left:?}")) })
        })
        .await?;
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(self.client.clone());
        patiently(async |again| match namespaces.delete(&self.ns, &DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if again && (status.is_not_found() || status.is_conflict()) => Ok(()),
            answer => answer.map(drop),
        })
        .await?;
        Ok(())
    }

    /// Creates an object as a user would.
    pub async fn create(&self, object: Value) -> Result<Value> {
        let kind = object["kind"].as_str().context("kind")?.to_owned();
        let object: DynamicObject = serde_json::from_value(object)?;
        let (api, name) = (self.api(&kind), object.name_any());
        let made = patiently(async |again| match api.create(&PostParams::default(), &object).await {
            // Carried out the first time, and the answer was lost.
            Err(kube::Error::Api(status)) if again && status.is_already_exists() => api.get(&name).await,
            answer => answer,
        });
        Ok(kube_helpers::json(&made.await?))
    }

    /// Merge-patches an object as a user would.
    pub async fn patch(&self, kind: &str, name: &str, patch: Value) -> Result<Value> {
        let (api, patch) = (self.api(kind), Patch::Merge(patch));
        let patched = patiently(async |_| api.patch(name, &PatchParams::default(), &patch).await);
        Ok(kube_helpers::json(&patched.await?))
    }

    /// Deletes an object as a user would.
    pub async fn delete(&self, kind: &str, name: &str) -> Result<()> {
        kube_helpers::delete(&self.api(kind), name).await
    }

    /// Deletes an object and waits until it is gone.
    pub async fn delete_and_wait(&self, kind: &str, name: &str) -> Result<()> {
        self.delete(kind, name).await?;
        let api = self.api(kind);
        until(&format!("{kind} {name} to go"), PATIENCE, async || {
            Ok(match api.get_opt(name).await? {
                None => Ok(()),
                Some(left) => Err(format!("finalizers {:?}", left.metadata.finalizers)),
            })
        })
        .await
    }

    /// The object now.
    pub async fn get(&self, kind: &str, name: &str) -> Result<Value> {
        let api = self.api(kind);
        Ok(kube_helpers::json(&patiently(async |_| api.get(name).await).await?))
    }

    /// Waits until the object satisfies `good`.
    pub async fn wait(&self, kind: &str, name: &str, what: &str, good: impl Fn(&Value) -> bool) -> Result<Value> {
        wait_for(&self.api(kind), name, what, PATIENCE, good).await
    }

    /// Waits until a cluster is `Ready`, and checks that etcd itself lists that many voters and nothing else.
    pub async fn wait_ready(&self, cluster: &str, voters: usize) -> Result<()> {
        self.wait("EtcdCluster", cluster, &format!("Ready with {voters} voters"), |c| {
            kube_helpers::is_ready(c, voters)
        })
        .await?;
        let members = self.members(cluster).await?;
        anyhow::ensure!(
            members.members.len() == voters && members.members.iter().all(|m| !m.is_learner),
            "etcd lists {members:?}, not {voters} voters"
        );
        Ok(())
    }

    /// Names of all objects of a kind.
    pub async fn names(&self, kind: &str) -> Result<Vec<String>> {
        kube_helpers::names(&self.api(kind), "").await
    }

    /// Names of objects of a kind with these labels.
    pub async fn names_with(&self, kind: &str, selector: &str) -> Result<Vec<String>> {
        kube_helpers::names(&self.api(kind), selector).await
    }

    /// Runs a command in a container; what it printed. It runs on a thread of its own, so that a story can do two
    /// things at once.
    pub async fn exec(&self, pod: &str, container: &str, command: &[&str]) -> Result<String> {
        let env = self.env.clone();
        let mut args: Vec<String> =
            ["exec", "-n", &self.ns, pod, "-c", container, "--"].iter().map(ToString::to_string).collect();
        args.extend(command.iter().map(ToString::to_string));
        tokio::task::spawn_blocking(move || env.kubectl(&args.iter().map(String::as_str).collect::<Vec<_>>())).await?
    }

    /// Logs of operators that the story started itself.
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

    /// What a person would look at after a failure, in one file.
    fn keep_evidence(&self, why: &str) -> String {
        let path = self.env.logs.join(format!("{}.txt", self.story));
        let mut text = format!("{}: {why}\n", self.story);
        let mut ask = |args: &[&str]| {
            let args = [&["-n", &self.ns], args].concat();
            // At once: whoever does not answer now is part of the evidence.
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
