//! The tool that asserts through etcd's own client, run inside the cluster: independent of Holdfast's code.

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::world::World;

/// A key space as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Digest {
    /// Live keys.
    pub keys: u64,
    /// Leases.
    pub leases: u64,
    /// sha256 over keys, values, create and mod revisions, versions, leases.
    pub digest: String,
}

/// One member as etcd lists it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// ID, hexadecimal.
    pub id: String,
    /// Name.
    pub name: String,
    /// Whether the member has no vote.
    #[serde(default)]
    pub is_learner: bool,
}

/// etcd's membership.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Members {
    /// Cluster ID, hexadecimal.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// The members.
    pub members: Vec<Listed>,
}

/// Results of many short connections.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Dialled {
    /// Connections tried.
    pub attempts: u64,
    /// Connections that failed.
    pub failed: u64,
    /// Causes of the failures, with their number.
    #[serde(default)]
    pub errors: std::collections::BTreeMap<String, u64>,
}

/// Results of many writers.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wrote {
    /// The last acknowledged number of each writer.
    pub acked: Vec<u64>,
    /// Acknowledged writes.
    pub total: u64,
    /// Attempts without an answer; each was repeated.
    pub failed: u64,
    /// Times that a client read its password again, and etcd took it.
    pub logins: usize,
    /// Longest time between two acknowledged writes of a writer, in milliseconds.
    pub longest_gap_ms: f64,
}

impl Wrote {
    /// Reads the numbers from the output of the writers.
    pub fn read(out: &str) -> Result<Self> {
        let last = out.lines().rev().find(|line| line.starts_with('{')).context("the writers' numbers")?;
        Ok(serde_json::from_str(last)?)
    }

    /// The acknowledged numbers as the probe's flag `--acked` takes them.
    pub fn acked_flag(&self) -> String {
        self.acked.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
    }
}

/// Client URL of a cluster's Service.
pub fn service(cluster: &str) -> String {
    format!("http://{cluster}-client:2379")
}

impl World {
    /// Runs the probe in the toolbox and reads its last line of output as JSON.
    pub async fn probe<T: for<'de> Deserialize<'de>>(&self, args: &[&str]) -> Result<T> {
        let out = self.probe_text(args).await?;
        let last = out.lines().rev().find(|l| l.starts_with('{')).with_context(|| format!("no JSON in {out:?}"))?;
        serde_json::from_str(last).with_context(|| format!("probe {args:?} said {last}"))
    }

    /// Runs the probe in the toolbox.
    pub async fn probe_text(&self, args: &[&str]) -> Result<String> {
        self.exec("toolbox", "probe", &[&["holdfast-probe"], args].concat()).await
    }

    /// Writes from a hundred clients for this many seconds.
    pub async fn write_for(&self, cluster: &str, seconds: u64) -> Result<Wrote> {
        let (endpoint, duration) = (service(cluster), format!("{seconds}s"));
        self.probe(&["writers", "--endpoint", &endpoint, "--duration", &duration]).await
    }

    /// Checks that the cluster holds every acknowledged write.
    pub async fn all_written(&self, cluster: &str, wrote: &Wrote) -> Result<()> {
        self.check_written(cluster, &[], wrote).await
    }

    /// Checks that the cluster holds every acknowledged write of writers with this prefix.
    pub async fn all_written_under(&self, cluster: &str, prefix: &str, wrote: &Wrote) -> Result<()> {
        self.check_written(cluster, &["--prefix", prefix], wrote).await
    }

    async fn check_written(&self, cluster: &str, only: &[&str], wrote: &Wrote) -> Result<()> {
        let acked = wrote.acked_flag();
        let words = ["written-by", "--endpoint", &service(cluster), "--acked", &acked];
        self.probe_text(&[&words, only].concat()).await.map(drop)
    }

    /// Runs etcdctl of this member's Pod, with longer timeouts than its defaults.
    pub async fn etcdctl(&self, member: &str, args: &[&str]) -> Result<String> {
        let patient = ["etcdctl", "--command-timeout=60s", "--dial-timeout=60s"];
        self.exec(member, "etcd", &[&patient, args].concat()).await
    }

    /// Fills a cluster with a history: puts, overwrites, deletes, a compaction, leases.
    pub async fn fill(&self, cluster: &str, keys: u32) -> Result<()> {
        let keys = keys.to_string();
        self.probe_text(&["fill", "--endpoint", &service(cluster), "--keys", &keys, "--seed", "7"]).await.map(drop)
    }

    /// The whole key space of a cluster, digested at one revision.
    pub async fn digest(&self, cluster: &str) -> Result<Digest> {
        let digest: Digest = self.probe(&["digest", "--endpoint", &service(cluster)]).await?;
        if digest.keys == 0 {
            bail!("{cluster} holds no keys: {digest:?}");
        }
        Ok(digest)
    }

    /// A cluster's membership, sorted by name.
    pub async fn members(&self, cluster: &str) -> Result<Members> {
        let mut members: Members = self.probe(&["members", "--endpoint", &service(cluster)]).await?;
        members.members.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(members)
    }
}
