//! A settled cluster costs no write, even when the operator restarts or is upgraded, and even with authentication and many users
//! (I17).

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kube::api::ListParams;
use serde_json::{Value, json};

use super::tls::{members, ready};
use crate::support::audit;
use crate::support::env::soak;
use crate::support::kube_helpers::{self, condition, until};
use crate::support::make;
use crate::support::world::{PATIENCE, World};

/// Conditions that follow Pods settle with the slowest probe.
const SETTLES: Duration = Duration::from_secs(5);

pub async fn tell(w: &World) -> Result<()> {
    w.create(make::cluster("calm", 3)).await?;
    w.step("three voters", w.wait_ready("calm", 3)).await?;
    w.fill("calm", 100).await?;
    tokio::time::sleep(SETTLES).await;
    let mut settled = Seen::now(w, "calm").await?;
    w.step("nothing is written while settled", settled.stays(w)).await?;

    let operator = w.names_with("Pod", "app.kubernetes.io/name=holdfast").await?;
    for pod in &operator {
        w.delete_and_wait("Pod", pod).await?;
    }
    w.wait("Deployment", "holdfast", "operator ready again", |d| d["status"]["readyReplicas"] == 1).await?;
    // The new operator counts from zero.
    settled.writes.clear();
    w.step("nothing is written after the operator's restart", settled.stays(w)).await?;

    // Another name for the same image: only Pods created from now on get it.
    let another = format!("HOLDFAST_IMAGE={}-next", w.env.image);
    w.env.kubectl(&["set", "env", "-n", &w.ns, "deployment/holdfast", &another])?;
    w.env.kubectl(&["rollout", "status", "-n", &w.ns, "deployment/holdfast", "--timeout=120s"])?;
    settled.writes.clear();
    w.step("nothing is written by an operator that was upgraded", settled.stays(w)).await
}

/// Users of a cluster, of which every fourth one has a password.
const USERS: usize = 64;

/// A cluster with authentication and 64 EtcdUsers costs no write in Kubernetes and no entry of etcd's raft log.
pub async fn with_users(w: &World) -> Result<()> {
    let mut cluster = make::secured("crowd", 3);
    cluster["spec"]["auth"] = json!({"enabled": true});
    w.create(cluster).await?;
    ready(w, "crowd", 3).await?;
    let on = w.wait("EtcdCluster", "crowd", "authentication", |c| c["status"]["authEnabled"] == json!(true));
    w.step("authentication is on", on).await?;
    let begun = Instant::now();
    for n in 0..USERS {
        create_user(w, n).await?;
    }
    w.step("64 users", users_are_ready(w)).await?;
    eprintln!("e2e: {}: {USERS} users became ready in {:.1} s", w.story, begun.elapsed().as_secs_f64());
    tokio::time::sleep(SETTLES).await;
    let mut settled = Seen::now(w, "crowd").await?;
    for _ in 0..3 {
        let (before, requests, begun) = (raft_index(w).await?, requests(w)?, Instant::now());
        w.step("nothing is written while settled", settled.stays(w)).await?;
        let (after, took) = (raft_index(w).await?, begun.elapsed());
        if let (Some(before), Some(after)) = (requests, self::requests(w)?) {
            let a_minute = f64::from(u32::try_from(after.saturating_sub(before))?) * 60.0 / took.as_secs_f64();
            eprintln!("e2e: {}: the operator asks the API server {a_minute:.0} times a minute", w.story);
        }
        eprintln!("e2e: {}: raft log from {before:?} to {after:?} in {:.0} s", w.story, took.as_secs_f64());
        // An election is an entry, and no request of the operator.
        if before.term == after.term {
            ensure!(before.index == after.index, "entries in the raft log: {before:?}, then {after:?}");
            return Ok(());
        }
    }
    bail!("etcd elects leaders all the time")
}

async fn create_user(w: &World, n: usize) -> Result<()> {
    let name = format!("user-{n:02}");
    let permissions = json!([{"key": format!("/{name}/"), "match": "Prefix", "access": "ReadWrite"}]);
    let mut login = json!({"certificate": {}});
    if n.is_multiple_of(4) {
        let secret = format!("{name}-login");
        w.create(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret},
            "stringData": {"password": format!("canary-of-{name}")},
        }))
        .await?;
        login = json!({"passwordSecretRef": {"name": secret}});
    }
    w.create(make::user("crowd", &name, &login, &permissions)).await.map(drop)
}

async fn users_are_ready(w: &World) -> Result<()> {
    let api = w.api("EtcdUser");
    until("every user to be ready", 2 * PATIENCE, async || {
        let users = api.list(&ListParams::default()).await?.items;
        let waiting = users.iter().map(kube_helpers::json).filter(|user| {
            let is_ready = condition(user, "Ready").is_some_and(|(status, ..)| status == "True");
            !is_ready || user["status"]["observedGeneration"] != user["metadata"]["generation"]
        });
        let waiting: Vec<_> = waiting.map(|user| user["metadata"]["name"].clone()).collect();
        Ok(if waiting.is_empty() && users.len() == USERS { Ok(()) } else { Err(format!("{waiting:?}")) })
    })
    .await
}

