//! etcd's own robustness suite judges a cluster of Holdfast. Its clients record the answers of etcd while members are killed and
//! frozen, a member defragments its file, a member loses its volume, the operator is killed, an option rolls, the cluster goes from three members to five and back,
//! and to the next minor. The suite's
//! validators compare the record with the members' WALs.
//!
//! The verdict is read from the validators' answers. The same validators have to refuse the record after one acknowledged write is
//! removed from it. The reports, with the faults, are written to `robustness.json` beside the logs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::support::env::soak;
use crate::support::host_operator::{HostOperator, Seat, send};
use crate::support::kube_helpers::{is_ready, until};
use crate::support::luck::Luck;
use crate::support::make;
use crate::support::program::{Program, command};
use crate::support::world::{PATIENCE, World};

const OLDER: &str = "3.6.16";
const VERSION: &str = "3.7.3";

/// Traffic of etcd's suite, requests of all kinds or those of kube-apiserver, with its rate per second: porcupine keeps all keys
/// for each operation, and kube-apiserver's traffic has many keys.
const TRAFFICS: [(&str, u32); 2] = [("etcd", 60), ("kubernetes", 40)];

/// The divisor of the rate, by the number of records that were not decided; a round takes as many records. porcupine tries every order of the operations without an answer, and
/// gives up on a record with many of them, as a busy machine makes: such a record proves nothing, and a slower one is judged.
const SLOWDOWNS: [u32; 3] = [1, 3, 6];

/// Duration of one record. A longer run takes several: porcupine's memory grows with the square of a record's length.
const LASTS: Duration = Duration::from_mins(1);

/// Fewest acknowledged operations that prove something.
const ENOUGH: u64 = 1_000;

/// Time for which a member is stopped: etcd elects another leader after one second.
const FROZEN: Duration = Duration::from_secs(3);

pub async fn tell(w: &World) -> Result<()> {
    let rounds = if soak() { 10 } else { 1 };
    let mut luck = Luck::of(w.story);
    let first = usize::try_from(luck.below(2))?;
    let seat = Seat::new(w, "host", None).await?;
    let mut operator = seat.start(&[])?;
    let mut reports = vec![];
    let mut undecided = 0;
    for round in 0..rounds * SLOWDOWNS.len() {
        if reports.len() == rounds {
            break;
        }
        let cluster = format!("r{round}");
        let folder = w.env.logs.join(format!("{}.{cluster}", w.story));
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        let (traffic, most) = TRAFFICS[(first + round) % TRAFFICS.len()];
        let rate = (most / SLOWDOWNS[undecided.min(SLOWDOWNS.len() - 1)]).to_string();
        let mut trial = Trial {
            w,
            seat: &seat,
            operator,
            luck: luck.fork(),
            cluster: cluster.clone(),
            folder: folder.clone(),
            faults: BTreeMap::new(),
        };
        let report =
            w.step(&format!("{cluster}: {traffic} traffic under faults, judged"), trial.run(traffic, &rate)).await?;
        operator = trial.operator;
        if is_undecided(&report) {
            undecided += 1;
            println!("e2e: {}: {cluster}: porcupine found no answer in its time", w.story);
        } else {
            judge(&report)?;
            reports.push(report);
        }
        w.delete_and_wait("EtcdCluster", &cluster).await?;
        // After the judgement the record is of no more use.
        std::fs::remove_dir_all(&folder)?;
    }
    ensure!(reports.len() == rounds, "of {} records {undecided} were not decided", reports.len() + undecided);
    std::fs::write(w.env.logs.join("robustness.json"), serde_json::to_vec_pretty(&reports)?)?;
    drop(operator);
    seat.no_defects()
}

/// Whether porcupine gave up on the record, or on the same record with a hole. Giving up is neither approval nor refusal.
fn is_undecided(report: &Value) -> bool {
    let gave_up = |answer: &Value| answer == "Timeout";
    let controls = report["controls"].as_array().is_some_and(|all| all.iter().any(|c| gave_up(&c["answer"])));
    gave_up(&report["verdict"]["linearization"]) || controls
}

