//! Workloads in which an operator is disturbed: a cluster that grows from nothing to three members or goes through several sizes, a
//! snapshot to a volume, a restore into one member, and a user. Each run has names of its own, so that runs are counted separately.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::kube_helpers::{condition, is_ready, until};
use super::make;
use super::mask::Mask;
use super::probe::Digest;
use super::stored::manifests;
use super::world::{PATIENCE, World};

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// From nothing to three members.
    Grow,
    /// From nothing through these sizes.
    Scale(&'static [i32]),
    /// From nothing to three members, of which one is replaced on request.
    Replace,
    /// From nothing to three members, of which one loses its claim and is replaced on that evidence.
    Lose,
    /// From nothing to three members, whose option is changed.
    Roll,
    /// From nothing to three members of 3.5, which go to 3.6 with a rehearsal.
    Upgrade,
    /// A snapshot to a volume.
    Save,
    /// A member that is restored from a snapshot.
    Restore,
    /// A run of a schedule, with the name of the run.
    Schedule,
    /// From nothing to three members, whose CAs are exchanged.
    ExchangeCas,
    /// From nothing to three members in plaintext, which get TLS.
    TurnTlsOn,
    /// A user of a cluster with authentication, with a certificate.
    User,
}

/// Objects that snapshots and restores need.
#[derive(Clone, Debug)]
pub struct Ground {
    digest: Option<Digest>,
}

impl Workload {
    /// Creates the objects that the first run needs; needs a running operator.
    pub async fn prepare(self, w: &World) -> Result<Ground> {
        let needs_none = [Self::Grow, Self::Replace, Self::Lose, Self::Roll, Self::ExchangeCas, Self::TurnTlsOn];
        if needs_none.contains(&self) || matches!(self, Self::Scale(_)) {
            return Ok(Ground { digest: None });
        }
        if self == Self::User {
            let mut source = make::secured("source", 1);
            source["spec"]["auth"] = json!({"enabled": true});
            w.create(source).await?;
            let guarded = |c: &Value| is_ready(c, 1) && c["status"]["authEnabled"] == json!(true);
            w.wait("EtcdCluster", "source", "Ready, with authentication", guarded).await?;
            return Ok(Ground { digest: None });
        }
        w.create(make::claim("backups", "1Gi")).await?;
        if self == Self::Upgrade {
            return Ok(Ground { digest: None });
        }
        w.create(make::cluster("source", 1)).await?;
        w.wait_ready("source", 1).await?;
        w.fill("source", 500).await?;
        let digest = Some(w.digest("source").await?);
        if self == Self::Restore {
            w.create(make::snapshot("base", "source", volume())).await?;
            w.wait_complete("base").await?;
        } else {
            // A workload that only records runs has its store checked too.
            w.toolbox("shelf", &["backups"]).await?;
        }
        Ok(Ground { digest })
    }

    /// Mask of a run's names.
    pub fn mask(self, run: &str) -> Mask {
        Mask::new(&[(run, if matches!(self, Self::Save | Self::Schedule) { "SNAPSHOT" } else { "CLUSTER" })])
    }

    /// Creates the object of the run, as a user would.
    pub async fn begin(self, w: &World, run: &str) -> Result<()> {
        let wish = match self {
            Self::Grow => make::secured(run, 3),
            Self::Roll | Self::TurnTlsOn => make::cluster(run, 3),
            Self::ExchangeCas => {
                let mut cluster = make::secured(run, 3);
                cluster["spec"]["tls"] = json!({"client": {"rotationGraceSeconds": 0}});
                cluster
            }
            Self::Upgrade => {
                let mut cluster = make::cluster(run, 3);
                cluster["spec"]["version"] = json!(OLDER);
                cluster
            }
            Self::Scale(sizes) => make::cluster(run, sizes[0]),
            Self::Replace | Self::Lose => {
                let mut cluster = make::cluster(run, 3);
                cluster["spec"]["repair"] = json!({"afterSeconds": 0, "keepClaimSeconds": 0});
                cluster
            }
            Self::Save => make::snapshot(run, "source", volume()),
            Self::Restore => make::restored(run, 1, json!({"snapshotRef": {"name": "base"}})),
            Self::User => {
                make::user("source", run, &json!({"certificate": {}}), &json!([{"key": "/x", "access": "Read"}]))
            }
            // Never due: the story starts its runs by hand.
            Self::Schedule => make::schedule(run, "source", "0 0 1 1 *", volume()),
        };
        w.create(wish).await.map(drop)
    }