/// Place in etcd's raft log.
#[derive(Clone, Copy, Debug)]
struct RaftPlace {
    index: u64,
    term: u64,
}

/// Reads the raft log's last index from a member. The request itself is no entry.
async fn raft_index(w: &World) -> Result<RaftPlace> {
    let member = members(w, "crowd").await?.pop().context("a member")?;
    let text = w.etcdctl(&member, &["endpoint", "status", "--write-out=json"]).await?;
    let answer: Value = serde_json::from_str(text.trim())?;
    let status = &answer[0]["Status"];
    let number = |name: &str| status[name].as_u64().with_context(|| format!("{name} in {answer}"));
    Ok(RaftPlace { index: number("raftIndex")?, term: number("raftTerm")? })
}

/// Requests that the API server has answered the operator; `None` on a cluster that is not the testbed. The audit log leaves out
/// reads of leases.
fn requests(w: &World) -> Result<Option<usize>> {
    let account = format!("\"username\":\"system:serviceaccount:{}:holdfast\"", w.ns);
    Ok(audit::read()?.map(|log| log.lines().filter(|line| line.contains(&account)).count()))
}

/// State of the namespace.
#[derive(Debug, PartialEq)]
struct Seen {
    cluster: &'static str,
    /// UID and version of every object of Holdfast.
    versions: Vec<(String, String, Value, Value)>,
    /// kubelet's status of Pods: writes that follow its changes are correct.
    pods: Vec<Value>,
    /// The operator's writes by its own count, including writes that changed nothing.
    writes: Vec<String>,
}

impl Seen {
    async fn now(w: &World, cluster: &'static str) -> Result<Self> {
        let pods = w.names_with("Pod", &format!("holdfast.dev/cluster={cluster}")).await?;
        let mut said = vec![];
        for pod in pods {
            said.push(w.get("Pod", &pod).await?["status"].clone());
        }
        Ok(Self { cluster, versions: versions(w, cluster).await?, pods: said, writes: writes(w, cluster).await? })
    }

    /// Waits, and checks that nothing was written meanwhile; starts again when kubelet changed the status of a Pod, as it does
    /// when the machine stands still for some seconds.
    async fn stays(&mut self, w: &World) -> Result<()> {
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_secs(if soak() { 300 } else { 25 })).await;
            let now = Self::now(w, self.cluster).await?;
            if now.pods == self.pods {
                ensure!(now == *self, "something was written:\n{self:?}\n{now:?}");
                return Ok(());
            }
            eprintln!("e2e: {}: kubelet saw a Pod otherwise:\n{:?}\n{:?}", w.story, self.pods, now.pods);
            tokio::time::sleep(SETTLES).await;
            *self = Self::now(w, self.cluster).await?;
        }
        bail!("kubelet never sees the Pods alike for long enough")
    }
}

/// The running operator's counters of writes.
async fn writes(w: &World, cluster: &str) -> Result<Vec<String>> {
    let operators = w.names_with("Pod", "app.kubernetes.io/name=holdfast").await?;
    ensure!(operators.len() == 1, "{operators:?}");
    let path = format!("/api/v1/namespaces/{}/pods/{}:8080/proxy/metrics", w.ns, operators[0]);
    let metrics = w.get_raw(&path).await?;
    ensure!(metrics.contains("holdfast_passes_total"), "no metrics of the operator: {metrics}");
    let series = format!("holdfast_cluster_ready{{namespace=\"{}\",name=\"{cluster}\"}} ", w.ns);
    ensure!(metrics.contains(&series), "no {series}in {metrics}");
    Ok(metrics.lines().filter(|line| line.starts_with("holdfast_writes_total{")).map(str::to_owned).collect())
}

/// UID and version of every object of Holdfast; objects of other writers do not count.
async fn versions(w: &World, cluster: &str) -> Result<Vec<(String, String, Value, Value)>> {
    let mut all = vec![];
    let of_cluster = format!("holdfast.dev/cluster={cluster}");
    let of_cluster = of_cluster.as_str();
    for (kind, labels) in [
        ("EtcdCluster", ""),
        ("EtcdUser", ""),
        ("EtcdMember", of_cluster),
        ("Pod", of_cluster),
        ("Service", of_cluster),
        ("PodDisruptionBudget", of_cluster),
        ("PersistentVolumeClaim", of_cluster),
        ("Secret", "app.kubernetes.io/managed-by=holdfast"),
    ] {
        for name in w.names_with(kind, labels).await? {
            let object = w.get(kind, &name).await?;
            let meta = &object["metadata"];
            let version = match kind {
                "Pod" | "PodDisruptionBudget" => not_by_kubernetes(&meta["managedFields"]),
                _ => meta["resourceVersion"].clone(),
            };
            all.push((kind.to_owned(), name, meta["uid"].clone(), version));
        }
    }
    Ok(all)
}

/// Field managers with their times, without kubelet and Kubernetes' controllers.
fn not_by_kubernetes(managed: &Value) -> Value {
    let kubernetes = |entry: &&Value| entry["manager"].as_str().is_some_and(|name| name.starts_with("kube"));
    managed.as_array().into_iter().flatten().filter(|entry| !kubernetes(entry)).cloned().collect()
}