/// Checks that the validators approved, had enough operations, and refused the record with a hole.
fn judge(report: &Value) -> Result<()> {
    for validator in ["assumptions", "linearization", "watch", "serializable"] {
        ensure!(report["verdict"][validator] == "Success", "{validator}: {}", report["verdict"]);
    }
    ensure!(report["etcdVersion"] == format!("{OLDER}, then {VERSION}"), "{report}");
    let operations = report["operations"].as_object().context("operations")?;
    let acknowledged: u64 = operations.values().filter_map(|kind| kind["acknowledged"].as_u64()).sum();
    ensure!(acknowledged >= ENOUGH, "{acknowledged} operations were acknowledged: {operations:?}");
    ensure!(report["watch"]["events"].as_u64() >= Some(ENOUGH), "{}", report["watch"]);
    let controls = report["controls"].as_array().context("controls")?;
    ensure!(controls.len() == 3, "{controls:?}");
    for control in controls {
        let answer = control["answer"].as_str().unwrap_or_default();
        ensure!(answer.starts_with("Failure: "), "a record with a hole was not refused: {control}");
    }
    for fault in Fault::ALL {
        ensure!(report["faults"][fault.name()].as_u64() >= Some(1), "no {}: {}", fault.name(), report["faults"]);
    }
    Ok(())
}

/// A fault of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    MemberKilled,
    MemberFrozen,
    MemberDefragmented,
    VolumeLost,
    OperatorKilled,
    ScaledOut,
    ScaledIn,
    Rolled,
    Upgraded,
}

impl Fault {
    const ALL: [Self; 9] = [
        Self::MemberKilled,
        Self::MemberFrozen,
        Self::MemberDefragmented,
        Self::VolumeLost,
        Self::OperatorKilled,
        Self::ScaledOut,
        Self::ScaledIn,
        Self::Rolled,
        Self::Upgraded,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::MemberKilled => "a member's Pod deleted without grace",
            Self::MemberFrozen => "a member's etcd stopped for 3 s",
            Self::MemberDefragmented => "a member's etcd defragmented, with its clients",
            Self::VolumeLost => "a member's claim and Pod deleted, and another member made in its place",
            Self::OperatorKilled => "the operator killed",
            Self::ScaledOut => "scaled from 3 to 5, and the operator killed on the way",
            Self::ScaledIn => "scaled from 5 to 3, and the operator killed on the way",
            Self::Rolled => "an option changed in all members, and the operator killed on the way",
            Self::Upgraded => "all members taken from 3.6 to 3.7, and the operator killed on the way",
        }
    }
}

/// One record of a new cluster, from its first write to the verdict.
struct Trial<'a> {
    w: &'a World,
    seat: &'a Seat,
    operator: HostOperator,
    luck: Luck,
    cluster: String,
    folder: PathBuf,
    faults: BTreeMap<Fault, u32>,
}