    /// Whether the run has reached its end.
    pub async fn done(self, w: &World, run: &str) -> Result<bool> {
        if self == Self::Schedule {
            return begun(w, run).await;
        }
        let object = w.get(self.kind(), run).await?;
        if self == Self::User {
            return Ok(condition(&object, "Ready").is_some_and(|(status, ..)| status == "True"));
        }
        if self == Self::Save {
            ensure!(object["status"]["phase"] != "Failed", "{run} failed: {}", object["status"]);
            return Ok(object["status"]["phase"] == "Complete");
        }
        if let Self::Scale(sizes) = self {
            return scaled(w, run, &object, sizes).await;
        }
        if self == Self::Roll {
            return rolled(w, run, &object).await;
        }
        if self == Self::ExchangeCas {
            return exchanged(w, run, &object).await;
        }
        if self == Self::TurnTlsOn {
            return turned_on(w, run, &object).await;
        }
        if self == Self::Upgrade {
            return upgraded(w, run, &object).await;
        }
        if matches!(self, Self::Replace | Self::Lose) {
            return replaced(w, run, &object, self).await;
        }
        Ok(is_ready(&object, self.members()))
    }

    /// Waits for the end of the run, and checks it from outside: through etcd's own client, and in the store.
    pub async fn finish(self, w: &World, run: &str, ground: &Ground) -> Result<()> {
        match self {
            Self::Save => {
                let snapshot = w.wait_complete(run).await?;
                let stored = w.files("shelf", "/mnt/backups").await?;
                let manifests = manifests(&stored, &snapshot)?.len();
                ensure!(manifests == 1, "{manifests} manifests of {run} in the store: {stored:?}");
            }
            Self::User => {
                until("the user is ready", PATIENCE, async || {
                    Ok(if self.done(w, run).await? { Ok(()) } else { Err("on the way".to_owned()) })
                })
                .await?;
                let member = w.names_with("EtcdMember", "holdfast.dev/cluster=source").await?;
                let member = member.first().context("a member")?;
                let user = w.etcdctl(member, &["user", "get", run]).await?;
                let role = w.etcdctl(member, &["role", "get", run]).await?;
                ensure!(user.contains(&format!("Roles: {run}")) && role.contains("/x"), "{user}{role}");
            }
            Self::Schedule => {
                until("the run is recorded", PATIENCE, async || {
                    Ok(if begun(w, run).await? { Ok(()) } else { Err("on the way".to_owned()) })
                })
                .await?;
                let snapshot = w.get("EtcdSnapshot", run).await?;
                let mark = format!(
                    "-{}-",
                    snapshot["spec"]["run"]["uid"].as_str().and_then(|uid| uid.get(..8)).context("a UID")?
                );
                let stored = w.files("shelf", "/mnt/backups").await?;
                let manifests =
                    stored.iter().filter(|file| file.contains("manifest.json") && file.contains(&mark)).count();
                ensure!(manifests == 1, "{manifests} manifests of {run} in the store: {stored:?}");
            }
            Self::Grow
            | Self::Restore
            | Self::Replace
            | Self::Lose
            | Self::Roll
            | Self::ExchangeCas
            | Self::TurnTlsOn
            | Self::Upgrade
            | Self::Scale(_) => {
                until("every size was reached", PATIENCE, async || {
                    Ok(if self.done(w, run).await? { Ok(()) } else { Err("on the way".to_owned()) })
                })
                .await?;
                w.wait("EtcdCluster", run, "Ready", |c| is_ready(c, self.members())).await?;
                // A removed member's EtcdMember outlives its Pod, and the cluster is Ready meanwhile.
                until("etcd lists the EtcdMembers", PATIENCE, async || {
                    let label = format!("holdfast.dev/cluster={run}");
                    let wanted: BTreeSet<String> = w.names_with("EtcdMember", &label).await?.into_iter().collect();
                    let member = wanted.first().context("a member")?;
                    let listed = w.etcdctl(member, &["member", "list", "--write-out=json"]).await?;
                    let listed: Value = serde_json::from_str(listed.trim())?;
                    let name = |member: &Value| member["name"].as_str().unwrap_or_default().to_owned();
                    let listed: BTreeSet<String> =
                        listed["members"].as_array().into_iter().flatten().map(name).collect();
                    let differ = || format!("etcd lists {listed:?}, and the members are {wanted:?}");
                    Ok(if listed == wanted { Ok(()) } else { Err(differ()) })
                })
                .await?;
            }
        }
        if self == Self::Restore {
            let (is, was) = (w.digest(run).await?, ground.digest.as_ref().context("the source's digest")?);
            ensure!(is == *was, "restored {is:?} from {was:?}");
        }
        Ok(())
    }