impl Trial<'_> {
    async fn run(&mut self, traffic: &str, rate: &str) -> Result<Value> {
        let mut cluster = make::cluster(&self.cluster, 3);
        cluster["spec"]["version"] = json!(OLDER);
        cluster["spec"]["upgrade"] = json!({"rehearse": false});
        cluster["spec"]["repair"] = json!({"afterSeconds": 0, "keepClaimSeconds": 0});
        self.w.create(cluster).await?;
        self.w.wait_ready(&self.cluster, 3).await?;
        self.record_snapshot().await?;
        let endpoints = self.endpoints().await?;
        let mut clients =
            self.program(&["traffic", "--endpoints", &endpoints, "--traffic", traffic, "--rate", rate], "traffic")?;
        clients.until_said("traffic runs").await?;
        let begun = Instant::now();
        // Long enough for every client and watcher to connect.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let all = [
            Fault::MemberKilled,
            Fault::MemberFrozen,
            Fault::MemberDefragmented,
            Fault::ScaledOut,
            Fault::ScaledIn,
            Fault::Rolled,
            // Once: Holdfast replaces at most one member an hour in a cluster.
            Fault::VolumeLost,
            Fault::OperatorKilled,
            Fault::Upgraded,
        ];
        for fault in all {
            self.inject(fault).await?;
        }
        while begun.elapsed() < LASTS {
            let often = [Fault::MemberKilled, Fault::MemberFrozen, Fault::MemberDefragmented, Fault::OperatorKilled];
            let pick = usize::try_from(self.luck.below(often.len() as u64))?;
            self.inject(often[pick]).await?;
        }
        let status = clients.finish().await?;
        ensure!(status.success(), "the clients ended with {status}: {}", clients.log.display());
        self.collect("").await?;
        let mut validators = self.program(&["validate"], "validate")?;
        let status = validators.finish().await?;
        ensure!(status.success(), "the validators ended with {status}: {}", validators.log.display());
        let mut report: Value = serde_json::from_slice(&std::fs::read(self.folder.join("report.json"))?)?;
        let now = self.w.get("EtcdCluster", &self.cluster).await?["status"]["version"].clone();
        let versions = [&report["etcdVersion"], &now].map(|version| version.as_str().unwrap_or_default().to_owned());
        report["etcdVersion"] = json!(versions.join(", then "));
        report["faults"] = self.faults.iter().map(|(fault, times)| (fault.name().to_owned(), json!(times))).collect();
        Ok(report)
    }

    /// Records a complete snapshot, which the upgrade asks for. A real save reads etcd's roles through the log, and the validators
    /// end at an entry that their clients do not write.
    async fn record_snapshot(&mut self) -> Result<()> {
        self.operator.kill()?;
        let named = format!("{}-saved", self.cluster);
        let uid = self.w.get("EtcdCluster", &self.cluster).await?["metadata"]["uid"].clone();
        self.w.create(make::snapshot(&named, &self.cluster, json!({ "s3": make::s3() }))).await?;
        let artifact = json!({
            "uri": "s3://none/none", "key": "none", "dbBytes": 1, "size": "1 B", "storedBytes": 1, "sha256": "none",
            "compression": "none", "etcdVersion": OLDER,
        });
        let now = jiff::Timestamp::now().to_string();
        let status = json!({"phase": "Complete", "clusterUID": uid, "completedAt": now, "artifact": artifact});
        self.w.patch_status("EtcdSnapshot", &named, status).await?;
        self.operator = self.seat.start(&[])?;
        self.operator.until_leading().await
    }

    /// Injects one fault, and waits until the cluster is whole again. A fault that empties a volume collects the WALs before.
    async fn inject(&mut self, fault: Fault) -> Result<()> {
        *self.faults.entry(fault).or_default() += 1;
        let what = format!("{}: {}", self.cluster, fault.name());
        let w = self.w;
        w.step(&what, async {
            match fault {
                Fault::MemberKilled => self.kill_member().await,
                Fault::MemberFrozen => self.freeze_member().await,
                Fault::MemberDefragmented => self.defragment_member().await,
                Fault::VolumeLost => self.lose_volume().await,
                Fault::OperatorKilled => self.kill_operator().await,
                Fault::ScaledOut => self.scale(5).await,
                Fault::ScaledIn => {
                    // The leaving members' volumes go too.
                    self.collect("-of-five").await?;
                    self.scale(3).await
                }
                Fault::Rolled => self.change(json!({"options": {"maxTxnOps": 256}})).await,
                Fault::Upgraded => self.change(json!({ "version": VERSION })).await,
            }
        })
        .await
    }

    async fn kill_member(&mut self) -> Result<()> {
        let pod = self.pick().await?;
        let voters = self.pods().await?.len();
        let uid = self.w.get("Pod", &pod).await?["metadata"]["uid"].clone();
        self.w.env.kubectl(&[
            "delete",
            "pod",
            &pod,
            "-n",
            &self.w.ns,
            "--grace-period=0",
            "--force",
            "--wait=false",
        ])?;
        let back = |p: &Value| p["metadata"]["uid"] != uid && p["status"]["phase"] == "Running";
        self.w.wait("Pod", &pod, "another Pod", back).await?;
        self.w.wait_ready(&self.cluster, voters).await
    }

    async fn freeze_member(&mut self) -> Result<()> {
        let (pod, voters) = (self.pick().await?, self.pods().await?.len());
        let frozen = Frozen::stop(etcd_of(&self.w.ns, &pod)?)?;
        tokio::time::sleep(FROZEN).await;
        drop(frozen);
        self.w.wait_ready(&self.cluster, voters).await
    }

    /// Asks a member's etcd by hand, which the operator never does while clients are connected: their requests wait or fail.
    async fn defragment_member(&mut self) -> Result<()> {
        let (pod, voters) = (self.pick().await?, self.pods().await?.len());
        self.w.etcdctl(&pod, &["defrag"]).await?;
        self.w.wait_ready(&self.cluster, voters).await
    }

    async fn lose_volume(&mut self) -> Result<()> {
        self.collect("-before-the-loss").await?;
        let (lost, voters) = (self.pick().await?, self.pods().await?.len());
        self.w.delete("PersistentVolumeClaim", &format!("data-{lost}")).await?;
        self.w.delete("Pod", &lost).await?;
        until("another member", PATIENCE, async || {
            let pods = self.pods().await?;
            Ok(if pods.len() == voters && !pods.contains(&lost) { Ok(()) } else { Err(format!("{pods:?}")) })
        })
        .await?;
        self.w.wait_ready(&self.cluster, voters).await
    }

    async fn kill_operator(&mut self) -> Result<()> {
        self.operator.kill()?;
        self.operator = self.seat.start(&[])?;
        self.operator.until_leading().await
    }

    async fn scale(&mut self, replicas: usize) -> Result<()> {
        self.w.patch("EtcdCluster", &self.cluster, json!({"spec": {"replicas": replicas}})).await?;
        // In the middle of the change, which takes some ten seconds.
        tokio::time::sleep(Duration::from_millis(self.luck.below(4_000))).await;
        self.kill_operator().await?;
        self.w.wait_ready(&self.cluster, replicas).await?;
        until("as many Pods as members", PATIENCE, async || {
            let pods = self.pods().await?;
            Ok(if pods.len() == replicas { Ok(()) } else { Err(format!("{pods:?}")) })
        })
        .await
    }

    /// Changes a part of the spec that every member gets in turn.
    async fn change(&mut self, spec: Value) -> Result<()> {
        self.w.patch("EtcdCluster", &self.cluster, json!({ "spec": spec })).await?;
        tokio::time::sleep(Duration::from_millis(self.luck.below(10_000))).await;
        self.kill_operator().await?;
        let all = |c: &Value| {
            let status = &c["status"];
            is_ready(c, 3) && status["updatedMembers"] == 3 && status["latches"]["upgrade"].is_null()
        };
        self.w.wait("EtcdCluster", &self.cluster, "every member with the changed spec", all).await.map(drop)
    }

    async fn pods(&self) -> Result<Vec<String>> {
        let ours = format!("holdfast.dev/cluster={},app.kubernetes.io/component=etcd-member", self.cluster);
        self.w.names_with("Pod", &ours).await
    }

    async fn pick(&mut self) -> Result<String> {
        let mut pods = self.pods().await?;
        ensure!(!pods.is_empty(), "no members");
        Ok(pods.swap_remove(usize::try_from(self.luck.below(pods.len() as u64))?))
    }

    /// The clients' Service, as applications use it, three times: each entry gets clients and a watcher of its own, which the
    /// Service spreads over the members, and leads to other members when a member ends.
    async fn endpoints(&self) -> Result<String> {
        let service = self.w.get("Service", &format!("{}-client", self.cluster)).await?;
        let url = format!("http://{}:2379", service["spec"]["clusterIP"].as_str().context("an address")?);
        Ok([url.as_str(); 3].join(","))
    }

    /// Copies the members' WALs. The volumes are folders of this machine, below a folder that the Pod's UID names.
    async fn collect(&self, suffix: &str) -> Result<()> {
        let state = self.w.env.kubeconfig.parent().context("the testbed's state")?;
        let mut args = vec!["collect".to_owned()];
        for pod in self.pods().await? {
            let object = self.w.get("Pod", &pod).await?;
            let uid = object["metadata"]["uid"].as_str().context("a UID")?;
            let volumes = state.join("kubelet/pods").join(uid).join("volumes/kubernetes.io~csi");
            let volume = std::fs::read_dir(&volumes)?.next().context("no volume")??.path();
            args.push(format!("{pod}{suffix}={}", volume.join("mount/data").display()));
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut copying = self.program(&args, "collect")?;
        let status = copying.finish().await?;
        ensure!(status.success(), "collecting WALs ended with {status}: {}", copying.log.display());
        Ok(())
    }

    /// Starts the testbed's program with etcd's suite in it, in this trial's folder.
    fn program(&self, args: &[&str], name: &str) -> Result<Program> {
        let program = std::env::var("HOLDFAST_ROBUSTNESS").context("HOLDFAST_ROBUSTNESS, from testbed env")?;
        let (verb, rest) = args.split_first().context("a verb")?;
        Program::start(
            command(Path::new(&program)).args([verb, "--folder"]).arg(&self.folder).args(rest),
            &self.w.env.logs.join(format!("{}.{}-{name}.log", self.w.story, self.cluster)),
        )
    }
}

/// A stopped process; dropping it continues the process.
struct Frozen(u32);

impl Frozen {
    fn stop(pid: u32) -> Result<Self> {
        send("STOP", pid)?;
        Ok(Self(pid))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = send("CONT", self.0);
    }
}

/// The process of a member's etcd: Pods of the testbed are processes of this machine.
pub(super) fn etcd_of(ns: &str, pod: &str) -> Result<u32> {
    let (name, token) = (format!("--name={pod}"), format!("--initial-cluster-token={ns}-"));
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        // A process that ended meanwhile has no command line, and is skipped.
        let line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        let args: Vec<&str> = line.split('\0').collect();
        if args[0].ends_with("/etcd") && args.contains(&name.as_str()) && args.iter().any(|a| a.starts_with(&token)) {
            return Ok(pid);
        }
    }
    bail!("no process is the etcd of {pod}")
}