    /// Deletes the run's object, and waits until it is gone.
    pub async fn clear(self, w: &World, run: &str) -> Result<()> {
        w.delete_and_wait(self.kind(), run).await?;
        match self {
            Self::Schedule => w.delete_and_wait("EtcdSnapshot", run).await,
            Self::Upgrade => w.delete_and_wait("EtcdSnapshot", &saved(run)).await,
            _ => Ok(()),
        }
    }

    const fn kind(self) -> &'static str {
        match self {
            Self::Save => "EtcdSnapshot",
            Self::Schedule => "EtcdSnapshotSchedule",
            Self::User => "EtcdUser",
            Self::Grow
            | Self::Restore
            | Self::Replace
            | Self::Lose
            | Self::Roll
            | Self::ExchangeCas
            | Self::TurnTlsOn
            | Self::Upgrade
            | Self::Scale(_) => "EtcdCluster",
        }
    }

    fn members(self) -> usize {
        match self {
            Self::Save | Self::Restore | Self::Schedule | Self::User => 1,
            Self::Scale(sizes) => sizes.last().and_then(|last| usize::try_from(*last).ok()).unwrap_or(0),
            Self::Grow
            | Self::Replace
            | Self::Lose
            | Self::Roll
            | Self::ExchangeCas
            | Self::TurnTlsOn
            | Self::Upgrade => 3,
        }
    }
}

/// Starts the run of a schedule once its `CronJob` exists; returns whether the record of the run is complete.
async fn begun(w: &World, run: &str) -> Result<bool> {
    let schedule = w.get("EtcdSnapshotSchedule", run).await?;
    let Some(cron) = schedule["status"]["cronJob"]["name"].as_str() else { return Ok(false) };
    if !w.names("Job").await?.iter().any(|job| job == run) {
        w.run_now(cron, run).await?;
    }
    if !w.names("EtcdSnapshot").await?.iter().any(|snapshot| snapshot == run) {
        return Ok(false);
    }
    let snapshot = w.get("EtcdSnapshot", run).await?;
    ensure!(snapshot["status"]["phase"] != "Failed", "{run} failed: {}", snapshot["status"]);
    Ok(snapshot["status"]["phase"] == "Complete")
}

/// Returns whether the cluster has the last size; where it has the present size, requests the next.
async fn scaled(w: &World, run: &str, cluster: &Value, sizes: &[i32]) -> Result<bool> {
    let at = cluster["metadata"]["annotations"]["holdfast.test/size"].as_str().map_or(Ok(0), str::parse::<usize>)?;
    let size = sizes[at];
    let settled = cluster["metadata"]["generation"] == cluster["status"]["observedGeneration"];
    let parked =
        || condition(cluster, "Ready").is_some_and(|(status, reason, _)| status == "True" && reason == "Parked");
    let reached = if size == 0 { parked() } else { is_ready(cluster, usize::try_from(size)?) };
    let Some(next) = sizes.get(at + 1).filter(|_| reached && settled) else { return Ok(reached && settled) };
    let annotations = json!({"holdfast.test/size": (at + 1).to_string()});
    w.patch("EtcdCluster", run, json!({"metadata": {"annotations": annotations}, "spec": {"replicas": next}})).await?;
    Ok(false)
}

/// Returns whether every member serves with the changed option; before, once all members serve, changes it.
async fn rolled(w: &World, run: &str, cluster: &Value) -> Result<bool> {
    let settled = cluster["metadata"]["generation"] == cluster["status"]["observedGeneration"];
    let ready = is_ready(cluster, 3) && settled;
    if cluster["spec"]["options"].is_null() {
        if ready {
            w.patch("EtcdCluster", run, json!({"spec": {"options": {"snapshotCount": 5000}}})).await?;
        }
        return Ok(false);
    }
    Ok(ready && proven(w, run).await? && cluster["status"]["updatedMembers"] == 3)
}

/// Returns whether both CAs are exchanged; before, once all members serve, asks for others.
async fn exchanged(w: &World, run: &str, cluster: &Value) -> Result<bool> {
    let ready = is_ready(cluster, 3);
    if cluster["metadata"]["annotations"]["holdfast.dev/rotate-ca"].is_null() {
        if ready {
            let annotations = json!({"holdfast.dev/rotate-ca": "all/one"});
            w.patch("EtcdCluster", run, json!({"metadata": {"annotations": annotations}})).await?;
        }
        return Ok(false);
    }
    for ca in ["client-ca", "peer-ca"] {
        let secret = w.get("Secret", &format!("{run}-{ca}")).await?;
        let over = secret["metadata"]["annotations"]["holdfast.dev/rotated-for"] == "one"
            && secret["data"]["next.crt"].is_null();
        if !over {
            return Ok(false);
        }
    }
    let rotation = |plane: &str| !cluster["status"]["tls"][plane]["rotation"].is_null();
    Ok(ready && !rotation("client") && !rotation("peer"))
}

/// Returns whether members serve both, and TLS among each other; before, once all members serve, asks for it.
async fn turned_on(w: &World, run: &str, cluster: &Value) -> Result<bool> {
    let ready = is_ready(cluster, 3);
    if cluster["spec"]["tls"]["insecure"] == json!(true) {
        if ready {
            let both = json!({"insecure": null, "client": {"allowPlaintext": true}});
            w.patch("EtcdCluster", run, json!({"spec": {"tls": both}})).await?;
        }
        return Ok(false);
    }
    let there = cluster["status"]["transport"] == "ClientsPlaintext" && cluster["status"]["updatedMembers"] == 3;
    Ok(ready && there && proven(w, run).await?)
}

/// Returns whether no member keeps earlier settings, as each does for 20 s.
async fn proven(w: &World, run: &str) -> Result<bool> {
    for member in w.names_with("EtcdMember", &format!("holdfast.dev/cluster={run}")).await? {
        if !w.get("EtcdMember", &member).await?["spec"]["served"].is_null() {
            return Ok(false);
        }
    }
    Ok(true)
}

const OLDER: &str = "3.5.35";
const NEWER: &str = "3.6.16";

/// Name of the snapshot that is rehearsed.
fn saved(run: &str) -> String {
    format!("{run}-saved")
}

/// Returns whether the members went to the next minor; before, once they serve, saves a snapshot and asks for that minor.
async fn upgraded(w: &World, run: &str, cluster: &Value) -> Result<bool> {
    let settled = cluster["metadata"]["generation"] == cluster["status"]["observedGeneration"];
    let ready = is_ready(cluster, 3) && settled;
    if cluster["spec"]["version"] == OLDER {
        let snapshot = saved(run);
        if !w.names("EtcdSnapshot").await?.contains(&snapshot) {
            if ready {
                w.create(make::snapshot(&snapshot, run, volume())).await?;
            }
        } else if w.get("EtcdSnapshot", &snapshot).await?["status"]["phase"] == "Complete" {
            w.patch("EtcdCluster", run, json!({"spec": {"version": NEWER}})).await?;
        }
        return Ok(false);
    }
    let status = &cluster["status"];
    let over = status["latches"]["upgrade"].is_null() && status["version"] == NEWER && status["updatedMembers"] == 3;
    Ok(ready && over && proven(w, run).await?)
}

/// Returns whether a member was replaced; before, once all members serve, requests that or deletes a claim with its Pod.
async fn replaced(w: &World, run: &str, cluster: &Value, workload: Workload) -> Result<bool> {
    let ready = is_ready(cluster, 3);
    let key = if workload == Workload::Lose { "holdfast.test/lost" } else { "holdfast.dev/replace" };
    let asked = cluster["metadata"]["annotations"][key].as_str();
    let Some(asked) = asked else {
        let members = w.names_with("EtcdMember", &format!("holdfast.dev/cluster={run}")).await?;
        for member in members.iter().filter(|_| ready) {
            // Always a joiner: the end of a run that replaces the seed differs.
            if w.get("EtcdMember", member).await?["spec"]["role"] == "joiner" {
                let annotations = json!({ key: member });
                w.patch("EtcdCluster", run, json!({"metadata": {"annotations": annotations}})).await?;
                if workload == Workload::Lose {
                    w.delete("PersistentVolumeClaim", &format!("data-{member}")).await?;
                    w.delete("Pod", member).await?;
                }
                break;
            }
        }
        return Ok(false);
    };
    let members = w.names_with("EtcdMember", &format!("holdfast.dev/cluster={run}")).await?;
    Ok(ready && !members.iter().any(|name| name == asked))
}

fn volume() -> Value {
    json!({"pvc": {"claimName": "backups", "subPath": "house"}})
}
